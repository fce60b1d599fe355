//! Real programs at work, without a recording and with one of each mode: what it costs them, and what the recording knows.
mod commands;
mod known;
mod life;
mod servers;

use anyhow::{Context, Result};
use scalpel_tests::real::programs::Programs;
use scalpel_tests::scalpel::Record;

use super::results::Section;
use crate::cmd;
use known::{Known, Table};

/// How a program is watched.
struct Way {
    name: &'static str,
    options: Option<&'static [&'static str]>,
}

const WAYS: [Way; 5] = [
    Way {
        name: "plain",
        options: None,
    },
    Way {
        name: "A/A: plain once more",
        options: None,
    },
    Way {
        name: "sample",
        options: Some(&["--mode", "sample", "--probe-mode", "off"]),
    },
    Way {
        name: "count",
        options: Some(&["--mode", "count", "--probe-mode", "count"]),
    },
    Way {
        name: "auto",
        options: Some(&["--mode", "auto"]),
    },
];

/// What came of one measurement: its value, and what the recording knows.
type Measured = Result<(f64, Option<Known>)>;

/// Servers in each way, in turn, `rounds` times.
pub(super) fn servers(rounds: usize) -> Section {
    let mut bench = Bench::new(rounds, "Real programs: servers", "us an operation", SERVERS);
    servers::run(&Programs::default(), &mut bench);
    bench.section()
}

/// Commands in each way, in turn, `rounds` times.
pub(super) fn commands(rounds: usize, yes: bool) -> Result<Section> {
    let mut bench = Bench::new(rounds, "Real programs: commands", "ms a run", COMMANDS);
    commands::run(&Programs::default(), &mut bench, yes)?;
    Ok(bench.section())
}

const BOTH: &str = "The same work, plain and recorded in each mode, in turn. *Auto* is the default: no `-f`, the functions of \
the main program within `--max-overhead 5`, and 99 samples a second; *count* counts them too, with `--probe-mode count` for \
language runtimes; *sample* has stacks alone, with `--probe-mode off`.";

const SERVERS: &str = "us of wall time an operation, after 5 s of the same work (a recording that begins reads its files and \
drops what is called too often); each answer is checked, those of PostgreSQL by the sums of its books.";

const COMMANDS: &str = "ms from a program's exec to its end, as the kernel tells it; the output has to be the same with a \
recording as without. What the recording does before and behind it is not in it. In *count* and *auto* all \
functions are probed at the exec, and those that are called too often are dropped one group after the other in a program's first \
second: until then a native program is slowed many times, and `--max-overhead` is not held over a run that is as short as these.";

const NOISE: &str = "The second plain run of each round shows how far the same thing measures apart from itself. Below, what \
the recordings of the last round knew. *Stripped* are functions of files whose symbols were taken out, as Debian does.";

/// What is measured, so far.
struct Bench {
    rounds: usize,
    section: Section,
    table: Table,
}

impl Bench {
    fn new(rounds: usize, title: &'static str, unit: &'static str, about: &str) -> Self {
        Self {
            rounds,
            section: Section {
                title,
                about: format!("{BOTH} {about} {NOISE}"),
                unit,
                ..Section::default()
            },
            table: Table::default(),
        }
    }

    fn section(mut self) -> Section {
        self.section.remarks.push(self.table.page());
        self.section
    }

    /// One program in each way, in turn.
    fn each(&mut self, what: &'static str, mut work: impl FnMut(&Way) -> Measured) -> Result<()> {
        for round in 1..=self.rounds {
            cmd::say(format_args!(
                "real: {what}, round {round} of {}",
                self.rounds
            ));
            for way in &WAYS {
                let name = format!("{what}: {}", way.name);
                let (value, known) = work(way).with_context(|| name.clone())?;
                self.section.add(&name, value);
                if let Some(known) = known {
                    self.table.add(name, known);
                }
            }
        }
        let plain = format!("{what}: plain");
        let rows = self.section.rows.iter_mut();
        for row in rows.filter(|row| row.name.starts_with(what) && row.name != plain) {
            row.base = Some(plain.clone());
        }
        Ok(())
    }

    /// What could not be measured here, and why.
    fn skip(&mut self, what: &str, why: &str) {
        self.section
            .remarks
            .push(format!("{what}: not measured: {why}"));
    }
}

/// A recording into `folder`, with a summary beside it.
fn record(folder: &std::path::Path, options: &[&str]) -> Record {
    Record::into(folder).args(options.iter().copied()).args([
        "--summary".into(),
        known::summary_in(folder).into_os_string(),
    ])
}
