//! The cells and histograms of count mode: mapped memory that the programs add to, read without a system call.
//!
//! What is told are differences since the last reading. Must not know what addresses mean.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::maps::Map;
use memmap2::{MmapOptions, MmapRaw};
use rustc_hash::FxHashMap;
use scalpel_common::count::{
    BUCKETS, CountCell, CountHistogram, JUMPED_FROM, NO_SITE, cell_func, claims, space_execs,
    space_pid,
};
use scalpel_common::kernel::maps;

use super::error::KernelError;
use super::load::Kernel;
use crate::event::{FuncId, MonoTime, Pid};
use crate::input::{CountedEdge, CountedSite, CountedTimes, Counts};

/// Words of a cell after its key.
const NUMBERS: usize = (size_of::<CountCell>() - 16) / 8;
const _: () = assert!(NUMBERS == CountedEdge::NUMBERS);

/// The mapped counters, and what they were when they were last told.
pub struct CountReader {
    cells: Mapped,
    histograms: Mapped,
    claims: Mapped,
    told: FxHashMap<u32, [u64; NUMBERS]>,
    told_times: Vec<[u32; 2 * BUCKETS]>,
    told_calls: FxHashMap<FuncId, u64>,
    maxima: FxHashMap<FuncId, (u64, u64)>,
    last: MonoTime,
}

/// An array of the kernel, as memory.
#[derive(Debug)]
struct Mapped {
    map: MmapRaw,
    entries: usize,
}

impl CountReader {
    /// Maps the counters of `kernel`, of the family that counts. `start` is the first reading's `from`.
    pub fn map(kernel: &Kernel, start: MonoTime) -> Result<Self, KernelError> {
        Ok(Self {
            cells: Mapped::of(kernel, maps::COUNT_CELLS, size_of::<CountCell>())?,
            histograms: Mapped::of(kernel, maps::COUNT_HISTOGRAMS, size_of::<CountHistogram>())?,
            claims: Mapped::of(kernel, maps::COUNT_CLAIMS, 8)?,
            told: FxHashMap::default(),
            told_times: Vec::new(),
            told_calls: FxHashMap::default(),
            maxima: FxHashMap::default(),
            last: start,
        })
    }

    /// What was counted since the last reading, in processes of which `knows` answers true for their pid and number of execs
    /// (modulo 1024): where it does not, the addresses are not to be understood yet, and it is told later.
    pub fn read(&mut self, now: MonoTime, knows: impl Fn(Pid, u32) -> bool) -> Counts {
        let counts = Counts {
            from: self.last,
            until: now,
            edges: self.edges(knows),
            times: self.times(),
        };
        self.last = now;
        counts
    }

    /// Calls that `hits` tells of and no cell has counted: there was none left. To be asked when nothing counts any
    /// more and all has been read.
    pub fn without_cell(
        &self,
        pid: Pid,
        functions: impl Iterator<Item = FuncId>,
        hits: impl Fn(FuncId) -> u64,
    ) -> Vec<CountedEdge> {
        functions
            .filter_map(|func| {
                let told = self.told_calls.get(&func).copied().unwrap_or(0);
                let calls = hits(func).saturating_sub(told);
                (calls > 0).then_some(CountedEdge {
                    calls,
                    ..CountedEdge::new(pid, func, CountedSite::Unknown)
                })
            })
            .collect()
    }

    /// Longest wall and CPU time of calls of `func`, in ns, as far as it was read.
    pub fn longest(&self, func: FuncId) -> Option<(u64, u64)> {
        self.maxima.get(&func).copied()
    }

    fn histograms_claimed(&self) -> usize {
        let (claimed, most) = (
            self.claims.u64(claims::HISTOGRAMS as usize, 0),
            self.histograms.entries,
        );
        usize::try_from(claimed).map_or(most, |claimed| claimed.min(most))
    }

    fn edges(&mut self, knows: impl Fn(Pid, u32) -> bool) -> Vec<CountedEdge> {
        let mut edges = Vec::new();
        for number in 0..u32::try_from(self.cells.entries).unwrap_or(u32::MAX) {
            let index = number as usize;
            let Some((pid, execs, mut edge)) = key(&self.cells, index) else {
                continue;
            };
            // The first number is the calls, and every other moves only after it.
            if !knows(pid, execs) {
                continue;
            }
            let now: [u64; NUMBERS] =
                std::array::from_fn(|word| self.cells.u64(index, 16 + 8 * word));
            let told = self.told.entry(number).or_insert([0; NUMBERS]);
            if now == *told {
                continue;
            }
            let delta: [u64; NUMBERS] = std::array::from_fn(|word| {
                let (now, told) = (now.get(word), told.get(word));
                now.copied()
                    .unwrap_or(0)
                    .wrapping_sub(told.copied().unwrap_or(0))
            });
            *told = now;
            for (number, delta) in edge.numbers_mut().into_iter().zip(delta) {
                *number = delta;
            }
            *self.told_calls.entry(edge.func).or_default() += edge.calls;
            edges.push(edge);
        }
        merge(edges)
    }

