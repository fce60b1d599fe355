//! What the probe knows of a code object, packed into the one word of its extra slot: no lookup, no memory of its own.

use std::cell::Cell;
use std::ffi::c_void;

use pyo3_ffi as ffi;
use scalpel::flags;

unsafe extern "C" {
    // pyo3-ffi 0.29 has the two names of this function the wrong way round.
    #[cfg_attr(Py_3_12, link_name = "PyUnstable_Eval_RequestCodeExtraIndex")]
    #[cfg_attr(not(Py_3_12), link_name = "_PyEval_RequestCodeExtraIndex")]
    fn request_code_extra_index(free: ffi::freefunc) -> ffi::Py_ssize_t;
}

/// A code object's word. 0 = not seen yet.
///
/// Bit 0: known. 1: watched. 2: its frames can suspend. 3: a coroutine, which begins a task when nothing awaits it.
/// 16-31: event flags. 32-63: function id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word(u64);

const KNOWN: u64 = 1;
const WATCHED: u64 = 1 << 1;
const SUSPENDS: u64 = 1 << 2;
const COROUTINE: u64 = 1 << 3;

/// `CO_GENERATOR`, `CO_COROUTINE`, `CO_ITERABLE_COROUTINE`, `CO_ASYNC_GENERATOR`.
const CODE_SUSPENDS: u32 = 0x20 | 0x80 | 0x100 | 0x200;
/// `CO_COROUTINE`, `CO_ITERABLE_COROUTINE`.
const CODE_COROUTINE: u32 = 0x80 | 0x100;
/// `CO_COROUTINE`, `CO_ASYNC_GENERATOR`.
pub(crate) const CODE_ASYNC: u32 = 0x80 | 0x200;
/// `CO_GENERATOR`, `CO_ASYNC_GENERATOR`.
pub(crate) const CODE_GENERATOR: u32 = 0x20 | 0x200;

impl Word {
    /// Code that is not watched. Its kind is kept: it may stand between two watched coroutines.
    pub(crate) const fn unwatched(code_flags: u32) -> Self {
        Self(KNOWN | kind(code_flags))
    }

    /// Code that is watched under this id.
    pub(crate) const fn watched_as(func: u32, code_flags: u32, class_body: bool) -> Self {
        let mut events = 0;
        if code_flags & CODE_ASYNC != 0 {
            events |= flags::ASYNC;
        }
        if class_body {
            events |= flags::CLASS_BODY;
        }
        Self(KNOWN | WATCHED | kind(code_flags) | (events as u64) << 16 | (func as u64) << 32)
    }

    pub(crate) const fn is_known(self) -> bool {
        self.0 & KNOWN != 0
    }

    pub(crate) const fn is_watched(self) -> bool {
        self.0 & WATCHED != 0
    }

    #[cfg_attr(
        Py_3_12,
        expect(
            dead_code,
            reason = "sys.monitoring tells starts from resumptions by itself"
        )
    )]
    pub(crate) const fn suspends(self) -> bool {
        self.0 & SUSPENDS != 0
    }

    pub(crate) const fn is_coroutine(self) -> bool {
        self.0 & COROUTINE != 0
    }

    pub(crate) const fn func(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) const fn flags(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

const fn kind(code_flags: u32) -> u64 {
    let mut kind = 0;
    if code_flags & CODE_SUSPENDS != 0 {
        kind |= SUSPENDS;
    }
    if code_flags & CODE_COROUTINE != 0 {
        kind |= COROUTINE;
    }
    kind
}

/// The probe's slot in every code object of this interpreter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    index: ffi::Py_ssize_t,
    /// Word of a code object that points to its extras, 0 = not known: the interpreter is asked.
    extras_at: usize,
}

impl Slot {
    /// Asks for a slot; `None` = all are given out.
    ///
    /// # Safety
    /// The interpreter lock is held.
    pub(crate) unsafe fn request() -> Option<Self> {
        // SAFETY: the lock is held.
        let index = unsafe { request_code_extra_index(forget) };
        (index >= 0).then_some(Self {
            index,
            extras_at: 0,
        })
    }

