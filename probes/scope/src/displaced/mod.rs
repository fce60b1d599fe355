//! Code that runs from a copy: blocks are copied into private memory with a stub that logs them, so that a block costs
//! nanoseconds where a step costs microseconds. The program's own code is never touched, its stack holds its own addresses
//! only (so that returns, exceptions and backtraces are right), and no signal handler sees an address of a copy: signals
//! wait till the thread has left, and faults are told at the place that they belong to. What cannot be copied is stepped.
//!
//! Part of the stepper: all but `open` and `close` runs in handlers, without libc, locks or allocation.
mod blocks;
pub(super) mod fault;
mod log;
mod make;
mod may;
mod memory;
mod shape;
mod table;
mod write;

use iced_x86::{Instruction, Mnemonic};

use super::callout;
use super::registers::Registers;
use super::thread::{Before, Entry, Kind, Thread};
use super::{stop, sys};
use crate::flow;
use crate::predict::Next;
use crate::trace::{Form, Reasons};
use blocks::Blocks;
use log::{Log, Run};
use memory::slot;

/// Signals that are not held back: those of faults, which a held back one would turn into death.
const FAULTS: u64 = bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGSYS);

const TRAP_TRACE: i32 = 2;
const SI_KERNEL: i32 = 0x80;

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The copies of one thread's scopes.
#[derive(Debug)]
pub(super) struct Copies {
    blocks: Blocks,
    log: Log,
    /// The process that made them: their pages are shared with children.
    pid: u32,
    /// This scope may use them.
    on: bool,
    /// The thread runs in them.
    inside: bool,
    /// Code ran natively since they were made: it may have rewritten what they stand for.
    doubted: bool,
    /// Where the log stood when it went in.
    from: u64,
    /// The signals that the program has blocked.
    mask: u64,
    /// Signals that came by a sender where only faults may.
    waiting: fault::Waiting,
}

impl Copies {
    fn new() -> Option<Self> {
        Some(Self {
            blocks: Blocks::new(may::ranges())?,
            log: Log::new()?,
            pid: sys::getpid(),
            on: false,
            inside: false,
            doubted: false,
            from: 0,
            mask: 0,
            waiting: fault::Waiting::default(),
        })
    }
}

impl Copies {
    /// Whether the last block is this string instruction, interrupted after some turns: rcx is logged as behind it then.
    fn is_within_string(&mut self, addr: u64, rcx: u64) -> bool {
        let to = self.blocks.memory.get(slot::CURSOR);
        let last = log::ran(&self.blocks, self.log, self.from, to).last();
        let within = last.is_some_and(|last| last.block.repeated && last.block.addr == addr);
        let done = within && self.log.last_word(to) != rcx;
        if done {
            self.log.put(to, rcx);
            self.blocks.memory.set(slot::CURSOR, to + 8);
        }
        done
    }
}

fn of(thread: &Thread) -> Option<&'static mut Copies> {
    // SAFETY: made once for a thread's state and never freed; only its thread reaches it, and one handler at a time.
    unsafe { thread.copies.as_mut() }
}

/// Code of files that cannot be written, as it is mapped now.
pub(super) fn unwritable() -> impl Iterator<Item = (u64, u64)> {
    may::text().into_iter()
}

/// The first scope of a thread was opened (and it is not armed yet): whether it may run from copies.
pub(super) fn open(thread: &mut Thread, form: Form, wanted: bool) {
    close(thread);
    if !wanted || form == Form::Window || callout::has_shadow_stack() {
        return;
    }
    let ours = of(thread).filter(|copies| copies.pid == sys::getpid());
    let renewed = ours.is_some_and(|copies| copies.blocks.renew(may::ranges()));
    if !renewed {
        // Arenas that do not reach the code of now stay mapped: a backtrace may stand in them.
        let Some(made) = Copies::new() else {
            return;
        };
        thread.copies = Box::into_raw(Box::new(made));
    }
    let faults = thread.faults;
    let Some(copies) = of(thread) else {
        return;
    };
    copies.blocks.memory.set(slot::CURSOR, copies.log.start());
    copies.on = faults;
}

/// The last scope of a thread is closed.
pub(super) fn close(thread: &mut Thread) {
    if let Some(copies) = of(thread) {
        copies.on = false;
    }
}

/// The thread's log from `from` on, instruction by instruction.
pub(super) fn flat(thread: &Thread, from: usize) -> Vec<Entry> {
    let copies = of(thread).map(|copies| (&copies.blocks, copies.log));
    log::flat(copies, thread.entries(from))
}

