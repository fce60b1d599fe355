//! Callees at full speed: whatever they do, the trace is what stepping sees, or has a reason.
use std::sync::atomic::{AtomicU64, Ordering};

use scalpel_scope::{Code, Emit, HwTrace, Reasons, Trace};

use crate::code::{self, Routine, quiet};

/// Whether this process may have debug registers: what is denied is stepped, and the traces are the same.
pub(crate) fn may() -> bool {
    let mut attr = [0_u64; 16];
    attr[0] = 5 | 128 << 32;
    attr[5] = 1 | 1 << 5 | 1 << 6;
    attr[6] = 4 << 32;
    attr[7] = may as *const () as u64;
    attr[8] = 8;
    let fd = unsafe { libc::syscall(298, attr.as_ptr(), 0, -1, -1, 8) };
    if fd >= 0 {
        unsafe { libc::close(i32::try_from(fd).unwrap()) };
    }
    fd >= 0
}

/// What stepping sees of the region while `body` runs.
pub(super) fn stepped(code: Code, function: usize, args: [u64; 6]) -> Vec<u64> {
    let (_, trace) = unsafe { HwTrace::call(function, args, code::stepped()) };
    assert!(trace.is_complete(), "{}", trace.reasons);
    trace.addresses().filter(|addr| code.holds(*addr)).collect()
}

pub(super) fn scoped(code: Code, function: usize, args: [u64; 6]) -> Trace {
    let routine = Routine {
        at: function,
        len: 0,
    };
    let mut scope = HwTrace::scope_with(&code, quiet());
    std::hint::black_box(routine.run(args));
    let trace = scope.close().unwrap();
    assert_eq!(trace.skip_reason, None);
    trace
}

/// A full-speed trace has to be the stepped one, and complete.
pub(super) fn exact(code: Code, function: usize, args: [u64; 6]) -> Trace {
    let truth = stepped(code, function, args);
    let trace = scoped(code, function, args);
    let seen: Vec<_> = trace.addresses().collect();
    assert_eq!(seen, truth, "{}", trace.reasons);
    assert!(trace.is_complete(), "{}", trace.reasons);
    trace
}

/// A full-speed trace is the stepped one, or says that something is missing.
fn exact_or_told(code: Code, function: usize, args: [u64; 6]) -> Trace {
    let truth = stepped(code, function, args);
    let trace = scoped(code, function, args);
    let seen: Vec<_> = trace.addresses().collect();
    assert!(
        seen == truth || !trace.is_complete(),
        "a part that looks like all"
    );
    trace
}

pub(super) fn function(address: *const ()) -> (Code, usize) {
    let at = address as usize;
    (Code::function(at).expect("a symbol"), at)
}

/// calls rdi esi times: push rbx; push rbp; push rax; mov rbp, rdi; mov ebx, esi; 8: mov edi, ebx; call rbp; dec ebx; jnz 8;
/// pop rax; pop rbp; pop rbx; ret
const CALLER: &[u8] = &[
    0x53, 0x55, 0x50, 0x48, 0x89, 0xfd, 0x89, 0xf3, 0x89, 0xdf, 0xff, 0xd5, 0xff, 0xcb, 0x75, 0xf8,
    0x58, 0x5d, 0x5b, 0xc3,
];

pub(super) fn caller(callee: *const (), times: u64) -> (Code, usize, [u64; 6]) {
    let routine = Routine::of(CALLER);
    let args = [callee as u64, times, 0, 0, 0, 0];
    (routine.code(), routine.at, args)
}

/// 10,000 additions: natively nothing, stepped a third of the budget.
extern "C" fn works(_: u64) -> u64 {
    let turns = if may_be_slow() { 10_000 } else { 10 };
    (0..turns).map(std::hint::black_box).sum::<u64>() + turns
}

static SLOW: AtomicU64 = AtomicU64::new(0);

fn may_be_slow() -> bool {
    SLOW.load(Ordering::Relaxed) != 0
}

pub(crate) fn a_callee_runs_at_full_speed() {
    let (code, at, args) = caller(works as *const (), 50);
    let truth = stepped(code, at, args);
    SLOW.store(u64::from(may()), Ordering::Relaxed);
    let trace = scoped(code, at, args);
    assert_eq!(trace.addresses().collect::<Vec<_>>(), truth);
    assert!(trace.is_complete(), "{}", trace.reasons);
    if may() {
        let told = trace.call_outs;
        assert_eq!(told.calls, 50);
        assert!(
            told.traps <= 3 * 50 && told.ioctls <= 2 * 50 + 4,
            "{told:?}"
        );
        // The region's own steps, the hits, and the door.
        assert!(trace.traps <= truth.len() as u64 + 55, "{}", trace.traps);
    }
}

