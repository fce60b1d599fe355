//! The processes that pay for probes, and the CPU time that they have used: what the breaker compares with.

use super::super::sys;
use crate::event::Pid;

/// CPU time never goes down, though processes end.
#[derive(Debug, Default)]
pub(super) struct Paying {
    /// Each with what it had used when it came, and when it was looked at last, in ns.
    alive: Vec<(Pid, u64, u64)>,
    /// What those used that have ended, as last seen, in ns.
    ended_ns: u64,
}

impl Paying {
    pub(super) fn of(pids: &[Pid]) -> Self {
        let mut all = Self::default();
        pids.iter().for_each(|pid| all.add(*pid));
        all
    }

    /// One more, from now on.
    pub(super) fn add(&mut self, pid: Pid) {
        if !self.alive.iter().any(|(known, ..)| *known == pid) {
            let used = sys::process_cpu_ns(pid.0).unwrap_or(0);
            self.alive.push((pid, used, used));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.alive.len()
    }

    /// CPU time so far in ns; `None` = of none could it be read ever.
    pub(super) fn look(&mut self) -> Option<u64> {
        let since = |(_, first, last): &(Pid, u64, u64)| last - first;
        let ended = &mut self.ended_ns;
        self.alive
            .retain_mut(|(pid, first, last)| match sys::process_cpu_ns(pid.0) {
                Ok(now) => {
                    *last = now.max(*last);
                    true
                }
                Err(_) => {
                    *ended += *last - *first;
                    false
                }
            });
        let sum = self.ended_ns + self.alive.iter().map(since).sum::<u64>();
        (sum > 0 || !self.alive.is_empty()).then_some(sum)
    }

    /// Each process and what it has used so far, in ns.
    pub(super) fn each(&self) -> Vec<(Pid, u64)> {
        let now = |(pid, ..): &(Pid, u64, u64)| Some((*pid, sys::process_cpu_ns(pid.0).ok()?));
        self.alive.iter().filter_map(now).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_takes_nothing_of_what_was_used() {
        let mut child = std::process::Command::new("sh")
            .args([
                "-c",
                "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; read x",
            ])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid(child.id());
        let mut paying = Paying::of(&[pid, pid]);
        assert_eq!(paying.len(), 1);
        let mut used = 0;
        while used < 1_000_000 {
            used = paying.look().unwrap();
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(paying.look().unwrap() >= used);
        assert!(paying.len() == 0 && paying.look().unwrap() >= used);
        assert_eq!(Paying::of(&[]).look(), None);
    }

    #[test]
    fn who_comes_brings_nothing_of_what_it_used_before() {
        let own = Pid(std::process::id());
        while sys::process_cpu_ns(own.0).unwrap() < 20_000_000 {}
        let mut paying = Paying::default();
        let before = sys::process_cpu_ns(own.0).unwrap();
        paying.add(own);
        let used = paying.look().unwrap();
        let since = sys::process_cpu_ns(own.0).unwrap() - before;
        assert!(used <= since, "{used} of {since}");
    }
}
