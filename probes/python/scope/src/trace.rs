//! A closed trace as Python sees it.
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use scalpel_scope::handles::Pause;
use scalpel_scope::render::{self, Syntax};
use scalpel_scope::symbol::ProcessSymbols;

/// What one scope brought back.
#[pyclass(frozen, module = "scalpel_scope._native")]
pub(crate) struct Trace(scalpel_scope::Trace);

/// Address, how often in a row, bytes, what ran next.
type Step<'py> = (u64, u32, Bound<'py, PyBytes>, u64);

#[pymethods]
impl Trace {
    #[getter]
    fn complete(&self) -> bool {
        self.0.is_complete()
    }

    #[getter]
    fn reasons(&self) -> Vec<&'static str> {
        self.0.reasons.words().collect()
    }

    #[getter]
    fn tier(&self) -> &'static str {
        self.0.tier.word()
    }

    #[getter]
    fn skip_reason(&self) -> Option<&str> {
        self.0.skip_reason.as_deref()
    }

    #[getter]
    fn instructions(&self) -> u64 {
        self.0.counted
    }

    #[getter]
    fn traps(&self) -> u64 {
        self.0.traps
    }

    fn addresses(&self) -> Vec<u64> {
        let pause = Pause::begin();
        let all = self.0.addresses().collect();
        drop(pause);
        all
    }

    fn steps<'py>(&self, python: Python<'py>) -> Vec<Step<'py>> {
        let pause = Pause::begin();
        let steps = self.0.steps.iter().filter_map(|step| {
            let code = self.0.code_of(step)?;
            let bytes = PyBytes::new(python, &code.bytes);
            Some((code.addr, step.count, bytes, step.next))
        });
        let all = steps.collect();
        drop(pause);
        all
    }

    /// "tree", "full" or "json", in "intel" or "att" syntax.
    fn text(&self, how: &str, syntax: &str, lines: usize) -> PyResult<String> {
        let pause = Pause::begin();
        let text = self.rendered(how, syntax, lines);
        drop(pause);
        text
    }
}

impl Trace {
    pub(crate) fn new(trace: scalpel_scope::Trace) -> Self {
        Self(trace)
    }

    fn rendered(&self, how: &str, syntax: &str, lines: usize) -> PyResult<String> {
        let syntax = match syntax {
            "intel" => Syntax::Intel,
            "att" => Syntax::Att,
            other => return Err(PyValueError::new_err(format!("no syntax `{other}`"))),
        };
        let mut symbols = ProcessSymbols::new();
        match how {
            "tree" => Ok(render::tree(&self.0, &mut symbols, lines)),
            "full" => Ok(render::full(&self.0, &mut symbols, syntax)),
            "json" => render::json(&self.0, &mut symbols, syntax)
                .map_err(|error| PyValueError::new_err(error.to_string())),
            other => Err(PyValueError::new_err(format!("no rendering `{other}`"))),
        }
    }
}
