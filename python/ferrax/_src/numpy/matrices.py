"""Diagonals, triangles, grids and index arithmetic.

Invariant: masks are built from two iotas and one comparison, so that they fuse into consumers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np

from ferrax._core import Tracer, ufuncs
from ferrax._src.base import dtypes
from ferrax._src.base.config import numpy_dtype_promotion
from ferrax._src.base.jax_version import several
from ferrax._src.core import Array, as_array, concrete_or_error
from ferrax._src.core.typing import ArrayLike, DTypeLike, Shape
from ferrax._src.lax import api as lax
from ferrax._src.numpy.array_creation import _place, arange, linspace
from ferrax._src.numpy.joining import stack
from ferrax._src.numpy.reductions import sum as reduce_sum
from ferrax._src.numpy.rounding import clip
from ferrax._src.numpy.shape import ravel
from ferrax._src.numpy.ufuncs import floor_divide, power, remainder
from ferrax._src.numpy.util import (
    broadcast_to,
    canonical_shape,
    convert,
    ensure_array,
    ensure_arrays,
    is_subdtype,
    normalize_axis,
    reject_out,
    strong_constant,
    user_dtype,
    where,
)
from ferrax._src.transforms.jit import jit


def _int32(value):
    return as_array(np.int32(value))


def _offset(k):
    return _int32(k) if isinstance(k, (int, np.integer)) else convert(
        as_array(k), np.dtype(np.int32))


def _iotas(shape):
    return (lax.broadcasted_iota(np.int32, shape, len(shape) - 2),
            lax.broadcasted_iota(np.int32, shape, len(shape) - 1))


def _band(shape, k, compare):
    """Mask of positions where `compare(row + k, column)`."""
    rows, columns = _iotas(shape)
    return compare(lax.add(rows, _offset(k)), columns)


def eye(N: Any, M: Any = None, k: Any = 0, dtype: DTypeLike | None = None, *, device: Any = None) -> Array:
    """Ones on the k-th diagonal of an (N, M) matrix. ValueError for negative sizes.

    Args: N: rows; M: columns, None for as many; k: the diagonal, above the main one if positive;
    dtype: default float32; device: where to put it.

    >>> jnp.eye(2, 3, k=1)
    Array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    dtype = dtypes.default_float_dtype() if dtype is None else user_dtype(dtype, "eye")
    shape = canonical_shape((N, N if M is None else M))
    if min(shape) < 0:
        raise ValueError(f"eye: N and M cannot be negative, got {N} and {M}")
    if isinstance(k, (int, np.integer)):
        # Diagonals beyond the matrix are as empty as the first one there.
        k = max(-shape[0], min(operator.index(k), shape[1]))
    elif not dtypes.issubdtype(dtypes.dtype(k), np.integer):
        raise TypeError(f"jnp.eye: k must be an integer, got {k}")
    mask = _band(shape, k, lax.eq)
    return _place(mask if dtype == np.bool_ else lax.convert_element_type(mask, dtype), device)


