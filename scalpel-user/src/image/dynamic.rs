//! What the loader does to the file: its dynamic symbols, and what it writes into which word.
//!
//! Works without section headers (then without symbol versions). Must not know instructions.

use object::elf;
use object::endian::LittleEndian as LE;
use object::read::StringTable;
use object::read::elf::{
    GnuHashTable, HashTable, RelrIterator, SectionHeader as _, Sym as _, VersionTable,
};
use object::{SymbolIndex, pod};
use rustc_hash::FxHashMap;

use super::elf::{ElfFile, Header, ImageKind};

/// What a relocated word holds once the file is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot<'d> {
    /// The address of a symbol that some image of the process defines.
    Import(Import<'d>),
    /// An address of this image.
    Local(u64),
    /// What the resolver function at this address returns.
    Resolved(u64),
}

/// A symbol bound at load time, with its version if the file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Import<'d> {
    pub(super) name: &'d str,
    pub(super) version: Option<&'d str>,
}

/// Dynamic symbols and relocations.
#[derive(Debug, Default)]
pub(super) struct Dynamic<'d> {
    symbols: &'d [elf::Sym64<LE>],
    strings: StringTable<'d>,
    versions: VersionTable<'d, Header>,
    /// By the word's address: symbolic relocations, and relative ones that point at code.
    pub(super) slots: FxHashMap<u64, Slot<'d>>,
}

impl<'d> Dynamic<'d> {
    pub(super) fn parse(elf: &ElfFile<'d>) -> Self {
        let mut dynamic = Self::without_slots(elf);
        dynamic.read_relocations(elf, &Tags::read(elf));
        dynamic
    }

    /// The symbols alone.
    pub(super) fn without_slots(elf: &ElfFile<'d>) -> Self {
        let tags = Tags::read(elf);
        let (symbols, strings) = tags.symbols(elf).unwrap_or_default();
        let versions = elf
            .sections
            .versions(LE, elf.data)
            .ok()
            .flatten()
            .unwrap_or_default();
        Self {
            symbols,
            strings,
            versions,
            slots: FxHashMap::default(),
        }
    }

    /// Every dynamic symbol as it stands.
    pub(super) const fn raw_symbols(&self) -> &'d [elf::Sym64<LE>] {
        self.symbols
    }

    /// The dynamic symbols that are to be kept, each with its version and whether that is the default one.
    pub(super) fn symbols(
        &self,
        keep: &dyn Fn(&elf::Sym64<LE>) -> bool,
    ) -> impl Iterator<Item = (&'d elf::Sym64<LE>, &'d str, Option<&'d str>, bool)> {
        self.symbols
            .iter()
            .enumerate()
            .filter(|(_, symbol)| keep(symbol))
            .filter_map(|(index, symbol)| {
                let name = self.name(symbol)?;
                let version = self.versions.version_index(LE, SymbolIndex(index));
                Some((symbol, name, self.version(index), !version.is_hidden()))
            })
    }

    /// Words that hold an address of this image once it is loaded, with that address.
    pub(super) fn relative(&self, elf: &ElfFile<'d>) -> Vec<(u64, u64)> {
        let tags = Tags::read(elf);
        let relative = relocations(elf, (tags.rela, tags.rela_size))
            .iter()
            .filter(|it| elf::RelocationType(it.r_info.get(LE) as u32) == elf::R_X86_64_RELATIVE);
        relative
            .map(|it| (it.r_offset.get(LE), it.r_addend.get(LE).cast_unsigned()))
            .collect()
    }

    fn name(&self, symbol: &elf::Sym64<LE>) -> Option<&'d str> {
        str::from_utf8(symbol.name(LE, self.strings).ok()?).ok()
    }

    fn version(&self, index: usize) -> Option<&'d str> {
        let version = self.versions.version_index(LE, SymbolIndex(index)).index();
        str::from_utf8(self.versions.version(version).ok()??.name()).ok()
    }

    fn read_relocations(&mut self, elf: &ElfFile<'d>, tags: &Tags) {
        let own = elf.kind() != ImageKind::SharedLibrary;
        for table in [(tags.rela, tags.rela_size), (tags.jmprel, tags.jmprel_size)] {
            for relocation in relocations(elf, table) {
                if let Some(slot) = self.slot(elf, relocation, own) {
                    self.slots.insert(relocation.r_offset.get(LE), slot);
                }
            }
        }
        self.read_relr(elf, tags);
    }

    fn read_relr(&mut self, elf: &ElfFile<'d>, tags: &Tags) {
        let bytes = tags
            .relr
            .and_then(|vaddr| elf.bytes_at(vaddr, tags.relr_size))
            .unwrap_or_default();
        let words = pod::slice_from_all_bytes(bytes.get(..bytes.len() & !7).unwrap_or_default())
            .unwrap_or_default();
        for vaddr in RelrIterator::<Header>::new(LE, words) {
            if let Some(target) = elf.word_at(vaddr).filter(|&target| elf.is_code(target)) {
                self.slots.insert(vaddr, Slot::Local(target));
            }
        }
    }

    /// In an executable a symbol it defines itself wins over every other; in a library it can be interposed.
    fn slot(&self, elf: &ElfFile<'d>, relocation: &elf::Rela64<LE>, own: bool) -> Option<Slot<'d>> {
        let addend = relocation.r_addend.get(LE).cast_unsigned();
        let info = relocation.r_info.get(LE);
        match elf::RelocationType(info as u32) {
            elf::R_X86_64_RELATIVE => elf.is_code(addend).then_some(Slot::Local(addend)),
            elf::R_X86_64_IRELATIVE => Some(Slot::Resolved(addend)),
            elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT => {
                let index = usize::try_from(info >> 32).ok()?;
                let symbol = self.symbols.get(index)?;
                let value = symbol.st_value.get(LE).wrapping_add(addend);
                if own && symbol.st_shndx(LE) != elf::SHN_UNDEF && elf.is_code(value) {
                    return Some(Slot::Local(value));
                }
                Some(Slot::Import(Import {
                    name: self.name(symbol)?,
                    version: self.version(index),
                }))
            }
            _ => None,
        }
    }
}

