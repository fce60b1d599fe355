//! Where the probes of language runtimes are installed.

use std::path::{Path, PathBuf};

use crate::survey::runtimes::Installed;

/// Folder of a language's probe, in the first of the places where probes can be that has one.
pub(super) fn folder(language: &str) -> Option<PathBuf> {
    homes()
        .into_iter()
        .map(|probes| probes.join(language))
        .find(|folder| folder.is_dir())
        .and_then(|folder| folder.canonicalize().ok())
}

fn homes() -> Vec<PathBuf> {
    let named = std::env::var_os("SCALPEL_PROBES").map(PathBuf::from);
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent).map(|folder| {
        ["probes", "../probes", "../lib/scalpel/probes"].map(|relative| folder.join(relative))
    });
    named
        .into_iter()
        .chain(beside.into_iter().flatten())
        .collect()
}

/// Whether a mapped file is the Python probe. It is built to abort where others throw, so that no exception passes it: its
/// unwind tables name a personality only because Rust's own library is in it.
pub(super) fn is_probe(path: &str) -> bool {
    let path = Path::new(path);
    let installed = path
        .parent()
        .is_some_and(|folder| folder.ends_with("scalpel_probe"));
    installed || folder("python").is_some_and(|folder| path.starts_with(folder))
}

/// What there is.
pub(crate) fn installed() -> Installed {
    let mut languages: Vec<String> = homes().iter().flat_map(|home| folders(home)).collect();
    languages.sort_unstable();
    languages.dedup();
    let versions = folder("python").map(|python| folders(&python));
    let minor = |name: &String| name.strip_prefix("cp3")?.parse().ok();
    Installed {
        languages,
        python: versions.iter().flatten().filter_map(minor).collect(),
    }
}

fn folders(of: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(of).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
