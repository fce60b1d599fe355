//! One thread as a writer of events: from what its probe wrote to what the session reads, whichever way it came.

use super::EndsTold;
use super::cpu::{self, Estimate};
use super::lane::{Numbers, Step};
use super::names::is_probe;
use super::shared::{Shared, Tally};
use crate::event::{CPU_NOT_MEASURED, Event, Kind, Pid, Source, Tid, flags};

/// Times may lie so far after the start of a pass, in ns: it goes on while they are written.
const AHEAD: u64 = 1_000_000_000;

/// A thread, and what was last heard of it.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) who: (Pid, Tid),
    numbers: Numbers,
    pub(super) last_ns: u64,
    cpu: Estimate,
}

impl Writer {
    /// A thread that writes from `since` on; its first event has number 0.
    pub(super) const fn new(who: (Pid, Tid), since: u64) -> Self {
        Self {
            who,
            numbers: Numbers { next: Some(0) },
            last_ns: since,
            cpu: Estimate::new(since),
        }
    }

    /// Whatever number comes next is no loss.
    pub(super) const fn expect_anything(&mut self) {
        self.numbers.next = None;
    }

    /// An event is left out that is no loss.
    pub(super) fn pass_over(&mut self, seq: u32, shared: &mut Shared) {
        if matches!(self.numbers.step(seq), Step::Lost(missing) if missing > 0) {
            shared.sequences.leave_out(self.who);
        }
    }

    /// Reads the thread's CPU time, where nobody else tells it and the last reading is old.
    pub(super) fn look(&mut self, shared: &Shared) {
        if shared.ends == EndsTold::Nobody
            && self.cpu.is_due(shared.now)
            && let Some(cpu_ns) = cpu::read(self.who.0, self.who.1)
        {
            self.cpu.add(shared.now, cpu_ns);
        }
    }

    /// Makes an event of the thread what the session reads, all but its function: `time_ns` is its time, `source` that of
    /// its HELLO.
    pub(super) fn mend(
        &mut self,
        event: &mut Event,
        time_ns: u64,
        source: u8,
        shared: &mut Shared,
        tally: &mut Tally,
    ) {
        (event.pid, event.tid) = (self.who.0.0, self.who.1.0);
        let missing = match self.numbers.step(event.seq) {
            Step::Lost(missing) => missing,
            Step::Back => {
                tally.faults += 1;
                0
            }
        };
        event.seq = shared.sequences.next(self.who, missing);
        event.time = believable(time_ns.max(self.last_ns), shared, tally);
        self.last_ns = event.time;
        mend_kind(event, source, tally);
        event.cpu_ns = CPU_NOT_MEASURED;
        if shared.ends == EndsTold::Nobody {
            event.cpu_ns = self.cpu.at(event.time);
            if event.cpu_ns != CPU_NOT_MEASURED {
                event.flags |= flags::ESTIMATED_CPU;
            }
        }
    }
}

/// A time that lies before now, give or take what passes during a pass.
fn believable(time: u64, shared: &Shared, tally: &mut Tally) -> u64 {
    let latest = shared.now.saturating_add(AHEAD);
    if time > latest {
        tally.faults += 1;
    }
    time.min(latest)
}

/// A probe may only say what happens in its own language: other kinds and sources become none, which is counted.
fn mend_kind(event: &mut Event, source: u8, tally: &mut Tally) {
    let kind = Kind::from_u8(event.kind);
    let mut is_wrong = kind.is_none();
    if !Source::from_u8(event.source).is_some_and(is_probe) {
        event.source = source;
        is_wrong = true;
    }
    let foreign = matches!(
        kind,
        Some(Kind::Complete | Kind::Sample | Kind::SwitchIn | Kind::SwitchOut)
    );
    if is_wrong || foreign {
        event.kind = 0;
        tally.faults += 1;
    }
}
