//! Programs with a probe of libscalpel, under collectors that come and go: `record` with `--no-kernel`, and the segments that
//! dead collectors leave behind.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, ensure};
use rustix::process::Signal;
use scalpel_tests::child::Running;
use scalpel_tests::fixture::{target_directory, workspace};
use scalpel_tests::report::Report;
use scalpel_tests::scalpel::{Record, Recorded};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;

/// More than the lease of a collector, after which nothing is written for it.
const PAST_LEASE: std::time::Duration = std::time::Duration::from_millis(2500);

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "probe":
        a_new_collector_goes_on_where_a_killed_one_was,
        a_third_recording_follows_two_that_ended_in_order,
        what_was_lost_before_is_not_lost_again,
        of_two_living_collectors_the_second_is_refused_by_name,
        cpu_times_of_one_that_was_taken_over_are_measured,
        threads_and_children_of_before_and_after_are_recorded,
        a_smaller_budget_than_the_segment_is_refused,
    );
}

/// The guest: `$SCALPEL_GUEST`, else built once.
fn program() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("SCALPEL_GUEST") {
        return Ok(path.into());
    }
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let build = || {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(workspace()).args([
            "build",
            "--quiet",
            "--locked",
            "-p",
            "scalpel-probe",
            "--example",
            "guest",
        ]);
        match cargo.status() {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("the guest does not build: {other:?}")),
        }
    };
    BUILT
        .get_or_init(build)
        .clone()
        .map_err(anyhow::Error::msg)?;
    Ok(target_directory().join("debug/examples/guest"))
}

/// A guest that was started by a collector, which still lives.
struct Guest {
    collector: Running,
    pid: u32,
}

fn recorder(folder: &Path) -> Record {
    Record::into(folder).args(["--no-kernel"])
}

impl Guest {
    fn start(folder: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let guest = program()?;
        let guest = guest.to_string_lossy();
        let record = recorder(folder).args(options.iter().copied());
        let mut collector = Running::start(record.command_line(&[&guest, "asked"])?)?;
        let line = collector.stderr_line(|line| line.contains("(pid "))?;
        let pid = line
            .split("(pid ")
            .nth(1)
            .and_then(|rest| rest.split(')').next());
        let pid = pid.context("it names no pid")?.parse()?;
        collector.stdout_line(|line| line.trim_end() == "ready")?;
        Ok(Self { collector, pid })
    }

    /// Has it make calls, and waits until they are made.
    fn ask(&mut self, what: &str) -> Outcome {
        self.collector.say(&format!("{what}\n"))?;
        let number = what.split(' ').next().unwrap_or_default();
        self.collector
            .stdout_line(|line| line.trim_end() == number)?;
        Ok(())
    }
}

/// Calls of the guest's only function, and those that were lost, as the report has them.
fn work(report: &Report) -> anyhow::Result<(u64, u64)> {
    let found = report
        .functions
        .iter()
        .find(|function| function.name == "work");
    let found = found.with_context(|| format!("no function: {report:?}"))?;
    Ok((found.calls.unwrap_or(0), found.lost.unwrap_or(0)))
}

fn notes(report: &Report) -> String {
    let all = report.doubts.iter().map(|doubt| format!("{doubt:?}"));
    all.collect::<Vec<_>>().join("\n")
}

/// A further recording of the guest; `during`: what happens while it is recorded.
fn again(
    guest: &mut Guest,
    folder: &Path,
    during: impl FnOnce(&mut Guest) -> Outcome,
) -> anyhow::Result<Report> {
    let recording = recorder(folder).attach(guest.pid)?;
    during(guest)?;
    let recorded: Recorded = recording.stop()?.expect_code(0)?;
    recorded.report()
}

/// Recorded before, and killed when all that was written before had been read.
fn orphaned(folder: &Path, options: &[&str]) -> anyhow::Result<Guest> {
    let mut guest = Guest::start(folder, options)?;
    guest.ask("1000")?;
    std::thread::sleep(std::time::Duration::from_millis(200));
    guest.collector.signal(Signal::KILL)?;
    while guest.collector.is_alive()? {
        std::thread::yield_now();
    }
    Ok(guest)
}

fn folders() -> anyhow::Result<(tempfile::TempDir, tempfile::TempDir)> {
    Ok((tempfile::tempdir()?, tempfile::tempdir()?))
}

fn a_new_collector_goes_on_where_a_killed_one_was() -> Outcome {
    let (first, second) = folders()?;
    let mut guest = orphaned(first.path(), &[])?;
    // Within the lease it writes for a reader that is dead, and behind it no more.
    guest.ask("77")?;
    std::thread::sleep(PAST_LEASE);
    guest.ask("500")?;
    let report = again(&mut guest, second.path(), |guest| {
        guest.ask("300")?;
        guest.ask("40")
    })?;
    ensure!(work(&report)? == (340, 0), "{report:?}");
    ensure!(report.lost == 0, "{report:?}");
    let said = notes(&report);
    ensure!(said.contains("was taken over"), "{said}");
    ensure!(
        said.contains("154 events of before, with the starts of 77 calls"),
        "{said}"
    );
    ensure!(report.run.mode.contains("probe"), "{report:?}");
    // A killed one leaves the next a place again.
    let mut killed = recorder(second.path()).attach(guest.pid)?;
    guest.ask("5")?;
    killed.running().signal(Signal::KILL)?;
    while killed.running().is_alive()? {
        std::thread::yield_now();
    }
    let report = again(&mut guest, first.path(), |guest| guest.ask("60"))?;
    ensure!(work(&report)? == (60, 0), "{report:?}");
    guest.ask("3")
}

