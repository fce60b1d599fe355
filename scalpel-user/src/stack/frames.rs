//! Open calls of one thread, and its stacks: which frames a stack pointer proves dead. Must not know the tree.
//!
//! `open` is the running chain, outermost first. It is made of sections, one per stack memory region: a signal handler
//! on an alternate stack or a coroutine begins a section of its own. Sections that the thread left without returning
//! from them are parked; they go on when the stack pointer comes back to them.

use super::nodes::NodeId;
use crate::event::{Event, Source, flags};

/// How far a stack pointer may be from the known frames of a region and still belong to it, in bytes.
pub(super) const NEAR: u64 = 256 << 10;

/// Most regions kept aside.
const MAX_PARKED: usize = 64;

/// No more than this many return probes of one thread are armed at a time: `MAX_URETPROBE_DEPTH` in
/// `kernel/events/uprobes.c`.
pub(super) const RETURN_DEPTH: u32 = 64;

/// An open call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// Identity: stack pointer at entry, or an interpreter frame.
    pub(super) frame: u64,
    /// Return address, 0 if not known.
    pub(super) site: u64,
    /// When it began.
    pub(super) entered: u64,
    pub(super) node: NodeId,
    pub(super) func: u32,
    /// Node that time passes in while this frame is the innermost.
    pub(super) charge: NodeId,
    pub(super) source: u8,
    /// Its end will be reported.
    pub(super) timed: bool,
    /// Its return probe was not armed: too many were.
    pub(super) beyond_depth: bool,
    /// Begins a section.
    pub(super) begins_section: bool,
    /// Task that it belongs to, where the language tells; 0 = none.
    pub(super) task: u64,
    /// Running time before it was last suspended, in ns.
    pub(super) ran_ns: u64,
    /// Goes on after a suspension, and nobody saw it begin: how long it took is not known.
    pub(super) headless: bool,
    /// Began before what is kept of the stream: it is there for what it calls, and counts nowhere.
    pub(super) earlier: bool,
}

impl Frame {
    pub(super) const fn is_native(&self) -> bool {
        self.source == Source::Uprobe as u8
    }

    /// Whether time that passes in it is its own.
    pub(super) const fn is_measured(&self) -> bool {
        self.timed && !self.earlier
    }

    /// Whether it is the same activation.
    pub(super) const fn is_same(&self, other: &Self) -> bool {
        self.frame == other.frame && self.func == other.func && self.entered == other.entered
    }

    pub(super) const fn is(&self, event: &Event) -> bool {
        self.frame == event.frame && self.func == event.func && self.source == event.source
    }
}

/// The trampoline that a return probe puts in place of the return address, nothing, or what lies there for `_start`,
/// which nobody called (the number of arguments): no address of a caller. Nothing is mapped in the first page.
///
/// The kernel maps `[uprobes]` at the last page of the address space (`xol_add_vma`, `kernel/events/uprobes.c`).
pub(super) const fn is_no_address(site: u64) -> bool {
    site < 0x1000 || (site >= 0x7fff_ffff_e000 && site < 0x7fff_ffff_f000)
}

#[derive(Clone, Debug, Default)]
pub(super) struct Frames {
    pub(super) open: Vec<Frame>,
    parked: Vec<Vec<Frame>>,
    /// Armed return probes, as the kernel counts them.
    pub(super) armed: u32,
}

impl Frames {
    pub(super) fn charge(&self) -> NodeId {
        self.open.last().map_or(0, |frame| frame.charge)
    }

    pub(super) fn push(&mut self, mut frame: Frame) {
        frame.charge = if frame.is_measured() {
            frame.node
        } else {
            self.charge()
        };
        if frame.timed && frame.is_native() {
            frame.beyond_depth = self.armed >= RETURN_DEPTH;
            self.armed += u32::from(!frame.beyond_depth);
        }
        self.open.push(frame);
    }

    pub(super) fn pop(&mut self) -> Option<Frame> {
        let frame = self.open.pop()?;
        if frame.timed && frame.is_native() && !frame.beyond_depth {
            self.armed = self.armed.saturating_sub(1);
        }
        Some(frame)
    }

    /// Whether a call of `func` is open whose end was to be reported.
    pub(super) fn has_timed(&self, func: u32) -> bool {
        let open = self.open.iter().chain(self.parked.iter().flatten());
        open.filter(|frame| frame.timed)
            .any(|frame| frame.func == func)
    }

    /// The ends of the open calls of `func` will not be reported: they get no more time. Tells how many there are.
    pub(super) fn end_unseen(&mut self, func: u32) -> u64 {
        let mut ended = 0;
        let all = self.open.iter_mut().chain(self.parked.iter_mut().flatten());
        for frame in all.filter(|frame| frame.func == func && frame.timed) {
            frame.timed = false;
            if frame.is_native() && !frame.beyond_depth {
                self.armed = self.armed.saturating_sub(1);
            }
            ended += 1;
        }
        let mut charge = 0;
        for frame in &mut self.open {
            charge = if frame.is_measured() {
                frame.node
            } else {
                charge
            };
            frame.charge = charge;
        }
        ended
    }

