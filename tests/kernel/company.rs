//! Targets in odd company and in odd states: other tracers on the same functions, stopped, sleeping, crowded, reborn, with
//! their files replaced. The numbers stay exact, and the target stays as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use scalpel_tests::catalog::{CALLS, CROWD, HELD, LIBPLUGIN, PLUGINS, REBORN, RELAY, RELOADS};
use scalpel_tests::child::Running;
use scalpel_tests::fixture::{Copy, Fixture};
use scalpel_tests::report::{Doubt, Report};
use scalpel_tests::scalpel::{Record, Recording};
use scalpel_tests::suite::{Outcome, Skip, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::truth::Truth;
use scalpel_tests::{residue, tests};

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "company":
        two_recordings_of_one_process_both_count_every_call,
        a_recording_beside_another_mechanism_on_the_same_functions_counts_every_call,
        under_a_debugger_counts_are_exact_and_it_is_said,
        a_process_that_is_stopped_is_recorded_and_stays_stopped,
        a_process_in_an_uninterruptible_sleep_is_recorded,
        a_zombie_is_refused_by_name,
        a_program_that_executes_itself_again_and_again_is_counted_in_each_life,
        five_thousand_threads_are_counted,
        a_thousand_children_are_counted,
        another_process_of_the_same_id_is_not_counted,
        a_program_replaced_on_disk_is_counted_as_it_runs,
        a_library_replaced_on_disk_is_counted_as_it_is_mapped,
        a_library_closed_and_opened_in_a_loop_is_counted_each_time,
        a_process_in_another_time_namespace_is_counted,
        a_process_in_a_container_of_its_own_files_and_ids_is_counted,
        other_processes_of_the_same_program_are_not_counted,
    );
}

fn two_recordings_of_one_process_both_count_every_call() -> Outcome {
    beside(&[])
}

/// Another tracer's probes are perf events as often as links: here ours are both, one recording each.
fn a_recording_beside_another_mechanism_on_the_same_functions_counts_every_call() -> Outcome {
    beside(&["--attach", "perf", "-f", "/^(left|right|middle|leaf)$/"])
}

/// A second recording begins after the first and ends before it; what the first counts must not change.
fn beside(second: &[&str]) -> Outcome {
    let copy = CALLS.copy()?;
    let other = copy.directory().join("other");
    fs::create_dir(&other)?;
    let mut target = Target::start(copy.path(), &[])?;
    let first = crate::exact(copy.directory()).attach(target.pid())?;
    let second = crate::exact(&other)
        .args(second.iter().copied())
        .attach(target.pid())?;
    let truth = target.work()?;
    let second = second.stop()?.expect_code(0)?.report()?;
    let first = first.stop()?.expect_code(0)?.report()?;
    residue::text_is_clean(target.pid())?;
    target.finish()?.expect_code(3)?;
    for report in [&first, &second] {
        for name in ["left", "right", "middle", "leaf"] {
            let (seen, told) = (report.calls(name)?, truth.calls(name)?);
            ensure!(seen == told, "{name}: {seen} seen, {told} made");
        }
        ensure!(report.lost == 0, "{} lost", report.lost);
    }
    Ok(())
}

fn under_a_debugger_counts_are_exact_and_it_is_said() -> Outcome {
    let copy = CALLS.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-p", &target.pid().to_string()])
        .args(["-ex", "handle SIGTRAP nostop noprint pass"])
        .args(["-ex", "continue"]);
    let Ok(mut gdb) = Running::start(gdb) else {
        return Err(Skip::because("gdb is not installed"));
    };
    until(
        target.pid(),
        "traced and running",
        |status| matches!(status, State { code: 'S', tracer } if *tracer != 0),
    )?;
    let recording = crate::exact(copy.directory()).attach(target.pid())?;
    let truth = target.work()?;
    let report = recording.stop()?.expect_code(0)?.report()?;
    ensure!(gdb.is_alive()?, "the debugger did not stay");
    target.finish()?.expect_code(3)?;
    gdb.wait()?;
    report.counts_agree_with(&truth)?;
    ensure!(
        report.doubts.iter().any(|doubt| doubt.what.contains("gdb")),
        "nothing says that it was traced: {:#?}",
        report.doubts
    );
    Ok(())
}

