//! Attach and detach of very many functions, and what the kernel does when the collector is killed.
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result};
use scalpel_tests::real::node;

use super::results::Section;
use crate::cmd;

/// More than any file has.
const ALL: &str = "1000000";

/// `rounds` times each, on a running Node.js: a private copy, which nobody else has mapped.
pub(super) fn run(rounds: usize) -> Result<Section> {
    let server = node::Server::start()?;
    let mut section = Section {
        title: "Attach and detach",
        about: "Functions of the Node.js binary, entries only, by `attach_cost`: what the process waits for, without \
reading the file and choosing sites. *Killed* is the time from the end of an attached collector by SIGKILL until the \
kernel has taken everything off and let it go."
            .into(),
        unit: "s",
        ..Section::default()
    };
    for round in 1..=rounds {
        cmd::say(format_args!("attach: round {round} of {rounds}"));
        for (count, what, quick) in [
            ("10000", "10,000 functions", "< 0.5"),
            (ALL, "all functions", "< 2"),
        ] {
            one(server.program(), count, what, quick, &mut section)?;
        }
    }
    server.ask(10)?;
    server.stop()?;
    Ok(section)
}

fn one(
    program: &Path,
    count: &str,
    what: &str,
    quick: &'static str,
    section: &mut Section,
) -> Result<()> {
    let example = cmd::target().join("release/examples/attach_cost");
    let printed = cmd::output(cmd::command(&example).arg(program).arg(count))?;
    let line = printed.lines().next().unwrap_or_default();
    let seconds =
        |word: &str| seconds_after(line, word).with_context(|| format!("no `{word}` in: {line}"));
    section.add(&format!("attach {what}"), seconds("attach")?);
    section.add(&format!("detach {what}"), seconds("detach")?);
    let functions = line.split_whitespace().nth(1).unwrap_or("?");
    let remark = format!("`{what}` were {functions}.");
    if !section.remarks.contains(&remark) {
        section.remarks.push(remark);
    }
    let mut child = cmd::command(&example)
        .arg(program)
        .args([count, "16", "kill"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
    let start = Instant::now();
    child.wait()?;
    section.add(
        &format!("killed with {what}"),
        start.elapsed().as_secs_f64(),
    );
    for row in section
        .rows
        .iter_mut()
        .filter(|row| row.name.ends_with(what))
    {
        row.target = if row.name.starts_with("killed") {
            "< 2"
        } else {
            quick
        };
    }
    Ok(())
}

/// `... attach 0.123s detach 45.6ms` -> the seconds after a word.
pub(super) fn seconds_after(line: &str, word: &str) -> Option<f64> {
    let mut words = line.split_whitespace();
    words.find(|found| *found == word)?;
    seconds(words.next()?)
}

fn seconds(text: &str) -> Option<f64> {
    let units = [("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9), ("s", 1.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(unit, size)| Some((text.strip_suffix(unit)?, size)))?;
    Some(number.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::seconds_after;

    #[test]
    fn durations_are_read_in_all_their_units() {
        let line = "functions 5 plan 2.5s load 4.000ms attach 250.000µs detach 1.500s";
        for (word, expect) in [
            ("plan", 2.5),
            ("load", 0.004),
            ("attach", 0.00025),
            ("detach", 1.5),
        ] {
            assert!(
                (seconds_after(line, word).unwrap() - expect).abs() < 1e-12,
                "{word}"
            );
        }
        assert_eq!(seconds_after(line, "killed"), None);
    }
}
