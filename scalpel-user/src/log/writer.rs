//! Appends inputs to a chunk log. A failed write ends the log cleanly and is reported once.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::LogError;
use super::chunk::{ChunkHead, MAX_PAYLOAD, file_head};
use super::payload::{self, EVENTS};
use crate::event::{EVENT_SIZE, Event};
use crate::input::Input;

/// What is not flushed is lost when the collector is killed: at most this long ...
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// ... and at most this much, in bytes.
const FLUSH_AT: usize = 1 << 20;

/// Writes a chunk log. Buffered: [`Writer::write`] touches the file at most once per MiB or second.
#[derive(Debug)]
pub struct Writer<W: Write = File> {
    path: PathBuf,
    out: W,
    buffer: Vec<u8>,
    payload: Vec<u8>,
    flushed: Instant,
    written: u64,
    lost: u64,
    failed: bool,
}

impl Writer {
    /// Creates the file, or empties it.
    pub fn create(path: &Path) -> Result<Self, LogError> {
        let file = File::create(path).map_err(|source| LogError::Create {
            path: path.into(),
            source,
        })?;
        Ok(Self::new(file, path))
    }
}

impl<W: Write> Writer<W> {
    /// Writes to `out`; `path` is for messages.
    pub fn new(out: W, path: &Path) -> Self {
        Self {
            path: path.into(),
            out,
            buffer: file_head().to_vec(),
            payload: Vec::new(),
            flushed: Instant::now(),
            written: 0,
            lost: 0,
            failed: false,
        }
    }

    /// Appends one input. After an error has been reported the writer takes everything and writes nothing.
    pub fn write(&mut self, input: &Input) -> Result<(), LogError> {
        if self.failed {
            return Ok(());
        }
        match input {
            Input::Events(events) => events
                .chunks(MAX_PAYLOAD / EVENT_SIZE)
                .for_each(|part| self.append_events(part)),
            _ => self.append(input),
        }
        self.flush_if(FLUSH_AT)
    }

    /// Flushes what is older than a second: call it when no input came for a while.
    pub fn tick(&mut self) -> Result<(), LogError> {
        self.flush_if(FLUSH_AT)
    }

    /// Hands all inputs so far to the system.
    pub fn flush(&mut self) -> Result<(), LogError> {
        self.flush_if(0)
    }

    /// Bytes handed to the system so far.
    pub fn written_bytes(&self) -> u64 {
        self.written
    }

    /// Whether a write failed: the log holds the recording up to that moment only.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Flushes and gives the file back, to be synced or closed.
    pub fn finish(mut self) -> Result<W, LogError> {
        self.flush()?;
        Ok(self.out)
    }

    fn append_events(&mut self, events: &[Event]) {
        self.payload.clear();
        let count = payload::put_events(events, &mut self.payload);
        self.append_chunk(EVENTS, count, payload::events_span(events, self.lost));
    }

    fn append(&mut self, input: &Input) {
        if let Input::Losses(losses) = input {
            self.lost = losses
                .iter()
                .map(|loss| loss.count)
                .fold(0, u64::saturating_add);
        }
        self.payload.clear();
        let (kind, count) = payload::put(input, &mut self.payload);
        self.append_chunk(kind, count, payload::span(input, self.lost));
    }

    fn append_chunk(&mut self, kind: u32, count: usize, span: super::Span) {
        let payload = mem::take(&mut self.payload);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        ChunkHead::append(kind, count, span, &payload, &mut self.buffer);
        self.payload = payload;
    }

    fn flush_if(&mut self, at: usize) -> Result<(), LogError> {
        if self.failed
            || self.buffer.is_empty()
            || (self.buffer.len() < at && self.flushed.elapsed() < FLUSH_AFTER)
        {
            return Ok(());
        }
        let written = self
            .out
            .write_all(&self.buffer)
            .and_then(|()| self.out.flush());
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.flushed = Instant::now();
        written.map_err(|source| self.fail(source))
    }

    fn fail(&mut self, source: io::Error) -> LogError {
        self.failed = true;
        self.buffer = Vec::new();
        LogError::Write {
            path: self.path.clone(),
            source,
        }
    }
}
