//! Lanes for threads that will begin: ahead of them, as far as the budget goes.

use super::Reader;
use crate::probe::layout::header;
use crate::probe::segment::{LaneSize, Segment};

/// Lanes that are free at any time.
const LEAST_FREE: u32 = 4;

/// Most lanes that are opened in one pass: the others are not read meanwhile.
const MOST_AT_ONCE: u32 = 1024;

/// Where so many more are wanted at once, they are small ones: large ones would take too long to be made.
const CROWD: u32 = 32;

/// What a process was seen to need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// Calls on threads without a lane, so far.
    waiting: u64,
    threads: u32,
}

impl Reader {
    /// Opens lanes, so that threads that begin find some; at most as the budget allows.
    pub(in crate::probe) fn make_room(&mut self) {
        let held = self.active.len() as u32;
        let free = self.segment.lanes_open().saturating_sub(held);
        let waiting = self.segment.memory.u64(header::CALLS_WITHOUT_LANE);
        let someone_waits = waiting != self.demand.waiting;
        self.demand.waiting = waiting;
        let mut wanted = (held / 2).max(LEAST_FREE);
        if someone_waits || free < wanted {
            let threads = self.threads();
            wanted = wanted_of(held, threads, self.demand.threads);
            self.demand.threads = threads;
        }
        open_lanes(&mut self.segment, free, wanted);
        // Without memory ahead the target's own is used: worse for it, but nothing is lost.
        let _backed = self.segment.back_ahead();
    }

    /// Threads of the process; 0 = it is gone.
    fn threads(&self) -> u32 {
        self.family
            .owner()
            .status()
            .map_or(0, |status| status.threads)
    }
}

/// Free lanes that are wanted: for each thread that has none, for four times as many as have begun since the last look (the
/// next may come late), and for children that were forked.
fn wanted_of(held: u32, threads: u32, threads_before: u32) -> u32 {
    let begun = match threads_before {
        0 => 0,
        before => threads.saturating_sub(before),
    };
    threads
        .saturating_sub(held)
        .saturating_add(begun.saturating_mul(4))
        .max(held / 2)
        .max(LEAST_FREE)
}

fn open_lanes(segment: &mut Segment, free: u32, wanted: u32) {
    let missing = wanted.saturating_sub(free).min(MOST_AT_ONCE);
    let size = if missing > CROWD {
        LaneSize::Small
    } else {
        LaneSize::ByNumber
    };
    for _ in 0..missing {
        if segment.open_lane(size).is_err() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_wanted_for_threads_that_have_none_and_for_as_many_as_come() {
        assert_eq!(wanted_of(1, 1, 0), LEAST_FREE);
        assert_eq!(wanted_of(100, 100, 100), 50);
        assert_eq!(wanted_of(4, 300, 1), 296 + 4 * 299);
        assert_eq!(
            wanted_of(300, 0, 300),
            150,
            "it is gone; its children are not"
        );
        assert_eq!(wanted_of(0, u32::MAX, 1), u32::MAX);
    }
}
