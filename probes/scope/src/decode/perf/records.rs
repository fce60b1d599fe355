//! The records of a `perf.data`, read one after the other from the file: memory holds one at a time.
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use super::bytes::{Bytes, Record};
use super::inflate::Inflater;
use super::layout::Attr;

pub(super) const MMAP: u32 = 1;
pub(super) const LOST: u32 = 2;
pub(super) const COMM: u32 = 3;
pub(super) const FORK: u32 = 7;
pub(super) const SAMPLE: u32 = 9;
pub(super) const MMAP2: u32 = 10;
pub(super) const AUX: u32 = 11;
pub(super) const ITRACE_START: u32 = 12;
pub(super) const LOST_SAMPLES: u32 = 13;
pub(super) const SWITCH_CPU_WIDE: u32 = 15;
pub(super) const HEADER_ATTR: u32 = 64;
const TRACING_DATA: u32 = 66;
pub(super) const BUILD_ID: u32 = 67;
pub(super) const AUXTRACE_INFO: u32 = 70;
pub(super) const AUXTRACE: u32 = 71;
pub(super) const TIME_CONV: u32 = 79;
/// A piece of a compressed stream of records: all of the record, or as much as its first word says.
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;

/// Reads records.
#[derive(Debug)]
pub(super) struct Records {
    file: BufReader<File>,
    at: u64,
    end: u64,
    body: Vec<u8>,
    inflater: Inflater,
}

/// How the reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Behind the last record.
    Whole,
    /// In the middle of one.
    Cut,
}

/// Raw bytes that follow a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Raw {
    pub(super) at: u64,
    pub(super) len: u64,
}

impl Raw {
    /// Behind a record that is not in the file as it is.
    pub(super) const NOWHERE: Self = Self { at: 0, len: 0 };
}

impl Records {
    pub(super) fn new(mut file: File, (at, end): (u64, u64)) -> std::io::Result<Self> {
        file.seek(SeekFrom::Start(at))?;
        Ok(Self {
            file: BufReader::with_capacity(1 << 16, file),
            at,
            end,
            body: Vec::new(),
            inflater: Inflater::new(),
        })
    }

    /// Shows each record to `see`, with the raw bytes behind it, which are skipped.
    pub(super) fn each(
        &mut self,
        mut see: impl FnMut(Record<'_>, Raw) -> Result<(), String>,
    ) -> Result<Ending, String> {
        while self.at < self.end {
            let Some((kind, misc)) = self.next() else {
                self.inflater
                    .finish(&mut |record| see(record, Raw::NOWHERE))?;
                return Ok(Ending::Cut);
            };
            let body = Bytes::new(&self.body);
            if let Some(piece) = compressed(kind, body) {
                self.inflater.feed(piece);
                self.inflater
                    .show(&mut |record| see(record, Raw::NOWHERE))?;
                continue;
            }
            let len = raw_len(kind, body);
            let raw = Raw { at: self.at, len };
            see(Record { kind, misc, body }, raw)?;
            if len > self.end.saturating_sub(self.at) {
                return Ok(Ending::Cut);
            }
            let skip = i64::try_from(len).map_err(|error| error.to_string())?;
            self.file
                .seek_relative(skip)
                .map_err(|error| error.to_string())?;
            self.at += len;
        }
        let whole = self
            .inflater
            .finish(&mut |record| see(record, Raw::NOWHERE))?;
        Ok(if whole { Ending::Whole } else { Ending::Cut })
    }

    fn next(&mut self) -> Option<(u32, u16)> {
        let mut head = [0; 8];
        self.file.read_exact(&mut head).ok()?;
        let mut bytes = Bytes::new(&head);
        let (kind, misc, size) = (bytes.u32()?, bytes.u16()?, bytes.u16()?);
        self.body.resize(usize::from(size).checked_sub(8)?, 0);
        self.file.read_exact(&mut self.body).ok()?;
        self.at += u64::from(size);
        Some((kind, misc))
    }
}

/// What a record holds of the compressed stream, if it does.
fn compressed(kind: u32, mut body: Bytes<'_>) -> Option<&[u8]> {
    match kind {
        COMPRESSED => body.take(body.len()),
        COMPRESSED2 => {
            let len = usize::try_from(body.u64()?).ok()?;
            body.take(len)
        }
        _ => None,
    }
}

/// How many raw bytes follow a record that its size does not count.
fn raw_len(kind: u32, mut body: Bytes<'_>) -> u64 {
    match kind {
        AUXTRACE => body.u64().unwrap_or(0),
        TRACING_DATA => u64::from(body.u32().unwrap_or(0)),
        _ => 0,
    }
}

/// Who, when and where: the end of every record but samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SampleId {
    pub(super) pid: Option<u32>,
    pub(super) tid: Option<u32>,
    pub(super) time: Option<u64>,
    pub(super) cpu: Option<u32>,
}

// What a sample holds: bits of `sample_type`.
pub(super) const TID: u64 = 1 << 1;
pub(super) const TIME: u64 = 1 << 2;
pub(super) const ID: u64 = 1 << 6;
pub(super) const CPU: u64 = 1 << 7;
pub(super) const STREAM_ID: u64 = 1 << 9;
pub(super) const IDENTIFIER: u64 = 1 << 16;

impl SampleId {
    pub(super) fn read(attr: &Attr, body: Bytes<'_>) -> Self {
        let mut id = Self::default();
        if !attr.sample_id_all() {
            return id;
        }
        // From the end, as the front has no fixed length.
        let mut behind = 0;
        let mut word = |bit: u64| {
            let set = attr.sample_type & bit != 0;
            let word = body.word_from_end(behind).filter(|_| set);
            behind += usize::from(set);
            word
        };
        word(IDENTIFIER);
        id.cpu = word(CPU).map(|word| word as u32);
        word(STREAM_ID);
        word(ID);
        id.time = word(TIME);
        if let Some(who) = word(TID) {
            id.pid = Some(who as u32);
            id.tid = Some((who >> 32) as u32);
        }
        id
    }
}
