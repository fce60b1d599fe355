//! Reads source trees: all files that version control would keep, in parallel, each text once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ignore::{DirEntry, WalkBuilder};
use sha2::{Digest, Sha256};

use super::dialect::{self, Dialect};
use super::facts::{self, Parsed};
use super::link::{self, ModuleFiles, Unit};
use super::native::{self, NativeError};
use super::reused::Reused;
use super::walk;
use crate::catalog::{
    Builder, Catalog, DefId, Definition, File, FileId, Gap, GapKind, Kept, Kind, RootId, hash,
};

/// Largest file that is parsed: a syntax tree takes about 25 times its text.
const MOST_BYTES: u64 = 10 << 20;
/// Above this size files are parsed one at a time, whatever the number of processors.
const LARGE: u64 = 1 << 20;

/// What was built.
#[derive(Debug, Default)]
pub struct Built {
    /// What exists, and what the next build needs to know.
    pub kept: Kept,
    /// Files that were not parsed, because they are as they were.
    pub reused: usize,
    /// It was told to stop before all was read: there is nothing.
    pub stopped: bool,
}

/// A file that was looked at.
struct Read {
    root: RootId,
    path: String,
    dialect: &'static Dialect,
    content: [u8; 32],
    text_hash: u64,
    bytes: u64,
    parsed: Parsed,
    reused: bool,
}

impl Read {
    fn new(root: RootId, path: String, dialect: &'static Dialect) -> Self {
        Self {
            root,
            path,
            dialect,
            content: [0; 32],
            text_hash: 0,
            bytes: 0,
            parsed: Parsed::default(),
            reused: false,
        }
    }
}

/// What one text tells that stands alone in a folder; `None` if `name` is no file of a known language.
pub fn of_text(name: &str, text: Vec<u8>) -> Option<Catalog> {
    let dialect = dialect::of_path(Path::new(name))?;
    let mut catalog = Builder::new();
    let mut read = Read::new(catalog.root("/"), name.to_owned(), dialect);
    parse(&mut read, text);
    let built = put_together(catalog, vec![read], &ModuleFiles::default(), &[]);
    Some(built.ok()?.kept.catalog)
}

/// Reads all files below `roots`, and the executables. What `before` knows of an unchanged source is not parsed again. It
/// gives up between two files, and has nothing then, once `stop` says so.
///
/// # Errors
/// [`NativeError`] for an executable that cannot be read; whatever a folder holds is read or told as a gap.
pub fn build(
    roots: &[PathBuf],
    executables: &[PathBuf],
    before: &Kept,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Built, NativeError> {
    let mut catalog = Builder::new();
    let mut files = Vec::new();
    let mut skipped = Vec::new();
    let mut modules = ModuleFiles::default();
    for root in roots {
        let id = catalog.root(root.to_string_lossy());
        list(root, id, &mut files, &mut skipped, &mut modules);
    }
    let read = read_all(&files, roots, &Reused::of(before), stop);
    if stop() {
        return Ok(Built {
            stopped: true,
            ..Built::default()
        });
    }
    for gap in skipped {
        catalog.gap(gap);
    }
    put_together(catalog, read, &modules, executables)
}

/// A file to read.
struct Listed {
    root: RootId,
    path: PathBuf,
    dialect: &'static Dialect,
    bytes: u64,
}

fn list(
    root: &Path,
    id: RootId,
    files: &mut Vec<Listed>,
    skipped: &mut Vec<Gap>,
    modules: &mut ModuleFiles,
) {
    // A folder named outright is read though one above it says to ignore it, as a virtual environment does of all in it.
    let (before, gaps) = (files.len(), skipped.len());
    list_once((root, true), id, files, skipped, modules);
    if files.len() == before {
        skipped.truncate(gaps);
        list_once((root, false), id, files, skipped, modules);
    }
}

fn list_once(
    (root, heeds_parents): (&Path, bool),
    id: RootId,
    files: &mut Vec<Listed>,
    skipped: &mut Vec<Gap>,
    modules: &mut ModuleFiles,
) {
    let walk = WalkBuilder::new(root)
        .parents(heeds_parents)
        .require_git(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(|entry| entry.depth() == 0 || !is_foreign(entry))
        .build();
    for entry in walk {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                skipped.push(gap(None, GapKind::Unreadable, &error.to_string()));
                continue;
            }
        };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        if entry.file_name() == "go.mod" {
            note_module(root, id, entry.path(), modules);
        }
        if let Some(dialect) = dialect::of_path(entry.path()) {
            let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
            files.push(Listed {
                root: id,
                path: entry.into_path(),
                dialect,
                bytes,
            });
        }
    }
}

/// Folders that hold what others wrote or what was made, whether a `.gitignore` says so or not.
fn is_foreign(entry: &DirEntry) -> bool {
    let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
    is_folder
        && (entry.file_name() == "node_modules"
            || ["CACHEDIR.TAG", "pyvenv.cfg"]
                .iter()
                .any(|mark| entry.path().join(mark).exists()))
}

/// `module` of a `go.mod`.
fn note_module(root: &Path, id: RootId, path: &Path, modules: &mut ModuleFiles) {
    let folder = path
        .parent()
        .and_then(|folder| folder.strip_prefix(root).ok());
    let text = fs::read_to_string(path).unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("module "));
    if let (Some(folder), Some(name)) = (folder, name) {
        let name = name.trim().trim_matches('"').to_owned();
        modules.insert((id.0, folder.to_string_lossy().into_owned()), name);
    }
}

