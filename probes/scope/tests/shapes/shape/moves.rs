//! Handlers of the program that put the thread elsewhere: what they interrupted did not run, and is not in the trace.
use std::sync::atomic::{AtomicU64, Ordering};

use scalpel_scope::trace::{Fact, Link};
use scalpel_scope::{HwTrace, Reasons};

use crate::code::{self, Routine, quiet};

const RSP: usize = 15;
const RIP: usize = 16;
const R8: usize = 0;

/// Where the fault was, and how often there was one.
static AT: AtomicU64 = AtomicU64::new(0);
static TIMES: AtomicU64 = AtomicU64::new(0);

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t);

fn handle(signal: i32, handler: Handler) -> libc::sigaction {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &raw const action, &raw mut old), 0);
        old
    }
}

/// The interrupted thread's registers.
fn registers(context: *mut libc::ucontext_t) -> &'static mut [i64; 23] {
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    AT.store(registers[RIP].cast_unsigned(), Ordering::Relaxed);
    TIMES.fetch_add(1, Ordering::Relaxed);
    registers
}

/// Two bytes on.
extern "C" fn skips(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    registers(context)[RIP] += 2;
}

/// To where r8 says.
extern "C" fn lands(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let registers = registers(context);
    registers[RIP] = registers[R8];
}

/// As if the instruction had called what r8 says, and were behind it then.
extern "C" fn calls(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let registers = registers(context);
    registers[RSP] -= 8;
    unsafe { *(registers[RSP] as *mut i64) = registers[RIP] + 2 };
    registers[RIP] = registers[R8];
}

fn expect(routine: Routine, args: [u64; 6], offsets: &[u64]) {
    let trace = routine.expect(args, None, offsets);
    assert!(trace.assumed.contains(&Fact::SignalPending));
    let interrupts = trace.steps.iter().filter(|s| s.link == Link::Interrupt);
    assert!(interrupts.count() <= 1);
}

pub(crate) fn a_handler_that_skips_an_instruction_is_followed() {
    handle(libc::SIGILL, skips);
    // nop; ud2; nop; nop; ret
    let routine = Routine::of(&[0x90, 0x0f, 0x0b, 0x90, 0x90, 0xc3]);
    expect(routine, [0; 6], &[0, 3, 4, 5]);
    assert_eq!(AT.load(Ordering::Relaxed), routine.at as u64 + 1);
    assert_eq!(TIMES.load(Ordering::Relaxed), 1);
}

pub(crate) fn a_handler_that_moves_the_first_instruction_is_followed() {
    handle(libc::SIGILL, skips);
    // ud2; nop; ret
    let routine = Routine::of(&[0x0f, 0x0b, 0x90, 0xc3]);
    expect(routine, [0; 6], &[2, 3]);
    handle(libc::SIGSEGV, skips);
    // mov eax, [rdi]; nop; ret
    let routine = Routine::of(&[0x8b, 0x07, 0x90, 0xc3]);
    expect(routine, [8, 0, 0, 0, 0, 0], &[2, 3]);
}

pub(crate) fn a_handler_that_calls_a_function_is_followed() {
    handle(libc::SIGSEGV, calls);
    // 0: nop; 1: mov eax, [rdi]; 3: nop; 4: ret; 5: nop; 6: ret
    let routine = Routine::of(&[0x90, 0x8b, 0x07, 0x90, 0xc3, 0x90, 0xc3]);
    // r8 is the fifth argument.
    let callee = routine.at as u64 + 5;
    expect(routine, [8, 0, 0, 0, callee, 0], &[0, 5, 6, 3, 4]);
}

pub(crate) fn a_move_behind_a_system_call_is_followed() {
    handle(libc::SIGILL, skips);
    // mov eax, 39; syscall; ud2; nop; nop; ret
    let routine = Routine::of(&[0xb8, 39, 0, 0, 0, 0x0f, 5, 0x0f, 0x0b, 0x90, 0x90, 0xc3]);
    expect(routine, [0; 6], &[0, 5, 9, 10, 11]);
}

/// A region whose first half faults and is landed behind, by way of code outside of it.
pub(crate) fn a_move_out_of_the_region_and_back_is_exact() {
    handle(libc::SIGSEGV, lands);
    // region: 0: nop; 1: mov eax, [rdi]; 3: nop; 4: nop; 5: ret | outside: 6: nop; 7: jmp 4
    let routine = Routine::of(&[0x90, 0x8b, 0x07, 0x90, 0x90, 0xc3, 0x90, 0xeb, 0xfb]);
    let region = scalpel_scope::Code::range(routine.at, 6);
    let mut scope = HwTrace::scope_with(&region, quiet());
    routine.run([8, 0, 0, 0, routine.at as u64 + 6, 0]);
    let trace = scope.close().unwrap();
    assert_eq!(routine.offsets(&trace), [0, 4, 5]);
    assert!(trace.is_complete(), "{}", trace.reasons);
}

