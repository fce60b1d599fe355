//! `PyEval_SetProfile` (below 3.12): one callback for all, a thread at a time.
//!
//! The hook is the program's to take. An audit hook sees every attempt, so that a recording says from when to when it was
//! blind; when the program has let go of it again, the main thread takes it back.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3_ffi as ffi;
use scalpel::{Source, note_kind};

use crate::layout;
use crate::probe::{Probe, probe};
use crate::python::{Owned, attribute, bytes_of};
use crate::threads;
use crate::word::Word;

/// `RETURN_VALUE` in every version from 3.8 to 3.11.
const RETURN_VALUE: u8 = 83;
/// `RESUME` of 3.11, with argument 0 at a function's start.
const RESUME: u8 = 151;

/// This probe itself is changing a profile hook: no reason to tell.
static OURS: AtomicBool = AtomicBool::new(false);
/// Since when the program has the hook (lane clock), 0 = it has not.
static TAKEN_AT: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn PySys_AddAuditHook(
        hook: unsafe extern "C" fn(*const c_char, *mut ffi::PyObject, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

/// Takes the calling thread's hook. `sys.getprofile()` goes on answering `None`.
///
/// # Safety
/// The interpreter lock is held, and the hook is not the program's.
pub(crate) unsafe fn install() {
    OURS.store(true, Ordering::Relaxed);
    // SAFETY: the callback takes any object, null too.
    unsafe { ffi::PyEval_SetProfile(Some(on_event), std::ptr::null_mut()) };
    OURS.store(false, Ordering::Relaxed);
}

/// Watches for the program taking the hook. `false` = another audit hook forbids it.
///
/// # Safety
/// The interpreter lock is held.
pub(crate) unsafe fn watch() -> bool {
    // SAFETY: the hook lives for ever.
    let added = unsafe { PySys_AddAuditHook(on_audit, std::ptr::null_mut()) } == 0;
    if !added {
        // SAFETY: the lock is held.
        unsafe { ffi::PyErr_Clear() };
    }
    added
}

unsafe extern "C" fn on_audit(
    event: *const c_char,
    _: *mut ffi::PyObject,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the interpreter passes a name that ends with a zero byte.
    if OURS.load(Ordering::Relaxed) || unsafe { CStr::from_ptr(event) } != c"sys.setprofile" {
        return 0;
    }
    let Some(probe) = probe() else {
        return 0;
    };
    if TAKEN_AT.load(Ordering::Relaxed) == 0 {
        TAKEN_AT.store(probe.segment.clock().max(1), Ordering::Relaxed);
        let text = "the program uses sys.setprofile: calls of that thread are not seen meanwhile";
        probe.segment.note(note_kind::GAP, Source::Python, 0, text);
    }
    // SAFETY: the lock is held where the interpreter audits; if the queue is full, the gap stays open.
    unsafe { ffi::Py_AddPendingCall(Some(take_back), std::ptr::null_mut()) };
    0
}

/// On the main thread, after the program's change: is the hook free again?
extern "C" fn take_back(_: *mut c_void) -> c_int {
    // SAFETY: pending calls run under the lock; `sys.getprofile` is a builtin.
    unsafe {
        let getprofile = ffi::PySys_GetObject(c"getprofile".as_ptr());
        if getprofile.is_null() {
            return 0;
        }
        let current =
            Owned::from_answer(ffi::PyObject_CallObject(getprofile, std::ptr::null_mut()));
        if current.is_some_and(|current| current.as_ptr() == ffi::Py_None()) {
            install();
            let since = TAKEN_AT.swap(0, Ordering::Relaxed);
            if let Some(probe) = probe()
                && since != 0
            {
                let text = "the program let go of sys.setprofile; the main thread is seen again";
                probe
                    .segment
                    .note(note_kind::NOTE, Source::Python, since, text);
            }
        }
    }
    0
}

unsafe extern "C" fn on_event(
    _: *mut ffi::PyObject,
    frame: *mut ffi::PyFrameObject,
    what: c_int,
    argument: *mut ffi::PyObject,
) -> c_int {
    let Some(probe) = probe() else {
        return 0;
    };
    // SAFETY: the lock is held, and the frame object is the running frame's; the hook is that of threads of the main
    // interpreter.
    unsafe {
        threads::look(probe);
        match what {
            ffi::PyTrace_CALL => started(probe, frame),
            ffi::PyTrace_RETURN => ended(probe, frame, argument.is_null()),
            ffi::PyTrace_C_CALL if probe.native => called(probe, frame, argument),
            ffi::PyTrace_C_RETURN if probe.native => {
                probe.finish_native(layout::of_object(frame), false)
            }
            ffi::PyTrace_C_EXCEPTION if probe.native => {
                probe.finish_native(layout::of_object(frame), true)
            }
            _ => {}
        }
    }
    0
}

unsafe fn known(probe: &Probe, object: *mut ffi::PyFrameObject) -> Option<(Word, usize)> {
    // SAFETY: the running frame's object, under the lock.
    unsafe {
        let frame = layout::of_object(object);
        let code = layout::code(frame);
        (!code.is_null()).then(|| (probe.word(code), frame))
    }
}

unsafe fn started(probe: &Probe, object: *mut ffi::PyFrameObject) {
    // SAFETY: the running frame's object, under the lock, here and below.
    let Some((word, frame)) = (unsafe { known(probe, object) }) else {
        return;
    };
    if !word.is_watched() {
        return;
    }
    // SAFETY: as above.
    unsafe {
        let resumed = word.suspends() && !is_at_start(object);
        if probe.counts_only {
            probe.segment.count(word.func(), u64::from(!resumed));
        } else if resumed {
            probe.resume(word, frame);
        } else {
            probe.begin(word, frame);
        }
    }
}

unsafe fn ended(probe: &Probe, object: *mut ffi::PyFrameObject, threw: bool) {
    // SAFETY: the running frame's object, under the lock, here and below.
    let Some((word, frame)) = (unsafe { known(probe, object) }) else {
        return;
    };
    if !word.is_watched() || probe.counts_only {
        return;
    }
    // SAFETY: as above.
    unsafe {
        if !threw && word.suspends() && probe.is_open(word, frame) && !is_at_return(object) {
            probe.suspend(word, frame);
        } else {
            probe.finish(word, frame, threw);
        }
    }
}

unsafe fn called(probe: &Probe, object: *mut ffi::PyFrameObject, callable: *mut ffi::PyObject) {
    let Ok(mut codes) = probe.codes.try_borrow_mut() else {
        return;
    };
    // SAFETY: a living callable and the running frame's object, under the lock.
    unsafe {
        let func = codes.native_id(probe.segment, callable);
        drop(codes);
        if func != 0 {
            probe.begin_native(func, layout::of_object(object));
        }
    }
}

/// Whether a generator or coroutine has not run yet.
unsafe fn is_at_start(object: *mut ffi::PyFrameObject) -> bool {
    // SAFETY: the callers' promise.
    match unsafe { instruction(object) } {
        None => true,
        Some([operation, argument]) => cfg!(Py_3_11) && operation == RESUME && argument == 0,
    }
}

/// Whether it returns; else it yields.
unsafe fn is_at_return(object: *mut ffi::PyFrameObject) -> bool {
    // SAFETY: the callers' promise.
    unsafe { instruction(object) }.is_some_and(|[operation, _]| operation == RETURN_VALUE)
}

/// The instruction that a frame is at, `None` = it has not run any.
unsafe fn instruction(object: *mut ffi::PyFrameObject) -> Option<[u8; 2]> {
    // SAFETY: the callers' promise: a living frame object, under the lock; getters of numbers and bytes.
    unsafe {
        let last = attribute(object.cast(), c"f_lasti")?;
        let last = usize::try_from(ffi::PyLong_AsLong(last.as_ptr())).ok()?;
        let code = attribute(object.cast(), c"f_code")?;
        let body = attribute(code.as_ptr(), c"co_code")?;
        bytes_of(&body).get(last..)?.first_chunk().copied()
    }
}
