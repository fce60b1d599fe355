//! From what was typed to the file that the kernel will execute: `PATH`, scripts, `env`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::TargetError;

/// As `execvp` uses it when `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Bytes of a file that the kernel looks at (`BINPRM_BUF_SIZE`).
const HEAD: usize = 256;

/// Interpreters of interpreters that the kernel follows before it gives up (`bprm_execve`: depth > 5).
const DEPTH: usize = 5;

/// A program, found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    file: PathBuf,
    executed: Vec<PathBuf>,
}

impl Program {
    /// Looks `typed` up as `execvp` does.
    pub(super) fn find(typed: &OsStr) -> Result<Self, TargetError> {
        let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let file = look_up(typed, &path)?;
        let executed = executed(&file, &path, DEPTH);
        Ok(Self { file, executed })
    }

    /// The file that is handed to exec.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The files that are then executed, in turn.
    pub(super) fn executed(&self) -> &[PathBuf] {
        &self.executed
    }
}

fn look_up(typed: &OsStr, path: &OsStr) -> Result<PathBuf, TargetError> {
    let program = || typed.to_string_lossy().into_owned();
    if typed.as_bytes().contains(&b'/') {
        let file = PathBuf::from(typed);
        return match runnable(&file) {
            Some(Ok(())) => Ok(file),
            Some(Err(reason)) => Err(TargetError::NotRunnable { path: file, reason }),
            None => Err(TargetError::NoSuchCommand {
                program: program(),
                in_path: false,
            }),
        };
    }
    let mut refused = None;
    // An empty entry means the working folder.
    for file in std::env::split_paths(path).map(|folder| Path::new(".").join(folder).join(typed)) {
        let file = file.strip_prefix("./").map(Path::to_owned).unwrap_or(file);
        match runnable(&file) {
            Some(Ok(())) => return Ok(file),
            Some(Err(reason)) => _ = refused.get_or_insert((file, reason)),
            None => {}
        }
    }
    Err(match refused {
        Some((path, reason)) => TargetError::NotRunnable { path, reason },
        None => TargetError::NoSuchCommand {
            program: program(),
            in_path: true,
        },
    })
}

/// `None` if there is no such file, else whether it may be executed.
fn runnable(file: &Path) -> Option<Result<(), String>> {
    let meta = std::fs::metadata(file).ok()?;
    if meta.is_dir() {
        return Some(Err("it is a folder".into()));
    }
    let allowed = accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS);
    Some(allowed.map_err(|_errno| "it has no execute permission; `chmod +x` gives it".into()))
}

/// What runs when `file` is executed: itself, or the interpreter that its `#!` line names.
fn executed(file: &Path, path: &OsStr, depth: usize) -> Vec<PathBuf> {
    match (interpreter(file), depth.checked_sub(1)) {
        (Some((interpreter, argument)), Some(depth)) => {
            let mut files = executed(&interpreter, path, depth);
            if interpreter.file_name() == Some(OsStr::new("env"))
                && let Some(file) = argument.and_then(|argument| look_up(&argument, path).ok())
            {
                files.extend(executed(&file, path, depth));
            }
            files
        }
        _ => vec![file.to_owned()],
    }
}

/// The interpreter of a script and, for `env`, the program that it is to run. A file without any known head is
/// run by the shell, as `execvp` does.
fn interpreter(file: &Path) -> Option<(PathBuf, Option<OsString>)> {
    let mut head = Vec::with_capacity(HEAD);
    File::open(file)
        .ok()?
        .take(HEAD as u64)
        .read_to_end(&mut head)
        .ok()?;
    if head.starts_with(b"\x7fELF") {
        return None;
    }
    let Some(line) = head.strip_prefix(b"#!") else {
        return Some(("/bin/sh".into(), None));
    };
    let line = line.split(|&byte| byte == b'\n').next()?;
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let interpreter = PathBuf::from(OsStr::from_bytes(words.next()?));
    // `env -S`, `env NAME=value`: neither is the program.
    let program = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    Some((
        interpreter,
        program.map(|word| OsStr::from_bytes(word).to_owned()),
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(folder: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn commands_are_found_as_the_shell_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        let tool = script(folder.path(), "tool", "#!/bin/sh\n", 0o755);
        script(folder.path(), "plain", "", 0o644);
        let path = OsString::from(format!("/nonexistent:{}", folder.path().display()));
        assert_eq!(look_up(OsStr::new("tool"), &path).unwrap(), tool);
        assert!(matches!(
            look_up(OsStr::new("nothing"), &path),
            Err(TargetError::NoSuchCommand { in_path: true, .. })
        ));
        assert!(matches!(
            look_up(OsStr::new("plain"), &path),
            Err(TargetError::NotRunnable { .. })
        ));
        assert!(matches!(
            look_up(OsStr::new("/nonexistent/x"), &path),
            Err(TargetError::NoSuchCommand { in_path: false, .. })
        ));
        assert!(matches!(
            look_up(folder.path().as_os_str(), &path),
            Err(TargetError::NotRunnable { .. })
        ));
    }

    #[test]
    fn the_interpreter_of_a_script_is_what_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = OsString::from("/bin:/usr/bin");
        let check = |text: &str, expect: &[&str]| {
            let file = script(folder.path(), "script", text, 0o755);
            let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
            assert_eq!(executed(&file, &path, DEPTH), expect, "{text}");
        };
        check("#!/bin/cat -n\n", &["/bin/cat"]);
        check("#! /bin/cat\n", &["/bin/cat"]);
        check("#!/usr/bin/env cat\n", &["/usr/bin/env", "/bin/cat"]);
        check(
            "#!/usr/bin/env -S LANG=C cat -n\n",
            &["/usr/bin/env", "/bin/cat"],
        );
        check("#!/usr/bin/env no-such-thing\n", &["/usr/bin/env"]);
        check("echo no head\n", &["/bin/sh"]);
        assert_eq!(
            executed(Path::new("/bin/cat"), &path, DEPTH),
            [PathBuf::from("/bin/cat")]
        );
    }

    #[test]
    fn a_script_that_is_its_own_interpreter_ends() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("loop");
        script(
            folder.path(),
            "loop",
            &format!("#!{}\n", file.display()),
            0o755,
        );
        assert_eq!(executed(&file, OsStr::new("/bin"), DEPTH), [file]);
    }
}
