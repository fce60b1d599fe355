//! `sys.monitoring` (3.12 on): one callback an event, called without arguments being packed or frames being made. They
//! never fail: an exception in a callback would be the program's.

use pyo3_ffi as ffi;

use crate::callback::{self, Named};
use crate::layout;
use crate::probe::{Answer, Probe, probe};
use crate::word::Word;

/// What a callback is called with.
type Arguments = *const *mut ffi::PyObject;

/// All callbacks, by the names that Python code has for them.
pub(crate) const ALL: [Named; 9] = [
    (c"py_start", py_start),
    (c"py_resume", py_resume),
    (c"py_throw", py_throw),
    (c"py_return", py_return),
    (c"py_yield", py_yield),
    (c"py_unwind", py_unwind),
    (c"call", call),
    (c"c_return", c_return),
    (c"c_raise", c_raise),
];

macro_rules! callback {
    ($(#[$meta:meta])* $name:ident, $do:expr) => {
        $(#[$meta])*
        unsafe extern "C" fn $name(
            _callback: *mut ffi::PyObject,
            arguments: Arguments,
            how_many: usize,
            _names: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            let act = acting($do);
            // SAFETY: CPython passes that many arguments, and the current frame is the event's.
            answer(unsafe { told(arguments, how_many, act) })
        }
    };
}

callback!(
    /// A function starts.
    py_start, |probe, word, frame| {
        if probe.awake.is_new_recording(probe.segment) {
            // SAFETY: the lock is held, and the interpreter takes changes of its tools within callbacks.
            unsafe { disable::forget() };
        }
        if probe.counts_only {
            if word.is_watched() {
                probe.segment.count(word.func(), 1);
            }
            return Answer::Disable;
        }
        // SAFETY: `told` passes the current frame, under the lock.
        unsafe { probe.begin(word, frame) }
    }
);
callback!(
    /// A function returns.
    py_return, |probe, word, frame| {
        // SAFETY: `told` passes the current frame, under the lock.
        unsafe { probe.finish(word, frame, false) }
    }
);
callback!(
    /// An exception leaves a function. This event cannot be disabled: an attempt removes the callback.
    py_unwind, |probe, word, frame| {
        // SAFETY: `told` passes the current frame, under the lock.
        unsafe { probe.finish(word, frame, true) };
        Answer::Watch
    }
);
callback!(
    /// A generator or coroutine yields.
    py_yield, |probe, word, frame| {
        // SAFETY: `told` passes the current frame, under the lock.
        unsafe { probe.suspend(word, frame) }
    }
);
callback!(
    /// A generator or coroutine goes on.
    py_resume, |probe, word, frame| {
        // SAFETY: `told` passes the current frame, under the lock.
        unsafe { probe.resume(word, frame) }
    }
);
callback!(
    /// A generator or coroutine goes on with an exception. As [`py_unwind`], never disabled.
    py_throw, |probe, word, frame| {
        // SAFETY: `told` passes the current frame, under the lock.
        unsafe { probe.resume(word, frame) };
        Answer::Watch
    }
);
callback!(
    /// A native call returns.
    c_return, |probe, _word, frame| {
        // SAFETY: `told` passes the current frame, under the lock.
        unsafe { probe.finish_native(frame, false) };
        Answer::Watch
    }
);
callback!(
    /// A native call raises.
    c_raise, |probe, _word, frame| {
        // SAFETY: `told` passes the current frame, under the lock.
        unsafe { probe.finish_native(frame, true) };
        Answer::Watch
    }
);

/// Anything is called: `(code, offset, callable, first argument)`. Python functions have their own start.
unsafe extern "C" fn call(
    _callback: *mut ffi::PyObject,
    arguments: Arguments,
    how_many: usize,
    _names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let begun = |probe: &'static Probe, word: Word, frame| {
        if !word.is_watched() {
            return Answer::Disable;
        }
        // SAFETY: `told` looked that there are arguments; CALL has four.
        let callable = (callback::count(how_many) >= 3).then(|| unsafe { *arguments.add(2) });
        if let Some(callable) = callable
            && let Ok(mut codes) = probe.codes.try_borrow_mut()
        {
            // SAFETY: a living object, under the lock.
            let func = unsafe { codes.native_id(probe.segment, callable) };
            drop(codes);
            if func != 0 {
                // SAFETY: `told` passes the current frame, under the lock.
                unsafe { probe.begin_native(func, frame) };
            }
        }
        Answer::Watch
    };
    // SAFETY: as for the other callbacks.
    answer(unsafe { told(arguments, how_many, begun) })
}

/// Tells the compiler what the closures of [`callback`] are given.
const fn acting<F: FnOnce(&'static Probe, Word, usize) -> Answer>(act: F) -> F {
    act
}

/// Finds out what an event is about. A call that is no event (the program may call these functions too) is ignored.
#[inline]
unsafe fn told(
    arguments: Arguments,
    how_many: usize,
    act: impl FnOnce(&'static Probe, Word, usize) -> Answer,
) -> Answer {
    let (Some(probe), true) = (probe(), callback::count(how_many) >= 2) else {
        return Answer::Watch;
    };
    // SAFETY: there are at least two arguments.
    let code = unsafe { *arguments };
    // SAFETY: a living object; the lock is held, the layout was proved before the callbacks were registered.
    unsafe {
        if ffi::PyCode_Check(code) == 0 {
            return Answer::Watch;
        }
        let frame = layout::current();
        act(probe, probe.word(code), frame)
    }
}

#[inline]
fn answer(answer: Answer) -> *mut ffi::PyObject {
    let object = match answer {
        // SAFETY: `None` is for ever.
        Answer::Watch => unsafe { ffi::Py_None() },
        Answer::Disable => disable::object(),
    };
    // SAFETY: a living object.
    unsafe { ffi::Py_NewRef(object) }
}

/// `sys.monitoring.DISABLE`.
pub(crate) mod disable {
    use std::sync::atomic::{AtomicPtr, Ordering};

    use pyo3_ffi as ffi;

    use crate::python::aside;

    static OBJECT: AtomicPtr<ffi::PyObject> = AtomicPtr::new(std::ptr::null_mut());

    /// `sys.monitoring.restart_events`.
    static RESTART: AtomicPtr<ffi::PyObject> = AtomicPtr::new(std::ptr::null_mut());

    /// Keeps references for ever.
    ///
    /// # Safety
    /// The interpreter lock is held and both are alive.
    pub(crate) unsafe fn set(object: *mut ffi::PyObject, restart: *mut ffi::PyObject) {
        // SAFETY: the caller's promise.
        unsafe {
            OBJECT.store(ffi::Py_NewRef(object), Ordering::Release);
            RESTART.store(ffi::Py_NewRef(restart), Ordering::Release);
        }
    }

    /// All places tell again, of every tool: what one of the others had disabled it disables again.
    ///
    /// # Safety
    /// The interpreter lock is held.
    #[cold]
    pub(super) unsafe fn forget() {
        let restart = RESTART.load(Ordering::Relaxed);
        if restart.is_null() {
            return;
        }
        // SAFETY: the caller's promise; a living callable. An exception would be the program's: it is dropped.
        unsafe {
            aside(|| {
                let answer = ffi::PyObject_CallNoArgs(restart);
                if answer.is_null() {
                    ffi::PyErr_Clear();
                }
                ffi::Py_XDECREF(answer);
            });
        }
    }

    /// The object, `None` before it was set.
    #[inline]
    pub(super) fn object() -> *mut ffi::PyObject {
        let object = OBJECT.load(Ordering::Relaxed);
        if object.is_null() {
            // SAFETY: `None` is for ever.
            unsafe { ffi::Py_None() }
        } else {
            object
        }
    }
}
