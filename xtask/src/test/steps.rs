//! What each step runs. A step answers with counts, or with the error that kept it from running.
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;

use super::counts::Counts;
use super::{Step, aarch64, bindings, docs, exports, node, projects, python, truth};
use crate::{apt, cmd, tidy};

/// Everything but the BPF programs, which no host can link.
const HOST: [&str; 3] = ["--workspace", "--exclude", "scalpel-bpf"];

/// Held back to one version: a newer one may need a newer Rust.
const CARGO_DENY: &str = "0.20.2";

/// Runs one step.
pub(super) fn run(step: Step, yes: bool) -> Result<Counts> {
    match step {
        Step::Fmt => check(cmd::cargo().args(["fmt", "--all", "--check"])),
        Step::Tidy => Ok(if tidy::check()? {
            Counts::passed()
        } else {
            Counts::failed()
        }),
        Step::Clippy => clippy(),
        Step::Unit => unit(yes),
        Step::Miri => miri(),
        Step::Docs => docs::run(),
        Step::Python => python::run(yes),
        Step::Node => node::run(yes),
        Step::Truth => truth::run(yes),
        Step::Bindings => bindings::run(yes),
        Step::Aarch64 => aarch64::run(yes),
        Step::Exports => exports::run(yes),
        Step::Fixtures => fixtures(yes),
        Step::Kernel => kernel(),
        Step::Real => real(yes),
        Step::Deny => deny(),
        Step::BuildEbpf => build_ebpf(yes),
    }
}

/// A command that is one check.
pub(super) fn check(command: &mut Command) -> Result<Counts> {
    cmd::run(command).map(|()| Counts::passed())
}

fn clippy() -> Result<Counts> {
    let mut counts = check(
        cmd::cargo()
            .args(["clippy", "--locked", "--all-targets"])
            .args(HOST)
            .args(["--", "-D", "warnings"]),
    )?;
    counts += check(cmd::cargo().args([
        "clippy",
        "--locked",
        "--package",
        "scalpel-bpf",
        "--",
        "-D",
        "warnings",
    ]))?;
    Ok(counts)
}

fn unit(yes: bool) -> Result<Counts> {
    if cmd::is_root() {
        // Loaded at run time by what decodes Intel PT.
        apt::ensure(&["libipt2"], "the decoder of Intel PT", yes)?;
    }
    let mut counts = tests(
        cmd::cargo()
            .args(["test", "--locked", "--no-fail-fast"])
            .args(HOST)
            .args(["--exclude", "scalpel-tests"]),
    )?;
    // Each cure of the stepper taken out in its turn: the shapes that need it have to fail.
    counts += tests(
        cmd::cargo()
            .args(["test", "--locked", "--package", "scalpel-scope"])
            .args(["--features", "uncured", "--test", "shapes"]),
    )?;
    Ok(counts)
}

/// Undefined behaviour and data races that a run on the processor would not show.
fn miri() -> Result<Counts> {
    let miri = |words: &[&str]| {
        let mut cargo = cmd::command("cargo");
        // Its own compiler and flags, whichever this xtask was started with.
        cargo
            .args(["+nightly", "miri"])
            .args(words)
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("RUSTC")
            .env_remove("RUSTFLAGS")
            .env("CARGO_TARGET_DIR", cmd::target().join("miri"))
            // The tests map memory and take the time.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation");
        cargo
    };
    // Builds a standard library of its own, the first time.
    if let Err(error) = cmd::output(&mut miri(&["setup"])) {
        cmd::print(&format!("{error:#}"));
        cmd::print(
            "skipped: `rustup component add --toolchain nightly miri rust-src` brings what it needs",
        );
        return Ok(Counts::skipped());
    }
    tests(&mut miri(&[
        "test",
        "--locked",
        "--package",
        "scalpel-probe",
        "--lib",
    ]))
}

/// Runs a test command and adds up the closing lines of its runners.
pub(super) fn tests(command: &mut Command) -> Result<Counts> {
    let mut counts = Counts::default();
    let succeeded = cmd::watch(command, |line| {
        counts += Counts::of_line(line).unwrap_or_default();
    })?;
    Ok(counts.with_status(succeeded))
}

/// Tests of whole programs. They skip themselves, with the reason, where they cannot run.
fn whole(targets: &[&str]) -> Result<Counts> {
    tests(
        cmd::cargo()
            .args([
                "test",
                "--locked",
                "--no-fail-fast",
                "--package",
                "scalpel-tests",
            ])
            .args(targets),
    )
}

fn fixtures(yes: bool) -> Result<Counts> {
    let mut packages = vec!["gcc", "g++", "libc6-dev", "binutils", "gdb", "musl-tools"];
    if !apt::exists("go") {
        packages.push("golang-go");
    }
    if cmd::is_root() {
        apt::ensure(&packages, "the tests", yes)?;
    }
    whole(&["--lib", "--test", "fixtures"])
}

fn kernel() -> Result<Counts> {
    mount_tracefs();
    whole(&["--test", "kernel"])
}

fn real(yes: bool) -> Result<Counts> {
    if cmd::is_root() {
        projects::bring(yes)?;
    }
    whole(&["--test", "real"])
}

/// Tracepoints by number, for kernels without BTF tracepoints, are read from tracefs.
fn mount_tracefs() {
    let mount = Path::new("/sys/kernel/tracing");
    if cmd::is_root() && mount.is_dir() && !mount.join("events").exists() {
        let mounted = cmd::run(
            cmd::command("mount")
                .args(["-t", "tracefs", "tracefs"])
                .arg(mount),
        );
        if let Err(error) = mounted {
            cmd::say(format_args!("warning: {error:#}"));
        }
    }
}

/// Licences, sources and bans. Advisories are left out: their database is a repository that a
/// build machine need not reach.
fn deny() -> Result<Counts> {
    let program = projects::cargo_tool("cargo-deny", CARGO_DENY)?;
    cmd::print("advisories are not checked: their database may be unreachable");
    check(cmd::command(program).args(["--locked", "check", "bans", "licenses", "sources"]))
}

fn build_ebpf(yes: bool) -> Result<Counts> {
    let code = crate::build_ebpf::check(yes)?;
    Ok(if code == ExitCode::SUCCESS {
        Counts::passed()
    } else {
        Counts::failed()
    })
}