fn a_process_that_is_stopped_is_recorded_and_stays_stopped() -> Outcome {
    let copy = CALLS.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    target.running().signal(Signal::STOP)?;
    until(target.pid(), "stopped", |state| state.code == 'T')?;
    let record = crate::exact(copy.directory());
    let recorded = record.attach(target.pid())?.stop()?;
    ensure!(
        recorded.ended.code() == 0 && recorded.ended.stderr.contains("stopped"),
        "exit code {}: {}",
        recorded.ended.code(),
        recorded.ended.stderr
    );
    ensure!(
        state(target.pid())?.code == 'T',
        "the recording set it going"
    );
    residue::text_is_clean(target.pid())?;
    // Attached while it is stopped, it is counted as soon as it goes on.
    let recording = record.attach(target.pid())?;
    target.running().signal(Signal::CONT)?;
    let mut truth = target.work()?;
    let report = recording.stop()?.expect_code(0)?.report()?;
    target.finish()?.expect_code(3)?;
    truth.edges.retain(|(caller, ..)| caller != "main");
    report.agrees_with(&truth)
}

/// The parent of a vfork waits so; so does a process on a slow disk.
fn a_process_in_an_uninterruptible_sleep_is_recorded() -> Outcome {
    let copy = HELD.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    until(target.pid(), "asleep in vfork", |state| state.code == 'D')?;
    let recording = crate::exact(copy.directory()).attach(target.pid())?;
    ensure!(state(target.pid())?.code == 'D', "the attach woke it");
    let truth = target.work()?;
    let report = recording.stop()?.expect_code(0)?.report()?;
    target.finish()?.expect_code(0)?;
    report.counts_agree_with(&truth)
}

fn a_zombie_is_refused_by_name() -> Outcome {
    let directory = tempfile::TempDir::with_prefix("scalpel-test-")?;
    let mut zombie = Command::new("true").spawn()?;
    until(zombie.id(), "a zombie", |state| state.code == 'Z')?;
    let recorded = crate::exact(directory.path())
        .attach_at_once(zombie.id())?
        .ended();
    zombie.wait()?;
    let ended = recorded?.ended.expect_code(4)?;
    ensure!(
        ended.stderr.contains("zombie"),
        "no word of what it is: {}",
        ended.stderr
    );
    Ok(())
}

fn a_program_that_executes_itself_again_and_again_is_counted_in_each_life() -> Outcome {
    let copy = RELAY.copy()?;
    let recorded = crate::exact(copy.directory())
        .command(copy.path(), &[])?
        .expect_code(0)?;
    let made = Truth::of(&recorded.ended.stdout)?.measured("laps")?;
    let report = recorded.report()?;
    let seen: u64 = report.named("lap").iter().filter_map(|f| f.calls).sum();
    ensure!(
        seen == made,
        "{seen} seen, {made} made; doubts: {:#?}",
        report.doubts
    );
    Ok(())
}

fn five_thousand_threads_are_counted() -> Outcome {
    let copy = CROWD.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let recording = crate::exact(copy.directory()).attach(target.pid())?;
    let mut truth = target.work()?;
    let report = recording.stop()?.expect_code(0)?.report()?;
    target.finish()?.expect_code(0)?;
    truth.edges.retain(|(caller, ..)| caller != "main");
    report.agrees_with(&truth)?;
    let workers = report.threads.iter().filter(|t| t.events > 0).count();
    ensure!(
        workers >= 5000,
        "5,000 threads worked, {workers} are in the report"
    );
    Ok(())
}

