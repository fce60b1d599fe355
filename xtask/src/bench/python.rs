//! The Python probe beside profilers and coverage tools, on code that does nothing but call, and on a real program.
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::results::Section;
use crate::probes::environment::{self, Environment};
use crate::probes::{self, python};
use crate::{apt, cmd};

/// Calls of one round of [`CALLS`].
const CALLS_MADE: f64 = 350_000.0;

/// The programs. Each prints how many seconds of a processor it took: wall times are those of a machine that others use too.
const PROGRAMS: [(&str, &str); 3] = [
    ("calls.py", CALLS),
    ("httpie_offline.py", HTTPIE),
    (
        "nothing.py",
        "import time; print('took', time.process_time())",
    ),
];

/// The calls alone, without the start of the interpreter.
const CALLS: &str = "
import time
def leaf(n): return n
def middle(n): return leaf(n) + leaf(n + 1)
def work():
    for n in range(50000): middle(n); middle(n); leaf(n)
begin = time.thread_time()
work()
print('took', time.thread_time() - begin)
";

/// A whole run from the start of the interpreter.
const HTTPIE: &str = "
import sys, time
sys.argv[1:] = ['--offline', 'GET', 'localhost/a', 'b==c']
from httpie.__main__ import main
try:
    main()
finally:
    print('took', time.process_time())
";

/// `HTTPie`'s child that looks for a newer one outlives it: tools that wait for children would wait for that.
const HTTPIE_SETTINGS: &str = r#"{"disable_update_warnings": true}"#;

/// How a program runs.
struct Way {
    name: &'static str,
    /// Arguments of the interpreter before the program's.
    tool: &'static [&'static str],
    variable: Option<(&'static str, &'static str)>,
    ours: Option<&'static str>,
}

