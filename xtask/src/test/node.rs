//! The tests of the Node.js probe: its addon built and put beside its JavaScript, the packages that it runs brought from the
//! registry into the target folder, and `node --test` over it, with the Node.js of this machine and with newer ones.
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::counts::Counts;
use super::python::recorder;
use crate::probes::node::{build, folder, newest_enough, packages, runtime};
use crate::probes::python;
use crate::{apt, cmd};

/// Node.js that the hooks differ for, beside the one that is installed.
const NEWER: [&str; 3] = ["22", "24", "26"];

/// Tests that every version runs; the others are about packages.
const EACH: [&str; 2] = ["events.test.js", "harm.test.js"];

/// Builds, brings and tests.
pub(super) fn run(yes: bool) -> Result<Counts> {
    if !apt::exists("npm") {
        apt::ensure(&["npm"], "the tests of the Node.js probe", yes)?;
    }
    let (probe, collector) = (build()?, python::collector()?);
    let packages = packages()?;
    let installed = newest_enough()?;
    let recorder = recorder()?;
    let tests = |node: &Path, names: &[String]| {
        let mut command = cmd::command(&installed);
        command
            .args(["--test", "--test-reporter=tap"])
            .args(names.iter().map(|name| folder().join("test").join(name)))
            .env("SCALPEL_NODE", node)
            .env("SCALPEL_PROBE", &probe)
            .env("SCALPEL_PACKAGES", &packages)
            .env("SCALPEL_COLLECTOR", &collector)
            .env("SCALPEL_RECORDER", &recorder);
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

fn all() -> Result<Vec<String>> {
    let entries = fs::read_dir(folder().join("test"))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".test.js")).collect();
    names.sort();
    Ok(names)
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
