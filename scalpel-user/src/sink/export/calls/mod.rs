//! Single calls for formats with a time line. On each thread's track every beginning gets its end, whatever the stream lost.
//!
//! An end that nobody saw is made, where it must have been at the latest, and says so. Fed with events in order per thread;
//! keeps nothing but the calls that are open.

pub mod chrome;
pub mod evented;
pub mod perfetto;
mod thread;

use std::io;

use rustc_hash::FxHashMap;

use crate::event::{Event, MonoTime, Pid, Tid};
use thread::Thread;

/// Process and thread, by their numbers.
pub type ThreadKey = (u32, u32);

/// Which part of a stream goes out.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Not before.
    pub from: MonoTime,
    /// Not after.
    pub to: MonoTime,
    /// Only this thread.
    pub tid: Option<Tid>,
}

/// Something at one moment of a track. Times of a track never go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub time: MonoTime,
    /// Track.
    pub thread: ThreadKey,
    /// What.
    pub what: What,
}

/// What happens to calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A call begins, inside what is open.
    Begin {
        /// Function's number.
        func: u32,
        /// Calls that it stands for: more than 1 of a thinned probe, 0 of a call that only goes on.
        calls: u64,
        /// How.
        start: Start,
    },
    /// The innermost call ends.
    End {
        /// Function's number.
        func: u32,
        /// How.
        end: End,
    },
    /// A call of which only the entry is seen.
    Entry {
        /// Function's number.
        func: u32,
        /// Calls that it stands for.
        calls: u64,
    },
    /// So many events are missing here.
    Lost(u64),
}

/// How a call begins on its track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It was entered.
    Entered,
    /// It goes on after a suspension.
    Resumed,
    /// It began before the part that goes out.
    Earlier,
}

impl Start {
    /// A word for what is not plain.
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::Entered => None,
            Self::Resumed => Some("resumed"),
            Self::Earlier => Some("began earlier"),
        }
    }
}

/// How a call ends on its track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It returned.
    Returned,
    /// An exception or a jump passed it.
    Unwound,
    /// Its end may be among lost events: the end is made.
    Lost,
    /// It is suspended.
    Suspended,
    /// Its thread ended first.
    ThreadEnded,
    /// It goes on after the part that goes out, or after the recording.
    Open,
}

impl End {
    /// A word for what is not plain.
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::Returned => None,
            Self::Unwound => Some("unwound"),
            Self::Lost => Some("lost"),
            Self::Suspended => Some("suspended"),
            Self::ThreadEnded => Some("thread ended"),
            Self::Open => Some("still open"),
        }
    }
}

/// Where moments go.
pub type Out<'a> = dyn FnMut(Moment) -> io::Result<()> + 'a;

/// The tracks of all threads.
#[derive(Debug)]
pub struct Tracks {
    part: Part,
    threads: FxHashMap<ThreadKey, Thread>,
    strays: u64,
}

impl Tracks {
    /// Nothing open yet.
    pub fn new(part: Part) -> Self {
        Self {
            part,
            threads: FxHashMap::default(),
            strays: 0,
        }
    }

    /// Takes events, in order per thread.
    pub fn events(&mut self, events: &[Event], out: &mut Out<'_>) -> io::Result<()> {
        for event in events {
            let key = (event.pid, event.tid);
            if self.is_wanted(key) {
                let thread = self.thread(key);
                let is_stray = thread.event(event, out)?;
                self.strays += u64::from(is_stray);
            }
        }
        Ok(())
    }

    /// Events of this thread are missing between those taken before and those to come.
    pub fn gap(&mut self, pid: Pid, tid: Tid, lost: u64) {
        let key = (pid.0, tid.0);
        if self.is_wanted(key) {
            self.thread(key).gap(lost);
        }
    }

    /// The thread ended; without `tid` the whole process began anew (exec).
    pub fn ended(
        &mut self,
        time: MonoTime,
        pid: Pid,
        tid: Option<Tid>,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let of = |key: ThreadKey| key.0 == pid.0 && tid.is_none_or(|tid| tid.0 == key.1);
        self.close(of, time, End::ThreadEnded, out)
    }

    /// Nothing comes any more: what is open ends with the recording.
    pub fn finish(&mut self, end: MonoTime, out: &mut Out<'_>) -> io::Result<()> {
        self.close(|_| true, end, End::Open, out)
    }

    /// Ends whose beginning was not seen: no format has room for them.
    pub const fn strays(&self) -> u64 {
        self.strays
    }

    /// A thread's track stays: a later thread of its number goes on where it ended.
    fn close(
        &mut self,
        whose: impl Fn(ThreadKey) -> bool,
        time: MonoTime,
        how: End,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let mut threads: Vec<_> = self.threads.iter_mut().collect();
        threads.sort_unstable_by_key(|(key, _)| **key);
        threads
            .into_iter()
            .filter(|(key, _)| whose(**key))
            .try_for_each(|(_, thread)| thread.end(time, how, out))
    }

    fn is_wanted(&self, (_, tid): ThreadKey) -> bool {
        self.part.tid.is_none_or(|wanted| wanted.0 == tid)
    }

    fn thread(&mut self, key: ThreadKey) -> &mut Thread {
        let part = self.part;
        self.threads
            .entry(key)
            .or_insert_with(|| Thread::new(key, part))
    }
}

#[cfg(test)]
mod tests;