    /// Position of the frame that an EXIT belongs to, from the innermost.
    pub(super) fn find(&self, event: &Event) -> Option<usize> {
        self.open.iter().rposition(|frame| frame.is(event))
    }

    /// Whether this activation is open, in the chain or aside.
    pub(super) fn has(&self, one: &Frame) -> bool {
        let mut open = self.open.iter().rev().chain(self.parked.iter().flatten());
        open.any(|frame| frame.is_same(one))
    }

    /// Position of the innermost frame of `func` in the chain.
    pub(super) fn find_function(&self, func: u32) -> Option<usize> {
        self.open.iter().rposition(|frame| frame.func == func)
    }

    /// Whether a new frame at `sp` lies plainly inside the innermost one: nothing is to be done.
    pub(super) fn is_plainly_inside(&self, sp: u64) -> bool {
        match self.open.last() {
            Some(top) => top.is_native() && top.frame > sp && top.frame - sp <= NEAR,
            None => self.parked.is_empty(),
        }
    }

    /// Makes the section that `sp` lies in the innermost one. Returns false if no known region is near.
    pub(super) fn switch_to(&mut self, sp: u64) -> bool {
        let mut end = self.open.len();
        while end > 0 {
            let begin = self.section_begin(end);
            if self
                .open
                .get(begin..end)
                .is_some_and(|section| is_near(section, sp))
            {
                self.park_from(end);
                return true;
            }
            end = begin;
        }
        self.unpark(|section| is_near(section, sp))
    }

    /// Makes the parked section with the frame of `event` the innermost one.
    pub(super) fn unpark_frame_of(&mut self, event: &Event) -> bool {
        self.unpark(|section| section.iter().any(|frame| frame.is(event)))
    }

    /// Whether the innermost section has entry-only frames alone and lies below `sp`: its stack has shrunk past it.
    pub(super) fn top_section_is_stale(&self, sp: u64) -> bool {
        let section = self
            .open
            .get(self.section_begin(self.open.len())..)
            .unwrap_or_default();
        !section.is_empty()
            && section
                .iter()
                .all(|frame| frame.is_native() && !frame.timed && frame.frame <= sp)
    }

    /// Where the section begins that ends before `end`.
    pub(super) fn section_begin(&self, end: usize) -> usize {
        let before = self.open.get(..end).unwrap_or_default();
        before
            .iter()
            .rposition(|frame| frame.begins_section)
            .unwrap_or(0)
    }

    /// Sets aside the sections from position `from` on.
    pub(super) fn park_from(&mut self, from: usize) {
        while self.open.len() > from {
            let begin = self.section_begin(self.open.len()).max(from);
            let section = self.open.split_off(begin);
            self.parked.push(section);
        }
    }

    /// First position after `index` where another section begins.
    pub(super) fn next_section(&self, index: usize) -> Option<usize> {
        let after = self.open.get(index + 1..)?;
        after
            .iter()
            .position(|frame| frame.begins_section)
            .map(|offset| index + 1 + offset)
    }

    /// Makes the parked section with such a frame the innermost one.
    pub(super) fn unpark_where(&mut self, wanted: impl Fn(&Frame) -> bool) -> bool {
        self.unpark(|section| section.iter().any(&wanted))
    }

    fn unpark(&mut self, mut wanted: impl FnMut(&[Frame]) -> bool) -> bool {
        let Some(position) = self.parked.iter().rposition(|section| wanted(section)) else {
            return false;
        };
        let mut charge = self.charge();
        for mut frame in self.parked.remove(position) {
            charge = if frame.is_measured() {
                frame.node
            } else {
                charge
            };
            frame.charge = charge;
            self.open.push(frame);
        }
        true
    }

    /// Frames of regions beyond the cap: they are given up.
    pub(super) fn overflow(&mut self) -> Option<Vec<Frame>> {
        (self.parked.len() > MAX_PARKED).then(|| self.parked.remove(0))
    }

    /// All frames, parked ones last.
    pub(super) fn take_all(&mut self) -> Vec<Frame> {
        let mut all = std::mem::take(&mut self.open);
        all.extend(std::mem::take(&mut self.parked).into_iter().flatten());
        self.armed = 0;
        all
    }
}

fn is_near(section: &[Frame], sp: u64) -> bool {
    let native = || {
        section
            .iter()
            .filter(|frame| frame.is_native())
            .map(|frame| frame.frame)
    };
    match (native().min(), native().max()) {
        (Some(low), Some(high)) => {
            sp >= low.saturating_sub(NEAR) && sp <= high.saturating_add(NEAR)
        }
        _ => false,
    }
}

/// A new frame for an ENTER.
pub(super) const fn entered(event: &Event, node: NodeId) -> Frame {
    Frame {
        frame: event.frame,
        site: event.site,
        entered: event.time,
        node,
        func: event.func,
        charge: 0,
        source: event.source,
        timed: event.flags & flags::NO_EXIT == 0,
        beyond_depth: false,
        begins_section: false,
        task: event.value,
        ran_ns: 0,
        headless: false,
        earlier: event.flags & flags::EARLIER != 0,
    }
}
