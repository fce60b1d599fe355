//! The few instructions by which a thread enters and leaves stepping. The handler knows their addresses.
use std::arch::global_asm;

global_asm!(
    ".hidden scalpel_door_arm",
    ".globl scalpel_door_arm",
    ".type scalpel_door_arm, @function",
    "scalpel_door_arm:",
    // The first trap comes after the `ret`: at the address that is noted here.
    "mov rax, [rsp]",
    "mov [rdi], rax",
    "pushfq",
    "or qword ptr [rsp], 0x100",
    "popfq",
    "ret",
    ".size scalpel_door_arm, .-scalpel_door_arm",
    ".hidden scalpel_door_disarm",
    ".globl scalpel_door_disarm",
    ".type scalpel_door_disarm, @function",
    "scalpel_door_disarm:",
    // The handler takes the flag off at this address; the rest is for a handler that was replaced.
    "pushfq",
    "and qword ptr [rsp], -0x101",
    "popfq",
    "ret",
    ".size scalpel_door_disarm, .-scalpel_door_disarm",
    ".hidden scalpel_door_call",
    ".globl scalpel_door_call",
    ".hidden scalpel_door_call_end",
    ".globl scalpel_door_call_end",
    ".type scalpel_door_call, @function",
    "scalpel_door_call:",
    // A backtrace from within the call goes on to its caller.
    ".cfi_startproc",
    // One push also aligns the stack for the callee.
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "mov rax, rdi",
    "mov r10, rsi",
    "mov rdi, [r10]",
    "mov rsi, [r10 + 8]",
    "mov rdx, [r10 + 16]",
    "mov rcx, [r10 + 24]",
    "mov r8, [r10 + 32]",
    "mov r9, [r10 + 40]",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "or qword ptr [rsp], 0x100",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "call rax",
    "scalpel_door_call_end:",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "and qword ptr [rsp], -0x101",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_endproc",
    ".size scalpel_door_call, .-scalpel_door_call",
    ".hidden scalpel_scope_on_stack",
    ".globl scalpel_scope_on_stack",
    ".type scalpel_scope_on_stack, @function",
    // rdi: a handler, rsi, rdx, rcx: its arguments, r8: the top of its stack. Unwinders find the way back by rbp.
    "scalpel_scope_on_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rax, rdi",
    "mov edi, esi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov rsp, r8",
    "and rsp, -16",
    "call rax",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size scalpel_scope_on_stack, .-scalpel_scope_on_stack",
    ".hidden scalpel_door_restorer",
    ".globl scalpel_door_restorer",
    ".type scalpel_door_restorer, @function",
    // rt_sigreturn: unwinders know this shape of a signal trampoline.
    "nop",
    "scalpel_door_restorer:",
    "mov rax, 15",
    "syscall",
    ".size scalpel_door_restorer, .-scalpel_door_restorer",
);

unsafe extern "C" {
    fn scalpel_door_arm(begin: *mut u64);
    fn scalpel_door_disarm();
    fn scalpel_door_call(function: usize, args: *const u64) -> u64;
    fn scalpel_door_call_end();
    fn scalpel_door_restorer();
    fn scalpel_scope_on_stack(
        handler: u64,
        signal: i32,
        info: *mut libc::siginfo_t,
        context: *mut libc::ucontext_t,
        top: u64,
    );
}

/// Sets the trap flag; the address of the first stop is put at `begin` before.
///
/// # Safety
/// The handler is installed, the thread's state is ready, and `begin` stays valid.
#[inline(always)]
pub(super) unsafe fn arm(begin: *mut u64) {
    // SAFETY: the caller's promise; the routine keeps to the C calling convention.
    unsafe { scalpel_door_arm(begin) }
}

/// Clears the trap flag, set or not.
#[inline(always)]
pub(super) fn disarm() {
    // SAFETY: it touches flags and its own stack slot only.
    unsafe { scalpel_door_disarm() }
}

/// Calls `function` with the trap flag set, and clears it behind.
///
/// # Safety
/// As for `arm`; and `function` is a C function that is sound with these arguments and returns.
pub(super) unsafe fn call(function: usize, args: &[u64; 6]) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { scalpel_door_call(function, args.as_ptr()) }
}

/// Calls a signal handler on the stack whose free part ends at `top`.
///
/// # Safety
/// `handler` is one, of whichever of the two shapes; the stack is the thread's own, and free below `top`.
pub(super) unsafe fn on_stack(
    handler: u64,
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    top: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { scalpel_scope_on_stack(handler, signal, info, context, top) }
}

/// Whether this is an address where stepping ends.
pub(super) fn ends(addr: u64) -> bool {
    addr == scalpel_door_disarm as *const () as u64 || addr == call_end()
}

/// The address that a traced call returns to.
pub(super) fn call_end() -> u64 {
    scalpel_door_call_end as *const () as u64
}

/// What a signal handler returns to.
pub(super) fn restorer() -> u64 {
    scalpel_door_restorer as *const () as u64
}
