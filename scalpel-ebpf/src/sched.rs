//! `sched_switch`: how long each thread that has had an event was off the processor, and when threads of processes with
//! probes of their own go on.
//!
//! Runs at every switch of the host. A thread without state, as all strangers are, costs one look at its (empty)
//! storage, and one at the set of watched processes while there are any with such probes.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::BtfTracePointContext;
use scalpel_common::kernel::{Settings, ThreadState, process_flags, settings_flags};

use crate::fields::Task;
use crate::maps::{THREADS, WATCHED};
use crate::registers::IteratedTask;
use crate::{emit, thread, wait};

/// One thread leaves the processor for another one.
#[inline(always)]
pub(crate) fn switch(ctx: &BtfTracePointContext) {
    let settings = thread::settings();
    let previous = Task::new(ctx.arg(1));
    if let Some(state) = THREADS.state(previous) {
        leave(state, previous);
    }
    if let Some(settings) = settings
        && wait::are_told(settings)
    {
        // SAFETY: the tracepoint's first argument, a bool that fills its word.
        let preempted = unsafe { ctx.as_ptr().cast::<u64>().read_volatile() } & 1 != 0;
        begin_wait(settings, previous, preempted);
    }
    let next = Task::new(ctx.arg(2));
    let known = THREADS.state(next);
    if let Some(state) = known {
        arrive(state);
    }
    if let Some(settings) = settings
        && wait::are_told(settings)
        && let Some(state) = known
    {
        wait::end(settings, state, next);
    }
    if let Some(settings) = settings
        && tells_switches(settings, next)
        && let Some(state) = known.or_else(|| thread::begin(settings, next))
    {
        emit::switched_in(state, u64::from(next.pid()) << 32 | u64::from(next.tid()));
    }
}

/// The thread has left. One that has had no event has no state yet.
#[inline(always)]
fn begin_wait(settings: &Settings, task: Task, preempted: bool) {
    if let Some(state) = THREADS.state(task) {
        return wait::begin(settings, state, task, preempted);
    }
    if let Some(state) = thread::watched(settings, task, task.pid()) {
        leave(state, task);
        wait::begin(settings, state, task, preempted);
    }
}

/// Tells the waits of a thread that have not been told.
#[inline(always)]
pub(crate) fn tell_open(ctx: *const IteratedTask) {
    if let Some(task) = IteratedTask::thread(ctx)
        && let Some(state) = THREADS.state(task)
    {
        wait::tell_open(state, task);
    }
}

/// Whether the thread's process has probes that cannot tell CPU time themselves.
#[inline(always)]
fn tells_switches(settings: &Settings, task: Task) -> bool {
    if settings.flags & settings_flags::SWITCHES == 0 {
        return false;
    }
    let Some(process) = WATCHED.get_ptr(task.pid()) else {
        return false;
    };
    // SAFETY: the entry lives as long as the program; the collector writes the flags.
    unsafe { (&raw const (*process).flags).read_volatile() & process_flags::SWITCHES != 0 }
}

#[inline(always)]
fn leave(state: *mut ThreadState, task: Task) {
    // SAFETY: the helper has no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the storage lives as long as the thread, which is at rest here: the switch runs on behalf of it.
    let state = unsafe { &mut *state };
    state.off_cpu_ns = state
        .off_cpu_ns
        .wrapping_add(thread::off_untold(state, task, now));
    state.switched_out_at = now;
    state.ran_at_leave = task.ran();
    state.switches = state.switches.wrapping_add(1);
}

#[inline(always)]
fn arrive(state: *mut ThreadState) {
    // SAFETY: as in `leave`.
    let state = unsafe { &mut *state };
    if state.switched_out_at != 0 {
        // SAFETY: the helper has no precondition.
        let now = unsafe { bpf_ktime_get_ns() };
        state.off_cpu_ns = state
            .off_cpu_ns
            .wrapping_add(now.wrapping_sub(state.switched_out_at));
        state.switched_out_at = 0;
    }
    state.switches = state.switches.wrapping_add(1);
}
