//! `cargo xtask soak`: kills scopes and collectors by the thousand, programs with probes by the hundred, runs every fuzz
//! target for a while and writes what came out to docs/soak.md.
mod page;
mod stats;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;
use stats::Stats;

use crate::test::{projects, python};
use crate::{apt, cmd};

const CARGO_FUZZ: &str = "0.13.2";

/// Most memory of a target, in MiB, and longest time for one input, in seconds: more is a finding.
const MOST_MIB: u32 = 2048;
const LONGEST: u32 = 10;

/// What `soak` is given.
#[derive(Args)]
pub(crate) struct Options {
    /// Minutes for each fuzz target; 0 for none.
    #[arg(long, default_value_t = 3)]
    minutes: u32,
    /// Only this target; may be given several times.
    #[arg(long, value_name = "TARGET")]
    only: Vec<String>,
    /// Sanitizer of the build: `none`, or `address` to watch the C libraries' memory too.
    #[arg(long, default_value = "none")]
    sanitizer: String,
    /// Scopes of a running process that are killed at a random moment; 0 for none. Needs root.
    #[arg(long, default_value_t = 1000, conflicts_with = "only")]
    kills: u32,
    /// Collectors of PostgreSQL, Redis, Node.js and Python under load that are killed at a random moment; 0 for none. Needs
    /// root.
    #[arg(long, default_value_t = 1000, conflicts_with = "only")]
    collectors: u32,
    /// Programs with probes that are killed at a random moment, and as many collectors; 0 for none. Needs root.
    #[arg(long, default_value_t = 100, conflicts_with = "only")]
    ends: u32,
}

