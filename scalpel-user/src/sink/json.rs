//! The report as one JSON object: [`Report`] as it stands.

use std::io::{self, Write};

use crate::report::Report;

/// Writes the object and a line end.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, report)?;
    writeln!(out)
}
