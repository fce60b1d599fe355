//! What the surface promises: nesting, order, forms, tiers, and nothing before the first open.
use std::panic::{AssertUnwindSafe, catch_unwind};

use scalpel_scope::handles::{self, Handle, Pause};
use scalpel_scope::render::{self, Syntax};
use scalpel_scope::symbol::ProcessSymbols;
use scalpel_scope::{Emit, Ending, HwBackend, HwTrace, Options, Reasons, ScopeError, Site};

use crate::code::{Routine, quiet, stepped};
use crate::heap;

fn three() -> Routine {
    Routine::of(&[0x90, 0x31, 0xc0, 0xc3])
}

pub(crate) fn sixteen_scopes_nest_and_the_seventeenth_is_skipped() {
    let routine = three();
    let code = routine.code();
    let mut options = quiet();
    options.budget.time = std::time::Duration::from_secs(30);
    let mut scopes: Vec<_> = (0..17)
        .map(|_| HwTrace::scope_with(&code, options))
        .collect();
    let mut last = scopes.pop().unwrap();
    let skipped = last.close().unwrap().skip_reason;
    routine.run([0; 6]);
    let mut traces = Vec::new();
    while let Some(mut scope) = scopes.pop() {
        traces.push(scope.close().unwrap());
    }
    assert!(skipped.unwrap().contains("16"));
    assert_eq!(traces.len(), 16);
    for trace in traces {
        assert!(trace.is_complete(), "{}", trace.reasons);
        assert_eq!(routine.offsets(&trace), [0, 1, 3]);
    }
}

pub(crate) fn a_wrong_order_is_an_error_and_a_reason() {
    let routine = three();
    let mut outer = HwTrace::scope(&routine.code(), Emit::Off);
    let mut inner = HwTrace::scope(&routine.code(), Emit::Off);
    assert_eq!(outer.close().unwrap_err(), ScopeError::WrongOrder);
    routine.run([0; 6]);
    drop(outer);
    routine.run([0; 6]);
    let trace = inner.close().unwrap();
    assert_eq!(routine.offsets(&trace), [0, 1, 3, 0, 1, 3]);
}

pub(crate) fn a_double_close_is_an_error() {
    let mut scope = HwTrace::window(quiet());
    scope.close().unwrap();
    assert_eq!(scope.close().unwrap_err(), ScopeError::AlreadyClosed);
}

pub(crate) fn handles_are_never_used_twice() {
    let (routine, site) = (three(), Site::at("here", 1, 0));
    let pause = Pause::begin();
    let form = routine.code().region();
    let first = handles::open(&pause, form, quiet(), site);
    assert!(handles::close(&pause, first, Ending::Close).is_ok());
    let second = handles::open(&pause, form, quiet(), site);
    assert_ne!(first, second);
    let stale = handles::close(&pause, first, Ending::Abandon);
    assert_eq!(stale.unwrap_err(), ScopeError::AlreadyClosed);
    for number in [0, 7, second.number() + 1, second.number() + 1024, u64::MAX] {
        let none = handles::close(&pause, Handle::of(number), Ending::Abandon);
        let wrong = none.unwrap_err();
        assert!(wrong == ScopeError::NoSuchScope || wrong == ScopeError::AlreadyClosed);
    }
    drop(pause);
    routine.run([0; 6]);
    let pause = Pause::begin();
    let trace = handles::close(&pause, second, Ending::Suspend).unwrap();
    assert_eq!(trace.reasons, Reasons::SUSPENDED);
    assert_eq!(routine.offsets(&trace), [0, 1, 3]);
}

pub(crate) fn a_thread_records_again_after_its_scopes_were_closed_elsewhere() {
    let routine = three();
    for _ in 0..40 {
        let pause = Pause::begin();
        let handle = handles::open(&pause, routine.code().region(), quiet(), Site::here());
        drop(pause);
        let elsewhere = move || {
            let pause = Pause::begin();
            let refused = handles::close(&pause, handle, Ending::Close);
            assert_eq!(refused.unwrap_err(), ScopeError::OtherThread);
            handles::close(&pause, handle, Ending::Abandon).unwrap()
        };
        let trace = std::thread::spawn(elsewhere).join().unwrap();
        assert!(trace.reasons.contains(Reasons::THREAD_HOP));
        routine.expect([0; 6], Some(0), &[0, 1, 3]);
    }
}

