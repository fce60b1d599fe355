//! The programs and libraries that a recording names: found by path and by build-id, and turned down where they are not
//! the ones that ran. It knows nothing of traces.
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::elf::ElfFile;
use crate::pt::{CodeBytes, Image};
use crate::symbol::{Resolver, Symbol};

/// What a recording tells of a file beside its path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) build_id: Option<Vec<u8>>,
    /// Device (major, minor) and inode.
    pub(super) inode: Option<(u32, u32, u64)>,
}

/// Finds files, each once.
#[derive(Debug, Default)]
pub(super) struct Files {
    folders: Vec<PathBuf>,
    found: HashMap<(PathBuf, Identity), Result<Rc<ElfFile>, String>>,
    code: HashMap<(PathBuf, u64, u64), Rc<CodeBytes>>,
    complaints: Vec<String>,
}

impl Files {
    pub(super) fn new(folders: &[PathBuf]) -> Self {
        Self {
            folders: folders.to_vec(),
            ..Self::default()
        }
    }

    /// What was not found, in the order in which it was asked for.
    pub(super) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    pub(super) fn complain(&mut self, why: String) {
        if !self.complaints.contains(&why) {
            self.complaints.push(why);
        }
    }

    /// The file that ran.
    pub(super) fn find(&mut self, path: &Path, identity: &Identity) -> Option<Rc<ElfFile>> {
        let key = (path.to_owned(), identity.clone());
        if let Some(known) = self.found.get(&key) {
            return known.as_ref().ok().cloned();
        }
        let found = self.search(path, identity);
        if let Err(why) = &found {
            self.complain(why.clone());
        }
        let file = found.as_ref().ok().cloned();
        self.found.insert(key, found);
        file
    }

    fn search(&self, path: &Path, identity: &Identity) -> Result<Rc<ElfFile>, String> {
        let mut reasons = Vec::new();
        for (candidate, given) in self.candidates(path, identity) {
            if !candidate.is_file() {
                continue;
            }
            match ElfFile::read(&candidate).and_then(|file| fits(file, identity, given)) {
                Ok(file) => return Ok(Rc::new(file)),
                Err(why) => reasons.push(why),
            }
        }
        let shown = path.display();
        Err(match reasons.first() {
            Some(why) => format!("{shown}: {why}"),
            None => format!("{shown}: not found: give a folder that holds it with --symfs"),
        })
    }

    /// Where the file may be, and whether the user said so.
    fn candidates(&self, path: &Path, identity: &Identity) -> Vec<(PathBuf, bool)> {
        let mut all = Vec::new();
        let inside = path.strip_prefix("/").unwrap_or(path);
        for folder in &self.folders {
            all.push((folder.join(inside), true));
            if let Some(name) = path.file_name() {
                all.push((folder.join(name), true));
            }
            if let Some(id) = &identity.build_id {
                let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
                let (head, tail) = hex.split_at_checked(2).unwrap_or(("", ""));
                all.push((folder.join(".build-id").join(head).join(tail), true));
                all.push((folder.join(format!(".build-id/{head}/{tail}.debug")), true));
                all.push((folder.join(format!(".build-id/{head}/{tail}/elf")), true));
            }
        }
        if path.is_absolute() {
            all.push((path.to_owned(), false));
        }
        all
    }

    /// Maps `len` bytes of the file, from `offset` on, at `addr`.
    ///
    /// # Errors
    /// No memory is left, or libipt refuses.
    pub(super) fn map(
        &mut self,
        image: &Image,
        file: &ElfFile,
        (addr, offset, len): (u64, u64, u64),
    ) -> Result<(), String> {
        let all = file.bytes();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
        let end = usize::try_from(offset.saturating_add(len))
            .unwrap_or(usize::MAX)
            .min(all.len());
        let key = (file.path().to_owned(), offset, len);
        let code = match self.code.get(&key) {
            Some(code) => Rc::clone(code),
            None => {
                let bytes = all.get(start..end).unwrap_or_default().to_vec();
                let code = CodeBytes::new(bytes).map_err(|error| error.to_string())?;
                self.code.insert(key, Rc::clone(&code));
                code
            }
        };
        image.map(addr, &code, 0, len)
    }
}

