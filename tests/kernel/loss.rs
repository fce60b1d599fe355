//! Loss: what a full ring swallows is counted, per function, and said.

use anyhow::ensure;
use rustix::process::Signal;
use scalpel_tests::catalog::FLOOD;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "loss": emitted_and_lost_are_all_that_was_called, a_ring_that_is_large_enough_loses_nothing);
}

/// The collector is stopped while the program floods a small ring: it must overflow, whatever the machine. It is stopped
/// for less than its lease: after that nothing would be recorded or counted at all.
fn emitted_and_lost_are_all_that_was_called() -> Outcome {
    let copy = FLOOD.copy()?;
    let mut target = Target::start(copy.path(), &["few"])?;
    let record =
        crate::exact(copy.directory()).args(["-F", "0", "--exits", "none", "--ring-size", "256K"]);
    let mut recording = record.attach(target.pid())?;
    recording.running().signal(Signal::STOP)?;
    let truth = target.work()?;
    recording.running().signal(Signal::CONT)?;
    let recorded = recording.stop()?.expect_code(5)?;
    target.finish()?.expect_code(0)?;
    let report = recorded.report()?;
    ensure!(
        report.lost > 0,
        "nothing was lost: {} events",
        report.events
    );
    for name in ["hot", "warm", "flood"] {
        let f = report.function(name)?;
        let (seen, lost, told) = (
            f.calls.unwrap_or(0),
            f.lost.unwrap_or(0),
            truth.calls(name)?,
        );
        ensure!(
            seen + lost == told,
            "{name}: {seen} seen + {lost} lost, {told} made"
        );
    }
    ensure!(
        report.doubts.iter().any(|d| d.what.contains("lost")),
        "no doubt tells of the loss: {:#?}",
        report.doubts
    );
    Ok(())
}

fn a_ring_that_is_large_enough_loses_nothing() -> Outcome {
    let copy = FLOOD.copy()?;
    // Room for every record of it, so that it holds on a machine that is busy with other things.
    let record = crate::exact(copy.directory()).args(["-F", "0", "--ring-size", "256M"]);
    let recorded = record.command(copy.path(), &[])?.expect_code(0)?;
    let truth = scalpel_tests::truth::Truth::of(&recorded.ended.stdout)?;
    recorded.report()?.counts_agree_with(&truth)
}
