//! Return probes: the kernel puts a trampoline of its own where a probed function returns to. The trampoline is the
//! kernel's code, cannot be read, and is not what the program wrote: the flow goes from the return to where it was called.
//! Runs in the handler: no libc, no lock, no allocation.
use super::cure::{Cure, holds};
use super::registers::Registers;
use super::thread::{Before, Kind, Thread};
use super::{doors, memory, stop};
use crate::predict::Next;
use crate::trace::Reasons;

/// Probed calls that may be open at once.
const DEEPEST: usize = 16;

/// Calls whose return address the kernel may have replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probed {
    /// Where each return address stands, and what it was before the breakpoint.
    calls: [(u64, u64); DEEPEST],
    len: usize,
    /// The flow is in the trampoline.
    returning: bool,
}

impl Probed {
    pub(super) const NONE: Self = Self {
        calls: [(0, 0); DEEPEST],
        len: 0,
        returning: false,
    };

    /// Forgets calls that have returned, by whatever way.
    fn unwind(&mut self, sp: u64) {
        while self.len > 0
            && self
                .calls
                .get(self.len - 1)
                .is_some_and(|(slot, _)| *slot < sp)
        {
            self.len -= 1;
        }
    }
}

/// A breakpoint is about to be met: if it is a probe at the entry of a function, its return may be replaced.
pub(super) fn note(thread: &mut Thread, registers: &Registers<'_>) {
    let slot = registers.rsp();
    let probed = &mut thread.probed;
    probed.unwind(slot + 1);
    if let Some(returns) = memory::read_word(slot)
        && let Some(place) = probed.calls.get_mut(probed.len)
    {
        *place = (slot, returns);
        probed.len += 1;
    }
}

/// At a place that cannot be read: whether it is the trampoline, which then runs on, stop by stop, unlogged.
pub(super) fn enters(thread: &mut Thread, registers: &mut Registers<'_>) -> bool {
    if !holds(Cure::ReturnProbeKnown) {
        return false;
    }
    let slot = registers.rsp().wrapping_sub(8);
    thread.probed.unwind(slot);
    let last = thread.probed.len.checked_sub(1);
    let call = last.and_then(|last| thread.probed.calls.get(last)).copied();
    let Some((_, returns)) = call.filter(|(known, _)| *known == slot) else {
        return false;
    };
    if let Some(last) = thread.last() {
        last.next = returns;
    }
    if doors::ends(returns) {
        thread.end = returns;
        thread.armed = false;
        registers.trap(false);
        return true;
    }
    if stop::hides(returns, &mut thread.ahead) {
        stop::halt(thread, registers, Reasons::UPROBE);
        return true;
    }
    // The trampoline ends in a system call, behind which the first instruction is not trapped.
    thread.before = Before {
        fall: returns,
        next: Next::At(returns),
        kind: Kind::SystemCall,
        ..Thread::IDLE
    };
    thread.probed.returning = true;
    registers.trap(true);
    true
}

/// Whether the flow is still in the trampoline: at a place that cannot be read.
pub(super) fn still(thread: &mut Thread, registers: &mut Registers<'_>, readable: bool) -> bool {
    thread.probed.returning &= !readable;
    if thread.probed.returning {
        registers.trap(true);
    }
    thread.probed.returning
}
