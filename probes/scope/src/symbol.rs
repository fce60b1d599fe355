//! Names of addresses: whoever knows some implements [`Resolver`]; [`ProcessSymbols`] knows those of this process, by the
//! files that it has mapped, the kernel's vDSO, and what its just-in-time compilers wrote down.
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::elf::ElfFile;
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

    /// `file:line` of `addr`, where [`Self::resolve`] leaves it out because it is dear.
    fn line(&mut self, _addr: u64) -> Option<String> {
        None
    }

    /// Both.
    fn tell(&mut self, addr: u64) -> Option<Symbol> {
        let symbol = self.resolve(addr)?;
        let line = symbol.line.or_else(|| self.line(addr));
        Some(Symbol { line, ..symbol })
    }
}

/// The symbols of this process.
#[derive(Debug, Default)]
pub struct ProcessSymbols {
    maps: Vec<Map>,
    files: HashMap<String, Option<Known>>,
    compiled: Option<Vec<Compiled>>,
}

/// A mapped file, and the one that was stripped off it.
#[derive(Debug)]
struct Known {
    file: ElfFile,
    debug: Option<ElfFile>,
}

/// Code that a just-in-time compiler named.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Compiled {
    start: u64,
    size: u64,
    name: String,
}

impl ProcessSymbols {
    /// Knows the mappings of now; files are read when they are asked for.
    #[must_use]
    pub fn new() -> Self {
        Self {
            maps: Map::all(),
            ..Self::default()
        }
    }

    /// The file that holds `addr`, and the address that the file itself gives it.
    fn place(&mut self, addr: u64) -> Option<(&Known, u64)> {
        let map = self.maps.iter().find(|map| map.holds(addr))?;
        let path = map.path.as_ref()?;
        let offset = addr - map.start + map.offset;
        let known = self.files.entry(path.clone()).or_insert_with(|| read(map));
        let known = known.as_ref()?;
        let address = known.file.address(offset)?;
        Some((known, address))
    }

    fn compiled(&mut self, addr: u64) -> Option<Symbol> {
        let all = self.compiled.get_or_insert_with(|| {
            let path = format!("/tmp/perf-{}.map", std::process::id());
            compiled(&fs::read_to_string(path).unwrap_or_default())
        });
        let behind = all.partition_point(|code| code.start <= addr);
        let code = all.get(behind.checked_sub(1)?)?;
        let offset = addr - code.start;
        (offset < code.size).then(|| Symbol {
            name: code.name.clone(),
            offset,
            size: code.size,
            line: None,
        })
    }
}

impl Resolver for ProcessSymbols {
    fn resolve(&mut self, addr: u64) -> Option<Symbol> {
        let named = self.place(addr).and_then(|(known, address)| {
            let debug = known.debug.as_ref();
            debug
                .and_then(|debug| debug.named(address))
                .or_else(|| known.file.named(address))
        });
        named.or_else(|| self.compiled(addr))
    }

    fn line(&mut self, addr: u64) -> Option<String> {
        let (known, address) = self.place(addr)?;
        let line = known.file.line(address);
        line.or_else(|| known.debug.as_ref()?.line(address))
    }
}

fn read(map: &Map) -> Option<Known> {
    let path = map.path.as_deref()?;
    if path == "[vdso]" {
        return Some(Known {
            file: ElfFile::of(Path::new(path), memory(map)?).ok()?,
            debug: None,
        });
    }
    if !path.starts_with('/') {
        return None;
    }
    let file = ElfFile::read(Path::new(path)).ok()?;
    let debug = file.build_id().and_then(debug_file);
    Some(Known {
        debug: debug.and_then(|path| ElfFile::read(&path).ok()),
        file,
    })
}

/// What the kernel mapped into every process is in no file.
fn memory(map: &Map) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(map.end - map.start).ok()?];
    let memory = File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, map.start).ok()?;
    Some(bytes)
}

/// Where distributions put what they strip off their programs.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (head, tail) = hex.split_at_checked(2)?;
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{head}/{tail}.debug"));
    path.exists().then_some(path)
}

/// The lines of a perf map: start and size in hexadecimal digits, and the name. What was compiled later stands in the
/// place of what it overlaps.
fn compiled(text: &str) -> Vec<Compiled> {
    let mut all: Vec<Compiled> = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        let mut hex = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
        if let (Some(start), Some(size)) = (hex(), hex())
            && let Some(name) = words.next()
        {
            all.push(Compiled {
                start,
                size,
                name: name.to_owned(),
            });
        }
    }
    all.reverse();
    all.sort_by_key(|code| code.start);
    all.dedup_by_key(|code| code.start);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_this_program_has_its_name_size_and_line() {
        let here = a_function_of_this_program_has_its_name_size_and_line as *const () as u64;
        let mut symbols = ProcessSymbols::new();
        let symbol = symbols.resolve(here + 1).expect("a symbol");
        assert!(
            symbol.name.contains("a_function_of_this_program"),
            "{symbol:?}"
        );
        assert_eq!(symbol.offset, 1);
        assert!(symbol.size > 1);
        let line = symbols.line(here).expect("a line");
        assert!(line.contains("symbol.rs:"), "{line}");
    }

    #[test]
    fn an_address_of_no_file_has_no_name() {
        assert_eq!(ProcessSymbols::new().resolve(8), None);
        assert_eq!(ProcessSymbols::new().line(8), None);
    }

    #[test]
    fn the_vdso_has_names() {
        let mut symbols = ProcessSymbols::new();
        let vdso = symbols
            .maps
            .iter()
            .find(|map| map.path.as_deref() == Some("[vdso]"));
        let Some((start, end)) = vdso.map(|map| (map.start, map.end)) else {
            return;
        };
        let names = (start..end).filter_map(|addr| symbols.resolve(addr));
        assert!(
            names
                .map(|symbol| symbol.name)
                .any(|name| name.contains("gettime"))
        );
    }

    #[test]
    fn what_was_compiled_last_at_a_place_has_its_name() {
        let text = "7f00 10 one\n0x7f20 8 two words\n7f00 20 three\nnonsense\n";
        let all = compiled(text);
        let names: Vec<_> = all
            .iter()
            .map(|code| (code.start, code.name.as_str()))
            .collect();
        assert_eq!(names, [(0x7f00, "three"), (0x7f20, "two words")]);
    }
}
