"""Functions that move, join, split or repeat elements without computing on them.

Invariants: axes may be negative everywhere; a function that changes nothing returns its argument;
joins promote dtypes, and a single operand is returned without a `concatenate`.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array, as_array, concrete_or_error, is_concrete
from ferrax._src.core.typing import ArrayLike, Axis, DTypeLike, Shape
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import reject_out_sharding
from ferrax._src.numpy.array_creation import asarray
from ferrax._src.numpy.ufuncs import isnan
from ferrax._src.numpy.util import (
    broadcast_to as _broadcast_to,
    canonical_shape,
    check_array_like,
    convert,
    ensure_array,
    ensure_arrays,
    is_array_like,
    normalize_axes,
    normalize_axis,
    promote_dtypes,
    user_dtype,
)
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------- queries


def shape(a: ArrayLike) -> tuple[int, ...]:
    """The shape as a tuple of ints; lists are accepted with a DeprecationWarning."""
    if hasattr(a, "shape"):
        return tuple(a.shape)
    _warn_not_array("shape", a)
    return np.shape(a)


def ndim(a: ArrayLike) -> int:
    """The number of axes."""
    if hasattr(a, "ndim"):
        return a.ndim
    _warn_not_array("ndim", a)
    return np.ndim(a)


def size(a: ArrayLike, axis: Axis | None = None) -> int:
    """The number of elements, or the product of the sizes of some axes."""
    if axis is None and hasattr(a, "size") and not isinstance(a, (list, tuple)):
        return a.size
    dims = shape(a)
    if not is_concrete(axis):
        axis = operator.index(axis)
    return math.prod(dims[d] for d in normalize_axes(axis, len(dims)))


def _warn_not_array(name, a):
    if not is_array_like(a):
        warnings.warn(
            f"{name} requires ndarray or scalar arguments, got {type(a)}.",
            DeprecationWarning,
            stacklevel=3,
        )


def iscomplexobj(x: ArrayLike) -> bool:
    """True if the dtype is complex, whatever the values."""
    if x is None:
        return False
    try:
        dtype = x.dtype
    except AttributeError:
        dtype = asarray(x).dtype
    return bool(dtypes.issubdtype(dtype, np.complexfloating))


def isrealobj(x: ArrayLike) -> bool:
    """True if the dtype is not complex."""
    return not iscomplexobj(x)


def isscalar(element: ArrayLike) -> bool:
    """True for numbers and 0-d arrays."""
    if np.isscalar(element) or isinstance(element, (np.generic,)):
        return True
    if hasattr(element, "__jax_array__"):
        element = element.__jax_array__()
    return getattr(element, "ndim", None) == 0


def iterable(y: ArrayLike) -> bool:
    """True if `iter(y)` works."""
    try:
        iter(y)
    except TypeError:
        return False
    return True


# ---------------------------------------------------------------------------- reshape


def _resolve_shape(a, newshape):
    sizes = canonical_shape(newshape)
    unknown = sizes.count(-1)
    if unknown > 1:
        raise TypeError(f"reshape: one size may be -1, to be found out, got {sizes}")
    if unknown:
        i = sizes.index(-1)
        known = math.prod(sizes[:i]) * math.prod(sizes[i + 1:])
        if known == 0 or a.size % known:
            raise TypeError(
                f"cannot reshape array of shape {tuple(a.shape)} (size {a.size}) into shape"
                f" {sizes}: {a.size} elements do not divide by the {known} of the given sizes"
            )
        sizes = (*sizes[:i], a.size // known, *sizes[i + 1:])
    elif math.prod(sizes) != a.size:
        raise TypeError(
            f"cannot reshape array of shape {tuple(a.shape)} (size {a.size}) into shape"
            f" {sizes}, which has {math.prod(sizes)} elements"
        )
    return sizes


def reshape(
    a: ArrayLike, shape: Shape, order: str = "C", *, copy: bool | None = None,
    out_sharding: Any = None,
) -> Array:
    """Gives an array another shape of the same size; one entry may be -1.

    Args: order: "C" (row-major) or "F" (column-major). Raises TypeError for a wrong size.

    Example: `jnp.reshape(jnp.arange(6), (2, -1))` has shape (2, 3).
    """
    reject_out_sharding("reshape", out_sharding)
    del copy
    a = ensure_array(a, "reshape")
    sizes = _resolve_shape(a, shape)
    if order == "C":
        return a if sizes == tuple(a.shape) else lax.reshape(a, sizes)
    if order == "F":
        reverse = tuple(range(a.ndim))[::-1]
        out = lax.reshape(lax.transpose(a, reverse), sizes[::-1])
        return lax.transpose(out, tuple(range(len(sizes)))[::-1])
    if order == "A":
        raise NotImplementedError(
            "reshape: order='A' asks for a layout in memory, which arrays do not show; use 'C' "
            "or 'F'"
        )
    raise ValueError(f"reshape: order has to be 'C' or 'F', got {order!r}")


@jit(static_argnames=("order", "out_sharding"), inline=True)
def ravel(a: ArrayLike, order: str = "C", *, out_sharding: Any = None) -> Array:
    """Flattens to one axis."""
    reject_out_sharding("ravel", out_sharding)
    if order == "K":
        raise NotImplementedError(
            "ravel: order='K' asks for a layout in memory, which arrays do not show; use 'C' or "
            "'F'"
        )
    a = ensure_array(a, "ravel")
    return reshape(a, (a.size,), order)


def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Permutes axes; None reverses them. Raises TypeError if `axes` is no permutation."""
    a = ensure_array(a, "transpose")
    if axes is None:
        permutation = tuple(range(a.ndim - 1, -1, -1))
    else:
        rank = a.ndim
        permutation = tuple([normalize_axis(i, rank) for i in axes])
        if sorted(permutation) != list(range(rank)):
            raise TypeError(
                f"transpose: axes has to name each axis of the shape {tuple(a.shape)} once, got"
                f" {tuple(axes)}."
            )
    return lax.transpose(a, permutation)


