//! The tier that needs nothing: EFLAGS.TF and SIGTRAP in the process itself. It opens and closes scopes on the calling
//! thread and brings back traces; it knows nothing of rendering or call sites.
#![expect(
    unsafe_code,
    reason = "a signal handler, system calls without libc, and the log that they share"
)]
mod altstack;
mod bulk;
#[path = "../callout/mod.rs"]
mod callout;
mod collect;
mod cure;
#[path = "../displaced/mod.rs"]
mod displaced;
mod doors;
mod engine;
mod enter;
mod foreign;
mod guard;
mod memory;
mod moves;
mod over;
mod probed;
mod registers;
mod stop;
mod sys;
mod text;
pub(crate) use sys::{errno, set_errno};
mod thread;
mod trap;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::scope::{Budget, ScopeError};
use crate::trace::{Form, Reasons, Tier, Trace};
use enter::{enter, leave, set_trap_blocked};
use thread::{DEEPEST, Frame, Kind, Thread};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// An open scope of one thread.
#[derive(Debug)]
pub(crate) struct Handle {
    id: u64,
    form: Form,
    pid: u32,
    tid: u32,
    thread: *mut Thread,
}

// SAFETY: on another thread than its own it reads `tid` and an atomic field of a state that is never freed.
unsafe impl Send for Handle {}

/// The traced thread may not be armed while the scope's own code runs: that code is not part of any trace.
#[inline(always)]
pub(crate) fn pause() {
    doors::disarm();
}

/// What this thread has run on a processor.
pub(crate) fn thread_time() -> std::time::Duration {
    std::time::Duration::from_nanos(sys::thread_ns())
}

/// Arms the thread, if a scope is open on it that can still record.
#[inline(always)]
pub(crate) fn resume() {
    if let Some(begin) = own().and_then(armed) {
        // SAFETY: the handler is installed, the state ready, and never freed.
        unsafe { doors::arm(begin) };
    }
}

thread_local! {
    static KEY: Cell<u64> = const { Cell::new(0) };
}

