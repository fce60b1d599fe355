//! scalpel's BPF programs: the entry points. What they do is in the file of their family.
//!
//! The call programs stand in plain `uprobe` sections: the collector loads them with the attach type it needs, for
//! which aya has no section names (`uprobe session`). They do without aya's `#[uprobe]`, whose wrapper always answers
//! 0, because a session program's answer decides whether the return is probed.
//!
//! The stack: since Linux 6.13 a function of a program that takes 64 bytes of stack or more (in steps of 16: more than
//! 48) gets it from memory that belongs to the processor, and a call program that is preempted there by another would
//! find it overwritten (a76ab5731e32, `check_max_stack_depth_subprog` in kernel/bpf/verifier.c). So no function of a
//! call program takes more than 48: what needs more is cut in functions that are not inlined, reads again what is cheap
//! to read, and builds the event where it stays. A test of the collector (`kernel/object.rs`) measures it.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
// Inline assembly for an atomic add: `build-ebpf` builds with the nightly features that BPF needs anyhow.
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

mod add;
mod bare;
mod call;
mod cells;
mod complete;
mod count;
mod emit;
mod fields;
mod guard;
mod maps;
mod process;
mod registers;
mod sample;
mod sched;
mod thread;
mod timed;
mod wait;

use core::ffi::c_void;

use aya_ebpf::macros::{btf_tracepoint, perf_event};
use aya_ebpf::programs::{BtfTracePointContext, PerfEventContext};

/// The kernel lets programs with this licence read its structures and call its tracing helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

macro_rules! call_programs {
    ($($(#[$doc:meta])* $name:ident = $body:path;)+) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[unsafe(link_section = "uprobe")]
            fn $name(ctx: *mut c_void) -> u32 {
                $body(&call::Hit::new(ctx))
            }
        )+
    };
}

call_programs! {
    /// ENTER and EXIT, in a session.
    call_session = call::session;
    /// ENTER; nobody will see the end.
    call_entry = call::entry_only;
    /// ENTER; another program sees the end.
    call_enter = call::enter;
    /// EXIT at a `ret` instruction.
    call_ret = call::ret;
    /// EXIT by a return probe without a session.
    call_return = call::returned;
    /// COMPLETE, in a session.
    call_complete = complete::session;
    /// A cell, times and histograms, in a session.
    count_session = count::session;
    /// A cell; nobody will see the end.
    count_entry = count::entry_only;
    /// A cell; another program sees the end.
    count_enter = count::enter;
    /// Times at a `ret` instruction.
    count_ret = count::ret;
    /// Times by a return probe without a session.
    count_return = count::returned;
    /// The bench's floor: nothing.
    bare_empty = bare::empty;
    /// The bench's floor: two records.
    bare_two_records = bare::two_records;
}

#[btf_tracepoint(function = "sched_switch")]
fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    sched::switch(&ctx);
    0
}

#[btf_tracepoint(function = "sched_process_fork")]
fn process_fork(ctx: BtfTracePointContext) -> i32 {
    process::fork(ctx.arg(0), ctx.arg(1));
    0
}

#[btf_tracepoint(function = "sched_process_exec")]
fn process_exec(ctx: BtfTracePointContext) -> i32 {
    process::exec(ctx.arg(0), ctx.arg(2));
    0
}

#[btf_tracepoint(function = "sched_process_exit")]
fn process_exit(ctx: BtfTracePointContext) -> i32 {
    process::exit(&ctx);
    0
}

#[perf_event]
fn sample(ctx: PerfEventContext) -> u32 {
    sample::take(ctx.ctx);
    0
}

/// Run when the collector reads the iterator's file, once a task; aya-ebpf has no macro for it.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
fn thread_registers(ctx: *const registers::IteratedTask) -> i32 {
    registers::tell(ctx);
    0
}

/// Run once, when the recording ends.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
fn open_waits(ctx: *const registers::IteratedTask) -> i32 {
    sched::tell_open(ctx);
    0
}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// On the host there is nothing to run: clippy alone reads this package there.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
