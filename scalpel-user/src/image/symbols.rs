//! Function symbols as the tables have them: of the file, of its debug file, of `.gnu_debugdata`, of the loader.
//!
//! Must not know which of them will be probed.

use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::Sym as _;

use super::dynamic::Dynamic;
use super::elf::ElfFile;
use super::functions::NameOrigin;

/// What a symbol says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SymbolType {
    /// `STT_FUNC`.
    Function,
    /// `STT_GNU_IFUNC`: the address is the resolver's.
    Resolver,
    /// `STT_NOTYPE`: a label, believed only where an unwind entry starts.
    Untyped,
}

/// A defined symbol that may be a function.
#[derive(Clone, Debug)]
pub(super) struct RawSymbol {
    pub(super) vaddr: u64,
    pub(super) size: u64,
    pub(super) name: Box<str>,
    pub(super) kind: SymbolType,
    pub(super) origin: NameOrigin,
    /// Version, unless it is the default one.
    pub(super) old_version: Option<Box<str>>,
    local: bool,
}

impl RawSymbol {
    /// Order of preference among the names of one address: typed, exported, default version, public spelling
    /// (few leading underscores), short.
    pub(super) fn rank(&self) -> impl Ord + use<'_> {
        let underscores = self.name.bytes().take_while(|&byte| byte == b'_').count();
        let untyped = self.kind == SymbolType::Untyped;
        (
            untyped,
            self.local,
            self.old_version.is_some(),
            underscores,
            self.name.len(),
            &self.name,
            self.origin,
        )
    }
}

/// Longest name that is believed, in bytes, and how many bytes all names of a table may have, as a multiple of the
/// file's: names overlap a little where one ends like another, and wholly in a hostile file.
const MAX_NAME: usize = 1 << 15;
const MAX_SHARING: usize = 4;

/// Whether there is a `.symtab` with anything that may be a function.
pub(super) fn has_symtab(elf: &ElfFile<'_>) -> bool {
    addresses(elf).next().is_some()
}

/// Addresses of the symbols of `.symtab`.
pub(super) fn addresses(elf: &ElfFile<'_>) -> impl Iterator<Item = (u64, SymbolType)> {
    let table = elf.sections.symbols(LE, elf.data, elf::SHT_SYMTAB);
    let symbols = table.map(|table| table.symbols()).unwrap_or_default();
    symbols.iter().filter_map(address)
}

/// Address of a defined symbol that may be a function.
pub(super) fn address(symbol: &elf::Sym64<LE>) -> Option<(u64, SymbolType)> {
    Some((symbol.st_value.get(LE), kind_of(symbol)?))
}

/// Appends the symbols of `.symtab` at addresses that are to be kept.
pub(super) fn read_symtab(
    elf: &ElfFile<'_>,
    origin: NameOrigin,
    keep: &dyn Fn(u64) -> bool,
    found: &mut Vec<RawSymbol>,
) {
    let Ok(table) = elf.sections.symbols(LE, elf.data, elf::SHT_SYMTAB) else {
        return;
    };
    let mut left = elf.data.len() * MAX_SHARING;
    for symbol in table.iter() {
        let Some((vaddr, kind)) = address(symbol) else {
            continue;
        };
        if !keep(vaddr) {
            continue;
        }
        let Some(name) = symbol
            .name(LE, table.strings())
            .ok()
            .and_then(|name| str::from_utf8(name).ok())
        else {
            continue;
        };
        left = left.saturating_sub(name.len());
        if name.len() > MAX_NAME || left == 0 {
            continue;
        }
        // Linkers write versions of exported symbols into the name: `f@@V` is the default one, `f@V` an old one.
        let (name, version) = name
            .split_once('@')
            .map_or((name, None), |(name, version)| (name, Some(version)));
        let old_version = version.filter(|version| !version.starts_with('@'));
        found.extend(raw(symbol, kind, name, old_version, origin));
    }
}

/// Appends the symbols of `.dynsym` at addresses that are to be kept.
pub(super) fn read_dynsym(
    elf: &ElfFile<'_>,
    dynamic: &Dynamic<'_>,
    keep: &dyn Fn(u64) -> bool,
    found: &mut Vec<RawSymbol>,
) {
    let mut left = elf.data.len() * MAX_SHARING;
    let is_kept = |symbol: &elf::Sym64<LE>| keep(symbol.st_value.get(LE));
    for (symbol, name, version, is_default) in dynamic.symbols(&is_kept) {
        let Some(kind) = kind_of(symbol) else {
            continue;
        };
        left = left.saturating_sub(name.len() + version.map_or(0, str::len));
        if name.len() > MAX_NAME || left == 0 {
            continue;
        }
        found.extend(raw(
            symbol,
            kind,
            name,
            version.filter(|_| !is_default),
            NameOrigin::Dynsym,
        ));
    }
}

/// A function of another table than one of symbols.
pub(super) fn known(vaddr: u64, size: u64, name: &str, origin: NameOrigin) -> RawSymbol {
    RawSymbol {
        vaddr,
        size,
        name: name.into(),
        kind: SymbolType::Function,
        origin,
        old_version: None,
        local: true,
    }
}

fn kind_of(symbol: &elf::Sym64<LE>) -> Option<SymbolType> {
    if symbol.st_shndx(LE) == elf::SHN_UNDEF || symbol.st_shndx(LE) == elf::SHN_ABS {
        return None;
    }
    match symbol.st_type() {
        elf::STT_FUNC => Some(SymbolType::Function),
        elf::STT_GNU_IFUNC => Some(SymbolType::Resolver),
        elf::STT_NOTYPE => Some(SymbolType::Untyped),
        _ => None,
    }
}

fn raw(
    symbol: &elf::Sym64<LE>,
    kind: SymbolType,
    name: &str,
    old_version: Option<&str>,
    origin: NameOrigin,
) -> Option<RawSymbol> {
    (!name.is_empty()).then(|| RawSymbol {
        vaddr: symbol.st_value.get(LE),
        size: symbol.st_size.get(LE),
        name: name.into(),
        kind,
        origin,
        old_version: old_version.map(Into::into),
        local: symbol.st_bind() == elf::STB_LOCAL,
    })
}
