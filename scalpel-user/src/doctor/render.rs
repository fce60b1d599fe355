//! Checks as text and as JSON.

use serde::Serialize;

use super::{Check, Status, blocked};
use crate::caps::{Abilities, Facts};
use crate::output::{Paint, Stream, wrapped};

/// Checks for people: a line each, with reason and next step below where there are any.
pub fn text(sections: &[(&str, &[Check])], stream: Stream) -> String {
    let width = sections
        .iter()
        .flat_map(|(_, checks)| *checks)
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for (title, checks) in sections {
        out += &format!("{}\n", stream.paint(title, Paint::Bold));
        for check in *checks {
            out += &line(check, width, stream);
        }
    }
    let all: Vec<Check> = sections
        .iter()
        .flat_map(|(_, checks)| checks.iter().cloned())
        .collect();
    out + &verdict(&all, stream)
}

fn line(check: &Check, width: usize, stream: Stream) -> String {
    let mark = match check.status {
        Status::Ok => stream.paint("  ok", Paint::Green),
        Status::Warn => stream.paint("warn", Paint::Yellow),
        Status::Fail => stream.paint("FAIL", Paint::Red),
    };
    let indent = " ".repeat(width + 10);
    let room = stream.room(width + 10);
    let found = wrapped(&check.found, room).join(&format!("\n{indent}"));
    let mut out = format!("  {mark}  {:width$}  {found}\n", check.name);
    for (lead, text) in [("", &check.why), ("-> ", &check.next)] {
        let text = format!("{lead}{text}");
        let lines = wrapped(&text, room).into_iter();
        for line in lines.filter(|_| text.len() > lead.len()) {
            out += &format!("{indent}{}\n", stream.paint(&line, Paint::Dim));
        }
    }
    out
}

fn verdict(checks: &[Check], stream: Stream) -> String {
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    if blocked(checks) {
        return stream.paint("recording is blocked", Paint::Red) + "\n";
    }
    match count(Status::Warn) {
        0 => stream.paint("ready to record", Paint::Green) + "\n",
        1 => "ready to record, with 1 warning\n".into(),
        warnings => format!("ready to record, with {warnings} warnings\n"),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    blocked: bool,
    host: &'a [Check],
    process: Option<&'a [Check]>,
    abilities: &'a Abilities,
    facts: &'a Facts,
}

/// Checks for programs.
pub fn json(
    facts: &Facts,
    able: &Abilities,
    host: &[Check],
    process: Option<&[Check]>,
) -> serde_json::Result<String> {
    let blocked = blocked(host) || process.is_some_and(blocked);
    let document = Document {
        schema: "scalpel.doctor/1",
        blocked,
        host,
        process,
        abilities: able,
        facts,
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}
