//! One thread drains all rings and sends the session its inputs.
//!
//! A pass reads the clock, then the producers' position of every ring, then everything up to there. An event is
//! reserved before it is stamped: one that was stamped before the clock read lies before those positions. So after a
//! pass that met no unfinished record, nothing older than the clock read can still come, however busy the producers
//! are, and `Input::Drained` says so.
//!
//! The channel is bounded: a session that is behind makes this thread wait, the rings fill, and the programs count what
//! they lose. Nothing blocks the target. This room must not know other stages: how samples and control records are
//! decoded is handed in.

mod reader;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use self::reader::{Pass, Reader};
use super::error::KernelError;
use super::lease::now;
use super::load::Kernel;
use super::losses::LossCounters;
use super::process::Mappings;
use crate::event::{Control, EVENT_SIZE, Event, MonoTime, Pid, Sample};
use crate::input::{Feed, Input};

/// Events go to the session in batches of at most so many.
const BATCH: usize = 4096;

/// A ring that holds more than this part of its size after a pass is drained again at once.
const BUSY_PART: u64 = 8;

/// How long a quiet thread waits between two passes. It bounds how late an event is seen, and how many wake-ups an idle
/// recording costs; a ring that fills faster wakes the thread at its threshold.
const INTERVAL: Duration = Duration::from_millis(50);

/// Loss counters are compared this often.
const LOSSES_EVERY: Duration = Duration::from_millis(500);

/// How the bytes of a record become words of the session. `None` = they make no sense; counted.
#[derive(Clone, Copy, Debug)]
pub struct Decoders {
    /// A record of the sample ring.
    pub sample: fn(&[u8]) -> Option<Sample>,
    /// A record of the control ring.
    pub control: fn(&[u8]) -> Option<Control>,
}

/// What the thread can say when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollerReport {
    /// Events sent.
    pub events: u64,
    /// Samples sent.
    pub samples: u64,
    /// Control records sent.
    pub controls: u64,
    /// Records that made no sense.
    pub bad_records: u64,
    /// Passes over all rings.
    pub passes: u64,
    /// Passes that met an unfinished record.
    pub unfinished: u64,
    /// Most bytes that a call ring was seen to hold.
    pub fullest: u64,
    /// Births, programs and mappings that found no room.
    pub side_band_lost: u64,
}

/// The thread. Dropping it ends it.
#[derive(Debug)]
pub struct Poller {
    stop: Arc<AtomicBool>,
    waker: OwnedFd,
    thread: Option<JoinHandle<PollerReport>>,
}

impl Poller {
    /// Starts to drain the rings of `kernel` into `session`. `mappings` adds the mappings of executable files, which do
    /// not come through a BPF ring.
    pub fn start(
        kernel: &mut Kernel,
        mappings: Option<Mappings>,
        decoders: Decoders,
        session: SyncSender<(Feed, Input)>,
    ) -> Result<Self, KernelError> {
        let rings = Rings::map(kernel, mappings)?;
        let losses = LossCounters::map(kernel)?;
        let waker =
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).map_err(ring_error)?;
        let waiter = Waiter::new(&rings, &waker)?;
        let stop = Arc::new(AtomicBool::new(false));
        let pump = Pump {
            rings,
            losses,
            waiter,
            decoders,
            session,
            stop: Arc::clone(&stop),
            report: PollerReport::default(),
            losses_at: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("scalpel-rings".into())
            .spawn(move || pump.run());
        Ok(Self {
            stop,
            waker,
            thread: Some(thread.map_err(KernelError::Thread)?),
        })
    }

