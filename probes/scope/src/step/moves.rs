//! A signal handler of the program that has put the thread elsewhere: the instruction that it interrupted did not run, and
//! the thread goes on by steps where it was put, as a processor's own trace shows an interrupt.
//! Runs in a handler: no libc, no lock, no allocation.
use super::guard::SIGTRAP_BIT;
use super::registers::{Registers, TRAP_FLAG};
use super::stop;
use super::thread::{Before, Entry, Kind, Thread, mark};

/// The thread was interrupted at `from`, and its registers are as the handler left them.
pub(super) fn moved(thread: &mut Thread, registers: &mut Registers<'_>, from: u64) {
    let native = thread.callout.is_native() || thread.away || thread.bulk.is_some();
    if !thread.armed || native || registers.flags() & TRAP_FLAG == 0 {
        return;
    }
    if !took_back(thread, registers, from) {
        // It is seen at the next stop that this one does not explain it.
        return;
    }
    keep_open(thread, registers);
    thread.moved = true;
    thread.signals += 1;
    thread.before = Before {
        kind: Kind::Moved,
        ..Thread::IDLE
    };
    stop::stop(thread, registers);
}

/// The instruction at `from` was about to run and did not: it is in no log. `false` if it is not known what did run.
fn took_back(thread: &mut Thread, registers: &mut Registers<'_>, from: u64) -> bool {
    let before = thread.before;
    match before.kind {
        // It was reached without a stop, and is not logged.
        Kind::SystemCall | Kind::Shadow if from == before.fall => {
            stop::arrived(thread, from, false);
            stop::cure(before.kind, before.fall, thread, registers);
            true
        }
        Kind::First | Kind::Moved | Kind::Repeated => false,
        _ if from != before.addr => false,
        _ => thread
            .last()
            .copied()
            .filter(|last| last.addr == from && last.marks & mark::RUN == 0)
            .is_some_and(|last| {
                forget(thread, registers, &last);
                true
            }),
    }
}

/// What was known of the entry is true of the one that comes in its place.
fn forget(thread: &mut Thread, registers: &Registers<'_>, last: &Entry) {
    let bytes = last.bytes.get(..usize::from(last.len));
    stop::uncount(thread, last.addr, bytes.unwrap_or_default());
    thread.pop();
    thread.own = last.marks & mark::OWN != 0;
    thread.callout.away = last.marks & mark::AWAY != 0;
    if thread.own && thread.begin == last.addr {
        thread.begin = registers.rip();
    }
}

/// A blocked trap kills: a handler's wish to have it blocked is kept as that of the program.
fn keep_open(thread: &mut Thread, registers: &mut Registers<'_>) {
    let mask = registers.mask();
    thread.wish |= *mask & SIGTRAP_BIT != 0;
    *mask &= !SIGTRAP_BIT;
}
