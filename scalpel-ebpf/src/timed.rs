//! The open calls of a thread whose ends are observed, and what they took.
//!
//! As `complete` keeps them, and for the same reasons: the stack guard admits frames of one stack only, so that open calls
//! lie in the order of their frames, and each return finds its own by its frame. What was used of `bpf_session_cookie`
//! elsewhere cannot be called from here: aya has no kernel functions; and one number a call is not enough for own times.

use scalpel_common::count::{IS_INNER, JUMPED_FROM, TimedCall, TimedCalls};
use scalpel_common::kernel::{MAX_RETURN_DEPTH, ThreadState};

use crate::fields::Task;
use crate::maps::{SETTINGS, ThreadRecord};
use crate::thread::{self, Stamp};
use crate::{add, cells, guard};

/// Counts an entry and opens its call. False = it is not counted, and its end will not be known.
#[inline(never)]
pub(crate) fn enter(state: *mut ThreadState, func: u32, frame: u64, site: u64) -> bool {
    let Some(open) = current_calls(state) else {
        return false;
    };
    let mut edge = site;
    if let Some(innermost) = innermost(open)
        && innermost.frame <= frame
    {
        edge = make_room(state, open, frame, site);
    }
    if open.depth as usize >= MAX_RETURN_DEPTH {
        return false;
    }
    // SAFETY: the storage lives as long as the running thread.
    let cell = cells::count_call(func, edge, unsafe { (*state).space });
    push(
        state,
        open,
        frame,
        site,
        u64::from(func) | u64::from(cell) << 32,
    );
    true
}

/// Opens a call. Function and cell in one register, and apart from [`enter`]: see "The stack" in `main.rs`.
#[inline(never)]
fn push(state: *mut ThreadState, open: &mut TimedCalls, frame: u64, site: u64, func_cell: u64) {
    let (func, depth) = (func_cell as u32, open.depth);
    let inner = is_open(open, func);
    let stamp = thread::stamp(state);
    if let Some(call) = open.calls.get_mut(depth as usize & (MAX_RETURN_DEPTH - 1)) {
        *call = TimedCall {
            frame,
            time: stamp.time,
            cpu_ns: stamp.cpu_ns,
            inner_wall_ns: 0,
            inner_cpu_ns: 0,
            func: if inner { func | IS_INNER } else { func },
            cell: (func_cell >> 32) as u32,
            // SAFETY: the storage lives as long as the running thread.
            events: unsafe { (*state).seq },
            site: site as u32,
        };
    }
    open.depth = depth + 1;
}

/// The end of the call in `frame`, and of those within it that nobody saw end. `all` = a `ret` ran: whoever jumped to the call
/// out of the same frame has ended with it; return probes tell each of them by itself.
#[inline(never)]
pub(crate) fn leave(state: *mut ThreadState, frame: u64, all: bool) {
    let Some(open) = current_calls(state) else {
        return;
    };
    thread::next_seq(state);
    if innermost(open).is_some_and(|call| call.frame < frame) {
        close_below(state, open, frame);
    }
    for _ in 0..MAX_RETURN_DEPTH {
        if innermost(open).is_none_or(|call| call.frame != frame) {
            break;
        }
        close(open, &thread::stamp(state), state, false);
        if !all {
            break;
        }
    }
}

/// The function of the innermost open call, if it is in `frame`; else 0.
#[inline(always)]
pub(crate) fn innermost_in(state: *mut ThreadState, frame: u64) -> u32 {
    innermost(calls(state))
        .filter(|call| call.frame == frame)
        .map_or(0, |call| call.func & !IS_INNER)
}

/// Something is open that lies at or below the frame of a new call: dead, unless it has jumped to it. Gives the place
/// that the new call is counted at.
#[inline(never)]
fn make_room(state: *mut ThreadState, open: &mut TimedCalls, frame: u64, site: u64) -> u64 {
    close_below(state, open, frame);
    let Some(call) = innermost(open) else {
        return site;
    };
    if call.frame != frame {
        return site;
    }
    // A return probe's trampoline stays in the slot; where ends are seen at `ret` the return address itself does.
    if site == guard::trampoline(Task::current()) || call.site == site as u32 {
        return JUMPED_FROM | u64::from(call.func & !IS_INNER);
    }
    close_below(state, open, frame.wrapping_add(1));
    site
}

