//! A Python environment with the real programs that tests and benches run, from the package registry.
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::interpreters::{self, Interpreter};
use crate::cmd;

/// Programs, peers, and what the tests of requests need.
const PACKAGES: [&str; 13] = [
    "httpie==3.2.4",
    "django==5.2.19",
    "flask==3.1.2",
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
    /// One of click, of the version that is installed.
    pub(crate) click: PathBuf,
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
    let wanted = PACKAGES.join("\n");
    if !std::fs::read_to_string(&done).is_ok_and(|had| had == wanted) {
        cmd::run(
            cmd::command(&interpreter.program)
                .args(["-m", "venv"])
                .arg(&folder),
        )?;
        pip(&python, &["install"], &PACKAGES)?;
    }
    let requests = tree(&python, &folder, "requests")?;
    let click = tree(&python, &folder, "click")?;
    std::fs::write(&done, wanted)?;
    Ok(Some(Environment {
        interpreter,
        python: absolute(python)?,
        requests: absolute(requests)?,
        click: absolute(click)?,
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

/// A package's tests are in its source archive alone.
fn tree(python: &PathBuf, folder: &std::path::Path, package: &str) -> Result<PathBuf> {
    let sources = folder.join("sources");
    let prefix = format!("{package}-");
    let archive = || {
        let paths = std::fs::read_dir(&sources).ok()?.flatten();
        let mut names = paths.filter_map(|entry| entry.file_name().into_string().ok());
        names.find(|name| name.starts_with(&prefix) && name.ends_with(".tar.gz"))
    };
    if archive().is_none() {
        let into = sources.to_string_lossy();
        let question = format!("import importlib.metadata as m; print(m.version('{package}'))");
        let version = cmd::output(cmd::command(python).args(["-c", &question]))?;
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
            &[&format!("{package}=={}", version.trim())],
        )?;
    }
    let name = archive().with_context(|| format!("no {package} among {}", sources.display()))?;
    let tree = sources.join(name.trim_end_matches(".tar.gz"));
    if !tree.exists() {
        cmd::run(
            cmd::command("tar")
                .arg("-xzf")
                .arg(sources.join(&name))
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
