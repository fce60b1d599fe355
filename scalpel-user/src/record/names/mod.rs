//! What the processes of a recording have mapped, with the files held open: so that addresses can be named at the end,
//! also of a process that is gone and of files that were deleted.

mod look;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{Control, MonoTime, Pid};
use crate::function::{FunctionInfo, UnknownReason};
use crate::rooted;
use crate::survey::ImageReader;
use crate::symbol::{Backing, MappedCode, Mapping, Named, Symbolizer};
use crate::target::{self, FileId, MappedImage, Process};

/// Mappings that came this long before an exec may be its own: the kernel reports them first.
const EXEC_WINDOW_NS: u64 = 1_000_000_000;

/// Mappings and files.
pub(crate) struct Names {
    symbolizer: Symbolizer,
    /// By mount namespace: what a path leads to is not the same in all of them.
    held: FxHashMap<(u64, PathBuf), Arc<File>>,
    namespaces: FxHashMap<Pid, u64>,
    seen: FxHashSet<(Pid, String)>,
    recent: VecDeque<(Pid, Control)>,
    /// The number under which a process's addresses are known, and its pid in its own namespace.
    inner_pids: FxHashMap<Pid, (Pid, Pid)>,
    /// What maps say of which file a held one is, where many processes have the same.
    identities: FxHashMap<(u64, PathBuf), FileId>,
    most_held: usize,
}

impl Names {
    /// Nothing mapped yet.
    pub(crate) fn new() -> Self {
        Self::with(Symbolizer::new(Box::new(ImageReader)))
    }

    fn with(symbolizer: Symbolizer) -> Self {
        Self {
            symbolizer,
            held: FxHashMap::default(),
            namespaces: FxHashMap::default(),
            seen: FxHashSet::default(),
            recent: VecDeque::new(),
            inner_pids: FxHashMap::default(),
            identities: FxHashMap::default(),
            most_held: usize::MAX,
        }
    }

    /// Takes over what a process has mapped now, and says it as controls.
    pub(crate) fn describe(&mut self, process: &Process, time: MonoTime) -> Vec<Control> {
        let pid = process.pid();
        if let Some(&inner) = process.status().unwrap_or_default().namespace_pids.last() {
            self.inner_pids.insert(pid, (pid, Pid(inner)));
        }
        for image in process.images().unwrap_or_default() {
            self.hold(pid, &image);
        }
        let maps = process.maps().unwrap_or_default();
        let controls: Vec<Control> = maps
            .iter()
            .filter(|mapping| mapping.executable)
            .map(|mapping| control(pid, mapping, time))
            .collect();
        for control in &controls {
            self.map(pid, control);
            if let Control::Map { path, .. } = control {
                self.seen.insert((pid, path.clone()));
            }
        }
        controls
    }

    fn hold(&mut self, pid: Pid, image: &MappedImage) {
        let namespace = self.namespace(pid);
        if let Ok(file) = &image.file {
            let place = (namespace, image.path.clone());
            self.held.insert(place, Arc::clone(file));
        }
    }

    /// Of a process that nobody knew and that has ended it is taken to be ours.
    fn namespace(&mut self, pid: Pid) -> u64 {
        let of = |pid: &str| fs::metadata(format!("/proc/{pid}/ns/mnt")).map(|meta| meta.ino());
        let read = || {
            of(&pid.to_string())
                .or_else(|_ended| of("self"))
                .unwrap_or(0)
        };
        *self.namespaces.entry(pid).or_insert_with(read)
    }

    /// Keeps up with the processes.
    pub(super) fn control(&mut self, control: &Control) {
        match control {
            Control::Map { pid, .. } => {
                self.map(*pid, control);
                self.remember(*pid, control);
            }
            Control::Fork { parent, child, .. } if parent != child => {
                let namespace = self.namespace(*parent);
                self.namespaces.insert(*child, namespace);
                self.symbolizer.fork(*parent, *child)
            }
            Control::Exec { pid, .. } => {
                // It may have gone into another namespace between fork and exec.
                self.namespaces.remove(pid);
                self.symbolizer.exec(*pid);
            }
            Control::Fork { .. } | Control::Exit { .. } => {}
        }
    }

    /// Only for as long as an exec may ask for it: a recording can last for days.
    fn remember(&mut self, pid: Pid, control: &Control) {
        let oldest = control.time().0.saturating_sub(EXEC_WINDOW_NS);
        while self
            .recent
            .front()
            .is_some_and(|(_, old)| old.time().0 < oldest)
        {
            self.recent.pop_front();
        }
        self.recent.push_back((pid, control.clone()));
    }

