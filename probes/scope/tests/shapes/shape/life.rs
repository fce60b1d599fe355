//! Threads and processes that begin within a scope, restartable sequences, budgets, and what is left behind.
use std::arch::global_asm;
use std::time::{Duration, Instant};

use scalpel_scope::{Budget, HwTrace, Options, Reasons, ScopedTrace};

use crate::code::{Routine, quiet};

pub(crate) fn a_fork_is_a_reason_and_the_child_lives() {
    let mut scope = HwTrace::window(quiet());
    let child = unsafe { libc::fork() };
    if child == 0 {
        unsafe { libc::_exit(7) };
    }
    let trace = scope.close().unwrap();
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 7 << 8);
    assert_eq!(trace.reasons, Reasons::FORK);
}

pub(crate) fn a_thread_is_a_reason_and_both_live() {
    let mut scope = HwTrace::window(quiet());
    let sum = std::thread::spawn(|| (0..100).sum::<u64>()).join().unwrap();
    let trace = scope.close().unwrap();
    assert_eq!(sum, 4950);
    assert_eq!(trace.reasons, Reasons::FORK);
}

pub(crate) fn a_spawned_command_is_a_reason_and_runs() {
    let mut scope = HwTrace::window(quiet());
    let status = std::process::Command::new("/bin/true").status().unwrap();
    let trace = scope.close().unwrap();
    assert!(status.success());
    assert!(!trace.is_complete(), "spawning is never complete");
    assert!(trace.reasons.contains(Reasons::FORK) || trace.reasons.contains(Reasons::BUDGET));
}

global_asm!(
    // rdi: the rseq area, rsi: a counter. Adds 1 in a restartable sequence; counts attempts in rax.
    ".globl scope_test_rseq",
    "scope_test_rseq:",
    "xor eax, eax",
    "5: inc rax",
    "lea rdx, [rip + scope_test_cs]",
    "mov [rdi + 8], rdx",
    "1: mov rcx, [rsi]",
    "inc rcx",
    "mov [rsi], rcx",
    "2: mov qword ptr [rdi + 8], 0",
    "ret",
    ".int 0x53053053",
    "4: jmp 5b",
    ".pushsection .data.rel.local, \"aw\"",
    ".balign 32",
    "scope_test_cs:",
    ".int 0, 0",
    ".quad 1b, 2b - 1b, 4b",
    ".popsection",
);

unsafe extern "C" {
    fn scope_test_rseq(area: u64, counter: *mut u64) -> u64;
    static __rseq_offset: isize;
    static __rseq_size: u32;
}

pub(crate) fn a_restartable_sequence_is_a_reason_and_commits() {
    let (size, offset) = unsafe { (__rseq_size, __rseq_offset) };
    assert!(size > 0, "glibc registers rseq");
    let base: u64;
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) base) };
    let area = base.wrapping_add_signed(offset as i64);
    let mut counter = 0_u64;
    let args = [area, &raw mut counter as u64, 0, 0, 0, 0];
    let function = scope_test_rseq as *const () as usize;
    let (attempts, trace) = unsafe { HwTrace::call(function, args, quiet()) };
    assert_eq!(counter, 1, "the sequence commits");
    assert!(attempts < 5, "{attempts} attempts");
    assert_eq!(trace.reasons, Reasons::RSEQ);
}

fn spin() -> Routine {
    // mov ecx, edi; loop: dec ecx; jnz loop; mov eax, 1; ret
    Routine::of(&[0x89, 0xf9, 0xff, 0xc9, 0x75, 0xfc, 0xb8, 1, 0, 0, 0, 0xc3])
}

fn limited(budget: Budget) -> scalpel_scope::Trace {
    let options = Options { budget, ..quiet() };
    let begun = Instant::now();
    let args = [300_000_000, 0, 0, 0, 0, 0];
    let (result, trace) = unsafe { HwTrace::call(spin().at, args, options) };
    assert_eq!(result, 1);
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "the rest runs natively"
    );
    trace
}

pub(crate) fn a_spent_budget_really_stops() {
    let trace = limited(Budget {
        traps: 1000,
        time: Duration::from_secs(30),
    });
    assert_eq!(trace.reasons, Reasons::BUDGET);
    assert!((999..=1001).contains(&trace.counted), "{}", trace.counted);
}

pub(crate) fn spent_time_really_stops() {
    let trace = limited(Budget {
        traps: 100_000,
        time: Duration::from_millis(20),
    });
    assert_eq!(trace.reasons, Reasons::BUDGET);
    assert!(trace.counted < 100_000);
}

struct Hopping(ScopedTrace);
unsafe impl Send for Hopping {}

pub(crate) fn a_drop_on_another_thread_is_a_thread_hop() {
    let (give, take) = std::sync::mpsc::channel::<Hopping>();
    let other = std::thread::spawn(move || {
        let mut hopping = take.recv().unwrap();
        let error = hopping.0.close().unwrap_err();
        assert_eq!(error, scalpel_scope::ScopeError::OtherThread);
        drop(hopping);
    });
    let scope = HwTrace::scope(&spin().code(), scalpel_scope::Emit::Off);
    give.send(Hopping(scope)).unwrap();
    other.join().unwrap();
    // The flow goes on natively: stepping this would take an hour.
    spin().run([300_000_000, 0, 0, 0, 0, 0]);
}

pub(crate) fn two_threads_at_once_are_exact() {
    let work = || {
        let routine = spin();
        for turns in 1..60 {
            let (_, trace) = routine.trace([turns, 0, 0, 0, 0, 0]);
            assert!(trace.is_complete(), "{}", trace.reasons);
            assert_eq!(trace.counted, 3 + 2 * turns);
        }
    };
    let threads = [std::thread::spawn(work), std::thread::spawn(work)];
    for thread in threads {
        thread.join().unwrap();
    }
}

pub(crate) fn a_thousand_scopes_leave_nothing() {
    let routine = spin();
    let one = || {
        let mut scope = HwTrace::scope(&routine.code(), scalpel_scope::Emit::Off);
        routine.run([1, 0, 0, 0, 0, 0]);
        let trace = scope.close().unwrap();
        assert_eq!(trace.counted, 5, "{}", trace.reasons);
    };
    let left = || {
        let maps = std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .count();
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
        (maps, fds)
    };
    one();
    let before = left();
    for _ in 0..1000 {
        one();
    }
    assert_eq!(left(), before);
}

pub(crate) fn a_scope_in_a_forked_child_works() {
    let routine = spin();
    routine.trace([2, 0, 0, 0, 0, 0]);
    let child = unsafe { libc::fork() };
    if child == 0 {
        let (_, trace) = routine.trace([2, 0, 0, 0, 0, 0]);
        let well = trace.is_complete() && trace.counted == 7;
        unsafe { libc::_exit(i32::from(!well)) };
    }
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
}
