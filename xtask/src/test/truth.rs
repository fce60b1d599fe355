//! Whether matching tells the truth: programs whose functions are labelled by hand, recorded by the probes, which needs no
//! privilege, and laid over their sources.
use anyhow::{Result, bail};

use super::counts::Counts;
use super::python::recorder;
use super::steps::tests;
use crate::probes::{self, environment, node, python};
use crate::{apt, cmd};

/// Where the programs and their labels are.
const HOME: &str = "tests/truth";

/// What the labels were tried with.
const NEWEST_LABELLED: u32 = 14;

/// Builds, brings and tests.
pub(super) fn run(yes: bool) -> Result<Counts> {
    if !apt::exists("npm") {
        apt::ensure(&["npm"], "the compilers of TypeScript", yes)?;
    }
    node::build()?;
    let interpreters = python::build(yes)?;
    let labelled = |minor: u32| minor <= NEWEST_LABELLED;
    let Some(interpreter) = interpreters.iter().rfind(|found| labelled(found.minor)) else {
        bail!("no Python interpreter up to 3.{NEWEST_LABELLED} was found");
    };
    let mut command = cmd::command(&interpreter.program);
    if let Some(real) = environment::ensure()? {
        command.env("SCALPEL_TRUTH_REAL", real.python);
    }
    tests(
        command
            .arg(HOME)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("SCALPEL_BIN", recorder()?)
            .env("SCALPEL_PROBES", std::path::absolute(probes::home())?)
            .env("SCALPEL_TRUTH_PYTHON", &interpreter.program)
            .env("SCALPEL_NODE", node::newest_enough()?)
            .env("SCALPEL_PACKAGES", std::path::absolute(node::packages()?)?),
    )
}
