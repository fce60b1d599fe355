//! The state machine of one thread: each event charges the time that passed, then opens and closes calls.

use super::Shared;
use super::complete::Pending;
use super::frames::{Frame, Frames, entered, is_no_address};
use super::nodes::{Call, Link, NodeId, Nodes};
use super::samples::Open;
use crate::event::{CPU_NOT_MEASURED, Event, Kind, Sample, Source, flags};
use crate::tree::EdgeSource;

/// How a call was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Close {
    /// Its EXIT came, or that of the function it had jumped to.
    Returned,
    /// Its UNWIND came.
    Threw,
    /// The stack is above it: it was passed by an exception or a jump, or its end is not reported.
    Passed,
    /// It may have ended in a gap.
    Lost,
    /// The thread or the recording ended first.
    Open,
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    /// Index in the tree's threads.
    pub(super) index: u32,
    pub(super) space: u32,
    pub(super) events: u64,
    pub(super) lost: u64,
    pub(super) nodes: Nodes,
    pub(super) frames: Frames,
    pub(super) pending: Pending,
    pub(super) time: u64,
    pub(super) cpu: u64,
    pub(super) window_begin: u64,
    pub(super) window_end: u64,
    /// Functions whose ends are not reported from a time on that has not come yet, earliest first.
    pub(super) cuts: Vec<(u64, u32)>,
    /// Events lost since the last one seen.
    gap: u64,
    /// Calls closed together with the function they had jumped to: their own EXIT follows.
    pub(super) closed_by_tail: Vec<Frame>,
    /// Since it was last seen to go on, the thread has been on a processor: `cpu` runs with `time`.
    pub(super) on_cpu: bool,
}

impl Thread {
    pub(super) fn new(index: u32, space: u32) -> Self {
        Self {
            index,
            space,
            events: 0,
            lost: 0,
            nodes: Nodes::new(),
            frames: Frames::default(),
            pending: Pending::default(),
            time: 0,
            cpu: CPU_NOT_MEASURED,
            window_begin: 0,
            window_end: 0,
            cuts: Vec::new(),
            gap: 0,
            closed_by_tail: Vec::new(),
            on_cpu: false,
        }
    }

    pub(super) fn event(&mut self, event: &Event, shared: &mut Shared) {
        let is_told = event.source != Source::Sched as u8 && event.flags & flags::EARLIER == 0;
        self.events += u64::from(is_told);
        if self.gap > 0 {
            self.settle_gap(event, shared);
        }
        match event.kind {
            ENTER if shared.completes => self.pending.enter(event),
            ENTER => {
                self.pass_time(event.time, self.cpu_at(event), shared);
                self.enter(event, shared);
            }
            EXIT if shared.completes && self.pending.exit(event) => {}
            EXIT => {
                self.pass_time(event.time, self.cpu_at(event), shared);
                self.exit(event, Close::Returned, shared);
            }
            _ => self.rare(event, shared),
        }
    }

    #[cold]
    fn rare(&mut self, event: &Event, shared: &mut Shared) {
        match Kind::from_u8(event.kind) {
            Some(Kind::Complete) => {
                shared.completes = true;
                self.pending.complete(event);
                self.settle_completed(false, shared);
            }
            Some(Kind::Unwind) => {
                self.pass_time(event.time, self.cpu_at(event), shared);
                self.exit(event, Close::Threw, shared);
            }
            Some(Kind::Suspend) => {
                self.pass_time(event.time, self.cpu_at(event), shared);
                self.suspend(event, shared);
            }
            Some(Kind::Resume) => {
                self.pass_time(event.time, self.cpu_at(event), shared);
                self.resume(event, shared);
            }
            Some(Kind::Count) => self.count(event, shared),
            // A probe loses whole calls: nothing that is open can have ended among them.
            Some(Kind::Lost) if event.source != Source::Uprobe as u8 => {
                self.lost = self.lost.saturating_add(event.value);
            }
            Some(Kind::Lost) => self.note_lost(event.value),
            Some(Kind::SwitchIn) => self.switch_in(event, shared),
            Some(Kind::ThreadEnd) => self.end(event.time, shared),
            // Starts and samples open and close nothing; unknown kinds are counted by the decoder.
            _ => {}
        }
    }

    fn enter(&mut self, event: &Event, shared: &mut Shared) {
        if !self.closed_by_tail.is_empty() {
            self.closed_by_tail.clear();
        }
        let mut frame = entered(event, 0);
        let mut tail = event.flags & flags::TAIL_CALL != 0;
        if !frame.is_native() {
            self.switch_to_task(&frame, shared);
        } else if !self.frames.is_plainly_inside(event.frame) {
            tail |= self.make_room(&mut frame, shared);
        }
        frame.node = self.node_of(&frame, tail, shared);
        if !frame.earlier {
            self.count_call(event, frame.node, tail, shared);
        }
        self.frames.push(frame);
    }

