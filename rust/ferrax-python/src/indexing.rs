//! `x[i]` and `x.at[i].set(v)` at once: concrete arrays, indices made of
//! integers, slices, None and Ellipsis.
//!
//! Everything else, and everything that is an error, goes to the Python layer
//! (`ferrax._src.numpy.indexing`, `.update`), whose results these are equal to:
//! negative integers count from the end once. Reads of what is then out of
//! bounds go there too; such updates are dropped.

use ferrax_cpu::kernels::copy::byte_strides;
use ferrax_cpu::strided::{self, Axis};
use ferrax_ir::ops::Binary;
use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Sizes, Tensor, internal_error};
use pyo3::prelude::*;
use pyo3::types::{PyEllipsis, PyInt, PyList, PySlice, PyTuple};
use smallvec::SmallVec;

use crate::array::{Array, Concrete};
use crate::checks;
use crate::convert::{self, Operand};
use crate::eager;
use crate::elementwise::{self, Promotion};
use crate::errors::IntoPyResult;
use crate::once::{Once, intern};
use crate::placement;
use crate::promote::result_type;
use crate::trace;
use crate::tracebacks::Filtered;

/// Bytes of results above which the compiled ops, which use all threads, are
/// better than one thread's copy.
const LARGE: usize = 4 << 20;

/// One part of an index expression.
enum Item {
    Int(i64),
    Slice { start: Option<i64>, stop: Option<i64>, step: i64 },
    NewAxis,
    Ellipsis,
}

type Items = SmallVec<[Item; 6]>;

/// The value of an exact Python integer; numbers of other types may have an
/// `__index__` with effects.
fn integer(object: &Bound<'_, PyAny>) -> Option<i64> {
    object.cast_exact::<PyInt>().ok()?.extract().ok()
}

fn item(object: &Bound<'_, PyAny>) -> Option<Item> {
    if let Some(value) = integer(object) {
        return Some(Item::Int(value));
    }
    if object.is_none() {
        return Some(Item::NewAxis);
    }
    if object.cast_exact::<PySlice>().is_ok() {
        let py = object.py();
        let bound = |name| -> Option<Option<i64>> {
            let bound = object.getattr(name).ok()?;
            if bound.is_none() { Some(None) } else { integer(&bound).map(Some) }
        };
        let (start, stop) = (bound(intern!(py, "start"))?, bound(intern!(py, "stop"))?);
        let step = bound(intern!(py, "step"))?.unwrap_or(1);
        return (step != 0).then_some(Item::Slice { start, stop, step });
    }
    object.cast::<PyEllipsis>().is_ok().then_some(Item::Ellipsis)
}

/// The parts of a static index; `None` if it holds anything else.
fn items(index: &Bound<'_, PyAny>) -> Option<Items> {
    match index.cast_exact::<PyTuple>() {
        Ok(tuple) => tuple.iter_borrowed().map(|part| item(&part)).collect(),
        Err(_) => item(index).map(|only| SmallVec::from_iter([only])),
    }
}

