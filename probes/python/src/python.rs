//! The few words of Python's C API that the probe needs, so that the rest can be read: borrowed texts, attributes, errors.
//! Nothing here runs Python code or leaves an exception behind.

use std::ffi::{CStr, c_char};

use pyo3_ffi as ffi;

/// An owned reference, given back at the end.
#[derive(Debug)]
pub(crate) struct Owned(*mut ffi::PyObject);

impl Owned {
    /// Takes the caller's reference; `None` for null, whose exception is cleared.
    ///
    /// # Safety
    /// The interpreter lock is held, and `object` is null or a reference that the caller owns.
    pub(crate) unsafe fn from_answer(object: *mut ffi::PyObject) -> Option<Self> {
        if object.is_null() {
            // SAFETY: the lock is held.
            unsafe { ffi::PyErr_Clear() };
            return None;
        }
        Some(Self(object))
    }

    pub(crate) const fn as_ptr(&self) -> *mut ffi::PyObject {
        self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: this value owns the reference, and is only used under the interpreter lock.
        unsafe { ffi::Py_DECREF(self.0) };
    }
}

/// An attribute of an object whose getter is written in C.
///
/// # Safety
/// The interpreter lock is held and `object` is alive.
pub(crate) unsafe fn attribute(object: *mut ffi::PyObject, name: &CStr) -> Option<Owned> {
    // SAFETY: the caller's promise.
    unsafe { Owned::from_answer(ffi::PyObject_GetAttrString(object, name.as_ptr())) }
}

/// A small number out of an attribute, 0 = it is none.
///
/// # Safety
/// As for [`attribute`].
pub(crate) unsafe fn number(object: *mut ffi::PyObject, name: &CStr) -> u32 {
    // SAFETY: the caller's promise.
    let Some(value) = (unsafe { attribute(object, name) }) else {
        return 0;
    };
    // SAFETY: a living object; an overflow is cleared.
    let value = unsafe {
        let value = ffi::PyLong_AsLong(value.as_ptr());
        ffi::PyErr_Clear();
        value
    };
    u32::try_from(value).unwrap_or(0)
}

/// The text of a `str`, with surrogates replaced. Unlike `PyUnicode_AsUTF8` this keeps nothing in the object.
///
/// # Safety
/// The interpreter lock is held and `object` is alive.
pub(crate) unsafe fn text(object: *mut ffi::PyObject) -> Option<String> {
    // SAFETY: a living object.
    if unsafe { ffi::PyUnicode_Check(object) } == 0 {
        return None;
    }
    // SAFETY: a `str`; paths that are no UTF-8 hold lone surrogates, which this error handler lets pass.
    let bytes = unsafe {
        Owned::from_answer(ffi::PyUnicode_AsEncodedString(
            object,
            c"utf-8".as_ptr(),
            c"surrogateescape".as_ptr(),
        ))
    }
    .or_else(|| {
        // SAFETY: as above, for surrogates that stand for no byte.
        unsafe {
            Owned::from_answer(ffi::PyUnicode_AsEncodedString(
                object,
                c"utf-8".as_ptr(),
                c"replace".as_ptr(),
            ))
        }
    })?;
    // SAFETY: a living `bytes`.
    Some(String::from_utf8_lossy(unsafe { bytes_of(&bytes) }).into_owned())
}

/// The bytes of a `bytes`; empty for any other object.
///
/// # Safety
/// The interpreter lock is held while the answer is used.
pub(crate) unsafe fn bytes_of(object: &Owned) -> &[u8] {
    // SAFETY: a living object, and the check that it is `bytes`.
    unsafe {
        if ffi::PyBytes_Check(object.as_ptr()) == 0 {
            return &[];
        }
        let len = usize::try_from(ffi::PyBytes_Size(object.as_ptr())).unwrap_or(0);
        std::slice::from_raw_parts(ffi::PyBytes_AsString(object.as_ptr()).cast(), len)
    }
}

/// A C string of the interpreter's, such as a type's name.
///
/// # Safety
/// `text` is null or ends with a zero byte, and lives on.
pub(crate) unsafe fn c_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Runs `work` with no exception set, and puts the one back that was: callbacks may be called while one is on its way.
///
/// # Safety
/// The interpreter lock is held.
pub(crate) unsafe fn aside<T>(work: impl FnOnce() -> T) -> T {
    let (mut kind, mut value, mut trace) = (
        std::ptr::null_mut(),
        std::ptr::null_mut(),
        std::ptr::null_mut(),
    );
    // SAFETY: the lock is held; what is fetched here is restored below.
    unsafe { fetch(&mut kind, &mut value, &mut trace) };
    let answer = work();
    // SAFETY: as above.
    unsafe { restore(kind, value, trace) };
    answer
}

#[cfg(not(Py_3_12))]
unsafe fn fetch(
    kind: &mut *mut ffi::PyObject,
    value: &mut *mut ffi::PyObject,
    trace: &mut *mut ffi::PyObject,
) {
    // SAFETY: three places to write to.
    unsafe { ffi::PyErr_Fetch(kind, value, trace) };
}

#[cfg(not(Py_3_12))]
unsafe fn restore(kind: *mut ffi::PyObject, value: *mut ffi::PyObject, trace: *mut ffi::PyObject) {
    // SAFETY: the three that `fetch` gave.
    unsafe { ffi::PyErr_Restore(kind, value, trace) };
}

#[cfg(Py_3_12)]
unsafe fn fetch(
    _kind: &mut *mut ffi::PyObject,
    value: &mut *mut ffi::PyObject,
    _trace: &mut *mut ffi::PyObject,
) {
    // SAFETY: the lock is held.
    *value = unsafe { ffi::PyErr_GetRaisedException() };
}

#[cfg(Py_3_12)]
unsafe fn restore(
    _kind: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _trace: *mut ffi::PyObject,
) {
    // SAFETY: what `fetch` gave, or null for none.
    unsafe { ffi::PyErr_SetRaisedException(value) };
}
