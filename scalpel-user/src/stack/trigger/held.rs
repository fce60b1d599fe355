//! What a thread holds while a call is open that may be slow, and which parts of it are kept.

use super::super::frames::Frame;
use super::holder::{EXIT, UNWIND};
use super::{ENTER, Judge};
use crate::event::{Event, Kind, Sample, Stream, flags};
use crate::input::KeptCall;

/// What is held, in order.
#[derive(Debug)]
pub(super) enum Item {
    /// An event.
    Event(Event),
    /// A sampled stack, or a wait.
    Sample(Sample),
    /// So many events are missing here.
    Lost(Stream, u64),
    /// So many events were left out from this one on: whole calls.
    Left(Event, u64),
}

/// A call that is kept, and where it is in what is held.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) start: usize,
    pub(super) end: usize,
    /// What was open around it, outermost first.
    pub(super) callers: Vec<Frame>,
    pub(super) call: KeptCall,
    /// Its end, where no event tells of it.
    pub(super) made: Option<Event>,
}

#[derive(Debug, Default)]
pub(super) struct Held {
    items: Vec<Item>,
    ranges: Vec<Range>,
}

/// A whole call in what is held.
#[derive(Clone, Copy)]
struct Whole {
    start: usize,
    end: usize,
    ns: u64,
}

impl Held {
    pub(super) const fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn push(&mut self, item: Item, judge: &mut Judge) {
        self.items.push(item);
        judge.held += 1;
    }

    pub(super) fn is_too_large(&self, judge: &Judge) -> bool {
        self.items.len() >= judge.room.thread || judge.held >= judge.room.all
    }

    /// Whether events are missing where the next one comes.
    pub(super) fn lost_last(&self) -> bool {
        matches!(
            self.items.last(),
            Some(Item::Lost(Stream::Calls | Stream::Probes, _))
        )
    }

    /// Keeps a call that began at position `start` and is over.
    pub(super) fn keep(
        &mut self,
        start: usize,
        callers: Vec<Frame>,
        call: KeptCall,
        made: Option<Event>,
    ) {
        let end = self.items.len();
        self.ranges.push(Range {
            start,
            end,
            callers,
            call,
            made,
        });
    }

    /// What came last belongs to the call that was kept last.
    pub(super) fn extend_last(&mut self) {
        if let Some(range) = self.ranges.last_mut() {
            range.end = self.items.len();
        }
    }

    /// What is kept: items, and the calls among them, those around others first.
    pub(super) fn take(&mut self, judge: &mut Judge) -> (Vec<Item>, Vec<Range>) {
        judge.held = judge.held.saturating_sub(self.items.len());
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.sort_by_key(|range| (range.start, usize::MAX - range.end));
        (std::mem::take(&mut self.items), ranges)
    }

