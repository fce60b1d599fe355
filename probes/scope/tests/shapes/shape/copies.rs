//! Code that runs from copies: the trace that stepping gives, and a program that notices nothing.
use std::sync::atomic::{AtomicU64, Ordering};

use scalpel_scope::trace::Fact;
use scalpel_scope::{HwBackend, HwTrace, Options, Reasons, Trace};

use super::random::same;
use crate::code::{self, Routine, quiet};

fn options() -> Options {
    Options {
        backend: HwBackend::Auto,
        ..quiet()
    }
}

/// Calls a function with its code in copies.
fn copied(function: usize, args: [u64; 6]) -> (u64, Trace) {
    let (result, trace) = unsafe { HwTrace::call(function, args, options()) };
    assert_eq!(trace.skip_reason, None);
    (result, trace)
}

fn stepped(function: usize, args: [u64; 6]) -> (u64, Trace) {
    unsafe { HwTrace::call(function, args, code::stepped()) }
}

/// By steps and from copies: the same trace. `before` makes the world as it was.
fn alike(function: usize, args: [u64; 6], mut before: impl FnMut()) -> Trace {
    before();
    let (result, truth) = stepped(function, args);
    before();
    let (again, trace) = copied(function, args);
    same(&trace, &truth);
    assert_eq!(result, again);
    assert!(trace.assumed.contains(&Fact::RanFromCopies));
    trace
}

/// The same for functions that allocate: the allocator does not do the same twice, this program does.
fn alike_here(function: usize, args: [u64; 6], mut before: impl FnMut()) -> Trace {
    before();
    let (result, truth) = stepped(function, args);
    before();
    let (again, trace) = copied(function, args);
    let here = |trace: &Trace| {
        let near = |addr: &u64| addr.abs_diff(function as u64) < 1 << 28;
        trace.addresses().filter(near).collect::<Vec<_>>()
    };
    assert!(here(&trace) == here(&truth), "{}", trace.reasons);
    assert!(trace.is_complete() && truth.is_complete());
    assert_eq!(result, again);
    assert!(trace.assumed.contains(&Fact::RanFromCopies));
    assert!(trace.traps < truth.traps / 4);
    trace
}

fn sealed(bytes: &[u8]) -> Routine {
    Routine::at(code::memory(), bytes).seal()
}

fn handle(signal: i32, handler: usize) {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(
            libc::sigaction(signal, &raw const action, std::ptr::null_mut()),
            0
        );
    }
}

static AT: AtomicU64 = AtomicU64::new(0);
static ADDRESS: AtomicU64 = AtomicU64::new(0);
static RAX: AtomicU64 = AtomicU64::new(0);
static TIMES: AtomicU64 = AtomicU64::new(0);

/// Makes the page of the fault accessible, and notes where the fault was.
extern "C" fn gives(_: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    unsafe {
        let page = (*info).si_addr() as usize & !4095;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mprotect(page as *mut libc::c_void, 4096, access);
        note(info, context);
    }
}

unsafe fn note(info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let registers = unsafe { (*context).uc_mcontext.gregs };
    AT.store(registers[16].cast_unsigned(), Ordering::Relaxed);
    RAX.store(registers[13].cast_unsigned(), Ordering::Relaxed);
    ADDRESS.store(unsafe { (*info).si_addr() } as u64, Ordering::Relaxed);
    TIMES.fetch_add(1, Ordering::Relaxed);
}

/// A page that faults, before each run.
fn closed(page: usize) {
    unsafe { libc::mprotect(page as *mut libc::c_void, 4096, libc::PROT_NONE) };
}

