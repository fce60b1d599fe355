//! One thread reads the segments of all processes and sends the session its inputs.
//!
//! A pass reads the clock, then takes over the segments that were made meanwhile, then reads every lane up to its head. A
//! thread has written all it stamped before the clock read unless it was held up between stamp and publishing; then it has
//! written nothing later either, on any lane or ring. So after a pass nothing older than the clock read can come that
//! does not lie at its right place in its own thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use scalpel_common::kernel::LossClass;

use super::breaker::Off;
use super::clock::{LaneClock, Line, Point};
use super::frames::{Frames, LAG};
use super::memory::time_stamp_counter;
use super::reader::Reader;
use super::serve::Peer;
use super::shared::{Gone, Shared, Tally};
use crate::event::{MonoTime, Source};
use crate::input::{Feed, Input, Loss};

/// Waits between two passes: as short as what comes asks for, and never so long that a fast thread fills its lane meanwhile.
const SHORTEST: Duration = Duration::from_micros(500);
const LONGEST: Duration = Duration::from_millis(4);

/// The wait where nobody writes events. A thread that wakes up 900 times a second, and does no more, made each request of
/// a Node.js server that shares two processors with its client 14 to 19 % dearer.
const IDLE: Duration = Duration::from_millis(50);

/// Counters are compared this often.
const COUNT_EVERY: Duration = Duration::from_millis(250);

/// The clocks are compared this often, in ns: closer points would make steeper errors between them.
const POINT_EVERY: u64 = 2_000_000;

/// Who speaks in frames has so long for its last ones when the recording ends.
const FAREWELL: Duration = Duration::from_millis(500);

/// A pass that found a lane this full (of 256) is repeated at once.
const BUSY: u64 = 32;

/// How full (of 256) a lane should be at the next pass: ten times as much may come then.
const COMFORTABLE: u32 = 16;

/// What the thread can say when it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeReport {
    /// Segments that were read.
    pub segments: u64,
    /// Events sent.
    pub events: u64,
    /// Calls that found no room.
    pub lost_calls: u64,
    /// Other events that found no room.
    pub lost_events: u64,
    /// Numbers that could not be.
    pub faults: u64,
    /// Lanes of processes that are none of the segment's.
    pub strangers: u64,
    /// How far off a converted time may be, in ns; 0 = nothing had to be converted.
    pub clock_error_ns: u64,
    /// Functions without an id, functions without a name.
    pub refused: (u64, u64),
    /// Events that came when it had been said that nothing so old can come.
    pub late: u64,
}

impl ProbeReport {
    /// What a reader of the result should know.
    pub fn notes(&self) -> Vec<String> {
        let (functions, names) = self.refused;
        let counts = [
            (
                self.faults,
                "numbers that probes wrote could not be, and were dropped or mended",
            ),
            (
                self.strangers,
                "lanes were held by processes that do not belong to the recording, and were not read",
            ),
            (
                functions,
                "functions got no number, and their calls were not recorded: raise --probe-memory",
            ),
            (
                names,
                "functions have no name, for the name area was full: raise --probe-memory",
            ),
            (
                self.late,
                "events came more than a second late on the socket: between native frames they may be at the wrong place",
            ),
        ];
        let said = counts.iter().filter(|(count, _)| *count > 0);
        said.map(|(count, what)| format!("{count} {what}"))
            .collect()
    }
}

/// The thread's body.
pub(super) struct Drain {
    pub(super) newcomers: Receiver<Peer>,
    pub(super) readers: Vec<Reader>,
    pub(super) frames: Frames,
    pub(super) shared: Shared,
    pub(super) counts_only: bool,
    pub(super) off: Off,
    pub(super) off_seen: u32,
    pub(super) session: SyncSender<(Feed, Input)>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) report: ProbeReport,
    pub(super) counted: Instant,
    pub(super) told_losses: Vec<Loss>,
}

/// The wait after a pass that found a lane so full (of 256) after the last one: longer step by step, shorter at once.
fn next_wait(last: Duration, fullest: u64, longest: Duration) -> Duration {
    let fullest = u32::try_from(fullest).unwrap_or(u32::MAX);
    let wait = if fullest <= COMFORTABLE / 2 {
        last * 2
    } else {
        last * COMFORTABLE / fullest
    };
    wait.clamp(SHORTEST, longest)
}