def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    """Permutes axes (array API name of `transpose`)."""
    return transpose(a, axes)


def matrix_transpose(x: ArrayLike, /) -> Array:
    """Swaps the last two axes; ValueError below rank 2."""
    x = ensure_array(x, "matrix_transpose")
    if x.ndim < 2:
        raise ValueError(
            f"matrix_transpose: needs two axes or more, got shape {tuple(x.shape)}"
        )
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@jit(static_argnames=("axis1", "axis2"), inline=True)
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Exchanges two axes."""
    a = ensure_array(a, "swapaxes")
    axis1, axis2 = normalize_axis(axis1, a.ndim), normalize_axis(axis2, a.ndim)
    permutation = list(range(a.ndim))
    permutation[axis1], permutation[axis2] = axis2, axis1
    return transpose(a, permutation)


def _axis_list(axis):
    try:
        return (operator.index(axis),)
    except TypeError:
        axis = concrete_or_error(None, axis, "axis shapes the program.")
        return tuple(operator.index(x) for x in axis)


def moveaxis(a: ArrayLike, source: Axis, destination: Axis) -> Array:
    """Moves axes to new positions; the others keep their order."""
    a = ensure_array(a, "moveaxis")
    source = tuple(normalize_axis(i, a.ndim) for i in _axis_list(source))
    destination = tuple(normalize_axis(i, a.ndim) for i in _axis_list(destination))
    if len(source) != len(destination):
        raise ValueError(
            f"moveaxis: each source needs a destination, got {len(source)} and {len(destination)}"
        )
    if len(set(source)) != len(source) or len(set(destination)) != len(destination):
        raise TypeError(f"repeated axis in moveaxis: {source} to {destination}")
    permutation = [i for i in range(a.ndim) if i not in source]
    for target, origin in sorted(zip(destination, source)):
        permutation.insert(target, origin)
    return transpose(a, permutation)


@jit(static_argnames=("axis", "start"), inline=True)
def rollaxis(a: ArrayLike, axis: int, start: Any = 0) -> Array:
    """Moves an axis back to lie before position `start`."""
    a = ensure_array(a, "rollaxis")
    start = operator.index(start)
    if not -a.ndim <= start <= a.ndim:
        raise ValueError(f"start={start!r} must satisfy -ndim<=start<=ndim, ndim={a.ndim}")
    axis = normalize_axis(axis, a.ndim)
    start += a.ndim if start < 0 else 0
    start -= axis < start
    return moveaxis(a, axis, start)


def squeeze(a: ArrayLike, axis: Axis | None = None) -> Array:
    """Drops axes of size 1: all, or those named. ValueError if a named size is not 1."""
    a = ensure_array(a, "squeeze")
    sizes = a.shape
    if axis is None:
        axes = tuple([d for d, n in enumerate(sizes) if n == 1])
    else:
        axes = tuple(sorted(normalize_axes(axis, a.ndim)))
        if any(sizes[d] != 1 for d in axes):
            raise ValueError(
                "squeeze: cannot select an axis to squeeze out unless it has size one; got"
                f" axes {axes} of shape {tuple(a.shape)}"
            )
    return lax.squeeze(a, axes) if axes else a


def expand_dims(a: ArrayLike, axis: Axis) -> Array:
    """Inserts axes of size 1 at positions of the result."""
    a = ensure_array(a, "expand_dims")
    axes = _axis_list(axis)
    rank = a.ndim + len(axes)
    out = tuple([normalize_axis(i, rank) for i in axes])
    if len(set(out)) != len(out):
        raise ValueError(f"repeated axis in expand_dims: {axes}")
    return lax.expand_dims(a, out) if out else a


def broadcast_to(array: ArrayLike, shape: Shape, *, out_sharding: Any = None) -> Array:
    """Broadcasts to a shape by NumPy's rule; ValueError if it does not fit."""
    reject_out_sharding("broadcast_to", out_sharding)
    return _broadcast_to(ensure_array(array, "broadcast_to"), canonical_shape(shape))


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape of several shapes; ValueError if there is none."""
    return lax.broadcast_shapes(*[canonical_shape(s) for s in shapes])


def broadcast_arrays(*args: Any) -> list[Array]:
    """Broadcasts arrays against each other; returns a list."""
    args = ensure_arrays("broadcast_arrays", *args)
    if not args:
        return []
    target = lax.broadcast_shapes(*[tuple(x.shape) for x in args])
    return [_broadcast_to(x, target) for x in args]


# ---------------------------------------------------------------------------- joins


def _sequence(name, arrays):
    """The operands of a join; an array stands for its rows."""
    if isinstance(arrays, (Array, np.ndarray)):
        array = ensure_array(arrays, name)
        if array.ndim == 0:
            raise TypeError(f"{name} requires a sequence of arrays, got a 0-d array.")
        return [lax.index_in_dim(array, i, keepdims=False) for i in range(array.shape[0])]
    try:
        arrays = list(arrays)
    except TypeError:
        raise TypeError(
            f"{name} requires a sequence of arrays, got {type(arrays).__name__}."
        ) from None
    check_array_like(name, *arrays)
    return arrays


def concatenate(arrays: Sequence[ArrayLike], axis: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Joins arrays along an existing axis, or flattened for None, after promotion.

    Raises: ValueError for no arrays, TypeError for shapes or ranks that do not match.
    """
    arrays = _sequence("concatenate", arrays)
    if not arrays:
        raise ValueError("concatenate: got no arrays; at least one is needed")
    arrays = [as_array(x) for x in arrays]
    if axis is None:
        return concatenate([ravel(x) for x in arrays], axis=0, dtype=dtype)
    if arrays[0].ndim == 0:
        raise ValueError("concatenate: scalars have no axis to join along; use stack")
    if type(axis) is not int:
        axis = operator.index(axis)
    axis = normalize_axis(axis, arrays[0].ndim)
    if dtype is None:
        arrays = promote_dtypes(*arrays)
    else:
        dtype = user_dtype(dtype, "concatenate")
        arrays = [convert(x, dtype) for x in arrays]
    return lax.concatenate(arrays, dimension=axis)


