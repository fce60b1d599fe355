//! What a step costs on this machine: a loop of a known number of instructions, traced and native, and the bare trap
//! (the same loop under a handler that does nothing but keep the flag).
#![expect(clippy::print_stdout, reason = "an example shows what it gets")]
#![expect(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "the loop, and a handler to compare with"
)]
use std::arch::{asm, global_asm};
use std::time::{Duration, Instant};

use scalpel_scope::{Budget, Emit, HwTrace, Options, render, symbol::ProcessSymbols};

global_asm!(
    ".globl scope_cost_loop",
    "scope_cost_loop:",
    "1: dec rdi",
    "jnz 1b",
    "ret",
);

unsafe extern "C" {
    fn scope_cost_loop(turns: u64);
}

const TURNS: u64 = 10_000;
const PASSES: usize = 9;

extern "C" fn nothing(_: i32) {}

/// ns per instruction with a handler that returns at once.
fn bare() -> f64 {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut());
    }
    let begun = Instant::now();
    unsafe {
        asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        scope_cost_loop(TURNS);
        asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq");
    }
    per_instruction(begun.elapsed())
}

fn scoped() -> f64 {
    let options = Options {
        emit: Emit::Off,
        budget: Budget {
            time: Duration::from_secs(60),
            ..Budget::default()
        },
        ..Options::default()
    };
    let begun = Instant::now();
    let args = [TURNS, 0, 0, 0, 0, 0];
    let (_, trace) = unsafe { HwTrace::call(scope_cost_loop as *const () as usize, args, options) };
    let cost = per_instruction(begun.elapsed());
    assert!(trace.is_complete() && trace.counted == 2 * TURNS + 1);
    cost
}

fn per_instruction(time: Duration) -> f64 {
    time.as_nanos() as f64 / (2 * TURNS) as f64
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..PASSES).map(|_| run()).collect();
    all.sort_by(f64::total_cmp);
    all.get(PASSES / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    // The bare trap goes first: the scope's handler stays for ever.
    let bare = median(bare);
    let scoped = median(scoped);
    println!(
        "bare trap {bare:.0} ns, scope {scoped:.0} ns an instruction, close included: {:.2}x",
        scoped / bare
    );
    let options = Options {
        emit: Emit::Off,
        ..Options::default()
    };
    let args = [c"HOME".as_ptr() as u64, 0, 0, 0, 0, 0];
    let (_, trace) = unsafe { HwTrace::call(libc::getenv as *const () as usize, args, options) };
    let mut symbols = ProcessSymbols::new();
    drop(render::full(&trace, &mut symbols, render::Syntax::Intel));
    let begun = Instant::now();
    drop(render::full(&trace, &mut symbols, render::Syntax::Intel));
    let each = begun.elapsed().as_nanos() as f64 / trace.code.len() as f64;
    println!(
        "rendering: {each:.0} ns a distinct instruction of {}",
        trace.code.len()
    );
}
