//! Settings that look at what runs and what is traced, or forbid it, without changing it: they are no
//! part of the key of compiled functions. Read on hot paths, so one word a thread, a bit a setting;
//! `ferrax._src.core.runtime` gives the bits in this order.

use std::cell::Cell;
use std::sync::atomic::{AtomicU16, Ordering};

use ferrax_cpu::provenance::Watch;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::convert::Operand;
use crate::once::intern;
use crate::tracebacks::Filtered;
use crate::{params, trace};

const NANS: u16 = 1;
const INFS: u16 = 2;
const LEAKS: u16 = 4;
const RETRACES: u16 = 8;
const COMPILES: u16 = 16;
const NO_TRACING: u16 = 32;
const NO_EXECUTION: u16 = 64;
const LOG_TRANSFERS: u16 = 128;
const NO_TRANSFERS: u16 = 256;
const KEYS: u16 = 512;
const ELSEWHERE: u16 = 1024;
const TRANSFERS: u16 = LOG_TRANSFERS | NO_TRANSFERS;
/// What is asked around each run; the rest is asked where something is traced, compiled or converted.
const RUNS: u16 = NANS | INFS | NO_EXECUTION | TRANSFERS;
/// This thread follows the process.
const UNSET: u16 = u16::MAX;

thread_local! {
    static OWN: Cell<u16> = const { Cell::new(UNSET) };
}

static SHARED: AtomicU16 = AtomicU16::new(0);

fn bits() -> u16 {
    match OWN.get() {
        UNSET => SHARED.load(Ordering::Relaxed),
        own => own,
    }
}

/// Whether a run is looked at: `may_run` and `arguments` before it, `values` after it.
#[inline]
pub fn watched() -> bool {
    bits() & RUNS != 0
}

/// Fails where nothing may run.
#[cold]
pub fn may_run(name: &str) -> PyResult<()> {
    if bits() & NO_EXECUTION == 0 {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(format!(
        "'{name}' would run, and jax_no_execution forbids the execution of programs"
    )))
}

/// Fails where no function may be traced for compilation.
pub fn may_trace(name: &str) -> PyResult<()> {
    if bits() & NO_TRACING == 0 {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(format!(
        "'{name}' would be traced, and jax_no_tracing forbids that: no program for arguments of these types is known"
    )))
}

/// Whether the default device is not the host.
#[inline]
pub fn elsewhere() -> bool {
    bits() & ELSEWHERE != 0
}

/// What values in results are errors; `None` if all are fine.
#[inline]
pub fn values() -> Option<Watch> {
    let bits = bits();
    (bits & (NANS | INFS) != 0).then_some(Watch { nan: bits & NANS != 0, inf: bits & INFS != 0 })
}

/// Whether tracers that outlive their frame are errors.
pub fn leaks() -> bool {
    bits() & LEAKS != 0
}

/// Whether the cause of each retrace is logged.
pub fn retraces() -> bool {
    bits() & RETRACES != 0
}

/// Whether the use of random keys is followed.
#[inline]
pub fn keys() -> bool {
    bits() & KEYS != 0
}

/// Whether traces and compilations are logged.
pub fn compiles() -> bool {
    bits() & COMPILES != 0
}

/// Called for a NumPy array or scalar of which an array is made: logs that or fails where such
/// conversions are guarded. While a function is traced it becomes a constant, which never is.
#[inline]
pub fn transfer(value: &Bound<'_, PyAny>) -> PyResult<()> {
    if bits() & TRANSFERS == 0 || trace::is_staging() { Ok(()) } else { guarded(value) }
}

/// Called with the arguments of a jitted function before it runs: the same for Python numbers.
#[cold]
pub fn arguments(py: Python<'_>, operands: &[Operand<'_>]) -> PyResult<()> {
    if bits() & TRANSFERS == 0 {
        return Ok(());
    }
    for operand in operands {
        if let Operand::Literal(literal) = operand {
            guarded(params::scalar_to_python(py, literal.value)?.bind(py))?;
        }
    }
    Ok(())
}

#[cold]
fn guarded(value: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = value.py();
    let module = py.import(intern!(py, "ferrax._src.core.transfers"))?;
    module.call_method1(intern!(py, "guarded"), (value, bits() & NO_TRANSFERS != 0)).filtered(py).map(drop)
}

/// Sets the checks of this thread or, with `shared`, of the process.
#[pyfunction]
pub fn set_checks(bits: u16, shared: bool) {
    if shared { SHARED.store(bits, Ordering::Relaxed) } else { OWN.set(bits) }
}

/// This thread follows the process again.
#[pyfunction]
pub fn clear_checks() {
    OWN.set(UNSET);
}

/// Whether programs between passes and plans are verified, in the whole process.
#[pyfunction]
pub fn set_verification(on: bool) {
    ferrax_ir::verify::demand(on);
}