const fn peer(name: &'static str, tool: &'static [&'static str]) -> Way {
    Way {
        name,
        tool,
        variable: None,
        ours: None,
    }
}

const WAYS: [Way; 8] = [
    peer("plain", &[]),
    peer("A/A: plain once more", &[]),
    Way {
        ours: Some("call"),
        ..peer("scalpel, each call, drained", &[])
    },
    Way {
        ours: Some("count"),
        ..peer("scalpel, ran or not", &[])
    },
    peer("cProfile", &["-m", "cProfile", "-o", "profile"]),
    peer(
        "viztracer",
        &[
            "-m",
            "viztracer",
            "--quiet",
            "-o",
            "trace.json",
            "--tracer_entries",
            "3000000",
            "--",
        ],
    ),
    Way {
        variable: Some(("COVERAGE_CORE", "ctrace")),
        ..peer("coverage.py, ctrace", &["-m", "coverage", "run"])
    },
    Way {
        variable: Some(("COVERAGE_CORE", "sysmon")),
        ..peer("coverage.py, sysmon", &["-m", "coverage", "run"])
    },
];

/// Each way in turn, `rounds` times.
pub(super) fn run(rounds: usize, yes: bool) -> Result<Vec<Section>> {
    let Some(real) = environment::ensure()? else {
        bail!("no Python of 3.12 or newer with pip is here");
    };
    python::build(yes)?;
    let collector = python::collector()?;
    let folder = tempfile::tempdir()?;
    fill(folder.path())?;
    let mut section = Section {
        title: "Python",
        about: ABOUT.into(),
        unit: "ms",
        ..Section::default()
    };
    let mut lost = 0;
    for round in 1..=rounds {
        cmd::say(format_args!("python: round {round} of {rounds}"));
        for way in &WAYS {
            for (what, (program, _)) in ROWS.into_iter().zip(PROGRAMS) {
                if program == "nothing.py" && !way.tool.is_empty() {
                    continue;
                }
                let out = launch(&mut command(&real, &collector, way, folder.path(), program))?;
                let took = seconds_told(&out).context(way.name)?;
                section.add(&format!("{what}: {}", way.name), took * 1e3);
                if program == "calls.py" {
                    lost = lost.max(lost_calls(&out));
                }
            }
        }
    }
    finish(&mut section);
    section.remarks.push(format!(
        "In lanes of 4 MiB, {lost} of 350,000 calls were lost in the worst round: those cost less than the others."
    ));
    apt::ensure(&["valgrind"], "counting instructions", yes)?;
    let instructions = instructions(|way, program, meter| {
        metered(&real, &collector, way, folder.path(), program, meter)
    })?;
    Ok(vec![section, instructions])
}

/// What is measured, in the order of [`PROGRAMS`].
const ROWS: [&str; 3] = [
    "350,000 calls",
    "HTTPie, offline, whole run",
    "start of the interpreter",
];

const ABOUT: &str = "The same program plain, with the probe (raw TSC, a stand-in for the collector drains the lanes), and \
with each peer, in turn; CPU time as the program itself tells it, in the end. *Calls* is the time inside the program, the \
other rows are everything from the start of the interpreter on. What a tool writes after the program's end is left out.";

fn fill(folder: &Path) -> Result<()> {
    for (name, text) in PROGRAMS {
        std::fs::write(folder.join(name), text)?;
    }
    std::fs::write(folder.join("config.json"), HTTPIE_SETTINGS)?;
    Ok(())
}

const DRAINED: &str = "scalpel, each call, drained";
const EACH_CALL: &str = "350,000 calls: scalpel, each call, drained";
const HTTPIE_EACH_CALL: &str = "HTTPie, offline, whole run: scalpel, each call, drained";

/// Ratios against plain, and what one event costs.
fn finish(section: &mut Section) {
    bases(section);
    for row in &mut section.rows {
        if row.name == EACH_CALL {
            row.target = "<= 3";
        } else if row.name == HTTPIE_EACH_CALL {
            row.target = "< 5 ms more";
        }
    }
    let median = |name: &str| {
        let row = section.rows.iter().find(|row| row.name == name)?;
        row.series.spread().map(|spread| spread.median)
    };
    if let (Some(ours), Some(plain)) = (median(EACH_CALL), median("350,000 calls: plain")) {
        let event = (ours - plain) * 1e6 / (2.0 * CALLS_MADE);
        section.remarks.push(format!(
            "One event costs {event:.0} ns: the difference of the medians, by 700,000 events."
        ));
    }
    if let (Some(ours), Some(plain)) = (
        median(HTTPIE_EACH_CALL),
        median("HTTPie, offline, whole run: plain"),
    ) {
        section.remarks.push(format!(
            "HTTPie takes {:.0} ms more, by the medians; what A/A shows is the error of that. Where the time of an event and of a \
start goes, and why less is not to be had, is told in [the probe's page](../probes/python/README.md#what-it-costs).",
            ours - plain
        ));
    }
}

fn bases(section: &mut Section) {
    for what in ROWS {
        let plain = format!("{what}: plain");
        for row in &mut section.rows {
            if row.name.starts_with(what) && row.name != plain {
                row.base = Some(plain.clone());
            }
        }
    }
}

/// Counts instructions, and prints how many there were behind `I refs:`, with spaces.
const METER: [&str; 4] = [
    "valgrind",
    "--tool=cachegrind",
    "--cache-sim=no",
    "--cachegrind-out-file=/dev/null",
];

const INSTRUCTIONS: &str = "The same programs on valgrind's processor (cachegrind), which others cannot disturb: whole \
runs, from the start of the interpreter on. `PYTHONHASHSEED` is 0.";

fn instructions(measure: impl Fn(&Way, &str, &[&str]) -> Result<f64>) -> Result<Section> {
    let mut section = Section {
        title: "Python: instructions",
        about: INSTRUCTIONS.into(),
        unit: "million instructions",
        ..Section::default()
    };
    for way in WAYS
        .iter()
        .filter(|way| way.ours.is_some() || way.tool.is_empty())
    {
        for (what, (program, _)) in ROWS.into_iter().zip(PROGRAMS) {
            cmd::say(format_args!("python: instructions of {what}, {}", way.name));
            section.add(
                &format!("{what}: {}", way.name),
                measure(way, program, &METER)? / 1e6,
            );
        }
    }
    let only = |name: &str| {
        let row = section.rows.iter().find(|row| row.name == name)?;
        row.series.0.first().copied()
    };
    let difference =
        |what: &str| Some(only(&format!("{what}: {DRAINED}"))? - only(&format!("{what}: plain"))?);
    let [calls, _, start] = ROWS;
    if let (Some(calls), Some(start)) = (difference(calls), difference(start)) {
        let event = (calls - start) * 1e6 / (2.0 * CALLS_MADE);
        section.remarks.push(format!(
            "One event is {event:.0} instructions, in the probe and in CPython on the way to it: the difference of *calls*, less that of *start*, by 700,000 events."
        ));
    }
    bases(&mut section);
    Ok(section)
}

/// Instructions of one run under `meter`.
fn metered(
    real: &Environment,
    collector: &Path,
    way: &Way,
    folder: &Path,
    program: &str,
    meter: &[&str],
) -> Result<f64> {
    let plain = command(real, collector, way, folder, program);
    let words: Vec<_> = std::iter::once(plain.get_program())
        .chain(plain.get_args())
        .collect();
    let at = words
        .iter()
        .position(|word| *word == real.python.as_os_str())
        .context("no interpreter in the command")?;
    let (before, after) = words.split_at(at);
    let line: Vec<_> = before
        .iter()
        .copied()
        .chain(meter.iter().map(std::ffi::OsStr::new))
        .chain(after.iter().copied())
        .collect();
    let (program, arguments) = line.split_first().context("an empty command")?;
    let mut metered = Command::new(program);
    metered
        .args(arguments)
        .envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("PYTHONHASHSEED", "0")
        .current_dir(folder)
        .stdin(Stdio::null());
    let output = metered.output().with_context(|| format!("{metered:?}"))?;
    let err = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{metered:?}: {err}");
    }
    counted(&err).with_context(|| format!("no count of instructions in: {err}"))
}

