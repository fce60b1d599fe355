//! Signals that are not ours, masks, handlers, stacks, probes.
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use scalpel_scope::HwTrace;
use scalpel_scope::trace::Fact;

use crate::code::{Routine, quiet};

static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

fn handle(signal: i32, handler: usize, flags: i32) -> libc::sigaction {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const action, &raw mut old), 0);
        old
    }
}

fn count_on(signal: i32) {
    handle(signal, count as *const () as usize, 0);
}

/// Calls a libc function in the call form.
fn call(function: *const (), args: [u64; 6]) -> (u64, scalpel_scope::Trace) {
    unsafe { HwTrace::call(function as usize, args, quiet()) }
}

pub(crate) fn an_int3_is_handed_on() {
    count_on(libc::SIGTRAP);
    let routine = Routine::of(&[0x90, 0xcc, 0x90, 0xc3]);
    routine.expect([0; 6], None, &[0, 1, 2, 3]);
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);
}

pub(crate) fn int3_unhandled() {
    Routine::of(&[0x90, 0xcc, 0x90, 0xc3]).trace([0; 6]);
}

pub(crate) fn a_sent_sigtrap_is_handed_on() {
    count_on(libc::SIGTRAP);
    let (_, trace) = call(libc::raise as *const (), [5, 0, 0, 0, 0, 0]);
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    assert!(trace.is_complete(), "{}", trace.reasons);
}

pub(crate) fn a_handler_set_in_the_scope_gets_what_is_not_a_step() {
    let scope = HwTrace::window(quiet());
    count_on(libc::SIGTRAP);
    let old = handle(libc::SIGTRAP, count as *const () as usize, 0);
    unsafe { libc::raise(libc::SIGTRAP) };
    let mut scope = scope;
    let trace = scope.close().unwrap();
    assert_eq!(
        old.sa_sigaction, count as *const () as usize,
        "its own handler is read back"
    );
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    assert!(trace.is_complete(), "{}", trace.reasons);
}

pub(crate) fn sigtrap_default_set_in_the_scope_does_not_kill() {
    let mut scope = HwTrace::window(quiet());
    handle(libc::SIGTRAP, libc::SIG_DFL, 0);
    std::hint::black_box(std::process::id());
    let trace = scope.close().unwrap();
    assert!(trace.is_complete(), "{}", trace.reasons);
}

