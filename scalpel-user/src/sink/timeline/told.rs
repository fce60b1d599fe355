//! Lines between the calls: what was lost, and what somebody has to say.

use std::io;

use super::leaves::Item;
use super::{Line, Pen, Thread, Timeline};
use crate::event::{MonoTime, Pid, Tid};

impl Timeline {
    /// Something to be said between the calls of a thread.
    pub fn note(&mut self, time: MonoTime, pid: Pid, tid: Tid, text: String) {
        let note = Item::Note {
            time,
            pid,
            tid,
            text,
        };
        self.push(note, pid, Some(tid));
    }

    pub(super) fn lost(
        &mut self,
        time: u64,
        thread: Thread,
        lost: u64,
        pen: &mut Pen<'_>,
    ) -> io::Result<()> {
        let stack = self.threads.entry(thread).or_default();
        stack.iter_mut().for_each(|open| open.gap = true);
        self.say(time, thread, &format!("[lost {lost}]"), pen)
    }

    /// A line of its own inside what is open.
    pub(super) fn say(
        &mut self,
        time: u64,
        thread: Thread,
        mark: &str,
        pen: &mut Pen<'_>,
    ) -> io::Result<()> {
        let innermost = self.threads.get(&thread).and_then(|stack| stack.last());
        let level = innermost
            .and_then(|open| open.level)
            .map_or(0, |level| level + 1);
        let Some(level) = self.shown(Some(level), time) else {
            return Ok(());
        };
        self.line(
            time,
            thread,
            &Line {
                level,
                mark,
                ..Line::default()
            },
            pen,
        )
    }
}
