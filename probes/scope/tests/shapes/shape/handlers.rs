//! SIGTRAP's handler taken away while a callee runs at full speed: the program lives, and no part looks like all.
use std::sync::atomic::{AtomicU64, Ordering};

use scalpel_scope::{Emit, HwTrace, Reasons};

use super::callouts::{caller, id, may, scoped};
use crate::code::{Routine, quiet};

extern "C" fn gives_up_sigtrap(_: u64) {
    unsafe { libc::signal(libc::SIGTRAP, libc::SIG_DFL) };
}

pub(crate) fn a_callee_that_takes_the_handler_away_does_not_kill() {
    let (code, at, args) = caller(gives_up_sigtrap as *const (), 3);
    let trace = scoped(code, at, args);
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert_eq!(trace.counted, 5 + 3 * 4 + 4);
}

static TRAPS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_traps(_: i32) {
    TRAPS.fetch_add(1, Ordering::Relaxed);
}

/// Past the C library: as a runtime that makes its own system calls.
extern "C" fn replaces_handler(_: u64) {
    let mut action = [0_u64; 4];
    let call = |new: *const u64, old: *mut u64| unsafe {
        libc::syscall(libc::SYS_rt_sigaction, libc::SIGTRAP, new, old, 8)
    };
    assert_eq!(call(std::ptr::null(), action.as_mut_ptr()), 0);
    action[0] = count_traps as *const () as u64;
    action[1] &= !4;
    assert_eq!(call(action.as_ptr(), std::ptr::null_mut()), 0);
}

pub(crate) fn a_handler_that_a_raw_call_replaces_is_a_reason() {
    // Its flags have a restorer that way.
    gives_up_sigtrap(0);
    unsafe { libc::signal(libc::SIGTRAP, count_traps as *const () as usize) };
    let (code, at, args) = caller(replaces_handler as *const (), 3);
    let trace = scoped(code, at, args);
    if may() {
        assert!(
            trace.reasons.contains(Reasons::CALL_OUT),
            "{}",
            trace.reasons
        );
    } else {
        assert!(trace.is_complete(), "{}", trace.reasons);
    }
    // The next one has the handler again.
    let (code, at, args) = caller(id as *const (), 3);
    let trace = scoped(code, at, args);
    assert!(trace.is_complete(), "{}", trace.reasons);
}

extern "C" fn replaces_and_nests(_: u64) {
    replaces_handler(0);
    let routine = Routine::of(&[0x90, 0xc3]);
    let mut inner = HwTrace::scope(&routine.code(), Emit::Off);
    routine.run([0; 6]);
    let trace = inner.close().unwrap();
    if may() {
        assert!(trace.reasons.contains(Reasons::UNGUARDED));
    } else {
        assert!(trace.is_complete(), "{}", trace.reasons);
    }
}

pub(crate) fn a_scope_behind_a_replaced_handler_is_not_armed() {
    unsafe { libc::signal(libc::SIGTRAP, count_traps as *const () as usize) };
    let (code, at, args) = caller(replaces_and_nests as *const (), 1);
    let trace = scoped(code, at, args);
    assert_eq!(trace.is_complete(), !may(), "{}", trace.reasons);
    assert!(TRAPS.load(Ordering::Relaxed) < 10, "no step came to it");
}

pub(crate) fn a_handler_that_is_taken_away_outside_the_region_does_not_kill() {
    let (code, at, args) = caller(id as *const (), 1);
    let mut scope = HwTrace::scope_with(&code, quiet());
    for _ in 0..3 {
        gives_up_sigtrap(0);
        Routine { at, len: 0 }.run(args);
    }
    let trace = scope.close().unwrap();
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert_eq!(trace.counted, 3 * (5 + 4 + 4));
}
