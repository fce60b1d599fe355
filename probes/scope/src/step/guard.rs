//! Instructions that would kill, leak or blind a stepped thread, met before they run.
//! Runs in the handler: no libc, no lock, no allocation.
use iced_x86::{Instruction, Mnemonic};

use super::cure::{Cure, holds};
use super::displaced::fault;
use super::memory::{self, WriteError};
use super::registers::{Registers, TRAP_FLAG};
use super::sys::{self, nr};
use super::thread::{self, Thread};
use super::trap::{self, Action};
use super::{altstack, over};
use crate::flow;
use crate::trace::Reasons;

/// SIGTRAP in a mask.
pub(super) const SIGTRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);
const NEVER_BLOCKED: u64 = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1) | SIGTRAP_BIT;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
/// The kernel's signal set.
const SET_BYTES: u64 = 8;
const PR_SET_SECCOMP: u64 = 22;
const CLONE_THREAD: u64 = 0x1_0000;
const MREMAP_FIXED: u64 = 2;
/// Numbers of another table carry this bit.
const X32_BIT: u64 = 0x4000_0000;

/// What is to be done with the instruction that is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Let it run.
    Run,
    /// It has been done; RIP is behind it.
    Emulated,
    /// It runs without the trap flag, by a stub that comes back.
    Away,
    /// Let it run, and all that follows, without the trap flag.
    Halt(Reasons),
}

/// Looks at the instruction that is about to run.
pub(super) fn before(
    thread: &mut Thread,
    registers: &mut Registers<'_>,
    instruction: &Instruction,
) -> Verdict {
    match instruction.mnemonic() {
        Mnemonic::Sysenter | Mnemonic::Iretq | Mnemonic::Iretd | Mnemonic::Iret => {
            Verdict::Halt(Reasons::UNGUARDED)
        }
        Mnemonic::Int if flow::is_system_call(instruction) => {
            if let Some(text) = thread.text() {
                text.off();
            }
            old_call(registers.rax())
        }
        Mnemonic::Syscall => call(thread, registers, instruction.next_ip()),
        _ => Verdict::Run,
    }
}

/// `INT 0x80`: the 32-bit table. What makes threads or touches signals is not for a stepped thread.
fn old_call(number: u64) -> Verdict {
    match number & 0xffff_ffff {
        2 | 11 | 120 | 190 | 358 | 435 => Verdict::Halt(Reasons::FORK),
        119 | 173 => Verdict::Halt(Reasons::SIGNAL_RETURN),
        48 | 67 | 69 | 126 | 174 | 175 => Verdict::Halt(Reasons::UNGUARDED),
        _ => Verdict::Run,
    }
}

fn call(thread: &mut Thread, registers: &mut Registers<'_>, behind: u64) -> Verdict {
    let number = registers.rax();
    remaps(thread, registers);
    let trap = u64::from(libc::SIGTRAP.unsigned_abs());
    match number {
        nr::FORK | nr::VFORK | nr::CLONE | nr::CLONE3 | nr::EXECVE | nr::EXECVEAT
            if holds(Cure::ForkUnstepped) =>
        {
            fork(thread, registers, behind)
        }
        // The thread's id may soon be another's.
        nr::EXIT => {
            thread::leave(sys::gettid());
            Verdict::Halt(Reasons::THREAD_HOP)
        }
        // Behind a filter of the program's, what the handler needs may be deadly.
        nr::SECCOMP => Verdict::Halt(Reasons::UNGUARDED),
        nr::PRCTL if registers.rdi() & 0xffff_ffff == PR_SET_SECCOMP => {
            Verdict::Halt(Reasons::UNGUARDED)
        }
        nr::RT_SIGRETURN => Verdict::Halt(Reasons::SIGNAL_RETURN),
        nr::URETPROBE => Verdict::Halt(Reasons::UPROBE),
        nr::RT_SIGPROCMASK if registers.r10() == SET_BYTES && holds(Cure::MaskEmulated) => {
            let result = mask(thread, registers);
            finish(registers, result, behind)
        }
        nr::RT_SIGACTION
            if registers.r10() == SET_BYTES
                && registers.rdi() & 0xffff_ffff == trap
                && holds(Cure::ActionEmulated) =>
        {
            let result = action(registers, trap::former, trap::set_former);
            finish(registers, result, behind)
        }
        nr::RT_SIGACTION if registers.r10() == SET_BYTES && holds(Cure::FaultActionEmulated) => {
            let Some(signal) = fault::kept(registers.rdi()) else {
                return Verdict::Run;
            };
            let set = |action| fault::set_wish(signal, action);
            let result = action(registers, || fault::wish(signal), set);
            finish(registers, result, behind)
        }
        nr::SIGALTSTACK if holds(Cure::StackEmulated) => {
            let result = stack(thread, registers);
            finish(registers, result, behind)
        }
        _ if number & X32_BIT != 0 => Verdict::Halt(Reasons::UNGUARDED),
        _ => Verdict::Run,
    }
}

