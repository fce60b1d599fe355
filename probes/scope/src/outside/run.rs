//! The parts of a recorded call that run natively: callees at full speed, system calls, string instructions, signal
//! handlers. Each ends at a breakpoint that must be met with the stack as it was.
use iced_x86::Instruction;

use super::breakpoint::{Breakpoint, Wait};
use super::process;
use super::record::{Frame, Go, Recorder, SIGTRAP_BIT};
use super::sys::{self, Registers, Stop};
use super::watch::{Refusal, is_trigger, trap_number};
use crate::trace::{Fact, Reasons};

/// The breakpoint at the address where the thread is to come back to.
const OVER: u8 = 1;
/// The one on the slot of the return address.
const SLOT: u8 = 2;
/// How long a callee or a handler may run before the recording is given up. The thread is not disturbed meanwhile.
const PATIENCE_NS: u64 = 10_000_000_000;
/// The resume flag: a breakpoint at the next instruction is passed by.
const RESUME_FLAG: u64 = 0x1_0000;
/// `RIP` and `RSP` in the context of a signal handler, from the stack pointer at its return.
const CONTEXT_RSP: u64 = 160;
const CONTEXT_RIP: u64 = 168;
/// `clone`, `fork`, `vfork`, `clone3`
const FORKS: [u64; 4] = [56, 57, 58, 435];
const RT_SIGPROCMASK: u64 = 14;
const SIGNAL_SET_BYTES: u64 = 8;

/// The breakpoints of a recording.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) over: Breakpoint,
    pub(super) slot: Breakpoint,
}

/// How a native run ended.
enum Ran {
    /// At its breakpoint, with the stack as it was to be.
    There(Registers),
    /// At the begin of the traced function.
    Entered(Registers),
    /// Otherwise: what should not have happened did, and the thread is stopped here.
    Astray(Registers),
    /// It runs on, or is gone.
    Away,
}

/// Where a native run has to end.
#[derive(Clone, Copy)]
struct Goal {
    rip: u64,
    rsp: u64,
    until: Option<u64>,
}

