//! `sched_switch`: how long each thread that has had an event was off the processor, and when threads of processes with
//! probes of their own go on.
//!
//! Runs at every switch of the host. A thread without state, as all strangers are, costs one look at its (empty)
//! storage, and one at the set of watched processes while there are any with such probes.

use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use scalpel_common::kernel::{Settings, ThreadState, process_flags, settings_flags};

use crate::fields::Task;
use crate::maps::{THREADS, WATCHED};
use crate::{emit, thread};

/// `previous` leaves the processor for `next`.
#[inline(always)]
pub(crate) fn switch(previous: *const task_struct, next: *const task_struct) {
    let previous = Task::new(previous);
    if let Some(state) = THREADS.state(previous) {
        leave(state, previous);
    }
    let next = Task::new(next);
    let known = THREADS.state(next);
    if let Some(state) = known {
        arrive(state);
    }
    if let Some(settings) = thread::settings()
        && tells_switches(settings, next)
        && let Some(state) = known.or_else(|| thread::begin(settings, next))
    {
        emit::switched_in(state, u64::from(next.pid()) << 32 | u64::from(next.tid()));
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
