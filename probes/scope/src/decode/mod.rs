//! Traces that standard tools recorded, here or elsewhere: what kind of recording a file is.
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

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
    /// There is nothing here that decodes its kind.
    #[error("{0:?} is not decoded by this build")]
    NotRead(Kind),
}

/// How a `perf.data` begins, written to a file or to a pipe.
const PERF_MAGIC: &[u8] = b"PERFILE2";
/// The synchronisation point that Intel PT can be decoded from.
const PSB: &[u8] = &[
    2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82,
];
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