def concat(arrays: Sequence[ArrayLike], /, *, axis: int = 0) -> Array:
    """Joins arrays along an existing axis (array API name of `concatenate`)."""
    return concatenate(arrays, axis=axis)


def stack(
    arrays: Sequence[ArrayLike], axis: int = 0, out: None = None, dtype: DTypeLike | None = None,
) -> Array:
    """Joins arrays of one shape along a new axis. ValueError for none or different shapes."""
    if out is not None:
        raise NotImplementedError("stack: arrays are immutable; leave out the argument out")
    if isinstance(arrays, (Array, np.ndarray)):
        axis = normalize_axis(axis, arrays.ndim)
        out = moveaxis(arrays, 0, axis)
        return out if dtype is None else convert(out, user_dtype(dtype, "stack"))
    arrays = _sequence("stack", arrays)
    if not arrays:
        raise ValueError("stack: got no arrays; at least one is needed")
    if all(isinstance(x, Array) for x in arrays) and type(axis) is int:
        return _stack_jit(tuple(arrays), axis, dtype)
    return _stack(arrays, axis, dtype)


def _stack(arrays, axis, dtype):
    arrays = ensure_arrays("stack", *arrays)
    if len({tuple(x.shape) for x in arrays}) > 1:
        raise ValueError(
            "stack: all input arrays must have the same shape. Got"
            f" {', '.join(str(tuple(x.shape)) for x in arrays)}."
        )
    axis = normalize_axis(axis, arrays[0].ndim + 1)
    if dtype is None:
        arrays = promote_dtypes(*arrays)
    else:
        dtype = user_dtype(dtype, "stack")
        arrays = [convert(x, dtype) for x in arrays]
    return lax.stack(arrays, axis=axis)


