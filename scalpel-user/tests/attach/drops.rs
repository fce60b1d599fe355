//! Functions that are dropped while the target runs: by hand and by the breaker.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::ensure;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::{catalog, tests};
use scalpel_user::event::Kind;
use scalpel_user::function::ExitStrategy::{EntryOnly, RetOffsets, Return};
use scalpel_user::kernel::Mechanism::{Multi, Perf, Session};
use scalpel_user::kernel::attach::AttachOptions;

use crate::subject::{BUSY, Probes, id, now};

/// Adds the tests of this file.
pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "drops":
        dropping_a_function_neither_misses_nor_doubles_calls_of_the_others,
        a_hot_group_is_noticed_before_attach_returns,
        a_hot_function_is_dropped_by_the_breaker,
    );
}

fn dropping_a_function_neither_misses_nor_doubles_calls_of_the_others() -> Outcome {
    for (mechanism, exit) in [
        (Session, EntryOnly),
        (Session, Return),
        (Session, RetOffsets),
        (Multi, Return),
        (Perf, Return),
    ] {
        let copy = catalog::BUSY.copy()?;
        let mut target = Target::start(copy.path(), &[])?;
        let mut probes = Probes::new(copy.path(), BUSY, mechanism, exit, AttachOptions::default())?;
        probes.attach()?;
        target.running().say("go\n")?;
        target.running().stdout_line(|line| line == "busy\n")?;
        std::thread::sleep(Duration::from_millis(50));
        let given_up = probes
            .attachments
            .drop_functions(&HashSet::from([id(1)]), now());
        ensure!(given_up.is_empty(), "{given_up:?}");
        std::thread::sleep(Duration::from_millis(200));
        let leaf_so_far = probes.kernel.hits_of(id(1));
        let truth = target.work()?;
        let hits = probes.hits();
        for name in ["round_of", "body"] {
            let seen = hits.get(name).copied().unwrap_or(0);
            ensure!(
                seen == truth.calls(name)?,
                "{mechanism:?} {exit:?} {name}: {seen} of {}",
                truth.calls(name)?
            );
        }
        ensure!(
            leaf_so_far > 0 && leaf_so_far < truth.calls("leaf")?,
            "leaf was not dropped"
        );
        ensure!(
            probes.kernel.hits_of(id(1)) == leaf_so_far,
            "{mechanism:?} {exit:?}: leaf is still counted"
        );
        let counts = probes.finish()?;
        let entries = counts.of(2, Kind::Enter);
        let exits = counts.of(2, Kind::Exit);
        let calls = truth.calls("round_of")?;
        ensure!(
            entries == calls,
            "{mechanism:?} {exit:?}: {entries} ENTER of {calls} calls"
        );
        // Calls that are open at the change may lose their exit: one on each of two threads.
        let expected = if exit == EntryOnly {
            0..=0
        } else {
            calls - 2..=calls
        };
        ensure!(
            expected.contains(&exits),
            "{mechanism:?} {exit:?}: {exits} EXIT of {calls} calls"
        );
        target.finish()?.expect_code(0)?;
    }
    Ok(())
}

/// The only function of the group runs hot while it is attached: the breaker must see that before `attach` returns.
fn a_hot_group_is_noticed_before_attach_returns() -> Outcome {
    let copy = catalog::FLOOD.copy()?;
    let mut target = Target::start(copy.path(), &["endless"])?;
    target.running().say("go\n")?;
    let options = AttachOptions {
        max_overhead_percent: Some(20.0),
        // Long enough for a busy machine to let the target run meanwhile.
        settle: Duration::from_millis(300),
        ..AttachOptions::default()
    };
    let mut probes = Probes::new(copy.path(), &["hot", "warm"], Session, EntryOnly, options)?;
    probes
        .attachments
        .set_targets(&[scalpel_user::event::Pid(target.running().pid())]);
    let report = probes.try_attach()?;
    let dropped: Vec<u32> = report.bounds.iter().map(|bound| bound.func.get()).collect();
    ensure!(dropped == [1, 2], "dropped {dropped:?}: {report:?}");
    ensure!(probes.attachments.is_empty(), "something is left");
    Ok(())
}

fn a_hot_function_is_dropped_by_the_breaker() -> Outcome {
    let copy = catalog::FLOOD.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let options = AttachOptions {
        max_overhead_percent: Some(20.0),
        ..AttachOptions::default()
    };
    let mut probes = Probes::new(
        copy.path(),
        &["hot", "warm", "flood"],
        Session,
        EntryOnly,
        options,
    )?;
    probes
        .attachments
        .set_targets(&[scalpel_user::event::Pid(target.running().pid())]);
    probes.attach()?;
    probes.attachments.govern(now());
    target.running().say("go\n")?;
    let mut bounds = Vec::new();
    let start = Instant::now();
    while bounds.len() < 2 && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
        bounds.extend(probes.attachments.govern(now()));
    }
    let line = target
        .running()
        .stdout_line(|line| line.starts_with("{\"calls\""))?;
    let truth = scalpel_tests::truth::Truth::of(&line)?;
    let dropped: Vec<u32> = bounds.iter().map(|bound| bound.func.get()).collect();
    ensure!(
        dropped == [1, 2],
        "dropped {dropped:?}, hottest first: {bounds:?}"
    );
    ensure!(
        bounds
            .iter()
            .all(|bound| bound.since.is_some() && bound.reason.starts_with("over budget")),
        "{bounds:?}"
    );
    ensure!(
        probes.attachments.len() == 1,
        "{} are left",
        probes.attachments.len()
    );
    let hits = probes.kernel.hits_of(id(1));
    ensure!(
        hits > 0 && hits < truth.calls("hot")?,
        "{hits} entries of `hot` were counted"
    );
    ensure!(
        probes.kernel.hits_of(id(3)) == 1,
        "the cold function was not left alone"
    );
    target.finish()?.expect_code(0)?;
    Ok(())
}
