//! Address of a process -> the function it lies in, or the reason why it has none.
//!
//! The only user of blazesym. Works from mappings and open files that it was given, so that it works the same when the
//! process has ended. Must not know where addresses come from or what is made of the names. Not `Send`: one thread's.

mod jit;
mod jitdump;
mod kernel;
mod lines;
mod modules;
mod space;
mod vdso;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::event::Pid;
use crate::function::{ExitStrategy, FunctionInfo, Language, SourcePlace, UnknownReason};

pub use jit::{JitFunction, jit_functions};

use jit::JitMap;
use kernel::KernelSymbols;
use lines::Lines;
use modules::{ModuleId, Modules};
use space::{Region, Space};
use vdso::Vdso;

/// First address of the kernel's half (x86-64, any number of page-table levels).
pub const KERNEL_SPACE: u64 = 0xff00_0000_0000_0000;

/// The kernel, where a process is asked for.
pub const KERNEL: Pid = Pid(0);

/// A function, shared.
pub type Named = Result<Arc<FunctionInfo>, UnknownReason>;

/// Reads the functions of a file. The names of probed and of sampled functions must agree, so both come from the
/// reader that the wiring gives; blazesym's own names are for files that it cannot read.
pub trait FunctionReader {
    /// All functions of the file, in any order; `None` if it cannot be read.
    fn functions(&self, path: &Path, file: &File) -> Option<Vec<FunctionInfo>>;

    /// Those of them that lie around these offsets of the file: a file may have hundreds of thousands, of which few are
    /// ever asked for. The error says why nothing of the file can be known.
    fn functions_at(
        &self,
        path: &Path,
        file: &File,
        offsets: &[u64],
    ) -> Result<Option<Few>, UnknownReason>;

    /// Name for people, and language, of a name from a symbol table.
    fn display(&self, raw_name: &str) -> (String, Language);
}

/// A few functions of a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Few {
    /// They.
    pub functions: Vec<FunctionInfo>,
    /// The file has no function at all.
    pub is_stripped: bool,
}

/// What is behind a mapping.
#[derive(Clone, Debug)]
pub enum Backing {
    /// A file: its path as the process sees it, and itself or why it could not be opened.
    File(PathBuf, Result<Arc<File>, UnknownReason>),
    /// Memory without a file.
    Anonymous,
    /// The kernel's `[vdso]`.
    Vdso,
}

/// One executable mapping.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// File offset of `start`, in bytes.
    pub offset: u64,
    /// What is behind it.
    pub backing: Backing,
}

/// A file that a process has mapped as code.
#[derive(Clone, Debug)]
pub struct MappedCode {
    /// Its path as the process sees it.
    pub name: String,
    /// Itself.
    pub file: Arc<File>,
    /// First address.
    pub start: u64,
    /// File offset of `start`, in bytes.
    pub offset: u64,
}

/// Names addresses. Remembers every answer.
pub struct Symbolizer {
    reader: Box<dyn FunctionReader>,
    spaces: FxHashMap<Pid, Space>,
    modules: Modules,
    jit: FxHashMap<Pid, JitMap>,
    kernel: KernelSymbols,
    vdso: Vdso,
    lines: Lines,
    known: FxHashMap<(Pid, u64), Named>,
    /// Names come from tables of symbols alone, and of each file no more is kept than was asked for.
    is_frugal: bool,
}

impl Symbolizer {
    /// A symbolizer that knows no process yet.
    pub fn new(reader: Box<dyn FunctionReader>) -> Self {
        Self {
            reader,
            spaces: FxHashMap::default(),
            modules: Modules::default(),
            jit: FxHashMap::default(),
            kernel: KernelSymbols::default(),
            vdso: Vdso::default(),
            lines: Lines::default(),
            known: FxHashMap::default(),
            is_frugal: false,
        }
    }

    /// One for very many programs: of each file it keeps the functions around the addresses that were announced
    /// ([`Self::announce`]), and it reads no debug information: neither lines nor what is inlined.
    pub fn frugal(reader: Box<dyn FunctionReader>) -> Self {
        Self {
            is_frugal: true,
            ..Self::new(reader)
        }
    }

