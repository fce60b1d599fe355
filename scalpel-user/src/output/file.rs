//! Files that recordings are written to: mode 0600, owned by the caller, never through somebody's symlink.
//!
//! A root process that follows a link in `/tmp` writes wherever the link's maker wants; so a file is created
//! new or not at all, and what was there before is moved aside without being opened.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Owner;

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Its folder is not there.
    #[error("cannot write {}: the folder does not exist; create it, or choose another with --output", path.display())]
    NoFolder {
        /// File.
        path: PathBuf,
    },
    /// The disk or quota is full.
    #[error("cannot write {}: the disk is full; free some space, or choose another place with --output", path.display())]
    Full {
        /// File.
        path: PathBuf,
    },
    /// Something that is no plain file is in the way.
    #[error("cannot write {}: there is a {what}, not a plain file; remove it, or choose another name", path.display())]
    InTheWay {
        /// File.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The system said no.
    #[error("cannot write {}", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

impl FileError {
    /// Names what went wrong with `path`.
    pub fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NoFolder { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { path, source },
        }
    }
}

/// Moves an existing `path` to `path.old`, as perf does, and tells where it went.
pub fn keep_old(path: &Path) -> Result<Option<PathBuf>, FileError> {
    let what = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::new(path, error)),
        Ok(meta) if meta.is_file() => None,
        Ok(meta) if meta.is_dir() => Some("folder"),
        Ok(meta) if meta.is_symlink() => Some("symbolic link"),
        Ok(_) => Some("device, pipe or socket"),
    };
    if let Some(what) = what {
        return Err(FileError::InTheWay {
            path: path.to_owned(),
            what,
        });
    }
    let old = suffixed(path, ".old");
    fs::rename(path, &old).map_err(|error| FileError::new(path, error))?;
    Ok(Some(old))
}

/// Creates `path` anew: 0600, the caller's, never an existing file and never through a link.
pub fn open_private(path: &Path) -> Result<File, FileError> {
    create_private(path).map_err(|error| FileError::new(path, error))
}

fn create_private(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    Owner::of_this_run().give(&file)?;
    Ok(file)
}

/// Gives a finished file of ours to the caller of `sudo`; never follows a link.
pub fn give_to_caller(path: &Path) -> Result<(), FileError> {
    let give = || {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(path)?;
        Owner::of_this_run().give(&file)
    };
    give().map_err(|error| FileError::new(path, error))
}

/// Writes `bytes` to `path`, the old content kept as `.old`. Complete or not at all.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write_private_with(path, |out| out.write_all(bytes))
}

/// The same for what is too large to be held at once.
pub fn write_private_with(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), FileError> {
    let mut aside = Aside::create(path)?;
    write(aside.writer()).map_err(|error| FileError::new(path, error))?;
    aside.finish()
}

/// A file under another name until it is complete; removed if it never is.
#[derive(Debug)]
pub struct Aside {
    file: BufWriter<File>,
    aside: PathBuf,
    path: PathBuf,
    done: bool,
}

impl Aside {
    /// Creates it beside `path`.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let aside = suffixed(path, &format!(".{}.part", std::process::id()));
        // Its maker knows the place, not the name aside.
        let file = create_private(&aside).map_err(|error| FileError::new(path, error))?;
        let file = BufWriter::with_capacity(1 << 16, file);
        Ok(Self {
            file,
            aside,
            path: path.to_owned(),
            done: false,
        })
    }

    /// Where its content goes.
    pub fn writer(&mut self) -> &mut dyn Write {
        &mut self.file
    }

    /// Completes it. What stood at the path is kept as `.old`.
    pub fn finish(mut self) -> Result<(), FileError> {
        let failed = |error| FileError::new(&self.path, error);
        let written = self.file.flush();
        written
            .and_then(|()| self.file.get_ref().sync_all())
            .map_err(failed)?;
        keep_old(&self.path)?;
        fs::rename(&self.aside, &self.path).map_err(failed)?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.done {
            // Why it is not complete is said elsewhere; a leftover that cannot be removed adds nothing to it.
            drop(fs::remove_file(&self.aside));
        }
    }
}

/// `path` with `suffix` behind its last name.
pub fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_is_private_and_the_last_one_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.genome");
        write_private(&path, b"one").unwrap();
        write_private(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read(suffixed(&path, ".old")).unwrap(), b"one");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_link_or_folder_in_the_way_is_refused_untouched() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        assert!(matches!(
            write_private(&link, b"x"),
            Err(FileError::InTheWay {
                what: "symbolic link",
                ..
            })
        ));
        assert!(open_private(&link).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        assert!(matches!(
            keep_old(folder.path()),
            Err(FileError::InTheWay { what: "folder", .. })
        ));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_missing_folder_and_a_full_disk_are_named() {
        let error = write_private(Path::new("/nonexistent/x"), b"").unwrap_err();
        assert!(
            error.to_string().contains("folder does not exist"),
            "{error}"
        );
        assert!(
            error.to_string().contains("cannot write /nonexistent/x:"),
            "{error}"
        );
        let full = File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
            .write_all(b"x")
            .unwrap_err();
        let error = FileError::new(Path::new("x"), full);
        assert!(error.to_string().contains("disk is full"), "{error}");
    }
}
