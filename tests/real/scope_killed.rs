//! Scopes of a server under load that are let go or killed, again and again: it serves on, with the data that it had.
#![expect(clippy::print_stdout, reason = "what was done is shown")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use rustix::process::{Pid, Signal, kill_process};
use scalpel_tests::child::Running;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::real::redis;
use scalpel_tests::residue;
use scalpel_tests::scope::{Scope, command, ended, released};
use scalpel_tests::suite::{Outcome, Suite};

/// Attachments of which half are killed; `SCALPEL_SCOPE_CYCLES` for more.
const CYCLES: u64 = 20;

pub(crate) fn add(suite: &mut Suite, programs: &Arc<Programs>) {
    let shared = Arc::clone(programs);
    suite.test(
        "scope",
        "redis_outlives_scopes_that_are_killed",
        move || attached_and_killed(&shared),
    );
}

/// Scopes that are attached and let go, each other one killed at a random moment, tool and guardian in turn.
fn attached_and_killed(programs: &Programs) -> Outcome {
    let cycles = std::env::var("SCALPEL_SCOPE_CYCLES").ok();
    let cycles = cycles.map_or(Ok(CYCLES), |cycles| cycles.parse::<u64>())?;
    let server = redis::Server::start(programs)?;
    server.work(5_000)?;
    let before = server.digest()?;
    let pid = server.pid();
    let (mut whole, mut killed, mut calls) = (0, 0, 0);
    // A load that does not change the data: it reads, longer than anybody waits.
    let mut client = server.client("redis-benchmark")?;
    client.args(["-q", "-n", "1000000000", "-c", "4", "-t", "get"]);
    let load = Running::start(client)?;
    for cycle in 0..cycles {
        let pause = Duration::from_millis(20 + cycle * 7919 % 180);
        if cycle % 2 == 0 {
            calls += let_go(pid)?;
            whole += 1;
        } else {
            kill(pid, cycle / 2 % 2 == 0, pause)?;
            killed += 1;
        }
        ensure!(
            Path::new(&format!("/proc/{pid}")).exists(),
            "dead in cycle {cycle}"
        );
    }
    println!("redis: {whole} scopes let go with {calls} calls, {killed} killed");
    drop(load);
    ensure!(calls >= whole, "{calls} calls in {whole} scopes");
    ensure!(server.digest()? == before, "the data differ");
    server.work(5_000)?;
    residue::text_is_clean(pid)?;
    server.stop()
}

/// A scope to its end; how many calls it has.
fn let_go(pid: u32) -> anyhow::Result<usize> {
    let args = ["--calls", "2", "--duration", "20"];
    let ended = ended(pid, "getCommand", &args)?;
    ensure!(matches!(ended.code(), 0 | 5), "{}", ended.stderr);
    Ok(Scope::parse(&ended.stdout)?.calls.len())
}

/// A scope whose tool, or whose guardian, is killed behind a pause.
fn kill(pid: u32, tool: bool, pause: Duration) -> Outcome {
    let scope = Running::start(command(pid, &["-f", "getCommand", "-n", "100000"])?)?;
    std::thread::sleep(pause);
    let parent = scope.pid();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.unwrap_or_default();
    let guardian = children.split_whitespace().next();
    match guardian.and_then(|child| Pid::from_raw(child.parse().ok()?)) {
        Some(guardian) if !tool => {
            kill_process(guardian, Signal::KILL)?;
            scope.wait()?;
        }
        _ => {
            scope.signal(Signal::KILL)?;
            drop(scope);
        }
    }
    released(pid)
}