_stack_jit = jit(_stack, static_argnames=("axis", "dtype"), inline=True)


def _atleast(name, arys, raise_rank):
    arys = ensure_arrays(name, *arys)
    out = [raise_rank(x) for x in arys]
    return out[0] if len(out) == 1 else out


@jit
def atleast_1d(*arys: ArrayLike) -> Any:
    """Makes scalars 1-d; a list for several arguments."""
    return _atleast("atleast_1d", arys, lambda x: x if x.ndim else lax.expand_dims(x, (0,)))


@jit
def atleast_2d(*arys: ArrayLike) -> Any:
    """Prepends axes up to rank 2; a list for several arguments."""
    return _atleast("atleast_2d", arys, lambda x: x if x.ndim > 1 else lax.expand_dims(
        x, tuple(range(2 - x.ndim))))


@jit
def atleast_3d(*arys: ArrayLike) -> Any:
    """Adds axes up to rank 3 as NumPy does: (N,) gives (1, N, 1), (M, N) gives (M, N, 1)."""
    new = {0: (0, 1, 2), 1: (0, 2), 2: (2,)}
    return _atleast("atleast_3d", arys, lambda x: x if x.ndim > 2 else lax.expand_dims(
        x, new[x.ndim]))


def vstack(tup: Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Joins along the first axis; vectors count as rows."""
    return concatenate([atleast_2d(x) for x in _sequence("vstack", tup)], axis=0, dtype=dtype)


def hstack(tup: Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Joins along the second axis, vectors along their only one."""
    arrays = [atleast_1d(x) for x in _sequence("hstack", tup)]
    return concatenate(arrays, axis=0 if arrays and arrays[0].ndim == 1 else 1, dtype=dtype)


def dstack(tup: Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Joins along the third axis."""
    return concatenate([atleast_3d(x) for x in _sequence("dstack", tup)], axis=2, dtype=dtype)


def column_stack(tup: Sequence[ArrayLike]) -> Array:
    """Joins vectors as columns, matrices along the second axis."""
    arrays = [ensure_array(x, "column_stack") for x in _sequence("column_stack", tup)]
    arrays = [lax.expand_dims(x, (1,)) if x.ndim == 1 else atleast_2d(x).T if x.ndim == 0 else x
              for x in arrays]
    return concatenate(arrays, axis=1)


def _depth(blocks) -> int:
    """How many lists are around each block: the same number everywhere, or a ValueError."""
    if isinstance(blocks, tuple):
        raise ValueError(f"block: blocks are nested in lists, not in tuples; got {blocks}")
    if not isinstance(blocks, list):
        return 0
    depths = {_depth(inner) for inner in blocks}
    if not depths:
        raise ValueError("block: a list of blocks has to have an element, got []")
    if len(depths) > 1:
        raise ValueError(f"block: the lists are nested to different depths, {sorted(depths)}")
    return depths.pop() + 1


def _assembled(blocks, depth):
    """The array of blocks in so many lists, each of which joins them along the axis `-depth`."""
    if depth == 0:
        return ensure_array(blocks, "block")
    parts = [_assembled(inner, depth - 1) for inner in blocks]
    rank = max(depth, *(part.ndim for part in parts))
    parts = [lax.expand_dims(part, tuple(range(rank - part.ndim))) for part in parts]
    return concatenate(parts, axis=-depth)


@jit
def block(arrays: Sequence[ArrayLike]) -> Array:
    """Assembles an array from nested lists of blocks: the innermost joins the last axis."""
    return _assembled(arrays, _depth(arrays))


@jit(static_argnames=("axis",))
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """Joins two arrays, flattened for `axis=None`."""
    parts = [arr, values] if axis is not None else [ravel(arr), ravel(values)]
    return concatenate(parts, axis=0 if axis is None else axis)


# ---------------------------------------------------------------------------- splits


def _split(name, a, indices_or_sections, axis):
    a = ensure_array(a, name)
    axis = normalize_axis(concrete_or_error(operator.index, axis, f"axis of jnp.{name}"), a.ndim)
    length = a.shape[axis]
    message = f"in ferrax.numpy.{name} argument 'indices_or_sections'"
    if isinstance(indices_or_sections, (tuple, list)) or np.ndim(indices_or_sections) > 0:
        points = np.asarray([
            concrete_or_error(operator.index, i, message) for i in indices_or_sections], np.int64)
        sizes = np.diff(np.concatenate([[0], points, [length]]))
        if (sizes < 0).any():
            raise ValueError(
                f"jnp.{name}: indices must rise from 0 to {length}, got {points.tolist()}")
    else:
        sections = operator.index(concrete_or_error(operator.index, indices_or_sections, message))
        part, rest = divmod(length, sections)
        if rest and name != "array_split":
            raise ValueError(
                f"{name}: the array does not split into {sections} equal parts, {rest} elements "
                "are left; use array_split"
            )
        sizes = [part + (i < rest) for i in range(sections)]
    return list(lax.split(a, tuple(int(n) for n in sizes), axis=axis))


def split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Splits along an axis into equal parts (an int) or at indices (a sequence).

    Returns a list. ValueError if parts would not be equal.
    """
    return _split("split", ary, indices_or_sections, axis)


def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """As `split`, the first parts being one longer if the division is not even."""
    return _split("array_split", ary, indices_or_sections, axis)


def vsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Splits along the first axis."""
    return _split("vsplit", ary, indices_or_sections, 0)


def hsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Splits along the second axis, a vector along its only one."""
    a = ensure_array(ary, "hsplit")
    return _split("hsplit", a, indices_or_sections, 0 if a.ndim == 1 else 1)


def dsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Splits along the third axis."""
    return _split("dsplit", ary, indices_or_sections, 2)


@jit(static_argnames=("axis",), inline=True)
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Splits along an axis into a tuple of arrays without it."""
    x = ensure_array(x, "unstack")
    if x.ndim == 0:
        raise ValueError(
            "Unstack requires arrays with rank > 0, however a scalar array was passed."
        )
    axis = normalize_axis(axis, x.ndim)
    return tuple(lax.unstack(x, axis=axis))


# ---------------------------------------------------------------------------- repetition


def tile(A: ArrayLike, reps: Any) -> Array:
    """Repeats the whole array `reps` times per axis."""
    A = ensure_array(A, "tile")
    try:
        reps = (operator.index(reps),)
    except TypeError:
        reps = tuple(operator.index(r) for r in reps)
    rank = max(len(reps), A.ndim)
    reps = (1,) * (rank - len(reps)) + reps
    dims = (1,) * (rank - A.ndim) + tuple(A.shape)
    if all(r == 1 for r in reps):
        return reshape(A, dims)
    return lax.tile(reshape(A, dims), reps)


def repeat(
    a: ArrayLike, repeats: ArrayLike, axis: int | None = None, *,
    total_repeat_length: int | None = None, out_sharding: Any = None,
) -> Array:
    """Repeats each element along an axis, of the flattened array for None.

    Args: repeats: a count or one count per element, concrete unless `total_repeat_length` is
    given; then the result has that length, truncated or filled with the last element.
    """
    reject_out_sharding("repeat", out_sharding)
    a, counts = ensure_arrays("repeat", a, repeats)
    if axis is None:
        a, axis = ravel(a), 0
    elif a.ndim == 0:
        a = lax.expand_dims(a, (0,))
    axis = normalize_axis(concrete_or_error(operator.index, axis, "axis of jnp.repeat"), a.ndim)
    length = a.shape[axis]
    if counts.ndim > 1 or (counts.ndim == 1 and counts.shape[0] not in (1, length)):
        raise ValueError(
            f"jnp.repeat: repeats has shape {tuple(counts.shape)}; expected () or ({length},)"
        )
    if total_repeat_length is None:
        concrete = np.asarray(concrete_or_error(
            None, repeats, "'repeats' argument of jnp.repeat; give total_repeat_length under jit"))
        if (concrete < 0).any():
            raise TypeError(f"jnp.repeat: repeats must not be negative, got {concrete}")
        if concrete.size == 1:
            return _repeat_uniform(a, int(concrete.reshape(())), axis)
        indices = np.repeat(np.arange(length), concrete)
        return _take_rows(a, as_array(indices.astype(np.int32)), axis)
    counts = _broadcast_to(counts, (length,))
    total = operator.index(total_repeat_length)
    if length == 0 or total == 0:
        dims = tuple(total if d == axis else n for d, n in enumerate(a.shape))
        return lax.full(dims, 0, a.dtype)
    ends = lax.cumsum(convert(counts, np.dtype(np.int32)))
    positions = lax.iota(np.int32, total)
    # The row at output position p is the number of rows that end at or before p.
    ended = lax.le(_broadcast_to(lax.expand_dims(ends, (0,)), (total, length)),
                   lax.broadcast_in_dim(positions, (total, length), (0,)))
    rows = lax.reduce_sum(lax.convert_element_type(ended, np.int32), axes=(1,))
    rows = lax.min(rows, as_array(np.int32(length - 1)))
    return _take_rows(a, rows, axis)


def _repeat_uniform(a, count, axis):
    dims = tuple(a.shape)
    wide = (*dims[:axis + 1], count, *dims[axis + 1:])
    kept = (*range(axis + 1), *range(axis + 2, len(wide)))
    out = lax.broadcast_in_dim(a, wide, kept)
    return lax.reshape(out, (*dims[:axis], dims[axis] * count, *dims[axis + 1:]))


def _take_rows(a, indices, axis):
    """Gathers slices at in-bounds indices along an axis."""
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(d for d in range(a.ndim) if d != axis),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    return lax.gather(
        a, lax.expand_dims(indices, (1,)), numbers,
        slice_sizes=tuple(1 if d == axis else n for d, n in enumerate(a.shape)),
        mode="clip",
    )


@jit(static_argnames=("new_shape",))
def resize(a: ArrayLike, new_shape: Any) -> Array:
    """Repeats or truncates the flattened array to fill a new shape."""
    a = ensure_array(a, "resize")
    sizes = canonical_shape(new_shape)
    if any(n < 0 for n in sizes):
        raise ValueError("all elements of `new_shape` must be non-negative")
    total = math.prod(sizes)
    if a.size == 0 or total == 0:
        return lax.full(sizes, 0, a.dtype)
    flat = tile(ravel(a), -(-total // a.size))
    flat = lax.slice_in_dim(flat, 0, total) if flat.shape[0] != total else flat
    return reshape(flat, sizes)


# ---------------------------------------------------------------------------- flips and rolls


@jit(static_argnames=("axis",))
def _flip(m, axis=None):
    return lax.rev(m, normalize_axes(axis, m.ndim))


def _static_axes(axis):
    if axis is None or isinstance(axis, int):
        return axis
    return tuple(axis) if np.ndim(axis) else operator.index(axis)


STATIC_AXIS = "Axes must be known while tracing: mark the argument as static, or use Python ints."


def flip(m: ArrayLike, axis: Axis | None = None) -> Array:
    """Reverses the order along axes, along all for None."""
    axis = concrete_or_error(_static_axes, axis, f"The axis argument of flip. {STATIC_AXIS}")
    return _flip(ensure_array(m, "flip"), axis)


def flipud(m: ArrayLike) -> Array:
    """Reverses the first axis."""
    return _flip(ensure_array(m, "flipud"), 0)


def fliplr(m: ArrayLike) -> Array:
    """Reverses the second axis."""
    return _flip(ensure_array(m, "fliplr"), 1)


@jit(static_argnames=("k", "axes"))
def rot90(m: ArrayLike, k: Any = 1, axes: Sequence[int] = (0, 1)) -> Array:
    """Rotates by `k` quarter turns in the plane of two axes."""
    m = ensure_array(m, "rot90")
    if len(axes) != 2:
        raise ValueError(f"len(axes) must be 2, got axes={axes}")
    ax1, ax2 = (normalize_axis(x, m.ndim) for x in axes)
    if ax1 == ax2:
        raise ValueError("Axes must be different")
    k %= 4
    if k == 0:
        return m
    if k == 2:
        return _flip(_flip(m, ax1), ax2)
    permutation = list(range(m.ndim))
    permutation[ax1], permutation[ax2] = ax2, ax1
    if k == 1:
        return transpose(_flip(m, ax2), permutation)
    return _flip(transpose(m, permutation), ax2)


@jit(static_argnames=("shift", "axis"))
def _roll_static(a, shift, axis):
    for amount, d in zip(shift, axis):
        amount = amount % a.shape[d] if a.shape[d] else 0
        if amount:
            cut = a.shape[d] - amount
            a = lax.concatenate(
                [lax.slice_in_dim(a, cut, a.shape[d], axis=d), lax.slice_in_dim(a, 0, cut, axis=d)],
                dimension=d,
            )
    return a


@jit(static_argnames=("axis",))
def _roll_dynamic(a, shift, axis):
    for i, d in enumerate(axis):
        n = a.shape[d]
        if n == 0:
            continue
        amount = convert(lax.index_in_dim(shift, i, keepdims=False), np.dtype(np.int32))
        amount = lax.rem(lax.add(lax.rem(amount, as_array(np.int32(n))), as_array(np.int32(n))),
                         as_array(np.int32(n)))
        twice = lax.concatenate([a, a], dimension=d)
        a = lax.dynamic_slice_in_dim(twice, lax.sub(as_array(np.int32(n)), amount), n, axis=d)
    return a


def roll(a: ArrayLike, shift: ArrayLike, axis: Axis | None = None) -> Array:
    """Shifts elements cyclically along axes, or through the flattened array for None.

    Args: shift: an integer or one per axis, possibly traced.

    Example: `jnp.roll(jnp.arange(4), 1)` is `[3, 0, 1, 2]`.
    """
    a = ensure_array(a, "roll")
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), a.shape)
    axes = tuple(normalize_axis(d, a.ndim) for d in _axis_list(axis))
    if is_concrete(shift) if isinstance(shift, Array) else True:
        amounts = np.asarray(shift)
        if amounts.dtype.kind not in "iub" and not np.all(amounts == np.trunc(amounts)):
            raise TypeError(f"jnp.roll: shift must be integers, got {shift}")
        amounts, places = np.broadcast_arrays(np.atleast_1d(amounts).astype(np.int64),
                                              np.asarray(axes))
        return _roll_static(a, tuple(map(int, amounts)), tuple(map(int, places)))
    count = max(len(axes), shift.size if shift.ndim else 1)
    amounts = _broadcast_to(lax.expand_dims(shift, (0,)) if shift.ndim == 0 else shift, (count,))
    places = axes * count if len(axes) == 1 else axes
    return _roll_dynamic(a, amounts, tuple(places))


def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """0-d bool: same shape and equal elements; with `equal_nan`, NaNs are equal."""
    return _array_equal("array_equal", a1, a2, equal_nan)


def _array_equal(name, a1, a2, equal_nan):
    try:
        a1, a2 = as_array(np.asarray(a1)) if isinstance(a1, (list, tuple)) else ensure_array(
            a1, name), as_array(np.asarray(a2)) if isinstance(a2, (list, tuple)) else ensure_array(
            a2, name)
    except TypeError:
        return as_array(np.bool_(False))
    if tuple(a1.shape) != tuple(a2.shape):
        return as_array(np.bool_(False))
    a1, a2 = promote_dtypes(a1, a2)
    equal = lax.eq(a1, a2)
    if equal_nan:
        equal = lax.bitwise_or(equal, lax.bitwise_and(isnan(a1), isnan(a2)))
    return lax.reduce_and(equal, axes=tuple(range(equal.ndim)))


def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Array:
    """0-d bool: equal elements after broadcasting; False if shapes do not broadcast."""
    try:
        a1, a2 = ensure_arrays("array_equiv", a1, a2)
        a1, a2 = broadcast_arrays(a1, a2)
    except (TypeError, ValueError):
        return as_array(np.bool_(False))
    return _array_equal("array_equiv", a1, a2, False)


def trim_zeros(filt: Any, trim: str = "fb", axis: Axis | None = None) -> Array:
    """Removes zeros at the front ("f") and back ("b") of a concrete array."""
    values = np.asarray(concrete_or_error(
        None, filt, "trim_zeros: the values of filt shape the result"))
    if not set(trim.lower()) <= {"f", "b"}:
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    out = ensure_array(filt, "trim_zeros")
    for d in normalize_axes(axis, values.ndim):
        others = tuple(k for k in range(values.ndim) if k != d)
        used = np.flatnonzero((values != 0).any(axis=others))
        n = values.shape[d]
        start = (used[0] if used.size else n) if "f" in trim.lower() else 0
        stop = (used[-1] + 1 if used.size else 0) if "b" in trim.lower() else n
        out = lax.slice_in_dim(out, int(min(start, n)), int(max(stop, min(start, n))), axis=d)
    return out


