//! Collectors that are killed in the middle of an attach or of a detach. The kernel takes no breakpoint off for a task that is
//! being killed: were it the collector's own, they would stay for good.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use scalpel_tests::catalog::CALLS;
use scalpel_tests::residue;
use scalpel_tests::scalpel::{Record, Recording};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "killed":
        a_collector_killed_while_it_attaches_leaves_no_breakpoint,
        a_collector_killed_while_it_detaches_leaves_no_breakpoint,
    );
}

const ROUNDS: u32 = 8;

fn a_collector_killed_while_it_attaches_leaves_no_breakpoint() -> Outcome {
    rounds(|recording, pid| {
        // As soon as the first is there: some thousand others are under way.
        while residue::altered(pid)?.is_empty() {
            ensure!(recording.running().is_alive()?, "it ended by itself");
        }
        recording.running().signal(Signal::KILL)
    })
}

fn a_collector_killed_while_it_detaches_leaves_no_breakpoint() -> Outcome {
    rounds(|recording, pid| {
        recording.is_attached()?;
        let all = residue::altered(pid)?.len();
        recording.running().signal(Signal::INT)?;
        while recording.running().is_alive()? && residue::altered(pid)?.len() == all {}
        // It may have ended meanwhile, which is no harm.
        if recording.running().is_alive()? {
            recording.running().signal(Signal::KILL)?;
        }
        Ok(())
    })
}

/// The C library's functions, all of them, in a process that does nothing meanwhile.
fn rounds(kill: impl Fn(&mut Recording, u32) -> Outcome) -> Outcome {
    let copy = CALLS.copy()?;
    let target = Target::start(copy.path(), &[])?;
    let pid = target.pid();
    let record = Record::into(copy.directory()).args([
        "--max-overhead",
        "off",
        "-F",
        "0",
        "-f",
        "*",
        "--lib",
        "libc.so*",
    ]);
    for round in 0..ROUNDS {
        let mut recording = record.attach_at_once(pid)?;
        kill(&mut recording, pid)?;
        recording.ended()?;
        clean(pid).with_context(|| format!("round {round}"))?;
    }
    let mut target = target;
    target.work()?;
    target.finish()?.expect_code(3)?;
    Ok(())
}

/// What is under way when it is killed is made to its end, and undone.
fn clean(pid: u32) -> Outcome {
    for _ in 0..100 {
        if residue::altered(pid)?.is_empty() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    residue::text_is_clean(pid)
}
