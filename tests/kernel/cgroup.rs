//! All processes of a cgroup: those that are there, and those that come later.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::BUSY;
use scalpel_tests::child::PATIENCE;
use scalpel_tests::fixture::{Copy, Fixture};
use scalpel_tests::scalpel::{self, Record, Recorded};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "cgroup":
        who_comes_into_a_cgroup_is_recorded_and_nobody_else,
        what_is_no_cgroup_is_refused,
    );
}

/// Whether a thread of the process has some in this column.
fn seen(recorded: &Recorded, pid: u32, column: &str) -> anyhow::Result<bool> {
    let file = recorded.genome.to_string_lossy().into_owned();
    let csv = scalpel::run(&["report", &file, "--by", "thread", "--csv"])?.expect_code(0)?;
    let thread = format!(" {pid}/");
    let heads = csv.stdout.lines().next().unwrap_or_default();
    let at = heads.split(',').position(|head| head == column);
    let at = at.with_context(|| heads.to_owned())?;
    let has_some = |line: &str| {
        let cell = line.split(',').nth(at).unwrap_or_default();
        cell.parse::<u64>().is_ok_and(|number| number > 0)
    };
    let mut lines = csv.stdout.lines();
    Ok(lines.any(|line| line.contains(&thread) && has_some(line)))
}

/// Waits until a process has left the processor and come back: everything that this takes is told.
fn has_switched(pid: u32) -> Outcome {
    let switches = || -> anyhow::Result<u64> {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
        let texts = threads.filter_map(|it| std::fs::read_to_string(it.path().join("status")).ok());
        let count = |text: String| -> u64 {
            let lines = text.lines().filter(|line| line.contains("_switches:"));
            let numbers =
                lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
            numbers.sum::<u64>()
        };
        Ok(texts.map(count).sum())
    };
    let (first, deadline) = (switches()?, Instant::now() + PATIENCE);
    while switches()? < first + 10 {
        ensure!(Instant::now() < deadline, "{pid} keeps its processor");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Waits until the collector holds a process by its descriptor: it does so when it begins to watch it.
fn is_held_by(collector: u32, pid: u32) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    let folder = format!("/proc/{collector}/fdinfo");
    let holds = |text: String| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Pid:"));
        lines.any(|of| of.trim() == pid.to_string())
    };
    loop {
        let entries = std::fs::read_dir(&folder)?.flatten();
        let mut texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        if texts.any(holds) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{pid} is not watched");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn endless(fixture: &Fixture, args: &[&str]) -> anyhow::Result<(Copy, Target)> {
    let copy = fixture.copy()?;
    let mut target = Target::start(copy.path(), args)?;
    target.running().say("go\n")?;
    Ok((copy, target))
}

/// A cgroup of our own, which is removed with its last process.
struct Group(PathBuf);

impl Group {
    fn new() -> anyhow::Result<Self> {
        let name = format!("scalpel-test-{}", std::process::id());
        let roots = [
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/pids",
            "/sys/fs/cgroup/cpu",
        ];
        let made = roots.iter().map(|root| Path::new(root).join(&name));
        let is_one = |path: &PathBuf| {
            let made = std::fs::create_dir(path).is_ok();
            let is_one = path.join("cgroup.procs").is_file();
            // Where hierarchies are mounted one by one their folder is none: what was made there goes again.
            if made && !is_one {
                let _gone = std::fs::remove_dir(path);
            }
            made && is_one
        };
        let path = made.into_iter().find(is_one);
        Ok(Self(path.context("no cgroup can be made here")?))
    }

    fn take_in(&self, pid: u32) -> Outcome {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string())
            .with_context(|| format!("{} into {}", pid, self.0.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while std::fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn who_comes_into_a_cgroup_is_recorded_and_nobody_else() -> Outcome {
    let group = Group::new()?;
    let (copy, early) = endless(&BUSY, &[])?;
    let (_other, late) = endless(&BUSY, &[])?;
    let (_third, stranger) = endless(&BUSY, &[])?;
    group.take_in(early.pid())?;
    let path = group.0.to_string_lossy().into_owned();
    let args = ["--cgroup", &path, "--mode", "sample", "--off-cpu"];
    let mut recording = Record::into(copy.directory()).args(args).begin()?;
    group.take_in(late.pid())?;
    is_held_by(recording.running().pid(), late.pid())?;
    has_switched(early.pid())?;
    has_switched(late.pid())?;
    let recorded = recording.stop()?.expect_code(0)?;
    ensure!(seen(&recorded, early.pid(), "waits")?, "who was there");
    ensure!(seen(&recorded, late.pid(), "waits")?, "who came later");
    ensure!(!seen(&recorded, stranger.pid(), "waits")?, "a stranger");
    drop((early, late, stranger));
    Ok(())
}

fn what_is_no_cgroup_is_refused() -> Outcome {
    for (args, code, says) in [
        (&["--cgroup", "a", "-p", "1"][..], 2, "cannot be used with"),
        (&["--cgroup", "no/such/group"], 4, "cgroup.procs"),
    ] {
        let mut line = vec!["record"];
        line.extend(args);
        let ended = scalpel::run(&line)?.expect_code(code)?;
        ensure!(ended.stderr.contains(says), "{args:?}: {}", ended.stderr);
    }
    Ok(())
}
