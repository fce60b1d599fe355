//! Threads, forks, execs, late libraries: everything that a process may do to itself while it is watched.

use std::process::Command;

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::{CALLS, DYING, EXECS, FORKS, LIBPLUGIN, PLUGINS, THREADS};
use scalpel_tests::child::Running;
use scalpel_tests::residue;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;
use scalpel_tests::truth::Truth;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "process":
        threads_of_every_age_are_counted,
        children_are_followed_when_asked_and_named_when_not,
        children_that_are_there_already_are_recorded_with_their_parent,
        a_program_that_execs_keeps_its_output_and_its_counts,
        a_library_that_is_not_loaded_yet_is_refused_by_name,
        a_library_loaded_later_changes_no_count,
        a_loaded_library_is_counted,
    );
    for (how, code) in [("kill", 137), ("fault", 139), ("exit", 7), ("return", 7)] {
        let name = format!("eight threads in mid-call end by {how}: all entries are kept");
        suite.test("process", &name, move || dies(how, code));
    }
}

fn threads_of_every_age_are_counted() -> Outcome {
    let copy = THREADS.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let recording = crate::exact(copy.directory()).attach(target.pid())?;
    let mut truth = target.work()?;
    let recorded = recording.stop()?.expect_code(0)?;
    target.finish()?.expect_code(0)?;
    truth.edges.retain(|(caller, ..)| caller != "main");
    let report = recorded.report()?;
    report.agrees_with(&truth)?;
    let workers = report.threads.iter().filter(|t| t.events > 0).count();
    ensure!(
        workers >= 25,
        "24 late threads and an early one worked, {workers} are in the report"
    );
    Ok(())
}

fn dies(how: &str, code: i32) -> Outcome {
    let copy = DYING.copy()?;
    let recorded = crate::exact(copy.directory())
        .command(copy.path(), &[how])?
        .expect_code(code)?;
    let truth = Truth::of(&recorded.ended.stdout)?;
    recorded.report()?.agrees_with(&truth)
}

fn children_are_followed_when_asked_and_named_when_not() -> Outcome {
    for follow in [false, true] {
        let copy = FORKS.copy()?;
        let record = crate::exact(copy.directory()).args(follow.then_some("--subprocesses"));
        let recorded = record.command(copy.path(), &[])?.expect_code(4)?;
        let truth = Truth::of(&recorded.ended.stdout)?;
        let report = recorded.report()?;
        let (own, children) = (truth.calls("task")?, truth.measured("children_task")?);
        let expect = if follow { own + children } else { own };
        let seen = report.calls("task")?;
        ensure!(
            seen == expect,
            "followed: {follow}, {seen} seen, {own} of the parent, {children} of its children"
        );
        let said = report
            .doubts
            .iter()
            .any(|d| d.what.contains("child") || d.what.contains("process"));
        ensure!(
            follow || said,
            "40 children were not followed, and nothing says so: {:#?}",
            report.doubts
        );
    }
    Ok(())
}

/// A server's workers are there when its first process is named; what they use is what probes are compared with.
fn children_that_are_there_already_are_recorded_with_their_parent() -> Outcome {
    let copy = FORKS.copy()?;
    let summary = copy.directory().join("summary.json");
    let mut parent = Command::new("sh");
    parent
        .args(["-c", "\"$0\" --wait; exit $?"])
        .arg(copy.path());
    let mut parent = Running::start(parent)?;
    parent.stdout_line(|line| line == "ready\n")?;
    let recording = crate::exact(copy.directory())
        .args(["-s", "-f", "task", "--summary"])
        .args([summary.as_os_str()])
        .attach(parent.pid())?;
    parent.say("go\n")?;
    let truth = Truth::of(&parent.stdout_line(|line| line.starts_with("{\"calls\""))?)?;
    let recorded = recording.stop()?.expect_code(0)?;
    parent.wait()?.expect_code(4)?;
    let (own, children) = (truth.calls("task")?, truth.measured("children_task")?);
    let seen = recorded.report()?.calls("task")?;
    ensure!(seen == own + children, "{seen} of {own} and {children}");
    let summary: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&summary)?)?;
    let share = summary.pointer("/overhead/target_share_high");
    let share = share.and_then(serde_json::Value::as_f64);
    ensure!(share > Some(0.0), "what it costs is announced: {summary:#}");
    Ok(())
}

