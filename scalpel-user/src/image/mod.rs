//! An executable file as the tracer needs it: its functions, a safe and cheap place to probe each, and whether the
//! end of a call can be seen without harm.
//!
//! Pure over bytes: opens no file (separate debug files come through [`DebugFiles`]), knows no process but by the
//! facts it is given, and never panics on foreign bytes. What it cannot prove it refuses, with the reason.

mod around;
mod bits;
mod calls;
mod closure;
mod debug_files;
mod dynamic;
mod elf;
mod error;
mod exits;
mod flow;
mod functions;
mod go;
mod language;
mod names;
mod nothrow;
mod plan;
mod plt;
mod probe;
mod returns;
mod select;
mod site;
mod state;
mod symbols;
mod tables;
mod text;
mod unwind;

use std::fmt;
use std::sync::OnceLock;

pub use around::Around;
pub use calls::{CallKind, DirectCall, Target};
pub use debug_files::{DebugFile, DebugFiles, NoDebugFiles, Separate, separate};
pub use elf::ImageKind;
pub use error::ImageError;
pub use exits::{ExitPlan, ExitReason, ExitRequest, ProcessFacts};
pub use functions::{ImageFunction, NameOrigin};
pub use go::{Declared, InlinedCopy};
pub use language::Personality;
pub use names::Part;
pub use plan::{ExitPolicy, SitePlan, is_cheap, plan_sites};
pub use probe::{SiteCost, Unprobeable};
pub use select::{Pattern, SelectError, near_misses, select};
use serde::{Deserialize, Serialize};
pub use site::{Site, SiteReason, SiteRefusal, Stop};
pub use text::Disassembler;

use crate::function::Language;
use closure::Reach;
use dynamic::{Dynamic, Slot};
use elf::ElfFile;
use flow::Flow;
use go::GoTable;
use unwind::Unwind;

/// Version of a kernel: `6.18.44` is `KernelRelease(6, 18, 44)`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct KernelRelease(pub u16, pub u16, pub u16);

impl KernelRelease {
    /// The numbers at the start of `uname -r`; missing ones are 0.
    pub fn parse(release: &str) -> Self {
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map(|part| part.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Self(next(), next(), next())
    }
}

impl fmt::Display for KernelRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Name for people, and language, of a name from a symbol table.
pub fn display_name(raw_name: &str) -> (String, Language) {
    let language = names::language(raw_name).unwrap_or(Language::Native);
    (names::display(raw_name), language)
}

/// A parsed executable or shared library; borrows its bytes.
///
/// Parsing reads headers, symbols and unwind tables. The pass over all instructions that [`plan_sites`] needs is made
/// once, when it is first asked for.
pub struct Image<'d> {
    elf: ElfFile<'d>,
    dynamic: Dynamic<'d>,
    unwind: Unwind,
    functions: Vec<ImageFunction>,
    personalities: Vec<Personality>,
    go: bool,
    go_table: Option<GoTable<'d>>,
    stack_walker: Option<&'static str>,
    stack_maker: Option<&'static str>,
    flow: OnceLock<(Flow, Vec<Option<Reach>>)>,
}

/// What the pass over the instructions found.
struct Analysis<'i> {
    flow: &'i Flow,
    reach: &'i [Option<Reach>],
    unwind: &'i Unwind,
}

impl fmt::Debug for Image<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("kind", &self.kind())
            .field("functions", &self.functions.len())
            .finish_non_exhaustive()
    }
}

impl<'d> Image<'d> {
    /// Parses an ELF file. `path` is where the process sees it: its last component names functions that have no name,
    /// and separate debug files are looked for beside it.
    pub fn parse(
        data: &'d [u8],
        path: &str,
        debug_files: &dyn DebugFiles,
    ) -> Result<Self, ImageError> {
        let elf = ElfFile::parse(data)?;
        if !elf.segments.iter().any(|segment| segment.executable) {
            return Err(ImageError::NoCode);
        }
        let dynamic = Dynamic::parse(&elf);
        let unwind = Unwind::parse(&elf);
        let mut symbols = read_symbols(&elf, &dynamic, path, debug_files);
        let go_table = GoTable::parse(&elf, &dynamic, &symbols);
        let go_functions = go_table.as_ref().map(|table| table.functions(&elf));
        let go_functions = go_functions.unwrap_or_default();
        go::add_unnamed(&go_functions, &mut symbols);
        let go = language::is_go(&elf, &symbols);
        let stack_walker = language::stack_walker(&symbols);
        let personalities = language::personalities(&elf, &dynamic, &unwind, &symbols);
        let module = path.rsplit('/').next().unwrap_or(path);
        let mut functions = functions::collect(
            &elf,
            &dynamic,
            symbols,
            &unwind,
            module,
            language::of_file(&elf, go),
        );
        go::declare(&go_functions, &mut functions);
        let stack_maker = language::stack_maker(&dynamic, &functions, elf.kind());
        Ok(Self {
            stack_maker,
            elf,
            dynamic,
            unwind,
            functions,
            personalities,
            go,
            go_table,
            stack_walker,
            flow: OnceLock::new(),
        })
    }

