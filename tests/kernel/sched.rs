//! CPU and wall time apart, against what the program measured of itself in the same run.

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::TIMES;
use scalpel_tests::report::{Function, Report};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;
use scalpel_tests::truth::Truth;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "sched":
        a_burner_has_its_cpu_time_and_a_sleeper_only_wall_time,
        time_in_callees_is_total_and_not_self,
        the_same_holds_for_complete_records,
    );
}

fn record(args: &[&str]) -> anyhow::Result<(Report, Truth)> {
    let copy = TIMES.copy()?;
    let recorded = crate::exact(copy.directory())
        .args(args)
        .command(copy.path(), &[])?
        .expect_code(0)?;
    let truth = Truth::of(&recorded.ended.stdout)?;
    Ok((recorded.report()?, truth))
}

/// The program read the same clock inside of the call and outside of it: the call lies between.
fn between(what: &str, seen: Option<u64>, inside: u64, outside: u64) -> Outcome {
    let seen = seen.with_context(|| format!("{what} was not measured"))?;
    ensure!(
        (inside..=outside).contains(&seen),
        "{what}: {seen} ns seen, the program measured {inside} to {outside} ns"
    );
    Ok(())
}

/// What the kernel charges a thread is rounded at context switches: a tenth and two milliseconds is wide.
fn room(ns: u64) -> u64 {
    ns / 10 + 2_000_000
}

fn a_burner_has_its_cpu_time_and_a_sleeper_only_wall_time() -> Outcome {
    let (report, truth) = record(&[])?;
    check_totals(&report, &truth)
}

fn the_same_holds_for_complete_records() -> Outcome {
    let (report, truth) = record(&["--complete"])?;
    check_totals(&report, &truth)
}

fn check_totals(report: &Report, truth: &Truth) -> Outcome {
    for name in ["burn_alone", "nap_alone", "both"] {
        let f = report.function(name)?;
        let told = |what: &str| truth.measured(what);
        let (inside, outside) = (
            told(&format!("cpu_ns:inside {name}"))?,
            told(&format!("cpu_ns:{name}"))?,
        );
        let least = inside.saturating_sub(room(inside));
        let most = outside + room(outside);
        between(&format!("{name} CPU"), f.total_cpu_ns, least, most)?;
        between(
            &format!("{name} wall"),
            f.total_wall_ns,
            told(&format!("wall_ns:inside {name}"))?,
            told(&format!("wall_ns:{name}"))?,
        )?;
    }
    let nap = report.function("nap")?;
    ensure!(
        nap.self_cpu_ns.context("no CPU time")? * 10 < nap.self_wall_ns.context("no wall time")?,
        "{nap:?}"
    );
    Ok(())
}

fn time_in_callees_is_total_and_not_self() -> Outcome {
    let (report, _) = record(&[])?;
    let small_self = |f: &Function| -> Outcome {
        // By its CPU time: it may lose the processor in its own code.
        let (own, total) = (
            f.self_cpu_ns.context("no self")?,
            f.total_wall_ns.context("no total")?,
        );
        ensure!(
            own * 20 < total,
            "{}: {own} of {total} ns are its own",
            f.name
        );
        Ok(())
    };
    for name in ["both", "burn_alone", "nap_alone"] {
        small_self(report.function(name)?)?;
    }
    let (both, burn, nap) = (
        report.function("both")?,
        report.function("burn")?,
        report.function("nap")?,
    );
    let under = |callee: &Function| {
        let edge = report
            .edges
            .iter()
            .find(|e| e.caller.as_ref() == Some(&both.key) && e.callee == callee.key);
        edge.and_then(|edge| edge.total_wall_ns)
            .with_context(|| format!("no time on the edge to {}", callee.name))
    };
    let parts = under(burn)? + under(nap)? + both.self_wall_ns.unwrap_or(0);
    ensure!(
        both.total_wall_ns == Some(parts),
        "{:?} ns in all, {parts} in its parts",
        both.total_wall_ns
    );
    Ok(())
}
