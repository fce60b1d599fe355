//! A model of preempted programs, migrating threads and lost records, as the kernel can make them and this machine
//! cannot: every step of every program and of the poller may be interleaved with every other.

use std::collections::VecDeque;

use super::*;
use crate::event::{Kind, Source};

const CPUS: usize = 3;
const THREADS: usize = 4;
const STEPS: usize = 400;

/// When the poller says "drained".
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// After a pass that found all rings empty at its end: the right one.
    AfterFullDrain,
    /// With every batch.
    OnArrival,
    /// After every pass, even if a ring ended in a record that was still being written.
    DespiteBusyRecords,
}

/// A slot of a ring: empty while its program has not submitted it.
type Slot = Option<Event>;

#[derive(Clone, Copy)]
enum Program {
    Idle,
    HasSeq(u32),
    Reserved {
        seq: u32,
        cpu: usize,
        slot: usize,
    },
    Stamped {
        seq: u32,
        cpu: usize,
        slot: usize,
        time: u64,
    },
    /// A probe within the process has read the clock and not published yet.
    ProbeStamped {
        time: u64,
    },
}

struct Worker {
    tid: u32,
    cpu: usize,
    seq: u32,
    probe_seq: u32,
    /// What its probe has published and nobody has read.
    lane: VecDeque<Event>,
    program: Program,
    /// What truly happened: events, losses (as `None`) and ends.
    truth: Vec<Truth>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Truth {
    Event(u32, u64),
    Probe(u32, u64),
    Lost,
    End,
}

pub(super) struct World {
    random: u64,
    now: u64,
    workers: Vec<Worker>,
    rings: Vec<(usize, VecDeque<Slot>)>,
    controls: VecDeque<Control>,
    /// Clock read of the running pass, the next ring to read, whether all were emptied so far.
    pass: Option<(u64, usize, bool)>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let worker = |tid| Worker {
            tid,
            cpu: 0,
            seq: 0,
            probe_seq: 0,
            lane: VecDeque::new(),
            program: Program::Idle,
            truth: Vec::new(),
        };
        Self {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now: 1,
            workers: (1..=THREADS as u32).map(worker).collect(),
            rings: (0..CPUS).map(|_| (0, VecDeque::new())).collect(),
            controls: VecDeque::new(),
            pass: None,
        }
    }

    fn chance(&mut self, of: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % of
    }

    /// Runs the world against [`Order`] and compares what comes out with what happened.
    pub(super) fn run(mut self, rule: Rule) -> Result<(), String> {
        let mut order = Order::new();
        let mut released: Vec<Vec<Truth>> = vec![Vec::new(); THREADS];
        for _ in 0..STEPS {
            self.now += self.chance(2);
            if self.chance(4) == 0 {
                self.poll(rule, &mut order, &mut released)?;
            } else {
                let worker = self.chance(THREADS as u64) as usize;
                self.step(worker);
            }
        }
        self.come_to_rest();
        while self.pass.is_some()
            || self.rings.iter().any(|(_, ring)| !ring.is_empty())
            || self.workers.iter().any(|worker| !worker.lane.is_empty())
            || !self.controls.is_empty()
        {
            self.poll(rule, &mut order, &mut released)?;
        }
        order.finish(&mut |item| record(&mut released, &item));
        self.compare(&released)
    }

    fn step(&mut self, index: usize) {
        let (now, roll) = (self.now, self.chance(16));
        let worker = &mut self.workers[index];
        worker.program = match worker.program {
            Program::Idle if roll == 0 && worker.seq > 0 => {
                // A new thread gets the number later, never at the same instant.
                let (time, pid, tid) = (MonoTime(now), Pid(1), Tid(worker.tid));
                self.controls.push_back(Control::Exit {
                    time,
                    pid,
                    tid,
                    process_ended: None,
                });
                self.now += 1;
                worker.seq = 0;
                worker.truth.push(Truth::End);
                Program::Idle
            }
            Program::Idle if roll < 6 => {
                worker.cpu = roll as usize % CPUS;
                Program::Idle
            }
            Program::Idle if roll > 12 => {
                self.now += 1;
                Program::ProbeStamped { time: self.now }
            }
            Program::ProbeStamped { time } => {
                worker.probe_seq += 1;
                worker.lane.push_back(Event {
                    time,
                    pid: 1,
                    tid: worker.tid,
                    func: 1,
                    seq: worker.probe_seq,
                    kind: Kind::Enter as u8,
                    source: Source::Python as u8,
                    ..Event::default()
                });
                worker.truth.push(Truth::Probe(worker.probe_seq, time));
                self.now += 1;
                Program::Idle
            }
            Program::Idle => {
                worker.seq += 1;
                Program::HasSeq(worker.seq)
            }
            Program::HasSeq(_) if roll == 0 => {
                worker.truth.push(Truth::Lost);
                Program::Idle
            }
            Program::HasSeq(seq) => {
                let (gone, ring) = &mut self.rings[worker.cpu];
                ring.push_back(None);
                Program::Reserved {
                    seq,
                    cpu: worker.cpu,
                    slot: *gone + ring.len() - 1,
                }
            }
            Program::Reserved { seq, cpu, slot } => Program::Stamped {
                seq,
                cpu,
                slot,
                time: now,
            },
            Program::Stamped {
                seq,
                cpu,
                slot,
                time,
            } => {
                let (kind, source) = (Kind::Enter as u8, Source::Uprobe as u8);
                let event = Event {
                    time,
                    pid: 1,
                    tid: worker.tid,
                    func: 1,
                    seq,
                    kind,
                    source,
                    ..Event::default()
                };
                let (gone, ring) = &mut self.rings[cpu];
                ring[slot - *gone] = Some(event);
                worker.truth.push(Truth::Event(seq, time));
                Program::Idle
            }
        };
    }

