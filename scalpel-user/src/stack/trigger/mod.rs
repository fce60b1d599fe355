//! Triggers: of the ordered events of all threads, those of slow calls are kept, with the calls around them. Pure.
//!
//! Which calls are open is known by the same state machine that rebuilds stacks: it is fed with everything, and its own sums
//! are dropped. From the beginning of a call of a trigger's function on, a thread's events are held; at the call's end they
//! are written, if it lasted longer than the threshold, and forgotten otherwise. What is written is a stream of its own with
//! its own sequence numbers, in which the open callers stand as calls that began earlier.
//!
//! Memory is bounded: of very long calls the shortest calls inside are left out, which is told.

mod held;
mod holder;
mod write;

use rustc_hash::FxHashMap;

use super::thread::Thread;
use super::{Builder, Options};
use crate::event::{Control, Event, FuncId, Kind, MonoTime, Pid, Sample, Stream, Tid, flags};
use crate::function::FunctionInfo;
use crate::input::{CallEnd, Input, Trigger};
use held::Item;
use holder::Holder;

/// Most triggers of one recording.
pub const MOST_TRIGGERS: usize = 64;

/// How much is held of calls that are still open.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Events and samples of one thread.
    pub thread: usize,
    /// Of all threads.
    pub all: usize,
}

impl Default for Room {
    /// Some 10 MB a thread and 80 MB in all.
    fn default() -> Self {
        Self {
            thread: 1 << 17,
            all: 1 << 20,
        }
    }
}

/// Keeps what belongs to slow calls.
#[derive(Debug)]
pub struct Sieve {
    builder: Builder,
    /// By function: the triggers that it is a function of, a bit each.
    triggers_of: FxHashMap<u32, u64>,
    /// By the builder's number of the thread.
    threads: Vec<Holder>,
    judge: Judge,
}

/// What all threads share.
#[derive(Debug)]
struct Judge {
    triggers: Vec<Trigger>,
    room: Room,
    /// Events and samples held by all threads.
    held: usize,
}

impl Sieve {
    /// Keeps calls by these triggers; what is beyond [`MOST_TRIGGERS`] is nobody's.
    pub fn new(start: MonoTime, triggers: Vec<Trigger>, room: Room) -> Self {
        Self {
            // Sums are not asked for: one window that never ends.
            builder: Builder::new(Options {
                start,
                window_ns: u64::MAX >> 1,
                ..Options::default()
            }),
            triggers_of: FxHashMap::default(),
            threads: Vec::new(),
            judge: Judge {
                triggers,
                room,
                held: 0,
            },
        }
    }

    /// A function, and whether it is one of the trigger at each place.
    pub fn function(&mut self, func: FuncId, info: &FunctionInfo, is_of: impl Fn(usize) -> bool) {
        let places = 0..self.judge.triggers.len().min(MOST_TRIGGERS);
        let bits = places
            .filter(|&place| is_of(place))
            .fold(0, |bits, place| bits | 1 << place);
        if bits != 0 {
            self.triggers_of.insert(func.get(), bits);
        }
        self.builder.function(func, info);
    }

    /// Takes note of mappings and births, as [`Builder::control`].
    pub fn control(&mut self, control: &Control) {
        self.builder.control(control);
    }

    /// The probe of a function goes, as [`Builder::probe_gone`].
    pub fn probe_gone(&mut self, func: FuncId, time: MonoTime) {
        self.builder.probe_gone(func, time);
    }

    /// The triggers, with their counts as they stand.
    pub fn triggers(&self) -> &[Trigger] {
        &self.judge.triggers
    }

    /// Takes events of one thread, in order; what is kept goes to `out`.
    pub fn events(&mut self, events: &[Event], out: &mut Vec<Input>) {
        for event in events {
            self.event(event, out);
        }
    }

    fn event(&mut self, event: &Event, out: &mut Vec<Input>) {
        self.builder.events(std::slice::from_ref(event));
        let bits = match event.kind {
            ENTER => self.triggers_of.get(&event.func).copied().unwrap_or(0),
            _ => 0,
        };
        let (pid, tid) = (Pid(event.pid), Tid(event.tid));
        if let Some((thread, holder)) = of(&mut self.builder, &mut self.threads, pid, tid) {
            holder.event(event, thread, bits, &mut self.judge, out);
        }
    }

