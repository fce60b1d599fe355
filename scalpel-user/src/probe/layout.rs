//! Where the parts of a segment lie, and how large its lanes are. Pure numbers.

use std::mem::offset_of;

use scalpel_common::segment::{Function, Header, Lane, Note};

use crate::event::EVENT_SIZE;

/// Most lanes of a process: threads with a lane at one time.
const LANES: u32 = 8192;

/// Most notes of a process.
const NOTES: u32 = 512;

/// Most function ids of a process, whatever the budget.
const FUNCTIONS: u64 = 1 << 18;

/// Memory comes in pages.
pub(super) const PAGE: u64 = 4096;

/// Smallest budget for which the parts make sense.
pub(super) const SMALLEST_BUDGET: u64 = 4 << 20;

/// Offsets and sizes, as the collector keeps them: what stands in the segment's header is for the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) lanes_at: u64,
    pub(super) lanes_max: u32,
    pub(super) functions_at: u64,
    pub(super) functions_max: u32,
    pub(super) notes_at: u64,
    pub(super) notes_max: u32,
    pub(super) names_at: u64,
    pub(super) names_size: u64,
    /// Where lane memory begins; it goes to the end.
    pub(super) memory_at: u64,
    pub(super) size: u64,
}

impl Layout {
    /// Parts for one process that may use up to `budget` bytes. The file is larger: only what is used has memory.
    pub(super) fn within(budget: u64) -> Self {
        let lanes_at = PAGE;
        let functions_max = (budget / 1024).clamp(1024, FUNCTIONS);
        let functions_at = page_after(lanes_at + u64::from(LANES) * size_of::<Lane>() as u64);
        let notes_at = page_after(functions_at + functions_max * size_of::<Function>() as u64);
        let names_at = page_after(notes_at + u64::from(NOTES) * size_of::<Note>() as u64);
        let names_size = page_after(budget / 8);
        let memory_at = names_at + names_size;
        Self {
            lanes_at,
            lanes_max: LANES,
            functions_at,
            functions_max: u32::try_from(functions_max).unwrap_or(u32::MAX),
            notes_at,
            notes_max: NOTES,
            names_at,
            names_size,
            memory_at,
            size: memory_at + page_after(budget),
        }
    }

    /// Whether the parts that a header names follow each other within the file and are no larger than ours can be.
    pub(super) fn is_possible(&self) -> bool {
        let sizes = [
            (self.lanes_at, u64::from(self.lanes_max), LANES.into()),
            (self.functions_at, u64::from(self.functions_max), FUNCTIONS),
            (self.notes_at, u64::from(self.notes_max), NOTES.into()),
        ];
        let entries = [size_of::<Lane>(), size_of::<Function>(), size_of::<Note>()];
        let begins = [self.functions_at, self.notes_at, self.names_at];
        let fits = |(((at, count, most), entry), next): (((u64, u64, u64), usize), u64)| {
            let end = at.checked_add(count * entry as u64);
            (1..=most).contains(&count) && end.is_some_and(|end| end <= next)
        };
        let names_end = self.names_at.checked_add(self.names_size);
        self.lanes_at >= PAGE
            && sizes.into_iter().zip(entries).zip(begins).all(fits)
            && names_end.is_some_and(|end| end <= self.memory_at)
            && self.memory_at <= self.size
            && [
                self.lanes_at,
                self.functions_at,
                self.notes_at,
                self.names_at,
                self.memory_at,
            ]
            .iter()
            .all(|part| part.is_multiple_of(PAGE))
    }

    /// Where a lane's entry stands.
    pub(super) const fn lane(&self, index: u32) -> u64 {
        self.lanes_at + index as u64 * size_of::<Lane>() as u64
    }

    /// Where a function's entry stands.
    pub(super) const fn function(&self, local: u32) -> u64 {
        self.functions_at + local as u64 * size_of::<Function>() as u64
    }

    /// Where a note stands.
    pub(super) const fn note(&self, index: u32) -> u64 {
        self.notes_at + index as u64 * size_of::<Note>() as u64
    }

    /// Slots of the lane that is opened as number `index`. The first is for the thread that a program has from the start,
    /// which may write 16 M events/s; the last so small that thousands fit.
    pub(super) fn slots(budget: u64, index: u32) -> u32 {
        let share = match index {
            0 => 16,
            1..8 => 64,
            8..40 => 256,
            _ => 16 * 1024,
        };
        let most = match index {
            0..40 => LARGEST_LANE,
            _ => LARGEST_LATE_LANE,
        };
        let slots = (budget / share / EVENT_SIZE as u64).clamp(SMALLEST_LANE, most);
        // Rounded down to a power of two.
        u32::try_from(1u64 << slots.ilog2()).unwrap_or(1 << 20)
    }
}

/// A lane of fewer slots could not keep its reserve.
const SMALLEST_LANE: u64 = 128;
const LARGEST_LANE: u64 = 1 << 20;

/// Late lanes are opened by the hundred, and threads wait for them meanwhile: more memory would take longer to be made.
const LARGEST_LATE_LANE: u64 = 1 << 10;

