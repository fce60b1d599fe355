//! The SIGTRAP handler: installed at the first open, never taken away. Steps are ours; all else is handed on to who was
//! there before. No libc, no lock, no allocation.
use std::sync::atomic::{AtomicU64, Ordering};

use super::cure::{Cure, holds};
use super::registers::{Registers, TRAP_FLAG};
use super::thread::{Before, Kind, Thread, mark};
use super::{bulk, callout, displaced, doors, engine, foreign, over, stop, sys, thread};
use crate::trace::Reasons;

const SI_KERNEL: i32 = 0x80;
const TRAP_TRACE: i32 = 2;
const TRAP_PERF: i32 = 6;
const SA_FLAGS: u64 = 0x4 | 0x0400_0000 | 0x0800_0000; // SIGINFO, RESTORER, ONSTACK

/// The kernel's `struct sigaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Action {
    pub(super) handler: u64,
    pub(super) flags: u64,
    pub(super) restorer: u64,
    pub(super) mask: u64,
}

impl Action {
    pub(super) const BYTES: usize = 32;

    pub(super) fn words(self) -> [u64; 4] {
        [self.handler, self.flags, self.restorer, self.mask]
    }

    pub(super) fn from_words([handler, flags, restorer, mask]: [u64; 4]) -> Self {
        Self {
            handler,
            flags,
            restorer,
            mask,
        }
    }

    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let mut word = || words.next().unwrap_or(0);
        Self {
            handler: word(),
            flags: word(),
            restorer: word(),
            mask: word(),
        }
    }

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = [self.handler, self.flags, self.restorer, self.mask];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }
}

/// Whose signals are not ours: as the program wishes.
static FORMER: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

pub(super) fn former() -> Action {
    let [handler, flags, restorer, mask] = &FORMER;
    Action {
        handler: handler.load(Ordering::Acquire),
        flags: flags.load(Ordering::Relaxed),
        restorer: restorer.load(Ordering::Relaxed),
        mask: mask.load(Ordering::Relaxed),
    }
}

pub(super) fn set_former(action: Action) {
    let [handler, flags, restorer, mask] = &FORMER;
    flags.store(action.flags, Ordering::Relaxed);
    restorer.store(action.restorer, Ordering::Relaxed);
    mask.store(action.mask, Ordering::Relaxed);
    handler.store(action.handler, Ordering::Release);
}

/// Makes the handler the process's, if it is not; who was there gets what is not a step. The error says why it cannot be.
pub(super) fn install() -> Result<(), String> {
    let ours = Action {
        handler: engine::handler(),
        flags: SA_FLAGS,
        restorer: doors::restorer(),
        mask: u64::MAX,
    };
    let mut now = Action::default();
    sigaction(None, Some(&mut now)).map_err(refused)?;
    if now.handler == ours.handler {
        return Ok(());
    }
    engine::alone(now.handler)?;
    set_former(now);
    sigaction(Some(&ours), Some(&mut now)).map_err(refused)?;
    engine::alone(now.handler).inspect_err(|_| {
        // It came first by a moment.
        let _back = sigaction(Some(&now), None);
    })
}

/// Whether the handler is still there.
pub(super) fn is_ours() -> bool {
    let mut now = Action::default();
    sigaction(None, Some(&mut now)).is_ok() && now.handler == engine::handler()
}

fn refused(error: i64) -> String {
    format!("SIGTRAP cannot be handled (errno {})", -error)
}

/// Puts back who was there before: what must not be done where steps may still come.
pub(super) fn uninstall() -> Result<(), i64> {
    sigaction(Some(&former()), None)
}

pub(super) fn sigaction(new: Option<&Action>, old: Option<&mut Action>) -> Result<(), i64> {
    let new = new.map_or(0, |action| std::ptr::from_ref(action) as u64);
    let old = old.map_or(0, |action| std::ptr::from_mut(action) as u64);
    let args = [u64::from(libc::SIGTRAP.unsigned_abs()), new, old, 8, 0, 0];
    // SAFETY: both are the kernel's shape or null; the handler is made for any thread at any time.
    let result = unsafe { sys::call(sys::nr::RT_SIGACTION, args) };
    if result == 0 { Ok(()) } else { Err(result) }
}

