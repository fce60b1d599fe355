//! Calls as an indented timeline: a line when a call begins, one with its duration when it ends, one line for a leaf.
//!
//! Fed with events in `seq` order per thread and told when a drain is complete; what was fed since the last one is
//! then written in order of time. Must not know rings or files.

use std::collections::HashMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::style::{Style, Tone};
use super::{text, units};
use crate::event::{Event, FuncId, Kind, MonoTime, Pid, Tid, flags};
use crate::function::FunctionTable;

/// Which part of a stream is shown.
#[derive(Default)]
pub struct Filter {
    /// Only this process.
    pub pid: Option<Pid>,
    /// Only this thread.
    pub tid: Option<Tid>,
    /// Not before.
    pub from: Option<MonoTime>,
    /// Not after.
    pub to: Option<MonoTime>,
    /// Only the outermost levels of what is shown.
    pub depth: Option<u32>,
    /// Only calls of these functions, with everything they call.
    pub func: Option<Box<dyn Fn(FuncId) -> bool>>,
    /// Only so many calls.
    pub limit: Option<u64>,
}

/// Something that happened on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// Events are missing here.
    Gap {
        /// Time of the thread's next event.
        time: MonoTime,
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// How many.
        lost: u64,
    },
}

/// A timeline that is being written.
pub struct Timeline {
    start: MonoTime,
    style: Style,
    filter: Filter,
    threads: FxHashMap<(u32, u32), Vec<Open>>,
    waiting: Vec<Item>,
    calls: u64,
    heading: bool,
}

/// A call that has not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    func: u32,
    frame: u64,
    time: u64,
    /// Level at which it was written; `None` = it is not shown.
    level: Option<usize>,
    /// Its level was kept within [`Filter::depth`], and the line was written.
    written: bool,
    /// Events were lost since.
    gap: bool,
}

impl Timeline {
    /// An empty timeline of a recording that began at `start`.
    pub fn new(start: MonoTime, style: Style, filter: Filter) -> Self {
        Self {
            start,
            style,
            filter,
            threads: HashMap::default(),
            waiting: Vec::new(),
            calls: 0,
            heading: false,
        }
    }

    /// Takes an item. Nothing is written before [`Timeline::release`].
    pub fn push(&mut self, item: Item) {
        let (pid, tid) = match item {
            Item::Event(event) => (event.pid, event.tid),
            Item::Gap { pid, tid, .. } => (pid.0, tid.0),
        };
        if self.filter.pid.is_none_or(|wanted| wanted.0 == pid)
            && self.filter.tid.is_none_or(|wanted| wanted.0 == tid)
        {
            self.waiting.push(item);
        }
    }

    /// Whether nothing more will be written, whatever comes.
    pub fn is_done(&self) -> bool {
        self.filter.limit.is_some_and(|limit| self.calls >= limit)
    }

    /// Writes what was taken so far: nothing older can still come.
    pub fn release(&mut self, functions: &FunctionTable, out: &mut dyn Write) -> io::Result<()> {
        let mut items = std::mem::take(&mut self.waiting);
        items.sort_by_key(time);
        let leaves = leaves(&items);
        for (item, leaf) in items.iter().zip(leaves) {
            match (item, leaf) {
                (_, Leaf::Exit) => {}
                (Item::Event(event), Leaf::Enter(duration)) => {
                    self.leaf(event, duration, functions, out)?
                }
                (Item::Event(event), Leaf::No) => self.event(event, functions, out)?,
                (
                    &Item::Gap {
                        time,
                        pid,
                        tid,
                        lost,
                    },
                    _,
                ) => self.gap(time, (pid.0, tid.0), lost, out)?,
            }
        }
        items.clear();
        self.waiting = items;
        Ok(())
    }

    /// Writes what is left, and the calls that never ended.
    pub fn finish(
        mut self,
        end: MonoTime,
        functions: &FunctionTable,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.release(functions, out)?;
        let mut threads: Vec<_> = std::mem::take(&mut self.threads).into_iter().collect();
        threads.sort_unstable_by_key(|(thread, _)| *thread);
        for (thread, mut stack) in threads {
            while let Some(open) = stack.pop() {
                self.close(end.0, thread, &open, " [still open]", functions, out)?;
            }
        }
        Ok(())
    }

