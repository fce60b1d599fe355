//! Where control goes: system calls, shadows, loops, jumps, code at the edge of what is mapped.
use scalpel_scope::{Budget, Code, Emit, HwTrace, Options, Reasons};

use crate::code::{self, Routine};

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

pub(crate) fn a_long_string_instruction_runs_at_once() {
    // mov ecx, edx; rep movsb; nop; ret
    let routine = Routine::of(&[0x89, 0xd1, 0xf3, 0xa4, 0x90, 0xc3]);
    let from: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let mut to = vec![0_u8; from.len()];
    let args = [
        to.as_mut_ptr() as u64,
        from.as_ptr() as u64,
        300_000,
        0,
        0,
        0,
    ];
    let (_, trace) = routine.trace(args);
    assert_eq!(to, from);
    if !crate::shape::may_watch() {
        assert_eq!(trace.reasons, Reasons::BUDGET);
        return;
    }
    assert!(trace.is_complete(), "{}", trace.reasons);
    let counts: Vec<_> = trace.steps.iter().map(|step| step.count).collect();
    assert_eq!(counts, [1, 300_000, 1, 1]);
    assert_eq!((trace.counted, trace.traps < 20), (300_003, true));
    // One that ends before its counter: mov ecx, edx; repne scasb; mov eax, ecx; ret
    let routine = Routine::of(&[0x89, 0xd1, 0xf2, 0xae, 0x89, 0xc8, 0xc3]);
    let (left, trace) = unsafe {
        HwTrace::call(
            routine.at,
            [from.as_ptr() as u64 + 1, 0, 5000, 0, 0, 0],
            code::quiet(),
        )
    };
    assert!(trace.is_complete(), "{}", trace.reasons);
    let counts: Vec<_> = trace
        .steps
        .iter()
        .map(|step| u64::from(step.count))
        .collect();
    assert_eq!(counts, [1, 5000 - left, 1, 1]);
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
    let routine = Routine::at(code::memory(), &bytes);
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
    let (result, trace) = unsafe { HwTrace::call(clock, args, code::quiet()) };
    assert_eq!(result, 0);
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert!(time[0] > 0 && trace.counted > 5);
}

pub(crate) fn loops_and_jumps_on_a_counter_are_exact() {
    // 0: mov ecx, edi; 2: jrcxz 11; 4: dec eax; 6: loope 2 (not taken: zf is off); 8: loopne 2; 10: nop; 11: ret
    let routine = Routine::of(&[
        0x89, 0xf9, 0xe3, 7, 0xff, 0xc8, 0xe1, 0xfa, 0xe0, 0xf8, 0x90, 0xc3,
    ]);
    routine.expect([0; 6], None, &[0, 2, 11]);
    routine.expect([2, 0, 0, 0, 0, 0], None, &[0, 2, 4, 6, 8, 10, 11]);
    routine.expect(
        [4, 0, 0, 0, 0, 0],
        None,
        &[0, 2, 4, 6, 8, 2, 4, 6, 8, 10, 11],
    );
    // jecxz by its prefix, with rcx above 32 bits: mov rcx, 1 << 32; jecxz 13; int3; 13: ret
    let routine = Routine::of(&[
        0x48, 0xb9, 0, 0, 0, 0, 1, 0, 0, 0, 0x67, 0xe3, 1, 0xcc, 0xc3,
    ]);
    routine.expect([0; 6], None, &[0, 10, 14]);
}

pub(crate) fn indirect_jumps_are_exact() {
    // A table of two targets behind the code: lea rax, [rip + 16]; jmp [rax + 8 * rdi]; 10: nop; 11: ret; 12: ret
    let mut bytes = vec![
        0x48, 0x8d, 0x05, 9, 0, 0, 0, 0xff, 0x24, 0xf8, 0x90, 0xc3, 0xc3, 0x90, 0x90, 0x90,
    ];
    let memory = code::memory();
    bytes.extend((memory as u64 + 10).to_le_bytes());
    bytes.extend((memory as u64 + 12).to_le_bytes());
    let routine = Routine::at(memory, &bytes);
    routine.expect([0; 6], None, &[0, 7, 10, 11]);
    routine.expect([1, 0, 0, 0, 0, 0], None, &[0, 7, 12]);
}

