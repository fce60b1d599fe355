//! What the file as a whole was written in, and whose exceptions pass through it.
//!
//! By evidence in the file being probed: build information, personality routines, the compiler's comment.

use gimli::Pointer;
use rustc_hash::FxHashMap;

use super::dynamic::{Dynamic, Slot};
use super::elf::{ElfFile, ImageKind};
use super::functions::ImageFunction;
use super::plt;
use super::symbols::RawSymbol;
use super::unwind::Unwind;
use crate::function::Language;

/// A personality routine: code that an unwinder asks, for each frame, whether it stops the exception.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Personality {
    /// `__gxx_personality_v0`.
    Cpp,
    /// `rust_eh_personality`.
    Rust,
    /// `__gcc_personality_v0`: clean-ups of C code at thread cancellation; it never stops an exception.
    CCleanup,
    /// Another one, by name.
    Other(String),
    /// A routine without a name, in a file whose exception tables catch something.
    Unnamed,
}

impl Personality {
    fn of(name: &str) -> Self {
        match name {
            "__gxx_personality_v0" => Self::Cpp,
            "rust_eh_personality" => Self::Rust,
            "__gcc_personality_v0" => Self::CCleanup,
            _ if name.contains("rust_eh_personality") => Self::Rust,
            _ => Self::Other(name.to_owned()),
        }
    }

    /// Whether exceptions are thrown or caught where this routine is used.
    pub const fn throws(&self) -> bool {
        !matches!(self, Self::CCleanup)
    }
}

/// The personality routines of the image, sorted, each once.
pub(super) fn personalities(
    elf: &ElfFile<'_>,
    dynamic: &Dynamic<'_>,
    unwind: &Unwind,
    symbols: &[RawSymbol],
) -> Vec<Personality> {
    let names: FxHashMap<u64, &str> = symbols
        .iter()
        .map(|symbol| (symbol.vaddr, &*symbol.name))
        .collect();
    let mut found: Vec<Personality> = unwind
        .personalities
        .iter()
        .map(|&(pointer, catches)| resolve(elf, dynamic, pointer, catches, &names))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// A direct pointer is the routine or its import stub; an indirect one is a word that the loader fills. What has no
/// name and never catches is what the C library uses inside itself.
fn resolve(
    elf: &ElfFile<'_>,
    dynamic: &Dynamic<'_>,
    pointer: Pointer,
    catches: bool,
    names: &FxHashMap<u64, &str>,
) -> Personality {
    let slot = match pointer {
        Pointer::Direct(vaddr) => {
            match plt::stub_target_word(elf, vaddr).and_then(|word| dynamic.slots.get(&word)) {
                Some(&slot) => slot,
                None => Slot::Local(vaddr),
            }
        }
        Pointer::Indirect(word) => match dynamic.slots.get(&word) {
            Some(&slot) => slot,
            None => Slot::Local(elf.word_at(word).unwrap_or_default()),
        },
    };
    match slot {
        Slot::Import(import) => Personality::of(import.name),
        Slot::Local(vaddr) | Slot::Resolved(vaddr) => {
            let unnamed = if catches {
                Personality::Unnamed
            } else {
                Personality::CCleanup
            };
            names
                .get(&vaddr)
                .map_or(unnamed, |name| Personality::of(name))
        }
    }
}

/// Whether the file was linked by Go: looked for in the file itself, because a flag or a name can be wrong.
pub(super) fn is_go(elf: &ElfFile<'_>, symbols: &[RawSymbol]) -> bool {
    const BUILD_INFO: &[u8] = b"\xff Go buildinf:";
    let section = [".go.buildinfo", ".gopclntab", ".data.rel.ro.gopclntab"]
        .iter()
        .any(|name| elf.section(name).is_some());
    let symbol = || {
        symbols
            .iter()
            .any(|symbol| matches!(&*symbol.name, "runtime.goexit" | "runtime.morestack"))
    };
    // Without section headers: the build information is the first thing in a writable segment, 16-byte aligned.
    let in_data = || {
        let data = elf
            .segments
            .iter()
            .filter(|segment| segment.writable)
            .filter_map(|s| elf.bytes_from(s.vaddr));
        data.flat_map(|bytes| bytes.chunks(16))
            .any(|chunk| chunk.starts_with(BUILD_INFO))
    };
    section || symbol() || (elf.sections.is_empty() && in_data())
}

/// The language runtime linked into the image that looks return addresses on the machine stack up, to collect garbage
/// or to deoptimise: an address that is none of its own ends the program, whether anything throws or not.
pub(super) fn stack_walker(symbols: &[RawSymbol]) -> Option<&'static str> {
    symbols.iter().find_map(|symbol| match &*symbol.name {
        "caml_start_program" => Some("OCaml"),
        "stg_ap_0_fast" | "hs_init" => Some("Haskell"),
        "JNI_CreateJavaVM" => Some("Java"),
        "coreclr_initialize" => Some(".NET"),
        "mono_jit_init" => Some("Mono"),
        _ => None,
    })
}

/// The function by which the image makes stacks for coroutines. Without one of these a program can only use stacks that
/// the kernel or the thread library made, or switches them by code of its own, which is found function by function.
pub(super) fn stack_maker(
    dynamic: &Dynamic<'_>,
    functions: &[ImageFunction],
    kind: ImageKind,
) -> Option<&'static str> {
    const C_LIBRARY: &str = "makecontext";
    const LINKED_IN: &[&str] = &[
        "make_fcontext",
        "coro_create",
        "co_create",
        "bthread_make_fcontext",
    ];
    let imported = |name: &&&str| {
        let is = |slot: &Slot<'_>| matches!(slot, Slot::Import(import) if import.name == **name);
        dynamic.slots.values().any(is)
    };
    let defined = |name: &&&str| {
        functions
            .iter()
            .any(|function| function.raw_names().any(|raw| raw == **name))
    };
    let all = std::iter::once(&C_LIBRARY).chain(LINKED_IN);
    // In a static program the C library's is there only if something uses it. The C library itself is a program too
    // (it has an interpreter, and prints its version), but no static one.
    let is_static = matches!(kind, ImageKind::Executable | ImageKind::StaticPie);
    let inside = LINKED_IN.iter().chain(is_static.then_some(&C_LIBRARY));
    all.clone()
        .find(imported)
        .or_else(|| inside.clone().find(defined))
        .copied()
}

/// The language of functions whose own name does not tell.
pub(super) fn of_file(elf: &ElfFile<'_>, go: bool) -> Language {
    if go {
        return Language::Go;
    }
    let (_, comment) = elf.section(".comment").unwrap_or_default();
    let comment = String::from_utf8_lossy(comment);
    // C++ and Rust functions carry their language in their mangled names: what is left of them is C.
    if comment.contains("GCC:") || comment.contains("clang version") {
        Language::C
    } else {
        Language::Native
    }
}
