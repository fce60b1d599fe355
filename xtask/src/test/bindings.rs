//! The bindings of scopes, each built, packaged and tested in its own language's way: all replay one corpus.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::counts::Counts;
use super::steps::{check, tests};
use crate::probes::interpreters::{self, Interpreter};
use crate::probes::node::{newest_enough, runtime};
use crate::probes::python::tool;
use crate::{apt, cmd};

/// For C and C++.
const PACKAGES: [&str; 5] = [
    "cmake",
    "doctest-dev",
    "g++",
    "nlohmann-json3-dev",
    "pkg-config",
];

/// Tests of Python; the oldest one runs the first two.
const ALL: [&str; 5] = [
    "test_corpus.py",
    "test_surface.py",
    "test_life.py",
    "test_real.py",
    "test_thousand.py",
];

/// Knows x86-64 and shares no code with the engine.
const EMULATOR: &str = "unicorn==2.1.4";

/// A Node.js that has `using`.
const NEWER_NODE: &str = "24";

/// Builds and tests all of them.
pub(super) fn run(yes: bool) -> Result<Counts> {
    let mut counts = c(yes)?;
    counts += python(yes)?;
    counts += node()?;
    Ok(counts)
}

fn home(language: &str) -> Result<PathBuf> {
    let home = std::path::absolute(cmd::target().join("bindings").join(language))?;
    fs::create_dir_all(&home)?;
    Ok(home)
}

/// The tests, the examples, and a program that uses the installed package.
fn c(yes: bool) -> Result<Counts> {
    if cmd::is_root() {
        apt::ensure(&PACKAGES, "the scopes of C and C++", yes)?;
    }
    let (build, source) = (home("c")?, Path::new("probes/c"));
    let target = std::path::absolute(cmd::target())?;
    cmd::run(
        cmd::command("cmake")
            .arg("-S")
            .arg(source)
            .arg("-B")
            .arg(&build)
            .args(["-DSCALPEL_TESTS=ON", "-DSCALPEL_PROFILE=dev"])
            .arg(format!("-DSCALPEL_TARGET_DIR={}", target.display()))
            .arg(format!(
                "-DCMAKE_INSTALL_PREFIX={}/installed",
                build.display()
            )),
    )?;
    cmd::run(cmd::command("cmake").arg("--build").arg(&build))?;
    let mut counts = runner(&mut cmd::command(build.join("scope_tests")))?;
    for example in ["native", "native_c"] {
        counts += check(&mut cmd::command(build.join(example)))?;
    }
    cmd::run(cmd::command("cmake").arg("--install").arg(&build))?;
    counts += installed(source, &build)?;
    Ok(counts)
}

/// The example again, against what was installed, by pkg-config.
fn installed(source: &Path, build: &Path) -> Result<Counts> {
    let library = cmd::output(
        cmd::command("find")
            .arg(build.join("installed"))
            .args(["-name", "pkgconfig"]),
    )?;
    let library = library
        .lines()
        .next()
        .context("no pkg-config file was installed")?;
    let flags = cmd::output(
        cmd::command("pkg-config")
            .args(["--cflags", "--libs", "scalpel-scope"])
            .env("PKG_CONFIG_PATH", library),
    )?;
    let program = build.join("installed/native");
    cmd::run(
        cmd::command("c++")
            .args(["-std=c++17", "-Wall", "-Wextra", "-Werror"])
            .arg(source.join("examples/native.cpp"))
            .args(flags.split_whitespace())
            .arg("-o")
            .arg(&program),
    )?;
    let folder = Path::new(library).parent().unwrap_or(Path::new("."));
    let mut counts = check(cmd::command(&program).env("LD_LIBRARY_PATH", folder))?;
    counts += found(source, build)?;
    Ok(counts)
}

/// And once more by a project that finds the package as `CMake` does, and asks for a version.
fn found(source: &Path, build: &Path) -> Result<Counts> {
    let here = build.join("found");
    cmd::run(
        cmd::command("cmake")
            .arg("-S")
            .arg(source.join("tests/package"))
            .arg("-B")
            .arg(&here)
            .arg(format!("-DCMAKE_PREFIX_PATH={}/installed", build.display())),
    )?;
    cmd::run(cmd::command("cmake").arg("--build").arg(&here))?;
    check(&mut cmd::command(here.join("native")))
}

/// One wheel, under the oldest and the newest interpreter that are found.
fn python(yes: bool) -> Result<Counts> {
    let found: Vec<_> = interpreters::found()
        .into_iter()
        .filter(Interpreter::has_pip)
        .collect();
    let (Some(oldest), Some(newest)) = (found.first(), found.last()) else {
        anyhow::bail!("no Python interpreter with venv and pip was found");
    };
    let maturin = tool("maturin", yes)?;
    let wheels = home("wheels")?;
    cmd::run(
        cmd::command(maturin)
            .args([
                "build",
                "--quiet",
                "--locked",
                "--profile",
                "dev",
                "--manifest-path",
            ])
            .arg("probes/python/scope/Cargo.toml")
            .arg("--interpreter")
            .arg(&newest.program)
            .arg("--out")
            .arg(&wheels),
    )?;
    let entries = fs::read_dir(&wheels)?.flatten().map(|entry| entry.path());
    let wheel = entries
        .into_iter()
        .max()
        .context("maturin built no wheel")?;
    let mut counts = under(newest, &wheel, &ALL)?;
    if oldest != newest {
        counts += under(oldest, &wheel, ALL.get(..2).unwrap_or_default())?;
    }
    counts += emulated(newest)?;
    Ok(counts)
}

