//! A scope as a context manager: opened by `__enter__`, closed by `__exit__` or `close`.
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use scalpel_scope::handles::{self, Handle, Pause};
use scalpel_scope::trace::Form;
use scalpel_scope::{Budget, Code, Emit, Ending, HwBackend, Options, ScopeError, Site};

use crate::trace::Trace;

/// Integer arguments of a traced call.
const MOST_ARGS: usize = 6;

/// What is asked for: everything, or the code from one address up to another.
type Range = Option<(u64, u64)>;
/// Full path, line, column.
type Place = (String, u32, u32);
/// Tier, most traps, most seconds.
type Limits = (String, Option<u64>, Option<f64>);

/// What opening needs.
struct Asked {
    form: Form,
    options: Options,
    site: Site,
}

impl Asked {
    fn of(range: Range, all: Form, place: &Place, limits: &Limits) -> PyResult<Self> {
        let form = match range {
            None => all,
            Some((start, end)) if start < end => Form::Region { start, end },
            Some((start, end)) => {
                let what = format!("the code from {start:#x} up to {end:#x} is empty");
                return Err(PyValueError::new_err(what));
            }
        };
        let (file, line, column) = place;
        let site = if handles::off() {
            Site::nowhere()
        } else {
            Site::at(file, *line, *column)
        };
        Ok(Self {
            form,
            options: options(limits)?,
            site,
        })
    }
}

fn options((backend, traps, seconds): &Limits) -> PyResult<Options> {
    let backend = match backend.as_str() {
        "auto" => HwBackend::Auto,
        "single-step" => HwBackend::SingleStep,
        "intel-pt" => HwBackend::IntelPt,
        "amd-lbr" => HwBackend::AmdLbr,
        other => return Err(PyValueError::new_err(format!("no backend `{other}`"))),
    };
    let mut budget = Budget::default();
    budget.traps = traps.unwrap_or(budget.traps);
    if let Some(seconds) = *seconds {
        budget.time = Duration::try_from_secs_f64(seconds)
            .map_err(|error| PyValueError::new_err(format!("max_seconds: {error}")))?;
    }
    Ok(Options {
        backend,
        budget,
        emit: Emit::Off,
    })
}

enum State {
    New,
    Open(Handle),
    Closed,
}

/// One scope. The Python half adds names and output.
#[pyclass(subclass, frozen, module = "scalpel_scope._native")]
pub(crate) struct Scope {
    asked: Asked,
    state: Mutex<State>,
    trace: Mutex<Option<Py<Trace>>>,
}

#[pymethods]
impl Scope {
    #[new]
    fn new(range: Range, place: Place, limits: Limits) -> PyResult<Self> {
        Ok(Self {
            asked: Asked::of(range, Form::Window, &place, &limits)?,
            state: Mutex::new(State::New),
            trace: Mutex::new(None),
        })
    }

    /// Opens it. It is armed as the last thing before this returns.
    fn __enter__(slf: Py<Self>, python: Python<'_>) -> PyResult<Py<Self>> {
        let pause = Pause::begin();
        slf.bind(python).call_method0("_watch")?;
        slf.get().begin(&pause)?;
        drop(pause);
        Ok(slf)
    }

    /// Closes it if that is not done yet. What is wrong is a reason in the trace: the body's exception goes on.
    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyAny>) -> PyResult<bool> {
        let pause = Pause::begin();
        let ended = slf.get().end(slf.py(), &pause, Ending::Abandon);
        if ended.is_ok() {
            slf.call_method0("_emit")?;
        }
        drop(pause);
        Ok(false)
    }

    /// Closes it, or raises a `ScopeError`.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let pause = Pause::begin();
        let ended = slf.get().end(slf.py(), &pause, Ending::Close);
        let told = ended.map_err(raised).and_then(|()| {
            slf.call_method0("_emit")?;
            Ok(())
        });
        drop(pause);
        told
    }

    /// Closes it because the coroutine that it is in is suspended.
    fn _suspend(slf: &Bound<'_, Self>) {
        let pause = Pause::begin();
        // Closed already: the coroutine was not within it any more.
        let _closed = slf.get().end(slf.py(), &pause, Ending::Suspend);
        drop(pause);
    }

    /// The trace, once it is closed.
    #[getter]
    fn _trace(&self, python: Python<'_>) -> Option<Py<Trace>> {
        let trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        trace.as_ref().map(|trace| trace.clone_ref(python))
    }
}

