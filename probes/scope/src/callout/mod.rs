//! Callees of a region at full speed: where a call leaves the region, the thread runs natively until it comes back, and
//! debug registers tell when: by a watch on the slot of the return address, which a return reads and an unwinder writes,
//! and by breakpoints at the region's entries, which catch callbacks. Before the region is first entered, and behind its
//! last return, the entries alone are watched. What cannot be shown to have come back as it should is a reason.
//!
//! Part of the stepper: all but `open` and `close` runs in the handler, without libc, locks or allocation.
mod entries;
mod events;
mod frames;
mod hit;
mod landings;
mod prologue;

use iced_x86::{FlowControl, Instruction, Mnemonic};

use super::cure::{Cure, holds};
use super::memory;
use super::registers::Registers;
use super::thread::Thread;
use super::{displaced, sys};
use crate::flow;
use crate::predict::Next;
use crate::trace::{CallOuts, Form, Reasons};
use events::{Events, MOST_ENTRIES};
pub(super) use events::{breakpoint, remove};
pub(super) use hit::hit;
use hit::why;
use landings::Landings;

/// How often a callee may touch its return slot before it is stepped.
const MOST_TOUCHES: u64 = 100;
/// How many traps an unwinder may take from the slot to its landing.
const MOST_LANDING: u64 = 256;

/// A call that left the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    /// Where its return address is.
    slot: u64,
    back: u64,
    target: u64,
    /// Whoever lands in the region, but for its entries, writes the slot first: that it was not written says that nobody
    /// has landed.
    told: bool,
}

/// What the thread does without the trap flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Native {
    /// Nothing: it is stepped, or not armed.
    #[default]
    No,
    /// It is outside the region, and no frame of the region is on its stack.
    Outside,
    /// It is in a callee.
    Callee(Call),
}

/// A callback into the region, which is stepped, callees and all.
#[derive(Clone, Copy, Debug)]
struct Callback {
    call: Call,
    /// The slot of its own return address.
    base: u64,
}

/// What is known of one thread's call-outs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    events: Option<Events>,
    region: (u64, u64),
    entries: [u64; MOST_ENTRIES],
    landings: Landings,
    native: Native,
    /// No frame of the region is on the stack.
    clear: bool,
    /// The slot of the return address of the region's only frame, or first one; 0 if it is not known.
    base: u64,
    callback: Option<Callback>,
    /// An unwinder has written the slot of this call: it has to land behind it.
    landing: Option<(Call, u64)>,
    /// Never natively again.
    stays: bool,
    /// The next step is joined to the one before by what ran natively.
    pub(super) away: bool,
    /// A callee was left by other ways than its return.
    left: bool,
    hits: u64,
    touches: u64,
    since_ns: u64,
    calls: u64,
}

impl State {
    pub(super) fn is_native(&self) -> bool {
        self.native != Native::No
    }

    /// An unwinder is on its way, which only steps show.
    pub(super) fn is_landing(&self) -> bool {
        self.landing.is_some()
    }

    /// Whether every callee came back by its return.
    pub(super) fn all_returned(&self) -> bool {
        !self.left
    }

    /// The call-outs of the scope.
    pub(super) fn told(&self) -> CallOuts {
        CallOuts {
            calls: self.calls,
            traps: self.hits,
            ioctls: self.events.map_or(0, |events| events.ioctls),
        }
    }

    fn shows(&self, addr: u64) -> bool {
        (self.region.0..self.region.1).contains(&addr)
    }
}

/// The event of a SIGTRAP that a debug register of ours has sent, and whether it came late.
pub(super) fn event(info: *const libc::siginfo_t) -> Option<(u64, bool)> {
    events::event(info).map(|event| (event, events::is_late(info)))
}

