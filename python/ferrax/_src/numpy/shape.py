"""Functions that ask for the shape of arrays or change it without computing on elements.

Invariants: axes may be negative everywhere; a function that changes nothing returns its argument.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.base.jax_version import several
from ferrax._src.base.traceback_util import bounded, leave
from ferrax._src.core import Array, as_array, concrete_or_error, is_concrete
from ferrax._src.core.typing import ArrayLike, Axis, Shape
from ferrax._src.lax import api as lax
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.numpy.array_creation import asarray
from ferrax._src.numpy.ufuncs import isnan
from ferrax._src.numpy.util import (
    broadcast_to as _broadcast_to,
    canonical_shape,
    ensure_array,
    ensure_arrays,
    is_array_like,
    normalize_axes,
    normalize_axis,
    promote_dtypes,
)
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------- queries


def shape(a: ArrayLike) -> tuple[int, ...]:
    """The shape as a tuple of ints; lists are accepted with a DeprecationWarning.

    Args: a: array, scalar or nested sequence.

    >>> jnp.shape(jnp.zeros((2, 3)))
    (2, 3)
    """
    if hasattr(a, "shape"):
        return tuple(a.shape)
    if hasattr(a, "__jax_array__"):
        return as_array(a).shape
    _warn_not_array("shape", a)
    return np.shape(a)


def ndim(a: ArrayLike) -> int:
    """The number of axes.

    Args: a: array, scalar or nested sequence (with a DeprecationWarning).

    >>> jnp.ndim(jnp.zeros((2, 3)))
    2
    """
    if hasattr(a, "ndim"):
        return a.ndim
    if hasattr(a, "__jax_array__"):
        return as_array(a).ndim
    _warn_not_array("ndim", a)
    return np.ndim(a)


def size(a: Any, axis: Any = None) -> int:
    """The number of elements, or the product of the sizes of some axes.

    Args: a: array or scalar; axis: None (all axes), an axis or a tuple. Raises: ValueError for an
    axis out of bounds.

    >>> jnp.size(jnp.zeros((2, 3)), axis=1)
    3
    """
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
            stacklevel=user_stacklevel(),
        )


def iscomplexobj(x: Any) -> bool:
    """True if the dtype is complex, whatever the values.

    Args: x: array, scalar or dtype.

    >>> jnp.iscomplexobj(jnp.array(1 + 0j)), jnp.iscomplexobj(2.0)
    (True, False)
    """
    if x is None:
        return False
    try:
        dtype = x.dtype
    except AttributeError:
        dtype = asarray(x).dtype
    return bool(dtypes.issubdtype(dtype, np.complexfloating))


def isrealobj(x: Any) -> bool:
    """True if the dtype is not complex.

    Args: x: array or scalar.

    >>> jnp.isrealobj(jnp.array(1 + 0j)), jnp.isrealobj(2.0)
    (False, True)
    """
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """True for numbers and 0-d arrays.

    Args: element: any object.

    >>> jnp.isscalar(2.0), jnp.isscalar(jnp.array(2.0)), jnp.isscalar([2.0])
    (True, True, False)
    """
    if np.isscalar(element) or isinstance(element, (np.generic,)):
        return True
    if hasattr(element, "__jax_array__"):
        element = element.__jax_array__()
    return getattr(element, "ndim", None) == 0


def iterable(y: Any) -> bool:
    """True if `iter(y)` works.

    Args: y: any object.

    >>> jnp.iterable(jnp.arange(3)), jnp.iterable(2)
    (True, False)
    """
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


@bounded
def reshape(
    a: ArrayLike, shape: Shape, order: str = "C", *, copy: bool | None = None,
    out_sharding: Any = None,
) -> Array:
    """Gives an array another shape of the same size; one entry may be -1.

    Args: a: array; shape: ints, or one int; order: "C" (row-major) or "F" (column-major); copy: any
    value, since arrays never change. The dtype stays. Raises: TypeError for a wrong size.

    >>> jnp.reshape(jnp.arange(6), (2, -1))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    try:
        if out_sharding is not None:
            return with_out_sharding("reshape", out_sharding, reshape, a, shape, order, copy=copy)
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
    except Exception:
        leave()
        raise


@jit(static_argnames=("order", "out_sharding"), inline=True)
def ravel(a: ArrayLike, order: str = "C", *, out_sharding: Any = None) -> Array:
    """Flattens to one axis.

    Args: a: array of any shape and dtype; order: "C" (row-major) or "F" (column-major). Raises:
    NotImplementedError for another order.

    >>> jnp.ravel(jnp.array([[1, 2], [3, 4]]), order="F")
    Array([1, 3, 2, 4], dtype=int32)
    """
    if out_sharding is not None:
        return with_out_sharding("ravel", out_sharding, ravel, a, order)
    if order == "K":
        raise NotImplementedError(
            "ravel: order='K' asks for a layout in memory, which arrays do not show; use 'C' or "
            "'F'"
        )
    a = ensure_array(a, "ravel")
    return reshape(a, (a.size,), order)


