//! Which functions with a known place in a source ran, file by file: what coverage formats are made of.
//!
//! A function that could not be seen is in no file: coverage formats have no word between *ran* and *never ran*.

use std::collections::BTreeMap;

use super::{Notes, Subject};
use crate::report::FunctionRow;
use crate::report::function::State;

/// What ran of what, in which files.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// The functions of each source file, in order of their lines.
    files: BTreeMap<String, Vec<Covered>>,
    /// Folders that the files' paths begin at; empty: paths are as they are.
    roots: Vec<String>,
    /// What to doubt, a line each.
    caveats: Vec<String>,
    /// What was left out, by what is said of it.
    left_out: BTreeMap<String, u64>,
    /// When the recording began, in ms since 1970.
    started_ms: u64,
}

/// One function.
#[derive(Clone, Debug)]
pub struct Covered {
    /// Its key.
    pub key: String,
    /// Its name, which no other of the file has.
    pub name: String,
    /// Its first line, from 1.
    pub line: u32,
    /// Calls. A function known from samples alone ran at least once.
    pub hits: u64,
}

impl Coverage {
    /// Without any file.
    pub fn new(caveats: Vec<String>, started_ms: u64) -> Self {
        Self {
            caveats,
            started_ms,
            ..Self::default()
        }
    }

    /// The functions of a recording, whatever else there may be.
    pub(super) fn of(subject: &Subject<'_>) -> Self {
        let started_ms = subject.report.run.started / 1_000_000;
        let mut coverage = Self::new(subject.caveats(), started_ms);
        // Rows have the order of the table.
        let columns = subject
            .genome
            .functions
            .iter()
            .map(|(_, info)| info.place.column);
        for (row, column) in subject.report.functions.iter().zip(columns) {
            match (row.file.as_deref(), row.line, row.state) {
                (_, _, State::NotVisible) => coverage.leave_out(UNSEEN),
                (Some(file), Some(line), _) => coverage.add(file, covered(row, line, column)),
                _ => coverage.leave_out(PLACELESS),
            }
        }
        coverage.finish()
    }

    /// A folder that paths begin at.
    pub fn root(&mut self, root: String) {
        self.roots.push(root);
    }

    /// Adds a function of a file.
    pub fn add(&mut self, file: &str, function: Covered) {
        match self.files.get_mut(file) {
            Some(functions) => functions.push(function),
            None => drop(self.files.insert(file.to_owned(), vec![function])),
        }
    }

    /// Counts a function that is in no file; `what` says which ones are not: "functions without ...".
    pub fn leave_out(&mut self, what: &str) {
        *self.left_out.entry(what.to_owned()).or_default() += 1;
    }

    /// Puts the functions of each file in order, and tells those of one name apart.
    pub fn finish(mut self) -> Self {
        for functions in self.files.values_mut() {
            functions.sort_by(|a, b| (a.line, &a.name).cmp(&(b.line, &b.name)));
            tell_apart(functions);
        }
        self
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &[Covered])> {
        let files = self.files.iter();
        files.map(|(file, functions)| (file.as_str(), functions.as_slice()))
    }

    pub(super) fn roots(&self) -> &[String] {
        &self.roots
    }

    pub(super) const fn started_ms(&self) -> u64 {
        self.started_ms
    }

    /// What was left out, a line each.
    pub fn notes(&self) -> Notes {
        let said = self.left_out.iter();
        said.map(|(what, count)| format!("left out: {count} {what}"))
            .collect()
    }

    /// What to doubt and what was left out, a line each.
    pub(super) fn remarks(&self) -> impl Iterator<Item = String> {
        self.caveats.iter().cloned().chain(self.notes())
    }
}

/// Functions that are known, and not where.
pub const PLACELESS: &str = "functions without a known place in a source";

const UNSEEN: &str = "functions that could not be watched: whether they ran is not known";

fn covered(row: &FunctionRow, line: u32, column: Option<u32>) -> Covered {
    let ran = row.state == State::Ran;
    Covered {
        key: row.key.clone(),
        name: name(&row.name, line, column),
        line,
        hits: row.measures.calls.unwrap_or(0).max(u64::from(ran)),
    }
}

/// A name with its line and column, for readers merge functions of one name. Columns are counted from 1, as lines are.
pub fn name(name: &str, line: u32, column: Option<u32>) -> String {
    let column = column.map_or_else(String::new, |column| {
        format!(":{}", column.saturating_add(1))
    });
    format!("{name}:{line}{column}")
}

/// Readers merge functions of one name.
fn tell_apart(functions: &mut [Covered]) {
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