pub(crate) fn a_region_shows_its_instructions_only() {
    // nop; call rdi; ret, with a callee elsewhere
    let routine = Routine::of(&[0x90, 0x50, 0xff, 0xd7, 0x58, 0xc3]);
    let callee = three();
    let mut scope = HwTrace::scope(&routine.code(), Emit::Off);
    routine.run([callee.at as u64, 0, 0, 0, 0, 0]);
    routine.run([callee.at as u64, 0, 0, 0, 0, 0]);
    let trace = scope.close().unwrap();
    assert!(trace.is_complete(), "{}", trace.reasons);
    assert_eq!(routine.offsets(&trace), [0, 1, 2, 4, 5, 0, 1, 2, 4, 5]);
}

pub(crate) fn a_window_sees_what_the_thread_runs() {
    let routine = three();
    let mut scope = HwTrace::window(quiet());
    routine.run([0; 6]);
    let trace = scope.close().unwrap();
    assert!(trace.is_complete(), "{}", trace.reasons);
    let inside: Vec<_> = routine
        .offsets(&trace)
        .into_iter()
        .filter(|at| *at < 4)
        .collect();
    assert_eq!(inside, [0, 1, 3]);
    assert!(trace.counted > 5);
}

pub(crate) fn an_inner_scope_leaves_the_outer_one_complete() {
    let routine = three();
    let mut outer = HwTrace::window(quiet());
    let (_, inner) = routine.trace([0; 6]);
    routine.run([0; 6]);
    let trace = outer.close().unwrap();
    assert!(inner.is_complete(), "{}", inner.reasons);
    assert!(trace.is_complete(), "{}", trace.reasons);
    let inside: Vec<_> = routine
        .offsets(&trace)
        .into_iter()
        .filter(|at| *at < 4)
        .collect();
    assert_eq!(inside, [0, 1, 3, 0, 1, 3]);
}

pub(crate) fn scopes_are_turned_off_by_the_environment() {
    let (_, trace) = three().trace([0; 6]);
    assert_eq!(trace.skip_reason.as_deref(), Some("SCALPEL_SCOPE=off"));
    assert!(!trace.is_complete());
    // They cost nothing: no heap, no handler.
    let options = quiet();
    let before = heap::taken();
    for _ in 0..1_000 {
        let mut scope = HwTrace::window(options);
        drop(scope.close().unwrap());
    }
    assert_eq!(heap::taken(), before);
    assert!(!is_handled());
}

pub(crate) fn a_named_tier_is_never_replaced() {
    for (backend, name) in [
        (HwBackend::IntelPt, "intel-pt"),
        (HwBackend::AmdLbr, "amd-lbr"),
    ] {
        let options = Options { backend, ..quiet() };
        let mut scope = HwTrace::window(options);
        let trace = scope.close().unwrap();
        assert!(trace.skip_reason.unwrap().starts_with(name));
        assert!(trace.steps.is_empty());
    }
}

pub(crate) fn nothing_is_installed_before_the_first_open() {
    assert!(!is_handled());
    three().trace([0; 6]);
    assert!(is_handled(), "and it stays");
}

/// Whether this process handles SIGTRAP.
fn is_handled() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
    caught & 1 << (libc::SIGTRAP - 1) != 0
}

pub(crate) fn a_site_sleeps_when_its_budget_is_spent() {
    // mov ecx, edi; dec ecx; jnz; ret
    let routine = Routine::of(&[0x89, 0xf9, 0xff, 0xc9, 0x75, 0xfc, 0xc3]);
    let mut skipped = None;
    for _ in 0..20 {
        let args = [60_000, 0, 0, 0, 0, 0];
        let (_, trace) = unsafe { HwTrace::call(routine.at, args, stepped()) };
        skipped = trace.skip_reason;
        if skipped.is_some() {
            break;
        }
        assert_eq!(trace.reasons, Reasons::BUDGET);
    }
    assert!(skipped.unwrap().starts_with("budget spent"));
}

