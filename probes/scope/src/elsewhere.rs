//! The stepper on machines that have none: scopes compile and skip.
#![expect(unsafe_code, reason = "the call itself is what is asked for")]
use crate::scope::{Budget, ScopeError};
use crate::trace::{Form, Trace};

/// No scope is ever open.
#[derive(Debug)]
pub(crate) enum Handle {}

pub(crate) fn pause() {}

pub(crate) fn resume() {}

pub(crate) fn errno() -> i32 {
    0
}

pub(crate) fn set_errno(_: i32) {}

pub(crate) fn thread_time() -> std::time::Duration {
    std::time::Duration::ZERO
}

pub(crate) fn open(_form: Form, _budget: Budget, _copied: bool) -> Result<Handle, String> {
    Err("single-step: only x86-64 Linux".to_owned())
}

impl Handle {
    pub(crate) unsafe fn call(&self, _function: usize, _args: &[u64; 6]) -> u64 {
        match *self {}
    }

    pub(crate) fn close(&self, _dropped: bool) -> Result<Trace, ScopeError> {
        match *self {}
    }
}

/// Calls a function without a trace.
///
/// # Safety
/// `function` is a C function that is sound with these arguments.
pub(crate) unsafe fn untraced(function: usize, args: &[u64; 6]) -> u64 {
    // SAFETY: the caller gave a C function that is sound with these arguments.
    let function: extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64 =
        unsafe { std::mem::transmute(function) };
    let [a, b, c, d, e, f] = *args;
    function(a, b, c, d, e, f)
}
