//! Off-CPU time by stacks: where a thread is when it leaves the processor is kept with the thread, and told when it goes on.
//!
//! Every wait costs the copy of a stack, long or not: how long it will be is not known when it begins, and when it ends the
//! thread's memory is out of reach, as the switch runs in the memory of whom it leaves.

use core::ffi::c_void;
use core::ptr;

use aya_ebpf::bindings::{BPF_RB_NO_WAKEUP, pt_regs};
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::{bpf_probe_read_user, bpf_ringbuf_output, bpf_task_pt_regs};
use scalpel_common::event::{CPU_NOT_MEASURED, Event, Kind, Source, flags};
use scalpel_common::kernel::{LossClass, MAX_RETURN_DEPTH, Settings, ThreadState, settings_flags};
use scalpel_common::wait::{WAIT_BLOCK, WAIT_STACK, Wait, WaitHeader};

use crate::emit;
use crate::fields::{
    RETURN_INSTANCE_NEXT, RETURN_INSTANCE_ORIGINAL, RETURN_INSTANCE_STACK, TASK_IO_WAIT,
    TASK_IO_WAIT_MASK, TASK_MM, TASK_STATE, TASK_UTASK, Task, UTASK_RETURN_INSTANCES,
};
use crate::guard;
use crate::maps::{SAMPLE_RING, WAITS};

/// Whether waits are told.
#[inline(always)]
pub(crate) fn are_told(settings: &Settings) -> bool {
    // Read anew each time: a flag that is kept makes a mask of the pointer to the settings, which the verifier refuses.
    // SAFETY: the slot lives as long as the program; the collector writes it.
    let flags = unsafe { (&raw const settings.flags).read_volatile() };
    flags & settings_flags::WAITS != 0
}

/// The running thread leaves its processor: `state` has its time off the processor up to now.
#[inline(always)]
pub(crate) fn begin(settings: &Settings, state: *mut ThreadState, task: Task, preempted: bool) {
    // A thread that ends has no memory any more, and does not come back.
    if task.fields().follow(&TASK_MM).is_null() {
        return;
    }
    let Some(wait) = WAITS.get_or_insert(task, ptr::null_mut()) else {
        return emit::count_class(LossClass::Wait);
    };
    // SAFETY: the storage lives as long as the thread, which is at rest from here on.
    let wait = unsafe { &mut *wait };
    // Its last arrival was not told: see `thread::off_untold`.
    tell(settings.wait_min_ns, state, task, wait, 0);
    // SAFETY: the task is a BTF pointer, as the verifier checks.
    let regs = unsafe { bpf_task_pt_regs(task.as_ptr()) } as *const pt_regs;
    // SAFETY: loads through a BTF pointer, which the verifier checks against the kernel's `struct pt_regs`.
    let (ip, sp, bp) = unsafe {
        (
            (&raw const (*regs).rip).read_volatile(),
            (&raw const (*regs).rsp).read_volatile(),
            (&raw const (*regs).rbp).read_volatile(),
        )
    };
    wait.head.event.flags = why(task, preempted);
    wait.head.event.site = ip;
    wait.head.event.frame = sp;
    wait.head.bp = bp;
    let stack = wait.stack.as_mut_ptr();
    wait.head.stack_bytes = copy(sp, stack);
    restore(task, sp, stack);
    // SAFETY: the state is the thread's own, which is at rest.
    wait.off_before = unsafe { (*state).off_cpu_ns };
    wait.pending = 1;
}

/// A thread goes on: `state` has its time off the processor up to now.
#[inline(always)]
pub(crate) fn end(settings: &Settings, state: *mut ThreadState, task: Task) {
    let Some(wait) = WAITS.get(task) else {
        return;
    };
    // SAFETY: as in `begin`: it does not run yet.
    let wait = unsafe { &mut *wait };
    tell(settings.wait_min_ns, state, task, wait, 0);
}

/// Tells the wait of a thread as it stands, and what was only added up until now. Nobody else may write it meanwhile: the
/// collector has switched the telling off.
#[inline(always)]
pub(crate) fn tell_open(state: *mut ThreadState, task: Task) {
    let Some(wait) = WAITS.get(task) else {
        return;
    };
    // SAFETY: the storage lives as long as the thread, which the iterator holds.
    let wait = unsafe { &mut *wait };
    // SAFETY: as above.
    let thread = unsafe { &*state };
    let since = match thread.switched_out_at {
        0 => 0,
        // SAFETY: the helper has no precondition.
        left => unsafe { bpf_ktime_get_ns() }.wrapping_sub(left),
    };
    tell(0, state, task, wait, since);
    tell_sum(task, wait);
}

/// The running thread ends: what was only added up of it would go with it.
#[inline(always)]
pub(crate) fn tell_last(task: Task) {
    if let Some(wait) = WAITS.get(task) {
        // SAFETY: the storage of the running thread; its switches are not while this runs, or find it as it is left.
        tell_sum(task, unsafe { &mut *wait });
    }
}

