//! The trap flag is not seen by the program, and the program's flags do not end the trace.
use scalpel_scope::trace::Fact;

use crate::code::Routine;

pub(crate) fn pushed_flags_do_not_show_the_trap_flag() {
    // pushfq; pop rax; ret
    let routine = Routine::of(&[0x9c, 0x58, 0xc3]);
    let (flags, trace) = routine.trace([0; 6]);
    assert_eq!(routine.offsets(&trace), [0, 1, 2]);
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert_eq!(flags & 0x100, 0);
}

pub(crate) fn r11_does_not_show_the_trap_flag() {
    // mov eax, 39; syscall; nop; mov rax, r11; ret
    let routine = Routine::of(&[0xb8, 39, 0, 0, 0, 0x0f, 5, 0x90, 0x4c, 0x89, 0xd8, 0xc3]);
    let (flags, trace) = routine.trace([0; 6]);
    assert_eq!(flags & 0x100, 0);
    assert!(!trace.assumed.contains(&Fact::TrapFlagVisible));
    // Where the very next instruction looks it is named.
    let routine = Routine::of(&[0xb8, 39, 0, 0, 0, 0x0f, 5, 0x4c, 0x89, 0xd8, 0xc3]);
    let (_, trace) = routine.trace([0; 6]);
    assert!(trace.assumed.contains(&Fact::TrapFlagVisible));
}

pub(crate) fn popped_flags_do_not_end_the_trace() {
    // push 2; popfq; nop; nop; ret
    let routine = Routine::of(&[0x6a, 2, 0x9d, 0x90, 0x90, 0xc3]);
    routine.expect([0; 6], None, &[0, 2, 3, 4, 5]);
}

pub(crate) fn flags_that_were_saved_in_the_scope_are_harmless_behind_it() {
    let (_, trace) = Routine::of(&[0x90, 0xc3]).trace([0; 6]);
    assert!(trace.is_complete());
    // What POPF could bring back later: the flag itself, with no scope open. It is gone at the next look:
    // push 0x102; popfq; nop; pushfq; pop rax; ret
    let routine = Routine::of(&[0x68, 2, 1, 0, 0, 0x9d, 0x90, 0x9c, 0x58, 0xc3]);
    assert_eq!(routine.run([0; 6]) & 0x100, 0);
}

pub(crate) fn the_red_zone_is_kept() {
    // mov [rsp-8], rdi; mov [rsp-128], rdi; nop; mov rax, [rsp-8]; add rax, [rsp-128]; ret
    let routine = Routine::of(&[
        0x48, 0x89, 0x7c, 0x24, 0xf8, 0x48, 0x89, 0x7c, 0x24, 0x80, 0x90, 0x48, 0x8b, 0x44, 0x24,
        0xf8, 0x48, 0x03, 0x44, 0x24, 0x80, 0xc3,
    ]);
    routine.expect([21, 0, 0, 0, 0, 0], Some(42), &[0, 5, 10, 11, 16, 21]);
}
