//! Threads below 3.12, where the profile hook is one thread's: each that the program starts takes it before its function runs.
//!
//! `_thread.start_new_thread`, which `threading` uses too, is a builtin function whose definition lies in the interpreter's
//! data: what it calls is replaced there, so that whoever has the function has it still. Threads that native code brings along
//! cannot be met so; they are counted by the numbers that the interpreter gives to thread states, and told.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pyo3_ffi as ffi;
use scalpel::{Source, note_kind, unseen};

use crate::probe::{Probe, probe};
use crate::profile;
use crate::python::attribute;

/// The function that was replaced.
static ORIGINAL: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// How many thread states the interpreter has numbered, as far as each takes the hook; 0 = that is not known.
static EXPECTED: AtomicU64 = AtomicU64::new(0);

/// Which word of `PyInterpreterState` is the number that was given last. Private, and proved before it is trusted.
const LAST_NUMBER: usize = if cfg!(Py_3_11) {
    1
} else if cfg!(Py_3_10) {
    431
} else if cfg!(Py_3_9) {
    437
} else {
    333
};

unsafe extern "C" {
    /// As the interpreter tells of an exception that ends a thread.
    fn _PyErr_WriteUnraisableMsg(message: *const c_char, object: *mut ffi::PyObject);
}

/// `PyCFunctionObject` of every version from 3.8 to 3.11, as far as it matters.
#[repr(C)]
struct Builtin {
    base: ffi::PyObject,
    definition: *mut ffi::PyMethodDef,
}

/// What runs first in a new thread, with the program's function as its own object.
struct Definition(ffi::PyMethodDef);

// SAFETY: it is never written.
unsafe impl Sync for Definition {}

static BEGIN: Definition = Definition(ffi::PyMethodDef {
    ml_name: c"start_new_thread".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer {
        PyCFunctionWithKeywords: begin,
    },
    ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
    ml_doc: ptr::null(),
});

/// From now on threads take the hook when they begin. `false` = threads that the program starts are not seen.
///
/// # Safety
/// The interpreter lock is held, in the main interpreter.
pub(crate) unsafe fn follow() -> bool {
    // SAFETY: the lock is held; a borrowed answer, used at once.
    unsafe {
        if !are_numbered() {
            return false;
        }
        EXPECTED.store(last_number(), Ordering::Relaxed);
        let modules = ffi::PyImport_GetModuleDict();
        if modules.is_null() {
            return false;
        }
        let module = ffi::PyDict_GetItemString(modules, c"_thread".as_ptr());
        if module.is_null() {
            return false;
        }
        // The old name has a definition of its own.
        let old = replace(module, c"start_new");
        replace(module, c"start_new_thread") && old
    }
}

/// # Safety
/// As for [`follow`]; `module` is alive.
unsafe fn replace(module: *mut ffi::PyObject, name: &CStr) -> bool {
    // SAFETY: the caller's promise.
    let Some(function) = (unsafe { attribute(module, name) }) else {
        return false;
    };
    // SAFETY: a builtin function, as is looked, has this shape in these versions; its definition lives as long as the
    // interpreter, in data that can be written, and is read and written under the lock only.
    unsafe {
        if ffi::PyCFunction_Check(function.as_ptr()) == 0 {
            return false;
        }
        let definition = (*function.as_ptr().cast::<Builtin>()).definition;
        if (*definition).ml_flags != ffi::METH_VARARGS
            || CStr::from_ptr((*definition).ml_name) != name
        {
            return false;
        }
        let before = (*definition).ml_meth.PyCFunction as *mut ();
        let ours = start as unsafe extern "C" fn(_, _) -> _;
        if before == ours as *mut () {
            return true;
        }
        ORIGINAL.store(before, Ordering::Relaxed);
        (*definition).ml_meth.PyCFunction = ours;
    }
    true
}

/// `_thread.start_new_thread(function, args[, kwargs])`.
unsafe extern "C" fn start(
    module: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: stored by `replace` before the definition named this function, and a builtin of this shape.
    let original: ffi::PyCFunction =
        unsafe { std::mem::transmute(ORIGINAL.load(Ordering::Relaxed)) };
    // SAFETY: the lock is held, and the interpreter passes a tuple.
    unsafe {
        let Some(followed) = followed(arguments) else {
            return original(module, arguments);
        };
        let before = last_number();
        let started = original(module, followed);
        // One that could not be started has been numbered too.
        EXPECTED.fetch_add(last_number().saturating_sub(before), Ordering::Relaxed);
        ffi::Py_DECREF(followed);
        started
    }
}

