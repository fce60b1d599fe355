//! Native functions that Python code calls: what identifies one, and what it is called. Runs no Python code.

use std::ffi::{CStr, c_char};

use pyo3_ffi as ffi;
use scalpel::{Name, Segment, Source, name_flags};

use crate::python::{c_text, text};

/// Offset of the descriptor in a bound slot method (`x.__len__`), a private struct that has not changed since 2.2.
const DESCRIPTOR_OF_WRAPPER: usize = 16;

/// Head of `CPython`'s `PyCFunctionObject`, the same in all versions.
#[repr(C)]
struct FunctionHead {
    object: ffi::PyObject,
    m_ml: *mut ffi::PyMethodDef,
    m_self: *mut ffi::PyObject,
    m_module: *mut ffi::PyObject,
}

/// A native callable.
enum Native {
    /// A function or a bound method.
    Function(*mut FunctionHead),
    /// A method, not bound.
    Method(*mut ffi::PyMethodDescrObject),
    /// A slot of a type, such as `__len__`.
    Wrapper(*mut ffi::PyWrapperDescrObject),
    /// A type that is made by C code.
    Type(*mut ffi::PyTypeObject),
}

unsafe fn kind(callable: *mut ffi::PyObject) -> Option<Native> {
    // SAFETY: the callers' promise: a living object; types outlive their objects.
    unsafe {
        if ffi::PyCFunction_Check(callable) != 0 {
            return Some(Native::Function(callable.cast()));
        }
        let own_type = ffi::Py_TYPE(callable);
        if own_type == &raw mut ffi::PyMethodDescr_Type
            || own_type == &raw mut ffi::PyClassMethodDescr_Type
        {
            return Some(Native::Method(callable.cast()));
        }
        if own_type == &raw mut ffi::PyWrapperDescr_Type {
            return Some(Native::Wrapper(callable.cast()));
        }
        if CStr::from_ptr((*own_type).tp_name) == c"method-wrapper" {
            // From 3.13 on the type itself cannot be named from outside.
            let descriptor = *callable.cast::<u8>().add(DESCRIPTOR_OF_WRAPPER).cast();
            return Some(Native::Wrapper(descriptor));
        }
        let is_static = ffi::PyType_Check(callable) != 0
            && (*callable.cast::<ffi::PyTypeObject>()).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE == 0;
        is_static.then(|| Native::Type(callable.cast()))
    }
}

/// What stays the same for one native function, however it is reached; `None` = it is not native, or a class made at run
/// time.
///
/// # Safety
/// The interpreter lock is held and `callable` is alive.
pub(crate) unsafe fn definition(callable: *mut ffi::PyObject) -> Option<usize> {
    // SAFETY: the caller's promise; each kind is what its type says.
    unsafe {
        Some(match kind(callable)? {
            Native::Function(function) => (*function).m_ml as usize,
            Native::Method(method) => (*method).d_method as usize,
            Native::Wrapper(wrapper) => (*wrapper).d_base as usize,
            Native::Type(own) => own as usize,
        })
    }
}

/// Tells the name of a native function.
///
/// # Safety
/// As for [`definition`].
pub(crate) unsafe fn name(segment: &Segment, func: u32, callable: *mut ffi::PyObject) {
    // SAFETY: the caller's promise, here and below.
    let Some(kind) = (unsafe { kind(callable) }) else {
        return;
    };
    // SAFETY: as above.
    let (owner, name) = unsafe {
        match kind {
            Native::Function(function) => of_function(function),
            Native::Method(method) => {
                of_type((*method).d_common.d_type, (*(*method).d_method).ml_name)
            }
            Native::Wrapper(wrapper) => of_type(
                (*wrapper).d_common.d_type,
                (*(*wrapper).d_base.cast::<SlotDefinition>()).name,
            ),
            Native::Type(own) => of_type(own, std::ptr::null()),
        }
    };
    let record = Name {
        flags: name_flags::NATIVE,
        owner: &owner,
        ..Name::new(Source::Python, &name)
    };
    segment.name(func, &record);
}

/// Head of `CPython`'s `struct wrapperbase`.
#[repr(C)]
struct SlotDefinition {
    name: *const c_char,
}

unsafe fn of_function(function: *mut FunctionHead) -> (String, String) {
    // SAFETY: a living function; its definition and module outlive it.
    unsafe {
        let definition = (*function).m_ml;
        let bound_to = (*function).m_self;
        if bound_to.is_null() || ffi::PyModule_Check(bound_to) != 0 {
            let module = (*function).m_module;
            let module = if module.is_null() { None } else { text(module) };
            return (module.unwrap_or_default(), c_text((*definition).ml_name));
        }
        let of = if ffi::PyType_Check(bound_to) != 0 {
            bound_to.cast()
        } else {
            ffi::Py_TYPE(bound_to)
        };
        of_type(defining_type(of, definition), (*definition).ml_name)
    }
}

/// The type that a method comes from: the object's own may only inherit it.
unsafe fn defining_type(
    of: *mut ffi::PyTypeObject,
    definition: *mut ffi::PyMethodDef,
) -> *mut ffi::PyTypeObject {
    // SAFETY: a living type with its base types; method tables end with a nameless entry.
    unsafe {
        let mut base = of;
        while !base.is_null() {
            let mut at = (*base).tp_methods;
            while !at.is_null() && !(*at).ml_name.is_null() {
                if at == definition {
                    return base;
                }
                at = at.add(1);
            }
            base = (*base).tp_base;
        }
        of
    }
}

/// Module and qualified name of a type's method, or of the type itself.
unsafe fn of_type(of: *mut ffi::PyTypeObject, method: *const c_char) -> (String, String) {
    // SAFETY: a living type; names end with a zero byte.
    let (full, method) = unsafe { (c_text((*of).tp_name), c_text(method)) };
    let (module, name) = full.rsplit_once('.').unwrap_or(("builtins", &full));
    let name = if method.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{method}")
    };
    (module.to_owned(), name)
}
