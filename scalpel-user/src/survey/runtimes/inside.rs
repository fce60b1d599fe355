//! What a program's file tells of runtimes in it: the symbols that it defines, and where some keep their versions.
//!
//! The file is a stranger's: it is read in parts, and what does not fit tells nothing.

use std::fs::File;
use std::path::Path;

use memchr::memmem;
use object::elf::{DT_NEEDED, SHT_NOBITS};
use object::read::elf::{Dyn, ElfFile64};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, ReadCache};

use crate::target::Runtime;

/// A symbol that only the runtime itself defines.
const SYMBOLS: [(&str, Runtime); 12] = [
    ("_PyRuntime", Runtime::Python),
    ("Py_BytesMain", Runtime::Python),
    ("_ZN4node5StartEiPPc", Runtime::Node),
    // Whatever loads add-ons: Electron, Bun, Deno.
    ("napi_module_register", Runtime::Node),
    ("JNI_CreateJavaVM", Runtime::Java),
    ("ruby_run_node", Runtime::Ruby),
    ("php_module_startup", Runtime::Php),
    ("coreclr_initialize", Runtime::Dotnet),
    // A .NET program in one file.
    ("DotNetRuntimeInfo", Runtime::Dotnet),
    ("lua_newstate", Runtime::Lua),
    ("perl_parse", Runtime::Perl),
    ("runtime.goexit", Runtime::Go),
];

/// First bytes of `_PyRuntime` since 3.13; a number of the version and whether there is no lock follow, 8 bytes each.
const PYTHON_COOKIE: &[u8] = b"xdebugpy";

/// What a program names that loads Python when it runs: one that `PyInstaller` has made.
const STARTS_PYTHON: &[u8] = b"Py_Initialize";

/// First bytes of the build information of Go.
const GO_MAGIC: &[u8] = b"\xff Go buildinf:";

/// Where the version stands in it, since Go 1.18: its length, then its text.
const GO_VERSION: usize = 32;

type Elf64Dyn = object::elf::Dyn64<LittleEndian>;
type Elf<'a> = ElfFile64<'a, LittleEndian, &'a ReadCache<&'a File>>;

/// What was found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inside {
    /// Runtimes that it defines.
    pub(super) runtimes: Vec<Runtime>,
    /// Version of `CPython`.
    pub(super) python: Option<String>,
    /// Version of Go.
    pub(super) go: Option<String>,
    /// `CPython` without its global lock.
    pub(super) free_threaded: bool,
}

impl Inside {
    /// Looks into a file; `None` = it is no program of this architecture.
    pub(super) fn of(file: &File) -> Option<Self> {
        let cache = ReadCache::new(file);
        let elf = Elf::parse(&cache).ok()?;
        let mut inside = Self::default();
        inside.symbols(&elf);
        if let Some(section) = elf.section_by_name(".go.buildinfo") {
            inside.add(Runtime::Go);
            inside.go = section.data().ok().and_then(go_version);
        }
        Some(inside)
    }

    /// Adds the runtimes of libraries that the program asks for, and those that it may load when it runs.
    pub(super) fn of_program(file: &File) -> Option<Self> {
        let mut inside = Self::of(file)?;
        let cache = ReadCache::new(file);
        let elf = Elf::parse(&cache).ok()?;
        for library in needed(&elf) {
            if let Some(runtime) = Runtime::by_file(Path::new(&library)) {
                inside.add(runtime);
            }
        }
        let constants = elf.section_by_name(".rodata");
        let constants = constants.and_then(|section| section.data().ok());
        if constants.is_some_and(|bytes| memmem::find(bytes, STARTS_PYTHON).is_some()) {
            inside.add(Runtime::Python);
        }
        Some(inside)
    }

