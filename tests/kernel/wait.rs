//! Time off the processor, by the stacks of those who waited: against sleeps, which take at least as long as was asked.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::{WAITS, WAITS_FRAME_POINTER};
use scalpel_tests::child::PATIENCE;
use scalpel_tests::fixture::Fixture;
use scalpel_tests::scalpel::{self, Record, Recorded};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;
use scalpel_tests::truth::Truth;
use serde_json::Value;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "wait":
        time_asleep_stands_under_the_frames_that_slept,
        frames_are_found_behind_the_trampolines_of_return_probes,
        a_wait_within_a_traced_call_stands_under_it,
        a_thread_that_loses_its_processor_does_not_wait_by_itself,
        a_wait_that_has_not_ended_is_told_at_the_end,
        waits_too_short_to_be_told_are_summed_up_by_thread,
        other_programs_get_it_as_a_value_of_its_own,
        what_makes_no_sense_is_refused,
    );
}

/// Ten times 20 ms.
const SLEPT_NS: u64 = 200_000_000;

fn record(fixture: &Fixture, args: &[&str], scenario: &[&str]) -> anyhow::Result<(Seen, Truth)> {
    let copy = fixture.copy()?;
    let recorded = Record::into(copy.directory())
        .args(args)
        .args(["--off-cpu"])
        .command(copy.path(), scenario)?
        .expect_code(0)?;
    let truth = Truth::of(&recorded.ended.stdout)?;
    Ok((Seen::of(&recorded)?, truth))
}

/// A report as JSON, and the rows of its threads.
struct Seen {
    report: Value,
    threads: Vec<(String, u64, u64)>,
    text: String,
}

impl Seen {
    fn of(recorded: &Recorded) -> anyhow::Result<Self> {
        let file = recorded.genome.to_string_lossy().into_owned();
        let report = scalpel::run(&["report", &file, "--json"])?.expect_code(0)?;
        let csv = scalpel::run(&["report", &file, "--by", "thread", "--csv"])?.expect_code(0)?;
        let tree = ["report", &file, "--tree", "callees", "--sort", "off-cpu"];
        Ok(Self {
            report: serde_json::from_str(&report.stdout)?,
            threads: threads(&csv.stdout)?,
            text: scalpel::run(&tree)?.expect_code(0)?.stdout,
        })
    }

    fn number(&self, name: &str, what: &str) -> anyhow::Result<u64> {
        let functions = self.report.get("functions").and_then(Value::as_array);
        let is = |f: &&Value| f.get("name").is_some_and(|own| own == name);
        let function = functions.and_then(|all| all.iter().find(is));
        let number = function.and_then(|f| f.get(what)).and_then(Value::as_u64);
        number.with_context(|| format!("no {what} of {name}: {}", self.text))
    }

    /// Off the processor, with callees.
    fn off(&self, name: &str) -> anyhow::Result<u64> {
        self.number(name, "total_off_cpu_ns")
    }

    /// Waits and time off the processor of the thread that is not the first.
    fn napper(&self) -> anyhow::Result<(u64, u64)> {
        let is_first = |name: &str| {
            let ids = name.rsplit(' ').next().and_then(|ids| ids.split_once('/'));
            // What is counted in the kernel is of no thread: 0.
            ids.is_some_and(|(pid, tid)| pid == tid || tid == "0")
        };
        let mut others = self.threads.iter().filter(|(name, ..)| !is_first(name));
        let napper = others.next().filter(|_| others.next().is_none());
        let (_, waits, off) = napper.with_context(|| format!("{:?}", self.threads))?;
        Ok((*waits, *off))
    }

    fn has_edge(&self, caller: &str, callee: &str) -> bool {
        let keys = |name: &str| -> Vec<&Value> {
            let functions = self.report.get("functions").and_then(Value::as_array);
            let all = functions.into_iter().flatten();
            all.filter(|f| f.get("name").is_some_and(|own| own == name))
                .filter_map(|f| f.get("key"))
                .collect()
        };
        let (callers, callees) = (keys(caller), keys(callee));
        let edges = self.report.get("edges").and_then(Value::as_array);
        edges.into_iter().flatten().any(|edge| {
            edge.get("caller").is_some_and(|key| callers.contains(&key))
                && edge.get("callee").is_some_and(|key| callees.contains(&key))
        })
    }
}

