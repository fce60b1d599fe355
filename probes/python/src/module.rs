//! What Python code can call, and the module's entry in C.

use std::ffi::CStr;

use pyo3_ffi as ffi;
use scalpel::{Hello, Source};

use crate::codes::Codes;
use crate::filter::Filter;
use crate::layout;
use crate::probe::{Probe, probe};
use crate::python::text;
use crate::word::Slot;

type Object = *mut ffi::PyObject;
type Arguments = *mut *mut ffi::PyObject;

/// A fast-call function of the module.
type Function = ffi::PyCFunctionFast;

/// An argument as text, empty if there is none.
unsafe fn text_at(arguments: Arguments, count: ffi::Py_ssize_t, index: usize) -> String {
    if index >= usize::try_from(count).unwrap_or(0) {
        return String::new();
    }
    // SAFETY: there are that many arguments, alive during the call.
    unsafe { text(*arguments.add(index)) }.unwrap_or_default()
}

fn none() -> Object {
    // SAFETY: `None` is for ever; the caller gets a reference.
    unsafe {
        ffi::Py_IncRef(ffi::Py_None());
        ffi::Py_None()
    }
}

fn boolean(value: bool) -> Object {
    // SAFETY: the lock is held by whoever calls the module's functions.
    unsafe { ffi::PyBool_FromLong(value.into()) }
}

fn to_text(value: &str) -> Object {
    let len = ffi::Py_ssize_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: as in `boolean`; the bytes are UTF-8.
    unsafe { ffi::PyUnicode_FromStringAndSize(value.as_ptr().cast(), len) }
}

/// `join(runtime)`: takes part in the recording. `None`, or why not.
unsafe extern "C" fn join(_: Object, arguments: Arguments, count: ffi::Py_ssize_t) -> Object {
    // SAFETY: CPython passes that many arguments.
    let runtime = unsafe { text_at(arguments, count, 0) };
    let hello = Hello {
        source: Source::Python,
        runtime: &runtime,
    };
    match scalpel::connect(&hello) {
        Ok(_) => none(),
        Err(refusal) => to_text(&refusal.to_string()),
    }
}

/// `modes()`: what the recording asks for; 0 = there is none.
unsafe extern "C" fn modes(_: Object, _: Arguments, _: ffi::Py_ssize_t) -> Object {
    let modes = scalpel::attached().map_or(0, scalpel::Segment::modes);
    // SAFETY: the lock is held.
    unsafe { ffi::PyLong_FromLong(modes.into()) }
}

/// `is_main()`: whether this is the first interpreter of the process.
unsafe extern "C" fn is_main(_: Object, _: Arguments, _: ffi::Py_ssize_t) -> Object {
    // SAFETY: the lock is held.
    boolean(unsafe { is_in_main() })
}

/// # Safety
/// The interpreter lock is held.
pub(crate) unsafe fn is_in_main() -> bool {
    // SAFETY: the caller's promise.
    unsafe { interpreter_of(ffi::PyThreadState_Get()) == ffi::PyInterpreterState_Main() }
}

#[cfg(Py_3_9)]
unsafe fn interpreter_of(thread: *mut ffi::PyThreadState) -> *mut ffi::PyInterpreterState {
    // SAFETY: a living thread state.
    unsafe { ffi::PyThreadState_GetInterpreter(thread) }
}

/// 3.8 has no way to ask; the interpreter is the third word of its thread states.
#[cfg(not(Py_3_9))]
unsafe fn interpreter_of(thread: *mut ffi::PyThreadState) -> *mut ffi::PyInterpreterState {
    // SAFETY: a living thread state.
    unsafe { *thread.cast::<*mut ffi::PyInterpreterState>().add(2) }
}

/// `prove()`: whether frames can be read here. To be called from a function that a function called.
unsafe extern "C" fn prove(_: Object, _: Arguments, _: ffi::Py_ssize_t) -> Object {
    // SAFETY: the lock is held.
    boolean(unsafe { layout::prove() })
}

/// `prepare(standard, own)`: makes the callbacks ready. `None`, or why not. `standard`: folders of Python's own library,
/// separated by zeros; `own`: the probe's, so too.
unsafe extern "C" fn prepare(_: Object, arguments: Arguments, count: ffi::Py_ssize_t) -> Object {
    // SAFETY: CPython passes that many arguments.
    let (standard, own) = unsafe { (text_at(arguments, count, 0), text_at(arguments, count, 1)) };
    let Some(segment) = scalpel::attached() else {
        return to_text("no recording");
    };
    if probe().is_some() {
        return to_text("already started");
    }
    let own = own.split('\0').filter(|path| !path.is_empty());
    let own = own.map(str::to_owned).collect();
    let option = |name| segment.option(name).unwrap_or_default();
    let filter = Filter::new(option("py-include"), option("py-exclude"), &standard);
    // SAFETY: the lock is held.
    let Some(slot) = (unsafe { Slot::request() }) else {
        return to_text("code objects have no extra slot left: other tools use all 255");
    };
    // SAFETY: as above.
    let codes = unsafe { Codes::new(filter, own) };
    codes.tell_standard(segment);
    // SAFETY: as above; the caller's code is the probe's own, and has never been looked at.
    let slot = unsafe {
        match layout::running() {
            code if code.is_null() => slot,
            code => slot.proved_by(code),
        }
    };
    match Probe::publish(segment, slot, codes) {
        Some(()) => none(),
        None => to_text("no memory for the table of running calls"),
    }
}

