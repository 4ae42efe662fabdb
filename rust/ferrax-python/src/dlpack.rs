//! Exchange of arrays with other libraries without a copy, by DLPack
//! (<https://dmlc.github.io/dlpack/latest/>, version 1.1 and the unversioned layout before it).
//!
//! An exported tensor holds its storage until the consumer calls the deleter. An
//! imported one holds the producer's memory until the last array that looks at
//! it is gone; it is never written to.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use ferrax_compile::DeviceId;
use ferrax_ir::tensor::{are_normal, normalise};
use ferrax_ir::{DType, Sizes, Storage, Tensor};
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::{Array, Data};
use crate::eager;
use crate::errors::IntoPyResult;
use crate::once::intern;
use crate::operators::conversion_error;
use crate::promote::context;

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    id: i32,
}

const CPU: Device = Device { kind: 1, id: 0 };

#[repr(C)]
#[derive(Clone, Copy)]
struct Element {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: Device,
    rank: i32,
    dtype: Element,
    shape: *mut i64,
    /// In elements; null for row-major order.
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Legacy {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

/// What a capsule holds: its name before and after somebody took the tensor.
trait Managed: Sized + 'static {
    const NAME: &'static CStr;
    const USED: &'static CStr;

    fn new(tensor: DlTensor, copied: bool) -> Self;
    fn tensor(&self) -> &DlTensor;
    fn check_version(&self) -> PyResult<()>;

    /// Tells the producer that its tensor is needed no more.
    ///
    /// # Safety
    /// `managed` is valid and nobody uses it or its memory afterwards.
    unsafe fn release(managed: *mut Self);
}

macro_rules! managed {
    ($layout:ident, $name:literal, $used:literal, $major:expr, |$tensor:ident, $copied:ident| $new:expr) => {
        impl Managed for $layout {
            const NAME: &'static CStr = $name;
            const USED: &'static CStr = $used;

            fn new($tensor: DlTensor, $copied: bool) -> Self {
                $new
            }

            fn tensor(&self) -> &DlTensor {
                &self.tensor
            }

            fn check_version(&self) -> PyResult<()> {
                let major: u32 = $major(self);
                if major <= 1 {
                    return Ok(());
                }
                Err(PyBufferError::new_err(format!(
                    "from_dlpack: got a tensor of DLPack version {major}, expected at most version 1"
                )))
            }

            unsafe fn release(managed: *mut Self) {
                // SAFETY: valid by this function's contract, as the deleter's contract asks.
                unsafe {
                    if let Some(deleter) = (*managed).deleter {
                        deleter(managed);
                    }
                }
            }
        }
    };
}

managed!(Legacy, c"dltensor", c"used_dltensor", |_: &Legacy| 0, |tensor, _copied| Legacy {
    tensor,
    context: std::ptr::null_mut(),
    deleter: Some(drop_exported::<Legacy>),
});

managed!(
    Versioned,
    c"dltensor_versioned",
    c"used_dltensor_versioned",
    |this: &Versioned| this.major,
    |tensor, copied| Versioned {
        major: 1,
        minor: 1,
        context: std::ptr::null_mut(),
        deleter: Some(drop_exported::<Versioned>),
        flags: if copied { IS_COPIED } else { READ_ONLY },
        tensor,
    }
);

/// A dtype by DLPack's code and bits; `None` for types below a byte and keys.
fn element(dtype: DType) -> Option<Element> {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::C64 | DType::C128 => 5,
        DType::Bool => 6,
        DType::F8E3M4 => 7,
        DType::F8E4M3 => 8,
        DType::F8E4M3B11FNUZ => 9,
        DType::F8E4M3FN => 10,
        DType::F8E4M3FNUZ => 11,
        DType::F8E5M2 => 12,
        DType::F8E5M2FNUZ => 13,
        DType::F8E8M0FNU => 14,
        _ => return None,
    };
    Some(Element { code, bits: dtype.bits() as u8, lanes: 1 })
}