impl Drain {
    /// Reads until it is told to stop, and once more.
    pub(super) fn run(mut self) -> ProbeReport {
        // Calls that are counted only leave no events in the lanes.
        let longest = if self.counts_only { IDLE } else { LONGEST };
        let mut wait = SHORTEST;
        let mut farewell = None;
        loop {
            let began = Instant::now();
            let last = self.stop.load(Ordering::Acquire) && self.is_done(&mut farewell);
            let Ok(fullest) = self.pass(last) else { break };
            if last {
                break;
            }
            if self.readers.is_empty() && self.frames.is_silent() {
                self.wait_for_newcomers();
                continue;
            }
            wait = next_wait(wait, fullest, longest);
            if fullest < BUSY {
                // Many lanes take long to look at: a pass may take a tenth of the time at most.
                std::thread::sleep(wait.max((began.elapsed() * 9).min(LONGEST * 4)));
            }
        }
        self.report.clock_error_ns = self.shared.clock.error_ns();
        for reader in std::mem::take(&mut self.readers) {
            self.add_up(&reader);
        }
        let spoken = self.frames.tally();
        add_up(&mut self.report, &spoken);
        self.report
    }

    /// Whether nothing more is waited for: who speaks in frames has a moment to send what it still has.
    fn is_done(&mut self, farewell: &mut Option<Instant>) -> bool {
        let since = *farewell.get_or_insert_with(|| {
            self.frames.ask_for_the_rest();
            Instant::now()
        });
        self.frames.is_silent() || since.elapsed() >= FAREWELL
    }

    fn greet(&mut self, peer: Peer) {
        match peer {
            Peer::Segment(reader) => self.readers.push(*reader),
            Peer::Frames(newcomer) => self.frames.begin(newcomer, &self.shared),
        }
    }

    fn wait_for_newcomers(&mut self) {
        match self.newcomers.recv_timeout(IDLE) {
            Ok(peer) => self.greet(peer),
            Err(RecvTimeoutError::Timeout) => {}
            // Handshakes are over: the end is near.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(SHORTEST),
        }
    }

    fn pass(&mut self, last: bool) -> Result<u64, Gone> {
        self.shared.now = monotonic_ns();
        if let LaneClock::Ticks(line) = &mut self.shared.clock
            && line.age_ns(self.shared.now) >= POINT_EVERY
        {
            line.add(point());
        }
        while let Ok(peer) = self.newcomers.try_recv() {
            self.greet(peer);
        }
        if let Some((generation, off)) = self.off.since(self.off_seen) {
            self.off_seen = generation;
            self.shared.off = off;
            self.readers
                .iter()
                .for_each(|reader| reader.obey(&self.shared));
        }
        let session = &self.session;
        let mut give = |input| session.send((Feed::Probes, input)).is_ok();
        let mut fullest = 0;
        for reader in &mut self.readers {
            fullest = fullest.max(reader.pass(&mut self.shared, &mut give)?);
            if !last {
                reader.make_room();
            }
        }
        if self.frames.pass(&mut self.shared, &mut give)? {
            fullest = 256;
        }
        if last {
            self.frames.end(&mut self.shared, &mut give)?;
        }
        if last || self.counted.elapsed() >= COUNT_EVERY {
            self.counted = Instant::now();
            self.count()?;
        }
        let lag = if last || self.frames.is_silent() {
            0
        } else {
            LAG
        };
        self.send(Input::Drained(MonoTime(
            self.shared.now.saturating_sub(lag),
        )))?;
        Ok(fullest)
    }

    /// Counters: of calls, of losses; and which segments are over.
    fn count(&mut self) -> Result<(), Gone> {
        let session = &self.session;
        let mut give = |input| session.send((Feed::Probes, input)).is_ok();
        for reader in &mut self.readers {
            reader.counts(&mut self.shared, &mut give)?;
            reader.losses(&mut self.shared, &mut give)?;
        }
        self.tell_losses()?;
        let over: Vec<Reader> = self
            .readers
            .extract_if(.., |reader| reader.is_over())
            .collect();
        over.iter().for_each(|reader| self.add_up(reader));
        Ok(())
    }

