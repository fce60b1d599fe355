//! The border itself: no panic crosses it, and structures of another version's size are read and written in part.
use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::ScopeError;

use crate::types;

/// A refusal, by its code.
pub(crate) type Code = i32;

/// Runs `work`; a panic becomes a code, and `ok` a plain 0.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Code>) -> Code {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => types::SCALPEL_SCOPE_OK,
        Ok(Err(code)) => code,
        Err(_) => types::SCALPEL_SCOPE_INTERNAL,
    }
}

/// The code of an error of the engine.
pub(crate) fn code(error: ScopeError) -> Code {
    match error {
        ScopeError::AlreadyClosed => types::SCALPEL_SCOPE_ALREADY_CLOSED,
        ScopeError::WrongOrder => types::SCALPEL_SCOPE_WRONG_ORDER,
        ScopeError::OtherThread => types::SCALPEL_SCOPE_OTHER_THREAD,
        ScopeError::NoSuchScope => types::SCALPEL_SCOPE_NO_SUCH_SCOPE,
    }
}

/// A structure that begins with its size, as this version knows it: fields that the caller does not know are as in
/// `whole`.
///
/// # Safety
/// `from` is null, or points to as many readable bytes as its first `u32` says; any bytes are a valid `T`.
pub(crate) unsafe fn read<T: Copy>(from: *const T, mut whole: T) -> Result<T, Code> {
    // SAFETY: the caller's promise.
    let size = unsafe { known(from)? };
    let to = (&raw mut whole).cast::<u8>();
    // SAFETY: both are at least `size` bytes, and one is a local.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to, size) };
    Ok(whole)
}

/// Writes as much of `whole` as the caller's version has room for.
///
/// # Safety
/// `to` is null, or points to as many writable bytes as its first `u32` says.
pub(crate) unsafe fn write<T: Copy>(to: *mut T, whole: T) -> Result<(), Code> {
    // SAFETY: the caller's promise.
    let size = unsafe { known(to.cast_const())? };
    let from = (&raw const whole).cast::<u8>();
    let skip = size_of::<u32>();
    // SAFETY: both are at least `size` bytes, and one is a local; the caller's size stays.
    unsafe {
        std::ptr::copy_nonoverlapping(from.add(skip), to.cast::<u8>().add(skip), size - skip);
    }
    Ok(())
}

/// How many bytes both sides know.
///
/// # Safety
/// `at` is null or points to a `u32`.
unsafe fn known<T>(at: *const T) -> Result<usize, Code> {
    if at.is_null() || !at.cast::<u32>().is_aligned() {
        return Err(types::SCALPEL_SCOPE_INVALID);
    }
    // SAFETY: the caller's promise.
    let size = unsafe { at.cast::<u32>().read() } as usize;
    if size < size_of::<u64>() {
        return Err(types::SCALPEL_SCOPE_INVALID);
    }
    Ok(size.min(size_of::<T>()))
}