    /// The same slot, read without a call. Where a code object has its extras is private to `CPython`: this one is watched
    /// while it gets its first. One that has extras already tells nothing, and the slot stays as it is.
    ///
    /// # Safety
    /// The interpreter lock is held, and `code` is a living code object without a word of the probe.
    pub(crate) unsafe fn proved_by(self, code: *mut ffi::PyObject) -> Self {
        // SAFETY: the caller's promise; the fixed part of an object is as large as its type says.
        unsafe {
            let words = usize::try_from((*ffi::Py_TYPE(code)).tp_basicsize).unwrap_or(0)
                / size_of::<usize>();
            let object = std::slice::from_raw_parts(code.cast::<Cell<usize>>(), words);
            let before: Vec<usize> = object.iter().map(Cell::get).collect();
            let mark = Word::unwatched(0);
            if !self.set(code, mark) {
                return self;
            }
            let mut filled = (0..words).filter(|&at| {
                let now = object.get(at).map_or(0, Cell::get);
                before.get(at) == Some(&0) && now != 0
            });
            let proved = match (filled.next(), filled.next()) {
                (Some(extras_at), None) => Self { extras_at, ..self },
                _ => self,
            };
            if proved.get(code) == mark {
                proved
            } else {
                self
            }
        }
    }

    /// The word of a code object, and the name that is kept for it until it is seen (below 3.11).
    ///
    /// # Safety
    /// The interpreter lock is held and `code` is a living code object.
    #[inline]
    pub(crate) unsafe fn get(self, code: *mut ffi::PyObject) -> Word {
        // SAFETY: the caller's promise.
        let word = Word(unsafe { self.extra(code) } as u64);
        if word.is_known() { word } else { Word(0) }
    }

    #[inline]
    unsafe fn extra(self, code: *mut ffi::PyObject) -> *mut c_void {
        if self.extras_at == 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.raw(code) };
        }
        // SAFETY: `proved_by` saw that this word points to the extras: their number, and the extras.
        unsafe {
            let extras = *code.cast::<*const isize>().add(self.extras_at);
            if extras.is_null() || *extras <= self.index {
                return std::ptr::null_mut();
            }
            *extras.offset(1 + self.index).cast::<*mut c_void>()
        }
    }

    unsafe fn raw(self, code: *mut ffi::PyObject) -> *mut c_void {
        let mut extra = std::ptr::null_mut();
        // SAFETY: a code object, an index that was given out, a place for the answer.
        if unsafe { ffi::PyUnstable_Code_GetExtra(code, self.index, &raw mut extra) } != 0 {
            // SAFETY: the lock is held.
            unsafe { ffi::PyErr_Clear() };
        }
        extra
    }

    /// Keeps the word. `false` = no memory for it.
    ///
    /// # Safety
    /// As for [`Slot::get`].
    pub(crate) unsafe fn set(self, code: *mut ffi::PyObject, word: Word) -> bool {
        // SAFETY: the caller's promise; an odd word is never taken for a pointer.
        unsafe { self.set_raw(code, word.0 as *mut c_void) }
    }

    unsafe fn set_raw(self, code: *mut ffi::PyObject, extra: *mut c_void) -> bool {
        // SAFETY: a code object and an index that was given out.
        let kept = unsafe { ffi::PyUnstable_Code_SetExtra(code, self.index, extra) } == 0;
        if !kept {
            // SAFETY: the lock is held.
            unsafe { ffi::PyErr_Clear() };
        }
        kept
    }

    /// The qualified name that [`Slot::keep_name`] left.
    ///
    /// # Safety
    /// As for [`Slot::get`].
    #[cfg(not(Py_3_11))]
    pub(crate) unsafe fn kept_name(self, code: *mut ffi::PyObject) -> Option<String> {
        // SAFETY: the caller's promise.
        let extra = unsafe { self.raw(code) };
        if extra.is_null() || extra as usize & 1 == 1 {
            return None;
        }
        // SAFETY: an even extra is a name of `keep_name`, alive until it is replaced.
        Some(unsafe { &*extra.cast::<String>() }.clone())
    }

    /// Leaves a qualified name for a code object that has not run yet.
    ///
    /// # Safety
    /// As for [`Slot::get`].
    #[cfg(not(Py_3_11))]
    pub(crate) unsafe fn keep_name(self, code: *mut ffi::PyObject, name: String) {
        // SAFETY: the caller's promise.
        if !unsafe { self.raw(code) }.is_null() {
            return;
        }
        let kept = Box::into_raw(Box::new(name));
        // SAFETY: a new box, which `forget` drops; if it was not taken, here.
        unsafe {
            if !self.set_raw(code, kept.cast()) {
                drop(Box::from_raw(kept));
            }
        }
    }
}

/// `CPython` is done with an extra: a known word needs nothing, a kept name is dropped.
unsafe extern "C" fn forget(extra: *mut c_void) {
    if !extra.is_null() && extra as usize & 1 == 0 {
        // SAFETY: an even extra is a box of `keep_name`.
        drop(unsafe { Box::from_raw(extra.cast::<String>()) });
    }
}
