//! Iterator program: where the threads of one process will go on in user mode.
//!
//! A thread that sleeps in the kernel has its user registers at the top of its kernel stack. They are read without
//! stopping it: a ptrace stop would end its system call early, which some programs take for an error.

use core::ffi::c_void;

use aya_ebpf::bindings::{pt_regs, seq_file, task_struct};
use aya_ebpf::helpers::generated::{bpf_seq_write, bpf_task_pt_regs};
use scalpel_common::kernel::ThreadRegisters;

use crate::fields::{LISTED_PROCESS, TASK_NIVCSW, TASK_NVCSW, TASK_STATE, Task};

/// The kernel's `struct bpf_iter__task`.
#[repr(C)]
pub(crate) struct IteratedTask {
    meta: *const IteratorMeta,
    task: *const task_struct,
}

/// The kernel's `struct bpf_iter_meta`, of which only the first field is needed.
#[repr(C)]
struct IteratorMeta {
    seq: *mut seq_file,
}

impl IteratedTask {
    /// The thread; `None` after the last one.
    #[inline(always)]
    pub(crate) fn thread(ctx: *const Self) -> Option<Task> {
        // SAFETY: the kernel's own context; the verifier knows the types of what it points to.
        let task = unsafe { (*ctx).task };
        (!task.is_null()).then(|| Task::new(task))
    }
}

/// Writes the registers of the thread, if it is one of the process that is asked for.
#[inline(always)]
pub(crate) fn tell(ctx: *const IteratedTask) {
    // SAFETY: the kernel's own context; the verifier knows the types of what it points to.
    let seq = unsafe { (*(*ctx).meta).seq };
    // After the last task there is one call more, without a task.
    let Some(thread) = IteratedTask::thread(ctx) else {
        return;
    };
    if u64::from(thread.pid()) != LISTED_PROCESS.load() {
        return;
    }
    // SAFETY: the task is a BTF pointer, as the verifier checks.
    let regs = unsafe { bpf_task_pt_regs(thread.as_ptr()) } as *const pt_regs;
    let fields = thread.fields();
    // SAFETY: loads through a BTF pointer, which the verifier checks against the kernel's `struct pt_regs`.
    let told = unsafe {
        ThreadRegisters {
            tid: thread.tid(),
            state: fields.u32(&TASK_STATE),
            ip: (&raw const (*regs).rip).read_volatile(),
            sp: (&raw const (*regs).rsp).read_volatile(),
            bp: (&raw const (*regs).rbp).read_volatile(),
            syscall: (&raw const (*regs).orig_rax).read_volatile().cast_signed(),
            switches: fields
                .u64(&TASK_NVCSW)
                .wrapping_add(fields.u64(&TASK_NIVCSW)),
        }
    };
    let record: *const c_void = (&raw const told).cast();
    // A full buffer makes the kernel come again with a larger one, and with this task.
    // SAFETY: the record is on the program's stack and as long as is said.
    unsafe { bpf_seq_write(seq, record, size_of::<ThreadRegisters>() as u32) };
}
