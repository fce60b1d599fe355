//! Single calls of a stream: it is read once, and who looks on sees each moment of the part that is wanted.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use crate::event::MonoTime;
use crate::function::FunctionTable;
use crate::input::{Input, RunInfo};
use crate::log::{Ending, Reader};
use crate::order::{Order, Released, Stream};
use crate::output::Output;
use crate::plan::CallsPart;
use crate::sink::export::calls::{Moment, Part, Tracks};

/// What a reading comes upon.
pub(super) enum Seen<'a> {
    /// A moment of the part that goes out.
    Moment(&'a Moment),
    /// Any input, before what it leads to.
    Input(&'a Input),
    /// Events of a thread are missing, anywhere in the recording.
    Gap(u64),
}

/// Who looks on, with the functions that are defined so far.
pub(super) type Take<'a> = dyn FnMut(Seen<'_>, &FunctionTable) -> io::Result<()> + 'a;

/// What is known after a reading.
pub(super) struct Passage {
    pub(super) run: Option<RunInfo>,
    pub(super) functions: FunctionTable,
    pub(super) strays: u64,
    pub(super) ending: Ending,
}

/// Reads the stream once.
pub(super) fn pass(
    path: &Path,
    calls: CallsPart,
    what: &'static str,
    output: &Output,
    take: &mut Take<'_>,
) -> anyhow::Result<Passage> {
    let file = File::open(path)?;
    let bar = output.progress(what, file.metadata()?.len());
    let file = BufReader::with_capacity(1 << 18, bar.wrap_read(file));
    let mut reader = Reader::new(file, path)?;
    let mut reading = Reading::new(calls);
    for input in reader.by_ref() {
        take(Seen::Input(&input), &reading.functions)?;
        reading.input(input, take)?;
    }
    reading.finish(take)?;
    bar.finish_and_clear();
    Ok(Passage {
        run: reading.run,
        functions: reading.functions,
        strays: reading.tracks.map_or(0, |tracks| tracks.strays()),
        ending: reader.ending().clone(),
    })
}

/// A stream on its way to tracks.
struct Reading {
    calls: CallsPart,
    run: Option<RunInfo>,
    functions: FunctionTable,
    order: Order,
    tracks: Option<Tracks>,
    end: MonoTime,
}

impl Reading {
    fn new(calls: CallsPart) -> Self {
        Self {
            calls,
            run: None,
            functions: FunctionTable::new(),
            order: Order::new(),
            tracks: None,
            end: MonoTime(0),
        }
    }

    fn input(&mut self, input: Input, take: &mut Take<'_>) -> io::Result<()> {
        match input {
            Input::Run(run) => {
                self.tracks = Some(Tracks::new(self.part(run.started)));
                self.end = self.end.max(run.started);
                self.run = Some(run);
            }
            Input::Function(id, info) => drop(self.functions.define(id, info)),
            Input::Events(events) => self.order.events(&events),
            Input::Control(control) => self.order.control(&control),
            Input::Drained(until) => {
                self.end = self.end.max(until);
                self.release(Some(until), take)?;
            }
            Input::End(end) => self.end = self.end.max(end),
            // Samples are no calls; the rest says nothing about single calls.
            _ => {}
        }
        Ok(())
    }

    fn part(&self, started: MonoTime) -> Part {
        let at = |ns: u64| MonoTime(started.0.saturating_add(ns));
        let calls = self.calls;
        Part {
            from: at(calls.from_ns),
            to: at(calls.to_ns),
            tid: calls.tid,
        }
    }

    /// Releases what is certain; `None` = everything, for nothing comes any more.
    fn release(&mut self, until: Option<MonoTime>, take: &mut Take<'_>) -> io::Result<()> {
        let Some(tracks) = &mut self.tracks else {
            return Ok(());
        };
        let functions = &self.functions;
        let mut result = Ok(());
        let mut feed = |released: Released<'_>| {
            if result.is_ok() {
                result = fed(tracks, &released, functions, take);
            }
        };
        match until {
            Some(until) => self.order.drained(until, &mut feed),
            None => self.order.finish(&mut feed),
        }
        result
    }

    fn finish(&mut self, take: &mut Take<'_>) -> io::Result<()> {
        self.release(None, take)?;
        let functions = &self.functions;
        match &mut self.tracks {
            Some(tracks) => tracks.finish(self.end, &mut |moment| {
                take(Seen::Moment(&moment), functions)
            }),
            None => Ok(()),
        }
    }
}

fn fed(
    tracks: &mut Tracks,
    released: &Released<'_>,
    functions: &FunctionTable,
    take: &mut Take<'_>,
) -> io::Result<()> {
    if let Released::Gap { lost, stream, .. } = released
        && *stream != Stream::Switches
    {
        take(Seen::Gap(*lost), functions)?;
    }
    let mut out = |moment: Moment| take(Seen::Moment(&moment), functions);
    match *released {
        Released::Events(events) => tracks.events(events, &mut out)?,
        // A track shows no switches.
        Released::Gap {
            stream: Stream::Switches,
            ..
        }
        | Released::Sample(_) => {}
        Released::Gap { pid, tid, lost, .. } => tracks.gap(pid, tid, lost),
        Released::ThreadEnded { time, pid, tid } => {
            tracks.ended(time, pid, Some(tid), &mut out)?;
        }
        Released::Executed { time, pid } => tracks.ended(time, pid, None, &mut out)?,
    }
    Ok(())
}