/// This thread's key: the kernel gives its id to another one when it is gone.
fn key() -> u64 {
    KEY.with(|key| {
        if key.get() == 0 {
            key.set(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        }
        key.get()
    })
}

/// The state of this thread, if it has one.
fn own() -> Option<*mut Thread> {
    if thread::none() {
        return None;
    }
    let thread = thread::find(sys::gettid())?;
    // SAFETY: states are never freed; the key is written by the thread that has the state, before it is found.
    (unsafe { (*thread).key } == key()).then_some(thread)
}

/// Opens a scope on this thread, not armed yet. The error says why it is skipped.
/// `copied`: code may run from copies.
pub(crate) fn open(form: Form, budget: Budget, copied: bool) -> Result<Handle, String> {
    let tid = sys::gettid();
    let thread = match own() {
        Some(thread) if !deserted(tid, thread) => thread,
        _ => enter(tid)?,
    };
    // SAFETY: the state of this very thread, which is not armed: nobody else reaches it but for its atomic fields.
    let state = unsafe { &mut *thread };
    settle(state);
    let Some(place) = state.frames.iter().position(Option::is_none) else {
        return Err(format!(
            "more than {DEEPEST} scopes are open on this thread"
        ));
    };
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let outer = state.reasons;
    if !state.halted {
        state.reasons = Reasons::NONE;
    }
    let frame = Frame {
        id,
        form,
        from: state.len,
        begin: None,
        traps: state.traps,
        counted: state.counted,
        shown: 0,
        seal: 0,
        started: state.started,
        signals: state.signals,
        outer,
        most_traps: state.traps + budget.traps,
        deadline_ns: sys::now_ns() + u64::try_from(budget.time.as_nanos()).unwrap_or(u64::MAX / 2),
    };
    if let Some(free) = state.frames.get_mut(place) {
        *free = Some(frame);
    }
    limit(state);
    if state.frames.iter().flatten().count() == 1 {
        callout::close(state);
        callout::open(state, form);
        displaced::open(state, form, copied);
        if let Some(text) = state.text() {
            text.renew(displaced::unwritable());
        }
    }
    Ok(Handle {
        id,
        form,
        pid: sys::getpid(),
        tid,
        thread,
    })
}

impl Handle {
    /// Calls a function with the thread armed.
    ///
    /// # Safety
    /// `function` is a C function that is sound with these arguments and returns.
    pub(crate) unsafe fn call(&self, function: usize, args: &[u64; 6]) -> u64 {
        match handled(self.thread).and_then(ready) {
            Some(begin) => {
                // SAFETY: `begin` points into the state, which is never freed.
                unsafe { begin.write(function as u64) };
                // SAFETY: the caller's promise; the state is ready.
                unsafe { doors::call(function, args) }
            }
            // SAFETY: the caller's promise.
            None => unsafe { untraced(function, args) },
        }
    }

    /// Closes the scope (the thread is paused), and brings back its trace.
    pub(crate) fn close(&self, dropped: bool) -> Result<Trace, ScopeError> {
        if sys::gettid() != self.tid {
            return self.close_elsewhere(dropped);
        }
        // SAFETY: the state of this very thread, which is not armed.
        let state = unsafe { &mut *self.thread };
        settle(state);
        let inner = state
            .frames
            .iter()
            .flatten()
            .any(|frame| frame.id > self.id);
        if inner && !dropped {
            return Err(ScopeError::WrongOrder);
        }
        let place = state
            .frames
            .iter_mut()
            .find(|place| place.is_some_and(|frame| frame.id == self.id));
        let Some(frame) = place.and_then(Option::take) else {
            return Err(ScopeError::AlreadyClosed);
        };
        if state.frames.iter().all(Option::is_none) {
            callout::judge(state);
        }
        if state.text().is_some_and(|text| !text.is_true()) {
            state.blame(Reasons::CODE_CHANGED);
        }
        let mut reasons = state.reasons;
        if inner {
            reasons = reasons.with(Reasons::WRONG_ORDER);
        }
        let trace = collect::trace(state, &frame, reasons);
        state.reasons = state.reasons.with(frame.outer);
        limit(state);
        if state.frames.iter().all(Option::is_none) {
            leave(self.tid, self.thread);
        }
        Ok(trace)
    }

    /// The scope's own thread is told to stop; its log is its own and cannot be read from here.
    fn close_elsewhere(&self, dropped: bool) -> Result<Trace, ScopeError> {
        if !dropped {
            return Err(ScopeError::OtherThread);
        }
        let forked = sys::getpid() != self.pid;
        if !forked && thread::find(self.tid) == Some(self.thread) {
            // SAFETY: states are never freed; the fields are atomic.
            let (gone, hop) = unsafe { (&(*self.thread).gone, &(*self.thread).hop) };
            let free = |place: &&AtomicU64| {
                let (set, load) = (Ordering::Release, Ordering::Relaxed);
                place.compare_exchange(0, self.id, set, load).is_ok()
            };
            let noted = gone.iter().find(free);
            // As many places as scopes that a thread can have open: there is one.
            debug_assert!(noted.is_some(), "a scope is closed once");
            hop.store(true, Ordering::Release);
        }
        let mut trace = Trace::skipped(self.form, "");
        trace.skip_reason = None;
        trace.tier = Tier::SingleStep;
        trace.reasons = if forked {
            Reasons::FORK
        } else {
            Reasons::THREAD_HOP
        };
        Ok(trace)
    }
}

/// Forgets the scopes of this thread that were closed on others. Whether none is left: its state is given back then, so
/// that the next scope records again.
fn deserted(tid: u32, thread: *mut Thread) -> bool {
    // SAFETY: the state of this very thread, which is not armed: nobody else reaches it but for its atomic fields.
    let state = unsafe { &mut *thread };
    if !state.hop.load(Ordering::Acquire) {
        return false;
    }
    for gone in &state.gone {
        let id = gone.swap(0, Ordering::AcqRel);
        let frame = state.frames.iter_mut();
        for place in frame.filter(|place| place.is_some_and(|frame| frame.id == id)) {
            *place = None;
        }
    }
    let none = state.frames.iter().all(Option::is_none);
    if none {
        leave(tid, thread);
    }
    none
}

/// As [`ready`]; `None` also where debug registers will tell when to begin.
#[inline(always)]
fn armed(thread: *mut Thread) -> Option<*mut u64> {
    let thread = handled(thread)?;
    // SAFETY: the state of this very thread, which is not armed.
    let waits = callout::waits(unsafe { &mut *thread });
    if waits { None } else { ready(thread) }
}

/// The thread, if its steps will be handled: code that ran natively may have taken the handler away by a raw system call.
fn handled(thread: *mut Thread) -> Option<*mut Thread> {
    if trap::is_ours() || !cure::holds(cure::Cure::HandlerRechecked) {
        return Some(thread);
    }
    // SAFETY: the state of this very thread, which is not armed.
    let state = unsafe { &mut *thread };
    if !state.halted && state.frames.iter().any(Option::is_some) {
        state.halted = true;
        state.blame(Reasons::UNGUARDED);
        if state.wish {
            set_trap_blocked(true);
        }
    }
    None
}

/// Whether the thread can record; where it puts the address that its first stop must have.
fn ready(thread: *mut Thread) -> Option<*mut u64> {
    // SAFETY: the state of this very thread, which is not armed.
    let state = unsafe { &mut *thread };
    if state.halted || state.frames.iter().all(Option::is_none) {
        return None;
    }
    state.before = Thread::IDLE;
    state.own = true;
    state.armed = true;
    Some(&raw mut state.begin)
}

/// After a pause: what the stop at the door left behind.
fn settle(state: &mut Thread) {
    bulk::ends(state);
    callout::settle(state);
    if state.armed {
        state.armed = false;
        state.blame(Reasons::TF_LOST);
    }
    let begin = state.begin;
    let ran = state.before.kind != Kind::First;
    for frame in state.frames.iter_mut().flatten() {
        if frame.begin.is_none() && ran {
            frame.begin = Some(begin);
        }
    }
}

/// The tightest budget of the open scopes is the thread's.
fn limit(state: &mut Thread) {
    let frames = state.frames.iter().flatten();
    state.most_traps = frames
        .clone()
        .map(|frame| frame.most_traps)
        .min()
        .unwrap_or(0);
    state.deadline_ns = frames.map(|frame| frame.deadline_ns).min().unwrap_or(0);
}

/// Calls a function without a trace.
///
/// # Safety
/// As for a traced call.
pub(crate) unsafe fn untraced(function: usize, args: &[u64; 6]) -> u64 {
    // SAFETY: the caller gave a C function that is sound with these arguments.
    let function: extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64 =
        unsafe { std::mem::transmute(function) };
    let [a, b, c, d, e, f] = *args;
    function(a, b, c, d, e, f)
}