fn a_thousand_children_are_counted() -> Outcome {
    let copy = CROWD.copy()?;
    let recorded = crate::exact(copy.directory())
        .args(["--subprocesses"])
        .command(copy.path(), &["forks"])?
        .expect_code(0)?;
    let made = Truth::of(&recorded.ended.stdout)?.measured("children_task")?;
    let report = recorded.report()?;
    let seen = report.calls("task")?;
    ensure!(
        seen == made && report.lost == 0,
        "{seen} seen, {made} made, {} lost",
        report.lost
    );
    Ok(())
}

fn another_process_of_the_same_id_is_not_counted() -> Outcome {
    for follow in [None, Some("--subprocesses")] {
        let copy = REBORN.copy()?;
        let mut parent = Running::start(Command::new(copy.path()))?;
        let child = number(&parent.stdout_line(|line| line.starts_with("child "))?)?;
        let record = crate::exact(copy.directory()).args(follow);
        let recording = record.attach(u32::try_from(child)?)?;
        parent.say("\n")?;
        let again = number(&parent.stdout_line(|line| line.starts_with("again "))?)?;
        ensure!(again == child, "the id was not to be had again: {again}");
        let report = recording.ended()?.expect_code(0)?.report()?;
        parent.wait()?.expect_code(0)?;
        ensure!(
            report.calls("first_life")? == 100 && report.calls("second_life")? == 0,
            "another process was counted ({follow:?}): {:?} and {:?}",
            report.calls("first_life"),
            report.calls("second_life")
        );
    }
    Ok(())
}

fn a_program_replaced_on_disk_is_counted_as_it_runs() -> Outcome {
    let copy = CALLS.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    fs::remove_file(copy.path())?;
    fs::copy(RELAY.build()?, copy.path())?;
    let recording = crate::exact(copy.directory()).attach(target.pid())?;
    let mut truth = target.work()?;
    let report = recording.stop()?.expect_code(0)?.report()?;
    target.finish()?.expect_code(3)?;
    truth.edges.retain(|(caller, ..)| caller != "main");
    report.agrees_with(&truth)
}

fn a_library_replaced_on_disk_is_counted_as_it_is_mapped() -> Outcome {
    let (copy, library) = with_plugin(&PLUGINS)?;
    let target = Target::start(copy.path(), &["early"])?;
    fs::remove_file(&library)?;
    fs::copy(RELAY.build()?, &library)?;
    let recording = plugin(copy.directory()).attach(target.pid())?;
    plugin_is_counted(recording, target, (20, 100))
}

fn a_library_closed_and_opened_in_a_loop_is_counted_each_time() -> Outcome {
    let (copy, _) = with_plugin(&RELOADS)?;
    let target = Target::start(copy.path(), &[])?;
    let recording = plugin(copy.directory()).attach(target.pid())?;
    plugin_is_counted(recording, target, (200, 400))
}

/// Its monotonic clock is not ours: no time of the result may be.
fn a_process_in_another_time_namespace_is_counted() -> Outcome {
    const AHEAD_S: u64 = 1_000_000;
    let copy = CALLS.copy()?;
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--time", "--fork", "--monotonic", &AHEAD_S.to_string()])
        .arg(copy.path())
        .arg("--wait");
    let report = child_is_counted(unshare, copy.directory())?;
    let ahead = AHEAD_S * 1_000_000_000;
    let longest = report
        .functions
        .iter()
        .filter_map(|f| f.total_wall_ns)
        .max();
    ensure!(
        longest.is_some_and(|ns| ns > 0 && ns < ahead)
            && report.run.duration_ns.is_some_and(|ns| ns < ahead),
        "longest call {longest:?} ns, recording {:?} ns",
        report.run.duration_ns
    );
    Ok(())
}

/// Its program lies on a file system that only it can see, under a path where we have another file, and it knows itself by
/// another id.
fn a_process_in_a_container_of_its_own_files_and_ids_is_counted() -> Outcome {
    let copy = CALLS.copy()?;
    let place = copy.directory().join("place");
    fs::create_dir(&place)?;
    fs::copy(RELAY.build()?, place.join("calls"))?;
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-ec"])
        .arg("mount -t tmpfs none \"$2\"; cp \"$1\" \"$2/calls\"; exec \"$2/calls\" --wait")
        .arg("sh")
        .args([copy.path(), &place]);
    child_is_counted(unshare, copy.directory())?;
    Ok(())
}

