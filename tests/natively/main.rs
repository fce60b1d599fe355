//! The fixtures by themselves: what they say about themselves must hold before it can be held against a tracer.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use anyhow::ensure;
use scalpel_tests::catalog::{CALLS, OFFSETS, PROGRAMS};
use scalpel_tests::child;
use scalpel_tests::fixture::Fixture;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;
use scalpel_tests::truth::Truth;

fn main() -> ExitCode {
    let mut suite = Suite::new("fixtures", None);
    for program in PROGRAMS {
        suite.test(
            "fixtures",
            &format!("{} says the same of every run", program.name),
            move || consistent(&program),
        );
    }
    tests!(suite, "fixtures": offsets_differ_from_addresses, calls_are_known_by_construction);
    suite.run()
}

/// Two runs agree, and no function has more calls by counted edges than it counted itself.
fn consistent(program: &Fixture) -> Outcome {
    let (first, again) = (account(program)?, account(program)?);
    ensure!(!first.calls.is_empty(), "it counts nothing");
    ensure!(
        first.calls == again.calls,
        "two runs differ: {:?} and {:?}",
        first.calls,
        again.calls
    );
    let mut into: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, callee, calls) in &first.edges {
        *into.entry(callee).or_default() += calls;
    }
    for (callee, calls) in into {
        ensure!(
            first.calls(callee)? >= calls,
            "{callee} was called {calls} times, but counted fewer"
        );
    }
    Ok(())
}

fn account(program: &Fixture) -> anyhow::Result<Truth> {
    Truth::of(&child::run(Command::new(program.build()?))?.stdout)
}

/// `fib` and `deep` by their formulas: the counters themselves are right.
fn calls_are_known_by_construction() -> Outcome {
    let truth = account(&CALLS)?;
    let (mut fib, mut below) = (1, 1);
    for _ in 1..15 {
        (fib, below) = (1 + fib + below, fib);
    }
    ensure!(truth.calls("fib")? == fib, "fib(15) makes {fib} calls");
    ensure!(truth.calls("deep")? == 5 * 200, "five times 200 deep");
    ensure!(
        truth.calls("is_even")? + truth.calls("is_odd")? == 52,
        "51 down to 0"
    );
    Ok(())
}

fn offsets_differ_from_addresses() -> Outcome {
    use object::{Object as _, ObjectSegment as _};
    let bytes = std::fs::read(OFFSETS.build()?)?;
    let file = object::File::parse(&*bytes)?;
    ensure!(
        file.segments()
            .any(|s| s.file_range().1 > 0x800 && s.file_range().0 & !0xfff != s.address() & !0xfff)
    );
    Ok(())
}
