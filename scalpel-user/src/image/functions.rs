//! The functions of an image: every start of code that a symbol or an unwind entry names, one for each address.
//!
//! Must not know instructions, except those of import stubs, which are no functions.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use super::dynamic::Dynamic;
use super::elf::{ElfFile, Segment};
use super::go::Declared;
use super::names::{self, Part};
use super::plt;
use super::symbols::{RawSymbol, SymbolType};
use super::unwind::{Cfa, Unwind};
use crate::function::{Language, UnknownReason};

/// Where a function's name was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NameOrigin {
    /// `.symtab` of the image.
    Symtab,
    /// `.symtab` of its separate debug file.
    DebugFile,
    /// `.dynsym`.
    Dynsym,
    /// `.symtab` inside `.gnu_debugdata`.
    MiniDebugInfo,
    /// Go's own table of functions.
    GoTable,
    /// Nowhere: the start is known from `.eh_frame`.
    EhFrame,
}

/// One function of an image.
#[derive(Debug)]
pub struct ImageFunction {
    /// Name as in the symbol table, without symbol version; empty if unknown.
    pub raw_name: String,
    /// Version of an old symbol version (`memcpy@GLIBC_2.2.5`); `None` for the default version.
    pub old_version: Option<String>,
    /// Other names of the same address, as in the symbol table.
    pub aliases: Vec<String>,
    /// Link-time address of the first instruction.
    pub vaddr: u64,
    /// Its offset in the file, in bytes.
    pub file_offset: u64,
    /// Size in bytes, up to the next function if neither symbol nor unwind entry tells; never 0.
    pub size: u64,
    /// Language, by name and file.
    pub language: Language,
    /// Which part or copy of a source function it is.
    pub part: Part,
    /// An indirect function: code of this name *chooses* an implementation once, at load; it does not do the work.
    pub is_resolver: bool,
    /// Where the name was found.
    pub origin: NameOrigin,
    /// Where it stands in its source, if a table of the image other than debug information tells.
    pub declared: Option<Declared>,
    /// Why it has no name, if it has none.
    pub unknown: Option<UnknownReason>,
    module: Box<str>,
    name: OnceLock<String>,
}

impl ImageFunction {
    /// Name for people: demangled, labelled (`[cold]`, `[resolver]`, `@VERSION`), or `module+0xOFF`. Computed once.
    pub fn name(&self) -> &str {
        self.name.get_or_init(|| {
            if self.raw_name.is_empty() {
                return format!("{}+{:#x}", self.module, self.file_offset);
            }
            let resolver = if self.is_resolver { " [resolver]" } else { "" };
            match &self.old_version {
                Some(version) => format!("{}@{version}{resolver}", names::display(&self.raw_name)),
                None => format!("{}{resolver}", names::display(&self.raw_name)),
            }
        })
    }

    /// One past its last address.
    pub const fn end(&self) -> u64 {
        self.vaddr.saturating_add(self.size)
    }

    /// The raw name and all aliases.
    pub fn raw_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.raw_name.as_str())
            .filter(|name| !name.is_empty())
            .chain(self.aliases.iter().map(String::as_str))
    }
}

/// Merges symbols and unwind entries into functions, sorted by address.
pub(super) fn collect(
    elf: &ElfFile<'_>,
    dynamic: &Dynamic<'_>,
    symbols: Vec<RawSymbol>,
    unwind: &Unwind,
    module: &str,
    file_language: Language,
) -> Vec<ImageFunction> {
    let fde_ends: FxHashMap<u64, u64> =
        unwind.fdes.iter().map(|fde| (fde.start, fde.end)).collect();
    let mut symbols: Vec<RawSymbol> = symbols
        .into_iter()
        .filter(|symbol| elf.is_code(symbol.vaddr))
        .filter(|symbol| symbol.kind != SymbolType::Untyped || fde_ends.contains_key(&symbol.vaddr))
        .collect();
    symbols.sort_by(|a, b| (a.vaddr, a.rank()).cmp(&(b.vaddr, b.rank())));
    let mut functions: Vec<ImageFunction> = symbols
        .chunk_by(|a, b| a.vaddr == b.vaddr)
        .filter_map(|group| named(elf, group, &fde_ends, module, file_language))
        .collect();
    add_unnamed(elf, dynamic, unwind, module, file_language, &mut functions);
    functions.sort_by_key(|function| function.vaddr);
    fill_sizes(elf, &mut functions);
    functions
}

