//! Parameters of ops between Python and the IR.

use std::sync::Arc;

use ferrax_ir::{DType, Op, Param, Scalar};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::errors::IntoPyResult;
use crate::program::PyProgram;
use crate::{dims, dtypes};

/// A rule or policy of the user's, as Python hands it back.
#[pyclass(frozen, module = "ferrax", name = "Rule")]
pub struct PyRule(Param);

#[pymethods]
impl PyRule {
    fn __repr__(&self) -> String {
        match &self.0 {
            Param::Jvp(rule) => rule.0.name(),
            Param::Vjp(rule) => rule.0.name(),
            Param::Policy(policy) => policy.0.as_ref().map_or("None".to_owned(), |policy| policy.name()),
            _ => String::new(),
        }
    }

    /// Of a forward derivative: the program over the call's inputs and the tangents of the flagged
    /// ones, and which outputs have tangents.
    fn jvp(&self, py: Python<'_>, nonzero: Vec<bool>) -> PyResult<(PyProgram, Vec<bool>)> {
        let Param::Jvp(rule) = &self.0 else { return Err(self.not_a("forward derivative")) };
        let (program, flags) = rule.0.program(&nonzero).py(py)?;
        Ok((PyProgram::new(program), flags.to_vec()))
    }

    /// Of a reverse derivative: the program to outputs and then residuals.
    fn forward(&self, py: Python<'_>, perturbed: Vec<bool>) -> PyResult<PyProgram> {
        let Param::Vjp(rule) = &self.0 else { return Err(self.not_a("reverse derivative")) };
        Ok(PyProgram::new(rule.0.forward(&perturbed).py(py)?))
    }

    /// Of a reverse derivative: the program from residuals and the cotangents in `given`, and which
    /// inputs of the call have cotangents.
    fn backward(
        &self,
        py: Python<'_>,
        perturbed: Vec<bool>,
        given: Vec<bool>,
    ) -> PyResult<(PyProgram, Vec<bool>)> {
        let Param::Vjp(rule) = &self.0 else { return Err(self.not_a("reverse derivative")) };
        let (program, flags) = rule.0.backward(&perturbed, &given).py(py)?;
        Ok((PyProgram::new(program), flags.to_vec()))
    }
}

impl PyRule {
    fn not_a(&self, what: &str) -> PyErr {
        PyTypeError::new_err(format!("'{}' is no {what}", self.__repr__()))
    }
}

/// A Python value as a parameter.
pub fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Param> {
    if value.is_none() {
        return Ok(Param::None);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Param::Bool(flag.is_true()));
    }
    if value.is_exact_instance_of::<PyInt>() {
        return value.extract().map(Param::Int);
    }
    if let Ok(items) = value.cast::<PyTuple>() {
        return items.iter().map(|item| from_python(&item)).collect::<PyResult<_>>().map(Param::List);
    }
    if let Ok(items) = value.cast::<PyList>() {
        return items.iter().map(|item| from_python(&item)).collect::<PyResult<_>>().map(Param::List);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Param::Str(text.to_string_lossy().as_ref().into()));
    }
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Ok(Param::Scalar(Scalar::new(number.value())));
    }
    if let Ok(program) = value.cast::<PyProgram>() {
        return Ok(Param::Program(program.get().program.clone()));
    }
    if let Ok(rule) = value.cast::<PyRule>() {
        return Ok(rule.get().0.clone());
    }
    if let Ok(index) = value.call_method0("__index__") {
        return index.extract().map(Param::Int);
    }
    if let Some(dim) = dims::symbolic(value)? {
        return Ok(Param::Dim(dim));
    }
    dtypes::from_python(value).map(Param::DType).map_err(|_| {
        PyTypeError::new_err(format!(
            "a parameter must be an int, bool, str, dtype, tuple or None, got {}",
            value.get_type().name().map(|name| name.to_string()).unwrap_or_default()
        ))
    })
}

