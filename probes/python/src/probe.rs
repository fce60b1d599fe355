//! The probe of this process: what becomes of starts, ends and suspensions, whichever mechanism tells of them.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3_ffi as ffi;
use scalpel::{Segment, Source, flags, modes};

use crate::awake::Awake;
use crate::codes::Codes;
use crate::layout;
use crate::open::{Activation, Open};
use crate::word::{Slot, Word};

/// How many unwatched callers are passed over in search of a watched one.
const REACH: u32 = 256;

const SOURCE: Source = Source::Python;

/// All that the callbacks need.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) segment: &'static Segment,
    pub(crate) slot: Slot,
    /// Native functions are recorded too.
    pub(crate) native: bool,
    /// Functions are only counted.
    pub(crate) counts_only: bool,
    /// What is needed when a function is seen for the first time.
    pub(crate) codes: RefCell<Codes>,
    open: UnsafeCell<Open>,
    last_task: UnsafeCell<u64>,
    /// There may be tasks: a coroutine has begun one, or the program has greenlets. Until then no caller is asked.
    tasks: Cell<bool>,
    pub(crate) awake: Awake,
}

/// Null, or a leaked probe.
static PROBE: AtomicPtr<Probe> = AtomicPtr::new(std::ptr::null_mut());

/// The probe, once it has been started.
#[inline]
pub(crate) fn probe() -> Option<&'static Probe> {
    // SAFETY: null, or a leaked probe; what in it is no atomic is ordered by the interpreter lock.
    unsafe { PROBE.load(Ordering::Acquire).as_ref() }
}

/// What a start means for the callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Go on telling.
    Watch,
    /// Never tell of this place again.
    Disable,
}

impl Probe {
    /// Makes the probe known to the callbacks. `None` = no memory for the table of activations.
    pub(crate) fn publish(segment: &'static Segment, slot: Slot, codes: Codes) -> Option<()> {
        let modes = segment.modes();
        let tasks = Cell::new(codes.has_greenlets());
        let probe = Self {
            segment,
            slot,
            native: modes & modes::NATIVE != 0,
            counts_only: modes & modes::CALL == 0,
            codes: RefCell::new(codes),
            open: UnsafeCell::new(Open::new()?),
            last_task: UnsafeCell::new(0),
            tasks,
            awake: Awake::new(segment),
        };
        PROBE.store(Box::into_raw(Box::new(probe)), Ordering::Release);
        Some(())
    }