/// The first place and the number of places of a slice, as `slice.indices` has them.
fn slice_range(size: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> (i64, i64) {
    let (lower, upper) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let bound = |value: i64| if value < 0 { (value + size).max(lower) } else { value.min(upper) };
    let (first, last) = if step > 0 { (lower, upper) } else { (upper, lower) };
    let (start, stop) = (start.map_or(first, bound), stop.map_or(last, bound));
    let span = if step > 0 { stop - start } else { start - stop };
    let count = if span > 0 { (span - 1) / step.checked_abs().unwrap_or(i64::MAX) + 1 } else { 0 };
    (start, count)
}

/// What an index names of a row-major array.
struct Region {
    /// The shape of the result.
    sizes: Sizes,
    /// Bytes from one place to the next along each axis of the result.
    strides: SmallVec<[isize; 6]>,
    /// The byte offset of the first element.
    start: usize,
    /// An integer was out of bounds; `start` means nothing.
    missed: bool,
    /// All of the array in its own order.
    all: bool,
    /// No axis comes or goes.
    same_axes: bool,
}

impl Region {
    /// `None` for errors: too many indices, an integer on an empty axis.
    fn new(sizes: &[usize], item: usize, items: &[Item]) -> Option<Region> {
        let used = items.iter().filter(|part| matches!(part, Item::Int(_) | Item::Slice { .. })).count();
        let ellipses = items.iter().filter(|part| matches!(part, Item::Ellipsis)).count();
        let missing = sizes.len().checked_sub(used)?;
        if ellipses > 1 {
            return None;
        }
        let inner = byte_strides(sizes, item);
        let mut region = Region {
            sizes: Sizes::new(),
            strides: SmallVec::new(),
            start: 0,
            missed: false,
            all: true,
            same_axes: true,
        };
        let (mut start, mut axis) = (0isize, 0);
        let whole = |region: &mut Region, axis: &mut usize| {
            for _ in 0..missing {
                region.sizes.push(sizes[*axis]);
                region.strides.push(inner[*axis]);
                *axis += 1;
            }
        };
        for part in items {
            match *part {
                Item::NewAxis => {
                    region.sizes.push(1);
                    region.strides.push(0);
                    region.same_axes = false;
                }
                Item::Ellipsis => whole(&mut region, &mut axis),
                Item::Int(value) => {
                    let size = i64::try_from(sizes[axis]).ok().filter(|&size| size > 0)?;
                    let value = if value < 0 { value + size } else { value };
                    region.missed |= !(0..size).contains(&value);
                    start = start.wrapping_add((value as isize).wrapping_mul(inner[axis]));
                    region.all &= size == 1;
                    region.same_axes = false;
                    axis += 1;
                }
                Item::Slice { start: from, stop, step } => {
                    let size = i64::try_from(sizes[axis]).ok()?;
                    let (first, count) = slice_range(size, from, stop, step);
                    region.sizes.push(usize::try_from(count).ok()?);
                    if count > 0 {
                        start = start.wrapping_add((first as isize).wrapping_mul(inner[axis]));
                    }
                    region.strides.push(if count > 1 {
                        (step as isize).wrapping_mul(inner[axis])
                    } else {
                        0
                    });
                    region.all &= count == size && (step == 1 || count <= 1);
                    axis += 1;
                }
            }
        }
        if ellipses == 0 {
            whole(&mut region, &mut axis);
        }
        region.start = start.cast_unsigned();
        Some(region)
    }

    fn len(&self) -> usize {
        element_count(&self.sizes)
    }

    /// The axes of a walk along the region beside something with these strides.
    fn axes(&self, other: &[isize], reads: bool) -> SmallVec<[Axis; 6]> {
        let axis = |((&count, &here), &there): ((&usize, &isize), &isize)| match reads {
            true => Axis { count, from: here, to: there },
            false => Axis { count, from: there, to: here },
        };
        self.sizes.iter().zip(&self.strides).zip(other).map(axis).collect()
    }

    /// Bytes that the strided copy moves at once, at least.
    fn run(&self, item: usize) -> usize {
        match (self.sizes.last(), self.strides.last()) {
            (Some(&count), Some(&stride)) if stride == item.cast_signed() => count * item,
            _ => item,
        }
    }

    /// The region of `tensor` as an array of its own.
    fn read(&self, py: Python<'_>, tensor: &Tensor) -> PyResult<Tensor> {
        if self.all {
            return tensor.with_sizes(self.sizes.clone()).py(py);
        }
        let item = tensor.dtype().size();
        let bytes = self.len() * item;
        let axes = self.axes(&byte_strides(&self.sizes, item), true);
        eager::release_gil(py, bytes, || {
            write_new(tensor.dtype(), &self.sizes, bytes, |target| {
                strided::copy((tensor.bytes(), self.start), (target, 0), &axes, item)
            })
        })
        .py(py)
    }
}

/// A new tensor that `fill` writes completely.
fn write_new(
    dtype: DType,
    sizes: &Sizes,
    bytes: usize,
    fill: impl FnOnce(&mut [u8]) -> ferrax_ir::Result<()>,
) -> ferrax_ir::Result<Tensor> {
    let (mut storage, _) = ferrax_cpu::alloc::storage(bytes)?;
    let target = std::sync::Arc::get_mut(&mut storage)
        .and_then(|storage| storage.bytes_mut())
        .ok_or_else(|| internal_error!("fresh storage cannot be written"))?;
    fill(target)?;
    Tensor::from_storage(dtype, sizes.clone(), storage)
}

/// `x[index]` if it is static and the array is concrete.
fn read<'py>(array: &Bound<'py, Array>, index: &Bound<'py, PyAny>) -> PyResult<Option<Py<Array>>> {
    let Some(concrete) = array.get().concrete() else { return Ok(None) };
    let item = concrete.dtype.size();
    let Some(items) = items(index) else { return Ok(None) };
    if item == 0 || !trace::runs_eagerly(&[]) || (concrete.dtype.is_key() && checks::keys()) {
        return Ok(None);
    }
    let Some(region) = Region::new(&concrete.sizes, item, &items).filter(|region| !region.missed) else {
        return Ok(None);
    };
    if region.all && region.same_axes {
        return Ok(Some(array.clone().unbind()));
    }
    if region.run(item) < 64 && region.len() * item > LARGE && !region.all {
        return Ok(None);
    }
    let py = array.py();
    // What was put somewhere is read by ops, whose results are placed.
    if array.get().place.get() != 0 || checks::elsewhere() {
        return Ok(None);
    }
    Array::new_concrete(py, region.read(py, &concrete.tensor()?)?, concrete.weak).map(Some)
}

/// The function that reads with all other indices, which is imported once.
pub fn general(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static GENERAL: Once<Py<PyAny>> = Once::new();
    let import = || Ok(py.import("ferrax._src.numpy.indexing")?.getattr("getitem")?.unbind());
    GENERAL.get_or_try_init(py, import).map(|general| general.bind(py))
}

