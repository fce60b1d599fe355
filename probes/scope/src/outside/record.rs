//! One call, from its first instruction to its return: followed code is stepped, everything else runs at full speed
//! between breakpoints. Whatever is not seen gives a reason; the thread runs on natively behind it.
use iced_x86::Instruction;

use super::breakpoint::{Breakpoint, Wait};
use super::handler::{Handler, HandlerError};
use super::log::Log;
use super::machine::Stopped;
use super::message::{Call, Gate};
use super::process::{self, Signals};
use super::run::Run;
use super::sys::{self, Registers, Tid};
use super::watch::{Refusal, Watch};
use crate::flow;
use crate::predict::{self, Next};
use crate::trace::{Fact, Link, Reasons};

pub(super) const SIGTRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);
pub(super) const TRAP_FLAG: u64 = 0x100;
/// How far above its return address a callee may leave the stack by `ret n`.
pub(super) const MOST_POPPED: u64 = 0xffff;
/// Steps between two looks at the clock and the thread's processor.
const LOOK_EVERY: u64 = 16;
const PIN_EVERY: u64 = 256;

/// A call that is open: where its return address is, and what it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) slot: u64,
    pub(super) ret: u64,
}

/// The function, entered once: by the call that is recorded, or again by what it left at full speed.
#[derive(Clone, Copy, Debug)]
struct Activation {
    frame: Frame,
    /// The call-out that it was called from.
    within: Option<Frame>,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Go {
    /// The thread is stopped here.
    On(Registers),
    /// The recording ends; the thread is stopped here.
    End(Registers),
    /// The recording ends; the thread runs, or is gone.
    Away,
}

/// The recording of one call.
#[derive(Debug)]
pub(super) struct Recorder<'w> {
    pub(super) watch: &'w mut Watch,
    pub(super) tid: Tid,
    pub(super) log: Log,
    pub(super) points: Run,
    activations: Vec<Activation>,
    pub(super) frames: Vec<Frame>,
    /// The instruction before the one that is next, and how the thread got behind it.
    pub(super) before: Option<Instruction>,
    /// The thread wants SIGTRAP blocked.
    pub(super) wish: bool,
    /// Makes steps survivable.
    pub(super) handler: Handler,
    /// A uprobe stands on the instruction that was read last.
    pub(super) probed: bool,
    /// A signal by which Go makes room waits for the end.
    pub(super) later: bool,
    began_ns: u64,
    native_ns: u64,
    steps: u64,
}

/// Records the call whose first instruction is next, and lets the thread run on.
pub(super) fn call(watch: &mut Watch, tid: Tid, registers: Registers) -> Result<Call, Refusal> {
    let begin_ns = sys::now_ns();
    watch.trigger(tid, false);
    let handler = Handler::place(tid, &process::handler_places(watch.pid))
        .map_err(|error| refused(watch, tid, error))?;
    let former = handler
        .install(tid, &registers)
        .map_err(|error| refused(watch, tid, error))?;
    let (begin, begin_flags) = (registers.rip, registers.eflags);
    let (log, go, wish) = match Recorder::new(watch, tid, handler, &registers) {
        Ok(recorder) => recorder.run(registers)?,
        Err(refusal) => {
            drop(handler.remove(tid, &registers, former));
            watch.resume(tid, 0)?;
            return Err(refusal);
        }
    };
    if let Go::End(mut registers) = go {
        // The kernel may take the flag of a step for the program's own.
        registers.eflags &= !TRAP_FLAG | begin_flags & TRAP_FLAG;
        sys::set_registers(tid, &registers)?;
        // A handler that cannot be taken back stays, and does no harm. It must, where a trap is still to come.
        if !Signals::of(tid).has_pending(libc::SIGTRAP) {
            drop(handler.remove(tid, &registers, former));
        }
        if wish && let Ok(mask) = sys::mask(tid) {
            sys::set_mask(tid, mask | SIGTRAP_BIT)?;
        }
        watch.trigger(tid, true);
        watch.resume(tid, 0)?;
    }
    sys::pin(None);
    Ok(Call {
        tid: tid.unsigned_abs(),
        begin_ns,
        end_ns: sys::now_ns(),
        trace: log.finish(begin),
    })
}

fn refused(watch: &mut Watch, tid: Tid, error: HandlerError) -> Refusal {
    // It goes on as if nothing had been.
    drop(watch.resume(tid, 0));
    Refusal {
        gate: if matches!(error, HandlerError::Gone) {
            Gate::Gone
        } else {
            Gate::System
        },
        why: format!(
            "steps cannot be made safe in process {}: {error}",
            watch.pid
        ),
    }
}

