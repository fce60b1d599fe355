//! Count mode: calls are counted where they happen, and nothing is streamed.
//!
//! A *cell* stands for one call edge: a function, and the place that its calls return to. Programs find it by its hash in an
//! array, claim a free one by an atomic exchange, and add to it atomically; histograms are claimed from the front, by an
//! atomic addition to [`maps::COUNT_CLAIMS`](crate::kernel::maps::COUNT_CLAIMS). The collector maps the arrays and reads them
//! without a system call. Two processors that claim a cell for one key at once both keep theirs: a reader adds up all cells
//! of a key.

use core::mem::offset_of;

use crate::kernel::MAX_RETURN_DEPTH;

/// Cells and histograms are told apart by processor, so that processors do not fight for a cache line: a processor uses
/// stripe `cpu & ring_mask & (COUNT_STRIPES - 1)`.
pub const COUNT_STRIPES: usize = 4;

/// Bit of [`CountCell::site`]: the call was a jump out of the function whose id stands below, not a call that returns there.
pub const JUMPED_FROM: u64 = 1 << 63;

/// [`CountCell::site`] of calls that come from nobody knows where: no code is in the first page.
pub const NO_SITE: u64 = 1;

/// Function id of [`CountCell::func`].
pub const fn cell_func(func: u32) -> u32 {
    func & 0xff_ffff
}

/// Buckets of a histogram: those of [`bucket_of`].
pub const BUCKETS: usize = 496;

/// Buckets per doubling: a bucket is at most 1/8 of its lower bound wide.
const PER_DOUBLING: u64 = 8;

/// The bucket of a duration in ns: below 8 ns one bucket per ns, then eight per doubling. At most 495.
#[inline(always)]
pub const fn bucket_of(ns: u64) -> u16 {
    if ns < PER_DOUBLING {
        return ns as u16;
    }
    let octave = ns.ilog2() - 3;
    (octave as u16 + 1) * 8 + ((ns >> octave) as u16 - 8)
}

/// The address space that a process counts in: its own number and how often it has executed a program. A forked child
/// counts in its parent's until it executes one, because the same addresses stand for the same code.
pub const fn space(pid: u32, execs: u32) -> u32 {
    pid | execs << 22
}

/// Process of a [`space`].
pub const fn space_pid(space: u32) -> u32 {
    space & ((1 << 22) - 1)
}

/// Execs of a [`space`], modulo 1024.
pub const fn space_execs(space: u32) -> u32 {
    space >> 22
}

/// One cell. Times in ns. All numbers only grow, but for the key, which is written once: `space` and
/// `func` by one exchange that claims the cell, then `site`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct CountCell {
    /// Return address in the process; [`JUMPED_FROM`] and a function id; [`NO_SITE`] = not known; 0 = not written yet.
    pub site: u64,
    /// A [`space`].
    pub space: u32,
    /// Function id, and above its 24 bits the stripe; 0 = not claimed.
    pub func: u32,
    /// Entries.
    pub calls: u64,
    /// Calls whose end was seen, or proven by what ran afterwards.
    pub timed: u64,
    /// Of those, calls left by an exception or a long jump.
    pub unwound: u64,
    /// Calls whose return was not to be probed.
    pub refused: u64,
    /// Wall time less that of timed calls within.
    pub self_wall_ns: u64,
    /// CPU time less that of timed calls within.
    pub self_cpu_ns: u64,
    /// Wall time of calls with no other call of the function around them.
    pub total_wall_ns: u64,
    /// CPU time of those.
    pub total_cpu_ns: u64,
    /// Entries and returns seen by probes within those and of them.
    pub probe_events: u64,
}

/// Log-linear histograms of a function's durations, calls with no other call of it around them only. Buckets by
/// [`bucket_of`]; counters wrap, so a reader takes differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct CountHistogram {
    /// Function id; 0 = not claimed.
    pub func: u32,
    /// 0.
    pub reserved: u32,
    /// Longest wall time in ns.
    pub max_wall_ns: u64,
    /// Longest CPU time in ns.
    pub max_cpu_ns: u64,
    /// Wall times.
    pub wall: [u32; BUCKETS],
    /// CPU times.
    pub cpu: [u32; BUCKETS],
}

/// A call that is to be timed, between its entry and its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct TimedCall {
    /// Stack pointer at its entry.
    pub frame: u64,
    /// `CLOCK_MONOTONIC` ns at its entry.
    pub time: u64,
    /// CPU time of the thread at its entry in ns.
    pub cpu_ns: u64,
    /// Wall time of timed calls made by it so far.
    pub inner_wall_ns: u64,
    /// CPU time of those.
    pub inner_cpu_ns: u64,
    /// Function id; top bit: another call of the function is around it.
    pub func: u32,
    /// Its cell; `u32::MAX` = none.
    pub cell: u32,
    /// The thread's count of probe events at its entry.
    pub events: u32,
    /// Low half of its return address.
    pub site: u32,
}

/// Bit of [`TimedCall::func`].
pub const IS_INNER: u32 = 1 << 31;

/// The timed calls of one thread that are open, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct TimedCalls {
    /// The calls; those from `depth` on are stale.
    pub calls: [TimedCall; MAX_RETURN_DEPTH],
    /// How many are open.
    pub depth: u32,
    /// [`Settings::count_epoch`](crate::kernel::Settings::count_epoch) that they were looked at in.
    pub epoch: u32,
}

/// Bit of a slot of [`maps::COUNT_SLOTS`](crate::kernel::maps::COUNT_SLOTS): the function's probe went, so that a call of it
/// that seems to be left by an exception may have returned unseen.
pub const GONE: u32 = 1 << 31;

/// Index into the counters of [`maps::COUNT_CLAIMS`](crate::kernel::maps::COUNT_CLAIMS).
pub mod claims {
    /// Histograms claimed so far.
    pub const HISTOGRAMS: u32 = 0;
}

const _: () = {
    assert!(size_of::<CountCell>() == 88);
    assert!(offset_of!(CountCell, calls) == 16);
    assert!(size_of::<CountHistogram>() == 24 + 8 * BUCKETS);
    assert!(size_of::<TimedCall>() == 56);
    assert!(size_of::<TimedCalls>() == 56 * MAX_RETURN_DEPTH + 8);
    assert!(bucket_of(7) == 7 && bucket_of(8) == 8 && bucket_of(u64::MAX) as usize == BUCKETS - 1);
    assert!(space_pid(space(4_194_303, 3)) == 4_194_303 && space_execs(space(4_194_303, 3)) == 3);
};