    /// Leaves out the shortest whole calls, until half of the room is free. `places` are positions to be kept, and are moved.
    /// False = too much is not whole.
    pub(super) fn shrink<'a>(
        &mut self,
        places: impl Iterator<Item = &'a mut usize>,
        judge: &mut Judge,
    ) -> bool {
        let before = self.items.len();
        let most = judge.room.thread.min(before) / 2;
        let out = self.shortest(before - most);
        let moved = self.leave_out(&out);
        for place in places {
            *place = moved.get(*place).copied().unwrap_or(*place);
        }
        for range in &mut self.ranges {
            range.start = moved.get(range.start).copied().unwrap_or(range.start);
            range.end = moved.get(range.end).copied().unwrap_or(range.end);
        }
        judge.held = judge.held.saturating_sub(before - self.items.len());
        // Less would be no more than to come back at once.
        self.items.len() <= most + most / 2
    }

    /// The shortest whole calls with `wanted` events in all, each with all inside it; none with a kept call in it.
    fn shortest(&self, wanted: usize) -> Vec<Whole> {
        let mut starts: Vec<usize> = self.ranges.iter().map(|range| range.start).collect();
        starts.sort_unstable();
        let mut whole = self.whole_calls();
        whole.retain(|call| {
            let next = starts.partition_point(|&start| start < call.start);
            starts.get(next).is_none_or(|&start| start >= call.end)
        });
        whole.sort_unstable_by_key(|call| (call.ns, call.end - call.start));
        let mut events = 0;
        let enough = whole.iter().position(|call| {
            events += if call.end - call.start == 1 { 1 } else { 2 };
            events >= wanted
        });
        whole.truncate(enough.map_or(whole.len(), |at| at + 1));
        whole.sort_unstable_by_key(|call| (call.start, usize::MAX - call.end));
        whole
    }

    fn whole_calls(&self) -> Vec<Whole> {
        let mut open: Vec<(usize, &Event)> = Vec::new();
        let mut whole = Vec::new();
        for (at, item) in self.items.iter().enumerate() {
            let event = match item {
                Item::Event(event) => event,
                // What is open here may have ended here.
                Item::Lost(Stream::Calls | Stream::Probes, _) => {
                    open.clear();
                    continue;
                }
                Item::Sample(_) | Item::Lost(..) | Item::Left(..) => continue,
            };
            match event.kind {
                ENTER if event.flags & flags::NO_EXIT != 0 => whole.push(Whole {
                    start: at,
                    end: at + 1,
                    ns: 0,
                }),
                ENTER => open.push((at, event)),
                EXIT | UNWIND => {
                    let same = |(_, enter): &(usize, &Event)| {
                        enter.frame == event.frame && enter.func == event.func
                    };
                    let Some(place) = open.iter().rposition(same) else {
                        continue;
                    };
                    open.truncate(place + 1);
                    if let Some((start, enter)) = open.pop() {
                        let (end, ns) = (at + 1, event.time.saturating_sub(enter.time));
                        whole.push(Whole { start, end, ns });
                    }
                }
                // Tasks come and go: what is open around this is left as it is.
                SUSPEND | RESUME => open.clear(),
                _ => {}
            }
        }
        whole
    }

    /// Leaves out the events of these calls, sorted by their starts; gives the new position of each item and of the end.
    fn leave_out(&mut self, calls: &[Whole]) -> Vec<usize> {
        let mut calls = calls.iter().peekable();
        let (mut until, mut moved) = (0, Vec::with_capacity(self.items.len() + 1));
        let mut items: Vec<Item> = Vec::with_capacity(self.items.len());
        for (at, item) in std::mem::take(&mut self.items).into_iter().enumerate() {
            while let Some(call) = calls.next_if(|call| call.start <= at) {
                until = until.max(call.end);
            }
            moved.push(items.len());
            let (first, left) = match item {
                Item::Event(event) if at < until && event.kind != SWITCH_IN => (event, 1),
                Item::Left(event, left) => (event, left),
                other => {
                    items.push(other);
                    continue;
                }
            };
            match items.last_mut() {
                Some(Item::Left(_, before)) => *before += left,
                _ => items.push(Item::Left(first, left)),
            }
        }
        moved.push(items.len());
        self.items = items;
        moved
    }
}

/// Of a part of what is held: waits, their time, events lost and events left out.
pub(super) fn sums(items: &[Item], call: &mut KeptCall) {
    for item in items {
        match item {
            Item::Sample(sample) if sample.event.kind == SWITCH_IN => {
                call.waits += 1;
                call.waited_ns = call.waited_ns.saturating_add(sample.event.value);
            }
            Item::Lost(Stream::Calls | Stream::Probes, lost) => {
                call.lost = call.lost.saturating_add(*lost);
            }
            Item::Event(event) if event.kind == LOST => {
                call.lost = call.lost.saturating_add(event.value);
            }
            Item::Left(_, left) => call.left_out = call.left_out.saturating_add(*left),
            _ => {}
        }
    }
}

/// How many frames, from the outermost on, are the same.
pub(super) fn shared(a: &[Frame], b: &[Frame]) -> usize {
    let same = |(a, b): &(&Frame, &Frame)| a.is_same(b);
    a.iter().zip(b).take_while(same).count()
}

const SUSPEND: u8 = Kind::Suspend as u8;
const RESUME: u8 = Kind::Resume as u8;
const SWITCH_IN: u8 = Kind::SwitchIn as u8;
const LOST: u8 = Kind::Lost as u8;
