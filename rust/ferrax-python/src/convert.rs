//! Python values as operands: arrays, Python scalars, NumPy arrays and scalars.

use std::ffi::c_void;

use ferrax_ir::{Atom, DType, Kind, Literal, Scalar, Sizes, Tensor};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCapsule, PyComplex, PyFloat, PyInt};

use crate::array::{Array, Data};
use crate::errors::IntoPyResult;
use crate::once::intern;
use crate::promote::{context, default_dtype};
use crate::{checks, devices, dtypes, eager, profiler};

/// An operand of an op.
#[derive(Clone)]
pub enum Operand<'py> {
    Array(Bound<'py, Array>),
    Literal(Literal),
}

impl Operand<'_> {
    pub fn dtype(&self) -> DType {
        match self {
            Operand::Array(array) => array.get().dtype(),
            Operand::Literal(literal) => literal.value.dtype(),
        }
    }

    pub fn weak(&self) -> bool {
        match self {
            Operand::Array(array) => array.get().weak(),
            Operand::Literal(literal) => literal.weak,
        }
    }

    pub fn rank(&self) -> usize {
        match self {
            Operand::Array(array) => array.get().rank(),
            Operand::Literal(_) => 0,
        }
    }
}

/// Python numbers are weak; `bool` is not, for nothing gives way to it.
pub fn python_scalar(object: &Bound<'_, PyAny>) -> PyResult<Option<Literal>> {
    let x64 = context().x64;
    if let Ok(value) = object.cast_exact::<PyFloat>() {
        let dtype = default_dtype(Kind::Float, x64);
        return Ok(Some(Literal { value: Scalar::from_f64(dtype, value.value()), weak: true }));
    }
    if let Ok(value) = object.cast_exact::<PyBool>() {
        return Ok(Some(Literal { value: Scalar::bool(value.is_true()), weak: false }));
    }
    if let Ok(value) = object.cast_exact::<PyInt>() {
        return python_int(value, default_dtype(Kind::Signed, x64)).map(Some);
    }
    if let Ok(value) = object.cast_exact::<PyComplex>() {
        return Ok(Some(complex_literal(default_dtype(Kind::Complex, x64), value.real(), value.imag())));
    }
    Ok(None)
}

fn complex_literal(dtype: DType, re: f64, im: f64) -> Literal {
    let value = match dtype {
        DType::C64 => Scalar::new([re as f32, im as f32]),
        _ => Scalar::new([re, im]),
    };
    Literal { value, weak: true }
}

fn python_int(value: &Bound<'_, PyInt>, dtype: DType) -> PyResult<Literal> {
    let wide: Option<i64> = value.extract().ok();
    let fits = wide.filter(|&wide| dtype != DType::I32 || i32::try_from(wide).is_ok());
    match fits {
        Some(fits) => Ok(Literal { value: Scalar::from_i64(dtype, fits), weak: true }),
        None => Err(PyOverflowError::new_err(format!(
            "Python integer {value} is too large to convert to {dtype}{}",
            if dtype == DType::I32 {
                "; enable 64-bit types (jax_enable_x64) or give the value an explicit dtype such as uint32 or float32"
            } else {
                ""
            }
        ))),
    }
}

/// What an op takes, or a type error that says what it got.
pub fn operand<'py>(object: &Bound<'py, PyAny>, function: &str) -> PyResult<Operand<'py>> {
    if let Ok(array) = object.cast::<Array>() {
        return Ok(Operand::Array(array.clone()));
    }
    if let Some(literal) = python_scalar(object)? {
        return Ok(Operand::Literal(literal));
    }
    let py = object.py();
    if let Some(tensor) = numpy_value(object)? {
        checks::transfer(object)?;
        let array = Array::new_concrete(py, tensor, false)?.into_bound(py);
        return devices::at_default(array).map(Operand::Array);
    }
    if let Ok(method) = object.getattr(intern!(py, "__jax_array__")) {
        let array = method.call0()?;
        return array
            .cast_into::<Array>()
            .map(Operand::Array)
            .map_err(|error| PyTypeError::new_err(format!("__jax_array__ must return an array: {error}")));
    }
    // Subclasses of Python numbers (enums, for instance) count as numbers.
    if object.is_instance_of::<PyBool>() {
        return Ok(Operand::Literal(Literal { value: Scalar::bool(object.is_truthy()?), weak: false }));
    }
    if let Ok(value) = object.cast::<PyInt>() {
        return python_int(value, default_dtype(Kind::Signed, context().x64)).map(Operand::Literal);
    }
    if let Ok(value) = object.cast::<PyFloat>() {
        let dtype = default_dtype(Kind::Float, context().x64);
        return Ok(Operand::Literal(Literal { value: Scalar::from_f64(dtype, value.value()), weak: true }));
    }
    Err(not_an_array(object, function))
}