/// Builds the targets, gives each its beginnings and its time, and shows the table. Fails if a target found something.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.only.is_empty() && options.kills > 0 {
        kills(options.kills)?;
    }
    if options.only.is_empty() && options.collectors > 0 {
        collectors(options.collectors)?;
    }
    if options.only.is_empty() && options.ends > 0 {
        cmd::say(format_args!(
            "{} programs with probes and as many collectors, each killed at a random moment",
            options.ends
        ));
        python::kill(options.ends)?;
    }
    if options.minutes == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    install()?;
    let targets = targets(&options.only)?;
    seeds()?;
    let logs = cmd::target().join("soak");
    fs::create_dir_all(&logs)?;
    cmd::run(fuzz("build").args(["--sanitizer", &options.sanitizer]))?;
    let mut rows = Vec::new();
    for target in targets {
        cmd::say(format_args!("{target}: {} min", options.minutes));
        rows.push(soak(&target, options, &logs)?);
    }
    cmd::print(&page::table(&rows));
    page::write(options.minutes, &options.sanitizer, &rows)?;
    let clean = rows.iter().all(|row| row.finding.is_none());
    Ok(if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Attaches scopes and kills tool or guardian, so many times: the process has to run on.
fn kills(count: u32) -> Result<()> {
    cmd::say(format_args!(
        "{count} scopes, each killed at a random moment, and as many of programs under load, each other one killed"
    ));
    projects::running(true)?;
    let count = ("SCALPEL_SCOPE_CYCLES", count);
    test("kernel", "scope::who_is_killed", count)?;
    // Each other one, of six programs under load.
    test("real", "outlives_scopes_that_are_killed", count)
}

/// Kills so many collectors of four programs under load: those have to answer as ever.
fn collectors(count: u32) -> Result<()> {
    cmd::say(format_args!(
        "{count} collectors of programs under load, each killed at a random moment"
    ));
    apt::ensure(&["bpftool"], "what stays in the kernel", true)?;
    projects::running(true)?;
    let count = ("SCALPEL_KILLS", count);
    test("real", "outlives_collectors_that_are_killed", count)
}

/// Runs the tests of a suite that have this in their names, with a count in the environment.
fn test(suite: &str, name: &str, (variable, count): (&str, u32)) -> Result<()> {
    cmd::run(
        cmd::cargo()
            .args(["test", "--locked", "--quiet"])
            .args(["--package", "scalpel-tests", "--test", suite])
            .args(["--", "--nocapture", name])
            .env(variable, count.to_string())
            .env("SCALPEL_REQUIRE", suite),
    )
}

/// Runs one target.
fn soak(target: &str, options: &Options, logs: &Path) -> Result<Stats> {
    let path = logs.join(format!("{target}.log"));
    let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let seconds = u64::from(options.minutes) * 60;
    let mut command = fuzz("run");
    command.args(["--sanitizer", &options.sanitizer, target, "--"]);
    command.args([
        format!("-max_total_time={seconds}"),
        format!("-rss_limit_mb={MOST_MIB}"),
        format!("-timeout={LONGEST}"),
        "-len_control=0".into(),
        "-print_final_stats=1".into(),
    ]);
    let status = command
        .stderr(log)
        .status()
        .with_context(|| format!("failed to start {command:?}"))?;
    let text = fs::read(&path)?;
    let stats = Stats::parse(target, &String::from_utf8_lossy(&text));
    ensure!(
        status.success() || stats.finding.is_some(),
        "{target} did not run: see {}",
        path.display()
    );
    Ok(stats)
}

/// `cargo fuzz` under nightly Rust: the coverage of libFuzzer needs it.
fn fuzz(task: &str) -> Command {
    let mut command = cmd::command(program());
    command
        .args(["fuzz", task])
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .env_remove("CARGO");
    command
}

fn program() -> PathBuf {
    cmd::tools().join("bin/cargo-fuzz")
}

fn install() -> Result<()> {
    cmd::output(cmd::command("rustup").args(["run", "nightly", "rustc", "--version"]))
        .context("fuzzing needs nightly Rust: rustup toolchain install nightly")?;
    if program().exists() {
        return Ok(());
    }
    let wanted = format!("cargo-fuzz@{CARGO_FUZZ}");
    cmd::run(
        cmd::cargo()
            .args(["install", "--locked", "--quiet", &wanted, "--root"])
            .arg(cmd::tools()),
    )
}

/// The targets that are there, or those of them that are wanted.
fn targets(only: &[String]) -> Result<Vec<String>> {
    let list = cmd::output(&mut fuzz("list"))?;
    let all: Vec<String> = list.lines().map(str::to_owned).collect();
    if let Some(unknown) = only.iter().find(|name| !all.contains(name)) {
        anyhow::bail!("no fuzz target `{unknown}`; there are: {}", all.join(", "));
    }
    Ok(if only.is_empty() { all } else { only.to_vec() })
}

/// Sound inputs to begin with: a log, events, and small ELF files of every kind.
fn seeds() -> Result<()> {
    let corpus = cmd::root().join("fuzz/corpus");
    let example = ["run", "--locked", "--quiet", "--package", "scalpel-user"];
    cmd::run(
        cmd::cargo()
            .args(example)
            .args(["--example", "fuzz_seeds", "--"])
            .arg(&corpus),
    )?;
    let example = ["run", "--locked", "--quiet", "--package", "scalpel-scope"];
    cmd::run(
        cmd::cargo()
            .args(example)
            .args(["--example", "scope_seeds", "--"])
            .arg(&corpus),
    )?;
    let elf = corpus.join("elf");
    fs::create_dir_all(&elf)?;
    let kinds: [(&str, &[&str]); 4] = [
        ("static", &["-static"]),
        ("pie", &["-fPIE", "-pie"]),
        ("shared", &["-fPIC", "-shared"]),
        ("stripped", &["-fPIE", "-pie", "-s"]),
    ];
    for (name, flags) in kinds {
        cmd::run(
            cmd::command("gcc")
                .args(["-O1", "-nostdlib", "-Wl,-z,noseparate-code"])
                .args(["-Wl,--build-id", "fuzz/seed.c"])
                .args(flags)
                .arg("-o")
                .arg(elf.join(name)),
        )?;
    }
    Ok(())
}
