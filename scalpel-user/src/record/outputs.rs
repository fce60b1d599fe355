//! The files of a recording: the chunk log while it runs, the genome in its place at the end.
//!
//! The log stands at the genome's path until the genome takes it over in one rename: a killed collector leaves a file
//! under the name that the user knows, and `report` reads both kinds.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::catalog::Kept;
use crate::genome::Genome;
use crate::log::{LogError, Writer};
use crate::output::{FileError, give_to_caller, keep_old, open_private, suffixed};
use crate::plan::{self, Destination};

/// Where things go.
#[derive(Debug)]
pub(super) struct Outputs {
    writer: Option<Writer>,
    log: PathBuf,
    genome: Destination,
    keep_log: bool,
}

impl Outputs {
    /// Creates the log, if anything is to be kept. What stood at the path is kept as `.old`.
    pub(super) fn create(outputs: &plan::Outputs) -> Result<Self> {
        let log = match (&outputs.stream, &outputs.genome) {
            (Some(stream), _) => stream.clone(),
            (None, Destination::File(genome)) => genome.clone(),
            (None, Destination::Stdout) => {
                std::env::temp_dir().join(format!("scalpel-{}.log", std::process::id()))
            }
            (None, Destination::Nowhere) => {
                return Ok(Self {
                    writer: None,
                    log: PathBuf::new(),
                    genome: Destination::Nowhere,
                    keep_log: false,
                });
            }
        };
        if let Some(genome) = outputs.genome.file().filter(|genome| **genome != log) {
            // Found out now, not after an hour of recording.
            writable(genome)?;
        }
        keep_old(&log)?;
        let file = open_private(&log)?;
        Ok(Self {
            writer: Some(Writer::new(file, &log)),
            log,
            genome: outputs.genome.clone(),
            keep_log: outputs.stream.is_some(),
        })
    }

    /// The log, as long as it can be written.
    pub(super) fn writer(&mut self) -> Option<&mut Writer> {
        self.writer.as_mut()
    }

    /// What is known of sources from the recording before this one, at the same place.
    pub(super) fn kept(&self) -> Kept {
        let before = self.genome.file().map(|path| {
            // The log took the place of an old genome; one that stands elsewhere is replaced at the end.
            if *path == self.log {
                suffixed(path, ".old")
            } else {
                path.clone()
            }
        });
        before
            .and_then(|path| Kept::read_of_any(&path).ok())
            .unwrap_or_default()
    }

    /// Where the log is.
    pub(super) fn log_path(&self) -> &Path {
        &self.log
    }

    /// Flushes and closes the log.
    pub(super) fn close_log(&mut self) -> Result<(), LogError> {
        self.writer
            .take()
            .map_or(Ok(()), |writer| writer.finish().map(drop))
    }

    /// Writes the genome where the user wants it; for stdout, gives its bytes.
    pub(super) fn publish(&self, genome: &Genome) -> Result<Option<Vec<u8>>> {
        if self.genome == Destination::Nowhere {
            return Ok(None);
        }
        let Destination::File(path) = &self.genome else {
            let aside = suffixed(&self.log, ".genome");
            genome.write(&aside)?;
            let bytes = fs::read(&aside);
            fs::remove_file(&aside)?;
            self.drop_log()?;
            return Ok(Some(bytes?));
        };
        if *path == self.log {
            let aside = suffixed(path, ".new");
            genome.write(&aside)?;
            give_to_caller(&aside)?;
            fs::rename(&aside, path)?;
        } else {
            genome.write(path)?;
            give_to_caller(path)?;
        }
        Ok(None)
    }

    fn drop_log(&self) -> std::io::Result<()> {
        if self.keep_log {
            Ok(())
        } else {
            fs::remove_file(&self.log)
        }
    }
}

fn writable(path: &Path) -> Result<(), FileError> {
    let probe = suffixed(path, &format!(".{}.part", std::process::id()));
    drop(open_private(&probe)?);
    fs::remove_file(&probe).map_err(|error| FileError::new(path, error))
}
