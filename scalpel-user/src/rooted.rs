//! Files as another process sees them: by its root, out of which no link leads, and plain files alone.
//!
//! What lies there may be a stranger's work. A link of a container that would lead through the host's own root, a pipe
//! that nobody writes to, a device with an effect: none of them is opened.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Opens the plain file at `path` below `root` (a folder, or `/proc/PID/root`) for reading; links are followed within.
pub fn open(root: &Path, path: &Path) -> io::Result<File> {
    plain(&at(root, path, OFlags::empty())?)
}

/// The same, unless the file itself is a link: in folders where anybody may put one.
pub fn open_unlinked(root: &Path, path: &Path) -> io::Result<File> {
    plain(&at(root, path, OFlags::NOFOLLOW)?)
}

/// What the plain file at `path` below `root` holds; an error if that is more than `most` bytes.
pub fn read(root: &Path, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = open(root, path)?
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if read as u64 > most {
        return Err(io::Error::other(format!("larger than {most} bytes")));
    }
    Ok(bytes)
}

/// The names in the folder at `path` below `root`, sorted.
pub fn names(root: &Path, path: &Path) -> io::Result<Vec<OsString>> {
    let folder = at(root, path, OFlags::DIRECTORY)?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(held(&folder))? {
        names.push(entry?.file_name());
    }
    names.sort_unstable();
    Ok(names)
}

/// Holds what is at a path, without opening it.
fn at(root: &Path, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let hold = OFlags::PATH | OFlags::CLOEXEC;
    let folder = openat(CWD, root, hold | OFlags::DIRECTORY, Mode::empty())?;
    let flags = hold | flags;
    match openat2(folder, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        // Linux before 5.6, or a sandbox that knows nothing later. Where its root is ours no link leads elsewhere.
        Err(Errno::NOSYS | Errno::PERM) if is_ours(root) => Ok(openat(
            CWD,
            Path::new("/").join(path),
            flags,
            Mode::empty(),
        )?),
        other => Ok(other?),
    }
}

fn is_ours(root: &Path) -> bool {
    let id = |path: &Path| {
        let known = rustix::fs::statx(
            CWD,
            path,
            rustix::fs::AtFlags::empty(),
            rustix::fs::StatxFlags::INO | rustix::fs::StatxFlags::MNT_ID,
        );
        known.ok().map(|it| (it.stx_mnt_id, it.stx_ino))
    };
    id(root).is_some_and(|id_there| id(Path::new("/")) == Some(id_there))
}

fn plain(file: &OwnedFd) -> io::Result<File> {
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
    if kind.is_file() {
        File::open(held(file))
    } else {
        Err(io::Error::other("not a plain file"))
    }
}

fn held(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_stay_within_the_root_wherever_they_point() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::write(root.join("etc/passwd"), "of the container").unwrap();
        symlink("/etc/passwd", root.join("absolute")).unwrap();
        symlink("../../../etc/passwd", root.join("upwards")).unwrap();
        symlink("/etc", root.join("folder")).unwrap();
        symlink("/etc/hostname", root.join("missing")).unwrap();
        for path in [
            "etc/passwd",
            "/etc/passwd",
            "absolute",
            "upwards",
            "folder/passwd",
            "/../etc/passwd",
        ] {
            let bytes = read(root, Path::new(path), 100).unwrap();
            assert_eq!(bytes, b"of the container", "{path}");
        }
        assert_eq!(names(root, Path::new("/folder")).unwrap(), ["passwd"]);
        assert!(open(root, Path::new("missing")).is_err());
        assert!(open_unlinked(root, Path::new("absolute")).is_err());
        assert!(open_unlinked(root, Path::new("folder/passwd")).is_ok());
    }

    #[test]
    fn what_is_no_plain_file_or_too_large_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let pipe = root.join("pipe");
        rustix::fs::mknodat(
            CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        std::fs::write(root.join("large"), [0; 65]).unwrap();
        // A pipe that nobody writes to would be waited for without end.
        assert!(open(root, Path::new("pipe")).is_err());
        assert!(open(root, Path::new("/")).is_err());
        assert!(open(Path::new("/"), Path::new("/dev/zero")).is_err());
        assert!(read(root, Path::new("large"), 64).is_err());
        assert_eq!(read(root, Path::new("large"), 65).unwrap().len(), 65);
    }

    #[test]
    fn the_root_of_a_process_of_ours_is_our_own() {
        assert!(is_ours(Path::new("/proc/self/root")));
        assert!(!is_ours(Path::new("/proc")));
    }
}
