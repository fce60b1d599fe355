//! What a code object holds, by the table in which the interpreter itself describes it (`tp_members`): a look, where asking
//! for an attribute by its name makes a text and searches types. What the table does not have is asked for.

use std::ffi::{CStr, c_int};

use pyo3_ffi as ffi;

use crate::python::{Owned, attribute, number};

#[cfg(Py_3_11)]
type Maker = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;

#[cfg(Py_3_11)]
unsafe extern "C" {
    fn PyCode_GetCode(code: *mut ffi::PyObject) -> *mut ffi::PyObject;
    fn PyCode_GetVarnames(code: *mut ffi::PyObject) -> *mut ffi::PyObject;
    fn PyCode_GetFreevars(code: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// An attribute of code objects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Member {
    File,
    Name,
    #[cfg_attr(not(Py_3_11), expect(dead_code, reason = "not an attribute yet"))]
    QualifiedName,
    Flags,
    FirstLine,
    Body,
    Lines,
    Names,
    Variables,
    Free,
    Constants,
}

/// In the order of [`Member`].
const NAMES: [&CStr; 11] = [
    c"co_filename",
    c"co_name",
    c"co_qualname",
    c"co_flags",
    c"co_firstlineno",
    c"co_code",
    if cfg!(Py_3_11) {
        c"co_linetable"
    } else {
        c"co_lnotab"
    },
    c"co_names",
    c"co_varnames",
    c"co_freevars",
    c"co_consts",
];

/// `T_INT` and `T_OBJECT` of a member's type, in every version.
const INT: c_int = 1;
const OBJECT: c_int = 6;

/// Where each member is, 0 = the table does not tell: there stands the object's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members {
    at: [(usize, c_int); NAMES.len()],
}

impl Members {
    /// Reads the table.
    pub(crate) fn new() -> Self {
        Self {
            at: NAMES.map(|name| find(name).unwrap_or((0, 0))),
        }
    }

    fn place(self, member: Member, kind: c_int) -> Option<usize> {
        let &(at, is) = self.at.get(member as usize)?;
        (at != 0 && is == kind).then_some(at)
    }

    /// What the table does not have, by the functions that there are for it; else by name.
    unsafe fn made(code: *mut ffi::PyObject, member: Member) -> Option<Owned> {
        #[cfg(Py_3_11)]
        // SAFETY: the caller of `object` promised a living code object.
        unsafe {
            let make = match member {
                Member::Body => Some(PyCode_GetCode as Maker),
                Member::Variables => Some(PyCode_GetVarnames as Maker),
                Member::Free => Some(PyCode_GetFreevars as Maker),
                _ => None,
            };
            if let Some(make) = make {
                return Owned::from_answer(make(code));
            }
        }
        // SAFETY: as above.
        unsafe { attribute(code, NAMES.get(member as usize)?) }
    }

    /// An attribute that is an object.
    ///
    /// # Safety
    /// The interpreter lock is held and `code` is a living code object.
    pub(crate) unsafe fn object(self, code: *mut ffi::PyObject, member: Member) -> Option<Owned> {
        // SAFETY: the caller's promise; the table says that an object, or null, is there.
        unsafe {
            let Some(at) = self.place(member, OBJECT) else {
                return Self::made(code, member);
            };
            let object = *code.byte_add(at).cast::<*mut ffi::PyObject>();
            ffi::Py_XINCREF(object);
            Owned::from_answer(object)
        }
    }

    /// A small number out of an attribute, 0 = it is none.
    ///
    /// # Safety
    /// As for [`Members::object`].
    pub(crate) unsafe fn number(self, code: *mut ffi::PyObject, member: Member) -> u32 {
        // SAFETY: the caller's promise; the table says that an `int` is there.
        unsafe {
            match (self.place(member, INT), NAMES.get(member as usize)) {
                (Some(at), _) => u32::try_from(*code.byte_add(at).cast::<c_int>()).unwrap_or(0),
                (None, Some(name)) => number(code, name),
                (None, None) => 0,
            }
        }
    }
}

/// Offset and type of a member of code objects.
fn find(name: &CStr) -> Option<(usize, c_int)> {
    // SAFETY: the table of a static type lives for ever, and ends with an entry without name.
    unsafe {
        let mut member = ffi::PyCode_Type.tp_members;
        while !member.is_null() && !(*member).name.is_null() {
            if CStr::from_ptr((*member).name) == name {
                return Some((usize::try_from((*member).offset).ok()?, (*member).type_code));
            }
            member = member.add(1);
        }
    }
    None
}
