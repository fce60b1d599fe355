//! Heads: of the file and of each chunk. Must not know what a payload holds.

use scalpel_common::event::EVENT_VERSION;

use super::codec::{Get, Malformed, Put};

/// Version of the chunk log's layout.
pub const LOG_VERSION: u16 = 1;

/// Longest payload in bytes. A longer one is a damaged head; the writer splits events before that.
pub const MAX_PAYLOAD: usize = 64 << 20;

pub(super) const FILE_MAGIC: [u8; 8] = *b"SCALPLOG";
pub(super) const FILE_HEAD: usize = 16;
pub(super) const CHUNK_HEAD: usize = 48;
const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"CHNK");

/// Time range of a chunk and what had been lost by its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Earliest time in the chunk, `CLOCK_MONOTONIC` ns; 0 if nothing in it has a time.
    pub first_ns: u64,
    /// Latest time in the chunk.
    pub last_ns: u64,
    /// Events lost up to here, over all classes, as the last loss counters said.
    pub lost: u64,
}

pub(super) fn file_head() -> [u8; FILE_HEAD] {
    let mut head = Vec::with_capacity(FILE_HEAD);
    Put(&mut head)
        .bytes(&FILE_MAGIC)
        .bytes(&LOG_VERSION.to_le_bytes())
        .bytes(&EVENT_VERSION.to_le_bytes())
        .u32(0);
    head.first_chunk().copied().unwrap_or_default()
}

/// Version of a log's layout and of its events; `None` if this is no log.
pub(super) fn read_file_head(head: &[u8; FILE_HEAD]) -> Option<(u16, u16)> {
    let mut get = Get(head);
    if get.array::<8>().ok()? != FILE_MAGIC {
        return None;
    }
    Some((
        u16::from_le_bytes(get.array().ok()?),
        u16::from_le_bytes(get.array().ok()?),
    ))
}

/// Head of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHead {
    /// Payload length in bytes.
    pub(super) length: u32,
    /// CRC-32 (IEEE) of the head after this field, then of the payload.
    pub(super) crc: u32,
    /// What the payload is.
    pub(super) kind: u32,
    /// Inputs or events in the payload.
    pub(super) count: u32,
    pub(super) span: Span,
}

impl ChunkHead {
    /// Appends head and payload to `out`.
    pub(super) fn append(kind: u32, count: u32, span: Span, payload: &[u8], out: &mut Vec<u8>) {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut head = Self {
            length,
            crc: 0,
            kind,
            count,
            span,
        };
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&head.checked_part());
        hasher.update(payload);
        head.crc = hasher.finalize();
        let checked = head.checked_part();
        Put(out)
            .u32(CHUNK_MAGIC)
            .u32(head.length)
            .u32(head.crc)
            .bytes(&checked)
            .bytes(payload);
    }

    /// Fields after the CRC, as on disk.
    fn checked_part(&self) -> [u8; CHUNK_HEAD - 12] {
        let mut part = Vec::with_capacity(CHUNK_HEAD - 12);
        let span = self.span;
        Put(&mut part)
            .u32(self.kind)
            .u32(self.count)
            .u32(0)
            .u64(span.first_ns)
            .u64(span.last_ns)
            .u64(span.lost);
        part.first_chunk().copied().unwrap_or([0; CHUNK_HEAD - 12])
    }

    pub(super) fn read(head: &[u8; CHUNK_HEAD]) -> Result<Self, Malformed> {
        let mut get = Get(head);
        if get.u32()? != CHUNK_MAGIC {
            return Err(Malformed("no chunk begins here"));
        }
        let (length, crc, kind, count, _reserved) =
            (get.u32()?, get.u32()?, get.u32()?, get.u32()?, get.u32()?);
        if length as usize > MAX_PAYLOAD {
            return Err(Malformed("a chunk of impossible length"));
        }
        let span = Span {
            first_ns: get.u64()?,
            last_ns: get.u64()?,
            lost: get.u64()?,
        };
        Ok(Self {
            length,
            crc,
            kind,
            count,
            span,
        })
    }

    /// Whether head and payload are what was written.
    pub(super) fn is_sound(&self, head: &[u8; CHUNK_HEAD], payload: &[u8]) -> bool {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(head.get(12..).unwrap_or_default());
        hasher.update(payload);
        hasher.finalize() == self.crc
    }
}