impl<'w> Recorder<'w> {
    fn new(
        watch: &'w mut Watch,
        tid: Tid,
        handler: Handler,
        registers: &Registers,
    ) -> Result<Self, Refusal> {
        let mask = sys::mask(tid)?;
        let wish = mask & SIGTRAP_BIT != 0;
        if wish {
            // A step with SIGTRAP blocked would reset its handler.
            sys::set_mask(tid, mask & !SIGTRAP_BIT)?;
        }
        let open = |number| Breakpoint::trap(tid, Wait::Run(registers.rip), number);
        let points = match (open(1), open(2)) {
            (Ok(over), Ok(slot)) => Run { over, slot },
            (Err(error), _) | (_, Err(error)) => return Err(error.into()),
        };
        let frame = Frame {
            slot: registers.rsp,
            ret: sys::read_word(tid, registers.rsp).unwrap_or(0),
        };
        sys::pin(process::processor(tid));
        Ok(Self {
            watch,
            tid,
            log: Log::default(),
            points,
            activations: vec![Activation {
                frame,
                within: None,
            }],
            frames: vec![frame],
            before: None,
            wish,
            handler,
            probed: false,
            later: false,
            began_ns: sys::now_ns(),
            native_ns: 0,
            steps: 0,
        })
    }

    /// Records until the end; what was seen, where the thread is, and whether it wants SIGTRAP blocked.
    fn run(mut self, mut registers: Registers) -> Result<(Log, Go, bool), Refusal> {
        let go = loop {
            match self.one(registers) {
                Ok(Go::On(next)) => registers = next,
                Ok(end) => break end,
                // Killed while it was stopped.
                Err(refusal) if refusal.gate == Gate::Gone => {
                    self.log.blame(Reasons::LEFT);
                    break Go::Away;
                }
                Err(refusal) => return Err(refusal),
            }
        };
        if self.later {
            sys::send(self.watch.pid, self.tid, libc::SIGURG);
        }
        Ok((self.log, go, self.wish))
    }

    /// From one stop to the next.
    fn one(&mut self, registers: Registers) -> Result<Go, Refusal> {
        if let Some(frame) = self.probed_return(&registers) {
            return self.through_trampoline(registers, frame);
        }
        if let Some(go) = self.left(&registers)? {
            return Ok(go);
        }
        if let Some(reason) = self.spent() {
            return Ok(self.end(reason, registers));
        }
        if !self.follows(registers.rip)
            && let Some(frame) = self.way_back(&registers)
        {
            return self.call_out(frame);
        }
        self.instruction(registers)
    }

    /// Ends the recording before its time.
    pub(super) fn end(&mut self, reason: Reasons, registers: Registers) -> Go {
        self.log.blame(reason);
        Go::End(registers)
    }

    fn follows(&self, addr: u64) -> bool {
        let all = &self.watch.arm.followed;
        all.is_empty()
            || all
                .iter()
                .any(|(start, end)| (*start..*end).contains(&addr))
    }

    fn spent(&mut self) -> Option<Reasons> {
        self.steps += 1;
        if self.steps.is_multiple_of(PIN_EVERY) {
            sys::pin(process::processor(self.tid));
        }
        let arm = &self.watch.arm;
        let stepped = sys::now_ns() - self.began_ns - self.native_ns;
        let late = self.steps.is_multiple_of(LOOK_EVERY) && stepped > arm.budget_ns;
        (late || self.steps > arm.budget_steps).then_some(Reasons::BUDGET)
    }

    /// Whether an activation of the function is over, and what then.
    fn left(&mut self, registers: &Registers) -> Result<Option<Go>, Refusal> {
        while self
            .frames
            .last()
            .is_some_and(|frame| registers.rsp > frame.slot)
        {
            self.frames.pop();
        }
        let Some(activation) = self.activations.last().copied() else {
            return Ok(None);
        };
        let Frame { slot, ret } = activation.frame;
        if registers.rsp <= slot {
            return Ok(None);
        }
        let returned = registers.rip == ret && registers.rsp - slot - 8 <= MOST_POPPED;
        match activation.within {
            None if returned => {
                self.log.note(Fact::Returned);
                Ok(Some(Go::End(*registers)))
            }
            None => Ok(Some(self.end(Reasons::LEFT, *registers))),
            Some(out) => {
                self.activations.pop();
                if returned {
                    // Back to what ran at full speed.
                    return self.call_out(out).map(Some);
                }
                Ok(None)
            }
        }
    }