/// 0: push rax; 1: call r9; 4: pop rax; 5: ret
const CALLER: &[u8] = &[0x50, 0x41, 0xff, 0xd1, 0x58, 0xc3];

pub(crate) fn a_move_in_a_callee_at_full_speed_is_exact() {
    handle(libc::SIGILL, skips);
    let callee = Routine::of(&[0x0f, 0x0b, 0xc3]);
    let caller = Routine::of(CALLER);
    let mut scope = HwTrace::scope_with(&caller.code(), quiet());
    for _ in 0..3 {
        caller.run([0, 0, 0, 0, 0, callee.at as u64]);
    }
    let trace = scope.close().unwrap();
    assert_eq!(TIMES.load(Ordering::Relaxed), 3);
    assert_eq!(
        caller.offsets(&trace),
        [0, 1, 4, 5].repeat(3),
        "{}",
        trace.reasons
    );
    assert!(trace.is_complete(), "{}", trace.reasons);
}

pub(crate) fn a_thousand_moves_are_exact() {
    handle(libc::SIGSEGV, skips);
    // 0: mov ecx, 1000; 5: mov eax, [rdi]; 7: dec ecx; 9: jnz 5; 11: ret
    let routine = Routine::of(&[
        0xb9, 0xe8, 3, 0, 0, 0x8b, 0x07, 0xff, 0xc9, 0x75, 0xfa, 0xc3,
    ]);
    let (_, trace) = routine.trace([8, 0, 0, 0, 0, 0]);
    let mut turns = vec![0];
    turns.extend([7, 9].repeat(1000));
    turns.push(11);
    assert_eq!(routine.offsets(&trace), turns);
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert_eq!(TIMES.load(Ordering::Relaxed), 1000);
}

extern "C" fn repairs(_: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    registers(context);
    let page = unsafe { (*info).si_addr() } as usize & !4095;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    unsafe { libc::mprotect(page as *mut libc::c_void, 4096, access) };
}

pub(crate) fn a_handler_that_repairs_a_fault_is_no_move() {
    handle(libc::SIGSEGV, repairs);
    let page = code::memory();
    unsafe { libc::mprotect(page as *mut libc::c_void, 4096, libc::PROT_NONE) };
    // nop; mov eax, [rdi]; ret
    let routine = Routine::of(&[0x90, 0x8b, 0x07, 0xc3]);
    let trace = routine.expect([page as u64, 0, 0, 0, 0, 0], Some(0), &[0, 1, 3]);
    assert!(trace.steps.iter().all(|step| step.link == Link::Flow));
    assert_eq!(TIMES.load(Ordering::Relaxed), 1);
}

pub(crate) fn a_handler_of_a_sent_signal_that_moves_rip_is_a_reason() {
    handle(libc::SIGUSR1, skips);
    // mov eax, 234 (tgkill); mov edi, .. are the arguments; syscall; nop; nop; nop; nop; ret
    let routine = Routine::of(&[0xb8, 234, 0, 0, 0, 0x0f, 5, 0x90, 0x90, 0x90, 0x90, 0xc3]);
    let (pid, tid) = unsafe { (libc::getpid(), libc::gettid()) };
    let number = |id: i32| u64::from(id.unsigned_abs());
    let args = [number(pid), number(tid), number(libc::SIGUSR1), 0, 0, 0];
    let (_, trace) = routine.trace(args);
    assert_eq!(TIMES.load(Ordering::Relaxed), 1);
    assert_eq!(trace.reasons, Reasons::UNEXPLAINED);
}

pub(crate) fn a_handler_of_a_fault_set_in_the_scope_is_the_programs() {
    let before = handle(libc::SIGILL, lands);
    let routine = Routine::of(&[0x90, 0x0f, 0x0b, 0x90, 0xc3]);
    let mut scope = HwTrace::window(quiet());
    let old = handle(libc::SIGILL, skips);
    routine.run([0; 6]);
    let mine = handle(libc::SIGILL, skips);
    let trace = scope.close().unwrap();
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert_eq!(old.sa_sigaction, lands as *const () as usize, "read back");
    assert_eq!(mine.sa_sigaction, skips as *const () as usize);
    assert_eq!(TIMES.load(Ordering::Relaxed), 1);
    let kept = handle(libc::SIGILL, lands);
    assert_eq!(kept.sa_sigaction, skips as *const () as usize, "and kept");
    assert_eq!(before.sa_sigaction, libc::SIG_DFL);
}
