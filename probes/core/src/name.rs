//! What a function is called, and how that is written into the name area and into INTERN frames.

use std::hash::Hasher;

use scalpel_common::event::Source;
use scalpel_common::segment::{NOT_KNOWN, NameHead};

/// Longest text of a name record in bytes; longer ones are cut at a character.
const LONGEST: usize = 16 * 1024;

/// A function as its probe knows it.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// The probe.
    pub source: Source,
    /// Bits of [`name_flags`](crate::name_flags).
    pub flags: u16,
    /// First line from 1, 0 = not known.
    pub line: u32,
    /// Last line, 0 = not known.
    pub end_line: u32,
    /// Column of the start in UTF-16 units from 0.
    pub column: Option<u32>,
    /// Start in the loaded text, in UTF-16 units.
    pub start: Option<u32>,
    /// End in the loaded text, in UTF-16 units.
    pub end: Option<u32>,
    /// Qualified name.
    pub name: &'a str,
    /// Path or URL of the source.
    pub file: &'a str,
    /// Module, class or package that it belongs to.
    pub owner: &'a str,
    /// Hash of the body or byte code, 0 = none.
    pub body_hash: u64,
    /// Hash of the whole loaded text, 0 = none.
    pub text_hash: u64,
}

impl<'a> Name<'a> {
    /// A name with nothing else known.
    pub const fn new(source: Source, name: &'a str) -> Self {
        Self {
            source,
            flags: 0,
            line: 0,
            end_line: 0,
            column: None,
            start: None,
            end: None,
            name,
            file: "",
            owner: "",
            body_hash: 0,
            text_hash: 0,
        }
    }

    /// The record's head, and its texts as far as they fit.
    pub(crate) fn record(&self, func: u32) -> (NameHead, [&'a str; 3]) {
        let texts = [cut(self.name), cut(self.file), cut(self.owner)];
        let [name, file, owner] = texts.map(|text| u32::try_from(text.len()).unwrap_or(0));
        let head = NameHead {
            len: u32::try_from(size_of::<NameHead>()).unwrap_or(0) + name + file + owner,
            version: 1,
            source: self.source as u8,
            flags: self.flags,
            func,
            line: self.line,
            end_line: self.end_line,
            column: self.column.unwrap_or(NOT_KNOWN),
            start: self.start.unwrap_or(NOT_KNOWN),
            end: self.end.unwrap_or(NOT_KNOWN),
            name_len: name,
            file_len: file,
            owner_len: owner,
            reserved: 0,
            body_hash: self.body_hash,
            text_hash: self.text_hash,
        };
        (head, texts)
    }
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or("")
}

/// The hash of bodies and texts: `FxHash` with a length, never 0. Stable within a version of scalpel.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(bytes);
    hasher.write_usize(bytes.len());
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The collector hashes sources in the same way, and tests the same number.
    #[test]
    fn texts_have_the_hash_that_the_collector_makes() {
        assert_eq!(hash(b"function f() {}"), 8_758_387_913_738_288_709);
    }

    #[test]
    fn a_long_name_is_cut_at_a_character() {
        let long = "é".repeat(LONGEST);
        let (head, [name, ..]) = Name::new(Source::Python, &long).record(7);
        assert_eq!(name.len(), LONGEST);
        assert_eq!(head.name_len as usize, LONGEST);
        assert_eq!(head.len as usize, 64 + LONGEST);
        assert_eq!(head.column, NOT_KNOWN);
    }

    #[test]
    fn the_empty_text_has_a_hash() {
        assert_ne!(hash(b""), 0);
        assert_ne!(hash(b"a"), hash(b"a\0"));
    }
}
