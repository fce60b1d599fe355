//! What stays of the probe between two recordings: nearly nothing is told of any more, and enough to notice the next one.

use std::cell::Cell;

use scalpel::Segment;

/// Units of the lane clock (ns, or ticks) between two places that are kept: some thousand callbacks a second at most.
const BETWEEN_KEPT: u64 = 200_000;

/// Kept under the interpreter lock.
#[derive(Debug)]
pub(crate) struct Awake {
    /// The recording that listened last.
    recording: Cell<u64>,
    /// When a place was last kept although no recording listens, by the lane clock.
    kept: Cell<u64>,
}

impl Awake {
    pub(crate) fn new(segment: &Segment) -> Self {
        Self {
            recording: Cell::new(segment.recording()),
            kept: Cell::new(0),
        }
    }

    /// Whether a place need not be told of any more, now that the recording is over. What is seldom reached stays awake: by it
    /// a later recording is noticed.
    pub(crate) fn may_sleep(&self, segment: &Segment) -> bool {
        let now = segment.clock();
        if now.wrapping_sub(self.kept.get()) < BETWEEN_KEPT {
            return true;
        }
        self.kept.set(now);
        false
    }

    /// Whether another recording listens since the last time this was asked.
    #[cfg(Py_3_12)]
    #[inline]
    pub(crate) fn is_new_recording(&self, segment: &Segment) -> bool {
        let recording = segment.recording();
        self.recording.replace(recording) != recording
    }
}