fn set(signals: &[i32]) -> libc::sigset_t {
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

fn mask(how: i32, new: Option<&libc::sigset_t>) -> libc::sigset_t {
    let mut old = set(&[]);
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    assert_eq!(unsafe { libc::pthread_sigmask(how, new, &raw mut old) }, 0);
    old
}

fn blocks(set: &libc::sigset_t, signal: i32) -> bool {
    unsafe { libc::sigismember(set, signal) == 1 }
}

pub(crate) fn a_blocked_sigtrap_does_not_kill() {
    let mut scope = HwTrace::window(quiet());
    let all = set(&(1..32).collect::<Vec<_>>());
    mask(libc::SIG_BLOCK, Some(&all));
    let inside = mask(libc::SIG_BLOCK, None);
    mask(libc::SIG_UNBLOCK, Some(&all));
    let trace = scope.close().unwrap();
    assert!(blocks(&inside, libc::SIGTRAP) && blocks(&inside, libc::SIGUSR1));
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert!(!blocks(&mask(libc::SIG_BLOCK, None), libc::SIGTRAP));
}

pub(crate) fn a_mask_from_a_bad_pointer_is_efault() {
    // rt_sigprocmask(SIG_BLOCK, 8, NULL, 8), raw: mov eax, 14; mov r10d, 8; syscall; ret
    let routine = Routine::of(&[0xb8, 14, 0, 0, 0, 0x41, 0xba, 8, 0, 0, 0, 0x0f, 5, 0xc3]);
    let efault = (-14_i64).cast_unsigned();
    routine.expect([0, 8, 0, 0, 0, 0], Some(efault), &[0, 5, 11, 13]);
    routine.expect([0, 0, 8, 0, 0, 0], Some(efault), &[0, 5, 11, 13]);
    let set = 1_u64 << 9;
    let at = &raw const set as u64;
    routine.expect(
        [7, at, 0, 0, 0, 0],
        Some((-22_i64).cast_unsigned()),
        &[0, 5, 11, 13],
    );
    routine.expect([0, at, 0, 0, 0, 0], Some(0), &[0, 5, 11, 13]);
    assert!(blocks(&mask(libc::SIG_BLOCK, None), libc::SIGUSR1));
}

pub(crate) fn the_mask_that_the_program_wants_is_kept() {
    let trap = set(&[libc::SIGTRAP]);
    mask(libc::SIG_BLOCK, Some(&trap));
    let mut scope = HwTrace::window(quiet());
    let inside = mask(libc::SIG_BLOCK, None);
    let trace = scope.close().unwrap();
    assert!(blocks(&inside, libc::SIGTRAP));
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert!(blocks(&mask(libc::SIG_BLOCK, None), libc::SIGTRAP));
    let mut scope = HwTrace::window(quiet());
    mask(libc::SIG_UNBLOCK, Some(&trap));
    scope.close().unwrap();
    assert!(!blocks(&mask(libc::SIG_BLOCK, None), libc::SIGTRAP));
}

pub(crate) fn a_signal_handler_is_excluded() {
    count_on(libc::SIGUSR1);
    let (_, trace) = call(
        libc::raise as *const (),
        [u64::from(libc::SIGUSR1.unsigned_abs()), 0, 0, 0, 0, 0],
    );
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert!(
        trace
            .addresses()
            .all(|addr| addr != count as *const () as u64)
    );
}

pub(crate) fn a_small_stack_survives() {
    // No signal stack of the program's either.
    let none = libc::stack_t {
        ss_sp: std::ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    signal_stack(Some(&none));
    let memory = crate::code::memory();
    // 1 KiB of stack above a page that is taken away.
    unsafe { libc::mprotect(memory as *mut libc::c_void, 4096, libc::PROT_NONE) };
    let top = (memory + 4096 + 1024) as u64;
    // mov rsi, rsp; mov rsp, rdi; push rsi; pop rsi; mov rsp, rsi; ret
    let routine = Routine::of(&[
        0x48, 0x89, 0xe6, 0x48, 0x89, 0xfc, 0x56, 0x5e, 0x48, 0x89, 0xf4, 0xc3,
    ]);
    routine.expect([top, 0, 0, 0, 0, 0], None, &[0, 3, 6, 7, 8, 11]);
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn scalpel_scope_probed(value: u64) -> u64 {
    std::hint::black_box(value).wrapping_mul(3) + 1
}

pub(crate) fn a_uprobe_in_the_code_is_stepped() {
    let function = scalpel_scope_probed as *const () as usize;
    let (_, before) = call(function as *const (), [4, 0, 0, 0, 0, 0]);
    let _probe = uprobe(function as u64).unwrap();
    let byte = unsafe { *(function as *const u8) };
    assert_eq!(byte, 0xcc, "the probe is set");
    let (result, trace) = call(function as *const (), [4, 0, 0, 0, 0, 0]);
    assert_eq!(result, 13);
    assert_eq!(
        trace.addresses().collect::<Vec<_>>(),
        before.addresses().collect::<Vec<_>>()
    );
    assert_eq!(trace.code, before.code, "the file's bytes are shown");
    assert!(trace.is_complete(), "{}", trace.reasons);
}

pub(crate) fn can_probe() -> bool {
    let function = scalpel_scope_probed as *const () as u64;
    uprobe(function).is_some_and(|fd| unsafe { libc::close(fd) } == 0)
}

/// `None` where probes are not permitted.
fn uprobe(addr: u64) -> Option<i32> {
    probe(addr, 0)
}

/// With a `config` of 1 it probes the return.
fn probe(addr: u64, config: u64) -> Option<i32> {
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").ok()?;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let hex = |text| u64::from_str_radix(text, 16).unwrap();
    let offset = maps.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-')?;
        (hex(start)..hex(end))
            .contains(&addr)
            .then(|| addr - hex(start) + hex(words[2]))
    })?;
    let path = std::ffi::CString::new(std::env::current_exe().ok()?.to_str()?).unwrap();
    let mut attr = [0_u64; 16];
    attr[0] = kind.trim().parse::<u64>().ok()? | (128 << 32);
    attr[1] = config;
    attr[7] = path.as_ptr() as u64;
    attr[8] = offset;
    let fd = unsafe { libc::syscall(298, attr.as_ptr(), 0, -1, -1, 8) };
    i32::try_from(fd).ok().filter(|fd| *fd >= 0)
}

static MASK: AtomicU64 = AtomicU64::new(0);
static PLACE: AtomicU64 = AtomicU64::new(0);

extern "C" fn look(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // Deeper than any signal stack of ours.
    let deep = std::hint::black_box([0_u8; 150_000]);
    let mask = mask(libc::SIG_BLOCK, None);
    let word = unsafe { *(&raw const mask).cast::<u64>() };
    let inside = unsafe { *(&raw const (*context).uc_sigmask).cast::<u64>() };
    MASK.store(word ^ inside.rotate_left(32), Ordering::Relaxed);
    PLACE.store(deep.as_ptr() as u64, Ordering::Relaxed);
}

/// Raises SIGTRAP; what the handler saw of its mask and stack.
fn raised() -> (u64, u64) {
    let here = 0_u8;
    unsafe { libc::raise(libc::SIGTRAP) };
    let place = PLACE.load(Ordering::Relaxed);
    let depth = (&raw const here as u64).wrapping_sub(place);
    (MASK.load(Ordering::Relaxed), depth)
}

pub(crate) fn a_handler_that_is_handed_on_runs_as_the_kernel_runs_it() {
    let blocked = set(&[libc::SIGUSR1, libc::SIGHUP]);
    mask(libc::SIG_BLOCK, Some(&blocked));
    for flags in [0, libc::SA_NODEFER] {
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = look as *const () as usize;
            action.sa_flags = flags | libc::SA_SIGINFO;
            action.sa_mask = set(&[libc::SIGUSR2]);
            assert_eq!(
                libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()),
                0
            );
        }
        let (native, depth) = raised();
        assert!(depth < 1 << 20, "on the stack of who raised it");
        let mut scope = HwTrace::window(quiet());
        let (inside, depth) = raised();
        let trace = scope.close().unwrap();
        assert_eq!(inside, native);
        assert!(depth < 1 << 20, "and so within a scope");
        assert!(trace.is_complete(), "{}", trace.reasons);
    }
}

