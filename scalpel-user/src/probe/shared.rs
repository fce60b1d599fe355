//! What the readers of all processes share: global ids, the numbers of threads' events, the clock; and where inputs go.

use rustc_hash::{FxHashMap, FxHashSet};

use super::EndsTold;
use super::clock::LaneClock;
use super::functions::Functions;
use crate::event::{Control, MonoTime, Pid, Tid};
use crate::input::Input;

/// Where inputs go. False = nobody takes them any more.
pub(super) type Give<'a> = dyn FnMut(Input) -> bool + 'a;

/// Nobody takes inputs any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone;

/// A thread has ended right behind its last event.
pub(super) fn ended((pid, tid): (Pid, Tid), last_ns: u64) -> Input {
    Input::Control(Control::Exit {
        time: MonoTime(last_ns.saturating_add(1)),
        pid,
        tid,
        process_ended: None,
    })
}

/// Hands one input on.
pub(super) fn send(give: &mut Give<'_>, input: Input) -> Result<(), Gone> {
    if give(input) { Ok(()) } else { Err(Gone) }
}

/// The next number of each thread's events, over all its lanes.
#[derive(Debug, Default)]
pub(super) struct Sequences(FxHashMap<(Pid, Tid), u32>);

impl Sequences {
    /// The number of a thread's next event, behind `missing` others.
    pub(super) fn next(&mut self, thread: (Pid, Tid), missing: u32) -> u32 {
        let next = self.0.entry(thread).or_insert(1);
        let number = next.wrapping_add(missing);
        *next = number.wrapping_add(1);
        number
    }

    /// Something of the thread is missing here, nobody knows how much: its next event leaves one number out.
    pub(super) fn leave_out(&mut self, thread: (Pid, Tid)) {
        let next = self.0.entry(thread).or_insert(1);
        *next = next.wrapping_add(1);
    }
}

/// What all readers share.
pub(super) struct Shared {
    pub(super) functions: Functions,
    pub(super) sequences: Sequences,
    pub(super) clock: LaneClock,
    /// `CLOCK_MONOTONIC` at the start of the pass.
    pub(super) now: u64,
    /// For whom somebody else tells when threads end.
    pub(super) ends: EndsTold,
    pub(super) targets: Vec<Pid>,
    /// Functions, by global id, that are to write nothing.
    pub(super) off: FxHashSet<u32>,
}

impl Shared {
    /// Whether somebody else tells when a thread of this process ends.
    pub(super) fn end_is_told(&self, pid: Pid) -> bool {
        match self.ends {
            EndsTold::Nobody => false,
            EndsTold::Targets => self.targets.contains(&pid),
            EndsTold::All => true,
        }
    }
}

/// What went wrong with one process's part, or was lost; sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) events: u64,
    /// Heads, ids, times, kinds that cannot be.
    pub(super) faults: u64,
    /// Lanes of processes that do not belong to the segment.
    pub(super) strangers: u64,
    pub(super) lost_calls: u64,
    pub(super) lost_events: u64,
    /// Calls whose function is known that were lost.
    pub(super) charged: u64,
    /// Events that came when it had been said that nothing so old can come.
    pub(super) late: u64,
}
