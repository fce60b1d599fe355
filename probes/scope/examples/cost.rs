//! What scopes cost on this machine, one figure a line: the bare trap and a step, a block that runs from a copy, a callee at
//! full speed, a step by ptrace, the oracle and the text. With the argument `native TURNS` it only runs the loop, so that
//! other tools can be set on it.
#![expect(clippy::print_stdout, reason = "an example shows what it gets")]
#![expect(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "the loops, and a handler to compare with"
)]
use std::arch::{asm, global_asm};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use scalpel_scope::symbol::ProcessSymbols;
use scalpel_scope::{Budget, Code, Emit, HwBackend, HwTrace, Options, Trace, oracle, render};

global_asm!(
    // Three blocks a turn: an indirect call, a return, and the loop's end.
    ".globl scope_cost_loop",
    ".type scope_cost_loop, @function",
    "scope_cost_loop:",
    "lea rsi, [rip + scope_cost_leaf]",
    "1: call rsi",
    "dec rdi",
    "jnz 1b",
    "ret",
    "scope_cost_leaf: ret",
    ".size scope_cost_loop, .-scope_cost_loop",
    // Two blocks a turn, joined to each other.
    ".globl scope_cost_chain",
    "scope_cost_chain:",
    "1: test rdi, rdi",
    "jz 2f",
    "dec rdi",
    "jmp 1b",
    "2: ret",
    // Calls what is outside of it.
    ".globl scope_cost_calls",
    ".type scope_cost_calls, @function",
    "scope_cost_calls:",
    "push rbx",
    "mov rbx, rdi",
    "1: call scope_cost_callee",
    "dec rbx",
    "jnz 1b",
    "pop rbx",
    "ret",
    ".size scope_cost_calls, .-scope_cost_calls",
    ".globl scope_cost_callee",
    "scope_cost_callee: ret",
);

unsafe extern "C" {
    fn scope_cost_loop(turns: u64);
    fn scope_cost_chain(turns: u64);
    fn scope_cost_calls(turns: u64);
}

/// Turns of what takes a trap each instruction, of what does not, and of calls.
const STEPPED: u64 = 5_000;
const COPIED: u64 = 100_000;
const CALLS: u64 = 1_000;

/// ns that the last `timed` took.
static TOOK: AtomicU64 = AtomicU64::new(0);

/// Runs a loop within the scope and notes its time: opening and closing are not in it.
extern "C" fn timed(function: u64, turns: u64) {
    let function: extern "C" fn(u64) = unsafe { std::mem::transmute(function) };
    let begun = Instant::now();
    function(turns);
    let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    TOOK.store(took, Ordering::Relaxed);
}

fn options(backend: HwBackend) -> Options {
    Options {
        backend,
        emit: Emit::Off,
        budget: Budget {
            time: Duration::from_secs(60),
            ..Budget::default()
        },
    }
}

fn show(what: &str, value: f64) {
    println!("{what}\t{value:.3}");
}

fn each(took: u64, count: u64) -> f64 {
    took as f64 / count as f64
}

extern "C" fn nothing(_: i32) {}

/// ns a trap with a handler that returns at once. It goes first: the scope's handler stays for ever.
fn bare_trap() -> f64 {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut());
    }
    let begun = Instant::now();
    unsafe {
        asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        scope_cost_loop(STEPPED);
        asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq");
    }
    let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    each(took, 4 * STEPPED)
}

/// ns a step or a block, and the trace.
fn traced(backend: HwBackend, function: usize, turns: u64, parts: u64) -> (f64, Trace) {
    let args = [function as u64, turns, 0, 0, 0, 0];
    let (_, trace) = unsafe { HwTrace::call(timed as *const () as usize, args, options(backend)) };
    assert!(trace.is_complete(), "{}", trace.reasons);
    (each(TOOK.load(Ordering::Relaxed), parts * turns), trace)
}

/// ns, traps and ioctls a call that leaves its region, with what the region itself takes around it.
fn call_outs() {
    let Some(code) = Code::function(scope_cost_calls as *const () as usize) else {
        return;
    };
    let mut scope = HwTrace::scope_with(&code, options(HwBackend::Auto));
    timed(scope_cost_calls as *const () as u64, CALLS);
    let Ok(trace) = scope.close() else {
        return;
    };
    assert!(trace.is_complete(), "{}", trace.reasons);
    if trace.call_outs.calls == CALLS {
        show("a call-out", each(TOOK.load(Ordering::Relaxed), CALLS));
        show("traps of a call-out", each(trace.traps, CALLS));
        show("ioctls of a call-out", each(trace.call_outs.ioctls, CALLS));
    }
}

/// ns a step by ptrace, with the registers read, from the same processor.
fn ptrace_step() -> Option<f64> {
    const STEPS: u64 = 2_000;
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).ok()?, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        let child = libc::fork();
        if child == 0 {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            scope_cost_loop(STEPS);
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        let begun = Instant::now();
        for _ in 0..STEPS {
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0);
            libc::waitpid(child, &raw mut status, 0);
            libc::ptrace(libc::PTRACE_GETREGS, child, 0, &raw mut registers);
        }
        let took = u64::try_from(begun.elapsed().as_nanos()).ok()?;
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &raw mut status, 0);
        libc::WIFSTOPPED(status);
        Some(each(took, STEPS))
    }
}

/// ns a distinct instruction as text, names known.
fn rendering() -> f64 {
    let args = [c"HOME".as_ptr() as u64, 0, 0, 0, 0, 0];
    let getenv = libc::getenv as *const () as usize;
    let (_, trace) = unsafe { HwTrace::call(getenv, args, options(HwBackend::SingleStep)) };
    let mut symbols = ProcessSymbols::new();
    drop(render::full(&trace, &mut symbols, render::Syntax::Intel));
    let begun = Instant::now();
    drop(render::full(&trace, &mut symbols, render::Syntax::Intel));
    begun.elapsed().as_nanos() as f64 / trace.code.len() as f64
}

fn all() {
    show("a bare trap", bare_trap());
    let (looped, chained) = (scope_cost_loop as *const (), scope_cost_chain as *const ());
    let (step, _) = traced(HwBackend::SingleStep, looped as usize, STEPPED, 4);
    show("a step", step);
    let (block, trace) = traced(HwBackend::Auto, looped as usize, COPIED, 3);
    show("a block of a copy, by the dispatcher", block);
    let begun = Instant::now();
    std::hint::black_box(oracle::check(&trace));
    show(
        "the oracle, a step of a trace",
        begun.elapsed().as_nanos() as f64 / trace.steps.len() as f64,
    );
    let (block, _) = traced(HwBackend::Auto, chained as usize, COPIED, 2);
    show("a block of a copy, joined", block);
    call_outs();
    if let Some(step) = ptrace_step() {
        show("a step by ptrace", step);
    }
    show("text, a distinct instruction", rendering());
}

fn main() {
    let args: Vec<_> = std::env::args().collect();
    match args.get(1..).unwrap_or_default() {
        [native, turns] if native == "native" => {
            let turns = turns.parse().unwrap_or(COPIED);
            timed(scope_cost_loop as *const () as u64, turns);
            show("a block", each(TOOK.load(Ordering::Relaxed), 3 * turns));
        }
        _ => all(),
    }
}
