//! The hit counters that the call programs keep per function, read without a system call.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::Ebpf;
use aya::maps::Map;
use memmap2::{MmapOptions, MmapRaw};
use scalpel_common::kernel::maps;

use super::error::KernelError;
use crate::event::FuncId;

/// The mapped counters. They stay readable after the programs are detached.
#[derive(Debug)]
pub(super) struct Hits {
    map: MmapRaw,
    entries: usize,
}

impl Hits {
    /// Maps the counters of `ebpf`, which must be an mmapable array.
    pub(super) fn map(ebpf: &Ebpf, entries: u32) -> Result<Self, KernelError> {
        let Some(Map::Array(data)) = ebpf.map(maps::HITS) else {
            return Err(KernelError::Missing {
                what: "map",
                name: maps::HITS.into(),
            });
        };
        let entries = entries as usize;
        let map = MmapOptions::new()
            .len(entries * size_of::<u64>())
            .map_raw_read_only(&data.fd().as_fd())
            .map_err(|source| KernelError::Map {
                name: maps::HITS,
                source: source.into(),
            })?;
        Ok(Self { map, entries })
    }

    /// Entries of `func` seen so far; 0 beyond the end of the map.
    pub(super) fn of(&self, func: FuncId) -> u64 {
        let index = func.get() as usize;
        if index >= self.entries {
            return 0;
        }
        // SAFETY: `index` is within the `entries` counters that the mapping holds; it is page-aligned and lives as
        // long as `self`. The kernel writes it atomically.
        let counter = unsafe { &*self.map.as_ptr().cast::<AtomicU64>().add(index) };
        counter.load(Ordering::Relaxed)
    }
}
