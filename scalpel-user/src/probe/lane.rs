//! Reading one lane: what is new in it, who wrote it, and whether its numbers can be believed. Owns no memory.

use scalpel_common::segment::lane_use;

use super::layout::lane;
use super::segment::Segment;
use crate::event::{EVENT_SIZE, Event};

/// A reader's own copy of a lane's position.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    pub(super) tail: u64,
}

/// Events that a lane holds, up to its head as it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// So many.
    Holds(u64),
    /// Its head is where it cannot be: everything up to it is given up.
    Absurd,
}

impl Cursor {
    /// What is new in the lane.
    pub(super) fn fill(&self, segment: &Segment, index: u32, slots: u64) -> Fill {
        let head = segment.lane_u64(index, lane::HEAD);
        match head.wrapping_sub(self.tail) {
            new if new <= slots => Fill::Holds(new),
            _ => Fill::Absurd,
        }
    }

    /// Copies the next `count` events and makes room for others.
    pub(super) fn take(
        &mut self,
        segment: &Segment,
        index: u32,
        memory: (u64, u64),
        count: u64,
        out: &mut Vec<Event>,
    ) {
        let (at, slots) = memory;
        let first = self.tail & (slots - 1);
        let before_end = count.min(slots - first);
        segment
            .memory
            .events(at + first * EVENT_SIZE as u64, before_end, out);
        segment.memory.events(at, count - before_end, out);
        self.tail = self.tail.wrapping_add(count);
        segment.consumed(index, self.tail);
    }

    /// Goes on behind whatever the lane holds.
    pub(super) fn skip(&mut self, segment: &Segment, index: u32) {
        self.tail = segment.lane_u64(index, lane::HEAD);
        segment.consumed(index, self.tail);
    }
}

/// What a claim says of its maker. Copied once; the writer may be hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) claimed_at: u64,
    pub(super) source: u8,
    pub(super) is_counters: bool,
}

impl Claim {
    /// The claim of a lane; `None` while it is being written.
    pub(super) fn read(segment: &Segment, index: u32) -> Option<Self> {
        let claim = Self {
            pid: segment.lane_u32(index, lane::PID),
            tid: segment.lane_u32(index, lane::TID),
            claimed_at: segment.lane_u64(index, lane::CLAIMED_AT),
            source: u8::try_from(segment.lane_u32(index, lane::SOURCE)).unwrap_or(0),
            is_counters: segment.lane_u32(index, lane::LANE_USE) == lane_use::COUNTERS_F64,
        };
        (claim.pid != 0 && claim.tid != 0 && claim.source != 0).then_some(claim)
    }
}

/// What a jump of a lane's numbers means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many events are missing before this one.
    Lost(u32),
    /// The numbers went back: they cannot be believed.
    Back,
}

/// The numbers of one holder's events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// Which comes next; `None` = any.
    pub(super) next: Option<u32>,
}

impl Numbers {
    /// Takes the number of the next event.
    pub(super) fn step(&mut self, seq: u32) -> Step {
        let missing = self.next.map_or(0, |next| seq.wrapping_sub(next));
        self.next = Some(seq.wrapping_add(1));
        if missing < 1 << 31 {
            Step::Lost(missing)
        } else {
            Step::Back
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_missing_are_a_loss_and_numbers_that_go_back_are_not() {
        let mut numbers = Numbers { next: Some(0) };
        let steps = [0, 1, 4, 5, 3, 4].map(|seq| numbers.step(seq));
        use Step::{Back, Lost};
        assert_eq!(steps, [Lost(0), Lost(0), Lost(2), Lost(0), Back, Lost(0)]);
        let mut numbers = Numbers {
            next: Some(u32::MAX),
        };
        assert_eq!(
            [u32::MAX, 0].map(|seq| numbers.step(seq)),
            [Lost(0), Lost(0)]
        );
        assert_eq!(Numbers { next: None }.step(77), Lost(0));
    }
}
