//! One instruction of followed code, by `PTRACE_SINGLESTEP`: what stopped the thread, and whether it is where it was
//! foretold to be.
use iced_x86::Instruction;

use super::process::Signals;
use super::record::{Frame, Go, Recorder};
use super::sys::{self, Registers, Stop};
use super::watch::Refusal;
use crate::flow;
use crate::predict::Next;
use crate::trace::{Fact, Reasons};

/// What glibc and librseq put before the abort address of a restartable sequence.
const RSEQ_SIGNATURE: u32 = 0x5305_3053;

impl Recorder<'_> {
    pub(super) fn step(
        &mut self,
        registers: Registers,
        instruction: &Instruction,
        next: Next,
    ) -> Result<Go, Refusal> {
        self.log.traps += 1;
        let probed = self.probed;
        if probed {
            self.handler.probe(self.tid, true)?;
        }
        let go = self.stepped(registers, instruction, next)?;
        if probed && !matches!(go, Go::Away) {
            self.handler.probe(self.tid, false)?;
        }
        Ok(go)
    }

    fn stepped(
        &mut self,
        registers: Registers,
        instruction: &Instruction,
        next: Next,
    ) -> Result<Go, Refusal> {
        let probed = self.probed;
        sys::step(self.tid, 0)?;
        loop {
            match self.watch.stop_of(self.tid)? {
                Stop::Signal(signal) => {
                    let info = sys::signal_info(self.tid)?;
                    let here = sys::registers(self.tid)?;
                    // Behind a uprobe the signal is a plain one, which the process seems to have sent itself.
                    let plain = probed && info.code == 0 && here.rip != registers.rip;
                    if signal == libc::SIGTRAP && (plain || is_step(info)) {
                        return self.behind(here, instruction, next);
                    }
                    if signal == libc::SIGTRAP && here.rip != registers.rip {
                        // A breakpoint of the program's own: its handler runs first.
                        let go = self.handled(signal, &here)?;
                        return match go {
                            Go::On(here) => self.behind(here, instruction, next),
                            end => Ok(end),
                        };
                    }
                    match self.signal(signal, &here)? {
                        Go::On(_) => {}
                        end => return Ok(end),
                    }
                }
                Stop::Gone => {
                    self.log.blame(Reasons::LEFT);
                    return Ok(Go::Away);
                }
                stop if stop.is_group_stop() => sys::listen(self.tid)?,
                Stop::Event(..) | Stop::SystemCall => sys::step(self.tid, 0)?,
            }
        }
    }

    /// A signal came before the instruction ran: its handler runs natively, and the step is made again.
    fn signal(&mut self, signal: i32, here: &Registers) -> Result<Go, Refusal> {
        if self.watch.arm.go && signal == libc::SIGURG {
            // Go asks the thread to make room for another goroutine, which would move it to other code: a little later.
            self.later = true;
            sys::step(self.tid, 0)?;
            return Ok(Go::On(*here));
        }
        if Signals::of(self.tid).catches(signal) {
            let go = self.handled(signal, here)?;
            if let Go::On(_) = go {
                sys::step(self.tid, 0)?;
            }
            return Ok(go);
        }
        sys::step(self.tid, signal)?;
        Ok(Go::On(*here))
    }

    /// The instruction has run: was it foretold that the thread would be here?
    fn behind(
        &mut self,
        here: Registers,
        instruction: &Instruction,
        next: Next,
    ) -> Result<Go, Refusal> {
        let (addr, fall) = (here.rip, instruction.next_ip());
        if flow::is_call(instruction) {
            self.frames.push(Frame {
                slot: here.rsp,
                ret: fall,
            });
        }
        if next.allows(addr) {
            self.log.arrived(addr, true);
            return Ok(Go::On(here));
        }
        if flow::loads_stack_segment(instruction) {
            return Ok(self.shadow(here, fall));
        }
        if self.signature_before(addr) == Some(RSEQ_SIGNATURE) {
            return Ok(self.end(Reasons::RSEQ, here));
        }
        let known = flow::successors(instruction);
        if next == Next::Unknown && (known.anywhere || known.allow(addr)) {
            self.log.arrived(addr, false);
            return Ok(Go::On(here));
        }
        self.log.blame(Reasons::UNEXPLAINED);
        Ok(Go::On(here))
    }

    /// The one instruction in the shadow of MOV SS ran without a stop.
    fn shadow(&mut self, here: Registers, at: u64) -> Go {
        let lost = self.read(at);
        let Some((lost, bytes)) = lost.filter(|(lost, _)| {
            let leads = flow::successors(lost);
            !leads.anywhere && leads.allow(here.rip)
        }) else {
            return self.end(Reasons::SHADOW, here);
        };
        self.log.arrived(at, true);
        self.log.push(at, &bytes, here.rip, 1);
        self.log.note(Fact::StepsInserted);
        self.before = Some(lost);
        Go::On(here)
    }

    fn signature_before(&self, addr: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        let got = sys::read_memory(self.tid, addr.wrapping_sub(4), &mut bytes);
        (got == bytes.len()).then(|| u32::from_le_bytes(bytes))
    }
}

/// Whether this SIGTRAP is a step of ours: the processor's.
fn is_step(info: sys::SignalInfo) -> bool {
    const TRAP_BRKPT: i32 = 1;
    const TRAP_TRACE: i32 = 2;
    matches!(info.code, TRAP_BRKPT | TRAP_TRACE)
}
