//! The genome file: SQLite, readable with any SQLite tool; FORMAT.md describes every table.
//!
//! A file is written aside and renamed, so that a reader sees a whole one or none.

mod aside;
mod budget;
mod error;
mod exists;
mod header;
mod read;
mod rows;
mod schema;
mod write;

pub use error::GenomeError;

use std::path::Path;

use super::Genome;
use crate::catalog::Catalog;

impl Genome {
    /// Writes the genome to `path`, with mode 0600. A file that is there already is kept as `path.old`.
    ///
    /// # Errors
    /// [`GenomeError::NoSpace`], [`GenomeError::NotAFile`] and the other reasons why it cannot be written; then
    /// nothing is left behind and an old file is untouched.
    pub fn write(&self, path: &Path) -> Result<(), GenomeError> {
        let aside = aside::Aside::create(path)?;
        write::write(self, aside.path(), None)
            .map_err(|source| GenomeError::writing(path, source, write::needed_bytes(self)))?;
        aside.publish()
    }

    /// Reads a genome.
    ///
    /// # Errors
    /// Says whether the file is no genome, was written by a newer scalpel, is cut off or is damaged.
    pub fn read(path: &Path) -> Result<Self, GenomeError> {
        read::read(path)
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

#[cfg(test)]
mod tests;
