//! What the handler knows of one thread: its log, and where it stands. Made before the thread is armed, never freed, and
//! found by thread id without a lock.
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::bulk::Bulk;
use super::probed::Probed;
use crate::flow::Successors;
use crate::predict::Next;
use crate::trace::{Child, Form, Reasons};

/// The longest instruction.
pub(super) const LONGEST: usize = 15;
/// Deepest nesting of scopes on one thread.
pub(super) const DEEPEST: usize = 16;

/// Children that are listed; more are counted.
pub(super) const LISTED: usize = 64;

/// Facts about entries.
pub(super) mod mark {
    /// The scope's own code ran before it.
    pub(crate) const OWN: u8 = 1;
    /// No trap came for it: inserted by rule.
    pub(crate) const INSERTED: u8 = 2;
    /// Its successor could not be foretold.
    pub(crate) const UNFORETOLD: u8 = 4;
    /// A breakpoint that was really hit.
    pub(crate) const HIT: u8 = 8;
    /// What was not recorded ran natively before it.
    pub(crate) const AWAY: u8 = 16;
    /// A run of blocks in copies, to be made into instructions.
    pub(crate) const RUN: u8 = 32;
    /// It ran in a copy.
    pub(crate) const COPIED: u8 = 64;
    /// A signal handler has put the thread before it.
    pub(crate) const MOVED: u8 = 128;
}

/// One instruction in the log.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Entry {
    pub(super) addr: u64,
    pub(super) next: u64,
    pub(super) count: u32,
    pub(super) len: u8,
    pub(super) marks: u8,
    pub(super) bytes: [u8; LONGEST],
}

/// What the instruction before this stop is to the stepper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// There is none: the thread was just armed.
    First,
    Plain,
    Repeated,
    /// The kernel comes back behind it and one instruction later.
    SystemCall,
    /// The next instruction is not trapped.
    Shadow,
    PushesFlags,
    /// It takes the trap flag off itself.
    PopsFlags,
    Breakpoint,
    /// A signal handler has put the thread here, or it has left a copy of which nothing ran.
    Moved,
}

/// The instruction before this stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) addr: u64,
    pub(super) fall: u64,
    pub(super) len: u8,
    pub(super) next: Next,
    pub(super) successors: Successors,
    /// RCX and RSP before it ran.
    pub(super) counters: (u64, u64),
    /// It changes one of them each time that it leads to itself.
    pub(super) counts: bool,
    /// Its bytes are known to be those of text.
    pub(super) text: bool,
    pub(super) kind: Kind,
}

/// One open scope.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) id: u64,
    pub(super) form: Form,
    /// Where its part of the log begins.
    pub(super) from: usize,
    pub(super) begin: Option<u64>,
    pub(super) traps: u64,
    pub(super) counted: u64,
    /// Instructions within its region so far, counted apart from the log.
    pub(super) shown: u64,
    /// The sum over them.
    pub(super) seal: u64,
    pub(super) started: u64,
    pub(super) signals: u64,
    /// What was known against the scope around it.
    pub(super) outer: Reasons,
    pub(super) most_traps: u64,
    pub(super) deadline_ns: u64,
}

/// The state of one thread.
#[derive(Debug)]
pub(super) struct Thread {
    /// The handler may record.
    pub(super) armed: bool,
    /// Stepping ended before its time; nothing is recorded until the last scope is closed.
    pub(super) halted: bool,
    pub(super) reasons: Reasons,
    pub(super) flag_visible: bool,
    pub(super) before: Before,
    /// Where stepping began, and ended: known apart from the log.
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) own: bool,
    /// A handler of the program's has put it where it is.
    pub(super) moved: bool,
    /// The handlers of faults are ours, and the program's are called by them.
    pub(super) faults: bool,
    /// The bytes behind a system call, as they were before it.
    pub(super) ahead: [u8; LONGEST],
    /// A stub makes a call, and comes back by a breakpoint.
    pub(super) away: bool,
    /// The call makes a child: a thread, or a process.
    pub(super) child: Option<bool>,
    pub(super) children: [Child; LISTED],
    pub(super) started: u64,
    pub(super) probed: Probed,
    /// A string instruction runs natively.
    pub(super) bulk: Option<Bulk>,
    /// Stops at which a signal was pending.
    pub(super) signals: u64,
    /// Which thread of the process's life this is: ids of dead ones come back.
    pub(super) key: u64,
    pub(super) traps: u64,
    pub(super) counted: u64,
    pub(super) most_traps: u64,
    pub(super) deadline_ns: u64,
    /// The program wants SIGTRAP blocked.
    pub(super) wish: bool,
    /// Closed on another thread: stop at the next trap.
    pub(super) hop: AtomicBool,
    /// Which scopes were; 0 = a free place.
    pub(super) gone: [AtomicU64; DEEPEST],
    pub(super) log: *mut Entry,
    pub(super) len: usize,
    pub(super) room: usize,
    pub(super) frames: [Option<Frame>; DEEPEST],
    pub(super) stack: *mut u8,
    /// The signal stack that was there before ours.
    pub(super) old_stack: Option<libc::stack_t>,
    pub(super) callout: super::callout::State,
    pub(super) copies: *mut super::displaced::Copies,
    pub(super) text: *mut super::text::Text,
    /// The bytes that were looked at last are those of text.
    pub(super) in_text: bool,
}

