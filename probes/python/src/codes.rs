//! Functions seen for the first time: the filter's answer, an id, a name. All that is rare is here.

use pyo3_ffi as ffi;
use rustc_hash::{FxHashMap, FxHashSet};
use scalpel::{NOTE_TEXT, Segment, Source, note_kind, unseen};

use crate::filter::{Filter, Origin};
use crate::members::{Member, Members};
use crate::names::{self, Described};
use crate::native;
use crate::places::{Decision, Place, Places, current_module};
use crate::probe::Probe;
use crate::python::{Owned, aside};
use crate::source::hash_of_file;
use crate::word::Word;

/// Files that are told to be left out, one by one: their notes share their room with others.
const MOST_FILES: usize = 200;

/// What is kept of functions, by whatever they are known by.
#[derive(Debug)]
pub(crate) struct Codes {
    members: Members,
    filter: Filter,
    /// Folders of the probe's own Python files.
    own: Vec<String>,
    /// Ids by what a code object is compiled from: a source that is executed again gets the same.
    by_identity: FxHashMap<u64, u32>,
    /// Ids of native functions, by the address of their definition.
    by_definition: FxHashMap<usize, u32>,
    places: Places,
    /// The text `__name__`.
    module_key: Option<Owned>,
    excluded: u64,
    excluded_told: u64,
    /// Files of which the filter leaves something out.
    left_out: FxHashSet<String>,
    /// The program has greenlets: their stacks share one thread.
    greenlets: bool,
}

impl Codes {
    /// Nothing is known yet. `own`: folders of the probe's own Python files.
    ///
    /// # Safety
    /// The interpreter lock is held.
    pub(crate) unsafe fn new(filter: Filter, own: Vec<String>) -> Self {
        // SAFETY: the caller's promise.
        let module_key =
            unsafe { Owned::from_answer(ffi::PyUnicode_InternFromString(c"__name__".as_ptr())) };
        Self {
            members: Members::new(),
            filter,
            own,
            by_identity: FxHashMap::default(),
            by_definition: FxHashMap::default(),
            places: Places::default(),
            module_key,
            excluded: 0,
            excluded_told: 0,
            left_out: FxHashSet::default(),
            // SAFETY: as above.
            greenlets: unsafe { greenlets_are_loaded() },
        }
    }

    /// Whether the program has greenlets.
    pub(crate) const fn has_greenlets(&self) -> bool {
        self.greenlets
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
        let (place, code_flags) = unsafe {
            (
                self.place(probe, code),
                self.members.number(code, Member::Flags),
            )
        };
        let origin = match place.decision {
            Decision::Own => return Word::unwatched(code_flags),
            Decision::Excluded => {
                self.exclude(probe.segment);
                return Word::unwatched(code_flags);
            }
            Decision::Watched(origin) => origin,
        };
        // SAFETY: as above.
        let described =
            unsafe { Described::read(code, self.members, probe.slot, place, code_flags) };
        match self.id_of(probe.segment, origin, &described) {
            0 => Word::unwatched(code_flags),
            func => Word::watched_as(func, code_flags, described.is_class_body()),
        }
    }

    unsafe fn place(&mut self, probe: &Probe, code: *mut ffi::PyObject) -> Place {
        let Self {
            places,
            members,
            filter,
            own,
            module_key,
            greenlets,
            left_out,
            ..
        } = self;
        // SAFETY: the caller of `learn` promised it.
        unsafe {
            // What is read while the module's own body begins is what it was loaded from.
            let loads = names::is_module(code, *members);
            let file = members.object(code, Member::File);
            let module = module_key.as_ref().and_then(|key| current_module(key));
            places.of(file, module, |file, module| {
                if module == "greenlet" && !*greenlets {
                    *greenlets = true;
                    probe.expect_tasks();
                }
                let origin = filter.origin(module, file);
                if own.iter().any(|own| file.starts_with(own)) {
                    (Decision::Own, 0)
                } else if filter.watches(origin, module, file) {
                    // The many files of packages would be felt at a start; those have versions.
                    let read = loads && origin == Origin::Program;
                    let text = if read { hash_of_file(file) } else { 0 };
                    (Decision::Watched(origin), text)
                } else {
                    if origin != Origin::Standard {
                        leave_out(left_out, probe.segment, file);
                    }
                    (Decision::Excluded, 0)
                }
            })
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

    /// Says what the filter leaves out from the beginning: Python's own library, folder by folder.
    pub(crate) fn tell_standard(&self, segment: &Segment) {
        for folder in self.filter.standard_left_out() {
            segment.note(note_kind::UNSEEN, Source::Python, unseen::EXCLUDED, folder);
        }
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
}

/// Says of a file, once, that functions of it may run unseen. Behind the last one there is room for, that any may.
fn leave_out(left_out: &mut FxHashSet<String>, segment: &Segment, file: &str) {
    if left_out.len() > MOST_FILES || file.starts_with('<') || left_out.contains(file) {
        return;
    }
    left_out.insert(file.to_owned());
    let fits = left_out.len() <= MOST_FILES && file.len() <= NOTE_TEXT;
    let path = if fits { file } else { "" };
    segment.note(note_kind::UNSEEN, Source::Python, unseen::EXCLUDED, path);
}

/// Whether `greenlet` has been imported.
///
/// # Safety
/// The interpreter lock is held.
unsafe fn greenlets_are_loaded() -> bool {
    // SAFETY: borrowed dictionary of all modules; a lookup by a text runs no Python code.
    unsafe {
        aside(|| {
            let modules = ffi::PyImport_GetModuleDict();
            !modules.is_null()
                && !ffi::PyDict_GetItemString(modules, c"greenlet".as_ptr()).is_null()
        })
    }
}