#[pymethods]
impl Array {
    /// `x[index]` by NumPy's rules, with integers out of bounds clamped.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Some(result) = read(slf, index)? {
            return Ok(result.into_bound(py).into_any());
        }
        general(py)?.call1((slf, index)).filtered(py)
    }
}

/// How an update combines with what is there; `None` overwrites.
fn combination(kind: &str, dtype: DType) -> Option<Option<Binary>> {
    let (numbers, ordered) = (!dtype.is_bool() && !dtype.is_key(), !dtype.is_complex() && !dtype.is_key());
    Some(match kind {
        "scatter" => None,
        "scatter_add" if numbers => Some(Binary::Add),
        "scatter_sub" if numbers => Some(Binary::Sub),
        "scatter_mul" if numbers => Some(Binary::Mul),
        "scatter_min" if ordered => Some(Binary::Min),
        "scatter_max" if ordered => Some(Binary::Max),
        _ => return None,
    })
}

/// Whether values of this type go into the array without a warning.
fn fits(py: Python<'_>, array: &Concrete, dtype: DType, weak: bool) -> bool {
    if dtype == array.dtype {
        return true;
    }
    if array.dtype.is_key() || dtype.is_key() {
        return false;
    }
    let common = |array_weak| result_type(py, &[(array.dtype, array_weak), (dtype, weak)]);
    let is_own = |common: PyResult<(DType, bool)>| common.is_ok_and(|(common, _)| common == array.dtype);
    // A weak array gives way in arithmetic, but what it stores has its own dtype.
    is_own(common(array.weak)) || (array.weak && !weak && is_own(common(false)))
}

/// Byte strides of a value repeated to the region's shape; `None` if it does not go there.
fn broadcast_strides(from: &[usize], to: &[usize], item: usize) -> Option<SmallVec<[isize; 6]>> {
    let offset = to.len().checked_sub(from.len())?;
    let mut strides: SmallVec<[isize; 6]> = SmallVec::from_elem(0, to.len());
    for (axis, &stride) in byte_strides(from, item).iter().enumerate() {
        match from[axis] {
            1 => {}
            size if size == to[offset + axis] => strides[offset + axis] = stride,
            _ => return None,
        }
    }
    Some(strides)
}

/// `array.at[index]` updated by `value`, for static indices on concrete arrays
/// and values that need no care; `None` otherwise. `kind` is the scatter's name.
#[pyfunction]
pub fn update_at(
    py: Python<'_>,
    array: &Bound<'_, PyAny>,
    index: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    kind: &str,
) -> PyResult<Option<Py<Array>>> {
    let Ok(array) = array.cast::<Array>() else { return Ok(None) };
    let Some(concrete) = array.get().concrete() else { return Ok(None) };
    let (dtype, item) = (concrete.dtype, concrete.dtype.size());
    let bytes = element_count(&concrete.sizes) * item;
    let (Some(op), Some(items)) = (combination(kind, dtype), items(index)) else { return Ok(None) };
    if bytes == 0 || bytes > LARGE || value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return Ok(None);
    }
    let Some(region) = Region::new(&concrete.sizes, item, &items) else { return Ok(None) };
    let mut value = convert::operand(value, "Array.at")?;
    if !trace::runs_eagerly(std::slice::from_ref(&value)) || !fits(py, concrete, value.dtype(), value.weak())
    {
        return Ok(None);
    }
    if array.get().place.get() != 0 || placement::any(std::slice::from_ref(&value)) || checks::elsewhere() {
        return Ok(None);
    }
    let sizes = match &value {
        Operand::Array(array) => array.get().sizes()?,
        Operand::Literal(_) => Sizes::new(),
    };
    let Some(strides) = broadcast_strides(&sizes, &region.sizes, item) else { return Ok(None) };
    let tensor = concrete.tensor()?;
    if region.missed || region.len() == 0 {
        return Array::new_concrete(py, tensor, concrete.weak).map(Some);
    }
    if value.dtype() != dtype {
        value = elementwise::convert(py, &value, dtype, false)?;
    }
    if let Some(op) = op {
        if !sizes.is_empty() && sizes != region.sizes {
            return Ok(None);
        }
        let old = Array::new_concrete(py, region.read(py, &tensor)?, false)?;
        let old = Operand::Array(old.into_bound(py));
        value =
            Operand::Array(elementwise::binary(py, kind, op, old, value, Promotion::Strict)?.into_bound(py));
    }
    let strides = if op.is_some() { byte_strides(&region.sizes, item) } else { strides };
    let Some(values) = convert::operand_tensor(py, &value)? else { return Ok(None) };
    let axes = region.axes(&strides, false);
    let result = eager::release_gil(py, bytes, || {
        write_new(dtype, &concrete.sizes, bytes, |target| {
            target.copy_from_slice(tensor.bytes());
            strided::copy((values.bytes(), 0), (target, region.start), &axes, item)
        })
    });
    Array::new_concrete(py, result.py(py)?, concrete.weak).map(Some)
}
