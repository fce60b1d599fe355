//! One COMPLETE record a call: half the records of ENTER and EXIT.
//!
//! What is known at the entry waits in the thread's stack of open calls. It needs no session cookie (which aya-ebpf
//! can't call, and which would hold one of the four numbers): the stack guard admits frames of one stack only, so that
//! open calls lie in the order of their frames, and each return finds its own by its frame:
//!
//! * recursion: every activation has a frame of its own;
//! * a frame below the one that enters or returns is dead (exception, `longjmp`) and goes without a record;
//! * an equal frame is a tail call if the new call's return address is the trampoline, and both are open: returns run
//!   innermost first, as the kernel's own list does. Else the old one is dead.

use scalpel_common::event::{Kind, flags};
use scalpel_common::kernel::{
    LossClass, MAX_RETURN_DEPTH, OpenCall, OpenCalls, ThreadState, cookie_func,
};

use crate::call::{
    Hit, LEAVE_RETURN, PROBE_RETURN, Watched, may_probe_return, watched, watched_at,
};
use crate::emit::{self, What};
use crate::fields::Task;
use crate::maps::OPEN_CALLS;
use crate::{guard, thread};

/// Entry and return in one program.
#[inline(always)]
pub(crate) fn session(hit: &Hit) -> u32 {
    if hit.is_return() {
        if let Some(watched) = watched() {
            leave(
                cookie_func(hit.cookie()),
                watched.state,
                hit.sp().wrapping_sub(8),
            );
        }
        return PROBE_RETURN;
    }
    let Some(watched) = watched_at(hit) else {
        return LEAVE_RETURN;
    };
    enter(watched, hit)
}

#[inline(always)]
fn enter(watched: Watched, hit: &Hit) -> u32 {
    let cookie = hit.cookie();
    if !watched.is_first(cookie) {
        return LEAVE_RETURN;
    }
    let (func, frame) = (cookie_func(cookie), hit.sp());
    emit::hit(func);
    let site = guard::read_user(frame);
    if may_probe_return(hit, frame, site) && open(watched.state, frame, site) {
        return PROBE_RETURN;
    }
    watched.enter(func, frame, site, flags::NO_EXIT | flags::RETURN_REFUSED);
    LEAVE_RETURN
}

#[inline(never)]
fn open(state: *mut ThreadState, frame: u64, site: u64) -> bool {
    let Some(open) = calls() else {
        return false;
    };
    let mut depth = drop_below(open, frame);
    if let Some(innermost) = innermost(open, depth)
        && innermost.frame == frame
        && site != guard::trampoline(Task::current())
    {
        depth = drop_below(open, frame.wrapping_add(1));
    }
    if depth >= MAX_RETURN_DEPTH as u64 {
        return false;
    }
    let stamp = thread::stamp(state);
    open.depth = depth + 1;
    if let Some(call) = open.calls.get_mut(depth as usize & (MAX_RETURN_DEPTH - 1)) {
        *call = OpenCall {
            frame,
            time: stamp.time,
            cpu_ns: stamp.cpu_ns,
            site,
        };
    }
    true
}

#[inline(never)]
fn leave(func: u32, state: *mut ThreadState, frame: u64) {
    let Some(open) = calls() else { return };
    let depth = drop_below(open, frame);
    open.depth = depth;
    let Some(call) = innermost(open, depth) else {
        return;
    };
    if call.frame != frame {
        return;
    }
    emit::complete(state, What::new(Kind::Complete, func, 0), call);
    open.depth = depth - 1;
}

/// How many calls are open once those with a smaller frame are dropped.
#[inline(always)]
fn drop_below(open: &OpenCalls, frame: u64) -> u64 {
    let mut depth = open.depth;
    for _ in 0..MAX_RETURN_DEPTH {
        match innermost(open, depth) {
            Some(call) if call.frame < frame => depth -= 1,
            _ => break,
        }
    }
    depth
}

#[inline(always)]
fn innermost(open: &OpenCalls, depth: u64) -> Option<&OpenCall> {
    if depth == 0 {
        None
    } else {
        open.calls
            .get((depth - 1) as usize & (MAX_RETURN_DEPTH - 1))
    }
}

#[inline(always)]
fn calls() -> Option<&'static mut OpenCalls> {
    // SAFETY: the storage lives as long as the running thread, and only this program, on that thread, uses it.
    let known = OPEN_CALLS
        .get(Task::current())
        .map(|calls| unsafe { &mut *calls });
    if known.is_some() {
        known
    } else {
        first_calls()
    }
}

#[inline(always)]
fn first_calls() -> Option<&'static mut OpenCalls> {
    // The kernel zeroes storage that is made without an initial value.
    // SAFETY: as in `calls`.
    let made = OPEN_CALLS
        .get_or_insert(Task::current(), core::ptr::null_mut())
        .map(|calls| unsafe { &mut *calls });
    if made.is_none() {
        emit::count_class(LossClass::ThreadState);
    }
    made
}