pub(crate) fn a_debugger_is_a_reason_to_skip() {
    let child = unsafe { libc::fork() };
    if child == 0 {
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        let (_, trace) = three().trace([0; 6]);
        let skipped = trace
            .skip_reason
            .is_some_and(|why| why.contains("TracerPid"));
        let denied = std::env::var("SCALPEL_TEST_GATE").is_ok_and(|gate| gate == "seccomp");
        unsafe { libc::_exit(i32::from(skipped == denied)) };
    }
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
}

pub(crate) fn a_panic_through_a_scope_closes_it() {
    let thrown = catch_unwind(AssertUnwindSafe(|| {
        let _scope = HwTrace::scope(&three().code(), Emit::Off);
        std::panic::resume_unwind(Box::new(1));
    }));
    assert!(thrown.is_err());
    three().expect([0; 6], Some(0), &[0, 1, 3]);
}

pub(crate) fn renderings_say_what_ran() {
    // mov ecx, 3; loop $; ret
    let routine = Routine::of(&[0xb9, 3, 0, 0, 0, 0xe2, 0xfe, 0xc3]);
    let (_, trace) = routine.trace([0; 6]);
    let mut symbols = ProcessSymbols::new();
    let full = render::full(&trace, &mut symbols, Syntax::Intel);
    assert!(
        full.contains("mov ecx, 3") && full.contains(" x3"),
        "{full}"
    );
    assert!(
        full.starts_with("5 instructions (single-step), complete"),
        "{full}"
    );
    let att = render::full(&trace, &mut symbols, Syntax::Att);
    assert!(att.contains("movl $3, %ecx"), "{att}");
    let json = render::json(&trace, &mut symbols, Syntax::Intel).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["status"], "complete");
    assert_eq!(json["instructions"], 5);
    assert_eq!(json["skip_reason"], serde_json::Value::Null);
    assert_eq!(json["trace"].as_array().unwrap().len(), 5);
    assert_eq!(json["trace"][1]["bytes"], "e2fe");
    let clock = libc::getenv as *const () as usize;
    let args = [c"SCALPEL_NO_SUCH_NAME".as_ptr() as u64, 0, 0, 0, 0, 0];
    let (_, trace) = unsafe {
        HwTrace::call(
            clock,
            args,
            Options {
                emit: Emit::Off,
                ..quiet()
            },
        )
    };
    let tree = render::tree(&trace, &mut symbols, render::TREE_LINES);
    assert!(tree.contains("getenv"), "{tree}");
    assert!(tree.lines().count() <= render::TREE_LINES);
    assert!(!capstone::Capstone::is_diet());
    let own = scalpel_scope_shown as *const () as usize;
    let (_, trace) = unsafe { HwTrace::call(own, [3, 0, 0, 0, 0, 0], quiet()) };
    let full = render::full(&trace, &mut symbols, Syntax::Intel);
    assert!(full.contains("scalpel_scope_shown:\n  "), "{full}");
    let lines = full.lines().filter(|line| line.contains("surface.rs:"));
    assert!(lines.count() >= 1, "{full}");
    let json = render::json(&trace, &mut symbols, Syntax::Intel).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(
        json["trace"][0]["line"]
            .as_str()
            .unwrap()
            .contains("surface.rs:")
    );
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn scalpel_scope_shown(value: u64) -> u64 {
    std::hint::black_box(value) + 2
}

/// A handler of SIGTRAP as another copy of the engine has it: behind its mark.
pub(crate) fn another_engine_is_a_reason_to_skip() {
    let mut code = b"scalpel/sigtrap\n".to_vec();
    code.push(0xc3);
    let other = Routine::of(&code);
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = other.at + 16;
    let set = || unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()) };
    assert_eq!(set(), 0);
    let mut scope = HwTrace::window(quiet());
    let trace = scope.close().unwrap();
    let why = trace.skip_reason.expect("a reason");
    assert!(why.contains("another copy of the scope engine"), "{why}");
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    unsafe { libc::sigaction(libc::SIGTRAP, std::ptr::null(), &raw mut now) };
    assert_eq!(now.sa_sigaction, action.sa_sigaction, "it is left alone");
}
