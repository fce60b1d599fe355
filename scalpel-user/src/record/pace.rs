//! How often a recording looks after itself: its limit, its lease, its files.

use std::time::{Duration, Instant};

/// Where all is calm.
const TICK: Duration = Duration::from_millis(100);
/// While functions are being dropped: a program that has come to another part of its work calls others, too often at first,
/// and pays for them until that is noticed.
const HURRIED: Duration = Duration::from_millis(15);
/// So long after the last one.
const HURRY: Duration = Duration::from_secs(1);

/// When it looks next.
#[derive(Debug)]
pub(super) struct Pace {
    ticked: Instant,
    hurried: Instant,
}

impl Pace {
    /// The beginning is no time of calm.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            ticked: now,
            hurried: now,
        }
    }

    fn tick(&self) -> Duration {
        if self.hurried.elapsed() < HURRY {
            HURRIED
        } else {
            TICK
        }
    }

    /// How long inputs may be waited for.
    pub(super) fn wait(&self) -> Duration {
        self.tick() / 2
    }

    /// Whether it is time.
    pub(super) fn is_due(&self) -> bool {
        self.ticked.elapsed() >= self.tick()
    }

    /// It looks.
    pub(super) fn ticks(&mut self) {
        self.ticked = Instant::now();
    }

    /// It has found something to drop, or not.
    pub(super) fn hurry_if(&mut self, dropped: bool) {
        if dropped {
            self.hurried = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_hurries_while_functions_are_dropped() {
        let mut pace = Pace::new();
        assert_eq!(pace.tick(), HURRIED);
        let long_ago = Instant::now().checked_sub(2 * HURRY).unwrap();
        (pace.hurried, pace.ticked) = (long_ago, long_ago);
        assert_eq!(
            (pace.tick(), pace.wait(), pace.is_due()),
            (TICK, TICK / 2, true)
        );
        pace.hurry_if(false);
        assert_eq!(pace.tick(), TICK);
        pace.ticks();
        assert!(pace.ticked > long_ago);
        pace.hurry_if(true);
        assert_eq!(pace.tick(), HURRIED);
    }
}
