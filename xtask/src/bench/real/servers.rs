//! Servers under load, attached to while they work.
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use scalpel_tests::child;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::real::{nginx, node, postgres, redis};

use super::super::usage::{lasting_family, memory_mib};
use super::known::Known;
use super::{Bench, Measured, Way, record};
use crate::{apt, cmd};

/// Work before the one that is measured.
const SETTLING: Duration = Duration::from_secs(5);

/// Measures one server in each way.
type Measure = fn(&Programs, &mut Bench) -> Result<()>;

pub(super) fn run(programs: &Programs, bench: &mut Bench) {
    let all: [(&str, Measure); 4] = [
        ("PostgreSQL", postgres),
        ("Redis", redis),
        ("nginx", nginx),
        ("Node.js", node),
    ];
    for (what, measure) in all {
        if let Err(why) = measure(programs, bench) {
            bench.skip(what, &format!("{why:#}"));
        }
    }
}

/// One server: the mean of `turns` of its work, behind [`SETTLING`] of them. A turn gives us an operation.
fn served(
    way: &Way,
    (pids, folder, more): (&str, &Path, &[&str]),
    turns: u32,
    mut turn: impl FnMut() -> Result<f64>,
) -> Measured {
    let recording = way
        .options
        .map(|options| {
            record(folder, options)
                .args(more.iter().copied())
                .args(["-p", pids])
                .begin()
        })
        .transpose()?;
    let start = Instant::now();
    while start.elapsed() < SETTLING {
        turn()?;
    }
    let mut sum = 0.0;
    for _ in 0..turns {
        sum += turn()?;
    }
    let known = match recording {
        None => None,
        Some(mut recording) => {
            let memory = memory_mib(recording.running().pid(), "VmHWM")?;
            Some(Known::of(&recording.stop()?, memory)?)
        }
    };
    Ok((sum / f64::from(turns), known))
}

/// 32 clients of pgbench, each with a backend; all processes of the server are watched.
fn postgres(programs: &Programs, bench: &mut Bench) -> Result<()> {
    let server = postgres::Server::start(programs)?;
    server.run("pgbench", &["-i", "-q", "-s", "4", "postgres"])?;
    let client = ["-n", "-c", "32", "-T", "100000", "-P", "1", "postgres"];
    let books = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)";
    bench.each("PostgreSQL, one transaction of 32 clients", |way| {
        let mut client = server.start_client("pgbench", &client)?;
        server.backends_of_pgbench(32)?;
        // Who is there already is named, `-s` takes who comes.
        let all = lasting_family(server.pid())?;
        let watched = (&*all, server.folder(), &["-s"][..]);
        let measured = served(way, watched, 8, || {
            // progress: 6.0 s, 9441.0 tps, lat 0.106 ms stddev 0.020, ...
            let line = client.stderr_line(|line| line.starts_with("progress"))?;
            let rate = line.split(", ").find_map(|part| part.strip_suffix(" tps"));
            let rate: f64 = rate.with_context(|| line.clone())?.parse()?;
            Ok(1e6 / rate)
        })?;
        ensure!(client.is_alive()?, "pgbench ended by itself");
        ensure!(server.query(books)? == "t", "the books do not balance");
        Ok(measured)
    })?;
    server.stop()
}

/// Four clients of redis-benchmark with four commands in flight each.
fn redis(programs: &Programs, bench: &mut Bench) -> Result<()> {
    const REQUESTS: u64 = 50_000;
    let server = redis::Server::start(programs)?;
    let mut asker = server.asker()?;
    let pid = server.pid().to_string();
    bench.each("Redis, one command", |way| {
        served(way, (&pid, server.folder(), &[]), 1, || {
            let took = timed(|| server.work(REQUESTS))?;
            for _ in 0..100 {
                asker.turn()?;
            }
            Ok(took.as_secs_f64() * 1e6 / (4.0 * REQUESTS as f64))
        })
    })?;
    server.stop()
}

/// Eight connections of wrk.
fn nginx(programs: &Programs, bench: &mut Bench) -> Result<()> {
    ensure!(apt::exists("wrk"), "wrk is not installed");
    let server = nginx::Server::start(programs)?;
    let address = server.address();
    let pid = server.pid().to_string();
    bench.each("nginx, one request", |way| {
        served(way, (&pid, server.folder(), &[]), 1, || {
            let mut wrk = cmd::command("wrk");
            wrk.args(["-t", "1", "-c", "8", "-d", "3s", &address]);
            let said = child::run(wrk)?.expect_code(0)?.stdout;
            ensure!(
                !said.contains("Non-2xx") && !said.contains("Socket errors"),
                "{said}"
            );
            server.ask(100)?;
            let rate = said
                .lines()
                .find_map(|line| line.trim().strip_prefix("Requests/sec:"));
            let rate: f64 = rate.with_context(|| said.clone())?.trim().parse()?;
            Ok(1e6 / rate)
        })
    })?;
    server.stop()
}

/// One HTTP request after the other.
fn node(_: &Programs, bench: &mut Bench) -> Result<()> {
    const REQUESTS: usize = 4000;
    let server = node::Server::start()?;
    let plain = server.ask(REQUESTS)?;
    let pid = server.pid().to_string();
    bench.each("Node.js, one HTTP request", |way| {
        served(way, (&pid, server.folder(), &[]), 1, || {
            let mut answers = Vec::new();
            let took = timed(|| {
                answers = server.ask(REQUESTS)?;
                Ok(())
            })?;
            ensure!(answers == plain, "an answer changed");
            Ok(took.as_secs_f64() * 1e6 / REQUESTS as f64)
        })
    })?;
    server.stop()
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}
