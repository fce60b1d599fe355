//! Scopes of programs in other places: over another C library, in another pid namespace, behind a filter of system calls.

use std::fs;

use anyhow::ensure;
use scalpel_tests::catalog::{SCOPED, SCOPED_MUSL, SCOPED_MUSL_STATIC};
use scalpel_tests::fixture::Fixture;
use scalpel_tests::scope::{Target, complete};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;

const CALLS: usize = 20;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "scope":
        a_program_over_musl_is_no_different,
        a_static_program_over_musl_is_no_different,
        a_program_in_another_pid_namespace_is_no_different,
        a_program_behind_a_filter_of_system_calls_is_no_different,
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
