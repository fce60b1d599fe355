//! Lanes: what an event costs its thread, what reading it costs the collector, and what is lost when a lane is small.
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::results::Section;
use crate::cmd;

/// Calls of one run at full speed, each of two events.
const CALLS: u64 = 20_000_000;

/// Memory for a recording's segments, in MiB; the first thread's lane is a sixteenth of it.
const MEMORIES: [u64; 5] = [1, 4, 16, 64, 256];

/// What [`event_cost`](../../../probes/core/examples/event_cost.rs) tells, and as what it is shown.
const TOLD: [(&str, &str); 3] = [
    ("one event ", "one event"),
    ("of that, the clock ", "of that: `rdtsc`"),
    (
        "a call that is not wanted ",
        "a call of a function that is switched off",
    ),
];

/// Cost, reading and loss, in turn.
pub(super) fn run(rounds: usize) -> Result<Vec<Section>> {
    let (event_cost, guest, lanes) = build()?;
    let mut cost = Section {
        title: "Lanes: writing",
        about: COST.into(),
        unit: "ns",
        ..Section::default()
    };
    let mut reading = Section {
        title: "Lanes: reading",
        about: READING.into(),
        unit: "M events/s of the reader's time on a processor",
        ..Section::default()
    };
    let mut loss = Section {
        title: "Lanes: loss by size",
        about: LOSS.into(),
        unit: "% of the events lost",
        ..Section::default()
    };
    for round in 1..=rounds {
        cmd::say(format_args!("lanes: round {round} of {rounds}"));
        write(&mut cost, &cmd::output(&mut cmd::command(&event_cost))?)?;
        for memory in MEMORIES {
            let run = Run::of(&lanes, &guest, memory)?;
            let name = format!("{} KiB a lane (--probe-memory {memory})", memory * 64);
            loss.add(&name, 100.0 * run.lost / run.made);
            reading.add(&name, run.seen / run.reader_ns * 1e3);
        }
    }
    let rest = |row: &mut super::results::Row| {
        if row.name == REST {
            row.target = "<= 10";
        }
    };
    cost.rows.iter_mut().for_each(rest);
    for row in &mut reading.rows {
        row.target = ">= 10";
    }
    loss.remarks.push(format!(
        "In every round, of {} events that were made each was either seen or counted as lost.",
        2 * CALLS
    ));
    Ok(vec![cost, reading, loss])
}

const REST: &str = "of that: all else, that is the id, 64 bytes and the publishing";

const COST: &str = "2 million calls of a function that does nothing, each of two events, into a lane of 16 MiB that \
another thread empties meanwhile; the median of 9 times, by `event_cost` of probes/core.";

const READING: &str = "One thread writes 40 million events as fast as it can (`guest`); the collector's own reader takes \
them over and checks them, by `lanes` of scalpel-user. Its clock runs only while it is on a processor.";

const LOSS: &str = "The same runs. The writer makes far more than a recording of real programs does, and on a machine \
whose processors others use too the reader is away for milliseconds: what a lane cannot hold then is lost, by whole calls.";

fn build() -> Result<(PathBuf, PathBuf, PathBuf)> {
    let build = ["build", "--quiet", "--locked", "--release", "--package"];
    cmd::run(
        cmd::cargo()
            .args(build)
            .args(["scalpel-probe", "--features", "harness"])
            .args(["--example", "event_cost", "--example", "guest"]),
    )?;
    cmd::run(
        cmd::cargo()
            .args(build)
            .args(["scalpel-user", "--example", "lanes"]),
    )?;
    let example = |name: &str| {
        let program = cmd::target().join("release/examples").join(name);
        std::path::absolute(&program).with_context(|| program.display().to_string())
    };
    Ok((example("event_cost")?, example("guest")?, example("lanes")?))
}

fn write(section: &mut Section, printed: &str) -> Result<()> {
    let number = |begins: &str| -> Result<f64> {
        let line = printed.lines().find_map(|line| line.strip_prefix(begins));
        let number = line.and_then(|rest| rest.trim().strip_suffix(" ns"));
        Ok(number.with_context(|| printed.to_owned())?.trim().parse()?)
    };
    let mut told = Vec::new();
    for (begins, name) in TOLD {
        let value = number(begins)?;
        section.add(name, value);
        told.push(value);
    }
    if let [event, clock, ..] = told.as_slice() {
        section.add(REST, event - clock);
    }
    Ok(())
}

/// One run at full speed.
struct Run {
    made: f64,
    seen: f64,
    lost: f64,
    reader_ns: f64,
}

impl Run {
    fn of(lanes: &Path, guest: &Path, memory: u64) -> Result<Self> {
        let printed = cmd::output(
            cmd::command(lanes)
                .arg(guest)
                .arg(CALLS.to_string())
                .arg((memory << 20).to_string()),
        )?;
        let told: Value = serde_json::from_str(&printed).with_context(|| printed.clone())?;
        let number = |key: &str| told.get(key).and_then(Value::as_u64);
        let of = |key: &str| number(key).with_context(|| printed.clone());
        let (made, seen, lost) = (of("made")?, of("seen")?, of("lost")?);
        ensure!(
            seen + lost == made,
            "{seen} events seen and {lost} lost, of {made} made"
        );
        Ok(Self {
            made: made as f64,
            seen: seen as f64,
            lost: lost as f64,
            reader_ns: of("reader_ns")? as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_clock_is_the_rest_of_an_event() {
        let printed = "events read               36000000\none event                   28.5 ns\n\
                       of that, the clock          19.0 ns\na call that is not wanted    1.5 ns\n";
        let mut section = Section::default();
        write(&mut section, printed).unwrap();
        let values: Vec<_> = section
            .rows
            .iter()
            .flat_map(|row| row.series.0.clone())
            .collect();
        assert_eq!(values, [28.5, 19.0, 1.5, 9.5]);
        assert!(write(&mut section, "no figures").is_err());
    }
}