def identity(n: int, dtype: DTypeLike | None = None) -> Array:
    """The (n, n) identity matrix.

    Args: n: rows and columns; dtype: default float32. Raises: ValueError for a negative size.

    >>> jnp.identity(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return eye(n, dtype=user_dtype(dtype, "identity"))


def tri(N: Any, M: Any = None, k: Any = 0, dtype: DTypeLike | None = None) -> Array:
    """Ones at and below the k-th diagonal.

    Args: N: rows; M: columns, None for as many; k: the diagonal; dtype: default float32.

    >>> jnp.tri(2, 3)
    Array([[1., 0., 0.],
           [1., 1., 0.]], dtype=float32)
    """
    dtype = np.dtype(np.float32) if dtype is None else user_dtype(dtype, "tri")
    shape = canonical_shape((N, N if M is None else M))
    if min(shape) < 0:
        raise ValueError(f"tri: N and M cannot be negative, got {N} and {M}")
    mask = _band(shape, k, lax.ge)
    return mask if dtype == np.bool_ else lax.convert_element_type(mask, dtype)


def _triangle(name, m, k, lower):
    m = ensure_array(m, name)
    if m.ndim < 2:
        raise ValueError(f"Argument to ferrax.numpy.{name} must be at least 2D")
    mask = _band(tuple(m.shape[-2:]), k if lower else k - 1, lax.ge)
    mask = broadcast_to(mask, tuple(m.shape))
    zeros = lax.full_like(m, 0)
    return lax.select_n(mask, zeros, m) if lower else lax.select_n(mask, m, zeros)


@jit(static_argnames=("k",))
def tril(m: ArrayLike, k: Any = 0) -> Array:
    """Zeroes elements above the k-th diagonal of the last two axes.

    Args: m: array of shape (..., m, n); k: the diagonal, above the main one if positive. Raises:
    ValueError below rank 2.

    >>> jnp.tril(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 0],
           [3, 4]], dtype=int32)
    """
    return _triangle("tril", m, k, True)


@jit(static_argnames=("k",))
def triu(m: ArrayLike, k: Any = 0) -> Array:
    """Zeroes elements below the k-th diagonal of the last two axes.

    Args: m: array of shape (..., m, n); k: the diagonal, above the main one if positive. Raises:
    ValueError below rank 2.

    >>> jnp.triu(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 2],
           [0, 4]], dtype=int32)
    """
    return _triangle("triu", m, k, False)


def _swap_last(a, axis1, axis2) -> Array:
    axis1, axis2 = normalize_axis(axis1, a.ndim), normalize_axis(axis2, a.ndim)
    if axis1 == axis2:
        raise ValueError("axis1 and axis2 cannot be same")
    rest = [d for d in range(a.ndim) if d not in (axis1, axis2)]
    permutation = (*rest, axis1, axis2)
    return a if permutation == tuple(range(a.ndim)) else lax.transpose(a, permutation)


@jit(static_argnames=("offset", "axis1", "axis2"))
def diagonal(a: ArrayLike, offset: Any = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonal of two axes, as a last axis. ValueError below rank 2.

    Args: a: array; offset: which diagonal, above the main one if positive; axis1, axis2: the two
    axes.

    >>> jnp.diagonal(jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    a = ensure_array(a, "diagonal")
    if a.ndim < 2:
        raise ValueError(f"diagonal: needs two axes or more, got shape {tuple(a.shape)}")
    a = _swap_last(a, axis1, axis2)
    rows, columns = a.shape[-2:]
    length = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    start = max(0, -offset) * columns + max(0, offset)
    if length == 0:
        return lax.full((*a.shape[:-2], 0), 0, a.dtype)
    flat = lax.reshape(a, (*a.shape[:-2], rows * columns))
    stop = start + (length - 1) * (columns + 1) + 1
    return lax.slice_in_dim(flat, start, stop, columns + 1, axis=-1)


@jit(static_argnames=("offset", "axis1", "axis2", "dtype"))
def trace(
    a: ArrayLike, offset: Any = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None,
    out: None = None,
) -> Array:
    """Sum of the diagonal of two axes; small integers are widened.

    Args: a: array of rank 2 or more; offset, axis1, axis2: as for `diagonal`; dtype: the result's.
    Raises: ValueError below rank 2, NotImplementedError for `out`.

    >>> jnp.trace(jnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    reject_out("trace", out)
    a = ensure_array(a, "trace")
    a = _swap_last(a, axis1, axis2)
    mask = broadcast_to(_band(tuple(a.shape[-2:]), offset, lax.eq), tuple(a.shape))
    return reduce_sum(where(mask, a, lax.full_like(a, 0)), axis=(-2, -1), dtype=dtype)


@jit(static_argnames=("k",))
def _diag(v, k):
    n = v.shape[0] + abs(k)
    padded = lax.pad(v, strong_constant(0, v), ((max(0, k), max(0, -k), 0),))
    mask = _band((n, n), k, lax.eq)
    wide = lax.broadcast_in_dim(padded, (n, n), (1,))
    return where(mask, wide, lax.full_like(wide, 0))


def diag(v: ArrayLike, k: Any = 0) -> Array:
    """The k-th diagonal of a matrix, or a matrix with a vector on it. ValueError otherwise.

    Args: v: a vector or a matrix; k: the diagonal, above the main one if positive.

    >>> jnp.diag(jnp.array([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    >>> jnp.diag(jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    v = ensure_array(v, "diag")
    k = operator.index(k)
    if v.ndim == 1:
        return _diag(v, k)
    if v.ndim == 2:
        return diagonal(v, offset=k)
    raise ValueError(f"diag: needs a vector or a matrix, got shape {tuple(v.shape)}")


def diagflat(v: ArrayLike, k: Any = 0) -> Array:
    """A matrix with the flattened input on its k-th diagonal.

    Args: v: array of any shape; k: the diagonal, above the main one if positive.

    >>> jnp.diagflat(jnp.array([[1, 2]]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    return _diag(ravel(ensure_array(v, "diagflat")), operator.index(k))


@jit(static_argnames=("N", "increasing"))
def vander(x: ArrayLike, N: Any = None, increasing: bool = False) -> Array:
    """Matrix of powers of a vector, falling unless `increasing`.

    Args: x: a vector; N: how many powers, None for its length; increasing: the lowest power first.
    Raises: ValueError for another rank or a negative N.

    >>> jnp.vander(jnp.array([2, 3]), 3)
    Array([[4, 2, 1],
           [9, 3, 1]], dtype=int32)
    """
    x = ensure_array(x, "vander")
    if x.ndim != 1:
        raise ValueError(f"vander: x has to be a vector, got shape {tuple(x.shape)}")
    N = x.shape[0] if N is None else operator.index(N)
    if N < 0:
        raise ValueError("N must be nonnegative")
    powers = lax.iota(x.dtype, N)
    if not increasing:
        powers = lax.sub(strong_constant(N - 1, x), powers)
    return power(lax.expand_dims(x, (1,)), lax.expand_dims(powers, (0,)))


# ---------------------------------------------------------------------------- index arrays


def _static_indices(arrays):
    return tuple(as_array(i.astype(dtypes.default_int_dtype())) for i in arrays)


def _known(name, n, k, m):
    """The arguments as Python integers; ConcretizationTypeError for traced ones."""
    what = f"argument of jnp.{name}(). Indices have a shape that must be known while tracing."
    n, k = (concrete_or_error(operator.index, x, f"'{y}' {what}") for x, y in ((n, "n"), (k, "k")))
    return n, k, None if m is None else concrete_or_error(operator.index, m, f"'m' {what}")


def tril_indices(n: int, k: Any = 0, m: ArrayLike | None = None) -> tuple[Array, Array]:
    """Row and column indices of the lower triangle of an (n, m) matrix.

    Args: n: rows; m: columns, None for as many; k: the diagonal.

    >>> jnp.tril_indices(2)
    (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    return _static_indices(np.tril_indices(*_known("tril_indices", n, k, m)))


def triu_indices(n: int, k: Any = 0, m: ArrayLike | None = None) -> tuple[Array, Array]:
    """Row and column indices of the upper triangle of an (n, m) matrix.

    Args: n: rows; m: columns, None for as many; k: the diagonal.

    >>> jnp.triu_indices(2)
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    return _static_indices(np.triu_indices(*_known("triu_indices", n, k, m)))


def _matrix_shape(name, arr):
    dims = tuple(arr.shape) if hasattr(arr, "shape") else ensure_array(arr, name).shape
    if len(dims) != 2:
        raise ValueError(f"Only 2-D inputs are accepted by jnp.{name}, got shape {dims}")
    return dims


def tril_indices_from(arr: ArrayLike, k: Any = 0) -> tuple[Array, Array]:
    """`tril_indices` for the shape of a matrix.

    Args: arr: a matrix; k: the diagonal. Raises: ValueError for another rank.

    >>> jnp.tril_indices_from(jnp.zeros((2, 2)))
    (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    n, m = _matrix_shape("tril_indices_from", arr)
    return tril_indices(n, k, m)


def triu_indices_from(arr: ArrayLike, k: Any = 0) -> tuple[Array, Array]:
    """`triu_indices` for the shape of a matrix.

    Args: arr: a matrix; k: the diagonal. Raises: ValueError for another rank.

    >>> jnp.triu_indices_from(jnp.zeros((2, 2)))
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    n, m = _matrix_shape("triu_indices_from", arr)
    return triu_indices(n, k, m)


@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: Literal[False] = False
) -> Array: ...
@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, *, sparse: Literal[True]
) -> tuple[Array, ...]: ...
@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: bool = False
) -> Any: ...
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: bool = False
) -> Array | tuple[Array, ...]:
    """Index arrays of a grid, stacked on a first axis, or a tuple of open ones if `sparse`.

    Args: dimensions: the sizes of the grid; dtype: default int32; sparse: open arrays, which
    broadcast.

    >>> jnp.indices((2, 2))
    Array([[[0, 0],
            [1, 1]],
    <BLANKLINE>
           [[0, 1],
            [0, 1]]], dtype=int32)
    """
    dtype = dtypes.default_int_dtype() if dtype is None else user_dtype(dtype, "indices")
    dims = canonical_shape(dimensions)
    out = []
    for i, n in enumerate(dims):
        shape = tuple(n if i == d else 1 for d in range(len(dims))) if sparse else dims
        out.append(lax.broadcast_in_dim(lax.iota(dtype, n), shape, (i,)))
    if sparse:
        return tuple(out)
    return stack(out) if out else lax.full((0,), 0, dtype)


