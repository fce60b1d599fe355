//! A code object's name, place and hashes, read once. Must not know events.

use std::hash::{Hash, Hasher};

use pyo3_ffi as ffi;
use rustc_hash::FxHasher;
use scalpel::{Name, Source, name_flags};

use crate::filter::Origin;
use crate::lines::last_line;
use crate::members::{Member, Members};
use crate::places::Place;
use crate::python::{Owned, bytes_of, text};
use crate::word::{CODE_ASYNC, CODE_GENERATOR, Slot};

/// `CO_OPTIMIZED`: a function, and no module or class body.
const CODE_FUNCTION: u32 = 1;

/// What is written down of a code object.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) first_line: u32,
    pub(crate) last_line: u32,
    pub(crate) code_flags: u32,
    pub(crate) body_hash: u64,
    /// The same for a code object that was compiled again from the same source.
    pub(crate) identity: u64,
}

impl Described {
    /// Reads a code object that runs now, of a place that is known already.
    ///
    /// # Safety
    /// The interpreter lock is held and `code` is a living code object.
    pub(crate) unsafe fn read(
        code: *mut ffi::PyObject,
        members: Members,
        slot: Slot,
        place: Place,
        code_flags: u32,
    ) -> Self {
        // SAFETY: the caller's promise, here and below.
        let name = unsafe { qualified_name(code, members, slot) };
        // SAFETY: as above.
        let first_line = unsafe { members.number(code, Member::FirstLine) };
        // SAFETY: as above.
        let body = unsafe { members.object(code, Member::Body) };
        // SAFETY: as above.
        let table = unsafe { members.object(code, Member::Lines) };
        // SAFETY: the lock is held to the end of this function.
        let (body, table) = unsafe { (bytes(body.as_ref()), bytes(table.as_ref())) };
        let body_hash = scalpel::hash(body);
        let mut hasher = FxHasher::default();
        (&place.file, &name, first_line, code_flags, body_hash, table).hash(&mut hasher);
        // SAFETY: as above.
        unsafe { hash_tables(code, members, &mut hasher) };
        Self {
            first_line,
            // SAFETY: as above.
            last_line: last_line(first_line, table)
                .max(unsafe { last_line_below(code, members, 0) }),
            code_flags,
            body_hash,
            identity: hasher.finish(),
            name,
            place,
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
            self.place.file.starts_with('<') && !self.place.file.starts_with("<frozen "),
        );
        Name {
            flags,
            line: self.first_line,
            end_line: self.last_line,
            file: &self.place.file,
            owner: &self.place.module,
            body_hash: self.body_hash,
            text_hash: self.place.text_hash,
            ..Name::new(Source::Python, &self.name)
        }
    }
}

/// From 3.11 on a function's definition spans its lines in the table of what encloses it.
///
/// # Safety
/// As for [`Described::read`].
#[cfg(Py_3_11)]
const unsafe fn last_line_below(_: *mut ffi::PyObject, _: Members, _depth: u32) -> u32 {
    0
}

