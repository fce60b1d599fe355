//! The collector's life: how it begins, is stopped, killed, refused, and what it leaves behind.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::Signal;
use scalpel_tests::catalog::{BUSY, CALLS, FLOOD};
use scalpel_tests::fixture::Copy;
use scalpel_tests::scalpel::{self, Record};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::truth::Truth;
use scalpel_tests::{child, residue, tests};

use crate::stream::{as_nobody, calm};

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "lifecycle":
        a_running_recording_is_seen_by_the_checks_for_residue,
        a_target_that_ends_while_attaching_is_no_error,
        a_collector_killed_at_thirty_moments_harms_nothing,
        ctrl_c_sigterm_and_a_duration_end_a_recording_cleanly,
        a_target_that_ends_ends_the_recording,
        no_such_process_is_exit_code_4,
        no_such_command_is_exit_code_4,
        wrong_usage_is_exit_code_2,
        without_permission_it_says_what_is_missing_and_exits_with_3,
        a_launched_command_keeps_its_exit_code_and_its_output,
        a_full_disk_is_said_and_what_was_written_is_readable,
        an_existing_genome_is_kept_as_old,
        a_genome_belongs_to_the_user_behind_sudo_alone,
        a_summary_tells_what_the_exit_code_cannot,
    );
}

/// A target that calls all the time, from the moment it is told to.
pub(crate) fn busy(copy: &Copy) -> anyhow::Result<Target> {
    Target::start(copy.path(), &[])
}

pub(crate) fn set_off(target: &mut Target) -> Outcome {
    target.running().say("go\n")?;
    target.running().stdout_line(|line| line == "busy\n")?;
    Ok(())
}

pub(crate) fn call_off(target: &mut Target) -> anyhow::Result<Truth> {
    target.running().say("stop\n")?;
    Truth::of(
        &target
            .running()
            .stdout_line(|line| line.starts_with("{\"calls\""))?,
    )
}

/// The kernel takes probes away after the collector is gone: within the two seconds that are promised.
fn clean_within_two_seconds(target: &Target) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match residue::text_is_clean(target.pid()) {
            Ok(()) => break,
            Err(error) if Instant::now() > deadline => bail!("after two seconds: {error:#}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    ensure!(
        residue::links_on(target.path())? == 0,
        "a link on {} is still open",
        target.path().display()
    );
    Ok(())
}

/// The checks that everything is gone must see what is there.
fn a_running_recording_is_seen_by_the_checks_for_residue() -> Outcome {
    let copy = CALLS.copy()?;
    let mut target = busy(&copy)?;
    residue::text_is_clean(target.pid())?;
    let recording = crate::exact(copy.directory()).attach(target.pid())?;
    ensure!(
        residue::text_is_clean(target.pid()).is_err(),
        "no breakpoint is seen while probes are in place"
    );
    ensure!(
        residue::links_on(target.path())? > 0,
        "no link is seen while probes are in place"
    );
    target.work()?;
    recording.stop()?.expect_code(0)?;
    clean_within_two_seconds(&target)?;
    target.finish()?;
    Ok(())
}

fn a_target_that_ends_while_attaching_is_no_error() -> Outcome {
    for step in 0..12 {
        let copy = CALLS.copy()?;
        let target = Target::start(copy.path(), &[])?;
        let recording = crate::exact(copy.directory()).attach_at_once(target.pid())?;
        std::thread::sleep(Duration::from_millis(step * 15));
        drop(target);
        let recorded = recording.ended()?;
        let ended = &recorded.ended;
        ensure!(
            matches!(ended.code(), 0 | 4 | 5),
            "exit code {} after {step} steps: {}",
            ended.code(),
            ended.stderr
        );
        ensure!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        if ended.code() == 0 {
            recorded.report()?;
        }
    }
    Ok(())
}

fn a_collector_killed_at_thirty_moments_harms_nothing() -> Outcome {
    let copy = BUSY.copy()?;
    let (mut target, mut recovered) = (busy(&copy)?, 0);
    set_off(&mut target)?;
    for step in 0..30_u64 {
        let genome = copy.directory().join("run.genome");
        drop(fs::remove_file(&genome));
        let mut recording = crate::exact(copy.directory()).attach_at_once(target.pid())?;
        // From before the first probe to after the first flush, in no order; each fifth has surely written something.
        std::thread::sleep(Duration::from_millis(step * step * 7 % 1301));
        if step % 5 == 4 {
            recording.has_written()?;
        }
        recording.running().signal(Signal::KILL)?;
        let ended = recording.ended()?.ended;
        ensure!(
            ended.code() == 137,
            "exit code {}: {}",
            ended.code(),
            ended.stderr
        );
        clean_within_two_seconds(&target).with_context(|| format!("killed at moment {step}"))?;
        ensure!(
            target.running().is_alive()?,
            "the target died of a collector killed at moment {step}"
        );
        recovered += recover(&genome)?;
    }
    let truth = call_off(&mut target)?;
    target.finish()?.expect_code(0)?;
    ensure!(
        truth.measured("errors")? == 0,
        "the target's arithmetic broke"
    );
    ensure!(
        recovered >= 3,
        "only {recovered} of 30 killed recordings could be read again"
    );
    Ok(())
}