def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Array]:
    """Coordinate arrays of the grid of vectors: a list of arrays, a tuple where JAX 0.12 is followed.

    Args: sparse: keep size 1 where an array does not vary; indexing: "xy" swaps the first two
    axes, "ij" does not; copy: only True. Raises ValueError for inputs above rank 1.

    xi: the vectors (scalars count as one of size 1).

    >>> x, y = jnp.meshgrid(jnp.arange(3), jnp.arange(2))
    >>> y
    Array([[0, 0, 0],
           [1, 1, 1]], dtype=int32)
    """
    args = ensure_arrays("meshgrid", *xi)
    if not copy:
        raise ValueError("ferrax.numpy.meshgrid only supports copy=True")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing has to be 'xy' or 'ij', got {indexing!r}")
    if any(x.ndim != 1 for x in args):
        raise ValueError(
            "meshgrid: expected vectors of coordinates, got shapes"
            f" {[tuple(x.shape) for x in args]}"
        )
    order = list(range(len(args)))
    if indexing == "xy" and len(args) >= 2:
        order[0], order[1] = 1, 0
    dims = [args[i].shape[0] for i in order]
    out = []
    for i, x in enumerate(args):
        axis = order.index(i)
        shape = [n if d == axis or not sparse else 1 for d, n in enumerate(dims)]
        out.append(lax.broadcast_in_dim(x, tuple(shape), (axis,)))
    return several(out)


