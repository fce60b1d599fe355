//! One stream with one sequence: sorted, checked for gaps, released up to a time.

use super::{Release, Released, Stream};
use crate::event::{Event, MonoTime, Pid, Tid};

#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) stream: Stream,
    next: Next,
    /// Time of the last released event, or of the boundary since.
    released_to: u64,
    /// What has arrived; `..ready` is released next, in this order.
    pending: Vec<Event>,
    /// Whether `pending` is in order, without gaps, as it arrived.
    in_order: bool,
    ready: usize,
    /// Earliest time of what would be ready but for an event before it that is not certain yet.
    held_from: Option<u64>,
    released: usize,
    /// Losses before the ready event of that position, in reverse.
    gaps: Vec<(usize, u32)>,
}

/// Which sequence number comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// A new thread's first.
    First,
    /// This one.
    Number(u32),
    /// Not known: whatever comes is no loss.
    Any,
}

/// Kernel threads' sequences begin here: the counter is advanced before it is used.
const FIRST_SEQ: u32 = 1;

/// From here on a distance between sequence numbers means "behind", not "far ahead".
const BEHIND: u32 = 1 << 31;

impl Lane {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            next: Next::First,
            released_to: 0,
            pending: Vec::new(),
            in_order: true,
            ready: 0,
            held_from: None,
            released: 0,
            gaps: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, events: &[Event]) {
        let last = self.pending.last();
        self.in_order = self.in_order
            && last
                .zip(events.first())
                .is_none_or(|(last, first)| follows(last, first))
            && events.is_sorted_by(follows);
        self.pending.extend_from_slice(events);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn begin_anew(&mut self, time: MonoTime) {
        self.next = Next::First;
        self.released_to = time.0;
    }

    pub(super) fn expect_anything(&mut self) {
        self.next = Next::Any;
    }

    /// Where the sequence begins again without a word of it: the end of the old thread was lost.
    pub(super) fn restart(&self, until: MonoTime) -> Option<MonoTime> {
        if self.is_as_expected() {
            return None;
        }
        // Nothing came before a new thread's first number: there is nothing to begin again.
        let Next::Number(expected) = self.next else {
            return None;
        };
        let again = |event: &&Event| {
            distance(expected, event) >= BEHIND
                && event.time > self.released_to
                && event.time <= until.0
        };
        self.pending
            .iter()
            .filter(again)
            .map(|event| MonoTime(event.time))
            .min()
    }

    fn is_as_expected(&self) -> bool {
        self.in_order
            && self
                .pending
                .first()
                .is_none_or(|first| self.known_next().is_none_or(|next| next == first.seq))
    }

    fn known_next(&self) -> Option<u32> {
        match self.next {
            Next::Number(next) => Some(next),
            // Of probes the collector's own numbers, which go on over ends of threads.
            Next::First if self.stream != Stream::Probes => Some(FIRST_SEQ),
            Next::First | Next::Any => None,
        }
    }

    /// Finds what can be released up to `until`. At a boundary, what is later belongs to another thread.
    /// Returns how many events were too late and are gone.
    pub(super) fn prepare(&mut self, until: MonoTime, at_boundary: bool) -> u64 {
        self.released = 0;
        self.held_from = None;
        self.gaps.clear();
        if self.is_as_expected() {
            self.ready = self.pending.partition_point(|event| event.time <= until.0);
            return 0;
        }
        self.prepare_slowly(until, at_boundary)
    }

    fn prepare_slowly(&mut self, until: MonoTime, at_boundary: bool) -> u64 {
        let base = self.base();
        let (mut ready, mut rest): (Vec<_>, Vec<_>) = self
            .pending
            .drain(..)
            .partition(|event| event.time <= until.0);
        let arrived = ready.len();
        ready.retain(|event| distance(base, event) < BEHIND);
        let late = (arrived - ready.len()) as u64;
        ready.sort_by_key(|event| (distance(base, event), event.time));
        if !at_boundary {
            hold_back(&mut ready, &mut rest, base);
            let held = rest.iter().map(|event| event.time);
            self.held_from = held.filter(|time| *time <= until.0).min();
        }
        rest.sort_by_key(|event| event.time);
        self.ready = ready.len();
        self.pending = ready;
        self.find_gaps();
        self.pending.append(&mut rest);
        self.in_order = self
            .pending
            .get(self.ready..)
            .unwrap_or_default()
            .is_sorted_by(follows);
        late
    }

    /// What distances are measured from: the next number, or one well before the earliest event.
    fn base(&self) -> u32 {
        let earliest = self.pending.iter().min_by_key(|event| event.time);
        self.known_next().unwrap_or_else(|| {
            earliest
                .map_or(0, |event| event.seq)
                .wrapping_sub(BEHIND / 2)
        })
    }

    fn find_gaps(&mut self) {
        let mut expected = self.known_next();
        for (position, event) in self.pending.iter().enumerate() {
            match expected.map_or(0, |expected| distance(expected, event)) {
                0 => {}
                lost if lost < BEHIND => self.gaps.push((position, lost)),
                _ => {}
            }
            expected = Some(event.seq.wrapping_add(1));
        }
        self.gaps.reverse();
    }

    /// Earliest time of what is held back.
    pub(super) const fn held_from(&self) -> Option<u64> {
        self.held_from
    }

    /// What another stream of the thread holds back came first: from its time on this one waits too.
    pub(super) fn wait_from(&mut self, time: u64) {
        let ready = self.pending.get(..self.ready).unwrap_or_default();
        let certain = ready.iter().take_while(|event| event.time < time).count();
        if certain < self.ready {
            self.ready = certain;
            self.in_order = false;
            self.gaps.retain(|(position, _)| *position < certain);
        }
    }

    /// Time of the next event to release.
    pub(super) fn next_time(&self) -> Option<u64> {
        (self.released < self.ready)
            .then(|| self.pending.get(self.released).map(|event| event.time))
            .flatten()
    }

    /// Releases the next events up to the time `bound`, at least one, and the gap before them.
    pub(super) fn release_run(
        &mut self,
        bound: u64,
        pid: Pid,
        tid: Tid,
        release: &mut Release<'_>,
    ) {
        if let Some((_, lost)) = self.gaps.pop_if(|(position, _)| *position == self.released) {
            release(Released::Gap {
                pid,
                tid,
                lost: u64::from(lost),
                stream: self.stream,
            });
        }
        let end = self
            .gaps
            .last()
            .map_or(self.ready, |&(position, _)| position);
        let Some(run) = self.pending.get(self.released..end) else {
            return;
        };
        let length = if bound == u64::MAX {
            run.len()
        } else {
            run.iter().take_while(|e| e.time <= bound).count()
        };
        let run = run.get(..length.max(1)).unwrap_or(run);
        let Some(last) = run.last() else { return };
        self.next = Next::Number(last.seq.wrapping_add(1));
        self.released_to = self.released_to.max(last.time);
        self.released += run.len();
        release(Released::Events(run));
    }

    pub(super) fn drop_released(&mut self) {
        if self.released == self.pending.len() {
            self.pending.clear();
            self.in_order = true;
        } else {
            self.pending.drain(..self.released);
        }
        self.ready = 0;
        self.released = 0;
    }
}

/// Events after one that is not certain yet wait with it.
fn hold_back(ready: &mut Vec<Event>, rest: &mut Vec<Event>, base: u32) {
    let first_held = rest
        .iter()
        .map(|event| distance(base, event))
        .filter(|&distance| distance < BEHIND)
        .min();
    if let Some(first_held) = first_held {
        let certain = ready.partition_point(|event| distance(base, event) < first_held);
        rest.extend(ready.drain(certain..));
    }
}

const fn distance(expected: u32, event: &Event) -> u32 {
    event.seq.wrapping_sub(expected)
}

const fn follows(a: &Event, b: &Event) -> bool {
    b.seq == a.seq.wrapping_add(1) && b.time >= a.time
}
