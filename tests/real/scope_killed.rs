//! Scopes of programs under load that are let go or killed, again and again: they work on, with the results that they had.
#![expect(clippy::print_stdout, reason = "what was done is shown")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::{Signal, kill_process};
use scalpel_tests::child::Running;
use scalpel_tests::dice::Dice;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::real::worker::Worker;
use scalpel_tests::real::{node, postgres, redis};
use scalpel_tests::residue;
use scalpel_tests::scope::{Scope, command, ended, guardian_of, is_traced, released};
use scalpel_tests::suite::{Outcome, Suite};

/// Attachments to each of the six, of which half are killed; `SCALPEL_SCOPE_CYCLES` for more, of all six together.
const CYCLES: u64 = 8;
const PROGRAMS: u64 = 6;

pub(crate) fn add(suite: &mut Suite, programs: &Arc<Programs>) {
    let shared = Arc::clone(programs);
    suite.test(
        "scope",
        "postgres_outlives_scopes_that_are_killed",
        move || in_postgres(&shared),
    );
    let shared = Arc::clone(programs);
    suite.test(
        "scope",
        "redis_outlives_scopes_that_are_killed",
        move || in_redis(&shared),
    );
    let mut worker = |name: &'static str, start: fn() -> anyhow::Result<Worker>| {
        let sentence = format!("{name}_outlives_scopes_that_are_killed");
        suite.test("scope", &sentence, move || in_worker(name, start()?));
    };
    worker("python", Worker::python);
    worker("go", Worker::go);
    worker("java", Worker::java);
    suite.test("scope", "node_outlives_scopes_that_are_killed", in_node);
}

/// Which function of which process.
struct Victim {
    name: &'static str,
    pid: u32,
    func: &'static str,
    lib: Option<&'static str>,
}

/// What was done to one.
#[derive(Default)]
struct Done {
    let_go: u64,
    calls: u64,
    killed: u64,
    /// Killed while the process was traced, and while a guardian was there.
    traced: u64,
    guardians: u64,
    /// How long a scope takes that is let go: half of the kills come at any moment of it, and somewhat later.
    took: Duration,
}