def unravel_index(indices: ArrayLike, shape: Shape) -> tuple[Array, ...]:
    """Coordinates of flat indices in a C-ordered shape; indices out of bounds are clipped.

    Args: indices: integers; shape: integers, which may be traced. Returns: a tuple of arrays of the
    shape of `indices`.

    >>> jnp.unravel_index(jnp.array([1, 5]), (2, 3))
    (Array([0, 1], dtype=int32), Array([1, 2], dtype=int32))
    """
    indices = ensure_array(indices, "unravel_index")
    sizes: Sequence[Any] = shape if isinstance(shape, (tuple, list)) else (shape,)
    if any(isinstance(size, Tracer) for size in sizes):
        total: Any = 1
        for size in sizes:
            total = ufuncs.multiply(total, size)
        flat = clip(indices, ufuncs.negative(total), ufuncs.subtract(total, 1))
    else:
        sizes = canonical_shape(shape)
        total = math.prod(sizes)
        flat = clip(indices, -total, total - 1) if total else indices
    flat = where(ufuncs.less(flat, 0), ufuncs.add(flat, total), flat)
    out = []
    for size in reversed(sizes):
        out.append(remainder(flat, size))
        flat = floor_divide(flat, size)
    return tuple(reversed(out))


def ravel_multi_index(
    multi_index: Sequence[ArrayLike], dims: Sequence[int], mode: Any = "raise", order: str = "C",
    *, dtype: DTypeLike | None = None,
) -> Array:
    """Flat indices of coordinates.

    Args: mode: "raise" (concrete coordinates only), "wrap", "clip" or "ignore"; order: "C" or "F".
    Raises ValueError for entries out of bounds in mode "raise".
    multi_index: one integer array for each axis; dims: the shape that they index.

    >>> jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([1, 2])), (2, 3))
    Array([1, 5], dtype=int32)
    """
    if len(multi_index) != len(dims):
        raise ValueError(f"len(multi_index)={len(multi_index)} != len(dims)={len(dims)}")
    dims = tuple(concrete_or_error(operator.index, d, "ravel_multi_index: dims shape the program")
                 for d in dims)
    index = list(ensure_arrays("ravel_multi_index", *multi_index))
    for x in index:
        if not is_subdtype(x, np.integer):
            raise ValueError(f"ravel_multi_index: indices must be integers, got {x.dtype}")
    if mode == "raise":
        for x, n in zip(index, dims):
            values = np.asarray(concrete_or_error(
                None, x,
                "ravel_multi_index with mode='raise' looks at the indices, which is not possible "
                "while"
                " tracing; use mode='wrap' or mode='clip'."))
            if ((values < 0) | (values >= n)).any():
                raise ValueError(
                    "invalid entry in coordinates array: an index lies outside of dims; there are"
                    " mode='clip' and mode='wrap'"
                )
    elif mode == "clip":
        index = [clip(x, 0, n - 1) for x, n in zip(index, dims)]
    elif mode == "wrap":
        index = [remainder(x, n) for x, n in zip(index, dims)]
    elif mode != "ignore":
        raise ValueError(f"invalid mode={mode!r}. Expected 'raise', 'wrap', 'clip', or 'ignore'")
    if order not in ("C", "F"):
        raise ValueError(f"ravel_multi_index: order has to be 'C' or 'F', got {order!r}")
    strides = np.cumprod((1, *(dims[1:][::-1] if order == "C" else dims[:-1])))
    strides = strides[::-1] if order == "C" else strides
    target = user_dtype(dtype, "ravel_multi_index") or dtypes.default_int_dtype()
    result = _zero(target)
    for x, s in zip(index, strides):
        result = ufuncs.add(result, ufuncs.multiply(convert(x, target), int(s)))
    return result


