//! A segment that another collector made and left: whether its bytes can be one, and its state made ours.
//!
//! Every number in it may be its process's own invention. It decides nothing but what is read of that process, and all
//! memory that it makes us touch is taken out of the budget first.

use std::sync::Arc;
use std::time::Duration;

use scalpel_common::segment::{MAGIC, SEGMENT_VERSION};

use super::{Budget, LaneMemory, Owner, Segment, Settings};
use crate::event::{EVENT_SIZE, EVENT_VERSION};
use crate::probe::layout::{Layout, PAGE, SLOTS, function, header, lane};
use crate::probe::memory::Memory;
use crate::probe::names::Get;

/// After a lease was ended: who looked at it just before has written by then.
const GRACE: Duration = Duration::from_millis(20);

/// What the header of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::probe) struct Told {
    pub(in crate::probe) owner: Owner,
    pub(in crate::probe) clock: u8,
    pub(in crate::probe) modes: u8,
    layout: Layout,
}

impl Told {
    /// Reads the first page of a segment.
    pub(in crate::probe) fn of(memory: &Memory) -> Result<Self, &'static str> {
        let bytes = memory.bytes(0, 256).ok_or("it is too short")?;
        let mut get = Get(&bytes);
        let told = Self::parse(&mut get, memory.len()).ok_or("its parts cannot be")?;
        told.ok_or("it has another version")
    }

    /// `None` within = another version; `None` = nothing that could be a segment of this size.
    fn parse(get: &mut Get<'_>, len: u64) -> Option<Option<Self>> {
        let versions = (get.u64()?, get.u16()?, get.u16()?);
        if versions != (MAGIC, SEGMENT_VERSION, EVENT_VERSION) {
            return Some(None);
        }
        let (clock, modes, _reserved) = (get.u8()?, get.u8()?, get.u16()?);
        let owner = Owner {
            pid: get.u32()?,
            exec_epoch: get.u32()?,
            start_time: get.u64()?,
        };
        let size = get.u64()?;
        let (lanes_at, lanes_max, functions_max) = (get.u64()?, get.u32()?, get.u32()?);
        let (functions_at, names_at, names_size) = (get.u64()?, get.u64()?, get.u64()?);
        let (notes_at, notes_max) = (get.u64()?, get.u32()?);
        let layout = Layout {
            lanes_at,
            lanes_max,
            functions_at,
            functions_max,
            notes_at,
            notes_max,
            names_at,
            names_size,
            memory_at: names_at.checked_add(names_size)?,
            size,
        };
        (size == len && layout.is_possible()).then_some(Some(Self {
            owner,
            clock,
            modes,
            layout,
        }))
    }
}

impl Segment {
    /// Makes a segment ours that is nobody's: its memory is the budget's, its lanes are known, no function is switched off.
    /// Its probes are silent until the next lease. An error says why it cannot be ours.
    pub(in crate::probe) fn adopt(
        memory: Arc<Memory>,
        told: &Told,
        settings: Settings,
        budget: &Arc<Budget>,
    ) -> Result<Self, String> {
        let mut segment = Self::blank(memory, told.layout, budget.left(), budget);
        segment.fall_silent();
        let used_up = |error: std::io::Error| format!("it holds more than it may: {error}");
        let layout = segment.layout;
        segment.back(0, PAGE).map_err(used_up)?;
        let notes = layout.names_at - layout.notes_at;
        segment.back(layout.notes_at, notes).map_err(used_up)?;
        segment.back_ahead().map_err(used_up)?;
        let open = segment.memory.u32(header::LANES_OPEN);
        if open > layout.lanes_max {
            return Err("its lanes cannot be".into());
        }
        for index in 0..open {
            segment.back_lanes(index).map_err(used_up)?;
            let found = segment
                .told_lane(index)
                .ok_or_else(|| format!("its lane {index} cannot be"))?;
            let len = found.slots * EVENT_SIZE as u64;
            segment.back(found.at, len).map_err(used_up)?;
            segment.used = found.at + len - layout.memory_at;
            segment.lanes.push(found);
        }
        segment.switch_all_on();
        segment.memory.put(header::RECORDING, &settings.recording);
        Ok(segment)
    }

    /// A living collector would renew the lease, and we are the only one.
    fn fall_silent(&self) {
        if self.memory.u64(header::LEASE) != 0 {
            self.memory.set_u64(header::LEASE, 0);
            std::thread::sleep(GRACE);
        }
    }

