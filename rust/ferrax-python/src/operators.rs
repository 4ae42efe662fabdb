//! Python's operators and conversions on arrays.

use ferrax_compile::device::{Buffer, DeviceId};
use ferrax_ir::ops::{Binary, Compare, Unary};
use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Tensor};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyTuple};

use crate::array::{Array, Data};
use crate::convert::{self, Operand};
use crate::elementwise::{Promotion, binary, bind1, numpy_mixed};
use crate::errors::IntoPyResult;
use crate::once::intern;
use crate::pairwise::Pairwise;
use crate::{devices, dtypes, eager, functions, params, trace};

/// The other operand, or `None` for kinds that the operators leave to Python. What an object's `__jax_array__`
/// gives may be a number here.
fn other<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Operand<'py>>> {
    let is_left = |error: &PyErr| error.is_instance_of::<PyTypeError>(object.py());
    let found = match convert::operand(object, "this operator") {
        Err(error) if is_left(&error) => match object.getattr(intern!(object.py(), "__jax_array__")) {
            Ok(method) => convert::operand(&method.call0()?, "this operator"),
            Err(_) => Err(error),
        },
        found => found,
    };
    match found {
        Ok(operand) => Ok(Some(operand)),
        Err(error) if is_left(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_container(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
        || object.is_instance_of::<PySet>()
        || object.is_instance_of::<PyDict>()
}

fn apply(
    slf: &Bound<'_, Array>,
    object: &Bound<'_, PyAny>,
    name: &str,
    op: impl Into<Pairwise>,
    promotion: Promotion,
    reflected: bool,
) -> PyResult<Py<PyAny>> {
    let py = slf.py();
    let Some(other) = other(object)? else { return Ok(py.NotImplemented()) };
    let this = Operand::Array(slf.clone());
    let (x, y) = if reflected { (other, this) } else { (this, other) };
    binary(py, name, op, x, y, promotion).map(Py::into_any)
}

macro_rules! operators {
    ($($method:ident $reflected:ident $name:literal $promotion:ident $op:expr;)*) => {
        #[pymethods]
        impl Array {
            $(
                fn $method(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                    apply(slf, other, $name, $op, Promotion::$promotion, false)
                }

                fn $reflected(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                    apply(slf, other, $name, $op, Promotion::$promotion, true)
                }
            )*
        }
    };
}

operators! {
    __add__ __radd__ "add" Numeric Binary::Add;
    __sub__ __rsub__ "subtract" Numeric Binary::Sub;
    __mul__ __rmul__ "multiply" Numeric Binary::Mul;
    __truediv__ __rtruediv__ "divide" Inexact Binary::Div;
    __and__ __rand__ "bitwise_and" Numeric Binary::And;
    __or__ __ror__ "bitwise_or" Numeric Binary::Or;
    __xor__ __rxor__ "bitwise_xor" Numeric Binary::Xor;
    __lshift__ __rlshift__ "left_shift" Numeric Binary::ShiftLeft;
}

/// The concrete array that `array` is or stands for, or the error that JAX
/// raises for `what` on a tracer.
fn require_concrete<'py>(slf: &Bound<'py, Array>, class: &str, asked: &str) -> PyResult<Bound<'py, Array>> {
    match trace::asked(slf)? {
        Some(array) => Ok(array),
        None => Err(conversion_error(slf, class, asked)?),
    }
}

/// The concrete array that `array` is, or stands for in a rule of the user's, where JAX has arrays;
/// else the error that it raises on every tracer, concrete or not.
fn require_settled<'py>(slf: &Bound<'py, Array>, class: &str, asked: &str) -> PyResult<Bound<'py, Array>> {
    match trace::settled(slf)? {
        Some(array) => Ok(array),
        None => Err(conversion_error(slf, class, asked)?),
    }
}

