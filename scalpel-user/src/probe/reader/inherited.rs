//! What another collector has left in a segment: passed over and counted, so that what is told from now on is of this
//! recording alone.

use scalpel_common::segment::{lane_state, note_kind};

use super::counters::whole;
use super::{Holder, LaneState, Reader};
use crate::event::{EVENT_SIZE, Event, Kind, MonoTime};
use crate::input::ProbeWord;
use crate::probe::drain::probe_source;
use crate::probe::lane::{Claim, Fill};
use crate::probe::layout::{function, header, lane};
use crate::probe::writer::Writer;

/// Where the byte that says an event's kind stands.
const KIND_AT: u64 = std::mem::offset_of!(Event, kind) as u64;

/// What was in the lanes when they changed hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::probe) struct Left {
    /// Events that were published and never read.
    pub(in crate::probe) events: u64,
    /// Calls that begin among them.
    pub(in crate::probe) calls: u64,
}

/// Sums that stood in a segment when it changed hands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    pub(super) without_lane: u64,
    pub(super) past_lease: u64,
}

/// A lane that changed hands with its segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Inherited {
    lost_calls: u64,
    lost_events: u64,
    /// Calls per local id that counters of generated code had.
    counted: Vec<u64>,
}

impl Reader {
    /// Passes over all that is in the segment, while its probes are silent.
    pub(in crate::probe) fn inherit(&mut self) -> Left {
        let last = self.segment.last_function();
        let sums = |field| {
            (0..=last)
                .map(|local| self.segment.function_u64(local, field))
                .collect()
        };
        (self.counted, self.lost) = (sums(function::CALLS), sums(function::LOST));
        self.before = Before {
            without_lane: self.segment.memory.u64(header::CALLS_WITHOUT_LANE),
            past_lease: self.segment.memory.u64(header::CALLS_PAST_LEASE),
        };
        self.notes_inherited = self.segment.memory.u32(header::NOTES_USED);
        let mut left = Left::default();
        for index in 0..self.segment.lanes_open() {
            let state = self.inherit_lane(index, last, &mut left);
            self.lanes.push(state);
        }
        left
    }

    fn inherit_lane(&self, index: u32, last: u32, left: &mut Left) -> LaneState {
        let mut state = LaneState::default();
        state.cursor.tail = self.segment.lane_u64(index, lane::TAIL);
        let Some(memory) = self.segment.lane_memory(index) else {
            return state;
        };
        let is_held = matches!(
            self.segment.lane_u32(index, lane::STATE),
            lane_state::CLAIMED | lane_state::RELEASED
        );
        let claim = Claim::read(&self.segment, index).filter(|_| is_held);
        let counts = claim.is_some_and(|claim| claim.is_counters);
        // A head that cannot be is skipped like any other, and nobody knows what stood before it.
        if let Fill::Holds(count) = state.cursor.fill(&self.segment, index, memory.slots)
            && !counts
        {
            left.events = left.events.saturating_add(count);
            let kinds = (0..count).map(|number| {
                let slot = state.cursor.tail.wrapping_add(number) & (memory.slots - 1);
                let at = memory.at + slot * EVENT_SIZE as u64 + KIND_AT;
                self.segment.memory.u64(at) as u8
            });
            let begun = kinds.filter(|&kind| kind == Kind::Enter as u8).count();
            left.calls = left.calls.saturating_add(begun as u64);
        }
        state.cursor.skip(&self.segment, index);
        state.inherited = claim.map(|_| Inherited {
            lost_calls: self.segment.lane_u64(index, lane::LOST_CALLS),
            lost_events: self.segment.lane_u64(index, lane::LOST_EVENTS),
            counted: match counts {
                true => self.counters(memory.at, (u64::from(last) + 1).min(memory.slots * 8)),
                false => Vec::new(),
            },
        });
        state
    }

    /// The runtime of a probe that has not told of it: by who writes the lanes, 0 = nobody yet.
    pub(in crate::probe) fn unnamed(&self) -> ProbeWord {
        let mut sources = (0..self.segment.lanes_open())
            .filter_map(|index| Claim::read(&self.segment, index))
            .map(|claim| claim.source);
        ProbeWord {
            pid: self.family.owner().pid(),
            source: sources
                .find(|&source| probe_source(source).is_some())
                .unwrap_or(0),
            kind: note_kind::RUNTIME,
            time: MonoTime(0),
            value: 0,
            text: "named for an earlier recording".into(),
        }
    }

    fn counters(&self, at: u64, count: u64) -> Vec<u64> {
        let counter = |local| whole(self.segment.memory.u64(at + local * 8));
        (0..count).map(counter).collect()
    }

    /// The runtimes whose probes are in the segment, as they told when they came. Reads no note away.
    pub(in crate::probe) fn runtimes(&self) -> Vec<ProbeWord> {
        let written = self
            .segment
            .memory
            .u32(header::NOTES_USED)
            .min(self.segment.layout.notes_max);
        let mut words: Vec<ProbeWord> = (0..written)
            .filter_map(|number| self.note_at(number, |_| MonoTime(0)))
            .filter(|word| word.kind == note_kind::RUNTIME)
            .collect();
        words.sort_by_key(|word| word.source);
        words.dedup_by_key(|word| word.source);
        words
    }
}

impl Holder {
    /// Goes on where the lane changed hands.
    pub(super) fn inherit(&mut self, inherited: Inherited) {
        self.lost_before = (inherited.lost_calls, inherited.lost_events);
        self.counted = inherited.counted;
        self.untold_before = true;
        self.writer.iter_mut().for_each(Writer::expect_anything);
    }

    /// The place in `events` of a loss that is not this recording's. A probe tells what it has lost before the next thing
    /// that is no end, and found room for that at once: so the first of these, if it is a loss, is an old one.
    pub(super) fn old_loss(&mut self, events: &[Event]) -> Option<usize> {
        if !self.untold_before {
            return None;
        }
        let is_end =
            |event: &Event| matches!(Kind::from_u8(event.kind), Some(Kind::Exit | Kind::Unwind));
        let first = events.iter().position(|event| !is_end(event))?;
        self.untold_before = false;
        let is_loss = events.get(first).map(|event| event.kind) == Some(Kind::Lost as u8);
        is_loss.then_some(first)
    }

    /// Calls and events lost on this lane in this recording, of those that its entry counts.
    pub(super) const fn lost_since(&self, (calls, events): (u64, u64)) -> (u64, u64) {
        let (calls_before, events_before) = self.lost_before;
        (
            calls.saturating_sub(calls_before),
            events.saturating_sub(events_before),
        )
    }
}