/// The first scope of a thread was opened (and it is not armed yet): gets debug registers, if it is of a region.
pub(super) fn open(thread: &mut Thread, form: Form) {
    thread.callout = State::default();
    let Form::Region { start, end } = form else {
        return;
    };
    if has_shadow_stack() {
        return;
    }
    let Some(found) = entries::of(start, end) else {
        return;
    };
    thread.callout.region = (start, end);
    thread.callout.events = Events::open(&found.entries);
    thread.callout.landings = found.landings;
    for (place, entry) in thread.callout.entries.iter_mut().zip(found.entries) {
        *place = entry;
    }
    thread.callout.clear = !frames::are_on_stack(start, end);
}

/// A call that is emulated would not be on the processor's own stack of return addresses.
pub(super) fn has_shadow_stack() -> bool {
    let mut features = 0_u64;
    // SAFETY: the kernel writes one word into `features`, if it knows the request.
    let result = unsafe { sys::call(158, [0x5005, (&raw mut features) as u64, 0, 0, 0, 0]) };
    result == 0 && features != 0
}

/// The last scope of a thread is closed: nothing is left behind.
pub(super) fn close(thread: &mut Thread) {
    if let Some(events) = &mut thread.callout.events {
        events.close();
    }
    thread.callout.events = None;
}

/// The scope's own code runs: what ran natively ends here.
pub(super) fn settle(thread: &mut Thread) {
    if thread.callout.events.is_none() {
        return;
    }
    let native = thread.callout.native;
    if native == Native::No {
        thread.callout.clear = false;
    } else {
        thread.armed = false;
        ends(thread);
    }
    if let Native::Callee(call) = native {
        within(thread, call);
    }
    let counted = thread.callout.events.and_then(|events| events.counted());
    if counted != Some(thread.callout.hits) && holds(Cure::CallOutsVerified) {
        // A hit whose signal never came, or the events are gone.
        thread.blame(Reasons::CALL_OUT);
    }
}

/// The scope's own code was called in a callee that ran natively: all that follows is stepped, and must come back.
fn within(thread: &mut Thread, call: Call) {
    thread.callout.clear = false;
    thread.callout.stays = true;
    thread.callout.landing = Some((call, u64::MAX));
}

/// The scope is closed: a call that did not come back is not verified.
pub(super) fn judge(thread: &mut Thread) {
    let Some((call, _)) = thread.callout.landing.take() else {
        return;
    };
    thread.callout.left = true;
    if !call.told && holds(Cure::CallOutsVerified) {
        thread.blame(why(call));
    }
}

/// Lets the thread run natively up to the region, if that can be: instead of the trap flag at the end of a pause.
pub(super) fn waits(thread: &mut Thread) -> bool {
    if !usable(thread) || !thread.callout.clear {
        return false;
    }
    thread.armed = waits_for_entry(thread);
    thread.armed
}

fn usable(thread: &Thread) -> bool {
    let mut frames = thread.frames.iter().flatten();
    let state = &thread.callout;
    let region = Form::Region {
        start: state.region.0,
        end: state.region.1,
    };
    state.events.is_some()
        && !state.stays
        && !thread.halted
        && frames.next().is_some_and(|frame| frame.form == region)
        && frames.next().is_none()
}

fn begins(thread: &mut Thread, native: Native) {
    thread.callout.native = native;
    thread.callout.touches = 0;
    thread.callout.since_ns = sys::now_ns();
}

/// The native part is over. Its time is not the scope's.
fn ends(thread: &mut Thread) {
    let state = &mut thread.callout;
    let ran = sys::now_ns().saturating_sub(state.since_ns);
    state.native = Native::No;
    state.away = true;
    displaced::doubt(thread);
    let state = &mut thread.callout;
    if !state.events.as_mut().is_some_and(Events::off) {
        state.stays = true;
    }
    thread.deadline_ns = thread.deadline_ns.saturating_add(ran);
    for frame in thread.frames.iter_mut().flatten() {
        frame.deadline_ns = frame.deadline_ns.saturating_add(ran);
    }
}

