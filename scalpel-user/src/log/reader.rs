//! Reads a chunk log up to its end or up to where it was cut or damaged. Never a panic, whatever the bytes.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::LogError;
use super::chunk::{CHUNK_HEAD, ChunkHead, FILE_HEAD, LOG_VERSION, Span, read_file_head};
use super::payload;
use crate::input::Input;

/// Where and why reading stopped before the recording's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Offset of the first chunk that could not be read, in bytes: everything before it was read.
    pub at: u64,
    /// Why, for people.
    pub reason: String,
}

/// How a log ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Not read to its end yet.
    Reading,
    /// By [`Input::End`]: the recording is whole.
    Whole,
    /// Before that.
    Cut(Cut),
}

/// The inputs of a chunk log, in the order they were written.
#[derive(Debug)]
pub struct Reader<R: Read = BufReader<File>> {
    source: R,
    payload: Vec<u8>,
    at: u64,
    ended: bool,
    ending: Ending,
    unknown_chunks: u64,
    span: Span,
}

impl Reader {
    /// Opens a log.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let file = File::open(path).map_err(|source| LogError::Open {
            path: path.into(),
            source,
        })?;
        Self::new(BufReader::with_capacity(1 << 18, file), path)
    }
}

impl<R: Read> Reader<R> {
    /// Reads from `source`; `path` is for messages. A log that was cut inside its own head holds no inputs.
    pub fn new(mut source: R, path: &Path) -> Result<Self, LogError> {
        let mut head = [0; FILE_HEAD];
        let got = fill(&mut source, &mut head).map_err(|source| LogError::Open {
            path: path.into(),
            source,
        })?;
        let reader = |ending| Self {
            source,
            payload: Vec::new(),
            at: got as u64,
            ended: false,
            ending,
            unknown_chunks: 0,
            span: Span::default(),
        };
        if got < FILE_HEAD
            && super::chunk::file_head().starts_with(head.get(..got).unwrap_or_default())
        {
            return Ok(reader(Ending::Cut(Cut {
                at: 0,
                reason: "the file ends inside its head".into(),
            })));
        }
        match read_file_head(&head) {
            Some((LOG_VERSION, _events)) => Ok(reader(Ending::Reading)),
            Some((found, _events)) => Err(LogError::Version {
                path: path.into(),
                found,
            }),
            None => Err(LogError::NotALog { path: path.into() }),
        }
    }

    /// How the log ended; [`Ending::Reading`] until the iterator is done.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Chunks skipped because this version does not know their kind.
    pub fn unknown_chunks(&self) -> u64 {
        self.unknown_chunks
    }

    /// Time range and losses of the chunk that was read last.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The next chunk: `Ok(None)` at the end of the file.
    fn chunk(&mut self) -> Result<Option<ChunkHead>, String> {
        let mut bytes = [0; CHUNK_HEAD];
        match fill(&mut self.source, &mut bytes).map_err(|error| error.to_string())? {
            0 => return Ok(None),
            CHUNK_HEAD => {}
            _ => return Err("the file ends inside a chunk's head".into()),
        }
        let head = ChunkHead::read(&bytes).map_err(|malformed| malformed.to_string())?;
        self.payload.clear();
        let length = u64::from(head.length);
        self.source
            .by_ref()
            .take(length)
            .read_to_end(&mut self.payload)
            .map_err(|error| error.to_string())?;
        if self.payload.len() as u64 != length {
            return Err("the file ends inside a chunk".into());
        }
        if head.is_sound(&bytes, &self.payload) {
            Ok(Some(head))
        } else {
            Err("wrong checksum".into())
        }
    }

    fn next_input(&mut self) -> Result<Option<Input>, String> {
        while let Some(head) = self.chunk()? {
            let input = payload::get(head.kind, &self.payload)
                .map_err(|malformed| malformed.to_string())?;
            self.at += CHUNK_HEAD as u64 + u64::from(head.length);
            self.span = head.span;
            match input {
                Some(input) => return Ok(Some(input)),
                None => self.unknown_chunks += 1,
            }
        }
        Ok(None)
    }

    fn stop(&mut self, reason: String) {
        self.ending = Ending::Cut(Cut {
            at: self.at,
            reason,
        });
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Input;

    fn next(&mut self) -> Option<Input> {
        if self.ending != Ending::Reading {
            return None;
        }
        match self.next_input() {
            Ok(Some(input)) => {
                self.ended |= matches!(input, Input::End(_));
                return Some(input);
            }
            Ok(None) if self.ended => self.ending = Ending::Whole,
            Ok(None) => self.stop("the recording has no end: its collector was killed".into()),
            Err(reason) => self.stop(reason),
        }
        None
    }
}

/// Reads until `buffer` is full or the source ends; returns how many bytes came.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
