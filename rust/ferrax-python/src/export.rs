//! Programs as bytes: what `ferrax.export` is made of.

use std::collections::HashMap;
use std::sync::Arc;

use ferrax_ir::serial::{self, Interface};
use ferrax_ir::{Dim, Tensor};
use ferrax_transform::specialise;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyModule};

use crate::errors::IntoPyResult;
use crate::program::{PyProgram, operands};
use crate::{dims, eager};

#[pymethods]
impl PyProgram {
    /// The program where the last inputs are constants with these values, which are concrete.
    fn bind_constants(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<PyProgram> {
        let tensors: Vec<Tensor> = eager::tensors(py, &operands(values)?)?.into_iter().collect();
        let bound = self.program.bind_constants(&tensors).py(py)?;
        Ok(PyProgram::new(Arc::new(bound)))
    }

    /// Whether a dimension of some value depends on variables.
    #[getter]
    fn is_symbolic(&self) -> bool {
        specialise::is_symbolic(&self.program)
    }

    /// The program where dimension variables have these values: sizes, or dimensions of the scope in which it is applied.
    /// ValueError where an op cannot have them.
    fn specialise(&self, py: Python<'_>, values: HashMap<String, Bound<'_, PyAny>>) -> PyResult<PyProgram> {
        let _scope = dims::within(py);
        let values: HashMap<String, Dim> = values
            .iter()
            .map(|(name, value)| Ok((name.clone(), dims::dim(value)?)))
            .collect::<PyResult<_>>()?;
        let program = &self.program;
        let made = py.detach(|| specialise::specialise(program, &|name| values.get(name).cloned()));
        Ok(PyProgram::new(Arc::new(made.py(py)?)))
    }

    /// The program with rules of the user's as data, for derivatives up to as many orders as are always saved.
    fn with_saved_rules(&self, py: Python<'_>) -> PyResult<PyProgram> {
        let _scope = dims::within_scope(self.scope(py));
        Ok(PyProgram::new(Arc::new(serial::with_rules(&self.program, serial::RULE_ORDER).py(py)?)))
    }
}

/// The bytes of a file with this program, with rules of the user's for derivatives up to `orders`, or
/// as many as are always there. Names are for all inputs and outputs, or empty.
#[pyfunction]
#[pyo3(signature = (program, metadata, input_names = Vec::new(), output_names = Vec::new(), orders = 0))]
fn program_to_bytes<'py>(
    py: Python<'py>,
    program: &Bound<'py, PyProgram>,
    metadata: String,
    input_names: Vec<String>,
    output_names: Vec<String>,
    orders: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let interface = Interface { input_names, output_names, metadata };
    let program = &program.get().program;
    let orders = orders.max(serial::RULE_ORDER);
    let bytes = py.detach(|| serial::to_bytes_up_to(program, &interface, orders)).py(py)?;
    Ok(PyBytes::new(py, &bytes))
}

/// `(program, metadata)` of the bytes of a file. ValueError if they hold no valid program.
#[pyfunction]
fn program_from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<(PyProgram, String)> {
    let (program, interface) = serial::from_bytes(bytes).py(py)?;
    Ok((PyProgram::new(Arc::new(program)), interface.metadata))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(program_to_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(program_from_bytes, module)?)
}
