//! The code of a process, as its stacks are unwound by it.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use anyhow::bail;
use object::Object;

use crate::target::{Backing, Mapping, Process};
use crate::unwind::Unwinder;

/// Largest executable file that is read for its unwind information, in bytes.
const LARGEST: u64 = 2 << 30;

/// The executable mappings and their unwind information.
pub(super) struct Code {
    pub(super) unwinder: Unwinder,
    /// Files that could not be read, and why.
    pub(super) unread: Vec<(String, String)>,
    mappings: Vec<(Mapping, String)>,
}

impl Code {
    /// Reads the unwind information of everything that is mapped executable.
    pub(super) fn read(process: &Process, maps: &[Mapping]) -> anyhow::Result<Self> {
        let mut code = Self {
            unwinder: Unwinder::new(),
            unread: Vec::new(),
            mappings: Vec::new(),
        };
        for image in process.images()? {
            let name = image.name();
            let bytes = image
                .file
                .as_ref()
                .map_err(ToString::to_string)
                .and_then(|file| whole(file).map_err(|error| error.to_string()));
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(why) => {
                    code.unread.push((name, why));
                    continue;
                }
            };
            if image.main && object::File::parse(&*bytes).is_ok_and(|file| !file.is_64()) {
                bail!(
                    "pid {} runs a 32-bit program: its stacks cannot be unwound",
                    process.pid()
                );
            }
            for mapping in &image.mappings {
                code.add(&name, &bytes, mapping, mapping.offset);
            }
        }
        let vdso = maps.iter().find(
            |mapping| matches!(&mapping.backing, Backing::Kernel { name } if name == "[vdso]"),
        );
        if let Some(mapping) = vdso
            && let Ok(memory) = std::fs::File::open(process.proc_path("mem"))
        {
            let mut bytes = vec![0; usize::try_from(mapping.end.0 - mapping.start.0)?];
            if memory.read_exact_at(&mut bytes, mapping.start.0).is_ok() {
                code.add("[vdso]", &Arc::from(bytes), mapping, 0);
            }
        }
        Ok(code)
    }

    fn add(&mut self, name: &str, bytes: &Arc<[u8]>, mapping: &Mapping, offset: u64) {
        if let Err(why) = self.unwinder.add(name, bytes, mapping.start.0, offset) {
            self.unread.push((name.to_owned(), why.to_string()));
        }
        self.mappings.push((mapping.clone(), name.to_owned()));
    }

    /// File name and file offset of an address in a mapped file.
    pub(super) fn place(&self, address: u64) -> Option<(&str, u64)> {
        let (mapping, name) = self
            .mappings
            .iter()
            .find(|(mapping, _)| mapping.contains(address))?;
        Some((name, address - mapping.start.0 + mapping.offset))
    }
}

fn whole(file: &std::fs::File) -> std::io::Result<Arc<[u8]>> {
    let length = file.metadata()?.len();
    if length > LARGEST {
        return Err(std::io::Error::other("the file is larger than 2 GiB"));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes.into())
}
