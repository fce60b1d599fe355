//! Places in a text, in bytes and in UTF-16 units, and the hash of texts.

use std::hash::Hasher;

use rustc_hash::FxHasher;

/// A place in a text. Bytes are UTF-8; UTF-16 units are what JavaScript engines and source maps count in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Bytes before it in the file.
    pub byte: u32,
    /// UTF-16 units before it in the file; a byte order mark counts as one.
    pub utf16: u32,
    /// Line, from 1: lines end at `\n`, `\r\n` or a lone `\r`.
    pub line: u32,
    /// UTF-16 units before it in its line.
    pub column: u32,
}

/// Where a definition stands. Ends are exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// First place of the function itself: of `async`, `function`, `def`, `fn`, `get`, or of an arrow's parameters.
    pub start: Position,
    /// End of the function.
    pub end: Position,
    /// First place of the whole declaration, with decorators, annotations, `export`, `public static` and the like.
    pub declared: Position,
    /// First place of its name; `start` where it has none.
    pub name: Position,
    /// First place of its body, the brace included; `end` where there is none.
    pub body: Position,
}

impl Span {
    /// Whether `byte` lies in the function itself.
    pub const fn holds(&self, byte: u32) -> bool {
        self.start.byte <= byte && byte < self.end.byte
    }
}

/// The hash of texts and bodies that probes send too: the same bytes give the same number there and here; never 0.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.write_usize(bytes.len());
    hasher.finish().max(1)
}
