//! What makes a step survivable: while a thread is stepped, its process has a SIGTRAP handler that takes the trap flag off.
//! A guardian that is killed in the middle then leaves a program that runs on; without the handler it dies, each time.
//!
//! The handler lies in the unused end of the vDSO's last page, which no code of the program is in. It is set before the
//! first step of a call and taken back behind the last one. Setting it runs a few instructions in the stopped thread that
//! save what they use and return to where it stood by themselves, so that there too the guardian can be killed.
use std::arch::global_asm;
use std::io;

use super::breakpoint::MARK;
use super::process::Signals;
use super::sys::{self, Registers, Stop, Tid};
use super::watch::OPTIONS;

global_asm!(
    ".pushsection .rodata.scalpel_outside, \"a\", @progbits",
    ".balign 8",
    ".hidden scalpel_outside_begin",
    ".globl scalpel_outside_begin",
    ".hidden scalpel_outside_restorer",
    ".globl scalpel_outside_restorer",
    ".hidden scalpel_outside_call",
    ".globl scalpel_outside_call",
    ".hidden scalpel_outside_called",
    ".globl scalpel_outside_called",
    ".hidden scalpel_outside_data",
    ".globl scalpel_outside_data",
    ".hidden scalpel_outside_end",
    ".globl scalpel_outside_end",
    "scalpel_outside_begin:",
    // handler(edi: signal, rsi: siginfo, rdx: ucontext)
    "mov eax, [rsi + 8]",
    "cmp eax, 6",
    "jne 2f",
    // A breakpoint that comes late: of ours if it carries our mark.
    "mov rax, [rsi + 24]",
    "xor rax, [rip + scalpel_outside_mark]",
    "cmp rax, 0xff",
    "ja 5f",
    "ret",
    "2:",
    "cmp eax, 2",
    "je 3f",
    "cmp eax, 1",
    "je 3f",
    // The step over a uprobe is a plain signal that the process seems to have sent itself.
    "test eax, eax",
    "jnz 5f",
    "cmp qword ptr [rip + scalpel_outside_probe], 0",
    "je 5f",
    "3:",
    "cmp qword ptr [rip + scalpel_outside_live], 0",
    "je 5f",
    "and qword ptr [rdx + 176], -0x101",
    "ret",
    // Not ours: to who was there before.
    "5:",
    "mov rax, [rip + scalpel_outside_former]",
    "cmp rax, 1",
    "jb 7f",
    "ja 6f",
    // Ignored, unless the processor forces it.
    "cmp dword ptr [rsi + 8], 0",
    "jg 7f",
    "ret",
    "6:",
    "jmp rax",
    // Nobody was there: the default action, by the signal again.
    "7:",
    "sub rsp, 40",
    "xor eax, eax",
    "mov [rsp], rax",
    "mov [rsp + 8], rax",
    "mov [rsp + 16], rax",
    "mov [rsp + 24], rax",
    "mov edi, 5",
    "mov rsi, rsp",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, 13",
    "syscall",
    "mov eax, 39",
    "syscall",
    "mov edi, eax",
    "mov eax, 186",
    "syscall",
    "mov esi, eax",
    "mov edx, 5",
    "mov eax, 234",
    "syscall",
    "add rsp, 40",
    "ret",
    "nop",
    "scalpel_outside_restorer:",
    "mov eax, 15",
    "syscall",
    // rt_sigaction(SIGTRAP, new, old on the stack) in the stopped thread, below its red zone, and back.
    "scalpel_outside_call:",
    "lea rsp, [rsp - 128]",
    "pushfq",
    "push rax",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "push r10",
    "push r11",
    "lea rsp, [rsp - 32]",
    "mov edi, 5",
    "mov rsi, [rip + scalpel_outside_new]",
    "mov rdx, rsp",
    "mov r10d, 8",
    "mov eax, 13",
    "syscall",
    "scalpel_outside_called:",
    "lea rsp, [rsp + 32]",
    "pop r11",
    "pop r10",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "popfq",
    "lea rsp, [rsp + 128]",
    "jmp [rip + scalpel_outside_origin]",
    ".balign 8",
    "scalpel_outside_data:",
    "scalpel_outside_mark: .quad 0",
    "scalpel_outside_live: .quad 0",
    "scalpel_outside_former: .quad 0, 0, 0, 0",
    "scalpel_outside_origin: .quad 0",
    "scalpel_outside_new: .quad 0",
    "scalpel_outside_action: .quad 0, 0, 0, 0",
    "scalpel_outside_probe: .quad 0",
    "scalpel_outside_end:",
    ".popsection",
);

