"""Linear algebra: norms, products, powers, diagonals. What decomposes matrices is in
`decompositions` and `systems`.

Invariant: a norm of integers is taken in floats, except the orders 1, inf and -inf of
`vector_norm`, which are integers themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.core import Array, concrete_or_error
from ferrax._src.core.typing import ArrayLike, Axis, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import decompositions, matrices, products, reductions, shape, systems
from ferrax._src.numpy.util import (
    broadcast_to,
    constant,
    ensure_array,
    ensure_arrays,
    normalize_axes,
    normalize_axis,
    promote_dtypes,
    promote_dtypes_inexact,
    strong_constant,
    where,
)
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------- norms


@jit(static_argnames=("ord", "axis", "keepdims"))
def norm(x: ArrayLike, ord: Any = None, axis: Axis | None = None, keepdims: bool = False) -> Array:
    """Norm of a vector or of a matrix, or of many along one or two axes.

    Args: x: array; integers become floats. ord: of vectors any number (see `vector_norm`), of
    matrices None or "fro" (root of the sum of squares), 1 and -1 (largest and smallest sum of a
    column's absolute values), inf and -inf (of a row's), 2, -2 and "nuc" (largest and smallest
    singular value, and the sum of them). axis: an axis for vectors, two for matrices, or None: all
    axes, at most two unless `ord` is None. keepdims: keep the axes with size 1. Returns real
    floats.
    Raises: ValueError for another order, other numbers of axes, an axis out of bounds, and for
    -1, -inf and -2 of no columns or rows; NotImplementedError for 2, -2 and "nuc" of matrices of
    16-bit floats.

    >>> jnp.linalg.norm(jnp.array([3.0, 4.0]))
    Array(5., dtype=float32)
    """
    (x,) = promote_dtypes_inexact(ensure_array(x, "jnp.linalg.norm"))
    if axis is None and ord is None:
        return _root_of_squares(x, None, keepdims)
    axes = normalize_axes(axis, x.ndim)
    if len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=ord)
    if len(axes) == 2:
        return _norm_of_matrices(x, ord, axes, keepdims)
    raise ValueError(
        f"ferrax.numpy.linalg.norm: {len(axes)} axes, {axes}, of an array of shape"
        f" {tuple(x.shape)}; pass axis= with one axis for norms of vectors or two for norms of"
        " matrices."
    )


def _root_of_squares(x, axis, keepdims):
    squares = ufuncs.real(ufuncs.multiply(x, ufuncs.conj(x)))
    return ufuncs.sqrt(reductions.sum(squares, axis=axis, keepdims=keepdims))


def _norm_of_matrices(x, ord, axes, keepdims):
    if ord is None or (isinstance(ord, str) and ord in ("f", "fro")):
        return _root_of_squares(x, axes, keepdims)
    if ord in ("nuc", 2, -2):
        return _norm_of_singular_values(x, ord, axes, keepdims)
    if isinstance(ord, str) or ord not in (1, -1, np.inf, -np.inf):
        raise ValueError(
            f"Invalid order '{ord}' for matrix norm: expected None, 'fro', 'nuc', 1, -1, 2, -2,"
            " inf or -inf."
        )
    row, column = axes
    inner, outer = (row, column) if abs(ord) == 1 else (column, row)
    sums = reductions.sum(ufuncs.abs(x), axis=inner, keepdims=True)
    if ord > 0:
        out = reductions.max(sums, axis=outer, keepdims=True, initial=0)
    else:
        out = reductions.min(sums, axis=outer, keepdims=True)
    return out if keepdims else lax.squeeze(out, tuple(sorted(axes)))


def _norm_of_singular_values(x, ord, axes, keepdims):
    s = decompositions.svd(shape.moveaxis(x, axes, (-2, -1)), compute_uv=False)
    if isinstance(ord, str):  # the nuclear norm
        norms = reductions.sum(s, axis=-1)
    elif ord > 0:
        norms = reductions.max(s, axis=-1, initial=0)
    else:
        norms = reductions.min(s, axis=-1)
    return norms if not keepdims else lax.expand_dims(norms, axes)


def vector_norm(
    x: ArrayLike, /, *, axis: Axis | None = None, keepdims: bool = False, ord: Any = 2
) -> Array:
    """Norm of the elements along axes, as of one vector.

    Args: x: array. axis: None (all axes, flattened), an axis or several. keepdims: keep the axes
    with size 1. ord: 2 (or None); inf and -inf: the largest and smallest absolute value; 0: the
    number of elements that are not zero; else any p: `sum(abs(x)**p) ** (1/p)`. It is a constant.
    Returns real floats; integers for the orders 1, inf and -inf of integers.
    Raises: ValueError for a string, an axis out of bounds or twice, -inf of no elements; TypeError
    for an order that is no real number.

    >>> jnp.linalg.vector_norm(jnp.ones((2, 9)), axis=1)
    Array([3., 3.], dtype=float32)
    """
    x = ensure_array(x, "jnp.linalg.vector_norm")
    if isinstance(ord, str):
        hint = f" Use {ord.replace('inf', 'jnp.inf')}." if ord in ("inf", "-inf") else ""
        raise ValueError(f"Invalid order '{ord}' for vector norm: expected a number.{hint}")
    order = _order(ord)
    if order == np.inf:
        return reductions.max(ufuncs.abs(x), axis=axis, keepdims=keepdims, initial=0)
    if order == -np.inf:
        return reductions.min(ufuncs.abs(x), axis=axis, keepdims=keepdims)
    if order == 1:
        return reductions.sum(ufuncs.abs(x), axis=axis, keepdims=keepdims)
    if order == 2:
        # Squares of integers would wrap.
        return _root_of_squares(promote_dtypes_inexact(x)[0], axis, keepdims)
    if order == 0:
        dtype = dtypes.finfo(dtypes.to_inexact_dtype(x.dtype)).dtype
        return reductions.sum(
            lax.ne(x, strong_constant(0, x)), axis=axis, dtype=dtype, keepdims=keepdims
        )
    (x,) = promote_dtypes_inexact(x)
    sizes = ufuncs.abs(x)
    sums = reductions.sum(lax.pow(sizes, constant(order, sizes)), axis=axis, keepdims=keepdims)
    return lax.pow(sums, constant(1 / order, sums))


def _order(ord) -> float:
    """The order as a number; None is 2."""
    if ord is None:
        return 2.0
    if isinstance(ord, Array):
        return concrete_or_error(float, ord, "The ord argument of jnp.linalg.vector_norm().")
    try:
        return float(ord)
    except TypeError:
        raise TypeError(
            "ferrax.numpy.linalg.vector_norm: the order must be a real number or None, got"
            f" {ord!r} of type {type(ord).__name__}"
        ) from None


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Norms of the matrices of the last two axes; the orders and errors are those of `norm`.

    Args: x: array (..., m, n); keepdims: keep the two axes with size 1; ord: as for `norm`.

    >>> jnp.linalg.matrix_norm(jnp.ones((3, 2, 2)))
    Array([2., 2., 2.], dtype=float32)
    """
    x = ensure_array(x, "jnp.linalg.matrix_norm")
    return norm(x, ord=ord, axis=(-2, -1), keepdims=keepdims)


