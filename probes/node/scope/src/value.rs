//! JavaScript's values, there and back: one function of Node-API each. What has another type is `None`.
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use napi_sys::{Status, napi_callback, napi_callback_info, napi_env, napi_value};

use crate::{Args, Body, MOST_ARGS};

/// The isolate, as long as one call from JavaScript lasts.
#[derive(Clone, Copy)]
pub(crate) struct Env(pub(crate) napi_env);

fn done(status: napi_sys::napi_status) -> Option<()> {
    (status == Status::napi_ok).then_some(())
}

impl Env {
    /// Adds a function to `exports`; what cannot be added is missing there.
    pub(crate) fn define(
        self,
        exports: napi_value,
        name: &'static CStr,
        call: unsafe extern "C" fn(napi_env, napi_callback_info) -> napi_value,
        body: &'static Body,
    ) {
        let mut function = null_mut();
        let (call, data): (napi_callback, _) = (Some(call), std::ptr::from_ref(body));
        let data = data.cast_mut().cast::<c_void>();
        let (at, len) = (name.as_ptr(), -1);
        // SAFETY: the name ends with a NUL and lives for ever, as the data does; `function` is written.
        let made = unsafe {
            napi_sys::napi_create_function(self.0, at, len, call, data, &raw mut function)
        };
        if done(made).is_some() {
            // SAFETY: both are values of this call.
            unsafe { napi_sys::napi_set_named_property(self.0, exports, at, function) };
        }
    }

    /// The arguments of a call, and which function it is of.
    pub(crate) fn arguments(self, info: napi_callback_info) -> Option<(Args, &'static Body)> {
        let mut args: Args = [null_mut(); MOST_ARGS];
        let (mut count, mut data) = (MOST_ARGS, null_mut());
        let (at, this) = (args.as_mut_ptr(), null_mut());
        // SAFETY: `args` has room for `count`; the rest is filled with undefined.
        done(unsafe {
            napi_sys::napi_get_cb_info(self.0, info, &raw mut count, at, this, &raw mut data)
        })?;
        // SAFETY: the data of every function is a body that lives for ever.
        let body = unsafe { data.cast::<Body>().cast_const().as_ref() }?;
        Some((args, body))
    }

    pub(crate) fn to_number(self, value: napi_value) -> Option<f64> {
        let mut number = 0.0;
        // SAFETY: a value of this call.
        done(unsafe { napi_sys::napi_get_value_double(self.0, value, &raw mut number) })?;
        Some(number)
    }