    /// Drains once more, sends the last losses and ends. The probes should be detached by then.
    pub fn finish(mut self) -> PollerReport {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<PollerReport> {
        self.stop.store(true, Ordering::Release);
        // If it cannot be woken it wakes by itself after an interval.
        let _woken = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
        self.thread.take()?.join().ok()
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        let _report = self.end();
    }
}

/// All rings of a recording.
struct Rings {
    calls: Vec<Reader>,
    samples: Reader,
    control: Reader,
    mappings: Option<Mappings>,
}

impl Rings {
    fn map(kernel: &mut Kernel, mappings: Option<Mappings>) -> Result<Self, KernelError> {
        let open = |(descriptor, bytes)| Reader::map(descriptor, bytes).map_err(KernelError::Ring);
        let calls = kernel
            .call_ring_descriptors()?
            .into_iter()
            .map(open)
            .collect::<Result<_, _>>()?;
        let samples = open(kernel.ring_descriptor(scalpel_common::kernel::maps::SAMPLE_RING)?)?;
        let control = open(kernel.ring_descriptor(scalpel_common::kernel::maps::CONTROL_RING)?)?;
        Ok(Self {
            calls,
            samples,
            control,
            mappings,
        })
    }
}

/// Sleeps until a ring has something urgent.
struct Waiter {
    epoll: OwnedFd,
}

impl Waiter {
    /// Edge-triggered: a ring with data in it is no event (most records are submitted without a wake-up), a producer's
    /// wake-up is.
    fn new(rings: &Rings, waker: &OwnedFd) -> Result<Self, KernelError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(ring_error)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let readers = rings.calls.iter().chain([&rings.samples, &rings.control]);
        for reader in readers {
            epoll::add(
                &epoll,
                reader.descriptor(),
                epoll::EventData::new_u64(0),
                flags,
            )
            .map_err(ring_error)?;
        }
        epoll::add(&epoll, waker, epoll::EventData::new_u64(0), flags).map_err(ring_error)?;
        Ok(Self { epoll })
    }

    fn wait(&self, timeout: Duration) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(4);
        let timeout = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // A signal or a refusal only makes the pass come earlier.
        let _ready = epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&timeout),
        );
    }
}

/// The thread's body.
struct Pump {
    rings: Rings,
    losses: LossCounters,
    waiter: Waiter,
    decoders: Decoders,
    session: SyncSender<(Feed, Input)>,
    stop: Arc<AtomicBool>,
    report: PollerReport,
    losses_at: Instant,
}

/// The session is gone: there is nobody to read for.
struct SessionGone;

impl Pump {
    fn run(mut self) -> PollerReport {
        loop {
            let last = self.stop.load(Ordering::Acquire);
            let Ok(busy) = self.pass() else { break };
            if self.tell_losses(last).is_err() || last {
                break;
            }
            if !busy {
                self.waiter.wait(INTERVAL);
            }
        }
        if let Some(mappings) = &mut self.rings.mappings {
            mappings.tell_the_rest();
            self.report.side_band_lost = mappings.lost();
        }
        self.report
    }

    /// One pass over all rings; true = there is so much left already that it should be repeated at once.
    fn pass(&mut self) -> Result<bool, SessionGone> {
        let before = MonoTime(now());
        let mut finished = self.control()?;
        let mut busy = false;
        for index in 0..self.rings.calls.len() {
            let Some(reader) = self.rings.calls.get_mut(index) else {
                break;
            };
            let until = reader.reserved();
            self.report.fullest = self.report.fullest.max(reader.pending(until));
            let session = &self.session;
            let (pass, sent, bad) = calls(reader, until, |events| {
                session.send((Feed::Kernel, Input::Events(events))).is_ok()
            });
            self.report.events += sent.ok_or(SessionGone)?;
            self.report.bad_records += bad;
            finished &= pass == Pass::Reached;
            busy |= reader.pending(reader.reserved()) > reader.bytes() / BUSY_PART;
        }
        finished &= self.samples()?;
        self.report.passes += 1;
        self.report.unfinished += u64::from(!finished);
        if finished {
            self.send(Input::Drained(before))?;
        }
        Ok(busy)
    }

