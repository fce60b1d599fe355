//! Rebuilds the call stacks of all threads from their ordered events and sums them into a calling-context tree. Pure.
//!
//! How time is charged: what passes between two events of a thread belongs to its innermost open call whose end will
//! be reported. Entry-only calls never get time: it stays with the measured call around them, and `timed` stays 0.
//! Totals are sums over the tree, so self + children = total holds on every node; a function's inclusive time under
//! recursion is the sum over its outermost nodes.
//!
//! Must not know rings, files or names: an address becomes a function once, at the end, by the caller's `Resolve`.

mod callers;
mod cells;
mod charge;
mod complete;
mod contexts;
mod counted;
mod finish;
mod frames;
mod histograms;
mod language;
mod nodes;
mod returns;
mod samples;
mod settle;
mod thread;
pub mod trigger;

pub use finish::Resolve;

use callers::Callers;
use cells::Cells;
use contexts::Contexts;
use histograms::Histograms;
use rustc_hash::{FxHashMap, FxHashSet};
use samples::{Open, Samples, Slot};
use thread::Thread;

use crate::event::{self, Control, Event, FuncId, Kind, MonoTime, Pid, Sample, Tid};
use crate::function::FunctionInfo;
use crate::input::Inlined;
use crate::tree::{self, FunctionFaults, Tree};

/// How a tree is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Start of the recording: windows count from here.
    pub start: MonoTime,
    /// Length of a window in ns, to begin with: windows double past a cap.
    pub window_ns: u64,
    /// Most contexts; what would exceed them is counted per function under `[folded]`.
    pub max_contexts: usize,
    /// Whether a sample's value is its period in ns (CPU clock), not in cycles.
    pub sample_period_is_ns: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start: MonoTime(0),
            window_ns: 1_000_000_000,
            max_contexts: 1 << 20,
            sample_period_is_ns: true,
        }
    }
}

/// Builds the tree of one recording.
#[derive(Clone, Debug)]
pub struct Builder {
    shared: Shared,
    threads: Vec<ThreadSlot>,
    by_id: FxHashMap<(Pid, Tid), u32>,
    last: Option<(Pid, Tid, u32)>,
}

/// A thread of the tree; its state is there while it lives.
#[derive(Clone, Debug)]
struct ThreadSlot {
    thread: tree::Thread,
    state: Option<Box<Thread>>,
}

/// How many inlined functions of one address are kept: a damaged stream can name any number.
const MOST_INLINED: usize = 64;

/// What the state machines of all threads add to.
#[derive(Clone, Debug)]
struct Shared {
    contexts: Contexts,
    cells: Cells,
    callers: Callers,
    histograms: Histograms,
    cpu_histograms: Histograms,
    returns: returns::Tables,
    faults: FxHashMap<u32, FunctionFaults>,
    samples: Samples,
    sample_period_is_ns: bool,
    /// What stands for addresses that no mapping covers.
    no_code: FxHashSet<FuncId>,
    /// By address space and address: functions whose code is inlined there, the outermost first.
    inlined: FxHashMap<(u32, u64), Vec<FuncId>>,
    /// Functions whose probe went: they may be called unseen.
    gone: FxHashSet<u32>,
    /// Calls come as COMPLETE records.
    completes: bool,
    /// Calls of language runtimes that have left their thread for a while.
    suspended: FxHashMap<language::SuspendedKey, language::Suspended>,
}

impl Shared {
    fn fault(&mut self, func: u32) -> &mut FunctionFaults {
        self.faults.entry(func).or_default()
    }

    fn window_around(&self, time: u64) -> (u64, u64) {
        self.cells.window_around(time)
    }

    fn lay_sample(
        &mut self,
        sample: &Sample,
        thread: u32,
        space: u32,
        open: impl Iterator<Item = Open>,
    ) {
        if sample.event.kind == Kind::SwitchIn as u8 {
            return self.lay_wait(sample, thread, space, open);
        }
        let place = self.samples.place(sample, space, open);
        let begin = self.cells.window_around(sample.event.time).0;
        self.cells.window(begin);
        let (samples, ns) = self
            .samples
            .counts
            .entry(Slot {
                begin,
                thread,
                place,
            })
            .or_default();
        *samples += 1;
        *ns = ns.saturating_add(if self.sample_period_is_ns {
            sample.event.value
        } else {
            0
        });
    }