/// Name, waits and time off the processor of each thread.
fn threads(csv: &str) -> anyhow::Result<Vec<(String, u64, u64)>> {
    let mut lines = csv.lines();
    let heads: Vec<&str> = lines.next().context("no heading")?.split(',').collect();
    let column = |name: &str| {
        let at = heads.iter().position(|head| *head == name);
        at.with_context(|| format!("no column {name} in {heads:?}"))
    };
    let (waits, off) = (column("waits")?, column("self_off_cpu_ns")?);
    let mut threads = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| -> anyhow::Result<u64> {
            let cell = cells.get(at).with_context(|| line.to_owned())?;
            cell.parse().with_context(|| line.to_owned())
        };
        let name = cells.first().copied().unwrap_or_default().to_owned();
        threads.push((name, number(waits)?, number(off)?));
    }
    Ok(threads)
}

fn sleeps_stand_under_their_frames(seen: &Seen, truth: &Truth) -> Outcome {
    let most = truth.measured("wall_ns:nap_outer")?;
    for name in ["nap_outer", "nap_middle", "nap_inner"] {
        let off = seen.off(name)?;
        // What it measured is within nap_outer, which can lose its processor before and after.
        ensure!(off >= SLEPT_NS, "{name}: {off} ns\n{}", seen.text);
        if name != "nap_outer" {
            ensure!(off <= most, "{name}: {off} of {most} ns\n{}", seen.text);
        }
    }
    for (caller, callee) in [("nap_outer", "nap_middle"), ("nap_middle", "nap_inner")] {
        ensure!(
            seen.has_edge(caller, callee),
            "{caller} -> {callee}\n{}",
            seen.text
        );
    }
    let (waits, off) = seen.napper()?;
    ensure!(
        waits >= 10 && off >= seen.off("nap_outer")?,
        "{:?}",
        seen.threads
    );
    Ok(())
}

fn time_asleep_stands_under_the_frames_that_slept() -> Outcome {
    for fixture in [&WAITS, &WAITS_FRAME_POINTER] {
        for args in [&["--mode", "sample"][..], &["--mode", "sample", "-F", "0"]] {
            let (seen, truth) = record(fixture, args, &[])?;
            sleeps_stand_under_their_frames(&seen, &truth)?;
        }
    }
    Ok(())
}

fn frames_are_found_behind_the_trampolines_of_return_probes() -> Outcome {
    let args = ["--mode", "count", "--max-overhead", "off", "-f", "nap_*"];
    let (seen, truth) = record(&WAITS, &args, &[])?;
    sleeps_stand_under_their_frames(&seen, &truth)?;
    ensure!(seen.number("nap_inner", "calls")? == truth.calls("nap_inner")?);
    Ok(())
}

fn a_wait_within_a_traced_call_stands_under_it() -> Outcome {
    for also in [&[][..], &["--complete"]] {
        let mut args = vec!["--mode", "trace", "-f", "nap_*"];
        args.extend(also);
        let (seen, truth) = record(&WAITS, &args, &[])?;
        sleeps_stand_under_their_frames(&seen, &truth)?;
        let (off, wall) = (
            seen.off("nap_inner")?,
            seen.number("nap_inner", "total_wall_ns")?,
        );
        ensure!(off <= wall, "{off} of {wall} ns\n{}", seen.text);
    }
    Ok(())
}