#[inline(always)]
fn tell_sum(task: Task, wait: &mut Wait) {
    if wait.head.short_waits != 0 {
        wait.head.stack_bytes = 0;
        wait.head.event.site = 0;
        send(task, wait, 0);
    }
}

/// The wait that has ended, if there is one, in full or in the sum of those that are too short. `more` came to it beside
/// what `state` has.
#[inline(always)]
fn tell(least_ns: u64, state: *mut ThreadState, task: Task, wait: &mut Wait, more: u64) {
    if wait.pending == 0 {
        return;
    }
    wait.pending = 0;
    // SAFETY: as in `begin`.
    let sum = unsafe { (*state).off_cpu_ns };
    let off = sum.wrapping_sub(wait.off_before).wrapping_add(more);
    if off < least_ns {
        return add(wait, off);
    }
    send(task, wait, off);
}

#[inline(always)]
fn add(wait: &mut Wait, off: u64) {
    wait.head.short_ns = wait.head.short_ns.wrapping_add(off);
    wait.head.short_waits = wait.head.short_waits.wrapping_add(1);
}

#[inline(always)]
fn send(task: Task, wait: &mut Wait, off: u64) {
    wait.head.event = Event {
        // SAFETY: the helper has no precondition.
        time: unsafe { bpf_ktime_get_ns() },
        cpu_ns: CPU_NOT_MEASURED,
        pid: task.pid(),
        tid: task.tid(),
        value: off,
        kind: Kind::SwitchIn as u8,
        source: Source::Sched as u8,
        cpu: emit::cpu() as u16,
        ..wait.head.event
    };
    let ring: *mut c_void = (&raw const SAMPLE_RING).cast_mut().cast();
    // A bound that the verifier sees: blocks are whole.
    let stack = wait.head.stack_bytes as usize & (2 * WAIT_STACK.next_power_of_two() - 1);
    let stack = if stack > WAIT_STACK {
        WAIT_STACK
    } else {
        stack
    };
    let record: *mut c_void = (&raw mut *wait).cast();
    let size = (size_of::<WaitHeader>() + stack) as u64;
    // SAFETY: the verifier checks that `size` stays within the storage.
    let sent = unsafe { bpf_ringbuf_output(ring, record, size, u64::from(BPF_RB_NO_WAKEUP)) };
    if sent == 0 {
        wait.head.short_ns = 0;
        wait.head.short_waits = 0;
    } else if off != 0 {
        add(wait, off);
        emit::count_class(LossClass::Wait);
    }
}

/// Why the thread leaves.
#[inline(always)]
fn why(task: Task, preempted: bool) -> u16 {
    if preempted || task.fields().u32(&TASK_STATE) == 0 {
        return flags::PREEMPTED;
    }
    if u64::from(task.fields().u8(&TASK_IO_WAIT)) & TASK_IO_WAIT_MASK.load() != 0 {
        return flags::IO_WAIT;
    }
    0
}

/// Copies the running thread's stack from `sp` up; returns how many bytes.
#[inline(always)]
fn copy(sp: u64, stack: *mut u8) -> u32 {
    let mut bytes = 0;
    while bytes < WAIT_STACK {
        // SAFETY: `bytes` is a whole number of blocks, so that another one fits.
        let target: *mut c_void = unsafe { stack.add(bytes) }.cast();
        let source = sp.wrapping_add(bytes as u64) as *const c_void;
        // SAFETY: the helper writes one block to the target, as the verifier checks.
        if unsafe { bpf_probe_read_user(target, WAIT_BLOCK as u32, source) } != 0 {
            break;
        }
        bytes += WAIT_BLOCK;
    }
    bytes as u32
}

/// Puts true return addresses in the place of the trampoline's, which return probes have put on the stack: with those nobody
/// could tell who called. A stale slot, left behind by a jump out of its frame, holds something else by now.
#[inline(always)]
fn restore(task: Task, sp: u64, stack: *mut u8) {
    const LAST_SLOT: u64 = WAIT_STACK as u64 - 8;
    let utask = task.fields().follow(&TASK_UTASK);
    if utask.is_null() {
        return;
    }
    let mut instance = utask.follow(&UTASK_RETURN_INSTANCES);
    if instance.is_null() {
        return;
    }
    let trampoline = guard::trampoline(task);
    for _ in 0..MAX_RETURN_DEPTH {
        let at = instance.u64(&RETURN_INSTANCE_STACK).wrapping_sub(sp);
        if at <= LAST_SLOT {
            // SAFETY: within the stack, as the verifier checks.
            let slot = unsafe { stack.add(at as usize) }.cast::<u64>();
            // SAFETY: as above; stacks of foreign programs may be anywhere.
            if unsafe { slot.read_unaligned() } == trampoline {
                // SAFETY: as above.
                unsafe { slot.write_unaligned(instance.u64(&RETURN_INSTANCE_ORIGINAL)) };
            }
        }
        instance = instance.follow(&RETURN_INSTANCE_NEXT);
        if instance.is_null() {
            break;
        }
    }
}
