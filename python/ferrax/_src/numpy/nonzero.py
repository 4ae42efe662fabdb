"""Functions whose result has as many elements as a condition is true: nonzero, compress, place, …

Invariant: such a count must be known while tracing. Eagerly it is computed with NumPy; traced calls
need ``size``, and the result is cut or filled to it.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._core import Array
from ferrax._src.base import dtypes
from ferrax._src.base.errors import ConcretizationTypeError, TracerIntegerConversionError
from ferrax._src.core import as_array, concrete_or_error, is_concrete
from ferrax._src.core.dim_values import size_as
from ferrax._src.core.typing import ArrayLike
from ferrax._src.dims.sizes import min_dim
from ferrax._src.lax import elementwise as lax
from ferrax._src.lax.arguments import canonical_axis
from ferrax._src.lax.creation import full, iota
from ferrax._src.lax.gather_scatter import _static_scalar
from ferrax._src.lax.reduce import cumsum, reduce_sum
from ferrax._src.lax.shape import _broadcast_to, reshape, stack
from ferrax._src.lax.slicing import slice_in_dim
from ferrax._src.numpy.at import IndexUpdateHelper
from ferrax._src.numpy.take import _resized, take
from ferrax._src.numpy.util import (
    check_array_like,
    ensure_array,
    needs_size,
    where as select_where,
)
from ferrax._src.transforms.jit import jit


def _default_int() -> np.dtype:
    return dtypes.default_int_dtype()


def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]:
    """Positions of the nonzero elements, one index array for each axis.

    Args:
      a: array of at least one axis.
      size: static length of the results; needed under jit. Missing ones are filled, others cut.
      fill_value: scalar, or a tuple of one for each axis; default 0.

    >>> jnp.nonzero(jnp.array([0, 3, 0, 5]))
    (Array([1, 3], dtype=int32),)
    """
    return nonzero_for("nonzero", a, size, fill_value)


def nonzero_for(name: str, a, size, fill_value, arguments: str = "x"):
    """`nonzero` as the function `jnp.name` calls it, of which errors show a call with `arguments`."""
    a = ensure_array(a, name)
    if a.ndim == 0:
        raise ValueError(
            "nonzero: a scalar has no axis to index; make it a vector first, by "
            "jnp.atleast_1d."
        )
    if size is None:
        try:
            value = concrete_or_error(None, as_array(a), needs_size(name, arguments))
        except ConcretizationTypeError:
            size = _known_count(a)
            if size is None:
                raise
        else:
            dtype = _default_int()
            return tuple([as_array(index.astype(dtype)) for index in np.nonzero(np.asarray(value))])
    size = operator.index(concrete_or_error(None, size, "size argument of jnp.nonzero"))
    if fill_value is None:
        fill = (0,) * a.ndim
    elif isinstance(fill_value, tuple):
        fill = fill_value
        if len(fill) != a.ndim:
            raise ValueError(
                f"fill_value of jnp.nonzero must have one entry for each of {a.ndim} axes, "
                f"got {len(fill)}"
            )
    else:
        fill = (fill_value,) * a.ndim
    places, valid = _nonzero_jit(a, size)
    check_array_like("where", *fill)
    return tuple([select_where(valid, place, value) for place, value in zip(places, fill)])


def _known_count(a: Array) -> int | None:
    """How many elements are not zero, where somebody tells: of an array over processes, of which nobody has all."""
    try:
        return int(reduce_sum(lax._convert_element_type(a != 0, np.int32), tuple(range(a.ndim))))
    except (ConcretizationTypeError, TracerIntegerConversionError):
        return None


def _nonzero(a: Array, size: int):
    """Positions of the first ``size`` nonzero elements, and which of the results are such."""
    dtype = _default_int()
    count = math.prod(a.shape)
    if size == 0 or count == 0:
        return [full((size,), 0, dtype)] * a.ndim, full((size,), False, np.dtype(bool))
    mask = reshape(a, (count,))
    if mask.dtype != np.bool_:
        mask = lax.ne(mask, mask.dtype.type(0))
    ranks = cumsum(lax._convert_element_type(mask, dtype))
    # Each nonzero element writes its position at its rank; the others go out of bounds.

    one = dtype.type(1)
    target = lax.select_n(mask, full((count,), size, dtype), lax.sub(ranks, one))
    flat = IndexUpdateHelper(full((size,), 0, dtype))[target].set(
        iota(dtype, count), mode="drop", unique_indices=True, wrap_negative_indices=False
    )
    total = slice_in_dim(ranks, count - 1, count)
    valid = lax.lt(iota(dtype, size), _broadcast_to(total, (size,)))
    places = []
    rest = flat
    for axis_size in reversed(a.shape):
        length = size_as(axis_size, dtype)
        places.append(lax.rem(rest, length) if a.ndim > 1 else rest)
        rest = lax.div(rest, length) if a.ndim > 1 else rest
    return places[::-1], valid


_nonzero_jit = jit(_nonzero, static_argnums=(1,))


def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Positions of the nonzero elements of the flattened array; see ``nonzero``.

    Args: a: array; size, fill_value: as for `nonzero`, with its errors.

    >>> jnp.flatnonzero(jnp.array([[0, 5], [6, 0]]))
    Array([1, 2], dtype=int32)
    """
    a = ensure_array(a, "flatnonzero")
    flat = reshape(a, (math.prod(a.shape),))
    return nonzero_for("flatnonzero", flat, size, fill_value)[0]


