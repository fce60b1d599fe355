//! Programs that leave the handler of a fault by `siglongjmp`: they go on as they would, and what was stepped before is not
//! shown as all that ran.
use std::arch::global_asm;
use std::sync::atomic::{AtomicU64, Ordering};

use scalpel_scope::{Code, HwTrace, Reasons, Trace};

use crate::code::{Routine, quiet};

global_asm!(
    ".type scope_test_recovers, @function",
    "scope_test_recovers:",
    "push rbx",
    "push r12",
    "sub rsp, 8",
    "mov rbx, rdi",
    "mov r12, rsi",
    "1: mov rdi, r12",
    "mov esi, 1",
    "call __sigsetjmp@PLT",
    "test eax, eax",
    "jnz scope_test_recovered",
    // Nothing is mapped there.
    "mov eax, [8]",
    "scope_test_recovered:",
    "dec rbx",
    "jnz 1b",
    "mov eax, 77",
    "add rsp, 8",
    "pop r12",
    "pop rbx",
    "ret",
    ".size scope_test_recovers, .-scope_test_recovers",
);

unsafe extern "C" {
    fn scope_test_recovers();
    fn scope_test_recovered();
    fn siglongjmp(buffer: *mut u64, value: i32) -> !;
}

static BUFFER: AtomicU64 = AtomicU64::new(0);
static TIMES: AtomicU64 = AtomicU64::new(0);

extern "C" fn jumps(_: i32) {
    TIMES.fetch_add(1, Ordering::Relaxed);
    unsafe { siglongjmp(BUFFER.load(Ordering::Relaxed) as *mut u64, 1) };
}

/// Whether each of so many recoveries is there, or the trace says that it was lost.
fn told(trace: &Trace, turns: u64) {
    let recovered = scope_test_recovered as *const () as u64;
    let seen = trace.addresses().filter(|addr| *addr == recovered).count() as u64;
    assert!(
        trace.is_complete() && seen == turns || trace.reasons.contains(Reasons::TF_LOST),
        "{seen} of {turns}: {}",
        trace.reasons
    );
}

/// A signal stack of the program's, or none: the handler is left in either case.
fn all(own_stack: bool) {
    let mut buffer = [0_u64; 64];
    BUFFER.store(buffer.as_mut_ptr() as u64, Ordering::Relaxed);
    let memory = crate::code::memory();
    let stack = libc::stack_t {
        ss_sp: memory as *mut libc::c_void,
        ss_flags: 0,
        ss_size: crate::code::PAGES,
    };
    let flags = if own_stack {
        unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
        libc::SA_ONSTACK
    } else {
        0
    };
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = jumps as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    let at = scope_test_recovers as *const () as usize;
    let args = [5, buffer.as_mut_ptr() as u64, 0, 0, 0, 0];
    let recovers = Routine { at, len: 0 };
    assert_eq!(recovers.run(args), 77);
    let region = Code::function(at).unwrap();
    let simple = Routine::of(&[0x90, 0x31, 0xc0, 0xc3]);
    for turn in 1..=3 {
        let before = TIMES.load(Ordering::Relaxed);
        let (result, trace) = recovers.trace(args);
        assert_eq!(result, 77);
        told(&trace, 5);
        let mut scope = HwTrace::scope_with(&region, quiet());
        assert_eq!(recovers.run(args), 77);
        told(&scope.close().unwrap(), 5);
        let mut scope = HwTrace::window(quiet());
        assert_eq!(recovers.run(args), 77);
        told(&scope.close().unwrap(), 5);
        assert_eq!(TIMES.load(Ordering::Relaxed) - before, 15, "{turn}");
        // The next scope knows nothing of it.
        simple.expect([0; 6], Some(0), &[0, 1, 3]);
    }
}

pub(crate) fn a_siglongjmp_from_a_fault_handler_is_exact_or_told() {
    all(false);
}

pub(crate) fn a_siglongjmp_from_a_handler_on_its_own_stack_is_exact_or_told() {
    all(true);
}
