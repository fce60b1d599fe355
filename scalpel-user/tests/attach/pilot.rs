//! Many processes of one program: what is too dear is found in one of them, and all get what remains.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::{catalog, tests};
use scalpel_user::event::{Kind, Pid};
use scalpel_user::function::ExitStrategy::{self, EntryOnly, RetOffsets, Return};
use scalpel_user::kernel::Mechanism::{self, Multi, Session};
use scalpel_user::kernel::attach::AttachOptions;

use crate::subject::{BUSY, Probes};

/// Adds the tests of this file.
pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "pilot":
        what_is_too_dear_is_found_in_one_process_and_the_others_never_pay_for_it,
        all_processes_get_what_remains_and_each_call_counts_once,
        a_pilot_that_has_ended_is_no_obstacle,
    );
}

fn targets(targets: &[Target]) -> Vec<Pid> {
    targets.iter().map(|target| Pid(target.pid())).collect()
}

fn what_is_too_dear_is_found_in_one_process_and_the_others_never_pay_for_it() -> Outcome {
    let copy = catalog::FLOOD.copy()?;
    let mut all = Vec::new();
    for _ in 0..3 {
        let mut target = Target::start(copy.path(), &["endless"])?;
        target.running().say("go\n")?;
        all.push(target);
    }
    let options = AttachOptions {
        max_overhead_percent: Some(20.0),
        ..AttachOptions::default()
    };
    let names = ["hot", "warm", "flood"];
    let mut probes = Probes::new(copy.path(), &names, Session, EntryOnly, options)?;
    probes.attachments.set_targets(&targets(&all));
    let report = probes.try_attach()?;
    let mut dropped: Vec<u32> = report.bounds.iter().map(|bound| bound.func.get()).collect();
    dropped.sort_unstable();
    ensure!(dropped == [1, 2], "dropped {dropped:?}: {report:?}");
    ensure!(probes.attachments.len() == 1, "more is left");
    ensure!(
        report.attached == 3 && report.refused.is_empty(),
        "{report:?}"
    );
    std::thread::sleep(Duration::from_millis(500));
    let counts = probes.finish()?;
    let seen: Vec<usize> = (1..=3).map(|func| counts.processes(func)).collect();
    ensure!(seen == [1, 1, 3], "so many processes paid: {seen:?}");
    Ok(())
}

/// Probes of three processes that nothing is too dear for. None of them works yet: the pilot will be the last one.
fn three_that_wait(
    path: &Path,
    mechanism: Mechanism,
    exit: ExitStrategy,
) -> anyhow::Result<(Probes, Vec<Target>)> {
    let start = |_| Target::start(path, &[]);
    let mut all = (0..3).map(start).collect::<Result<Vec<_>, _>>()?;
    all.sort_by_key(Target::pid);
    let options = AttachOptions {
        max_overhead_percent: Some(1e9),
        pilot_works: Duration::ZERO,
        ..AttachOptions::default()
    };
    let mut probes = Probes::new(path, BUSY, mechanism, exit, options)?;
    probes.attachments.set_targets(&targets(&all));
    Ok((probes, all))
}

fn all_processes_get_what_remains_and_each_call_counts_once() -> Outcome {
    for (mechanism, exit) in [
        (Session, EntryOnly),
        (Session, Return),
        (Session, RetOffsets),
        (Multi, Return),
    ] {
        let copy = catalog::BUSY.copy()?;
        let (mut probes, mut all) = three_that_wait(copy.path(), mechanism, exit)?;
        let mut pilot = all.pop();
        let mut went = None;
        let report = probes.attachments.attach(&probes.requests, &mut |_| {
            // It works from when it is attached to, while the others are, and on.
            if let (None, Some(pilot)) = (&went, &mut pilot) {
                went = Some(pilot.running().say("go\n"));
            }
        })?;
        ensure!(went.is_some_and(|went| went.is_ok()), "nothing was tried");
        ensure!(
            report.attached == 3 && report.bounds.is_empty(),
            "{report:?}"
        );
        all.extend(pilot);
        for target in all.iter_mut().take(2) {
            target.running().say("go\n")?;
        }
        for target in &mut all {
            target.running().stdout_line(|line| line == "busy\n")?;
        }
        std::thread::sleep(Duration::from_millis(100));
        let mut calls = [0; 3];
        for target in &mut all {
            let truth = target.work()?;
            for (calls, name) in calls.iter_mut().zip(BUSY) {
                *calls += truth.calls(name)?;
            }
        }
        let hits = probes.hits();
        let counts = probes.finish()?;
        for (func, (name, calls)) in (1..).zip(BUSY.iter().zip(calls)) {
            let seen = hits.get(*name).copied().unwrap_or(0);
            let entries = counts.of(func, Kind::Enter);
            ensure!(
                seen == calls && entries == calls && counts.processes(func) == 3,
                "{mechanism:?} {exit:?} {name}: {calls} calls, {seen} hits, {entries} ENTER, {} processes",
                counts.processes(func)
            );
        }
        for target in all {
            target.finish()?.expect_code(0)?;
        }
    }
    Ok(())
}

/// Its number may be anybody's, or nobody's.
fn a_pilot_that_has_ended_is_no_obstacle() -> Outcome {
    let copy = catalog::BUSY.copy()?;
    let (mut probes, mut all) = three_that_wait(copy.path(), Session, EntryOnly)?;
    // A zombie has a CPU time, and no memory to attach to.
    let mut gone = all.pop();
    if let Some(gone) = &mut gone {
        gone.running().signal(rustix::process::Signal::KILL)?;
    }
    let report = probes.try_attach()?;
    ensure!(
        report.attached == 3 && report.refused.is_empty(),
        "{report:?}"
    );
    ensure!(
        probes.attachments.len() == 3,
        "{}",
        probes.attachments.len()
    );
    let mut calls = 0;
    for target in &mut all {
        target.running().say("go\n")?;
        target.running().stdout_line(|line| line == "busy\n")?;
        calls += target.work()?.calls("leaf")?;
    }
    ensure!(
        probes.hits().get("leaf") == Some(&calls),
        "{:?}",
        probes.hits()
    );
    Ok(())
}
