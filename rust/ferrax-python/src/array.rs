//! `Array`: what users hold. A concrete array has its elements; a tracer stands
//! for a value of a program under construction.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrax_compile::device::{Buffer, DeviceId};
use ferrax_ir::tensor::byte_size;
use ferrax_ir::{ArrayType, DType, Dim, Literal, Shape, ShowShape, Sizes, Source, Storage, Tensor, Var};
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::IntoPyResult;
use crate::placement::Place;
use crate::{devices, dims, dtypes};

/// What an [`Array`] is made of.
pub enum Data {
    Concrete(Concrete),
    Tracer(TracerData),
}

pub struct Concrete {
    pub sizes: Sizes,
    pub dtype: DType,
    pub weak: bool,
    /// The elements. Gone once the array was deleted or donated.
    buffer: Mutex<Option<Buffer>>,
}

/// A variable of a frame.
pub struct TracerData {
    pub frame: u64,
    pub var: Var,
    pub ty: ArrayType,
    /// Where it was made, for messages.
    pub source: Source,
}

impl Concrete {
    #[inline]
    pub fn new(tensor: Tensor, weak: bool) -> Concrete {
        let (dtype, sizes, storage) = tensor.into_parts();
        Concrete::of_buffer(dtype, sizes, Buffer::Host(storage), weak)
    }

    pub fn of_buffer(dtype: DType, sizes: Sizes, buffer: Buffer, weak: bool) -> Concrete {
        Concrete { sizes, dtype, weak, buffer: Mutex::new(Some(buffer)) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Buffer>> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An array of this type in memory of the host.
    pub fn with(&self, storage: Arc<dyn Storage>) -> ferrax_ir::Result<Tensor> {
        Tensor::from_storage(self.dtype, Sizes::from_slice(&self.sizes), storage)
    }

    /// The elements in memory of the host. Those on another device are copied.
    #[inline]
    pub fn tensor(&self) -> PyResult<Tensor> {
        let buffer = self.lock().clone();
        match buffer {
            Some(Buffer::Host(storage)) => {
                self.with(storage).map_err(|error| PyRuntimeError::new_err(error.to_string()))
            }
            Some(Buffer::Device(memory)) => devices::tensor(self, &*memory),
            None => Err(self.deleted()),
        }
    }

    /// Where the elements are.
    pub fn buffer(&self) -> PyResult<Buffer> {
        self.lock().clone().ok_or_else(|| self.deleted())
    }

    /// The device that it is on; the host for one that was deleted.
    pub fn device(&self) -> DeviceId {
        self.lock().as_ref().map_or(DeviceId::HOST, Buffer::device)
    }

    #[cold]
    fn deleted(&self) -> PyErr {
        PyRuntimeError::new_err(format!(
            "Array has been deleted with shape={}[{}]. It was deleted or donated to a jitted function; keep a \
             copy (x.copy()) if it is needed afterwards.",
            self.dtype.name(),
            self.sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
        ))
    }

    /// Takes the elements away: the array counts as deleted afterwards.
    pub fn delete(&self) {
        let buffer = self.lock().take();
        drop(buffer);
    }

    pub fn is_deleted(&self) -> bool {
        self.lock().is_none()
    }

    pub fn array_type(&self) -> ArrayType {
        ArrayType::of_sizes(&self.sizes, self.dtype).with_weak(self.weak)
    }

    /// The value of a 0-d array, as programs write it.
    pub fn literal(&self) -> PyResult<Option<Literal>> {
        if !self.sizes.is_empty() || self.dtype.is_key() {
            return Ok(None);
        }
        Ok(self.tensor()?.to_scalar().map(|value| Literal { value, weak: self.weak }))
    }
}

/// A multi-dimensional array with elements of one type.
///
/// Made by `ferrax.numpy.array` and the like. Inside `jit`, `grad`, `vmap` and
/// other transformations the values are tracers, which are arrays as well:
/// `isinstance(x, ferrax.Array)` holds for both. Arrays never change; `x.at`
/// makes changed copies.
///
/// Example:
///     >>> x = jnp.array([[1, 2], [3, 4]])
///     >>> x.shape, x.dtype, x.sum()
///     ((2, 2), dtype('int32'), Array(10, dtype=int32))
///     >>> x.at[0, 0].set(9)
///     Array([[9, 2],
///            [3, 4]], dtype=int32)
#[pyclass(subclass, frozen, weakref, sequence, module = "ferrax", name = "Array")]
pub struct Array {
    pub data: Data,
    /// Where it was put.
    pub place: Place,
}

/// An array that has its elements.
#[pyclass(extends = Array, frozen, weakref, module = "ferrax", name = "ArrayImpl")]
pub struct ArrayImpl;

/// A value of a function that is being traced: an array with a shape and a dtype,
/// but without elements.
///
/// Example:
///     >>> _ = ferrax.jit(lambda x: print(isinstance(x, ferrax.core.Tracer), x.shape))(jnp.ones(3))
///     True (3,)
#[pyclass(extends = Array, frozen, subclass, weakref, module = "ferrax", name = "Tracer")]
pub struct Tracer;

impl Array {
    pub fn dtype(&self) -> DType {
        match &self.data {
            Data::Concrete(concrete) => concrete.dtype,
            Data::Tracer(tracer) => tracer.ty.dtype,
        }
    }

    pub fn weak(&self) -> bool {
        match &self.data {
            Data::Concrete(concrete) => concrete.weak,
            Data::Tracer(tracer) => tracer.ty.weak,
        }
    }

    pub fn rank(&self) -> usize {
        match &self.data {
            Data::Concrete(concrete) => concrete.sizes.len(),
            Data::Tracer(tracer) => tracer.ty.rank(),
        }
    }

    pub fn array_type(&self) -> ArrayType {
        match &self.data {
            Data::Concrete(concrete) => concrete.array_type(),
            Data::Tracer(tracer) => tracer.ty.clone(),
        }
    }

    pub fn concrete(&self) -> Option<&Concrete> {
        match &self.data {
            Data::Concrete(concrete) => Some(concrete),
            Data::Tracer(_) => None,
        }
    }

    pub fn tracer(&self) -> Option<&TracerData> {
        match &self.data {
            Data::Concrete(_) => None,
            Data::Tracer(tracer) => Some(tracer),
        }
    }

    /// Bytes of all elements as far as they are known and can be.
    pub fn bytes(&self) -> usize {
        self.known_sizes().and_then(|sizes| byte_size(&sizes, self.dtype()).ok()).unwrap_or(0)
    }

    /// `unit` times the number of elements.
    fn counted<'py>(&self, py: Python<'py>, unit: usize) -> PyResult<Bound<'py, PyAny>> {
        let Some(sizes) = self.known_sizes() else {
            let count = Dim::product(&self.shape()).and_then(|count| count.mul(&Dim::Const(unit))).py(py)?;
            return Ok(dims::to_python(py, &count, dims::scope(py).as_ref())?.into_bound(py));
        };
        let count = if sizes.contains(&0) {
            Some(0)
        } else {
            sizes.iter().try_fold(unit as u128, |count, &size| count.checked_mul(size as u128))
        };
        match count {
            Some(count) => match u64::try_from(count) {
                Ok(count) => Ok(count.into_pyobject(py)?.into_any()),
                Err(_) => Ok(count.into_pyobject(py)?.into_any()),
            },
            None => Err(PyOverflowError::new_err(format!(
                "the number of elements of an array of shape {:?} exceeds 128 bits",
                sizes.as_slice()
            ))),
        }
    }

