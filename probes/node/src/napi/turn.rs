//! The end of a turn: when the JavaScript that runs now has returned to its host, and before any other begins.
//!
//! A microtask of V8's own, by a function that Node-API does not offer. No promise, callback or resource is made that a
//! program could see.
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use super::v8;

/// `v8::Isolate::EnqueueMicrotask(void (*)(void*), void*)`.
const ENQUEUE: &CStr = c"_ZN2v87Isolate16EnqueueMicrotaskEPFvPvES1_";

/// What runs then.
type Callback = unsafe extern "C" fn(*mut c_void);

type Enqueue = extern "C" fn(*mut c_void, Callback, *mut c_void);

static FOUND: OnceLock<Option<Enqueue>> = OnceLock::new();

fn enqueue() -> Option<Enqueue> {
    *FOUND.get_or_init(|| {
        let found = v8::symbol(ENQUEUE)?;
        // SAFETY: the function of this mangled name has this type in every V8; a method takes its object first.
        Some(unsafe { std::mem::transmute::<*mut c_void, Enqueue>(found) })
    })
}

/// Whether ends of turns can be told.
pub(super) fn are_told() -> bool {
    enqueue().is_some()
}

/// Has `callback` called with `data` at the end of the turn of the calling isolate; never, where ends are not told.
pub(super) fn at_end(callback: Callback, data: *mut c_void) {
    if let (Some(enqueue), Some(isolate)) = (enqueue(), v8::current_isolate()) {
        enqueue(isolate, callback, data);
    }
}
