//! `sched_switch`: how long each thread that has had an event was off the processor.
//!
//! Runs at every switch of the host. A thread without state, as all strangers are, costs one look at its (empty)
//! storage.

use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use scalpel_common::kernel::ThreadState;

use crate::fields::Task;
use crate::maps::THREADS;

/// `previous` leaves the processor for `next`.
#[inline(always)]
pub(crate) fn switch(previous: *const task_struct, next: *const task_struct) {
    if let Some(state) = THREADS.get(Task::new(previous)) {
        leave(state);
    }
    if let Some(state) = THREADS.get(Task::new(next)) {
        arrive(state);
    }
}

#[inline(always)]
fn leave(state: *mut ThreadState) {
    // SAFETY: the storage lives as long as the thread, which is at rest here: the switch runs on behalf of it.
    let state = unsafe { &mut *state };
    // SAFETY: the helper has no precondition.
    state.switched_out_at = unsafe { bpf_ktime_get_ns() };
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
