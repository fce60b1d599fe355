//! Calls as an indented timeline: a line when a call begins, one with its duration when it ends, one line for a leaf.
//!
//! Fed with events in order per thread and told when a drain is complete; what was fed since the last one is then
//! written in order of time. Must not know rings or files.

mod leaves;
mod told;

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::style::{Style, Tone};
use super::{text, units};
use crate::event::{Event, FuncId, Kind, MonoTime, Pid, Source, Tid, flags};
use crate::function::FunctionTable;
use leaves::{Item, Leaf, leaves};

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

/// A timeline that is being written.
pub struct Timeline {
    start: MonoTime,
    style: Style,
    filter: Filter,
    threads: FxHashMap<Thread, Vec<Open>>,
    waiting: Vec<Item>,
    gaps: FxHashMap<Thread, u64>,
    calls: u64,
    heading: bool,
    columns: Option<usize>,
}

/// Columns before the name of a call.
const HEAD: usize = 34;

/// Process and thread.
type Thread = (u32, u32);

/// A call that has not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    func: u32,
    frame: u64,
    time: u64,
    /// Level of its line; `None` = the filter leaves it out.
    level: Option<usize>,
    /// Its first line was written.
    written: bool,
    /// Events were lost since.
    gap: bool,
}

/// Where lines go, and where names come from.
struct Pen<'a> {
    functions: &'a FunctionTable,
    out: &'a mut dyn Write,
}

/// What stands in a line behind its time.
#[derive(Default)]
struct Line<'a> {
    duration: Option<u64>,
    level: usize,
    call: &'a str,
    mark: &'a str,
}

impl Timeline {
    /// An empty timeline of a recording that began at `start`.
    pub fn new(start: MonoTime, style: Style, filter: Filter) -> Self {
        Self {
            start,
            style,
            filter,
            threads: FxHashMap::default(),
            waiting: Vec::new(),
            gaps: FxHashMap::default(),
            calls: 0,
            heading: false,
            columns: None,
        }
    }

    /// Keeps lines within so many columns: names are shortened, and deep calls are not indented further.
    pub const fn within(mut self, columns: usize) -> Self {
        self.columns = Some(columns);
        self
    }

    /// Takes events, in order per thread. Nothing is written before [`Timeline::release`].
    pub fn events(&mut self, events: &[Event]) {
        for event in events {
            let (pid, tid) = (Pid(event.pid), Tid(event.tid));
            if let Some(lost) = self.gaps.remove(&(event.pid, event.tid)) {
                self.push(
                    Item::Gap {
                        time: MonoTime(event.time),
                        pid,
                        tid,
                        lost,
                    },
                    pid,
                    Some(tid),
                );
            }
            self.push(Item::Event(*event), pid, Some(tid));
        }
    }

    /// Events of this thread are missing between those taken before and those to come.
    pub fn gap(&mut self, pid: Pid, tid: Tid, lost: u64) {
        let gap = self.gaps.entry((pid.0, tid.0)).or_default();
        *gap = gap.saturating_add(lost);
    }

    /// The thread ended: a later one of its number is another. Without `tid` the whole process began anew (exec).
    pub fn ended(&mut self, time: MonoTime, pid: Pid, tid: Option<Tid>) {
        self.push(Item::Ended { time, pid, tid }, pid, tid);
    }

    fn push(&mut self, item: Item, pid: Pid, tid: Option<Tid>) {
        let wanted = self.filter.pid.is_none_or(|wanted| wanted == pid);
        if wanted && (self.filter.tid.is_none() || tid.is_none() || self.filter.tid == tid) {
            self.waiting.push(item);
        }
    }

    /// Whether nothing more will be written, whatever comes.
    pub fn is_done(&self) -> bool {
        self.filter.limit.is_some_and(|limit| self.calls >= limit)
    }