@jit(static_argnames=("p",))
def cond(x: ArrayLike, p: ArrayLike | None = None) -> Array:
    """Condition numbers (...) of matrices (..., m, n).

    Args: x: array; p: None or 2: the largest singular value divided by the smallest; -2: the
    inverse of that; "fro", "nuc", 1, -1, inf and -inf: this norm of the matrix times that of its
    inverse. A matrix without an inverse has inf.
    Raises: ValueError below rank 2, for no elements, for another order, and for another order's
    matrices that are not square.

    >>> jnp.linalg.cond(jnp.array([[4.0, 0.0], [0.0, 2.0]]))
    Array(2., dtype=float32)
    """
    x = ensure_array(x, "cond")
    got = f"got shape {tuple(x.shape)}"
    if x.ndim < 2:
        raise ValueError(f"jnp.linalg.cond: expected matrices in the last two axes; {got}")
    if 0 in x.shape[-2:]:
        raise ValueError(f"jnp.linalg.cond: an empty matrix has no condition number; {got}")
    if p is None or p == 2:
        s = decompositions.svdvals(x)
        return ufuncs.true_divide(s[..., 0], s[..., -1])
    if p != -2:
        if x.shape[-2] != x.shape[-1]:
            raise ValueError(f"jnp.linalg.cond: for {p=}, array must be square; {got}")
        out = ufuncs.multiply(
            norm(x, ord=p, axis=(-2, -1)), norm(systems.inv(x), ord=p, axis=(-2, -1))
        )
    else:
        s = decompositions.svdvals(x)
        out = ufuncs.true_divide(s[..., -1], s[..., 0])
    # 0 / 0 of the zero matrix, and inf - inf of one without an inverse.
    known = ufuncs.logical_not(reductions.any(lax.ne(x, x), axis=(-2, -1)))
    undefined = ufuncs.logical_and(lax.ne(out, out), known)
    return where(undefined, constant(np.inf, out), out)


# ---------------------------------------------------------------------------- products


