//! The Python interpreters of this machine, one a version.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Versions that the probe is built for.
const OLDEST: u32 = 8;
const NEWEST: u32 = 15;

/// What an interpreter says of itself, in one line.
const QUESTION: &str = "import sys; print(sys.implementation.name, sys.version_info[0], \
    sys.version_info[1], 't' in getattr(sys, 'abiflags', ''), '%d.%d.%d' % sys.version_info[:3], \
    sys.executable)";

/// One interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    /// Its program.
    pub(crate) program: PathBuf,
    /// Minor version, of 3.
    pub(crate) minor: u32,
    /// `3.12.1`.
    pub(crate) version: String,
}

impl Interpreter {
    /// `cp312`: its folder among the probes.
    pub(crate) fn tag(&self) -> String {
        format!("cp3{}", self.minor)
    }

    /// Whether it can make environments with pip in them.
    pub(crate) fn has_pip(&self) -> bool {
        Command::new(&self.program)
            .args(["-I", "-c", "import venv, ensurepip"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

/// All that are found, oldest first: `$SCALPEL_PYTHONS` (separated as `$PATH` is), then pyenv's, the one that was
/// brought, then those in the path.
pub(crate) fn found() -> Vec<Interpreter> {
    let mut by_minor = BTreeMap::new();
    for program in candidates() {
        if let Some(interpreter) = ask(&program) {
            by_minor.entry(interpreter.minor).or_insert(interpreter);
        }
    }
    by_minor.into_values().collect()
}

fn candidates() -> Vec<PathBuf> {
    let named = std::env::var_os("SCALPEL_PYTHONS").unwrap_or_default();
    let mut all: Vec<PathBuf> = std::env::split_paths(&named).collect();
    all.extend(pyenv());
    all.extend(super::newest::program());
    let paths = std::env::var_os("PATH").unwrap_or_default();
    for folder in std::env::split_paths(&paths) {
        all.push(folder.join("python3"));
        all.extend((OLDEST..=NEWEST).map(|minor| folder.join(format!("python3.{minor}"))));
    }
    all.retain(|program| program.is_file());
    all
}

fn pyenv() -> Vec<PathBuf> {
    let root = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| {
            let home = std::env::var_os("HOME")?;
            Some(Path::new(&home).join(".pyenv"))
        });
    let folder = root.map(|root| root.join("versions"));
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    let mut programs: Vec<_> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin/python3"))
        .collect();
    programs.sort();
    programs
}

fn ask(program: &Path) -> Option<Interpreter> {
    let output = Command::new(program)
        .args(["-I", "-c", QUESTION])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    answer(&String::from_utf8_lossy(&output.stdout))
}

/// An interpreter by its answer; `None` = the probe is not made for it.
fn answer(line: &str) -> Option<Interpreter> {
    let mut words = line.trim().splitn(6, ' ');
    let (name, major, minor) = (words.next()?, words.next()?, words.next()?);
    let minor: u32 = minor.parse().ok()?;
    let free_threaded = words.next()? != "False";
    let version = words.next()?.to_owned();
    let fits = name == "cpython" && major == "3" && !free_threaded;
    (fits && (OLDEST..=NEWEST).contains(&minor)).then_some(Interpreter {
        program: PathBuf::from(words.next()?),
        minor,
        version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_interpreters_that_the_probe_is_made_for_count() {
        let found = answer("cpython 3 12 False 3.12.1 /opt/my python/bin/python3\n").unwrap();
        assert_eq!(
            (found.tag().as_str(), found.version.as_str()),
            ("cp312", "3.12.1")
        );
        assert_eq!(found.program, Path::new("/opt/my python/bin/python3"));
        for refused in [
            "cpython 3 7 False 3.7.9 /p",
            "cpython 3 14 True 3.14.0 /p",
            "pypy 3 11 False 3.11.9 /p",
            "pyenv: python3.12: command not found",
            "",
        ] {
            assert_eq!(answer(refused), None, "{refused}");
        }
    }
}
