//! Puts each thread's events back in order and finds what is missing. Pure.
//!
//! Events of one thread come through several rings: a thread migrates between processors, and a program that was
//! preempted writes late. So nothing is released on arrival. A program takes its sequence number, reserves its slot
//! and only then reads the clock; hence once *all* rings were drained after a clock read `t`, whatever carries a time
//! of at most `t` has arrived, and so has everything that its thread did before. Only then a missing number is a loss.

mod lane;
mod thread;

use rustc_hash::FxHashMap;
use thread::Thread;

pub use crate::event::Stream;
use crate::event::{Control, Event, MonoTime, Pid, Sample, Tid};

/// What comes out, one thread at a time. Items of one thread are in order; those of different threads are not.
#[derive(Debug, PartialEq)]
pub enum Released<'a> {
    /// Events of one thread, in `seq` order, with nothing missing between them.
    Events(&'a [Event]),
    /// Events of this thread are missing here and cannot come any more.
    Gap {
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// How many.
        lost: u64,
        /// Of which kind.
        stream: Stream,
    },
    /// A sampled stack, at its place in time.
    Sample(Sample),
    /// The thread ended (or its number was given to a new one): later events are another thread's.
    ThreadEnded {
        /// When.
        time: MonoTime,
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
    },
    /// The process replaced its program: none of its calls goes on.
    Executed {
        /// When.
        time: MonoTime,
        /// Process.
        pid: Pid,
    },
}

/// Where released items go.
pub type Release<'a> = dyn FnMut(Released<'_>) + 'a;

/// Holds events back until their place is certain.
#[derive(Clone, Debug, Default)]
pub struct Order {
    threads: Vec<Thread>,
    free: Vec<u32>,
    by_id: FxHashMap<u64, u32>,
    last: Option<(u64, u32)>,
    active: Vec<u32>,
    boundaries: Vec<Boundary>,
    watermark: MonoTime,
    late: u64,
}

/// A point of a thread's (or process's) life at which one stream ends and another begins.
#[derive(Clone, Copy, Debug)]
struct Boundary {
    time: MonoTime,
    pid: Pid,
    /// `None`: an exec, of all threads.
    tid: Option<Tid>,
    /// By an end, not by the birth of the next one.
    is_end: bool,
}

impl Order {
    /// Nothing held.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes events of one ring or lane, in the order they were read from it.
    pub fn events(&mut self, events: &[Event]) {
        let same = |a: &Event, b: &Event| {
            a.tid == b.tid && a.pid == b.pid && Stream::of(a.source) == Stream::of(b.source)
        };
        for run in events.chunk_by(same) {
            if let Some(first) = run.first() {
                self.thread(first.pid, first.tid)
                    .push(Stream::of(first.source), run);
            }
        }
    }

    /// Takes a sampled stack: it is released between the events before and after it in time.
    pub fn sample(&mut self, sample: Sample) {
        self.thread(sample.event.pid, sample.event.tid)
            .push_sample(sample);
    }

    /// Takes note of births, ends and execs.
    pub fn control(&mut self, control: &Control) {
        let boundary = match *control {
            Control::Fork {
                time, child, tid, ..
            } => Boundary {
                time,
                pid: child,
                tid: Some(tid),
                is_end: false,
            },
            Control::Exit { time, pid, tid, .. } => Boundary {
                time,
                pid,
                tid: Some(tid),
                is_end: true,
            },
            Control::Exec { time, pid, .. } => Boundary {
                time,
                pid,
                tid: None,
                is_end: false,
            },
            Control::Map { .. } => return,
        };
        self.boundaries.push(boundary);
    }

    /// All rings and lanes were drained after the clock read `until`: releases what is certain now.
    pub fn drained(&mut self, until: MonoTime, release: &mut Release<'_>) {
        self.watermark = self.watermark.max(until);
        self.cross_boundaries(release);
        for index in std::mem::take(&mut self.active) {
            self.release(index, self.watermark, false, release);
        }
    }

    /// Nothing comes any more: releases everything.
    pub fn finish(&mut self, release: &mut Release<'_>) {
        self.drained(MonoTime(u64::MAX), release);
    }