    /// These will be asked for: reads, where it is frugal, what is around them, each file once.
    pub fn announce(&mut self, addresses: &[(Pid, u64)]) {
        if !self.is_frugal {
            return;
        }
        let mut wanted: BTreeMap<ModuleId, Vec<u64>> = BTreeMap::new();
        for (pid, address) in addresses {
            let space = self.spaces.get(pid).filter(|_| *address < KERNEL_SPACE);
            if let Some((start, Region::File { module, offset })) =
                space.and_then(|space| space.at(*address))
            {
                let offsets = wanted.entry(*module).or_default();
                offsets.push(address - start + offset);
            }
        }
        for (module, mut offsets) in wanted {
            offsets.sort_unstable();
            offsets.dedup();
            self.modules.read_around(module, offsets, &*self.reader);
        }
    }

    /// A process mapped something; what was mapped at those addresses before is gone.
    pub fn map(&mut self, pid: Pid, mapping: Mapping) {
        let Mapping {
            start,
            end,
            offset,
            backing,
        } = mapping;
        let region = match backing {
            Backing::File(path, file) => Region::File {
                module: self.modules.add(path, file),
                offset,
            },
            Backing::Anonymous => Region::Anonymous,
            Backing::Vdso => Region::Vdso,
        };
        self.spaces.entry(pid).or_default().map(start, end, region);
    }

    /// A process was born: it has what its parent has.
    pub fn fork(&mut self, parent: Pid, child: Pid) {
        if let Some(space) = self.spaces.get(&parent) {
            self.spaces.insert(child, space.clone());
        }
    }

    /// A process replaced its program: its mappings and answers are void. Resolve what is pending before.
    pub fn exec(&mut self, pid: Pid) {
        self.spaces.remove(&pid);
        self.jit.remove(&pid);
        self.known.retain(|(of, _), _| *of != pid);
    }

    /// Keeps the perf map of a process (`/tmp/perf-PID.map`) as it is now, before it ends and its root is gone: for
    /// addresses of `space`, which is the process or stands for one of its programs. `inner` is its pid in its own pid
    /// namespace.
    pub fn keep_perf_map(&mut self, space: Pid, pid: Pid, inner: Pid) {
        self.jit.insert(space, JitMap::read(pid, inner));
    }

    /// The files that a process has mapped as code, as far as they could be opened.
    pub fn code(&self, pid: Pid) -> Vec<MappedCode> {
        let space = self.spaces.get(&pid).into_iter();
        let mapped = space
            .flat_map(Space::files)
            .filter_map(|(start, module, offset)| {
                let (path, file) = self.modules.file(module)?;
                Some(MappedCode {
                    name: path.to_string_lossy().into_owned(),
                    file: Arc::clone(file),
                    start,
                    offset,
                })
            });
        mapped.collect()
    }

    /// Names addresses of `pid` ([`KERNEL`] for the kernel's), in their order. For a return address ask for the
    /// address minus one: a call may be the last instruction of its function.
    pub fn resolve(&mut self, pid: Pid, addresses: &[u64]) -> Vec<Named> {
        addresses
            .iter()
            .map(|&address| self.resolve_one(pid, address))
            .collect()
    }

    /// Functions that are inlined at an address of `pid`, the outermost first: each is a part of the one before it, and the
    /// first of the function that [`Self::resolve`] names.
    pub fn inlined(&mut self, pid: Pid, address: u64) -> Vec<Arc<FunctionInfo>> {
        if self.is_frugal {
            return Vec::new();
        }
        let Some((start, Region::File { module, offset })) =
            self.spaces.get(&pid).and_then(|space| space.at(address))
        else {
            return Vec::new();
        };
        let (module, at) = (*module, address - start + offset);
        let Ok(host) = self.modules.look_up(module, at, &*self.reader) else {
            return Vec::new();
        };
        let path = self.modules.readable_path(module);
        let names = path.map(|path| self.lines.inlined(path, at));
        names
            .unwrap_or_default()
            .into_iter()
            .map(|name| {
                let own = self.modules.named(module, &name);
                own.unwrap_or_else(|| Arc::new(self.only_inlined(&host, name)))
            })
            .collect()
    }