    /// The sizes, if none is symbolic.
    pub fn known_sizes(&self) -> Option<Sizes> {
        match &self.data {
            Data::Concrete(concrete) => Some(Sizes::from_slice(&concrete.sizes)),
            Data::Tracer(tracer) => tracer.ty.sizes(),
        }
    }

    /// The sizes; symbolic ones are an error.
    pub fn sizes(&self) -> PyResult<Sizes> {
        self.known_sizes().ok_or_else(|| {
            PyTypeError::new_err(format!(
                "an array of the symbolic shape {} has no known sizes here",
                ShowShape(&self.shape())
            ))
        })
    }

    /// The sizes, symbolic ones among them.
    pub fn shape(&self) -> Shape {
        match &self.data {
            Data::Concrete(concrete) => concrete.sizes.iter().map(|&size| Dim::Const(size)).collect(),
            Data::Tracer(tracer) => tracer.ty.shape.clone(),
        }
    }

    /// A new concrete array.
    pub fn new_concrete(py: Python<'_>, tensor: Tensor, weak: bool) -> PyResult<Py<Array>> {
        Array::of_concrete(py, Concrete::new(tensor, weak))
    }

    /// A new array, put nowhere.
    pub fn of_concrete(py: Python<'_>, concrete: Concrete) -> PyResult<Py<Array>> {
        let array = Array { data: Data::Concrete(concrete), place: Place::default() };
        let object = Py::new(py, PyClassInitializer::from(array).add_subclass(ArrayImpl))?;
        Ok(object.into_bound(py).into_super().unbind())
    }

    /// A new tracer.
    pub fn new_tracer(
        py: Python<'_>,
        frame: u64,
        var: Var,
        ty: ArrayType,
        source: Source,
    ) -> PyResult<Py<Array>> {
        let data = Data::Tracer(TracerData { frame, var, ty, source });
        let array = Array { data, place: Place::default() };
        let object = Py::new(py, PyClassInitializer::from(array).add_subclass(Tracer))?;
        Ok(object.into_bound(py).into_super().unbind())
    }
}

#[pymethods]
impl Array {
    /// The sizes of the dimensions.
    #[getter(shape)]
    fn py_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match self.known_sizes() {
            Some(sizes) => PyTuple::new(py, sizes),
            None => dims::shape_tuple(py, &self.shape(), dims::scope(py).as_ref()),
        }
    }

    /// The element type, a NumPy dtype.
    #[getter(dtype)]
    fn py_dtype(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        dtypes::to_numpy(py, self.dtype())
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.rank()
    }

    /// The number of elements; while tracing, of an array that need not fit into memory.
    #[getter]
    fn size<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.counted(py, 1)
    }

    /// Bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.dtype().size()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.counted(py, self.dtype().size())
    }

    /// Whether the dtype gives way in promotion, as a Python scalar's does.
    #[getter]
    fn weak_type(&self) -> bool {
        self.weak()
    }

    /// Along which axes of a mesh the value differs by type, as programs name them.
    #[getter]
    fn _varying<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.data {
            Data::Tracer(tracer) if !tracer.ty.varying.is_empty() => {
                PyTuple::new(py, tracer.ty.varying.names().iter().map(|name| &**name))
            }
            _ => Ok(PyTuple::empty(py)),
        }
    }

    /// The shape and dtype as text, such as `f32[2,3]`.
    fn _type_text(&self) -> String {
        self.array_type().to_string()
    }

    fn __len__(&self) -> PyResult<usize> {
        let shape = self.shape();
        let first = shape
            .first()
            .ok_or_else(|| PyTypeError::new_err("len() of unsized object: a 0-d array has no length"))?;
        first.as_const().ok_or_else(|| {
            PyTypeError::new_err(format!(
                "the symbolic dimension '{first}' has no value as an integer: use x.shape[0] in place of len(x)"
            ))
        })
    }
}
