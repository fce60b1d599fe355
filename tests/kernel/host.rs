//! All processes of the host: those that are there, those that come later, and those that are gone at once.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::SPLIT;
use scalpel_tests::report::{Report, Thread};
use scalpel_tests::scalpel::{self, Record, Recorded};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "host":
        busy_programs_and_one_that_is_born_meanwhile_are_there_with_their_functions,
        a_program_that_is_gone_at_once_is_there_too,
        a_program_whose_file_was_deleted_has_its_names,
        a_program_that_becomes_another_has_the_functions_of_both,
        a_host_is_recorded_while_a_command_runs,
        what_is_of_one_process_is_refused,
    );
}

/// Samples of each process, by pid.
fn samples(recorded: &Recorded) -> anyhow::Result<Vec<(u32, String, u64)>> {
    let file = recorded.genome.to_string_lossy().into_owned();
    let csv = scalpel::run(&["report", &file, "--by", "process", "--csv"])?.expect_code(0)?;
    let mut lines = csv.stdout.lines();
    let heads = lines.next().unwrap_or_default();
    let at = heads.split(',').position(|head| head == "samples");
    let at = at.with_context(|| heads.to_owned())?;
    let row = |line: &str| {
        let mut cells = line.split(',');
        let (name, pid) = cells.next()?.trim_matches('"').rsplit_once(' ')?;
        // The name is the first cell.
        let samples = cells.nth(at - 1).unwrap_or_default().parse().unwrap_or(0);
        Some((pid.parse().ok()?, name.to_owned(), samples))
    };
    Ok(lines.filter_map(row).collect())
}

fn has_run(recorded: &Recorded, pid: u32, called: &str) -> Outcome {
    let processes = samples(recorded)?;
    let found = processes.iter().find(|(of, ..)| *of == pid);
    let (_, name, samples) = found.with_context(|| format!("no process {pid}: {processes:?}"))?;
    ensure!(
        name == called && *samples > 0,
        "{pid}: {name}, {samples} samples"
    );
    Ok(())
}

/// What one process did, alone.
fn of_process(recorded: &Recorded, pid: u32) -> anyhow::Result<Report> {
    let file = recorded.genome.to_string_lossy().into_owned();
    let pid = pid.to_string();
    let json = scalpel::run(&["report", &file, "--process", &pid, "--json"])?.expect_code(0)?;
    Ok(serde_json::from_str(&json.stdout)?)
}

fn has_sampled(report: &Report, name: &str) -> bool {
    let mut seen = report.named(name).into_iter();
    seen.any(|function| function.samples.unwrap_or(0) > 0)
}