/// Slots that a lane of any collector may have.
pub(super) const SLOTS: std::ops::RangeInclusive<u64> = SMALLEST_LANE..=LARGEST_LANE;

const fn page_after(at: u64) -> u64 {
    at.next_multiple_of(PAGE)
}

/// Offsets of header fields that are written while the recording runs.
pub(super) mod header {
    use super::{Header, offset_of};

    pub(in super::super) const RECORDING: u64 = offset_of!(Header, recording) as u64;
    pub(in super::super) const LEASE: u64 = offset_of!(Header, lease) as u64;
    pub(in super::super) const GENERATION: u64 = offset_of!(Header, generation) as u64;
    pub(in super::super) const LANES_OPEN: u64 = offset_of!(Header, lanes_open) as u64;
    pub(in super::super) const STOP: u64 = offset_of!(Header, stop) as u64;
    pub(in super::super) const LAST_FUNCTION: u64 = offset_of!(Header, last_function) as u64;
    pub(in super::super) const NOTES_USED: u64 = offset_of!(Header, notes_used) as u64;
    pub(in super::super) const NAMES_USED: u64 = offset_of!(Header, names_used) as u64;
    pub(in super::super) const CALLS_WITHOUT_LANE: u64 =
        offset_of!(Header, calls_without_lane) as u64;
    pub(in super::super) const FUNCTIONS_REFUSED: u64 =
        offset_of!(Header, functions_refused) as u64;
    pub(in super::super) const NAMES_REFUSED: u64 = offset_of!(Header, names_refused) as u64;
    pub(in super::super) const CALLS_PAST_LEASE: u64 = offset_of!(Header, calls_past_lease) as u64;
}

/// Offsets within a lane's entry.
pub(super) mod lane {
    use super::{Lane, offset_of};

    pub(in super::super) const MEMORY_AT: u64 = offset_of!(Lane, memory_at) as u64;
    pub(in super::super) const SLOTS: u64 = offset_of!(Lane, slots) as u64;
    pub(in super::super) const STATE: u64 = offset_of!(Lane, state) as u64;
    pub(in super::super) const PID: u64 = offset_of!(Lane, pid) as u64;
    pub(in super::super) const TID: u64 = offset_of!(Lane, tid) as u64;
    pub(in super::super) const CLAIMED_AT: u64 = offset_of!(Lane, claimed_at) as u64;
    pub(in super::super) const SOURCE: u64 = offset_of!(Lane, source) as u64;
    pub(in super::super) const LANE_USE: u64 = offset_of!(Lane, lane_use) as u64;
    pub(in super::super) const HEAD: u64 = offset_of!(Lane, head) as u64;
    pub(in super::super) const LOST_CALLS: u64 = offset_of!(Lane, lost_calls) as u64;
    pub(in super::super) const LOST_EVENTS: u64 = offset_of!(Lane, lost_events) as u64;
    pub(in super::super) const OPEN: u64 = offset_of!(Lane, open) as u64;
    pub(in super::super) const TAIL: u64 = offset_of!(Lane, tail) as u64;
}

/// Offsets within a function's entry.
pub(super) mod function {
    use super::{Function, offset_of};

    pub(in super::super) const NAME: u64 = offset_of!(Function, name) as u64;
    pub(in super::super) const CALLS: u64 = offset_of!(Function, calls) as u64;
    pub(in super::super) const LOST: u64 = offset_of!(Function, lost) as u64;
    pub(in super::super) const OFF: u64 = offset_of!(Function, off) as u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_in_pages_and_lanes_fit() {
        for budget in [SMALLEST_BUDGET, 64 << 20, 256 << 20, 4 << 30] {
            let layout = Layout::within(budget);
            let parts = [
                layout.lanes_at,
                layout.functions_at,
                layout.notes_at,
                layout.names_at,
                layout.memory_at,
                layout.size,
            ];
            assert!(parts.is_sorted_by(|a, b| a < b), "{layout:?}");
            assert!(parts.iter().all(|part| part.is_multiple_of(PAGE)));
            assert!(layout.lane(layout.lanes_max) <= layout.functions_at);
            assert!(layout.function(layout.functions_max) <= layout.notes_at);
            assert!(layout.note(layout.notes_max) <= layout.names_at);
        }
    }

    #[test]
    fn five_thousand_threads_fit_the_default_budget() {
        let budget = 256 << 20;
        let lanes: u64 = (0..5000)
            .map(|index| u64::from(Layout::slots(budget, index)) * EVENT_SIZE as u64)
            .sum();
        assert!(lanes < budget * 9 / 10, "{} MiB", lanes >> 20);
        assert_eq!(Layout::slots(budget, 0), 1 << 18);
        assert!(Layout::slots(budget, 0).is_power_of_two());
    }

    #[test]
    fn no_lane_is_too_small_for_its_reserve() {
        for budget in [SMALLEST_BUDGET, 256 << 20, 1 << 40] {
            for index in [0, 5, 30, 8000] {
                let slots = Layout::slots(budget, index);
                assert!(slots.is_power_of_two() && (128..=1 << 20).contains(&slots));
            }
        }
    }
}
