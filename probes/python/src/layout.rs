//! Where the interpreter keeps its frames: private structs of `CPython`, read by offsets that are proved before they are used.
//!
//! `sys.monitoring` hands out no frame, and the public way to one allocates a frame object. So the current frame's address
//! is read from the thread state. The offsets hold within a minor version; [`prove`] compares them, in the running
//! interpreter, with what the public API says about two nested frames.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3_ffi as ffi;

/// Offset of `previous` in the interpreter's frame (a frame object below 3.11).
const PREVIOUS: usize = if cfg!(Py_3_12) {
    8
} else if cfg!(Py_3_11) {
    48
} else {
    24
};

/// Offset of the code object in it; from 3.14 on a tagged pointer.
const CODE: usize = if cfg!(Py_3_12) { 0 } else { 32 };

/// Offset of the interpreter's frame in a frame object (3.11 on).
const FRAME_OF_OBJECT: usize = 24;

/// Offset of `cframe` in the thread state of 3.12, whose first word is the current frame.
const CFRAME: usize = 56;

/// How far into the thread state the pointer to the current frame is looked for (3.13 on; the struct is larger).
const REACH: usize = 256;

/// Offset of the pointer to the current frame in the thread state, once [`prove`] has found it.
static CURRENT: AtomicUsize = AtomicUsize::new(0);

/// Address of the interpreter's frame of a frame object.
///
/// # Safety
/// `object` is a living frame object.
#[inline]
pub(crate) unsafe fn of_object(object: *mut ffi::PyFrameObject) -> usize {
    if cfg!(Py_3_11) {
        // SAFETY: from 3.11 on this word of a frame object is its interpreter's frame.
        unsafe { word(object as usize + FRAME_OF_OBJECT) }
    } else {
        object as usize
    }
}

/// Address of the frame that the calling thread is in.
///
/// # Safety
/// The interpreter lock is held, and [`prove`] has succeeded.
#[cfg(Py_3_12)]
#[inline]
pub(crate) unsafe fn current() -> usize {
    // SAFETY: a thread that holds the lock has a thread state.
    let thread = unsafe { ffi::PyThreadState_Get() } as usize;
    // SAFETY: `prove` found the offset within the thread state.
    let at = unsafe { word(thread + CURRENT.load(Ordering::Relaxed)) };
    if cfg!(Py_3_13) {
        at
    } else {
        // SAFETY: 3.12's `cframe` is never null, and begins with the current frame.
        unsafe { word(at) }
    }
}

/// The frame that called this one, 0 = none.
///
/// # Safety
/// `frame` is a frame of the calling thread's stack, and the interpreter lock is held.
#[inline]
pub(crate) unsafe fn previous(frame: usize) -> usize {
    // SAFETY: the caller's promise; `prove` compared the offset.
    unsafe { word(frame + PREVIOUS) }
}

/// The code object of a frame; null for the interpreter's own frames between C and Python.
///
/// # Safety
/// As for [`previous`].
pub(crate) unsafe fn code(frame: usize) -> *mut ffi::PyObject {
    // SAFETY: as in `previous`.
    let code = (unsafe { word(frame + CODE) } & !7) as *mut ffi::PyObject;
    // SAFETY: the word is a pointer to a living object or null.
    if code.is_null() || unsafe { ffi::PyCode_Check(code) } == 0 {
        std::ptr::null_mut()
    } else {
        code
    }
}

/// The Python frame that called this one, 0 = none.
unsafe fn caller(mut frame: usize) -> usize {
    loop {
        // SAFETY: `prove` asks this of the running frame.
        frame = unsafe { previous(frame) };
        // SAFETY: as above.
        if frame == 0 || !unsafe { code(frame) }.is_null() {
            return frame;
        }
    }
}

unsafe fn word(at: usize) -> usize {
    // SAFETY: the caller's promise that a pointer-sized field is there.
    unsafe { *(at as *const usize) }
}

/// The code that the calling thread runs; null = none.
///
/// # Safety
/// The interpreter lock is held, and [`prove`] has succeeded.
pub(crate) unsafe fn running() -> *mut ffi::PyObject {
    // SAFETY: the lock is held; the answer is borrowed.
    let object = unsafe { ffi::PyEval_GetFrame() };
    if object.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: a living frame object of proved layout.
    unsafe { code(of_object(object)) }
}

/// Compares the offsets with the public API. Called from a Python function that another Python function called.
///
/// # Safety
/// The interpreter lock is held.
pub(crate) unsafe fn prove() -> bool {
    // SAFETY: the lock is held; the answer is borrowed.
    let object = unsafe { ffi::PyEval_GetFrame() };
    if object.is_null() {
        return false;
    }
    // SAFETY: a living frame object.
    let frame = unsafe { of_object(object) };
    // SAFETY: as above; `frame` is then the interpreter's own pointer.
    unsafe { same_code(object, frame) && same_caller(object, frame) && find_current(frame) }
}

unsafe fn same_code(object: *mut ffi::PyFrameObject, frame: usize) -> bool {
    // SAFETY: a living frame object has this attribute; the reference is given back.
    unsafe {
        let public = ffi::PyObject_GetAttrString(object.cast(), c"f_code".as_ptr());
        let same = !public.is_null() && code(frame) == public;
        ffi::Py_XDECREF(public);
        same
    }
}

unsafe fn same_caller(object: *mut ffi::PyFrameObject, frame: usize) -> bool {
    // SAFETY: as in `same_code`.
    unsafe {
        let back = ffi::PyObject_GetAttrString(object.cast(), c"f_back".as_ptr());
        let same =
            !back.is_null() && back != ffi::Py_None() && caller(frame) == of_object(back.cast());
        ffi::Py_XDECREF(back);
        same
    }
}

/// Finds the pointer to the current frame in the thread state. What fits in one call fits in all: the shim asks twice,
/// from different frames, and only an offset that fits both stays.
unsafe fn find_current(frame: usize) -> bool {
    if !cfg!(Py_3_12) {
        return true;
    }
    // SAFETY: a thread that holds the lock has a thread state, larger than `REACH`.
    let thread = unsafe { ffi::PyThreadState_Get() } as usize;
    let fits = |offset: usize| {
        // SAFETY: within the thread state; `cframe` of 3.12 is a valid pointer.
        unsafe {
            let at = word(thread + offset);
            at != 0 && (if cfg!(Py_3_13) { at } else { word(at) }) == frame
        }
    };
    let known = CURRENT.load(Ordering::Relaxed);
    let found = if known != 0 {
        fits(known).then_some(known)
    } else if cfg!(Py_3_13) {
        (8..REACH).step_by(8).find(|&offset| fits(offset))
    } else {
        fits(CFRAME).then_some(CFRAME)
    };
    CURRENT.store(found.unwrap_or(0), Ordering::Relaxed);
    found.is_some()
}
