//! How a thread's time is charged: to its innermost measured call, split where windows and probes end.

use super::Shared;
use super::thread::Thread;
use crate::event::CPU_NOT_MEASURED;

impl Thread {
    /// Charges what passed since the last event to the innermost call whose time is measured.
    pub(super) fn pass_time(&mut self, time: u64, cpu: u64, shared: &mut Shared) {
        if time >= self.window_end {
            self.pass_windows(time, cpu, shared);
        }
        self.charge(time, cpu);
    }

    fn charge(&mut self, time: u64, cpu: u64) {
        let wall_ns = time.saturating_sub(self.time);
        let cpu_ns = if cpu == CPU_NOT_MEASURED || self.cpu == CPU_NOT_MEASURED {
            0
        } else {
            cpu.saturating_sub(self.cpu)
        };
        let node = self.frames.charge();
        if node != 0 {
            let metrics = self.nodes.hot(node);
            metrics.self_wall_ns = metrics.self_wall_ns.saturating_add(wall_ns);
            metrics.self_cpu_ns = metrics.self_cpu_ns.saturating_add(cpu_ns);
        }
        self.time = self.time.max(time);
        // Where it is not known, what passes until it is known again is nobody's.
        self.cpu = cpu;
    }

    /// The probe of a function goes at `time`: what is open of it then will not be seen to end, and gets no time from
    /// then on. Events from before may still come, so this waits for its time: as if a window ended there.
    pub(super) fn cut(&mut self, func: u32, time: u64) {
        if self.frames.has_timed(func) {
            let at = self.cuts.partition_point(|&(known, _)| known <= time);
            self.cuts.insert(at, (time, func));
            self.window_end = self.window_end.min(time);
        }
    }

    fn apply_cuts(&mut self, time: u64, shared: &mut Shared) {
        let due = self.cuts.partition_point(|&(at, _)| at <= time);
        for (_, func) in self.cuts.drain(..due) {
            let cut = self.frames.end_unseen(func);
            shared.fault(func).cut_by_loss += cut;
        }
        if let Some(&(next, _)) = self.cuts.first() {
            self.window_end = self.window_end.min(next);
        }
    }

    /// Time passes into another window: each gets its share, CPU time in proportion to wall time.
    #[cold]
    fn pass_windows(&mut self, time: u64, cpu: u64, shared: &mut Shared) {
        while self.frames.charge() != 0 && self.window_end <= time {
            let (begin, end) = (self.time, self.window_end.max(self.time));
            let part = u128::from(end - begin);
            let whole = u128::from((time - begin).max(1));
            let cpu_at_end = match (cpu, self.cpu) {
                (CPU_NOT_MEASURED, _) | (_, CPU_NOT_MEASURED) => CPU_NOT_MEASURED,
                (cpu, before) => {
                    before + (u128::from(cpu.saturating_sub(before)) * part / whole) as u64
                }
            };
            self.charge(end, cpu_at_end);
            self.flush(shared);
            (self.window_begin, self.window_end) = shared.window_around(end);
            let is_end_of_time = self.window_end <= end;
            self.apply_cuts(end, shared);
            if is_end_of_time {
                return;
            }
        }
        // Where nothing is measured, maybe since a cut just now, windows pass at once.
        if self.window_end <= time {
            self.flush(shared);
            (self.window_begin, self.window_end) = shared.window_around(time);
            self.apply_cuts(time, shared);
        }
    }

    pub(super) fn flush(&mut self, shared: &mut Shared) {
        self.nodes
            .flush(self.window_begin, self.index, &mut shared.cells);
    }
}