extern "C" fn forks(_: u64) {
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(7);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status >> 8, 7);
    }
}

extern "C" fn spawns(_: u64) {
    let answer = std::thread::spawn(|| 5).join().unwrap();
    assert_eq!(answer, 5);
    assert!(
        std::process::Command::new("true")
            .status()
            .unwrap()
            .success()
    );
}

pub(crate) fn a_callee_may_fork_spawn_and_start_threads() {
    for callee in [forks as *const (), spawns as *const ()] {
        let (code, at, args) = caller(callee, 2);
        let trace = scoped(code, at, args);
        assert!(trace.is_complete(), "{}", trace.reasons);
        assert_eq!(trace.counted, 5 + 2 * 4 + 4);
    }
}

extern "C" fn blocks(_: u64) {
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGTRAP);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

pub(crate) fn a_callee_that_blocks_sigtrap_is_a_reason() {
    let (code, at, args) = caller(blocks as *const (), 3);
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
}

struct Noted<'a>(&'a mut u64);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        *self.0 = std::hint::black_box(*self.0) + 1;
    }
}

#[inline(never)]
pub(super) extern "C-unwind" fn throws(turn: u64) {
    if turn.is_multiple_of(2) {
        std::panic::resume_unwind(Box::new(turn));
    }
}

/// Its own code runs while the exception passes.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C-unwind" fn scalpel_scope_passes(turn: u64, noted: &mut u64) -> u64 {
    let kept = Noted(noted);
    throws(std::hint::black_box(turn));
    let result = *kept.0;
    drop(kept);
    result
}

pub(super) extern "C" fn catches(turns: u64) -> u64 {
    let mut noted = 0;
    let mut caught = 0;
    for turn in 0..turns {
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scalpel_scope_passes(turn, &mut noted)
        }));
        caught += u64::from(passed.is_err());
    }
    assert_eq!(noted, turns);
    caught
}

pub(crate) fn an_exception_through_the_region_is_exact() {
    let (code, _) = function(scalpel_scope_passes as *const ());
    let catches = catches as *const () as usize;
    // Loads the unwinder's tables.
    Routine {
        at: catches,
        len: 0,
    }
    .run([2, 0, 0, 0, 0, 0]);
    let trace = exact_or_told(code, catches, [2, 0, 0, 0, 0, 0]);
    assert!(trace.is_complete(), "{}", trace.reasons);
}

/// _setjmp and longjmp by address: push rbx; push r12; sub rsp, 200+8; mov rbx, rdi(setjmp); mov r12, rsi(longjmp);
/// mov rdi, rsp; call rbx; cmp eax, 3; jge out; lea esi, [rax+1]; mov rdi, rsp; call r12; out: add rsp, 208+..; pop; pop; ret
const JUMPER: &[u8] = &[
    0x53, 0x41, 0x54, 0x48, 0x81, 0xec, 0xd8, 0, 0, 0, 0x48, 0x89, 0xfb, 0x49, 0x89, 0xf4, 0x48,
    0x89, 0xe7, 0xff, 0xd3, 0x83, 0xf8, 3, 0x7d, 9, 0x8d, 0x70, 1, 0x48, 0x89, 0xe7, 0x41, 0xff,
    0xd4, 0x48, 0x81, 0xc4, 0xd8, 0, 0, 0, 0x41, 0x5c, 0x5b, 0xc3,
];

unsafe extern "C" {
    pub(super) fn _setjmp(buffer: *mut u8) -> i32;
    fn longjmp(buffer: *mut u8, value: i32);
}

pub(crate) fn a_longjmp_back_into_the_region_is_exact() {
    let routine = Routine::of(JUMPER);
    let args = [
        _setjmp as *const () as u64,
        longjmp as *const () as u64,
        0,
        0,
        0,
        0,
    ];
    let trace = exact(routine.code(), routine.at, args);
    let turns = trace.addresses().filter(|at| *at == routine.at as u64 + 21);
    assert_eq!(turns.count(), 4);
}

/// Jumps out of the callee past the region's frame, to where `leaps_over` was called.
pub(super) static BUFFER: AtomicU64 = AtomicU64::new(0);

pub(super) extern "C" fn leaps(_: u64) {
    unsafe { longjmp(BUFFER.load(Ordering::Relaxed) as *mut u8, 1) };
}

