//! A segment under the hands of a stranger, for the fuzzer: its bytes are changed at will between passes, and it is taken over
//! in whatever state it is. Built for tests and fuzzing alone.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use scalpel_common::segment::clock;

use super::EndsTold;
use super::clock::LaneClock;
use super::functions::Functions;
use super::layout::PAGE;
use super::names::Get;
use super::peer::Family;
use super::reader::Reader;
use super::segment::{Budget, Owner, Segment, Settings, Told};
use super::shared::{Sequences, Shared};
use crate::event::{EVENT_SIZE, Event, Pid};
use crate::function::FunctionTable;
use crate::input::Input;
use crate::target::Process;

/// Memory for the segment: its lanes are small, so that a few bytes of input reach their ends.
const MEMORY: u64 = 6 << 20;

/// Most that one input makes happen.
const MOST_STEPS: usize = 400;

const SETTINGS: Settings = Settings {
    clock: clock::MONOTONIC,
    modes: 1,
    recording: [7; 16],
};

struct Stranger {
    reader: Reader,
    shared: Shared,
    budget: Arc<Budget>,
    owner: Owner,
    process: Process,
    events: u64,
    passes: u64,
}

/// Reads the segment of a process that does what `bytes` say. Panics where that makes the collector do what it must not.
pub(super) fn hostile_segment(bytes: &[u8]) {
    let Some(mut stranger) = Stranger::new() else {
        return;
    };
    let mut get = Get(bytes);
    for _ in 0..MOST_STEPS {
        let (Some(what), Some(place), Some(value)) = (get.u8(), get.u16(), get.u32()) else {
            break;
        };
        if stranger.step(what, place.into(), value).is_none() {
            return;
        }
    }
    stranger.pass();
}

impl Stranger {
    fn new() -> Option<Self> {
        let budget = Arc::new(Budget::new(MEMORY));
        let segment = Segment::create(SETTINGS, &budget).ok()?;
        let process = Process::open(Pid(std::process::id())).ok()?;
        let owner = Owner {
            pid: process.pid().0,
            exec_epoch: 0,
            start_time: process.start_time(),
        };
        segment.belong_to(owner);
        let shared = Shared {
            functions: Functions::after(FunctionTable::new()),
            sequences: Sequences::default(),
            clock: LaneClock::Monotonic,
            now: 1 << 40,
            ends: EndsTold::All,
            targets: Vec::new(),
            off: FxHashSet::default(),
        };
        let reader = Reader::new(segment, Family::new(process.clone(), 0), 0);
        Some(Self {
            reader,
            shared,
            budget,
            owner,
            process,
            events: 0,
            passes: 0,
        })
    }

    /// `None` = the segment was refused by who took it over.
    fn step(&mut self, what: u8, place: u64, value: u32) -> Option<()> {
        let segment = &self.reader.segment;
        let layout = &segment.layout;
        let base = match what & 7 {
            0 => 0,
            1 => layout.lane(0),
            2 => layout.function(0),
            3 => layout.note(0),
            4 => layout.names_at,
            5 => layout.memory_at,
            6 => {
                self.pass();
                return Some(());
            }
            _ => return self.take_over(),
        };
        // A whole word or half of it, a small number or one with the highest bits.
        let at = base + (place * 4) % PAGE;
        match what >> 3 & 3 {
            0 => segment.memory.set_u32(at, value),
            1 => segment.memory.set_u64(at & !7, value.into()),
            2 => segment
                .memory
                .set_u64(at & !7, u64::from(value) << 32 | u64::from(value)),
            _ => segment.memory.set_u64(at & !7, u64::MAX - u64::from(value)),
        }
        Some(())
    }

    fn pass(&mut self) {
        self.passes += 1;
        self.shared.now += 1_000_000;
        let mut events = Vec::<Event>::new();
        let mut give = |input: Input| {
            if let Input::Events(some) = input {
                events.extend(some);
            }
            true
        };
        let (reader, shared) = (&mut self.reader, &mut self.shared);
        let _all = reader.pass(shared, &mut give);
        let _all = reader.counts(shared, &mut give);
        let _all = reader.losses(shared, &mut give);
        reader.make_room();
        let latest = shared.now + 2_000_000_000;
        assert!(
            events.iter().all(|event| event.time <= latest),
            "a time of a far future"
        );
        self.events += events.len() as u64;
        // What the lanes hold, and a count of each function in each.
        let room = MEMORY / EVENT_SIZE as u64;
        let counts = u64::from(self.reader.segment.layout.functions_max) * 8192;
        assert!(
            self.events <= self.passes * (room + counts),
            "events out of nothing"
        );
    }

    /// As after the collector's death, with the same budget.
    fn take_over(&mut self) -> Option<()> {
        let memory = Arc::clone(&self.reader.segment.memory);
        let told = Told::of(&memory).ok()?;
        let budget = Arc::new(Budget::new(MEMORY));
        let segment = Segment::adopt(memory, &told, SETTINGS, &budget).ok()?;
        assert!(budget.left() <= MEMORY);
        segment.belong_to(self.owner);
        let mut reader = Reader::new(segment, Family::new(self.process.clone(), 0), 0);
        let _words = reader.runtimes();
        let left = reader.inherit();
        assert!(left.events <= MEMORY / EVENT_SIZE as u64 && left.calls <= left.events);
        reader.segment.go_on();
        (self.reader, self.budget) = (reader, budget);
        assert!(
            self.budget.left() < MEMORY,
            "what it holds is in the budget"
        );
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift: the same inputs in every run.
    fn random(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..len).map(|_| next() as u8).collect()
    }

    #[test]
    fn whatever_a_stranger_writes_the_collector_goes_on() {
        // More by hand.
        let asked = std::env::var("SCALPEL_TEST_HOSTILE").ok();
        let most = asked.and_then(|text| text.parse().ok()).unwrap_or(200);
        for seed in 0..most {
            hostile_segment(&random(seed, 700 + seed as usize % 2100));
        }
    }
}