/// A parameter as a Python value: tuples for lists.
pub fn to_python(py: Python<'_>, value: &Param) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Param::None => py.None(),
        Param::Bool(flag) => flag.into_pyobject(py)?.to_owned().into_any().unbind(),
        Param::Int(number) => number.into_pyobject(py)?.into_any().unbind(),
        Param::Dim(dim) => dims::to_python(py, dim, dims::scope(py).as_ref())?,
        Param::DType(dtype) => dtypes::to_numpy(py, *dtype)?,
        Param::Str(text) => text.as_ref().into_pyobject(py)?.into_any().unbind(),
        Param::Scalar(scalar) => scalar_to_python(py, *scalar)?,
        Param::List(items) => {
            let items: Vec<_> = items.iter().map(|item| to_python(py, item)).collect::<PyResult<_>>()?;
            PyTuple::new(py, items)?.into_any().unbind()
        }
        Param::Policy(policy) if policy.0.is_none() => py.None(),
        Param::Jvp(_) | Param::Vjp(_) | Param::Policy(_) => Py::new(py, PyRule(value.clone()))?.into_any(),
        Param::Program(program) => Py::new(py, PyProgram::new(program.clone()))?.into_any(),
    })
}

/// A scalar as a Python number.
pub fn scalar_to_python(py: Python<'_>, scalar: Scalar) -> PyResult<Py<PyAny>> {
    use ferrax_ir::convert::{Wide, load};
    Ok(match (scalar.dtype(), load(scalar.dtype(), &scalar.bytes())) {
        (DType::Bool, Some(Wide::Int(value))) => {
            (value != 0).into_pyobject(py)?.to_owned().into_any().unbind()
        }
        (_, Some(Wide::Int(value))) => value.into_pyobject(py)?.into_any().unbind(),
        (_, Some(Wide::Float(value))) => value.into_pyobject(py)?.into_any().unbind(),
        (_, Some(Wide::Complex(re, im))) => {
            pyo3::types::PyComplex::from_doubles(py, re, im).into_any().unbind()
        }
        (dtype, None) => {
            return Err(PyTypeError::new_err(format!("an element of {dtype} is not a Python number")));
        }
    })
}

/// The op of this name with these parameters. Fill values are converted to `element`, the first
/// operand's dtype.
pub fn op(py: Python<'_>, name: &str, params: &Bound<'_, PyDict>, element: Option<DType>) -> PyResult<Op> {
    let mut entries: Vec<(Arc<str>, Param)> = Vec::with_capacity(params.len());
    for (key, value) in params.iter() {
        let key: Arc<str> = key.cast::<PyString>()?.to_string_lossy().as_ref().into();
        let value = match element {
            Some(dtype) if &*key == "fill_value" && !value.is_none() => fill_value(&value, dtype)?,
            _ => from_python(&value)?,
        };
        entries.push((key, value));
    }
    Op::from_params(name, entries).py(py)
}

/// A Python or NumPy number as a fill value of this dtype.
fn fill_value(value: &Bound<'_, PyAny>, dtype: DType) -> PyResult<Param> {
    use ferrax_ir::convert::{Wide, store};
    let wide = if let Ok(flag) = value.cast::<PyBool>() {
        Wide::Int(flag.is_true().into())
    } else if let Ok(number) = value.extract::<i128>() {
        Wide::Int(number)
    } else if let Ok(number) = value.extract::<f64>() {
        Wide::Float(number)
    } else {
        let number = value.cast::<pyo3::types::PyComplex>().map_err(|_| {
            PyTypeError::new_err(format!("fill_value must be a number, got {}", value.get_type()))
        })?;
        Wide::Complex(number.real(), number.imag())
    };
    store(dtype, wide)
        .map(Param::Scalar)
        .ok_or_else(|| PyTypeError::new_err(format!("arrays of {dtype} have no fill value")))
}