impl Recorder<'_> {
    /// A callee at full speed.
    pub(super) fn run_out(&mut self, frame: Frame) -> Result<Go, Refusal> {
        let goal = Goal {
            rip: frame.ret,
            rsp: frame.slot.wrapping_add(8),
            until: Some(sys::now_ns() + PATIENCE_NS),
        };
        self.points.slot.set(Wait::Write(frame.slot))?;
        self.watch.trigger(self.tid, true);
        let ran = self.run_to(goal)?;
        self.points.slot.enable(false)?;
        self.watch.trigger(self.tid, false);
        Ok(match ran {
            Ran::There(registers) => self.back(registers),
            Ran::Entered(registers) if registers.rsp < frame.slot => self.again(registers, frame),
            Ran::Entered(registers) | Ran::Astray(registers) => {
                self.end(Reasons::CALL_OUT, registers)
            }
            Ran::Away => self.away(Reasons::CALL_OUT),
        })
    }

    /// A system call, natively: the kernel never sees the trap flag, and nothing is interrupted.
    pub(super) fn system_call(&mut self, registers: &Registers, fall: u64) -> Result<Go, Refusal> {
        let number = registers.rax;
        if number == RT_SIGPROCMASK && registers.r10 == SIGNAL_SET_BYTES {
            return self.mask(registers, fall);
        }
        let goal = Goal {
            rip: fall,
            rsp: registers.rsp,
            until: None,
        };
        let since = sys::now_ns();
        let ran = self.run_to(goal)?;
        self.native_since(since);
        if let Ran::There(behind) = &ran
            && FORKS.contains(&number)
            && let Ok(child) = u32::try_from(behind.rax)
        {
            self.log.started(child, self.is_thread(registers));
        }
        Ok(self.arrived(ran, fall, Reasons::SYSTEM_CALL))
    }

    /// Whether a `clone` makes a thread, by its flags.
    fn is_thread(&self, registers: &Registers) -> bool {
        const CLONE_THREAD: u64 = 0x1_0000;
        let flags = match registers.rax {
            56 => registers.rdi,
            435 => sys::read_word(self.tid, registers.rdi).unwrap_or(0),
            _ => 0,
        };
        flags & CLONE_THREAD != 0
    }

    /// A string instruction with all its repetitions.
    pub(super) fn repeated(&mut self, registers: &Registers, fall: u64) -> Result<Go, Refusal> {
        let goal = Goal {
            rip: fall,
            rsp: registers.rsp,
            until: Some(sys::now_ns() + PATIENCE_NS),
        };
        let ran = self.run_to(goal)?;
        if let Ran::There(behind) = &ran {
            let turns = registers.rcx.wrapping_sub(behind.rcx).max(1);
            self.log.repeated(u32::try_from(turns).unwrap_or(u32::MAX));
        }
        Ok(self.arrived(ran, fall, Reasons::UNEXPLAINED))
    }

    /// What is not the program's own, natively to where it leads.
    pub(super) fn run_over(
        &mut self,
        registers: &Registers,
        rip: u64,
        otherwise: Reasons,
    ) -> Result<Go, Refusal> {
        let goal = Goal {
            rip,
            rsp: registers.rsp,
            until: Some(sys::now_ns() + PATIENCE_NS),
        };
        let ran = self.run_to(goal)?;
        Ok(self.arrived(ran, rip, otherwise))
    }

    /// PUSHF and POPF, without the trap flag: one would show it, and behind the other the kernel leaves it set.
    pub(super) fn flags(
        &mut self,
        registers: &Registers,
        instruction: &Instruction,
    ) -> Result<Go, Refusal> {
        let moved = i64::from(instruction.stack_pointer_increment());
        let goal = Goal {
            rip: instruction.next_ip(),
            rsp: registers.rsp.wrapping_add_signed(moved),
            until: Some(sys::now_ns() + PATIENCE_NS),
        };
        let ran = self.run_to(goal)?;
        Ok(self.arrived(ran, goal.rip, Reasons::UNEXPLAINED))
    }

    /// Lets the thread have a signal whose handler runs natively, until it is back where it was interrupted.
    pub(super) fn handled(&mut self, signal: i32, here: &Registers) -> Result<Go, Refusal> {
        // Behind the handler the breakpoint must be met.
        let mut plain = *here;
        plain.eflags &= !RESUME_FLAG;
        sys::set_registers(self.tid, &plain)?;
        // The step ends at the handler's first instruction, where the kernel's frame can be read.
        sys::step(self.tid, signal)?;
        let entered = loop {
            match self.watch.stop_of(self.tid)? {
                Stop::Signal(libc::SIGTRAP) => break sys::registers(self.tid)?,
                Stop::Signal(other) => sys::step(self.tid, other)?,
                Stop::Gone => return Ok(self.away(Reasons::LEFT)),
                stop if stop.is_group_stop() => sys::listen(self.tid)?,
                Stop::Event(..) | Stop::SystemCall => sys::step(self.tid, 0)?,
            }
        };
        if entered.rsp == here.rsp {
            // No handler ran, but one instruction did.
            return Ok(self.end(Reasons::UNEXPLAINED, entered));
        }
        // Most handlers block all signals: the breakpoint at their end must be met all the same. Their return sets the
        // mask that was.
        sys::set_mask(self.tid, sys::mask(self.tid)? & !SIGTRAP_BIT)?;
        let until = Some(sys::now_ns() + PATIENCE_NS);
        let Some(returns) = sys::read_word(self.tid, entered.rsp) else {
            return Ok(self.end(Reasons::UNEXPLAINED, entered));
        };
        let since = sys::now_ns();
        let frame = entered.rsp.wrapping_add(8);
        let ran = self.run_to(Goal {
            rip: returns,
            rsp: frame,
            until,
        })?;
        let context = |at| sys::read_word(self.tid, frame.wrapping_add(at)).unwrap_or(0);
        let goal = Goal {
            rip: context(CONTEXT_RIP),
            rsp: context(CONTEXT_RSP),
            until,
        };
        let ran = match ran {
            Ran::There(_) => self.run_to(goal)?,
            other => other,
        };
        self.native_since(since);
        Ok(match ran {
            Ran::There(back) if back.rip == here.rip && back.rsp == here.rsp => Go::On(back),
            Ran::There(moved) | Ran::Entered(moved) | Ran::Astray(moved) => {
                self.end(Reasons::UNEXPLAINED, moved)
            }
            Ran::Away => self.away(Reasons::LEFT),
        })
    }

    /// The thread runs on without us, or is gone.
    fn away(&mut self, reason: Reasons) -> Go {
        self.log.blame(reason);
        Go::Away
    }

    fn arrived(&mut self, ran: Ran, fall: u64, otherwise: Reasons) -> Go {
        match ran {
            Ran::There(registers) => {
                self.log.arrived(fall, true);
                Go::On(registers)
            }
            Ran::Entered(registers) | Ran::Astray(registers) => self.end(otherwise, registers),
            Ran::Away => self.away(otherwise),
        }
    }

    /// Runs natively to a breakpoint. Signals that come meanwhile are the program's own.
    fn run_to(&mut self, goal: Goal) -> Result<Ran, Refusal> {
        self.log.traps += 1;
        self.points.over.set(Wait::Run(goal.rip))?;
        self.watch.resume(self.tid, 0)?;
        let ran = self.wait_for(goal);
        self.points.over.enable(false)?;
        ran
    }

    fn wait_for(&mut self, goal: Goal) -> Result<Ran, Refusal> {
        loop {
            let Some(stop) = self.watch.stop_until(self.tid, goal.until)? else {
                return Ok(Ran::Away);
            };
            match stop {
                Stop::Gone => return Ok(Ran::Away),
                Stop::Signal(signal) => {
                    if let Some(ran) = self.signal_on_the_way(signal, goal)? {
                        return Ok(ran);
                    }
                }
                stop if stop.is_group_stop() => sys::listen(self.tid)?,
                Stop::SystemCall => self.watch.made_again(self.tid)?,
                Stop::Event(..) => self.watch.resume(self.tid, 0)?,
            }
        }
    }

    fn signal_on_the_way(&mut self, signal: i32, goal: Goal) -> Result<Option<Ran>, Refusal> {
        let info = sys::signal_info(self.tid)?;
        let registers = sys::registers(self.tid)?;
        if is_trigger(signal, info) && self.watch.arm.entries.contains(&registers.rip) {
            return Ok(Some(Ran::Entered(registers)));
        }
        match trap_number(signal, info) {
            Some(OVER) if registers.rip == goal.rip && info.perf_flags == 0 => {
                if registers.rsp == goal.rsp {
                    return Ok(Some(Ran::There(registers)));
                }
                // The same code, deeper: another activation of it.
                if registers.rsp > goal.rsp {
                    return Ok(Some(Ran::Astray(registers)));
                }
                self.watch.resume(self.tid, 0)?;
            }
            // The trampoline of a return probe uses the stack where the return address was.
            Some(SLOT) if process::is_trampoline(self.watch.pid, registers.rip) => {
                self.log.note(Fact::UprobeSeen);
                self.watch.resume(self.tid, 0)?;
            }
            Some(OVER | SLOT) => return Ok(Some(Ran::Astray(registers))),
            _ if is_trigger(signal, info) => self.watch.resume(self.tid, 0)?,
            _ => self.watch.deliver(self.tid, signal)?,
        }
        Ok(None)
    }
}
