//! `record` without a word about how: calls counted within the budget, and stacks sampled.

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::FLOOD;
use scalpel_tests::scalpel::Record;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "auto":
        what_is_over_budget_is_named_and_never_said_not_to_have_run,
        what_others_of_the_same_program_pay_counts_against_the_limit,
    );
}

fn what_is_over_budget_is_named_and_never_said_not_to_have_run() -> Outcome {
    let copy = FLOOD.copy()?;
    let mut target = Target::start(copy.path(), &["endless"])?;
    target.running().say("go\n")?;
    let summary = copy.directory().join("summary.json");
    let recorded = Record::into(copy.directory())
        .args(["--mode", "auto", "-d", "6", "--summary"])
        .args([summary.as_os_str()])
        .attach(target.pid())?
        .ended()?
        .expect_code(0)?;
    drop(target);
    let report = recorded.report()?;
    ensure!(report.run.mode.starts_with("count"), "{}", report.run.mode);
    let hot = report.function("hot")?;
    ensure!(
        hot.state == "ran" && hot.calls > Some(0),
        "a function that was switched off: {hot:?}"
    );
    let doubts = hot.doubts.to_string();
    ensure!(
        doubts.contains("lower bound from") && doubts.contains("over budget"),
        "{doubts}"
    );
    // What was watched to the end and did not run is said so, of the same recording.
    let never = |state: &str| report.functions.iter().any(|f| f.state == state);
    ensure!(never("never-ran"), "{:#?}", report.functions);
    let summary: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&summary)?)?;
    let number = |path: &str| summary.pointer(path).and_then(serde_json::Value::as_f64);
    let off = number("/functions/switched_off");
    ensure!(off >= Some(1.0), "{summary:#}");
    for path in ["/overhead/programs_ns", "/overhead/target_share_high"] {
        let spent = number(path).context(path)?;
        ensure!(spent > 0.0, "{path}: {summary:#}");
    }
    Ok(())
}

/// Breakpoints belong to the file: whoever runs it beside the target pays for each.
fn what_others_of_the_same_program_pay_counts_against_the_limit() -> Outcome {
    let copy = FLOOD.copy()?;
    let mut target = Target::start(copy.path(), &["few"])?;
    let mut stranger = Target::start(copy.path(), &["endless"])?;
    stranger.running().say("go\n")?;
    let recorded = Record::into(copy.directory())
        .args(["--mode", "auto", "-d", "6"])
        .attach(target.pid())?
        .ended()?
        .expect_code(0)?;
    drop(stranger);
    target.work()?;
    target.finish()?.expect_code(0)?;
    let report = recorded.report()?;
    let hot = report.function("hot")?;
    let doubts = hot.doubts.to_string();
    ensure!(
        doubts.contains("most of them by other processes of the same program"),
        "{doubts}"
    );
    ensure!(
        hot.state != "never-ran",
        "was not watched to the end: {hot:?}"
    );
    Ok(())
}
