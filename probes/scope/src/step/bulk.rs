//! A long string instruction at full speed: it traps once an iteration under the trap flag, so it runs without it, to a
//! breakpoint behind it. The breakpoint is a perf event of this thread alone, which lives as long as the instruction runs;
//! where the kernel gives none, the instruction is stepped.
//! Runs in the handler: no libc, no lock, no allocation.
use iced_x86::Instruction;

use super::cure::{Cure, holds};
use super::registers::Registers;
use super::thread::{Kind, Thread};
use super::{callout, stop};
use crate::predict::{self, Next};

/// Fewer iterations are stepped: the event costs as much.
const FEWEST: u64 = 16;
/// What the event is known by among those of call-outs.
pub(super) const EVENT: u64 = 0xffff_ffff;

/// A string instruction that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bulk {
    fd: u64,
    /// The counter before it, and whether it is ecx.
    count: u64,
    narrow: bool,
    sp: u64,
}

/// Lets `instruction`, which is about to run, run without the trap flag; `false` if it is to be stepped.
pub(super) fn starts(
    thread: &mut Thread,
    registers: &mut Registers<'_>,
    instruction: &Instruction,
) -> bool {
    let count = predict::counter(instruction, registers);
    if count < FEWEST || !holds(Cure::RepeatsRunOn) {
        return false;
    }
    let Some(fd) = callout::breakpoint(instruction.next_ip(), EVENT) else {
        return false;
    };
    thread.bulk = Some(Bulk {
        fd,
        count,
        narrow: count != registers.rcx(),
        sp: registers.rsp(),
    });
    registers.trap(false);
    true
}

/// The breakpoint was met. In a signal handler, which may run the same code, it is not ours.
pub(super) fn hit(thread: &mut Thread, registers: &mut Registers<'_>) {
    let Some(bulk) = thread.bulk else {
        return;
    };
    if registers.rip() != thread.before.fall || registers.rsp() != bulk.sp {
        return;
    }
    ends(thread);
    let left = if bulk.narrow {
        registers.rcx() & 0xffff_ffff
    } else {
        registers.rcx()
    };
    stop::repeats(thread, bulk.count.wrapping_sub(left));
    thread.before.next = Next::At(thread.before.fall);
    thread.before.kind = Kind::Plain;
    stop::stop(thread, registers);
}

/// The event goes.
pub(super) fn ends(thread: &mut Thread) {
    if let Some(bulk) = thread.bulk.take() {
        callout::remove(bulk.fd);
    }
}