pub(crate) fn a_fault_in_a_copy_is_told_where_it_belongs() {
    handle(libc::SIGSEGV, gives as *const () as usize);
    let page = code::memory();
    let load = |routine: Routine, offset: u64| {
        alike(routine.at, [page as u64, 0, 0, 0, 0, 0], || closed(page));
        assert_eq!(AT.load(Ordering::Relaxed), routine.at as u64 + offset);
        assert_eq!(ADDRESS.load(Ordering::Relaxed) & !4095, page as u64);
    };
    // mov eax, 5; inc eax; add eax, [rdi]; ret
    load(sealed(&[0xb8, 5, 0, 0, 0, 0xff, 0xc0, 0x03, 0x07, 0xc3]), 7);
    // mov rdx, rsp; lea rsp, [rdi + 128]; push rdx; pop rsp; ret
    load(
        sealed(&[
            0x48, 0x89, 0xe2, 0x48, 0x8d, 0xa7, 0x80, 0, 0, 0, 0x52, 0x5c, 0xc3,
        ]),
        10,
    );
    assert_eq!(TIMES.load(Ordering::Relaxed), 4);
}

pub(crate) fn a_fault_of_an_indirect_branch_keeps_the_registers() {
    handle(libc::SIGSEGV, gives as *const () as usize);
    let page = code::memory();
    // lea rdx, [rip + 8]; mov eax, 7; call [rdi]; nop (target: ret)
    let call = sealed(&[
        0x48, 0x8d, 0x15, 8, 0, 0, 0, 0xb8, 7, 0, 0, 0, 0xff, 0x17, 0x90, 0xc3,
    ]);
    unsafe { *(page as *mut u64) = call.at as u64 + 15 };
    alike(call.at, [page as u64, 0, 0, 0, 0, 0], || closed(page));
    assert_eq!(AT.load(Ordering::Relaxed), call.at as u64 + 12);
    assert_eq!(RAX.load(Ordering::Relaxed), 7);
    assert_eq!(TIMES.load(Ordering::Relaxed), 2);
}

pub(crate) fn a_string_instruction_that_faults_is_folded() {
    handle(libc::SIGSEGV, gives as *const () as usize);
    let page = code::memory() + 4096;
    // mov ecx, 200; rep stosb; ret
    let fill = sealed(&[0xb9, 200, 0, 0, 0, 0xf3, 0xaa, 0xc3]);
    for start in [page - 100, page, page - 1] {
        let trace = alike(fill.at, [start as u64, 0, 0, 0, 0, 0], || closed(page));
        let counts: Vec<_> = trace.steps.iter().map(|step| step.count).collect();
        assert_eq!(counts, [1, 200, 1]);
    }
}

extern "C" fn skips(_: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    unsafe {
        note(info, context);
        (*context).uc_mcontext.gregs[16] += 2;
    }
}

pub(crate) fn a_division_by_zero_in_a_copy_is_told_where_it_belongs() {
    handle(libc::SIGFPE, skips as *const () as usize);
    // xor ecx, ecx; mov eax, 1; cdq; div ecx; nop; ret
    let divide = sealed(&[0x31, 0xc9, 0xb8, 1, 0, 0, 0, 0x99, 0xf7, 0xf1, 0x90, 0xc3]);
    let trace = alike(divide.at, [0; 6], || {});
    let offsets: Vec<_> = divide.offsets(&trace);
    assert_eq!(offsets, [0, 2, 7, 10, 11], "the handler moves the thread");
    for told in [&AT, &ADDRESS] {
        assert_eq!(told.load(Ordering::Relaxed), divide.at as u64 + 8);
    }
}

pub(crate) fn a_fault_that_nobody_handles() {
    let read = sealed(&[0x90, 0x90, 0x8b, 0x07, 0xc3]);
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
    }
    copied(read.at, [8, 0, 0, 0, 0, 0]);
}

/// Whether an address is in memory of ours.
fn is_copy(addr: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let hex = |text| u64::from_str_radix(text, 16).unwrap();
    maps.lines().any(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        line.contains("scalpel-scope") && (hex(start)..hex(end)).contains(&addr)
    })
}

static SEEN: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

