//! The one door to child processes and to the terminal. Must not know what is run, or why.
use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
}

/// Prints a line on stderr. A closed terminal is no reason to fail.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

/// Prints a line on stdout.
pub(crate) fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// `program` in the root of the repository.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that runs this xtask.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Builds a package as it is installed: its default targets, or those named.
pub(crate) fn build_release(package: &str, targets: &[&str]) -> Result<()> {
    run(cargo()
        .args(["build", "--release", "--locked", "--package", package])
        .args(targets))
}

/// Runs to the end; a failure names the whole command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("failed to start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Runs to the end and returns what it printed on stdout.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("failed to start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} did not print UTF-8"))
}

/// Runs to the end, passing each line of stdout on and to `line`. `Ok(false)` means that it failed.
pub(crate) fn watch(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to start {command:?}"))?;
    if let Some(stdout) = child.stdout.take() {
        for text in BufReader::new(stdout).split(b'\n') {
            let text = text.with_context(|| format!("reading the output of {command:?}"))?;
            let text = String::from_utf8_lossy(&text);
            print(&text);
            line(&text);
        }
    }
    Ok(child.wait()?.success())
}

/// Whether this process may do what only root may.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where tools are installed that are built here.
pub(crate) fn tools() -> PathBuf {
    target().join("tools")
}