    /// A function that stands nowhere by itself: it is known by its name in its image.
    fn only_inlined(&self, host: &FunctionInfo, raw_name: String) -> FunctionInfo {
        let (name, language) = self.reader.display(&raw_name);
        FunctionInfo {
            name,
            raw_name,
            file: None,
            line: None,
            language: match language {
                Language::Native => host.language,
                known => known,
            },
            file_offset: 0,
            size: 0,
            site_delta: 0,
            exit: ExitStrategy::None,
            exit_reason: "inlined: there is no code to probe".into(),
            unknown: None,
            ordinal: 0,
            place: SourcePlace::default(),
            ..host.clone()
        }
    }

    /// Source file and line of the function that begins at `file_offset` of the file at `path`, if debug information
    /// tells. `path` may lead to an open file (`/proc/self/fd/N`).
    pub fn line(&mut self, path: &Path, file_offset: u64) -> Option<(String, Option<u32>)> {
        self.lines_of(path, &[file_offset]).pop()?
    }

    /// The same of many functions of one file, in their order.
    pub fn lines_of(
        &mut self,
        path: &Path,
        file_offsets: &[u64],
    ) -> Vec<Option<(String, Option<u32>)>> {
        if self.is_frugal {
            return vec![None; file_offsets.len()];
        }
        let lines = self.lines.of_many(path, file_offsets).into_iter();
        lines
            .map(|line| line.map(|line| (line.file, line.line)))
            .collect()
    }

    /// How many distinct addresses have no name, by reason.
    pub fn unknown(&self) -> BTreeMap<UnknownReason, u64> {
        let mut counts = BTreeMap::new();
        for reason in self.known.values().filter_map(|named| named.as_ref().err()) {
            *counts.entry(reason.clone()).or_default() += 1;
        }
        counts
    }

    fn resolve_one(&mut self, pid: Pid, address: u64) -> Named {
        let pid = if address >= KERNEL_SPACE { KERNEL } else { pid };
        if let Some(known) = self.known.get(&(pid, address)) {
            return known.clone();
        }
        let named = self.look_up(pid, address);
        self.known.insert((pid, address), named.clone());
        named
    }

    fn look_up(&mut self, pid: Pid, address: u64) -> Named {
        if pid == KERNEL {
            return self.kernel.look_up(address);
        }
        if PROBE_PAGE.contains(&address) {
            return Ok(Arc::new(probe_page()));
        }
        let Some(space) = self.spaces.get(&pid) else {
            return Err(UnknownReason::ProcessGone);
        };
        match space.at(address) {
            None => Err(UnknownReason::Unmapped),
            Some((start, Region::File { module, offset })) => {
                self.in_file(*module, address - start + offset)
            }
            Some((start, Region::Vdso)) => self.vdso.look_up(address - start),
            Some((_, Region::Anonymous)) => {
                // The map of a process that keeps running has grown since: it is read once, at the first question.
                self.jit
                    .entry(pid)
                    .or_insert_with(|| JitMap::read(pid, pid))
                    .look_up(address)
            }
        }
    }

    fn in_file(&mut self, module: ModuleId, file_offset: u64) -> Named {
        let function = self.modules.look_up(module, file_offset, &*self.reader)?;
        if self.is_frugal || function.line.is_some() || function.unknown.is_some() {
            return Ok(function);
        }
        let Some(line) = self
            .modules
            .readable_path(module)
            .and_then(|path| self.lines.of(path, function.file_offset))
        else {
            return Ok(function);
        };
        let mut info = FunctionInfo::clone(&function);
        (info.file, info.line) = (Some(line.file), line.line);
        Ok(self.modules.replace(module, info))
    }
}

/// The page that the kernel gives a probed process for instructions it steps over and for return probes: the last
/// page below the stack's address limit (`xol_add_vma` in kernel/events/uprobes.c asks for `TASK_SIZE - PAGE_SIZE`).
const PROBE_PAGE: std::ops::Range<u64> = 0x7fff_ffff_e000..0x7fff_ffff_f000;

/// Time in it is the probes' own, not the program's.
fn probe_page() -> FunctionInfo {
    FunctionInfo {
        name: "[probe overhead]".into(),
        raw_name: String::new(),
        module: "[uprobes]".into(),
        path: "[uprobes]".into(),
        file: None,
        line: None,
        language: Language::Kernel,
        build_id: String::new(),
        file_offset: 0,
        size: 0x1000,
        site_delta: 0,
        exit: ExitStrategy::None,
        exit_reason: String::new(),
        unknown: None,
        ordinal: 0,
        place: SourcePlace::default(),
    }
}

#[cfg(test)]
mod tests;
