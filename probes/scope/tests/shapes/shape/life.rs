//! Threads and processes that begin within a scope, restartable sequences, budgets, and what is left behind.
use std::arch::global_asm;
use std::time::{Duration, Instant};

use scalpel_scope::trace::Fact;
use scalpel_scope::{Budget, HwTrace, Options, Reasons, ScopedTrace, render};

use crate::code::{Routine, quiet, stepped};

/// What was started is listed, and nothing is missing.
fn started(trace: &scalpel_scope::Trace, threads: &[bool]) {
    assert!(trace.is_complete(), "{}", trace.reasons);
    let kinds: Vec<_> = trace
        .not_followed
        .iter()
        .map(|child| child.thread)
        .collect();
    assert_eq!(kinds, threads);
    assert_eq!(trace.started, threads.len() as u64);
    assert!(trace.assumed.contains(&Fact::ChildrenNotFollowed));
}

pub(crate) fn a_fork_is_stepped_over_and_the_child_runs_free() {
    let mut scope = HwTrace::window(quiet());
    let child = unsafe { libc::fork() };
    if child == 0 {
        // It is not stepped: stepping this would take an hour.
        spin().run([100_000_000, 0, 0, 0, 0, 0]);
        unsafe { libc::_exit(7) };
    }
    let inside = spin();
    inside.run([1, 0, 0, 0, 0, 0]);
    let trace = scope.close().unwrap();
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 7 << 8);
    started(&trace, &[false]);
    assert_eq!(trace.not_followed[0].tid, child.cast_unsigned());
    let behind = trace.addresses().filter(|addr| *addr == inside.at as u64);
    assert_eq!(behind.count(), 1, "the parent is stepped on");
}

/// A system call by a routine of its own: mov eax, edi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; syscall; nop; ret
fn raw() -> Routine {
    Routine::of(&[
        0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x0f, 5, 0x90, 0xc3,
    ])
}

/// A child made by a raw call must end with this code.
fn ends_with(child: u64, code: i32) {
    let mut status = 0;
    let pid = i32::try_from(child).unwrap();
    assert_eq!(
        unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) },
        pid
    );
    assert_eq!(status, code << 8);
}

pub(crate) fn every_way_to_fork_is_exact() {
    let steps = [0, 2, 5, 8, 11, 13, 14];
    let routine = raw();
    let signal = libc::SIGCHLD.unsigned_abs().into();
    // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, ...
    let mut args = [0_u64; 11];
    args[4] = signal;
    let new = args.as_ptr() as u64;
    for call in [
        [57, 0, 0, 0, 0, 0],
        [56, signal, 0, 0, 0, 0],
        [435, new, 88, 0, 0, 0],
    ] {
        let (child, trace) = routine.trace(call);
        if child == 0 {
            unsafe { libc::_exit(9) };
        }
        ends_with(child, 9);
        started(&trace, &[false]);
        assert_eq!(routine.offsets(&trace), steps);
    }
}

pub(crate) fn a_child_with_handlers_cleared_lives() {
    // CLONE_CLEAR_SIGHAND: a trap in the child would kill it.
    let mut args = [0_u64; 11];
    args[0] = 0x1_0000_0000;
    args[4] = libc::SIGCHLD.unsigned_abs().into();
    let (child, trace) = raw().trace([435, args.as_ptr() as u64, 88, 0, 0, 0]);
    if child == 0 {
        unsafe { libc::_exit(5) };
    }
    ends_with(child, 5);
    started(&trace, &[false]);
}

pub(crate) fn a_vfork_is_stepped_over() {
    // mov eax, 58; syscall; test eax, eax; jz child; ret; child: mov edi, 3; mov eax, 60; syscall
    let routine = Routine::of(&[
        0xb8, 58, 0, 0, 0, 0x0f, 5, 0x85, 0xc0, 0x74, 1, 0xc3, 0xbf, 3, 0, 0, 0, 0xb8, 60, 0, 0, 0,
        0x0f, 5,
    ]);
    let (child, trace) = routine.trace([0; 6]);
    ends_with(child, 3);
    started(&trace, &[false]);
    assert_eq!(routine.offsets(&trace), [0, 5, 7, 9, 11]);
}

pub(crate) fn a_child_has_the_mask_that_the_program_wants() {
    let routine = raw();
    let trap = 1_u64 << (libc::SIGTRAP - 1);
    let mut scope = HwTrace::window(quiet());
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    unsafe { libc::sigaddset(&raw mut set, libc::SIGTRAP) };
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    let child = routine.run([57, 0, 0, 0, 0, 0]);
    if child == 0 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let mask = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
        unsafe { libc::_exit(i32::from(mask & trap == 0)) };
    }
    let trace = scope.close().unwrap();
    ends_with(child, 0);
    started(&trace, &[false]);
}

pub(crate) fn a_failed_exec_is_stepped_over() {
    let path = c"/no/such/program".as_ptr() as u64;
    let (result, trace) = raw().trace([59, path, 0, 0, 0, 0]);
    assert_eq!(result, (-2_i64).cast_unsigned());
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert_eq!(trace.started, 0);
}

