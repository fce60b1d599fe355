//! Programs of hard shapes in compiled languages, whose functions are labelled by hand: each counts its own calls under a mark
//! that stands in the line of its head, so that nothing that was matched can be another one unseen.
//!
//! What stands behind `//=` in a line is what has to be said of a function of which no call can be seen; `-`: nothing.
#![expect(
    clippy::print_stdout,
    reason = "it shows the figures of docs/match-rates.md"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use scalpel_tests::child;
use scalpel_tests::scalpel::{self, Record};
use scalpel_tests::suite::{Outcome, Skip, Suite};
use scalpel_tests::tests;
use serde_json::Value;
use tempfile::TempDir;

/// Of the user-written functions that ran.
const LEAST_MATCHED: f64 = 0.9;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "labelled": c_is_what_its_labels_say, cpp_is_what_its_labels_say, rust_is_what_its_labels_say, go_is_what_its_labels_say);
}

fn c_is_what_its_labels_say() -> Outcome {
    check(
        "c/shapes.c",
        &[
            "gcc",
            "-std=gnu11",
            "-w",
            "-O1",
            "-g",
            "shapes.c",
            "-o",
            "shapes",
        ],
        &["*"],
    )
}

fn cpp_is_what_its_labels_say() -> Outcome {
    check(
        "cpp/shapes.cpp",
        &[
            "g++",
            "-std=c++17",
            "-w",
            "-O1",
            "-g",
            "shapes.cpp",
            "-o",
            "shapes",
        ],
        &["*"],
    )
}

fn rust_is_what_its_labels_say() -> Outcome {
    check(
        "rust/shapes.rs",
        &["rustc", "--edition", "2024", "-O", "-g", "shapes.rs"],
        &["*shapes::*"],
    )
}

fn go_is_what_its_labels_say() -> Outcome {
    check(
        "go/shapes.go",
        &["go", "build", "-o", "shapes", "."],
        &["main.*"],
    )
}

/// What a line of the source says of the function that begins in it.
#[derive(Debug, Default)]
struct Line {
    mark: Option<String>,
    label: Option<String>,
}

fn check(source: &str, build: &[&str], patterns: &[&str]) -> Outcome {
    let (source, folder) = laid_out(source)?;
    let text = fs::read_to_string(&source)?;
    let lines: BTreeMap<u64, Line> = (1..).zip(text.lines().map(line)).collect();
    let (program, args) = build.split_first().context("no compiler")?;
    let mut compile = Command::new(program);
    compile.args(args).current_dir(folder.path());
    match child::run(compile) {
        Ok(ended) => ended.expect_code(0)?,
        Err(error) => return Err(Skip::because(format!("there is no {program}: {error:#}"))),
    };
    let program = folder.path().join("shapes");
    let place = folder.path().to_string_lossy().into_owned();
    let exe = program.to_string_lossy().into_owned();
    let mut record = Record::into(folder.path()).args(["-F", "0", "--max-overhead", "off"]);
    record = record.args(["--src", &place, "--exe", &exe]);
    for pattern in patterns {
        record = record.args(["-f", pattern]);
    }
    let recorded = record.command(&program, &[])?.expect_code(0)?;
    let told = marks(&recorded.ended.stdout)?;
    let genome = record.genome().to_string_lossy().into_owned();
    let shown = scalpel::run(&["genome", "show", &genome, "--json"])?.expect_code(0)?;
    let shown: Value = serde_json::from_str(&shown.stdout)?;
    let report = scalpel::run(&["report", &genome, "--json"])?.expect_code(0)?;
    let report: Value = serde_json::from_str(&report.stdout)?;
    let name = source
        .file_name()
        .context("no name")?
        .to_string_lossy()
        .into_owned();
    ran(&name, &lines, &told, &shown)?;
    unseen(&lines, &report)
}

/// A folder of its own with the sources; and the one that is labelled.
fn laid_out(source: &str) -> anyhow::Result<(std::path::PathBuf, TempDir)> {
    let home = scalpel_tests::fixture::workspace().join("tests/truth/native");
    let from = home.join(source);
    let folder = TempDir::with_prefix("scalpel-labelled-")?;
    for entry in fs::read_dir(from.parent().context("no folder")?)? {
        let path = entry?.path();
        fs::copy(
            &path,
            folder.path().join(path.file_name().context("no name")?),
        )?;
    }
    let name = Path::new(source).file_name().context("no name")?;
    Ok((folder.path().join(name), folder))
}

