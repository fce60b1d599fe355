//! The files that a command was given, read, merged and matched.

use std::path::PathBuf;

use crate::catalog::Catalog;
use crate::genome::Genome;
use crate::genome::merge::Merged;
use crate::lay;
use crate::matching::Matching;
use crate::output::Output;

use super::super::recording;

/// What ran, laid over what exists.
pub(super) struct Laid {
    pub(super) genome: Genome,
    pub(super) matching: Matching,
}

/// Nothing says what exists.
#[derive(Debug, thiserror::Error)]
#[error(
    "none of the files tells what exists: `scalpel-ebpf record --src DIR` keeps it in the recording; or make a file that does with `scalpel-ebpf genome build --src DIR` and give it beside the recording"
)]
pub(super) struct NothingExists;

impl Laid {
    /// Reads, and matches what was not matched when it was recorded.
    pub(super) fn read(files: &[PathBuf], output: &Output) -> anyhow::Result<Self> {
        let mut genome = merge(files, output)?.into_genome();
        // A file that was given beside the recording may know what was not found then.
        lay::complete(&mut genome, files.len() > 1, output);
        if genome.catalog.is_empty() {
            return Err(NothingExists.into());
        }
        let matching = Matching::of(&genome, &genome.catalog, &genome.matches);
        Ok(Self { genome, matching })
    }

    pub(super) const fn catalog(&self) -> &Catalog {
        &self.genome.catalog
    }
}

/// All files in one.
pub(super) fn merge(files: &[PathBuf], output: &Output) -> anyhow::Result<Merged> {
    let mut merged = Merged::default();
    for file in files {
        merged.join(recording::open_merged(file, output)?)?;
    }
    Ok(merged)
}

/// All files in one, with what later builds need.
pub(super) fn merge_whole(files: &[PathBuf], output: &Output) -> anyhow::Result<Merged> {
    let mut merged = Merged::default();
    for file in files {
        merged.join(recording::open_whole(file, output)?)?;
    }
    Ok(merged)
}