/// Reads what a killed recording left, if it left anything that holds calls.
fn recover(genome: &Path) -> anyhow::Result<u32> {
    let ended = scalpel::report_ended(genome)?;
    calm(&ended, "a killed recording")?;
    if ended.code() == 2 {
        return Ok(0);
    }
    let report = scalpel_tests::report::Report::parse(&ended.stdout)?;
    ensure!(
        !report.doubts.is_empty(),
        "a cut recording is presented as complete"
    );
    let seen: u64 = report.named("leaf").iter().filter_map(|f| f.calls).sum();
    Ok(u32::from(seen > 0))
}

fn ctrl_c_sigterm_and_a_duration_end_a_recording_cleanly() -> Outcome {
    let copy = BUSY.copy()?;
    let mut target = busy(&copy)?;
    set_off(&mut target)?;
    for how in ["INT", "TERM", "-d"] {
        let mut record = crate::exact(copy.directory());
        if how == "-d" {
            record = record.args(["-d", "0.3"]);
        }
        let mut recording = record.attach(target.pid())?;
        match how {
            "INT" => recording.running().signal(Signal::INT)?,
            "TERM" => recording.running().signal(Signal::TERM)?,
            _ => {}
        }
        let recorded = recording.ended()?.expect_code(0)?;
        clean_within_two_seconds(&target).with_context(|| format!("after {how}"))?;
        ensure!(
            recorded.ended.stdout.is_empty(),
            "{how}: stdout is for data: {}",
            recorded.ended.stdout
        );
        recorded.report()?;
        ensure!(
            target.running().is_alive()?,
            "the target ended with the recording ({how})"
        );
    }
    let truth = call_off(&mut target)?;
    target.finish()?.expect_code(0)?;
    ensure!(
        truth.measured("errors")? == 0,
        "the target's arithmetic broke"
    );
    Ok(())
}

fn a_target_that_ends_ends_the_recording() -> Outcome {
    let copy = CALLS.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let recording = crate::exact(copy.directory()).attach(target.pid())?;
    let truth = target.work()?;
    target.finish()?.expect_code(3)?;
    let report = recording.ended()?.expect_code(0)?.report()?;
    report.counts_agree_with(&truth)
}

fn no_such_process_is_exit_code_4() -> Outcome {
    let mut gone = child::Running::start(Command::new("true"))?;
    let pid = gone.pid();
    gone.hang_up();
    gone.wait()?;
    let ended = scalpel::run(&[
        "record",
        "--pid",
        &pid.to_string(),
        "-o",
        "/nonexistent/run.genome",
    ])?
    .expect_code(4)?;
    ensure!(
        ended.stderr.contains(&pid.to_string()),
        "it does not say which process: {}",
        ended.stderr
    );
    scalpel::run(&[
        "record",
        "--comm",
        "no-such-name",
        "-o",
        "/nonexistent/run.genome",
    ])?
    .expect_code(4)?;
    Ok(())
}

fn no_such_command_is_exit_code_4() -> Outcome {
    let copy = CALLS.copy()?;
    let missing = copy.directory().join("missing");
    let recorded = crate::exact(copy.directory())
        .command(&missing, &[])?
        .expect_code(4)?;
    ensure!(
        recorded.ended.stderr.contains("missing"),
        "it does not say which command: {}",
        recorded.ended.stderr
    );
    Ok(())
}

fn wrong_usage_is_exit_code_2() -> Outcome {
    for args in [
        &["record"][..],
        &["record", "--pid", "x"],
        &["record", "--pid", "1", "--", "true"],
        &["record", "--no-such-flag", "--pid", "1"],
        &["report", "/nonexistent/run.genome"],
        &["report", "/dev/null"],
        &["record", "-f", "/(/", "--", "true"],
    ] {
        let ended = scalpel::run(args)?
            .expect_code(2)
            .with_context(|| format!("{args:?}"))?;
        ensure!(
            ended.stdout.is_empty() && !ended.stderr.is_empty(),
            "{args:?} must explain itself on stderr"
        );
    }
    Ok(())
}