/// The instruction is logged and about to run: if it leaves the region in a way that can be watched, the thread goes on
/// natively, and the answer is `true`.
pub(super) fn leaves(
    thread: &mut Thread,
    registers: &mut Registers<'_>,
    instruction: &Instruction,
    next: Next,
) -> bool {
    let Next::At(next) = next else {
        return false;
    };
    let state = thread.callout;
    if state.shows(next) || state.landing.is_some() || !usable(thread) {
        return false;
    }
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall
            if state.callback.is_none()
                && state.shows(instruction.ip())
                && !flow::is_system_call(instruction) =>
        {
            calls(thread, registers, instruction.next_ip(), next)
        }
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => {
            returned(thread, registers, registers.rsp())
        }
        _ => false,
    }
}

/// Calls `target` in place of the thread, and lets it run.
fn calls(thread: &mut Thread, registers: &mut Registers<'_>, back: u64, target: u64) -> bool {
    let slot = registers.rsp().wrapping_sub(8);
    let ready = memory::write(slot, &back.to_le_bytes()).is_ok()
        && thread
            .callout
            .events
            .as_mut()
            .is_some_and(|events| events.watch(slot));
    if !ready {
        thread.callout.stays = true;
        return false;
    }
    registers.set_rsp(slot);
    registers.set_rip(target);
    registers.trap(false);
    thread.callout.calls += 1;
    let state = &thread.callout;
    let told = state.landings.are_told(state.region, slot, state.base);
    let call = Call {
        slot,
        back,
        target,
        told,
    };
    begins(thread, Native::Callee(call));
    true
}

/// A return to outside by the address in this slot: from a callback, or from the region's first frame.
fn returned(thread: &mut Thread, registers: &mut Registers<'_>, slot: u64) -> bool {
    let state = &mut thread.callout;
    let Some(events) = &mut state.events else {
        return false;
    };
    let native = match state.callback {
        Some(Callback { call, base }) if slot == base => Native::Callee(call),
        None if slot == state.base => Native::Outside,
        _ => return false,
    };
    let watched = match native {
        Native::Callee(call) => events.watch(call.slot),
        _ => events.watch_entries(),
    };
    if !watched {
        state.stays = true;
        return false;
    }
    state.callback = None;
    registers.trap(false);
    begins(thread, native);
    true
}

/// The thread stands at `addr` by a step: an unwinder that was seen has to land where it wrote, or to pass the region.
/// `true`: it has passed, and the thread goes on natively.
pub(super) fn arrives(thread: &mut Thread, registers: &mut Registers<'_>, addr: u64) -> bool {
    let Some((call, last)) = thread.callout.landing else {
        return false;
    };
    let (rsp, behind) = (registers.rsp(), call.slot + 8);
    let inside = thread.callout.shows(addr);
    let late = thread.traps > last && !call.told;
    let passed = !inside && rsp > behind && last != u64::MAX;
    if !(inside || late || passed) {
        return false;
    }
    thread.callout.landing = None;
    if !call.told && (late || passed || rsp != behind) {
        thread.callout.stays = true;
        thread.blame(why(call));
    }
    passed && passes(thread, registers)
}

/// An unwinder has gone past the region: natively on, if all its frames are gone.
fn passes(thread: &mut Thread, registers: &mut Registers<'_>) -> bool {
    let state = thread.callout;
    let gone = state.base != 0 && registers.rsp() > state.base && state.callback.is_none();
    let outside = gone && usable(thread) && waits_for_entry(thread);
    if outside {
        registers.trap(false);
    }
    outside
}

fn waits_for_entry(thread: &mut Thread) -> bool {
    let state = &mut thread.callout;
    if !state.events.as_mut().is_some_and(Events::watch_entries) {
        state.stays = true;
        return false;
    }
    begins(thread, Native::Outside);
    true
}

/// The thread has left its copies for `addr`: if it has returned from the region's first frame, or from a callback, it
/// goes on natively, and the answer is `true`.
pub(super) fn left(thread: &mut Thread, registers: &mut Registers<'_>, addr: u64) -> bool {
    if thread.callout.shows(addr) || !usable(thread) {
        return false;
    }
    returned(thread, registers, registers.rsp().wrapping_sub(8))
}

/// The region, while what it calls is not to run from a copy.
pub(super) fn confines(thread: &Thread) -> Option<(u64, u64)> {
    usable(thread).then_some(thread.callout.region)
}
