//! Scopes by number, for other languages: a handle is never used twice, so that a stale one is told from an open one, on
//! whatever thread. Nothing here may panic or wait without end. It knows no language.
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use crate::scope::{self, Ending, Open, Options, ScopeError};
use crate::site::Site;
use crate::step;
use crate::trace::{Form, Trace};

/// Scopes that may be open at once in a process.
const PLACES: u64 = 1024;
/// How often a place is tried for.
const PATIENCE: u32 = 1_000;

/// A number that opening returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u64);

impl Handle {
    /// Scopes are turned off: closing it says so, as often as one likes.
    const OFF: Self = Self(1);
    /// There was no place.
    const FULL: Self = Self(2);

    /// As other languages keep it: below 2^53 for the first 8 million million scopes, and never 0.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The handle of that number, whether there is one or not.
    #[must_use]
    pub fn of(number: u64) -> Self {
        Self(number)
    }
}

thread_local! {
    /// How many pauses of this thread are not over, and the `errno` that the program had before the first.
    static PAUSES: Cell<(u32, i32)> = const { Cell::new((0, 0)) };
}

/// The code of a binding is in no trace: while one of these lives, its thread is not stepped. They nest.
#[derive(Debug)]
pub struct Pause(());

impl Pause {
    /// Pauses the scopes of this thread.
    #[inline(always)]
    #[must_use]
    pub fn begin() -> Self {
        pause();
        Self(())
    }
}

impl Drop for Pause {
    #[inline(always)]
    fn drop(&mut self) {
        resume();
    }
}

/// As [`Pause::begin`], for languages that have no destructors: one [`resume`] on the same thread for each.
#[inline(always)]
pub fn pause() {
    step::pause();
    let (depth, before) = PAUSES.get();
    let errno = if depth == 0 { step::errno() } else { before };
    PAUSES.set((depth.saturating_add(1), errno));
}

/// Ends the last pause; the scopes of this thread go on when none is left.
#[inline(always)]
pub fn resume() {
    let (depth, errno) = PAUSES.get();
    let left = depth.saturating_sub(1);
    PAUSES.set((left, errno));
    if left == 0 {
        step::set_errno(errno);
        step::resume();
    }
}

/// One place: the scope that it holds, if one is open, and its number.
#[derive(Debug, Default)]
struct Place {
    number: u64,
    open: Option<Open>,
}

static TABLE: LazyLock<Vec<Mutex<Place>>> =
    LazyLock::new(|| (0..PLACES).map(|_| Mutex::default()).collect());
static OPENED: AtomicU64 = AtomicU64::new(1);

/// Whether scopes are turned off by the environment.
#[must_use]
pub fn off() -> bool {
    scope::off()
}

/// Opens a scope on this thread; what cannot be recorded is told by its trace.
#[must_use]
pub fn open(_: &Pause, form: Form, options: Options, site: Site) -> Handle {
    if off() {
        return Handle::OFF;
    }
    let sequence = OPENED.fetch_add(1, Ordering::Relaxed);
    let free = |index: &u64| {
        let place = try_lock(TABLE.get(usize::try_from(*index).ok()?)?)?;
        place.open.is_none().then_some((*index, place))
    };
    let found = (0..PLACES)
        .map(|turn| (sequence + turn) % PLACES)
        .find_map(|index| free(&index));
    let Some((index, mut place)) = found else {
        return Handle::FULL;
    };
    place.number = sequence * PLACES + index;
    place.open = Some(Open::new(form, options, site));
    Handle(place.number)
}

/// Ends a scope and returns its trace.
///
/// # Errors
/// The handle is none, the scope is closed already; and, unless it is abandoned or suspended, one within it is open, or
/// it belongs to another thread.
pub fn close(_: &Pause, handle: Handle, ending: Ending) -> Result<Trace, ScopeError> {
    match handle {
        Handle::OFF => return Ok(Trace::skipped(Form::Window, scope::OFF)),
        Handle::FULL => {
            let why = format!("more than {PLACES} scopes are open in this process");
            return Ok(Trace::skipped(Form::Window, why));
        }
        _ => {}
    }
    let Handle(number) = handle;
    let sequence = number / PLACES;
    if sequence == 0 || sequence >= OPENED.load(Ordering::Relaxed) {
        return Err(ScopeError::NoSuchScope);
    }
    let index = usize::try_from(number % PLACES).ok();
    let place = index.and_then(|index| lock(TABLE.get(index)?));
    // Whoever holds a place for so long is closing that very scope on another thread.
    let mut place = place.ok_or(ScopeError::OtherThread)?;
    if place.number != number {
        return Err(ScopeError::AlreadyClosed);
    }
    let open = place.open.as_mut().ok_or(ScopeError::AlreadyClosed)?;
    let trace = open.finish(ending)?;
    place.open = None;
    Ok(trace)
}

/// Calls a C function in a scope of its own and returns its result with the trace.
///
/// # Safety
/// As for [`crate::HwTrace::call`].
#[expect(unsafe_code, reason = "the call itself is what is asked for")]
pub unsafe fn call(
    _: &Pause,
    (function, args): (usize, &[u64; 6]),
    form: Form,
    options: Options,
    site: Site,
) -> (u64, Trace) {
    // SAFETY: the caller's promise.
    unsafe { Open::new(form, options, site).call(function, args) }
}

fn try_lock(place: &Mutex<Place>) -> Option<MutexGuard<'_, Place>> {
    match place.try_lock() {
        Ok(place) => Some(place),
        Err(TryLockError::Poisoned(place)) => Some(place.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn lock(place: &Mutex<Place>) -> Option<MutexGuard<'_, Place>> {
    (0..PATIENCE).find_map(|_| {
        let place = try_lock(place);
        if place.is_none() {
            std::thread::sleep(Duration::from_micros(10));
        }
        place
    })
}
