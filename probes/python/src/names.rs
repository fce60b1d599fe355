//! A code object's name, place and hashes, read once. Must not know events.

use std::hash::{Hash, Hasher};

use pyo3_ffi as ffi;
use scalpel::{Name, Source, name_flags};

use crate::filter::Origin;
use crate::lines::last_line;
use crate::python::{Owned, attribute, bytes_of, number, text};
use crate::word::{CODE_ASYNC, CODE_GENERATOR, Slot};

/// `CO_OPTIMIZED`: a function, and no module or class body.
const CODE_FUNCTION: u32 = 1;

/// What is written down of a code object.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) module: String,
    pub(crate) first_line: u32,
    pub(crate) last_line: u32,
    pub(crate) code_flags: u32,
    pub(crate) body_hash: u64,
    /// The same for a code object that was compiled again from the same source.
    pub(crate) identity: u64,
}

impl Described {
    /// Reads a code object that runs now, of a module and file that are known already.
    ///
    /// # Safety
    /// The interpreter lock is held and `code` is a living code object.
    pub(crate) unsafe fn read(
        code: *mut ffi::PyObject,
        slot: Slot,
        file: String,
        module: String,
        code_flags: u32,
    ) -> Self {
        // SAFETY: the caller's promise, here and below.
        let name = unsafe { qualified_name(code, slot) };
        // SAFETY: as above.
        let first_line = unsafe { number(code, c"co_firstlineno") };
        // SAFETY: as above.
        let body = unsafe { attribute(code, c"co_code") };
        // SAFETY: as above.
        let table = unsafe { attribute(code, line_table()) };
        // SAFETY: the lock is held to the end of this function.
        let (body, table) = unsafe { (bytes(body.as_ref()), bytes(table.as_ref())) };
        let mut hasher = std::hash::DefaultHasher::new();
        (&file, &name, first_line, code_flags, body, table).hash(&mut hasher);
        // SAFETY: as above.
        unsafe { hash_tables(code, &mut hasher) };
        Self {
            first_line,
            // SAFETY: as above.
            last_line: last_line(first_line, table).max(unsafe { last_line_below(code, 0) }),
            code_flags,
            body_hash: scalpel::hash(body),
            identity: hasher.finish(),
            name,
            file,
            module,
        }
    }

    /// Whether it is the body of a `class` statement.
    pub(crate) fn is_class_body(&self) -> bool {
        self.code_flags & CODE_FUNCTION == 0 && self.name != "<module>"
    }

    /// The record for the name area.
    pub(crate) fn record(&self, origin: Origin) -> Name<'_> {
        let mut flags = match origin {
            Origin::Standard => name_flags::STANDARD_LIBRARY,
            Origin::Installed => name_flags::THIRD_PARTY,
            Origin::Program => 0,
        };
        let mut set = |bit, is| flags |= if is { bit } else { 0 };
        let last = self.name.rsplit('.').next().unwrap_or_default();
        set(name_flags::ASYNC, self.code_flags & CODE_ASYNC != 0);
        set(name_flags::GENERATOR, self.code_flags & CODE_GENERATOR != 0);
        set(name_flags::CLASS_BODY, self.is_class_body());
        set(name_flags::MODULE, last == "<module>");
        set(
            name_flags::ANONYMOUS,
            last.starts_with('<') && last != "<module>" && last != "<locals>",
        );
        set(
            name_flags::GENERATED,
            self.file.starts_with('<') && !self.file.starts_with("<frozen "),
        );
        Name {
            flags,
            line: self.first_line,
            end_line: self.last_line,
            file: &self.file,
            owner: &self.module,
            body_hash: self.body_hash,
            ..Name::new(Source::Python, &self.name)
        }
    }
}

const fn line_table() -> &'static std::ffi::CStr {
    if cfg!(Py_3_11) {
        c"co_linetable"
    } else {
        c"co_lnotab"
    }
}

/// From 3.11 on a function's definition spans its lines in the table of what encloses it.
///
/// # Safety
/// As for [`Described::read`].
#[cfg(Py_3_11)]
const unsafe fn last_line_below(_code: *mut ffi::PyObject, _depth: u32) -> u32 {
    0
}