/// `note(kind, value, text)`: leaves a note in the recording, from any interpreter.
unsafe extern "C" fn note(_: Object, arguments: Arguments, count: ffi::Py_ssize_t) -> Object {
    if let (Some(segment), true) = (scalpel::attached(), count >= 3) {
        // SAFETY: three arguments; what is no number is 0, and its exception cleared.
        let (kind, value, text) = unsafe {
            let kind = ffi::PyLong_AsLong(*arguments);
            let value = ffi::PyLong_AsLong(*arguments.add(1));
            ffi::PyErr_Clear();
            (kind, value, text_at(arguments, count, 2))
        };
        let kind = u8::try_from(kind).unwrap_or(scalpel::note_kind::NOTE);
        segment.note(
            kind,
            Source::Python,
            u64::try_from(value).unwrap_or(0),
            &text,
        );
    }
    none()
}

/// `finish()`: the interpreter ends.
unsafe extern "C" fn finish(_: Object, _: Arguments, _: ffi::Py_ssize_t) -> Object {
    if let Some(probe) = probe()
        && let Ok(mut codes) = probe.codes.try_borrow_mut()
    {
        codes.tell_excluded(probe.segment);
    }
    #[cfg(not(Py_3_12))]
    if let Some(probe) = probe() {
        // SAFETY: the lock is held, and only the main interpreter has been given this function.
        unsafe { crate::threads::look(probe) };
    }
    none()
}

/// `set_disable(object, restart)`: what `sys.monitoring` takes as *do not tell again*, and what makes it forget that.
#[cfg(Py_3_12)]
unsafe extern "C" fn set_disable(
    _: Object,
    arguments: Arguments,
    count: ffi::Py_ssize_t,
) -> Object {
    if count > 1 {
        // SAFETY: two living arguments, under the lock.
        unsafe { crate::monitor::disable::set(*arguments, *arguments.add(1)) };
    }
    none()
}

/// `set_profile()`: takes this thread's profile hook.
#[cfg(not(Py_3_12))]
unsafe extern "C" fn set_profile(_: Object, _: Arguments, _: ffi::Py_ssize_t) -> Object {
    if probe().is_some() {
        // SAFETY: the lock is held; the caller looked that the hook is free.
        unsafe { crate::profile::install() };
    }
    none()
}

/// `follow_threads()`: threads that the program starts take the hook, too. Whether all do.
#[cfg(not(Py_3_12))]
unsafe extern "C" fn follow_threads(_: Object, _: Arguments, _: ffi::Py_ssize_t) -> Object {
    // SAFETY: the lock is held, in the main interpreter: only there a probe starts.
    boolean(unsafe { crate::threads::follow() && !crate::threads::has_others() })
}

/// `watch_profile()`: tells when the program takes the profile hook. Whether that is possible.
#[cfg(not(Py_3_12))]
unsafe extern "C" fn watch_profile(_: Object, _: Arguments, _: ffi::Py_ssize_t) -> Object {
    // SAFETY: the lock is held.
    boolean(unsafe { crate::profile::watch() })
}

const fn method(name: &'static CStr, function: Function) -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFast: function,
        },
        ml_flags: ffi::METH_FASTCALL,
        ml_doc: std::ptr::null(),
    }
}

#[cfg(Py_3_12)]
const FUNCTIONS: usize = 8;
#[cfg(not(Py_3_12))]
const FUNCTIONS: usize = 10;

/// The end of the table is an empty entry.
static mut METHODS: [ffi::PyMethodDef; FUNCTIONS + 1] = [
    method(c"join", join),
    method(c"modes", modes),
    method(c"is_main", is_main),
    method(c"prove", prove),
    method(c"prepare", prepare),
    method(c"note", note),
    method(c"finish", finish),
    #[cfg(Py_3_12)]
    method(c"set_disable", set_disable),
    #[cfg(not(Py_3_12))]
    method(c"set_profile", set_profile),
    #[cfg(not(Py_3_12))]
    method(c"follow_threads", follow_threads),
    #[cfg(not(Py_3_12))]
    method(c"watch_profile", watch_profile),
    ffi::PyMethodDef::zeroed(),
];

/// Gives the module its callbacks.
#[cfg(Py_3_12)]
unsafe extern "C" fn fill(module: Object) -> std::ffi::c_int {
    // SAFETY: called by `import`, under the lock, with the new module.
    if unsafe { crate::callback::add(module, &crate::monitor::ALL) } {
        0
    } else {
        -1
    }
}

/// Loading starts nothing. In interpreters with a lock of their own too: they say that they are not watched.
static mut SLOTS: [ffi::PyModuleDef_Slot; SLOTS_USED] = [
    #[cfg(Py_3_12)]
    ffi::PyModuleDef_Slot {
        slot: ffi::Py_mod_exec,
        value: fill as *mut std::ffi::c_void,
    },
    #[cfg(Py_3_12)]
    ffi::PyModuleDef_Slot {
        slot: ffi::Py_mod_multiple_interpreters,
        value: ffi::Py_MOD_PER_INTERPRETER_GIL_SUPPORTED,
    },
    ffi::PyModuleDef_Slot {
        slot: 0,
        value: std::ptr::null_mut(),
    },
];

const SLOTS_USED: usize = if cfg!(Py_3_12) { 3 } else { 1 };

static mut MODULE: ffi::PyModuleDef = ffi::PyModuleDef {
    m_base: ffi::PyModuleDef_HEAD_INIT,
    m_name: c"scalpel_probe._native".as_ptr(),
    m_doc: std::ptr::null(),
    m_size: 0,
    m_methods: (&raw mut METHODS).cast(),
    m_slots: (&raw mut SLOTS).cast(),
    m_traverse: None,
    m_clear: None,
    m_free: None,
};

/// What `import` calls.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn PyInit__native() -> Object {
    // SAFETY: called by `import`, under the lock; the definition lives for ever and is CPython's to write.
    unsafe { ffi::PyModuleDef_Init(&raw mut MODULE) }
}
