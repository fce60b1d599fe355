//! One segment: made, backed with memory as it is used, read. The collector's own copy of every offset is in here; what
//! probes could have written is judged by the caller.

mod adopt;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use scalpel_common::segment::{MAGIC, SEGMENT_VERSION, lane_state};

use super::layout::{Layout, PAGE, function, header, lane};
use super::memory::Memory;
use crate::event::{EVENT_SIZE, EVENT_VERSION};

pub(super) use adopt::Told;

/// Memory for all segments of a recording.
#[derive(Debug)]
pub(super) struct Budget {
    total: u64,
    used: AtomicU64,
}

impl Budget {
    pub(super) const fn new(total: u64) -> Self {
        Self {
            total,
            used: AtomicU64::new(0),
        }
    }

    /// All of it.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// What is left.
    pub(super) fn left(&self) -> u64 {
        self.total.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Takes some of it for good; false = there is not so much left.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.total);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }

    fn give_back(&self, bytes: u64) {
        let _was = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                Some(used.saturating_sub(bytes))
            });
    }
}

/// A part of the budget that is given back when this goes.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    /// `None` = there is not so much left.
    pub(super) fn of(budget: &Arc<Budget>, bytes: u64) -> Option<Self> {
        budget.take(bytes).then(|| Self {
            budget: Arc::clone(budget),
            bytes,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// What all segments of a recording say alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) clock: u8,
    pub(super) modes: u8,
    pub(super) recording: [u8; 16],
}

/// Whose segment it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) pid: u32,
    pub(super) exec_epoch: u32,
    pub(super) start_time: u64,
}

/// A lane's memory, as we gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneMemory {
    pub(super) at: u64,
    pub(super) slots: u64,
}

/// How large a new lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneSize {
    /// The first ones large, later ones small.
    ByNumber,
    /// As the last ones.
    Small,
}

/// Lanes that are open from the start.
const FIRST_LANES: u32 = 4;
/// Entries of lanes that get memory at once.
const LANES_AT_ONCE: u32 = 256;
/// Entries of functions that have memory ahead of those in use.
const FUNCTIONS_AHEAD: u32 = 8192;
/// Bytes of the name area that have memory ahead of those in use.
const NAMES_AHEAD: u64 = 1 << 20;

/// A segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) memory: Arc<Memory>,
    pub(super) layout: Layout,
    lanes: Vec<LaneMemory>,
    /// Budget when it was made: what the sizes of its lanes go by.
    share: u64,
    lanes_backed: u32,
    functions_backed: u32,
    names_backed: u64,
    used: u64,
    backed: u64,
    budget: Arc<Budget>,
}

impl Segment {
    /// A segment with its first lanes, for whoever comes next.
    pub(super) fn create(settings: Settings, budget: &Arc<Budget>) -> io::Result<Self> {
        let share = budget.left();
        let layout = Layout::within(share);
        let memory = Arc::new(Memory::create(layout.size)?);
        // Nobody else can have it yet.
        let _ours = memory.own();
        let mut segment = Self::blank(memory, layout, share, budget);
        segment.back(0, PAGE)?;
        segment.back(layout.notes_at, layout.names_at - layout.notes_at)?;
        segment.write_header(settings);
        segment.back_ahead()?;
        while segment.lanes_open() < FIRST_LANES {
            segment.open_lane(LaneSize::ByNumber)?;
        }
        Ok(segment)
    }

    /// Nothing of it is backed, no lane is open.
    fn blank(memory: Arc<Memory>, layout: Layout, share: u64, budget: &Arc<Budget>) -> Self {
        Self {
            memory,
            layout,
            lanes: Vec::new(),
            share,
            lanes_backed: 0,
            functions_backed: 0,
            names_backed: 0,
            used: 0,
            backed: 0,
            budget: Arc::clone(budget),
        }
    }