    /// A wait ends at the time of its event, and counts in the windows that it went through.
    fn lay_wait(
        &mut self,
        sample: &Sample,
        thread: u32,
        space: u32,
        open: impl Iterator<Item = Open>,
    ) {
        let place = self.samples.place_of_wait(sample, space, open);
        let Event {
            time, value, flags, ..
        } = sample.event;
        let is_sum = flags & event::flags::UNTOLD != 0;
        // First the last window: windows may become longer for it.
        self.cells.window(self.cells.window_around(time).0);
        let mut from = if is_sum {
            self.cells.window_around(time).0
        } else {
            self.cells.begins_not_before(time.saturating_sub(value))
        };
        loop {
            let (begin, end) = self.cells.window_around(from);
            let slot = Slot {
                begin,
                thread,
                place,
            };
            let waited = self.samples.waits.entry(slot).or_default();
            if is_sum {
                waited.waits = waited.waits.saturating_add(u64::from(sample.event.seq));
                return waited.add(value, flags);
            }
            waited.add(end.min(time).saturating_sub(from), flags);
            if end >= time {
                waited.waits += 1;
                return;
            }
            from = end;
        }
    }
}

impl Builder {
    /// An empty tree.
    pub fn new(options: Options) -> Self {
        let shared = Shared {
            contexts: Contexts::new(options.max_contexts),
            cells: Cells::new(options.start.0, options.window_ns),
            callers: Callers::default(),
            histograms: Histograms::default(),
            cpu_histograms: Histograms::default(),
            returns: returns::Tables::default(),
            faults: FxHashMap::default(),
            samples: Samples::default(),
            sample_period_is_ns: options.sample_period_is_ns,
            no_code: FxHashSet::default(),
            inlined: FxHashMap::default(),
            gone: FxHashSet::default(),
            completes: false,
            suspended: FxHashMap::default(),
        };
        Self {
            shared,
            threads: Vec::new(),
            by_id: FxHashMap::default(),
            last: None,
        }
    }

    /// What a probed function is: by its extent in its file, return addresses name their function.
    pub fn function(&mut self, func: FuncId, info: &FunctionInfo) {
        self.shared.callers.function(func, info);
    }

    /// `func` stands for addresses that no mapping covers: a sampled stack is believed up to the first of them.
    pub fn stands_for_no_code(&mut self, func: FuncId) {
        self.shared.no_code.insert(func);
    }

    /// What calls of `func` return is wanted: from now on its EXITs tell.
    pub fn ask_returns(&mut self, func: FuncId) {
        self.shared.returns.ask(func);
    }

    /// Takes note of mappings, births and names. Give it at once; ends and execs come again, in order, as
    /// [`Builder::thread_ended`] and [`Builder::executed`].
    pub fn control(&mut self, control: &Control) {
        let callers = &mut self.shared.callers;
        match control {
            Control::Map {
                pid,
                start,
                end,
                offset,
                path,
                ..
            } => callers.map(*pid, start.0, end.0, *offset, path),
            Control::Fork {
                parent,
                child,
                tid,
                name,
                ..
            } => {
                if parent != child {
                    callers.fork(*parent, *child);
                }
                self.thread_name(*child, *tid, name);
            }
            Control::Exec { pid, .. } => callers.exec(*pid),
            Control::Exit { .. } => {}
        }
    }

    /// Names a thread.
    pub fn thread_name(&mut self, pid: Pid, tid: Tid, name: &str) {
        let index = self.index(pid, tid);
        if let Some(slot) = self.threads.get_mut(index as usize) {
            slot.thread.name = name.into();
        }
    }

    /// Takes events of one thread, in order.
    pub fn events(&mut self, events: &[Event]) {
        for run in events.chunk_by(|a, b| a.tid == b.tid && a.pid == b.pid) {
            let Some(first) = run.first() else { continue };
            self.with_thread(Pid(first.pid), Tid(first.tid), |thread, shared| {
                for event in run {
                    thread.event(event, shared);
                }
            });
        }
    }

    /// So many events of a thread are missing between those before and those after.
    pub fn gap(&mut self, pid: Pid, tid: Tid, lost: u64) {
        self.with_thread(pid, tid, |thread, _shared| thread.note_lost(lost));
    }

    /// A thread went on unseen: its CPU time is not known again before it is seen to.
    pub fn switches_lost(&mut self, pid: Pid, tid: Tid) {
        self.with_thread(pid, tid, |thread, _shared| thread.switches_lost());
    }

    /// Takes a sampled stack, in order with the thread's events.
    pub fn sample(&mut self, sample: &Sample) {
        self.with_thread(
            Pid(sample.event.pid),
            Tid(sample.event.tid),
            |thread, shared| {
                thread.sample(sample, shared);
            },
        );
    }