    /// Lets every program end.
    fn come_to_rest(&mut self) {
        for index in 0..self.workers.len() {
            while !matches!(self.workers[index].program, Program::Idle) {
                self.step(index);
            }
        }
        self.now += 1;
    }

    /// One step of the poller: read the clock, read one ring, or say that the pass is complete.
    fn poll(
        &mut self,
        rule: Rule,
        order: &mut Order,
        released: &mut [Vec<Truth>],
    ) -> Result<(), String> {
        let Some((clock, ring, emptied)) = self.pass else {
            // Strictly before now: a program that stamps the same ns may still be about to reserve in the model.
            self.pass = Some((self.now - 1, 0, true));
            return Ok(());
        };
        if ring == CPUS {
            self.controls
                .drain(..)
                .for_each(|control| order.control(&control));
            for worker in &mut self.workers {
                order.events(worker.lane.make_contiguous());
                worker.lane.clear();
            }
            self.pass = None;
            if emptied || rule == Rule::DespiteBusyRecords {
                return drain(order, clock, clock, released);
            }
            return Ok(());
        }
        let (gone, slots) = &mut self.rings[ring];
        let written = slots.iter().take_while(|slot| slot.is_some()).count();
        let batch: Vec<Event> = slots.drain(..written).flatten().collect();
        *gone += written;
        self.pass = Some((clock, ring + 1, emptied && slots.is_empty()));
        order.events(&batch);
        if rule == Rule::OnArrival {
            drain(order, u64::MAX, clock, released)
        } else {
            Ok(())
        }
    }

    fn compare(&self, released: &[Vec<Truth>]) -> Result<(), String> {
        for (worker, released) in self.workers.iter().zip(released) {
            let truth = without_trailing_losses(&worker.truth);
            if truth != *released {
                return Err(format!(
                    "thread {}: happened {truth:?}\n released {released:?}",
                    worker.tid
                ));
            }
        }
        Ok(())
    }
}

/// Releases up to `until`; nothing later than the clock read may come out.
fn drain(
    order: &mut Order,
    until: u64,
    clock: u64,
    released: &mut [Vec<Truth>],
) -> Result<(), String> {
    let mut early = None;
    order.drained(MonoTime(until), &mut |item| {
        if let Released::Events(events) = &item {
            early = early.or(events
                .iter()
                .map(|event| event.time)
                .find(|&time| time > clock));
        }
        record(released, &item);
    });
    early.map_or(Ok(()), |time| Err(format!("{time} released at {clock}")))
}

fn record(released: &mut [Vec<Truth>], item: &Released<'_>) {
    match item {
        Released::Events(events) => {
            for event in *events {
                let truth = match Stream::of(event.source) {
                    Stream::Probes => Truth::Probe(event.seq, event.time),
                    _ => Truth::Event(event.seq, event.time),
                };
                released[event.tid as usize - 1].push(truth);
            }
        }
        Released::Gap { tid, lost, .. } => {
            (0..*lost).for_each(|_| released[tid.0 as usize - 1].push(Truth::Lost));
        }
        Released::ThreadEnded { tid, .. } => released[tid.0 as usize - 1].push(Truth::End),
        Released::Sample(_) | Released::Executed { .. } => unreachable!("the model makes none"),
    }
}

/// Losses that no later event of the thread proves can't be known from the sequence; the others are known at that event.
fn without_trailing_losses(truth: &[Truth]) -> Vec<Truth> {
    let (mut known, mut lost) = (Vec::new(), 0);
    for &step in truth {
        match step {
            Truth::Lost => lost += 1,
            Truth::Event(..) => {
                known.extend((0..std::mem::take(&mut lost)).map(|_| Truth::Lost));
                known.push(step);
            }
            Truth::End => {
                lost = 0;
                known.push(step);
            }
            Truth::Probe(..) => known.push(step),
        }
    }
    known
}
