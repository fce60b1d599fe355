//! The hot path: events of the calling thread, into its own lane.
//!
//! A thread's state is a plain thread-local without destructor: a probe may be entered from an `atexit` handler or from the
//! destructor of a thread-specific key, when Rust's own destructors have run.

use std::cell::Cell;

use scalpel_common::event::{CPU_NOT_MEASURED, Event, Kind, Source};
use scalpel_common::segment::{CPU_NOT_READ, lane_use};

use crate::fork;
use crate::handshake::attached;
use crate::lane::Producer;
use crate::segment::{Claimed, Segment};

/// How many calls pass on a thread without lane before it looks for one again.
const PATIENCE: u32 = 1024;

/// Bits of a token below the number of its lane: together they stay exact in a double (JavaScript).
const TOKEN_BITS: u32 = 40;

/// What a thread keeps.
struct Mine {
    /// Which process the rest belongs to; 0 = nothing yet.
    generation: Cell<u32>,
    lane: Cell<Option<Claimed>>,
    producer: Cell<Producer>,
    calls: Cell<u64>,
    /// Calls to let pass before the next look for a lane.
    patience: Cell<u32>,
    lanes_seen: Cell<u32>,
    /// A signal handler came in the middle of a write.
    busy: Cell<bool>,
}

thread_local! {
    static MINE: Mine = const {
        Mine {
            generation: Cell::new(0),
            lane: Cell::new(None),
            producer: Cell::new(Producer::new(0, 0)),
            calls: Cell::new(0),
            patience: Cell::new(0),
            lanes_seen: Cell::new(0),
            busy: Cell::new(false),
        }
    };
}

/// A call begins. `frame`: identity of the activation, by which [`exit`] finds it; 0 = the token itself. `site`: call site,
/// 0 = not known. `task`: serial of the task it belongs to, 0 = none.
///
/// The answer is the call's token; 0 = the call is not recorded (counted where it is a loss): write nothing more of it.
#[inline]
pub fn enter(source: Source, func: u32, frame: u64, site: u64, task: u64, flags: u16) -> u64 {
    let Some(segment) = attached() else {
        return 0;
    };
    if segment.is_off(func) {
        return 0;
    }
    let event = Event {
        func,
        frame,
        site,
        value: task,
        kind: Kind::Enter as u8,
        source: source as u8,
        flags,
        ..BLANK
    };
    mine().map_or(0, |mine| begin(segment, mine, source, event))
}

/// A call that [`enter`] gave this token ends. `value`: what it returned, where the language has numbers for that.
#[inline]
pub fn exit(token: u64, source: Source, func: u32, frame: u64, task: u64, value: u64, flags: u16) {
    let event = Event {
        value,
        ..of_call(Kind::Exit, token, source, func, frame, task, flags)
    };
    end(token, source, event);
}

/// A call ends by an exception.
#[inline]
pub fn unwind(token: u64, source: Source, func: u32, frame: u64, task: u64, flags: u16) {
    let event = of_call(Kind::Unwind, token, source, func, frame, task, flags);
    end(token, source, event);
}

/// A call leaves its thread: `yield`, `await`.
#[inline]
pub fn suspend(token: u64, source: Source, func: u32, frame: u64, task: u64, flags: u16) {
    let event = of_call(Kind::Suspend, token, source, func, frame, task, flags);
    within(token, source, event);
}

/// A call goes on, on whichever thread.
#[inline]
pub fn resume(token: u64, source: Source, func: u32, frame: u64, task: u64, flags: u16) {
    let event = of_call(Kind::Resume, token, source, func, frame, task, flags);
    within(token, source, event);
}

/// The thread writes no more for now: its lane may be another's. Optional: the lanes of dead threads are found.
pub fn release() {
    if let Some(mine) = mine() {
        if mine.generation.get() != 0
            && mine.generation.get() == fork::generation()
            && let Some(lane) = mine.lane.take()
        {
            lane.give_back();
        }
        mine.generation.set(0);
    }
}

/// What this thread keeps. Apart from what is done with it: an event that a closure holds would be in memory.
#[inline]
fn mine<'a>() -> Option<&'a Mine> {
    let mine = MINE.try_with(std::ptr::from_ref).ok()?;
    // SAFETY: without destructor it lives as long as the thread, which no user of it leaves.
    Some(unsafe { &*mine })
}

