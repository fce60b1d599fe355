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

/// Both clocks were read within microseconds of the probes: a tenth and two milliseconds is wide.
fn close(what: &str, seen: Option<u64>, told: u64) -> Outcome {
    let seen = seen.with_context(|| format!("{what} was not measured"))?;
    let room = told / 10 + 2_000_000;
    ensure!(
        seen.abs_diff(told) <= room,
        "{what}: {seen} ns seen, the program measured {told} ns"
    );
    Ok(())
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
        close(
            &format!("{name} CPU"),
            f.total_cpu_ns,
            truth.measured(&format!("cpu_ns:{name}"))?,
        )?;
        close(
            &format!("{name} wall"),
            f.total_wall_ns,
            truth.measured(&format!("wall_ns:{name}"))?,
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
        let (own, total) = (
            f.self_wall_ns.context("no self")?,
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
    close(
        "both = burn + nap",
        both.total_wall_ns,
        under(burn)? + under(nap)? + both.self_wall_ns.unwrap_or(0),
    )
}
