//! Where inputs come from when no process is watched: a chunk log, kept or left behind by a killed collector.
//!
//! The session does not know whether it is fed live or from here.

use std::path::Path;

use crate::log::{LogError, Reader};

/// The inputs of a recorded stream; ask [`Reader::ending`] afterwards whether it was whole.
pub fn replay(path: &Path) -> Result<Reader, LogError> {
    Reader::open(path)
}
