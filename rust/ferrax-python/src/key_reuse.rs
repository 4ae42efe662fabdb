//! `debug_key_reuse`: what runs is shown to Python before it does and after, which follows the use of keys
//! (`ferrax._src.experimental.key_reuse`). In: a program or an op, its operands. Out: an error where a key
//! is used that was used before. Nothing here runs while the setting is off.

use std::sync::Arc;

use ferrax_ir::{Atom, Builder, DType, Op, Program};
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;

use crate::array::Array;
use crate::convert::Operand;
use crate::errors::IntoPyResult;
use crate::once::intern;
use crate::program::PyProgram;
use crate::trace::{self, Outputs};
use crate::tracebacks::Filtered;
use crate::{checks, eager};

/// A run that is followed: what is told the results.
pub struct Followed<'py>(Option<Bound<'py, PyAny>>);

/// Shows a program that is about to run. `name` is that of messages.
pub fn follow<'py>(
    py: Python<'py>,
    program: &Arc<Program>,
    name: &str,
    operands: &[Operand<'_>],
) -> PyResult<Followed<'py>> {
    if !checks::keys() {
        return Ok(Followed(None));
    }
    let values: Vec<Option<Py<Array>>> = operands
        .iter()
        .map(|operand| match operand {
            Operand::Array(array) => Some(array.clone().unbind()),
            Operand::Literal(_) => None,
        })
        .collect();
    let program = Bound::new(py, PyProgram::new(program.clone()))?;
    let module = py.import(intern!(py, "ferrax._src.experimental.key_reuse"))?;
    module
        .call_method1(intern!(py, "follow"), (program, name, values))
        .filtered(py)
        .map(|done| Followed(Some(done)))
}

impl Followed<'_> {
    pub fn done(self, results: &[Py<Array>]) -> PyResult<()> {
        let Some(done) = self.0 else { return Ok(()) };
        done.call1((PyList::new(done.py(), results)?,)).filtered(done.py()).map(drop)
    }
}

/// Runs an op, which is followed if keys go in or out.
#[cold]
pub fn run_op(py: Python<'_>, op: &Op, operands: &[Operand<'_>]) -> PyResult<Outputs> {
    let mut builder = Builder::new(op.name());
    let inputs: SmallVec<[Atom; 4]> =
        trace::types(operands).into_iter().map(|ty| builder.input(ty)).collect();
    let outputs = builder.emit(op.clone(), &inputs).py(py)?;
    let program = Arc::new(builder.finish(outputs.into_iter().map(Atom::Var)));
    let is_key = |dtype: DType| dtype.is_key();
    if !program.types.iter().any(|ty| ty.as_array().is_some_and(|ty| is_key(ty.dtype))) {
        return eager::run_plain(py, op, operands);
    }
    let followed = follow(py, &program, op.name(), operands)?;
    let results = eager::run_plain(py, op, operands)?;
    followed.done(&results)?;
    Ok(results)
}
