//! Cells and histograms: found, claimed, added to.

use core::ptr;

use aya_ebpf::bindings::BPF_NOEXIST;
use scalpel_common::count::{
    BUCKETS, COUNT_STRIPES, CountCell, CountHistogram, CountKey, GONE, bucket_of, claims,
};
use scalpel_common::kernel::LossClass;

use crate::maps::{
    COUNT_CELLS, COUNT_CLAIMS, COUNT_HISTOGRAMS, COUNT_INDEX, COUNT_SLOTS, SETTINGS,
};
use crate::{add, emit};

/// Index of no cell.
pub(crate) const NO_CELL: u32 = u32::MAX;

/// Function ids have 24 bits in a key, the stripe stands above.
const STRIPE_SHIFT: u32 = 24;

/// Counts a call of `func` that returns to `site`, and gives the index of its cell; [`NO_CELL`] = all are taken.
#[inline(never)]
pub(crate) fn count_call(func: u32, site: u64, space: u32) -> u32 {
    let key = CountKey {
        site,
        func: func | stripe() << STRIPE_SHIFT,
        space,
    };
    let index = match COUNT_INDEX.get_ptr(key) {
        // SAFETY: the entry lives as long as the program; it is never changed.
        Some(index) => unsafe { *index },
        None => claim_cell(&key),
    };
    if let Some(cell) = COUNT_CELLS.get_ptr_mut(index) {
        // SAFETY: a field of a map value.
        add::one(unsafe { &raw mut (*cell).calls });
        index
    } else {
        NO_CELL
    }
}

/// Claims a cell for `key`. Two programs may do so at once: both cells count, and a reader adds them up.
#[inline(never)]
fn claim_cell(key: &CountKey) -> u32 {
    let index = claim(claims::CELLS);
    let Some(cell) = COUNT_CELLS.get_ptr_mut(index) else {
        emit::count_class(LossClass::CountCell);
        return NO_CELL;
    };
    // SAFETY: the cell is nobody else's until its index stands in the hash.
    unsafe {
        (&raw mut (*cell).site).write_volatile(key.site);
    }
    // SAFETY: as above.
    unsafe { (&raw mut (*cell).space).write_volatile(key.space) };
    // SAFETY: as above. Last: the collector reads no cell without a function.
    unsafe { (&raw mut (*cell).func).write_volatile(key.func & ((1 << STRIPE_SHIFT) - 1)) };
    // Whoever came first stays; if there is no memory the next call claims another cell.
    let _known = COUNT_INDEX.insert(key, index, u64::from(BPF_NOEXIST));
    index
}

/// The next of cells or histograms, `u32::MAX` once that many were claimed.
#[inline(always)]
fn claim(kind: u32) -> u32 {
    let Some(count) = COUNT_CLAIMS.get_ptr_mut(kind) else {
        return u32::MAX;
    };
    // Full for good: the counter does not run away.
    // SAFETY: a map value; the collector reads it too.
    if unsafe { count.read_volatile() } >= u64::from(u32::MAX) / 2 {
        return u32::MAX;
    }
    add::claim(count) as u32
}

/// The cell of an index.
#[inline(always)]
pub(crate) fn cell(index: u32) -> Option<*mut CountCell> {
    COUNT_CELLS.get_ptr_mut(index)
}

/// Notes the times of a call that ended, in the histograms of its function.
#[inline(never)]
pub(crate) fn note_times(func: u32, wall_ns: u64, cpu_ns: u64) {
    let Some(histogram) = histogram(func) else {
        return emit::count_class(LossClass::CountHistogram);
    };
    // SAFETY: a map value.
    let (wall, cpu) = unsafe { (&raw mut (*histogram).wall, &raw mut (*histogram).cpu) };
    bucket(wall.cast(), wall_ns);
    bucket(cpu.cast(), cpu_ns);
    // SAFETY: as above.
    let (max_wall, max_cpu) = unsafe {
        (
            &raw mut (*histogram).max_wall_ns,
            &raw mut (*histogram).max_cpu_ns,
        )
    };
    raise(max_wall, wall_ns);
    raise(max_cpu, cpu_ns);
}

#[inline(always)]
fn bucket(buckets: *mut u32, ns: u64) {
    // The mask is for the verifier, which does not follow the arithmetic: 511 is below the length of both arrays
    // together, and `bucket_of` never exceeds 495.
    let index = usize::from(bucket_of(ns)) & 511;
    if index < BUCKETS {
        // SAFETY: below the length of the array.
        add::one_short(unsafe { buckets.add(index) });
    }
}

/// A maximum. Two programs that raise it at once on one stripe may keep the smaller: so each looks again.
#[inline(always)]
fn raise(max: *mut u64, ns: u64) {
    for _ in 0..2 {
        // SAFETY: a map value.
        if unsafe { max.read_volatile() } >= ns {
            return;
        }
        // SAFETY: as above.
        unsafe { max.write_volatile(ns) };
    }
}

#[inline(always)]
fn histogram(func: u32) -> Option<*mut CountHistogram> {
    let slot = slot(func)?;
    // SAFETY: a map value.
    let known = unsafe { slot.read_volatile() } & !GONE;
    if known != 0 {
        return COUNT_HISTOGRAMS.get_ptr_mut(known - 1);
    }
    claim_histogram(slot, func)
}

#[inline(always)]
fn slot(func: u32) -> Option<*mut u32> {
    let functions = SETTINGS.get(0)?.functions;
    COUNT_SLOTS.get_ptr_mut(stripe() * functions + func)
}

/// Whether the function's probe went.
#[inline(never)]
pub(crate) fn is_gone(func: u32) -> bool {
    // SAFETY: a map value.
    slot(func).is_some_and(|slot| unsafe { slot.read_volatile() } & GONE != 0)
}

/// Claims a histogram. Two programs may do so at once: one of the two is forgotten, what it got is added up.
#[inline(always)]
fn claim_histogram(slot: *mut u32, func: u32) -> Option<*mut CountHistogram> {
    let index = claim(claims::HISTOGRAMS);
    let histogram = COUNT_HISTOGRAMS.get_ptr_mut(index)?;
    // SAFETY: a map value, nobody else's until its index stands in the slot.
    unsafe { (&raw mut (*histogram).func).write_volatile(func) };
    // SAFETY: a map value.
    unsafe { ptr::write_volatile(slot, index + 1) };
    Some(histogram)
}

#[inline(always)]
fn stripe() -> u32 {
    let mask = SETTINGS.get(0).map_or(0, |settings| settings.ring_mask);
    emit::cpu() & mask & (COUNT_STRIPES as u32 - 1)
}
