//! The surface: a scope is opened, the body runs, the scope is closed, and its trace is shown. Call sites have slots with
//! their totals; what cannot be recorded is skipped with its reason.
use std::collections::HashMap;
use std::io::Write;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::backend::HwBackend;
use crate::render;
use crate::step;
use crate::symbol::{ProcessSymbols, Resolver};
use crate::trace::{Form, Trace};

/// The most traps of one scope.
pub const MOST_TRAPS: u64 = 100_000;
/// Traps that one call site may take in all its passes.
const SITE_TRAPS: u64 = 10 * MOST_TRAPS;
/// Time that one call site may be traced in all its passes.
const SITE_TIME: Duration = Duration::from_secs(10);

/// What a scope may cost; behind it the body runs on natively and the trace is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Traps, at most [`MOST_TRAPS`].
    pub traps: u64,
    /// Wall time since the open.
    pub time: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            traps: MOST_TRAPS,
            time: Duration::from_secs(1),
        }
    }
}

/// Whether the trace is printed on close.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Emit {
    /// A folded call tree of at most 40 lines on stdout.
    #[default]
    Stdout,
    /// Nothing: the program takes the trace.
    Off,
}

/// How a scope is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The tier.
    pub backend: HwBackend,
    /// What it may cost.
    pub budget: Budget,
    /// What is printed.
    pub emit: Emit,
}

/// A range of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    start: u64,
    end: u64,
}

impl Code {
    /// The `len` bytes at `start`.
    #[must_use]
    pub fn range(start: usize, len: usize) -> Self {
        let start = start as u64;
        Self {
            start,
            end: start.saturating_add(len as u64),
        }
    }

    /// The function at this address, with the size that its file's symbols give it; `None` where they do not.
    #[must_use]
    pub fn function(address: usize) -> Option<Self> {
        let mut symbols = ProcessSymbols::new();
        let symbol = symbols.resolve(address as u64)?;
        let start = address as u64 - symbol.offset;
        let end = start + symbol.size;
        (symbol.size > 0).then_some(Self { start, end })
    }
}

/// Why a scope could not be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// It is closed already.
    #[error("the scope is closed already: keep the trace of the first close")]
    AlreadyClosed,
    /// A scope that was opened within it is still open.
    #[error("a scope opened within this one is still open: close that one first")]
    WrongOrder,
    /// It was opened on another thread.
    #[error("the scope belongs to another thread: close it there")]
    OtherThread,
}

/// The place in the source that opened a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site(&'static Location<'static>);

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.0.file(), self.0.line(), self.0.column())
    }
}

/// What all passes of a site took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Scopes that were opened, skipped ones with them.
    pub passes: u64,
    /// Traps.
    pub traps: u64,
    /// Time between open and close of those that recorded.
    pub time: Duration,
}

static SITES: LazyLock<Mutex<HashMap<Site, Totals>>> = LazyLock::new(Mutex::default);

/// Opens scopes.
#[derive(Clone, Copy, Debug)]
pub struct HwTrace;

impl HwTrace {
    /// Records the instructions of `code` that this thread runs until the scope is closed.
    #[track_caller]
    #[inline(always)]
    #[must_use]
    pub fn scope(code: &Code, emit: Emit) -> ScopedTrace {
        let options = Options {
            emit,
            ..Options::default()
        };
        Self::scope_with(code, options)
    }

    /// As [`Self::scope`], with all options.
    #[track_caller]
    #[inline(always)]
    #[must_use]
    pub fn scope_with(code: &Code, options: Options) -> ScopedTrace {
        step::pause();
        let form = Form::Region {
            start: code.start,
            end: code.end,
        };
        let scope = ScopedTrace::open(form, options, Site(Location::caller()));
        step::resume();
        scope
    }

    /// Records everything that this thread runs until the scope is closed.
    #[track_caller]
    #[inline(always)]
    #[must_use]
    pub fn window(options: Options) -> ScopedTrace {
        step::pause();
        let scope = ScopedTrace::open(Form::Window, options, Site(Location::caller()));
        step::resume();
        scope
    }