    fn tell_losses(&mut self) -> Result<(), Gone> {
        let spoken = self.frames.tally();
        let sum = |of: fn(&Reader) -> u64| {
            self.readers
                .iter()
                .fold(0u64, |sum, reader| sum.saturating_add(of(reader)))
        };
        let whole = [
            (
                LossClass::Enter,
                sum(|reader| reader.tally.lost_calls)
                    .saturating_add(self.report.lost_calls)
                    .saturating_add(spoken.lost_calls),
            ),
            (
                LossClass::Exit,
                sum(|reader| reader.tally.lost_events)
                    .saturating_add(self.report.lost_events)
                    .saturating_add(spoken.lost_events),
            ),
        ];
        let mut losses: Vec<Loss> = whole
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(class, count)| Loss {
                class,
                cpu: None,
                func: None,
                count,
            })
            .collect();
        losses.extend(self.shared.functions.lost().map(|(func, count)| Loss {
            class: LossClass::Enter,
            cpu: None,
            func: Some(func),
            count,
        }));
        if losses.is_empty() || losses == self.told_losses {
            return Ok(());
        }
        self.told_losses.clone_from(&losses);
        self.send(Input::Losses(losses))
    }

    fn add_up(&mut self, reader: &Reader) {
        let report = &mut self.report;
        report.segments += 1;
        add_up(report, &reader.tally);
        let (functions, names) = reader.refusals();
        report.refused.0 = report.refused.0.saturating_add(functions);
        report.refused.1 = report.refused.1.saturating_add(names);
    }

    fn send(&self, input: Input) -> Result<(), Gone> {
        self.session
            .send((Feed::Probes, input))
            .map_err(|_gone| Gone)
    }
}

fn add_up(report: &mut ProbeReport, tally: &Tally) {
    report.events += tally.events;
    report.lost_calls = report.lost_calls.saturating_add(tally.lost_calls);
    report.lost_events = report.lost_events.saturating_add(tally.lost_events);
    report.faults += tally.faults;
    report.strangers += tally.strangers;
    report.late += tally.late;
}

/// `CLOCK_MONOTONIC` in ns.
pub(super) fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Both clocks at one moment: the closest of a few tries.
fn point() -> Point {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..5 {
        let before = time_stamp_counter();
        let ns = monotonic_ns();
        let after = time_stamp_counter();
        let width = after.wrapping_sub(before);
        if width < best.0 {
            best = (width, before.wrapping_add(width / 2), ns);
        }
    }
    let (width, ticks, ns) = best;
    Point {
        ticks,
        ns,
        error_ticks: width / 2,
    }
}

/// The clock for lanes: the counter where the kernel itself trusts it, else `CLOCK_MONOTONIC`.
pub(super) fn lane_clock() -> LaneClock {
    if !counter_is_steady() {
        return LaneClock::Monotonic;
    }
    let first = point();
    std::thread::sleep(Duration::from_millis(2));
    LaneClock::Ticks(Line::through(first, point()))
}

/// Whether the time-stamp counter runs at one rate on all processors, asleep or not.
fn counter_is_steady() -> bool {
    if cfg!(not(target_arch = "x86_64")) {
        return false;
    }
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info
        .lines()
        .find(|line| line.starts_with("flags"))
        .unwrap_or_default();
    let has = |flag: &str| flags.split_ascii_whitespace().any(|word| word == flag);
    let source = std::fs::read_to_string(
        "/sys/devices/system/clocksource/clocksource0/available_clocksource",
    );
    // The kernel strikes a counter that it found to be unstable off this list.
    has("constant_tsc") && has("nonstop_tsc") && source.is_ok_and(|list| list.contains("tsc"))
}

/// Source of a HELLO, if a probe may have it.
pub(super) fn probe_source(number: u8) -> Option<Source> {
    Source::from_u8(number).filter(|&source| super::names::is_probe(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The waits of a thread that writes so much of a lane (of 256) a millisecond, from the shortest on.
    fn waits(a_millisecond: f64) -> Vec<Duration> {
        let mut waits = vec![SHORTEST];
        for _ in 0..20 {
            let last = *waits.last().unwrap();
            let fullest = (a_millisecond * last.as_secs_f64() * 1000.0).min(256.0);
            waits.push(next_wait(last, fullest as u64, LONGEST));
        }
        waits
    }

    #[test]
    fn who_writes_little_is_looked_at_seldom_and_no_lane_gets_half_full() {
        assert_eq!(waits(0.0).last(), Some(&LONGEST));
        assert_eq!(waits(1.0).last(), Some(&LONGEST));
        // A lane that is full after 8 ms.
        for a_millisecond in [2.0, 8.0, 16.0, 32.0] {
            for wait in waits(a_millisecond) {
                let full = a_millisecond * wait.as_secs_f64() * 1000.0;
                assert!(full < f64::from(COMFORTABLE * 2), "{full} after {wait:?}");
            }
        }
        assert_eq!(waits(256.0).last(), Some(&SHORTEST));
    }

    #[test]
    fn a_burst_is_followed_at_once() {
        assert_eq!(next_wait(LONGEST, 255, LONGEST), SHORTEST);
        assert_eq!(next_wait(LONGEST, u64::MAX, LONGEST), SHORTEST);
        assert_eq!(next_wait(IDLE, 0, IDLE), IDLE);
    }
}