    fn write_header(&self, settings: Settings) {
        let layout = &self.layout;
        let mut bytes = Vec::with_capacity(112);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(SEGMENT_VERSION.to_le_bytes());
        bytes.extend(EVENT_VERSION.to_le_bytes());
        bytes.extend([settings.clock, settings.modes, 0, 0]);
        bytes.extend([0; 16]);
        bytes.extend(layout.size.to_le_bytes());
        bytes.extend(layout.lanes_at.to_le_bytes());
        bytes.extend(layout.lanes_max.to_le_bytes());
        bytes.extend(layout.functions_max.to_le_bytes());
        bytes.extend(layout.functions_at.to_le_bytes());
        bytes.extend(layout.names_at.to_le_bytes());
        bytes.extend(layout.names_size.to_le_bytes());
        bytes.extend(layout.notes_at.to_le_bytes());
        bytes.extend(layout.notes_max.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(settings.recording);
        self.memory.put(0, &bytes);
    }

    /// It is that process's now.
    pub(super) fn belong_to(&self, owner: Owner) {
        self.memory.set_u32(16, owner.pid);
        self.memory.set_u32(20, owner.exec_epoch);
        self.memory.set_u64(24, owner.start_time);
    }

    /// Puts memory within the budget behind a range.
    fn back(&mut self, at: u64, len: u64) -> io::Result<()> {
        if !self.budget.take(len) {
            return Err(io::Error::other(
                "the memory for probes is used up (--probe-memory)",
            ));
        }
        self.backed += len;
        self.memory.allocate(at, len)
    }

    /// Keeps memory ahead of names and functions. An error: from now on their pages are the target's.
    pub(super) fn back_ahead(&mut self) -> io::Result<()> {
        let last = self
            .memory
            .u32(header::LAST_FUNCTION)
            .min(self.layout.functions_max);
        let wanted = last
            .saturating_add(FUNCTIONS_AHEAD / 2)
            .min(self.layout.functions_max);
        while self.functions_backed < wanted {
            let from = self.functions_backed;
            self.functions_backed = from
                .saturating_add(FUNCTIONS_AHEAD)
                .min(self.layout.functions_max);
            let (begin, end) = (
                self.layout.function(from),
                self.layout.function(self.functions_backed),
            );
            self.back(begin, end - begin)?;
        }
        let names = self
            .memory
            .u64(header::NAMES_USED)
            .min(self.layout.names_size);
        let wanted = names
            .saturating_add(NAMES_AHEAD / 2)
            .min(self.layout.names_size);
        while self.names_backed < wanted {
            let from = self.names_backed;
            self.names_backed = from.saturating_add(NAMES_AHEAD).min(self.layout.names_size);
            self.back(self.layout.names_at + from, self.names_backed - from)?;
        }
        Ok(())
    }

    /// Lanes that are open.
    pub(super) fn lanes_open(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// Memory of an open lane.
    pub(super) fn lane_memory(&self, index: u32) -> Option<LaneMemory> {
        self.lanes.get(index as usize).copied()
    }

    /// Opens one more lane.
    pub(super) fn open_lane(&mut self, size: LaneSize) -> io::Result<()> {
        let index = self.lanes_open();
        if index >= self.layout.lanes_max {
            return Err(io::Error::other("all lanes of the segment are open"));
        }
        self.back_lanes(index)?;
        let class = match size {
            LaneSize::ByNumber => index,
            LaneSize::Small => u32::MAX,
        };
        let slots = u64::from(Layout::slots(self.share, class));
        let (at, len) = (self.layout.memory_at + self.used, slots * EVENT_SIZE as u64);
        if at.checked_add(len).is_none_or(|end| end > self.layout.size) {
            return Err(io::Error::other("the segment is full"));
        }
        self.back(at, len)?;
        self.used += len.next_multiple_of(PAGE);
        self.lanes.push(LaneMemory { at, slots });
        let entry = self.layout.lane(index);
        self.memory.set_u64(entry + lane::MEMORY_AT, at);
        self.memory.set_u32(entry + lane::SLOTS, slots as u32);
        self.memory.set_u32(entry + lane::STATE, lane_state::FREE);
        self.memory.set_u32(header::LANES_OPEN, index + 1);
        Ok(())
    }

    /// Puts memory behind the entry of a lane, and of some that follow.
    fn back_lanes(&mut self, index: u32) -> io::Result<()> {
        if index < self.lanes_backed {
            return Ok(());
        }
        let from = self.lanes_backed;
        self.lanes_backed = from
            .saturating_add(LANES_AT_ONCE)
            .min(self.layout.lanes_max);
        let (begin, end) = (self.layout.lane(from), self.layout.lane(self.lanes_backed));
        self.back(begin, end - begin)
    }

    /// A field of a lane's entry.
    pub(super) fn lane_u64(&self, index: u32, field: u64) -> u64 {
        self.memory.u64(self.layout.lane(index) + field)
    }

    /// A field of a lane's entry.
    pub(super) fn lane_u32(&self, index: u32, field: u64) -> u32 {
        self.memory.u32(self.layout.lane(index) + field)
    }

    /// What was read of a lane may be written again.
    pub(super) fn consumed(&self, index: u32, tail: u64) {
        self.memory
            .set_u64(self.layout.lane(index) + lane::TAIL, tail);
    }

    /// A lane whose holder is gone is anybody's. Head and tail stay: tokens of its next holder go on from there.
    pub(super) fn free_lane(&self, index: u32) {
        let entry = self.layout.lane(index);
        for field in [lane::PID, lane::TID, lane::SOURCE, lane::LANE_USE] {
            self.memory.set_u32(entry + field, 0);
        }
        for field in [lane::LOST_CALLS, lane::LOST_EVENTS, lane::OPEN] {
            self.memory.set_u64(entry + field, 0);
        }
        self.memory.set_u32(entry + lane::STATE, lane_state::FREE);
    }

    /// Counters that are nobody's any more are 0 for the next: a claim does not write to all of a lane.
    pub(super) fn clear_counters(&self, index: u32) {
        let Some(LaneMemory { at, slots }) = self.lane_memory(index) else {
            return;
        };
        let used = (u64::from(self.last_function()) + 1).min(slots * 8);
        (0..used).for_each(|local| self.memory.set_u64(at + local * 8, 0));
    }

    /// The last function id that was given out, as far as there can be one.
    pub(super) fn last_function(&self) -> u32 {
        self.memory
            .u32(header::LAST_FUNCTION)
            .min(self.layout.functions_max.saturating_sub(1))
    }

    /// A word of a function's entry.
    pub(super) fn function_u64(&self, local: u32, field: u64) -> u64 {
        self.memory.u64(self.layout.function(local) + field)
    }

    /// Switches functions off: probes write nothing more of them.
    pub(super) fn switch_off(&self, locals: &[u32]) {
        for &local in locals {
            self.memory
                .set_u32(self.layout.function(local) + function::OFF, 1);
        }
        let generation = self.memory.u32(header::GENERATION).wrapping_add(1);
        self.memory.set_u32(header::GENERATION, generation);
    }

    /// It is a recording's again that was over.
    pub(super) fn go_on(&self) {
        self.memory.set_u32(header::STOP, 0);
    }

    /// The recording is over.
    pub(super) fn stop(&self) {
        self.memory.set_u32(header::STOP, 1);
        self.memory.set_u64(header::LEASE, 0);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.stop();
        self.budget.give_back(self.backed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalpel_common::segment::clock;

    fn settings() -> Settings {
        Settings {
            clock: clock::MONOTONIC,
            modes: 1,
            recording: [3; 16],
        }
    }

    #[test]
    fn a_segment_stays_within_the_budget_and_gives_it_back() {
        let budget = Arc::new(Budget::new(64 << 20));
        let mut segment = Segment::create(settings(), &budget).unwrap();
        assert_eq!(segment.lanes_open(), FIRST_LANES);
        let mut opened = 0;
        while segment.open_lane(LaneSize::ByNumber).is_ok() {
            opened += 1;
        }
        assert!(opened > 1000, "{opened} lanes");
        assert!(budget.left() < 1 << 20);
        drop(segment);
        assert_eq!(budget.left(), 64 << 20);
    }

    #[test]
    fn a_budget_that_is_used_up_is_told() {
        let budget = Arc::new(Budget::new(100 << 10));
        let error = Segment::create(settings(), &budget).unwrap_err();
        assert!(error.to_string().contains("--probe-memory"), "{error}");
        assert_eq!(budget.left(), 100 << 10);
    }

    #[test]
    fn lanes_do_not_overlap() {
        let budget = Arc::new(Budget::new(64 << 20));
        let mut segment = Segment::create(settings(), &budget).unwrap();
        (0..100).for_each(|_| segment.open_lane(LaneSize::ByNumber).unwrap());
        let mut end = segment.layout.memory_at;
        for index in 0..segment.lanes_open() {
            let memory = segment.lane_memory(index).unwrap();
            assert!(memory.at >= end);
            end = memory.at + memory.slots * EVENT_SIZE as u64;
        }
        assert!(end <= segment.layout.size);
    }
}