    /// The frame that has just returned, if it did so into the trampoline of a return probe, which the kernel has put in the
    /// place of its return address.
    fn probed_return(&self, registers: &Registers) -> Option<Frame> {
        let frame = *self.frames.last()?;
        let returned = flow::is_return(self.before.as_ref()?)
            && registers.rsp == frame.slot.wrapping_add(8)
            && registers.rip != frame.ret;
        (returned && process::is_trampoline(self.watch.pid, registers.rip)).then_some(frame)
    }

    /// The trampoline is the kernel's, and not what the program wrote: the flow goes from the return to where it was called.
    fn through_trampoline(&mut self, registers: Registers, frame: Frame) -> Result<Go, Refusal> {
        self.log.note(Fact::UprobeSeen);
        self.run_over(&registers, frame.ret, Reasons::UPROBE)
    }

    /// Where the code that is next, which is not followed, will return to; `None` if that is not known.
    fn way_back(&self, registers: &Registers) -> Option<Frame> {
        let slot = registers.rsp;
        // A breakpoint on an unaligned word is none.
        if !slot.is_multiple_of(8) {
            return None;
        }
        let word = sys::read_word(self.tid, slot)?;
        let before = self.before.as_ref()?;
        if flow::is_call(before) {
            let ret = before.next_ip();
            return (word == ret).then_some(Frame { slot, ret });
        }
        if flow::is_return(before) {
            return None;
        }
        let open = self.frames.iter().rev().find(|frame| frame.slot == slot)?;
        (word == open.ret).then_some(*open)
    }

    /// Runs a callee at full speed, until it is back or the function is entered again.
    fn call_out(&mut self, frame: Frame) -> Result<Go, Refusal> {
        let since = sys::now_ns();
        let go = self.run_out(frame);
        self.native_since(since);
        go
    }

    /// What ran natively since then is not on the budget.
    pub(super) fn native_since(&mut self, since: u64) {
        self.native_ns += sys::now_ns() - since;
    }

    /// The function was entered again by what ran at full speed.
    pub(super) fn again(&mut self, registers: Registers, out: Frame) -> Go {
        let frame = Frame {
            slot: registers.rsp,
            ret: sys::read_word(self.tid, registers.rsp).unwrap_or(0),
        };
        self.activations.push(Activation {
            frame,
            within: Some(out),
        });
        self.frames.push(frame);
        self.before = None;
        self.log.join(Link::Again);
        Go::On(registers)
    }

    /// A callee came back behind its call.
    pub(super) fn back(&mut self, registers: Registers) -> Go {
        self.log.note(Fact::CallOutsReturned);
        self.log.call_outs += 1;
        self.log.join(Link::Over);
        self.before = None;
        Go::On(registers)
    }

    /// Logs the instruction that is next, and lets it run.
    fn instruction(&mut self, registers: Registers) -> Result<Go, Refusal> {
        let addr = registers.rip;
        let Some((instruction, bytes)) = self.read(addr) else {
            return Ok(self.end(Reasons::DECODE, registers));
        };
        let stopped = Stopped {
            tid: self.tid,
            registers: &registers,
        };
        let next = predict::next(&instruction, &stopped);
        let fall = instruction.next_ip();
        let foretold = match next {
            Next::At(next) => next,
            Next::Either(..) | Next::Unknown => 0,
        };
        if let Some(reason) = self.guarded(&instruction, &registers) {
            return Ok(self.end(reason, registers));
        }
        self.log.push(addr, &bytes, foretold, 1);
        self.before = Some(instruction);
        match () {
            () if flow::is_system_call(&instruction) => self.system_call(&registers, fall),
            () if flow::is_repeated(&instruction) => self.repeated(&registers, fall),
            () if flow::pushes_flags(&instruction) || flow::pops_flags(&instruction) => {
                self.flags(&registers, &instruction)
            }
            () => self.step(registers, &instruction, next),
        }
    }

    pub(super) fn read(&mut self, addr: u64) -> Option<(Instruction, Vec<u8>)> {
        let mut bytes = [0; 15];
        let got = sys::read_memory(self.tid, addr, &mut bytes);
        let bytes = bytes.get(..got)?;
        self.probed = false;
        if bytes.first() == Some(&0xcc)
            && let Some(original) = process::instruction_in_file(self.watch.pid, addr)
        {
            self.log.note(Fact::UprobeSeen);
            self.probed = true;
            return Some((flow::decode(addr, &original)?, original));
        }
        let instruction = flow::decode(addr, bytes)?;
        let bytes = bytes.get(..instruction.len())?.to_vec();
        Some((instruction, bytes))
    }
}
