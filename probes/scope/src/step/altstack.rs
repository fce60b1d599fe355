//! The signal stack of an armed thread: one that is large enough for the handler, whatever the program set. What the
//! program set is kept, read back to it, and put back.
//! Runs in the handler too: no libc, no lock, no allocation.
use std::ptr::null_mut;

use super::sys;

/// Bytes of the signal stack that we bring.
pub(super) const BYTES: usize = 64 * 1024;
/// What the handler needs beside the kernel's frame, with room to spare for what it hands on.
const NEED: usize = 16 * 1024;
/// The largest frame of today's processors with all their register state is below this.
const FRAME: usize = 12 * 1024;

const SIGALTSTACK: u64 = 131;

/// Bytes of a `stack_t`.
pub(super) const RECORD: usize = 24;
/// The smallest that any kernel takes.
const SMALLEST: usize = 2048;
const EPERM: i64 = -1;
const ENOMEM: i64 = -12;
const EINVAL: i64 = -22;

/// What the kernel would answer to a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// This.
    Errno(i64),
    /// It is not known here.
    Unknown,
}

/// Whether the kernel would refuse `new` in the place of `old`.
pub(super) fn refusal(old: &libc::stack_t, new: &libc::stack_t) -> Option<Refusal> {
    const AUTODISARM: i32 = i32::MIN;
    if old.ss_flags & libc::SS_ONSTACK != 0 {
        return Some(Refusal::Errno(EPERM));
    }
    match new.ss_flags {
        libc::SS_DISABLE => None,
        0 | libc::SS_ONSTACK if new.ss_size < SMALLEST => Some(Refusal::Errno(ENOMEM)),
        0 | libc::SS_ONSTACK => None,
        flags if flags & AUTODISARM != 0 => Some(Refusal::Unknown),
        _ => Some(Refusal::Errno(EINVAL)),
    }
}

/// Whether the stack pointer is on it.
pub(super) fn is_on(stack: &libc::stack_t, sp: u64) -> bool {
    stack.ss_flags & libc::SS_DISABLE == 0
        && sp.wrapping_sub(stack.ss_sp as u64) <= stack.ss_size as u64
        && sp > stack.ss_sp as u64
}

pub(super) fn from_bytes(bytes: [u8; RECORD]) -> libc::stack_t {
    let (words, _) = bytes.as_chunks::<8>();
    let word = |at: usize| words.get(at).map_or(0, |word| u64::from_le_bytes(*word));
    let flags = u32::try_from(word(1) & 0xffff_ffff).unwrap_or(0);
    libc::stack_t {
        ss_sp: word(0) as *mut libc::c_void,
        ss_flags: flags.cast_signed(),
        ss_size: usize::try_from(word(2)).unwrap_or(0),
    }
}

pub(super) fn to_bytes(stack: &libc::stack_t) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    let words = [
        stack.ss_sp as u64,
        u64::from(stack.ss_flags.cast_unsigned()),
        stack.ss_size as u64,
    ];
    for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    bytes
}

/// A stack of ours.
pub(super) fn ours(at: *mut u8) -> libc::stack_t {
    libc::stack_t {
        ss_sp: at.cast(),
        ss_flags: 0,
        ss_size: BYTES,
    }
}

/// Whether the handler can run on it.
pub(super) fn is_enough(stack: &libc::stack_t) -> bool {
    stack.ss_flags & libc::SS_DISABLE == 0 && stack.ss_size >= NEED + FRAME
}

/// Gives the thread a signal stack of ours where it has none of that size; returns what it had.
pub(super) fn switch(stack: *mut u8) -> Option<libc::stack_t> {
    let old = set(None)?;
    if is_enough(&old) || old.ss_flags & libc::SS_ONSTACK != 0 {
        return None;
    }
    set(Some(&ours(stack)))
}

/// Puts back what `switch` returned, unless the program has set another since.
pub(super) fn restore(at: *mut u8, old: &libc::stack_t) {
    if set(None).is_some_and(|now| now.ss_sp == at.cast()) {
        set(Some(old));
    }
}

fn set(new: Option<&libc::stack_t>) -> Option<libc::stack_t> {
    let mut old = libc::stack_t {
        ss_sp: null_mut(),
        ss_flags: 0,
        ss_size: 0,
    };
    let new = new.map_or(0, |stack| std::ptr::from_ref(stack) as u64);
    let args = [new, (&raw mut old) as u64, 0, 0, 0, 0];
    // SAFETY: `new` is null or a stack that is never unmapped; `old` is written.
    let result = unsafe { sys::call(SIGALTSTACK, args) };
    (result == 0).then_some(old)
}