def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`jnp.vecdot`: dot products along an axis, the first vector conjugated.

    Args: x1, x2, axis, precision, preferred_element_type: as for `numpy.vecdot`, with its errors.

    >>> jnp.linalg.vecdot(jnp.ones((2, 3)), jnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    x1, x2 = ensure_arrays("jnp.linalg.vecdot", x1, x2)
    return products.vecdot(
        x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type
    )


def matmul(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`jnp.matmul`: the matrix product, over leading axes that broadcast.

    Args: x1, x2: the factors; precision, preferred_element_type: as for `numpy.matmul`, with its
    errors.

    >>> jnp.linalg.matmul(jnp.ones((2, 3)), jnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    x1, x2 = ensure_arrays("jnp.linalg.matmul", x1, x2)
    return products.matmul(
        x1, x2, precision=precision, preferred_element_type=preferred_element_type
    )


def tensordot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axes: Axis = 2,
    precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Array:
    """`jnp.tensordot`: sums of products over `axes`, a number of axes or a pair of lists.

    Args: x1, x2: the factors; precision, preferred_element_type, out_sharding: as for
    `numpy.tensordot`, with its errors.

    >>> jnp.linalg.tensordot(jnp.ones((2, 3)), jnp.ones((2, 3)))
    Array(6., dtype=float32)
    """
    x1, x2 = ensure_arrays("jnp.linalg.tensordot", x1, x2)
    return products.tensordot(
        x1,
        x2,
        axes,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Products of all pairs of elements of two vectors, of shape (n, m).

    Raises: ValueError unless both have one axis (`jnp.outer` flattens).
    Args: x1, x2: vectors of n and m elements.

    >>> jnp.linalg.outer(jnp.arange(2), jnp.arange(3))
    Array([[0, 0, 0],
           [0, 1, 2]], dtype=int32)
    """
    vectors = ensure_arrays("jnp.linalg.outer", x1, x2)
    shapes = [tuple(vector.shape) for vector in vectors]
    if any(len(sizes) != 1 for sizes in shapes):
        raise ValueError(
            "ferrax.numpy.linalg.outer: expected two arrays of one axis, got shapes"
            f" {shapes[0]} and {shapes[1]}; jnp.outer flattens its arguments."
        )
    return products.outer(vectors[0], vectors[1])


def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """Vector products of 3-vectors along an axis; other axes broadcast.

    Raises: ValueError unless the axis has size 3 in both (`jnp.cross` takes 2-vectors too).
    Args: x1, x2: arrays; axis: the one of the vectors.

    >>> jnp.linalg.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    x1, x2 = ensure_arrays("jnp.linalg.cross", x1, x2)
    sizes = [x.shape[normalize_axis(axis, x.ndim)] for x in (x1, x2)]
    if sizes != [3, 3]:
        raise ValueError(
            f"ferrax.numpy.linalg.cross: expected vectors of 3 elements along axis {axis}, got"
            f" {sizes[0]} and {sizes[1]} in arrays of shapes {tuple(x1.shape)} and"
            f" {tuple(x2.shape)}; jnp.cross takes 2-vectors."
        )
    return products.cross(x1, x2, axis=axis)


def multi_dot(arrays: Sequence[ArrayLike], *, precision: Any = None) -> Array:
    """The matrix product of several arrays, in the order that needs the fewest multiplications.

    Args: arrays: two or more; of rank 2, save the first and last, which may be vectors. Their
    dtypes are promoted together. precision: of lax.
    Raises: ValueError for fewer arrays, other ranks, and sizes that do not match.

    The order is found by dynamic programming (Cormen et al., Introduction to Algorithms, section
    14.2 of the 4th ed.).

    >>> jnp.linalg.multi_dot([jnp.ones((1, 2)), jnp.ones((2, 9)), jnp.ones(9)])
    Array([18.], dtype=float32)
    """
    factors = list(ensure_arrays("jnp.linalg.multi_dot", *arrays))
    shapes = [tuple(x.shape) for x in factors]
    if len(factors) < 2:
        raise ValueError(
            f"ferrax.numpy.linalg.multi_dot: expected at least two arrays, got {len(factors)}"
        )
    inside = range(1, len(factors) - 1)
    if any(len(s) not in ((2,) if i in inside else (1, 2)) for i, s in enumerate(shapes)):
        raise ValueError(
            "ferrax.numpy.linalg.multi_dot: arrays must have two axes, the first and the last one"
            f" or two, got shapes {shapes}"
        )
    for i, (left, right) in enumerate(zip(shapes, shapes[1:])):
        if left[-1] != right[0]:
            raise ValueError(
                f"ferrax.numpy.linalg.multi_dot: the last axis of array {i} must match the first"
                f" of array {i + 1}, got sizes {left[-1]} and {right[0]} in shapes {shapes}"
            )
    factors = promote_dtypes(*factors)
    sizes = [shapes[0][0] if len(shapes[0]) == 2 else 1]
    sizes += [s[0] for s in shapes[1:]]
    sizes += [shapes[-1][1] if len(shapes[-1]) == 2 else 1]
    split = _chain_order(sizes)

    def product(first, last):
        if first == last:
            return factors[first]
        middle = split[first, last]
        return products.matmul(
            product(first, middle), product(middle + 1, last), precision=precision
        )

    return product(0, len(factors) - 1)


def _chain_order(sizes):
    """For each range of matrices, after which of them its product is split best.

    Matrix `i` is (sizes[i], sizes[i + 1]). Dynamic programming over ranges by length, Cormen et
    al., Introduction to Algorithms, "Matrix-chain multiplication".
    """
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split = {}
    for length in range(1, count):
        for first in range(count - length):
            last = first + length
            cost[first, last], split[first, last] = min(
                (
                    cost[first, middle]
                    + cost[middle + 1, last]
                    + sizes[first] * sizes[middle + 1] * sizes[last + 1],
                    middle,
                )
                for middle in range(first, last)
            )
    return split


@jit(static_argnames=("n",))
def matrix_power(a: ArrayLike, n: int) -> Array:
    """Square matrices of the last two axes, multiplied `n` times, by repeated squaring.

    Args: a: array (..., m, m); n: a constant, 0 gives the identity matrices, and a negative one powers of
    the inverses, in floats; else the dtype is kept.
    Raises: TypeError for matrices that are not square and an `n` that is no integer;
    NotImplementedError for a negative `n` and 16-bit floats.

    (Knuth, The Art of Computer Programming, vol. 2, section 4.6.3.)

    >>> jnp.linalg.matrix_power(jnp.array([[1, 1], [0, 1]]), 5)
    Array([[1, 5],
           [0, 1]], dtype=int32)
    """
    a = ensure_array(a, "jnp.linalg.matrix_power")
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise TypeError(
            "ferrax.numpy.linalg.matrix_power: expected square matrices in the last two axes, got"
            f" shape {tuple(a.shape)}"
        )
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(
            f"ferrax.numpy.linalg.matrix_power: the exponent must be an integer, got {n!r}"
        ) from None
    if n < 0:
        a, n = systems.inv(a), -n
    if n == 0:
        return broadcast_to(matrices.eye(a.shape[-1], dtype=a.dtype), tuple(a.shape))
    square: Array = a
    result: Any = None
    while True:
        n, bit = divmod(n, 2)
        if bit:
            result = square if result is None else products.matmul(result, square)
        if n == 0:
            return result
        square = products.matmul(square, square)


# ---------------------------------------------------------------------------- diagonals


def matrix_transpose(x: ArrayLike, /) -> Array:
    """Matrices of the last two axes, transposed. ValueError below rank 2.

    Args: x: array (..., m, n), of any dtype.

    >>> jnp.linalg.matrix_transpose(jnp.ones((4, 2, 3))).shape
    (4, 3, 2)
    """
    x = ensure_array(x, "jnp.linalg.matrix_transpose")
    if x.ndim < 2:
        raise ValueError(
            "ferrax.numpy.linalg.matrix_transpose: expected at least two axes, got shape"
            f" {tuple(x.shape)}"
        )
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def diagonal(x: ArrayLike, /, *, offset: Any = 0) -> Array:
    """Diagonals of the matrices of the last two axes, as a last axis. ValueError below rank 2.

    Args: x: array (..., m, n); offset: which diagonal, above the main one if positive.

    >>> jnp.linalg.diagonal(jnp.eye(3), offset=1)
    Array([0., 0.], dtype=float32)
    """
    x = ensure_array(x, "jnp.linalg.diagonal")
    return matrices.diagonal(x, offset=offset, axis1=-2, axis2=-1)


def trace(x: ArrayLike, /, *, offset: Any = 0, dtype: DTypeLike | None = None) -> Array:
    """Sums of the diagonals of the matrices of the last two axes; small integers are widened.

    Args: x: array (..., m, n); offset: of the diagonal, to the right; dtype: of the sums. ValueError
    below rank 2.

    >>> jnp.linalg.trace(jnp.ones((4, 3, 3)))
    Array([3., 3., 3., 3.], dtype=float32)
    """
    x = ensure_array(x, "jnp.linalg.trace")
    return matrices.trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)