    fn event(
        &mut self,
        event: &Event,
        functions: &FunctionTable,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match Kind::from_u8(event.kind) {
            Some(Kind::Enter) if event.flags & flags::NO_EXIT != 0 => {
                self.line_of(event, None, functions, out)
            }
            Some(Kind::Enter) => self.enter(event, functions, out),
            Some(Kind::Exit) => self.exit(event, "", functions, out),
            Some(Kind::Unwind) => self.exit(event, " [unwound]", functions, out),
            Some(Kind::Complete) => self.line_of(event, Some(event.value), functions, out),
            Some(Kind::Lost) => self.gap(
                MonoTime(event.time),
                (event.pid, event.tid),
                event.value,
                out,
            ),
            _ => Ok(()),
        }
    }

    fn enter(
        &mut self,
        event: &Event,
        functions: &FunctionTable,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.forget_lost_frames(event, functions, out)?;
        let level = self.level(event);
        let written = self.shown(level, event.time);
        if let (true, Some(level)) = (written, level) {
            self.calls += 1;
            let name = format!("{}() {{", name(functions, event.func));
            self.line(event.time, None, thread(event), level, &name, "", out)?;
        }
        let open = Open {
            func: event.func,
            frame: event.frame,
            time: event.time,
            level,
            written,
            gap: false,
        };
        self.threads.entry(thread(event)).or_default().push(open);
        Ok(())
    }

    /// A call of which nothing is shown but that it happened: no exit follows, or its exit follows at once.
    fn leaf(
        &mut self,
        event: &Event,
        duration: u64,
        functions: &FunctionTable,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.forget_lost_frames(event, functions, out)?;
        self.line_of(event, Some(duration), functions, out)
    }

    fn line_of(
        &mut self,
        event: &Event,
        duration: Option<u64>,
        functions: &FunctionTable,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let level = self.level(event);
        match level.filter(|_| self.shown(level, event.time)) {
            Some(level) => {
                self.calls += 1;
                let name = format!("{}();", name(functions, event.func));
                self.line(event.time, duration, thread(event), level, &name, "", out)
            }
            None => Ok(()),
        }
    }

    fn exit(
        &mut self,
        event: &Event,
        mark: &str,
        functions: &FunctionTable,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let stack = self.threads.entry(thread(event)).or_default();
        let same = |open: &Open| open.frame == event.frame && open.func == event.func;
        let Some(at) = stack.iter().rposition(same) else {
            return self.missed(event, functions, out);
        };
        let mut closed = stack.split_off(at);
        while let Some(open) = closed.pop() {
            let mark = if closed.is_empty() {
                mark
            } else {
                lost_or_unwound(&open)
            };
            self.close(event.time, thread(event), &open, mark, functions, out)?;
        }
        Ok(())
    }

    fn missed(
        &mut self,
        event: &Event,
        functions: &FunctionTable,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let level = self.level(event);
        match level.filter(|_| self.shown(level, event.time)) {
            Some(level) => {
                let name = format!("}} /* {} */", name(functions, event.func));
                self.line(
                    event.time,
                    None,
                    thread(event),
                    level,
                    &name,
                    " [entry not seen]",
                    out,
                )
            }
            None => Ok(()),
        }
    }

    fn gap(
        &mut self,
        time: MonoTime,
        thread: (u32, u32),
        lost: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let stack = self.threads.entry(thread).or_default();
        stack.iter_mut().for_each(|open| open.gap = true);
        let level = stack
            .iter()
            .rev()
            .find_map(|open| open.level)
            .map_or(0, |level| level + 1);
        if self.in_time(time.0) && !self.is_done() {
            return self.line(
                time.0,
                None,
                thread,
                level,
                "",
                &format!("[lost {lost}]"),
                out,
            );
        }
        Ok(())
    }

    /// After a gap, frames that a new call has overwritten are gone: native stacks grow downwards.
    fn forget_lost_frames(
        &mut self,
        event: &Event,
        functions: &FunctionTable,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let stack = self.threads.entry(thread(event)).or_default();
        let mut gone = Vec::new();
        while let Some(open) = stack.pop_if(|open| open.gap && open.frame < event.frame) {
            gone.push(open);
        }
        gone.iter().try_for_each(|open| {
            self.close(event.time, thread(event), open, " [lost]", functions, out)
        })
    }