    fn times(&mut self) -> Vec<CountedTimes> {
        let claimed = self.histograms_claimed();
        let known = self.told_times.len();
        self.told_times.resize(claimed.max(known), [0; 2 * BUCKETS]);
        let mut times = Vec::new();
        for (index, told) in self.told_times.iter_mut().enumerate() {
            let Some(func) = FuncId::new(self.histograms.u32(index, 0)) else {
                continue;
            };
            let max = self.maxima.entry(func).or_default();
            max.0 = max.0.max(self.histograms.u64(index, 8));
            max.1 = max.1.max(self.histograms.u64(index, 16));
            let (wall, cpu) = told.split_at_mut(BUCKETS);
            for (is_cpu, offset, told) in [(false, 24, wall), (true, 24 + 4 * BUCKETS, cpu)] {
                let mut buckets = Vec::new();
                for (bucket, told) in (0u16..).zip(told) {
                    let now = self.histograms.u32(index, offset + 4 * usize::from(bucket));
                    let more = now.wrapping_sub(*told);
                    *told = now;
                    if more > 0 {
                        buckets.push((bucket, u64::from(more)));
                    }
                }
                if !buckets.is_empty() {
                    times.push(CountedTimes {
                        func,
                        is_cpu,
                        buckets,
                    });
                }
            }
        }
        times
    }
}

/// Process, execs and key of a cell; `None` = it is free, or its key is not written yet.
fn key(cells: &Mapped, index: usize) -> Option<(Pid, u32, CountedEdge)> {
    let func = FuncId::new(cell_func(cells.u32(index, 12)))?;
    let (site, space) = (cells.u64(index, 0), cells.u32(index, 8));
    let site = match site {
        0 => return None,
        NO_SITE => CountedSite::Unknown,
        jump if jump & JUMPED_FROM != 0 => {
            FuncId::new(jump as u32).map_or(CountedSite::Unknown, CountedSite::Jump)
        }
        address => CountedSite::Address(address),
    };
    let pid = Pid(space_pid(space));
    Some((pid, space_execs(space), CountedEdge::new(pid, func, site)))
}

/// One edge may have a cell in each stripe.
fn merge(mut edges: Vec<CountedEdge>) -> Vec<CountedEdge> {
    let place = |edge: &CountedEdge| (edge.pid, edge.func, edge.site);
    edges.sort_unstable_by_key(place);
    edges.dedup_by(|next, kept| {
        let same = place(next) == place(kept);
        if same {
            for (sum, more) in kept.numbers_mut().into_iter().zip(next.numbers()) {
                *sum = sum.saturating_add(more);
            }
        }
        same
    });
    edges
}

impl Mapped {
    fn of(kernel: &Kernel, name: &'static str, size: usize) -> Result<Self, KernelError> {
        let refused =
            |source: Box<dyn std::error::Error + Send + Sync>| KernelError::Map { name, source };
        let Some(Map::Array(data)) = kernel.ebpf.map(name) else {
            return Err(KernelError::Missing {
                what: "map",
                name: name.into(),
            });
        };
        let entries = data
            .info()
            .map_err(|error| refused(error.into()))?
            .max_entries() as usize;
        let map = MmapOptions::new()
            .len(entries * size)
            .map_raw_read_only(&data.fd().as_fd())
            .map_err(|error| refused(error.into()))?;
        Ok(Self { map, entries })
    }

    /// Size of an entry in bytes.
    fn size(&self) -> usize {
        self.map.len() / self.entries.max(1)
    }

    /// A number of entry `index`; 0 outside of the mapping.
    fn u64(&self, index: usize, offset: usize) -> u64 {
        let at = index * self.size() + offset;
        if at + 8 > self.map.len() || !at.is_multiple_of(8) {
            return 0;
        }
        // SAFETY: within the mapping, by the check above.
        let number = unsafe { self.map.as_ptr().add(at) }.cast::<AtomicU64>();
        // SAFETY: page-aligned and a multiple of 8 from there; alive as long as `self`; the kernel writes it whole.
        unsafe { &*number }.load(Ordering::Acquire)
    }

    /// The same of 4 bytes.
    fn u32(&self, index: usize, offset: usize) -> u32 {
        let at = index * self.size() + offset;
        if at + 4 > self.map.len() || !at.is_multiple_of(4) {
            return 0;
        }
        // SAFETY: within the mapping, by the check above.
        let number = unsafe { self.map.as_ptr().add(at) }.cast::<AtomicU32>();
        // SAFETY: as in `u64`.
        unsafe { &*number }.load(Ordering::Acquire)
    }
}
