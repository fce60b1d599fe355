//! Real programs at work, with and without a recording.
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use scalpel_tests::real::node;
use scalpel_tests::real::postgres;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::real::redis;
use scalpel_tests::scalpel::{Record, Recording};

use super::results::Section;
use crate::cmd;

/// How a workload is watched.
const WAYS: [(&str, Option<&[&str]>); 4] = [
    ("plain", None),
    ("A/A: plain once more", None),
    ("recorded: sampling only", Some(&["--mode", "sample"])),
    ("recorded: defaults", Some(&["--mode", "auto"])),
];

/// Each workload in each way, in turn, `rounds` times.
pub(super) fn run(rounds: usize) -> Result<Section> {
    let programs = Programs::default();
    let mut section = Section {
        title: "Real programs",
        about: ABOUT.into(),
        unit: "us of wall time per operation",
        ..Section::default()
    };
    postgres(&programs, rounds, &mut section).context("PostgreSQL")?;
    redis(&programs, rounds, &mut section).context("Redis")?;
    node(rounds, &mut section).context("Node.js")?;
    Ok(section)
}

const ABOUT: &str = "The same work, plain and recorded, in turn. *Defaults* means no `-f`: the functions of the main \
program within `--max-overhead 5`, and 99 samples a second. What is measured begins after 5 s of the same work: a \
recording that begins reads its files and drops what is called too often. The second plain run of each round shows how \
far the same thing measures apart from itself.";

/// Work before the one that is measured.
const SETTLING: Duration = Duration::from_secs(5);

/// One client of pgbench; its backend is watched.
fn postgres(programs: &Programs, rounds: usize, section: &mut Section) -> Result<()> {
    let server = postgres::Server::start(programs)?;
    server.run("pgbench", &["-i", "-q", "-s", "2", "postgres"])?;
    each(
        "PostgreSQL, one pgbench transaction",
        rounds,
        section,
        |options| {
            let client = server.start_client(
                "pgbench",
                &["-n", "-S", "-c", "1", "-T", "8", "-P", "1", "postgres"],
            )?;
            let backend = *server
                .backends_of_pgbench(1)?
                .first()
                .context("no backend")?;
            let recording = options
                .map(|options| record(server.folder(), options, backend))
                .transpose()?;
            let said = client.wait()?.expect_code(0)?.stderr;
            finish(recording)?;
            // progress: 6.0 s, 9441.0 tps, lat 0.106 ms stddev 0.020, ...
            let seconds = said.lines().filter_map(|line| {
                let (_, rest) = line.strip_prefix("progress: ")?.split_once(", lat ")?;
                rest.split_once(" ms")?.0.parse::<f64>().ok()
            });
            let settled: Vec<f64> = seconds.skip(SETTLING.as_secs() as usize).collect();
            ensure!(!settled.is_empty(), "{said}");
            Ok(1000.0 * settled.iter().sum::<f64>() / settled.len() as f64)
        },
    )?;
    server.stop()
}

/// Four clients of redis-benchmark with four commands in flight each.
fn redis(programs: &Programs, rounds: usize, section: &mut Section) -> Result<()> {
    const REQUESTS: u64 = 50_000;
    let server = redis::Server::start(programs)?;
    each("Redis, one command", rounds, section, |options| {
        let recording = options
            .map(|options| record(server.folder(), options, server.pid()))
            .transpose()?;
        settle(|| server.work(REQUESTS))?;
        let took = timed(|| server.work(REQUESTS))?;
        finish(recording)?;
        Ok(took.as_secs_f64() * 1e6 / (4.0 * REQUESTS as f64))
    })?;
    server.stop()
}

/// One HTTP request after the other.
fn node(rounds: usize, section: &mut Section) -> Result<()> {
    const REQUESTS: usize = 4000;
    let server = node::Server::start()?;
    server.ask(REQUESTS)?;
    each("Node.js, one HTTP request", rounds, section, |options| {
        let recording = options
            .map(|options| record(server.folder(), options, server.pid()))
            .transpose()?;
        settle(|| server.ask(REQUESTS).map(drop))?;
        let took = timed(|| server.ask(REQUESTS).map(drop))?;
        finish(recording)?;
        Ok(took.as_secs_f64() * 1e6 / REQUESTS as f64)
    })?;
    server.stop()
}

fn each(
    what: &'static str,
    rounds: usize,
    section: &mut Section,
    mut work: impl FnMut(Option<&[&str]>) -> Result<f64>,
) -> Result<()> {
    for round in 1..=rounds {
        cmd::say(format_args!("real: {what}, round {round} of {rounds}"));
        for (way, options) in WAYS {
            let name = format!("{what}: {way}");
            section.add(&name, work(options).with_context(|| name.clone())?);
        }
    }
    let plain = format!("{what}: plain");
    for row in section
        .rows
        .iter_mut()
        .filter(|row| row.name.starts_with(what) && row.name != plain)
    {
        row.base = Some(plain.clone());
    }
    Ok(())
}

fn record(folder: &std::path::Path, options: &[&str], pid: u32) -> Result<Recording> {
    Record::into(folder)
        .args(options.iter().copied())
        .attach(pid)
}

fn finish(recording: Option<Recording>) -> Result<()> {
    recording.map_or(Ok(()), |recording| recording.stop().map(drop))
}

fn settle(mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < SETTLING {
        work()?;
    }
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}
