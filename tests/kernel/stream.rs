//! A kept stream is the recording: replayed without root it gives the genome that the live run gave.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use scalpel_tests::catalog::{CALLS, JUMP, SPLIT, THREADS};
use scalpel_tests::child::{self, Ended};
use scalpel_tests::fixture::Fixture;
use scalpel_tests::scalpel;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;

pub(crate) fn add(suite: &mut Suite) {
    for program in [CALLS, JUMP, THREADS, SPLIT] {
        suite.test(
            "stream",
            &format!(
                "{} replayed without root gives the live genome",
                program.name
            ),
            move || replayed_equals_live(&program),
        );
    }
    tests!(suite, "stream": a_replay_shows_the_calls_in_order, a_stream_cut_anywhere_is_read_up_to_the_cut);
}

fn replayed_equals_live(program: &Fixture) -> Outcome {
    let copy = program.copy()?;
    let stream = copy.directory().join("run.stream");
    let record =
        crate::exact(copy.directory()).args(["--keep-stream".as_ref(), stream.as_os_str()]);
    let recorded = record.command(copy.path(), &[])?;
    let again = copy.directory().join("again.genome");
    as_nobody(
        copy.directory(),
        &["replay", path(&stream), "-o", path(&again)],
    )?
    .expect_code(0)?;
    let (live, replayed) = (recorded.report()?, scalpel::report(&again)?);
    ensure!(
        live.functions == replayed.functions,
        "functions differ: {:#?}\n{:#?}",
        live.functions,
        replayed.functions
    );
    ensure!(
        live.edges == replayed.edges,
        "edges differ: {:#?}\n{:#?}",
        live.edges,
        replayed.edges
    );
    ensure!(
        live.threads == replayed.threads,
        "threads differ: {:#?}\n{:#?}",
        live.threads,
        replayed.threads
    );
    ensure!(
        live.doubts == replayed.doubts,
        "doubts differ: {:#?}\n{:#?}",
        live.doubts,
        replayed.doubts
    );
    ensure!(
        (live.events, live.lost) == (replayed.events, replayed.lost),
        "totals differ"
    );
    Ok(())
}

fn a_replay_shows_the_calls_in_order() -> Outcome {
    let copy = CALLS.copy()?;
    let stream = copy.directory().join("run.stream");
    let record =
        crate::exact(copy.directory()).args(["--keep-stream".as_ref(), stream.as_os_str()]);
    record.command(copy.path(), &[])?.expect_code(3)?;
    let shown = as_nobody(copy.directory(), &["replay", path(&stream)])?
        .expect_code(0)?
        .stdout;
    let at = |name: &str| shown.lines().position(|line| line.contains(name));
    ensure!(
        at("main") < at("work") && at("work") < at("left") && at("left") < at("middle"),
        "{shown:.2000}"
    );
    Ok(())
}

fn a_stream_cut_anywhere_is_read_up_to_the_cut() -> Outcome {
    let copy = CALLS.copy()?;
    let stream = copy.directory().join("run.stream");
    let record =
        crate::exact(copy.directory()).args(["--keep-stream".as_ref(), stream.as_os_str()]);
    let recorded = record.command(copy.path(), &[])?.expect_code(3)?;
    let genome = fs::read(&recorded.genome)?;
    let stream = fs::read(&stream)?;
    let cut = copy.directory().join("cut");
    let again = copy.directory().join("again.genome");
    for step in 0..30 {
        fs::write(&cut, prefix(&stream, step))?;
        calm(
            &scalpel::run(&["replay", path(&cut)])?,
            "a cut stream shown",
        )?;
        calm(
            &scalpel::run(&["replay", path(&cut), "-o", path(&again)])?,
            "a cut stream built",
        )?;
        calm(&scalpel::report_ended(&cut)?, "a cut stream reported")?;
        fs::write(&cut, prefix(&genome, step))?;
        calm(&scalpel::report_ended(&cut)?, "a cut genome")?;
    }
    Ok(())
}

/// Thirty lengths over the whole file, by a fixed walk that hits no multiple of a page.
fn prefix(whole: &[u8], step: usize) -> &[u8] {
    let length = (whole.len() * step / 30 + step * 7) % (whole.len() + 1);
    whole.get(..length).unwrap_or(whole)
}

/// Whatever the file holds: an answer or a message, never a crash.
pub(crate) fn calm(ended: &Ended, what: &str) -> Outcome {
    ensure!(
        matches!(ended.code(), 0 | 2 | 5),
        "{what}: exit code {}, {}",
        ended.code(),
        ended.stderr
    );
    ensure!(
        !ended.stderr.contains("panicked"),
        "{what}: {}",
        ended.stderr
    );
    ensure!(
        ended.code() == 0 || !ended.stderr.trim().is_empty(),
        "{what}: no word about what is wrong"
    );
    Ok(())
}

/// Runs the program as uid 65534, which owns `directory` from then on.
pub(crate) fn as_nobody(directory: &Path, args: &[&str]) -> anyhow::Result<Ended> {
    let program = directory.join("scalpel-ebpf");
    scalpel_tests::fixture::copy_program(scalpel::program()?, &program)?;
    fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(directory)?.flatten() {
        std::os::unix::fs::chown(entry.path(), Some(65534), Some(65534))?;
    }
    std::os::unix::fs::chown(directory, Some(65534), Some(65534))?;
    let mut command = Command::new("setpriv");
    command
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
        ])
        .arg(program)
        .args(args);
    child::run(command)
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
