//! Where control goes: system calls, shadows, loops, jumps, code at the edge of what is mapped.
use scalpel_scope::Reasons;

use crate::code::{self, Routine};
use crate::{programs, ptrace};

pub(crate) fn the_instruction_behind_a_system_call_is_there() {
    // mov eax, 39; syscall; nop; nop; ret
    let routine = Routine::of(&[0xb8, 39, 0, 0, 0, 0x0f, 5, 0x90, 0x90, 0xc3]);
    let pid = u64::from(std::process::id());
    routine.expect([0; 6], Some(pid), &[0, 5, 7, 8, 9]);
    // ... with a loop of one instruction behind it: mov eax, 39; mov r8d, ..; syscall; the lost step is `ret` itself
    let routine = Routine::of(&[0xb8, 39, 0, 0, 0, 0x0f, 5, 0xc3]);
    routine.expect([0; 6], Some(pid), &[0, 5, 7]);
    // ... and a jump: mov eax, 39; syscall; jmp +1; int3; ret
    let routine = Routine::of(&[0xb8, 39, 0, 0, 0, 0x0f, 5, 0xeb, 1, 0xcc, 0xc3]);
    routine.expect([0; 6], Some(pid), &[0, 5, 7, 10]);
}

pub(crate) fn the_instruction_behind_int_80_is_there() {
    // mov eax, 20 (getpid); int 0x80; nop; ret
    let routine = Routine::of(&[0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0x90, 0xc3]);
    let (_, trace) = routine.trace([0; 6]);
    assert_eq!(routine.offsets(&trace), [0, 5, 7, 8]);
    assert!(trace.is_complete(), "{}", trace.reasons);
}

pub(crate) fn the_shadow_of_mov_ss_is_there() {
    // mov eax, ss; mov ss, eax; nop; nop; ret
    let routine = Routine::of(&[0x8c, 0xd0, 0x8e, 0xd0, 0x90, 0x90, 0xc3]);
    routine.expect([0; 6], None, &[0, 2, 4, 5, 6]);
}

pub(crate) fn a_loop_of_one_instruction_is_not_folded() {
    // mov ecx, 5; loop $; ret
    let routine = Routine::of(&[0xb9, 5, 0, 0, 0, 0xe2, 0xfe, 0xc3]);
    let trace = routine.expect([0; 6], None, &[0, 5, 5, 5, 5, 5, 7]);
    assert_eq!(trace.steps.len(), 7, "each turn is a step of its own");
}

pub(crate) fn a_repeated_string_instruction_is_folded_with_its_count() {
    // mov ecx, 100; rep stosb; ret
    let routine = Routine::of(&[0xb9, 100, 0, 0, 0, 0xf3, 0xaa, 0xc3]);
    let mut buffer = [0_u8; 100];
    let (_, trace) = routine.trace([buffer.as_mut_ptr() as u64, 0, 0, 0, 0, 0]);
    assert!(trace.is_complete(), "{}", trace.reasons);
    let counts: Vec<_> = trace.steps.iter().map(|step| step.count).collect();
    assert_eq!(counts, [1, 100, 1]);
}

pub(crate) fn self_recursion_is_exact() {
    // dec edi; jz ret; call self; ret
    let routine = Routine::of(&[0xff, 0xcf, 0x74, 5, 0xe8, 0xf7, 0xff, 0xff, 0xff, 0xc3]);
    routine.expect([3, 0, 0, 0, 0, 0], None, &[0, 2, 4, 0, 2, 4, 0, 2, 9, 9, 9]);
}

pub(crate) fn a_longjmp_into_the_scope_is_exact() {
    // The stack pointer is kept, a call jumps back past its frame.
    // mov rsi, rsp; call +2 (9) ; jmp 14?; at 10: mov rsp, rsi; jmp 15; 15: ret
    let routine = Routine::of(&[
        0x48, 0x89, 0xe6, 0xe8, 1, 0, 0, 0, 0xcc, 0x48, 0x89, 0xf4, 0xeb, 1, 0xcc, 0xc3,
    ]);
    routine.expect([0; 6], None, &[0, 3, 9, 12, 15]);
}

