//! Naming addresses of a binary with very many functions: scalpel, blazesym itself, and perf's report.
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use scalpel_tests::real::node;

use super::attach::seconds_after;
use super::results::Section;
use crate::{apt, cmd};

/// Addresses that are asked for cold, and again as many warm: more than a recording of minutes has.
const ADDRESSES: &str = "2000";

/// Each in turn, `rounds` times.
pub(super) fn run(rounds: usize) -> Result<Section> {
    let server = node::Server::start()?;
    let samples = apt::exists("perf")
        .then(|| samples(&server))
        .transpose()
        .context("perf record")?;
    let mut section = Section {
        title: "Naming addresses",
        about: format!(
            "{ADDRESSES} addresses of the Node.js binary, in functions spread evenly over it, by `symbol_cost`. *Cold*: a \
symbolizer that knows nothing yet; the file is in the kernel's cache. *Warm*: as many other addresses of the same one. blazesym \
is used as its own example `addr2ln` uses it, with debug information asked for, as scalpel does. `perf report` reads a recording of the \
same server (999 samples a second for 10 s, with call graphs) and shows it as text: it keeps nothing for a second time, so that it has no \
warm row. scalpel reads all functions of a file at the first question, by the reader that chose the probes, so that sampled and \
probed functions have the same names; blazesym reads the symbol table alone."
        ),
        unit: "s",
        ..Section::default()
    };
    for round in 1..=rounds {
        cmd::say(format_args!("symbols: round {round} of {rounds}"));
        for (whose, name) in [
            ("scalpel", "scalpel"),
            ("blazesym", "blazesym's own symbolizer"),
        ] {
            let named = by(whose, server.program(), &mut section, name)?;
            let remark = format!("{name} named {named}.");
            if !section.remarks.contains(&remark) {
                section.remarks.push(remark);
            }
        }
        if let Some(samples) = &samples {
            section.add("perf report: cold", report(samples)?);
        }
    }
    for (name, target) in [("scalpel: cold", "< 1.5"), ("scalpel: warm", "< 0.1")] {
        if let Some(row) = section.rows.iter_mut().find(|row| row.name == name) {
            row.target = target;
        }
    }
    server.ask(10)?;
    server.stop()?;
    Ok(section)
}

/// Runs the example; tells how many got a name.
fn by(whose: &str, program: &Path, section: &mut Section, name: &str) -> Result<String> {
    let example = cmd::target().join("release/examples/symbol_cost");
    let printed = cmd::output(cmd::command(example).arg(whose).arg(program).arg(ADDRESSES))?;
    let line = printed.lines().next().unwrap_or_default();
    for word in ["cold", "warm"] {
        let took = seconds_after(line, word).with_context(|| format!("no `{word}` in: {line}"))?;
        section.add(&format!("{name}: {word}"), took);
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let named = words.windows(2).filter_map(|pair| match pair {
        ["named", count] => Some(*count),
        _ => None,
    });
    Ok(named.collect::<Vec<_>>().join(" cold and ") + " warm")
}

/// A recording of the server at work.
fn samples(server: &node::Server) -> Result<std::path::PathBuf> {
    const LASTS: Duration = Duration::from_secs(10);
    let file = server.folder().join("perf.data");
    let mut perf = cmd::command("perf")
        .args(["record", "-q", "-F", "999", "-g", "-o"])
        .arg(&file)
        .args(["-p", &server.pid().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let begun = Instant::now();
    while begun.elapsed() < LASTS {
        server.ask(100)?;
    }
    kill_process(
        Pid::from_raw(i32::try_from(perf.id())?).context("no pid")?,
        Signal::INT,
    )?;
    perf.wait()?;
    ensure!(file.exists(), "perf wrote nothing");
    Ok(file)
}

fn report(samples: &Path) -> Result<f64> {
    let begun = Instant::now();
    let status = cmd::command("perf")
        .args(["report", "--stdio", "-q", "-i"])
        .arg(samples)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    ensure!(status.success(), "perf report: {status}");
    Ok(begun.elapsed().as_secs_f64())
}