@bounded
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Permutes axes; None reverses them. Raises TypeError if `axes` is no permutation.

    Args: a: array of any dtype; axes: the operand's axis for each axis of the result.

    >>> jnp.transpose(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    try:
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
    except Exception:
        leave()
        raise


def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    """Permutes axes (array API name of `transpose`).

    Args: a: array; axes: the operand's axis for each axis of the result. Raises: TypeError for no
    permutation.

    >>> jnp.permute_dims(jnp.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return transpose(a, axes)


def matrix_transpose(x: ArrayLike, /) -> Array:
    """Swaps the last two axes; ValueError below rank 2.

    Args: x: array of shape (..., m, n), of any dtype.

    >>> jnp.matrix_transpose(jnp.array([[1, 2, 3]]))
    Array([[1],
           [2],
           [3]], dtype=int32)
    """
    x = ensure_array(x, "matrix_transpose")
    if x.ndim < 2:
        raise ValueError(
            f"matrix_transpose: needs two axes or more, got shape {tuple(x.shape)}"
        )
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@jit(static_argnames=("axis1", "axis2"), inline=True)
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Exchanges two axes.

    Args: a: array; axis1, axis2: the axes. Raises: ValueError for an axis out of bounds.

    >>> jnp.swapaxes(jnp.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
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
    """Moves axes to new positions; the others keep their order.

    Args: a: array; source, destination: an axis or as many axes as positions. Raises: ValueError
    for axes that are out of bounds, repeated or not as many.

    >>> jnp.moveaxis(jnp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
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
    """Moves an axis back to lie before position `start`.

    Args: a: array; axis: the one that moves. Raises: ValueError for an axis or a start out of
    bounds.

    >>> jnp.rollaxis(jnp.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    a = ensure_array(a, "rollaxis")
    start = operator.index(start)
    if not -a.ndim <= start <= a.ndim:
        raise ValueError(f"start={start!r} must satisfy -ndim<=start<=ndim, ndim={a.ndim}")
    axis = normalize_axis(axis, a.ndim)
    start += a.ndim if start < 0 else 0
    start -= axis < start
    return moveaxis(a, axis, start)


@bounded
def squeeze(a: ArrayLike, axis: Axis | None = None) -> Array:
    """Drops axes of size 1: all, or those named. ValueError if a named size is not 1.

    Args: a: array; axis: an axis, a tuple, or None.

    >>> jnp.squeeze(jnp.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    try:
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
    except Exception:
        leave()
        raise


@bounded
def expand_dims(a: ArrayLike, axis: Axis) -> Array:
    """Inserts axes of size 1 at positions of the result.

    Args: a: array; axis: a position or a tuple of them. Raises: ValueError if they are out of
    bounds or repeated.

    >>> jnp.expand_dims(jnp.arange(3), 0)
    Array([[0, 1, 2]], dtype=int32)
    """
    try:
        a = ensure_array(a, "expand_dims")
        axes = _axis_list(axis)
        rank = a.ndim + len(axes)
        out = tuple([normalize_axis(i, rank) for i in axes])
        if len(set(out)) != len(out):
            raise ValueError(f"repeated axis in expand_dims: {axes}")
        return lax.expand_dims(a, out) if out else a
    except Exception:
        leave()
        raise


def broadcast_to(array: ArrayLike, shape: Shape, *, out_sharding: Any = None) -> Array:
    """Broadcasts to a shape by NumPy's rule; ValueError if it does not fit.

    Args: array: of any dtype; shape: the result's.

    >>> jnp.broadcast_to(jnp.arange(3), (2, 3))
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    if out_sharding is not None:
        return with_out_sharding("broadcast_to", out_sharding, broadcast_to, array, shape)
    return _broadcast_to(ensure_array(array, "broadcast_to"), canonical_shape(shape))


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape of several shapes; ValueError if there is none.

    Args: shapes: tuples of ints, or ints.

    >>> jnp.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    shapes = tuple(canonical_shape(s) for s in shapes)
    return lax.broadcast_shapes(*shapes)


def broadcast_arrays(*args: Any) -> list[Array]:
    """Broadcasts arrays against each other; returns a list, a tuple where JAX 0.12 is followed.

    Args: args: arrays of any dtypes, which stay. Raises: ValueError if the shapes do not fit.

    >>> [x.shape for x in jnp.broadcast_arrays(jnp.ones((2, 1)), jnp.ones(3))]
    [(2, 3), (2, 3)]
    """
    args = ensure_arrays("broadcast_arrays", *args)
    target = lax.broadcast_shapes(*[tuple(x.shape) for x in args]) if args else ()
    return several([_broadcast_to(x, target) for x in args])


def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """0-d bool: same shape and equal elements; with `equal_nan`, NaNs are equal.

    Args: a1, a2: arrays of any shapes and dtypes; equal_nan: whether a NaN equals a NaN.

    >>> jnp.array_equal(jnp.arange(2), jnp.array([0.0, 1.0]))
    Array(True, dtype=bool)
    """
    return _array_equal("array_equal", a1, a2, equal_nan)


def _array_equal(name, a1, a2, equal_nan):
    try:
        a1, a2 = asarray(a1), asarray(a2)
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
    """0-d bool: equal elements after broadcasting; False if shapes do not broadcast.

    Args: a1, a2: arrays of any shapes and dtypes.

    >>> jnp.array_equiv(jnp.ones((2, 2)), 1)
    Array(True, dtype=bool)
    """
    try:
        a1, a2 = broadcast_arrays(asarray(a1), asarray(a2))
    except (TypeError, ValueError):
        return as_array(np.bool_(False))
    return _array_equal("array_equiv", a1, a2, False)


def trim_zeros(filt: Any, trim: str = "fb", axis: Axis | None = None) -> Array:
    """Removes zeros at the front ("f") and back ("b") of a concrete array.

    Args: filt: array; trim: which ends, "fb", "f" or "b"; axis: the axes, None for all. Raises:
    ConcretizationTypeError for a tracer, since values decide the shape.

    >>> jnp.trim_zeros(jnp.array([0, 1, 0, 2, 0]))
    Array([1, 0, 2], dtype=int32)
    """
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


