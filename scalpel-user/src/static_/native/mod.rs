//! What exists in an executable: functions by all tables it has, inlined copies by its debug information, and the calls
//! that its instructions spell out.

mod dwarf;
mod lambda;
mod pieces;

use std::fs;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSymbol as _};
use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};
use thiserror::Error;

use self::dwarf::{Debug, Told};
use crate::catalog::{
    Builder, Catalog, DefId, Definition, Edge, File, FileId, Flags, FoundBy, Gap, GapKind, How,
    Kind, Native, Span,
};
use crate::function::Language;
use crate::image::{
    CallKind, DebugFiles, Image, ImageError, ImageFunction, NameOrigin, NoDebugFiles, Target,
    separate,
};

/// Why an executable cannot be read.
#[derive(Debug, Error)]
pub enum NativeError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The file is no executable that is understood.
    #[error("{} is no executable for this purpose: give an ELF file for x86-64", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ImageError,
    },
}

/// Adds an executable with its functions and calls.
pub(super) fn add(path: &Path, catalog: &mut Builder) -> Result<(), NativeError> {
    let bytes = fs::read(path).map_err(|source| NativeError::Io {
        path: path.to_owned(),
        source,
    })?;
    let shown = path.to_string_lossy();
    add_bytes(&bytes, &shown, &OnDisk, catalog).map_err(|source| NativeError::Image {
        path: path.to_owned(),
        source,
    })
}

/// What an executable tells that is not on this machine: without debug files of its own.
pub fn of_image(bytes: &[u8]) -> Result<Catalog, ImageError> {
    let mut catalog = Builder::new();
    add_bytes(bytes, "image", &NoDebugFiles, &mut catalog)?;
    Ok(catalog.finish())
}

fn add_bytes(
    bytes: &[u8],
    path: &str,
    files: &dyn DebugFiles,
    catalog: &mut Builder,
) -> Result<(), ImageError> {
    let image = Image::parse(bytes, path, files)?;
    let file = catalog.file(File {
        root: None,
        path: path.to_owned(),
        language: Language::Native,
        content: Sha256::digest(bytes).into(),
        text_hash: 0,
        build_id: image.build_id(),
        bytes: bytes.len() as u64,
        lines: 0,
        calls: 0,
        resolved: 0,
    });
    let debug = debug(bytes, path, files, &image);
    gaps(catalog, file, &image, &debug);
    let mut adding = Adding {
        catalog,
        file,
        image: &image,
        by_index: Vec::new(),
        by_address: FxHashMap::default(),
        inlined: FxHashMap::default(),
        imports: FxHashMap::default(),
    };
    adding.functions(&debug);
    adding.inlined(&debug);
    adding.calls(&vtables(bytes));
    Ok(())
}

/// Separate debug files where this machine has them.
struct OnDisk;

impl DebugFiles for OnDisk {
    fn open(&self, path: &str) -> Option<Box<dyn AsRef<[u8]>>> {
        Some(Box::new(fs::read(path).ok()?))
    }
}

/// Debug information of the executable or its separate file; without any, what Go's table tells.
fn debug(bytes: &[u8], path: &str, files: &dyn DebugFiles, image: &Image<'_>) -> Debug {
    let separate = separate(bytes, path, files);
    let own = separate.own.as_ref();
    let own = own.map_or(bytes, |file| (*file.bytes).as_ref());
    let shared = separate.shared.as_ref();
    let debug = Debug::read(own, shared.map(|file| (*file.bytes).as_ref()));
    match debug.is_empty() && debug.fault.is_none() {
        true => Debug::of_go(image),
        false => debug,
    }
}

fn gaps(catalog: &mut Builder, file: FileId, image: &Image<'_>, debug: &Debug) {
    let mut gap = |kind, detail: &str| {
        catalog.gap(Gap {
            file: Some(file),
            kind,
            line: 0,
            count: 1,
            detail: detail.to_owned(),
        });
    };
    let is_full = |function: &ImageFunction| {
        matches!(
            function.origin,
            NameOrigin::Symtab | NameOrigin::DebugFile | NameOrigin::GoTable
        )
    };
    if !image.functions().iter().any(is_full) {
        gap(
            GapKind::NoSymbols,
            "functions are known by unwind table and exports only",
        );
    }
    if debug.is_empty() {
        gap(
            GapKind::NoDebugInfo,
            "lines and inlined functions are not known",
        );
    }
    if let Some(fault) = &debug.fault {
        gap(GapKind::BadTable, fault);
    }
}