extern "C" fn hits(_: i32) {
    unsafe { std::arch::asm!("int3") };
}

pub(crate) fn a_breakpoint_in_a_signal_handler_is_not_the_flow() {
    count_on(libc::SIGTRAP);
    handle(libc::SIGUSR1, hits as *const () as usize, 0);
    let signal = u64::from(libc::SIGUSR1.unsigned_abs());
    let (_, trace) = call(libc::raise as *const (), [signal, 0, 0, 0, 0, 0]);
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    assert!(trace.is_complete(), "{}", trace.reasons);
    let handlers = [hits as *const () as u64, count as *const () as u64];
    assert!(trace.addresses().all(|addr| !handlers.contains(&addr)));
}

fn signal_stack(new: Option<&libc::stack_t>) -> libc::stack_t {
    let mut old: libc::stack_t = unsafe { std::mem::zeroed() };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    assert_eq!(unsafe { libc::sigaltstack(new, &raw mut old) }, 0);
    old
}

extern "C" fn where_am_i(_: i32) {
    let here = 0_u8;
    PLACE.store(&raw const here as u64, Ordering::Relaxed);
}

pub(crate) fn the_signal_stack_that_the_program_sets_is_kept() {
    let memory = crate::code::memory();
    let small = libc::stack_t {
        ss_sp: memory as *mut libc::c_void,
        ss_flags: 0,
        ss_size: 4096,
    };
    let before = signal_stack(None);
    let mut scope = HwTrace::window(quiet());
    let first = signal_stack(None);
    let second = signal_stack(Some(&small));
    let third = signal_stack(None);
    // A stack on which the handler would overflow: the page below is taken away.
    std::hint::black_box(std::process::id());
    let refused = libc::stack_t {
        ss_size: 100,
        ..small
    };
    let refused = unsafe { libc::sigaltstack(&raw const refused, std::ptr::null_mut()) };
    let trace = scope.close().unwrap();
    for (seen, wanted) in [(first, before), (second, before), (third, small)] {
        assert_eq!(seen.ss_sp, wanted.ss_sp);
        assert_eq!(
            (seen.ss_flags, seen.ss_size),
            (wanted.ss_flags, wanted.ss_size)
        );
    }
    assert_eq!(refused, -1);
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert_eq!(
        signal_stack(None).ss_sp,
        small.ss_sp,
        "it is really set then"
    );
    signal_stack(Some(&before));
}