/// The corpus that bindings replay, replayed by an emulator.
fn emulated(interpreter: &Interpreter) -> Result<Counts> {
    cmd::print("--- the corpus, emulated");
    let program = home(&interpreter.tag())?.join("bin/python");
    cmd::run(
        cmd::command(&program)
            .args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
            .args(["install", EMULATOR]),
    )?;
    let corpus = cmd::root().join("probes/scope/corpus");
    tests(
        cmd::command(&program)
            .arg(corpus.join("emulated.py"))
            .arg(corpus.join("routines.json")),
    )
}

fn under(interpreter: &Interpreter, wheel: &Path, only: &[&str]) -> Result<Counts> {
    cmd::print(&format!("--- Python {}", interpreter.version));
    let home = home(&interpreter.tag())?;
    let program = home.join("bin/python");
    if !program.exists() {
        cmd::run(
            cmd::command(&interpreter.program)
                .args(["-m", "venv"])
                .arg(&home),
        )?;
    }
    let pip = || {
        let mut pip = cmd::command(&program);
        pip.args([
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "install",
        ]);
        pip
    };
    cmd::run(pip().args(["pytest", "numpy"]))?;
    cmd::run(pip().args(["--no-deps", "--force-reinstall"]).arg(wheel))?;
    let tests = cmd::root().join("probes/python/scope/tests");
    // A process each: what all scopes of one process may take is limited.
    let mut counts = Counts::default();
    for file in only {
        counts += runner(
            cmd::command(&program)
                .args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"])
                .arg("--rootdir")
                .arg(tests.join(".."))
                .arg(tests.join(file))
                .env("PYTHONDONTWRITEBYTECODE", "1"),
        )?;
    }
    Ok(counts)
}

/// The addon as it lies in the package, under the installed Node.js and one that has `using`.
fn node() -> Result<Counts> {
    let installed = newest_enough()?;
    cmd::run(
        cmd::cargo()
            .args(["build", "--locked", "--quiet"])
            .args(["--package", "scalpel-scope-node"]),
    )?;
    let package = cmd::root().join("probes/node/scope");
    let target = std::path::absolute(cmd::target())?;
    cmd::run(
        cmd::command(&installed)
            .arg(package.join("lib/place.js"))
            .arg("debug")
            .env("CARGO_TARGET_DIR", target),
    )?;
    let test = |node: &Path, names: &[&str]| {
        let files = names
            .iter()
            .map(|name| package.join(format!("test/{name}.test.js")));
        let mut command = cmd::command(node);
        command.args(["--expose-gc", "--test", "--test-reporter=tap"]);
        runner(command.args(files))
    };
    let mut counts = test(&installed, &["corpus", "life", "surface"])?;
    counts += test(&runtime(NEWER_NODE)?, &["corpus", "surface"])?;
    counts += packed(&installed, &package)?;
    Ok(counts)
}

/// What `npm pack` makes, installed in a project of somebody's: the example of its README runs there.
fn packed(node: &Path, package: &Path) -> Result<Counts> {
    let project = home("npm")?.join("project");
    if project.exists() {
        fs::remove_dir_all(&project)?;
    }
    fs::create_dir_all(&project)?;
    fs::write(project.join("package.json"), r#"{ "private": true }"#)?;
    let npm = |folder: &Path| {
        let mut npm = cmd::command("npm");
        npm.args(["--loglevel=error", "--ignore-scripts", "--offline"])
            .current_dir(folder);
        npm
    };
    let told = cmd::output(
        npm(package)
            .args(["pack", "--pack-destination"])
            .arg(&project),
    )?;
    let archive = told.lines().last().context("npm packed nothing")?;
    cmd::run(
        npm(&project)
            .args(["install", "--no-audit", "--no-fund"])
            .arg(project.join(archive.trim())),
    )?;
    let readme = fs::read_to_string(project.join("node_modules/scalpel-scope/README.md"))?;
    let example = readme
        .split_once("```js\n")
        .and_then(|(_, behind)| behind.split_once("```"))
        .context("the README has no example")?;
    check(
        cmd::command(node)
            .args(["-e", example.0])
            .current_dir(&project),
    )
}

/// Runs a language's own test runner and reads its closing lines.
fn runner(command: &mut Command) -> Result<Counts> {
    let mut counts = Counts::default();
    let succeeded = cmd::watch(command, |line| {
        counts += Counts::of_summary(line).unwrap_or_default();
    })?;
    Ok(counts.with_status(succeeded))
}
