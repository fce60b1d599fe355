//! speedscope's JSON, evented: a profile a thread, each call at its time.
//!
//! speedscope shows nothing of a file in which one end is missing; an end that was made marks its call `[lost]`. A
//! profile's events must be in one place: they are kept until the end, so that whoever calls must bound them.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::{End, Moment, Start, ThreadKey, What};
use crate::event::{FuncId, MonoTime};
use crate::function::FunctionTable;
use crate::sink::export::speedscope;
use crate::sink::text::clean;

/// A function, and what is not plain about its calls.
type Frame = (u32, Option<&'static str>);

/// The profiles that are being made.
#[derive(Debug, Default)]
pub struct Evented {
    threads: BTreeMap<ThreadKey, Profile>,
    frames: Vec<Frame>,
    numbers: FxHashMap<Frame, u32>,
}

#[derive(Debug, Default)]
struct Profile {
    /// Time, frame, whether it opens.
    events: Vec<(MonoTime, u32, bool)>,
    /// Where in `events` the open calls began.
    open: Vec<usize>,
    lost: u64,
}

impl Evented {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a moment.
    pub fn moment(&mut self, moment: &Moment) {
        let time = moment.time;
        match moment.what {
            What::Begin { func, start, .. } => {
                let word = start.word().filter(|_| start != Start::Resumed);
                let frame = self.frame((func, word));
                let profile = self.threads.entry(moment.thread).or_default();
                profile.open.push(profile.events.len());
                profile.events.push((time, frame, true));
            }
            What::End { func, end } => self.end(moment.thread, time, func, end),
            What::Entry { func, .. } => {
                let frame = self.frame((func, None));
                let profile = self.threads.entry(moment.thread).or_default();
                profile.events.push((time, frame, true));
                profile.events.push((time, frame, false));
            }
            What::Lost(lost) => {
                let profile = self.threads.entry(moment.thread).or_default();
                profile.lost = profile.lost.saturating_add(lost);
            }
        }
    }

    /// Both halves of a call carry one frame: what is known at the end only is written at its beginning too.
    fn end(&mut self, thread: ThreadKey, time: MonoTime, func: u32, end: End) {
        let word = end.word().filter(|_| end != End::Suspended);
        let marked = word.map(|word| self.frame((func, Some(word))));
        let Some(profile) = self.threads.get_mut(&thread) else {
            return;
        };
        let Some(begin) = profile.open.pop().and_then(|at| profile.events.get_mut(at)) else {
            return;
        };
        if let Some(marked) = marked {
            begin.1 = marked;
        }
        let frame = begin.1;
        profile.events.push((time, frame, false));
    }

    fn frame(&mut self, frame: Frame) -> u32 {
        let next = self.frames.len() as u32;
        let number = *self.numbers.entry(frame).or_insert(next);
        if number == next {
            self.frames.push(frame);
        }
        number
    }

    /// Writes everything. `name` heads the file, `thread_name` a profile.
    pub fn write(
        &self,
        name: &str,
        start: MonoTime,
        functions: &FunctionTable,
        thread_name: &dyn Fn(ThreadKey) -> String,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        speedscope::head(name, self.longest(), out)?;
        for (at, (thread, profile)) in self.threads.iter().enumerate() {
            if at > 0 {
                write!(out, ",")?;
            }
            let lost = match profile.lost {
                0 => String::new(),
                lost => format!(" [lost {lost}]"),
            };
            let name = format!("{}{lost}", thread_name(*thread));
            profile.write(&name, start, out)?;
        }
        write!(out, "],\"shared\":{{\"frames\":[")?;
        for (at, (func, word)) in self.frames.iter().enumerate() {
            if at > 0 {
                write!(out, ",")?;
            }
            let info = FuncId::new(*func).and_then(|id| functions.get(id));
            let name = info.map_or_else(
                || format!("<function {func}>"),
                |info| clean(&info.name).into(),
            );
            let mark = word.map_or_else(String::new, |word| format!(" [{word}]"));
            speedscope::frame(&format!("{name}{mark}"), info.map(|info| &**info), out)?;
        }
        writeln!(out, "]}}}}")
    }

    /// The profile with the most events is the one that opens.
    fn longest(&self) -> usize {
        let lengths = self.threads.values().map(|profile| profile.events.len());
        let longest = lengths
            .enumerate()
            .max_by_key(|(at, length)| (*length, usize::MAX - at));
        longest.map_or(0, |(at, _)| at)
    }
}

impl Profile {
    fn write(&self, name: &str, start: MonoTime, out: &mut dyn Write) -> io::Result<()> {
        let since = |time: MonoTime| time.0.saturating_sub(start.0);
        let first = self.events.first().map_or(0, |event| since(event.0));
        let last = self.events.last().map_or(0, |event| since(event.0));
        let name = serde_json::json!(name);
        write!(
            out,
            "{{\"type\":\"evented\",\"name\":{name},\"unit\":\"nanoseconds\",\"startValue\":{first},\"endValue\":{last},\"events\":["
        )?;
        for (at, (time, frame, opens)) in self.events.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let kind = if *opens { "O" } else { "C" };
            let time = since(*time);
            write!(
                out,
                "{comma}\n{{\"type\":\"{kind}\",\"frame\":{frame},\"at\":{time}}}"
            )?;
        }
        write!(out, "]}}")
    }
}
