//! What has been decided about the code of one module in one file: most code objects are not the first of theirs.

use std::rc::Rc;

use pyo3_ffi as ffi;
use rustc_hash::FxHashMap;

use crate::filter::Origin;
use crate::python::{Owned, text};

/// Pairs that are kept; sources that are executed without end may each have a file name of their own.
const MOST: usize = 1 << 13;

/// Whether the code of a module in a file is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The probe's own.
    Own,
    /// Left out by the filter.
    Excluded,
    Watched(Origin),
}

/// A module and a file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) file: Rc<str>,
    pub(crate) module: Rc<str>,
    pub(crate) decision: Decision,
    /// Hash of the text that was loaded, 0 = not known.
    pub(crate) text_hash: u64,
}

/// Places by the interpreter's two texts.
#[derive(Debug, Default)]
pub(crate) struct Places(FxHashMap<(usize, usize), Kept>);

/// A place, and the two texts: while they are alive, their addresses are nobody else's.
#[derive(Debug)]
struct Kept {
    place: Place,
    _texts: [Option<Owned>; 2],
}

impl Places {
    /// The place of code, decided now if it is the first there.
    ///
    /// # Safety
    /// The interpreter lock is held.
    pub(crate) unsafe fn of(
        &mut self,
        file: Option<Owned>,
        module: Option<Owned>,
        decide: impl FnOnce(&str, &str) -> (Decision, u64),
    ) -> Place {
        let address =
            |object: &Option<Owned>| object.as_ref().map_or(0, |one| one.as_ptr() as usize);
        let key = (address(&file), address(&module));
        if let Some(kept) = self.0.get(&key) {
            return kept.place.clone();
        }
        let read = |object: &Option<Owned>| -> Rc<str> {
            // SAFETY: the caller holds the lock, and the objects are alive.
            let read = object
                .as_ref()
                .and_then(|one| unsafe { text(one.as_ptr()) });
            read.unwrap_or_default().into()
        };
        let (file_text, module_text) = (read(&file), read(&module));
        let (decision, text_hash) = decide(&file_text, &module_text);
        let place = Place {
            file: file_text,
            module: module_text,
            decision,
            text_hash,
        };
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let kept = Kept {
            place: place.clone(),
            _texts: [file, module],
        };
        self.0.insert(key, kept);
        place
    }
}

/// `__name__` where the current frame looks for globals.
///
/// # Safety
/// The interpreter lock is held and there is a current frame.
pub(crate) unsafe fn current_module(key: &Owned) -> Option<Owned> {
    // SAFETY: the caller's promise; both answers are borrowed.
    unsafe {
        let globals = ffi::PyEval_GetGlobals();
        if globals.is_null() || ffi::PyDict_Check(globals) == 0 {
            return None;
        }
        let name = ffi::PyDict_GetItemWithError(globals, key.as_ptr());
        ffi::Py_XINCREF(name);
        Owned::from_answer(name)
    }
}
