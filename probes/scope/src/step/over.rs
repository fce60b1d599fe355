//! System calls that must run without the trap flag, stepped over exactly: those that make a thread or process (its first
//! trap could kill it), and those behind which an instruction stands that needs a stop before it.
//!
//! The call is made by a stub of ours with the program's own registers; SYSCALL itself leaves two of them free. The parent
//! meets a breakpoint behind it and is stepped on. The child, which has 0 in rax, goes on where the program would: no stack
//! is touched, and nothing of the child's is needed but the address, which belongs to the place of the call.
//! Runs in the handler: no libc, no lock, no allocation.
use std::arch::global_asm;
use std::sync::atomic::{AtomicU64, Ordering};

use super::guard::SIGTRAP_BIT;
use super::registers::Registers;

/// Places from which children can be made in one process, with SIGTRAP wanted open, and as many with it blocked.
const PLACES: usize = 48;
/// Bytes of a stub.
const STUB: usize = 128;
/// Where the parent stands behind its breakpoint.
const LANDING: usize = 8;
const _: () = assert!(SIGTRAP_BIT == 0x10, "the stub has it as an immediate");

global_asm!(
    ".pushsection .bss.scalpel_scope_places, \"aw\", @nobits",
    ".balign 8",
    ".hidden scalpel_scope_places",
    ".globl scalpel_scope_places",
    "scalpel_scope_places:",
    ".zero 8 * {both}",
    ".popsection",
    ".balign {stub}",
    ".hidden scalpel_scope_over",
    ".globl scalpel_scope_over",
    ".type scalpel_scope_over, @function",
    "scalpel_scope_over:",
    ".set scalpel_scope_place, 0",
    ".rept {places}",
    ".balign {stub}",
    "syscall",
    // No flag is touched anywhere here.
    "mov rcx, rax",
    "jrcxz 2f",
    "int3",
    "2: mov rcx, [rip + scalpel_scope_places + 8 * scalpel_scope_place]",
    "jmp rcx",
    ".set scalpel_scope_place, scalpel_scope_place + 1",
    ".endr",
    // The same for a program that wants SIGTRAP blocked, which the child inherits.
    ".rept {places}",
    ".balign {stub}",
    "syscall",
    "mov rcx, rax",
    "jrcxz 2f",
    "int3",
    "2: lea rsp, [rsp - 128]",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "push 0x10",
    "mov edi, 0",
    "mov rsi, rsp",
    "mov edx, 0",
    "mov r10d, 8",
    "mov eax, 14",
    "syscall",
    "pop rsi",
    "pop r10",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "lea rsp, [rsp + 128]",
    "mov eax, 0",
    "mov rcx, [rip + scalpel_scope_places + 8 * scalpel_scope_place]",
    "jmp rcx",
    ".set scalpel_scope_place, scalpel_scope_place + 1",
    ".endr",
    ".balign {stub}",
    ".size scalpel_scope_over, .-scalpel_scope_over",
    // For calls that come back once.
    ".hidden scalpel_scope_once",
    ".globl scalpel_scope_once",
    ".type scalpel_scope_once, @function",
    "scalpel_scope_once:",
    "syscall",
    "int3",
    ".size scalpel_scope_once, .-scalpel_scope_once",
    places = const PLACES,
    both = const 2 * PLACES,
    stub = const STUB,
);

unsafe extern "C" {
    fn scalpel_scope_over();
    fn scalpel_scope_once();
    #[link_name = "scalpel_scope_places"]
    static TARGETS: [AtomicU64; 2 * PLACES];
}

/// Lets a call that comes back once be made by a stub, without the trap flag.
pub(super) fn make_once(registers: &mut Registers<'_>) {
    registers.set_rip(once());
    registers.trap(false);
}

/// The same for a call that comes back in a child too, at `behind`; `false` if there is no stub left.
pub(super) fn make(registers: &mut Registers<'_>, behind: u64, blocks_trap: bool) -> bool {
    let first = if blocks_trap { PLACES } else { 0 };
    let Some(place) = place(first, behind) else {
        return false;
    };
    registers.set_rip(base() + (place * STUB) as u64);
    registers.trap(false);
    true
}

/// Whether the thread stands behind the breakpoint of a stub.
pub(super) fn landed(addr: u64) -> bool {
    let inside = addr.wrapping_sub(base());
    inside < (2 * PLACES * STUB) as u64 && inside % STUB as u64 == LANDING as u64
        || addr == once() + 3
}

fn once() -> u64 {
    scalpel_scope_once as *const () as u64
}

fn base() -> u64 {
    scalpel_scope_over as *const () as u64
}

/// The place that belongs to the address, or takes it; they are never given back.
fn place(first: usize, behind: u64) -> Option<usize> {
    (first..first + PLACES).find(|place| {
        // SAFETY: an array of atomics in our own zeroed section.
        let Some(target) = (unsafe { TARGETS.get(*place) }) else {
            return false;
        };
        let was = target.compare_exchange(0, behind, Ordering::AcqRel, Ordering::Acquire);
        was.unwrap_or_else(|other| if other == behind { 0 } else { other }) == 0
    })
}