fn named(
    elf: &ElfFile<'_>,
    group: &[RawSymbol],
    fde_ends: &FxHashMap<u64, u64>,
    module: &str,
    file_language: Language,
) -> Option<ImageFunction> {
    let (first, others) = group.split_first()?;
    let symbol_size = group.iter().map(|symbol| symbol.size).max().unwrap_or(0);
    let fde_size = fde_ends
        .get(&first.vaddr)
        .map_or(0, |end| end - first.vaddr);
    let mut aliases: Vec<String> = others
        .iter()
        .map(|symbol| symbol.name.to_string())
        .filter(|name| *name != *first.name)
        .collect();
    aliases.dedup();
    Some(ImageFunction {
        raw_name: first.name.to_string(),
        old_version: first.old_version.as_deref().map(str::to_owned),
        aliases,
        vaddr: first.vaddr,
        file_offset: elf.code_offset(first.vaddr)?,
        size: if symbol_size == 0 {
            fde_size
        } else {
            symbol_size
        },
        language: names::language(&first.name).unwrap_or(file_language),
        part: Part::of(&first.name),
        is_resolver: group
            .iter()
            .any(|symbol| symbol.kind == SymbolType::Resolver),
        origin: first.origin,
        declared: None,
        unknown: None,
        module: module.into(),
        name: OnceLock::new(),
    })
}

/// Unwind entries that no symbol reaches into, and that are no import stubs.
fn add_unnamed(
    elf: &ElfFile<'_>,
    dynamic: &Dynamic<'_>,
    unwind: &Unwind,
    module: &str,
    file_language: Language,
    functions: &mut Vec<ImageFunction>,
) {
    let stubs = elf.stub_ranges();
    let known = functions.len();
    for fde in &unwind.fdes {
        let at = functions
            .get(..known)
            .unwrap_or_default()
            .partition_point(|function| function.vaddr <= fde.start);
        let covered = at
            .checked_sub(1)
            .and_then(|i| functions.get(i))
            .is_some_and(|before| fde.start < before.end());
        let is_stub = stubs
            .iter()
            .any(|&(start, end)| (start..end).contains(&fde.start));
        if covered || is_stub || fde.signal_frame || plt::is_stub_table(elf, dynamic, fde.start) {
            continue;
        }
        let Some(file_offset) = elf.code_offset(fde.start) else {
            continue;
        };
        functions.push(ImageFunction {
            raw_name: String::new(),
            old_version: None,
            aliases: Vec::new(),
            vaddr: fde.start,
            file_offset,
            size: fde.end - fde.start,
            language: file_language,
            // Where a frame stands already no call begins: a part that was moved away from its function.
            part: if unwind.cursor().at(fde.start) == Some(Cfa::ENTRY) {
                Part::Whole
            } else {
                Part::Cold
            },
            is_resolver: false,
            origin: NameOrigin::EhFrame,
            declared: None,
            unknown: Some(UnknownReason::Stripped),
            module: module.into(),
            name: OnceLock::new(),
        });
    }
}

/// Bytes of code that all functions together may have, as a multiple of the image's code: symbols overlap a little in
/// real files, and at every byte in a hostile one, where each reading of a function would read the whole file.
const MAX_OVERLAP: u64 = 3;

/// Gives every function a size inside its segment.
fn fill_sizes(elf: &ElfFile<'_>, functions: &mut [ImageFunction]) {
    let mut left = elf.code_size().saturating_mul(MAX_OVERLAP);
    let mut next = u64::MAX;
    for function in functions.iter_mut().rev() {
        let segment_end = elf
            .segment_at(function.vaddr)
            .map_or(function.vaddr, Segment::end);
        let most = segment_end - function.vaddr;
        let alone = most.min(next - function.vaddr);
        let told = if function.size == 0 {
            alone
        } else {
            function.size.min(most)
        };
        function.size = if told <= left { told } else { told.min(alone) };
        left = left.saturating_sub(function.size);
        next = function.vaddr;
    }
}