fn a_program_that_execs_keeps_its_output_and_its_counts() -> Outcome {
    let copy = EXECS.copy()?;
    let next = copy.with(&CALLS)?;
    let next = next.to_str().context("path")?;
    let recorded = crate::exact(copy.directory())
        .command(copy.path(), &[next])?
        .expect_code(3)?;
    let truth = Truth::of(&recorded.ended.stdout)?;
    let report = recorded.report()?;
    ensure!(report.calls("before")? == 123, "calls before the exec");
    let later: u64 = report.named("leaf").iter().filter_map(|f| f.calls).sum();
    let said = report
        .doubts
        .iter()
        .any(|d| d.what.contains("exec") || d.what.contains("another program"));
    ensure!(
        later == truth.calls("leaf")? || (later == 0 && said),
        "{later} after the exec, doubts: {:#?}",
        report.doubts
    );
    Ok(())
}

/// A library that is not mapped yet cannot be asked for: that is an error, which names what there is.
fn a_library_that_is_not_loaded_yet_is_refused_by_name() -> Outcome {
    let copy = PLUGINS.copy()?;
    copy.with(&LIBPLUGIN)?;
    let target = Target::start(copy.path(), &[])?;
    let recorded = crate::exact(copy.directory())
        .args(["--lib", "libplugin.so"])
        .attach_at_once(target.pid())?
        .ended()?;
    let recorded = recorded.expect_code(2)?;
    ensure!(
        recorded.ended.stderr.contains("libplugin.so"),
        "which one? {}",
        recorded.ended.stderr
    );
    target.finish()?;
    Ok(())
}

/// Loading a library in the middle changes nothing for what is watched, nor for the program.
fn a_library_loaded_later_changes_no_count() -> Outcome {
    let copy = PLUGINS.copy()?;
    copy.with(&LIBPLUGIN)?;
    let mut target = Target::start(copy.path(), &[])?;
    let record = crate::exact(copy.directory());
    let recording = record.attach(target.pid())?;
    target.work()?;
    residue_free_after(recording, &mut target)?;
    target.finish()?.expect_code(0)?;
    let report = scalpel_tests::scalpel::report(record.genome())?;
    ensure!(report.calls("before")? == 20, "calls in the program itself");
    Ok(())
}

/// Once it is loaded it is watched like any other.
fn a_loaded_library_is_counted() -> Outcome {
    let copy = PLUGINS.copy()?;
    copy.with(&LIBPLUGIN)?;
    let mut target = Target::start(copy.path(), &["early"])?;
    let record = crate::exact(copy.directory()).args(["--lib", "libplugin.so", "-f", "plugin_*"]);
    let recording = record.attach(target.pid())?;
    target.work()?;
    residue_free_after(recording, &mut target)?;
    target.finish()?.expect_code(0)?;
    let report = scalpel_tests::scalpel::report(record.genome())?;
    ensure!(
        report.calls("plugin_work")? == 20 && report.calls("plugin_leaf")? == 100,
        "{:#?}",
        report.functions
    );
    ensure!(
        report.edge_calls("plugin_work", "plugin_leaf") == 100,
        "{:#?}",
        report.edges
    );
    Ok(())
}

fn residue_free_after(
    recording: scalpel_tests::scalpel::Recording,
    target: &mut Target,
) -> Outcome {
    recording.stop()?.expect_code(0)?;
    residue::text_is_clean(target.pid())
}
