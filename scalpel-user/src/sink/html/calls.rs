//! Single calls as columns, each thread's in order of their starts: what the page's timeline draws.
//!
//! A page takes a million of them; of more it has the earliest, and says how many it left out.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::json;

use super::column::{Column, block};
use crate::event::MonoTime;
use crate::sink::export::calls::{End, Moment, Start, ThreadKey, What};
use crate::tree::Thread;

/// Most calls in a page: what a browser opens within seconds.
pub const MOST_CALLS: usize = 1_000_000;

/// What is not plain about a call, by its number in the page.
const STATES: [&str; 9] = [
    "",
    "entry only",
    "unwound",
    "end lost",
    "suspended",
    "thread ended",
    "still open",
    "began earlier",
    "events lost here",
];

/// A call in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
    depth: u32,
    func: u32,
    state: u8,
}

/// Calls on their way into a page.
#[derive(Debug)]
pub struct Calls {
    started: MonoTime,
    part: (u64, u64),
    most: usize,
    threads: BTreeMap<ThreadKey, Track>,
    taken: usize,
    left_out: u64,
}

/// The calls of one thread.
#[derive(Debug, Default)]
struct Track {
    spans: Vec<Span>,
    /// The open calls by their place in `spans`; `None` = left out.
    open: Vec<Option<usize>>,
}

impl Calls {
    /// Calls of a recording that began at `started`; `part` is what goes out of it, in ns after that.
    pub fn new(started: MonoTime, part: (u64, u64), most: usize) -> Self {
        Self {
            started,
            part,
            most,
            threads: BTreeMap::new(),
            taken: 0,
            left_out: 0,
        }
    }

    /// Takes a moment of a thread's track.
    pub fn moment(&mut self, moment: &Moment) {
        let time = moment.time.0.saturating_sub(self.started.0);
        match moment.what {
            What::Begin { func, start, .. } => {
                let state = match start {
                    Start::Entered | Start::Resumed => 0,
                    Start::Earlier => 7,
                };
                let place = self.span(moment.thread, time, func, state);
                self.track(moment.thread).open.push(place);
            }
            What::Entry { func, .. } => drop(self.span(moment.thread, time, func, 1)),
            What::Lost(_) => drop(self.span(moment.thread, time, 0, 8)),
            What::End { end, .. } => self.end(moment.thread, time, end),
        }
    }

    fn track(&mut self, thread: ThreadKey) -> &mut Track {
        self.threads.entry(thread).or_default()
    }

    fn span(&mut self, thread: ThreadKey, start: u64, func: u32, state: u8) -> Option<usize> {
        if self.taken >= self.most {
            self.left_out += 1;
            return None;
        }
        self.taken += 1;
        let track = self.track(thread);
        let depth = track.open.len() as u32;
        track.spans.push(Span {
            start,
            end: start,
            depth,
            func,
            state,
        });
        Some(track.spans.len() - 1)
    }

    fn end(&mut self, thread: ThreadKey, time: u64, end: End) {
        let track = self.track(thread);
        let Some(Some(place)) = track.open.pop() else {
            return;
        };
        if let Some(span) = track.spans.get_mut(place) {
            span.end = time;
            span.state = match end {
                End::Returned => span.state,
                End::Unwound => 2,
                End::Lost => 3,
                End::Suspended => 4,
                End::ThreadEnded => 5,
                End::Open => 6,
            };
        }
    }

    /// Calls that found no room.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Writes the columns. Threads are told by their place among `threads`; calls of others are counted as left out.
    pub(super) fn write(&self, threads: &[Thread], out: &mut dyn Write) -> io::Result<()> {
        let mut columns = Columns::default();
        let mut tracks = Vec::new();
        let mut left_out = self.left_out;
        for (key, track) in &self.threads {
            let place = threads
                .iter()
                .position(|thread| (thread.pid.0, thread.tid.0) == *key);
            let Some(thread) = place else {
                left_out += track.spans.len() as u64;
                continue;
            };
            let (first, count) = (columns.count, track.spans.len());
            tracks.push(json!({ "thread": thread, "first": first, "count": count }));
            track.spans.iter().for_each(|span| columns.push(span));
        }
        columns.write(out)?;
        let about = json!({
            "states": STATES, "threads": tracks, "left_out": left_out,
            "from_ns": self.part.0, "to_ns": self.part.1,
        });
        block("calls.about", 1, &serde_json::to_vec(&about)?, out)
    }
}

#[derive(Default)]
struct Columns {
    count: usize,
    start: Column,
    length: Column,
    depth: Column,
    func: Column,
    state: Column,
}

impl Columns {
    fn push(&mut self, span: &Span) {
        self.count += 1;
        self.start.push_near(span.start);
        self.length.push(span.end.saturating_sub(span.start));
        self.depth.push_near(u64::from(span.depth));
        self.func.push(u64::from(span.func));
        self.state.push(u64::from(span.state));
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.start.write("calls.start", out)?;
        self.length.write("calls.length", out)?;
        self.depth.write("calls.depth", out)?;
        self.func.write("calls.func", out)?;
        self.state.write("calls.state", out)
    }
}

#[cfg(test)]
mod tests {
    use super::{Calls, Span};
    use crate::event::MonoTime;
    use crate::sink::export::calls::{End, Moment, Start, What};

    fn calls(most: usize, whats: &[(u64, What)]) -> Calls {
        let mut calls = Calls::new(MonoTime(100), (0, u64::MAX), most);
        for &(time, what) in whats {
            calls.moment(&Moment {
                time: MonoTime(100 + time),
                thread: (1, 2),
                what,
            });
        }
        calls
    }

    const fn begin(func: u32) -> What {
        What::Begin {
            func,
            calls: 1,
            start: Start::Entered,
        }
    }

    const fn end(func: u32, end: End) -> What {
        What::End { func, end }
    }

    fn spans(calls: &Calls) -> Vec<(u64, u64, u32, u32, u8)> {
        let spans = calls.threads.get(&(1, 2)).unwrap().spans.iter();
        spans
            .map(
                |&Span {
                     start,
                     end,
                     depth,
                     func,
                     state,
                 }| (start, end, depth, func, state),
            )
            .collect()
    }

    #[test]
    fn calls_lie_in_their_callers_and_say_how_they_ended() {
        let calls = calls(
            9,
            &[
                (0, begin(1)),
                (2, begin(2)),
                (3, What::Lost(7)),
                (5, end(2, End::Lost)),
                (6, What::Entry { func: 3, calls: 1 }),
                (9, end(1, End::Returned)),
            ],
        );
        assert_eq!(
            spans(&calls),
            [
                (0, 9, 0, 1, 0),
                (2, 5, 1, 2, 3),
                (3, 3, 2, 0, 8),
                (6, 6, 1, 3, 1)
            ]
        );
    }

    #[test]
    fn what_a_page_cannot_hold_is_counted_and_leaves_the_rest_in_order() {
        let calls = calls(
            1,
            &[
                (0, begin(1)),
                (1, begin(2)),
                (2, begin(3)),
                (3, end(3, End::Returned)),
                (4, end(2, End::Returned)),
                (5, end(1, End::Returned)),
            ],
        );
        assert_eq!(spans(&calls), [(0, 5, 0, 1, 0)]);
        assert_eq!(calls.left_out, 2);
    }
}
