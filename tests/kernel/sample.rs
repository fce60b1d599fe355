//! Sampled stacks: shares within bounds of what the program measured, and under the frames that probes opened.

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::SPLIT;
use scalpel_tests::report::Report;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;
use scalpel_tests::truth::Truth;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "sample": shares_follow_the_cpu_time, samples_land_under_the_probed_frame, without_sampling_there_are_none);
}

fn record(args: &[&str]) -> anyhow::Result<(Report, Truth)> {
    let copy = SPLIT.copy()?;
    let recorded = crate::exact(copy.directory())
        .args(args)
        .command(copy.path(), &[])?
        .expect_code(0)?;
    let truth = Truth::of(&recorded.ended.stdout)?;
    Ok((recorded.report()?, truth))
}

fn samples(report: &Report, name: &str) -> u64 {
    report.named(name).iter().filter_map(|f| f.samples).sum()
}

/// 1.5 s at 499 Hz: some 750 samples, a standard deviation of 1.6 points of share. Ten points is six of them.
fn shares_follow_the_cpu_time() -> Outcome {
    let (report, truth) = record(&["-f", "spend", "-F", "499"])?;
    let (more, less) = (samples(&report, "spin_more"), samples(&report, "spin_less"));
    ensure!(
        more + less > 100,
        "only {more} + {less} samples: {:#?}",
        report.functions
    );
    let seen = more as f64 / (more + less) as f64;
    let (a, b) = (
        truth.measured("cpu_ns:spin_more")?,
        truth.measured("cpu_ns:spin_less")?,
    );
    let told = a as f64 / (a + b) as f64;
    ensure!(
        (seen - told).abs() < 0.1,
        "{seen:.3} of the samples, {told:.3} of the time"
    );
    Ok(())
}

fn samples_land_under_the_probed_frame() -> Outcome {
    let (report, _) = record(&["-f", "spend", "-F", "499"])?;
    ensure!(report.calls("spend")? == 1);
    let spend = &report.function("spend")?.key;
    let more = &report.function("spin_more")?.key;
    let edge = report
        .edges
        .iter()
        .find(|e| e.caller.as_ref() == Some(spend) && &e.callee == more);
    let edge = edge.with_context(|| format!("no edge spend -> spin_more: {:#?}", report.edges))?;
    ensure!(
        edge.source == "sampled",
        "the edge is known from samples only: {edge:?}"
    );
    let never_counted = report.function("spin_more")?.calls;
    ensure!(
        never_counted.unwrap_or(0) == 0,
        "spin_more has no probe, but {never_counted:?} calls"
    );
    let orphan = report
        .edges
        .iter()
        .any(|e| e.caller.as_ref() != Some(spend) && &e.callee == more);
    ensure!(
        !orphan,
        "spin_more appears under another caller, too: {:#?}",
        report.edges
    );
    Ok(())
}

fn without_sampling_there_are_none() -> Outcome {
    let (report, _) = record(&["-F", "0", "-f", "spend"])?;
    ensure!(
        report.functions.iter().all(|f| f.samples.unwrap_or(0) == 0),
        "{:#?}",
        report.functions
    );
    Ok(())
}
