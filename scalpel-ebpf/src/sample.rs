//! Perf-event program: where a watched process is, as user and kernel stack.

use core::ffi::c_void;

use aya_ebpf::bindings::{BPF_F_USER_STACK, BPF_RB_NO_WAKEUP, bpf_perf_event_data};
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_get_stack, bpf_ringbuf_output};
use scalpel_common::event::{CPU_NOT_MEASURED, Event, Kind, Source, flags};
use scalpel_common::kernel::{LossClass, MAX_STACK_FRAMES, SampleHeader};

use crate::fields::Task;
use crate::maps::{SAMPLE_RING, SAMPLE_SCRATCH, THREADS};
use crate::{emit, thread};

/// Bytes of one stack.
const STACK_BYTES: usize = MAX_STACK_FRAMES * 8;

/// Where a sample is put together: too large for a BPF stack, and its length is known only in the end.
///
/// One per CPU is enough, although other programs need the ring or the program's own stack for this: perf-event
/// programs run with interrupts off or in an NMI, and the kernel skips one that would nest in another on the same CPU
/// (`bpf_overflow_handler` counts `bpf_prog_active`).
#[repr(C, align(8))]
pub(crate) struct Scratch {
    header: SampleHeader,
    frames: [u64; 2 * MAX_STACK_FRAMES],
}

/// Takes a sample.
#[inline(always)]
pub(crate) fn take(ctx: *mut bpf_perf_event_data) {
    let Some(settings) = thread::settings() else {
        return;
    };
    // SAFETY: the helper has no precondition.
    let pid_tgid = unsafe { bpf_get_current_pid_tgid() };
    let pid = (pid_tgid >> 32) as u32;
    if !thread::is_watched(settings, pid) {
        return;
    }
    let Some(scratch) = SAMPLE_SCRATCH.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: a map value, and nothing else on this CPU uses it meanwhile (see `Scratch`).
    let scratch = unsafe { &mut *scratch };
    let user = stack(
        ctx,
        scratch.frames.as_mut_ptr(),
        u64::from(BPF_F_USER_STACK),
    );
    // SAFETY: `user` is at most MAX_STACK_FRAMES: as much room is left.
    let kernel = stack(ctx, unsafe { scratch.frames.as_mut_ptr().add(user) }, 0);
    scratch.header = SampleHeader {
        event: event(ctx, pid, pid_tgid as u32, user, kernel),
        user_frames: user as u32,
        kernel_frames: kernel as u32,
    };
    send(scratch, size_of::<SampleHeader>() + (user + kernel) * 8);
}

/// Number of frames; an error (no such stack: a thread in user mode has no kernel stack) is none.
#[inline(always)]
fn stack(ctx: *mut bpf_perf_event_data, frames: *mut u64, flags: u64) -> usize {
    let buffer: *mut c_void = frames.cast();
    // SAFETY: the helper writes at most STACK_BYTES to the buffer; the verifier checks that it has them.
    let bytes = unsafe { bpf_get_stack(ctx.cast(), buffer, STACK_BYTES as u32, flags) };
    if bytes < 0 {
        0
    } else {
        (bytes as usize / 8) & MAX_STACK_FRAMES
    }
}

#[inline(always)]
fn event(ctx: *mut bpf_perf_event_data, pid: u32, tid: u32, user: usize, kernel: usize) -> Event {
    let task = Task::current();
    let state = THREADS.state(task);
    // A sample takes no number of its own: were it lost, the gap would break the thread's call stack for nothing.
    // SAFETY: the storage lives as long as the running thread.
    let seq = state.map_or(0, |state| unsafe { (*state).seq });
    // SAFETY: the helper has no precondition.
    let now = unsafe { aya_ebpf::helpers::bpf_ktime_get_ns() };
    // The thread is on the processor: no switch can come between.
    let off_cpu_ns = state.map(|state| {
        // SAFETY: as above.
        let state = unsafe { &*state };
        let untold = thread::off_untold(state, task, now);
        state.off_cpu_ns.wrapping_add(untold)
    });
    let cpu_ns = off_cpu_ns.map_or(CPU_NOT_MEASURED, |off_cpu_ns| now.wrapping_sub(off_cpu_ns));
    Event {
        time: now,
        cpu_ns,
        pid,
        tid,
        seq,
        // SAFETY: the program's own context.
        site: unsafe { (*ctx).regs.rip },
        // SAFETY: the program's own context.
        frame: unsafe { (*ctx).regs.rsp },
        // SAFETY: the program's own context.
        value: unsafe { (*ctx).sample_period },
        kind: Kind::Sample as u8,
        source: Source::Sampler as u8,
        flags: sample_flags(user, kernel),
        cpu: emit::cpu() as u16,
        ..Event::default()
    }
}

#[inline(always)]
const fn sample_flags(user: usize, kernel: usize) -> u16 {
    let mode = if kernel > 0 { flags::KERNEL_MODE } else { 0 };
    let cut = if user >= MAX_STACK_FRAMES || kernel >= MAX_STACK_FRAMES {
        flags::STACK_CUT
    } else {
        0
    };
    mode | cut
}

#[inline(always)]
fn send(scratch: &mut Scratch, size: usize) {
    let ring: *mut c_void = (&raw const SAMPLE_RING).cast_mut().cast();
    let record: *mut c_void = (&raw mut *scratch).cast();
    // SAFETY: the verifier checks that `size` stays within the scratch.
    let sent =
        unsafe { bpf_ringbuf_output(ring, record, size as u64, u64::from(BPF_RB_NO_WAKEUP)) };
    if sent != 0 {
        emit::count_class(LossClass::Sample);
    }
}
