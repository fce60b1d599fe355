//! The files that a command was given, read, merged and matched.

use std::path::PathBuf;

use crate::catalog::{self, Catalog};
use crate::genome::Genome;
use crate::genome::merge::Merged;
use crate::maps::find;
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
    "none of the files tells what exists: `scalpel-ebpf genome build --src DIR` makes one that does; give it beside the recording"
)]
struct NothingExists;

impl Laid {
    /// Reads and matches.
    pub(super) fn read(files: &[PathBuf], output: &Output) -> anyhow::Result<Self> {
        let mut genome = merge(files, output)?.into_genome();
        let catalog = std::mem::take(&mut genome.catalog);
        if catalog.is_empty() {
            return Err(NothingExists.into());
        }
        let texts = texts(&genome);
        let (maps, unusable) = find::find(
            texts.iter().map(|(path, hash)| (path.as_str(), *hash)),
            catalog::hash,
        );
        for map in unusable {
            output.warn(&format!(
                "the source map {} is of no use: {}",
                map.path.display(),
                map.why
            ));
        }
        let matching = Matching::of(&genome, &catalog, &maps);
        genome.catalog = catalog;
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

/// Texts that a probe told the hash of: each once.
fn texts(genome: &Genome) -> Vec<(String, u64)> {
    let infos = genome.functions.iter().map(|(_, info)| info);
    let mut texts: Vec<(String, u64)> = infos
        .filter(|info| info.place.text_hash != 0 && !info.path.is_empty())
        .map(|info| (info.path.clone(), info.place.text_hash))
        .collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}
