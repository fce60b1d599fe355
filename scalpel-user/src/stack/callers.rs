//! Return address -> the *probed* function it lies in, by mappings and function extents. No symbol is read here.
//!
//! With it the exact caller of a call is known while recording, wherever that caller is probed itself; the address of
//! any other caller is kept with the context and named at the end.

use rustc_hash::FxHashMap;

use crate::event::{FuncId, Pid};
use crate::function::{ExitStrategy, FunctionInfo};

#[derive(Clone, Debug, Default)]
pub(super) struct Callers {
    files: FxHashMap<String, File>,
    /// Address space -> its mappings. Forked processes share their parent's until they exec.
    maps: FxHashMap<u32, Vec<Mapping>>,
    spaces: FxHashMap<Pid, u32>,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// Start and end in the file, and function; sorted when `is_sorted`.
    extents: Vec<(u64, u64, u32)>,
    is_sorted: bool,
}

#[derive(Clone, Debug)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
}

impl Callers {
    pub(super) fn function(&mut self, func: FuncId, info: &FunctionInfo) {
        if info.exit == ExitStrategy::None || info.size == 0 {
            return;
        }
        let file = match self.files.get_mut(&info.path) {
            Some(file) => file,
            None => self.files.entry(info.path.clone()).or_default(),
        };
        file.extents.push((
            info.file_offset,
            info.file_offset.saturating_add(info.size),
            func.get(),
        ));
        file.is_sorted = false;
    }

    pub(super) fn map(&mut self, pid: Pid, start: u64, end: u64, offset: u64, path: &str) {
        let maps = self
            .maps
            .entry(self.spaces.get(&pid).copied().unwrap_or(pid.0))
            .or_default();
        maps.retain(|map| map.end <= start || map.start >= end);
        maps.push(Mapping {
            start,
            end,
            offset,
            path: path.into(),
        });
    }

    pub(super) fn fork(&mut self, parent: Pid, child: Pid) {
        let space = self.space(parent);
        self.spaces.insert(child, space);
    }

    pub(super) fn exec(&mut self, pid: Pid) {
        self.spaces.remove(&pid);
        self.maps.remove(&pid.0);
    }

    /// Number of the address space that `pid` runs in: a pid.
    pub(super) fn space(&self, pid: Pid) -> u32 {
        self.spaces.get(&pid).copied().unwrap_or(pid.0)
    }

    /// The probed function that the call before `return_address` stands in.
    pub(super) fn caller(&mut self, space: u32, return_address: u64) -> Option<u32> {
        // The call is the last instruction of a function whose callee never returns: look at the call itself.
        let call = return_address.checked_sub(1)?;
        let map = self
            .maps
            .get(&space)?
            .iter()
            .find(|map| (map.start..map.end).contains(&call))?;
        self.files
            .get_mut(&map.path)?
            .function_at((call - map.start).checked_add(map.offset)?)
    }
}

impl File {
    fn function_at(&mut self, offset: u64) -> Option<u32> {
        if !self.is_sorted {
            self.extents.sort_unstable();
            self.is_sorted = true;
        }
        let after = self.extents.partition_point(|&(start, ..)| start <= offset);
        let &(_, end, func) = self.extents.get(after.checked_sub(1)?)?;
        (offset < end).then_some(func)
    }
}