/// A tracer error that tells where the value came from. `asked` is what needs the value, as the user writes it;
/// nothing where the class says it.
pub fn conversion_error(array: &Bound<'_, Array>, class: &str, asked: &str) -> PyResult<PyErr> {
    let py = array.py();
    let origin = trace::describe(array)?;
    let location = crate::source::current(py).line().map(|line| line.to_string());
    let constructor = py.import("ferrax._src.base.errors")?.getattr(class)?;
    let keywords = PyDict::new(py);
    keywords.set_item("origin", origin)?;
    keywords.set_item("location", location)?;
    if !asked.is_empty() {
        keywords.set_item("operation", asked)?;
    }
    Ok(PyErr::from_value(constructor.call((array,), Some(&keywords))?))
}

/// Fails unless the array, which may be a tracer, has no axes.
fn require_scalar(array: &Bound<'_, Array>, wanted: &str) -> PyResult<()> {
    match array.get().rank() {
        0 => Ok(()),
        rank => Err(PyTypeError::new_err(format!(
            "{wanted} of an array of rank {rank}: only arrays of rank 0 become Python numbers. Index one \
             element, or use x.item() for arrays of size 1."
        ))),
    }
}

fn only_element(array: &Bound<'_, Array>, wanted: &str) -> PyResult<Tensor> {
    let Data::Concrete(concrete) = &array.get().data else {
        return Err(PyTypeError::new_err("a tracer has no elements"));
    };
    if concrete.dtype.is_key() {
        return Err(PyTypeError::new_err(format!("a PRNG key cannot be converted to {wanted}")));
    }
    concrete.tensor()
}

/// A concrete array of one element as a Python number.
fn python_number(array: &Bound<'_, Array>, wanted: &str) -> PyResult<Py<PyAny>> {
    let py = array.py();
    match only_element(array, wanted)?.to_scalar() {
        Some(scalar) => params::scalar_to_python(py, scalar),
        None => {
            Err(PyTypeError::new_err(format!("an array without elements cannot be converted to {wanted}")))
        }
    }
}

