//! Calls of language runtimes: told apart by identity and task, not by a stack pointer. They can be suspended and go on on
//! another thread, and a thread can change between several stacks of them without a word.

use super::Shared;
use super::frames::{Frame, entered};
use super::thread::Thread;
use crate::event::{CPU_NOT_MEASURED, Event, Source};

/// Identity of a suspended call: address space, source, function, frame. It may go on on any thread.
pub(super) type SuspendedKey = (u32, u8, u32, u64);

/// A call that is suspended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspended {
    /// Running time so far.
    ran_ns: u64,
    since: u64,
    headless: bool,
}

/// Most calls that are suspended at a time; beyond them a call that goes on has no known beginning.
const MOST_SUSPENDED: usize = 1 << 20;

/// Whether equal tasks mean one stack in this language, and different ones two: Python's probe gives each frame the task of
/// its caller. JavaScript has one stack, in which tasks follow each other.
fn has_stacks(frame: &Frame) -> bool {
    if frame.source == Source::Python as u8 {
        return true;
    }
    frame.task != 0 && !frame.is_native() && frame.source != Source::Node as u8
}

impl Thread {
    /// CPU time of the thread at an event that does not say it: while the thread is known to be on a processor, the two
    /// clocks run alike.
    #[inline]
    pub(super) fn cpu_at(&self, event: &Event) -> u64 {
        if event.cpu_ns != CPU_NOT_MEASURED || !self.on_cpu || self.cpu == CPU_NOT_MEASURED {
            return event.cpu_ns;
        }
        self.cpu
            .saturating_add(event.time.saturating_sub(self.time))
    }

    /// The thread goes on: what passed since its last event was off the processor but for what its CPU time says.
    #[cold]
    pub(super) fn switch_in(&mut self, event: &Event, shared: &mut Shared) {
        self.pass_time(event.time, event.cpu_ns, shared);
        self.on_cpu = true;
    }

    /// A switch went unseen: CPU times are not known again before the next.
    pub(super) fn switches_lost(&mut self) {
        self.on_cpu = false;
    }

    /// Makes the stack of a new call's task the running one, if another's call is the innermost.
    #[inline]
    pub(super) fn switch_to_task(&mut self, new: &Frame, shared: &mut Shared) {
        match self.frames.open.last() {
            Some(top) if top.task == new.task && top.source == new.source => {}
            _ => self.change_task(new, shared),
        }
    }

    #[cold]
    fn change_task(&mut self, new: &Frame, shared: &mut Shared) {
        if !has_stacks(new) {
            return;
        }
        let of_language = |frame: &&Frame| frame.source == new.source;
        let innermost = self.frames.open.iter().rev().find(of_language);
        if innermost.is_none_or(|frame| frame.task == new.task) {
            return;
        }
        let own = |frame: &Frame| frame.source == new.source && frame.task == new.task;
        match self.frames.open.iter().rposition(own) {
            Some(index) => self.set_other_tasks_aside(index, shared),
            None => {
                self.frames.unpark_where(own);
            }
        }
    }

    /// Calls of other tasks above position `index` are of other stacks: they live on.
    pub(super) fn set_other_tasks_aside(&mut self, index: usize, shared: &mut Shared) {
        let below = self.frames.open.get(..=index).unwrap_or_default();
        let Some(task) = below
            .iter()
            .rev()
            .find(|frame| has_stacks(frame))
            .map(|frame| frame.task)
        else {
            return;
        };
        let above = self.frames.open.get(index + 1..).unwrap_or_default();
        if let Some(offset) = above
            .iter()
            .position(|frame| has_stacks(frame) && frame.task != task)
        {
            self.frames.park_from(index + 1 + offset);
            self.drop_forgotten_regions(shared);
        }
    }

    const fn key(&self, event: &Event) -> SuspendedKey {
        (self.space, event.source, event.func, event.frame)
    }

    /// A call leaves its thread for a while.
    pub(super) fn suspend(&mut self, event: &Event, shared: &mut Shared) {
        let is_top = self.frames.open.last().is_some_and(|top| top.is(event));
        if !is_top && !self.find_exit(event, shared) {
            return;
        }
        let Some(frame) = self.frames.pop() else {
            return;
        };
        let segment = event.time.saturating_sub(frame.entered);
        let metrics = self.nodes.rare(frame.node);
        metrics.probe_events += 1;
        if frame.ran_ns == 0 && !frame.headless {
            metrics.pre_await_ns = metrics.pre_await_ns.saturating_add(segment);
        }
        if shared.suspended.len() < MOST_SUSPENDED {
            let suspended = Suspended {
                // Not 0: that is a call's first segment.
                ran_ns: frame.ran_ns.saturating_add(segment).max(1),
                since: event.time,
                headless: frame.headless,
            };
            shared.suspended.insert(self.key(event), suspended);
        }
    }

    /// A suspended call goes on, here.
    pub(super) fn resume(&mut self, event: &Event, shared: &mut Shared) {
        let before = shared.suspended.remove(&self.key(event));
        let mut frame = Frame {
            site: 0,
            task: event.site,
            headless: before.is_none_or(|before| before.headless),
            ran_ns: before.map_or(0, |before| before.ran_ns),
            ..entered(event, 0)
        };
        self.switch_to_task(&frame, shared);
        let parent = self.frames.open.last().map_or(0, |top| top.node);
        frame.node = self.nodes.child(parent, event.func, &mut shared.contexts);
        let metrics = self.nodes.rare(frame.node);
        metrics.probe_events += 1;
        if let Some(before) = before {
            let away = event.time.saturating_sub(before.since);
            metrics.suspended_ns = metrics.suspended_ns.saturating_add(away);
        }
        self.frames.push(frame);
    }

    /// The end of a call that is not open: it may be suspended, and end without going on. False = there is nothing to close.
    pub(super) fn exit_unseen(&mut self, event: &Event, shared: &mut Shared) -> bool {
        if event.source != Source::Uprobe as u8 && shared.suspended.contains_key(&self.key(event)) {
            self.resume(event, shared);
            return true;
        }
        self.missed_enter(event, shared);
        false
    }
}

/// The recording is over: what is suspended has no end.
pub(super) fn end_suspended(shared: &mut Shared) {
    for ((_, _, func, _), _) in std::mem::take(&mut shared.suspended) {
        shared.fault(func).open_at_end += 1;
    }
}
