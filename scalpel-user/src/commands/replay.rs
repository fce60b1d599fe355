//! `replay`: a recorded stream, call by call.

use std::cell::RefCell;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

use rustc_hash::FxHashSet;

use crate::event::{FuncId, MonoTime};
use crate::exit::Outcome;
use crate::function::FunctionTable;
use crate::image::Pattern;
use crate::input::Input;
use crate::log::{Ending, Reader};
use crate::order::{Order, Released, Stream};
use crate::output::{self, Output};
use crate::plan::ReplayPlan;
use crate::sink::Style;
use crate::sink::timeline::{Filter, Timeline};
use crate::source;

use super::{kept, recording};

pub(super) fn run(plan: &ReplayPlan, output: &Output) -> anyhow::Result<Outcome> {
    match &plan.output {
        Some(path) => rebuild(plan, path, output),
        None => show(plan, output),
    }
}

/// Builds the genome again, as the recording did.
fn rebuild(plan: &ReplayPlan, path: &Path, output: &Output) -> anyhow::Result<Outcome> {
    let genome = recording::recover(&plan.file, output)?;
    recording::write(&genome, path, output)?;
    Ok(if genome.cut {
        Outcome::Partial
    } else {
        Outcome::Done
    })
}

fn show(plan: &ReplayPlan, output: &Output) -> anyhow::Result<Outcome> {
    let pattern = recording::pattern(plan.func.as_ref())?;
    let mut reader = source::replay(&plan.file)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    if let Some(known) = kept::Known::of(&plan.file)? {
        let stdout = output.stdout();
        let style = Style {
            color: stdout.color,
        };
        let columns = stdout.terminal.then_some(stdout.width);
        let pattern = pattern.as_ref();
        kept::show(plan, pattern, &known, style, columns, &mut reader, &mut out)?;
        out.flush()?;
        return Ok(ending(&reader, output));
    }
    let mut show = Show::new(plan, pattern, output.stdout());
    for input in reader.by_ref() {
        show.take(input, &mut out)?;
        if show.is_done() {
            break;
        }
    }
    show.finish(&mut out)?;
    out.flush()?;
    Ok(ending(&reader, output))
}

fn ending(reader: &Reader, output: &Output) -> Outcome {
    match reader.ending() {
        Ending::Cut(cut) => {
            output.warn(&format!(
                "the stream is cut at byte {}: {}",
                cut.at, cut.reason
            ));
            Outcome::Partial
        }
        Ending::Whole | Ending::Reading => Outcome::Done,
    }
}

/// A stream on its way to the timeline.
struct Show<'a> {
    plan: &'a ReplayPlan,
    pattern: Option<Pattern>,
    style: Style,
    /// Of the terminal, if there is one.
    columns: Option<usize>,
    order: Order,
    functions: FunctionTable,
    timeline: Option<Timeline>,
    end: MonoTime,
    /// Functions that the pattern means, of those defined so far: shared with the timeline's filter.
    meant: Rc<RefCell<FxHashSet<FuncId>>>,
}

impl<'a> Show<'a> {
    fn new(plan: &'a ReplayPlan, pattern: Option<Pattern>, stdout: output::Stream) -> Self {
        let style = Style {
            color: stdout.color,
        };
        let (order, functions) = (Order::new(), FunctionTable::new());
        let meant = Rc::default();
        Self {
            plan,
            pattern,
            style,
            columns: stdout.terminal.then_some(stdout.width),
            order,
            functions,
            timeline: None,
            end: MonoTime(0),
            meant,
        }
    }

    fn is_done(&self) -> bool {
        self.timeline.as_ref().is_some_and(Timeline::is_done)
    }

    fn take(&mut self, input: Input, out: &mut dyn Write) -> std::io::Result<()> {
        match input {
            Input::Run(run) => self.timeline = Some(self.timeline_from(run.started)),
            Input::Function(id, info) => {
                if self
                    .pattern
                    .as_ref()
                    .is_some_and(|pattern| pattern.matches_recorded(&info))
                {
                    self.meant.borrow_mut().insert(id);
                }
                self.functions.define(id, info);
            }
            Input::Events(events) => self.order.events(&events),
            Input::Control(control) => self.order.control(&control),
            Input::Drained(until) => self.release(until, out)?,
            Input::End(end) => self.end = end,
            // Samples are no calls; the rest says nothing about single calls.
            _ => {}
        }
        Ok(())
    }

    fn release(&mut self, until: MonoTime, out: &mut dyn Write) -> std::io::Result<()> {
        let Some(timeline) = &mut self.timeline else {
            return Ok(());
        };
        self.end = self.end.max(until);
        self.order
            .drained(until, &mut |released| feed(timeline, &released));
        timeline.release(&self.functions, out)
    }

    fn finish(mut self, out: &mut dyn Write) -> std::io::Result<()> {
        let Some(mut timeline) = self.timeline else {
            return Ok(());
        };
        // After the last call that was asked for, what is held back is not wanted any more.
        if !timeline.is_done() {
            self.order
                .finish(&mut |released| feed(&mut timeline, &released));
        }
        timeline.finish(self.end, &self.functions, out)
    }

    fn timeline_from(&self, started: MonoTime) -> Timeline {
        let at = |ns: u64| MonoTime(started.0.saturating_add(ns));
        let filter = Filter {
            pid: self.plan.pid,
            tid: self.plan.tid,
            from: (self.plan.from_ns > 0).then(|| at(self.plan.from_ns)),
            to: (self.plan.to_ns < u64::MAX).then(|| at(self.plan.to_ns)),
            depth: self.plan.depth,
            func: self
                .pattern
                .is_some()
                .then(|| -> Box<dyn Fn(FuncId) -> bool> {
                    let meant = Rc::clone(&self.meant);
                    Box::new(move |id| meant.borrow().contains(&id))
                }),
            limit: self.plan.limit.map(|limit| limit as u64),
        };
        let timeline = Timeline::new(started, self.style, filter);
        match self.columns {
            Some(columns) => timeline.within(columns),
            None => timeline,
        }
    }
}

fn feed(timeline: &mut Timeline, released: &Released<'_>) {
    match *released {
        Released::Events(events) => timeline.events(events),
        // Of switches the timeline shows none.
        Released::Gap {
            stream: Stream::Switches,
            ..
        } => {}
        Released::Gap { pid, tid, lost, .. } => timeline.gap(pid, tid, lost),
        Released::ThreadEnded { time, pid, tid } => timeline.ended(time, pid, Some(tid)),
        Released::Executed { time, pid } => timeline.ended(time, pid, None),
        Released::Sample(_) => {}
    }
}