pub(super) extern "C" fn on_trap(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the kernel hands over both, for this call alone (SA_SIGINFO).
    let (code, frame) = unsafe { ((*info).si_code, &mut *context) };
    // SAFETY: with these codes the kernel fills in the sender, 0 for itself.
    let probe = code == 0 && holds(Cure::ProbeStepKnown) && unsafe { (*info).si_pid() } == 0;
    let from_kernel = code == TRAP_TRACE || probe;
    let mut registers = Registers(frame);
    let state = thread::find(sys::gettid())
        // SAFETY: states are never freed, and only their own thread reaches them.
        .map(|thread| unsafe { &mut *thread });
    #[cfg(feature = "uncured")]
    let (code, from_kernel) = match &state {
        Some(thread) if thread.armed && super::cure::swallows() => (libc::SI_TKILL, false),
        _ => (code, from_kernel),
    };
    if code == TRAP_PERF
        && let Some(event) = callout::event(info)
    {
        match state {
            Some(thread) if event.0 == bulk::EVENT => bulk::hit(thread, &mut registers),
            Some(thread) => callout::hit(thread, &mut registers, event),
            None => {}
        }
        return;
    }
    if let Some(thread) = state.as_deref()
        && displaced::is_inside(thread)
    {
        if let Some(thread) = state {
            displaced::trap(thread, &mut registers, info, code);
        }
        return;
    }
    let armed = state.filter(|thread| thread.armed && !thread.callout.is_native());
    // The kernel keeps one SIGTRAP: one that was sent swallows that of a breakpoint, which the place alone tells then.
    let mut stubs = thread_back(armed.as_deref(), &registers);
    stubs &= code == SI_KERNEL || holds(Cure::StubKnownByPlace);
    match armed {
        Some(thread) if stubs => {
            stop::came_back(thread, &mut registers);
            if code != SI_KERNEL {
                foreign::hand_on(Some(thread), signal, info, context, false);
            }
            // SAFETY: still the kernel's frame of this call.
            stop::stop(thread, &mut Registers(unsafe { &mut *context }));
        }
        Some(thread)
            if from_kernel
                || code == 0
                    && thread.before.kind == Kind::Breakpoint
                    && holds(Cure::ProbeStepKnown) =>
        {
            // The step over a uprobe comes as a plain signal that the thread seems to have sent itself.
            stop::stop(thread, &mut registers);
        }
        Some(thread) => {
            // A signal handler of the program, or a stub of ours, runs without the flag: that is not the traced flow.
            let mut stepped = registers.flags() & TRAP_FLAG != 0 || !holds(Cure::HandlerNotTraced);
            stepped |= popped(&thread.before, &registers) && holds(Cure::PoppedFlagKnown);
            registers.trap(false);
            let forced = code != 0 && code != libc::SI_TKILL && code != libc::SI_QUEUE;
            foreign::hand_on(Some(thread), signal, info, context, forced);
            if stepped {
                behind(thread, code, context);
            } else {
                // SAFETY: still the kernel's frame of this call.
                bulk::hit(thread, &mut Registers(unsafe { &mut *context }));
            }
        }
        // A thread that was born with the flag, or got it back by POPF after the close.
        None if from_kernel => {
            engine::saw();
            let clear = holds(Cure::StrayFlagCleared) && holds(Cure::StoppedForGood);
            registers.trap(!clear);
        }
        None => foreign::hand_on(None, signal, info, context, code > 0),
    }
}

/// Whether the thread stands behind the breakpoint of a stub.
fn thread_back(thread: Option<&Thread>, registers: &Registers<'_>) -> bool {
    thread.is_some_and(|thread| thread.away) && over::landed(registers.rip())
}

/// Whether the instruction before has taken the flag off, as it does: the step's own trap would come all the same.
fn popped(before: &Before, registers: &Registers<'_>) -> bool {
    let (_, rsp) = before.counters;
    let there = registers.rip() == before.fall && registers.rsp() > rsp;
    before.kind == Kind::PopsFlags && there
}

/// Behind somebody else's signal in the traced flow.
fn behind(thread: &mut Thread, code: i32, context: *mut libc::ucontext_t) {
    // SAFETY: still the kernel's frame of this call.
    let mut registers = Registers(unsafe { &mut *context });
    let before = thread.before;
    if code == SI_KERNEL
        && before.kind == Kind::Breakpoint
        && let Some(last) = thread.last()
    {
        last.marks |= mark::HIT;
    }
    // The trap of a breakpoint is itself a stop; so is a signal that a pending step was merged into.
    match merged(&before, thread.begin, &registers) {
        Merged::Yes => stop::stop(thread, &mut registers),
        Merged::No => registers.trap(true),
        Merged::Unknown => {
            thread.blame(Reasons::UNEXPLAINED);
            registers.trap(true);
        }
    }
}

/// Whether a step's own signal was swallowed by one that was sent.
#[derive(Clone, Copy, PartialEq)]
enum Merged {
    Yes,
    No,
    Unknown,
}

/// The first step leads to where it was to begin. An instruction that leads to itself has run if it has counted, or has
/// pushed.
fn merged(before: &Before, begin: u64, registers: &Registers<'_>) -> Merged {
    let moved = registers.rip() != before.addr;
    let again = before.successors.allow(before.addr) || before.kind == Kind::Repeated;
    match before.kind {
        Kind::First if registers.rip() == begin && holds(Cure::FirstKnownByPlace) => Merged::Yes,
        Kind::First => Merged::No,
        _ if moved => Merged::Yes,
        _ if !again || !holds(Cure::SelfLoopCounted) => Merged::No,
        _ if (registers.rcx(), registers.rsp()) != before.counters => Merged::Yes,
        // A jump to itself leaves no trace of how often it ran.
        _ if before.counts => Merged::No,
        _ => Merged::Unknown,
    }
}
