//! The objects that `sys.monitoring` is given: their calls go straight to the native function, without the checks that a
//! builtin function would put before it.

use std::ffi::{c_int, c_void};

use pyo3_ffi as ffi;

/// An object whose call is one function.
#[repr(C)]
struct Callback {
    head: ffi::PyObject,
    call: ffi::vectorcallfunc,
}

/// `PyVectorcall_NARGS`, inlined.
pub(crate) const fn count(how_many: usize) -> usize {
    how_many & (usize::MAX >> 1)
}

/// Names of callbacks, and what they call.
pub(crate) type Named = (&'static std::ffi::CStr, ffi::vectorcallfunc);

/// Puts a callback of each name into a module. `false` = an exception is set.
///
/// # Safety
/// The interpreter lock is held and `module` is a living module.
pub(crate) unsafe fn add(module: *mut ffi::PyObject, callbacks: &[Named]) -> bool {
    // SAFETY: the caller's promise; `make` answers a new reference or null.
    unsafe {
        let kind = make_type();
        let added = !kind.is_null()
            && callbacks.iter().all(|&(name, call)| {
                let object = make(kind, call);
                !object.is_null() && ffi::PyModule_AddObject(module, name.as_ptr(), object) == 0
            });
        ffi::Py_XDECREF(kind);
        added
    }
}

unsafe fn make(kind: *mut ffi::PyObject, call: ffi::vectorcallfunc) -> *mut ffi::PyObject {
    // SAFETY: the type of `make_type`, whose objects are as large as a `Callback`.
    unsafe {
        let object = ffi::PyType_GenericAlloc(kind.cast(), 0);
        if !object.is_null() {
            (*object.cast::<Callback>()).call = call;
        }
        object
    }
}

/// The type, made anew for each interpreter: those with a lock of their own may share none.
unsafe fn make_type() -> *mut ffi::PyObject {
    let mut members = [
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: std::mem::offset_of!(Callback, call) as ffi::Py_ssize_t,
            flags: ffi::Py_READONLY,
            doc: std::ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ];
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_tp_call, ffi::PyVectorcall_Call as *mut c_void),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(0, std::ptr::null_mut()),
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT
        | ffi::Py_TPFLAGS_HAVE_VECTORCALL
        | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION
        | ffi::Py_TPFLAGS_IMMUTABLETYPE;
    let mut spec = ffi::PyType_Spec {
        name: c"scalpel_probe._native.Callback".as_ptr(),
        basicsize: size_of::<Callback>() as c_int,
        itemsize: 0,
        flags: flags as std::ffi::c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the lock is held; all that the specification points to is copied.
    unsafe { ffi::PyType_FromSpec(&raw mut spec) }
}
