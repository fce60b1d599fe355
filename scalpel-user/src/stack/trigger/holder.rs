//! One thread: which of its open calls are judged, and what is held for them.

use super::super::frames::Frame;
use super::super::thread::Thread;
use super::Judge;
use super::held::{Held, Item};
use super::write::Writer;
use crate::event::{CPU_NOT_MEASURED, Event, FuncId, Kind, MonoTime, Pid, Tid, flags};
use crate::input::{CallEnd, Input, KeptCall};

/// An open call that a trigger judges.
#[derive(Debug)]
struct Candidate {
    frame: Frame,
    triggers: u64,
    /// Place of its ENTER in what is held.
    at: usize,
    /// What was open around it, outermost first.
    callers: Vec<Frame>,
    /// CPU time of the thread when it began.
    cpu: u64,
    /// What it began with is not held any more.
    cut: bool,
}

/// What one thread holds.
#[derive(Debug, Default)]
pub(super) struct Holder {
    /// Outermost first.
    candidates: Vec<Candidate>,
    held: Held,
    /// The call that ended last had jumped to another function, with which it returned: its own EXIT may still come.
    owed: Option<Owed>,
    /// When the thread was last seen to go on.
    pub(super) switch: Option<Event>,
    writer: Writer,
}

/// A call that ended before its EXIT.
#[derive(Clone, Copy, Debug)]
struct Owed {
    frame: Frame,
    kept: bool,
}

impl Holder {
    /// Whether nothing is open of which all is held: there is nothing to hold on for.
    fn holds_nothing(&self) -> bool {
        self.candidates.iter().all(|one| one.cut)
    }

    /// An event that the state machine has taken already.
    pub(super) fn event(
        &mut self,
        event: &Event,
        thread: &Thread,
        bits: u64,
        judge: &mut Judge,
        out: &mut Vec<Input>,
    ) {
        if event.kind == SWITCH_IN {
            self.switch = Some(*event);
        }
        if self.candidates.is_empty() && self.owed.is_none() && bits == 0 {
            return;
        }
        if let Some(owed) = self.paid(event, thread) {
            self.held.push(Item::Event(*event), judge);
            if owed.kept {
                self.held.extend_last();
            }
        } else {
            self.settle(judge, out);
            let taken = self.end_those_over(event, thread, judge);
            if !taken {
                self.push(Item::Event(*event), judge, out);
            }
        }
        if self.holds_nothing() && self.owed.is_none() {
            self.write(judge, out);
        }
        if bits != 0 {
            self.begin(event, thread, bits, judge);
        }
    }

    /// Whether the event is the EXIT of a call that had returned with the one it had jumped to.
    fn paid(&mut self, event: &Event, thread: &Thread) -> Option<Owed> {
        let owed = self
            .owed
            .filter(|owed| event.kind == EXIT && event.frame == owed.frame.frame)?;
        // A function that jumped to itself has several, of which the call's own is the last.
        let like = |closed: &Frame| closed.frame == event.frame && closed.func == owed.frame.func;
        if !thread.closed_by_tail.iter().any(like) {
            self.owed = None;
        }
        Some(owed)
    }

    /// What was owed does not come.
    pub(super) fn settle(&mut self, judge: &mut Judge, out: &mut Vec<Input>) {
        if self.owed.take().is_some() && self.holds_nothing() {
            self.write(judge, out);
        }
    }

    pub(super) fn push(&mut self, item: Item, judge: &mut Judge, out: &mut Vec<Input>) {
        if self.holds_nothing() {
            return;
        }
        self.held.push(item, judge);
        if self.held.is_too_large(judge) {
            let places = self.candidates.iter_mut().map(|one| &mut one.at);
            if !self.held.shrink(places, judge) {
                // What is kept already is written; of what is open too much is open.
                self.write(judge, out);
                self.candidates.iter_mut().for_each(|one| one.cut = true);
            }
        }
    }

    /// Ends the calls that the event shows to be over. True = the event is the end of one of them, and is held with it.
    fn end_those_over(&mut self, event: &Event, thread: &Thread, judge: &mut Judge) -> bool {
        let mut taken = false;
        let over = |one: &Candidate| !thread.frames.has(&one.frame);
        while let Some(place) = self.candidates.iter().rposition(over) {
            let candidate = self.candidates.remove(place);
            let by_jump = event.kind == EXIT && is_closed_by_jump(thread, &candidate.frame);
            let is_own = !by_jump && candidate.frame.is(event) && ends(event.kind);
            if (is_own || by_jump) && !taken {
                self.held.push(Item::Event(*event), judge);
                taken = true;
            }
            if is_own && event.kind == SUSPEND {
                for trigger in judge.of(candidate.triggers) {
                    trigger.suspended += 1;
                }
                continue;
            }
            let end = match (is_own || by_jump, event.kind) {
                (true, UNWIND) => CallEnd::Unwound,
                (true, _) => CallEnd::Returned,
                (false, _) if self.held.lost_last() => CallEnd::Lost,
                (false, _) => CallEnd::Unwound,
            };
            let made = (!(is_own || by_jump)).then(|| written_end(&candidate.frame, event, end));
            let frame = candidate.frame;
            let kept = self.ended(candidate, (event.time, end), made, thread.cpu, judge);
            if by_jump {
                self.owed = Some(Owed { frame, kept });
            }
        }
        taken
    }