fn dtype_of(wanted: Element) -> PyResult<DType> {
    let same = |dtype: DType| element(dtype).is_some_and(|e| (e.code, e.bits) == (wanted.code, wanted.bits));
    DType::ALL.iter().copied().find(|&dtype| wanted.lanes == 1 && same(dtype)).ok_or_else(|| {
        PyBufferError::new_err(format!(
            "from_dlpack: no dtype for DLPack's type code {} with {} bits and {} lanes",
            wanted.code, wanted.bits, wanted.lanes
        ))
    })
}

/// Whether arrays of a dtype can be exchanged.
#[pyfunction]
pub fn dlpack_supports(dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(element(crate::dtypes::from_python(dtype)?).is_some())
}

/// A tensor of ours in a consumer's hands. `managed` points into the rest, and
/// stays first: consumers know it by its address.
#[repr(C)]
struct Exported<M> {
    managed: M,
    _shape: Vec<i64>,
    _strides: Vec<i64>,
    _tensor: Tensor,
}

/// The deleter of an exported tensor.
///
/// # Safety
/// `managed` was made by [`export`] and is not used afterwards.
unsafe extern "C" fn drop_exported<M: Managed>(managed: *mut M) {
    // SAFETY: `export` made the pointer from a boxed `Exported` that begins with it, and the consumer
    // calls this once.
    drop(unsafe { Box::from_raw(managed.cast::<Exported<M>>()) });
}

/// The destructor of a capsule: releases the tensor in it unless a consumer took it.
///
/// # Safety
/// `capsule` is a capsule that [`export`] made, in the hands of its last owner.
unsafe extern "C" fn drop_capsule<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with a live capsule of `export`; it has its first name until a
    // consumer takes the tensor, which then is the consumer's to release.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) == 1 {
            M::release(ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()).cast());
        }
    }
}

/// A capsule of the tensor with its axes in this order.
fn export<'py, M: Managed>(
    py: Python<'py>,
    tensor: Tensor,
    copied: bool,
    order: Option<&[usize]>,
) -> PyResult<Bound<'py, PyAny>> {
    let dtype = element(tensor.dtype()).ok_or_else(|| {
        PyBufferError::new_err(format!(
            "__dlpack__: DLPack has no type for {}; convert first, for instance with x.astype(dtype)",
            tensor.dtype()
        ))
    })?;
    let mut shape: Vec<i64> = tensor.sizes().iter().map(|&size| size as i64).collect();
    let mut strides = vec![1i64; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    if let Some(order) = order {
        if order.iter().copied().collect::<BTreeSet<_>>() != (0..shape.len()).collect() {
            return Err(PyValueError::new_err(format!(
                "{order:?} does not name each of {} axes once",
                shape.len()
            )));
        }
        shape = order.iter().map(|&axis| shape[axis]).collect();
        strides = order.iter().map(|&axis| strides[axis]).collect();
    }
    let view = DlTensor {
        data: tensor.bytes().as_ptr().cast_mut().cast(),
        device: CPU,
        rank: shape.len() as i32,
        dtype,
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let exported =
        Exported { managed: M::new(view, copied), _shape: shape, _strides: strides, _tensor: tensor };
    let pointer = Box::into_raw(Box::new(exported));
    // SAFETY: the pointer is not null, the name is static, and the destructor is made for it. What
    // comes back is a new reference, or null with an exception set; then the box is still ours.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer.cast(), M::NAME.as_ptr(), Some(drop_capsule::<M>));
        Bound::from_owned_ptr_or_err(py, capsule).inspect_err(|_| drop(Box::from_raw(pointer)))
    }
}

/// The device of CPU arrays, in DLPack's numbers.
fn is_cpu(device: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (kind, id): (i32, i32) = device.extract()?;
    Ok((kind, id) == (CPU.kind, CPU.id))
}