/// Whether a file is the one that ran. `given`: the user gave the folder it is in, and answers for it where the recording
/// does not tell its build.
fn fits(file: ElfFile, identity: &Identity, given: bool) -> Result<ElfFile, String> {
    let shown = file.path().display().to_string();
    match (&identity.build_id, file.build_id()) {
        (Some(recorded), Some(here)) if same(recorded, here) => Ok(file),
        (Some(recorded), Some(here)) => Err(format!(
            "{shown} is another build ({}) than the one that ran ({})",
            hex(here),
            hex(recorded)
        )),
        _ if given || same_inode(file.path(), identity) => Ok(file),
        _ => Err(format!(
            "whether {shown} is the file that ran is not known, as the recording has no build-id of it: vouch for it \
             with --symfs"
        )),
    }
}

/// A recording may have room for 20 bytes only, and fills up with zeros.
fn same(recorded: &[u8], here: &[u8]) -> bool {
    let len = recorded.len().min(here.len());
    recorded.get(..len) == here.get(..len)
        && recorded
            .get(len..)
            .is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
}

fn same_inode(path: &Path, identity: &Identity) -> bool {
    let Some((major, minor, inode)) = identity.inode else {
        return false;
    };
    std::fs::metadata(path).is_ok_and(|meta| {
        let dev = meta.dev();
        let (here_major, here_minor) =
            ((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & 0xf_ff00));
        meta.ino() == inode && here_major == u64::from(major) && here_minor == u64::from(minor)
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The names of what is mapped in one address space.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Vec<Mapped>);

#[derive(Clone, Debug)]
struct Mapped {
    start: u64,
    end: u64,
    offset: u64,
    file: Rc<ElfFile>,
}

impl Names {
    pub(super) fn map(&mut self, file: &Rc<ElfFile>, (addr, offset, len): (u64, u64, u64)) {
        self.0.push(Mapped {
            start: addr,
            end: addr.saturating_add(len),
            offset,
            file: Rc::clone(file),
        });
    }
}

impl Resolver for Names {
    fn resolve(&mut self, addr: u64) -> Option<Symbol> {
        // What was mapped last stands.
        let mapped = self
            .0
            .iter()
            .rev()
            .find(|map| (map.start..map.end).contains(&addr))?;
        let own = mapped.file.address(addr - mapped.start + mapped.offset)?;
        mapped.file.symbol(own)
    }
}

/// Where the parts of a file stand that can be run, if its first byte is loaded at `base` (its own address if `None`):
/// address, offset, length.
pub(super) fn placed(file: &ElfFile, base: Option<u64>) -> Vec<(u64, u64, u64)> {
    let loaded = || file.segments().iter().filter(|segment| segment.size > 0);
    let first = loaded()
        .map(|segment| segment.address & !0xfff)
        .min()
        .unwrap_or(0);
    let code = loaded().filter(|segment| segment.code);
    code.map(|segment| {
        let moved = base.map_or(segment.address, |base| {
            base.wrapping_add(segment.address.wrapping_sub(first))
        });
        (moved, segment.offset, segment.size)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_decides() {
        let path = std::env::current_exe().unwrap();
        let own = ElfFile::read(&path).unwrap();
        let id = own.build_id().map(<[u8]>::to_vec);
        let mut files = Files::new(&[]);
        let right = Identity {
            build_id: id.clone(),
            inode: None,
        };
        assert_eq!(files.find(&path, &right).is_some(), id.is_some());
        let wrong = Identity {
            build_id: Some(vec![7; 20]),
            inode: None,
        };
        assert!(files.find(&path, &wrong).is_none());
        assert!(files.complaints().last().unwrap().contains("another build"));
    }

    #[test]
    fn a_file_of_an_unknown_build_is_not_taken_unless_given() {
        let path = std::env::current_exe().unwrap();
        let unknown = Identity::default();
        assert!(Files::new(&[]).find(&path, &unknown).is_none());
        let folder = path.parent().unwrap().to_owned();
        assert!(Files::new(&[folder]).find(&path, &unknown).is_some());
        let meta = std::fs::metadata(&path).unwrap();
        let dev = meta.dev();
        let inode = ((dev >> 8) as u32 & 0xfff, dev as u32 & 0xff, meta.ino());
        let same = Identity {
            build_id: None,
            inode: Some(inode),
        };
        assert!(Files::new(&[]).find(&path, &same).is_some());
    }

    #[test]
    fn what_is_missing_is_told_once() {
        let mut files = Files::new(&[]);
        for _ in 0..2 {
            assert!(
                files
                    .find(Path::new("/nowhere/x"), &Identity::default())
                    .is_none()
            );
        }
        assert_eq!(files.complaints().len(), 1);
        assert!(files.complaints()[0].contains("--symfs"));
    }
}
