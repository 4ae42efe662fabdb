"""Functions of ferrax.numpy that join arrays and split them: concatenate and those made of it.

Invariants: axes may be negative everywhere; joins promote dtypes, and a single operand is returned
without a `concatenate`; parts keep their array's dtype.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.base.jax_version import several
from ferrax._src.base.traceback_util import bounded, leave
from ferrax._src.core import Array, as_array, concrete_or_error
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy.shape import moveaxis, ravel
from ferrax._src.numpy.util import (
    check_array_like,
    convert,
    ensure_array,
    ensure_arrays,
    normalize_axis,
    promote_dtypes,
    user_dtype,
)
from ferrax._src.transforms.jit import jit

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


def _of_one_dtype(name, arrays, dtype):
    """The operands in the result's dtype, or for None in their common one."""
    if dtype is None:
        return promote_dtypes(*arrays)
    dtype = user_dtype(dtype, name)
    return [convert(x, dtype) for x in arrays]


@bounded
def concatenate(arrays: Sequence[ArrayLike], axis: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Joins arrays along an existing axis, or flattened for None, after promotion.

    Raises: ValueError for no arrays, TypeError for shapes or ranks that do not match.
    Args: arrays: a sequence of arrays of one rank, or an array of rank 1 or more; axis: the axis;
    dtype: the result's, default the common one.

    >>> jnp.concatenate([jnp.arange(2), jnp.ones(1)])
    Array([0., 1., 1.], dtype=float32)
    """
    try:
        given = _sequence("concatenate", arrays)
        if not given:
            raise ValueError("concatenate: got no arrays; at least one is needed")
        parts = [as_array(x) for x in given]
        if axis is None:
            return concatenate([ravel(x) for x in parts], axis=0, dtype=dtype)
        if parts[0].ndim == 0:
            raise ValueError("concatenate: scalars have no axis to join along; use stack")
        if type(axis) is not int:
            axis = operator.index(axis)
        axis = normalize_axis(axis, parts[0].ndim)
        return lax.concatenate(_of_one_dtype("concatenate", parts, dtype), dimension=axis)
    except Exception:
        leave()
        raise


def concat(arrays: Sequence[ArrayLike], /, *, axis: int = 0) -> Array:
    """Joins arrays along an existing axis (array API name of `concatenate`).

    Args: arrays, axis: as for `concatenate`, with its errors.

    >>> jnp.concat([jnp.arange(2), jnp.arange(3)])
    Array([0, 1, 0, 1, 2], dtype=int32)
    """
    return concatenate(arrays, axis=axis)


@bounded
def stack(
    arrays: Sequence[ArrayLike], axis: int = 0, out: None = None, dtype: DTypeLike | None = None,
) -> Array:
    """Joins arrays of one shape along a new axis. ValueError for none or different shapes.

    Args: arrays: a sequence of arrays; axis: the new one, in the result; dtype: the result's,
    default the common one.

    >>> jnp.stack([jnp.arange(2), jnp.arange(2)], axis=1)
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    try:
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
    except Exception:
        leave()
        raise


def _stack(arrays, axis, dtype):
    arrays = ensure_arrays("stack", *arrays)
    if len({tuple(x.shape) for x in arrays}) > 1:
        raise ValueError(
            "stack: expected arrays of one shape, got"
            f" {', '.join(str(tuple(x.shape)) for x in arrays)}."
        )
    axis = normalize_axis(axis, arrays[0].ndim + 1)
    return lax.stack(_of_one_dtype("stack", arrays, dtype), axis=axis)


_stack_jit = jit(_stack, static_argnames=("axis", "dtype"), inline=True)


def _atleast(name, arys, raise_rank):
    arys = ensure_arrays(name, *arys)
    out = [raise_rank(x) for x in arys]
    return out[0] if len(out) == 1 else several(out)


@jit
def atleast_1d(*arys: ArrayLike) -> Any:
    """Makes scalars 1-d; a list for several arguments, a tuple where JAX 0.12 is followed.

    Args: arys: arrays or scalars.

    >>> jnp.atleast_1d(3.0)
    Array([3.], dtype=float32, weak_type=True)
    """
    return _atleast("atleast_1d", arys, lambda x: x if x.ndim else lax.expand_dims(x, (0,)))


@jit
def atleast_2d(*arys: ArrayLike) -> Any:
    """Prepends axes up to rank 2; a list for several arguments, a tuple where JAX 0.12 is followed.

    Args: arys: arrays or scalars.

    >>> jnp.atleast_2d(jnp.arange(3))
    Array([[0, 1, 2]], dtype=int32)
    """
    return _atleast("atleast_2d", arys, lambda x: x if x.ndim > 1 else lax.expand_dims(
        x, tuple(range(2 - x.ndim))))


@jit
def atleast_3d(*arys: ArrayLike) -> Any:
    """Adds axes up to rank 3 as NumPy does: (N,) gives (1, N, 1), (M, N) gives (M, N, 1).

    Args: arys: arrays or scalars.

    >>> jnp.atleast_3d(jnp.arange(3)).shape
    (1, 3, 1)
    """
    new = {0: (0, 1, 2), 1: (0, 2), 2: (2,)}
    return _atleast("atleast_3d", arys, lambda x: x if x.ndim > 2 else lax.expand_dims(
        x, new[x.ndim]))


def vstack(tup: Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Joins along the first axis; vectors count as rows.

    Args: tup: a sequence of arrays; dtype: the result's, default the common one. Raises: TypeError
    for shapes that do not match.

    >>> jnp.vstack([jnp.arange(2), jnp.ones((1, 2), int)])
    Array([[0, 1],
           [1, 1]], dtype=int32)
    """
    return concatenate([atleast_2d(x) for x in _sequence("vstack", tup)], axis=0, dtype=dtype)


def hstack(tup: Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Joins along the second axis, vectors along their only one.

    Args: tup: a sequence of arrays; dtype: the result's, default the common one. Raises: TypeError
    for shapes that do not match.

    >>> jnp.hstack([jnp.arange(2), jnp.arange(3)])
    Array([0, 1, 0, 1, 2], dtype=int32)
    """
    arrays = [atleast_1d(x) for x in _sequence("hstack", tup)]
    return concatenate(arrays, axis=0 if arrays and arrays[0].ndim == 1 else 1, dtype=dtype)


def dstack(tup: Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Joins along the third axis.

    Args: tup: a sequence of arrays; dtype: the result's, default the common one. Raises: TypeError
    for shapes that do not match.

    >>> jnp.dstack([jnp.arange(2), jnp.arange(2)])
    Array([[[0, 0],
            [1, 1]]], dtype=int32)
    """
    return concatenate([atleast_3d(x) for x in _sequence("dstack", tup)], axis=2, dtype=dtype)


def column_stack(tup: Sequence[ArrayLike]) -> Array:
    """Joins vectors as columns, matrices along the second axis.

    Args: tup: a sequence of arrays. Raises: TypeError for shapes that do not match.

    >>> jnp.column_stack([jnp.arange(2), jnp.arange(2)])
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
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
    """Assembles an array from nested lists of blocks: the innermost joins the last axis.

    Args: arrays: arrays, or lists nested to one depth. Raises: TypeError for shapes that do not
    match, ValueError for tuples and other nestings.

    >>> jnp.block([[jnp.ones((1, 1)), jnp.zeros((1, 2))], [jnp.zeros((1, 3))]])
    Array([[1., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    return _assembled(arrays, _depth(arrays))


@jit(static_argnames=("axis",))
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """Joins two arrays, flattened for `axis=None`.

    Args: arr, values: arrays; axis: as for `concatenate`, with its errors.

    >>> jnp.append(jnp.arange(2), jnp.array([[7, 8]]))
    Array([0, 1, 7, 8], dtype=int32)
    """
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
        sizes: Any = np.diff(np.concatenate([[0], points, [length]]))
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
    Args: ary: array; indices_or_sections: an int or a sequence of ints; axis: the axis.

    >>> jnp.split(jnp.arange(5), [2, 3])
    [Array([0, 1], dtype=int32), Array([2], dtype=int32), Array([3, 4], dtype=int32)]
    """
    return _split("split", ary, indices_or_sections, axis)


def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """As `split`, the first parts being one longer if the division is not even.

    Args: ary, indices_or_sections, axis: as for `split`.

    >>> jnp.array_split(jnp.arange(5), 2)
    [Array([0, 1, 2], dtype=int32), Array([3, 4], dtype=int32)]
    """
    return _split("array_split", ary, indices_or_sections, axis)


def vsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Splits along the first axis.

    Args: ary: array of rank 2 or more; indices_or_sections: as for `split`, with its errors.

    >>> jnp.vsplit(jnp.array([[1, 2], [3, 4]]), 2)
    [Array([[1, 2]], dtype=int32), Array([[3, 4]], dtype=int32)]
    """
    return _split("vsplit", ary, indices_or_sections, 0)


def hsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Splits along the second axis, a vector along its only one.

    Args: ary: array of rank 1 or more; indices_or_sections: as for `split`, with its errors.

    >>> jnp.hsplit(jnp.array([[1, 2], [3, 4]]), 2)
    [Array([[1],
           [3]], dtype=int32), Array([[2],
           [4]], dtype=int32)]
    """
    a = ensure_array(ary, "hsplit")
    return _split("hsplit", a, indices_or_sections, 0 if a.ndim == 1 else 1)


def dsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Splits along the third axis.

    Args: ary: array of rank 3 or more; indices_or_sections: as for `split`, with its errors.

    >>> [part.shape for part in jnp.dsplit(jnp.zeros((1, 2, 4)), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return _split("dsplit", ary, indices_or_sections, 2)


@jit(static_argnames=("axis",), inline=True)
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Splits along an axis into a tuple of arrays without it.

    Args: x: array of rank 1 or more; axis: the axis. Raises: ValueError for a scalar.

    >>> jnp.unstack(jnp.array([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    x = ensure_array(x, "unstack")
    if x.ndim == 0:
        raise ValueError("unstack: a scalar has no axis to take apart")
    axis = normalize_axis(axis, x.ndim)
    return tuple(lax.unstack(x, axis=axis))