    /// Judges a call that is over, or does not go on. True = it is kept.
    fn ended(
        &mut self,
        candidate: Candidate,
        (time, end): (u64, CallEnd),
        made: Option<Event>,
        cpu: u64,
        judge: &mut Judge,
    ) -> bool {
        let wall_ns = time.saturating_sub(candidate.frame.entered);
        let by = judge.judge(candidate.triggers, wall_ns, end);
        let Some((trigger, func)) = by.zip(FuncId::new(candidate.frame.func)) else {
            return false;
        };
        if candidate.cut {
            return false;
        }
        let known = cpu != CPU_NOT_MEASURED && candidate.cpu != CPU_NOT_MEASURED;
        let call = KeptCall {
            trigger,
            func,
            pid: Pid(0),
            tid: Tid(0),
            began: MonoTime(candidate.frame.entered),
            ended: MonoTime(time),
            end,
            cpu_ns: known.then(|| cpu.saturating_sub(candidate.cpu)),
            waits: 0,
            waited_ns: 0,
            lost: 0,
            left_out: 0,
            items: 0,
        };
        for trigger in judge.of(candidate.triggers) {
            trigger.kept += u64::from(wall_ns > trigger.threshold_ns);
        }
        self.held.keep(candidate.at, candidate.callers, call, made);
        true
    }

    /// A call begins: it is judged by the triggers that no open call is judged by.
    fn begin(&mut self, event: &Event, thread: &Thread, bits: u64, judge: &mut Judge) {
        let open = self
            .candidates
            .iter()
            .fold(0, |bits, one| bits | one.triggers);
        let triggers = bits & !open;
        if triggers == 0 {
            return;
        }
        if event.flags & flags::NO_EXIT != 0 {
            for trigger in judge.of(triggers) {
                trigger.endless += 1;
            }
            return;
        }
        let Some((frame, callers)) = thread.frames.open.split_last() else {
            return;
        };
        if self.holds_nothing() {
            self.held.push(Item::Event(*event), judge);
        }
        self.candidates.push(Candidate {
            frame: *frame,
            triggers,
            at: self.held.len().saturating_sub(1),
            callers: callers.to_vec(),
            cpu: thread.cpu,
            cut: false,
        });
    }

    /// The thread or the recording ends, with what is open.
    pub(super) fn end(
        &mut self,
        time: u64,
        end: CallEnd,
        thread: &Thread,
        judge: &mut Judge,
        out: &mut Vec<Input>,
    ) {
        self.settle(judge, out);
        while let Some(candidate) = self.candidates.pop() {
            // How much CPU time passed since the last event, nobody told.
            let cpu = if thread.time >= time {
                thread.cpu
            } else {
                CPU_NOT_MEASURED
            };
            self.ended(candidate, (time, end), None, cpu, judge);
        }
        self.write(judge, out);
    }

    /// Writes the calls that are kept, and forgets all others.
    fn write(&mut self, judge: &mut Judge, out: &mut Vec<Input>) {
        self.writer
            .write(&mut self.held, self.switch.as_ref(), judge, out);
    }
}

/// Whether a call has ended with the one it had jumped to, and its own EXIT has not come.
fn is_closed_by_jump(thread: &Thread, frame: &Frame) -> bool {
    let mut closed = thread.closed_by_tail.iter();
    closed.any(|closed| closed.is_same(frame))
}

/// The end of a call, written for it.
fn written_end(frame: &Frame, by: &Event, end: CallEnd) -> Event {
    let kind = match end {
        CallEnd::Lost => Kind::Exit,
        _ => Kind::Unwind,
    };
    Event {
        func: frame.func,
        frame: frame.frame,
        source: frame.source,
        site: frame.entered,
        value: 0,
        kind: kind as u8,
        flags: flags::EARLIER,
        weight: 0,
        ..*by
    }
}

const fn ends(kind: u8) -> bool {
    matches!(kind, EXIT | UNWIND | SUSPEND)
}

pub(super) const EXIT: u8 = Kind::Exit as u8;
pub(super) const UNWIND: u8 = Kind::Unwind as u8;
const SUSPEND: u8 = Kind::Suspend as u8;
const SWITCH_IN: u8 = Kind::SwitchIn as u8;