/// The capsule of `__dlpack__`, its axes in this order.
fn capsule_of<'py>(
    slf: &Bound<'py, Array>,
    order: Option<&[usize]>,
    stream: Option<&Bound<'py, PyAny>>,
    max_version: Option<(u32, u32)>,
    dl_device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let Data::Concrete(concrete) = &slf.get().data else {
        return Err(conversion_error(slf, "ConcretizationTypeError", "DLPack")?);
    };
    if let Some(stream) = stream {
        return Err(PyValueError::new_err(format!(
            "__dlpack__: arrays on the CPU have no stream; stream must be None, got {stream}"
        )));
    }
    if let Some(device) = dl_device
        && !is_cpu(device)?
    {
        return Err(PyBufferError::new_err(format!(
            "__dlpack__: the array is on device (1, 0), the CPU, and cannot be exported to device {device}"
        )));
    }
    let copied = copy == Some(true);
    if concrete.device() != DeviceId::HOST {
        return Err(PyBufferError::new_err(
            "__dlpack__: the array is not in memory of the host; put it there with \
             ferrax.device_put(x, ferrax.devices(\"cpu\")[0])",
        ));
    }
    if slf.get().place.get() != 0 && slf.call_method0("devices")?.len()? > 1 {
        return Err(PyBufferError::new_err(
            "__dlpack__: the array is on several devices; export one of its parts, x.addressable_shards[i].data",
        ));
    }
    let mut tensor = concrete.tensor()?;
    if copied {
        let copy = eager::release_gil(py, tensor.bytes().len(), || {
            Tensor::from_bytes(tensor.dtype(), tensor.sizes(), tensor.bytes())
        });
        tensor = copy.py(py)?;
    }
    if max_version.is_some_and(|(major, _)| major >= 1) {
        export::<Versioned>(py, tensor, copied, order)
    } else {
        export::<Legacy>(py, tensor, copied, order)
    }
}

/// As `array.__dlpack__`, of the array with its axes in this order: nothing is moved for it.
///
/// Errors: as there; ValueError unless the order names each axis once.
#[pyfunction]
#[pyo3(signature = (array, order, *, stream = None, max_version = None, dl_device = None, copy = None))]
pub fn dlpack_in_order<'py>(
    array: &Bound<'py, Array>,
    order: Vec<usize>,
    stream: Option<&Bound<'py, PyAny>>,
    max_version: Option<(u32, u32)>,
    dl_device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    capsule_of(array, Some(&order), stream, max_version, dl_device, copy)
}

#[pymethods]
impl Array {
    /// A DLPack capsule that shares the array's memory, read-only.
    ///
    /// stream: None, for CPU arrays have none; max_version: the newest DLPack version that the
    /// consumer knows (from 1.0 on it is told that the memory is read-only); dl_device: the device
    /// wanted, (1, 0); copy: whether the consumer gets memory of its own, which it may write to.
    ///
    /// Errors: BufferError for dtypes that DLPack does not have and for other devices.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        capsule_of(slf, None, stream, max_version, dl_device, copy)
    }

    /// The array's device in DLPack's numbers: (1, 0), the CPU.
    fn __dlpack_device__(slf: &Bound<'_, Self>) -> PyResult<(i32, i32)> {
        match &slf.get().data {
            Data::Concrete(_) => Ok((CPU.kind, CPU.id)),
            Data::Tracer(_) => Err(conversion_error(slf, "ConcretizationTypeError", "DLPack")?),
        }
    }
}

/// Memory of another library, which is released with the last tensor that holds it.
struct Foreign<M: Managed> {
    managed: *mut M,
    start: *const u8,
    len: usize,
}

// SAFETY: the memory is only read, and a deleter may be called from any thread.
unsafe impl<M: Managed> Send for Foreign<M> {}
// SAFETY: no thread writes to the memory, so that any number of them may read it.
unsafe impl<M: Managed> Sync for Foreign<M> {}

