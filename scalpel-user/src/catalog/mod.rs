//! What exists: the files of a source tree or executable, the functions in them, and the calls between these that the
//! text or the machine code alone proves.
//!
//! A shared word: pure data, which `static_` finds, `genome` keeps, and matching lays under what ran. Must not know how
//! anything was found.

mod builder;
mod place;
mod verdict;
mod words;

use rustc_hash::FxHashMap;

use crate::function::Language;

pub use builder::Builder;
pub use place::{Position, Span, hash};
pub use verdict::{Absence, Blindness, Matches, Outcome, State, Why};
pub use words::{FoundBy, GapKind, How, Kind, PieceKind};

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident,)+) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The place in its list.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        })+
    };
}

ids! {
    /// A folder or list of executables that was searched: a place in [`Catalog::roots`].
    RootId,
    /// A place in [`Catalog::files`].
    FileId,
    /// A place in [`Catalog::definitions`].
    DefId,
}

/// What exists in some source trees and executables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Folders that were searched, absolute.
    pub roots: Vec<String>,
    /// Files that were looked at, those of one root in the order of their paths.
    pub files: Vec<File>,
    /// Functions and function-like things; those of one file together, in the order of their start, parents first.
    pub definitions: Vec<Definition>,
    /// Stretches of machine code that belong to a definition beside its own: cold parts, inlined instances.
    pub pieces: Vec<Piece>,
    /// Calls that are proven, and, told apart by [`How::is_possible`], functions that something may call.
    pub edges: Vec<Edge>,
    /// What could not be read or told.
    pub gaps: Vec<Gap>,
}

/// By file: the version of what follows, and the facts of its text.
pub type FactsOfFiles = FxHashMap<FileId, (u32, Vec<u8>)>;

/// What exists, with what the next build needs to know of files that did not change.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// What exists.
    pub catalog: Catalog,
    /// What the next build needs.
    pub facts: FactsOfFiles,
}

/// A source file or an executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The root it lies in; `None`: an executable that was named itself.
    pub root: Option<RootId>,
    /// Path relative to the root, with `/`; absolute without a root.
    pub path: String,
    /// Language of its text; [`Language::Native`] for executables.
    pub language: Language,
    /// SHA-256 of its bytes.
    pub content: [u8; 32],
    /// [`hash`] of its text, which is what a probe tells of the text that was loaded; 0 for executables.
    pub text_hash: u64,
    /// Build-id of an executable as lower-case hex; empty if it has none, and for sources.
    pub build_id: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Lines of text; 0 for executables.
    pub lines: u32,
    /// Call sites in it.
    pub calls: u32,
    /// Call sites in it that became edges.
    pub resolved: u32,
}

/// A function or a function-like thing: whatever a runtime, a debugger or a linker may call a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The file it stands in.
    pub file: FileId,
    /// The definition around it, if any: always one of the same file, with a smaller number.
    pub parent: Option<DefId>,
    /// What it is.
    pub kind: Kind,
    /// Its own name; made up, as the language's runtime does it, where the source gives none (`<lambda>`).
    pub name: String,
    /// Name within the file, with its owners, joined as the language's runtime does it (`Shop.<locals>.add`).
    pub qualified: String,
    /// Ordinal among the definitions of its file that share the qualified name, from 0.
    pub ordinal: u32,
    /// What else is known of it.
    pub flags: Flags,
    /// [`hash`] of the text of its body (for JavaScript the text that the Node.js probe hashes); 0 = none.
    pub body_hash: u64,
    /// Where it stands; all 0 for machine code.
    pub span: Span,
    /// What only machine code has.
    pub native: Option<Native>,
}

/// Yes or no of a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `async`.
    pub is_async: bool,
    /// A generator.
    pub generator: bool,
    /// Called on the class, not on an instance.
    pub is_static: bool,
    /// The source gives it no name of its own.
    pub anonymous: bool,
    /// It stands in a part of the text that has a syntax error.
    pub doubtful: bool,
    /// Only declared here: the body is elsewhere.
    pub declared: bool,
}

/// What is known of a function of an executable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Native {
    /// Name as in the symbol table; empty if none.
    pub raw_name: String,
    /// Virtual address as in the file.
    pub address: u64,
    /// Offset of its first byte in the file.
    pub file_offset: u64,
    /// Size in bytes; 0 = not known.
    pub size: u64,
    /// Source file as the debug information names it.
    pub source: Option<String>,
    /// Line of its declaration there, from 1.
    pub line: Option<u32>,
    /// Column of its name in that line, or of a lambda's first or last bracket: in bytes, from 1. Not all compilers tell it.
    pub column: Option<u32>,
    /// What told of it.
    pub found_by: FoundBy,
}

/// A stretch of machine code that belongs to a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// The definition whose code this is.
    pub of: DefId,
    /// Which kind.
    pub kind: PieceKind,
    /// Virtual address as in the file.
    pub address: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// Inlined: the function whose machine code it stands in.
    pub host: Option<DefId>,
}

/// A call from one definition to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Who calls: the innermost definition around the call site, a module's top level included.
    pub caller: DefId,
    /// Who is called.
    pub callee: DefId,
    /// What proves it, or makes it possible.
    pub how: How,
    /// Byte of the call site in the file; virtual address in an executable.
    pub at: u64,
    /// Line of the call site, from 1; 0 in executables.
    pub line: u32,
    /// Column of the call site in UTF-16 units, from 0.
    pub column: u32,
}

/// Something that is not known, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The file, if it is one's; else it is about a whole root or run.
    pub file: Option<FileId>,
    /// Why.
    pub kind: GapKind,
    /// Line where it begins, from 1; 0 = all of it.
    pub line: u32,
    /// How many such places: only the first of a kind is told by its line.
    pub count: u32,
    /// What exactly.
    pub detail: String,
}

impl Catalog {
    /// A file.
    pub fn file(&self, id: FileId) -> Option<&File> {
        self.files.get(id.index())
    }

    /// A definition.
    pub fn definition(&self, id: DefId) -> Option<&Definition> {
        self.definitions.get(id.index())
    }

    /// All definitions with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (DefId, &Definition)> {
        (0u32..).map(DefId).zip(&self.definitions)
    }

    /// All files with their numbers.
    pub fn numbered_files(&self) -> impl Iterator<Item = (FileId, &File)> {
        (0u32..).map(FileId).zip(&self.files)
    }

    /// Absolute path of a file.
    pub fn path_of(&self, file: &File) -> String {
        match file.root.and_then(|root| self.roots.get(root.index())) {
            Some(root) => format!("{}/{}", root.trim_end_matches('/'), file.path),
            None => file.path.clone(),
        }
    }

    /// Whether nothing was looked at.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

#[cfg(test)]
pub(crate) mod tests;
