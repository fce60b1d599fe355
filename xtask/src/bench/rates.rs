//! Rising call rates: what is lost, also when the collector stands still for half a second.
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::results::Section;
use super::target::Target;
use super::tracer::Tracer;
use crate::cmd;

const FUNCTION: &str = "push_site";
const LASTS: Duration = Duration::from_secs(3);
const STALL: Duration = Duration::from_millis(500);
const OURS: Tracer = Tracer::Scalpel(&["--max-overhead", "off", "--max-loss", "100"]);

/// Producers and calls a second of each.
const RATES: [(usize, u64); 7] = [
    (1, 10_000),
    (1, 100_000),
    (1, 250_000),
    (1, 500_000),
    (2, 250_000),
    (1, 1_000_000),
    (2, 500_000),
];

/// One run a rate: loss is counted, not timed.
pub(super) fn run() -> Result<Section> {
    let mut section = Section {
        title: "Rising call rates",
        about: format!(
            "Each producer is a thread that calls `{FUNCTION}` at the given rate for {} s, with both events of each call \
recorded. One second after the start the collector is stopped (SIGSTOP) for {} ms. What does not reach the collector is \
counted by the kernel side and stands in the report. Rings have their default size.",
            LASTS.as_secs(),
            STALL.as_millis()
        ),
        unit: "% of the events lost",
        ..Section::default()
    };
    for (producers, hz) in RATES {
        let name = format!("{producers} x {hz} calls/s");
        cmd::say(format_args!("rates: {name}"));
        let (made, lost, seen) = one(producers, hz).with_context(|| name.clone())?;
        section.add(&name, 100.0 * lost as f64 / (lost + seen).max(1) as f64);
        let achieved = made as f64 / LASTS.as_secs_f64();
        section.remarks.push(format!(
            "{name} asked: {achieved:.0} calls/s made, {made} calls, {} events due, {seen} seen, {lost} lost.",
            2 * made
        ));
    }
    for row in section
        .rows
        .iter_mut()
        .filter(|row| !row.name.contains("1000000") && !row.name.contains("2 x 500000"))
    {
        row.target = "0";
    }
    Ok(section)
}

/// Calls made, events lost, events seen.
fn one(producers: usize, hz: u64) -> Result<(u64, u64, u64)> {
    let folder = TempDir::with_prefix("scalpel-bench-")?;
    let mut targets = (0..producers)
        .map(|_| Target::start("target.c"))
        .collect::<Result<Vec<_>>>()?;
    let first = targets.first().context("no producer")?;
    let original = first.text(FUNCTION)?;
    let pids: Vec<_> = targets
        .iter()
        .map(|target| target.pid().to_string())
        .collect();
    let attached = OURS.attach_to(&pids.join(","), &first.path, FUNCTION, folder.path())?;
    let collector = attached.pid().context("no collector")?;
    for target in &targets {
        target.wait_for_text(FUNCTION, &original, false)?;
    }
    std::thread::sleep(Duration::from_millis(300));
    let made = std::thread::scope(|scope| -> Result<u64> {
        let running: Vec<_> = targets
            .iter_mut()
            .map(|target| scope.spawn(move || target.rate(FUNCTION, hz, LASTS)))
            .collect();
        std::thread::sleep(Duration::from_secs(1));
        kill_process(collector, Signal::STOP)?;
        std::thread::sleep(STALL);
        kill_process(collector, Signal::CONT)?;
        let mut made = 0;
        for thread in running {
            made += thread
                .join()
                .map_err(|_panic| anyhow::anyhow!("a producer panicked"))??;
        }
        Ok(made)
    })?;
    attached.leave()?;
    let report = report(&folder)?;
    let number = |key: &str| report.get(key).and_then(Value::as_u64).unwrap_or_default();
    Ok((made, number("lost"), number("events")))
}

fn report(folder: &TempDir) -> Result<Value> {
    let program = cmd::target().join("release/scalpel-ebpf");
    let text = cmd::output(
        cmd::command(program)
            .arg("report")
            .arg(folder.path().join("bench.genome"))
            .arg("--json"),
    )?;
    serde_json::from_str(&text).context("reading the report")
}