    /// Calls a C function and records everything that it runs; returns its result with the trace.
    ///
    /// # Safety
    /// `function` is the address of a C function that is sound with these (integer) arguments, and it returns: it does
    /// not unwind or jump out.
    #[track_caller]
    #[expect(unsafe_code, reason = "the call itself is what is asked for")]
    pub unsafe fn call(function: usize, args: [u64; 6], options: Options) -> (u64, Trace) {
        step::pause();
        let mut scope = ScopedTrace::open(Form::Call, options, Site(Location::caller()));
        // SAFETY: the caller's promise.
        let result = unsafe {
            match &scope.handle {
                Some(handle) => handle.call(function, &args),
                None => step::untraced(function, &args),
            }
        };
        let form = scope.form;
        let trace = scope.finish(false);
        step::resume();
        (
            result,
            trace.unwrap_or_else(|error| Trace::skipped(form, error.to_string())),
        )
    }

    /// What all passes of the call site of this trace's scope took.
    #[must_use]
    pub fn totals(site: Site) -> Totals {
        let sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
        sites.get(&site).copied().unwrap_or_default()
    }
}

/// An open scope: it is closed by [`Self::close`], or when it is dropped. It belongs to the thread that opened it.
#[derive(Debug)]
pub struct ScopedTrace {
    handle: Option<step::Handle>,
    form: Form,
    emit: Emit,
    site: Site,
    opened: Instant,
    skipped: Option<String>,
    closed: bool,
    thread: PhantomData<*const ()>,
}

impl ScopedTrace {
    fn open(form: Form, options: Options, site: Site) -> Self {
        let admitted = admit(options, site);
        let opened = admitted.and_then(|()| step::open(form, options.budget.capped()));
        let (handle, skipped) = match opened {
            Ok(handle) => (Some(handle), None),
            Err(why) => (None, Some(why)),
        };
        Self {
            handle,
            form,
            emit: options.emit,
            site,
            opened: Instant::now(),
            skipped,
            closed: false,
            thread: PhantomData,
        }
    }

    /// Why nothing is recorded, if so.
    #[must_use]
    pub fn skip_reason(&self) -> Option<&str> {
        self.skipped.as_deref()
    }

    /// Where it was opened.
    #[must_use]
    pub fn site(&self) -> Site {
        self.site
    }

    /// Ends the scope and returns its trace. After [`ScopeError::WrongOrder`] it can be closed again.
    ///
    /// # Errors
    /// It is closed already, one within it is open, or it belongs to another thread.
    #[inline(always)]
    pub fn close(&mut self) -> Result<Trace, ScopeError> {
        step::pause();
        let trace = self.finish(false);
        step::resume();
        trace
    }

    fn finish(&mut self, dropped: bool) -> Result<Trace, ScopeError> {
        if self.closed {
            return Err(ScopeError::AlreadyClosed);
        }
        let trace = match (&self.handle, &self.skipped) {
            (Some(handle), _) => handle.close(dropped)?,
            (None, why) => Trace::skipped(self.form, why.clone().unwrap_or_default()),
        };
        self.closed = true;
        if self.handle.is_some() {
            charge(self.site, trace.traps, self.opened.elapsed());
        }
        if self.emit == Emit::Stdout {
            print(self.site, &trace);
        }
        Ok(trace)
    }
}

impl Drop for ScopedTrace {
    #[inline(always)]
    fn drop(&mut self) {
        step::pause();
        if !self.closed {
            // A destructor cannot raise: what is wrong is a reason in the trace that is printed.
            drop(self.finish(true));
        }
        step::resume();
    }
}

impl Budget {
    fn capped(self) -> Self {
        Self {
            traps: self.traps.min(MOST_TRAPS),
            ..self
        }
    }
}

/// Counts the pass, and says why the site may not record.
fn admit(options: Options, site: Site) -> Result<(), String> {
    static OFF: OnceLock<bool> = OnceLock::new();
    if *OFF.get_or_init(|| std::env::var_os("SCALPEL_SCOPE").is_some_and(|value| value == "off")) {
        return Err("SCALPEL_SCOPE=off".to_owned());
    }
    options.backend.gate()?;
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    let totals = sites.entry(site).or_default();
    totals.passes += 1;
    if totals.traps >= SITE_TRAPS || totals.time >= SITE_TIME {
        return Err(format!("budget spent: {site} took {} traps", totals.traps));
    }
    Ok(())
}

fn charge(site: Site, traps: u64, time: Duration) {
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    let totals = sites.entry(site).or_default();
    totals.traps += traps;
    totals.time += time;
}

fn print(site: Site, trace: &Trace) {
    let mut symbols = ProcessSymbols::new();
    let tree = render::tree(trace, &mut symbols, render::TREE_LINES);
    let mut out = std::io::stdout().lock();
    // A closed pipe is no reason to stop the program that is looked at.
    drop(writeln!(out, "scope {site}\n{tree}"));
}