    /// Events that came after their place was declared empty. They are counted as lost already and are dropped;
    /// more than none means that a drain was declared complete and was not.
    pub fn late(&self) -> u64 {
        self.late
    }

    fn thread(&mut self, pid: u32, tid: u32) -> &mut Thread {
        let index = self.index(pid, tid);
        #[expect(
            clippy::indexing_slicing,
            reason = "`index` gives positions of `threads` only, which never shrinks"
        )]
        let thread = &mut self.threads[index as usize];
        if !thread.active {
            thread.active = true;
            self.active.push(index);
        }
        thread
    }

    fn index(&mut self, pid: u32, tid: u32) -> u32 {
        let id = thread_id(pid, tid);
        if let Some((last, index)) = self.last
            && last == id
        {
            return index;
        }
        let index = match self.by_id.get(&id) {
            Some(&index) => index,
            None => self.insert(Pid(pid), Tid(tid)),
        };
        self.last = Some((id, index));
        index
    }

    fn insert(&mut self, pid: Pid, tid: Tid) -> u32 {
        let index = self.free.pop().unwrap_or(self.threads.len() as u32);
        match self.threads.get_mut(index as usize) {
            // The list of active threads may still hold the number.
            Some(slot) => {
                *slot = Thread {
                    active: slot.active,
                    ..Thread::new(pid, tid)
                }
            }
            None => self.threads.push(Thread::new(pid, tid)),
        }
        self.by_id.insert(thread_id(pid.0, tid.0), index);
        index
    }

    fn cross_boundaries(&mut self, release: &mut Release<'_>) {
        if self.boundaries.is_empty() {
            return;
        }
        let watermark = self.watermark;
        self.boundaries.sort_by_key(|boundary| boundary.time);
        let ready = self
            .boundaries
            .partition_point(|boundary| boundary.time <= watermark);
        for boundary in self.boundaries.drain(..ready).collect::<Vec<_>>() {
            match boundary.tid {
                Some(tid) => self.cross(boundary, tid, release),
                None => self.cross_exec(boundary, release),
            }
        }
    }

    fn cross(&mut self, boundary: Boundary, tid: Tid, release: &mut Release<'_>) {
        let (time, pid) = (boundary.time, boundary.pid);
        let Some(&index) = self.by_id.get(&thread_id(pid.0, tid.0)) else {
            if boundary.is_end {
                release(Released::ThreadEnded { time, pid, tid });
            }
            return;
        };
        self.release(index, time, true, release);
        let Some(thread) = self.threads.get_mut(index as usize) else {
            return;
        };
        if boundary.is_end || thread.has_run {
            release(Released::ThreadEnded { time, pid, tid });
        }
        thread.begin_anew(time);
        if boundary.is_end && thread.is_empty() {
            self.by_id.remove(&thread_id(pid.0, tid.0));
            self.free.push(index);
            self.last = None;
        }
    }

    fn cross_exec(&mut self, boundary: Boundary, release: &mut Release<'_>) {
        for index in 0..self.threads.len() as u32 {
            if self
                .threads
                .get(index as usize)
                .is_some_and(|thread| thread.pid == boundary.pid)
            {
                self.release(index, boundary.time, true, release);
                self.threads
                    .get_mut(index as usize)
                    .into_iter()
                    .for_each(Thread::expect_anything);
            }
        }
        release(Released::Executed {
            time: boundary.time,
            pid: boundary.pid,
        });
    }

    /// Releases a thread's events up to `until`; it stays active if some are left.
    fn release(
        &mut self,
        index: u32,
        until: MonoTime,
        at_boundary: bool,
        release: &mut Release<'_>,
    ) {
        let Some(thread) = self.threads.get_mut(index as usize) else {
            return;
        };
        self.late += thread.release(until, at_boundary, release);
        if !at_boundary {
            thread.active = !thread.is_empty();
            if thread.active {
                self.active.push(index);
            }
        }
    }
}

const fn thread_id(pid: u32, tid: u32) -> u64 {
    (pid as u64) << 32 | tid as u64
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
