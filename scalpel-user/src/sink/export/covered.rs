//! Which functions with a known place in a source ran, file by file: what coverage formats are made of.
//!
//! A function that could not be seen is in no file: coverage formats have no word between *ran* and *never ran*.

use std::collections::BTreeMap;

use super::{Notes, Subject};
use crate::report::FunctionRow;
use crate::report::function::State;

/// The functions of one source file, in order of their lines.
pub(super) type Files<'a> = BTreeMap<&'a str, Vec<Covered<'a>>>;

/// One function.
pub(super) struct Covered<'a> {
    /// Its row in the report.
    pub(super) row: &'a FunctionRow,
    /// Its name, which no other of the file has.
    pub(super) name: String,
    pub(super) line: u32,
    /// Calls. A function known from samples alone ran at least once.
    pub(super) hits: u64,
}

/// The functions by file, and what was left out.
pub(super) fn files<'a>(subject: &'a Subject<'_>) -> (Files<'a>, Notes) {
    let mut files = Files::new();
    let (mut placeless, mut unseen) = (0, 0);
    // Rows have the order of the table.
    let columns = subject
        .genome
        .functions
        .iter()
        .map(|(_, info)| info.place.column);
    for (row, column) in subject.report.functions.iter().zip(columns) {
        match (row.file.as_deref(), row.line, row.state) {
            (_, _, State::NotVisible) => unseen += 1,
            (Some(file), Some(line), _) => files
                .entry(file)
                .or_default()
                .push(covered(row, line, column)),
            _ => placeless += 1,
        }
    }
    for functions in files.values_mut() {
        functions.sort_by(|a, b| (a.line, &a.name).cmp(&(b.line, &b.name)));
        tell_apart(functions);
    }
    (files, notes(placeless, unseen))
}

fn covered(row: &FunctionRow, line: u32, column: Option<u32>) -> Covered<'_> {
    let ran = row.state == State::Ran;
    Covered {
        row,
        name: name(&row.name, line, column),
        line,
        hits: row.measures.calls.unwrap_or(0).max(u64::from(ran)),
    }
}

/// Columns are counted from 1, as lines are.
fn name(name: &str, line: u32, column: Option<u32>) -> String {
    let column = column.map_or_else(String::new, |column| {
        format!(":{}", column.saturating_add(1))
    });
    format!("{name}:{line}{column}")
}

/// Readers merge functions of one name.
fn tell_apart(functions: &mut [Covered<'_>]) {
    let mut before = (String::new(), 0);
    for function in functions {
        if function.name == before.0 {
            before.1 += 1;
            function.name = format!("{}:#{}", function.name, before.1);
        } else {
            before = (function.name.clone(), 0);
        }
    }
}

fn notes(placeless: u64, unseen: u64) -> Notes {
    let said =
        |count: u64, what: &str| (count > 0).then(|| format!("left out: {count} functions {what}"));
    [
        said(placeless, "without a known place in a source"),
        said(
            unseen,
            "that could not be watched: whether they ran is not known",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