impl<M: Managed> std::fmt::Debug for Foreign<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Foreign({} bytes)", self.len)
    }
}

impl<M: Managed> Storage for Foreign<M> {
    fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the producer keeps `len` bytes there until the deleter is called.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        None
    }
}

impl<M: Managed> Drop for Foreign<M> {
    fn drop(&mut self) {
        // SAFETY: `take` made this the tensor's only owner, and it is going.
        unsafe { M::release(self.managed) };
    }
}

/// Storage of tensors is aligned at least so.
const ALIGNMENT: usize = 16;

/// The tensor in a capsule, which counts as used afterwards.
fn take<M: Managed>(capsule: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<Tensor> {
    let py = capsule.py();
    // SAFETY: a capsule of this name holds a pointer to this layout, which is valid until released.
    let managed: *mut M = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), M::NAME.as_ptr()).cast() };
    // SAFETY: the pointer was returned for a capsule of this name, and is null where it is none: then
    // Python has set an error.
    let Some(content) = (unsafe { managed.as_ref() }) else { return Err(PyErr::fetch(py)) };
    content.check_version()?;
    let view = content.tensor();
    if view.device.kind != CPU.kind {
        return Err(elsewhere(view.device.kind, view.device.id));
    }
    let dtype = dtype_of(view.dtype)?;
    let rank = usize::try_from(view.rank).unwrap_or(0);
    let numbers = |pointer: *const i64| {
        if rank == 0 || pointer.is_null() {
            &[][..]
        } else {
            // SAFETY: shape and strides have `rank` entries where they are not null.
            unsafe { std::slice::from_raw_parts(pointer, rank) }
        }
    };
    let sizes: Sizes = numbers(view.shape).iter().map(|&size| size.max(0) as usize).collect();
    let len = ferrax_ir::tensor::byte_size(&sizes, dtype).py(py)?;
    let strides = numbers(view.strides);
    let mut expected = 1i64;
    let in_order = strides.is_empty()
        || len == 0
        || sizes.iter().zip(strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected *= size as i64;
            fits
        });
    let start = view.data.cast::<u8>().wrapping_add(view.byte_offset as usize).cast_const();
    let aligned = start.addr().is_multiple_of(ALIGNMENT);
    let lies_well = in_order && (aligned || len == 0) && copy != Some(true);
    // SAFETY: a tensor in row-major order spans `len` bytes from its start.
    let normal =
        !lies_well || len == 0 || are_normal(dtype, unsafe { std::slice::from_raw_parts(start, len) });
    let shared = lies_well && normal;
    if !shared && copy == Some(false) {
        return Err(PyValueError::new_err(format!(
            "from_dlpack: got copy=False for a tensor whose elements are {}; pass copy=None to copy them",
            if !normal {
                "bools of other bytes than 0 and 1".to_string()
            } else if in_order {
                format!("not aligned to {ALIGNMENT} bytes")
            } else {
                format!("not in row-major order (shape {:?}, strides {strides:?})", sizes.as_slice())
            }
        )));
    }
    let copied = if shared {
        None
    } else {
        let mut tensor = Tensor::zeros(dtype, sizes.clone()).py(py)?;
        let steps: Sizes =
            strides.iter().map(|&stride| (stride as usize).wrapping_mul(dtype.size())).collect();
        let target = tensor.bytes_mut().py(py)?;
        if in_order && len > 0 {
            // SAFETY: a tensor in row-major order spans `len` bytes from its start.
            target.copy_from_slice(unsafe { std::slice::from_raw_parts(start, len) });
        } else if len > 0 {
            gather(target, start, &sizes, &steps, dtype.size());
        }
        normalise(dtype, target);
        Some(tensor)
    };
    // SAFETY: the name is static; from here on the tensor is ours to release.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), M::USED.as_ptr()) } != 0 {
        return Err(PyErr::fetch(py));
    }
    let foreign = Foreign { managed, start, len };
    match copied {
        Some(tensor) => Ok(tensor),
        None => Tensor::from_storage(dtype, sizes, Arc::new(foreign)).py(py),
    }
}

