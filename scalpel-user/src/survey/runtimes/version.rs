//! Versions of runtimes, as the names of their files and what lies beside them tell.

use std::path::Path;

use crate::rooted;
use crate::target::{Process, Runtime};

/// Most of a file of facts that is read.
const LIMIT: u64 = 64 << 10;

/// The version of a runtime that a mapped file shows.
pub(super) fn by_files(process: &Process, runtime: Runtime, path: &Path) -> Option<String> {
    match runtime {
        Runtime::Java => java(process, path),
        // `shared/Microsoft.NETCore.App/8.0.4/libcoreclr.so`
        Runtime::Dotnet => number(&path.parent()?.file_name()?.to_string_lossy()),
        _ => {
            let name = path.file_name()?.to_string_lossy();
            number(name.trim_start_matches(|c: char| !c.is_ascii_digit()))
        }
    }
}

/// `python3.14t`, `libpython3.14t.so.1.0`.
pub(super) fn is_free_threaded(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let after = name
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    name.contains("python") && after.starts_with('t')
}

/// A home of Java says its version in its `release`, three folders above the library.
fn java(process: &Process, library: &Path) -> Option<String> {
    let home = library.ancestors().nth(3)?;
    let bytes = rooted::read(&process.proc_path("root"), &home.join("release"), LIMIT).ok()?;
    of_release(str::from_utf8(&bytes).ok()?)
}

fn of_release(text: &str) -> Option<String> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    number(line.trim_matches('"'))
}

/// The number with dots at the head of a text.
fn number(text: &str) -> Option<String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number = text.get(..end)?.trim_matches('.');
    (!number.is_empty()).then(|| number.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_off_names_and_releases() {
        let us = Process::open(crate::event::Pid(std::process::id())).unwrap();
        let check = |runtime, path: &str, expect: Option<&str>| {
            assert_eq!(
                by_files(&us, runtime, Path::new(path)).as_deref(),
                expect,
                "{path}"
            );
        };
        check(Runtime::Python, "/usr/bin/python3.11", Some("3.11"));
        check(Runtime::Python, "/usr/bin/python", None);
        check(Runtime::Ruby, "/usr/lib/libruby-3.1.so.3.1.2", Some("3.1"));
        check(Runtime::Php, "/usr/bin/php8.2", Some("8.2"));
        check(Runtime::Node, "/usr/bin/node", None);
        check(
            Runtime::Dotnet,
            "/opt/shared/Microsoft.NETCore.App/8.0.4/libcoreclr.so",
            Some("8.0.4"),
        );
        check(Runtime::Java, "/nowhere/lib/server/libjvm.so", None);
        let release = "IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"17.0.19\"\n";
        assert_eq!(of_release(release).as_deref(), Some("17.0.19"));
        assert_eq!(of_release("JAVA_VERSION=\"\""), None);
    }

    #[test]
    fn builds_without_the_lock_are_known_by_their_names() {
        for (path, expect) in [
            ("/usr/bin/python3.14t", true),
            ("/usr/lib/libpython3.14t.so.1.0", true),
            ("/usr/bin/python3.14", false),
            ("/usr/lib/libpython3.13.so.1.0", false),
            ("/usr/bin/2t", false),
        ] {
            assert_eq!(is_free_threaded(Path::new(path)), expect, "{path}");
        }
    }
}
