//! The file that `perf record` writes: header, event attributes, feature sections, and where its records are. Everything
//! in it may be wrong: what does not fit is an error or is left out, and nothing is believed about sizes.
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use super::bytes::Bytes;

/// Sections larger than this are not read into memory.
const LARGEST: u64 = 64 << 20;
const PIPE_HEADER: u64 = 16;
const BUILD_IDS: u32 = 2;
const CPUID: u32 = 9;
const COMPRESSED: u32 = 27;

/// One event of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attr {
    pub(super) kind: u32,
    pub(super) config: u64,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) flags: u64,
    pub(super) branch_sample_type: u64,
    /// Registers that samples hold: of user code, and at the interrupt.
    pub(super) registers: [u64; 2],
    pub(super) ids: Vec<u64>,
}

impl Attr {
    /// `struct perf_event_attr`, of whatever version.
    pub(super) fn read(mut bytes: Bytes<'_>) -> Option<Self> {
        let kind = bytes.u32()?;
        bytes.u32()?;
        let config = bytes.u64()?;
        bytes.u64()?;
        let sample_type = bytes.u64()?;
        let read_format = bytes.u64()?;
        let flags = bytes.u64()?;
        bytes.skip(8 + 8 + 8)?;
        // Older attributes end earlier.
        let mut word = || bytes.u64().unwrap_or(0);
        let (branch_sample_type, of_user) = (word(), word());
        word();
        Some(Self {
            kind,
            config,
            sample_type,
            read_format,
            flags,
            branch_sample_type,
            registers: [of_user, word()],
            ids: Vec::new(),
        })
    }

    /// Whether other records than samples end in who, when and where.
    pub(super) fn sample_id_all(&self) -> bool {
        self.flags & 1 << 18 != 0
    }
}

/// A recording's frame.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) attrs: Vec<Attr>,
    /// Where the records are: first byte, and behind the last one.
    pub(super) records: (u64, u64),
    /// Build-ids by path.
    pub(super) build_ids: HashMap<PathBuf, Vec<u8>>,
    /// Vendor, family, model, stepping.
    pub(super) cpuid: Option<String>,
}

impl Layout {
    /// Reads it.
    pub(super) fn read(file: &mut File) -> Result<Self, String> {
        let all = file.metadata().map_err(|error| error.to_string())?.len();
        let head = section(file, 0, 104.min(all))?;
        let mut bytes = Bytes::new(&head);
        bytes.skip(8);
        let size = bytes.u64().ok_or("its header is cut")?;
        if size == PIPE_HEADER {
            // Written to a pipe: the attributes are records too.
            return Ok(Self {
                records: (PIPE_HEADER, all),
                ..Self::default()
            });
        }
        let mut word = || bytes.u64().ok_or("its header is cut");
        let (attr_size, attrs_at, attrs_len) = (word()?, word()?, word()?);
        let (data_at, data_len) = (word()?, word()?);
        let (_, _) = (word()?, word()?);
        let features = word()?;
        let mut layout = Self {
            attrs: attrs(file, attr_size, attrs_at, attrs_len)?,
            records: (data_at, data_at.saturating_add(data_len).min(all)),
            ..Self::default()
        };
        layout.features(file, features, data_at.saturating_add(data_len))?;
        Ok(layout)
    }

    /// The sections behind the records: a table of them, in the order of their numbers.
    fn features(&mut self, file: &mut File, set: u64, table: u64) -> Result<(), String> {
        let numbers: Vec<u32> = (0..64).filter(|bit| set & 1 << bit != 0).collect();
        let Ok(head) = section(file, table, 16 * numbers.len() as u64) else {
            // A recording that was cut short has none.
            return Ok(());
        };
        let mut head = Bytes::new(&head);
        for number in numbers {
            let (Some(at), Some(len)) = (head.u64(), head.u64()) else {
                return Ok(());
            };
            if !matches!(number, BUILD_IDS | CPUID | COMPRESSED) {
                continue;
            }
            let Ok(content) = section(file, at, len) else {
                continue;
            };
            match number {
                BUILD_IDS => self.build_ids(&content),
                CPUID => self.cpuid = text(&content),
                _ => zstandard(&content)?,
            }
        }
        Ok(())
    }

    fn build_ids(&mut self, content: &[u8]) {
        let mut rest = Bytes::new(content);
        while let Some(record) = rest.record() {
            if let Some((path, id)) = build_id(record.misc, record.body) {
                self.build_ids.insert(path, id);
            }
        }
    }
}

/// A build-id as the table and the records of a pipe tell it.
pub(super) fn build_id(misc: u16, body: Bytes<'_>) -> Option<(PathBuf, Vec<u8>)> {
    /// The size of the build-id is told.
    const SIZED: u16 = 1 << 15;
    let mut body = body;
    body.skip(4)?;
    let id = body.take(24)?;
    let path = PathBuf::from(body.text());
    let len = if misc & SIZED != 0 {
        usize::from(*id.get(20)?).min(20)
    } else {
        20
    };
    Some((path, id.get(..len)?.to_vec()))
}

/// Refuses what is compressed by another rule than the one there is.
fn zstandard(content: &[u8]) -> Result<(), String> {
    const ZSTANDARD: u32 = 1;
    let mut bytes = Bytes::new(content);
    match (bytes.u32(), bytes.u32()) {
        (Some(_), Some(ZSTANDARD)) => Ok(()),
        _ => Err("its records are compressed by a rule that is not known here".into()),
    }
}

/// A string of a feature section: its length and its bytes.
fn text(content: &[u8]) -> Option<String> {
    let mut bytes = Bytes::new(content);
    bytes.u32()?;
    Some(bytes.text())
}

fn attrs(file: &mut File, size: u64, at: u64, len: u64) -> Result<Vec<Attr>, String> {
    const IDS: usize = 16;
    let content = section(file, at, len)?;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size <= IDS || content.len() < size {
        return Err("it has no event".into());
    }
    let mut all = Vec::new();
    for entry in content.chunks_exact(size) {
        let (attr, ids) = entry.split_at_checked(size - IDS).unwrap_or((entry, &[]));
        let mut attr = Attr::read(Bytes::new(attr)).ok_or("an event of it is cut")?;
        let mut ids = Bytes::new(ids);
        if let (Some(at), Some(len)) = (ids.u64(), ids.u64()) {
            let ids = section(file, at, len).unwrap_or_default();
            let mut ids = Bytes::new(&ids);
            while let Some(id) = ids.u64() {
                attr.ids.push(id);
            }
        }
        all.push(attr);
    }
    Ok(all)
}

fn section(file: &mut File, at: u64, len: u64) -> Result<Vec<u8>, String> {
    if len > LARGEST {
        return Err(format!("a section of it has {len} bytes"));
    }
    let mut content = Vec::new();
    let read = file
        .seek(SeekFrom::Start(at))
        .and_then(|_| file.take(len).read_to_end(&mut content));
    read.map_err(|error| error.to_string())?;
    if (content.len() as u64) < len {
        return Err("it is cut short".into());
    }
    Ok(content)
}