/// Copies elements that lie `steps` bytes apart, in row-major order.
fn gather(target: &mut [u8], start: *const u8, sizes: &[usize], steps: &[usize], item: usize) {
    let mut index: Sizes = std::iter::repeat_n(0, sizes.len()).collect();
    for chunk in target.chunks_exact_mut(item) {
        // Steps may be negative: they wrap.
        let offset =
            index.iter().zip(steps).fold(0usize, |sum, (&i, &step)| sum.wrapping_add(i.wrapping_mul(step)));
        // SAFETY: the index is within the sizes, so its item is within the producer's memory.
        chunk.copy_from_slice(unsafe { std::slice::from_raw_parts(start.wrapping_add(offset), item) });
        for axis in (0..sizes.len()).rev() {
            index[axis] += 1;
            if index[axis] < sizes[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

fn elsewhere(kind: i32, id: i32) -> PyErr {
    PyRuntimeError::new_err(format!(
        "from_dlpack: got a tensor on device ({kind}, {id}) in DLPack's numbers, expected the CPU, (1, 0); copy it \
         to the host first"
    ))
}

/// The capsule of a producer, which is asked for the newest version that it knows.
fn request<'py>(producer: &Bound<'py, PyAny>, copy: Option<bool>) -> PyResult<Bound<'py, PyAny>> {
    let py = producer.py();
    let method = producer.getattr(intern!(py, "__dlpack__"))?;
    let keywords = PyDict::new(py);
    keywords.set_item("max_version", (1, 1))?;
    if copy == Some(true) {
        keywords.set_item("copy", true)?;
    }
    match method.call((), Some(&keywords)) {
        // Producers from before version 1 know neither argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => method.call0(),
        result => result,
    }
}

/// A concrete array of a producer's elements; see `ferrax.dlpack.from_dlpack`.
#[pyfunction]
#[pyo3(signature = (producer, copy = None))]
pub fn array_from_dlpack(
    py: Python<'_>,
    producer: &Bound<'_, PyAny>,
    copy: Option<bool>,
) -> PyResult<Py<Array>> {
    let (true, Ok(device)) =
        (producer.hasattr("__dlpack__")?, producer.getattr(intern!(py, "__dlpack_device__")))
    else {
        return Err(PyTypeError::new_err(format!(
            "from_dlpack takes an object with the methods __dlpack__ and __dlpack_device__, got {}",
            producer.get_type().qualname()?
        )));
    };
    let (kind, id): (i32, i32) = device.call0()?.cast_into::<PyTuple>()?.extract()?;
    if kind != CPU.kind {
        return Err(elsewhere(kind, id));
    }
    let capsule = request(producer, copy)?;
    // SAFETY: any object may be asked whether it is a capsule of a name.
    let versioned = unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), Versioned::NAME.as_ptr()) } == 1;
    let tensor = if versioned { take::<Versioned>(&capsule, copy)? } else { take::<Legacy>(&capsule, copy)? };
    let canonical = context().of_foreign(tensor.dtype());
    if canonical == tensor.dtype() {
        return Array::new_concrete(py, tensor, false);
    }
    if copy == Some(false) {
        return Err(PyValueError::new_err(format!(
            "from_dlpack: got copy=False for a tensor of {}, which becomes {canonical} without 64-bit types; enable \
             them (jax_enable_x64) or pass copy=None",
            tensor.dtype()
        )));
    }
    let narrow = || ferrax_ir::convert::convert(&tensor, canonical);
    let narrowed = eager::release_gil(py, tensor.bytes().len(), narrow).py(py)?;
    Array::new_concrete(py, narrowed, false)
}