impl Thread {
    pub(super) const IDLE: Before = Before {
        addr: 0,
        fall: 0,
        len: 0,
        next: Next::Unknown,
        successors: Successors {
            fall: None,
            target: None,
            anywhere: false,
            again: None,
        },
        counters: (0, 0),
        counts: false,
        text: false,
        kind: Kind::First,
    };

    pub(super) fn begot(&mut self, tid: u32, thread: bool) {
        let place = usize::try_from(self.started).ok();
        if let Some(place) = place.and_then(|place| self.children.get_mut(place)) {
            *place = Child { tid, thread };
        }
        self.started += 1;
    }

    pub(super) fn blame(&mut self, reasons: Reasons) {
        self.reasons = self.reasons.with(reasons);
    }

    /// The last entry of the log.
    pub(super) fn last(&mut self) -> Option<&mut Entry> {
        let last = self.len.checked_sub(1)?;
        // SAFETY: entries below `len` are written, and `log` has room for them.
        Some(unsafe { &mut *self.log.add(last) })
    }

    /// What is known of unwritable code.
    pub(super) fn text(&mut self) -> Option<&'static mut super::text::Text> {
        // SAFETY: made once for a thread's state and never freed; only its thread reaches it, and one handler at a time.
        unsafe { self.text.as_mut() }
    }

    /// What the next entry has to say of what was before it: it is said once.
    pub(super) fn marks(&mut self) -> u8 {
        let marks = [
            (&mut self.own, mark::OWN),
            (&mut self.callout.away, mark::AWAY),
            (&mut self.moved, mark::MOVED),
        ];
        let told = marks.map(|(is, mark)| if std::mem::take(is) { mark } else { 0 });
        told.iter().fold(0, |all, mark| all | mark)
    }

    /// Takes the last entry out.
    pub(super) fn pop(&mut self) {
        self.len = self.len.saturating_sub(1);
    }

    /// Adds an entry; `false` if there is no room.
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        if self.len == self.room {
            return false;
        }
        // SAFETY: `len` is below `room`, the number of entries mapped at `log`.
        unsafe { self.log.add(self.len).write(entry) };
        self.len += 1;
        true
    }

    /// The part of the log from `from` on.
    pub(super) fn entries(&self, from: usize) -> &[Entry] {
        let len = self.len.saturating_sub(from);
        if len == 0 {
            return &[];
        }
        // SAFETY: `from + len` is `len`, below which all is written.
        unsafe { std::slice::from_raw_parts(self.log.add(from), len) }
    }
}

const PLACES: usize = 1024;
/// How far from its home place a thread may be.
const REACH: usize = 64;

struct Place {
    tid: AtomicU32,
    thread: AtomicPtr<Thread>,
}

static TABLE: [Place; PLACES] = [const {
    Place {
        tid: AtomicU32::new(0),
        thread: AtomicPtr::new(null_mut()),
    }
}; PLACES];

fn places(tid: u32) -> impl Iterator<Item = &'static Place> {
    let home = tid as usize % PLACES;
    TABLE.iter().cycle().skip(home).take(REACH)
}

/// Whether any thread has ever had a state.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether no thread can have a state.
pub(super) fn none() -> bool {
    !ANY.load(Ordering::Relaxed)
}

/// The state of a thread that has one.
pub(super) fn find(tid: u32) -> Option<*mut Thread> {
    let place = places(tid).find(|place| place.tid.load(Ordering::Acquire) == tid)?;
    let thread = place.thread.load(Ordering::Acquire);
    (!thread.is_null()).then_some(thread)
}

/// Gives the thread a place; `None` if all near its home are taken.
pub(super) fn enter(tid: u32, thread: *mut Thread) -> Option<()> {
    ANY.store(true, Ordering::Relaxed);
    places(tid).find_map(|place| {
        place
            .tid
            .compare_exchange(0, u32::MAX, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        place.thread.store(thread, Ordering::Release);
        place.tid.store(tid, Ordering::Release);
        Some(())
    })
}

/// Takes the thread's place away.
pub(super) fn leave(tid: u32) {
    if let Some(place) = places(tid).find(|place| place.tid.load(Ordering::Acquire) == tid) {
        place.thread.store(null_mut(), Ordering::Release);
        place.tid.store(0, Ordering::Release);
    }
}