    /// A lane as its entry says: behind the one before, of a size that we give.
    fn told_lane(&self, index: u32) -> Option<LaneMemory> {
        let at = self.lane_u64(index, lane::MEMORY_AT);
        let slots = u64::from(self.lane_u32(index, lane::SLOTS));
        let end = at.checked_add(slots * EVENT_SIZE as u64)?;
        let is_possible = at >= self.layout.memory_at + self.used
            && at.is_multiple_of(PAGE)
            && end <= self.layout.size
            && slots.is_power_of_two()
            && SLOTS.contains(&slots);
        is_possible.then_some(LaneMemory { at, slots })
    }

    /// What the breaker of another recording has switched off is on again.
    fn switch_all_on(&self) {
        for local in 1..=self.last_function() {
            let off = self.layout.function(local) + function::OFF;
            self.memory.set_u32(off, 0);
        }
        let generation = self.memory.u32(header::GENERATION).wrapping_add(1);
        self.memory.set_u32(header::GENERATION, generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalpel_common::segment::clock;

    const SETTINGS: Settings = Settings {
        clock: clock::MONOTONIC,
        modes: 1,
        recording: [3; 16],
    };

    /// A segment that somebody has used, and then one that goes on with it after `harm`.
    fn adopted(budget: u64, harm: impl FnOnce(&Segment)) -> Result<Segment, String> {
        let mut made = Segment::create(SETTINGS, &Arc::new(Budget::new(16 << 20))).unwrap();
        made.open_lane(super::super::LaneSize::Small).unwrap();
        made.memory.set_u32(header::LAST_FUNCTION, 2);
        made.switch_off(&[1, 2]);
        harm(&made);
        let told = Told::of(&made.memory)?;
        let next = Settings {
            recording: [9; 16],
            ..SETTINGS
        };
        let memory = Arc::clone(&made.memory);
        Segment::adopt(memory, &told, next, &Arc::new(Budget::new(budget)))
    }

    #[test]
    fn who_goes_on_with_a_segment_knows_its_lanes_and_switches_all_on() {
        let mut segment = adopted(16 << 20, |_| {}).unwrap();
        assert_eq!(segment.lanes_open(), 5);
        let last = segment.lane_memory(4).unwrap();
        segment.open_lane(super::super::LaneSize::Small).unwrap();
        assert!(segment.lane_memory(5).unwrap().at >= last.at + last.slots * 64);
        let off = |local| {
            segment
                .memory
                .u32(segment.layout.function(local) + function::OFF)
        };
        assert_eq!((off(1), off(2)), (0, 0));
        assert_eq!(
            segment.memory.bytes(header::RECORDING, 16).unwrap(),
            [9; 16]
        );
        assert_eq!(segment.memory.u32(header::GENERATION), 2);
    }

    #[test]
    fn numbers_that_cannot_be_are_refused_and_so_is_more_than_the_budget() {
        let refused = |harm: &dyn Fn(&Segment)| adopted(16 << 20, harm).unwrap_err();
        for (at, value) in [
            (0, 0),
            (8, 99),
            (32, 4096),
            (40, 1),
            (40, u64::MAX),
            (48, u64::MAX),
            (56, 0),
            (64, u64::MAX - 4095),
            (72, 1 << 60),
            (80, 1 << 40),
            (88, u64::MAX),
        ] {
            let why = refused(&|made| made.memory.set_u64(at, value));
            assert!(why.starts_with("it"), "{at}: {why}");
        }
        let lane = |field, value| {
            refused(&|made: &Segment| made.memory.set_u64(made.layout.lane(2) + field, value))
        };
        for value in [0, 1, u64::MAX, 1 << 40] {
            assert!(lane(lane::MEMORY_AT, value).contains("lane 2"));
        }
        for slots in [0, 100, 127, 1 << 21, u64::from(u32::MAX)] {
            assert!(lane(lane::SLOTS, slots).contains("lane 2"), "{slots}");
        }
        let many = refused(&|made| made.memory.set_u32(header::LANES_OPEN, u32::MAX));
        assert!(many.contains("lanes"), "{many}");
        let much = adopted(1 << 20, |_| {}).unwrap_err();
        assert!(much.contains("--probe-memory"), "{much}");
    }
}