/// The same arguments with a function that takes the hook first; `None` = they are to be judged as they are.
unsafe fn followed(arguments: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
    probe()?;
    // SAFETY: the lock is held; a tuple whose items are alive as long as it is. Each reference that is given away is one
    // that was made for it.
    unsafe {
        let count = ffi::PyTuple_Size(arguments);
        if !(2..=3).contains(&count) || !crate::module::is_in_main() {
            return None;
        }
        let function = ffi::PyTuple_GetItem(arguments, 0);
        if ffi::PyCallable_Check(function) == 0 {
            return None;
        }
        let definition = (&raw const BEGIN.0).cast_mut();
        let begin = ffi::PyCFunction_NewEx(definition, function, ptr::null_mut());
        let tuple = ffi::PyTuple_New(count);
        if begin.is_null() || tuple.is_null() {
            ffi::PyErr_Clear();
            ffi::Py_XDECREF(begin);
            ffi::Py_XDECREF(tuple);
            return None;
        }
        ffi::PyTuple_SetItem(tuple, 0, begin);
        for at in 1..count {
            let item = ffi::PyTuple_GetItem(arguments, at);
            ffi::Py_INCREF(item);
            ffi::PyTuple_SetItem(tuple, at, item);
        }
        Some(tuple)
    }
}

/// In the new thread.
unsafe extern "C" fn begin(
    function: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the lock is held, and a new thread's hook is free; the objects live as long as the call.
    unsafe {
        profile::install();
        let answer = ffi::PyObject_Call(function, arguments, keywords);
        if answer.is_null() && ffi::PyErr_ExceptionMatches(ffi::PyExc_SystemExit) == 0 {
            // Told here, or it would be told of this function.
            _PyErr_WriteUnraisableMsg(c"in thread started by".as_ptr(), function);
            ffi::Py_INCREF(ffi::Py_None());
            return ffi::Py_None();
        }
        answer
    }
}

/// Whether other threads had run Python code before this began; they never take the hook.
///
/// # Safety
/// The interpreter lock is held.
pub(crate) unsafe fn has_others() -> bool {
    // SAFETY: the caller's promise; the list is the lock's.
    unsafe {
        let first = ffi::PyInterpreterState_ThreadHead(ffi::PyInterpreterState_Main());
        !first.is_null() && !ffi::PyThreadState_Next(first).is_null()
    }
}

/// Says if Python code has run in threads that took no hook: native ones that came in by themselves. Looked at with each event:
/// a program that is killed does not come to its end.
///
/// # Safety
/// The interpreter lock is held, in the main interpreter.
#[inline]
pub(crate) unsafe fn look(probe: &Probe) {
    let expected = EXPECTED.load(Ordering::Relaxed);
    // SAFETY: the caller's promise; the word was proved when something was expected.
    if expected != 0 && unsafe { last_number() } != expected {
        tell_unfollowed(probe);
    }
}

#[cold]
fn tell_unfollowed(probe: &Probe) {
    // Once is enough.
    EXPECTED.store(0, Ordering::Relaxed);
    let text = "Python code was entered by threads of native code, which are not seen";
    let note = |kind, value, text: &str| probe.segment.note(kind, Source::Python, value, text);
    note(note_kind::NOTE, 0, text);
    note(note_kind::UNSEEN, unseen::UNWATCHED, "");
}

/// Whether the word that is taken for the last number goes up by one with each new thread state.
///
/// # Safety
/// The interpreter lock is held, in the main interpreter.
unsafe fn are_numbered() -> bool {
    let goes_up = |_| {
        // SAFETY: the caller's promise; a state that no thread has ever been in is cleared and deleted again.
        unsafe {
            let before = last_number();
            let state = ffi::PyThreadState_New(ffi::PyInterpreterState_Main());
            if state.is_null() {
                return false;
            }
            let after = last_number();
            ffi::PyThreadState_Clear(state);
            ffi::PyThreadState_Delete(state);
            before != 0 && after == before + 1
        }
    };
    (0..3).all(goes_up)
}

/// # Safety
/// The interpreter lock is held.
unsafe fn last_number() -> u64 {
    // SAFETY: the main interpreter lives as long as the process, and its state has more words than that in these versions.
    unsafe {
        *ffi::PyInterpreterState_Main()
            .cast::<u64>()
            .add(LAST_NUMBER)
    }
}
