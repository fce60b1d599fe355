//! The lane clock: raw TSC where the collector asks for it, `CLOCK_MONOTONIC` elsewhere.

use rustix::time::{ClockId, clock_gettime};
use scalpel_common::segment::clock;

/// Now, in the unit of the segment.
#[inline]
pub(crate) fn now(kind: u8) -> u64 {
    if kind == clock::TSC {
        time_stamp_counter()
    } else {
        monotonic_ns()
    }
}

/// `CLOCK_MONOTONIC` in ns.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Never negative: it counts from the boot.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Whether a segment may count time so.
pub(crate) const fn known(kind: u8) -> bool {
    kind == clock::MONOTONIC || kind == clock::TSC && cfg!(target_arch = "x86_64")
}

#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn time_stamp_counter() -> u64 {
    // SAFETY: `readable` was asked before any clock was read.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether this process may read clocks at all: `prctl(PR_SET_TSC)` makes `rdtsc` a SIGSEGV, in the vDSO as well.
#[cfg(target_arch = "x86_64")]
pub(crate) fn readable() -> bool {
    matches!(
        rustix::process::time_stamp_counter_readability(),
        Ok(rustix::process::TimeStampCounterReadability::Readable)
    )
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn time_stamp_counter() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn readable() -> bool {
    true
}
