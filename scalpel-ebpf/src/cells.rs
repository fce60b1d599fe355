//! Cells and histograms: found, claimed, added to.

use core::ptr;

use scalpel_common::count::{
    BUCKETS, COUNT_STRIPES, CountCell, CountHistogram, GONE, NO_SITE, bucket_of, claims,
};
use scalpel_common::kernel::LossClass;

use crate::maps::{COUNT_CELLS, COUNT_CLAIMS, COUNT_HISTOGRAMS, COUNT_SLOTS, SETTINGS};
use crate::{add, emit};

/// Index of no cell.
pub(crate) const NO_CELL: u32 = u32::MAX;

/// Function ids have 24 bits in a cell, the stripe stands above.
const STRIPE_SHIFT: u32 = 24;

/// How many cells are looked at before a call goes without one.
const PROBES: u32 = 16;

/// 2^64 divided by the golden ratio: spreads keys by a multiplication.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Counts a call of `func` that returns to `site`, and gives the index of its cell; [`NO_CELL`] = none is left near its
/// place.
///
/// The array is its own hash table, probed linearly: the kernel's hash costs a counted call some 60 ns more.
#[inline(never)]
pub(crate) fn count_call(func: u32, site: u64, space: u32) -> u32 {
    let Some(settings) = SETTINGS.get(0) else {
        return NO_CELL;
    };
    let stripe = emit::cpu() & settings.ring_mask & (COUNT_STRIPES as u32 - 1);
    let site = if site == 0 { NO_SITE } else { site };
    let owner = u64::from(space) | u64::from(func | stripe << STRIPE_SHIFT) << 32;
    let place = (site ^ owner.rotate_left(17)).wrapping_mul(GOLDEN) >> 32;
    for step in 0..PROBES {
        let index = (place as u32).wrapping_add(step) & settings.count_mask;
        let Some(cell) = COUNT_CELLS.get_ptr_mut(index) else {
            break;
        };
        if is_cell_of(cell, owner, site) {
            // SAFETY: a field of a map value.
            add::one(unsafe { &raw mut (*cell).calls });
            return index;
        }
    }
    emit::count_class(LossClass::CountCell);
    NO_CELL
}

/// Whether the cell stands for this edge, or does from now on. Two programs may claim a cell each for one edge: both count, and
/// a reader adds them up.
#[inline(always)]
fn is_cell_of(cell: *mut CountCell, owner: u64, site: u64) -> bool {
    // SAFETY: space and function are one aligned word of a map value.
    let word = unsafe { (&raw mut (*cell).space).cast::<u64>() };
    // SAFETY: as above.
    let known = unsafe { word.read_volatile() };
    // SAFETY: a field of a map value.
    let place = unsafe { &raw mut (*cell).site };
    if known == owner {
        // Not written yet by who has just claimed it: then it is another cell's turn.
        // SAFETY: as above.
        return unsafe { place.read_volatile() } == site;
    }
    if known != 0 || add::exchange_zero(word, owner) != 0 {
        return false;
    }
    // SAFETY: as above.
    unsafe { place.write_volatile(site) };
    true
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