    fn count_call(&mut self, event: &Event, node: NodeId, tail: bool, shared: &mut Shared) {
        if event.flags & flags::RETURN_REFUSED != 0 {
            shared.fault(event.func).return_refused += 1;
        }
        if event.weight == 0 {
            self.nodes.hot(node).calls += 1;
        } else {
            self.weighed(node, 1 << event.weight.min(MAX_WEIGHT));
        }
        if tail {
            self.nodes.rare(node).tail_calls += 1;
        }
    }

    /// An end that no event told of: the whole stream showed it by what came after (UNWIND), or by what was missing (EXIT).
    #[cold]
    fn end_untold(&mut self, event: &Event, told: Close, shared: &mut Shared) {
        let how = match told {
            Close::Returned => Close::Lost,
            _ => Close::Passed,
        };
        // Of functions that jump to themselves several have one frame: the call is told by its beginning.
        let is_it = |frame: &Frame| frame.is(event) && frame.entered == event.site;
        let find = |frames: &Frames| frames.open.iter().position(is_it);
        let there = find(&self.frames).or_else(|| {
            self.frames.unpark_where(is_it);
            find(&self.frames)
        });
        if let Some(index) = there {
            self.close_from(index, how, shared);
        }
    }

    /// One event that stands for several calls.
    #[cold]
    fn weighed(&mut self, node: NodeId, calls: u64) {
        let metrics = self.nodes.rare(node);
        metrics.calls = metrics.calls.saturating_add(calls);
        metrics.probe_events += 1;
    }

    /// Closes what the stack pointer of a new native frame proves dead. True = the frame stands in place of the
    /// innermost one: a tail call.
    #[cold]
    fn make_room(&mut self, new: &mut Frame, shared: &mut Shared) -> bool {
        let known_region = self.frames.switch_to(new.frame);
        self.drop_forgotten_regions(shared);
        if !known_region {
            while self.frames.top_section_is_stale(new.frame) {
                self.close_from(
                    self.frames.section_begin(self.frames.open.len()),
                    Close::Passed,
                    shared,
                );
            }
            new.begins_section = !self.frames.open.is_empty();
            return false;
        }
        let begin = self.frames.section_begin(self.frames.open.len());
        let section = self.frames.open.get(begin..).unwrap_or_default();
        let Some(offset) = section
            .iter()
            .position(|frame| frame.is_native() && frame.frame <= new.frame)
        else {
            return false;
        };
        let first_dead = begin + offset;
        match self.frames.open.get(first_dead) {
            Some(old) if jumps_to(old, new) => {
                new.site = old.site;
                let innermost = section
                    .iter()
                    .rposition(|frame| jumps_to(frame, new))
                    .map_or(first_dead, |at| begin + at);
                self.close_from(innermost + 1, Close::Passed, shared);
                true
            }
            old => {
                new.begins_section = old.is_some_and(|old| old.begins_section);
                self.close_from(first_dead, Close::Passed, shared);
                false
            }
        }
    }

    pub(super) fn drop_forgotten_regions(&mut self, shared: &mut Shared) {
        while let Some(frames) = self.frames.overflow() {
            frames
                .iter()
                .for_each(|frame| self.close(frame, Close::Passed, shared));
        }
    }

    /// The node that a new frame counts in, after closing frames that its return address proves to be over.
    fn node_of(&mut self, frame: &Frame, tail: bool, shared: &mut Shared) -> NodeId {
        let site = if tail || is_no_address(frame.site) || !frame.is_native() {
            0
        } else {
            frame.site
        };
        let call = Call {
            func: frame.func,
            site,
        };
        loop {
            let parent = self.frames.open.last().map_or(0, |top| top.node);
            let link = self.link_of(parent, call, shared);
            if link.caller == 0 || !self.return_to(link.caller, shared) {
                return link.node;
            }
        }
    }

    /// The call was made from `func`: frames inside its innermost call have ended unseen. False = it has none open, or
    /// this may be another call of it that nobody saw begin.
    fn return_to(&mut self, func: u32, shared: &mut Shared) -> bool {
        if shared.gone.contains(&func) {
            return false;
        }
        match self.frames.find_function(func) {
            Some(index) if index + 1 < self.frames.open.len() => {
                self.close_from(index + 1, Close::Passed, shared);
                true
            }
            _ => false,
        }
    }

    pub(super) fn link_of(&mut self, parent: NodeId, call: Call, shared: &mut Shared) -> Link {
        match self.nodes.known_link(parent, call) {
            Some(link) => link,
            None => self.new_link(parent, call, shared),
        }
    }

