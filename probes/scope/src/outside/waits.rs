//! Signals of traced threads. The kernel lets one that does nothing interrupt a wait all the same when the thread is traced:
//! calls such as `epoll_wait` would return EINTR. They are made again, as if nothing had come, and their time runs on.
use std::io;
use std::time::{Duration, Instant};

use super::process::Signals;
use super::sys::{self, Registers, Stop, Tid};
use super::watch::{Refusal, Watch, is_trigger, trap_number};

const EINTR: i64 = -4;
const EAGAIN: i64 = -11;
/// Run the system call again if no handler runs, else EINTR.
const ERESTARTNOHAND: i64 = -514;
/// How long a thread that was asked to stop may take: on a busy machine it waits for a processor first, and within some
/// system calls it never stops.
const MOST_STOPPING: Duration = Duration::from_millis(500);
const STOPPED_AGAIN: Duration = Duration::from_micros(200);
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
            self.disturbed.insert(tid);
            if wait_again(tid)? {
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

    /// Lets all threads go. Those that signals come to are stopped for it: a signal between here and the end of the
    /// tracing thread would end their wait. The others need no stop: they are free when that thread ends, which is to be
    /// at once.
    pub(super) fn let_go(&mut self) -> Result<(), Refusal> {
        self.disarm();
        // One that is gone needs no stop.
        self.disturbed.retain(|tid| sys::interrupt(*tid).is_ok());
        let until = Instant::now() + MOST_STOPPING;
        loop {
            // No child left is no error: all are let go.
            while let Some((tid, stop)) = self.stopped() {
                self.let_one_go(tid, stop)?;
            }
            if self.disturbed.is_empty() || Instant::now() > until {
                return Ok(());
            }
            std::thread::sleep(STOPPED_AGAIN);
        }
    }

    /// A thread that stands, if one does.
    fn stopped(&mut self) -> Option<(Tid, Stop)> {
        let later = self.later.pop_front();
        later.or_else(|| sys::wait(-1, false).ok().flatten())
    }

    fn let_one_go(&mut self, tid: Tid, stop: Stop) -> Result<(), Refusal> {
        let again = self.again.get(&tid);
        if stop == Stop::SystemCall && again.is_some_and(|again| again.within.is_none()) {
            // Who is let go where a wait begins does not wait: it is, where that one ends.
            return self.resume(tid, 0);
        }
        let disturbed = self.disturbed.remove(&tid);
        let signal = match stop {
            Stop::Gone => return Ok(()),
            Stop::Signal(signal) => self.last_signal(tid, signal)?,
            Stop::SystemCall => self.last_call(tid)?,
            Stop::Event(..) => {
                if disturbed {
                    wait_again(tid)?;
                }
                0
            }
        };
        match sys::detach(tid, signal) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// What a thread that is let go gets of its signal.
    fn last_signal(&self, tid: Tid, signal: i32) -> Result<i32, Refusal> {
        let info = sys::signal_info(tid).unwrap_or_default();
        if is_trigger(signal, info) || trap_number(signal, info).is_some() {
            return Ok(0);
        }
        if !Signals::of(tid).ignores(signal) {
            return Ok(signal);
        }
        wait_again(tid)?;
        Ok(0)
    }

    /// A thread that is let go at the begin or the end of a call that was made again.
    fn last_call(&self, tid: Tid) -> Result<i32, Refusal> {
        let before = self.again.get(&tid).and_then(|again| again.within);
        if let Some(before) = before {
            let mut registers = sys::registers(tid)?;
            registers.r10 = before;
            sys::set_registers(tid, &registers)?;
        }
        wait_again(tid)?;
        Ok(0)
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

/// The wait that a thread was stopped in, if it was in one, is made again when it runs without a handler.
fn wait_again(tid: Tid) -> io::Result<bool> {
    let mut registers = sys::registers(tid)?;
    let waited = registers.orig_rax.cast_signed() >= 0 && registers.rax.cast_signed() == EINTR;
    if waited {
        registers.rax = ERESTARTNOHAND.cast_unsigned();
        sys::set_registers(tid, &registers)?;
    }
    Ok(waited)
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
