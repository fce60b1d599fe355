//! The first and the last scope of a thread: its state, the handler, the signal stack, the mask. Runs outside the handler.
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::cure::{Cure, holds};
use super::text::Text;
use super::thread::{self, DEEPEST, Entry, Thread};
use super::{altstack, callout, displaced, engine, guard, key, memory, probed, sys, trap};
use crate::trace::{Child, Reasons};

/// Entries of a thread's log: every trap of the largest budget, and what is inserted between traps.
const LOG_ROOM: usize = 2 * crate::scope::MOST_TRAPS as usize;
/// How often the list of idle states is tried for.
const PATIENCE: u32 = 1_000;

/// States of threads whose scopes are all closed, to be used again.
static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

struct Idle(*mut Thread);

// SAFETY: a state in the list belongs to no thread; who takes it out has it alone.
unsafe impl Send for Idle {}

/// The first scope of a thread: state, handlers, signal stack, mask. The error says why there can be none.
pub(super) fn enter(tid: u32) -> Result<*mut Thread, String> {
    #[cfg(feature = "uncured")]
    super::cure::read_environment();
    warm_up();
    memory::prepare();
    trap::install()?;
    let thread = match idle().and_then(|mut idle| idle.pop()) {
        Some(Idle(thread)) => thread,
        None => allocate()?,
    };
    // SAFETY: taken out of the list: this thread has it alone.
    let state = unsafe { &mut *thread };
    *state = Thread {
        log: state.log,
        stack: state.stack,
        copies: state.copies,
        text: state.text,
        key: key(),
        ..blank()
    };
    // What a thread of this id has left behind is nobody's.
    thread::leave(tid);
    if thread::enter(tid, thread).is_none() {
        give_back(thread);
        return Err("too many threads have open scopes".to_owned());
    }
    if holds(Cure::OwnStack) {
        state.old_stack = altstack::switch(state.stack);
    }
    state.faults = displaced::fault::install();
    state.wish = set_trap_blocked(false);
    if let Err(why) = engine::prove() {
        leave(tid, thread);
        // What was set is emulated by the other one: it is not to hand anything on to us.
        let _same = trap::uninstall();
        return Err(why);
    }
    Ok(thread)
}

/// The last scope of a thread was closed.
pub(super) fn leave(tid: u32, thread: *mut Thread) {
    // SAFETY: the state of this very thread, which is not armed.
    let state = unsafe { &mut *thread };
    callout::close(state);
    displaced::close(state);
    if std::mem::take(&mut state.faults) {
        displaced::fault::uninstall();
    }
    if state.wish && !state.halted {
        set_trap_blocked(true);
    }
    if !holds(Cure::HandlerStays) {
        assert_eq!(trap::uninstall(), Ok(()));
    }
    if let Some(old) = state.old_stack.take() {
        altstack::restore(state.stack, &old);
    }
    thread::leave(tid);
    give_back(thread);
}

fn give_back(thread: *mut Thread) {
    if let Some(mut idle) = idle() {
        idle.push(Idle(thread));
    }
}

/// The list, unless it stays locked: the holder is gone where this process was forked from the holder's.
fn idle() -> Option<MutexGuard<'static, Vec<Idle>>> {
    (0..PATIENCE).find_map(|turn| {
        if turn > 0 {
            std::thread::yield_now();
        }
        match IDLE.try_lock() {
            Ok(idle) => Some(idle),
            Err(TryLockError::Poisoned(idle)) => Some(idle.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    })
}

fn blank() -> Thread {
    Thread {
        armed: false,
        halted: false,
        reasons: Reasons::NONE,
        flag_visible: false,
        before: Thread::IDLE,
        begin: 0,
        end: 0,
        own: false,
        moved: false,
        faults: false,
        ahead: [0; thread::LONGEST],
        away: false,
        child: None,
        children: [Child {
            tid: 0,
            thread: false,
        }; thread::LISTED],
        started: 0,
        probed: probed::Probed::NONE,
        bulk: None,
        signals: 0,
        key: 0,
        traps: 0,
        counted: 0,
        most_traps: 0,
        deadline_ns: 0,
        wish: false,
        hop: AtomicBool::new(false),
        gone: [const { AtomicU64::new(0) }; DEEPEST],
        log: null_mut(),
        len: 0,
        room: LOG_ROOM,
        frames: [None; DEEPEST],
        stack: null_mut(),
        old_stack: None,
        callout: callout::State::default(),
        copies: null_mut(),
        text: null_mut(),
        in_text: false,
    }
}

fn allocate() -> Result<*mut Thread, String> {
    let log = map(LOG_ROOM * size_of::<Entry>())?;
    let stack = map(altstack::BYTES)?;
    let text = map(size_of::<Text>())?;
    Ok(Box::into_raw(Box::new(Thread {
        log: log.cast(),
        stack,
        text: text.cast(),
        ..blank()
    })))
}

/// Fresh memory, taken page by page as it is touched.
fn map(bytes: usize) -> Result<*mut u8, String> {
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(format!("no memory for a log of {bytes} bytes"));
    }
    Ok(at.cast())
}

/// The decoder makes its tables at its first use, which may not be in the handler.
fn warm_up() {
    std::hint::black_box(crate::flow::decode(0, &[0x90]));
}

/// Blocks or unblocks SIGTRAP for this thread; returns whether it was blocked.
pub(super) fn set_trap_blocked(blocked: bool) -> bool {
    let set = guard::SIGTRAP_BIT;
    let mut old = 0_u64;
    let how = u64::from(!blocked);
    let args = [how, (&raw const set) as u64, (&raw mut old) as u64, 8, 0, 0];
    // SAFETY: both sets live through the call.
    unsafe { sys::call(sys::nr::RT_SIGPROCMASK, args) };
    old & guard::SIGTRAP_BIT != 0
}
