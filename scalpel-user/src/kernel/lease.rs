//! Renews the lease: while the collector lives, the programs run; when it is stopped or killed, they fall silent.
//!
//! A thread of its own does it, so that a busy session or a full ring is no reason for silence: what is lost then is
//! counted. Only when the whole collector does not run does the lease end, and that gap is reported when it runs again.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::error::KernelError;
use super::settings::SettingsSlot;
use crate::event::MonoTime;

/// How long the programs run on without a renewal, in ns. Long enough for a collector that waits for its disk.
pub const LEASE_NS: u64 = 2_000_000_000;

/// Renewals come this often: three may fail to come before the lease ends.
const EVERY: Duration = Duration::from_nanos(LEASE_NS / 4);

/// A time in which no program ran because the collector did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lapse {
    /// When the lease ended.
    pub from: MonoTime,
    /// When it was renewed.
    pub until: MonoTime,
}

/// Keeps the lease alive until it is dropped; then it ends at once.
pub struct Lease {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    lapses: Arc<Mutex<Vec<Lapse>>>,
    slot: SettingsSlot,
}

impl Lease {
    /// Takes the lease and begins to renew it.
    pub(super) fn start(slot: SettingsSlot) -> Result<Self, KernelError> {
        renew(&slot)?;
        let (stop, stopped) = channel();
        let lapses = Arc::new(Mutex::new(Vec::new()));
        let (thread_slot, thread_lapses) = (slot.clone(), Arc::clone(&lapses));
        let thread = std::thread::Builder::new()
            .name("scalpel-lease".into())
            .spawn(move || {
                while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    // A refusal has no other remedy than the next try; if none succeeds, the gap is reported as a lapse.
                    if let Ok(Some(lapse)) = renew(&thread_slot) {
                        thread_lapses
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(lapse);
                    }
                }
            });
        let thread = thread.map_err(KernelError::Thread)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
            lapses,
            slot,
        })
    }

    /// The lapses since the last call. Whoever was held up may ask before the thread has had its turn.
    pub fn take_lapses(&self) -> Vec<Lapse> {
        let renewed = renew(&self.slot).ok().flatten();
        let mut lapses = self.lapses.lock().unwrap_or_else(PoisonError::into_inner);
        lapses.extend(renewed);
        std::mem::take(&mut *lapses)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _joined = thread.join();
        }
        // Best effort: without it the programs run until the lease ends by itself.
        let _ended = self.slot.change(|settings| settings.lease_until = 0);
    }
}

/// Moves the lease on. Returns the lapse that this ends, if it had ended.
fn renew(slot: &SettingsSlot) -> Result<Option<Lapse>, KernelError> {
    let mut lapse = None;
    slot.change(|settings| {
        let now = now();
        lapse = lapsed(settings.lease_until, now);
        settings.lease_until = now + LEASE_NS;
    })?;
    Ok(lapse)
}

/// The lapse between the end of a lease and now, if there was one. A lease of 0 was never taken.
fn lapsed(lease_until: u64, now: u64) -> Option<Lapse> {
    (lease_until != 0 && lease_until < now).then_some(Lapse {
        from: MonoTime(lease_until),
        until: MonoTime(now),
    })
}

/// `CLOCK_MONOTONIC` in ns.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_was_renewed_late_is_a_lapse_and_a_first_one_is_not() {
        assert_eq!(lapsed(0, 100), None);
        assert_eq!(lapsed(100, 100), None);
        assert_eq!(
            lapsed(100, 130),
            Some(Lapse {
                from: MonoTime(100),
                until: MonoTime(130)
            })
        );
    }
}
