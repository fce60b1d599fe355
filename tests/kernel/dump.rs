//! `dump`: stacks of threads whose place is known, and threads that must not notice.

use std::process::Command;

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::{STACKS, STACKS_FRAME_POINTER};
use scalpel_tests::child::Running;
use scalpel_tests::fixture::{Copy, Fixture};
use scalpel_tests::scalpel;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;
use serde::Deserialize;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "dump":
        each_thread_stands_where_it_is_known_to_stand,
        with_frame_pointers_it_is_the_same,
        no_system_call_ends_early_in_thirty_dumps,
        a_program_whose_segments_share_a_page_is_walked_to_its_start,
        one_thread_can_be_asked_for,
        equal_stacks_are_merged_on_request,
        a_thread_or_process_that_is_not_there_is_refused,
    );
}

#[derive(Debug, Deserialize)]
struct Dump {
    schema: String,
    pid: u32,
    threads: Vec<Thread>,
}

#[derive(Debug, Deserialize)]
struct Thread {
    tid: u32,
    name: String,
    syscall: Option<String>,
    complete: bool,
    frames: Vec<Frame>,
}

#[derive(Debug, Deserialize)]
struct Frame {
    function: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

struct Standing {
    running: Running,
    _copy: Copy,
}

impl Standing {
    fn start(fixture: &Fixture) -> anyhow::Result<Self> {
        let copy = fixture.copy()?;
        let mut running = Running::start(Command::new(copy.path()))?;
        running.stdout_line(|line| line == "ready\n")?;
        Ok(Self {
            running,
            _copy: copy,
        })
    }

    fn dump(&self) -> anyhow::Result<Dump> {
        let pid = self.running.pid().to_string();
        let ended = scalpel::run(&["dump", "--pid", &pid, "--json"])?.expect_code(0)?;
        Ok(serde_json::from_str(&ended.stdout)?)
    }

