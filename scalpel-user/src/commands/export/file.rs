//! Where an export goes: stdout, or a file that is complete or not there.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::output::{Aside, FileError};

/// An open way out.
pub(in super::super) enum Destination {
    Stdout(BufWriter<io::StdoutLock<'static>>),
    Aside(Aside),
}

impl Destination {
    /// Opens `path`, or stdout.
    pub(in super::super) fn open(path: Option<&Path>) -> Result<Self, FileError> {
        let Some(path) = path else {
            return Ok(Self::Stdout(BufWriter::new(io::stdout().lock())));
        };
        Ok(Self::Aside(Aside::create(path)?))
    }

    pub(in super::super) fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Stdout(out) => out,
            Self::Aside(aside) => aside.writer(),
        }
    }

    /// Completes it. What stood at the path is kept as `.old`.
    pub(in super::super) fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Stdout(mut out) => out.flush()?,
            Self::Aside(aside) => aside.finish()?,
        }
        Ok(())
    }
}