/// [`operand`] of an object that is not needed otherwise; it comes back with an error.
pub fn owned_operand<'py>(
    object: Bound<'py, PyAny>,
    function: &str,
) -> Result<Operand<'py>, (Bound<'py, PyAny>, PyErr)> {
    match object.cast_into::<Array>() {
        Ok(array) => Ok(Operand::Array(array)),
        Err(error) => {
            let object = error.into_inner();
            operand(&object, function).map_err(|error| (object, error))
        }
    }
}

fn not_an_array(object: &Bound<'_, PyAny>, function: &str) -> PyErr {
    let kind = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    let hint = match kind.as_str() {
        "list" | "tuple" => " Convert it first, for instance with numpy.array(...).",
        _ => "",
    };
    PyTypeError::new_err(format!(
        "{function} requires ndarray or scalar arguments, got {kind}: {}.{hint}",
        shorten(object)
    ))
}

fn shorten(object: &Bound<'_, PyAny>) -> String {
    let text = object.repr().map(|text| text.to_string()).unwrap_or_default();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The layout that NumPy's `__array_struct__` capsule points to
/// (<https://numpy.org/doc/stable/reference/arrays.interface.html>).
#[repr(C)]
struct ArrayInterface {
    two: i32,
    rank: i32,
    typekind: u8,
    itemsize: i32,
    flags: i32,
    shape: *const isize,
    strides: *const isize,
    data: *const c_void,
    descr: *mut ffi::PyObject,
}

const ALIGNED: i32 = 0x100;
const NATIVE_ORDER: i32 = 0x200;

/// A copy of a NumPy array or scalar; 64-bit types are narrowed unless enabled.
/// `None` if the object is neither.
pub fn numpy_value(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    let py = object.py();
    let Ok(capsule) = object.getattr(intern!(py, "__array_struct__")) else { return Ok(None) };
    let Ok(capsule) = capsule.cast::<PyCapsule>() else { return Ok(None) };
    if object.hasattr(intern!(py, "filled"))? {
        return Err(PyValueError::new_err(
            "the masks of NumPy's masked arrays are not kept; give x.filled(value), or np.asarray(x) to \
             forget the mask",
        ));
    }
    let dtype = dtypes::from_python(&object.getattr(intern!(py, "dtype"))?)?;
    let begin = profiler::noted();
    let mut tensor = copy_interface(py, capsule, dtype)?;
    profiler::copied(begin, tensor.bytes().len());
    // NumPy's bools may be views of any bytes.
    if dtype.is_bool() {
        ferrax_ir::tensor::normalise(dtype, tensor.bytes_mut().py(py)?);
    }
    let canonical = context().of_foreign(dtype);
    if canonical == dtype { Ok(Some(tensor)) } else { narrow(py, &tensor, canonical).map(Some) }
}

/// 64-bit integers wrap into 32 bits, as NumPy's `astype` does, with a warning where that changes one.
fn narrow(py: Python<'_>, tensor: &Tensor, dtype: DType) -> PyResult<Tensor> {
    let words = || tensor.bytes().as_chunks().0.iter().map(|&bytes| i64::from_ne_bytes(bytes));
    let lost = match dtype {
        DType::I32 => words().find(|&value| i32::try_from(value).is_err()).map(|value| value.to_string()),
        DType::U32 => words()
            .map(i64::cast_unsigned)
            .find(|&value| u32::try_from(value).is_err())
            .map(|value| value.to_string()),
        _ => None,
    };
    if let Some(value) = lost {
        py.import(intern!(py, "ferrax._src.base.dtypes"))?.call_method1(
            intern!(py, "warn_of_truncation"),
            (value, tensor.dtype().to_string(), dtype.to_string()),
        )?;
    }
    eager::release_gil(py, tensor.bytes().len(), || ferrax_ir::convert::convert(tensor, dtype)).py(py)
}

fn copy_interface(py: Python<'_>, capsule: &Bound<'_, PyCapsule>, dtype: DType) -> PyResult<Tensor> {
    // SAFETY: a capsule that `__array_struct__` returned holds an `ArrayInterface` (version two)
    // that lives as long as the capsule; it has no name.
    let interface = unsafe {
        let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()).cast::<ArrayInterface>();
        pointer.as_ref().ok_or_else(|| PyErr::fetch(py))?
    };
    let rank = usize::try_from(interface.rank).unwrap_or(0);
    if interface.two != 2 || interface.itemsize as usize != dtype.size() {
        return Err(PyValueError::new_err(format!(
            "array of {dtype} has items of {} bytes",
            interface.itemsize
        )));
    }
    if interface.flags & NATIVE_ORDER == 0 {
        return Err(PyTypeError::new_err(
            "arrays must be in native byte order; convert with x.astype(x.dtype.newbyteorder('='))",
        ));
    }
    // Alignment does not matter: elements are copied as bytes.
    let _ = ALIGNED;
    let (shape, strides): (&[isize], &[isize]) = if rank == 0 {
        (&[], &[])
    } else {
        // SAFETY: both arrays have `rank` entries.
        unsafe {
            (
                std::slice::from_raw_parts(interface.shape, rank),
                std::slice::from_raw_parts(interface.strides, rank),
            )
        }
    };
    let sizes: Sizes = shape.iter().map(|&size| size.max(0).cast_unsigned()).collect();
    let bytes = ferrax_ir::tensor::byte_size(&sizes, dtype).py(py)?;
    let mut tensor = Tensor::zeros(dtype, sizes.clone()).py(py)?;
    if bytes == 0 {
        return Ok(tensor);
    }
    let target = tensor.bytes_mut().py(py)?;
    let contiguous =
        sizes.iter().zip(strides).rev().try_fold(dtype.size() as isize, |expected, (&size, &stride)| {
            (size == 1 || stride == expected).then_some(expected * size.cast_signed())
        });
    if contiguous.is_some() {
        // SAFETY: a contiguous array of these sizes spans `bytes` bytes from `data`.
        target.copy_from_slice(unsafe { std::slice::from_raw_parts(interface.data.cast::<u8>(), bytes) });
        return Ok(tensor);
    }
    let item = dtype.size();
    let mut index: Sizes = std::iter::repeat_n(0, rank).collect();
    for chunk in target.chunks_exact_mut(item) {
        let offset: isize = index.iter().zip(strides).map(|(&i, &stride)| i.cast_signed() * stride).sum();
        // SAFETY: the index is within the array's bounds, so its item is within the array's memory.
        chunk.copy_from_slice(unsafe {
            std::slice::from_raw_parts(interface.data.cast::<u8>().offset(offset), item)
        });
        for axis in (0..rank).rev() {
            index[axis] += 1;
            if index[axis] < sizes[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Ok(tensor)
}

/// A concrete array for anything that is one: scalars and NumPy arrays are converted.
pub fn as_array<'py>(object: &Bound<'py, PyAny>, function: &str) -> PyResult<Bound<'py, Array>> {
    match operand(object, function)? {
        Operand::Array(array) => Ok(array),
        Operand::Literal(literal) => {
            let py = object.py();
            let tensor = literal.value.to_tensor().py(py)?;
            devices::at_default(Array::new_concrete(py, tensor, literal.weak)?.into_bound(py))
        }
    }
}

/// The literal or concrete tensor of an operand that is not traced.
pub fn operand_tensor(py: Python<'_>, operand: &Operand<'_>) -> PyResult<Option<Tensor>> {
    match operand {
        Operand::Literal(literal) => literal.value.to_tensor().py(py).map(Some),
        Operand::Array(array) => match &array.get().data {
            Data::Concrete(concrete) => concrete.tensor().map(Some),
            Data::Tracer(_) => Ok(None),
        },
    }
}

impl From<Literal> for Operand<'_> {
    fn from(literal: Literal) -> Self {
        Operand::Literal(literal)
    }
}

/// The atom of a literal operand.
pub fn literal_atom(literal: Literal) -> Atom {
    Atom::Literal(literal)
}
