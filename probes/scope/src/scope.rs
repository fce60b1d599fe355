//! The surface: a scope is opened, the body runs, the scope is closed, and its trace is shown. What cannot be recorded is
//! skipped with its reason.
use std::borrow::Cow;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::time::Duration;

use crate::backend::HwBackend;
use crate::lbr::live::Survey;
use crate::perf::Kernel;
use crate::pt::live::{self, Pmu};
use crate::render;
use crate::site::{Site, Totals};
use crate::step;
use crate::symbol::{ProcessSymbols, Resolver};
use crate::trace::{Form, Reasons, Trace};

/// The most traps of one scope.
pub const MOST_TRAPS: u64 = 100_000;
/// Why nothing is recorded where scopes are turned off.
pub(crate) const OFF: &str = "SCALPEL_SCOPE=off";

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
    /// The form of a scope that shows this range.
    #[must_use]
    pub fn region(&self) -> Form {
        Form::Region {
            start: self.start,
            end: self.end,
        }
    }

    /// The `len` bytes at `start`.
    #[must_use]
    pub fn range(start: usize, len: usize) -> Self {
        let start = start as u64;
        Self {
            start,
            end: start.saturating_add(len as u64),
        }
    }

    /// Its first address.
    #[must_use]
    pub fn start(&self) -> usize {
        usize::try_from(self.start).unwrap_or(usize::MAX)
    }

    /// Whether the address is in it.
    #[must_use]
    pub fn holds(&self, addr: u64) -> bool {
        (self.start..self.end).contains(&addr)
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
    /// No scope ever had this number.
    #[error("no scope has this handle: pass the one that opening returned")]
    NoSuchScope,
}

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
        let scope = ScopedTrace::open(code.region(), options, Site::here());
        step::resume();
        scope
    }

    /// Records everything that this thread runs until the scope is closed.
    #[track_caller]
    #[inline(always)]
    #[must_use]
    pub fn window(options: Options) -> ScopedTrace {
        step::pause();
        let scope = ScopedTrace::open(Form::Window, options, Site::here());
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
        let open = Open::new(Form::Call, options, Site::here());
        // SAFETY: the caller's promise.
        let result = unsafe { open.call(function, &args) };
        step::resume();
        result
    }

    /// What all passes of the call site of this trace's scope took.
    #[must_use]
    pub fn totals(site: Site) -> Totals {
        site.totals()
    }
}

/// An open scope: it is closed by [`Self::close`], or when it is dropped. It belongs to the thread that opened it.
#[derive(Debug)]
pub struct ScopedTrace {
    open: Open,
    thread: PhantomData<*const ()>,
}

impl ScopedTrace {
    fn open(form: Form, options: Options, site: Site) -> Self {
        Self {
            open: Open::new(form, options, site),
            thread: PhantomData,
        }
    }

    /// Why nothing is recorded, if so.
    #[must_use]
    pub fn skip_reason(&self) -> Option<&str> {
        self.open.skipped.as_deref()
    }

    /// Where it was opened.
    #[must_use]
    pub fn site(&self) -> Site {
        self.open.site
    }

    /// Ends the scope and returns its trace. After [`ScopeError::WrongOrder`] it can be closed again.
    ///
    /// # Errors
    /// It is closed already, one within it is open, or it belongs to another thread.
    #[inline(always)]
    pub fn close(&mut self) -> Result<Trace, ScopeError> {
        step::pause();
        let trace = self.open.finish(Ending::Close);
        step::resume();
        trace
    }
}

impl Drop for ScopedTrace {
    #[inline(always)]
    fn drop(&mut self) {
        step::pause();
        if !self.open.closed {
            // A destructor cannot raise: what is wrong is a reason in the trace that is printed.
            drop(self.open.finish(Ending::Abandon));
        }
        step::resume();
    }
}

/// How a scope is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By whoever can be told that it is not possible.
    Close,
    /// By a destructor, which cannot raise: what is wrong becomes a reason.
    Abandon,
    /// As [`Self::Abandon`], because the code inside is suspended (an `await`) and other code runs on the thread.
    Suspend,
}

/// A scope between open and close, on whatever thread it is looked at. The thread is paused while it is used.
#[derive(Debug)]
pub(crate) struct Open {
    handle: Option<Handle>,
    form: Form,
    emit: Emit,
    site: Site,
    /// What this thread had run till then.
    opened: Option<Duration>,
    skipped: Option<Cow<'static, str>>,
    closed: bool,
}

impl Open {
    pub(crate) fn new(form: Form, options: Options, site: Site) -> Self {
        let admitted = admit(options, site);
        let opened = admitted.and_then(|()| Handle::open(form, options));
        let (handle, skipped) = match opened {
            Ok(handle) => (Some(handle), None),
            Err(why) => (None, Some(why)),
        };
        Self {
            opened: handle.is_some().then(step::thread_time),
            handle,
            form,
            emit: options.emit,
            site,
            skipped,
            closed: false,
        }
    }