impl Scope {
    fn begin(&self, pause: &Pause) -> PyResult<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, State::New) {
            let why = "a scope is opened once: make another one";
            return Err(crate::ScopeError::new_err(why));
        }
        let Asked {
            form,
            options,
            site,
        } = self.asked;
        *state = State::Open(handles::open(pause, form, options, site));
        Ok(())
    }

    fn end(&self, python: Python<'_>, pause: &Pause, ending: Ending) -> Result<(), ScopeError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = match *state {
            State::Open(handle) => handle,
            State::New => return Err(ScopeError::NoSuchScope),
            State::Closed => return Err(ScopeError::AlreadyClosed),
        };
        let trace = handles::close(pause, handle, ending)?;
        *state = State::Closed;
        drop(state);
        // The only error is that there is no memory left.
        let kept = Py::new(python, Trace::new(trace)).ok();
        *self.trace.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        Ok(())
    }
}

impl Drop for Scope {
    /// Forgotten without a close: nobody sees the trace, but the thread must not be stepped for ever.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Open(handle) = *state {
            let pause = Pause::begin();
            drop(handles::close(&pause, handle, Ending::Abandon));
            drop(pause);
        }
    }
}

fn raised(error: ScopeError) -> PyErr {
    let text = error.to_string();
    match error {
        ScopeError::AlreadyClosed => crate::AlreadyClosedError::new_err(text),
        ScopeError::WrongOrder => crate::WrongOrderError::new_err(text),
        ScopeError::OtherThread => crate::OtherThreadError::new_err(text),
        ScopeError::NoSuchScope => {
            crate::ScopeError::new_err("the scope is not open: enter it first")
        }
    }
}

/// The scopes of this thread stand still until `resume`: the package's own code is in no trace.
#[pyfunction]
pub(crate) fn pause() {
    handles::pause();
}

/// Ends the last pause.
#[pyfunction]
pub(crate) fn resume() {
    handles::resume();
}

/// Calls the C function at an address in a scope of its own.
#[pyfunction]
pub(crate) fn call(
    python: Python<'_>,
    function: usize,
    args: Vec<u64>,
    range: Range,
    place: Place,
    limits: Limits,
) -> PyResult<(u64, Trace)> {
    let pause = Pause::begin();
    if function == 0 || args.len() > MOST_ARGS {
        let why = "a traced call is of a function that is not null, with at most 6 integers";
        return Err(PyValueError::new_err(why));
    }
    let mut six = [0; MOST_ARGS];
    for (to, from) in six.iter_mut().zip(&args) {
        *to = *from;
    }
    let asked = Asked::of(range, Form::Call, &place, &limits)?;
    // Without the interpreter's lock, as ctypes calls: the function may wait for another thread.
    let (result, trace) = python.detach(|| {
        let Asked {
            form,
            options,
            site,
        } = asked;
        // SAFETY: the caller says that this is a C function that is sound with these arguments, and that it returns.
        unsafe { handles::call(&pause, (function, &six), form, options, site) }
    });
    drop(pause);
    Ok((result, Trace::new(trace)))
}

/// The range of the function at an address, by the symbols of its file.
#[pyfunction]
pub(crate) fn function(address: usize) -> Range {
    let pause = Pause::begin();
    let range = Code::function(address).and_then(|code| match code.region() {
        Form::Region { start, end } => Some((start, end)),
        Form::Call | Form::Window => None,
    });
    drop(pause);
    range
}

/// The address of the C function behind a built-in function of Python.
#[pyfunction]
pub(crate) fn builtin(function: &Bound<'_, PyAny>) -> PyResult<usize> {
    // SAFETY: a new reference is not needed: the object lives through the call, and a wrong type raises.
    let address = unsafe { pyo3::ffi::PyCFunction_GetFunction(function.as_ptr()) };
    match address {
        Some(address) => Ok(address as usize),
        None => Err(PyErr::take(function.py())
            .unwrap_or_else(|| PyTypeError::new_err("not a built-in function"))),
    }
}

/// Passes, traps and seconds of a call site.
#[pyfunction]
pub(crate) fn totals(place: Place) -> (u64, u64, f64) {
    let (file, line, column) = place;
    let totals = Site::at(&file, line, column).totals();
    (totals.passes, totals.traps, totals.time.as_secs_f64())
}
