//! What reading lanes costs: `lanes GUEST CALLS MEMORY` runs `GUEST calls CALLS`, the program `guest` of probes/core, which
//! writes as fast as it can. One thread here reads its lanes within MEMORY bytes, as in a recording; what it sends is
//! counted and dropped. Prints one line of JSON: what was made, seen and lost, and the reader's time on a processor.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::process::Command;
use std::sync::mpsc::sync_channel;

use anyhow::{Context as _, ensure};
use scalpel_common::event::{Event, Kind};
use scalpel_user::event::Pid;
use scalpel_user::function::FunctionTable;
use scalpel_user::input::Input;
use scalpel_user::probe::{EndsTold, Options, Place, Probes};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: lanes GUEST CALLS MEMORY";
    let guest = arguments.next().context(usage)?;
    let calls: u64 = arguments.next().context(usage)?.parse()?;
    let memory: u64 = arguments.next().context(usage)?.parse()?;

    let (session, inputs) = sync_channel(1024);
    let uuid = uuid::Uuid::new_v4();
    let options = Options {
        uuid,
        pids: vec![Pid(std::process::id())],
        place: Place::choose(&uuid.to_string())?,
        owner: (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        ),
        memory,
        modes: scalpel_common::segment::modes::CALL,
        settings: Vec::new(),
        functions: FunctionTable::new(),
        ends_told_of: EndsTold::Nobody,
    };
    let probes = Probes::start(options, session)?;
    let counting = std::thread::spawn(move || {
        inputs.iter().fold(0, |seen, (_, input)| match input {
            // A LOST event tells of calls that were not seen.
            Input::Events(events) => {
                let of_calls = |event: &&Event| event.kind != Kind::Lost as u8;
                seen + events.iter().filter(of_calls).count() as u64
            }
            _ => seen,
        })
    });
    let status = Command::new(guest)
        .args(["calls", &calls.to_string()])
        .env("SCALPEL_SOCKET", probes.socket())
        .status()?;
    ensure!(status.success(), "the guest ended with {status}");
    let on_processor = reader_ns()?;
    let report = probes.finish();
    let seen = counting.join().ok().context("the counting thread ended")?;
    println!(
        "{}",
        serde_json::json!({
            "made": 2 * calls,
            "seen": seen,
            "lost": 2 * report.lost_calls + report.lost_events,
            "reader_ns": on_processor,
        })
    );
    Ok(())
}

/// Time on a processor of the thread that reads lanes.
fn reader_ns() -> anyhow::Result<u64> {
    for thread in std::fs::read_dir("/proc/self/task")?.flatten() {
        let name = std::fs::read_to_string(thread.path().join("comm"))?;
        if name.trim() == "scalpel-lanes" {
            let told = std::fs::read_to_string(thread.path().join("schedstat"))?;
            let first = told
                .split_whitespace()
                .next()
                .context("an empty schedstat")?;
            return Ok(first.parse()?);
        }
    }
    anyhow::bail!("no thread reads lanes")
}