    /// Ends it; how many system calls of its sleepers ended early.
    fn interrupted(self) -> anyhow::Result<String> {
        Ok(self.running.wait()?.expect_code(0)?.stdout)
    }
}

impl Dump {
    fn thread(&self, name: &str) -> anyhow::Result<&Thread> {
        let found = self.threads.iter().find(|thread| thread.name == name);
        found.with_context(|| format!("no thread {name}: {:#?}", self.threads))
    }
}

impl Thread {
    /// The program's own functions among its frames, innermost first.
    fn own(&self) -> Vec<&str> {
        const OWN: [&str; 12] = [
            "wait_inner",
            "wait_middle",
            "wait_outer",
            "nap_inner",
            "nap_outer",
            "spin_inner",
            "spin_outer",
            "deep",
            "deep_outer",
            "turn_inner",
            "turn_outer",
            "twin",
        ];
        let named = self
            .frames
            .iter()
            .filter_map(|frame| frame.function.as_deref());
        named.filter(|name| OWN.contains(name)).collect()
    }
}

fn stands(fixture: &Fixture) -> Outcome {
    let standing = Standing::start(fixture)?;
    let dump = standing.dump()?;
    ensure!(dump.schema == "scalpel.dump/1" && dump.pid == standing.running.pid());
    ensure!(dump.threads.len() == 8, "{:#?}", dump.threads);
    let mut deep = vec!["deep"; 200];
    deep.push("deep_outer");
    let expected: [(&str, Option<&str>, &[&str]); 4] = [
        (
            "waits",
            Some("epoll_wait"),
            &["wait_inner", "wait_middle", "wait_outer"],
        ),
        ("naps", Some("clock_nanosleep"), &["nap_inner", "nap_outer"]),
        ("spins", None, &["spin_inner", "spin_outer"]),
        ("deep", Some("read"), &deep),
    ];
    for (name, syscall, own) in expected {
        let thread = dump.thread(name)?;
        ensure!(thread.complete, "{name} is cut: {thread:#?}");
        ensure!(thread.own() == own, "{name}: {:?}", thread.own());
        ensure!(
            thread.syscall.as_deref() == syscall,
            "{name}: {:?}",
            thread.syscall
        );
    }
    let turns = dump.thread("turns")?;
    ensure!(turns.complete, "{turns:#?}");
    ensure!(
        matches!(*turns.own(), ["turn_inner", "turn_outer"] | ["turn_outer"]),
        "{turns:#?}"
    );
    let spin = dump.thread("spins")?.frames.first().context("no frame")?;
    ensure!(
        spin.file
            .as_ref()
            .is_some_and(|file| file.ends_with("stacks.c")),
        "{spin:?}"
    );
    ensure!(spin.line.is_some_and(|line| line > 0), "{spin:?}");
    ensure!(standing.interrupted()?.contains("interrupted 0"));
    Ok(())
}

fn each_thread_stands_where_it_is_known_to_stand() -> Outcome {
    stands(&STACKS)
}

fn with_frame_pointers_it_is_the_same() -> Outcome {
    stands(&STACKS_FRAME_POINTER)
}

fn no_system_call_ends_early_in_thirty_dumps() -> Outcome {
    let standing = Standing::start(&STACKS)?;
    for _ in 0..30 {
        let dump = standing.dump()?;
        ensure!(
            dump.threads.iter().all(|thread| thread.complete),
            "{:#?}",
            dump.threads
        );
    }
    let said = standing.interrupted()?;
    ensure!(said.contains("interrupted 0"), "{said}");
    Ok(())
}

/// This very program, which rustc's linker lays out so: the thread of a test that waits for the dump.
fn a_program_whose_segments_share_a_page_is_walked_to_its_start() -> Outcome {
    let pid = std::process::id().to_string();
    let ended = scalpel::run(&["dump", "-p", &pid, "--json"])?.expect_code(0)?;
    let dump: Dump = serde_json::from_str(&ended.stdout)?;
    let calls = |thread: &Thread, part: &str| {
        let named = |frame: &Frame| {
            frame
                .function
                .as_ref()
                .is_some_and(|name| name.contains(part))
        };
        thread.frames.iter().any(named)
    };
    let waits = dump
        .threads
        .iter()
        .find(|thread| calls(thread, "dump::a_program_whose_segments"));
    let waits = waits.with_context(|| format!("nobody waits: {:#?}", dump.threads))?;
    ensure!(calls(waits, "scalpel::run") && waits.complete, "{waits:#?}");
    let last = waits
        .frames
        .last()
        .and_then(|frame| frame.function.as_deref());
    ensure!(waits.frames.len() > 10, "ends in {last:?}");
    Ok(())
}

fn one_thread_can_be_asked_for() -> Outcome {
    let standing = Standing::start(&STACKS)?;
    let tid = standing.dump()?.thread("deep")?.tid.to_string();
    let pid = standing.running.pid().to_string();
    let ended = scalpel::run(&["dump", "-p", &pid, "--tid", &tid])?.expect_code(0)?;
    ensure!(ended.stdout.contains("1 thread\n"), "{}", ended.stdout);
    ensure!(ended.stdout.contains("deep_outer") && !ended.stdout.contains("wait_outer"));
    Ok(())
}

fn equal_stacks_are_merged_on_request() -> Outcome {
    let standing = Standing::start(&STACKS)?;
    let pid = standing.running.pid().to_string();
    let plain = scalpel::run(&["dump", "-p", &pid])?.expect_code(0)?.stdout;
    ensure!(plain.matches("  #1   twin").count() == 2, "{plain}");
    ensure!(
        plain.contains("deep (stacks)") && plain.contains("198 times more"),
        "{plain}"
    );
    let merged = scalpel::run(&["dump", "-p", &pid, "--merge"])?
        .expect_code(0)?
        .stdout;
    let twins = merged.lines().find(|line| line.starts_with("2 threads ("));
    let twins = twins.with_context(|| format!("no stack is shared: {merged}"))?;
    ensure!(twins.contains("sleeping in pause"), "{twins}");
    ensure!(merged.matches("  #1   twin").count() == 1, "{merged}");
    Ok(())
}

fn a_thread_or_process_that_is_not_there_is_refused() -> Outcome {
    let standing = Standing::start(&STACKS)?;
    let pid = standing.running.pid().to_string();
    let ended = scalpel::run(&["dump", "-p", &pid, "--tid", "1"])?;
    ensure!(ended.stderr.contains("has no thread 1"), "{}", ended.stderr);
    ended.expect_code(4)?;
    scalpel::run(&["dump", "-p", "4194304"])?.expect_code(4)?;
    Ok(())
}