/// 0: push rbx; push r12; push r13; sub rsp, 208; mov rbx, rdi (setjmp); mov r12, rsi (region); mov r13, rdx (callee)
/// mov [rcx], rsp; mov rdi, rsp; call rbx; test eax, eax; jnz out; mov rdi, r13; mov esi, 1; call r12; out: add rsp, 208;
/// pop r13; pop r12; pop rbx; ret
pub(super) const LEAPT: &[u8] = &[
    0x53, 0x41, 0x54, 0x41, 0x55, 0x48, 0x81, 0xec, 0xd0, 0, 0, 0, 0x48, 0x89, 0xfb, 0x49, 0x89,
    0xf4, 0x49, 0x89, 0xd5, 0x48, 0x89, 0x21, 0x48, 0x89, 0xe7, 0xff, 0xd3, 0x85, 0xc0, 0x75, 11,
    0x4c, 0x89, 0xef, 0xbe, 1, 0, 0, 0, 0x41, 0xff, 0xd4, 0x48, 0x81, 0xc4, 0xd0, 0, 0, 0, 0x41,
    0x5d, 0x41, 0x5c, 0x5b, 0xc3,
];

pub(crate) fn a_longjmp_past_the_region_is_exact_or_told() {
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
    exact_or_told(code, leapt.at, args);
}

/// Sorts 40 numbers by qsort with a comparator that is in the region too.
/// 0: mov rax, [rdi]; cmp rax, [rsi]; seta al; movzx eax, al; lea.. ret | padding | 16: push rax; lea rcx, [rip-24]; call r8; pop; ret
const SORTER: &[u8] = &[
    0x48, 0x8b, 0x07, 0x48, 0x2b, 0x06, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
    0x50, 0x48, 0x8d, 0x0d, 0xe8, 0xff, 0xff, 0xff, 0x41, 0xff, 0xd0, 0x58, 0xc3,
];

pub(crate) fn a_callback_into_the_region_is_exact() {
    let routine = Routine::of(SORTER);
    let fill = || (0..40_u64).map(|n| n * 7919 % 101).collect::<Vec<_>>();
    let sort = |numbers: &mut Vec<u64>| {
        let at = numbers.as_mut_ptr() as u64;
        [at, 40, 8, 0, libc::qsort as *const () as u64, 0]
    };
    let mut numbers = fill();
    let args = sort(&mut numbers);
    let truth = stepped(routine.code(), routine.at + 16, args);
    numbers.copy_from_slice(&fill());
    let trace = scoped(routine.code(), routine.at + 16, args);
    assert_eq!(trace.addresses().collect::<Vec<_>>(), truth);
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert!(numbers.is_sorted());
    assert!(truth.len() > 300);
    assert_eq!(trace.call_outs.calls, u64::from(may()));
}

/// Recursion within the region, an exception in the innermost callee that passes all its frames.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C-unwind" fn scalpel_scope_recurs(depth: u64, noted: &mut u64) -> u64 {
    let kept = Noted(noted);
    if depth == 0 {
        throws(std::hint::black_box(2));
        return 1;
    }
    scalpel_scope_recurs(depth - 1, &mut *kept.0) + std::hint::black_box(1)
}

extern "C" fn catches_once(depth: u64) -> u64 {
    let mut noted = 0;
    let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        scalpel_scope_recurs(depth, &mut noted)
    }));
    assert!(passed.is_err() && noted == depth + 1);
    noted
}

pub(crate) fn an_exception_through_many_frames_is_exact_or_told() {
    let (code, _) = function(scalpel_scope_recurs as *const ());
    let catches = catches_once as *const () as usize;
    Routine {
        at: catches,
        len: 0,
    }
    .run([1, 0, 0, 0, 0, 0]);
    exact_or_told(code, catches, [1, 0, 0, 0, 0, 0]);
}

extern "C" fn nests(_: u64) {
    let routine = Routine::of(&[0x90, 0xc3]);
    let mut inner = HwTrace::scope(&routine.code(), Emit::Off);
    routine.run([0; 6]);
    let trace = inner.close().unwrap();
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert_eq!(routine.offsets(&trace), [0, 1]);
}

pub(crate) fn a_scope_in_a_callee_leaves_the_outer_one_exact() {
    let (code, at, args) = caller(nests as *const (), 2);
    let trace = scoped(code, at, args);
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert_eq!(trace.counted, 5 + 2 * 4 + 4);
}

pub(super) extern "C" fn id(value: u64) -> u64 {
    value
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn nothing_is_left_behind_a_thousand_scopes() {
    let (code, at, args) = caller(id as *const (), 2);
    let before = descriptors();
    for _ in 0..1000 {
        let mut options = quiet();
        options.budget.time = std::time::Duration::from_secs(20);
        let mut scope = HwTrace::scope_with(&code, options);
        Routine { at, len: 0 }.run(args);
        let trace = scope.close().unwrap();
        assert!(
            trace.is_complete() || trace.skip_reason.is_some(),
            "{}",
            trace.reasons
        );
    }
    assert_eq!(descriptors(), before);
}
