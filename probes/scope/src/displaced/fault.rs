//! Faults. While a scope is open, the handlers of their four signals are ours: they call the program's own, and what those
//! do to the thread is seen. A handler that puts a stepped thread elsewhere (a check for null, a fix-up) is followed there.
//! In a copy, the program's handler is told the address that the instruction has in its code, with the registers as they
//! were there; the thread goes on from there by steps.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::super::cure::{Cure, holds};
use super::super::registers::Registers;
use super::super::thread::{self, Kind, Thread};
use super::super::trap::Action;
use super::super::{doors, moves, stop, sys};
use super::memory::slot;
use super::{Copies, leave, of};
use crate::trace::Reasons;

const SIGNALS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
const WORDS: usize = Action::BYTES / 8;
const SA_SIGINFO: u64 = 0x4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
const RT_TGSIGQUEUEINFO: u64 = 297;

/// How often the count is tried for.
const PATIENCE: u32 = 1_000;

/// How many threads have scopes open.
static USERS: Mutex<u32> = Mutex::new(0);
static FORMER: [[AtomicU64; WORDS]; 4] = [const { [const { AtomicU64::new(0) }; WORDS] }; 4];

/// Signals of senders that wait until the thread has left the copies: one of each kind, as the kernel keeps them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting([Option<(i32, [u64; 16])>; 5]);

impl Waiting {
    pub(super) fn keep(&mut self, signal: i32, info: *const libc::siginfo_t) {
        // SAFETY: the kernel's `siginfo_t` is 128 bytes.
        let words = unsafe { info.cast::<[u64; 16]>().read() };
        let known = |place: &&mut Option<(i32, _)>| place.is_none_or(|(kept, _)| kept == signal);
        if let Some(place) = self.0.iter_mut().find(known) {
            *place = Some((signal, words));
        }
    }

    /// Sends them again: they arrive when the handler is over.
    pub(super) fn raise(&mut self) {
        for (signal, info) in self.0.iter_mut().filter_map(Option::take) {
            let args = [
                u64::from(sys::getpid()),
                u64::from(sys::gettid()),
                u64::from(signal.unsigned_abs()),
                info.as_ptr() as u64,
                0,
                0,
            ];
            // SAFETY: a signal to this very thread, told as it was told first.
            unsafe { sys::call(RT_TGSIGQUEUEINFO, args) };
        }
    }
}

/// Installs the handlers, if they are not; `false` if the kernel does not let us.
pub(in super::super) fn install() -> bool {
    let Some(mut users) = users() else {
        return false;
    };
    let all = SIGNALS.iter().all(|signal| take(*signal).is_some());
    if all {
        *users += 1;
    }
    all
}

/// The count, unless it stays locked: the holder is gone where this process was forked from the holder's.
fn users() -> Option<MutexGuard<'static, u32>> {
    (0..PATIENCE).find_map(|turn| {
        if turn > 0 {
            std::thread::yield_now();
        }
        match USERS.try_lock() {
            Ok(users) => Some(users),
            Err(TryLockError::Poisoned(users)) => Some(users.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    })
}

fn take(signal: i32) -> Option<()> {
    let now = action(signal, None)?;
    let [handler, flags, ..] = now.words();
    if handler == ours() {
        return Some(());
    }
    set_wish(signal, now);
    let flags = SA_SIGINFO | SA_RESTORER | SA_ONSTACK | flags & !(SA_NODEFER | 0xff);
    let action = [ours(), flags & !SA_RESETHAND, doors::restorer(), u64::MAX];
    self::action(signal, Some(Action::from_words(action))).map(|_| ())
}

/// Whether a signal is one of those that are handled here.
pub(super) fn is_one(signal: u64) -> bool {
    SIGNALS
        .iter()
        .any(|one| u64::from(one.unsigned_abs()) == signal & 0xffff_ffff)
}

/// The signal, if its handler is ours at the moment, so that a wish of the program's for it is kept here.
pub(in super::super) fn kept(signal: u64) -> Option<i32> {
    let signal = i32::try_from(signal & 0xffff_ffff).ok()?;
    former(signal)?;
    let [handler, ..] = action(signal, None)?.words();
    (handler == ours()).then_some(signal)
}

/// What the program wishes for the signal.
pub(in super::super) fn wish(signal: i32) -> Action {
    let words =
        former(signal).map(|former| former.each_ref().map(|word| word.load(Ordering::Acquire)));
    words.map_or_else(Action::default, Action::from_words)
}

/// It wishes something else.
pub(in super::super) fn set_wish(signal: i32, action: Action) {
    for (place, word) in former(signal).into_iter().flatten().zip(action.words()) {
        place.store(word, Ordering::Release);
    }
}

fn ours() -> u64 {
    on_fault as *const () as u64
}

fn former(signal: i32) -> Option<&'static [AtomicU64; WORDS]> {
    let place = SIGNALS.iter().position(|known| *known == signal)?;
    FORMER.get(place)
}

/// Puts back what was there, where the program has set nothing else since.
pub(in super::super) fn uninstall() {
    let Some(mut users) = users() else {
        return;
    };
    *users = users.saturating_sub(1);
    if *users > 0 {
        return;
    }
    for signal in SIGNALS {
        let now = action(signal, None).map(Action::words);
        if now.is_some_and(|[handler, ..]| handler == ours()) {
            restore(signal);
        }
    }
}

