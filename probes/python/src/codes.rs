//! Functions seen for the first time: the filter's answer, an id, a name. All that is rare is here.

use pyo3_ffi as ffi;
use rustc_hash::FxHashMap;
use scalpel::{Segment, Source, note_kind};

use crate::filter::{Filter, Origin};
use crate::names::{Described, attribute_text};
use crate::native;
use crate::probe::Probe;
use crate::python::{aside, number, text};
use crate::word::Word;

/// What is kept of functions, by whatever they are known by.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    filter: Filter,
    /// Folders of the probe's own Python files.
    own: Vec<String>,
    /// Ids by what a code object is compiled from: a source that is executed again gets the same.
    by_identity: FxHashMap<u64, u32>,
    /// Ids of native functions, by the address of their definition.
    by_definition: FxHashMap<usize, u32>,
    excluded: u64,
    excluded_told: u64,
    greenlets: bool,
}

impl Codes {
    /// Nothing is known yet. `own`: folders of the probe's own Python files.
    pub(crate) fn new(filter: Filter, own: Vec<String>) -> Self {
        Self {
            filter,
            own,
            ..Self::default()
        }
    }

    /// Decides about a new code object and keeps the answer in it. Not known = asked while busy with another.
    ///
    /// # Safety
    /// The interpreter lock is held, `code` is a living code object, and a frame of it is the current one.
    #[cold]
    pub(crate) unsafe fn learn(probe: &Probe, code: *mut ffi::PyObject) -> Word {
        let Ok(mut codes) = probe.codes.try_borrow_mut() else {
            return Word::default();
        };
        // SAFETY: the caller's promise.
        unsafe {
            aside(|| {
                let word = codes.decide(probe, code);
                // Without memory for the word there would be a new id for each call.
                if probe.slot.set(code, word) {
                    word
                } else {
                    Word::unwatched(0)
                }
            })
        }
    }

    unsafe fn decide(&mut self, probe: &Probe, code: *mut ffi::PyObject) -> Word {
        // SAFETY: the caller of `learn` promised it, here and below.
        let (file, code_flags, module) = unsafe {
            (
                attribute_text(code, c"co_filename"),
                number(code, c"co_flags"),
                current_module(),
            )
        };
        let origin = self.filter.origin(&module, &file);
        if self.own.iter().any(|own| file.starts_with(own)) {
            return Word::unwatched(code_flags);
        }
        if !self.filter.watches(origin, &module, &file) {
            self.exclude(probe.segment);
            return Word::unwatched(code_flags);
        }
        // SAFETY: as above.
        let described = unsafe { Described::read(code, probe.slot, file, module, code_flags) };
        match self.id_of(probe.segment, origin, &described) {
            0 => Word::unwatched(code_flags),
            func => Word::watched_as(func, code_flags, described.is_class_body()),
        }
    }

    fn id_of(&mut self, segment: &Segment, origin: Origin, described: &Described) -> u32 {
        if let Some(&func) = self.by_identity.get(&described.identity) {
            return func;
        }
        let func = segment.new_function();
        if func != 0 {
            segment.name(func, &described.record(origin));
            self.by_identity.insert(described.identity, func);
        }
        func
    }

    /// The id of a native function, 0 = it is none that can be told apart, or there are no ids left.
    ///
    /// # Safety
    /// The interpreter lock is held and `callable` is alive.
    pub(crate) unsafe fn native_id(
        &mut self,
        segment: &Segment,
        callable: *mut ffi::PyObject,
    ) -> u32 {
        // SAFETY: the caller's promise.
        let Some(definition) = (unsafe { native::definition(callable) }) else {
            return 0;
        };
        if let Some(&func) = self.by_definition.get(&definition) {
            return func;
        }
        let func = segment.new_function();
        // SAFETY: as above.
        unsafe { aside(|| native::name(segment, func, callable)) };
        self.by_definition.insert(definition, func);
        func
    }

    /// Tells how many functions are left out, now and then: a program that is killed has no last moment.
    fn exclude(&mut self, segment: &Segment) {
        self.excluded += 1;
        if self.excluded >= self.excluded_told * 4 {
            self.tell_excluded(segment);
        }
    }

    /// Tells how many functions the filter has left out so far. The largest such note of a process is the last.
    pub(crate) fn tell_excluded(&mut self, segment: &Segment) {
        if self.excluded != self.excluded_told {
            self.excluded_told = self.excluded;
            let why = "left out by --py-include and --py-exclude (by default Python's own library)";
            segment.note(note_kind::EXCLUDED, Source::Python, self.excluded, why);
        }
    }

    /// Whether the program has greenlets: their stacks share one thread.
    ///
    /// # Safety
    /// The interpreter lock is held.
    pub(crate) unsafe fn has_greenlets(&mut self) -> bool {
        if !self.greenlets {
            // SAFETY: borrowed dictionary of all modules; a lookup by a text runs no Python code.
            self.greenlets = unsafe {
                aside(|| {
                    let modules = ffi::PyImport_GetModuleDict();
                    !modules.is_null()
                        && !ffi::PyDict_GetItemString(modules, c"greenlet".as_ptr()).is_null()
                })
            };
        }
        self.greenlets
    }
}

/// `__name__` where the current frame looks for globals.
unsafe fn current_module() -> String {
    // SAFETY: the caller of `learn` promised that there is a current frame; both answers are borrowed.
    unsafe {
        let globals = ffi::PyEval_GetGlobals();
        if globals.is_null() || ffi::PyDict_Check(globals) == 0 {
            return String::new();
        }
        let name = ffi::PyDict_GetItemString(globals, c"__name__".as_ptr());
        if name.is_null() {
            ffi::PyErr_Clear();
            return String::new();
        }
        text(name).unwrap_or_default()
    }
}
