//! Collectors that do not run for a time: nothing is lost while there is room, and what was missed is told.

use std::time::Duration;

use anyhow::ensure;
use rustix::process::Signal;
use scalpel_tests::catalog::BUSY;
use scalpel_tests::report::Doubt;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;

use crate::lifecycle::{busy, call_off, set_off};

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "stopped":
        a_collector_stopped_for_half_a_second_loses_nothing,
        a_collector_stopped_for_long_costs_nothing_and_says_what_it_missed,
    );
}

fn a_collector_stopped_for_half_a_second_loses_nothing() -> Outcome {
    let copy = BUSY.copy()?;
    let mut target = busy(&copy)?;
    let mut recording = crate::exact(copy.directory()).attach(target.pid())?;
    set_off(&mut target)?;
    recording.running().signal(Signal::STOP)?;
    std::thread::sleep(Duration::from_millis(500));
    recording.running().signal(Signal::CONT)?;
    std::thread::sleep(Duration::from_millis(200));
    let mut truth = call_off(&mut target)?;
    let report = recording.stop()?.expect_code(0)?.report()?;
    target.finish()?.expect_code(0)?;
    truth.edges.retain(|(caller, ..)| caller != "main");
    report.agrees_with(&truth)
}

fn a_collector_stopped_for_long_costs_nothing_and_says_what_it_missed() -> Outcome {
    for and_told_to_end in [false, true] {
        a_collector_stopped_for_long(and_told_to_end)?;
    }
    Ok(())
}

/// `and_told_to_end`: as soon as it goes on, it ends.
fn a_collector_stopped_for_long(and_told_to_end: bool) -> Outcome {
    let copy = BUSY.copy()?;
    let mut target = busy(&copy)?;
    let mut recording = crate::exact(copy.directory()).attach(target.pid())?;
    set_off(&mut target)?;
    recording.running().signal(Signal::STOP)?;
    std::thread::sleep(Duration::from_secs(6));
    if and_told_to_end {
        recording.running().signal(Signal::INT)?;
    }
    recording.running().signal(Signal::CONT)?;
    std::thread::sleep(Duration::from_millis(200));
    let truth = call_off(&mut target)?;
    let recorded = if and_told_to_end {
        recording.ended()?
    } else {
        recording.stop()?
    };
    ensure!(
        matches!(recorded.ended.code(), 0 | 5),
        "exit code {}: {}",
        recorded.ended.code(),
        recorded.ended.stderr
    );
    let report = recorded.report()?;
    target.finish()?.expect_code(0)?;
    let (seen, told) = (report.calls("leaf")?, truth.calls("leaf")?);
    let lost = report.function("leaf")?.lost.unwrap_or(0);
    ensure!(
        seen + lost <= told,
        "{seen} seen + {lost} lost, {told} made"
    );
    let is_told = |doubt: &Doubt| doubt.what.contains("held up");
    ensure!(
        seen + lost == told || report.doubts.iter().any(is_told),
        "{seen} seen + {lost} lost of {told}: {:?}",
        report.doubts
    );
    Ok(())
}
