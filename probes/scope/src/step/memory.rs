//! Reading and writing memory of this process that may not be there: the kernel copies, so that nothing can fault.
//! A bare load would die on an execute-only page, behind the last byte of a mapping, or in pkey-protected code.
use std::sync::atomic::{AtomicU32, Ordering};

use super::cure::{Cure, holds};
use super::sys;

const READV: u64 = 310;
const WRITEV: u64 = 311;
const EFAULT: i64 = -14;

/// The process that the copies are from: known before the first trap, and again in a forked child.
static PID: AtomicU32 = AtomicU32::new(0);

/// Why memory could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteError {
    /// The program would have got EFAULT.
    Fault,
    /// The kernel does not let us.
    Denied,
}

/// To be called before the thread is armed.
pub(super) fn prepare() {
    PID.store(sys::getpid(), Ordering::Relaxed);
}

/// Fills `buffer` from `addr` as far as memory is there; returns how many bytes.
pub(super) fn read(addr: u64, buffer: &mut [u8]) -> usize {
    let local = [buffer.as_mut_ptr() as u64, buffer.len() as u64];
    if !holds(Cure::FaultSafeReads) {
        let len = buffer.len();
        // SAFETY: none: this is what must not be done.
        unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, buffer.as_mut_ptr(), len) };
        return len;
    }
    let remote = [addr, buffer.len() as u64];
    let got = copy(READV, &local, &remote);
    match usize::try_from(got) {
        Ok(got) => got,
        Err(_) => read_as_debugger(addr, buffer),
    }
}

/// Fills `first` as far as memory is there, and returns how many bytes; and `second` in the same breath, all of it or with
/// zeros behind what is there.
pub(super) fn read_two(at: u64, first: &mut [u8], other: u64, second: &mut [u8]) -> usize {
    if second.is_empty() {
        return read(at, first);
    }
    if other.wrapping_add(second.len() as u64) == at {
        return read_on(at, first, other, second);
    }
    let local = [
        first.as_mut_ptr() as u64,
        first.len() as u64,
        second.as_mut_ptr() as u64,
        second.len() as u64,
    ];
    let remote = [at, first.len() as u64, other, second.len() as u64];
    let got = usize::try_from(copy(READV, &local, &remote)).unwrap_or(0);
    if got == first.len() + second.len() {
        return first.len();
    }
    read(other, second);
    read(at, first)
}

/// The same where the second ends at the first: one look for both.
fn read_on(at: u64, first: &mut [u8], other: u64, second: &mut [u8]) -> usize {
    let mut both = [0; 32];
    let Some(both) = both.get_mut(..first.len() + second.len()) else {
        return 0;
    };
    if read(other, both) < both.len() {
        read(other, second);
        return read(at, first);
    }
    let (head, tail) = both.split_at(second.len());
    second.copy_from_slice(head);
    first.copy_from_slice(tail);
    first.len()
}

/// Fills `buffer` from many places, each an address and a length in `remote`; how many bytes are there.
pub(super) fn read_all(remote: &[u64], buffer: &mut [u8]) -> usize {
    let local = [buffer.as_mut_ptr() as u64, buffer.len() as u64];
    usize::try_from(copy(READV, &local, remote)).unwrap_or(0)
}

/// A word, if all of it is there.
pub(super) fn read_word(addr: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    (read(addr, &mut bytes) == bytes.len()).then(|| u64::from_le_bytes(bytes))
}

/// Writes all of `bytes`, as the kernel would for a system call.
pub(super) fn write(addr: u64, bytes: &[u8]) -> Result<(), WriteError> {
    let local = [bytes.as_ptr() as u64, bytes.len() as u64];
    match copy(WRITEV, &local, &[addr, bytes.len() as u64]) {
        got if usize::try_from(got) == Ok(bytes.len()) => Ok(()),
        got if got >= 0 || got == EFAULT => Err(WriteError::Fault),
        _ => Err(WriteError::Denied),
    }
}

/// Vectors of an address and a length each, of as many bytes on one side as on the other.
fn copy(number: u64, local: &[u64], remote: &[u64]) -> i64 {
    let pid = u64::from(PID.load(Ordering::Relaxed));
    let args = [
        pid,
        local.as_ptr() as u64,
        (local.len() / 2) as u64,
        remote.as_ptr() as u64,
        (remote.len() / 2) as u64,
        0,
    ];
    // SAFETY: all vectors live through the call; a bad remote address is the kernel's EFAULT.
    unsafe { sys::call(number, args) }
}

/// By `/proc/self/mem`, which reads execute-only pages too. Opened for each read: a descriptor that is kept could be
/// closed by the program, and its number be another file's.
fn read_as_debugger(addr: u64, buffer: &mut [u8]) -> usize {
    let path = c"/proc/self/mem".as_ptr() as u64;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a path that ends in NUL; a new descriptor.
    let fd = unsafe { sys::call(2, [path, u64::from(flags.unsigned_abs()), 0, 0, 0, 0]) };
    let Ok(fd) = u64::try_from(fd) else {
        return 0;
    };
    let args = [
        fd,
        buffer.as_mut_ptr() as u64,
        buffer.len() as u64,
        addr,
        0,
        0,
    ];
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`.
    let got = unsafe { sys::call(17, args) };
    // SAFETY: `fd` is ours.
    unsafe { sys::call(3, [fd, 0, 0, 0, 0, 0]) };
    usize::try_from(got).unwrap_or(0)
}
