//! What was measured, per time window, thread and context. Windows double when there are too many of them.

use crate::tree::{Cell, ContextId, Metrics};

/// Most windows; then each becomes twice as long.
const MAX_WINDOWS: u64 = 256;

/// Cells at which windows double although there are few.
const MAX_CELLS: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct Cells {
    start: u64,
    window_ns: u64,
    cells: Vec<Cell>,
    /// Cells after the last merge; the next comes at twice as many.
    merged: usize,
}

impl Cells {
    pub(super) fn new(start: u64, window_ns: u64) -> Self {
        Self {
            start,
            window_ns: window_ns.max(1),
            cells: Vec::new(),
            merged: 0,
        }
    }

    /// First and one-past-last ns of the window around `time`.
    pub(super) fn window_around(&self, time: u64) -> (u64, u64) {
        let begin = self.start + time.saturating_sub(self.start) / self.window_ns * self.window_ns;
        (begin, begin.saturating_add(self.window_ns))
    }

    /// No time before the first window is part of it.
    pub(super) fn begins_not_before(&self, time: u64) -> u64 {
        time.max(self.start)
    }

    /// Makes room for a window that begins at `begin`, and its number.
    pub(super) fn window(&mut self, begin: u64) -> u32 {
        while begin.saturating_sub(self.start) / self.window_ns >= MAX_WINDOWS {
            self.coarsen();
        }
        (begin.saturating_sub(self.start) / self.window_ns) as u32
    }

    pub(super) fn add(&mut self, begin: u64, thread: u32, context: u32, metrics: Metrics) {
        let window = self.window(begin);
        self.cells.push(Cell {
            window,
            thread,
            context: ContextId(context),
            metrics,
        });
        if self.cells.len() >= MAX_CELLS && self.cells.len() >= 2 * self.merged {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        self.merge();
        while self.cells.len() >= MAX_CELLS / 2 && self.cells.iter().any(|cell| cell.window > 0) {
            self.coarsen();
            self.merge();
        }
    }

    fn coarsen(&mut self) {
        self.window_ns = self.window_ns.saturating_mul(2);
        self.cells.iter_mut().for_each(|cell| cell.window /= 2);
    }

    fn merge(&mut self) {
        self.cells.sort_unstable_by_key(key);
        self.cells.dedup_by(|later, first| {
            let same = key(later) == key(first);
            if same {
                first.metrics.add(&later.metrics);
            }
            same
        });
        self.merged = self.cells.len();
    }

    /// All cells, merged, sorted by window, thread and context.
    pub(super) fn finish(mut self) -> (u64, Vec<Cell>) {
        self.merge();
        (self.window_ns, self.cells)
    }
}

pub(super) const fn key(cell: &Cell) -> (u32, u32, u32) {
    (cell.window, cell.thread, cell.context.0)
}