pub(crate) fn an_instruction_that_rewrites_itself_is_a_reason() {
    // 0: mov byte [rip - 1], 7 (its own immediate); 7: ret
    let routine = Routine::at(
        code::memory(),
        &[0xc6, 0x05, 0xff, 0xff, 0xff, 0xff, 1, 0xc3],
    );
    let (_, trace) = routine.trace([0; 6]);
    assert!(trace.is_complete(), "the same byte: {}", trace.reasons);
    let routine = Routine::at(
        code::memory(),
        &[0xc6, 0x05, 0xfe, 0xff, 0xff, 0xff, 1, 0xc3],
    );
    let (_, trace) = routine.trace([0; 6]);
    assert_eq!(trace.reasons, Reasons::CODE_CHANGED);
}

pub(crate) fn a_system_call_that_rewrites_what_is_behind_it_is_a_reason() {
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // xor eax, eax (read); syscall; 4: nop; ret
    let routine = Routine::at(code::memory(), &[0x31, 0xc0, 0x0f, 5, 0x90, 0xc3]);
    let args = [
        u64::try_from(ends[0]).unwrap(),
        routine.at as u64 + 4,
        1,
        0,
        0,
        0,
    ];
    for (byte, reasons) in [(0x90_u8, Reasons::NONE), (0xf8, Reasons::CODE_CHANGED)] {
        assert_eq!(
            unsafe { libc::write(ends[1], (&raw const byte).cast(), 1) },
            1
        );
        let (read, trace) = routine.trace(args);
        assert_eq!(read, 1);
        assert_eq!(trace.reasons, reasons);
        assert_eq!(routine.offsets(&trace), [0, 2, 4, 5]);
    }
}

pub(crate) fn code_that_is_made_anew_at_the_same_place_is_shown_twice() {
    let memory = code::memory();
    let mut scope = HwTrace::scope(&Code::range(memory, 16), Emit::Off);
    Routine::at(memory, &[0x90, 0xc3]).run([0; 6]);
    Routine::at(memory, &[0x31, 0xc0, 0xc3]).run([0; 6]);
    let trace = scope.close().unwrap();
    assert!(trace.is_complete(), "{}", trace.reasons);
    let code: Vec<_> = trace
        .code
        .iter()
        .map(|code| code.bytes.as_slice())
        .collect();
    assert_eq!(code, [&[0x90][..], &[0xc3], &[0x31, 0xc0], &[0xc3]]);
}

pub(crate) fn a_wide_vector_state_survives() {
    // vpbroadcastq zmm31, rdi; nop; vmovq rax, xmm31 (EVEX); ret
    let routine = Routine::of(&[
        0x62, 0x62, 0xfd, 0x48, 0x7c, 0xff, 0x90, 0x62, 0x61, 0xfd, 0x08, 0x7e, 0xf8, 0xc3,
    ]);
    routine.expect([77, 0, 0, 0, 0, 0], Some(77), &[0, 6, 7, 13]);
}

/// A key that takes reading away.
fn protection_key() -> Option<i64> {
    let key = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, 1) };
    (key >= 0).then_some(key)
}

pub(crate) fn has_protection_keys() -> bool {
    let key = protection_key();
    key.is_some_and(|key| unsafe { libc::syscall(libc::SYS_pkey_free, key) } == 0)
}

pub(crate) fn code_under_a_protection_key_is_traced() {
    let key = protection_key().unwrap();
    let routine = Routine::of(&[0x90, 0x31, 0xc0, 0xc3]);
    let access = libc::PROT_READ | libc::PROT_EXEC;
    let done = unsafe {
        libc::syscall(
            libc::SYS_pkey_mprotect,
            routine.at,
            code::PAGES,
            access,
            key,
        )
    };
    assert_eq!(done, 0);
    routine.expect([0; 6], Some(0), &[0, 1, 3]);
}