/// Lets the thread, which stands at `addr`, go on in a copy, if there can be one.
pub(super) fn enter(thread: &mut Thread, registers: &mut Registers<'_>, addr: u64) -> bool {
    let Some(copies) = of(thread).filter(|copies| copies.on && !copies.inside) else {
        return false;
    };
    let windows = thread
        .frames
        .iter()
        .flatten()
        .any(|frame| frame.form == Form::Window);
    // A string instruction that is stepped already is stepped to its end: it is one entry of the log.
    let turning = thread.before.kind == Kind::Repeated && thread.before.addr == addr;
    if windows || turning || thread.callout.is_landing() {
        return false;
    }
    if std::mem::take(&mut copies.doubted) && !copies.blocks.are_true() {
        copies.blocks.off = true;
    }
    let Some(copy) = copies.blocks.copy(addr, callout::confines(thread)) else {
        return false;
    };
    copies.inside = true;
    copies.from = copies.blocks.memory.get(slot::CURSOR);
    copies.mask = *registers.mask();
    *registers.mask() |= !FAULTS;
    registers.set_rip(copy);
    registers.trap(false);
    true
}

/// Code has run natively: what the copies stand for is to be looked at again.
pub(super) fn doubt(thread: &Thread) {
    if let Some(copies) = of(thread) {
        copies.doubted = true;
    }
}

/// The handler of this signal is set natively: if it is one that copies need, there are none from here on.
pub(super) fn sets_handler(thread: &Thread, signal: u64) {
    if let Some(copies) = of(thread).filter(|_| fault::is_one(signal)) {
        copies.blocks.off = true;
    }
}

/// Whether the thread runs in a copy.
pub(super) fn is_inside(thread: &Thread) -> bool {
    of(thread).is_some_and(|copies| copies.inside)
}

/// A SIGTRAP on a thread that runs in a copy.
pub(super) fn trap(
    thread: &mut Thread,
    registers: &mut Registers<'_>,
    info: *const libc::siginfo_t,
    code: i32,
) {
    let Some(copies) = of(thread) else {
        return;
    };
    let at = registers.rip().wrapping_sub(1);
    if code == TRAP_TRACE {
        registers.trap(false);
        return;
    }
    // The kernel keeps one SIGTRAP: one that was sent swallows that of a breakpoint, which the place alone tells then.
    if code != SI_KERNEL {
        copies.waiting.keep(libc::SIGTRAP, info);
    }
    if let Some((target, exit)) = copies.blocks.left(at) {
        let goes_on = stop::spent(thread).is_none();
        let copy = goes_on
            .then(|| copies.blocks.copy(target, callout::confines(thread)))
            .flatten();
        if let Some(copy) = copy {
            thread.traps += 1;
            copies.blocks.join(exit, target, copy);
            registers.set_rip(copy);
            return;
        }
        if !leave(thread, registers, target, 0) {
            stop::stop(thread, registers);
        }
    }
}

/// The thread is about to run this instruction by a step: what would make the copies stale, or take away the handlers that
/// they need, ends them.
pub(super) fn before(thread: &Thread, registers: &Registers<'_>, instruction: &Instruction) {
    let Some(copies) = of(thread).filter(|copies| copies.on && flow::is_system_call(instruction))
    else {
        return;
    };
    let (first, second) = (registers.rdi(), registers.rsi());
    let ends = match registers.rax() {
        // mmap, mprotect, munmap, mremap, pkey_mprotect
        9 | 10 | 11 | 25 | 329 => copies.blocks.touch(first, second),
        sys::nr::RT_SIGACTION => {
            second != 0 && fault::is_one(first) && fault::kept(first).is_none()
        }
        // INT 0x80 has other numbers.
        _ => instruction.mnemonic() != Mnemonic::Syscall,
    };
    if ends {
        copies.blocks.off = true;
    }
}

/// The thread is no more in a copy, but at `addr`; of the last block so many instructions did not run.
/// `true`: it has left the region for good, or a callback, and goes on natively.
fn leave(thread: &mut Thread, registers: &mut Registers<'_>, addr: u64, missing: usize) -> bool {
    let Some(copies) = of(thread) else {
        return false;
    };
    let to = copies.blocks.memory.get(slot::CURSOR);
    let counted = thread.counted;
    let mut ran = log::ran(&copies.blocks, copies.log, copies.from, to).peekable();
    while let Some(one) = ran.next() {
        let missing = if ran.peek().is_none() { missing } else { 0 };
        log::count(thread, &copies.blocks, &one, missing);
    }
    let run = Run {
        from: copies.from,
        to,
        left: addr,
        missing: u8::try_from(missing).unwrap_or(u8::MAX),
    };
    // Where the first instruction has faulted, there is nothing to log, and what came before it is told by the next entry.
    let ran = thread.counted > counted;
    if ran {
        let marks = thread.marks();
        if !thread.push(run.entry(marks)) {
            thread.blame(Reasons::RING_FULL);
        }
    }
    copies.inside = false;
    *registers.mask() = copies.mask;
    registers.set_rip(addr);
    thread.before = Before {
        next: Next::At(addr),
        fall: addr,
        kind: if ran { Kind::Plain } else { Kind::Moved },
        ..Thread::IDLE
    };
    copies.waiting.raise();
    callout::left(thread, registers, addr)
}
