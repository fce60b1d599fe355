//! Why a genome cannot be written or read.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// What was tried on which file, and the next step.
#[derive(Debug, Error)]
pub enum GenomeError {
    /// The file could not be opened, created, renamed or synced.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The output is a directory, a device or a socket.
    #[error("{} is not a regular file: choose another output with -o FILE", path.display())]
    NotAFile {
        /// The output.
        path: PathBuf,
    },
    /// The file system is full.
    #[error("no space for {}: about {} MiB are needed; free some, or choose another file system with -o FILE",
            path.display(), needed.div_ceil(1 << 20))]
    NoSpace {
        /// The output.
        path: PathBuf,
        /// Estimated size of the genome in bytes.
        needed: u64,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// SQLite could not write.
    #[error("cannot write the genome {}", path.display())]
    Write {
        /// The output.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// The file is something else.
    #[error("{} is not a genome ({found}); a genome is made by `scalpel-ebpf record`", path.display())]
    NotAGenome {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        found: &'static str,
    },
    /// The output holds a recording, which a build of what exists would replace.
    #[error("{} holds a recording: choose another output with -o FILE, then merge both", path.display())]
    IsRecording {
        /// The output.
        path: PathBuf,
    },
    /// The file was written by a newer scalpel.
    #[error("{} has genome schema {found}, this scalpel reads up to {known}: use a newer scalpel", path.display())]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest schema that is known.
        known: u32,
    },
    /// The file is shorter than it says.
    #[error("{} is cut off: {found} of {expected} bytes are there", path.display())]
    CutOff {
        /// The file.
        path: PathBuf,
        /// Bytes that should be there.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The file tells what exists, and not what ran.
    #[error("{} has no run: it tells what exists only; `scalpel-ebpf genome merge` puts it beside a recording", path.display())]
    NoRecording {
        /// The file.
        path: PathBuf,
    },
    /// The file contradicts itself.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A question that SQLite does not answer.
    #[error("cannot ask that of {}: {source}; a question is one SELECT, FORMAT.md describes the tables", path.display())]
    Query {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// SQLite cannot read the file.
    #[error("{} is damaged", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
}

impl GenomeError {
    /// An operating system error on a file.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }

    /// An error of SQLite while writing, told apart by what the user can do.
    pub(super) fn writing(path: &Path, source: rusqlite::Error, needed: u64) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::NoSpace {
                path,
                needed,
                source,
            },
            _ => Self::Write { path, source },
        }
    }
}