/// What is mapped may become another: text that was read there is forgotten.
fn remaps(thread: &mut Thread, registers: &Registers<'_>) {
    let Some(text) = thread.text() else {
        return;
    };
    let (at, len) = (registers.rdi(), registers.rsi());
    match registers.rax() {
        nr::MREMAP => {
            text.changes(at, len);
            if registers.r10() & MREMAP_FIXED != 0 {
                text.changes(registers.r8(), registers.rdx());
            }
        }
        // How much is told by the kernel's own books.
        nr::SHMAT | nr::SHMDT | nr::REMAP_FILE_PAGES => text.off(),
        nr::MMAP | nr::MUNMAP | nr::MPROTECT | nr::PKEY_MPROTECT => text.changes(at, len),
        _ => {}
    }
}

/// What makes a thread or process, or becomes another program.
fn fork(thread: &mut Thread, registers: &mut Registers<'_>, behind: u64) -> Verdict {
    let flags = match registers.rax() {
        nr::CLONE => registers.rdi(),
        nr::CLONE3 => memory::read_word(registers.rdi()).unwrap_or(0),
        _ => 0,
    };
    if !over::make(registers, behind, thread.wish) {
        return Verdict::Halt(Reasons::FORK);
    }
    thread.child = Some(flags & CLONE_THREAD != 0);
    Verdict::Away
}

/// Leaves the registers as SYSCALL does.
fn finish(registers: &mut Registers<'_>, result: Result<i64, Verdict>, behind: u64) -> Verdict {
    match result {
        Err(verdict) => verdict,
        Ok(result) => {
            registers.set_rax(result.cast_unsigned());
            registers.set_rcx(behind);
            registers.set_r11(registers.flags() & !TRAP_FLAG);
            registers.set_rip(behind);
            Verdict::Emulated
        }
    }
}

/// `rt_sigprocmask` on the mask that the thread returns with. SIGTRAP is never really blocked: a blocked trap kills.
fn mask(thread: &mut Thread, registers: &mut Registers<'_>) -> Result<i64, Verdict> {
    let old = *registers.mask() & !SIGTRAP_BIT | if thread.wish { SIGTRAP_BIT } else { 0 };
    if registers.rsi() != 0 {
        let Some(set) = memory::read_word(registers.rsi()) else {
            return Ok(EFAULT);
        };
        let new = match registers.rdi() & 0xffff_ffff {
            0 => old | set,
            1 => old & !set,
            2 => set,
            _ => return Ok(EINVAL),
        };
        thread.wish = new & SIGTRAP_BIT != 0;
        *registers.mask() = new & !NEVER_BLOCKED;
    }
    give(registers.rdx(), &old.to_le_bytes()).inspect_err(|_| {
        thread.wish = old & SIGTRAP_BIT != 0;
        *registers.mask() = old & !NEVER_BLOCKED;
    })
}

/// `rt_sigaction` for a signal whose handler is ours: the program's wish is kept, and what is its own is handed on to it.
fn action(
    registers: &Registers<'_>,
    wish: impl Fn() -> Action,
    set: impl Fn(Action),
) -> Result<i64, Verdict> {
    let old = wish();
    if registers.rsi() != 0 {
        let mut bytes = [0; Action::BYTES];
        if memory::read(registers.rsi(), &mut bytes) != bytes.len() {
            return Ok(EFAULT);
        }
        set(Action::from_bytes(bytes));
    }
    give(registers.rdx(), &old.to_bytes()).inspect_err(|_| set(old))
}

/// `sigaltstack`: a stack on which the handler cannot run is remembered, and ours stays.
fn stack(thread: &mut Thread, registers: &mut Registers<'_>) -> Result<i64, Verdict> {
    let now = registers.0.uc_stack;
    let mut old = thread.old_stack.unwrap_or(now);
    if altstack::is_on(&old, registers.rsp()) {
        old.ss_flags |= libc::SS_ONSTACK;
    }
    if registers.rdi() != 0 {
        let mut bytes = [0; altstack::RECORD];
        if memory::read(registers.rdi(), &mut bytes) != bytes.len() {
            return Ok(EFAULT);
        }
        let new = altstack::from_bytes(bytes);
        match altstack::refusal(&old, &new) {
            Some(altstack::Refusal::Errno(errno)) => return Ok(errno),
            Some(altstack::Refusal::Unknown) => return Err(Verdict::Halt(Reasons::UNGUARDED)),
            None => set_stack(thread, registers, new),
        }
    }
    give(registers.rsi(), &altstack::to_bytes(&old))
}

/// The kernel takes the stack over from the frame, when the handler returns.
fn set_stack(thread: &mut Thread, registers: &mut Registers<'_>, new: libc::stack_t) {
    if altstack::is_enough(&new) {
        registers.0.uc_stack = new;
        thread.old_stack = None;
    } else {
        registers.0.uc_stack = altstack::ours(thread.stack);
        thread.old_stack = Some(new);
    }
}

/// Writes an answer where the program wants it, as the kernel would.
fn give(addr: u64, bytes: &[u8]) -> Result<i64, Verdict> {
    if addr == 0 {
        return Ok(0);
    }
    match memory::write(addr, bytes) {
        Ok(()) => Ok(0),
        Err(WriteError::Fault) => Ok(EFAULT),
        Err(WriteError::Denied) => Err(Verdict::Halt(Reasons::UNGUARDED)),
    }
}
