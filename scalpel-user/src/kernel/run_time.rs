//! How long our programs beside the call programs run: sampling, switches, births. The kernel's own account, kept for a tenth of
//! the time only, because keeping it costs every program of the host two readings of the clock.
//!
//! Must not know what is allowed.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use aya::programs::ProgramFd;
use aya::sys::{Stats, enable_stats};

use super::load::{Kernel, stats};

/// Of so many looks one begins an account, which the next one ends.
const EVERY: u32 = 10;

/// Has the kernel begin an account; `None` = it does not for this user.
pub fn account() -> Option<OwnedFd> {
    enable_stats(Stats::RunTime).ok()
}

/// Whoever may have the kernel begin an account.
pub type Begin = Box<dyn FnMut() -> Option<OwnedFd>>;

/// What was measured so far.
pub struct RunTime {
    begin: Begin,
    looks: u32,
    account: Option<Account>,
    ran_ns: u64,
    measured: Duration,
}

/// An account that the kernel keeps, as long as the descriptor is open.
#[derive(Debug)]
struct Account {
    _kept: OwnedFd,
    since: Instant,
    before_ns: u64,
}

impl RunTime {
    /// Nothing measured yet; accounts are begun by `begin`.
    pub fn by(begin: Begin) -> Self {
        Self {
            begin,
            looks: 0,
            account: None,
            ran_ns: 0,
            measured: Duration::ZERO,
        }
    }

    /// To be called about every 100 ms.
    pub fn look(&mut self, kernel: &Kernel) {
        self.looks = self.looks.wrapping_add(1);
        if let Some(account) = self.account.take() {
            self.ran_ns += run_time_ns(kernel).saturating_sub(account.before_ns);
            self.measured += account.since.elapsed();
        } else if self.looks % EVERY == 1
            && let Some(kept) = (self.begin)()
        {
            self.account = Some(Account {
                _kept: kept,
                since: Instant::now(),
                before_ns: run_time_ns(kernel),
            });
        }
    }

    /// Time in the programs during `elapsed`, in ns, if it went on as in the moments that were looked at; `None` = there were
    /// none, or this user may not ask.
    pub fn during(&self, elapsed: Duration) -> Option<u64> {
        share(self.ran_ns, self.measured, elapsed)
    }
}

fn share(ran_ns: u64, measured: Duration, elapsed: Duration) -> Option<u64> {
    let whole = u128::from(ran_ns) * elapsed.as_nanos();
    let of_all = whole.checked_div(measured.as_nanos())?;
    Some(u64::try_from(of_all).unwrap_or(u64::MAX))
}

/// What the programs have run in all, as far as it was accounted for.
fn run_time_ns(kernel: &Kernel) -> u64 {
    let descriptors = kernel
        .ebpf
        .programs()
        .filter_map(|(_, program)| program.fd().ok());
    let run = |fd: &ProgramFd| stats("", fd.as_fd()).map_or(0, |stats| stats.run_time_ns);
    descriptors.map(run).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_stands_for_the_whole_and_nothing_for_nothing() {
        let ms = Duration::from_millis;
        assert_eq!(share(5_000, ms(100), ms(1_000)), Some(50_000));
        assert_eq!(share(0, Duration::ZERO, ms(1_000)), None);
        assert_eq!(share(u64::MAX, ms(1), ms(1_000)), Some(u64::MAX));
    }
}