unsafe extern "C" {
    static scalpel_outside_begin: u8;
    static scalpel_outside_restorer: u8;
    static scalpel_outside_call: u8;
    static scalpel_outside_called: u8;
    static scalpel_outside_data: u8;
    static scalpel_outside_end: u8;
}

/// `SA_SIGINFO | SA_RESTORER`
const FLAGS: u64 = 0x4 | 0x0400_0000;
/// Flags of the former action that concern how any handler is run.
const KEPT: u64 = 0x0800_0000 | 0x1000_0000 | 0x4000_0000; // ONSTACK, RESTART, NODEFER
const RESETHAND: u64 = 0x8000_0000;
const SIGTRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);

/// The words behind the code, in their order.
#[derive(Clone, Copy, Debug)]
enum Word {
    Mark = 0,
    Live = 1,
    Former = 2,
    Origin = 6,
    New = 7,
    Action = 8,
    Probe = 12,
}

/// The code as it is put into a process.
struct Blob {
    code: &'static [u8],
    restorer: u64,
    call: u64,
    called: u64,
    bytes: u64,
}

fn blob() -> Blob {
    let begin = &raw const scalpel_outside_begin;
    let offset = |at: *const u8| (at as u64) - (begin as u64);
    let code = offset(&raw const scalpel_outside_data);
    // SAFETY: both symbols bound one read-only object of this program.
    let code = unsafe { std::slice::from_raw_parts(begin, usize::try_from(code).unwrap_or(0)) };
    Blob {
        code,
        restorer: offset(&raw const scalpel_outside_restorer),
        call: offset(&raw const scalpel_outside_call),
        called: offset(&raw const scalpel_outside_called),
        bytes: offset(&raw const scalpel_outside_end),
    }
}

/// The kernel's `struct sigaction`: handler, flags, restorer, mask.
type Action = [u64; 4];

/// Why no handler can be set.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandlerError {
    /// No room for it.
    #[error("there is no unused end of an executable page for the handler that makes steps safe")]
    NoRoom,
    /// The program's own handler is of a kind that cannot be stood in for.
    #[error("the program handles SIGTRAP once only (SA_RESETHAND)")]
    Once,
    /// The process forbids `rt_sigaction`, by seccomp for example.
    #[error("rt_sigaction fails in the process (errno {0}): a seccomp filter?")]
    Denied(i64),
    /// The thread did not do what it was told.
    #[error("the thread ended while its handler was set")]
    Gone,
    /// The kernel refused.
    #[error("cannot set a handler in the process")]
    System(#[from] io::Error),
}

/// The place of the handler in one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handler {
    at: u64,
    /// The thread runs under a seccomp filter.
    filtered: bool,
}

impl Handler {
    /// Puts the code into the unused end of one of these executable mappings (start, end), or finds it there. The thread
    /// is stopped. Nothing of the program changes by it.
    pub(super) fn place(tid: Tid, mappings: &[(u64, u64)]) -> Result<Self, HandlerError> {
        let blob = blob();
        let room = blob.bytes.next_multiple_of(64);
        let filtered = Signals::of(tid).filtered;
        for (start, end) in mappings {
            let at = end.saturating_sub(room);
            if at < *start {
                continue;
            }
            let handler = Self { at, filtered };
            match handler.what_is_there(tid, &blob) {
                Some(There::Ours) => return Ok(handler),
                Some(There::Nothing) => {
                    // The words first: whoever finds the code finds them right.
                    handler.set(tid, Word::Mark, &[MARK])?;
                    sys::poke(tid, at, blob.code)?;
                    return Ok(handler);
                }
                None => {}
            }
        }
        Err(HandlerError::NoRoom)
    }

    fn what_is_there(self, tid: Tid, blob: &Blob) -> Option<There> {
        let mut bytes = vec![0; usize::try_from(blob.bytes).ok()?];
        if sys::read_memory(tid, self.at, &mut bytes) != bytes.len() {
            return None;
        }
        match () {
            () if bytes.starts_with(blob.code) => Some(There::Ours),
            () if bytes.iter().all(|byte| *byte == 0) => Some(There::Nothing),
            () => None,
        }
    }

    fn set(self, tid: Tid, word: Word, values: &[u64]) -> io::Result<()> {
        let data = blob().code.len() as u64;
        let at = self.at + data + 8 * word as u64;
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        sys::poke(tid, at, &bytes)
    }

