//! Programs under load whose collector is killed at a random moment, again and again: they work on, each of their answers is
//! the right one, nothing of the tracer stays in them or in the kernel, and what was recorded can be read.
#![expect(clippy::print_stdout, reason = "what was done is shown")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use rustix::process::Signal;
use scalpel_tests::child::Running;
use scalpel_tests::dice::Dice;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::real::worker::Worker;
use scalpel_tests::real::{node, postgres, redis};
use scalpel_tests::report::Report;
use scalpel_tests::scalpel::{self, Record};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::{orphans, residue};

/// Collectors killed of each of the four programs; `SCALPEL_KILLS` for more, of all four together.
const KILLS: u64 = 9;
const PROGRAMS: u64 = 4;

/// Of so many collectors some recorded something before they were killed; of a few that is a matter of chance.
const MANY: u64 = 40;

/// Looks for residue, with pauses of 20 ms: 2 s, by a clock that stands while this machine does.
const LOOKS: u32 = 100;

/// Looks whether a killed collector has ended, with the same pauses.
const DYING: u32 = 15_000;

pub(crate) fn add(suite: &mut Suite, programs: &Arc<Programs>) {
    let shared = Arc::clone(programs);
    suite.test(
        "collector",
        "postgres_outlives_collectors_that_are_killed",
        move || in_postgres(&shared),
    );
    let shared = Arc::clone(programs);
    suite.test(
        "collector",
        "redis_outlives_collectors_that_are_killed",
        move || in_redis(&shared),
    );
    suite.test(
        "collector",
        "node_outlives_collectors_that_are_killed",
        in_node,
    );
    suite.test(
        "collector",
        "python_outlives_collectors_that_are_killed",
        in_python,
    );
}

/// How a program is recorded, each in its turn.
const WAYS: [&[&str]; 6] = [
    &["--mode", "auto"],
    &["--mode", "trace"],
    &["--mode", "count"],
    &["--mode", "sample", "--off-cpu"],
    &["--mode", "trace", "--max-overhead", "off", "-F", "999"],
    &["--mode", "auto", "--off-cpu", "--kernel-stacks"],
];

/// What is recorded, and what has to hold of it.
struct Victim<'a> {
    name: &'static str,
    pid: u32,
    /// Which functions, of which file; of all its own, where that is not said.
    functions: &'static [&'static str],
    /// Fails where an answer was wrong.
    answers: &'a mut dyn FnMut() -> Outcome,
}

/// What was done to one.
#[derive(Debug, Default)]
struct Done {
    beginning: u64,
    recording: u64,
    ending: u64,
    /// Killed when it had ended.
    late: u64,
    /// What it left: a stream, a finished recording, nothing yet.
    streams: u64,
    genomes: u64,
    nothing: u64,
    events: u64,
}

impl Victim<'_> {
    fn outlives(&mut self) -> Outcome {
        let mut done = Done::default();
        let kills = kills()?;
        // A few are the same in every run; of many each run has its own.
        let throw = if kills < MANY { 0 } else { self.pid };
        let mut dice = Dice(0x6b11_1ed0 ^ u64::from(throw));
        let folder = tempfile::TempDir::with_prefix("scalpel-killed-")?;
        let before = orphans::now()?;
        for (cycle, way) in (0..kills).zip(WAYS.iter().cycle()) {
            let record =
                Record::into(folder.path()).args(way.iter().chain(self.functions).copied());
            let collector = kill(&record, self.pid, &mut dice, &mut done)
                .and_then(|collector| self.is_free(collector).map(|()| collector))
                .and_then(|collector| read(&record, &mut done).map(|()| collector))
                .and_then(|_| (self.answers)());
            collector.with_context(|| format!("{}, kill {cycle}, {way:?}: {done:?}", self.name))?;
        }
        let stayed = seen_twice(|| {
            Ok(orphans::now()?
                .difference(&before)
                .cloned()
                .collect::<Vec<_>>())
        })?;
        ensure!(stayed.is_empty(), "left in the kernel: {stayed:?}");
        println!("{}: {done:?}", self.name);
        ensure!(
            done.events > 0 || kills < MANY,
            "nothing was recorded of {}",
            self.name
        );
        Ok(())
    }

    /// It lives, its text is its file's, and no process of the collector is left.
    fn is_free(&self, collector: u32) -> Outcome {
        ensure!(
            Path::new(&format!("/proc/{}", self.pid)).exists(),
            "it is dead"
        );
        let left = seen_twice(|| {
            let mut left: Vec<String> = residue::group_of(collector)?
                .iter()
                .map(|pid| format!("process {pid} of the collector"))
                .collect();
            left.extend(
                residue::text_is_clean(self.pid)
                    .err()
                    .map(|error| format!("{error:#}")),
            );
            Ok(left)
        })?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    }
}

