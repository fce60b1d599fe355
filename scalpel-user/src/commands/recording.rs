//! A recording on disk: a genome, or the stream of a recording that was cut short.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::genome::Genome;
use crate::genome::merge::Merged;
use crate::image::Pattern;
use crate::log::Ending;
use crate::output::{Output, PrivateFolder};
use crate::plan::words;
use crate::session::Session;
use crate::source;

/// How a chunk log begins.
const LOG_MAGIC: &[u8] = b"SCALPLOG";

/// A recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordingError {
    /// There is no such file.
    #[error("there is no {}{}", path.display(), hint(path))]
    Missing {
        /// As asked for.
        path: PathBuf,
    },
    /// The system said no.
    #[error("cannot read {}", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// What it said.
        #[source]
        source: std::io::Error,
    },
}

/// The functions that a `--func` means.
pub(super) fn pattern(func: Option<&words::Pattern>) -> anyhow::Result<Option<Pattern>> {
    Ok(func
        .map(|func| Pattern::parse(&func.to_string()))
        .transpose()?)
}

/// Reads a genome; rebuilds it if the file is a stream, as a killed recording leaves it behind.
pub(super) fn open(path: &Path, output: &Output) -> anyhow::Result<Genome> {
    if is_stream(path)? {
        recover(path, output)
    } else {
        Ok(Genome::read(path)?)
    }
}

/// All recordings of a file, and what exists; a stream is rebuilt.
pub(super) fn open_merged(path: &Path, output: &Output) -> anyhow::Result<Merged> {
    if is_stream(path)? {
        recover(path, output).map(Merged::from)
    } else {
        Ok(Merged::read(path)?)
    }
}

/// The same with what a later `genome build` needs: for those who write it again.
pub(super) fn open_whole(path: &Path, output: &Output) -> anyhow::Result<Merged> {
    if is_stream(path)? {
        recover(path, output).map(Merged::from)
    } else {
        Ok(Merged::read_whole(path)?)
    }
}

/// The genome of a stream.
pub(super) fn recover(path: &Path, output: &Output) -> anyhow::Result<Genome> {
    let mut reader = source::replay(path)?;
    let mut session = Session::new();
    for input in reader.by_ref() {
        session.feed(input);
    }
    if let Ending::Cut(cut) = reader.ending() {
        output.warn(&format!(
            "{} is cut at byte {}: {}; shown is everything before it",
            path.display(),
            cut.at,
            cut.reason
        ));
    }
    Ok(session.finish()?)
}

/// Writes a genome to a file, or to stdout for `-`.
pub(super) fn write(genome: &Genome, path: &Path, output: &Output) -> anyhow::Result<()> {
    if path != Path::new("-") {
        genome.write(path)?;
        output.say(&format!("wrote {}", path.display()));
        return Ok(());
    }
    // SQLite needs a file to write to.
    let folder = PrivateFolder::new()?;
    let file = folder.path().join("genome");
    genome.write(&file)?;
    std::io::copy(&mut File::open(&file)?, &mut std::io::stdout().lock())?;
    Ok(())
}

pub(super) fn is_stream(path: &Path) -> Result<bool, RecordingError> {
    let mut head = Vec::with_capacity(LOG_MAGIC.len());
    let read =
        File::open(path).and_then(|file| file.take(LOG_MAGIC.len() as u64).read_to_end(&mut head));
    match read {
        Ok(_) => Ok(head == LOG_MAGIC),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(RecordingError::Missing {
            path: path.to_owned(),
        }),
        Err(source) => Err(RecordingError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

fn hint(path: &Path) -> &'static str {
    if path == Path::new("scalpel.genome") {
        "; `sudo scalpel-ebpf record -p PID` makes one, or give the FILE to show"
    } else {
        ""
    }
}