struct Counted<'a>(&'a std::cell::Cell<u32>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[inline(never)]
fn throw(depth: u32, dropped: &std::cell::Cell<u32>) {
    let _counted = Counted(dropped);
    if depth == 0 {
        std::panic::resume_unwind(Box::new(5_u8));
    }
    throw(std::hint::black_box(depth - 1), dropped);
}

pub(crate) fn an_exception_with_destructors_is_exact() {
    let dropped = std::cell::Cell::new(0);
    let pass = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| throw(5, &dropped)));
    // Once outside, for the unwinder's first look at all that is loaded.
    assert!(pass().is_err());
    let mut options = code::quiet();
    options.budget.time = std::time::Duration::from_secs(20);
    let mut scope = HwTrace::window(options);
    let caught = pass();
    let trace = scope.close().unwrap();
    assert_eq!(caught.unwrap_err().downcast_ref::<u8>(), Some(&5));
    assert_eq!(dropped.get(), 12);
    assert!(trace.is_complete(), "{}", trace.reasons);
    let inside = trace
        .addresses()
        .filter(|addr| *addr == throw as *const () as u64);
    assert_eq!(inside.count(), 6);
}

extern "C" fn greater(a: *const libc::c_void, b: *const libc::c_void) -> i32 {
    let (a, b) = unsafe { (*a.cast::<i32>(), *b.cast::<i32>()) };
    COMPARED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    a.cmp(&b) as i32
}

static COMPARED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

pub(crate) fn a_callback_into_the_region_is_seen_each_time() {
    let compare = greater as *const () as usize;
    let code = Code::function(compare).unwrap();
    let mut numbers: Vec<i32> = (0..64).map(|n| n * 37 % 64).collect();
    let options = Options {
        budget: Budget {
            time: std::time::Duration::from_secs(20),
            ..Budget::default()
        },
        ..code::quiet()
    };
    let mut scope = HwTrace::scope_with(&code, options);
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 64, 4, Some(greater)) };
    let trace = scope.close().unwrap();
    assert!(numbers.is_sorted());
    assert!(trace.is_complete(), "{}", trace.reasons);
    let entered = trace.addresses().filter(|addr| *addr == compare as u64);
    assert_eq!(
        entered.count(),
        COMPARED.load(std::sync::atomic::Ordering::Relaxed)
    );
}

std::arch::global_asm!(
    // rdi: how often, rsi: a jmp_buf, with a counter behind it.
    ".globl scope_test_jumps",
    "scope_test_jumps:",
    "push rbx",
    "push r12",
    "push r13",
    "mov rbx, rsi",
    "mov r12, rdi",
    "mov qword ptr [rbx + 248], 0",
    "mov rdi, rbx",
    "call _setjmp@PLT",
    "cmp [rbx + 248], r12",
    "jae 2f",
    "inc qword ptr [rbx + 248]",
    "mov rdi, rbx",
    "call scope_test_jump",
    "2: mov rax, [rbx + 248]",
    "pop r13",
    "pop r12",
    "pop rbx",
    "ret",
    ".globl scope_test_jump",
    "scope_test_jump:",
    "sub rsp, 8",
    "mov esi, 3",
    "call longjmp@PLT",
);

unsafe extern "C" {
    fn scope_test_jumps();
    fn scope_test_jump();
}

pub(crate) fn every_longjmp_back_is_exact() {
    let mut buffer = [0_u64; 32];
    let args = [5, buffer.as_mut_ptr() as u64, 0, 0, 0, 0];
    let function = scope_test_jumps as *const () as usize;
    let (done, trace) = unsafe { HwTrace::call(function, args, code::quiet()) };
    assert_eq!(done, 5);
    assert!(trace.is_complete(), "{}", trace.reasons);
    let jumped = trace
        .addresses()
        .filter(|addr| *addr == scope_test_jump as *const () as u64);
    assert_eq!(jumped.count(), 5);
}