/// Of what is seen, what stays.
fn seen_twice(look: impl Fn() -> anyhow::Result<Vec<String>>) -> anyhow::Result<Vec<String>> {
    for _ in 0..LOOKS {
        if look()?.is_empty() {
            return Ok(Vec::new());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    look()
}

/// Starts a collector and kills it: while it begins, while it records, or while it ends. Returns its number.
fn kill(record: &Record, pid: u32, dice: &mut Dice, done: &mut Done) -> anyhow::Result<u32> {
    drop(fs::remove_file(record.genome()));
    let mut recording = record.attach_at_once(pid)?;
    let collector = recording.running().pid();
    let pause = |most: u64, dice: &mut Dice| {
        std::thread::sleep(Duration::from_micros(dice.roll(most * 1000)));
    };
    let moment = dice.roll(4);
    match moment {
        // Its first steps.
        0 => pause(60, dice),
        // All of its beginning, and somewhat later.
        1 => pause(1500, dice),
        // On a busy machine that may take minutes: then it is killed before.
        _ => {
            if recording.is_attached().is_ok() {
                pause(600, dice);
            }
        }
    }
    if moment == 3 {
        recording.running().signal(Signal::INT)?;
        pause(250, dice);
    }
    let signalled = recording.running().signal(Signal::KILL);
    // The kernel takes the probes off one by one while it dies, which lasts on a busy machine; they do nothing meanwhile.
    for _ in 0..DYING {
        if !recording.running().is_alive()? {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = recording.ended()?.ended;
    match (ended.code(), moment) {
        (137, 0 | 1) => done.beginning += 1,
        (137, 2) => done.recording += 1,
        (137, _) => done.ending += 1,
        (0 | 5, 3) => done.late += 1,
        _ => bail!(
            "{signalled:?}, exit code {}: {}",
            ended.code(),
            ended.stderr
        ),
    }
    Ok(collector)
}

/// What it left is a recording that says what it lacks, or nothing yet.
fn read(record: &Record, done: &mut Done) -> Outcome {
    let file = record.genome();
    let Ok(bytes) = fs::metadata(file).map(|file| file.len()) else {
        done.nothing += 1;
        return Ok(());
    };
    let ended = scalpel::report_ended(file)?;
    ensure!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    if bytes == 0 && ended.code() == 2 {
        done.nothing += 1;
        return Ok(());
    }
    ensure!(
        matches!(ended.code(), 0 | 5),
        "{bytes} bytes, exit code {}: {}",
        ended.code(),
        ended.stderr
    );
    let report = Report::parse(&ended.stdout)?;
    done.events += report.events;
    if is_genome(file)? {
        done.genomes += 1;
        return Ok(());
    }
    done.streams += 1;
    ensure!(
        !report.doubts.is_empty(),
        "a cut recording is presented as complete"
    );
    Ok(())
}

fn is_genome(file: &Path) -> anyhow::Result<bool> {
    Ok(fs::read(file)?.starts_with(b"SQLite format 3"))
}

fn kills() -> anyhow::Result<u64> {
    let all = std::env::var("SCALPEL_KILLS").ok();
    let all = all.map(|all| all.parse::<u64>()).transpose()?;
    Ok(all.map_or(KILLS, |all| all.div_ceil(PROGRAMS)))
}

/// One snapshot of the books of TPC-B, in which all sums agree whatever is under way.
const BOOKS: &str =
    "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)
    and (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)
    and (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history)";

fn in_postgres(programs: &Programs) -> Outcome {
    let server = postgres::Server::start(programs)?;
    server.run("pgbench", &["-i", "-q", "-s", "1", "postgres"])?;
    let load = [
        "-n", "-c", "4", "-T", "1000000", "--rate", "400", "postgres",
    ];
    let mut load = server.start_client("pgbench", &load)?;
    let backends = server.backends_of_pgbench(1)?;
    let mut answers = || {
        ensure!(load.is_alive()?, "pgbench ended");
        ensure!(server.query(BOOKS)? != "f", "the books do not balance");
        Ok(())
    };
    let mut victim = Victim {
        name: "postgres",
        pid: *backends.first().context("no backend")?,
        functions: &[],
        answers: &mut answers,
    };
    victim.outlives()?;
    drop(load);
    ensure!(server.query(BOOKS)? == "t", "the books do not balance");
    server.stop()
}

fn in_redis(programs: &Programs) -> Outcome {
    let server = redis::Server::start(programs)?;
    let mut load = server.client("redis-benchmark")?;
    load.args(["-q", "-l", "-n", "20000", "-c", "4", "-P", "4"]);
    load.args(["-t", "set,get,incr,sadd,hset,spop"]);
    let mut load = Running::start(load)?;
    let mut asker = server.asker()?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                asker.turn()?;
            }
            asker.turn()
        });
        let mut answers = || {
            ensure!(load.is_alive()?, "redis-benchmark ended");
            ensure!(!asked.is_finished(), "an answer was wrong");
            Ok(())
        };
        let outlived = Victim {
            name: "redis",
            pid: server.pid(),
            functions: &[],
            answers: &mut answers,
        }
        .outlives();
        over.store(true, Ordering::Relaxed);
        let asked = asked.join().map_err(|_panic| anyhow!("the asker panicked"));
        outlived.and(asked?)
    })?;
    drop(load);
    server.stop()
}

/// Its own server, which answers all the time.
fn in_node() -> Outcome {
    let server = node::Server::start()?;
    let plain = server.ask(50)?;
    let client = server.client();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                ensure!(client.ask(50)? == plain, "an answer changed");
            }
            Ok(())
        });
        let mut answers = || {
            ensure!(!asked.is_finished(), "an answer was wrong");
            Ok(())
        };
        let outlived = Victim {
            name: "node",
            pid: server.pid(),
            functions: &[],
            answers: &mut answers,
        }
        .outlives();
        over.store(true, Ordering::Relaxed);
        let asked = asked
            .join()
            .map_err(|_panic| anyhow!("the client panicked"));
        outlived.and(asked?)
    })?;
    ensure!(server.ask(50)? == plain, "an answer changed afterwards");
    server.stop()
}

/// It computes all the time, and says so where a result is wrong.
fn in_python() -> Outcome {
    let worker = Worker::python_of_its_own()?;
    let mut answers = || Ok(());
    let functions: &[&str] = if worker.lib.is_some() {
        &["--lib", "libpython*"]
    } else {
        &[]
    };
    Victim {
        name: "python",
        pid: worker.pid(),
        functions,
        answers: &mut answers,
    }
    .outlives()?;
    worker.end()
}
