//! Scopes of real projects under load: a hundred calls of one function each, the work done as without, and the rate of it
//! before and after, told and not judged.
#![expect(clippy::print_stdout, reason = "throughputs are shown, never asserted")]

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use scalpel_tests::real::programs::Programs;
use scalpel_tests::real::worker::Worker;
use scalpel_tests::real::{node, postgres, redis};
use scalpel_tests::residue;
use scalpel_tests::scope::{Scope, ended};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;

const CALLS: usize = 100;

pub(crate) fn add(suite: &mut Suite, programs: &Arc<Programs>) {
    let shared = Arc::clone(programs);
    suite.test("scope", "postgres_answers_the_same", move || {
        in_postgres(&shared)
    });
    let shared = Arc::clone(programs);
    suite.test("scope", "redis_keeps_the_same_data", move || {
        in_redis(&shared)
    });
    tests!(suite, "scope":
        node_answers_the_same,
        compiled_javascript_is_scoped_by_name,
        python_computes_the_same,
        go_computes_the_same,
        compiled_java_is_scoped_by_name,
    );
}

/// A hundred calls, most of them whole: callees that block signals or switch stacks give reasons.
fn hundred(pid: u32, func: &str, args: &[&str], whole: usize) -> anyhow::Result<Scope> {
    let mut all = vec!["--calls", "100", "--duration", "50"];
    all.extend(args);
    let ended = ended(pid, func, &all)?;
    ensure!(
        matches!(ended.code(), 0 | 5),
        "exit code {}: {}",
        ended.code(),
        ended.stderr
    );
    let scope = Scope::parse(&ended.stdout)?;
    ensure!(
        scope.calls.len() == CALLS,
        "{} calls: {}",
        scope.calls.len(),
        ended.stderr
    );
    let complete = scope
        .calls
        .iter()
        .filter(|call| call.status == "complete")
        .count();
    ensure!(
        complete >= whole,
        "{complete} of {CALLS} are whole: {:?}",
        scope.reasons
    );
    println!(
        "{func}: {complete} of {CALLS} calls whole, {} instructions, {:?}",
        scope.instructions, scope.reasons
    );
    Ok(scope)
}

/// Work a second, by how often `work` ran.
fn rate(what: &str, count: u32, mut work: impl FnMut() -> Outcome) -> Outcome {
    let begun = Instant::now();
    for _ in 0..count {
        work()?;
    }
    println!(
        "{what}: {:.0} a second",
        f64::from(count) / begun.elapsed().as_secs_f64()
    );
    Ok(())
}

fn in_redis(programs: &Programs) -> Outcome {
    let plain = {
        let server = redis::Server::start(programs)?;
        rate("redis, before, 4 x 5,000 requests", 1, || {
            server.work(5_000)
        })?;
        let digest = server.digest()?;
        server.stop()?;
        digest
    };
    let server = redis::Server::start(programs)?;
    let pid = server.pid();
    // Its package is stripped: a function that it exports.
    let scoped = std::thread::spawn(move || hundred(pid, "setCommand", &["--budget", "200ms"], 90));
    rate("redis, scoped, 4 x 5,000 requests", 1, || {
        server.work(5_000)
    })?;
    // What is asked for next leaves the data as they are.
    while !scoped.is_finished() {
        for number in 0..200 {
            let mut client = server.client("redis-cli")?;
            client.args(["set", "scoped", &number.to_string()]);
            scalpel_tests::child::run(client)?.expect_code(0)?;
            if scoped.is_finished() {
                break;
            }
        }
    }
    let mut client = server.client("redis-cli")?;
    client.args(["del", "scoped"]);
    scalpel_tests::child::run(client)?.expect_code(0)?;
    scoped
        .join()
        .map_err(|_panic| anyhow::anyhow!("the scope panicked"))??;
    ensure!(server.digest()? == plain, "the data differ");
    rate("redis, after, 4 x 5,000 requests", 1, || server.work(5_000))?;
    residue::text_is_clean(pid)?;
    server.stop()
}

fn in_postgres(programs: &Programs) -> Outcome {
    let server = postgres::Server::start(programs)?;
    server.run("pgbench", &["-i", "-q", "-s", "1", "postgres"])?;
    let bench = server.start_client(
        "pgbench",
        &["-n", "-c", "1", "-T", "8", "-P", "1", "postgres"],
    )?;
    let backends = server.backends_of_pgbench(1)?;
    let backend = *backends.first().context("no backend")?;
    hundred(backend, "ExecutorRun", &["--budget", "200ms"], 50)?;
    residue::text_is_clean(backend)?;
    let said = bench.wait()?.expect_code(0)?;
    for line in said.stderr.lines().filter(|line| line.contains("progress")) {
        println!("postgres: {line}");
    }
    ensure!(
        said.stdout.contains("number of failed transactions: 0"),
        "{}",
        said.stdout
    );
    let sums = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)";
    ensure!(server.query(sums)? == "t", "the sums do not agree any more");
    server.stop()
}

fn node_answers_the_same() -> Outcome {
    let server = node::Server::start()?;
    let plain = server.ask(50)?;
    rate("node, before, 50 requests", 1, || server.ask(50).map(drop))?;
    let pid = server.pid();
    let scoped = std::thread::spawn(move || hundred(pid, "uv__read", &["--budget", "200ms"], 90));
    while !scoped.is_finished() {
        ensure!(server.ask(50)? == plain, "an answer changed");
    }
    scoped
        .join()
        .map_err(|_panic| anyhow::anyhow!("the scope panicked"))??;
    ensure!(server.ask(50)? == plain, "an answer changed afterwards");
    rate("node, after, 50 requests", 1, || server.ask(50).map(drop))?;
    residue::text_is_clean(pid)?;
    server.stop()
}

/// What is asked of a worker's function.
fn with_library(worker: &Worker) -> Vec<&'static str> {
    let mut args = vec!["--budget", "200ms"];
    if let Some(lib) = worker.lib {
        args.extend(["--lib", lib]);
    }
    args
}

/// A worker's calls, and its rate before and after.
fn in_worker(name: &str, mut worker: Worker, whole: usize) -> anyhow::Result<Scope> {
    worker.rate(&format!("{name}, before"))?;
    let scope = hundred(worker.pid(), worker.func, &with_library(&worker), whole)?;
    worker.rate(&format!("{name}, after"))?;
    residue::text_is_clean(worker.pid())?;
    worker.end()?;
    Ok(scope)
}

/// V8 writes a perf map; the code may move, and a call that is not seen any more is no harm.
fn compiled_javascript_is_scoped_by_name() -> Outcome {
    let scope = in_worker("javascript", Worker::javascript()?, 90)?;
    let named = scope
        .trace
        .iter()
        .any(|row| row.symbol.as_deref() == Some("scoped"));
    ensure!(named, "no instruction has the function's name");
    Ok(())
}

fn python_computes_the_same() -> Outcome {
    in_worker("python", Worker::python()?, 90).map(drop)
}

/// Where Go moves a goroutine while its call is stepped, the trace says so.
fn go_computes_the_same() -> Outcome {
    in_worker("go", Worker::go()?, 50).map(drop)
}

fn compiled_java_is_scoped_by_name() -> Outcome {
    in_worker("java", Worker::java()?, 90).map(drop)
}