    fn map(&mut self, pid: Pid, control: &Control) {
        let Control::Map {
            start,
            end,
            offset,
            path,
            ..
        } = control
        else {
            return;
        };
        let backing = match path.as_str() {
            "[vdso]" => Backing::Vdso,
            text if text.starts_with('/') => {
                Backing::File(PathBuf::from(text), self.file(pid, Path::new(text)))
            }
            _ => Backing::Anonymous,
        };
        self.symbolizer.map(
            pid,
            Mapping {
                start: start.0,
                end: end.0,
                offset: *offset,
                backing,
            },
        );
    }

    fn file(&mut self, pid: Pid, path: &Path) -> Result<Arc<File>, UnknownReason> {
        let place = (self.namespace(pid), path.to_owned());
        if let Some(file) = self.held.get(&place) {
            return Ok(Arc::clone(file));
        }
        let opened = open(pid, path)
            .map(Arc::new)
            .map_err(|error| UnknownReason::FileGone(error.to_string()));
        if let Ok(file) = &opened {
            self.held.insert(place, Arc::clone(file));
        }
        opened
    }

    /// Whether a process maps this file for the first time.
    pub(super) fn is_new_file(&mut self, pid: Pid, path: &str) -> bool {
        path.starts_with('/') && self.seen.insert((pid, path.to_owned()))
    }

    /// The bytes of a mapped file.
    pub(super) fn content(&mut self, pid: Pid, path: &str) -> Option<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let file = self.file(pid, Path::new(path)).ok()?;
        let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Some(bytes)
    }

    /// The mappings that an exec made, for a process that is gone already.
    pub(super) fn maps_before_exec(&mut self, pid: Pid, exec: MonoTime) -> Vec<Control> {
        let window = exec.0.saturating_sub(EXEC_WINDOW_NS)..=exec.0;
        let own = |(of, control): &(Pid, Control)| *of == pid && window.contains(&control.time().0);
        let maps = self
            .recent
            .iter()
            .filter(|entry| own(entry))
            .map(|(_, control)| control.clone())
            .collect();
        self.recent.retain(|(of, _)| *of != pid);
        maps
    }

    /// Before the processes end: keeps what is only readable while they live.
    pub(super) fn keep_perf_maps(&mut self) {
        for (&pid, &(space, inner)) in &self.inner_pids {
            self.symbolizer.keep_perf_map(space, pid, inner);
        }
    }

    /// Source file and line of a probed function, if debug information tells.
    pub(crate) fn line(&mut self, info: &FunctionInfo) -> Option<(String, Option<u32>)> {
        let path = self.readable(&info.path);
        self.symbolizer.line(&path, info.file_offset)
    }

    /// The same of functions of one file, in their order.
    pub(super) fn lines_of(
        &mut self,
        path: &str,
        file_offsets: &[u64],
    ) -> Vec<Option<(String, Option<u32>)>> {
        let path = self.readable(path);
        self.symbolizer.lines_of(&path, file_offsets)
    }

    /// Where a file that is mapped can be read.
    fn readable(&self, path: &str) -> PathBuf {
        let held = |((_, known), _): &(&(u64, PathBuf), &Arc<File>)| *known == Path::new(path);
        match self.held.iter().find(held) {
            Some((_, file)) => PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
            None => PathBuf::from(path),
        }
    }

    /// Functions that are inlined at an address of a process, the outermost first.
    pub(crate) fn inlined(&mut self, pid: Pid, address: u64) -> Vec<Arc<FunctionInfo>> {
        self.symbolizer.inlined(pid, address)
    }

    /// The files that a process has mapped as code.
    pub(super) fn code(&self, pid: Pid) -> Vec<MappedCode> {
        self.symbolizer.code(pid)
    }

    /// These addresses will be named.
    pub(super) fn announce(&mut self, addresses: &[(Pid, u64)]) {
        self.symbolizer.announce(addresses);
    }

    /// Names addresses of one process.
    pub(crate) fn resolve(&mut self, pid: Pid, addresses: &[u64]) -> Vec<Named> {
        self.symbolizer.resolve(pid, addresses)
    }
}

/// As the process sees it; by our own root if it is gone.
pub(super) fn open(pid: Pid, path: &Path) -> io::Result<File> {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    rooted::open(&root, path).or_else(|_gone| rooted::open(Path::new("/"), path))
}

fn control(pid: Pid, mapping: &target::Mapping, time: MonoTime) -> Control {
    let path = match &mapping.backing {
        target::Backing::File { path, .. } => path.to_string_lossy().into_owned(),
        target::Backing::Anonymous { name } if name.is_empty() => "[anonymous]".to_owned(),
        target::Backing::Anonymous { name } | target::Backing::Kernel { name } => name.clone(),
    };
    Control::Map {
        time,
        pid,
        start: mapping.start,
        end: mapping.end,
        offset: mapping.offset,
        path,
    }
}
