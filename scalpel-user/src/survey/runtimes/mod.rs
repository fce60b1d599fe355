//! Which language runtimes a process has, and what each offers to a recording that begins now.
//!
//! Known by the names of mapped files; where those tell nothing, by what the program's own file defines, for an interpreter
//! can be linked into any program. Must not know how a runtime is entered.

mod inside;
mod offer;
mod version;

use std::fs::File;
use std::path::{Path, PathBuf};

use scalpel_common::segment::MEMORY_NAME;

use crate::rooted;
use crate::target::{Backing, FileId, Mapping, Process, Runtime, TargetError};

use inside::Inside;
pub use offer::{Installed, Offer, Offered};

/// A language runtime that a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Which.
    pub runtime: Runtime,
    /// `3.14.8`, as exactly as its files tell.
    pub version: Option<String>,
    /// The mapped file that shows it, as the process sees it.
    pub path: PathBuf,
    /// `CPython` without its global lock.
    pub free_threaded: bool,
}

/// The runtimes of a process, each once.
pub fn of(process: &Process) -> Result<Vec<Present>, TargetError> {
    let maps = process.maps()?;
    let mut present: Vec<Present> = files(&maps)
        .filter_map(|(mapping, id, path)| by_name(process, mapping, id, path))
        .collect();
    if present.is_empty() {
        present.extend(by_content(process));
    }
    present.sort_by_key(|present| (present.runtime, present.version.is_none()));
    present.dedup_by_key(|present| present.runtime);
    Ok(present)
}

/// The runtimes that a program has, loads with itself or names as one that it may load: by its file alone, for one that runs
/// shortly. `named`: what the file is called there. `None` = it is no program.
pub fn of_program(file: &File, named: &Path) -> Option<Vec<Runtime>> {
    if let Some(runtime) = Runtime::by_file(named) {
        return Some(vec![runtime]);
    }
    Inside::of_program(file).map(|inside| inside.runtimes)
}

/// What each of them offers. `installed`: the probes that there are.
pub fn offers(process: &Process, installed: &Installed) -> Result<Vec<Offer>, TargetError> {
    let maps = process.maps()?;
    let surroundings = offer::Surroundings {
        elsewhere: lives_elsewhere(process),
        names_compiled_code: process.writes_perf_map() || maps.iter().any(is_jit_dump),
        has_probe: maps.iter().filter_map(Mapping::path).any(is_python_probe),
        has_joined: maps.iter().filter_map(Mapping::path).any(is_segment),
    };
    let offered = |present| offer::offer(present, surroundings, installed);
    Ok(of(process)?.into_iter().map(offered).collect())
}

fn files(maps: &[Mapping]) -> impl Iterator<Item = (&Mapping, FileId, &Path)> {
    let executable = maps.iter().filter(|mapping| mapping.executable);
    executable.filter_map(|mapping| match &mapping.backing {
        Backing::File { id, path, .. } => Some((mapping, *id, path.as_path())),
        _ => None,
    })
}

fn by_name(process: &Process, mapping: &Mapping, id: FileId, path: &Path) -> Option<Present> {
    let runtime = Runtime::by_file(path)?;
    let inside = match runtime {
        Runtime::Python => opened(process, mapping, id).and_then(|file| Inside::of(&file)),
        _ => None,
    };
    let inside = inside.unwrap_or_default();
    Some(Present {
        runtime,
        version: inside
            .python
            .or_else(|| version::by_files(process, runtime, path)),
        path: path.to_owned(),
        free_threaded: inside.free_threaded || version::is_free_threaded(path),
    })
}

/// The file behind a mapping, or nothing where its name is another file's by now.
fn opened(process: &Process, mapping: &Mapping, id: FileId) -> Option<File> {
    let held = process.proc_path(Path::new("map_files").join(mapping.map_file_name()));
    let root = process.proc_path("root");
    let named = || {
        let path = mapping.path()?.strip_prefix("/").ok()?;
        rooted::open(&root, path).ok()
    };
    let file = File::open(held).ok().or_else(named)?;
    (FileId::of(&file).ok()? == id).then_some(file)
}

fn by_content(process: &Process) -> Vec<Present> {
    let inside = File::open(process.proc_path("exe"))
        .ok()
        .and_then(|file| Inside::of(&file));
    let Some(inside) = inside else {
        return Vec::new();
    };
    let path = process.exe().unwrap_or_default();
    let present = |runtime| Present {
        runtime,
        version: match runtime {
            Runtime::Python => inside.python.clone(),
            Runtime::Go => inside.go.clone(),
            _ => None,
        },
        path: path.clone(),
        free_threaded: inside.free_threaded,
    };
    inside.runtimes.iter().copied().map(present).collect()
}

/// Whether a path means another file there than here.
fn lives_elsewhere(process: &Process) -> bool {
    let link = |pid: &str, name: &str| std::fs::read_link(format!("/proc/{pid}/{name}")).ok();
    let pid = process.pid().to_string();
    link(&pid, "ns/mnt") != link("self", "ns/mnt") || link(&pid, "root") != link("self", "root")
}

fn is_jit_dump(mapping: &Mapping) -> bool {
    let name = mapping.path().and_then(Path::file_name);
    name.is_some_and(|name| {
        let name = name.to_string_lossy();
        name.starts_with("jit-") && name.ends_with(".dump")
    })
}

/// What a probe shares with whoever records it.
fn is_segment(path: &Path) -> bool {
    let name = path.to_str().and_then(|path| path.strip_prefix("/memfd:"));
    name == Some(MEMORY_NAME)
}

/// The compiled half of our probe for Python.
fn is_python_probe(path: &Path) -> bool {
    let named = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("_native.");
    path.file_name().is_some_and(named)
        && path
            .parent()
            .is_some_and(|folder| folder.ends_with("scalpel_probe"))
}
