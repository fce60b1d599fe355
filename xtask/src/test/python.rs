//! The Python probe: its sources, and its tests under every interpreter that is found.
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::counts::Counts;
use super::steps::{check, tests};
use crate::cmd;
use crate::probes::interpreters::Interpreter;
use crate::probes::{self, environment, newest, node, python};

const HOME: &str = "probes/python";

/// The probe that sends frames, and nothing but Python.
const SOCKET: &str = "probes/socket";

/// Builds the probe and runs all of its tests.
pub(super) fn run(yes: bool) -> Result<Counts> {
    let mut counts = sources(yes)?;
    newest::bring(yes)?;
    let interpreters = python::build(yes)?;
    let (Some(oldest), Some(newest_found)) = (interpreters.first(), interpreters.last()) else {
        bail!("no Python interpreter was found");
    };
    for interpreter in [oldest, newest_found] {
        counts +=
            check(cargo("clippy", interpreter).args(["--all-targets", "--", "-D", "warnings"]))?;
        counts += tests(&mut cargo("test", interpreter))?;
    }
    for interpreter in [oldest, newest_found] {
        counts += tests(
            cmd::command(&newest_found.program)
                .arg(Path::new(SOCKET).join("tests"))
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .env("SCALPEL_TEST_PYTHON", &interpreter.program)
                .env("SCALPEL_TEST_RECORDER", recorder()?),
        )?;
    }
    let collector = python::collector()?;
    // What holds for a Python program under `record` holds for one of Node.js.
    node::build()?;
    let node = node::newest_enough()?;
    let real = environment::ensure()?;
    for interpreter in &interpreters {
        cmd::print(&format!("--- {}", interpreter.program.display()));
        let mut command = under(interpreter, newest_found, &collector);
        command.env("SCALPEL_TEST_AGAIN", recorder()?);
        if interpreter == newest_found {
            command.env("SCALPEL_TEST_RECORDER", recorder()?);
        }
        command.env("SCALPEL_TEST_NODE", &node);
        if let Some(real) = real
            .as_ref()
            .filter(|real| real.interpreter == *interpreter)
        {
            command
                .env("SCALPEL_TEST_RECORDER", recorder()?)
                .env("SCALPEL_TEST_REAL", &real.python)
                .env("SCALPEL_TEST_REQUESTS", &real.requests)
                .env("SCALPEL_TEST_CLICK", &real.click);
        }
        counts += tests(&mut command)?;
    }
    // The oldest sees by another mechanism, and has other blind spots.
    let mut unseen = under(oldest, newest_found, &collector);
    unseen
        .args(UNSEEN)
        .env("SCALPEL_TEST_RECORDER", recorder()?);
    counts += tests(&mut unseen)?;
    Ok(counts)
}

/// What the oldest interpreter sees in another way.
const UNSEEN: [&str; 3] = [
    "test_unseen.Unseen.test_of_python",
    "test_unseen.Unseen.test_a_thread_that_threading_knows_nothing_of_is_seen",
    "test_unseen.Unseen.test_python_functions_of_children_without_the_probe_are_not_said_not_to_have_run",
];

/// Tests that kill programs and collectors at random moments.
const KILLED: [&str; 4] = [
    "test_record.Record.test_killed_at_any_moment_every_call_is_there_with_its_name",
    "test_record.Record.test_killed_collectors_leave_the_program_as_it_was",
    "test_running.Again.test_whenever_collectors_are_killed_the_next_one_goes_on",
    "test_running.AgainNode.test_whenever_collectors_are_killed_the_next_one_goes_on",
];

/// Kills programs with probes, and collectors, each so many times, under the newest interpreter and under Node.js.
pub(crate) fn kill(count: u32) -> Result<()> {
    let interpreters = python::build(false)?;
    let Some(newest) = interpreters.last() else {
        bail!("no Python interpreter was found");
    };
    node::build()?;
    let mut command = under(newest, newest, &python::collector()?);
    let count = count.to_string();
    command
        .args(KILLED)
        .env("SCALPEL_TEST_RECORDER", recorder()?)
        .env("SCALPEL_TEST_NODE", node::newest_enough()?)
        .env("SCALPEL_TEST_KILLS", &count)
        .env("SCALPEL_TEST_MOMENTS", &count);
    let counts = tests(&mut command)?;
    if counts.failed > 0 || counts.skipped > 0 {
        bail!("killed programs and collectors: {counts}");
    }
    Ok(())
}

/// PEP 8, by ruff.
fn sources(yes: bool) -> Result<Counts> {
    let ruff = python::tool("ruff", yes)?;
    let homes = [HOME, SOCKET];
    let mut counts = check(cmd::command(&ruff).args(["check", "--quiet"]).args(homes))?;
    counts += check(
        cmd::command(&ruff)
            .args(["format", "--quiet", "--check"])
            .args(homes),
    )?;
    Ok(counts)
}

fn cargo(what: &str, interpreter: &Interpreter) -> Command {
    let mut command = cmd::cargo();
    command
        .args([what, "--quiet", "--locked", "--manifest-path"])
        .arg(Path::new(HOME).join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", cmd::target().join("python"))
        .env("PYO3_PYTHON", &interpreter.program);
    command
}

/// The collector itself, as the other tests build it.
pub(super) fn recorder() -> Result<PathBuf> {
    let package = ["--package", "scalpel-user", "--bin", "scalpel-ebpf"];
    cmd::run(
        cmd::cargo()
            .args(["build", "--quiet", "--locked"])
            .args(package),
    )?;
    Ok(std::path::absolute(
        cmd::target().join("debug/scalpel-ebpf"),
    )?)
}

fn under(interpreter: &Interpreter, runner: &Interpreter, collector: &Path) -> Command {
    let mut command = cmd::command(&runner.program);
    command
        .arg(Path::new(HOME).join("tests"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SCALPEL_PROBES", probes::home())
        .env("SCALPEL_TEST_COLLECTOR", collector)
        .env("SCALPEL_TEST_PYTHON", &interpreter.program)
        .env("SCALPEL_TEST_VERSION", &interpreter.version);
    command
}