    /// The table of activations. Its users call nothing that comes back here while they hold it.
    ///
    /// # Safety
    /// The interpreter lock is held, and no other answer of this function is in use.
    #[expect(
        clippy::mut_from_ref,
        reason = "the interpreter lock is what makes it exclusive"
    )]
    #[inline]
    unsafe fn open(&self) -> &mut Open {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.open.get() }
    }

    /// What is known of a code object; learns it now if it is new.
    ///
    /// # Safety
    /// The interpreter lock is held, and `code` is a living code object.
    #[inline]
    pub(crate) unsafe fn word(&self, code: *mut ffi::PyObject) -> Word {
        // SAFETY: the caller's promise.
        let word = unsafe { self.slot.get(code) };
        if word.is_known() {
            return word;
        }
        // SAFETY: as above.
        unsafe { Codes::learn(self, code) }
    }

    /// A frame begins to run its code.
    ///
    /// # Safety
    /// The interpreter lock is held, and `frame` is the calling thread's current frame.
    #[inline]
    pub(crate) unsafe fn begin(&self, word: Word, frame: usize) -> Answer {
        if !word.is_watched() {
            return self.unknown(word);
        }
        // SAFETY: the caller's promise.
        let (task, root) = unsafe { self.task_at_start(word, frame) };
        let activation = Activation {
            frame: frame as u64,
            task,
            root,
            func: word.func(),
            flags: word.flags(),
            ..Activation::default()
        };
        // SAFETY: as above.
        if unsafe { self.enter(activation) } || self.awake.keeps(self.segment) {
            Answer::Watch
        } else {
            self.unknown(word)
        }
    }

    /// Writes ENTER and keeps the activation. `false` = it is not recorded.
    ///
    /// Inlined, so that the activation is never in memory before it is in the table: copying what was just written field by
    /// field would wait for the stores.
    ///
    /// # Safety
    /// The interpreter lock is held.
    #[expect(clippy::inline_always, reason = "measured: see above")]
    #[inline(always)]
    pub(crate) unsafe fn enter(&self, activation: Activation) -> bool {
        // SAFETY: the caller's promise; nothing below comes back here.
        let open = unsafe { self.open() };
        let Some(at) = open.reserve(activation.frame) else {
            return false;
        };
        if at.is_ok() {
            // The frame's memory is in use again, so the call that was here has ended unseen: a closed generator of 3.13.
            end_unseen(open, activation.frame);
        }
        let token = scalpel::enter(
            SOURCE,
            activation.func,
            activation.frame,
            0,
            activation.task,
            activation.flags,
        );
        if token == 0 {
            if at.is_ok() {
                open.take(activation.frame);
            }
            return false;
        }
        open.fill(
            at,
            Activation {
                token,
                ..activation
            },
        );
        true
    }

    /// A frame is done, or a native call. `Disable` = nothing is ever to be told from this place.
    ///
    /// # Safety
    /// The interpreter lock is held, and `frame` belongs to the calling thread.
    #[expect(clippy::inline_always, reason = "measured: as for `enter`")]
    #[inline(always)]
    pub(crate) unsafe fn finish(&self, word: Word, frame: usize, threw: bool) -> Answer {
        // SAFETY: the caller's promise.
        let open = unsafe { self.open() };
        if self.native
            && let Some(call) = open.take(native_frame(frame))
        {
            end(call, flags::INFERRED, true);
        }
        match open.take_if(frame as u64, |activation| activation.func == word.func()) {
            Some(activation) => {
                end(activation, 0, threw);
                Answer::Watch
            }
            None => self.unknown(word),
        }
    }

    /// A native call that this frame made is done.
    ///
    /// # Safety
    /// As for [`Probe::finish`].
    #[inline]
    pub(crate) unsafe fn finish_native(&self, frame: usize, threw: bool) {
        // SAFETY: the caller's promise.
        if let Some(call) = unsafe { self.open() }.take(native_frame(frame)) {
            end(call, 0, threw);
        }
    }

    /// A frame leaves its thread.
    ///
    /// # Safety
    /// As for [`Probe::finish`].
    #[inline]
    pub(crate) unsafe fn suspend(&self, word: Word, frame: usize) -> Answer {
        // SAFETY: the caller's promise.
        let Some(activation) = (unsafe { self.activation(word, frame) }) else {
            return self.unknown(word);
        };
        activation.suspended = true;
        let Activation {
            token,
            func,
            task,
            flags,
            ..
        } = *activation;
        scalpel::suspend(token, SOURCE, func, frame as u64, task, flags);
        Answer::Watch
    }

    /// A frame goes on, on whichever thread.
    ///
    /// # Safety
    /// As for [`Probe::finish`].
    #[inline]
    pub(crate) unsafe fn resume(&self, word: Word, frame: usize) -> Answer {
        // SAFETY: the caller's promise.
        let Some(before) = (unsafe { self.activation(word, frame) }).copied() else {
            return self.unknown(word);
        };
        if !before.suspended {
            return Answer::Watch;
        }
        let (task, root) = if before.root {
            (before.task, true)
        } else {
            // SAFETY: as above.
            unsafe { self.task_at_start(word, frame) }
        };
        // SAFETY: as above.
        if let Some(activation) = unsafe { self.activation(word, frame) } {
            (activation.suspended, activation.task, activation.root) = (false, task, root);
        }
        scalpel::resume(
            before.token,
            SOURCE,
            before.func,
            frame as u64,
            task,
            before.flags,
        );
        Answer::Watch
    }

    /// Whether a recorded activation of this function is in the frame.
    ///
    /// # Safety
    /// As for [`Probe::finish`].
    #[cfg(not(Py_3_12))]
    pub(crate) unsafe fn is_open(&self, word: Word, frame: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.activation(word, frame) }.is_some()
    }

    /// # Safety
    /// As for [`Probe::open`].
    #[expect(
        clippy::mut_from_ref,
        reason = "the interpreter lock is what makes it exclusive"
    )]
    #[inline]
    unsafe fn activation(&self, word: Word, frame: usize) -> Option<&mut Activation> {
        // SAFETY: the caller's promise.
        let activation = unsafe { self.open() }.get_mut(frame as u64)?;
        (activation.func == word.func()).then_some(activation)
    }

    /// What nothing is written of: code that is not watched, that was switched off, or a call that was not recorded. Code
    /// whose word is not known was met while another was being named, and is asked about again.
    fn unknown(&self, word: Word) -> Answer {
        let never = if word.is_watched() {
            self.segment.over() || self.segment.is_off(word.func())
        } else {
            word.is_known()
        };
        if never {
            Answer::Disable
        } else {
            Answer::Watch
        }
    }

    /// A native call by this frame begins, if the frame itself is recorded.
    ///
    /// # Safety
    /// As for [`Probe::finish`].
    pub(crate) unsafe fn begin_native(&self, func: u32, frame: usize) {
        // SAFETY: the caller's promise.
        let Some(caller) = (unsafe { self.open() }).get(frame as u64) else {
            return;
        };
        let activation = Activation {
            frame: native_frame(frame),
            task: caller.task,
            func,
            flags: flags::C_FUNCTION,
            ..Activation::default()
        };
        // SAFETY: as above.
        unsafe { self.enter(activation) };
    }

    /// The task of a frame that starts, and whether it begins there. A coroutine that no coroutine awaits begins one; so
    /// does the first frame of a greenlet's stack. All others are in the task of the nearest recorded caller.
    ///
    /// # Safety
    /// As for [`Probe::begin`].
    #[inline]
    unsafe fn task_at_start(&self, word: Word, frame: usize) -> (u64, bool) {
        // SAFETY: the caller's promise.
        if word.is_coroutine() && !unsafe { self.is_awaited(frame) } {
            // SAFETY: as above.
            return (unsafe { self.new_task() }, true);
        }
        if !self.tasks.get() {
            return (0, false);
        }
        // SAFETY: as above; the callers of a running frame are alive.
        let open = unsafe { self.open() };
        // SAFETY: as above.
        let mut caller = unsafe { layout::previous(frame) };
        for _ in 0..REACH {
            if caller == 0 {
                // SAFETY: as above.
                return (unsafe { self.task_of_stack() }, false);
            }
            if let Some(activation) = open.get(caller as u64) {
                return (activation.task, false);
            }
            // SAFETY: as above.
            caller = unsafe { layout::previous(caller) };
        }
        (0, false)
    }

    /// Whether the nearest Python caller is a coroutine.
    ///
    /// # Safety
    /// As for [`Probe::begin`].
    unsafe fn is_awaited(&self, frame: usize) -> bool {
        let mut caller = frame;
        for _ in 0..REACH {
            // SAFETY: the caller's promise; the callers of a running frame are alive.
            caller = unsafe { layout::previous(caller) };
            if caller == 0 {
                return false;
            }
            // SAFETY: as above.
            let code = unsafe { layout::code(caller) };
            if !code.is_null() {
                // SAFETY: a living code object.
                return unsafe { self.slot.get(code) }.is_coroutine();
            }
        }
        false
    }

    /// The task of a frame that nothing recorded called: none at the bottom of a thread, a new one in a greenlet. The two
    /// look alike from here, so that every such frame gets one as soon as there are greenlets.
    ///
    /// # Safety
    /// As for [`Probe::begin`].
    #[cold]
    unsafe fn task_of_stack(&self) -> u64 {
        let greenlets = self
            .codes
            .try_borrow()
            .is_ok_and(|codes| codes.has_greenlets());
        if greenlets {
            // SAFETY: as above.
            unsafe { self.new_task() }
        } else {
            0
        }
    }

    /// From now on frames may belong to tasks.
    pub(crate) fn expect_tasks(&self) {
        self.tasks.set(true);
    }

    /// # Safety
    /// The interpreter lock is held.
    unsafe fn new_task(&self) -> u64 {
        self.expect_tasks();
        // SAFETY: the lock makes this the only user.
        unsafe {
            *self.last_task.get() += 1;
            // A forked child goes on counting where its parent was: the process tells them apart.
            *self.last_task.get()
        }
    }
}

/// Frames are aligned, so that an odd address is free for the native call that a frame is making.
const fn native_frame(frame: usize) -> u64 {
    frame as u64 | 1
}

/// Writes the end of an activation that is still in the table.
#[cold]
fn end_unseen(open: &Open, frame: u64) {
    if let Some(stale) = open.get(frame) {
        end(stale, flags::INFERRED, true);
    }
}

/// Writes the end of an activation.
#[expect(clippy::inline_always, reason = "measured: as for `Probe::enter`")]
#[inline(always)]
fn end(activation: Activation, more: u16, threw: bool) {
    let Activation {
        token,
        func,
        frame,
        task,
        flags,
        ..
    } = activation;
    if threw {
        scalpel::unwind(token, SOURCE, func, frame, task, flags | more);
    } else {
        scalpel::exit(token, SOURCE, func, frame, task, 0, flags | more);
    }
}