    #[cold]
    fn new_link(&mut self, parent: NodeId, call: Call, shared: &mut Shared) -> Link {
        let (above, parent_func) = (self.nodes.get(parent).context, self.nodes.get(parent).func);
        let caller = if call.site == 0 {
            Some(parent_func)
        } else {
            shared.callers.caller(self.space, call.site)
        };
        let contexts = &mut shared.contexts;
        let (context, caller) = match caller {
            Some(caller) if caller == parent_func => {
                (contexts.child(above, call.func, EdgeSource::Exact), 0)
            }
            Some(caller) => {
                let between = contexts.child(above, caller, EdgeSource::CallSite);
                (
                    contexts.child(between, call.func, EdgeSource::Exact),
                    caller,
                )
            }
            None => (
                contexts.child_from(above, call.func, self.space, call.site),
                0,
            ),
        };
        self.nodes.link(parent, call, context, caller, contexts)
    }

    fn exit(&mut self, event: &Event, how: Close, shared: &mut Shared) {
        if event.flags & flags::EARLIER != 0 {
            return self.end_untold(event, how, shared);
        }
        match self.frames.open.last() {
            Some(top) if top.is(event) => {}
            _ => {
                if !self.find_exit(event, shared) {
                    return;
                }
            }
        }
        let Some(frame) = self.frames.pop() else {
            return;
        };
        if how == Close::Returned {
            note_value(&frame, event, shared);
        }
        if how == Close::Returned && frame.timed && self.cpu != CPU_NOT_MEASURED {
            self.nodes.hot(frame.node).returned += 1;
            self.record_duration(&frame, shared);
        } else {
            self.nodes.rare(frame.node).probe_events += 1;
            self.close(&frame, how, shared);
        }
        if frame.is_native() {
            self.close_tail_callers(event.frame, shared);
        }
    }

    /// Makes the frame of an EXIT the innermost one. False = there is none.
    #[cold]
    pub(super) fn find_exit(&mut self, event: &Event, shared: &mut Shared) -> bool {
        if let Some(at) = self.closed_by_tail.iter().position(|frame| frame.is(event)) {
            let frame = self.closed_by_tail.remove(at);
            note_value(&frame, event, shared);
            self.nodes.rare(frame.node).probe_events += 1;
            return false;
        }
        let Some(index) = self.frames.find(event).or_else(|| {
            self.frames
                .unpark_frame_of(event)
                .then(|| self.frames.find(event))
                .flatten()
        }) else {
            return self.exit_unseen(event, shared);
        };
        if let Some(other_stack) = self.frames.next_section(index) {
            self.frames.park_from(other_stack);
            self.drop_forgotten_regions(shared);
        }
        self.set_other_tasks_aside(index, shared);
        self.close_from(index + 1, Close::Passed, shared);
        true
    }

    /// An EXIT without ENTER still proves that nothing below it is open.
    pub(super) fn missed_enter(&mut self, event: &Event, shared: &mut Shared) {
        shared.fault(event.func).missed_enter += 1;
        if event.source != Source::Uprobe as u8 || !self.frames.switch_to(event.frame) {
            return;
        }
        let begin = self.frames.section_begin(self.frames.open.len());
        let section = self.frames.open.get(begin..).unwrap_or_default();
        if let Some(dead) = section
            .iter()
            .position(|frame| frame.is_native() && frame.frame < event.frame)
        {
            self.close_from(begin + dead, Close::Passed, shared);
        }
    }

    /// Functions that had jumped to the one that returned have returned with it.
    fn close_tail_callers(&mut self, returned: u64, shared: &mut Shared) {
        while let Some(top) = self.frames.open.last()
            && top.frame == returned
            && top.is_native()
        {
            let Some(frame) = self.frames.pop() else {
                return;
            };
            self.close(&frame, Close::Returned, shared);
            self.closed_by_tail.push(frame);
        }
    }

    /// Closes the frames from position `from` on, innermost first.
    fn close_from(&mut self, from: usize, how: Close, shared: &mut Shared) {
        while self.frames.open.len() > from {
            let Some(frame) = self.frames.pop() else {
                return;
            };
            self.close(&frame, how, shared);
        }
    }

    fn close(&mut self, frame: &Frame, how: Close, shared: &mut Shared) {
        if frame.earlier {
            return;
        }
        let ended = frame.timed && matches!(how, Close::Returned | Close::Threw | Close::Passed);
        let cpu_known = self.cpu != CPU_NOT_MEASURED;
        let metrics = self.nodes.rare(frame.node);
        metrics.timed += u64::from(ended);
        metrics.cpu_timed += u64::from(ended && cpu_known);
        match how {
            Close::Returned if frame.timed => self.record_duration(frame, shared),
            Close::Threw => metrics.unwound += 1,
            Close::Passed if frame.beyond_depth => {
                metrics.inferred += 1;
                shared.fault(frame.func).depth_limited += 1;
            }
            Close::Passed if frame.timed => metrics.unwound += 1,
            Close::Lost if frame.timed => shared.fault(frame.func).cut_by_loss += 1,
            Close::Open if frame.timed => shared.fault(frame.func).open_at_end += 1,
            Close::Open => {}
            Close::Returned | Close::Passed | Close::Lost => metrics.inferred += 1,
        }
    }