pub(crate) fn code_that_changes_itself_is_shown_as_it_ran() {
    // 0: mov ecx, 2; 5: mov eax, 1 (the immediate is rewritten); 10: mov byte [rip-10], 9; 17: dec ecx; 19: jnz 5; ret
    let bytes = [
        0xb9, 2, 0, 0, 0, 0xb8, 1, 0, 0, 0, 0xc6, 0x05, 0xf5, 0xff, 0xff, 0xff, 9, 0xff, 0xc9,
        0x75, 0xf0, 0xc3,
    ];
    let routine = Routine::of(&bytes);
    let trace = routine.expect([0; 6], Some(9), &[0, 5, 10, 17, 19, 5, 10, 17, 19, 21]);
    let shown: Vec<_> = trace
        .code
        .iter()
        .filter(|code| code.addr == routine.at as u64 + 5)
        .map(|code| code.bytes[1])
        .collect();
    assert_eq!(shown, [1, 9]);
}

pub(crate) fn a_return_at_the_end_of_a_mapping_does_not_fault() {
    let memory = code::memory();
    let end = memory + code::PAGES;
    // Nothing is mapped behind: the page there is taken away.
    unsafe { libc::munmap((end - 4096) as *mut libc::c_void, 4096) };
    let routine = Routine::at(end - 4096 - 2, &[0x90, 0xc3]);
    routine.expect([0; 6], None, &[0, 1]);
}

pub(crate) fn execute_only_code_is_traced() {
    let routine = Routine::of(&[0x90, 0x31, 0xc0, 0xc3]);
    let at = routine.at as *mut libc::c_void;
    assert_eq!(
        unsafe { libc::mprotect(at, code::PAGES, libc::PROT_EXEC) },
        0
    );
    routine.expect([0; 6], Some(0), &[0, 1, 3]);
}

pub(crate) fn two_system_calls_in_a_row_are_exact() {
    // mov eax, 39; syscall; syscall (no trap comes before the second); ret
    let routine = Routine::of(&[0xb8, 39, 0, 0, 0, 0x0f, 5, 0x0f, 5, 0xc3]);
    routine.expect([0; 6], None, &[0, 5, 7, 9]);
}

pub(crate) fn what_hides_behind_a_shadow_is_a_reason() {
    // mov eax, ss; mov ss, eax; syscall; ret
    let routine = Routine::of(&[0x8c, 0xd0, 0x8e, 0xd0, 0x0f, 5, 0xc3]);
    let (_, trace) = routine.trace([0; 6]);
    assert_eq!(trace.reasons, Reasons::SHADOW);
}

pub(crate) fn cpuid_rdtsc_and_the_vdso_are_stepped() {
    // xor eax, eax; push rbx; cpuid; pop rbx; rdtsc; ret
    let routine = Routine::of(&[0x31, 0xc0, 0x53, 0x0f, 0xa2, 0x5b, 0x0f, 0x31, 0xc3]);
    routine.expect([0; 6], None, &[0, 2, 3, 5, 6, 8]);
    let mut time = [0_u64; 2];
    let args = [1, time.as_mut_ptr() as u64, 0, 0, 0, 0];
    let clock = libc::clock_gettime as *const () as usize;
    let (result, trace) = unsafe { scalpel_scope::HwTrace::call(clock, args, code::quiet()) };
    assert_eq!(result, 0);
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert!(time[0] > 0 && trace.counted > 5);
}

pub(crate) fn random_programs_are_as_ptrace_sees_them() {
    let mut dice = programs::Dice(0x9e37_79b9_7f4a_7c15);
    let buffer = code::memory() as u64;
    let mut routines = Vec::new();
    for _ in 0..3000 / PER_PAGE {
        let memory = code::memory();
        for place in 0..PER_PAGE {
            let at = memory + place * (code::PAGES / PER_PAGE);
            let routine = programs::random(&mut dice, at);
            routines.push((routine, [buffer, dice.roll(1 << 50), 0, 0, 0, 0]));
        }
    }
    let truth = ptrace::truth(&routines);
    let mut steps = 0;
    for ((routine, args), truth) in routines.iter().zip(truth) {
        programs::clean(args);
        let native = routine.run(*args);
        programs::clean(args);
        let (result, trace) = routine.trace(*args);
        let seen: Vec<_> = trace.addresses().collect();
        assert_eq!(seen, truth, "{:x?} {}", routine.at, trace.reasons);
        assert!(trace.is_complete(), "{}", trace.reasons);
        assert_eq!(result, native);
        steps += seen.len();
    }
    assert!(steps > 30_000, "{steps}");
}

const PER_PAGE: usize = 100;
