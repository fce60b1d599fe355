//! One of the debug registers was hit while the thread ran natively: it has come back, was called back, has entered the
//! region, or has done something that only steps can follow. Runs in the handler: no libc, no lock, no allocation.
use super::super::memory;
use super::super::registers::Registers;
use super::super::thread::Thread;
use super::super::{displaced, stop};
use super::{Call, Callback, MOST_LANDING, MOST_TOUCHES, Native, ends, events, prologue};
use crate::trace::Reasons;

/// One of our debug registers was hit.
pub(in super::super) fn hit(
    thread: &mut Thread,
    registers: &mut Registers<'_>,
    (event, late): (u64, bool),
) {
    let state = &mut thread.callout;
    state.hits += 1;
    let native = state.native;
    if native == Native::No {
        return;
    }
    if late {
        return lost(thread, registers, Reasons::CALL_OUT);
    }
    match native {
        _ if event == events::GUARD => sets_handler(thread, registers),
        Native::Callee(call) if event == 0 => touched(thread, registers, call),
        Native::Callee(call) if registers.rsp() < call.slot => {
            let base = registers.rsp();
            state.callback = Some(Callback { call, base });
            stepped(thread, registers);
        }
        Native::Callee(call) if event != 0 && call.told && registers.rsp() > call.slot => {
            enters(thread, registers);
        }
        Native::Outside if event != 0 => enters(thread, registers),
        _ => lost(thread, registers, Reasons::CALL_OUT),
    }
}

/// The region is entered, and none of its frames is on the stack.
fn enters(thread: &mut Thread, registers: &mut Registers<'_>) {
    thread.callout.left |= thread.callout.native != Native::Outside;
    thread.callout.base = registers.rsp();
    stepped(thread, registers);
}

/// The thread is about to set the handler of a signal. If it is that of ours, all that follows is stepped, where it is
/// emulated: a callee must come back then.
fn sets_handler(thread: &mut Thread, registers: &mut Registers<'_>) {
    thread.traps += 1;
    displaced::sets_handler(thread, registers.rdi());
    if registers.rdi() & 0xffff_ffff != u64::from(libc::SIGTRAP.unsigned_abs()) {
        return;
    }
    if let Native::Callee(call) = thread.callout.native {
        thread.callout.landing = Some((call, u64::MAX));
    }
    thread.callout.stays = true;
    stepped(thread, registers);
}

/// Goes on by steps, here.
fn stepped(thread: &mut Thread, registers: &mut Registers<'_>) {
    ends(thread);
    thread.before = Thread::IDLE;
    thread.begin = registers.rip();
    stop::stop(thread, registers);
}

/// Goes on by steps to the end, for it cannot be told what ran.
fn lost(thread: &mut Thread, registers: &mut Registers<'_>, reason: Reasons) {
    thread.blame(reason);
    thread.callout.stays = true;
    stepped(thread, registers);
}

/// The slot of the return address was read or written.
fn touched(thread: &mut Thread, registers: &mut Registers<'_>, call: Call) {
    let (rip, rsp) = (registers.rip(), registers.rsp());
    let word = memory::read_word(call.slot);
    let same = word == Some(call.back);
    let inside = thread.callout.shows(rip);
    // Somebody else's frame is there: the callee's is gone.
    let gone = !same && !word.is_some_and(|word| thread.callout.shows(word));
    let entered = rsp == call.slot && thread.callout.entries.contains(&rip);
    match () {
        () if same && rip == call.back && rsp == call.slot + 8 => stepped(thread, registers),
        () if inside && entered && gone && call.told => enters(thread, registers),
        () if inside => lost(thread, registers, Reasons::CALL_OUT),
        // It may return twice: only steps see that.
        () if rsp == call.slot && same && prologue::reads_slot(call.target, rip) => {
            thread.callout.stays = true;
            stepped(thread, registers);
        }
        () if rsp == call.slot && !(gone && call.told) => lost(thread, registers, why(call)),
        () if rsp < call.slot && same && thread.callout.touches < MOST_TOUCHES => {
            thread.callout.touches += 1;
            thread.traps += 1;
        }
        // Read too often: the callee is stepped to its end.
        () if rsp < call.slot && same => {
            thread.callout.stays = true;
            stepped(thread, registers);
        }
        () => {
            thread.callout.left = true;
            thread.callout.landing = Some((call, thread.traps + MOST_LANDING));
            stepped(thread, registers);
        }
    }
}

/// What is wrong with a callee that did not come back: its return address is overwritten where its frame is gone.
pub(super) fn why(call: Call) -> Reasons {
    match memory::read_word(call.slot) {
        Some(word) if word == call.back => Reasons::CALL_OUT,
        _ => Reasons::LEFT,
    }
}
