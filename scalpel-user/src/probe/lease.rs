//! Renews the lease of all segments: a collector that was stopped or killed costs its targets no more than two seconds of
//! events that nobody reads.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use scalpel_common::segment::clock;

use super::drain::monotonic_ns;
use super::layout::header;
use super::memory::{Memory, time_stamp_counter};
use super::serve::Leased;

/// How long probes go on without a renewal, in ns.
const LENGTH_NS: u64 = 2_000_000_000;

/// Renewals come this often: three may fail to come before a lease ends.
const EVERY: Duration = Duration::from_nanos(LENGTH_NS / 4);

/// How leases are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseClock {
    /// A clock number.
    pub(super) kind: u8,
    /// Length of a lease in its unit.
    pub(super) length: u64,
}

impl LeaseClock {
    /// Of a lane clock with so many ticks a ns.
    pub(super) fn new(kind: u8, ticks_a_ns: f64) -> Self {
        let length = if kind == clock::TSC {
            (LENGTH_NS as f64 * ticks_a_ns) as u64
        } else {
            LENGTH_NS
        };
        Self { kind, length }
    }

    fn now(self) -> u64 {
        if self.kind == clock::TSC {
            time_stamp_counter()
        } else {
            monotonic_ns()
        }
    }

    /// Moves the lease of one segment on.
    pub(super) fn renew(self, memory: &Memory) {
        memory.set_u64(header::LEASE, self.now().saturating_add(self.length));
    }
}

/// The thread. Dropping it ends it; the leases end when their segments do.
#[derive(Debug)]
pub(super) struct Renewal {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewal {
    /// Begins to renew.
    pub(super) fn start(clock: LeaseClock, leased: Leased) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let body = move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                leased
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .retain(|segment| {
                        let memory: Option<Arc<Memory>> = segment.upgrade();
                        memory.is_some_and(|memory| {
                            // A segment that is over keeps its end.
                            if memory.u32(header::STOP) == 0 {
                                clock.renew(&memory);
                            }
                            true
                        })
                    });
            }
        };
        let thread = std::thread::Builder::new()
            .name("scalpel-leases".into())
            .spawn(body)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _joined = thread.join();
        }
    }
}
