//! `cargo xtask picture`: makes the README's picture from what the program really printed.
mod svg;

use std::fs;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::real::redis::Server;
use tempfile::TempDir;

use crate::{cmd, debs};

/// What `picture` is given.
#[derive(Args)]
pub(crate) struct Options {}

/// Width of the terminal that the program prints for, in characters.
const COLUMNS: usize = 108;

/// Most lines of the picture.
const LINES: usize = 40;

/// Commands of each kind that the benchmark sends.
const REQUESTS: u64 = 300_000;

/// What of Redis is watched: the way of a command through the server.
const FUNCTIONS: &str = "/^(call|process|lookup|dict|db|set|incr|lpush|sadd|add)/";

/// Records Redis under its benchmark, and draws the recording's summary and report.
pub(crate) fn run(_options: &Options) -> Result<ExitCode> {
    if !cmd::is_root() {
        bail!("the picture is of a real recording: run this as root");
    }
    debs::download(debs::PROJECTS)?;
    cmd::build_release("scalpel-user", &[])?;
    let folder = TempDir::with_prefix("scalpel-picture-")?;
    let programs = Programs::default();
    let server = Server::start(&programs)?;
    let pid = server.pid();
    let screen = std::thread::scope(|scope| {
        let screen = scope.spawn(|| screen(&folder, pid));
        server.work(REQUESTS)?;
        screen
            .join()
            .map_err(|_panic| anyhow::anyhow!("the recording panicked"))?
    })?;
    server.stop()?;
    fs::write(cmd::root().join("docs/report.svg"), svg::draw(&screen))?;
    Ok(ExitCode::SUCCESS)
}

/// What a person sees who types these two commands.
fn screen(folder: &TempDir, pid: u32) -> Result<String> {
    let pid = pid.to_string();
    let record = typed(folder, &["record", "-p", &pid, "-f", FUNCTIONS, "-d", "3"])?;
    let report = typed(folder, &["report", "-n", "14"])?;
    let lines: Vec<&str> = record
        .lines()
        .chain([""])
        .chain(report.lines())
        .take(LINES)
        .collect();
    Ok(lines.join("\n"))
}

fn typed(folder: &TempDir, words: &[&str]) -> Result<String> {
    let mut command = cmd::command(cmd::target().join("release/scalpel-ebpf"));
    command.current_dir(folder).args(words);
    command
        .args(["--color", "always"])
        .env("COLUMNS", COLUMNS.to_string());
    let output = command.output()?;
    let sudo = if words.first() == Some(&"record") {
        "sudo "
    } else {
        ""
    };
    let quoted = words
        .join(" ")
        .replace(FUNCTIONS, &format!("'{FUNCTIONS}'"));
    let printed = [output.stderr, output.stdout].concat();
    let printed = String::from_utf8_lossy(&printed);
    Ok(format!(
        "\x1b[1m$ {sudo}scalpel-ebpf {quoted}\x1b[0m\n{printed}"
    ))
}
