//! A Python environment with the real programs that tests and benches run, from the package registry.
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::interpreters::{self, Interpreter};
use crate::cmd;

/// Programs, peers, and what the tests of requests need.
const PACKAGES: [&str; 12] = [
    "httpie==3.2.4",
    "flask",
    "gunicorn",
    "gevent",
    "coverage",
    "viztracer",
    "pytest",
    "pytest-mock",
    "pytest-httpbin",
    "trustme",
    "PySocks",
    "requests",
];

/// The environment.
#[derive(Debug)]
pub(crate) struct Environment {
    /// What it was made with.
    pub(crate) interpreter: Interpreter,
    /// Its own interpreter.
    pub(crate) python: PathBuf,
    /// A source tree of requests, with its tests.
    pub(crate) requests: PathBuf,
}

/// Makes it once, with the newest interpreter that has `sys.monitoring` and pip. `None` = there is none.
pub(crate) fn ensure() -> Result<Option<Environment>> {
    let mut all = interpreters::found().into_iter().rev();
    let Some(interpreter) =
        all.find(|interpreter| interpreter.minor >= 12 && interpreter.has_pip())
    else {
        return Ok(None);
    };
    let folder = cmd::target().join("real").join(interpreter.tag());
    let python = folder.join("bin/python");
    let done = folder.join("done");
    if !done.exists() {
        cmd::run(
            cmd::command(&interpreter.program)
                .args(["-m", "venv"])
                .arg(&folder),
        )?;
        pip(&python, &["install"], &PACKAGES)?;
    }
    let requests = requests(&python, &folder)?;
    std::fs::write(&done, "")?;
    Ok(Some(Environment {
        interpreter,
        python: absolute(python)?,
        requests: absolute(requests)?,
    }))
}

fn pip(python: &PathBuf, command: &[&str], packages: &[&str]) -> Result<()> {
    cmd::run(
        cmd::command(python)
            .args(["-m", "pip"])
            .args(command)
            .args(["--quiet", "--disable-pip-version-check"])
            .args(packages),
    )
}

/// The tests of requests are in its source archive alone.
fn requests(python: &PathBuf, folder: &std::path::Path) -> Result<PathBuf> {
    let sources = folder.join("sources");
    if !sources.exists() {
        let into = sources.to_string_lossy();
        pip(
            python,
            &[
                "download",
                "--no-deps",
                "--no-binary",
                ":all:",
                "--dest",
                &into,
            ],
            &["requests"],
        )?;
    }
    let archive = std::fs::read_dir(&sources)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .with_context(|| format!("no archive in {}", sources.display()))?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let tree = sources.join(name.trim_end_matches(".tar.gz"));
    if !tree.exists() {
        cmd::run(
            cmd::command("tar")
                .arg("-xzf")
                .arg(&archive)
                .arg("-C")
                .arg(&sources),
        )?;
    }
    Ok(tree)
}

/// Not resolved: the interpreter of an environment is a link, and its place is what makes it one.
fn absolute(path: PathBuf) -> Result<PathBuf> {
    std::path::absolute(&path).with_context(|| path.display().to_string())
}