extern "C" fn collects(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let rip = unsafe { (*context).uc_mcontext.gregs[16] }.cast_unsigned();
    let place = TIMES.fetch_add(1, Ordering::Relaxed);
    SEEN[usize::try_from(place).unwrap() % SEEN.len()].store(rip, Ordering::Relaxed);
}

pub(crate) fn no_handler_sees_an_address_of_a_copy() {
    handle(libc::SIGALRM, collects as *const () as usize);
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: 500,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    // mov eax, edi; 2: dec eax; jnz 2; ret
    let spin = sealed(&[0x89, 0xf8, 0xff, 0xc8, 0x75, 0xfc, 0xc3]);
    for _ in 0..30 {
        let (_, trace) = copied(spin.at, [50_000, 0, 0, 0, 0, 0]);
        assert!(trace.is_complete(), "{}", trace.reasons);
        assert_eq!(trace.counted, 100_002);
    }
    let off: libc::itimerval = unsafe { std::mem::zeroed() };
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const off, std::ptr::null_mut()) };
    let times = usize::try_from(TIMES.load(Ordering::Relaxed)).unwrap();
    assert!(times > 2, "{times}");
    for rip in SEEN.iter().take(times) {
        assert!(!is_copy(rip.load(Ordering::Relaxed)), "{rip:?}");
    }
}

extern "C" fn counts(_: i32) {
    TIMES.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn works(turns: u64) -> u64 {
    (0..turns).fold(1, |sum, turn| std::hint::black_box(sum ^ turn))
}

/// The spinning thread gets this signal all the while. `may`: what its traces may be truncated for.
fn sends(signal: i32, may: Reasons) {
    unsafe { libc::signal(signal, counts as *const () as usize) };
    // Code of a file: another thread cannot rewrite it.
    let spin = works as *const () as usize;
    let this = unsafe { libc::pthread_self() };
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(unsafe { libc::pthread_kill(this, signal) }, 0);
                std::thread::sleep(std::time::Duration::from_micros(700));
            }
        });
        let reasons = (0..30).map(|_| copied(spin, [50_000, 0, 0, 0, 0, 0]).1.reasons);
        let reasons = reasons.fold(Reasons::NONE, Reasons::with);
        stop.store(true, Ordering::Relaxed);
        sender.join().unwrap();
        assert_eq!(reasons.with(may), may, "{reasons}");
    });
    assert!(TIMES.load(Ordering::Relaxed) > 2);
}

pub(crate) fn a_sent_fault_signal_arrives() {
    sends(libc::SIGSEGV, Reasons::NONE);
}

pub(crate) fn a_sent_trap_arrives() {
    // The kernel keeps one SIGTRAP: one that is sent right before a step's own swallows it.
    sends(libc::SIGTRAP, Reasons::UNEXPLAINED);
}

#[inline(never)]
extern "C-unwind" fn throws(turn: u64) {
    if turn.is_multiple_of(2) {
        std::panic::resume_unwind(Box::new(turn));
    }
}

extern "C" fn catches(turns: u64) -> u64 {
    (0..turns)
        .map(|turn| std::panic::catch_unwind(|| throws(std::hint::black_box(turn))))
        .map(|passed| u64::from(passed.is_err()))
        .sum()
}