/// Breakpoints belong to a file, and a filter to a process: without one (children may come) strangers run into them.
fn other_processes_of_the_same_program_are_not_counted() -> Outcome {
    for follow in [None, Some("--subprocesses")] {
        let copy = CALLS.copy()?;
        let mut target = Target::start(copy.path(), &[])?;
        let mut stranger = Target::start(copy.path(), &[])?;
        let recording = crate::exact(copy.directory())
            .args(follow)
            .attach(target.pid())?;
        stranger.work()?;
        let mut truth = target.work()?;
        let report = recording.stop()?.expect_code(0)?.report()?;
        target.finish()?.expect_code(3)?;
        stranger.finish()?.expect_code(3)?;
        truth.edges.retain(|(caller, ..)| caller != "main");
        report.agrees_with(&truth)?;
        let said = |d: &Doubt| d.what.starts_with("1 other process");
        ensure!(
            report.doubts.iter().any(said),
            "nothing says who pays as well: {:#?}",
            report.doubts
        );
    }
    Ok(())
}

/// Records the waiting child of `unshare`: the report, which agrees with the child's own account.
fn child_is_counted(unshare: Command, directory: &Path) -> anyhow::Result<Report> {
    let mut running = Running::start(unshare)?;
    running.stdout_line(|line| line == "ready\n")?;
    let pid = only_child(running.pid())?;
    let recording = crate::exact(directory).attach(pid)?;
    running.say("go\n")?;
    let line = running.stdout_line(|line| line.starts_with("{\"calls\""))?;
    let mut truth = Truth::of(&line)?;
    let report = recording.stop()?.expect_code(0)?.report()?;
    running.wait()?.expect_code(3)?;
    truth.edges.retain(|(caller, ..)| caller != "main");
    report.agrees_with(&truth)?;
    Ok(report)
}

fn only_child(pid: u32) -> anyhow::Result<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(u32::try_from(number(&children)?)?)
}

fn plugin(directory: &Path) -> Record {
    crate::exact(directory).args(["--lib", "libplugin.so", "-f", "plugin_*"])
}

/// Lets it work: what was `made` of `plugin_work` and `plugin_leaf` must be seen.
fn plugin_is_counted(recording: Recording, mut target: Target, made: (u64, u64)) -> Outcome {
    target.work()?;
    let report = recording.stop()?.expect_code(0)?.report()?;
    target.finish()?.expect_code(0)?;
    let seen = (report.calls("plugin_work")?, report.calls("plugin_leaf")?);
    ensure!(seen == made, "{made:?} made, {seen:?} seen");
    Ok(())
}

fn with_plugin(program: &Fixture) -> anyhow::Result<(Copy, PathBuf)> {
    let copy = program.copy()?;
    let library = copy.with(&LIBPLUGIN)?;
    Ok((copy, library))
}

/// The number at the end of a line.
fn number(line: &str) -> anyhow::Result<i64> {
    let word = line.split_whitespace().last().context("an empty line")?;
    word.parse().with_context(|| format!("no number: {line}"))
}

/// What the kernel says of a process.
struct State {
    /// As in `ps`.
    code: char,
    /// Its tracer's id, or 0.
    tracer: u32,
}

fn state(pid: u32) -> anyhow::Result<State> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
            .with_context(|| format!("no {name}"))
    };
    Ok(State {
        code: field("State:")?.chars().next().context("no state")?,
        tracer: field("TracerPid:")?.parse()?,
    })
}

fn until(pid: u32, what: &str, accept: impl Fn(&State) -> bool) -> Outcome {
    for _ in 0..3000 {
        if accept(&state(pid)?) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    anyhow::bail!("process {pid} is not {what} after 30 s")
}
