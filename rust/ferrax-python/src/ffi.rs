//! Handlers of other languages: registering them, and calls of them.
//!
//! Addresses come from Python, which has them from capsules or `ctypes`.

use std::sync::Arc;

use ferrax_cpu::ffi::{self, Attribute, FfiCall, Order};
use ferrax_ir::{Extension, Op};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::dtypes::from_python;
use crate::errors::IntoPyResult;
use crate::program::{array_type, operands};
use crate::trace;

/// Registers the handlers of the stages, by their addresses, 0 where there is none.
#[pyfunction]
pub fn ffi_register(py: Python<'_>, name: &str, platform: &str, addresses: [usize; 4]) -> PyResult<()> {
    // SAFETY: the public function takes capsules of handlers, and keeps them for ever.
    unsafe { ffi::register(name, platform, addresses) }.py(py)
}

/// Registers a type of states: the addresses of its id and of what says how a state is deleted, or 0.
#[pyfunction]
pub fn ffi_register_type(py: Python<'_>, name: &str, id: usize, info: usize) -> PyResult<()> {
    // SAFETY: as above.
    unsafe { ffi::register_type(name, id, info) }.py(py)
}

fn attribute(value: &Bound<'_, PyAny>) -> PyResult<Attribute> {
    let (kind, rest): (String, Bound<'_, PyAny>) = value.extract()?;
    match kind.as_str() {
        "text" => Ok(Attribute::Text(rest.extract()?)),
        "dictionary" => Ok(Attribute::Dictionary(attributes(&rest)?)),
        "scalar" => {
            let (dtype, bytes): (Bound<'_, PyAny>, Bound<'_, PyBytes>) = rest.extract()?;
            Ok(Attribute::Scalar(from_python(&dtype)?, bytes.as_bytes().to_vec()))
        }
        "array" => {
            let (dtype, length, bytes): (Bound<'_, PyAny>, usize, Bound<'_, PyBytes>) = rest.extract()?;
            Ok(Attribute::Array(from_python(&dtype)?, length, bytes.as_bytes().to_vec()))
        }
        _ => Err(PyTypeError::new_err(format!("there is no kind {kind:?} of attributes"))),
    }
}

fn attributes(items: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Attribute)>> {
    items
        .try_iter()?
        .map(|item| {
            let (name, value): (String, Bound<'_, PyAny>) = item?.extract()?;
            Ok((name, attribute(&value)?))
        })
        .collect()
}

/// Calls the handler of a target: records it, or runs it. `types` are those of the results, `aliases` pairs
/// of an operand and the result that begins as it. Operands and results with an order are given with their axes in
/// it; the handler sees them as they were.
#[pyfunction]
#[pyo3(signature = (arguments, target, types, given, aliases, has_side_effect, input_orders=vec![], output_orders=vec![]))]
#[allow(clippy::too_many_arguments)] // those of a call
pub fn ffi_call<'py>(
    py: Python<'py>,
    arguments: &Bound<'py, PyTuple>,
    target: &str,
    types: &Bound<'py, PyList>,
    given: &Bound<'py, PyAny>,
    aliases: Vec<(usize, usize)>,
    has_side_effect: bool,
    input_orders: Vec<Order>,
    output_orders: Vec<Order>,
) -> PyResult<Bound<'py, PyList>> {
    let outputs = types.iter().map(|ty| array_type(&ty)).collect::<PyResult<Vec<_>>>()?;
    let op = FfiCall::new(target, "cpu", outputs, attributes(given)?, aliases, has_side_effect).py(py)?;
    let op = op.with_orders(input_orders, output_orders);
    let op = Op::Extension(Extension(Arc::new(op)));
    PyList::new(py, trace::bind(py, op, &operands(arguments)?)?)
}