/// Below 3.11 the end of a body is the end of the last function in it.
///
/// # Safety
/// As for [`Described::read`].
#[cfg(not(Py_3_11))]
unsafe fn last_line_below(code: *mut ffi::PyObject, depth: u32) -> u32 {
    let mut last = 0;
    // SAFETY: the caller's promise; the tuple keeps its items alive.
    unsafe {
        let Some(constants) = attribute(code, c"co_consts").filter(|_| depth < 64) else {
            return 0;
        };
        for index in 0..ffi::PyTuple_Size(constants.as_ptr()).max(0) {
            let inner = ffi::PyTuple_GetItem(constants.as_ptr(), index);
            if !inner.is_null() && ffi::PyCode_Check(inner) != 0 {
                let table = attribute(inner, line_table());
                let first = number(inner, c"co_firstlineno");
                last = last
                    .max(last_line(first, bytes(table.as_ref())))
                    .max(last_line_below(inner, depth + 1));
            }
        }
        ffi::PyErr_Clear();
    }
    last
}

/// # Safety
/// The interpreter lock is held while the answer is used.
unsafe fn bytes(object: Option<&Owned>) -> &[u8] {
    // SAFETY: the caller's promise.
    object.map_or(&[], |object| unsafe { bytes_of(object) })
}

/// # Safety
/// As for [`Described::read`].
#[cfg(Py_3_11)]
unsafe fn qualified_name(code: *mut ffi::PyObject, _slot: Slot) -> String {
    // SAFETY: the caller's promise.
    unsafe { attribute_text(code, c"co_qualname") }
}

/// Below 3.11 a code object does not know its qualified name; the module's code object, which runs first, left it.
///
/// # Safety
/// As for [`Described::read`].
#[cfg(not(Py_3_11))]
unsafe fn qualified_name(code: *mut ffi::PyObject, slot: Slot) -> String {
    // SAFETY: the caller's promise.
    unsafe {
        let name = slot
            .kept_name(code)
            .unwrap_or_else(|| attribute_text(code, c"co_name"));
        if name == "<module>" {
            leave_names(code, "", false, slot, 0);
        }
        name
    }
}

/// Leaves in each code object below `code` the qualified name that the compiler gives it.
///
/// # Safety
/// As for [`Described::read`].
#[cfg(not(Py_3_11))]
unsafe fn leave_names(
    code: *mut ffi::PyObject,
    above: &str,
    in_function: bool,
    slot: Slot,
    depth: u32,
) {
    // SAFETY: the caller's promise; the tuple keeps its items alive.
    unsafe {
        let Some(constants) = attribute(code, c"co_consts") else {
            return;
        };
        for index in 0..ffi::PyTuple_Size(constants.as_ptr()).max(0) {
            let inner = ffi::PyTuple_GetItem(constants.as_ptr(), index);
            if inner.is_null() || ffi::PyCode_Check(inner) == 0 || depth > 64 {
                continue;
            }
            let name = attribute_text(inner, c"co_name");
            let name = match (above, in_function) {
                ("", _) => name,
                (above, true) => format!("{above}.<locals>.{name}"),
                (above, false) => format!("{above}.{name}"),
            };
            let is_function = number(inner, c"co_flags") & CODE_FUNCTION != 0;
            leave_names(inner, &name, is_function, slot, depth + 1);
            slot.keep_name(inner, name);
        }
        ffi::PyErr_Clear();
    }
}

/// # Safety
/// As for [`Described::read`].
pub(crate) unsafe fn attribute_text(object: *mut ffi::PyObject, name: &std::ffi::CStr) -> String {
    // SAFETY: the caller's promise.
    unsafe { attribute(object, name).and_then(|value| text(value.as_ptr())) }.unwrap_or_default()
}

/// Names and constants tell two functions with the same instructions apart. Code among the constants is left out: it has
/// an identity of its own, and modules would be hashed as often as they are deep.
///
/// # Safety
/// As for [`Described::read`].
unsafe fn hash_tables(code: *mut ffi::PyObject, hasher: &mut impl Hasher) {
    // SAFETY: the caller's promise; texts, numbers and tuples of them hash without running Python code.
    unsafe {
        for name in [c"co_names", c"co_varnames", c"co_freevars"] {
            if let Some(names) = attribute(code, name) {
                hasher.write_isize(ffi::PyObject_Hash(names.as_ptr()));
            }
        }
        if let Some(constants) = attribute(code, c"co_consts") {
            for index in 0..ffi::PyTuple_Size(constants.as_ptr()).max(0) {
                let constant = ffi::PyTuple_GetItem(constants.as_ptr(), index);
                if !constant.is_null() && ffi::PyCode_Check(constant) == 0 {
                    hasher.write_isize(ffi::PyObject_Hash(constant));
                }
            }
        }
        ffi::PyErr_Clear();
    }
}
