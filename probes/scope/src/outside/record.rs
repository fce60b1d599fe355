//! One call, from its first instruction to its return: followed code is stepped, everything else runs at full speed
//! between breakpoints. Whatever is not seen gives a reason; the thread runs on natively behind it.
use iced_x86::{Instruction, Mnemonic};

use super::breakpoint::{Breakpoint, Wait};
use super::handler::{Handler, HandlerError};
use super::log::Log;
use super::machine::Stopped;
use super::message::{Call, Gate};
use super::process::{self, Signals};
use super::run::Run;
use super::sys::{self, Registers, Stop, Tid};
use super::watch::{Refusal, Watch};
use crate::flow;
use crate::predict::{self, Next};
use crate::trace::{Fact, Link, Reasons};

/// What glibc and librseq put before the abort address of a restartable sequence.
const RSEQ_SIGNATURE: u32 = 0x5305_3053;
const SIGTRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);
const TRAP_FLAG: u64 = 0x100;
/// How far above its return address a callee may leave the stack by `ret n`.
const MOST_POPPED: u64 = 0xffff;
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
    frames: Vec<Frame>,
    /// The instruction before the one that is next, and how the thread got behind it.
    before: Option<Instruction>,
    /// The thread wants SIGTRAP blocked.
    wish: bool,
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
    let begin = registers.rip;
    let (log, go, wish) = match Recorder::new(watch, tid, &registers) {
        Ok(recorder) => recorder.run(registers)?,
        Err(refusal) => {
            drop(handler.remove(tid, &registers, former));
            watch.resume(tid, 0)?;
            return Err(refusal);
        }
    };
    if let Go::End(registers) = go {
        // A handler that cannot be taken back stays, and does no harm.
        drop(handler.remove(tid, &registers, former));
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
    fn new(watch: &'w mut Watch, tid: Tid, registers: &Registers) -> Result<Self, Refusal> {
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
        Ok((self.log, go, self.wish))
    }

    /// From one stop to the next.
    fn one(&mut self, registers: Registers) -> Result<Go, Refusal> {
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
            () => self.step(registers, &instruction, next),
        }
    }

    fn read(&mut self, addr: u64) -> Option<(Instruction, Vec<u8>)> {
        let mut bytes = [0; 15];
        let got = sys::read_memory(self.tid, addr, &mut bytes);
        let bytes = bytes.get(..got)?;
        if bytes.first() == Some(&0xcc)
            && let Some(original) = process::instruction_in_file(self.watch.pid, addr)
        {
            self.log.note(Fact::UprobeSeen);
            return Some((flow::decode(addr, &original)?, original));
        }
        let instruction = flow::decode(addr, bytes)?;
        let bytes = bytes.get(..instruction.len())?.to_vec();
        Some((instruction, bytes))
    }

    /// Instructions behind which the thread could not be stepped safely: it runs them natively, and all that follows.
    fn guarded(&self, instruction: &Instruction, registers: &Registers) -> Option<Reasons> {
        if matches!(
            instruction.mnemonic(),
            Mnemonic::Sysenter | Mnemonic::Iretq | Mnemonic::Iretd
        ) {
            return Some(Reasons::UNGUARDED);
        }
        if !flow::is_system_call(instruction) {
            return None;
        }
        let trap = u64::from(libc::SIGTRAP.unsigned_abs());
        let native = instruction.mnemonic() == Mnemonic::Syscall;
        match (native, registers.rax) {
            (true, 15) | (false, 119 | 173) => Some(Reasons::SIGNAL_RETURN),
            (true, 59 | 322) | (false, 11 | 358) => Some(Reasons::FORK),
            (true, 13) if registers.rdi & 0xffff_ffff == trap => Some(Reasons::UNGUARDED),
            (false, 48 | 67 | 126 | 174 | 175) => Some(Reasons::UNGUARDED),
            _ => None,
        }
    }

    /// `rt_sigprocmask` is done on the thread's behalf: with SIGTRAP blocked it could not be stepped.
    pub(super) fn mask(&mut self, registers: &Registers, fall: u64) -> Result<Go, Refusal> {
        let blocked = sys::mask(self.tid)?;
        let trap = if self.wish { SIGTRAP_BIT } else { 0 };
        let old = blocked & !SIGTRAP_BIT | trap;
        let result = self.new_mask(registers, old)?;
        let mut behind = *registers;
        behind.rax = result.cast_unsigned();
        behind.rcx = fall;
        behind.r11 = registers.eflags & !TRAP_FLAG;
        behind.rip = fall;
        behind.orig_rax = u64::MAX;
        sys::set_registers(self.tid, &behind)?;
        self.log.arrived(fall, true);
        Ok(Go::On(behind))
    }

    fn new_mask(&mut self, registers: &Registers, old: u64) -> Result<i64, Refusal> {
        const EFAULT: i64 = -14;
        const EINVAL: i64 = -22;
        let mut new = old;
        if registers.rsi != 0 {
            let Some(set) = sys::read_word(self.tid, registers.rsi) else {
                return Ok(EFAULT);
            };
            new = match registers.rdi & 0xffff_ffff {
                0 => old | set,
                1 => old & !set,
                2 => set,
                _ => return Ok(EINVAL),
            };
        }
        if registers.rdx != 0
            && sys::write_memory(self.tid, registers.rdx, &old.to_le_bytes()).is_err()
        {
            return Ok(EFAULT);
        }
        self.wish = new & SIGTRAP_BIT != 0;
        sys::set_mask(self.tid, new & !SIGTRAP_BIT)?;
        Ok(0)
    }

    fn step(
        &mut self,
        registers: Registers,
        instruction: &Instruction,
        next: Next,
    ) -> Result<Go, Refusal> {
        self.log.traps += 1;
        sys::step(self.tid, 0)?;
        loop {
            match self.watch.stop_of(self.tid)? {
                Stop::Signal(signal) => {
                    let info = sys::signal_info(self.tid)?;
                    let here = sys::registers(self.tid)?;
                    if is_step(signal, info) {
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
        if flow::pushes_flags(instruction) {
            self.hide_flag(&here);
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

    /// Takes the trap flag out of flags that were pushed.
    fn hide_flag(&mut self, here: &Registers) {
        let slot = here.rsp.wrapping_add(1);
        let mut byte = [0];
        let read = sys::read_memory(self.tid, slot, &mut byte) == 1;
        let [flags] = byte;
        if !read || sys::write_memory(self.tid, slot, &[flags & !1]).is_err() {
            self.log.note(Fact::TrapFlagVisible);
        }
    }

    fn signature_before(&self, addr: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        let got = sys::read_memory(self.tid, addr.wrapping_sub(4), &mut bytes);
        (got == bytes.len()).then(|| u32::from_le_bytes(bytes))
    }
}

/// Whether this SIGTRAP is a step of ours: the processor's, or the plain one behind a uprobe.
fn is_step(signal: i32, info: sys::SignalInfo) -> bool {
    const TRAP_BRKPT: i32 = 1;
    const TRAP_TRACE: i32 = 2;
    signal == libc::SIGTRAP
        && (matches!(info.code, TRAP_BRKPT | TRAP_TRACE) || info.code == 0 && info.pid == 0)
}
