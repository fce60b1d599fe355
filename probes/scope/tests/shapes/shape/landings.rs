//! Callees at full speed that do not return: what a long jump or an exception passes is exact where the code tells that
//! nobody can have landed in it unseen, and a reason where it does not.
use std::sync::atomic::{AtomicU64, Ordering};

use scalpel_scope::trace::Fact;
use scalpel_scope::{Code, HwTrace, Reasons, Trace};

use super::callouts::{
    _setjmp, BUFFER, LEAPT, caller, catches, exact, function, leaps, may, scalpel_scope_passes,
    stepped, throws,
};
use crate::code::{Routine, quiet};

/// Calls `callee`: without destructors, so that nobody can land in it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C-unwind" fn scalpel_scope_plain(callee: extern "C-unwind" fn(u64), turn: u64) -> u64 {
    callee(std::hint::black_box(turn));
    std::hint::black_box(turn) + 1
}

extern "C-unwind" fn jumps(turn: u64) {
    leaps(turn);
}

/// How deep the stack is overwritten behind each jump.
static DEEP: AtomicU64 = AtomicU64::new(0);

/// Writes to that much of the stack.
#[inline(never)]
fn overwrites(deep: u64) -> u64 {
    let room = std::hint::black_box([deep; 9]);
    let below = if deep > 0 { overwrites(deep - 1) } else { 0 };
    below + std::hint::black_box(room).iter().sum::<u64>()
}

/// A call of the plain function out of which its callee jumps, and then something else.
extern "C" fn leaps_over(turns: u64) -> u64 {
    let leapt = Routine {
        at: LEAPT_AT.load(Ordering::Relaxed) as usize,
        len: LEAPT.len(),
    };
    let mut sum = 0;
    for _ in 0..turns {
        leapt.run([
            _setjmp as *const () as u64,
            scalpel_scope_plain as *const () as u64,
            jumps as *const () as u64,
            BUFFER.as_ptr() as u64,
            0,
            0,
        ]);
        let deep = DEEP.load(Ordering::Relaxed);
        if deep > 0 {
            sum += overwrites(deep - 1);
        }
    }
    sum
}

static LEAPT_AT: AtomicU64 = AtomicU64::new(0);

/// The jumper, and its region.
fn leaper() -> Code {
    LEAPT_AT.store(Routine::of(LEAPT).at as u64, Ordering::Relaxed);
    function(scalpel_scope_plain as *const ()).0
}

fn never_back(code: Code, trace: &Trace) {
    let last = trace.addresses().filter(|at| code.holds(*at)).last();
    assert!(last.is_some());
    if may() {
        assert!(trace.call_outs.calls > 0);
        assert!(trace.verified.contains(&Fact::Unwound));
        assert!(!trace.verified.contains(&Fact::CallOutsReturned));
    }
}

pub(crate) fn a_longjmp_past_a_function_is_exact_at_any_depth() {
    let code = leaper();
    for deep in [0, 1, 2, 5, 40] {
        DEEP.store(deep, Ordering::Relaxed);
        let trace = exact(code, leaps_over as *const () as usize, [6, 0, 0, 0, 0, 0]);
        never_back(code, &trace);
    }
}

pub(crate) fn a_longjmp_past_a_region_and_straight_to_the_close_is_exact() {
    let code = leaper();
    DEEP.store(0, Ordering::Relaxed);
    let truth = stepped(code, leaps_over as *const () as usize, [1, 0, 0, 0, 0, 0]);
    let mut scope = HwTrace::scope_with(&code, quiet());
    leaps_over(1);
    let trace = scope.close().unwrap();
    assert_eq!(trace.addresses().collect::<Vec<_>>(), truth);
    assert!(trace.is_complete(), "{}", trace.reasons);
}

extern "C" fn catches_past(turns: u64) -> u64 {
    let mut caught = 0;
    for turn in 0..turns {
        let passed = std::panic::catch_unwind(|| scalpel_scope_plain(throws, turn));
        caught += u64::from(passed.is_err());
    }
    assert_eq!(caught, turns.div_ceil(2));
    caught
}

/// Loads the unwinder's tables first.
fn warm(function: usize) -> usize {
    let routine = Routine {
        at: function,
        len: 0,
    };
    routine.run([2, 0, 0, 0, 0, 0]);
    function
}

pub(crate) fn an_exception_past_a_function_without_landings_is_exact() {
    let (code, _) = function(scalpel_scope_plain as *const ());
    let at = warm(catches_past as *const () as usize);
    let trace = exact(code, at, [3, 0, 0, 0, 0, 0]);
    never_back(code, &trace);
}

pub(crate) fn an_exception_past_a_cleanup_is_exact_each_time() {
    let (code, _) = function(scalpel_scope_passes as *const ());
    let at = warm(catches as *const () as usize);
    let trace = exact(code, at, [3, 0, 0, 0, 0, 0]);
    never_back(code, &trace);
}

/// A callee that goes back to where the region says by itself, without its return address: what an inline `longjmp` does.
/// 0: push rbx; 1: mov rbx, rsp; 4: lea rax, [rip+7](18); 11: call r9; 14: ud2; 16: nop; 17: nop; 18: nop; 19: pop rbx; 20: ret
const KEEPS: &[u8] = &[
    0x53, 0x48, 0x89, 0xe3, 0x48, 0x8d, 0x05, 7, 0, 0, 0, 0x41, 0xff, 0xd1, 0x0f, 0x0b, 0x90, 0x90,
    0x90, 0x5b, 0xc3,
];
/// mov rsp, rbx; jmp rax
const JUMPS_BACK: &[u8] = &[0x48, 0x89, 0xdc, 0xff, 0xe0];

pub(crate) fn a_jump_back_that_no_slot_shows_is_a_reason() {
    let region = Routine::of(KEEPS);
    let back = Routine::of(JUMPS_BACK);
    for deep in [0, 3] {
        let mut scope = HwTrace::scope_with(&region.code(), quiet());
        region.run([0, 0, 0, 0, 0, back.at as u64]);
        if deep > 0 {
            std::hint::black_box(overwrites(deep));
        }
        let trace = scope.close().unwrap();
        let told =
            trace.reasons.contains(Reasons::LEFT) || trace.reasons.contains(Reasons::CALL_OUT);
        assert_eq!(told, may(), "{}", trace.reasons);
        assert_eq!(trace.is_complete(), !may());
    }
}

pub(crate) fn a_longjmp_past_code_of_no_file_is_a_reason() {
    let (code, at, _) = caller(leaps as *const (), 1);
    let leapt = Routine::of(LEAPT);
    let args = [
        _setjmp as *const () as u64,
        at as u64,
        leaps as *const () as u64,
        BUFFER.as_ptr() as u64,
        0,
        0,
    ];
    let mut scope = HwTrace::scope_with(&code, quiet());
    leapt.run(args);
    std::hint::black_box(overwrites(9));
    let trace = scope.close().unwrap();
    let reason = if may() { Reasons::LEFT } else { Reasons::NONE };
    assert_eq!(trace.reasons, reason, "{}", trace.reasons);
}
