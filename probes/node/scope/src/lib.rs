//! The compiled half of the npm package `scalpel-scope`: scopes by handle, and traces, over Node-API version 8 alone.
//! Names, files and output are the JavaScript half's, which also vouches for the types of what it passes.
#![expect(
    unsafe_code,
    reason = "Node-API is C, and a call by address is what `call` is for"
)]
mod exports;
mod memory;
mod traces;
mod value;

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use napi_sys::{napi_callback_info, napi_env, napi_value};

use value::Env;

/// Arguments of the longest function.
const MOST_ARGS: usize = 10;

/// What JavaScript passed; what it did not is undefined.
type Args = [napi_value; MOST_ARGS];
/// Answers undefined where it is `None`.
type Body = fn(Env, &Args) -> Option<napi_value>;

/// Called by Node.js once an isolate.
///
/// # Safety
/// Only Node.js calls it, with its own `env` and `exports`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn napi_register_module_v1(env: napi_env, exports: napi_value) -> napi_value {
    let env = Env(env);
    for (name, body) in exports::ALL {
        env.define(exports, name, call, body);
    }
    exports
}

/// Every exported function begins here; its data says which it is. No panic goes on into JavaScript.
unsafe extern "C" fn call(env: napi_env, info: napi_callback_info) -> napi_value {
    let env = Env(env);
    let answer = catch_unwind(AssertUnwindSafe(|| {
        let (args, body) = env.arguments(info)?;
        body(env, &args)
    }));
    answer.ok().flatten().unwrap_or(null_mut())
}

/// Name and body.
type Export = (&'static CStr, Body);
