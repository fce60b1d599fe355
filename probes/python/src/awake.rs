//! What stays of the probe between two recordings: nearly nothing is told of any more, and enough to notice the next one.

use std::cell::Cell;

use scalpel::Segment;

/// Units of the lane clock (ns, or ticks) between two places that are kept: some thousand callbacks a second at most.
const BETWEEN_KEPT: u64 = 200_000;

/// Kept under the interpreter lock.
#[derive(Debug)]
pub(crate) struct Awake {
    /// The recording that listened last.
    #[cfg(Py_3_12)]
    recording: Cell<u64>,
    /// When a place was last kept although no recording listens, by the lane clock.
    kept: Cell<u64>,
}

impl Awake {
    #[cfg_attr(
        not(Py_3_12),
        expect(
            unused_variables,
            reason = "the profile hook has nothing to be told again"
        )
    )]
    pub(crate) fn new(segment: &Segment) -> Self {
        Self {
            #[cfg(Py_3_12)]
            recording: Cell::new(segment.recording()),
            kept: Cell::new(0),
        }
    }

    /// Whether a function's start stays told of although the recording is over: one that seldom runs does, and by it a later
    /// recording is noticed.
    #[cold]
    pub(crate) fn keeps(&self, segment: &Segment) -> bool {
        if !segment.over() {
            return false;
        }
        let now = segment.clock();
        let keeps = now.wrapping_sub(self.kept.get()) >= BETWEEN_KEPT;
        if keeps {
            self.kept.set(now);
        }
        keeps
    }

    /// Whether another recording listens since the last time this was asked.
    #[cfg(Py_3_12)]
    #[inline]
    pub(crate) fn is_new_recording(&self, segment: &Segment) -> bool {
        let recording = segment.recording();
        self.recording.replace(recording) != recording
    }
}