    pub(crate) fn finish(&mut self, ending: Ending) -> Result<Trace, ScopeError> {
        if self.closed {
            return Err(ScopeError::AlreadyClosed);
        }
        let mut trace = match (&mut self.handle, &self.skipped) {
            (Some(handle), _) => handle.close(ending != Ending::Close)?,
            (None, why) => Trace::skipped(self.form, why.clone().unwrap_or_default()),
        };
        self.closed = true;
        if let Some(opened) = self.opened {
            // Waiting costs nobody anything. A scope that was closed elsewhere took no traps that are known here.
            let ran = step::thread_time().saturating_sub(opened);
            let time = if trace.traps > 0 { ran } else { Duration::ZERO };
            self.site.charge(trace.traps, time);
            if ending == Ending::Suspend {
                trace.reasons = trace.reasons.with(Reasons::SUSPENDED);
            }
        }
        if self.emit == Emit::Stdout {
            print(self.site, &trace);
        }
        Ok(trace)
    }

    /// Calls a C function in this scope and ends it.
    ///
    /// # Safety
    /// As for [`HwTrace::call`].
    #[expect(unsafe_code, reason = "the call itself is what is asked for")]
    pub(crate) unsafe fn call(mut self, function: usize, args: &[u64; 6]) -> (u64, Trace) {
        // SAFETY: the caller's promise.
        let result = unsafe {
            match &mut self.handle {
                Some(handle) => handle.call(function, args),
                None => step::untraced(function, args),
            }
        };
        let trace = self.finish(Ending::Abandon);
        (
            result,
            trace.unwrap_or_else(|error| Trace::skipped(self.form, error.to_string())),
        )
    }
}

/// What records.
#[derive(Debug)]
enum Handle {
    Step(step::Handle),
    /// With the function that was called.
    Pt(Box<live::Scope>, Option<u64>),
    Lbr(Survey, Form),
}

impl Handle {
    /// Opens what was asked for, and nothing in its place.
    fn open(form: Form, options: Options) -> Result<Self, Cow<'static, str>> {
        if options.backend == HwBackend::AmdLbr {
            return Ok(Self::Lbr(Survey::start(&Kernel)?, form));
        }
        match options.backend.pmu()? {
            Some(pmu) => {
                let scope = live::Scope::open(&Kernel, &pmu, form)?;
                Ok(Self::Pt(Box::new(scope), None))
            }
            None => {
                let automatic = options.backend == HwBackend::Auto;
                let budget = options.budget.capped();
                Ok(Self::Step(step::open(form, budget, automatic)?))
            }
        }
    }

    fn close(&mut self, abandoned: bool) -> Result<Trace, ScopeError> {
        match self {
            Self::Step(handle) => handle.close(abandoned),
            Self::Pt(scope, _) if !abandoned && !scope.is_own() => Err(ScopeError::OtherThread),
            Self::Pt(scope, function) => Ok(scope.close(*function)),
            Self::Lbr(survey, form) => Ok(survey.stop(*form)),
        }
    }

    /// Calls a C function.
    ///
    /// # Safety
    /// As for [`HwTrace::call`].
    #[expect(unsafe_code, reason = "the call itself is what is asked for")]
    unsafe fn call(&mut self, function: usize, args: &[u64; 6]) -> u64 {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Step(handle) => handle.call(function, args),
                Self::Pt(_, called) => {
                    *called = Some(function as u64);
                    step::untraced(function, args)
                }
                Self::Lbr(..) => step::untraced(function, args),
            }
        }
    }
}

/// A function with calls, branches and a loop, whose path is stepped and then recorded.
extern "C" fn known(turns: u64) -> u64 {
    let mut sum = turns;
    for turn in 0..std::hint::black_box(turns) {
        sum = match std::hint::black_box(turn % 3) {
            0 => sum.wrapping_mul(31),
            1 => std::hint::black_box(sum) ^ turn,
            _ => sum.rotate_left(7),
        };
    }
    sum
}

/// Whether Intel PT shows a known function as it was stepped.
pub(crate) fn prove(pmu: &Pmu) -> Result<(), String> {
    let mut recorder = live::Recorder::open(&Kernel, pmu, false, None)?;
    let function = known as extern "C" fn(u64) -> u64 as usize;
    let stepped = Options {
        backend: HwBackend::SingleStep,
        emit: Emit::Off,
        ..Options::default()
    };
    let open = Open::new(Form::Call, stepped, Site::here());
    // SAFETY: a function of one number, which returns.
    #[expect(unsafe_code, reason = "the call itself is what is looked at")]
    let (_, truth) = unsafe { open.call(function, &[9, 0, 0, 0, 0, 0]) };
    live::prove(&mut recorder, &truth, &mut || {
        std::hint::black_box(known(9));
    })
}

impl Budget {
    fn capped(self) -> Self {
        Self {
            traps: self.traps.min(MOST_TRAPS),
            ..self
        }
    }
}

/// Whether scopes are turned off by the environment, as it was when the first one was opened.
pub(crate) fn off() -> bool {
    static OFF: OnceLock<bool> = OnceLock::new();
    *OFF.get_or_init(|| std::env::var_os("SCALPEL_SCOPE").is_some_and(|value| value == "off"))
}

/// Counts the pass, and says why it may not record.
fn admit(options: Options, site: Site) -> Result<(), Cow<'static, str>> {
    if off() {
        return Err(OFF.into());
    }
    site.pass()?;
    Ok(options.backend.gate()?)
}

fn print(site: Site, trace: &Trace) {
    let mut symbols = ProcessSymbols::new();
    let tree = render::tree(trace, &mut symbols, render::TREE_LINES);
    let mut out = std::io::stdout().lock();
    // A closed pipe is no reason to stop the program that is looked at.
    drop(writeln!(out, "scope {site}\n{tree}"));
}