pub(crate) fn a_handler_on_its_own_stack_is_excluded_and_returns() {
    handle(
        libc::SIGUSR1,
        where_am_i as *const () as usize,
        libc::SA_ONSTACK,
    );
    let memory = crate::code::memory();
    let large = libc::stack_t {
        ss_sp: memory as *mut libc::c_void,
        ss_flags: 0,
        ss_size: crate::code::PAGES,
    };
    let before = signal_stack(Some(&large));
    let signal = u64::from(libc::SIGUSR1.unsigned_abs());
    let (_, trace) = call(libc::raise as *const (), [signal, 0, 0, 0, 0, 0]);
    assert!(trace.is_complete(), "{}", trace.reasons);
    let inside = PLACE.load(Ordering::Relaxed).wrapping_sub(memory as u64);
    assert!(
        inside < crate::code::PAGES as u64,
        "a large stack stays the program's"
    );
    signal_stack(Some(&before));
}

pub(crate) fn a_pending_signal_is_noted() {
    count_on(libc::SIGALRM);
    let spin = Routine::of(&[0x89, 0xf9, 0xff, 0xc9, 0x75, 0xfc, 0xc3]);
    let (_, trace) = spin.trace([100, 0, 0, 0, 0, 0]);
    assert!(!trace.assumed.contains(&Fact::SignalPending));
    let every = |microseconds| {
        let time = libc::timeval {
            tv_sec: 0,
            tv_usec: microseconds,
        };
        let timer = libc::itimerval {
            it_interval: time,
            it_value: time,
        };
        assert_eq!(
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) },
            0
        );
    };
    let mut options = quiet();
    options.budget.time = std::time::Duration::from_secs(20);
    every(500);
    let (_, trace) = unsafe { HwTrace::call(spin.at, [10_000, 0, 0, 0, 0, 0], options) };
    every(0);
    assert!(SEEN.load(Ordering::Relaxed) > 1);
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert!(trace.assumed.contains(&Fact::SignalPending));
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn scalpel_scope_calls_probed(value: u64) -> u64 {
    std::hint::black_box(scalpel_scope_probed(value)) + std::hint::black_box(1)
}

pub(crate) fn a_return_probe_in_the_code_is_exact() {
    let probed = scalpel_scope_probed as *const ();
    let caller = scalpel_scope_calls_probed as *const ();
    let before = [probed, caller].map(|function| call(function, [4, 0, 0, 0, 0, 0]).1);
    let _probe = probe(probed as u64, 1).unwrap();
    for ((function, result), before) in [(probed, 13), (caller, 14)].into_iter().zip(before) {
        let (got, trace) = call(function, [4, 0, 0, 0, 0, 0]);
        assert_eq!(got, result);
        assert!(trace.is_complete(), "{}", trace.reasons);
        assert_eq!(trace.code, before.code, "no trampoline is shown");
        assert!(trace.addresses().eq(before.addresses()));
    }
}
