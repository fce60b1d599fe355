//! Records that `perf record -z` compressed: one stream of Zstandard that goes on from record to record, cut anywhere. One
//! block of it is taken at a time, so that memory stays small however much comes out.
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::bytes::{Bytes, Record};

/// Longest head of a frame, and longest content of a block, that there are.
const LONGEST_HEAD: usize = 18;
const LONGEST_BLOCK: usize = 128 << 10;
/// A checksum stands behind the last block.
const CHECKSUM: u8 = 1 << 2;
/// A last block without content: perf never writes one, and what is held back for it comes out behind it.
const LAST: [u8; 3] = [1, 0, 0];
/// Longest record.
const LONGEST_RECORD: usize = 1 << 16;

/// The stream on its way.
pub(super) struct Inflater {
    decoder: FrameDecoder,
    within: bool,
    /// Bytes behind the last block of this frame.
    checksum: usize,
    /// What has not been taken yet.
    input: Vec<u8>,
    /// What came out and was not shown.
    ready: Vec<u8>,
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflater")
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}

impl Inflater {
    pub(super) fn new() -> Self {
        Self {
            decoder: FrameDecoder::new(),
            within: false,
            checksum: 0,
            input: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// The next piece of the stream.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// No more pieces come. Whether the stream ends between two records.
    pub(super) fn finish(
        &mut self,
        see: &mut dyn FnMut(Record<'_>) -> Result<(), String>,
    ) -> Result<bool, String> {
        let whole = self.input.is_empty();
        if self.within {
            self.input = LAST.to_vec();
            self.input.resize(LAST.len() + self.checksum, 0);
            self.show(see)?;
        }
        Ok(whole && self.ready.is_empty())
    }

    /// Shows each record that is whole.
    pub(super) fn show(
        &mut self,
        see: &mut dyn FnMut(Record<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut at = 0;
        while let Some(used) = self.take(at)? {
            at += used;
            self.records(see)?;
        }
        self.input.drain(..at);
        Ok(())
    }

    fn records(
        &mut self,
        see: &mut dyn FnMut(Record<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut rest = Bytes::new(&self.ready);
        while let Some(record) = rest.record() {
            see(record)?;
        }
        let left = rest.len();
        if left >= LONGEST_RECORD {
            return Err("a compressed record of it has no size".into());
        }
        self.ready.drain(..self.ready.len() - left);
        Ok(())
    }

    /// Takes a head or a block; how long it is, `None` if it is not all there.
    fn take(&mut self, at: usize) -> Result<Option<usize>, String> {
        let rest = self.input.get(at..).unwrap_or_default();
        let mut source = rest;
        if !self.within {
            if rest.is_empty() {
                return Ok(None);
            }
            return match self.decoder.init(&mut source) {
                Ok(()) => {
                    self.within = true;
                    let flags = rest.get(4).copied().unwrap_or(0);
                    self.checksum = if flags & CHECKSUM != 0 { 4 } else { 0 };
                    Ok(Some(rest.len() - source.len()))
                }
                Err(_) if rest.len() < LONGEST_HEAD => Ok(None),
                Err(error) => Err(damaged(&error)),
            };
        }
        match block_len(rest, self.checksum) {
            Some(len) if len > LONGEST_BLOCK + 7 => return Err(damaged(&"a block is too long")),
            Some(len) if rest.len() >= len => {}
            _ => return Ok(None),
        }
        let one = BlockDecodingStrategy::UptoBlocks(1);
        let done = self.decoder.decode_blocks(&mut source, one);
        let done = done.map_err(|error| damaged(&error))?;
        self.within = !done;
        self.ready
            .extend(self.decoder.collect().unwrap_or_default());
        Ok(Some(rest.len() - source.len()))
    }
}

fn damaged(why: &dyn std::fmt::Display) -> String {
    format!("its compressed records cannot be read: {why}")
}

/// How long a block is, with its head and what stands behind the last one.
fn block_len(bytes: &[u8], behind: usize) -> Option<usize> {
    const REPEATED: u32 = 1;
    let [a, b, c, ..] = *bytes else {
        return None;
    };
    let head = u32::from_le_bytes([a, b, c, 0]);
    let content = match head >> 1 & 3 {
        REPEATED => 1,
        _ => usize::try_from(head >> 3).unwrap_or(usize::MAX),
    };
    let last = head & 1 != 0;
    Some(LAST.len() + content + if last { behind } else { 0 })
}