    /// Makes the code the process's SIGTRAP handler. The thread stands in user mode, at `registers`, and still does
    /// behind it. Returns what has to be put back.
    pub(super) fn install(self, tid: Tid, registers: &Registers) -> Result<Former, HandlerError> {
        let old = self.action(tid, registers, None)?;
        let [handler, flags, _, mask] = old;
        // A guardian that was killed left its handler, and who was there before it stands in its words.
        if handler == self.at {
            let former = self.former(tid).ok_or(HandlerError::Gone)?;
            self.set(tid, Word::Live, &[1])?;
            return Ok(Former(former));
        }
        if flags & RESETHAND != 0 {
            return Err(HandlerError::Once);
        }
        self.set(tid, Word::Former, &old)?;
        self.set(tid, Word::Live, &[1])?;
        let restorer = self.at + blob().restorer;
        let ours = [self.at, FLAGS | flags & KEPT, restorer, mask & !SIGTRAP_BIT];
        self.action(tid, registers, Some(ours))?;
        Ok(Former(old))
    }

    /// Whether a uprobe is stepped over now: only then is a plain signal a step.
    pub(super) fn probe(self, tid: Tid, stepped: bool) -> io::Result<()> {
        self.set(tid, Word::Probe, &[u64::from(stepped)])
    }

    fn former(self, tid: Tid) -> Option<Action> {
        let at = self.at + blob().code.len() as u64 + 8 * Word::Former as u64;
        let mut words = (at..).step_by(8).map_while(|at| sys::read_word(tid, at));
        Some([words.next()?, words.next()?, words.next()?, words.next()?])
    }

    /// Puts back what was there before, unless the program has set another handler since.
    pub(super) fn remove(
        self,
        tid: Tid,
        registers: &Registers,
        former: Former,
    ) -> Result<(), HandlerError> {
        let now = self.action(tid, registers, None)?;
        if now.first() == Some(&self.at) {
            self.action(tid, registers, Some(former.0))?;
        }
        Ok(self.set(tid, Word::Live, &[0])?)
    }

    /// `rt_sigaction` in the stopped thread, which stands where it stood behind it.
    fn action(
        self,
        tid: Tid,
        registers: &Registers,
        new: Option<Action>,
    ) -> Result<Action, HandlerError> {
        let data = self.at + blob().code.len() as u64;
        let mut pointer = 0;
        if let Some(action) = new {
            self.set(tid, Word::Action, &action)?;
            pointer = data + 8 * Word::Action as u64;
        }
        self.set(tid, Word::New, &[pointer])?;
        self.set(tid, Word::Origin, &[registers.rip])?;
        let mut call = *registers;
        call.rip = self.at + blob().call;
        // A filter of the program's is not asked about this one call, and about every other.
        if self.filtered {
            sys::set_options(tid, OPTIONS | libc::PTRACE_O_SUSPEND_SECCOMP)?;
        }
        // From here on the thread comes back by itself, whatever becomes of the guardian.
        sys::set_registers(tid, &call)?;
        self.to_stop(tid)?;
        self.to_stop(tid)?;
        if self.filtered {
            sys::set_options(tid, OPTIONS)?;
        }
        let behind = sys::registers(tid)?;
        let mut bytes = [0; 32];
        let got = sys::read_memory(tid, behind.rsp, &mut bytes);
        sys::set_registers(tid, registers)?;
        if behind.rax != 0 || got != bytes.len() {
            return Err(HandlerError::Denied(-behind.rax.cast_signed()));
        }
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        Ok(std::array::from_fn(|_| words.next().unwrap_or(0)))
    }

    /// To the begin or the end of the one system call. A signal that comes first is delivered, and its handler runs, as
    /// it would in any other code.
    fn to_stop(self, tid: Tid) -> Result<(), HandlerError> {
        let here = self.at + blob().called;
        sys::to_system_call(tid, 0)?;
        loop {
            match sys::wait(tid, true)?.map(|(_, stop)| stop) {
                Some(Stop::SystemCall) if sys::registers(tid)?.rip == here => return Ok(()),
                Some(Stop::SystemCall) => sys::to_system_call(tid, 0)?,
                Some(Stop::Signal(signal)) => sys::to_system_call(tid, signal)?,
                Some(stop @ Stop::Event(..)) if stop.is_group_stop() => sys::listen(tid)?,
                Some(Stop::Event(..)) => sys::to_system_call(tid, 0)?,
                Some(Stop::Gone) | None => return Err(HandlerError::Gone),
            }
        }
    }
}

enum There {
    Ours,
    Nothing,
}

/// The action that was there before ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Former(Action);
