//! The genome file: SQLite, readable with any SQLite tool; FORMAT.md describes every table.
//!
//! A file is written aside and renamed, so that a reader sees a whole one or none.

mod aside;
mod budget;
mod bulk;
mod error;
mod exists;
mod header;
mod kept;
mod nodes;
pub mod query;
mod read;
mod returns;
mod rows;
mod schema;
mod write;

pub use error::GenomeError;

use std::path::Path;

use super::Genome;
use super::merge::Merged;
use crate::catalog::{Catalog, Kept};
use write::Rows;

impl Genome {
    /// Writes the genome to `path`, with mode 0600. A file that is there already is kept as `path.old`.
    ///
    /// # Errors
    /// [`GenomeError::NoSpace`], [`GenomeError::NotAFile`] and the other reasons why it cannot be written; then
    /// nothing is left behind and an old file is untouched.
    pub fn write(&self, path: &Path) -> Result<(), GenomeError> {
        write_to(&Rows::of(self), path)
    }

    /// Reads a genome. The recordings of a file of many runs are added up.
    ///
    /// # Errors
    /// Says whether the file is no genome, was written by a newer scalpel, is cut off or is damaged.
    pub fn read(path: &Path) -> Result<Self, GenomeError> {
        let merged = Merged::read(path)?;
        if merged.runs.is_empty() {
            return Err(GenomeError::NoRecording {
                path: path.to_owned(),
            });
        }
        Ok(merged.into_genome())
    }
}

impl Merged {
    /// Writes all recordings to one file, as [`Genome::write`] does.
    ///
    /// # Errors
    /// As [`Genome::write`].
    pub fn write(&self, path: &Path) -> Result<(), GenomeError> {
        write_to(&Rows::of_merged(self), path)
    }

    /// Reads all recordings of a file; of one that only tells what exists, none.
    ///
    /// # Errors
    /// As [`Genome::read`].
    pub fn read(path: &Path) -> Result<Self, GenomeError> {
        read::read(path)
    }

    /// The same with what a later build of the catalog needs: for those who write it again.
    ///
    /// # Errors
    /// As [`Genome::read`].
    pub fn read_whole(path: &Path) -> Result<Self, GenomeError> {
        read::read_whole(path)
    }
}

impl Catalog {
    /// Writes what exists to a genome file without a recording, as [`Genome::write`] writes.
    ///
    /// # Errors
    /// As [`Genome::write`].
    pub fn write(&self, path: &Path) -> Result<(), GenomeError> {
        let aside = aside::Aside::create(path)?;
        write::write_catalog(self, aside.path())
            .map_err(|source| GenomeError::writing(path, source, write::needed_for(self)))?;
        aside.publish()
    }

    /// Reads what exists from a genome file, with or without a recording; nothing from files of older versions.
    ///
    /// # Errors
    /// As [`Genome::read`].
    pub fn read(path: &Path) -> Result<Self, GenomeError> {
        read::read_catalog(path)
    }
}

impl Kept {
    /// Writes what exists with what the next build needs, as [`Catalog::write`] writes.
    ///
    /// # Errors
    /// As [`Genome::write`].
    pub fn write(&self, path: &Path) -> Result<(), GenomeError> {
        let aside = aside::Aside::create(path)?;
        write::write_kept(self, aside.path()).map_err(|source| {
            GenomeError::writing(path, source, write::needed_for(&self.catalog))
        })?;
        aside.publish()
    }

    /// Reads what an earlier build kept.
    ///
    /// # Errors
    /// As [`Genome::read`], and [`GenomeError::IsRecording`] for a file that holds more than that.
    pub fn read(path: &Path) -> Result<Self, GenomeError> {
        read::read_kept(path)?.ok_or_else(|| GenomeError::IsRecording {
            path: path.to_owned(),
        })
    }

    /// Reads what an earlier build kept, beside recordings too.
    ///
    /// # Errors
    /// As [`Genome::read`].
    pub fn read_of_any(path: &Path) -> Result<Self, GenomeError> {
        read::read_kept_of_any(path)
    }
}

fn write_to(rows: &Rows<'_>, path: &Path) -> Result<(), GenomeError> {
    let aside = aside::Aside::create(path)?;
    write::write(rows, aside.path(), None)
        .map_err(|source| GenomeError::writing(path, source, write::needed_bytes(rows)))?;
    aside.publish()
}

#[cfg(test)]
mod tests;
