//! From a recorded stream to a tree, on one core: decode, order, stacks, contexts.
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use scalpel_tests::real::postgres::Server;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::scalpel::{self, Record};

use super::results::Section;
use crate::cmd;

const CLIENTS: usize = 32;

/// Records once, ingests `rounds` times.
pub(super) fn run(rounds: usize) -> Result<Section> {
    let programs = Programs::default();
    let server = Server::start(&programs)?;
    let stream = server.folder().join("run.stream");
    let genome = record(&server, &stream)?;
    let mut section = Section {
        title: "Ingest",
        about: format!(
            "A stream of PostgreSQL under pgbench with {CLIENTS} clients, all functions of the server probed, read by \
`ingest` from memory on one core: decode, order, stacks and contexts. CPU time of that thread."
        ),
        unit: "M events/s",
        ..Section::default()
    };
    let example = cmd::target().join("release/examples/ingest");
    let mut last = String::new();
    for round in 1..=rounds {
        cmd::say(format_args!("ingest: round {round} of {rounds}"));
        last = cmd::output(cmd::command(&example).arg(&stream))?;
        section.add(
            "from bytes to the tree",
            rate(&last).with_context(|| last.clone())?,
        );
    }
    for row in &mut section.rows {
        row.target = ">= 10";
    }
    let facts = last
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    section.remarks.push(format!(
        "The last round: {}.",
        facts.collect::<Vec<_>>().join("; ")
    ));
    section.remarks.push(same(&genome, &stream)?);
    server.stop()?;
    Ok(section)
}

fn record(server: &Server<'_>, stream: &Path) -> Result<std::path::PathBuf> {
    server.run("pgbench", &["-i", "-q", "-s", "4", "postgres"])?;
    let clients = CLIENTS.to_string();
    let client = server.start_client(
        "pgbench",
        &["-n", "-c", &clients, "-j", "2", "-T", "120", "postgres"],
    )?;
    let pids: Vec<String> = server
        .backends_of_pgbench(CLIENTS)?
        .iter()
        .map(u32::to_string)
        .collect();
    let keep = stream.display().to_string();
    let options = [
        "-F",
        "0",
        "-f",
        "*",
        "--max-overhead",
        "off",
        "--max-loss",
        "100",
        "--duration",
        "3",
    ];
    let mut command = std::process::Command::new(scalpel::program()?);
    let record = Record::into(server.folder());
    command
        .arg("record")
        .arg("-o")
        .arg(record.genome())
        .args(options)
        .args(["--keep-stream", &keep]);
    command.args(["--pid", &pids.join(",")]);
    // Not by the harness, whose patience is that of a test: every process is looked at before the first is probed.
    cmd::run(command.arg("--quiet"))?;
    // It has done its work; how it takes the interruption is its own affair.
    client.signal(Signal::INT)?;
    client.wait()?;
    Ok(record.genome().to_owned())
}

fn rate(printed: &str) -> Option<f64> {
    let line = printed
        .lines()
        .find(|line| line.starts_with("decode to tree"))?;
    line.split(", ")
        .nth(1)?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The stream, replayed without root, is the recording.
fn same(live: &Path, stream: &Path) -> Result<String> {
    let again = live.with_extension("again");
    let (stream, again) = (stream.display().to_string(), again.display().to_string());
    scalpel::run(&["replay", &stream, "-o", &again])?.expect_code(0)?;
    let (live, again) = (scalpel::report(live)?, scalpel::report(Path::new(&again))?);
    ensure!(live.events > 0, "nothing was recorded");
    let verdict = if live.functions == again.functions
        && live.edges == again.edges
        && live.threads == again.threads
    {
        "equals"
    } else {
        "DIFFERS FROM"
    };
    Ok(format!(
        "The report of the replayed stream {verdict} that of the live recording: {} functions, {} edges, {} threads, {} events, {} lost.",
        live.functions.len(),
        live.edges.len(),
        live.threads.len(),
        live.events,
        live.lost
    ))
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn the_rate_is_read_from_what_ingest_prints() {
        assert_eq!(
            rate("events            5\ndecode to tree    80.1 ns/event, 12.48 M events/s\n"),
            Some(12.48)
        );
        assert_eq!(rate("decode            1.0 ns/event"), None);
    }
}
