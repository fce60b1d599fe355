//! `cargo xtask picture`: makes the README's picture from what the program really printed.
mod svg;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use scalpel_tests::real::postgres::Server;
use scalpel_tests::real::programs::Programs;
use tempfile::TempDir;

use crate::{cmd, debs};

/// What `picture` is given.
#[derive(Args)]
pub(crate) struct Options {}

/// Width of the terminal that the program prints for, in characters.
const COLUMNS: usize = 108;

/// Most lines of the picture.
const LINES: usize = 34;

/// Records a backend of PostgreSQL under pgbench, and draws the recording's summary and report.
pub(crate) fn run(_options: &Options) -> Result<ExitCode> {
    if !cmd::is_root() {
        bail!("the picture is of a real recording: run this as root");
    }
    debs::download(debs::PROJECTS)?;
    cmd::run(cmd::cargo().args([
        "build",
        "--release",
        "--locked",
        "--package",
        "scalpel-user",
    ]))?;
    let folder = TempDir::with_prefix("scalpel-picture-")?;
    let programs = Programs::default();
    let server = Server::start(&programs)?;
    server.run("pgbench", &["-i", "-q", "-s", "1", "postgres"])?;
    let bench = server.start_client("pgbench", &["-n", "-c", "1", "-T", "8", "postgres"])?;
    let backend = *server
        .backends_of_pgbench(1)?
        .first()
        .context("no backend")?;
    let screen = screen(&folder, backend)?;
    bench.wait()?.expect_code(0)?;
    server.stop()?;
    fs::write(
        cmd::root().join("docs/report.svg"),
        svg::draw(&screen, COLUMNS),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// What a person sees who types these two commands.
fn screen(folder: &TempDir, backend: u32) -> Result<String> {
    let record = format!("record --pid {backend} --duration 4");
    let record = typed(folder, &record)?;
    let report = typed(folder, "report")?;
    let lines: Vec<&str> = record
        .lines()
        .chain([""])
        .chain(report.lines())
        .take(LINES)
        .collect();
    Ok(lines.join("\n"))
}

fn typed(folder: &TempDir, line: &str) -> Result<String> {
    let program = cmd::target().join("release/scalpel-ebpf");
    let mut command = cmd::command(program);
    command
        .current_dir(folder)
        .args(line.split(' '))
        .args(["--color", "always"])
        .env("COLUMNS", COLUMNS.to_string());
    let output = command.output()?;
    let sudo = if line.starts_with("record") {
        "sudo "
    } else {
        ""
    };
    let printed = [output.stderr, output.stdout].concat();
    Ok(format!(
        "\x1b[1m$ {sudo}scalpel-ebpf {line}\x1b[0m\n{}",
        String::from_utf8_lossy(&printed)
    ))
}