fn without_permission_it_says_what_is_missing_and_exits_with_3() -> Outcome {
    let copy = CALLS.copy()?;
    let target = Target::start(copy.path(), &[])?;
    let genome = copy.directory().join("run.genome");
    let genome = genome.to_str().context("path")?;
    let ended = as_nobody(
        copy.directory(),
        &["record", "--pid", &target.pid().to_string(), "-o", genome],
    )?
    .expect_code(3)?;
    ensure!(
        ended.stderr.contains("CAP_") || ended.stderr.contains("root"),
        "no way out is named: {}",
        ended.stderr
    );
    residue::text_is_clean(target.pid())?;
    target.finish()?;
    let own = copy.path().to_str().context("path")?;
    let ended =
        as_nobody(copy.directory(), &["record", "-o", genome, "--", own])?.expect_code(3)?;
    ensure!(
        ended.stderr.contains("CAP_") || ended.stderr.contains("root"),
        "no way out is named: {}",
        ended.stderr
    );
    Ok(())
}

fn a_launched_command_keeps_its_exit_code_and_its_output() -> Outcome {
    for (script, code) in [
        ("exit 0", 0),
        ("echo out; echo err >&2; exit 42", 42),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        let copy = CALLS.copy()?;
        let recorded =
            crate::exact(copy.directory()).command(Path::new("/bin/sh"), &["-c", script])?;
        let recorded = recorded
            .expect_code(code)
            .with_context(|| script.to_owned())?;
        ensure!(
            recorded.ended.stdout == if code == 42 { "out\n" } else { "" },
            "stdout: {}",
            recorded.ended.stdout
        );
    }
    Ok(())
}

fn a_full_disk_is_said_and_what_was_written_is_readable() -> Outcome {
    const SCRIPT: &str = "mount -t tmpfs -o size=400k none \"$1\" || exit 77; \
        \"$2\" record --mode trace --max-overhead off -F 0 -o \"$1/run.genome\" -- \"$3\"; echo \"record=$?\"; \
        \"$2\" report \"$1/run.genome\" --json >\"$4\"; echo \"report=$?\"";
    let copy = FLOOD.copy()?;
    let disk = copy.directory().join("disk");
    fs::create_dir(&disk)?;
    let report = copy.directory().join("report.json");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", SCRIPT, "sh"])
        .arg(disk)
        .arg(scalpel::program()?)
        .arg(copy.path())
        .arg(&report);
    let ended = child::run(command)?;
    if ended.code() == 77 {
        return Err(scalpel_tests::suite::Skip::because("cannot mount a tmpfs"));
    }
    ensure!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    let words = ended.stderr.to_lowercase();
    ensure!(
        words.contains("no space") || words.contains("full"),
        "no word about the full disk: {}",
        ended.stderr
    );
    Truth::of(&ended.stdout).context("the program was harmed")?;
    ensure!(
        ended.stdout.contains("report=0") || ended.stdout.contains("report=5"),
        "{} {}",
        ended.stdout,
        ended.stderr
    );
    let report = scalpel_tests::report::Report::parse(&fs::read_to_string(report)?)?;
    ensure!(report.calls("hot")? > 0, "nothing of it could be read");
    ensure!(
        !report.doubts.is_empty(),
        "a cut recording is presented as complete"
    );
    Ok(())
}

fn an_existing_genome_is_kept_as_old() -> Outcome {
    let copy = CALLS.copy()?;
    let record = crate::exact(copy.directory()).args(["-f", "leaf"]);
    record.command(copy.path(), &[])?.expect_code(3)?;
    let first = fs::read(record.genome())?;
    record.command(copy.path(), &[])?.expect_code(3)?;
    let kept = fs::read(copy.directory().join("run.genome.old"))?;
    ensure!(first == kept, "the first recording is not what was kept");
    let left: Vec<_> = fs::read_dir(copy.directory())?
        .flatten()
        .map(|e| e.file_name())
        .collect();
    ensure!(
        left.len() == 3,
        "more than the program, the genome and the old one is left: {left:?}"
    );
    Ok(())
}

fn a_genome_belongs_to_the_user_behind_sudo_alone() -> Outcome {
    let copy = CALLS.copy()?;
    let record = crate::exact(copy.directory()).args(["-f", "leaf"]);
    let mut command = record.command_line(&[copy.path().to_str().context("path")?])?;
    command.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
    child::run(command)?.expect_code(3)?;
    let genome = fs::metadata(record.genome())?;
    ensure!(
        genome.uid() == 65534 && genome.gid() == 65534,
        "owner {}:{}",
        genome.uid(),
        genome.gid()
    );
    ensure!(
        genome.mode() & 0o777 == 0o600,
        "mode {:o}",
        genome.mode() & 0o777
    );
    Ok(())
}

fn a_summary_tells_what_the_exit_code_cannot() -> Outcome {
    let copy = CALLS.copy()?;
    let summary = copy.directory().join("summary.json");
    let record = Record::into(copy.directory()).args(["--summary".as_ref(), summary.as_os_str()]);
    record.command(copy.path(), &[])?.expect_code(3)?;
    let summary: serde_json::Value = serde_json::from_slice(&fs::read(&summary)?)?;
    ensure!(summary.is_object(), "{summary}");
    Ok(())
}