    /// So many events of a thread are missing here.
    pub fn gap(&mut self, stream: Stream, pid: Pid, tid: Tid, lost: u64, out: &mut Vec<Input>) {
        match stream {
            Stream::Switches => self.builder.switches_lost(pid, tid),
            Stream::Calls | Stream::Probes => self.builder.gap(pid, tid, lost),
        }
        if let Some((_, holder)) = of(&mut self.builder, &mut self.threads, pid, tid) {
            if stream == Stream::Switches {
                holder.switch = None;
            }
            holder.settle(&mut self.judge, out);
            holder.push(Item::Lost(stream, lost), &mut self.judge, out);
        }
    }

    /// Takes a sampled stack, in order with the thread's events. Waits that are told by their sum alone may have been before
    /// a call as well as in it: they are left out, and a call's CPU time tells how long it waited in all.
    pub fn sample(&mut self, sample: Sample, out: &mut Vec<Input>) {
        let (pid, tid) = (Pid(sample.event.pid), Tid(sample.event.tid));
        if sample.event.flags & flags::UNTOLD != 0 {
            return;
        }
        if let Some((_, holder)) = of(&mut self.builder, &mut self.threads, pid, tid) {
            holder.settle(&mut self.judge, out);
            holder.push(Item::Sample(sample), &mut self.judge, out);
        }
    }

    /// The thread ended, and with it what was open.
    pub fn thread_ended(&mut self, time: MonoTime, pid: Pid, tid: Tid, out: &mut Vec<Input>) {
        if let Some((thread, holder)) = of(&mut self.builder, &mut self.threads, pid, tid) {
            holder.end(time.0, CallEnd::ThreadEnded, thread, &mut self.judge, out);
            *holder = Holder::default();
        }
        self.builder.thread_ended(time, pid, tid);
    }

    /// The process replaced its program: nothing of it goes on.
    pub fn executed(&mut self, time: MonoTime, pid: Pid, out: &mut Vec<Input>) {
        let threads: Vec<Tid> = self.builder.threads_of(pid).collect();
        for tid in threads {
            self.thread_ended(time, pid, tid, out);
        }
        self.builder.executed(time, pid);
    }

    /// Nothing comes any more: what is open and lasts longer already is kept.
    pub fn finish(&mut self, end: MonoTime, out: &mut Vec<Input>) {
        for (pid, tid) in self.builder.all_threads() {
            if let Some((thread, holder)) = of(&mut self.builder, &mut self.threads, pid, tid) {
                holder.end(end.0, CallEnd::Open, thread, &mut self.judge, out);
            }
        }
        for (func, bits) in &self.triggers_of {
            let faults = self.builder.shared.faults.get(func);
            let headless = faults.map_or(0, |faults| faults.missed_enter);
            for trigger in self.judge.of(*bits) {
                trigger.headless = trigger.headless.saturating_add(headless);
            }
        }
    }
}

/// A thread's state, and what it holds.
fn of<'a>(
    builder: &'a mut Builder,
    holders: &'a mut Vec<Holder>,
    pid: Pid,
    tid: Tid,
) -> Option<(&'a Thread, &'a mut Holder)> {
    let index = builder.index(pid, tid) as usize;
    if holders.len() <= index {
        holders.resize_with(index + 1, Holder::default);
    }
    let state = builder.threads.get(index)?.state.as_deref()?;
    Some((state, holders.get_mut(index)?))
}

impl Judge {
    /// The triggers of these bits.
    fn of(&mut self, bits: u64) -> impl Iterator<Item = &mut Trigger> {
        let bit = move |place: usize| place < MOST_TRIGGERS && bits >> place & 1 != 0;
        let all = self.triggers.iter_mut().enumerate();
        all.filter(move |(place, _)| bit(*place))
            .map(|(_, trigger)| trigger)
    }

    /// Counts a call that lasted so long; gives the first trigger by which it is kept.
    fn judge(&mut self, bits: u64, wall_ns: u64, end: CallEnd) -> Option<u32> {
        let mut by = None;
        for (place, trigger) in (0u32..).zip(&mut self.triggers) {
            if place as usize >= MOST_TRIGGERS || bits >> place & 1 == 0 {
                continue;
            }
            let is_over = wall_ns > trigger.threshold_ns;
            // What goes on and is not over it yet, nobody has judged.
            if is_over || end != CallEnd::Open {
                trigger.calls += 1;
                trigger.over += u64::from(is_over);
                trigger.slowest_ns = trigger.slowest_ns.max(wall_ns);
            }
            if is_over {
                by = by.or(Some(place));
            }
        }
        by
    }
}

const ENTER: u8 = Kind::Enter as u8;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod told;
