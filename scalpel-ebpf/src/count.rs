//! Counting: the call programs that write no events.
//!
//! Every entry adds to the cell of its call edge. Where the end is observed too, `timed` keeps the open calls of the
//! thread, and the call's times are added when it ends.

use scalpel_common::count::JUMPED_FROM;
use scalpel_common::kernel::{ThreadState, cookie_func};

use crate::call::{
    Hit, LEAVE_RETURN, PROBE_RETURN, Watched, may_probe_return, watched, watched_at,
};
use crate::cells::{self, NO_CELL};
use crate::fields::Task;
use crate::{add, emit, guard, thread, timed};

/// Entry and return in one program.
#[inline(always)]
pub(crate) fn session(hit: &Hit) -> u32 {
    if hit.is_return() {
        if let Some(watched) = watched() {
            timed::leave(watched.state, hit.sp().wrapping_sub(8), false);
        }
        return PROBE_RETURN;
    }
    let Some(watched) = watched_at(hit) else {
        return LEAVE_RETURN;
    };
    if open(watched, hit) {
        PROBE_RETURN
    } else {
        LEAVE_RETURN
    }
}

/// Entry alone.
#[inline(always)]
pub(crate) fn entry_only(hit: &Hit) -> u32 {
    let Some(watched) = watched_at(hit) else {
        return 0;
    };
    let cookie = hit.cookie();
    if watched.is_first(cookie) {
        let func = cookie_func(cookie);
        emit::hit(func);
        thread::next_seq(watched.state);
        count(watched.state, func, hit.sp());
    }
    0
}

/// Entry; [`ret`] or [`returned`] sees the end.
#[inline(always)]
pub(crate) fn enter(hit: &Hit) -> u32 {
    if let Some(watched) = watched_at(hit) {
        open(watched, hit);
    }
    0
}

/// The end at a `ret` that has not run yet: the stack pointer is the entry's.
#[inline(always)]
pub(crate) fn ret(hit: &Hit) -> u32 {
    let Some(watched) = watched() else { return 0 };
    if watched.is_first_exit(hit.cookie()) {
        timed::leave(watched.state, hit.sp(), true);
    }
    0
}

/// The end by a return probe without a session.
#[inline(always)]
pub(crate) fn returned(hit: &Hit) -> u32 {
    let Some(watched) = watched() else { return 0 };
    if watched.is_first_exit(hit.cookie()) {
        timed::leave(watched.state, hit.sp().wrapping_sub(8), false);
    }
    0
}

/// Counts an entry and opens its call. Whether its end will be seen.
#[inline(always)]
fn open(watched: Watched, hit: &Hit) -> bool {
    let cookie = hit.cookie();
    if !watched.is_first(cookie) {
        return false;
    }
    let (func, frame) = (cookie_func(cookie), hit.sp());
    emit::hit(func);
    thread::next_seq(watched.state);
    let site = guard::read_user(frame);
    if may_probe_return(hit, frame, site) && timed::enter(watched.state, func, frame, site) {
        return true;
    }
    refused(watched.state, func, frame);
    false
}

/// A call without an end.
#[inline(never)]
fn refused(state: *mut ThreadState, func: u32, frame: u64) {
    let index = count(state, func, frame);
    if let Some(cell) = cells::cell(index).filter(|_| index != NO_CELL) {
        // SAFETY: a field of a map value.
        add::one(unsafe { &raw mut (*cell).refused });
    }
}

/// Counts an entry in the cell of its edge.
#[inline(always)]
fn count(state: *mut ThreadState, func: u32, frame: u64) -> u32 {
    let site = guard::read_user(frame);
    let site = if site == guard::trampoline(Task::current()) {
        jumped_from(state, frame)
    } else {
        site
    };
    // SAFETY: the storage lives as long as the running thread.
    cells::count_call(func, site, unsafe { (*state).space })
}

/// The trampoline stands where the return address should: whose return is probed in this very frame has jumped here.
#[inline(never)]
fn jumped_from(state: *mut ThreadState, frame: u64) -> u64 {
    match timed::innermost_in(state, frame) {
        0 => 0,
        func => JUMPED_FROM | u64::from(func),
    }
}