/// Ranges of the tables of virtual functions that symbols name.
fn vtables(bytes: &[u8]) -> Vec<(u64, u64)> {
    let Ok(file) = object::File::parse(bytes) else {
        return Vec::new();
    };
    let tables = file.symbols().chain(file.dynamic_symbols());
    tables
        .filter(|symbol| symbol.name().is_ok_and(|name| name.starts_with("_ZTV")))
        .map(|symbol| {
            (
                symbol.address(),
                symbol.address().saturating_add(symbol.size()),
            )
        })
        .collect()
}

struct Adding<'a, 'd> {
    catalog: &'a mut Builder,
    file: FileId,
    image: &'a Image<'d>,
    /// By index in the image: its definition, or that of the function whose part it is.
    by_index: Vec<Option<DefId>>,
    by_address: FxHashMap<u64, DefId>,
    /// Functions of which only inlined copies exist, by name and place.
    inlined: FxHashMap<Told, DefId>,
    imports: FxHashMap<String, DefId>,
}

impl Adding<'_, '_> {
    fn function(&mut self, function: &ImageFunction, debug: &Debug) -> DefId {
        let told = debug.functions.get(&function.vaddr);
        let found_by = match function.origin {
            NameOrigin::EhFrame if told.is_some() => FoundBy::Dwarf,
            NameOrigin::EhFrame => FoundBy::Unwind,
            NameOrigin::GoTable => FoundBy::Pclntab,
            _ => FoundBy::Symbols,
        };
        self.definition(
            function.name(),
            Kind::Native,
            Native {
                raw_name: function.raw_name.clone(),
                address: function.vaddr,
                file_offset: function.file_offset,
                size: function.size,
                source: told.and_then(|told| told.source.as_deref().map(str::to_owned)),
                line: told.and_then(|told| told.line),
                column: told.and_then(|told| told.column),
                found_by,
            },
        )
    }

    fn definition(&mut self, name: &str, kind: Kind, native: Native) -> DefId {
        self.catalog.definition(Definition {
            file: self.file,
            parent: None,
            kind,
            name: name.to_owned(),
            qualified: name.to_owned(),
            ordinal: 0,
            flags: Flags {
                anonymous: native.raw_name.is_empty() && native.found_by == FoundBy::Unwind,
                ..Flags::default()
            },
            body_hash: 0,
            span: Span::default(),
            native: Some(native),
        })
    }

    fn calls(&mut self, vtables: &[(u64, u64)]) {
        let calls = self.image.direct_calls(vtables);
        let count = u32::try_from(calls.len()).unwrap_or(u32::MAX);
        for call in calls {
            let callee = match call.target {
                Target::Function(index) => self.by_index.get(index).copied().flatten(),
                // A damaged table names nothing.
                Target::Import("") => None,
                Target::Import(name) => Some(self.import(name)),
            };
            let caller = self.by_index.get(call.caller).copied().flatten();
            if let (Some(caller), Some(callee)) = (caller, callee) {
                self.catalog.edge(Edge {
                    caller,
                    callee,
                    how: how(call.kind, call.target),
                    at: call.at,
                    line: 0,
                    column: 0,
                });
            }
        }
        self.catalog.counts(self.file, count, count);
    }

    fn import(&mut self, name: &str) -> DefId {
        if let Some(&known) = self.imports.get(name) {
            return known;
        }
        let (shown, _) = crate::image::display_name(name);
        let native = Native {
            raw_name: name.to_owned(),
            found_by: FoundBy::Plt,
            ..Native::default()
        };
        let id = self.definition(&shown, Kind::Import, native);
        self.imports.insert(name.to_owned(), id);
        id
    }
}

const fn how(kind: CallKind, target: Target<'_>) -> How {
    match (kind, target) {
        (CallKind::Call, Target::Import(_)) => How::Plt,
        (CallKind::Call, Target::Function(_)) => How::Direct,
        (CallKind::TailJump, _) => How::TailJump,
        (CallKind::AddressTaken, _) => How::AddressTaken,
        (CallKind::Vtable, _) => How::Vtable,
    }
}
