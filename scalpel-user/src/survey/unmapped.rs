//! Files that `--lib` names by their paths and that nothing has mapped yet: a plugin, an extension module. A probe belongs to
//! the file, so that it is there before the first call.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::Glob;

use super::Candidate;
use crate::rooted;
use crate::target::FileId;

/// Adds the files below `root` that one of `libs` names and that are no candidates yet. Only the last part of a path may be
/// a pattern: a plugin's folder is known, its version is not.
pub(super) fn add(candidates: &mut Vec<Candidate>, libs: &[String], root: &Path) {
    for lib in libs.iter().filter(|lib| lib.contains('/')) {
        for path in paths(Path::new(lib), root) {
            let Ok(file) = rooted::open(root, &path) else {
                continue;
            };
            let known = |candidate: &Candidate| same(&candidate.file, &file);
            match candidates.iter_mut().find(|candidate| known(candidate)) {
                Some(candidate) => candidate.asked = Some(lib.clone()),
                None => candidates.push(Candidate {
                    path: real_path(&file, root).unwrap_or(path),
                    file: Arc::new(file),
                    main: false,
                    asked: Some(lib.clone()),
                }),
            }
        }
    }
}

/// The files that a path with a pattern in its last part can mean.
fn paths(lib: &Path, root: &Path) -> Vec<PathBuf> {
    let Ok(lib) = std::path::absolute(lib) else {
        return Vec::new();
    };
    let (Some(folder), Some(name)) = (lib.parent(), lib.file_name()) else {
        return Vec::new();
    };
    let name = name.to_string_lossy();
    let matcher = match Glob::new(&name) {
        Ok(glob) if name.contains(['*', '?', '[', '{']) => glob.compile_matcher(),
        _ => return vec![lib],
    };
    let mut names = rooted::names(root, folder).unwrap_or_default();
    names.retain(|name| matcher.is_match(name));
    names.into_iter().map(|name| folder.join(name)).collect()
}

fn same(a: &File, b: &File) -> bool {
    match (FileId::of(a), FileId::of(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// The path by which the kernel will name its mappings, where the target's root is ours.
fn real_path(file: &File, root: &Path) -> Option<PathBuf> {
    use std::os::fd::AsRawFd;
    let ours = std::fs::read_link(root).is_ok_and(|root| root == Path::new("/"));
    let named = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    (ours || root == Path::new("/")).then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(libs: &[&str], root: &Path) -> Vec<(PathBuf, String)> {
        let libs: Vec<String> = libs.iter().map(ToString::to_string).collect();
        let mut candidates = Vec::new();
        add(&mut candidates, &libs, root);
        candidates
            .into_iter()
            .map(|candidate| (candidate.path, candidate.asked.unwrap()))
            .collect()
    }

    #[test]
    fn a_path_finds_its_file_and_a_pattern_those_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        for name in ["one-1.so", "one-2.so", "two.so"] {
            std::fs::write(real.join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink("two.so", real.join("link.so")).unwrap();
        let lib = |name: &str| real.join(name).to_string_lossy().into_owned();
        let root = Path::new("/");
        let (path, glob, link) = (lib("two.so"), lib("one-*.so"), lib("link.so"));
        assert_eq!(found(&[&path], root), [(real.join("two.so"), path.clone())]);
        assert_eq!(
            found(&[&glob], root),
            ["one-1.so", "one-2.so"].map(|name| (real.join(name), glob.clone()))
        );
        assert_eq!(found(&[&link], root), [(real.join("two.so"), link.clone())]);
        assert_eq!(found(&[&path, &link], root).len(), 1, "one file, once");
        assert_eq!(found(&["two.so", &lib("none.so"), &lib("")], root), []);
    }

    #[test]
    fn a_link_out_of_the_targets_root_stays_inside() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("out.so")).unwrap();
        assert_eq!(found(&["/out.so"], folder.path()), []);
    }
}
