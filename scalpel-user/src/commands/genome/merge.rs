//! `genome merge` and `genome match`: many files into one.

use std::path::{Path, PathBuf};

use crate::exit::Outcome;
use crate::genome::merge::Merged;
use crate::lay;
use crate::matching::Matching;
use crate::output::Output;
use crate::report::Known;

use super::laid::{self, NothingExists};
use super::show;

pub(in super::super) fn run(
    files: &[PathBuf],
    path: &Path,
    output: &Output,
) -> anyhow::Result<Outcome> {
    let mut merged = laid::merge_whole(files, output)?;
    lay::derive_states(&mut merged);
    write(&merged, path, output)?;
    Ok(Outcome::Done)
}

/// The same, and every function is looked for among what exists.
pub(in super::super) fn run_match(
    files: &[PathBuf],
    path: &Path,
    output: &Output,
) -> anyhow::Result<Outcome> {
    let mut merged = laid::merge_whole(files, output)?;
    if merged.catalog.is_empty() {
        return Err(NothingExists.into());
    }
    lay::again(&mut merged, output);
    lay::derive_states(&mut merged);
    write(&merged, path, output)?;
    let genome = merged.into_genome();
    if let Some(matching) = Matching::kept(&genome) {
        let known = Known::of(&genome.catalog, &matching);
        output.say(show::rates(&known).trim_end());
    }
    Ok(Outcome::Done)
}

fn write(merged: &Merged, path: &Path, output: &Output) -> anyhow::Result<()> {
    merged.write(path)?;
    output.say(&format!(
        "wrote {}: {} runs, {} functions, {} definitions in {} files",
        path.display(),
        merged.runs.len(),
        merged.functions.len(),
        merged.catalog.definitions.len(),
        merged.catalog.files.len()
    ));
    Ok(())
}