    fn close(
        &mut self,
        time: u64,
        thread: (u32, u32),
        open: &Open,
        mark: &str,
        functions: &FunctionTable,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let Some(level) = open.level.filter(|_| open.written) else {
            return Ok(());
        };
        let duration = Some(time.saturating_sub(open.time)).filter(|_| mark != " [lost]");
        let name = format!("}} /* {} */", name(functions, open.func));
        self.line(time, duration, thread, level, &name, mark, out)
    }

    /// The level at which a call is written: below what is open and shown on its thread. `None` = it is not shown.
    fn level(&self, event: &Event) -> Option<usize> {
        let above = self
            .threads
            .get(&thread(event))
            .and_then(|stack| stack.last())
            .and_then(|open| open.level);
        let wanted = || match &self.filter.func {
            Some(wanted) => FuncId::new(event.func).is_some_and(wanted),
            None => true,
        };
        above
            .map(|level| level + 1)
            .or_else(|| wanted().then_some(0))
    }

    fn shown(&self, level: Option<usize>, time: u64) -> bool {
        let deep = |level: usize| {
            self.filter
                .depth
                .is_some_and(|depth| level >= depth as usize)
        };
        level.is_some_and(|level| !deep(level)) && self.in_time(time) && !self.is_done()
    }

    fn in_time(&self, time: u64) -> bool {
        self.filter.from.is_none_or(|from| time >= from.0)
            && self.filter.to.is_none_or(|to| time <= to.0)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one argument a column of the line"
    )]
    fn line(
        &mut self,
        time: u64,
        duration: Option<u64>,
        thread: (u32, u32),
        level: usize,
        call: &str,
        mark: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if !std::mem::replace(&mut self.heading, true) {
            let heading = format!(
                "{:>12}  {:>8}  {:>8}  FUNCTION",
                "TIME s", "DURATION", "THREAD"
            );
            writeln!(out, "{}", self.style.paint(Tone::Faint, heading))?;
        }
        let since = time.saturating_sub(self.start.0);
        let duration = duration.map(units::duration).unwrap_or_default();
        write!(
            out,
            "{:>5}.{:06}  {duration:>8}  {:>8}  ",
            since / 1_000_000_000,
            since / 1000 % 1_000_000,
            thread.1
        )?;
        writeln!(
            out,
            "{:indent$}{call}{}",
            "",
            self.style.paint(Tone::Uncertain, mark),
            indent = 2 * level
        )
    }
}

/// Whether an item is one half of a call that called nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    No,
    Enter(u64),
    Exit,
}

/// Finds each entry whose exit is the next thing on its thread.
fn leaves(items: &[Item]) -> Vec<Leaf> {
    let mut leaves = vec![Leaf::No; items.len()];
    let mut next: FxHashMap<(u32, u32), (usize, &Event)> = FxHashMap::default();
    for (at, item) in items.iter().enumerate().rev() {
        match item {
            Item::Gap { pid, tid, .. } => drop(next.remove(&(pid.0, tid.0))),
            Item::Event(event) => {
                let after = next.insert(thread(event), (at, event));
                if let Some((exit_at, exit)) = after.filter(|(_, exit)| is_leaf(event, exit))
                    && let Some(leaf) = leaves.get_mut(exit_at)
                {
                    *leaf = Leaf::Exit;
                    if let Some(leaf) = leaves.get_mut(at) {
                        *leaf = Leaf::Enter(exit.time.saturating_sub(event.time));
                    }
                }
            }
        }
    }
    leaves
}

fn is_leaf(enter: &Event, exit: &Event) -> bool {
    enter.kind == Kind::Enter as u8
        && enter.flags & flags::NO_EXIT == 0
        && exit.kind == Kind::Exit as u8
        && (enter.func, enter.frame) == (exit.func, exit.frame)
}

const fn lost_or_unwound(open: &Open) -> &'static str {
    if open.gap { " [lost]" } else { " [unwound]" }
}

const fn thread(event: &Event) -> (u32, u32) {
    (event.pid, event.tid)
}

const fn time(item: &Item) -> u64 {
    match item {
        Item::Event(event) => event.time,
        Item::Gap { time, .. } => time.0,
    }
}

fn name(functions: &FunctionTable, func: u32) -> String {
    match FuncId::new(func).and_then(|id| functions.get(id)) {
        Some(info) => text::clean(&info.name).into_owned(),
        None => format!("<function {func}>"),
    }
}

#[cfg(test)]
mod tests;
