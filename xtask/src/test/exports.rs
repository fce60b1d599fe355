//! The programs that exports are for, brought from the package registries, and the tests that open exports with them.
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::counts::Counts;
use super::steps::{check, tests};
use crate::{apt, cmd};

/// Readers that Debian has.
const PACKAGES: [&str; 7] = [
    "chromium",
    "graphviz",
    "jq",
    "lcov",
    "librsvg2-bin",
    "python3-venv",
    "valgrind",
];

/// Readers in Python.
const LIBRARIES: [&str; 6] = [
    "duckdb==2.0.1",
    "jsonschema==4.26.0",
    "lxml==6.1.3",
    "perfetto==0.59.1",
    "protobuf==7.36.2",
    "pycobertura==4.1.0",
];

/// Readers and drivers of pages, held to one version: what they show is what the tests look at.
const PAGES: [&str; 2] = ["speedscope@1.25.0", "puppeteer-core@24.43.1"];

/// Brings and tests.
pub(super) fn run(yes: bool) -> Result<Counts> {
    if cmd::is_root() {
        let mut packages = PACKAGES.to_vec();
        packages.extend((!apt::exists("go")).then_some("golang-go"));
        packages.extend((!apt::exists("npm")).then_some("npm"));
        apt::ensure(&packages, "the readers of exports", yes)?;
    }
    let folder = folder()?;
    python(&folder)?;
    pages(&folder)?;
    let mut counts = tests(
        cmd::cargo()
            .args(["test", "--locked", "--package", "scalpel-user"])
            .args(["--test", "exports"])
            .env("SCALPEL_EXPORTS", &folder)
            .env("SCALPEL_REQUIRE", "exports"),
    )?;
    // They are no part of `cargo test` by itself, and so of no other clippy.
    counts += check(
        cmd::cargo()
            .args(["clippy", "--locked", "--package", "scalpel-user"])
            .args(["--test", "exports", "--", "-D", "warnings"]),
    )?;
    Ok(counts)
}

/// A folder of `node_modules` with what drives a browser.
pub(crate) fn drivers_of_pages() -> Result<PathBuf> {
    let folder = folder()?;
    pages(&folder)?;
    Ok(folder.join("node_modules"))
}

fn folder() -> Result<PathBuf> {
    let folder = std::path::absolute(cmd::target().join("exports"))?;
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn python(folder: &Path) -> Result<()> {
    let home = folder.join("python");
    if home.join("ready").exists() {
        return Ok(());
    }
    cmd::run(cmd::command("python3").args(["-m", "venv"]).arg(&home))?;
    cmd::run(
        cmd::command(home.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet"])
            .arg("--disable-pip-version-check")
            .args(LIBRARIES),
    )?;
    Ok(std::fs::write(home.join("ready"), "")?)
}

fn pages(folder: &Path) -> Result<()> {
    let brought = |package: &str| {
        let name = package.split('@').next().unwrap_or(package);
        folder
            .join("node_modules")
            .join(name)
            .join("package.json")
            .exists()
    };
    if !PAGES.iter().all(|package| brought(package)) {
        cmd::run(
            cmd::command("npm")
                .args(["install", "--ignore-scripts", "--no-audit", "--no-fund"])
                .args(["--loglevel", "error", "--prefix"])
                .arg(folder)
                .args(PAGES),
        )?;
    }
    for package in PAGES {
        ensure!(brought(package), "npm brought no {package}");
    }
    Ok(())
}