/// Closes the calls with a smaller frame: left by an exception or a jump.
#[inline(never)]
fn close_below(state: *mut ThreadState, open: &mut TimedCalls, frame: u64) {
    for _ in 0..MAX_RETURN_DEPTH {
        match innermost(open) {
            Some(call) if call.frame < frame => close(open, &thread::stamp(state), state, true),
            _ => break,
        }
    }
}

/// Closes the innermost call.
#[inline(never)]
fn close(open: &mut TimedCalls, now: &Stamp, state: *mut ThreadState, unwound: bool) {
    let Some(depth) = open.depth.checked_sub(1) else {
        return;
    };
    open.depth = depth;
    let Some(call) = open.calls.get(depth as usize & (MAX_RETURN_DEPTH - 1)) else {
        return;
    };
    let wall = now.time.wrapping_sub(call.time);
    let cpu = now.cpu_ns.wrapping_sub(call.cpu_ns);
    // SAFETY: the storage lives as long as the running thread.
    let events = unsafe { (*state).seq }
        .wrapping_sub(call.events)
        .wrapping_add(1);
    // A function whose probe went may have returned unseen: its call did not take until now.
    if !(unwound && cells::is_gone(call.func & !IS_INNER)) {
        add_times(call, wall, cpu, events, unwound);
    }
    if depth > 0
        && let Some(outer) = open
            .calls
            .get_mut((depth - 1) as usize & (MAX_RETURN_DEPTH - 1))
    {
        outer.inner_wall_ns = outer.inner_wall_ns.wrapping_add(wall);
        outer.inner_cpu_ns = outer.inner_cpu_ns.wrapping_add(cpu);
    }
}

#[inline(always)]
fn add_times(call: &TimedCall, wall: u64, cpu: u64, events: u32, unwound: bool) {
    let Some(cell) = cells::cell(call.cell) else {
        return;
    };
    // SAFETY: fields of a map value.
    unsafe {
        add::one(&raw mut (*cell).timed);
        add::many(
            &raw mut (*cell).self_wall_ns,
            wall.saturating_sub(call.inner_wall_ns),
        );
        add::many(
            &raw mut (*cell).self_cpu_ns,
            cpu.saturating_sub(call.inner_cpu_ns),
        );
    }
    if unwound {
        // SAFETY: as above.
        add::one(unsafe { &raw mut (*cell).unwound });
    }
    if call.func & IS_INNER == 0 {
        // SAFETY: as above.
        unsafe {
            add::many(&raw mut (*cell).total_wall_ns, wall);
            add::many(&raw mut (*cell).total_cpu_ns, cpu);
            add::many(&raw mut (*cell).probe_events, u64::from(events));
        }
        if !unwound {
            cells::note_times(call.func, wall, cpu);
        }
    }
}

/// The open calls, without times for those that were open when links were replaced: their ends may have gone unseen.
#[inline(always)]
fn current_calls(state: *mut ThreadState) -> Option<&'static mut TimedCalls> {
    let open = calls(state);
    let settings = SETTINGS.get(0)?;
    // SAFETY: the slot lives as long as the program; the collector writes it.
    let epoch = unsafe { (&raw const settings.count_epoch).read_volatile() };
    if open.epoch != epoch {
        open.epoch = epoch;
        forget(open);
    }
    Some(open)
}

#[inline(never)]
fn forget(open: &mut TimedCalls) {
    for call in &mut open.calls {
        call.cell = cells::NO_CELL;
    }
}

/// Whether a call of `func` is open.
#[inline(never)]
fn is_open(open: &TimedCalls, func: u32) -> bool {
    let mut depth = open.depth;
    for _ in 0..MAX_RETURN_DEPTH {
        if depth == 0 {
            return false;
        }
        depth -= 1;
        if let Some(call) = open.calls.get(depth as usize & (MAX_RETURN_DEPTH - 1))
            && call.func & !IS_INNER == func
        {
            return true;
        }
    }
    false
}

#[inline(always)]
fn innermost(open: &TimedCalls) -> Option<&TimedCall> {
    let depth = open.depth.checked_sub(1)?;
    open.calls.get(depth as usize & (MAX_RETURN_DEPTH - 1))
}

#[inline(always)]
fn calls(state: *mut ThreadState) -> &'static mut TimedCalls {
    let record: *mut ThreadRecord = state.cast();
    // SAFETY: every state is the head of a record, which lives as long as the running thread; only programs on that
    // thread use it.
    unsafe { &mut (*record).timed }
}