    fn record_duration(&self, frame: &Frame, shared: &mut Shared) {
        if self.nodes.get(frame.node).outermost && !frame.headless {
            let last = self.time.saturating_sub(frame.entered);
            let ran_ns = frame.ran_ns.saturating_add(last);
            shared.histograms.add(frame.func, ran_ns);
        }
    }

    fn count(&mut self, event: &Event, shared: &mut Shared) {
        let parent = self.frames.open.last().map_or(0, |top| top.node);
        let node = self.nodes.child(parent, event.func, &mut shared.contexts);
        self.ensure_window(event.time, shared);
        let calls = event
            .value
            .saturating_mul(1 << event.weight.min(MAX_WEIGHT));
        let metrics = self.nodes.rare(node);
        metrics.calls = metrics.calls.saturating_add(calls);
    }

    fn ensure_window(&mut self, time: u64, shared: &mut Shared) {
        if self.window_end == 0 {
            (self.window_begin, self.window_end) = shared.window_around(time);
        }
    }

    /// Events are missing here; what that means for the open calls, the next event tells.
    pub(super) fn note_lost(&mut self, lost: u64) {
        self.lost = self.lost.saturating_add(lost);
        self.gap = self.gap.saturating_add(lost);
        let innermost = self.frames.open.last().map_or(0, |top| top.node);
        if innermost != 0 {
            let metrics = self.nodes.rare(innermost);
            metrics.lost = metrics.lost.saturating_add(lost);
        }
    }

    /// Each lost event can have ended one measured call at most, from the innermost on. What an EXIT finds open was
    /// open all the time, and so was everything outside it.
    #[cold]
    fn settle_gap(&mut self, event: &Event, shared: &mut Shared) {
        let mut lost = std::mem::take(&mut self.gap);
        let exit = matches!(event.kind, EXIT | UNWIND);
        let from = match self.frames.find(event).filter(|_| exit) {
            Some(index) => index + 1,
            None => {
                // The ENTER of this EXIT is one of the lost events.
                lost -= u64::from(exit);
                self.first_doubtful(lost)
            }
        };
        self.close_from(from, Close::Lost, shared);
    }

    fn first_doubtful(&self, lost: u64) -> usize {
        let open = &self.frames.open;
        if lost == 0 {
            return open.len();
        }
        let timed = open
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, frame)| frame.timed && !frame.beyond_depth);
        timed
            .map(|(index, _)| index)
            .nth(usize::try_from(lost - 1).unwrap_or(usize::MAX))
            .unwrap_or(0)
    }

    /// Lays a sampled stack under the innermost open call that it passes through.
    pub(super) fn sample(&mut self, sample: &Sample, shared: &mut Shared) {
        if shared.completes {
            return self.pending.sample(sample);
        }
        let open = self.frames.open.iter().rev().map(|frame| Open {
            context: self.nodes.get(frame.node).context,
            site: frame.site,
            timed: frame.timed,
            language: !frame.is_native(),
        });
        shared.lay_sample(sample, self.index, self.space, open);
    }

    /// The thread is over, or the recording: closes everything.
    pub(super) fn end(&mut self, time: u64, shared: &mut Shared) {
        self.settle_completed(true, shared);
        if self.time > 0 {
            self.pass_time(time.max(self.time), CPU_NOT_MEASURED, shared);
        }
        for frame in self.frames.take_all().iter().rev() {
            self.close(frame, Close::Open, shared);
        }
        self.flush(shared);
        (self.gap, self.cpu, self.on_cpu) = (0, CPU_NOT_MEASURED, false);
        self.closed_by_tail.clear();
    }
}

/// What a call returned, if it is one that counts and somebody asked.
fn note_value(frame: &Frame, event: &Event, shared: &mut Shared) {
    if !shared.returns.is_empty() && event.kind == EXIT && frame.is_native() && !frame.earlier {
        shared.returns.note(frame.func, event.value);
    }
}

/// Whether `old` left its frame to `new` by a jump: the same slot still holds the same return address. A call from
/// outside would have written its own.
const fn jumps_to(old: &Frame, new: &Frame) -> bool {
    old.frame == new.frame
        && old.timed
        && old.is_native()
        && (is_no_address(new.site) || new.site == old.site)
}

/// No event stands for more calls than 2 to this.
const MAX_WEIGHT: u8 = 40;

const ENTER: u8 = Kind::Enter as u8;
const EXIT: u8 = Kind::Exit as u8;
const UNWIND: u8 = Kind::Unwind as u8;