def _zero(dtype):
    return as_array(np.zeros((), dtype))


# ---------------------------------------------------------------------------- grid objects


def _axis_values(key):
    start, stop, step = key.start, key.stop, key.step
    start = 0 if start is None else start
    if isinstance(step, complex):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, 1 if step is None else step)


class _Grid:
    """The index arrays of a grid from slices: `mgrid` a dense one, `ogrid` one that broadcasts.

    An imaginary step is a number of points, the last included. All have the one dtype.

    >>> jnp.ogrid[0:2, 0:1:3j]
    [Array([[0.],
           [1.]], dtype=float32), Array([[0. , 0.5, 1. ]], dtype=float32)]
    """

    def __init__(self, name, sparse):
        self._name, self._sparse = name, sparse

    def __repr__(self):
        return f"<ferrax.numpy.{self._name}>"

    def __getitem__(self, key):
        if isinstance(key, slice):
            return _axis_values(key)
        axes = [_axis_values(k) for k in key]
        with numpy_dtype_promotion("standard"):
            dtype = dtypes.result_type(*axes) if axes else None
        grid = meshgrid(*[convert(x, dtype) for x in axes], indexing="ij", sparse=self._sparse)
        if self._sparse:
            return grid
        return stack(grid) if grid else as_array(np.zeros((0,), dtypes.default_int_dtype()))


mgrid = _Grid("mgrid", False)
ogrid = _Grid("ogrid", True)


# ---------------------------------------------------------------------------- windows


def _window(name, M):
    M = concrete_or_error(operator.index, M, f"M argument of jnp.{name}")
    dtype = dtypes.default_float_dtype()
    return M, dtype, lax.iota(dtype, max(M, 0))


def _cosine_window(name, M, coefficients):
    M, dtype, n = _window(name, M)
    if M <= 1:
        return lax.full((max(M, 0),), 1, dtype)
    first, *others = coefficients
    out = as_array(np.asarray(first, dtype))
    for k, c in enumerate(others, 1):
        angle = lax.mul(n, as_array(np.asarray(2 * np.pi * k / (M - 1), dtype)))
        out = lax.add(out, lax.mul(lax.cos(angle), as_array(np.asarray(c, dtype))))
    return out


def blackman(M: Any) -> Array:
    """Blackman window of M points.

    Args: M: a static int. Returns: a float vector; it is empty for M < 1. It sums three cosine
    terms (Blackman and Tukey, The Measurement of Power Spectra, 1958, B.5).

    >>> jnp.blackman(5)[1:4].round(2)
    Array([0.34, 1.  , 0.34], dtype=float32)
    """
    return _cosine_window("blackman", M, (0.42, -0.5, 0.08))


def hamming(M: Any) -> Array:
    """Hamming window of M points.

    Args: M: a static int. Returns: a float vector; it is empty for M < 1. (Blackman and Tukey, The
    Measurement of Power Spectra, 1958, B.5.)

    >>> jnp.hamming(3)
    Array([0.08000001, 1.        , 0.08000001], dtype=float32)
    """
    return _cosine_window("hamming", M, (0.54, -0.46))


def hanning(M: Any) -> Array:
    """Hann window of M points.

    Args: M: a static int. Returns: a float vector, which ends in zeros; it is empty for M < 1.
    (Blackman and Tukey, The Measurement of Power Spectra, 1958, B.5.)

    >>> jnp.hanning(3)
    Array([0., 1., 0.], dtype=float32)
    """
    return _cosine_window("hanning", M, (0.5, -0.5))


def bartlett(M: Any) -> Array:
    """Triangular window of M points that ends in zeros.

    Args: M: a static int. Returns: a float vector; it is empty for M < 1.

    >>> jnp.bartlett(5)
    Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    M, dtype, n = _window("bartlett", M)
    if M <= 1:
        return lax.full((max(M, 0),), 1, dtype)
    ramp = lax.mul(n, as_array(np.asarray(2 / (M - 1), dtype)))
    one = as_array(np.asarray(1, dtype))
    return lax.sub(one, lax.abs(lax.sub(ramp, one)))
