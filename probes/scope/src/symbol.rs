//! Names of addresses: whoever knows some implements [`Resolver`]; [`ProcessSymbols`] reads the files this process has
//! mapped.
use std::collections::HashMap;
use std::fs;

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use symbolic_demangle::demangle;

use crate::maps::Map;

/// What stands at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, demangled.
    pub name: String,
    /// How far behind its beginning the address is.
    pub offset: u64,
    /// Its size in bytes; 0 if it is not known.
    pub size: u64,
    /// `file:line`, if it is known.
    pub line: Option<String>,
}

/// Tells the names of addresses.
pub trait Resolver {
    /// The symbol that holds `addr`; `None` if it has no name here.
    fn resolve(&mut self, addr: u64) -> Option<Symbol>;
}

/// The symbols of the files that this process has mapped, the vDSO's not.
#[derive(Debug, Default)]
pub struct ProcessSymbols {
    maps: Vec<Map>,
    files: HashMap<String, Vec<Named>>,
}

/// A symbol of a file.
#[derive(Clone, Debug)]
struct Named {
    /// Offset in the file, which a mapping turns into an address.
    offset: u64,
    size: u64,
    name: String,
}

impl ProcessSymbols {
    /// Knows the mappings of now; files are read when they are asked for.
    #[must_use]
    pub fn new() -> Self {
        Self {
            maps: Map::all(),
            files: HashMap::new(),
        }
    }
}

impl Resolver for ProcessSymbols {
    fn resolve(&mut self, addr: u64) -> Option<Symbol> {
        let map = self.maps.iter().find(|map| map.holds(addr))?;
        let path = map.path.as_ref().filter(|path| path.starts_with('/'))?;
        let offset = addr - map.start + map.offset;
        let file = self
            .files
            .entry(path.clone())
            .or_insert_with(|| read(path).unwrap_or_default());
        let behind = file.partition_point(|named| named.offset <= offset);
        let named = file.get(behind.checked_sub(1)?)?;
        let inside = offset - named.offset;
        (named.size == 0 || inside < named.size).then(|| Symbol {
            name: demangle(&named.name).into_owned(),
            offset: inside,
            size: named.size,
            line: None,
        })
    }
}

/// The functions of an ELF file by file offset.
fn read(path: &str) -> Option<Vec<Named>> {
    let bytes = fs::read(path).ok()?;
    let file = object::File::parse(bytes.as_slice()).ok()?;
    let segments: Vec<_> = file
        .segments()
        .map(|segment| (segment.address(), segment.size(), segment.file_range().0))
        .collect();
    let offset = |addr: u64| {
        let holds = |(start, size, _): &&(u64, u64, u64)| addr.wrapping_sub(*start) < *size;
        let (start, _, at) = segments.iter().find(holds)?;
        Some(addr - start + at)
    };
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let mut all: Vec<Named> = symbols
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .filter_map(|symbol| {
            Some(Named {
                offset: offset(symbol.address())?,
                size: symbol.size(),
                name: symbol.name().ok()?.to_owned(),
            })
        })
        .collect();
    // Of many names of one place the sized one wins, then the first by name.
    all.sort_by(|a, b| (a.offset, b.size, &a.name).cmp(&(b.offset, a.size, &b.name)));
    all.dedup_by_key(|named| named.offset);
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_this_program_has_its_name_and_size() {
        let here = a_function_of_this_program_has_its_name_and_size as *const () as u64;
        let symbol = ProcessSymbols::new().resolve(here + 1).expect("a symbol");
        assert!(
            symbol.name.contains("a_function_of_this_program"),
            "{symbol:?}"
        );
        assert_eq!(symbol.offset, 1);
        assert!(symbol.size > 1);
    }

    #[test]
    fn an_address_of_no_file_has_no_name() {
        assert_eq!(ProcessSymbols::new().resolve(8), None);
    }
}
