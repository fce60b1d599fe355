//! Functions that a runtime compiled into memory, from a jitdump: the binary file that perf reads too, with the code in it
//! (tools/perf/Documentation/jitdump-specification.txt). A stranger's bytes: what does not fit ends the reading.

/// `JiTD`, as it stands in a little-endian file.
const MAGIC: &[u8] = b"DTiJ";
const CODE_LOAD: u32 = 0;
/// Bytes before a record's own: id, size, time.
const RECORD_HEAD: usize = 16;
/// Bytes of a load before the name: pid, tid, address, code address, code size, index.
const LOAD_HEAD: usize = 40;

/// One compiled function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) name: String,
}

/// The functions of a dump in the order they were compiled.
pub(super) fn parse(bytes: &[u8]) -> Vec<Load> {
    let mut loads = Vec::new();
    let head = bytes
        .strip_prefix(MAGIC)
        .and_then(|rest| number(rest, 4))
        .and_then(|size| usize::try_from(size).ok());
    let Some(mut rest) = head.and_then(|size| bytes.get(size..)) else {
        return loads;
    };
    while let (Some(id), Some(size)) = (number(rest, 0), number(rest, 4)) {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let Some(record) = rest.get(RECORD_HEAD..size) else {
            break;
        };
        if id == CODE_LOAD {
            loads.extend(load(record));
        }
        rest = rest.get(size..).unwrap_or_default();
    }
    loads
}

fn load(record: &[u8]) -> Option<Load> {
    let name = record.get(LOAD_HEAD..)?;
    let end = name.iter().position(|&byte| byte == 0)?;
    Some(Load {
        start: long(record, 16)?,
        size: long(record, 24)?,
        name: String::from_utf8_lossy(name.get(..end)?).into_owned(),
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump() -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for word in [1_u32, 40, 62, 0, 7] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([0; 16]);
        for (id, name) in [(CODE_LOAD, "first"), (9, "other"), (CODE_LOAD, "second")] {
            let size = RECORD_HEAD + LOAD_HEAD + name.len() + 1 + 3;
            bytes.extend(u32::to_le_bytes(id));
            bytes.extend(u32::try_from(size).unwrap().to_le_bytes());
            bytes.extend([0; 8]);
            bytes.extend([0; 8]);
            for word in [0x1000_u64, 0x2000, 3, 1] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(name.bytes());
            bytes.extend([0, 0x90, 0x90, 0xc3]);
        }
        bytes
    }

    #[test]
    fn loads_are_read_and_other_records_passed_by() {
        let load = |name: &str| Load {
            start: 0x2000,
            size: 3,
            name: name.into(),
        };
        assert_eq!(parse(&dump()), [load("first"), load("second")]);
    }

    #[test]
    fn a_dump_that_is_cut_gives_what_is_whole() {
        let whole = dump();
        for length in 0..whole.len() {
            assert!(parse(&whole[..length]).len() <= 1, "{length}");
        }
        assert!(parse(b"not a dump at all, whatever its length is").is_empty());
    }
}
