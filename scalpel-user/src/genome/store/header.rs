//! The first 100 bytes of a SQLite file, checked before SQLite sees it: they tell most wrong files apart, with a
//! message that says what is wrong.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{GenomeError, schema};

/// <https://www.sqlite.org/fileformat2.html#the_database_header>
const LENGTH: usize = 100;
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Refuses what is no genome of a version that this scalpel reads, or not all of one.
pub(super) fn check(path: &Path) -> Result<Head, GenomeError> {
    let metadata = std::fs::metadata(path).map_err(GenomeError::io("open", path))?;
    if !metadata.is_file() {
        return Err(not_a_genome(path, "not a regular file"));
    }
    let mut header = [0u8; LENGTH];
    let file = File::open(path).map_err(GenomeError::io("open", path))?;
    let read = read_up_to(file, &mut header).map_err(GenomeError::io("read", path))?;
    let version = check_header(path, &header, read, metadata.len())?;
    Ok(Head {
        length: metadata.len(),
        version,
    })
}

/// What the header of a genome tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Length of the file in bytes.
    pub(super) length: u64,
    /// Version of its tables.
    pub(super) version: u32,
}

fn check_header(
    path: &Path,
    header: &[u8; LENGTH],
    read: usize,
    length: u64,
) -> Result<u32, GenomeError> {
    match read {
        0 => return Err(not_a_genome(path, "an empty file")),
        _ if !header.starts_with(MAGIC) => return Err(not_a_genome(path, "not a SQLite file")),
        LENGTH => {}
        _ => {
            return Err(GenomeError::CutOff {
                path: path.to_owned(),
                expected: LENGTH as u64,
                found: read as u64,
            });
        }
    }
    if number(header, 68) != schema::APPLICATION_ID {
        return Err(not_a_genome(path, "a SQLite file of another program"));
    }
    let version = number(header, 60);
    if version > schema::VERSION {
        return Err(GenomeError::NewerSchema {
            path: path.to_owned(),
            found: version,
            known: schema::VERSION,
        });
    }
    if version < schema::OLDEST {
        return Err(GenomeError::Damaged {
            path: path.to_owned(),
            what: format!("its schema version is {version}"),
        });
    }
    let expected = u64::from(page_size(header)) * u64::from(number(header, 28));
    if length < expected {
        return Err(GenomeError::CutOff {
            path: path.to_owned(),
            expected,
            found: length,
        });
    }
    Ok(version)
}

fn not_a_genome(path: &Path, found: &'static str) -> GenomeError {
    GenomeError::NotAGenome {
        path: path.to_owned(),
        found,
    }
}

/// Big-endian number at `at`.
fn number(header: &[u8; LENGTH], at: usize) -> u32 {
    header
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u32::from_be_bytes)
}

/// Bytes 16 and 17; 1 stands for 65,536.
fn page_size(header: &[u8; LENGTH]) -> u32 {
    match number(header, 16) >> 16 {
        1 => 1 << 16,
        size => size,
    }
}

fn read_up_to(mut file: impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while let Some(rest) = buffer.get_mut(at..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            read => at += read,
        }
    }
    Ok(at)
}