fn restore(signal: i32) {
    action(signal, Some(wish(signal)));
}

/// Sets the action for a signal, if there is a new one; returns the one that was.
fn action(signal: i32, new: Option<Action>) -> Option<Action> {
    let mut old = Action::default();
    let new = new
        .as_ref()
        .map_or(0, |action| std::ptr::from_ref(action) as u64);
    let args = [
        u64::from(signal.unsigned_abs()),
        new,
        (&raw mut old) as u64,
        8,
        0,
        0,
    ];
    // SAFETY: both are the kernel's shape or null; the handler is made for any thread at any time.
    let result = unsafe { sys::call(sys::nr::RT_SIGACTION, args) };
    (result == 0).then_some(old)
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel hands over both, for this call alone (SA_SIGINFO).
    let (sent, frame) = unsafe { ((*info).si_code <= 0, &mut *context) };
    let mut registers = Registers(frame);
    let inside = thread::find(sys::gettid())
        // SAFETY: states are never freed, and only their own thread reaches them.
        .map(|thread| unsafe { &mut *thread })
        .and_then(|thread| of(thread).map(|copies| (thread, copies)))
        .filter(|(_, copies)| copies.inside && copies.blocks.holds(registers.rip()));
    match inside {
        Some((_, copies)) if sent => copies.waiting.keep(signal, info),
        Some((thread, copies)) => {
            // SAFETY: a fault's address is where the kernel has put it.
            let at = unsafe { (*info).si_addr() } as u64;
            if copies.log.is_full_at(at) {
                full(thread, copies, &mut registers);
                return;
            }
            tell(thread, copies, &mut registers);
            if matches!(signal, libc::SIGFPE | libc::SIGILL) {
                // SAFETY: for these the address is that of the instruction, the third word of the kernel's shape.
                unsafe { info.cast::<u64>().add(2).write(registers.rip()) };
            }
            hand_over(signal, info, context);
        }
        None => hand_over(signal, info, context),
    }
}

/// Calls the program's handler; if it has moved a stepped thread, that is seen.
fn hand_over(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's frame of this call.
    let from = Registers(unsafe { &mut *context }).rip();
    hand_on(signal, info, context);
    // SAFETY: still the same.
    let mut registers = Registers(unsafe { &mut *context });
    if registers.rip() == from || !holds(Cure::MoveFollowed) {
        return;
    }
    let thread = thread::find(sys::gettid())
        // SAFETY: states are never freed, and only their own thread reaches them.
        .map(|thread| unsafe { &mut *thread });
    if let Some(thread) = thread {
        moves::moved(thread, &mut registers, from);
    }
}

/// There is no more room: the thread goes on natively, before the block that was not logged.
fn full(thread: &mut Thread, copies: &mut Copies, registers: &mut Registers<'_>) {
    let rip = registers.rip();
    let block = copies
        .blocks
        .all()
        .iter()
        .find(|block| block.store == rip)
        .copied();
    let rax = copies.blocks.memory.get(slot::RAX);
    registers.set_rax(rax);
    if let Some(block) = block {
        leave(thread, registers, block.addr, 0);
        stop::halt(thread, registers, Reasons::BUDGET);
    }
}

/// Puts the thread where the fault is in its own code, to be stepped from there.
fn tell(thread: &mut Thread, copies: &mut Copies, registers: &mut Registers<'_>) {
    let rip = registers.rip();
    let found = copies.blocks.all().iter().find_map(|block| {
        let lines = copies.blocks.lines(block);
        let place = lines
            .iter()
            .position(|line| line.plain == rip || line.saved == rip)?;
        let line = lines.get(place)?;
        Some((line.addr, lines.len() - place, line.plain != rip))
    });
    let Some((addr, mut missing, saved)) = found else {
        return;
    };
    let within = copies.is_within_string(addr, registers.rcx());
    if within {
        missing = 0;
    }
    if saved {
        registers.set_rax(copies.blocks.memory.get(slot::RAX));
    }
    leave(thread, registers, addr, missing);
    if within {
        thread.before.kind = Kind::Repeated;
        thread.before.addr = addr;
    }
    copies.on = false;
    stop::stop(thread, registers);
    copies.on = true;
}

/// Calls who was there before, with the signals blocked that would be.
fn hand_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let [handler, flags, _, mask] = wish(signal).words();
    // SAFETY: the kernel's information of this call.
    let sent = unsafe { (*info).si_code } <= 0;
    if handler == 1 && sent {
        return;
    }
    if flags & SA_RESETHAND != 0 {
        set_wish(signal, Action::default());
    }
    if handler <= 1 {
        // The instruction faults again, and kills as it would; what was sent is sent again.
        restore(signal);
        if sent {
            let mut waiting = Waiting::default();
            waiting.keep(signal, info);
            waiting.raise();
        }
        return;
    }
    // SAFETY: still the kernel's frame of this call.
    let blocked = *Registers(unsafe { &mut *context }).mask();
    let this = if flags & SA_NODEFER == 0 {
        super::bit(signal)
    } else {
        0
    };
    let set = blocked | mask | this;
    let args = [2, (&raw const set) as u64, 0, 8, 0, 0];
    // SAFETY: the set lives through the call.
    unsafe { sys::call(sys::nr::RT_SIGPROCMASK, args) };
    if flags & SA_SIGINFO != 0 {
        // SAFETY: the program gave this address as such a handler.
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t) =
            unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: the program gave this address as such a handler.
        let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}
