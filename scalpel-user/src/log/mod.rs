//! The chunk log: an append-only file of [`Input`](crate::input::Input)s, readable up to any cut. Layout: FORMAT.md.
//!
//! It is what a recording leaves behind when the collector is killed, what `--keep-stream` keeps and what a replay
//! reads. Must not know what the inputs are for.

mod chunk;
mod codec;
mod counts;
mod kept;
mod payload;
mod reader;
mod records;
mod writer;

pub use chunk::{LOG_VERSION, MAX_PAYLOAD, Span};
pub use reader::{Cut, Ending, Reader};
pub use writer::Writer;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a chunk log could not be written or opened.
#[derive(Debug, Error)]
pub enum LogError {
    /// The file could not be created.
    #[error("cannot create the chunk log {path}: choose another place with -o")]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A chunk could not be written; all chunks before it are readable, and nothing is written after it.
    #[error(
        "cannot write to the chunk log {path}: the recording is kept up to here; free space and record again"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file could not be opened.
    #[error("cannot open the chunk log {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file does not begin as a chunk log does.
    #[error("{path} is no chunk log: it does not begin with `SCALPLOG`")]
    NotALog {
        /// The file.
        path: PathBuf,
    },
    /// The file is of a version that this reader does not know.
    #[error(
        "{path} is a chunk log of version {found}, this scalpel reads {LOG_VERSION}: use the version that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version found.
        found: u16,
    },
}

#[cfg(test)]
mod tests;
