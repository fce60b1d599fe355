//! What counting programs are told when probes go: ends of calls that are open then are not seen.

use std::sync::{Mutex, PoisonError};

use aya::Ebpf;
use aya::maps::{Array, MapData};
use scalpel_common::count::{COUNT_STRIPES, GONE};
use scalpel_common::kernel::maps;

use super::error::KernelError;
use super::load::{missing_map, refused_map};
use super::settings::SettingsSlot;
use crate::event::FuncId;

/// A handle on what counting programs look at.
pub(super) struct CountMarks {
    settings: SettingsSlot,
    slots: Mutex<Array<MapData, u32>>,
}

impl CountMarks {
    /// Takes the map of slots out of `ebpf`.
    pub(super) fn take(ebpf: &mut Ebpf, settings: &SettingsSlot) -> Result<Self, KernelError> {
        let map = ebpf
            .take_map(maps::COUNT_SLOTS)
            .ok_or_else(|| missing_map(maps::COUNT_SLOTS))?;
        let slots = Array::try_from(map).map_err(|error| refused_map(maps::COUNT_SLOTS, error))?;
        Ok(Self {
            settings: settings.clone(),
            slots: Mutex::new(slots),
        })
    }

    /// The probe of `func` is going. To be said before its link closes.
    pub(super) fn going(&self, func: FuncId) -> Result<(), KernelError> {
        let refused = |error| refused_map(maps::COUNT_SLOTS, error);
        let functions = self.settings.get().functions;
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        for stripe in 0..COUNT_STRIPES as u32 {
            let slot = stripe * functions + func.get();
            let histogram = slots.get(&slot, 0).map_err(refused)?;
            slots.set(slot, histogram | GONE, 0).map_err(refused)?;
        }
        Ok(())
    }

    /// New links are attached and the ones that they replace are about to close.
    pub(super) fn replaced(&self) -> Result<(), KernelError> {
        self.settings
            .change(|settings| settings.count_epoch = settings.count_epoch.wrapping_add(1))
    }
}

impl std::fmt::Debug for CountMarks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountMarks").finish_non_exhaustive()
    }
}