    /// The probe of a function goes at `time`: calls of it that are open then will not be seen to end. To be said
    /// before the first event after `time`.
    pub fn probe_gone(&mut self, func: FuncId, time: MonoTime) {
        self.shared.gone.insert(func.get());
        for state in self
            .threads
            .iter_mut()
            .filter_map(|slot| slot.state.as_mut())
        {
            state.cut(func.get(), time.0);
        }
    }

    /// The thread ended: its open calls end here. Its number may come again.
    pub fn thread_ended(&mut self, time: MonoTime, pid: Pid, tid: Tid) {
        if let Some(&index) = self.by_id.get(&(pid, tid)) {
            self.end(index, time);
        }
    }

    /// The process replaced its program: no call of it goes on.
    pub fn executed(&mut self, time: MonoTime, pid: Pid) {
        for index in 0..self.threads.len() as u32 {
            if self
                .threads
                .get(index as usize)
                .is_some_and(|slot| slot.thread.pid == pid)
            {
                self.end(index, time);
            }
        }
    }

    /// Addresses that [`Builder::finish`] will ask for, each once: call sites outside probed functions and sampled
    /// stacks. Each lies inside the instruction that called or ran. Process 0 is the kernel; a forked process that
    /// has not executed another program goes by its parent's number.
    pub fn addresses(&self) -> Vec<(Pid, u64)> {
        let sites = self.shared.contexts.sites().iter();
        let sites = sites.map(|&(space, address)| (Pid(space), finish::call_of(address)));
        let mut addresses: Vec<_> = sites.chain(self.shared.samples.addresses()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Contexts so far.
    pub fn contexts(&self) -> usize {
        self.shared.contexts.nodes().len()
    }

    /// COMPLETE records that were settled before all calls around them had ended: those calls miss them as children.
    pub fn settled_early(&self) -> u64 {
        self.threads
            .iter()
            .filter_map(|slot| slot.state.as_ref())
            .map(|thread| thread.pending.settled_early)
            .sum()
    }

    /// What debug information has inlined at addresses.
    pub fn inlined(&mut self, inlined: Vec<Inlined>) {
        for mut at in inlined {
            at.functions.truncate(MOST_INLINED);
            self.shared
                .inlined
                .insert((at.pid.0, at.address), at.functions);
        }
    }

    /// Ends the recording and gives the tree. `resolve` names addresses; it is asked for those of
    /// [`Builder::addresses`] only.
    pub fn finish(mut self, end: MonoTime, resolve: &mut Resolve<'_>) -> Tree {
        for index in 0..self.threads.len() as u32 {
            self.end(index, end);
        }
        language::end_suspended(&mut self.shared);
        let threads = self.threads.into_iter().map(|slot| slot.thread).collect();
        finish::finish(self.shared, threads, resolve)
    }

    /// The threads of a process.
    fn threads_of(&self, pid: Pid) -> impl Iterator<Item = Tid> {
        let all = self.threads.iter().map(|slot| &slot.thread);
        all.filter(move |thread| thread.pid == pid)
            .map(|thread| thread.tid)
    }

    /// All threads.
    fn all_threads(&self) -> Vec<(Pid, Tid)> {
        let all = self.threads.iter().map(|slot| &slot.thread);
        all.map(|thread| (thread.pid, thread.tid)).collect()
    }

    fn end(&mut self, index: u32, time: MonoTime) {
        let Some(slot) = self.threads.get_mut(index as usize) else {
            return;
        };
        if let Some(mut state) = slot.state.take() {
            state.end(time.0, &mut self.shared);
            slot.thread.events += state.events;
            slot.thread.lost = slot.thread.lost.saturating_add(state.lost);
        }
    }

    fn index(&mut self, pid: Pid, tid: Tid) -> u32 {
        match self.last {
            Some((last_pid, last_tid, index)) if (last_pid, last_tid) == (pid, tid) => {
                return index;
            }
            _ => {}
        }
        let next = self.threads.len() as u32;
        let index = *self.by_id.entry((pid, tid)).or_insert(next);
        if index == next {
            let thread = tree::Thread {
                pid,
                tid,
                ..tree::Thread::default()
            };
            self.threads.push(ThreadSlot {
                thread,
                state: None,
            });
        }
        self.last = Some((pid, tid, index));
        index
    }

    fn with_thread(&mut self, pid: Pid, tid: Tid, act: impl FnOnce(&mut Thread, &mut Shared)) {
        let index = self.index(pid, tid);
        let Some(slot) = self.threads.get_mut(index as usize) else {
            return;
        };
        let space = self.shared.callers.space(pid);
        let state = slot
            .state
            .get_or_insert_with(|| Box::new(Thread::new(index, space)));
        act(state, &mut self.shared);
    }
}

#[cfg(test)]
mod language_tests;
#[cfg(test)]
mod program;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wait_tests;