fn line(text: &str) -> Line {
    let mark = text.split_once("hit(\"");
    let mark = mark.and_then(|(_, rest)| rest.split_once('"'));
    // Of a head of several lines.
    let apart = text.split_once("//: ").map(|(_, mark)| (mark.trim(), ""));
    let is_comment = text.trim_start().starts_with("//");
    let label = text.split_once("//=").filter(|_| !is_comment);
    Line {
        mark: apart.or(mark).map(|(mark, _)| mark.to_owned()),
        label: label.map(|(_, label)| label.trim().to_owned()),
    }
}

/// How often each function says that it was called.
fn marks(stdout: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let pair = |line: &str| {
        let (mark, calls) = line.rsplit_once(' ').context("a line without a number")?;
        Ok((mark.to_owned(), calls.parse()?))
    };
    stdout.lines().map(pair).collect()
}

/// Line of a place `file:line name` of this file.
fn line_of(place: &str, file: &str) -> Option<u64> {
    let rest = place.strip_prefix(file)?.strip_prefix(':')?;
    rest.split(' ').next()?.parse().ok()
}

/// Every function that ran and was found has been called as often as the one that stands there says; and nearly all of
/// those were found.
fn ran(
    file: &str,
    lines: &BTreeMap<u64, Line>,
    told: &BTreeMap<String, u64>,
    shown: &Value,
) -> Outcome {
    let mut calls: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut matched, mut missing) = (0, Vec::new());
    for function in shown["functions"].as_array().into_iter().flatten() {
        let (events, key) = (function["events"].as_u64(), function["key"].as_str());
        let events = events.filter(|events| *events > 0);
        let place = function["source"]
            .as_str()
            .and_then(|place| line_of(place, file));
        match (events, place) {
            (Some(events), Some(line)) => {
                *calls.entry(line).or_default() += events;
                matched += 1;
            }
            (Some(_), None) if function["missing"] == true => missing.extend(key),
            _ => {}
        }
    }
    let mut wrong = Vec::new();
    for (line, calls) in &calls {
        let said = lines.get(line);
        let mark = said.and_then(|said| said.mark.as_ref());
        let is_plain = said.is_some_and(|said| said.label.as_deref() == Some("-"));
        match mark.and_then(|mark| told.get(mark)) {
            Some(truth) if truth == calls => {}
            // What counts the marks has none.
            None if is_plain || is_hit(lines, *line) => {}
            truth => wrong.push((*line, *calls, truth)),
        }
    }
    ensure!(
        wrong.is_empty(),
        "{file}: (line, calls, what it says itself) {wrong:?}"
    );
    let found: BTreeSet<&String> = calls
        .keys()
        .filter_map(|line| lines.get(line)?.mark.as_ref())
        .collect();
    let inlined: BTreeSet<&String> = lines
        .values()
        .filter(|line| line.label.as_deref() == Some("not-visible inlined"))
        .filter_map(|line| line.mark.as_ref())
        .collect();
    let open: Vec<&String> = told
        .keys()
        .filter(|mark| !found.contains(mark) && !inlined.contains(mark))
        .collect();
    let ran = told.len() - inlined.len();
    println!(
        "{file}: {} of {ran} functions that ran found, {} inlined; match rate {}; 0 false of {matched}; not found {open:?} {missing:?}",
        ran - open.len(),
        inlined.len(),
        shown["match_rate"],
    );
    ensure!(
        (ran - open.len()) as f64 > LEAST_MATCHED * ran as f64,
        "{file}: {open:?}"
    );
    let rate = &shown["match_rate"];
    let share = rate["share"].as_f64().context("nothing was matched")?;
    ensure!(share > LEAST_MATCHED, "{file}: {rate}");
    Ok(())
}

/// Whether the function that counts begins in this line, or is what its lines are about.
fn is_hit(lines: &BTreeMap<u64, Line>, line: u64) -> bool {
    let first = lines.iter().find(|(_, line)| line.mark.is_some());
    first.is_some_and(|(first, _)| line < *first)
}

/// What did not run, or could not be seen, is what the labels say, and nothing else.
fn unseen(lines: &BTreeMap<u64, Line>, report: &Value) -> Outcome {
    let rows = report["unseen"].as_array().context("no states")?;
    let said: BTreeSet<(u64, String)> = rows
        .iter()
        .filter_map(|row| {
            let words = [row["state"].as_str(), row["why"].as_str()];
            let words: Vec<&str> = words.into_iter().flatten().collect();
            Some((row["line"].as_u64()?, words.join(" ")))
        })
        .collect();
    let labelled = lines.iter().filter_map(|(number, line)| {
        let label = line.label.as_ref().filter(|label| *label != "-");
        Some((*number, label?.clone()))
    });
    let labelled: BTreeSet<(u64, String)> = labelled.collect();
    let difference: Vec<_> = said.symmetric_difference(&labelled).collect();
    ensure!(difference.is_empty(), "{difference:?} of {said:?}");
    Ok(())
}
