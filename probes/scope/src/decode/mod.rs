//! Traces that standard tools recorded, here or elsewhere, decoded to the steps that ran. It reads files, runs nothing of
//! what they hold, and takes no word of theirs for granted.
mod clock;
mod files;
mod lldb;
mod perf;
mod raw;
mod tasks;

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub use perf::{branch_stacks, packets};

use crate::pt::psb::PSB;
use crate::pt::{Processor, Summary};
use crate::sink::Sink;
use crate::trace::Tier;

/// What is to be decoded, and with what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The recording.
    pub trace: PathBuf,
    /// Code of a raw trace: ELF files or plain bytes, and where each begins.
    pub images: Vec<(PathBuf, Option<u64>)>,
    /// Folders to look for programs and libraries in.
    pub folders: Vec<PathBuf>,
    /// Only this thread.
    pub thread: Option<u32>,
    /// The processor that recorded a raw trace.
    pub processor: Option<Processor>,
}

/// What a decoding came to, beside its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// How the recording was made.
    pub tier: Tier,
    /// How much it is, and how far it can be believed.
    pub summary: Summary,
    /// Files that are missing, or are not the ones that ran: what, why, and what to do.
    pub complaints: Vec<String>,
}

/// Who hears of the way that a decoding has come: bytes done, bytes in all.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64);

/// What is told beside the steps.
struct Told<'p> {
    progress: Progress<'p>,
    complaints: Vec<String>,
}

impl Told<'_> {
    fn progress(&mut self, done: u64, total: u64) {
        (self.progress)(done, total);
    }

    fn complaints(&mut self, all: &[String]) {
        self.complaints.extend_from_slice(all);
    }
}

/// Decodes a recording; its steps go to `sink` as they come.
///
/// # Errors
/// It cannot be read, is no recording that is known, or libipt is needed and not there.
pub fn decode(
    request: &Request,
    sink: &mut dyn Sink,
    progress: Progress<'_>,
) -> Result<Decoded, DecodeError> {
    let mut told = Told {
        progress,
        complaints: Vec::new(),
    };
    let (tier, summary) = match kind(&request.trace)? {
        Kind::RawPt => (Tier::IntelPt, raw::decode(request, sink, &mut told)?),
        Kind::LldbBundle => (Tier::IntelPt, lldb::decode(request, sink, &mut told)?),
        Kind::PerfData => perf::decode(request, sink, &mut told)?,
    };
    Ok(Decoded {
        tier,
        summary,
        complaints: told.complaints,
    })
}

/// A kind of recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What `perf record` wrote.
    PerfData,
    /// A folder with a `trace.json`, as LLDB saves traces.
    LldbBundle,
    /// The packets of Intel PT, and nothing else.
    RawPt,
}

/// Why a recording cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It is no kind of recording that is known.
    #[error("{} is no trace that is known here: give a perf.data, the folder of an LLDB trace bundle, or raw Intel PT", .0.display())]
    Unknown(PathBuf),
    /// It says something that cannot be.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// libipt is missing, or refuses.
    #[error("{0}")]
    Library(String),
    /// A file that was given as code cannot be read.
    #[error("--image {0}")]
    Image(String),
    /// Plain bytes were given as code, and not where they stood.
    #[error("--image {}: it is no ELF file: give its address, FILE@ADDR", .0.display())]
    NoAddress(PathBuf),
    /// A raw trace comes without code.
    #[error("{} holds packets only: give the code that ran, with --image FILE@ADDR", .0.display())]
    NoImage(PathBuf),
    /// It holds no trace of instructions.
    #[error("{} holds no instruction trace: record one with `perf record -e intel_pt//u` or `perf record -b`", .0.display())]
    NoTrace(PathBuf),
}

impl DecodeError {
    fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    fn damaged(path: &Path, why: &dyn Display) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            why: why.to_string(),
        }
    }
}

/// How a `perf.data` begins, written to a file or to a pipe.
const PERF_MAGIC: &[u8] = b"PERFILE2";
/// How far into a file a first synchronisation point is looked for.
const LOOKED_AT: u64 = 1 << 20;

/// What kind of recording `path` is.
///
/// # Errors
/// It cannot be read, or is no recording that is known.
pub fn kind(path: &Path) -> Result<Kind, DecodeError> {
    let io = |source| DecodeError::Io {
        path: path.to_owned(),
        source,
    };
    if path.is_dir() {
        return if path.join("trace.json").is_file() {
            Ok(Kind::LldbBundle)
        } else {
            Err(DecodeError::Unknown(path.to_owned()))
        };
    }
    let mut head = Vec::new();
    let file = File::open(path).map_err(io)?;
    file.take(LOOKED_AT).read_to_end(&mut head).map_err(io)?;
    if head.starts_with(PERF_MAGIC) {
        Ok(Kind::PerfData)
    } else if head.windows(PSB.len()).any(|bytes| bytes == PSB) {
        Ok(Kind::RawPt)
    } else if path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        Ok(Kind::LldbBundle)
    } else {
        Err(DecodeError::Unknown(path.to_owned()))
    }
}
