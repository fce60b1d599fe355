//! Runs a command with a stand-in for the collector and prints what its probes wrote, one JSON object a line:
//! `cargo run -p scalpel-probe --features harness --example collector -- [--mode call|count|all] [--option N=V]...
//! [--slots N] [--tsc] [--quiet] [--off NAME]... -- CMD ARGS`. `--off`: a function that is switched off once it is known. Last comes one object with the functions, the notes and the sums.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its output is its purpose"
)]
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scalpel::harness::{Made, Server, Shape, to_json};
use scalpel::modes;

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("collector: {error}");
            ExitCode::from(125)
        }
    }
}

fn run() -> Result<u8, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut shape = Shape {
        slots: 1 << 18,
        lanes: 32,
        ..Shape::default()
    };
    let mut quiet = false;
    let mut off = Vec::new();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--" => break,
            "--tsc" => shape.clock = 1,
            "--quiet" => quiet = true,
            "--off" => off.push(value()?),
            "--slots" => shape.slots = value()?.parse()?,
            "--lanes" => shape.lanes = value()?.parse()?,
            "--mode" => {
                shape.modes = match value()?.as_str() {
                    "call" => modes::CALL,
                    "count" => modes::COUNT,
                    _ => modes::CALL | modes::NATIVE,
                }
            }
            "--option" => {
                let option = value()?;
                let (name, value) = option.split_once('=').ok_or("an option is NAME=VALUE")?;
                shape.options.push((name.into(), value.into()));
            }
            other => return Err(format!("unknown: {other}").into()),
        }
    }
    let folder = tempfile::tempdir()?;
    let server = Arc::new(Server::new(&folder.path().join("collector.sock"), shape)?);
    let segments: Arc<Mutex<BTreeMap<u32, Arc<Made>>>> = Arc::default();
    let program = arguments.next().ok_or("no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("SCALPEL_SOCKET", server.path())
        .spawn()?;
    let (accepting, joined) = (Arc::clone(&server), Arc::clone(&segments));
    std::thread::spawn(move || {
        loop {
            // One that hung up, or nobody came for a while.
            let Ok((pid, runtime, made)) = accepting.accept() else {
                continue;
            };
            println!("{}", serde_json::json!({"hello": runtime, "pid": pid}));
            if let Ok(mut joined) = joined.lock() {
                joined.insert(pid, made);
            }
        }
    });
    let status = loop {
        show(&segments, quiet);
        switch_off(&segments, &off);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    // A program that lives shorter than its handshake takes here is still told of.
    for _ in 0..500 {
        if segments.lock().map_or(0, |segments| segments.len()) >= server.made() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    show(&segments, quiet);
    close(&segments);
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(124))
}

fn switch_off(segments: &Mutex<BTreeMap<u32, Arc<Made>>>, off: &[String]) {
    let Some(segments) = segments.lock().ok().filter(|_| !off.is_empty()) else {
        return;
    };
    for made in segments.values() {
        for (func, named) in made.functions() {
            if named.is_some_and(|named| off.contains(&named.name)) {
                made.switch(func, true);
            }
        }
    }
}

fn show(segments: &Mutex<BTreeMap<u32, Arc<Made>>>, quiet: bool) {
    let Ok(segments) = segments.lock() else {
        return;
    };
    for made in segments.values() {
        let read = made.drain();
        if quiet {
            continue;
        }
        let names = if read.is_empty() {
            BTreeMap::new()
        } else {
            made.functions()
        };
        for lane in &read {
            for event in &lane.events {
                println!("{}", to_json(lane, event, &names));
            }
        }
    }
}

fn close(segments: &Mutex<BTreeMap<u32, Arc<Made>>>) {
    let Ok(segments) = segments.lock() else {
        return;
    };
    for (pid, made) in segments.iter() {
        let functions: Vec<_> = made
            .functions()
            .into_iter()
            .map(|(func, named)| {
                let named = named.as_ref();
                serde_json::json!({
                    "func": func, "name": named.map(|n| &n.name), "file": named.map(|n| &n.file),
                    "owner": named.map(|n| &n.owner), "line": named.map(|n| n.head.line),
                    "end_line": named.map(|n| n.head.end_line), "column": named.map(|n| n.head.column),
                    "start": named.map(|n| n.head.start), "end": named.map(|n| n.head.end),
                    "flags": named.map(|n| n.head.flags), "calls": named.map(|n| n.calls),
                    "lost": named.map(|n| n.lost), "body_hash": named.map(|n| n.head.body_hash.to_string()),
                    "text_hash": named.map(|n| n.head.text_hash.to_string()),
                })
            })
            .collect();
        let notes: Vec<_> = made
            .notes()
            .into_iter()
            .map(|note| serde_json::json!({"kind": note.kind, "value": note.value, "text": note.text}))
            .collect();
        let header = made.header();
        println!(
            "{}",
            serde_json::json!({
                "pid": pid, "functions": functions, "notes": notes, "counters": made.counters(),
                "calls_without_lane": header.calls_without_lane, "calls_past_lease": header.calls_past_lease,
                "functions_refused": header.functions_refused, "names_refused": header.names_refused,
            })
        );
    }
}
