//! One thread's streams: the kernel's and those of in-process probes, merged by time, with samples between.

use super::lane::Lane;
use super::{Release, Released, Stream};
use crate::event::{Event, MonoTime, Pid, Sample, Tid};

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) pid: Pid,
    pub(super) tid: Tid,
    /// One per stream.
    pub(super) lanes: Vec<Lane>,
    pub(super) samples: Vec<Sample>,
    /// Whether the owner's list of threads with something to release has it.
    pub(super) active: bool,
    /// Whether anything was released since it began.
    pub(super) has_run: bool,
}

impl Thread {
    pub(super) fn new(pid: Pid, tid: Tid) -> Self {
        Self {
            pid,
            tid,
            lanes: Vec::new(),
            samples: Vec::new(),
            active: false,
            has_run: false,
        }
    }

    pub(super) fn push(&mut self, stream: Stream, events: &[Event]) {
        match self.lanes.iter_mut().find(|lane| lane.stream == stream) {
            Some(lane) => lane.push(events),
            None => {
                let mut lane = Lane::new(stream);
                lane.push(events);
                self.lanes.push(lane);
            }
        }
    }

    pub(super) fn push_sample(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.lanes.iter().all(Lane::is_empty)
    }

    /// A new thread has the number from `time` on.
    pub(super) fn begin_anew(&mut self, time: MonoTime) {
        self.has_run = false;
        self.lanes.iter_mut().for_each(|lane| lane.begin_anew(time));
    }

    /// After an exec the thread may go on with another one's sequence.
    pub(super) fn expect_anything(&mut self) {
        self.lanes.iter_mut().for_each(Lane::expect_anything);
    }

    /// Releases what is not later than `until`; returns how many events came too late.
    pub(super) fn release(
        &mut self,
        until: MonoTime,
        at_boundary: bool,
        release: &mut Release<'_>,
    ) -> u64 {
        let mut late = 0;
        while let Some(restart) = self
            .lanes
            .iter()
            .filter_map(|lane| lane.restart(until))
            .min()
        {
            late += self.release_part(MonoTime(restart.0 - 1), true, release);
            release(Released::ThreadEnded {
                time: restart,
                pid: self.pid,
                tid: self.tid,
            });
            self.begin_anew(MonoTime(restart.0 - 1));
        }
        late + self.release_part(until, at_boundary, release)
    }

    fn release_part(
        &mut self,
        until: MonoTime,
        at_boundary: bool,
        release: &mut Release<'_>,
    ) -> u64 {
        let late = self
            .lanes
            .iter_mut()
            .map(|lane| lane.prepare(until, at_boundary))
            .sum();
        let held_from = self.lanes.iter().filter_map(Lane::held_from).min();
        if let Some(time) = held_from {
            self.lanes.iter_mut().for_each(|lane| lane.wait_from(time));
        }
        let samples_until = held_from.map_or(until.0, |time| time.saturating_sub(1));
        let samples = self.take_samples(MonoTime(samples_until));
        let mut samples = samples.into_iter().peekable();
        loop {
            let next_sample = samples.peek().map(|sample| sample.event.time);
            match self.next_lane() {
                Some((lane, time, others)) if next_sample.is_none_or(|sample| time <= sample) => {
                    let bound = others.min(next_sample.unwrap_or(u64::MAX));
                    self.has_run = true;
                    let (pid, tid) = (self.pid, self.tid);
                    if let Some(lane) = self.lanes.get_mut(lane) {
                        lane.release_run(bound, pid, tid, release);
                    }
                }
                _ => match samples.next() {
                    Some(sample) => release(Released::Sample(sample)),
                    None => break,
                },
            }
        }
        self.lanes.iter_mut().for_each(Lane::drop_released);
        late
    }

    fn take_samples(&mut self, until: MonoTime) -> Vec<Sample> {
        if self.samples.is_empty() {
            return Vec::new();
        }
        self.samples.sort_by_key(|sample| sample.event.time);
        let ready = self
            .samples
            .partition_point(|sample| sample.event.time <= until.0);
        self.samples.drain(..ready).collect()
    }

    /// The lane whose next event is the earliest, that event's time, and the earliest time of the other lanes.
    fn next_lane(&self) -> Option<(usize, u64, u64)> {
        let mut first: Option<(usize, u64)> = None;
        let mut others = u64::MAX;
        for (index, lane) in self.lanes.iter().enumerate() {
            let Some(time) = lane.next_time() else {
                continue;
            };
            match first {
                Some((_, earliest)) if earliest <= time => others = others.min(time),
                _ => {
                    others = others.min(first.map_or(u64::MAX, |(_, earlier)| earlier));
                    first = Some((index, time));
                }
            }
        }
        first.map(|(index, time)| (index, time, others))
    }
}