    /// All functions, by rising address.
    pub fn functions(&self) -> &[ImageFunction] {
        &self.functions
    }

    /// The same, and nothing else of the image.
    #[cfg(test)]
    pub(crate) fn into_functions(self) -> Vec<ImageFunction> {
        self.functions
    }

    /// Index of the function that a link-time address belongs to.
    pub fn function_at(&self, vaddr: u64) -> Option<usize> {
        closure::containing(&self.functions, vaddr).map(|index| index as usize)
    }

    /// How the loader treats the file.
    pub fn kind(&self) -> ImageKind {
        self.elf.kind()
    }

    /// Build-id, else what Go calls the build, as lower-case hex; empty if there is none.
    pub fn build_id(&self) -> String {
        let id = self.elf.build_id().or_else(|| self.elf.go_build_id());
        id.map(debug_files::hex).unwrap_or_default()
    }

    /// Link-time address of the program's first instruction; 0 for most libraries.
    pub fn entry_point(&self) -> u64 {
        self.elf.entry_point()
    }

    /// Whether Go linked it.
    pub const fn is_go(&self) -> bool {
        self.go
    }

    /// Copies of functions inlined into others, by Go's own table: empty for what Go did not compile. Those of a
    /// function by rising address, outer ones first.
    pub fn go_copies(&self) -> Vec<InlinedCopy> {
        let table = self.go_table.as_ref();
        table
            .map(|table| table.copies(&self.elf))
            .unwrap_or_default()
    }

    /// The language runtime in it that looks up return addresses on the stack, if there is one.
    pub const fn stack_walker(&self) -> Option<&'static str> {
        self.stack_walker
    }

    /// The personality routines that its unwind table names.
    pub fn personalities(&self) -> &[Personality] {
        &self.personalities
    }

    /// Whether exceptions or panics are thrown or caught in it: by the personality routines it names.
    pub fn can_throw(&self) -> bool {
        self.personalities.iter().any(Personality::throws)
    }

    /// The function by which it makes stacks of its own for coroutines, if it does: imported, or linked into it. A C
    /// library that has such functions for others does not count.
    pub const fn makes_stacks(&self) -> Option<&'static str> {
        self.stack_maker
    }

    /// File offset of a link-time address of code, in bytes.
    pub fn file_offset(&self, vaddr: u64) -> Option<u64> {
        self.elf.code_offset(vaddr)
    }

    /// The bytes of a function.
    fn code(&self, function: &ImageFunction) -> &'d [u8] {
        self.elf
            .bytes_at(function.vaddr, function.size)
            .unwrap_or_default()
    }

    /// Name of the import that the loader writes into a word.
    fn import_at(&self, word: u64) -> Option<&'d str> {
        match self.dynamic.slots.get(&word)? {
            Slot::Import(import) => Some(import.name),
            _ => None,
        }
    }

    fn analysis(&self) -> Analysis<'_> {
        let (flow, reach) = self.flow.get_or_init(|| {
            let flow = Flow::analyse(&self.elf, &self.dynamic, &self.unwind, &self.functions);
            let reach = closure::reach(&self.functions, &flow);
            (flow, reach)
        });
        Analysis {
            flow,
            reach,
            unwind: &self.unwind,
        }
    }
}

/// Symbols of the file, of its debug file, and of `.gnu_debugdata` where there is no full table.
fn read_symbols(
    elf: &ElfFile<'_>,
    dynamic: &Dynamic<'_>,
    path: &str,
    debug_files: &dyn DebugFiles,
) -> Vec<symbols::RawSymbol> {
    let mut found = Vec::new();
    let all = |_vaddr| true;
    symbols::read_symtab(elf, NameOrigin::Symtab, &all, &mut found);
    let stripped = found.is_empty();
    symbols::read_dynsym(elf, dynamic, &all, &mut found);
    if !stripped {
        return found;
    }
    let separate = debug_files::find(elf, path, debug_files);
    if let Some(debug) = separate
        .as_ref()
        .and_then(|file| ElfFile::parse((*file.bytes).as_ref()).ok())
    {
        symbols::read_symtab(&debug, NameOrigin::DebugFile, &all, &mut found);
    } else if let Some(unpacked) = debug_files::unpack_mini_debug_info(elf)
        && let Ok(mini) = ElfFile::parse(&unpacked)
    {
        symbols::read_symtab(&mini, NameOrigin::MiniDebugInfo, &all, &mut found);
    }
    found
}
