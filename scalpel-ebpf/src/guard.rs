//! The stack guard: which returns may be probed without harm.
//!
//! A return probe replaces the return address on the stack by a trampoline's and keeps the true one in a list of the
//! thread, innermost first. Two things break that list and kill the target; both were seen:
//!
//! * A stack that is not the thread's own (a coroutine, an alternate signal stack below): when a return on another
//!   stack makes the kernel drop what it takes for dead frames, a live trampoline loses its way back (SIGILL, or an
//!   endless loop). So a return is probed only within `STACK_WINDOW` below the stack's top.
//! * A frame *above* live ones (an alternate signal stack above the thread's frames, inside the window): the kernel
//!   would drop the lower frames at this very probe. So nothing is probed that would make it drop a frame whose slot
//!   still holds the trampoline. A frame that a `longjmp` left behind may look the same until its slot is
//!   overwritten: then one return is refused needlessly.
//!
//! It also refuses what the kernel would omit silently: more pending returns than it keeps (and prints a line for).

use core::ffi::c_void;
use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use scalpel_common::kernel::{MAX_RETURN_DEPTH, STACK_WINDOW};

use crate::fields::{
    Kernel, MM_START_STACK, MM_XOL_AREA, RETURN_INSTANCE_STACK, TASK_FSBASE, TASK_MM, TASK_UTASK,
    Task, UTASK_DEPTH, UTASK_RETURN_INSTANCES, XOL_AREA_VADDR,
};

/// Whether the return of the function that was entered with this stack pointer may be probed.
///
/// `site` is what stands at the stack pointer: the return address.
#[inline(never)]
pub(crate) fn allows(sp: u64, site: u64) -> bool {
    let task = Task::current();
    let top = stack_top(task, task.pid() == task.tid());
    if top.wrapping_sub(sp) > STACK_WINDOW {
        return false;
    }
    let utask = task.fields().follow(&TASK_UTASK);
    if utask.u32(&UTASK_DEPTH) as usize >= MAX_RETURN_DEPTH {
        return false;
    }
    let innermost = utask.follow(&UTASK_RETURN_INSTANCES);
    innermost.is_null()
        || innermost.u64(&RETURN_INSTANCE_STACK) > sp
        || keeps(task, innermost, sp, site)
}

/// The top of the stack of the main thread is where the kernel put it. Of the others it is known that glibc and musl
/// keep the thread's own block, to which FS points, at the upper end of its stack.
#[inline(always)]
fn stack_top(task: Task, is_main_thread: bool) -> u64 {
    if is_main_thread {
        task.fields().follow(&TASK_MM).u64(&MM_START_STACK)
    } else {
        task.fields().u64(&TASK_FSBASE)
    }
}

/// The innermost pending frame lies at or below the stack pointer: the kernel would drop it now, unless this call is a
/// tail call in that very frame. Whether it may is told by its slot.
#[inline(never)]
fn keeps(task: Task, innermost: Kernel, sp: u64, site: u64) -> bool {
    let frame = innermost.u64(&RETURN_INSTANCE_STACK);
    let trampoline = trampoline(task);
    if frame == sp && site == trampoline {
        return true;
    }
    read_user(frame) != trampoline
}

/// Address of the return trampoline in the thread's process.
#[inline(always)]
pub(crate) fn trampoline(task: Task) -> u64 {
    task.fields()
        .follow(&TASK_MM)
        .follow(&MM_XOL_AREA)
        .u64(&XOL_AREA_VADDR)
}

/// Eight bytes of the process's memory; 0 where it has none.
#[inline(always)]
pub(crate) fn read_user(address: u64) -> u64 {
    let mut value = MaybeUninit::<u64>::uninit();
    let target: *mut c_void = value.as_mut_ptr().cast();
    // SAFETY: the helper writes 8 bytes to the target, zeros if it can't read.
    unsafe { bpf_probe_read_user(target, 8, address as *const c_void) };
    // SAFETY: written above in every case.
    unsafe { value.assume_init() }
}