def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Positions of the nonzero elements as rows of an array of shape (count, a.ndim).

    Args: a: array; size, fill_value: as for `nonzero`, with its errors.

    >>> jnp.argwhere(jnp.array([[0, 5], [6, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    a = ensure_array(a, "argwhere")
    dtype = _default_int()
    if a.ndim == 0:
        if size is None:
            size = int(bool(concrete_or_error(None, a, "size argument of jnp.argwhere")))
        return full((operator.index(size), 0), 0, dtype)
    places = nonzero_for("argwhere", a, size, fill_value)
    return stack(places, 1)


def compress(
    condition: ArrayLike, a: ArrayLike, axis: int | None = None, *, size: int | None = None,
    fill_value: Any = 0, out: None = None,
) -> Array:
    """Slices of ``a`` along ``axis`` where a 1-D condition holds.

    Args:
      condition: 1-D; may be shorter than the axis, and longer where the rest is false.
      a: array; flattened if ``axis`` is None.
      size, fill_value: static length of the result's axis, and what pads it; needed under jit.
      out: not supported.

    >>> jnp.compress(jnp.array([True, False, True]), jnp.array([1, 2, 3]))
    Array([1, 3], dtype=int32)
    """
    condition = ensure_array(condition, "compress", 0)
    a = ensure_array(a, "compress", 1)
    if out is not None:
        raise NotImplementedError("out argument is not supported by jnp.compress")
    if condition.ndim != 1:
        raise ValueError(f"compress: condition has to be a vector, got {condition.ndim} axes")
    if axis is None:
        a, axis = reshape(a, (math.prod(a.shape),)), 0
    axis = canonical_axis(axis, a.ndim)
    length = a.shape[axis]
    if condition.dtype != np.bool_:
        condition = lax.ne(condition, condition.dtype.type(0))
    if condition.shape[0] > length:
        extra = slice_in_dim(condition, length, None)
        if is_concrete(extra) and np.any(np.asarray(concrete_or_error(None, extra))):
            raise ValueError(f"compress: condition is true beyond the axis, of {length} elements")
        condition = slice_in_dim(condition, 0, length)
    if size is None:
        (places,) = nonzero_for("compress", condition, None, None, "mask, x")
        return take(a, places, axis, mode="clip")
    size = operator.index(size)
    if not 0 <= size <= length:
        raise ValueError(
            "compress: size has to be 1 or more and at most that of the axis, "
            f"{length}; got {size}"
        )
    if size == 0:
        return slice_in_dim(a, 0, 0, 1, axis)
    (places,) = nonzero(condition, size=size, fill_value=length)
    return take(a, places, axis, mode="fill", fill_value=_static_scalar(fill_value))


def extract(
    condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: Any = 0,
) -> Array:
    """Elements of ``arr`` where ``condition`` holds, both flattened; see ``compress``.

    Args: size, fill_value: as for `compress`.

    >>> jnp.extract(jnp.array([True, False, True]), jnp.array([1, 2, 3]))
    Array([1, 3], dtype=int32)
    """
    condition = ensure_array(condition, "extract", 0)
    arr = ensure_array(arr, "extract", 1)
    flat = reshape(condition, (math.prod(condition.shape),))
    return compress(flat, arr, size=size, fill_value=fill_value)


def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Array:
    """A copy of ``arr`` where the elements under ``mask`` are the first of ``vals``, repeated.

    ``inplace=False`` is required. Works under jit.

    >>> jnp.place(jnp.arange(4), jnp.array([0, 1, 1, 1]), jnp.array([7, 8]), inplace=False)
    Array([0, 7, 8, 7], dtype=int32)
    """
    arr = ensure_array(arr, "place", 0)
    mask = ensure_array(mask, "place", 1)
    vals = ensure_array(vals, "place", 2)
    if inplace:
        raise ValueError(
            "jnp.place: arrays cannot be changed in place; write arr = jnp.place(arr, mask, vals, "
            "inplace=False)."
        )
    count = math.prod(arr.shape)
    if math.prod(mask.shape) != count:
        raise ValueError(f"place: mask needs {count} elements, as arr has, got shape {mask.shape}")
    given = math.prod(vals.shape)
    if given == 0:
        raise ValueError("place: vals needs an element, got none")
    if count == 0:
        return arr
    places = flatnonzero(mask, size=count, fill_value=count)
    values = _resized(reshape(vals, (given,)), given, count)
    flat = IndexUpdateHelper(reshape(arr, (count,)))[places].set(values, mode="drop")
    return reshape(flat, arr.shape)


def fill_diagonal(a: ArrayLike, val: Any, wrap: bool = False, *, inplace: bool = True) -> Array:
    """A copy of ``a`` with its diagonal set to ``val`` (a scalar, or values repeated along it).

    ``inplace=False`` is required; ``wrap=True`` is not supported. With more than two axes, all must
    have one size.

    >>> jnp.fill_diagonal(jnp.zeros((2, 3)), 1, inplace=False)
    Array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    if inplace:
        raise NotImplementedError(
            "fill_diagonal: arrays are immutable; write a = jnp.fill_diagonal(a, val, inplace=False)"
        )
    if wrap:
        raise NotImplementedError("fill_diagonal: wrap=True is not supported; fill block by block")
    a = ensure_array(a, "fill_diagonal", 0)
    val = ensure_array(val, "fill_diagonal", 1)
    if a.ndim < 2:
        raise ValueError(f"fill_diagonal: expected at least two axes, got shape {tuple(a.shape)}")
    if a.ndim > 2 and len(set(a.shape)) != 1:
        raise ValueError(f"fill_diagonal: more than two axes need one size, got shape {tuple(a.shape)}")
    length = functools.reduce(min_dim, a.shape)
    given = math.prod(val.shape)
    if length == 0 or given == 0:
        return a
    values = val if val.ndim == 0 else _resized(reshape(val, (given,)), given, length)
    index = np.arange(length, dtype=np.int32)
    return IndexUpdateHelper(a)[(index,) * a.ndim].set(values, unique_indices=True)


def mask_indices(n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None) -> tuple[Array, ...]:
    """Positions where ``mask_func(ones((n, n)), k)`` is nonzero, for example with ``jnp.triu``.

    Args: n: an int; mask_func: of a matrix and `k`; size: how many positions, as for `nonzero`.

    >>> jnp.mask_indices(2, jnp.triu)
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    ones = full((operator.index(n), operator.index(n)), 1, np.dtype(np.float32))
    return nonzero(mask_func(ones, k), size=size)
