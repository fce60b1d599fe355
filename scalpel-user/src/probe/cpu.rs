//! CPU time of a thread's events where no kernel tracing tells it: between two readings of the thread's account, in
//! proportion to the time that passed. An estimate, and marked as one.

use crate::event::{CPU_NOT_MEASURED, Pid, Tid};

/// Readings are this far apart, in ns: the account of a running thread is brought up to date at the timer's tick.
const EVERY: u64 = 5_000_000;

/// Two readings of a thread's account, and what was said last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    /// (time, CPU time), in ns.
    before: (u64, u64),
    last: (u64, u64),
    said: u64,
    is_known: bool,
}

impl Estimate {
    /// Of a thread whose first event came at `since`.
    pub(super) const fn new(since: u64) -> Self {
        Self {
            before: (since, 0),
            last: (since, 0),
            said: 0,
            is_known: false,
        }
    }

    /// Whether it is time for another reading.
    pub(super) const fn is_due(&self, now: u64) -> bool {
        !self.is_known || now.saturating_sub(self.last.0) >= EVERY
    }

    /// Takes a reading.
    pub(super) fn add(&mut self, now: u64, cpu_ns: u64) {
        // Before the first reading it can have run all the time, and no more.
        self.before = match self.is_known {
            true => self.last,
            false => (
                self.last.0,
                cpu_ns.saturating_sub(now.saturating_sub(self.last.0)),
            ),
        };
        self.last = (now, cpu_ns.max(self.before.1));
        self.is_known = true;
    }

    /// CPU time at a time, never less than what was said before; [`CPU_NOT_MEASURED`] without any reading. A thread that has
    /// ended is read no more: what it ran after its last reading is not known, and it may have waited for all of that time.
    pub(super) fn at(&mut self, time: u64) -> u64 {
        if !self.is_known {
            return CPU_NOT_MEASURED;
        }
        let (begin, end) = (self.before, self.last);
        let wall = u128::from(end.0.saturating_sub(begin.0).max(1));
        let cpu = u128::from(end.1 - begin.1).min(wall);
        let latest = end.0.saturating_add(EVERY);
        let passed = u128::from(time.min(latest).saturating_sub(begin.0));
        let estimate = begin
            .1
            .saturating_add(u64::try_from(passed * cpu / wall).unwrap_or(u64::MAX));
        self.said = self.said.max(estimate);
        self.said
    }
}

/// The CPU time of a thread so far, in ns; `None` = it is gone, or the kernel does not keep it.
pub(super) fn read(pid: Pid, tid: Tid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_passes_between_readings_as_time_does() {
        let mut estimate = Estimate::new(1000);
        assert_eq!(estimate.at(1500), CPU_NOT_MEASURED);
        estimate.add(2000, 5000);
        assert_eq!(
            (estimate.at(1000), estimate.at(1500), estimate.at(2000)),
            (4000, 4500, 5000)
        );
        estimate.add(4000, 6000);
        assert_eq!((estimate.at(3000), estimate.at(4000)), (5500, 6000));
        assert_eq!(estimate.at(2000), 6000, "never back");
    }

    #[test]
    fn a_thread_that_is_read_no_more_does_not_run_on_for_ever() {
        let mut estimate = Estimate::new(0);
        estimate.add(1_000_000, 1_000_000);
        assert_eq!(estimate.at(2_000_000), 2_000_000);
        assert_eq!(estimate.at(9_000_000_000), 1_000_000 + EVERY);
    }

    #[test]
    fn whatever_is_read_becomes_a_number() {
        let mut estimate = Estimate::new(u64::MAX);
        estimate.add(0, u64::MAX);
        estimate.add(u64::MAX, 3);
        estimate.at(0);
        estimate.at(u64::MAX);
    }

    #[test]
    fn our_own_account_is_read() {
        let tid = Tid(rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs());
        assert!(read(Pid(std::process::id()), tid).is_some());
        assert_eq!(read(Pid(u32::MAX), tid), None);
    }
}