    fn symbols(&mut self, elf: &Elf<'_>) {
        for symbol in elf.dynamic_symbols().chain(elf.symbols()) {
            let Ok(name) = symbol.name() else { continue };
            if symbol.is_undefined() {
                continue;
            }
            if let Some((_, runtime)) = SYMBOLS.iter().find(|(known, _)| *known == name) {
                self.add(*runtime);
            }
            match name {
                // A constant since 3.11.
                "Py_Version" => {
                    self.python = bytes(elf, symbol.address(), 4).and_then(python_version);
                }
                "_PyRuntime" => {
                    let head = bytes(elf, symbol.address(), 24).unwrap_or_default();
                    self.free_threaded |= has_no_lock(head);
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, runtime: Runtime) {
        if !self.runtimes.contains(&runtime) {
            self.runtimes.push(runtime);
        }
    }
}

/// Names of the libraries that are loaded with it.
fn needed(elf: &Elf<'_>) -> Vec<String> {
    let (sections, data) = (elf.elf_section_table(), elf.data());
    let Ok(Some((entries, strings))) = sections.dynamic(LittleEndian, data) else {
        return Vec::new();
    };
    let Ok(strings) = sections.strings(LittleEndian, data, strings) else {
        return Vec::new();
    };
    let named = entries
        .iter()
        .filter(|entry| entry.d_tag(LittleEndian) == DT_NEEDED);
    let name = |entry: &Elf64Dyn| {
        let at = u32::try_from(entry.d_val(LittleEndian)).ok()?;
        let name = strings.get(at).ok()?;
        Some(String::from_utf8_lossy(name).into_owned())
    };
    named.filter_map(name).collect()
}

/// Bytes of the file at a link-time address.
fn bytes<'a>(elf: &Elf<'a>, address: u64, length: u64) -> Option<&'a [u8]> {
    let holds = |section: &object::read::elf::ElfSection64<'_, '_, LittleEndian, _>| {
        section.elf_section_header().sh_type.get(LittleEndian) != SHT_NOBITS
            && (section.address()..section.address().saturating_add(section.size()))
                .contains(&address)
    };
    let section = elf.sections().find(holds)?;
    section.data_range(address, length).ok()?
}

/// `0x030E08F0` is 3.14.8.
fn python_version(bytes: &[u8]) -> Option<String> {
    let number = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let [major, minor, micro, _level] = number.to_be_bytes();
    (major == 3).then(|| format!("{major}.{minor}.{micro}"))
}

fn has_no_lock(head: &[u8]) -> bool {
    let flag = head.get(16..24).and_then(|bytes| bytes.try_into().ok());
    head.starts_with(PYTHON_COOKIE) && flag.map(u64::from_le_bytes) == Some(1)
}

/// `go1.26.8`, behind its length.
fn go_version(info: &[u8]) -> Option<String> {
    let length = usize::from(*info.get(GO_VERSION)?);
    let text = info.get(GO_VERSION + 1..GO_VERSION + 1 + length)?;
    let text = str::from_utf8(text).ok()?.strip_prefix("go")?;
    info.starts_with(GO_MAGIC).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_off_the_bytes_that_hold_them() {
        assert_eq!(
            python_version(&0x030E_08F0_u32.to_le_bytes()).as_deref(),
            Some("3.14.8")
        );
        assert_eq!(python_version(&[1, 2]), None);
        let mut info = GO_MAGIC.to_vec();
        info.resize(GO_VERSION, 0);
        info.extend(b"\x08go1.26.8");
        assert_eq!(go_version(&info).as_deref(), Some("1.26.8"));
        info.truncate(GO_VERSION + 4);
        assert_eq!(go_version(&info), None);
    }

    #[test]
    fn an_interpreter_without_its_lock_is_known_by_its_cookie() {
        let head = |flag: u64| [PYTHON_COOKIE, &[0; 8], &flag.to_le_bytes()].concat();
        assert!(has_no_lock(&head(1)));
        assert!(!has_no_lock(&head(0)));
        assert!(!has_no_lock(&head(1)[..20]));
        assert!(!has_no_lock(&[1; 24]));
    }

    #[test]
    fn this_program_has_no_runtime_and_no_program_is_nothing() {
        let us = File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(Inside::of(&us), Some(Inside::default()));
        // This text is in it.
        let may_load = Inside::of_program(&us).unwrap().runtimes;
        assert_eq!(may_load, [Runtime::Python]);
        let text = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        assert_eq!(Inside::of(&text), None);
    }
}
