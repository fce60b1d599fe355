//! Scopes of programs in other places: over another C library, in another pid namespace, behind a filter of system calls, in
//! code that a runtime compiles and tells of by a jitdump.

use std::fs;

use anyhow::{Context, ensure};
use scalpel_tests::catalog::{SCOPED, SCOPED_MUSL, SCOPED_MUSL_STATIC};
use scalpel_tests::fixture::Fixture;
use scalpel_tests::scope::{Row, Target, complete};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;

const CALLS: usize = 20;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "scope":
        a_program_over_musl_is_no_different,
        a_static_program_over_musl_is_no_different,
        a_program_in_another_pid_namespace_is_no_different,
        a_program_behind_a_filter_of_system_calls_is_no_different,
        a_function_of_a_jitdump_is_scoped_by_name_and_shown_as_it_was,
    );
}

/// Each call alike, callees stepped and at full speed, and the program as it was.
fn alike(target: Target) -> Outcome {
    let calls = CALLS.to_string();
    for follow in ["none", "known", "all"] {
        let args = ["--follow-calls", follow, "--calls", &calls];
        let scope = complete(target.pid(), "calling", &args)?;
        ensure!(scope.calls.len() == CALLS && scope.tier == "ptrace");
        let lengths = scope.calls.iter().map(|call| scope.rows(call).len());
        let first = lengths.min().unwrap_or(0);
        ensure!(first > 10, "{first} rows");
        for call in &scope.calls {
            ensure!(call.tid == target.pid(), "thread {}", call.tid);
            ensure!(scope.rows(call).len() == first, "{follow}: calls differ");
        }
    }
    target.unharmed()
}

fn over(fixture: &Fixture) -> Outcome {
    alike(Target::start(fixture, "calling")?)
}

fn a_program_over_musl_is_no_different() -> Outcome {
    over(&SCOPED_MUSL)
}

fn a_static_program_over_musl_is_no_different() -> Outcome {
    over(&SCOPED_MUSL_STATIC)
}

fn a_program_in_another_pid_namespace_is_no_different() -> Outcome {
    let target = Target::start_in_namespace(&SCOPED, "calling")?;
    let status = fs::read_to_string(format!("/proc/{}/status", target.pid()))?;
    let inner = status.lines().find(|line| line.starts_with("NSpid:"));
    ensure!(inner.is_some_and(|line| line.ends_with("\t1")), "{inner:?}");
    alike(target)
}

fn a_program_behind_a_filter_of_system_calls_is_no_different() -> Outcome {
    let target = Target::start(&SCOPED, "filtered")?;
    let status = fs::read_to_string(format!("/proc/{}/status", target.pid()))?;
    ensure!(status.contains("Seccomp:\t2"), "no filter: {status}");
    alike(target)
}

/// Its code is another one in each call, at the same place: the dump has the first.
fn a_function_of_a_jitdump_is_scoped_by_name_and_shown_as_it_was() -> Outcome {
    let name = "compiled_by_hand";
    let target = Target::start(&SCOPED, "compiled")?;
    let scope = complete(target.pid(), name, &["--calls", "3"])?;
    let mut last = 0;
    for call in &scope.calls {
        let rows = scope.rows(call);
        let ours = |row: &&Row| row.symbol.as_deref() == Some(name);
        ensure!(rows.iter().filter(ours).count() == 3, "{rows:?}");
        let bytes = rows.first().map_or("", |row| &row.bytes);
        let version = bytes.strip_prefix("b8").unwrap_or_default();
        let version = u32::from_str_radix(version, 16)
            .context("no move")?
            .swap_bytes();
        ensure!(version > last, "version {version} behind {last}");
        last = version;
    }
    target.unharmed()
}
