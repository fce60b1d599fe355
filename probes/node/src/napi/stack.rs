//! Where V8 says that the stack is full. Frames of rewritten functions are larger, so that recursion would end earlier: the
//! main thread, whose stack is eight times what V8 uses of it, gets a limit that is lower by as much.
use std::ffi::{CStr, c_void};

use super::v8;

/// V8's `--stack-size` by default, in bytes.
const DEFAULT: usize = 984 << 10;

/// Left to the kernel's limit below ours.
const SPARE: usize = 1 << 20;

/// `v8::Isolate::SetStackLimit(uintptr_t)`.
const SET_LIMIT: &CStr = c"_ZN2v87Isolate13SetStackLimitEm";

/// Moves the limit of the calling isolate to `percent` of the default below here; whether it could.
pub(super) fn deepen(percent: usize) -> bool {
    let size = DEFAULT * percent / 100;
    if stack_size() < size + SPARE {
        return false;
    }
    let (Some(isolate), Some(set_limit)) = (v8::current_isolate(), v8::symbol(SET_LIMIT)) else {
        return false;
    };
    // SAFETY: the function of this mangled name has this type in every V8; a method takes its object first.
    let set_limit: extern "C" fn(*mut c_void, usize) = unsafe { std::mem::transmute(set_limit) };
    let here = (&raw const isolate).addr();
    if here < size {
        return false;
    }
    set_limit(isolate, here - size);
    true
}

/// How far the main thread's stack may grow.
fn stack_size() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
