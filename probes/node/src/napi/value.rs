//! Values of JavaScript and back. A call that fails answers nothing: there is no exception to throw into a stranger's program.
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use napi_sys as sys;
use napi_sys::{napi_callback_info, napi_env, napi_value};

use super::Callback;

/// The first `N` arguments of a call, and what its function was made with.
pub(super) fn arguments<const N: usize>(
    env: napi_env,
    info: napi_callback_info,
) -> ([napi_value; N], *mut c_void) {
    let mut count = N;
    let mut values = [null_mut(); N];
    let mut data = null_mut();
    // SAFETY: `values` has room for `count`; missing ones become `undefined`.
    unsafe {
        sys::napi_get_cb_info(
            env,
            info,
            &raw mut count,
            values.as_mut_ptr(),
            null_mut(),
            &raw mut data,
        )
    };
    (values, data)
}

/// A number; 0 for what is none.
pub(super) fn number(env: napi_env, value: napi_value) -> i64 {
    let mut number = 0;
    // SAFETY: a value of this call, and room for the number.
    unsafe { sys::napi_get_value_int64(env, value, &raw mut number) };
    number
}

/// A small number; 0 for what is none.
#[inline]
pub(super) fn small(env: napi_env, value: napi_value) -> u32 {
    let mut number = 0;
    // SAFETY: a value of this call, and room for the number.
    unsafe { sys::napi_get_value_uint32(env, value, &raw mut number) };
    number
}

pub(super) fn truth(env: napi_env, value: napi_value) -> bool {
    let mut truth = false;
    // SAFETY: a value of this call, and room for the answer.
    unsafe { sys::napi_get_value_bool(env, value, &raw mut truth) };
    truth
}

/// A string; `None` for what is none, and for one that has no UTF-8: half a surrogate pair.
pub(super) fn text(env: napi_env, value: napi_value) -> Option<String> {
    let mut length = 0;
    // SAFETY: without a buffer only the length is written.
    let status =
        unsafe { sys::napi_get_value_string_utf16(env, value, null_mut(), 0, &raw mut length) };
    if status != sys::Status::napi_ok {
        return None;
    }
    let mut units = vec![0_u16; length + 1];
    // SAFETY: room for the string and the zero behind it.
    let status = unsafe {
        sys::napi_get_value_string_utf16(
            env,
            value,
            units.as_mut_ptr().cast(),
            units.len(),
            &raw mut length,
        )
    };
    units.truncate(length);
    (status == sys::Status::napi_ok)
        .then(|| String::from_utf16(&units).ok())
        .flatten()
}

/// A string: of one byte a character where it is ASCII.
pub(super) fn string(env: napi_env, text: &str) -> napi_value {
    let mut value = null_mut();
    if text.is_ascii() {
        // SAFETY: `text` holds that many bytes.
        unsafe {
            sys::napi_create_string_latin1(
                env,
                text.as_ptr().cast(),
                text.len() as isize,
                &raw mut value,
            )
        };
    } else {
        let units: Vec<u16> = text.encode_utf16().collect();
        // SAFETY: `units` holds that many.
        unsafe {
            sys::napi_create_string_utf16(
                env,
                units.as_ptr().cast(),
                units.len() as isize,
                &raw mut value,
            )
        };
    }
    value
}

/// A number; one of 31 bits is no object on V8's heap.
#[inline]
pub(super) fn from_number(env: napi_env, number: i64) -> napi_value {
    let mut value = null_mut();
    // SAFETY: room for the value.
    unsafe {
        match i32::try_from(number) {
            Ok(number) => sys::napi_create_int32(env, number, &raw mut value),
            Err(_) => sys::napi_create_int64(env, number, &raw mut value),
        }
    };
    value
}

pub(super) fn from_truth(env: napi_env, truth: bool) -> napi_value {
    let mut value = null_mut();
    // SAFETY: room for the value.
    unsafe { sys::napi_get_boolean(env, truth, &raw mut value) };
    value
}

pub(super) fn object(env: napi_env) -> napi_value {
    let mut value = null_mut();
    // SAFETY: room for the value.
    unsafe { sys::napi_create_object(env, &raw mut value) };
    value
}

pub(super) fn set(env: napi_env, object: napi_value, name: &CStr, value: napi_value) {
    // SAFETY: values of this call.
    unsafe { sys::napi_set_named_property(env, object, name.as_ptr(), value) };
}

/// A function that is given `data`, as a property of `object`.
pub(super) fn define(
    env: napi_env,
    object: napi_value,
    name: &CStr,
    function: Callback,
    data: *mut c_void,
) {
    let mut value = null_mut();
    // SAFETY: the name ends with a zero; `data` is null or lives as long as the process.
    unsafe {
        sys::napi_create_function(
            env,
            name.as_ptr(),
            name.count_bytes() as isize,
            Some(function),
            data,
            &raw mut value,
        )
    };
    set(env, object, name, value);
}

/// A typed array over memory that stays; `None` where the runtime forbids it (a memory cage).
pub(super) fn array(
    env: napi_env,
    memory: *mut c_void,
    bytes: usize,
    kind: sys::napi_typedarray_type,
    length: usize,
) -> Option<napi_value> {
    let mut buffer = null_mut();
    // SAFETY: the memory stays mapped until the process ends, so that no finalizer is needed.
    let status = unsafe {
        sys::napi_create_external_arraybuffer(env, memory, bytes, None, null_mut(), &raw mut buffer)
    };
    if status != sys::Status::napi_ok {
        clear(env);
        return None;
    }
    let mut value = null_mut();
    // SAFETY: the buffer has room for `length` elements of the kind.
    let status =
        unsafe { sys::napi_create_typedarray(env, kind, length, buffer, 0, &raw mut value) };
    (status == sys::Status::napi_ok).then_some(value)
}

/// Takes back an exception that a failed call has left.
pub(super) fn clear(env: napi_env) {
    let mut pending = false;
    // SAFETY: room for the answer.
    unsafe { sys::napi_is_exception_pending(env, &raw mut pending) };
    if pending {
        let mut exception = null_mut();
        // SAFETY: room for the exception, which is dropped.
        unsafe { sys::napi_get_and_clear_last_exception(env, &raw mut exception) };
    }
}

/// `undefined`.
pub(super) const fn nothing() -> napi_value {
    null_mut()
}

/// Has `function` called with `data` when the isolate ends.
pub(super) fn at_end(
    env: napi_env,
    function: unsafe extern "C" fn(*mut c_void),
    data: *const c_void,
) {
    // SAFETY: `data` is null or lives as long as the process.
    unsafe { sys::napi_add_env_cleanup_hook(env, Some(function), data.cast_mut()) };
}