fn said(report: &Report) -> String {
    let texts = report.doubts.iter().map(|doubt| doubt.what.as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// Each spends 1.5 s of CPU time in two functions: some 700 samples.
fn busy_programs_and_one_that_is_born_meanwhile_are_there_with_their_functions() -> Outcome {
    let copies = [SPLIT.copy()?, SPLIT.copy()?, SPLIT.copy()?];
    let [first, second, third] = &copies;
    let mut early = [
        Target::start(first.path(), &[])?,
        Target::start(second.path(), &[])?,
    ];
    let mut recording = Record::into(first.directory())
        .args(["-a", "--mode", "sample", "-F", "499"])
        .begin()?;
    let mut late = Target::start(third.path(), &[])?;
    let mut pids = Vec::new();
    for target in early.iter_mut().chain([&mut late]) {
        pids.push(target.pid());
        target.work()?;
    }
    let recorder = recording.running().pid();
    let recorded = recording.stop()?.expect_code(0)?;
    for pid in &pids {
        has_run(&recorded, *pid, "split")?;
    }
    for pid in &pids {
        let report = of_process(&recorded, *pid)?;
        for name in ["spin_more", "spin_less"] {
            ensure!(has_sampled(&report, name), "{name}: {report:#?}");
        }
        let is_its_own = |thread: &Thread| thread.pid == *pid;
        ensure!(report.threads.iter().all(is_its_own), "{report:#?}");
    }
    let report = recorded.report()?;
    ensure!(
        report
            .threads
            .iter()
            .all(|thread| thread.pid != recorder && thread.pid != 0),
        "the recorder, or nobody: {:#?}",
        report.threads
    );
    let said = said(&report);
    ensure!(
        said.contains(&format!("of the recorder itself (pid {recorder})")),
        "{said}"
    );
    Ok(())
}

/// What it had mapped is known from its `/proc`, or by what the kernel told.
fn a_program_that_is_gone_at_once_is_there_too() -> Outcome {
    let copy = SPLIT.copy()?;
    let recording = Record::into(copy.directory())
        .args(["-a", "--mode", "sample", "-F", "499"])
        .begin()?;
    let mut child = Command::new("sh")
        .args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"])
        .spawn()?;
    let pid = child.id();
    child.wait()?;
    let recorded = recording.stop()?.expect_code(0)?;
    has_run(&recorded, pid, "sh")?;
    let report = of_process(&recorded, pid)?;
    ensure!(ran_a_shell(&report), "{report:#?}");
    Ok(())
}

fn a_program_whose_file_was_deleted_has_its_names() -> Outcome {
    let copy = SPLIT.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    std::fs::remove_file(copy.path())?;
    let recording = Record::into(copy.directory())
        .args(["-a", "--mode", "sample", "-F", "499"])
        .begin()?;
    target.work()?;
    let recorded = recording.stop()?.expect_code(0)?;
    let report = of_process(&recorded, target.pid())?;
    for name in ["spin_more", "spin_less"] {
        ensure!(has_sampled(&report, name), "{name}: {report:#?}");
    }
    Ok(())
}

/// The first one is sampled, then the second one: their addresses are not mixed up.
fn a_program_that_becomes_another_has_the_functions_of_both() -> Outcome {
    let copy = SPLIT.copy()?;
    let recording = Record::into(copy.directory())
        .args(["-a", "--mode", "sample", "-F", "499"])
        .begin()?;
    let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let program = copy.path().display();
    let mut child = Command::new("sh")
        .args(["-c", &format!("{spin}; exec '{program}'")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let pid = child.id();
    child.wait()?;
    let recorded = recording.stop()?.expect_code(0)?;
    let report = of_process(&recorded, pid)?;
    ensure!(
        has_sampled(&report, "spin_more") && ran_a_shell(&report),
        "{report:#?}"
    );
    Ok(())
}

fn ran_a_shell(report: &Report) -> bool {
    let is_shell = |module: &str| ["dash", "bash", "sh", "busybox"].contains(&module);
    let mut functions = report.functions.iter();
    functions.any(|function| is_shell(&function.module) && function.samples.unwrap_or(0) > 0)
}

fn a_host_is_recorded_while_a_command_runs() -> Outcome {
    let copy = SPLIT.copy()?;
    let record = Record::into(copy.directory()).args(["-a", "--mode", "sample", "-F", "499"]);
    let line = [
        "sh",
        "-c",
        "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 3",
    ];
    let ended = scalpel_tests::child::run(record.command_line(&line)?)?.expect_code(3)?;
    ensure!(
        ended.stderr.contains("all processes during sh"),
        "{}",
        ended.stderr
    );
    Ok(())
}

fn what_is_of_one_process_is_refused() -> Outcome {
    let lines: [&[&str]; 8] = [
        &["-p", "1"],
        &["--cgroup", "a"],
        &["-f", "main"],
        &["-s"],
        &["--off-cpu"],
        &["--no-kernel"],
        &["--trigger", "main>1ms"],
        &["-R", "main"],
    ];
    for args in lines {
        let mut line = vec!["record", "-a"];
        line.extend(args);
        let ended = scalpel::run(&line)?.expect_code(2)?;
        ensure!(
            ended.stderr.contains("cannot be used with"),
            "{args:?}: {}",
            ended.stderr
        );
    }
    let ended = scalpel::run(&["record"])?.expect_code(2)?;
    ensure!(ended.stderr.contains("required"), "{}", ended.stderr);
    Ok(())
}