    /// A whole number from 0 to 2^53.
    pub(crate) fn to_count(self, value: napi_value) -> Option<u64> {
        let number = self.to_number(value)?;
        let whole = (0.0..=9_007_199_254_740_992.0).contains(&number) && number.fract() == 0.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked the line before"
        )]
        whole.then_some(number as u64)
    }

    /// A `BigInt` of 64 bits.
    pub(crate) fn to_big(self, value: napi_value) -> Option<u64> {
        let (mut number, mut lossless) = (0, false);
        // SAFETY: a value of this call.
        done(unsafe {
            napi_sys::napi_get_value_bigint_uint64(
                self.0,
                value,
                &raw mut number,
                &raw mut lossless,
            )
        })?;
        Some(number)
    }

    pub(crate) fn to_text(self, value: napi_value) -> Option<String> {
        let mut length = 0;
        // SAFETY: a null buffer asks for the length in bytes.
        done(unsafe {
            napi_sys::napi_get_value_string_utf8(self.0, value, null_mut(), 0, &raw mut length)
        })?;
        let mut bytes = vec![0_u8; length + 1];
        let (at, room) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the buffer has that much room, the closing NUL with it.
        done(unsafe {
            napi_sys::napi_get_value_string_utf8(self.0, value, at, room, &raw mut length)
        })?;
        bytes.truncate(length);
        String::from_utf8(bytes).ok()
    }

    /// The bytes of a `Uint8Array`.
    pub(crate) fn to_bytes(self, value: napi_value) -> Option<Vec<u8>> {
        let (mut kind, mut length, mut data) = (0, 0, null_mut());
        let (buffer, offset) = (null_mut(), null_mut());
        // SAFETY: a value of this call; what is not asked for is null.
        done(unsafe {
            napi_sys::napi_get_typedarray_info(
                self.0,
                value,
                &raw mut kind,
                &raw mut length,
                &raw mut data,
                buffer,
                offset,
            )
        })?;
        if kind != napi_sys::TypedarrayType::uint8_array || data.is_null() {
            return None;
        }
        // SAFETY: so many bytes, and no JavaScript runs while they are copied.
        Some(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec())
    }

    /// The items of an array.
    pub(crate) fn to_items(self, array: napi_value) -> Option<Vec<napi_value>> {
        let mut length = 0;
        // SAFETY: a value of this call.
        done(unsafe { napi_sys::napi_get_array_length(self.0, array, &raw mut length) })?;
        let item = |at| {
            let mut item = null_mut();
            // SAFETY: as above.
            done(unsafe { napi_sys::napi_get_element(self.0, array, at, &raw mut item) })?;
            Some(item)
        };
        (0..length).map(item).collect()
    }

    pub(crate) fn number(self, number: f64) -> Option<napi_value> {
        self.made(|value| {
            // SAFETY: a place for a value.
            unsafe { napi_sys::napi_create_double(self.0, number, value) }
        })
    }

    pub(crate) fn big(self, number: u64) -> Option<napi_value> {
        self.made(|value| {
            // SAFETY: a place for a value.
            unsafe { napi_sys::napi_create_bigint_uint64(self.0, number, value) }
        })
    }

    pub(crate) fn flag(self, flag: bool) -> Option<napi_value> {
        self.made(|value| {
            // SAFETY: a place for a value.
            unsafe { napi_sys::napi_get_boolean(self.0, flag, value) }
        })
    }

    pub(crate) fn none(self) -> Option<napi_value> {
        self.made(|value| {
            // SAFETY: a place for a value.
            unsafe { napi_sys::napi_get_null(self.0, value) }
        })
    }

    pub(crate) fn text(self, text: &str) -> Option<napi_value> {
        let length = isize::try_from(text.len()).ok()?;
        self.made(|value| {
            // SAFETY: so many bytes of UTF-8, and a place for a value.
            unsafe {
                napi_sys::napi_create_string_utf8(self.0, text.as_ptr().cast(), length, value)
            }
        })
    }

    /// An array of these.
    pub(crate) fn list(
        self,
        items: impl IntoIterator<Item = Option<napi_value>>,
    ) -> Option<napi_value> {
        let array = self.made(|value| {
            // SAFETY: a place for a value.
            unsafe { napi_sys::napi_create_array(self.0, value) }
        })?;
        for (at, item) in items.into_iter().enumerate() {
            let at = u32::try_from(at).ok()?;
            // SAFETY: both are values of this call.
            done(unsafe { napi_sys::napi_set_element(self.0, array, at, item?) })?;
        }
        Some(array)
    }

    /// Something of ours that JavaScript holds and gives back.
    pub(crate) fn hold<T>(self, thing: T) -> Option<napi_value> {
        unsafe extern "C" fn free<T>(_: napi_env, data: *mut c_void, _: *mut c_void) {
            // SAFETY: it came out of a box of that type, and JavaScript has let go of it.
            drop(unsafe { Box::from_raw(data.cast::<T>()) });
        }
        let data = Box::into_raw(Box::new(thing));
        let held = self.made(|value| {
            // SAFETY: the box is JavaScript's from here on, which gives it to `free` once.
            unsafe {
                napi_sys::napi_create_external(
                    self.0,
                    data.cast(),
                    Some(free::<T>),
                    null_mut(),
                    value,
                )
            }
        });
        if held.is_none() {
            // SAFETY: nobody else has it.
            drop(unsafe { Box::from_raw(data) });
        }
        held
    }

    /// What `hold` gave away. The JavaScript half passes nothing else.
    pub(crate) fn held<'a, T>(self, value: napi_value) -> Option<&'a T> {
        let mut data = null_mut();
        // SAFETY: a value of this call; another type than an external is an error.
        done(unsafe { napi_sys::napi_get_value_external(self.0, value, &raw mut data) })?;
        // SAFETY: it lives as long as the value does, which is on the stack of this call.
        unsafe { data.cast::<T>().cast_const().as_ref() }
    }

    fn made(
        self,
        make: impl FnOnce(*mut napi_value) -> napi_sys::napi_status,
    ) -> Option<napi_value> {
        let mut value = null_mut();
        done(make(&raw mut value))?;
        Some(value)
    }

    /// Throws a `RangeError`, which JavaScript sees when this call returns.
    pub(crate) fn refuse(self, why: &CStr) -> Option<napi_value> {
        // SAFETY: a text that ends with a NUL.
        unsafe { napi_sys::napi_throw_range_error(self.0, null(), why.as_ptr()) };
        None
    }
}
