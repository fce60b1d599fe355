//! The hit counters that the call programs keep per function, read without a system call.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::Ebpf;
use aya::maps::Map;
use memmap2::{MmapOptions, MmapRaw};
use scalpel_common::kernel::maps;

use super::error::KernelError;
use crate::event::FuncId;

/// The mapped counters: `stripes` times one counter per function id for watched processes, and behind those as many for all
/// others. They stay readable after a detach.
#[derive(Debug)]
pub(super) struct Hits {
    map: MmapRaw,
    stripes: usize,
    functions: usize,
}

impl Hits {
    /// Maps the counters of `ebpf`, which must be an mmapable array.
    pub(super) fn map(ebpf: &Ebpf, stripes: u32, functions: u32) -> Result<Self, KernelError> {
        let Some(Map::Array(data)) = ebpf.map(maps::HITS) else {
            return Err(KernelError::Missing {
                what: "map",
                name: maps::HITS.into(),
            });
        };
        let (stripes, functions) = (stripes as usize, functions as usize);
        let map = MmapOptions::new()
            .len(2 * stripes * functions * size_of::<u64>())
            .map_raw_read_only(&data.fd().as_fd())
            .map_err(|source| KernelError::Map {
                name: maps::HITS,
                source: source.into(),
            })?;
        Ok(Self {
            map,
            stripes,
            functions,
        })
    }

    /// Entries of `func` seen so far; 0 for an id that was not announced when the maps were made.
    pub(super) fn of(&self, func: FuncId) -> u64 {
        self.sum(func, 0..self.stripes)
    }

    /// Entries of `func` in processes that are not watched, which pay for the probe as well.
    pub(super) fn of_strangers(&self, func: FuncId) -> u64 {
        self.sum(func, self.stripes..2 * self.stripes)
    }

    fn sum(&self, func: FuncId, stripes: Range<usize>) -> u64 {
        let id = func.get() as usize;
        if id >= self.functions {
            return 0;
        }
        let slots = stripes.map(|stripe| stripe * self.functions + id);
        slots.map(|slot| self.load(slot)).sum()
    }

    fn load(&self, slot: usize) -> u64 {
        debug_assert!(slot < 2 * self.stripes * self.functions);
        // SAFETY: `slot` is below 2 * stripes * functions, the number of counters in the mapping: `sum` sees to it.
        let counter = unsafe { self.map.as_ptr().cast::<AtomicU64>().add(slot) };
        // SAFETY: the mapping is page-aligned and lives as long as `self`; the kernel writes it atomically.
        unsafe { &*counter }.load(Ordering::Relaxed)
    }
}
