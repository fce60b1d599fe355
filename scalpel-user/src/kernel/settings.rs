//! The one slot of settings that all programs read, shared by those who change parts of it (the lease, the set of
//! processes): a change of one part must not undo another's.

use std::sync::{Arc, Mutex, PoisonError};

use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapError};
use rustix::time::{ClockId, clock_getres};
use scalpel_common::kernel::{Settings, maps};

use super::error::KernelError;

/// [`Settings`] as aya's maps take it.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct PodSettings(Settings);

// SAFETY: Settings is repr(C), made of integers, without padding (its size is asserted in scalpel-common).
unsafe impl aya::Pod for PodSettings {}

/// A handle on the slot; clones are the same slot.
#[derive(Clone)]
pub(super) struct SettingsSlot(Arc<Mutex<Slot>>);

struct Slot {
    map: Array<MapData, PodSettings>,
    now: Settings,
}

impl SettingsSlot {
    /// Takes the map out of `ebpf` and writes the first settings.
    pub(super) fn take(ebpf: &mut Ebpf, first: Settings) -> Result<Self, KernelError> {
        let missing = || KernelError::Missing {
            what: "map",
            name: maps::SETTINGS.into(),
        };
        let map: Map = ebpf.take_map(maps::SETTINGS).ok_or_else(missing)?;
        let map = Array::try_from(map).map_err(refused)?;
        let slot = Self(Arc::new(Mutex::new(Slot { map, now: first })));
        slot.change(|_settings| ())?;
        Ok(slot)
    }

    /// Changes the settings and tells the programs.
    pub(super) fn change(&self, change: impl FnOnce(&mut Settings)) -> Result<(), KernelError> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut settings = slot.now;
        change(&mut settings);
        slot.map.set(0, PodSettings(settings), 0).map_err(refused)?;
        slot.now = settings;
        Ok(())
    }

    /// The settings as they stand.
    pub(super) fn get(&self) -> Settings {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).now
    }
}

/// Length of a jiffy in ns: `CLOCK_MONOTONIC_COARSE` advances by one at a time.
pub(super) fn jiffy_ns() -> u32 {
    u32::try_from(clock_getres(ClockId::MonotonicCoarse).tv_nsec).unwrap_or(0)
}

fn refused(error: MapError) -> KernelError {
    KernelError::Map {
        name: maps::SETTINGS,
        source: Box::new(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jiffy_is_between_1_and_10_ms() {
        assert!(
            (1_000_000..=10_000_000).contains(&jiffy_ns()),
            "{}",
            jiffy_ns()
        );
    }
}