fn a_third_recording_follows_two_that_ended_in_order() -> Outcome {
    let (first, second) = folders()?;
    let mut guest = Guest::start(first.path(), &["-d", "1"])?;
    guest
        .collector
        .stderr_line(|line| line.contains("the recording has ended"))?;
    for calls in [10, 20, 30] {
        let report = again(&mut guest, second.path(), |guest| {
            guest.ask(&calls.to_string())
        })?;
        ensure!(work(&report)? == (calls, 0), "{report:?}");
        let said = notes(&report);
        ensure!(!said.contains("of before"), "nothing was left: {said}");
        guest.ask("7")?;
    }
    Ok(())
}

fn what_was_lost_before_is_not_lost_again() -> Outcome {
    let (first, second) = folders()?;
    let mut guest = Guest::start(first.path(), &["--probe-memory", "4M"])?;
    guest.ask("10")?;
    guest.collector.signal(Signal::STOP)?;
    // Its lane is full long before: most of these are lost.
    guest.ask("200000")?;
    guest.collector.signal(Signal::KILL)?;
    while guest.collector.is_alive()? {
        std::thread::yield_now();
    }
    let report = again(&mut guest, second.path(), |guest| guest.ask("1000"))?;
    let (calls, lost) = work(&report)?;
    ensure!((calls, lost) == (1000, 0), "{report:?}");
    ensure!(report.lost == lost, "{report:?}");
    ensure!(notes(&report).contains("never read"), "{}", notes(&report));
    Ok(())
}

fn of_two_living_collectors_the_second_is_refused_by_name() -> Outcome {
    let (first, second) = folders()?;
    let mut guest = Guest::start(first.path(), &[])?;
    guest.ask("100")?;
    let mut other = recorder(second.path()).attach_at_once(guest.pid)?;
    let owner = format!("process {} is recording it", guest.collector.pid());
    other.running().stderr_line(|line| line.contains(&owner))?;
    other
        .running()
        .stderr_line(|line| line.contains("Ctrl-C"))?;
    guest.ask("100")?;
    let refused = other.stop()?.report()?;
    ensure!(refused.functions.is_empty(), "{refused:?}");
    ensure!(notes(&refused).contains(&owner), "{}", notes(&refused));
    guest.ask("100")?;
    guest.collector.hang_up();
    let genome = recorder(first.path()).genome().to_owned();
    guest.collector.wait()?.expect_code(0)?;
    let report = scalpel_tests::scalpel::report(&genome)?;
    ensure!(work(&report)? == (300, 0), "{report:?}");
    Ok(())
}

/// The kernel tells when threads go on, as it does for a probe that says HELLO.
fn cpu_times_of_one_that_was_taken_over_are_measured() -> Outcome {
    let (first, second) = folders()?;
    let mut guest = orphaned(first.path(), &[])?;
    let record = Record::into(second.path()).args(["-F", "0", "-f", "main", "--max-loss", "100"]);
    let recording = record.attach(guest.pid)?;
    guest.ask("2000")?;
    let report = recording.stop()?.expect_code(0)?.report()?;
    let (calls, lost) = work(&report)?;
    ensure!(calls + lost == 2000, "{report:?}");
    let found = report
        .functions
        .iter()
        .find(|function| function.name == "work");
    let found = found.context("no function")?;
    ensure!(found.self_cpu_ns.is_some(), "{found:?}");
    Ok(())
}

fn threads_and_children_of_before_and_after_are_recorded() -> Outcome {
    let (first, second) = folders()?;
    let mut guest = Guest::start(first.path(), &[])?;
    guest.ask("50 thread")?;
    guest.ask("50 fork")?;
    guest.collector.signal(Signal::KILL)?;
    while guest.collector.is_alive()? {
        std::thread::yield_now();
    }
    guest.ask("50 thread")?;
    // A thread whose calls are over before a lane was opened for it loses them, and says so: how many do is chance.
    let recording = recorder(second.path())
        .args(["--max-loss", "100"])
        .attach(guest.pid)?;
    for (calls, how) in [
        ("20", " thread"),
        ("30", " fork"),
        ("40", " thread"),
        ("5", ""),
    ] {
        guest.ask(&format!("{calls}{how}"))?;
    }
    let report = recording.stop()?.expect_code(0)?.report()?;
    let (calls, lost) = work(&report)?;
    ensure!(calls + lost == 95, "{report:?}");
    Ok(())
}

fn a_smaller_budget_than_the_segment_is_refused() -> Outcome {
    let (first, second) = folders()?;
    let mut guest = orphaned(first.path(), &[])?;
    let record = recorder(second.path()).args(["--probe-memory", "4M"]);
    let mut other = record.attach_at_once(guest.pid)?;
    other
        .running()
        .stderr_line(|line| line.contains("--probe-memory"))?;
    other
        .running()
        .stderr_line(|line| line.contains("Ctrl-C"))?;
    guest.ask("5")?;
    let refused = other.stop()?.report()?;
    ensure!(refused.functions.is_empty(), "{refused:?}");
    // With enough it is taken.
    let report = again(&mut guest, second.path(), |guest| guest.ask("6"))?;
    ensure!(work(&report)? == (6, 0), "{report:?}");
    Ok(())
}