/// Below 3.11 the end of a body is the end of the last function in it.
///
/// # Safety
/// As for [`Described::read`].
#[cfg(not(Py_3_11))]
unsafe fn last_line_below(code: *mut ffi::PyObject, members: Members, depth: u32) -> u32 {
    let mut last = 0;
    // SAFETY: the caller's promise; the tuple keeps its items alive.
    unsafe {
        let constants = members.object(code, Member::Constants);
        let Some(constants) = constants.filter(|_| depth < 64) else {
            return 0;
        };
        for index in 0..ffi::PyTuple_Size(constants.as_ptr()).max(0) {
            let inner = ffi::PyTuple_GetItem(constants.as_ptr(), index);
            if !inner.is_null() && ffi::PyCode_Check(inner) != 0 {
                let table = members.object(inner, Member::Lines);
                let first = members.number(inner, Member::FirstLine);
                last = last
                    .max(last_line(first, bytes(table.as_ref())))
                    .max(last_line_below(inner, members, depth + 1));
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
unsafe fn qualified_name(code: *mut ffi::PyObject, members: Members, _slot: Slot) -> String {
    // SAFETY: the caller's promise.
    unsafe { member_text(code, members, Member::QualifiedName) }
}

/// Below 3.11 a code object does not know its qualified name; the module's code object, which runs first, left it.
///
/// # Safety
/// As for [`Described::read`].
#[cfg(not(Py_3_11))]
unsafe fn qualified_name(code: *mut ffi::PyObject, members: Members, slot: Slot) -> String {
    // SAFETY: the caller's promise.
    unsafe {
        let name = slot
            .kept_name(code)
            .unwrap_or_else(|| member_text(code, members, Member::Name));
        if name == "<module>" {
            leave_names(code, members, "", false, slot, 0);
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
    members: Members,
    above: &str,
    in_function: bool,
    slot: Slot,
    depth: u32,
) {
    // SAFETY: the caller's promise; the tuple keeps its items alive.
    unsafe {
        let Some(constants) = members.object(code, Member::Constants) else {
            return;
        };
        for index in 0..ffi::PyTuple_Size(constants.as_ptr()).max(0) {
            let inner = ffi::PyTuple_GetItem(constants.as_ptr(), index);
            if inner.is_null() || ffi::PyCode_Check(inner) == 0 || depth > 64 {
                continue;
            }
            let name = member_text(inner, members, Member::Name);
            let name = match (above, in_function) {
                ("", _) => name,
                (above, true) => format!("{above}.<locals>.{name}"),
                (above, false) => format!("{above}.{name}"),
            };
            let is_function = members.number(inner, Member::Flags) & CODE_FUNCTION != 0;
            leave_names(inner, members, &name, is_function, slot, depth + 1);
            slot.keep_name(inner, name);
        }
        ffi::PyErr_Clear();
    }
}

/// # Safety
/// As for [`Described::read`].
unsafe fn member_text(code: *mut ffi::PyObject, members: Members, member: Member) -> String {
    // SAFETY: the caller's promise.
    unsafe {
        let value = members.object(code, member);
        value.and_then(|value| text(value.as_ptr()))
    }
    .unwrap_or_default()
}

/// Whether it is the body of a module.
///
/// # Safety
/// As for [`Described::read`].
pub(crate) unsafe fn is_module(code: *mut ffi::PyObject, members: Members) -> bool {
    // SAFETY: the caller's promise; the name lives as long as the code.
    unsafe {
        members.number(code, Member::Flags) & CODE_FUNCTION == 0
            && members.object(code, Member::Name).is_some_and(|name| {
                ffi::PyUnicode_CompareWithASCIIString(name.as_ptr(), c"<module>".as_ptr()) == 0
            })
    }
}

/// Names and constants tell two functions with the same instructions apart. Code among the constants is left out: it has
/// an identity of its own, and modules would be hashed as often as they are deep.
///
/// # Safety
/// As for [`Described::read`].
unsafe fn hash_tables(code: *mut ffi::PyObject, members: Members, hasher: &mut impl Hasher) {
    // SAFETY: the caller's promise; texts, numbers and tuples of them hash without running Python code.
    unsafe {
        for names in [Member::Names, Member::Variables, Member::Free] {
            if let Some(names) = members.object(code, names) {
                hasher.write_isize(ffi::PyObject_Hash(names.as_ptr()));
            }
        }
        if let Some(constants) = members.object(code, Member::Constants) {
            for index in 0..ffi::PyTuple_Size(constants.as_ptr()).max(0) {
                let constant = ffi::PyTuple_GetItem(constants.as_ptr(), index);
                if !constant.is_null() && ffi::PyCode_Check(constant) == 0 {
                    hasher.write_isize(hash_of(constant));
                }
            }
        }
        ffi::PyErr_Clear();
    }
}

/// The hash of a constant. Of a long text, which may be a page of documentation that nobody has hashed yet, its length and
/// some of its letters.
///
/// # Safety
/// The interpreter lock is held and `constant` is alive.
unsafe fn hash_of(constant: *mut ffi::PyObject) -> ffi::Py_hash_t {
    // SAFETY: the caller's promise; the places are below the length.
    unsafe {
        let is_text = ffi::PyUnicode_Check(constant) != 0;
        let length = if is_text {
            ffi::PyUnicode_GetLength(constant)
        } else {
            0
        };
        if length < 4 * LETTERS {
            return ffi::PyObject_Hash(constant);
        }
        let mut hasher = FxHasher::default();
        hasher.write_isize(length);
        for step in 0..LETTERS {
            hasher.write_u32(ffi::PyUnicode_ReadChar(constant, length * step / LETTERS));
        }
        hasher.finish().cast_signed() as ffi::Py_hash_t
    }
}

/// Letters of a long text that are looked at.
const LETTERS: ffi::Py_ssize_t = 16;
