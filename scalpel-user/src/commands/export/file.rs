//! Where an export goes: stdout, or a file that is complete or not there.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::output::{FileError, keep_old, open_private, suffixed};

/// An open way out.
pub(super) enum Destination {
    Stdout(BufWriter<io::StdoutLock<'static>>),
    Aside(Aside),
}

/// A file under another name until it is complete; removed if it never is.
pub(super) struct Aside {
    file: BufWriter<File>,
    aside: PathBuf,
    path: PathBuf,
    done: bool,
}

impl Destination {
    /// Opens `path`, or stdout.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, FileError> {
        let Some(path) = path else {
            return Ok(Self::Stdout(BufWriter::new(io::stdout().lock())));
        };
        let aside = suffixed(path, &format!(".{}.part", std::process::id()));
        let file = BufWriter::with_capacity(1 << 16, open_private(&aside)?);
        Ok(Self::Aside(Aside {
            file,
            aside,
            path: path.to_owned(),
            done: false,
        }))
    }

    pub(super) fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Stdout(out) => out,
            Self::Aside(aside) => &mut aside.file,
        }
    }

    /// Completes it. What stood at the path is kept as `.old`.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Stdout(mut out) => out.flush()?,
            Self::Aside(mut aside) => aside.finish()?,
        }
        Ok(())
    }
}

impl Aside {
    fn finish(&mut self) -> Result<(), FileError> {
        let failed = |error| FileError::new(&self.path, error);
        let written = self.file.flush();
        written
            .and_then(|()| self.file.get_ref().sync_all())
            .map_err(failed)?;
        keep_old(&self.path)?;
        fs::rename(&self.aside, &self.path).map_err(failed)?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.done {
            // Why it is not complete is said elsewhere.
            drop(fs::remove_file(&self.aside));
        }
    }
}