    /// Writes what was taken so far: nothing older can still come.
    pub fn release(&mut self, functions: &FunctionTable, out: &mut dyn Write) -> io::Result<()> {
        let mut pen = Pen { functions, out };
        let mut items = std::mem::take(&mut self.waiting);
        items.sort_by_key(Item::time);
        for (item, leaf) in items.iter().zip(leaves(&items)) {
            match (item, leaf) {
                (_, Leaf::Exit) => {}
                (Item::Event(event), Leaf::Enter(duration)) => {
                    self.forget_lost_frames(event, &mut pen)?;
                    self.one_line(event, Some(duration), &mut pen)?;
                }
                (Item::Event(event), Leaf::No) => self.event(event, &mut pen)?,
                (
                    &Item::Gap {
                        time,
                        pid,
                        tid,
                        lost,
                    },
                    _,
                ) => self.lost(time.0, (pid.0, tid.0), lost, &mut pen)?,
                (
                    Item::Note {
                        time,
                        pid,
                        tid,
                        text,
                    },
                    _,
                ) => self.say(time.0, (pid.0, tid.0), text, &mut pen)?,
                (&Item::Ended { time, pid, tid }, _) => {
                    self.close_all(time.0, Some((pid, tid)), " [ended]", &mut pen)?
                }
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
        self.close_all(end.0, None, " [still open]", &mut Pen { functions, out })
    }

    fn event(&mut self, event: &Event, pen: &mut Pen<'_>) -> io::Result<()> {
        match Kind::from_u8(event.kind) {
            Some(Kind::Enter) if event.flags & flags::NO_EXIT != 0 => {
                self.one_line(event, None, pen)
            }
            Some(Kind::Enter) => self.enter(event, pen),
            Some(Kind::Exit) => self.exit(event, "", pen),
            Some(Kind::Unwind) => self.exit(event, " [unwound]", pen),
            Some(Kind::Complete) => self.one_line(event, Some(event.value), pen),
            // Others than the kernel's probes lose whole calls: what is open is open still.
            Some(Kind::Lost) if event.source != Source::Uprobe as u8 => {
                let text = format!("[left out {} events: whole calls]", event.value);
                self.say(event.time, thread(event), &text, pen)
            }
            Some(Kind::Lost) => self.lost(event.time, thread(event), event.value, pen),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, event: &Event, pen: &mut Pen<'_>) -> io::Result<()> {
        self.forget_lost_frames(event, pen)?;
        let level = self.level(event);
        let shown = self.shown(level, event.time);
        if let Some(level) = shown {
            self.calls += 1;
            let call = format!("{}() {{", pen.name(event.func));
            self.line(
                event.time,
                thread(event),
                &Line {
                    level,
                    call: &call,
                    ..Line::default()
                },
                pen,
            )?;
        }
        let open = Open {
            func: event.func,
            frame: event.frame,
            time: event.time,
            level,
            written: shown.is_some(),
            gap: false,
        };
        self.threads.entry(thread(event)).or_default().push(open);
        Ok(())
    }

    /// A call whose exit follows at once, or never.
    fn one_line(
        &mut self,
        event: &Event,
        duration: Option<u64>,
        pen: &mut Pen<'_>,
    ) -> io::Result<()> {
        let Some(level) = self.shown(self.level(event), event.time) else {
            return Ok(());
        };
        self.calls += 1;
        let call = format!("{}();", pen.name(event.func));
        self.line(
            event.time,
            thread(event),
            &Line {
                duration,
                level,
                call: &call,
                mark: "",
            },
            pen,
        )
    }

    fn exit(&mut self, event: &Event, mark: &str, pen: &mut Pen<'_>) -> io::Result<()> {
        let stack = self.threads.entry(thread(event)).or_default();
        let same = |open: &Open| open.frame == event.frame && open.func == event.func;
        let Some(at) = stack.iter().rposition(same) else {
            return self.missed(event, pen);
        };
        let mut closed = stack.split_off(at);
        while let Some(open) = closed.pop() {
            let mark = match (closed.is_empty(), open.gap) {
                (true, _) => mark,
                (false, true) => " [lost]",
                (false, false) => " [unwound]",
            };
            self.close(event.time, thread(event), &open, mark, pen)?;
        }
        Ok(())
    }

    fn missed(&mut self, event: &Event, pen: &mut Pen<'_>) -> io::Result<()> {
        let Some(level) = self.shown(self.level(event), event.time) else {
            return Ok(());
        };
        let call = format!("}} /* {} */", pen.name(event.func));
        let line = Line {
            level,
            call: &call,
            mark: " [entry not seen]",
            ..Line::default()
        };
        self.line(event.time, thread(event), &line, pen)
    }

    /// After a gap, frames that a new call has overwritten are gone: native stacks grow downwards.
    fn forget_lost_frames(&mut self, event: &Event, pen: &mut Pen<'_>) -> io::Result<()> {
        let Some(stack) = self.threads.get_mut(&thread(event)) else {
            return Ok(());
        };
        let gone: Vec<Open> =
            std::iter::from_fn(|| stack.pop_if(|open| open.gap && open.frame < event.frame))
                .collect();
        gone.iter()
            .try_for_each(|open| self.close(event.time, thread(event), open, " [lost]", pen))
    }

    /// Closes all calls of one thread, of one process, or of everything.
    fn close_all(
        &mut self,
        time: u64,
        whose: Option<(Pid, Option<Tid>)>,
        mark: &str,
        pen: &mut Pen<'_>,
    ) -> io::Result<()> {
        let of = |thread: &Thread| match whose {
            Some((pid, tid)) => pid.0 == thread.0 && tid.is_none_or(|tid| tid.0 == thread.1),
            None => true,
        };
        let mut stacks: Vec<_> = self.threads.extract_if(|thread, _| of(thread)).collect();
        stacks.sort_unstable_by_key(|(thread, _)| *thread);
        for (thread, stack) in stacks {
            stack
                .iter()
                .rev()
                .try_for_each(|open| self.close(time, thread, open, mark, pen))?;
        }
        Ok(())
    }

    fn close(
        &mut self,
        time: u64,
        thread: Thread,
        open: &Open,
        mark: &str,
        pen: &mut Pen<'_>,
    ) -> io::Result<()> {
        let Some(level) = open.level.filter(|_| open.written) else {
            return Ok(());
        };
        let duration = (mark != " [lost]").then(|| time.saturating_sub(open.time));
        let call = format!("}} /* {} */", pen.name(open.func));
        self.line(
            time,
            thread,
            &Line {
                duration,
                level,
                call: &call,
                mark,
            },
            pen,
        )
    }

    /// The level at which a call stands: below what is open and shown on its thread. `None` = the filter leaves it out.
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

    /// The same level, if it is within depth, time and limit.
    fn shown(&self, level: Option<usize>, time: u64) -> Option<usize> {
        let filter = &self.filter;
        let in_time = filter.from.is_none_or(|from| time >= from.0)
            && filter.to.is_none_or(|to| time <= to.0);
        let deep = |level: usize| filter.depth.is_some_and(|depth| level >= depth as usize);
        level.filter(|&level| in_time && !deep(level) && !self.is_done())
    }

    fn line(
        &mut self,
        time: u64,
        thread: Thread,
        line: &Line<'_>,
        pen: &mut Pen<'_>,
    ) -> io::Result<()> {
        if !std::mem::replace(&mut self.heading, true) {
            let heading = "      TIME s  DURATION    THREAD  FUNCTION";
            writeln!(pen.out, "{}", self.style.paint(Tone::Faint, heading))?;
        }
        let since = time.saturating_sub(self.start.0);
        let duration = line.duration.map(units::duration).unwrap_or_default();
        let (seconds, micros) = (since / 1_000_000_000, since / 1000 % 1_000_000);
        write!(
            pen.out,
            "{seconds:>5}.{micros:06}  {duration:>8}  {:>8}  ",
            thread.1
        )?;
        let (mut indent, mut call, mut mark) = (2 * line.level, line.call.into(), line.mark.into());
        if let Some(columns) = self.columns {
            let room = columns.saturating_sub(HEAD);
            mark = text::shorten(line.mark, room);
            let room = room.saturating_sub(text::width(&mark));
            indent = indent.min(room / 2);
            call = text::shorten(line.call, room - indent);
        }
        let mark = self.style.paint(Tone::Uncertain, &mark);
        writeln!(pen.out, "{:indent$}{call}{mark}", "")
    }
}

impl Pen<'_> {
    fn name(&self, func: u32) -> String {
        match FuncId::new(func).and_then(|id| self.functions.get(id)) {
            Some(info) => text::clean(&info.name).into_owned(),
            None => format!("<function {func}>"),
        }
    }
}

const fn thread(event: &Event) -> Thread {
    (event.pid, event.tid)
}

#[cfg(test)]
mod tests;
