//! BPF programs, maps and links that the kernel has and no process holds: what a tracer that is gone left behind.
//!
//! Told by the kernel's own lists and by the descriptors of all processes, so that other tracers may work meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::suite::Skip;

/// What the kernel has, by the word of it in `/proc/PID/fdinfo`.
const KINDS: [(&str, &str); 3] = [("prog", "prog_id"), ("map", "map_id"), ("link", "link_id")];

/// Programs, maps and links that no process holds, as `prog 17 call_enter`. What is just being closed is among them: a
/// thing that stays is seen twice.
pub fn now() -> anyhow::Result<BTreeSet<String>> {
    // The kernel's lists first: what is made between them and the look at the processes is in neither.
    let mut listed = Vec::new();
    for (kind, word) in KINDS {
        for thing in list(kind)? {
            listed.push((kind, word, thing));
        }
    }
    let held = held();
    // A program holds its maps.
    let kept: BTreeSet<u64> = listed
        .iter()
        .filter(|(kind, word, thing)| *kind == "prog" && held.contains(&word_of(word, id(thing))))
        .flat_map(|(.., program)| maps_of(program))
        .collect();
    let orphans = listed.iter().filter(|(kind, word, thing)| {
        let by_program = *kind == "map" && kept.contains(&id(thing));
        !by_program && !held.contains(&word_of(word, id(thing)))
    });
    Ok(orphans
        .map(|(kind, _, thing)| {
            let name = thing
                .get("name")
                .or_else(|| thing.get("type"))
                .and_then(Value::as_str);
            format!("{kind} {} {}", id(thing), name.unwrap_or("?"))
        })
        .collect())
}

/// The kernel's list of one kind.
fn list(kind: &str) -> anyhow::Result<Vec<Value>> {
    let paths = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("bpftool")
        // Debian has it where only root looks.
        .env("PATH", format!("{paths}:/usr/sbin:/sbin"))
        .args(["--json", kind, "list"])
        .stderr(Stdio::null())
        .output()
        .map_err(|error| Skip::because(format!("bpftool is not installed ({error})")))?;
    ensure!(
        output.status.success(),
        "bpftool {kind} list: {}",
        output.status
    );
    let list = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("bpftool {kind} list does not print JSON"))?;
    Ok(list)
}

/// The lines about BPF in the descriptors of all processes.
fn held() -> BTreeSet<String> {
    let mut held = BTreeSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let infos = fs::read_dir(process.path().join("fdinfo"));
        for info in infos.into_iter().flatten().flatten() {
            let text = fs::read_to_string(info.path()).unwrap_or_default();
            let about = text.lines().filter(|line| {
                KINDS
                    .iter()
                    .any(|(_, word)| line.strip_prefix(word).is_some())
            });
            held.extend(about.map(str::to_owned));
        }
    }
    held
}

fn word_of(word: &str, id: u64) -> String {
    format!("{word}:\t{id}")
}

fn id(thing: &Value) -> u64 {
    thing.get("id").and_then(Value::as_u64).unwrap_or_default()
}

fn maps_of(program: &Value) -> Vec<u64> {
    let ids = program.get("map_ids").and_then(Value::as_array);
    ids.into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .collect()
}