/// Reads files on all processors; the result is in their order.
fn read_all(
    files: &[Listed],
    roots: &[PathBuf],
    reused: &Reused<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Vec<Read> {
    let next = AtomicUsize::new(0);
    let large = Mutex::new(());
    let found: Mutex<BTreeMap<usize, Read>> = Mutex::new(BTreeMap::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        while let Some((at, file)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            files.get(at).filter(|_| !stop()).map(|file| (at, file))
        } {
            let one_at_a_time = (file.bytes > LARGE).then(|| large.lock());
            let read = read(file, roots, reused);
            drop(one_at_a_time);
            found
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(at, read);
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..workers.min(files.len()) {
            threads.spawn(work);
        }
    });
    found
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .into_values()
        .collect()
}

fn read(file: &Listed, roots: &[PathBuf], reused: &Reused<'_>) -> Read {
    let root = roots.get(file.root.index());
    let relative = root
        .and_then(|root| file.path.strip_prefix(root).ok())
        .unwrap_or(&file.path);
    let mut read = Read {
        bytes: file.bytes,
        ..Read::new(
            file.root,
            relative.to_string_lossy().into_owned(),
            file.dialect,
        )
    };
    if file.bytes > MOST_BYTES {
        let detail = format!(
            "{} MiB, parsed up to {} MiB",
            file.bytes >> 20,
            MOST_BYTES >> 20
        );
        read.parsed.gaps.push(gap(None, GapKind::TooLarge, &detail));
        return read;
    }
    let bytes = match fs::read(&file.path) {
        Ok(bytes) => bytes,
        Err(error) => {
            read.parsed
                .gaps
                .push(gap(None, GapKind::Unreadable, &error.to_string()));
            return read;
        }
    };
    read.bytes = bytes.len() as u64;
    read.content = Sha256::digest(&bytes).into();
    read.text_hash = hash(&bytes);
    if let Some(parsed) = reused.parsed(read.content, &read.path) {
        (read.parsed, read.reused) = (parsed, true);
        return read;
    }
    parse(&mut read, bytes);
    read
}

fn parse(read: &mut Read, bytes: Vec<u8>) {
    let Ok(text) = String::from_utf8(bytes) else {
        read.parsed.gaps.push(gap(None, GapKind::NotUtf8, ""));
        return;
    };
    if Path::new(&read.path)
        .extension()
        .is_some_and(|end| end == "h")
    {
        read.dialect = dialect::of_header(&text);
    }
    match walk::parse(&text, read.dialect) {
        Ok(parsed) => read.parsed = parsed,
        Err(kind) => read.parsed.gaps.push(gap(None, kind, "")),
    }
}

fn gap(file: Option<FileId>, kind: GapKind, detail: &str) -> Gap {
    Gap {
        file,
        kind,
        line: 0,
        count: 1,
        detail: detail.to_owned(),
    }
}

fn put_together(
    mut catalog: Builder,
    read: Vec<Read>,
    modules: &ModuleFiles,
    executables: &[PathBuf],
) -> Result<Built, NativeError> {
    let mut built = Built::default();
    let mut bases = Vec::with_capacity(read.len());
    for file in &read {
        let (id, base) = add(&mut catalog, file);
        bases.push(base);
        built.reused += usize::from(file.reused);
        if let Ok(facts) = postcard::to_stdvec(&file.parsed.facts) {
            built.kept.facts.insert(id, (facts::FACTS_VERSION, facts));
        }
    }
    let units: Vec<Unit<'_>> = read
        .iter()
        .zip(&bases)
        .map(|(file, &base)| Unit {
            path: &file.path,
            root: file.root.0,
            dialect: file.dialect,
            facts: &file.parsed.facts,
            base,
            kinds: file
                .parsed
                .definitions
                .iter()
                .map(|found| found.kind)
                .collect::<Vec<Kind>>(),
        })
        .collect();
    let linked = link::link(&units, modules);
    for (file, &(calls, resolved)) in (0u32..).map(FileId).zip(&linked.counts) {
        catalog.counts(file, calls, resolved);
    }
    for edge in linked.edges {
        catalog.edge(edge);
    }
    for executable in executables {
        native::add(executable, &mut catalog)?;
    }
    built.kept.catalog = catalog.finish();
    Ok(built)
}

/// A file's rows; gives the number of its first definition.
fn add(catalog: &mut Builder, read: &Read) -> (FileId, u32) {
    let id = catalog.file(File {
        root: Some(read.root),
        path: read.path.clone(),
        language: read.dialect.language,
        content: read.content,
        text_hash: read.text_hash,
        build_id: String::new(),
        bytes: read.bytes,
        lines: read.parsed.lines,
        calls: 0,
        resolved: 0,
    });
    let base = catalog.next().0;
    for found in &read.parsed.definitions {
        catalog.definition(Definition {
            file: id,
            parent: found.parent.map(|parent| DefId(base + parent)),
            kind: found.kind,
            name: found.name.clone(),
            qualified: found.qualified.clone(),
            ordinal: 0,
            flags: found.flags,
            body_hash: found.body_hash,
            span: found.span,
            native: None,
        });
    }
    for gap in &read.parsed.gaps {
        catalog.gap(Gap {
            file: Some(id),
            ..gap.clone()
        });
    }
    (id, base)
}