#[pymethods]
impl Array {
    fn __rshift__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let op = if slf.get().dtype().is_unsigned() {
            Binary::ShiftRightLogical
        } else {
            Binary::ShiftRightArithmetic
        };
        apply(slf, other, "right_shift", op, Promotion::Numeric, false)
    }

    fn __rrshift__(slf: &Bound<'_, Self>, object: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let unsigned = other(object)?.is_some_and(|operand| operand.dtype().is_unsigned());
        let op = if unsigned { Binary::ShiftRightLogical } else { Binary::ShiftRightArithmetic };
        apply(slf, object, "right_shift", op, Promotion::Numeric, true)
    }

    fn __neg__(slf: &Bound<'_, Self>) -> PyResult<Py<Array>> {
        bind1(slf.py(), Unary::Neg, &[Operand::Array(slf.clone())])
    }

    fn __pos__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __abs__(slf: &Bound<'_, Self>) -> PyResult<Py<Array>> {
        functions::of_one(slf.py(), Unary::Abs, slf.as_any(), "abs", Promotion::Accepted)
    }

    fn __invert__(slf: &Bound<'_, Self>) -> PyResult<Py<Array>> {
        bind1(slf.py(), Unary::Not, &[Operand::Array(slf.clone())])
    }

    fn __richcmp__(slf: &Bound<'_, Self>, object: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let Some(other) = other(object)? else {
            // Python would answer `x == [1, 2]` with False, which nobody means.
            if is_container(object) {
                return Err(PyTypeError::new_err(format!(
                    "an array does not compare with a {}; convert it first, for instance with numpy.asarray(...)",
                    object.get_type().qualname()?
                )));
            }
            return Ok(py.NotImplemented());
        };
        let this = Operand::Array(slf.clone());
        let (name, compare) = match op {
            CompareOp::Eq => ("equal", Compare::Eq),
            CompareOp::Ne => ("not_equal", Compare::Ne),
            CompareOp::Lt => ("less", Compare::Lt),
            CompareOp::Le => ("less_equal", Compare::Le),
            CompareOp::Gt => ("greater", Compare::Gt),
            CompareOp::Ge => ("greater_equal", Compare::Ge),
        };
        let result = match compare {
            Compare::Eq | Compare::Ne => binary(py, name, compare, this, other, Promotion::Numeric),
            _ => numpy_mixed::order(py, name, compare, this, other),
        };
        result.map(Py::into_any)
    }

    /// Arrays are mutable nowhere, yet equal arrays are arrays, not truth values.
    fn __hash__(slf: &Bound<'_, Self>) -> PyResult<isize> {
        let class = slf.get_type().qualname()?;
        let advice = if slf.get().tracer().is_some() {
            " It is traced here; a value that has to be hashed must be static (static_argnums)."
        } else {
            " Hash a tuple of its values (tuple(x.tolist())) or its bytes (x.tobytes())."
        };
        Err(PyTypeError::new_err(format!("unhashable type: '{class}'.{advice}")))
    }

    fn __bool__(slf: &Bound<'_, Self>) -> PyResult<bool> {
        // The size is known of tracers too.
        let count = slf.get().sizes().map_or(1, |sizes| element_count(&sizes));
        if count != 1 {
            return Err(PyValueError::new_err(if count == 0 {
                "The truth value of an empty array is ambiguous; use x.size > 0 to ask whether it has elements."
            } else {
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()."
            }));
        }
        let array = require_concrete(slf, "TracerBoolConversionError", "")?;
        let Data::Concrete(concrete) = &array.get().data else { return Ok(false) };
        if concrete.dtype.is_key() {
            return Err(PyTypeError::new_err("a PRNG key cannot be converted to bool"));
        }
        let truth = concrete.tensor()?.to_scalar();
        Ok(truth.is_some_and(|scalar| !scalar.is_zero()))
    }

    fn __float__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        require_scalar(slf, "float")?;
        let array = require_settled(slf, "ConcretizationTypeError", "float()")?;
        let number = python_number(&array, "float")?;
        slf.py().get_type::<pyo3::types::PyFloat>().call1((number,))
    }

    fn __complex__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        require_scalar(slf, "complex")?;
        let array = require_settled(slf, "ConcretizationTypeError", "complex()")?;
        let number = python_number(&array, "complex")?;
        py.get_type::<pyo3::types::PyComplex>().call1((number,))
    }

    fn __int__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        require_scalar(slf, "int")?;
        let array = require_concrete(slf, "ConcretizationTypeError", "int()")?;
        let py = slf.py();
        py.get_type::<pyo3::types::PyInt>().call1((python_number(&array, "int")?,))
    }

    fn __index__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        require_scalar(slf, "index")?;
        if !slf.get().dtype().is_integer() {
            return Err(PyTypeError::new_err(format!(
                "Only integer scalar arrays can be converted to a scalar index, got dtype {}",
                slf.get().dtype()
            )));
        }
        let array = require_concrete(slf, "TracerIntegerConversionError", "")?;
        Ok(python_number(&array, "index")?.into_bound(slf.py()))
    }

    /// The only element as a Python number; with arguments, the element at that index.
    #[pyo3(signature = (*args))]
    fn item<'py>(slf: &Bound<'py, Self>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let array = require_concrete(slf, "ConcretizationTypeError", "x.item()")?;
        as_numpy(&array)?.call_method1("item", args)
    }

    /// The elements as nested lists of Python numbers.
    fn tolist<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let array = require_concrete(slf, "ConcretizationTypeError", "x.tolist()")?;
        as_numpy(&array)?.call_method0("tolist")
    }

    /// The elements' bytes in row-major order.
    #[pyo3(signature = (order = "C"))]
    fn tobytes<'py>(slf: &Bound<'py, Self>, order: &str) -> PyResult<Bound<'py, PyAny>> {
        let array = require_concrete(slf, "ConcretizationTypeError", "x.tobytes()")?;
        as_numpy(&array)?.call_method1("tobytes", (order,))
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let view = as_numpy(&require_settled(slf, "TracerArrayConversionError", "")?)?;
        let Some(dtype) = dtype else {
            return if copy == Some(true) { view.call_method0("copy") } else { Ok(view) };
        };
        let keywords = PyDict::new(slf.py());
        keywords.set_item("copy", copy == Some(true))?;
        let converted = view.call_method("astype", (dtype,), Some(&keywords))?;
        if copy == Some(false) && !converted.is(&view) {
            return Err(PyValueError::new_err(format!(
                "Unable to avoid copy while creating an array as requested: the array is of {}, got dtype={dtype} \
                 with copy=False. Use np.asarray, which copies where needed.",
                slf.get().dtype()
            )));
        }
        Ok(converted)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: &Bound<'_, Self>, _memo: &Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        copy_of(slf)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        if slf.get().tracer().is_some() {
            return Err(conversion_error(slf, "ConcretizationTypeError", "pickle")?);
        }
        if slf.get().dtype().is_key() {
            let random = py.import("ferrax.random")?;
            let words = random.call_method1("key_data", (slf,))?.call_method0("__array__")?;
            let generator = PyDict::new(py);
            generator.set_item("impl", random.call_method1("key_impl", (slf,))?)?;
            let wrap = py
                .import("functools")?
                .getattr("partial")?
                .call((random.getattr("wrap_key_data")?,), Some(&generator))?;
            return (wrap, (words.call_method0("copy")?,)).into_pyobject(py);
        }
        let restore = py.import("ferrax._core")?.getattr("array_from_numpy")?;
        (restore, (as_numpy(slf)?.call_method0("copy")?, slf.get().weak())).into_pyobject(py)
    }

    /// Waits for the elements, which are there already. Tracers have none: AttributeError.
    fn block_until_ready<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        not_of_tracers(&slf, "block_until_ready")?;
        Ok(slf)
    }

    /// Starts a copy to the host, where CPU arrays are. Tracers cannot: AttributeError.
    fn copy_to_host_async(slf: &Bound<'_, Self>) -> PyResult<()> {
        not_of_tracers(slf, "copy_to_host_async")
    }

    /// Frees the elements; every later use raises. Tracers cannot: ConcretizationTypeError.
    fn delete(slf: &Bound<'_, Self>) -> PyResult<()> {
        match &slf.get().data {
            Data::Concrete(concrete) => {
                concrete.delete();
                Ok(())
            }
            Data::Tracer(_) => Err(conversion_error(slf, "ConcretizationTypeError", "x.delete()")?),
        }
    }

    /// Whether the elements were freed or donated. Unknown for tracers: ConcretizationTypeError.
    fn is_deleted(slf: &Bound<'_, Self>) -> PyResult<bool> {
        match &slf.get().data {
            Data::Concrete(concrete) => Ok(concrete.is_deleted()),
            Data::Tracer(_) => Err(conversion_error(slf, "ConcretizationTypeError", "x.is_deleted()")?),
        }
    }

    /// The address of the first element.
    fn unsafe_buffer_pointer(slf: &Bound<'_, Self>) -> PyResult<usize> {
        let array = require_concrete(slf, "ConcretizationTypeError", "x.unsafe_buffer_pointer()")?;
        match &array.get().data {
            Data::Concrete(concrete) => match concrete.buffer()? {
                Buffer::Host(storage) => Ok(storage.bytes().as_ptr() as usize),
                Buffer::Device(_) => Err(PyRuntimeError::new_err(
                    "unsafe_buffer_pointer: the array is not in memory of the host; put it there with \
                     ferrax.device_put(x, ferrax.devices(\"cpu\")[0])",
                )),
            },
            Data::Tracer(_) => Ok(0),
        }
    }
}