    /// Control records first: they are what the session needs to make sense of the rest. Both sources in one order.
    fn control(&mut self) -> Result<bool, SessionGone> {
        let mut found = Vec::new();
        let mut finished = self.read_control(&mut found);
        if let Some(mappings) = &mut self.rings.mappings {
            let (watched, others) = mappings.read();
            found.extend(watched);
            if !others.is_empty() {
                finished = self.read_control(&mut found);
                let last_words = of_ended(others, &found);
                found.extend(last_words);
            }
        }
        found.sort_by_key(Control::time);
        self.report.controls += found.len() as u64;
        found
            .into_iter()
            .try_for_each(|control| self.send(Input::Control(control)))?;
        Ok(finished)
    }

    fn read_control(&mut self, found: &mut Vec<Control>) -> bool {
        let (decode, report) = (self.decoders.control, &mut self.report);
        let until = self.rings.control.reserved();
        let pass = self
            .rings
            .control
            .read(until, |record| match decode(record) {
                Some(control) => found.push(control),
                None => report.bad_records += 1,
            });
        pass == Pass::Reached
    }

    fn samples(&mut self) -> Result<bool, SessionGone> {
        let (decode, report, session) = (self.decoders.sample, &mut self.report, &self.session);
        let mut gone = false;
        let until = self.rings.samples.reserved();
        let pass = self
            .rings
            .samples
            .read(until, |record| match decode(record) {
                Some(sample) => {
                    report.samples += 1;
                    gone |= session.send((Feed::Kernel, Input::Sample(sample))).is_err();
                }
                None => report.bad_records += 1,
            });
        if gone {
            Err(SessionGone)
        } else {
            Ok(pass == Pass::Reached)
        }
    }

    /// Sends the loss counters if they have changed; `last` does not wait for the next time to look.
    fn tell_losses(&mut self, last: bool) -> Result<(), SessionGone> {
        if !last && self.losses_at.elapsed() < LOSSES_EVERY {
            return Ok(());
        }
        self.losses_at = Instant::now();
        let side_band = self.rings.mappings.as_ref().map_or(0, Mappings::lost);
        match self.losses.changed(side_band) {
            Some(losses) => self.send(Input::Losses(losses)),
            None => Ok(()),
        }
    }

    fn send(&self, input: Input) -> Result<(), SessionGone> {
        self.session
            .send((Feed::Kernel, input))
            .map_err(|_gone| SessionGone)
    }
}

/// Reads a call ring up to `until` and gives the events away in batches. Returns how many were sent (`None` = nobody
/// takes them) and how many records were no events.
fn calls(
    reader: &mut Reader,
    until: u64,
    mut give: impl FnMut(Vec<Event>) -> bool,
) -> (Pass, Option<u64>, u64) {
    let expected = (reader.pending(until) / (EVENT_SIZE as u64 + 8)) as usize;
    let mut batch = Vec::with_capacity(expected.min(BATCH));
    let (mut sent, mut bad, mut taken) = (0, 0, true);
    let pass = reader.read(until, |record| {
        let Ok(bytes) = record.try_into() else {
            bad += 1;
            return;
        };
        batch.push(Event::from_bytes(bytes));
        if batch.len() == BATCH {
            sent += BATCH as u64;
            taken &= give(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)));
        }
    });
    sent += batch.len() as u64;
    taken &= batch.is_empty() || give(batch);
    (pass, taken.then_some(sent), bad)
}

/// The mappings of processes whose end is among `found`.
fn of_ended(mappings: Vec<Control>, found: &[Control]) -> Vec<Control> {
    let ended: Vec<_> = found.iter().filter_map(ended_process).collect();
    let belongs =
        |mapping: &Control| matches!(mapping, Control::Map { pid, .. } if ended.contains(pid));
    mappings.into_iter().filter(belongs).collect()
}

fn ended_process(control: &Control) -> Option<Pid> {
    match control {
        Control::Exit {
            pid,
            process_ended: Some(_),
            ..
        } => Some(*pid),
        _ => None,
    }
}

fn ring_error(error: rustix::io::Errno) -> KernelError {
    KernelError::Ring(error.into())
}