pub(crate) fn an_exec_in_a_scope_runs_the_program() {
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut scope = HwTrace::window(quiet());
        let args = [
            c"/bin/sh".as_ptr(),
            c"-c".as_ptr(),
            c"exit 6".as_ptr(),
            std::ptr::null(),
        ];
        unsafe { libc::execv(args[0], args.as_ptr()) };
        scope.close().unwrap();
        unsafe { libc::_exit(1) };
    }
    ends_with(u64::try_from(child).unwrap(), 6);
}

pub(crate) fn a_thread_is_not_followed_and_both_live() {
    let mut scope = HwTrace::window(quiet());
    let sum = std::thread::spawn(|| (0..100).sum::<u64>()).join().unwrap();
    let trace = scope.close().unwrap();
    assert_eq!(sum, 4950);
    started(&trace, &[true]);
    let mut symbols = scalpel_scope::symbol::ProcessSymbols::new();
    let text = render::tree(&trace, &mut symbols, render::TREE_LINES);
    let tid = trace.not_followed[0].tid;
    assert!(
        text.contains(&format!("\nnot followed: thread {tid}\n")),
        "{text}"
    );
    assert!(text.lines().count() <= render::TREE_LINES);
    let json = render::json(&trace, &mut symbols, render::Syntax::Intel).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["started"], 1);
    assert_eq!(json["not_followed"][0]["tid"], tid);
}

pub(crate) fn a_spawned_command_is_not_followed_and_runs() {
    let mut scope = HwTrace::window(quiet());
    let status = std::process::Command::new("/bin/true").status().unwrap();
    let trace = scope.close().unwrap();
    assert!(status.success());
    started(&trace, &[false]);
}

pub(crate) fn system_runs_its_command() {
    let function = libc::system as *const () as usize;
    let args = [c"exit 4".as_ptr() as u64, 0, 0, 0, 0, 0];
    let (status, trace) = unsafe { HwTrace::call(function, args, quiet()) };
    assert_eq!(status, 4 << 8);
    started(&trace, &[false]);
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
    let options = Options {
        budget,
        ..stepped()
    };
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

/// Its budget is spent early; from then on a pass is the body and no more.
pub(crate) fn a_million_passes_of_one_site_are_bounded() {
    let routine = spin();
    let mut site = None;
    let mut passes = |times: u32, turns: u64| {
        for _ in 0..times {
            let mut scope = HwTrace::scope_with(&routine.code(), quiet());
            site = Some(scope.site());
            routine.run([turns, 0, 0, 0, 0, 0]);
            drop(scope.close().unwrap());
        }
    };
    let left = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = kib.unwrap().trim_end_matches("kB").trim();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        (kib.parse::<u64>().unwrap(), maps.lines().count())
    };
    // Most of the budget at once, and the rest of it in many passes.
    passes(20, 45_000);
    passes(1_980, 1);
    let (kib, maps) = left();
    passes(998_000, 1);
    let (kib_after, maps_after) = left();
    assert!(kib_after <= kib + 1024, "{kib} {kib_after}");
    assert!(maps_after <= maps + 2, "{maps} {maps_after}");
    let totals = HwTrace::totals(site.unwrap());
    assert_eq!(totals.passes, 1_000_000);
    // The pass that has spent the budget may go past it.
    assert!(totals.traps <= 1_100_000, "{}", totals.traps);
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

pub(crate) fn a_scope_that_is_dropped_in_a_forked_child_says_so() {
    let scope = HwTrace::window(quiet());
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut scope = scope;
        let refused = scope.close() == Err(scalpel_scope::ScopeError::OtherThread);
        drop(scope);
        let (_, trace) = spin().trace([2, 0, 0, 0, 0, 0]);
        unsafe { libc::_exit(i32::from(!refused || !trace.is_complete())) };
    }
    let mut scope = scope;
    let trace = scope.close().unwrap();
    ends_with(u64::try_from(child).unwrap(), 0);
    assert_eq!(trace.started, 1);
    assert!(trace.is_complete(), "{}", trace.reasons);
}

/// Opens a scope that nobody closes.
fn forgotten() {
    let options = Options {
        budget: Budget::default(),
        ..quiet()
    };
    let _scope = std::mem::ManuallyDrop::new(HwTrace::window(options));
}

pub(crate) fn a_thread_that_ends_with_a_scope_open_leaves_nothing_armed() {
    for _ in 0..40 {
        std::thread::spawn(forgotten).join().unwrap();
    }
    let routine = spin();
    for _ in 0..40 {
        let trace = std::thread::spawn(move || routine.trace([2, 0, 0, 0, 0, 0]).1)
            .join()
            .unwrap();
        assert!(trace.is_complete(), "{}", trace.reasons);
    }
}

pub(crate) fn a_forgotten_scope_ends_by_its_budget() {
    forgotten();
    spin().run([100_000_000, 0, 0, 0, 0, 0]);
    let (_, trace) = spin().trace([2, 0, 0, 0, 0, 0]);
    assert!(!trace.is_complete(), "nothing is recorded within it");
    assert!(trace.reasons.contains(Reasons::BUDGET), "{}", trace.reasons);
}