fn a_thread_that_loses_its_processor_does_not_wait_by_itself() -> Outcome {
    let args = ["--mode", "sample", "--off-cpu-min", "0"];
    let (seen, _) = record(&WAITS, &args, &["rivals"])?;
    let functions = seen.report.get("functions").and_then(Value::as_array);
    let preempted = functions.into_iter().flatten();
    let preempted: u64 = preempted
        .filter_map(|f| f.get("preempted_ns").and_then(Value::as_u64))
        .sum();
    ensure!(
        preempted > 0 && seen.off("rival_inner")? > 0,
        "{}",
        seen.text
    );
    let (seen, _) = record(&WAITS, &args, &[])?;
    let of_sleep = ["preempted_ns", "io_wait_ns"];
    let other: u64 = of_sleep
        .iter()
        .map(|what| seen.number("nap_inner", what))
        .sum::<anyhow::Result<u64>>()?;
    ensure!(seen.off("nap_inner")? >= SLEPT_NS + other, "{}", seen.text);
    Ok(())
}

fn is_asleep(pid: u32) -> bool {
    let read =
        |file: &str| std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join(file));
    // 230 = clock_nanosleep.
    read("syscall").is_ok_and(|text| text.starts_with("230 "))
}

fn a_wait_that_has_not_ended_is_told_at_the_end() -> Outcome {
    let copy = WAITS.copy()?;
    let mut target = Target::start(copy.path(), &["endless"])?;
    let args = ["--mode", "sample", "--off-cpu", "--off-cpu-min", "1h"];
    let recording = Record::into(copy.directory())
        .args(args)
        .attach(target.pid())?;
    target.running().say("go\n")?;
    let deadline = Instant::now() + PATIENCE;
    while !is_asleep(target.pid()) {
        ensure!(Instant::now() < deadline, "it does not fall asleep");
        std::thread::sleep(Duration::from_millis(5));
    }
    let seen = Seen::of(&recording.stop()?.expect_code(0)?)?;
    ensure!(seen.off("nap_inner")? > 0, "{}", seen.text);
    ensure!(
        seen.off("main")? >= seen.off("nap_middle")?,
        "{}",
        seen.text
    );
    Ok(())
}

fn waits_too_short_to_be_told_are_summed_up_by_thread() -> Outcome {
    let args = ["--mode", "sample", "--off-cpu-min", "1h"];
    let (seen, _) = record(&WAITS, &args, &[])?;
    let (waits, off) = seen.napper()?;
    ensure!(waits >= 10 && off >= SLEPT_NS, "{:?}", seen.threads);
    ensure!(seen.off("nap_inner").unwrap_or(0) == 0, "{}", seen.text);
    Ok(())
}

fn other_programs_get_it_as_a_value_of_its_own() -> Outcome {
    let copy = WAITS.copy()?;
    let recorded = Record::into(copy.directory())
        .args(["--mode", "sample", "--off-cpu"])
        .command(copy.path(), &[])?
        .expect_code(0)?;
    let file = recorded.genome.to_string_lossy().into_owned();
    let folded = ["export", &file, "--format", "folded", "--weight", "off-cpu"];
    let folded = scalpel::run(&folded)?.expect_code(0)?.stdout;
    let under = |line: &str| {
        let (stack, ns) = line.rsplit_once(' ')?;
        let is = stack.contains("nap_outer;nap_middle;nap_inner");
        is.then(|| ns.parse::<u64>().ok()).flatten()
    };
    let slept: u64 = folded.lines().filter_map(under).sum();
    ensure!(slept >= SLEPT_NS, "{slept} ns: {folded}");
    Ok(())
}

fn what_makes_no_sense_is_refused() -> Outcome {
    for (args, says) in [
        (&["--off-cpu-min", "5ms"][..], "--off-cpu"),
        (&["--off-cpu", "--no-kernel"], "--no-kernel"),
        (&["-m", "sample", "-F", "0"], "--off-cpu"),
    ] {
        let mut line = vec!["record"];
        line.extend(args);
        line.extend(["--", "true"]);
        let ended = scalpel::run(&line)?.expect_code(2)?;
        ensure!(ended.stderr.contains(says), "{args:?}: {}", ended.stderr);
    }
    Ok(())
}
