//! The functions of one recording: what an id stands for, and what is not known about it, with the reason.
//!
//! Must not know how a function was found (ELF, probe, sample) or where it is stored.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use lasso::{Rodeo, Spur};
use serde::{Deserialize, Serialize};

use crate::event::FuncId;

/// Why a function or address has no name. Shown to the user and counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UnknownReason {
    /// The file has no symbol for it: the start is known from unwind tables only.
    Stripped,
    /// No mapping of the process covers the address.
    Unmapped,
    /// The mapping has no file behind it: generated or JIT code.
    Anonymous,
    /// The file could not be opened or read any more.
    FileGone(String),
    /// The file is there, but is not the one that was mapped.
    FileChanged,
    /// The file is not a readable ELF file.
    BadFile(String),
    /// No symbol covers the address, although the file has symbols.
    NoSymbol,
    /// A kernel address that this kernel does not show.
    KernelHidden,
    /// The process was gone before its maps could be read.
    ProcessGone,
    /// The stream named an id that nobody defined.
    UndefinedId,
    /// The source gives it no name: an anonymous function.
    Nameless,
    /// An in-process probe gave it a number and no name that could be read: its name area was full, or is damaged.
    NameLost,
}

impl UnknownReason {
    /// Short stable word for tables and JSON.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Stripped => "stripped",
            Self::Unmapped => "unmapped",
            Self::Anonymous => "anonymous",
            Self::FileGone(_) => "file-gone",
            Self::FileChanged => "file-changed",
            Self::BadFile(_) => "bad-file",
            Self::NoSymbol => "no-symbol",
            Self::KernelHidden => "kernel-hidden",
            Self::ProcessGone => "process-gone",
            Self::UndefinedId => "undefined-id",
            Self::Nameless => "nameless",
            Self::NameLost => "name-lost",
        }
    }
}

impl fmt::Display for UnknownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileGone(detail) | Self::BadFile(detail) => {
                write!(f, "{} ({detail})", self.word())
            }
            _ => f.write_str(self.word()),
        }
    }
}

/// How the end of a call is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExitStrategy {
    /// Return probe of the same `uprobe session`, or a uretprobe: proven safe for this function.
    Return,
    /// A probe on each `ret` instruction.
    RetOffsets,
    /// Entries only: exact counts and edges, time by sampling.
    EntryOnly,
    /// Not probed: known from samples.
    None,
    /// Entries and ends are told by a probe within the process.
    Probe,
}

impl ExitStrategy {
    /// Short stable word for tables and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::RetOffsets => "ret",
            Self::EntryOnly => "entry",
            Self::None => "none",
            Self::Probe => "probe",
        }
    }
}

/// The language a function was written in, as far as its name and file tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Language {
    /// Native code of unknown language.
    Native,
    /// C.
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// Python.
    Python,
    /// JavaScript or TypeScript.
    JavaScript,
    /// The kernel.
    Kernel,
    /// Ruby.
    Ruby,
    /// PHP.
    Php,
    /// Java and other languages of its virtual machine.
    Java,
    /// Languages of .NET.
    Dotnet,
    /// Lua.
    Lua,
    /// Zig.
    Zig,
}

impl Language {
    /// Lower-case word; first part of a function's key.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::C => "c",
            Self::Cpp => "cpp",
            Self::Rust => "rust",
            Self::Go => "go",
            Self::Python => "python",
            Self::JavaScript => "js",
            Self::Kernel => "kernel",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Java => "java",
            Self::Dotnet => "dotnet",
            Self::Lua => "lua",
            Self::Zig => "zig",
        }
    }
}

/// What is known of a function, before it has an id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FunctionInfo {
    /// Name for people: demangled, or `module+0xOFF` when unknown.
    pub name: String,
    /// Name as in the symbol table; empty if unknown.
    pub raw_name: String,
    /// File name of the image (`libc.so.6`), `[kernel]`, or the language's module.
    pub module: String,
    /// Path of the image or source module as the process sees it.
    pub path: String,
    /// Source file, if debug information tells.
    pub file: Option<String>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// Language.
    pub language: Language,
    /// Build-id of the image as lower-case hex; empty if it has none.
    pub build_id: String,
    /// Offset of the function's start in the file, in bytes.
    pub file_offset: u64,
    /// Size in bytes; 0 if unknown.
    pub size: u64,
    /// Offset from the function's start to the probed instruction, in bytes.
    pub site_delta: u32,
    /// How its end is seen.
    pub exit: ExitStrategy,
    /// Why that strategy.
    pub exit_reason: String,
    /// Why it has no name, if it has none.
    pub unknown: Option<UnknownReason>,
    /// Ordinal among the functions that share language, module and name, from 0.
    pub ordinal: u32,
    /// Where it stands in the source, as far as an in-process probe tells.
    pub place: SourcePlace,
}

