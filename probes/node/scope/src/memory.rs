//! Native code by name, and native code that is made.
use std::ffi::CString;
use std::ptr::null_mut;

/// The address of a symbol of this process.
pub(crate) fn symbol(name: String) -> Option<u64> {
    let name = CString::new(name).ok()?;
    // SAFETY: a text that ends with a NUL.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!at.is_null()).then_some(at as u64)
}

/// A copy of `code` that can be run, for ever; not writable any more.
pub(crate) fn executable(code: &[u8]) -> Option<u64> {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let (access, size) = (libc::PROT_READ | libc::PROT_WRITE, code.len().max(1));
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), size, access, kind, -1, 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping has room for it, and nobody else knows it.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), at.cast(), code.len()) };
    // SAFETY: the mapping that was just made.
    let sealed = unsafe { libc::mprotect(at, size, libc::PROT_READ | libc::PROT_EXEC) };
    (sealed == 0).then_some(at as u64)
}
