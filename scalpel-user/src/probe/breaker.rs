//! Functions that are switched off: in the segment of every process that has them, now or later. And what an event costs.
//!
//! Which ones is not decided here.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustc_hash::FxHashSet;

use super::memory::{Memory, time_stamp_counter};
use crate::event::{EVENT_SIZE, FuncId};

/// The functions that are off, for whoever reads segments.
#[derive(Clone, Debug, Default)]
pub(super) struct Off(Arc<Mutex<Set>>);

#[derive(Debug, Default)]
struct Set {
    funcs: FxHashSet<u32>,
    generation: u32,
}

impl Off {
    /// Switches more functions off.
    pub(super) fn add(&self, funcs: &[FuncId]) {
        let mut set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        set.funcs.extend(funcs.iter().map(|func| func.get()));
        set.generation += 1;
    }

    /// The functions, if there are others than in this generation, and their own.
    pub(super) fn since(&self, generation: u32) -> Option<(u32, FxHashSet<u32>)> {
        let set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (set.generation != generation).then(|| (set.generation, set.funcs.clone()))
    }
}

/// Events that are written to learn what one costs, a round; more than fit the first caches.
const ROUND: u64 = 1 << 14;

/// Rounds; the best counts, for whatever disturbs makes it longer.
const ROUNDS: u32 = 5;

/// What writing one event takes here in ns: the clock, 64 bytes, publishing. Some milliseconds are spent on it.
pub fn event_cost_ns() -> Option<u64> {
    let memory = Memory::create(ROUND * EVENT_SIZE as u64 + 4096).ok()?;
    let mut best = u128::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for number in 0..ROUND {
            let at = number * EVENT_SIZE as u64;
            let time = time_stamp_counter();
            for word in 0..EVENT_SIZE as u64 / 8 {
                memory.set_u64(at + word * 8, time.wrapping_add(word));
            }
            memory.set_u64(ROUND * EVENT_SIZE as u64, number);
        }
        best = best.min(began.elapsed().as_nanos());
    }
    u64::try_from(best / u128::from(ROUND)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_seen_a_generation_is_told_of_later_ones_only() {
        let off = Off::default();
        assert!(off.since(0).is_none());
        off.add(&[FuncId::new(3).unwrap()]);
        let (generation, funcs) = off.since(0).unwrap();
        assert!(funcs.contains(&3));
        assert!(off.since(generation).is_none());
        off.add(&[FuncId::new(4).unwrap()]);
        assert_eq!(off.since(generation).unwrap().1.len(), 2);
    }

    #[test]
    fn an_event_costs_something() {
        assert!(event_cost_ns().unwrap() > 0);
    }
}
