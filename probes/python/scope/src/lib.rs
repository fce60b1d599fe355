//! The compiled half of the Python package `scalpel_scope`: scopes by handle, and traces. Names, files and output are
//! the Python half's. Nothing of the interpreter runs between the arming of a scope and the return of `__enter__`.
#![expect(
    unsafe_code,
    reason = "a call by address is what `call` is for, and one function of the interpreter gives such addresses"
)]
mod scope;
mod trace;

use pyo3::prelude::*;

pyo3::create_exception!(
    scalpel_scope,
    ScopeError,
    pyo3::exceptions::PyRuntimeError,
    "A scope that cannot be closed."
);
pyo3::create_exception!(
    scalpel_scope,
    AlreadyClosedError,
    ScopeError,
    "The scope is closed already: keep its first trace."
);
pyo3::create_exception!(
    scalpel_scope,
    WrongOrderError,
    ScopeError,
    "A scope opened within this one is still open: close that one first."
);
pyo3::create_exception!(
    scalpel_scope,
    OtherThreadError,
    ScopeError,
    "The scope belongs to another thread: close it there."
);

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let python = module.py();
    module.add_class::<scope::Scope>()?;
    module.add_class::<trace::Trace>()?;
    module.add_function(wrap_pyfunction!(scope::call, module)?)?;
    module.add_function(wrap_pyfunction!(scope::function, module)?)?;
    module.add_function(wrap_pyfunction!(scope::builtin, module)?)?;
    module.add_function(wrap_pyfunction!(scope::pause, module)?)?;
    module.add_function(wrap_pyfunction!(scope::resume, module)?)?;
    module.add_function(wrap_pyfunction!(scope::totals, module)?)?;
    module.add("ScopeError", python.get_type::<ScopeError>())?;
    module.add(
        "AlreadyClosedError",
        python.get_type::<AlreadyClosedError>(),
    )?;
    module.add("WrongOrderError", python.get_type::<WrongOrderError>())?;
    module.add("OtherThreadError", python.get_type::<OtherThreadError>())?;
    Ok(())
}
