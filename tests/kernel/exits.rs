//! The exit table: what return probes would kill survives, with its output unchanged and every entry counted.

use std::process::Command;

use anyhow::ensure;
use scalpel_tests::catalog::{
    ALTSTACK, BACKTRACES, COROUTINES, FIBERS, GOROUTINES, JUMP, PANICS, RECOVERS, SANDBOXED,
    SIGNALS, THREADS, THROWS, VFORKS,
};
use scalpel_tests::child;
use scalpel_tests::fixture::Fixture;
use scalpel_tests::scalpel::Record;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::truth::Truth;

const DANGEROUS: [(Fixture, &str, &str); 16] = [
    (THROWS, "", "a C++ program that throws through three frames"),
    (BACKTRACES, "", "a C++ program that walks its stack"),
    (PANICS, "", "a Rust program that panics and catches"),
    (GOROUTINES, "", "a Go program whose stacks grow"),
    (ALTSTACK, "", "a handler on a stack above the thread's"),
    (SIGNALS, "", "a handler on the thread's own stack"),
    (
        SIGNALS,
        "altstack",
        "a handler on a stack below the thread's",
    ),
    (COROUTINES, "", "coroutines on stacks of the heap"),
    (
        COROUTINES,
        "near",
        "coroutines on stacks within the main stack",
    ),
    (FIBERS, "", "coroutines on stacks mapped below a thread's"),
    (
        FIBERS,
        "near",
        "coroutines on ever deeper stacks within the main stack",
    ),
    (JUMP, "", "longjmp over probed frames"),
    (
        RECOVERS,
        "",
        "a fault left by siglongjmp from an alternate stack",
    ),
    (
        SANDBOXED,
        "",
        "a seccomp filter that kills at unknown system calls",
    ),
    (VFORKS, "", "vfork children on the parent's stack"),
    (THREADS, "", "pthread_exit and cancellation"),
];

pub(crate) fn add(suite: &mut Suite) {
    for (program, scenario, what) in DANGEROUS {
        for exits in ["default", "ret", "none"] {
            let name = format!("{what} survives --exits {exits}");
            suite.test("exits", &name, move || launched(&program, scenario, exits));
        }
        suite.test("exits", &format!("{what} survives an attach"), move || {
            attached(&program, scenario)
        });
        suite.test(
            "exits",
            &format!("{what} survives plain defaults"),
            move || by_default(&program, scenario),
        );
    }
    suite.test(
        "exits",
        "coroutines survive when nothing else is probed",
        only_the_coroutines,
    );
}

/// Only the functions that run on foreign stacks: no probed frame below tells the guard that something is odd.
fn only_the_coroutines() -> Outcome {
    for (program, scenario) in [
        (COROUTINES, "near"),
        (COROUTINES, ""),
        (FIBERS, "near"),
        (FIBERS, ""),
    ] {
        let copy = program.copy()?;
        let scenario: Vec<&str> = Some(scenario)
            .into_iter()
            .filter(|s| !s.is_empty())
            .collect();
        let plain = child::run(with_args(copy.path(), &scenario))?;
        let record =
            crate::exact(copy.directory()).args(["-f", "body", "-f", "step", "-f", "give_way"]);
        let recorded = record
            .command(copy.path(), &scenario)?
            .expect_code(plain.code())?;
        ensure!(
            recorded.ended.stdout == plain.stdout,
            "output changed:\n{}\n{}",
            plain.stdout,
            recorded.ended.stdout
        );
        let mut truth = Truth::of(&plain.stdout)?;
        truth
            .calls
            .retain(|name, _| ["body", "step", "give_way"].contains(&name.as_str()));
        recorded.report()?.counts_agree_with(&truth)?;
    }
    Ok(())
}

fn launched(program: &Fixture, scenario: &str, exits: &str) -> Outcome {
    let copy = program.copy()?;
    let scenario: Vec<&str> = Some(scenario)
        .into_iter()
        .filter(|s| !s.is_empty())
        .collect();
    let plain = child::run(with_args(copy.path(), &scenario))?;
    let record = crate::exact(copy.directory()).args(["--exits", exits]);
    let recorded = record
        .command(copy.path(), &scenario)?
        .expect_code(plain.code())?;
    ensure!(
        recorded.ended.stdout == plain.stdout,
        "output changed:\n{}\n{}",
        plain.stdout,
        recorded.ended.stdout
    );
    recorded
        .report()?
        .counts_agree_with(&Truth::of(&plain.stdout)?)
}

fn attached(program: &Fixture, scenario: &str) -> Outcome {
    let copy = program.copy()?;
    let scenario: Vec<&str> = Some(scenario)
        .into_iter()
        .filter(|s| !s.is_empty())
        .collect();
    let plain = child::run(with_args(copy.path(), &scenario))?;
    let mut target = Target::start(copy.path(), &scenario)?;
    let recording = crate::exact(copy.directory()).attach(target.pid())?;
    let truth = target.work()?;
    let recorded = recording.stop()?.expect_code(0)?;
    let ended = target.finish()?.expect_code(plain.code())?;
    ensure!(
        ended.stdout == format!("ready\n{}", plain.stdout),
        "output changed:\n{}\n{}",
        plain.stdout,
        ended.stdout
    );
    recorded.report()?.counts_agree_with(&truth)
}

/// No option at all: what a newcomer types. The breaker may detach a hot function, but nothing may change.
fn by_default(program: &Fixture, scenario: &str) -> Outcome {
    let copy = program.copy()?;
    let scenario: Vec<&str> = Some(scenario)
        .into_iter()
        .filter(|s| !s.is_empty())
        .collect();
    let plain = child::run(with_args(copy.path(), &scenario))?;
    let recorded = Record::into(copy.directory())
        .command(copy.path(), &scenario)?
        .expect_code(plain.code())?;
    ensure!(
        recorded.ended.stdout == plain.stdout,
        "output changed:\n{}\n{}",
        plain.stdout,
        recorded.ended.stdout
    );
    recorded
        .report()?
        .counts_do_not_exceed(&Truth::of(&plain.stdout)?)
}

fn with_args(path: &std::path::Path, args: &[&str]) -> Command {
    let mut command = Command::new(path);
    command.args(args);
    command
}