/// Fails for tracers, which are values in no memory.
fn not_of_tracers(array: &Bound<'_, Array>, method: &str) -> PyResult<()> {
    if array.get().tracer().is_none() {
        return Ok(());
    }
    Err(PyAttributeError::new_err(format!(
        "The '{method}' method is not available on the traced array {}.{}",
        array.get().array_type(),
        trace::describe(array)?.map(|origin| format!(" It is {origin}.")).unwrap_or_default()
    )))
}

/// A new array with the same elements in memory of its own.
fn copy_of(slf: &Bound<'_, Array>) -> PyResult<Py<Array>> {
    let py = slf.py();
    match &slf.get().data {
        Data::Tracer(_) => bind1(py, ferrax_ir::ops::Copy {}, &[Operand::Array(slf.clone())]),
        Data::Concrete(concrete) if concrete.device() != DeviceId::HOST => {
            bind1(py, ferrax_ir::ops::Copy {}, &[Operand::Array(slf.clone())])
        }
        Data::Concrete(concrete) => {
            let tensor = concrete.tensor()?;
            let copy = eager::release_gil(py, tensor.bytes().len(), || {
                Tensor::from_bytes(tensor.dtype(), tensor.sizes(), tensor.bytes())
            });
            let copy = copy.py(py)?;
            Array::new_concrete(py, copy, concrete.weak)
        }
    }
}

