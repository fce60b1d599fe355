//! The executable files of a process, opened so that they stay readable: deleted, replaced, in another mount
//! namespace, or after the process has ended.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Process;
use super::maps::{Backing, Mapping};
use crate::rooted;

/// Identity of a file on this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Device number.
    pub device: u64,
    /// Inode.
    pub inode: u64,
}

impl FileId {
    /// From the numbers in `/proc/PID/maps`.
    pub fn from_numbers(major: u64, minor: u64, inode: u64) -> Self {
        let part = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            device: rustix::fs::makedev(part(major), part(minor)),
            inode,
        }
    }

    /// Of an open file.
    pub fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
        })
    }
}

/// One executable file of a process, with all its executable mappings.
#[derive(Clone, Debug)]
pub struct MappedImage {
    /// Path as the process sees it.
    pub path: PathBuf,
    /// Identity, as the maps tell it.
    pub id: FileId,
    /// The name is gone, or another file's by now.
    pub deleted: bool,
    /// It is the program itself, not a library.
    pub main: bool,
    /// Where it is mapped executable, in order of address.
    pub mappings: Vec<Mapping>,
    /// The file, or why it could not be opened.
    pub file: Result<Arc<File>, Arc<io::Error>>,
}

impl MappedImage {
    /// A path by which this file can be opened from outside the process for as long as we hold it: for the kernel's
    /// attach calls and for readers that take paths.
    pub fn held_path(&self) -> Option<PathBuf> {
        use std::os::fd::AsRawFd;
        let file = self.file.as_ref().ok()?;
        Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into())
    }

    /// Its file name, for people.
    pub fn name(&self) -> String {
        self.path
            .file_name()
            .unwrap_or(self.path.as_os_str())
            .to_string_lossy()
            .into_owned()
    }

    pub(super) fn open_all(process: &Process, maps: &[Mapping]) -> Vec<Self> {
        let program = File::open(process.proc_path("exe"))
            .and_then(|file| FileId::of(&file))
            .ok();
        let exe = process.exe().ok();
        let mut images: Vec<Self> = Vec::new();
        let mut by_id: FxHashMap<FileId, usize> = FxHashMap::default();
        for mapping in maps.iter().filter(|mapping| mapping.executable) {
            let Backing::File { id, path, deleted } = &mapping.backing else {
                continue;
            };
            let at = *by_id.entry(*id).or_insert_with(|| {
                let file = open(process, mapping, path, *id)
                    .map(Arc::new)
                    .map_err(Arc::new);
                let main = is_main(file.as_deref().ok(), program, path, exe.as_deref());
                let mappings = Vec::new();
                images.push(Self {
                    path: path.clone(),
                    id: *id,
                    deleted: *deleted,
                    main,
                    mappings,
                    file,
                });
                images.len() - 1
            });
            if let Some(image) = images.get_mut(at) {
                image.mappings.push(mapping.clone());
            }
        }
        images
    }
}

/// By identity where the file is open; by name where it could not be opened.
fn is_main(file: Option<&File>, program: Option<FileId>, path: &Path, exe: Option<&Path>) -> bool {
    match (file.and_then(|file| FileId::of(file).ok()), program) {
        (Some(id), Some(program)) => id == program,
        _ => exe.is_some_and(|exe| exe == path),
    }
}

/// `map_files` opens the very file that is mapped, whatever happened to its name, but needs `CAP_SYS_ADMIN` or
/// `CAP_CHECKPOINT_RESTORE` (`proc_map_files_get_link`); the path as the process sees it is the way without them,
/// believed only if it leads to the same file.
fn open(process: &Process, mapping: &Mapping, path: &Path, id: FileId) -> io::Result<File> {
    let through_map = File::open(process.proc_path("map_files").join(mapping.map_file_name()));
    let refused = match through_map {
        Ok(file) => return plain(file),
        Err(error) => error,
    };
    let Ok(inside) = path.strip_prefix("/") else {
        return Err(refused);
    };
    let file = rooted::open(&process.proc_path("root"), inside)?;
    if FileId::of(&file)? == id {
        return Ok(file);
    }
    // On overlay and btrfs the maps show the device of the lower file system: same inode, other device.
    if FileId::of(&file)?.inode == id.inode {
        return Ok(file);
    }
    Err(io::Error::other(
        "the file at this path is another one by now",
    ))
}

fn plain(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("not a plain file"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::event::Pid;

    #[test]
    fn our_own_images_are_opened_once_each_and_one_is_the_program() {
        let process = Process::open(Pid(std::process::id())).unwrap();
        let images = process.images().unwrap();
        let main: Vec<_> = images.iter().filter(|image| image.main).collect();
        assert_eq!(main.len(), 1);
        assert_eq!(main[0].path, std::env::current_exe().unwrap());
        assert!(images.iter().any(|image| image.name().starts_with("libc.")));
        let mut ids: Vec<_> = images.iter().map(|image| image.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), images.len());
        for image in &images {
            let mut magic = [0; 4];
            File::open(image.held_path().unwrap())
                .unwrap()
                .read_exact(&mut magic)
                .unwrap();
            assert_eq!(&magic, b"\x7fELF", "{}", image.path.display());
        }
    }

    #[test]
    fn a_deleted_program_stays_readable_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("sleeper program");
        // A file that we had open for writing may be busy in a child that another test forked meanwhile.
        let copied = std::process::Command::new("cp")
            .arg("/bin/sleep")
            .arg(&program)
            .status();
        assert!(copied.unwrap().success());
        let mut child = std::process::Command::new(&program)
            .arg("100")
            .spawn()
            .unwrap();
        let process = Process::open(Pid(child.id())).unwrap();
        // `spawn` may return before the kernel has mapped the program.
        while process.exe().unwrap() != program || process.images().unwrap().is_empty() {
            std::thread::yield_now();
        }
        std::fs::remove_file(&program).unwrap();
        let images = process.images().unwrap();
        let main = images.iter().find(|image| image.main);
        child.kill().unwrap();
        child.wait().unwrap();
        let main = main.expect("the program is among its images");
        assert!(main.deleted);
        assert_eq!(main.path, program);
        // Without the capability for map_files there is no way to a deleted file: then the reason is kept.
        match &main.file {
            Ok(file) => assert_eq!(
                file.metadata().unwrap().len(),
                std::fs::metadata("/bin/sleep").unwrap().len()
            ),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
        }
    }
}
