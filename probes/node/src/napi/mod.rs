//! The addon: what JavaScript sees of this crate. The only room with `unsafe`.
//!
//! Node-API alone, by its C functions: an addon built against version 8 runs on every Node.js from 18 on. Nothing here throws
//! into JavaScript or panics; what cannot be done answers `undefined`.
mod calls;
mod exports;
mod stack;
mod turn;
mod v8;
mod value;

use std::ffi::CStr;

use napi_sys::{napi_env, napi_value};

/// Called by Node.js once an isolate.
///
/// # Safety
/// Only Node.js calls it, with its own `env` and `exports`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn napi_register_module_v1(env: napi_env, exports: napi_value) -> napi_value {
    for (name, function) in exports::ALL {
        value::define(env, exports, name, *function, std::ptr::null_mut());
    }
    exports
}

/// A function that JavaScript can call.
type Callback = unsafe extern "C" fn(napi_env, napi_sys::napi_callback_info) -> napi_value;

/// Name and function.
type Export = (&'static CStr, Callback);
