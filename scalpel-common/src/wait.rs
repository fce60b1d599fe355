//! Layout of what is told of a thread that was off the processor: where it was, why, and for how long.

use core::mem::offset_of;

use crate::event::Event;

/// Most bytes of a stack that are kept while its thread is off the processor. Storage of a thread is limited to some 8 KiB
/// where the kernel allocates it without waiting.
pub const WAIT_STACK: usize = 7 << 10;

/// The stack is copied in blocks of so many bytes: one that is not there in whole ends the copy.
pub const WAIT_BLOCK: usize = 1 << 10;

/// Head of a record in the sample ring whose event is a `SWITCH_IN`; `stack_bytes` bytes follow, from the stack pointer up.
///
/// Of the event, `time` is when the wait ended, `value` how long it took in ns (0 = there is none, only short ones are told),
/// `site` the instruction pointer and `frame` the stack pointer in user mode, and the flags say why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct WaitHeader {
    /// The thread goes on.
    pub event: Event,
    /// `rbp` in user mode.
    pub bp: u64,
    /// Time in ns of waits of the thread since its last record that are told by this sum alone: shorter than
    /// [`Settings::wait_min_ns`](crate::kernel::Settings::wait_min_ns), or lost.
    pub short_ns: u64,
    /// How many.
    pub short_waits: u32,
    /// Bytes of the stack that follow.
    pub stack_bytes: u32,
}

/// What is kept of a thread while it is off the processor: the record that is sent when it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Wait {
    /// Head of the record.
    pub head: WaitHeader,
    /// The stack; bytes from `stack_bytes` on are stale.
    pub stack: [u8; WAIT_STACK],
    /// [`ThreadState::off_cpu_ns`](crate::kernel::ThreadState::off_cpu_ns) when it left: the wait is what came to it since.
    pub off_before: u64,
    /// 1 = the wait has not been told.
    pub pending: u64,
}

const _: () = {
    assert!(size_of::<WaitHeader>() == 88);
    assert!(offset_of!(WaitHeader, bp) == 64);
    assert!(offset_of!(WaitHeader, short_ns) == 72);
    assert!(offset_of!(WaitHeader, short_waits) == 80);
    assert!(offset_of!(WaitHeader, stack_bytes) == 84);
    assert!(offset_of!(Wait, stack) == 88);
    assert!(WAIT_STACK.is_multiple_of(WAIT_BLOCK));
};