/// Where a function stands in the text that was loaded. Everything is as the probe told it: of a rewritten script, the
/// place in the original text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourcePlace {
    /// Last line, from 1.
    pub end_line: Option<u32>,
    /// Column of the start in UTF-16 units, from 0.
    pub column: Option<u32>,
    /// Start and end in the loaded text in UTF-16 units.
    pub range: Option<(u32, u32)>,
    /// Hash of the body or byte code, 0 = not known.
    pub body_hash: u64,
    /// Hash of the whole loaded text, 0 = not known.
    pub text_hash: u64,
    /// Bits of [`name_flags`](scalpel_common::segment::name_flags).
    pub flags: u16,
}

impl FunctionInfo {
    /// The key that survives rebuilds and hosts: `language:module:name`, and `#ordinal` after the first of a name.
    pub fn key(&self) -> String {
        let head = [self.language.word(), &self.module, &self.name].join(":");
        if self.ordinal == 0 {
            head
        } else {
            format!("{head}#{}", self.ordinal)
        }
    }
}

/// All functions of a recording. Ids are dense from 1; strings of keys are interned.
#[derive(Clone, Debug, Default)]
pub struct FunctionTable {
    functions: Vec<Arc<FunctionInfo>>,
    keys: Rodeo,
    by_key: rustc_hash::FxHashMap<Spur, FuncId>,
}

impl FunctionTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function and returns its id; the same key and site give the same id. A name that is already taken
    /// by another site of the module gets the next ordinal.
    pub fn insert(&mut self, mut info: FunctionInfo) -> FuncId {
        loop {
            let spur = self.keys.get_or_intern(info.key());
            match self.by_key.get(&spur) {
                Some(&id) if self.get(id).is_some_and(|known| same_site(known, &info)) => {
                    return id;
                }
                Some(_) => info.ordinal += 1,
                None => {
                    let id = self.push(info);
                    self.by_key.insert(spur, id);
                    return id;
                }
            }
        }
    }

    /// Highest id: every place below an id costs memory, and a damaged stream can name any number. Enough for all
    /// functions that can be probed and all names that sampled stacks are cut to.
    pub const MOST: u32 = 1 << 21;

    /// Defines `id` itself, as a recorded stream does; the places between are filled with undefined functions.
    /// False = the id is beyond [`FunctionTable::MOST`] and was left out.
    pub fn define(&mut self, id: FuncId, info: impl Into<Arc<FunctionInfo>>) -> bool {
        let info = info.into();
        if id.get() > Self::MOST {
            return false;
        }
        while self.functions.len() < id.get() as usize {
            self.push(undefined(self.functions.len() as u32 + 1));
        }
        let spur = self.keys.get_or_intern(info.key());
        self.by_key.insert(spur, id);
        if let Some(slot) = self.functions.get_mut(id.get() as usize - 1) {
            *slot = info;
        }
        true
    }

    /// A place at the end for a function of which a stream only says the number.
    pub fn insert_undefined(&mut self, id: FuncId) -> FuncId {
        self.insert(undefined(id.get()))
    }

    fn push(&mut self, info: FunctionInfo) -> FuncId {
        self.functions.push(Arc::new(info));
        let number = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
        FuncId(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
    }

    /// What is known of `id`.
    pub fn get(&self, id: FuncId) -> Option<&Arc<FunctionInfo>> {
        self.functions.get(id.get() as usize - 1)
    }

    /// The id of a key.
    pub fn find(&self, key: &str) -> Option<FuncId> {
        self.by_key.get(&self.keys.get(key)?).copied()
    }

    /// All functions with their ids, in order of id.
    pub fn iter(&self) -> impl Iterator<Item = (FuncId, &Arc<FunctionInfo>)> {
        (1u32..).filter_map(FuncId::new).zip(self.functions.iter())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }
}

fn same_site(a: &FunctionInfo, b: &FunctionInfo) -> bool {
    a.file_offset == b.file_offset && a.build_id == b.build_id && a.path == b.path
}

fn undefined(number: u32) -> FunctionInfo {
    FunctionInfo {
        name: format!("<function {number}>"),
        raw_name: String::new(),
        module: "?".into(),
        path: String::new(),
        file: None,
        line: None,
        language: Language::Native,
        build_id: String::new(),
        file_offset: u64::from(number),
        size: 0,
        site_delta: 0,
        exit: ExitStrategy::None,
        exit_reason: String::new(),
        unknown: Some(UnknownReason::UndefinedId),
        ordinal: 0,
        place: SourcePlace::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::{FuncId, FunctionTable, undefined};

    #[test]
    fn an_id_beyond_the_highest_makes_no_room_for_those_below_it() {
        let mut table = FunctionTable::new();
        for number in [FunctionTable::MOST + 1, u32::MAX] {
            let id = FuncId::new(number).unwrap();
            assert!(!table.define(id, undefined(number)));
        }
        assert!(table.is_empty());
    }
}
