//! Signals of traced threads. The kernel lets one that does nothing interrupt a wait all the same when the thread is traced:
//! calls such as `epoll_wait` would return EINTR. They are made again, as if nothing had come, and their time runs on.
use super::process::Signals;
use super::sys::{self, Registers, Tid};
use super::watch::{Refusal, Watch};

const EINTR: i64 = -4;
const EAGAIN: i64 = -11;
/// Run the system call again if no handler runs, else EINTR.
const ERESTARTNOHAND: i64 = -514;
/// No system call: the kernel runs none.
const NO_CALL: u64 = u64::MAX;

/// A system call that is made again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    /// When it was interrupted first: how long it had waited by then is not known.
    since_ns: u64,
    /// It stands between its begin and its end, with this in the register of its time-out before.
    within: Option<u64>,
    /// Its time is over: what it returns.
    over: Option<i64>,
}

impl Watch {
    /// Lets a thread have its signal.
    pub(super) fn deliver(&mut self, tid: Tid, signal: i32) -> Result<(), Refusal> {
        if Signals::of(tid).ignores(signal) {
            let mut registers = sys::registers(tid)?;
            let called = registers.orig_rax.cast_signed() >= 0;
            if called && registers.rax.cast_signed() == EINTR {
                registers.rax = ERESTARTNOHAND.cast_unsigned();
                sys::set_registers(tid, &registers)?;
                self.again.entry(tid).or_insert(Again {
                    since_ns: sys::now_ns(),
                    within: None,
                    over: None,
                });
                return Ok(sys::to_system_call(tid, signal)?);
            }
        }
        self.again.remove(&tid);
        self.resume(tid, signal)
    }

    /// A call that is made again stands at its begin or its end.
    pub(super) fn made_again(&mut self, tid: Tid) -> Result<(), Refusal> {
        let Some(mut again) = self.again.get(&tid).copied() else {
            return self.resume(tid, 0);
        };
        let mut registers = sys::registers(tid)?;
        let Some(before) = again.within.take() else {
            again.within = Some(registers.r10);
            let waited = sys::now_ns().saturating_sub(again.since_ns);
            again.over = shorten(tid, &mut registers, waited);
            sys::set_registers(tid, &registers)?;
            self.again.insert(tid, again);
            return Ok(sys::to_system_call(tid, 0)?);
        };
        registers.r10 = before;
        if let Some(result) = again.over {
            registers.rax = result.cast_unsigned();
        }
        sys::set_registers(tid, &registers)?;
        if registers.rax.cast_signed() == EINTR {
            self.again.insert(tid, again);
        } else {
            self.again.remove(&tid);
        }
        self.resume(tid, 0)
    }
}

/// Takes what was waited already off the time of a wait; what it returns, where nothing is left of it.
fn shorten(tid: Tid, registers: &mut Registers, waited_ns: u64) -> Option<i64> {
    let (left, result) = match registers.orig_rax {
        // epoll_wait and epoll_pwait: milliseconds.
        232 | 281 => {
            let ms = i32::try_from(registers.r10 & 0xffff_ffff).ok()?;
            let left = i64::from(ms) - i64::try_from(waited_ns / 1_000_000).ok()?;
            registers.r10 = left.max(0).cast_unsigned();
            return None;
        }
        441 => (timespec(tid, registers.r10)?, 0),
        // semtimedop, rt_sigtimedwait
        220 => (timespec(tid, registers.r10)?, EAGAIN),
        128 => (timespec(tid, registers.rdx)?, EAGAIN),
        _ => return None,
    };
    if waited_ns < left {
        return None;
    }
    registers.orig_rax = NO_CALL;
    Some(result)
}

/// A time in memory, in ns.
fn timespec(tid: Tid, at: u64) -> Option<u64> {
    let (seconds, ns) = (sys::read_word(tid, at)?, sys::read_word(tid, at + 8)?);
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}