/// `==12== I   refs:      1,234`, of which there may be more: the largest, which is the program's own.
fn counted(err: &str) -> Option<f64> {
    let counts = err.lines().filter_map(|line| {
        let (before, digits) = line.split_once(" refs:")?;
        before.trim_end().strip_suffix(" I")?;
        digits.trim().replace(',', "").parse::<f64>().ok()
    });
    counts.reduce(f64::max)
}

/// What runs a program one way.
fn command(
    real: &Environment,
    collector: &Path,
    way: &Way,
    folder: &Path,
    program: &str,
) -> Command {
    let mut command = match way.ours {
        Some(mode) => under_collector(collector, mode),
        None => Command::new(&real.python),
    };
    if way.ours.is_some() {
        command
            .arg(&real.python)
            .env("PYTHONPATH", probes::home().join("python/inject"));
    }
    command.args(way.tool).arg(program).current_dir(folder);
    command
        .envs(way.variable)
        .env("HTTPIE_CONFIG_DIR", folder)
        .stdin(Stdio::null());
    command
}

/// What the program printed.
fn launch(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn under_collector(collector: &Path, mode: &str) -> Command {
    let mut command = Command::new(collector);
    command.args([
        "--quiet", "--tsc", "--slots", "65536", "--lanes", "8", "--mode", mode, "--",
    ]);
    command
}

/// Calls that found no room, by what the stand-in tells of each function at its end.
fn lost_calls(out: &str) -> u64 {
    let told = out
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let functions = told.filter_map(|told| told.get("functions")?.as_array().cloned());
    functions
        .flatten()
        .filter_map(|function| function.get("lost")?.as_u64())
        .sum()
}

fn seconds_told(out: &str) -> Result<f64> {
    let told = out.lines().find_map(|line| line.strip_prefix("took "));
    Ok(told.with_context(|| out.to_owned())?.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_count_of_instructions_is_the_programs() {
        let err = "==7== \n==7== I   refs:        1,234,567\n==8== I refs: 12\n==7== D   refs: 9,999,999\n";
        assert_eq!(counted(err), Some(1_234_567.0));
        assert_eq!(counted("==7== nothing"), None);
    }
}
