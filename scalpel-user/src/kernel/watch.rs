//! The set of watched processes, kept in a map: programs on strangers' calls return at once.

use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{HashMap, Map, MapData, MapError};
use scalpel_common::kernel::{WatchedProcess, maps, process_flags, settings_flags};

use super::error::KernelError;
use super::load::Kernel;
use crate::event::Pid;

/// [`WatchedProcess`] as aya's maps take it.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct PodWatched(WatchedProcess);

// SAFETY: WatchedProcess is repr(C), made of integers, without padding (its size is asserted in scalpel-common).
unsafe impl aya::Pod for PodWatched {}

/// Another handle on the set, to ask whether a process is in it.
pub(super) struct WatchedSet(HashMap<MapData, u32, PodWatched>);

impl WatchedSet {
    /// Whether the process is watched now; children that the programs added are.
    pub(super) fn contains(&self, pid: u32) -> bool {
        self.0.get(&pid, 0).is_ok()
    }
}

impl Kernel {
    /// Watches a process. `start_time` (ns of `CLOCK_BOOTTIME`) tells it from another with the same pid.
    pub fn watch(&mut self, pid: Pid, start_time: u64) -> Result<(), KernelError> {
        let process = WatchedProcess {
            start_time,
            space: pid.0,
            ..WatchedProcess::default()
        };
        self.set()?
            .insert(pid.0, PodWatched(process), 0)
            .map_err(refused)
    }

    /// Watches a process, if it is not watched already: a child may be, which the programs have added. Whether it was new.
    pub fn watch_also(&mut self, pid: Pid, start_time: u64) -> Result<bool, KernelError> {
        match self.set()?.get(&pid.0, 0) {
            Ok(_watched) => Ok(false),
            Err(MapError::KeyNotFound) => self.watch(pid, start_time).map(|()| true),
            Err(error) => Err(refused(error)),
        }
    }

    /// From now on each time a thread of this process goes on is told: it has a probe that needs CPU times. A process that is
    /// not watched is left alone.
    pub fn tell_switches(&mut self, pid: Pid) -> Result<(), KernelError> {
        let mut set = self.set()?;
        let mut process = match set.get(&pid.0, 0) {
            Ok(process) => process,
            Err(MapError::KeyNotFound) => return Ok(()),
            Err(error) => return Err(refused(error)),
        };
        process.0.flags |= process_flags::SWITCHES;
        set.insert(pid.0, process, 0).map_err(refused)?;
        self.settings
            .change(|settings| settings.flags |= settings_flags::SWITCHES)
    }

    /// Watches it no longer. Threads that were found in the set before look again at their next event.
    pub fn unwatch(&mut self, pid: Pid) -> Result<(), KernelError> {
        match self.set()?.remove(&pid.0) {
            Ok(()) | Err(MapError::KeyNotFound) => {}
            Err(error) => return Err(refused(error)),
        }
        self.settings
            .change(|settings| settings.watch_epoch = settings.watch_epoch.wrapping_add(1).max(1))
    }

    /// The watched processes with their start time and number of execs, children that the programs added included.
    pub fn watched(&mut self) -> Result<Vec<(Pid, WatchedProcess)>, KernelError> {
        let set = self.set()?;
        let entries = set
            .iter()
            .map(|entry| entry.map(|(pid, process)| (Pid(pid), process.0)));
        entries.collect::<Result<_, _>>().map_err(refused)
    }

    /// Another handle on the set.
    pub(super) fn watched_set(&self) -> Result<WatchedSet, KernelError> {
        let Some(Map::HashMap(data)) = self.ebpf.map(maps::WATCHED) else {
            return Err(missing());
        };
        let descriptor = duplicate(data)?;
        let data = MapData::from_fd(descriptor).map_err(refused)?;
        HashMap::try_from(Map::HashMap(data))
            .map(WatchedSet)
            .map_err(refused)
    }

    fn set(&mut self) -> Result<HashMap<&mut MapData, u32, PodWatched>, KernelError> {
        let map = self.ebpf.map_mut(maps::WATCHED).ok_or_else(missing)?;
        HashMap::try_from(map).map_err(refused)
    }
}

/// Another descriptor of a map.
pub(super) fn duplicate(data: &MapData) -> Result<OwnedFd, KernelError> {
    data.fd()
        .as_fd()
        .try_clone_to_owned()
        .map_err(KernelError::Ring)
}

fn missing() -> KernelError {
    KernelError::Missing {
        what: "map",
        name: maps::WATCHED.into(),
    }
}

fn refused(error: MapError) -> KernelError {
    KernelError::Map {
        name: maps::WATCHED,
        source: Box::new(error),
    }
}