impl Victim {
    fn args(&self, more: &[&'static str]) -> Vec<&'static str> {
        let lib = self.lib.map(|lib| ["--lib", lib]);
        let lib = lib.iter().flatten().copied();
        lib.chain(more.iter().copied()).collect()
    }

    fn is_alive(&self) -> bool {
        Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    /// Scopes that are attached and let go, each other one killed at a random moment, tool or guardian.
    fn outlives(&self) -> Outcome {
        let mut done = Done::default();
        let mut dice = Dice(0x5ca1_9e15_c09e ^ u64::from(self.pid));
        for cycle in 0..cycles()? {
            if cycle % 2 == 0 {
                self.let_go(&mut done)?;
            } else {
                self.kill(&mut done, &mut dice)?;
            }
            ensure!(self.is_alive(), "{} is dead in cycle {cycle}", self.name);
        }
        println!(
            "{}: {} scopes let go with {} calls, {} killed, {} of them while it was traced; {} times the guardian",
            self.name, done.let_go, done.calls, done.killed, done.traced, done.guardians
        );
        ensure!(done.calls > 0, "no call of {} was seen", self.func);
        released(self.pid)
    }

    /// A scope to its end.
    fn let_go(&self, done: &mut Done) -> Outcome {
        let begun = Instant::now();
        let args = self.args(&["--calls", "2", "--duration", "20"]);
        let ended = ended(self.pid, self.func, &args)?;
        ensure!(matches!(ended.code(), 0 | 5), "{}", ended.stderr);
        done.took = begun.elapsed();
        done.let_go += 1;
        done.calls += Scope::parse(&ended.stdout)?.calls.len() as u64;
        Ok(())
    }

    /// A scope whose tool, or whose guardian, is killed behind a pause.
    fn kill(&self, done: &mut Done, dice: &mut Dice) -> Outcome {
        let args = self.args(&["--func", self.func, "--calls", "100000"]);
        let mut scope = Running::start(command(self.pid, &args)?)?;
        let most = if dice.roll(2) == 0 {
            // While calls are recorded.
            scope.stderr_line(|line| line.contains("waiting for"))?;
            200
        } else {
            // Whatever it does.
            u64::try_from(done.took.as_millis()).unwrap_or(0) * 3 / 2
        };
        std::thread::sleep(Duration::from_millis(dice.roll(most.clamp(50, 5_000))));
        let guardian = guardian_of(scope.pid()).filter(|_| dice.roll(2) == 0);
        done.killed += 1;
        done.traced += u64::from(is_traced(self.pid)?);
        match guardian {
            Some(guardian) => {
                done.guardians += 1;
                kill_process(guardian, Signal::KILL)?;
                scope.wait()?;
            }
            None => scope.signal(Signal::KILL)?,
        }
        released(self.pid)
    }
}

fn cycles() -> anyhow::Result<u64> {
    let all = std::env::var("SCALPEL_SCOPE_CYCLES").ok();
    let all = all.map(|all| all.parse::<u64>()).transpose()?;
    Ok(all.map_or(CYCLES, |all| all.div_ceil(PROGRAMS)))
}

fn in_redis(programs: &Programs) -> Outcome {
    let server = redis::Server::start(programs)?;
    server.work(5_000)?;
    let before = server.digest()?;
    let pid = server.pid();
    // A load that does not change the data: it reads, longer than anybody waits.
    let mut client = server.client("redis-benchmark")?;
    client.args(["-q", "-n", "1000000000", "-c", "4", "-t", "get"]);
    let load = Running::start(client)?;
    let victim = Victim {
        name: "redis",
        pid,
        func: "getCommand",
        lib: None,
    };
    victim.outlives()?;
    drop(load);
    ensure!(server.digest()? == before, "the data differ");
    server.work(5_000)?;
    residue::text_is_clean(pid)?;
    server.stop()
}

fn in_postgres(programs: &Programs) -> Outcome {
    let server = postgres::Server::start(programs)?;
    server.run("pgbench", &["-i", "-q", "-s", "1", "postgres"])?;
    let load = server.start_client("pgbench", &["-n", "-c", "1", "-T", "100000", "postgres"])?;
    let backends = server.backends_of_pgbench(1)?;
    let victim = Victim {
        name: "postgres",
        pid: *backends.first().context("no backend")?,
        func: "ExecutorRun",
        lib: None,
    };
    victim.outlives()?;
    residue::text_is_clean(victim.pid)?;
    drop(load);
    let sums = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)";
    ensure!(server.query(sums)? == "t", "the sums do not agree any more");
    server.stop()
}

/// Its own server, which answers all the time.
fn in_node() -> Outcome {
    let server = node::Server::start()?;
    let plain = server.ask(50)?;
    let victim = Victim {
        name: "node",
        pid: server.pid(),
        func: "uv__read",
        lib: None,
    };
    let client = server.client();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                ensure!(client.ask(50)? == plain, "an answer changed");
            }
            Ok(())
        });
        let outlived = victim.outlives();
        over.store(true, Ordering::Relaxed);
        let answered = load.join();
        outlived?;
        answered.map_err(|_panic| anyhow::anyhow!("the load panicked"))?
    })?;
    ensure!(server.ask(50)? == plain, "an answer changed afterwards");
    residue::text_is_clean(victim.pid)?;
    server.stop()
}

/// It computes all the time, and says so where a result is wrong.
fn in_worker(name: &'static str, worker: Worker) -> Outcome {
    let victim = Victim {
        name,
        pid: worker.pid(),
        func: worker.func,
        lib: worker.lib,
    };
    victim.outlives()?;
    residue::text_is_clean(victim.pid)?;
    worker.end()
}