const BLANK: Event = Event {
    time: 0,
    cpu_ns: CPU_NOT_MEASURED,
    pid: 0,
    tid: 0,
    func: 0,
    seq: 0,
    frame: 0,
    site: 0,
    value: 0,
    kind: 0,
    source: 0,
    flags: 0,
    cpu: CPU_NOT_READ,
    weight: 0,
    reserved: 0,
};

/// An event of a call that was let in.
#[inline]
const fn of_call(
    kind: Kind,
    token: u64,
    source: Source,
    func: u32,
    frame: u64,
    task: u64,
    flags: u16,
) -> Event {
    Event {
        func,
        frame: if frame == 0 { token } else { frame },
        site: task,
        kind: kind as u8,
        source: source as u8,
        flags,
        ..BLANK
    }
}

#[inline]
fn begin(segment: &Segment, mine: &Mine, source: Source, mut event: Event) -> u64 {
    if mine.busy.replace(true) {
        segment.lost_call(event.func);
        return 0;
    }
    let token = begin_alone(segment, mine, source, &mut event);
    mine.busy.set(false);
    token
}

#[inline]
fn begin_alone(segment: &Segment, mine: &Mine, source: Source, event: &mut Event) -> u64 {
    event.time = segment.clock();
    if !segment.listens(event.time) {
        segment.call_past_lease();
        return 0;
    }
    let Some(lane) = lane_of(segment, mine, source) else {
        segment.call_without_lane(event.func);
        return 0;
    };
    let call = mine.calls.get() + 1;
    mine.calls.set(call);
    let token = (u64::from(lane.index) + 1) << TOKEN_BITS | call & ((1 << TOKEN_BITS) - 1);
    if event.frame == 0 {
        event.frame = token;
    }
    let mut producer = mine.producer.get();
    let let_in = producer.begin(&lane, event);
    mine.producer.set(producer);
    if let_in {
        lane.set_open(producer.open());
        token
    } else {
        lane.lost_call();
        segment.lost_call(event.func);
        0
    }
}

#[expect(clippy::inline_always, reason = "measured: see `write`")]
#[inline(always)]
fn end(token: u64, source: Source, event: Event) {
    write(token, source, event, Producer::end);
}

#[expect(clippy::inline_always, reason = "measured: see `write`")]
#[inline(always)]
fn within(token: u64, source: Source, event: Event) {
    write(token, source, event, Producer::within);
}

/// Inlined, so that the event is never in memory before it is in the lane: copying what was just written field by field
/// would wait for the stores.
#[expect(clippy::inline_always, reason = "measured: see above")]
#[inline(always)]
fn write(
    token: u64,
    source: Source,
    mut event: Event,
    put: impl Fn(&mut Producer, &Claimed, &mut Event) -> bool,
) {
    if token == 0 {
        return;
    }
    let (Some(segment), Some(mine)) = (attached(), mine()) else {
        return;
    };
    // In a signal handler that interrupted a write: the end is missing, and its caller's end closes the frame.
    if mine.busy.replace(true) {
        return;
    }
    if let Some(lane) = lane_of(segment, mine, source) {
        event.time = segment.clock();
        let mut producer = mine.producer.get();
        if !put(&mut producer, &lane, &mut event) {
            lane.lost_event();
        }
        lane.set_open(producer.open());
        mine.producer.set(producer);
    }
    mine.busy.set(false);
}

/// The thread's lane, claimed now if it has none.
#[inline]
fn lane_of(segment: &Segment, mine: &Mine, source: Source) -> Option<Claimed> {
    if mine.generation.get() != fork::generation() || mine.lane.get().is_none() {
        find_lane(segment, mine, source);
    }
    mine.lane.get()
}

/// A thread's first event, a forked child's first, or all lanes were taken.
#[cold]
fn find_lane(segment: &Segment, mine: &Mine, source: Source) {
    let generation = fork::generation();
    let new_process = mine.generation.replace(generation) != generation;
    if new_process {
        mine.lane.set(None);
        mine.patience.set(0);
    }
    let open = segment.lanes_open();
    if mine.patience.get() > 0 && mine.lanes_seen.get() == open {
        mine.patience.set(mine.patience.get() - 1);
        return;
    }
    mine.lanes_seen.set(open);
    mine.patience.set(PATIENCE);
    if let Some(lane) = segment.claim(source, lane_use::RING, 0) {
        mine.producer.set(Producer::new(lane.slots, lane.head()));
        // Head goes on when a lane changes hands, so that no token comes twice.
        mine.calls.set(lane.head());
        mine.lane.set(Some(lane));
    }
}
