//! A program or library on disk: its code by file offset, with the names and source lines of its addresses. It knows
//! nothing of where a process mapped it.
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use addr2line::Context;
use gimli::{EndianRcSlice, RunTimeEndian};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use symbolic_demangle::demangle;

use crate::symbol::Symbol;

type Lines = Context<EndianRcSlice<RunTimeEndian>>;

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where the file wants it, before it is moved as a whole.
    pub(crate) address: u64,
    /// Its bytes in the file.
    pub(crate) offset: u64,
    /// How many bytes the file has of it.
    pub(crate) size: u64,
    /// Whether it can be run.
    pub(crate) code: bool,
}

/// A symbol that names code.
#[derive(Clone, Debug)]
struct Named {
    address: u64,
    size: u64,
    name: String,
}

/// An ELF file.
pub(crate) struct ElfFile {
    path: PathBuf,
    bytes: Vec<u8>,
    build_id: Option<Vec<u8>>,
    segments: Vec<Segment>,
    symbols: Vec<Named>,
    /// Read when the first line is asked for.
    lines: OnceCell<Option<Lines>>,
}

impl std::fmt::Debug for ElfFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElfFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl ElfFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no ELF file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::of(path, bytes).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// The same of bytes that were read already.
    ///
    /// # Errors
    /// They are no ELF file.
    pub(crate) fn of(path: &Path, bytes: Vec<u8>) -> Result<Self, String> {
        let file = object::File::parse(bytes.as_slice()).map_err(|error| error.to_string())?;
        let segments = file
            .segments()
            .map(|segment| {
                let (offset, size) = segment.file_range();
                Segment {
                    address: segment.address(),
                    offset,
                    size,
                    code: segment.permissions().executable(),
                }
            })
            .collect();
        let build_id = file.build_id().ok().flatten().map(<[u8]>::to_vec);
        let symbols = symbols(&file);
        Ok(Self {
            path: path.to_owned(),
            build_id,
            segments,
            symbols,
            lines: OnceCell::new(),
            bytes,
        })
    }

    /// Where it was read.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file.
    #[must_use]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its build-id.
    #[must_use]
    pub(crate) fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// What is loaded of it.
    #[must_use]
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The address that the file itself gives to the byte at `offset`.
    #[must_use]
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| offset.wrapping_sub(segment.offset) < segment.size;
        let segment = self.segments.iter().find(holds)?;
        Some(segment.address.wrapping_add(offset - segment.offset))
    }

    /// The name and the source line of an address that the file itself gives.
    #[must_use]
    pub(crate) fn symbol(&self, address: u64) -> Option<Symbol> {
        self.named(address).map(|symbol| Symbol {
            line: self.line(address),
            ..symbol
        })
    }

    /// The name alone: line tables are not read for it.
    #[must_use]
    pub(crate) fn named(&self, address: u64) -> Option<Symbol> {
        let behind = self
            .symbols
            .partition_point(|named| named.address <= address);
        let named = self.symbols.get(behind.checked_sub(1)?)?;
        let offset = address - named.address;
        (named.size == 0 || offset < named.size).then(|| Symbol {
            name: demangle(&named.name).into_owned(),
            offset,
            size: named.size,
            line: None,
        })
    }

    /// `file:line` of an address.
    #[must_use]
    pub(crate) fn line(&self, address: u64) -> Option<String> {
        let lines = self.lines.get_or_init(|| {
            let file = object::File::parse(self.bytes.as_slice()).ok()?;
            lines(&file)
        });
        let location = lines.as_ref()?.find_location(address).ok()??;
        Some(format!("{}:{}", location.file?, location.line?))
    }
}

fn symbols(file: &object::File<'_>) -> Vec<Named> {
    let all = file.symbols().chain(file.dynamic_symbols());
    let mut all: Vec<Named> = all
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .filter_map(|symbol| {
            Some(Named {
                address: symbol.address(),
                size: symbol.size(),
                name: symbol.name().ok()?.to_owned(),
            })
        })
        .collect();
    // Of many names of one place the sized one wins, then the first by name.
    all.sort_by(|a, b| (a.address, b.size, &a.name).cmp(&(b.address, a.size, &b.name)));
    all.dedup_by_key(|named| named.address);
    all
}

/// The line tables; `None` where there are none.
fn lines(file: &object::File<'_>) -> Option<Lines> {
    file.section_by_name(".debug_line")?;
    let endian = if file.is_little_endian() {
        RunTimeEndian::Little
    } else {
        RunTimeEndian::Big
    };
    let section = |id: gimli::SectionId| -> Result<_, gimli::Error> {
        let data = file
            .section_by_name(id.name())
            .and_then(|section| section.uncompressed_data().ok())
            .unwrap_or_default();
        Ok(EndianRcSlice::new(Rc::from(&*data), endian))
    };
    Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_this_program_has_its_name_and_line() {
        let file = ElfFile::read(&std::env::current_exe().unwrap()).unwrap();
        let named = file
            .symbols
            .iter()
            .find(|named| {
                named
                    .name
                    .contains("a_function_of_this_program_has_its_name_and_line")
            })
            .unwrap();
        let symbol = file.symbol(named.address).unwrap();
        assert!(symbol.line.unwrap().contains("elf.rs:"), "{named:?}");
        assert_eq!(file.symbol(8), None);
    }

    #[test]
    fn what_is_no_elf_file_is_told() {
        let error = ElfFile::of(Path::new("x"), vec![1, 2, 3]).unwrap_err();
        assert!(!error.is_empty());
    }
}
