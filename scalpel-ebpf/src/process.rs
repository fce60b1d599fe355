//! Fork, exec and exit: the control ring.
//!
//! Mappings of executable files are not seen here: `scalpel-user/src/kernel/process.rs` says how and why.

use core::ffi::c_void;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::{BPF_NOEXIST, task_struct};
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use aya_ebpf::programs::BtfTracePointContext;
use scalpel_common::count::space;
use scalpel_common::kernel::{
    ControlKind, ControlRecord, LossClass, MAX_PATH, Settings, WatchedProcess, settings_flags,
};

use crate::fields::{
    BPRM_FILENAME, EXIT_TELLS_LAST, Kernel, SIGNAL_LIVE, TASK_COMM, TASK_EXIT_CODE, TASK_SIGNAL,
    Task,
};
use crate::maps::{CONTROL_RING, THREADS, WATCHED};
use crate::{emit, thread, wait};

/// Length of `task_struct.comm`.
const COMM: u32 = 16;

/// A thread or process was born.
#[inline(always)]
pub(crate) fn fork(parent: *const task_struct, child: *const task_struct) {
    let (parent, child) = (Task::new(parent), Task::new(child));
    let Some(settings) = watching(parent.pid()) else {
        return;
    };
    let is_process = child.pid() != parent.pid();
    if is_process && settings.flags & settings_flags::FOLLOW_FORKS != 0 {
        follow(parent, child);
    }
    send(ControlKind::Fork, parent, |record| {
        record.address = child.process_start();
        record.other_pid = child.pid();
        record.other_tid = child.tid();
        name(record, child);
    });
}

/// The child is watched before it runs its first instruction: the tracepoint comes before it is woken.
#[inline(always)]
fn follow(parent: Task, child: Task) {
    // A forked child goes on with its parent's probes, and in a copy of its parent's memory.
    // Read before the entry is: see `thread::space_of`.
    let pid = child.pid();
    let (flags, space) = match WATCHED.get_ptr(parent.pid()) {
        // SAFETY: the entry lives as long as the program.
        Some(process) => unsafe {
            (
                (&raw const (*process).flags).read_volatile(),
                (&raw const (*process).space).read_volatile(),
            )
        },
        None => (0, pid),
    };
    let process = WatchedProcess {
        start_time: child.process_start(),
        flags,
        space,
        ..WatchedProcess::default()
    };
    if WATCHED
        .insert(pid, process, u64::from(BPF_NOEXIST))
        .is_err()
    {
        emit::count_class(LossClass::Control);
    }
}

/// A process replaced its program.
#[inline(always)]
pub(crate) fn exec(task: *const task_struct, program: *const c_void) {
    let task = Task::new(task);
    if watching(task.pid()).is_none() {
        return;
    }
    if let Some(process) = WATCHED.get_ptr_mut(task.pid()) {
        // SAFETY: the entry is only written here and where it is made, and one process runs one exec at a time.
        unsafe { (*process).exec_epoch += 1 };
        // SAFETY: as above.
        let space = space(task.pid(), unsafe { (*process).exec_epoch });
        // SAFETY: as above.
        unsafe { (*process).space = space };
        if let Some(state) = THREADS.state(task) {
            // SAFETY: the storage of the running thread, the only one that its process has left.
            unsafe { (*state).space = space };
        }
    }
    send(ControlKind::Exec, task, |record| {
        record.address = task.process_start();
        path(
            record,
            Kernel::new(program).u64(&BPRM_FILENAME) as *const u8,
            MAX_PATH as u32,
        );
    });
}

/// A thread ended.
#[inline(always)]
pub(crate) fn exit(ctx: &BtfTracePointContext) {
    let task = Task::new(ctx.arg(0));
    let pid = task.pid();
    if watching(pid).is_none() {
        return;
    }
    wait::tell_last(task);
    let last = is_last(ctx, task);
    send(ControlKind::Exit, task, |record| {
        record.value = u64::from(task.fields().u32(&TASK_EXIT_CODE));
        record.other_pid = u32::from(last);
        name(record, task);
    });
    if last {
        // A reused pid is a stranger again. Its absence is no news to anybody.
        let _gone = WATCHED.remove(pid);
    }
}

/// Whether the thread is the last of its process. Older kernels do not say so: there two threads that end at the same
/// moment may both see none alive.
#[inline(always)]
fn is_last(ctx: &BtfTracePointContext, task: Task) -> bool {
    if EXIT_TELLS_LAST.load() != 0 {
        // SAFETY: the loader saw in the kernel's BTF that the tracepoint has this argument.
        unsafe { ctx.as_ptr().cast::<u64>().add(1).read_volatile() & 1 != 0 }
    } else {
        task.fields().follow(&TASK_SIGNAL).u32(&SIGNAL_LIVE) == 0
    }
}

#[inline(always)]
fn watching(pid: u32) -> Option<&'static Settings> {
    let settings = thread::settings()?;
    thread::is_watched(settings, pid).then_some(settings)
}

/// Control records are few and matter: each wakes the collector.
#[inline(always)]
fn send(kind: ControlKind, task: Task, fill: impl FnOnce(&mut ControlRecord)) {
    let Some(mut slot) = CONTROL_RING.reserve(0) else {
        return emit::count_class(LossClass::Control);
    };
    let record = slot.write(ControlRecord {
        // SAFETY: the helper has no precondition.
        time: unsafe { bpf_ktime_get_ns() },
        address: 0,
        length: 0,
        value: 0,
        kind: kind as u32,
        pid: task.pid(),
        tid: task.tid(),
        other_pid: 0,
        other_tid: 0,
        path_len: 0,
        path: [0; MAX_PATH],
    });
    fill(record);
    slot.submit(0);
}

/// The thread's name.
#[inline(always)]
fn name(record: &mut ControlRecord, task: Task) {
    path(record, task.fields().at(&TASK_COMM), COMM);
}

/// A string of the kernel, cut to `room`.
#[inline(always)]
fn path(record: &mut ControlRecord, source: *const u8, room: u32) {
    let target: *mut c_void = record.path.as_mut_ptr().cast();
    // SAFETY: the helper writes at most `room` bytes, which `path` has.
    let length = unsafe { bpf_probe_read_kernel_str(target, room, source.cast()) };
    // The length counts the closing zero.
    record.path_len = if length > 0 { length as u32 - 1 } else { 0 };
}
