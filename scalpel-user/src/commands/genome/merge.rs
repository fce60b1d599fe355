//! `genome merge`: many files into one.

use std::path::{Path, PathBuf};

use crate::exit::Outcome;
use crate::output::Output;

use super::laid;

pub(in super::super) fn run(
    files: &[PathBuf],
    path: &Path,
    output: &Output,
) -> anyhow::Result<Outcome> {
    let merged = laid::merge(files, output)?;
    merged.write(path)?;
    output.say(&format!(
        "wrote {}: {} runs, {} functions, {} definitions in {} files",
        path.display(),
        merged.runs.len(),
        merged.functions.len(),
        merged.catalog.definitions.len(),
        merged.catalog.files.len()
    ));
    Ok(Outcome::Done)
}