/// Keeps a tensor alive for the NumPy arrays that look at its memory.
#[pyclass(frozen)]
struct Memory {
    tensor: Tensor,
    typestr: String,
}

#[pymethods]
impl Memory {
    /// <https://numpy.org/doc/stable/reference/arrays.interface.html>; the memory is read-only.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", PyTuple::new(py, self.tensor.sizes())?)?;
        interface.set_item("typestr", &self.typestr)?;
        interface.set_item("data", (self.tensor.bytes().as_ptr() as usize, true))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }
}

/// A read-only NumPy view of a concrete array.
pub fn as_numpy<'py>(array: &Bound<'py, Array>) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let Data::Concrete(concrete) = &array.get().data else {
        return Err(conversion_error(array, "TracerArrayConversionError", "")?);
    };
    let dtype = concrete.dtype;
    if dtype.is_key() {
        return Err(PyTypeError::new_err(
            "NumPy has no dtype for random keys. Use ferrax.random.key_data(keys) for their words.",
        ));
    }
    let numpy = py.import("numpy")?;
    if concrete.sizes.contains(&0) || dtype.size() == 0 {
        let empty = numpy
            .call_method1("empty", (PyTuple::new(py, &concrete.sizes)?, dtypes::to_numpy(py, dtype)?))?;
        empty.call_method1("setflags", (false,))?;
        return Ok(empty);
    }
    let size = dtype.size();
    let typestr = match dtype.kind() {
        ferrax_ir::Kind::Bool => "|b1".to_owned(),
        ferrax_ir::Kind::Signed => format!("<i{size}"),
        ferrax_ir::Kind::Complex => format!("<c{size}"),
        ferrax_ir::Kind::Float if dtype == DType::F16 || size > 2 => format!("<f{size}"),
        _ => format!("<u{size}"),
    };
    let memory = Py::new(py, Memory { tensor: concrete.tensor()?, typestr })?;
    let view = numpy.call_method1("asarray", (memory,))?;
    let wanted = dtypes::to_numpy(py, dtype)?;
    let standard = matches!(dtype.kind(), ferrax_ir::Kind::Complex | ferrax_ir::Kind::Bool)
        || (dtype.is_integer() && dtype.bits() >= 8)
        || (dtype.is_float() && dtype != DType::BF16 && dtype.bits() >= 16);
    if standard { Ok(view) } else { view.call_method1("view", (wanted,)) }
}

/// A concrete array from a NumPy array; 64-bit types are narrowed unless enabled.
#[pyfunction]
#[pyo3(signature = (value, weak = false))]
pub fn array_from_numpy(py: Python<'_>, value: &Bound<'_, PyAny>, weak: bool) -> PyResult<Py<Array>> {
    match convert::numpy_value(value)? {
        Some(tensor) => {
            let array = Array::new_concrete(py, tensor, weak)?;
            devices::at_default(array.into_bound(py)).map(Bound::unbind)
        }
        None => {
            Err(PyTypeError::new_err(format!("expected a NumPy array, got {}", value.get_type().qualname()?)))
        }
    }
}