pub(crate) fn an_exception_passes_through_copies() {
    let catches = catches as *const () as usize;
    // Loads the unwinder's tables.
    Routine {
        at: catches,
        len: 0,
    }
    .run([2, 0, 0, 0, 0, 0]);
    alike_here(catches, [2, 0, 0, 0, 0, 0], || {});
    let (caught, trace) = copied(catches, [20, 0, 0, 0, 0, 0]);
    assert_eq!(caught, 10);
    assert!(trace.is_complete(), "{}", trace.reasons);
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn scalpel_scope_looks_back() -> u64 {
    let told = std::backtrace::Backtrace::force_capture().to_string();
    u64::from(told.contains("scalpel_scope_looks_back") && told.contains("a_backtrace_in_a_copy"))
}

pub(crate) fn a_backtrace_in_a_copy_names_the_program() {
    let looks = scalpel_scope_looks_back as *const () as usize;
    assert_eq!(Routine { at: looks, len: 0 }.run([0; 6]), 1);
    // Whether or not the log has room for all of it.
    assert_eq!(copied(looks, [0; 6]).0, 1);
}

pub(crate) fn code_that_is_rewritten_in_the_scope_runs_as_it_is() {
    extern "C" fn rewrites(at: u64) -> u64 {
        let (page, at) = (at as *mut libc::c_void, usize::try_from(at).unwrap());
        let routine = Routine { at, len: 0 };
        let first = routine.run([0; 6]);
        let open = libc::PROT_READ | libc::PROT_WRITE;
        let closed = libc::PROT_READ | libc::PROT_EXEC;
        unsafe {
            assert_eq!(libc::mprotect(page, 4096, open), 0);
            *(at as *mut u8).add(1) = 9;
            assert_eq!(libc::mprotect(page, 4096, closed), 0);
        }
        10 * first + routine.run([0; 6])
    }
    // mov eax, 1; ret
    let routine = sealed(&[0xb8, 1, 0, 0, 0, 0xc3]);
    let (result, trace) = copied(
        rewrites as *const () as usize,
        [routine.at as u64, 0, 0, 0, 0, 0],
    );
    assert_eq!(result, 19);
    assert!(trace.is_complete(), "{}", trace.reasons);
    let shown = trace
        .code
        .iter()
        .filter(|code| code.addr == routine.at as u64);
    assert_eq!(shown.map(|code| code.bytes[1]).collect::<Vec<_>>(), [1, 9]);
}

pub(crate) fn code_that_can_be_written_is_stepped() {
    let routine = Routine::at(code::memory(), &[0x90, 0x31, 0xc0, 0xc3]);
    let (_, trace) = copied(routine.at, [0; 6]);
    assert_eq!(routine.offsets(&trace), [0, 1, 3]);
    assert!(!trace.assumed.contains(&Fact::RanFromCopies));
}

pub(crate) fn a_full_log_of_copies_is_a_budget_that_is_spent() {
    let spin = sealed(&[0x89, 0xf8, 0xff, 0xc8, 0x75, 0xfc, 0xc3]);
    let (result, trace) = copied(spin.at, [100_000_000, 0, 0, 0, 0, 0]);
    assert_eq!((result, trace.reasons), (0, Reasons::BUDGET));
    assert!(trace.counted > 1_000_000, "{}", trace.counted);
}

pub(crate) fn vectors_and_flags_are_kept() {
    // vpcmpeqd ymm3, ymm3, ymm3; stc; mov ecx, 100; 10: dec ecx; jnz 10; adc eax.. the carry outlives the loop's `dec`
    let routine = sealed(&[
        0xc5, 0xe5, 0x76, 0xdb, 0x31, 0xc0, 0xf9, 0xb9, 100, 0, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0x83,
        0xd0, 0, 0xc5, 0xfd, 0xd7, 0xcb, 0x01, 0xc8, 0xc5, 0xf8, 0x77, 0xc3,
    ]);
    if std::arch::is_x86_feature_detected!("avx2") {
        let native = routine.run([0; 6]);
        alike(routine.at, [0; 6], || {});
        assert_eq!(native & 0xffff_ffff, 0);
    }
}

pub(crate) fn real_functions_are_alike() {
    let mut numbers: Vec<u64> = (0..200).map(|n| n * 7919 % 211).collect();
    extern "C" fn sorts(at: u64, len: u64) -> u64 {
        let len = usize::try_from(len).unwrap();
        let numbers = unsafe { std::slice::from_raw_parts_mut(at as *mut u64, len) };
        numbers.sort_unstable();
        let text = format!("{:?}", &numbers[..20]);
        text.len() as u64
    }
    let args = [numbers.as_mut_ptr() as u64, 200, 0, 0, 0, 0];
    sorts(args[0], args[1]);
    let fill = || {
        let numbers = unsafe { std::slice::from_raw_parts_mut(args[0] as *mut u64, 200) };
        for (place, number) in numbers.iter_mut().enumerate() {
            *number = place as u64 * 7919 % 211;
        }
    };
    let trace = alike_here(sorts as *const () as usize, args, fill);
    assert!(trace.counted > 5_000, "{}", trace.counted);
    drop(numbers);
}

pub(crate) fn two_threads_run_from_copies_at_once() {
    let run = || {
        for _ in 0..20 {
            let (_, trace) = copied(works as *const () as usize, [10_000, 0, 0, 0, 0, 0]);
            assert!(trace.is_complete(), "{}", trace.reasons);
            assert!(trace.assumed.contains(&Fact::RanFromCopies));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(run);
        scope.spawn(run);
    });
}

/// Rewrites the region that calls it: the count that its own loop is left with.
extern "C" fn patches(at: u64) {
    if at == 2 {
        let page = AT.load(Ordering::Relaxed) as *mut libc::c_void;
        let open = libc::PROT_READ | libc::PROT_WRITE;
        let closed = libc::PROT_READ | libc::PROT_EXEC;
        unsafe {
            libc::mprotect(page, 4096, open);
            *page.cast::<u8>().add(18) = 9;
            libc::mprotect(page, 4096, closed);
        }
    }
}

pub(crate) fn a_region_that_its_callee_rewrites_runs_as_it_is() {
    // push rbx; push rbp; push rax; mov rbp, rdi; mov ebx, esi; 9: mov edi, ebx; call rbp; dec ebx; xor eax, eax;
    // 17: add al, 1 (the immediate is rewritten); test ebx, ebx; jnz 9; pop rcx; pop rbp; pop rbx; ret
    let region = sealed(&[
        0x53, 0x55, 0x50, 0x48, 0x89, 0xfd, 0x89, 0xf3, 0x90, 0x89, 0xdf, 0xff, 0xd5, 0xff, 0xcb,
        0x31, 0xc0, 0x04, 1, 0x85, 0xdb, 0x75, 0xf2, 0x59, 0x5d, 0x5b, 0xc3,
    ]);
    AT.store(region.at as u64, Ordering::Relaxed);
    let mut scope = HwTrace::scope_with(&region.code(), options());
    let result = region.run([patches as *const () as u64, 4, 0, 0, 0, 0]);
    let trace = scope.close().unwrap();
    assert_eq!(result & 0xff, 9);
    assert!(trace.is_complete(), "{}", trace.reasons);
    let shown = trace
        .code
        .iter()
        .filter(|code| code.addr == region.at as u64 + 17);
    assert_eq!(shown.map(|code| code.bytes[1]).collect::<Vec<_>>(), [1, 9]);
}

/// Each of two processes writes other code to its copies.
fn many(routine: Routine, turns: u64) {
    for _ in 0..200 {
        let (result, trace) = copied(routine.at, [turns, 0, 0, 0, 0, 0]);
        assert!(trace.is_complete(), "{}", trace.reasons);
        assert!(trace.assumed.contains(&Fact::RanFromCopies));
        assert_eq!((result, trace.counted), (0, 2 + 2 * turns));
    }
}

pub(crate) fn a_forked_child_has_copies_of_its_own() {
    // mov eax, edi; 2: dec eax; jnz 2; ret, and the same with another padding before
    let spin = sealed(&[0x89, 0xf8, 0xff, 0xc8, 0x75, 0xfc, 0xc3]);
    let other = sealed(&[0x8b, 0xc7, 0xff, 0xc8, 0x75, 0xfc, 0xc3]);
    copied(spin.at, [3, 0, 0, 0, 0, 0]);
    let child = unsafe { libc::fork() };
    if child == 0 {
        many(other, 70);
        unsafe { libc::_exit(0) };
    }
    many(spin, 50);
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