fn relocations<'d>(elf: &ElfFile<'d>, (vaddr, size): (Option<u64>, u64)) -> &'d [elf::Rela64<LE>] {
    let bytes = vaddr
        .and_then(|vaddr| elf.bytes_at(vaddr, size))
        .unwrap_or_default();
    let whole = bytes.len() - bytes.len() % size_of::<elf::Rela64<LE>>();
    pod::slice_from_all_bytes(bytes.get(..whole).unwrap_or_default()).unwrap_or_default()
}

/// The entries of `PT_DYNAMIC` that are used here.
#[derive(Debug, Default)]
struct Tags {
    symtab: Option<u64>,
    strtab: Option<u64>,
    strsz: u64,
    hash: Option<u64>,
    gnu_hash: Option<u64>,
    rela: Option<u64>,
    rela_size: u64,
    jmprel: Option<u64>,
    jmprel_size: u64,
    relr: Option<u64>,
    relr_size: u64,
}

impl Tags {
    fn read(elf: &ElfFile<'_>) -> Self {
        let mut tags = Self::default();
        for entry in elf.dynamic() {
            let value = entry.d_val.get(LE);
            match entry.d_tag.get(LE) {
                elf::DT_NULL => break,
                elf::DT_SYMTAB => tags.symtab = Some(value),
                elf::DT_STRTAB => tags.strtab = Some(value),
                elf::DT_STRSZ => tags.strsz = value,
                elf::DT_HASH => tags.hash = Some(value),
                elf::DT_GNU_HASH => tags.gnu_hash = Some(value),
                elf::DT_RELA => tags.rela = Some(value),
                elf::DT_RELASZ => tags.rela_size = value,
                elf::DT_JMPREL => tags.jmprel = Some(value),
                elf::DT_PLTRELSZ => tags.jmprel_size = value,
                elf::DT_RELR => tags.relr = Some(value),
                elf::DT_RELRSZ => tags.relr_size = value,
                _ => {}
            }
        }
        tags
    }

    fn symbols<'d>(&self, elf: &ElfFile<'d>) -> Option<(&'d [elf::Sym64<LE>], StringTable<'d>)> {
        let bytes = elf.bytes_from(self.symtab?)?;
        let count = self
            .symbol_count(elf)?
            .min(bytes.len() / size_of::<elf::Sym64<LE>>());
        let (symbols, _) = pod::slice_from_bytes(bytes, count).ok()?;
        let strings = elf.bytes_at(self.strtab?, self.strsz)?;
        Some((symbols, StringTable::new(strings, 0, strings.len() as u64)))
    }

    /// The table's length stands in its section header or in a hash table. A GNU hash table leaves out the imports
    /// when nothing is exported: the highest symbol that a relocation names bounds it then.
    fn symbol_count(&self, elf: &ElfFile<'_>) -> Option<usize> {
        let section = elf
            .sections
            .iter()
            .find(|s| s.sh_type(LE) == elf::SHT_DYNSYM && Some(s.sh_addr(LE)) == self.symtab);
        if let Some(section) = section {
            return usize::try_from(section.sh_size(LE) / size_of::<elf::Sym64<LE>>() as u64).ok();
        }
        let hash = self
            .hash
            .and_then(|vaddr| HashTable::<Header>::parse(LE, elf.bytes_from(vaddr)?).ok());
        let gnu = self
            .gnu_hash
            .and_then(|vaddr| GnuHashTable::<Header>::parse(LE, elf.bytes_from(vaddr)?).ok());
        let hashed = hash.map(|hash| hash.symbol_table_length());
        let gnu_hashed = gnu.and_then(|gnu| gnu.symbol_table_length(LE));
        let named = [(self.rela, self.rela_size), (self.jmprel, self.jmprel_size)]
            .into_iter()
            .flat_map(|table| relocations(elf, table))
            .map(|relocation| (relocation.r_info.get(LE) >> 32) + 1)
            .max();
        let tables = hashed.into_iter().chain(gnu_hashed).map(u64::from);
        usize::try_from(tables.chain(named).max()?).ok()
    }
}
