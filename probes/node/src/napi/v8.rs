//! The functions of V8 that Node-API does not offer, by their mangled names.
use std::ffi::{CStr, c_void};

/// `v8::Isolate::GetCurrent()`.
const CURRENT: &CStr = c"_ZN2v87Isolate10GetCurrentEv";

/// The address of a function; `None` = this V8 has none of that name.
pub(super) fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a lookup among what is loaded; the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The isolate of the calling thread.
pub(super) fn current_isolate() -> Option<*mut c_void> {
    let current = symbol(CURRENT)?;
    // SAFETY: the function of this mangled name has this type in every V8.
    let current: extern "C" fn() -> *mut c_void = unsafe { std::mem::transmute(current) };
    let isolate = current();
    (!isolate.is_null()).then_some(isolate)
}
