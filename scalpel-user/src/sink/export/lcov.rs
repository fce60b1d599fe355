//! LCOV: which functions ran, how often, and which of those watched never did.
//!
//! A function's name carries its line and, where it is known, its column, for readers merge equal names. Of its lines only the first is known to have run.

use std::io::{self, Write};

use super::covered::{Coverage, Covered};
use super::{Notes, Subject};
use crate::sink::text::clean;

/// Writes the functions of `subject`.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<Notes> {
    write_coverage(&Coverage::of(subject), out)
}

/// Writes `coverage`.
pub fn write_coverage(coverage: &Coverage, out: &mut dyn Write) -> io::Result<Notes> {
    for line in coverage.remarks() {
        writeln!(out, "# {}", clean(&line))?;
    }
    for (file, functions) in coverage.files() {
        section(file, functions, out)?;
    }
    Ok(coverage.notes())
}

fn section(file: &str, functions: &[Covered], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "TN:\nSF:{}", clean(file))?;
    for function in functions {
        writeln!(out, "FN:{},{}", function.line, name(function))?;
    }
    for function in functions {
        writeln!(out, "FNDA:{},{}", function.hits, name(function))?;
    }
    let hit = functions.iter().filter(|function| function.hits > 0);
    writeln!(out, "FNF:{}\nFNH:{}", functions.len(), hit.count())?;
    let lines = lines(functions);
    for (line, hits) in &lines {
        writeln!(out, "DA:{line},{hits}")?;
    }
    let hit = lines.iter().filter(|(_, hits)| *hits > 0).count();
    writeln!(out, "LF:{}\nLH:{hit}\nend_of_record", lines.len())
}

/// A name may hold commas, which end a field for some readers.
fn name(function: &Covered) -> String {
    clean(&function.name).replace(',', ";")
}

/// Lines with the calls of all functions that begin there.
pub(super) fn lines(functions: &[Covered]) -> Vec<(u32, u64)> {
    let mut lines: Vec<(u32, u64)> = Vec::new();
    for function in functions {
        match lines.last_mut() {
            Some((line, hits)) if *line == function.line => {
                *hits = hits.saturating_add(function.hits);
            }
            _ => lines.push((function.line, function.hits)),
        }
    }
    lines
}
