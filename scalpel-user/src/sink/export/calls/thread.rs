//! One thread's track: which calls are open, and what each event does to them.

use std::io;

use super::{End, Moment, Out, Part, Start, ThreadKey, What};
use crate::event::{Event, Kind, MonoTime, Source, flags};

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
struct Open {
    func: u32,
    frame: u64,
    calls: u64,
    start: Start,
    native: bool,
    /// Events were lost since.
    gap: bool,
}

#[derive(Debug)]
pub(super) struct Thread {
    key: ThreadKey,
    part: Part,
    open: Vec<Open>,
    time: u64,
    lost: u64,
    /// What was open when the part began is written.
    begun: bool,
    /// The part is over.
    over: bool,
}

impl Thread {
    pub(super) const fn new(key: ThreadKey, part: Part) -> Self {
        Self {
            key,
            part,
            open: Vec::new(),
            time: 0,
            lost: 0,
            begun: false,
            over: false,
        }
    }

    pub(super) fn gap(&mut self, lost: u64) {
        self.lost = self.lost.saturating_add(lost);
    }

    /// True = it ends a call whose beginning was not seen.
    pub(super) fn event(&mut self, event: &Event, out: &mut Out<'_>) -> io::Result<bool> {
        self.pass_time(event.time, out)?;
        if self.over {
            return Ok(false);
        }
        if self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            self.lose(lost, out)?;
        }
        match Kind::from_u8(event.kind) {
            Some(Kind::Enter) if event.flags & flags::EARLIER != 0 => {
                self.enter(event, Start::Earlier, out)?;
            }
            Some(Kind::Enter) => self.enter(event, Start::Entered, out)?,
            Some(Kind::Resume) => self.enter(event, Start::Resumed, out)?,
            Some(Kind::Exit | Kind::Unwind) if event.flags & flags::EARLIER != 0 => {
                self.end_untold(event, out)?;
            }
            Some(Kind::Exit) => return self.exit(event, End::Returned, out),
            Some(Kind::Unwind) => return self.exit(event, End::Unwound, out),
            Some(Kind::Suspend) => return self.exit(event, End::Suspended, out),
            // A probe loses whole calls: nothing that is open can have ended among them.
            Some(Kind::Lost) if event.source != Source::Uprobe as u8 => {
                self.write(What::Lost(event.value), out)?;
            }
            Some(Kind::Lost) => self.lose(event.value, out)?,
            _ => {}
        }
        Ok(false)
    }

    /// Closes everything, innermost first.
    pub(super) fn end(&mut self, time: MonoTime, how: End, out: &mut Out<'_>) -> io::Result<()> {
        self.pass_time(time.0, out)?;
        // Before the part nothing is written, here as everywhere.
        self.close_from(0, |_| how, out)
    }

    /// Advances to `time`, over the borders of the part.
    fn pass_time(&mut self, time: u64, out: &mut Out<'_>) -> io::Result<()> {
        let (from, to) = (self.part.from.0, self.part.to.0);
        if time >= from && !self.begun {
            self.time = self.time.max(from);
            self.begin(out)?;
        }
        if time > to && !self.over {
            self.time = self.time.max(to);
            self.close_from(0, |_| End::Open, out)?;
            self.over = true;
        }
        self.time = self.time.max(time);
        Ok(())
    }

    /// Writes what is open as the part begins.
    fn begin(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        for open in self.open.clone() {
            let (func, calls) = (open.func, open.calls);
            let start = match open.start {
                Start::Entered => Start::Earlier,
                other => other,
            };
            self.write(What::Begin { func, calls, start }, out)?;
        }
        Ok(())
    }

    fn enter(&mut self, event: &Event, start: Start, out: &mut Out<'_>) -> io::Result<()> {
        self.forget_lost_frames(event, out)?;
        let calls = match start {
            Start::Resumed | Start::Earlier => 0,
            Start::Entered => 1u64 << event.weight.min(40),
        };
        let func = event.func;
        if event.flags & flags::NO_EXIT != 0 {
            return self.write(What::Entry { func, calls }, out);
        }
        self.write(What::Begin { func, calls, start }, out)?;
        self.open.push(Open {
            func,
            frame: event.frame,
            calls,
            start,
            native: event.source == Source::Uprobe as u8,
            gap: false,
        });
        Ok(())
    }

    fn exit(&mut self, event: &Event, how: End, out: &mut Out<'_>) -> io::Result<bool> {
        let same = |open: &Open| open.frame == event.frame && open.func == event.func;
        let Some(at) = self.open.iter().rposition(same) else {
            return Ok(how != End::Suspended);
        };
        self.close_from(at + 1, passed, out)?;
        self.close_from(at, |_| how, out)?;
        Ok(false)
    }

    /// An end that was written for a call. A caller of kept calls goes on, for all that is known.
    fn end_untold(&mut self, event: &Event, out: &mut Out<'_>) -> io::Result<()> {
        let same = |open: &Open| open.frame == event.frame && open.func == event.func;
        let Some(at) = self.open.iter().rposition(same) else {
            return Ok(());
        };
        let is_caller = |open: &Open| open.start == Start::Earlier;
        let how = match self.open.get(at) {
            Some(open) if is_caller(open) => End::Open,
            _ if event.kind == Kind::Exit as u8 => End::Lost,
            _ => End::Unwound,
        };
        self.close_from(at + 1, passed, out)?;
        self.close_from(at, |_| how, out)
    }

    fn lose(&mut self, lost: u64, out: &mut Out<'_>) -> io::Result<()> {
        self.open.iter_mut().for_each(|open| open.gap = true);
        self.write(What::Lost(lost), out)
    }

    /// After a gap, frames that a new call has overwritten are gone: native stacks grow downwards.
    fn forget_lost_frames(&mut self, event: &Event, out: &mut Out<'_>) -> io::Result<()> {
        if event.source != Source::Uprobe as u8 {
            return Ok(());
        }
        let gone = |open: &Open| open.native && open.gap && open.frame < event.frame;
        while self.open.last().is_some_and(gone) {
            self.close_from(self.open.len() - 1, |_| End::Lost, out)?;
        }
        Ok(())
    }

    fn close_from(
        &mut self,
        from: usize,
        how: impl Fn(&Open) -> End,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        while self.open.len() > from {
            let Some(open) = self.open.pop() else { break };
            let (func, end) = (open.func, how(&open));
            self.write(What::End { func, end }, out)?;
        }
        Ok(())
    }

    fn write(&self, what: What, out: &mut Out<'_>) -> io::Result<()> {
        if !self.begun || self.over {
            return Ok(());
        }
        out(Moment {
            time: MonoTime(self.time),
            thread: self.key,
            what,
        })
    }
}

/// How a call ended that a call outside it survived.
const fn passed(open: &Open) -> End {
    if open.gap { End::Lost } else { End::Unwound }
}
