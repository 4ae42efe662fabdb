"""Matrices that a few numbers determine.

Those of a size alone are computed on the host, in integers where they have integers, and rounded
once. Those of vectors are gathers by constant indices: leading axes are batches, whatever the dtype.
"""

from __future__ import annotations

import math
import operator

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import (
    ensure_array,
    ensure_arrays,
    promote_args_inexact,
    promote_dtypes,
    user_dtype,
)


def _constant(rows) -> Array:
    """A matrix of Python numbers in the default floating dtype."""
    return jnp.asarray(np.array(rows, np.float64), dtype=dtypes.default_float_dtype())


def _size(name: str, n: int, least: int = 0) -> int:
    n = operator.index(n)
    if n < least:
        raise ValueError(f"{name}: n must be at least {least}, got {n}")
    return n


def _vector(name: str, x: Array, least: int = 0) -> Array:
    """At least one axis, whose size is at least this."""
    x = jnp.atleast_1d(x)
    if x.shape[-1] < least:
        raise ValueError(
            f"{name}: the last axis must have at least {least} elements, got shape {tuple(x.shape)}"
        )
    return x


def _batched(*arrays: Array) -> list[Array]:
    """Arrays with one batch, all axes but the last."""
    batch = np.broadcast_shapes(*(tuple(x.shape[:-1]) for x in arrays))
    return [jnp.broadcast_to(x, (*batch, x.shape[-1])) for x in arrays]


def block_diag(*arrs: ArrayLike) -> Array:
    """A matrix with matrices along its diagonal and zeros beside them.

    Args: arrs: matrices; vectors and scalars are rows. None give a matrix of shape (1, 0).

    Errors: ValueError for more than two axes.

    >>> ferrax.scipy.linalg.block_diag(jnp.ones((1, 2)), 3.0)
    Array([[1., 1., 0.],
           [0., 0., 3.]], dtype=float32)
    """
    if not arrs:
        return jnp.zeros((1, 0))
    blocks = promote_dtypes(*ensure_arrays("block_diag", *arrs))
    for place, block in enumerate(blocks):
        if block.ndim > 2:
            raise ValueError(
                f"block_diag: matrices are expected, got shape {tuple(block.shape)} at argument {place}"
            )
    blocks = [jnp.atleast_2d(block) for block in blocks]
    columns = sum(block.shape[1] for block in blocks)
    rows, start = [], 0
    for block in blocks:
        after = columns - start - block.shape[1]
        rows.append(jnp.pad(block, ((0, 0), (start, after))))
        start += block.shape[1]
    return jnp.concatenate(rows, axis=0)


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """The matrix that is constant along its diagonals.

    Args:
        c: the first column, array `(..., m)`.
        r: the first row, array `(..., n)`, of which the first element does not count; `conj(c)` by
            default.

    Returns: array `(..., m, n)`.

    >>> ferrax.scipy.linalg.toeplitz(jnp.array([1, 2, 3]), jnp.array([0, 4]))
    Array([[1, 4],
           [2, 1],
           [3, 2]], dtype=int32)
    """
    column = _vector("toeplitz", ensure_array(c, "toeplitz"))
    row = (
        jnp.conjugate(column) if r is None else _vector("toeplitz", ensure_array(r, "toeplitz", 1))
    )
    column, row = _batched(*promote_dtypes(column, row))
    m, n = column.shape[-1], row.shape[-1]
    if not m or not n:
        return jnp.empty((*column.shape[:-1], m, n), column.dtype)
    diagonals = jnp.concatenate([jnp.flip(column, -1), row[..., 1:]], axis=-1)
    return diagonals[..., np.arange(n)[None, :] - np.arange(m)[:, None] + (m - 1)]


def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """The matrix that is constant along its antidiagonals.

    Args:
        c: the first column, array `(..., m)`.
        r: the last row, array `(..., n)`, of which the first element does not count; zeros like c by
            default.

    Returns: array `(..., m, n)`. Errors: ValueError for scalars.

    >>> ferrax.scipy.linalg.hankel(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 3, 0],
           [3, 0, 0]], dtype=int32)
    """
    column = ensure_array(c, "hankel")
    row = jnp.zeros_like(column) if r is None else ensure_array(r, "hankel", 1)
    if not column.ndim or not row.ndim:
        raise ValueError("hankel: c and r must have at least one axis, got a scalar")
    column, row = _batched(*promote_dtypes(column, row))
    m, n = column.shape[-1], row.shape[-1]
    antidiagonals = jnp.concatenate([column, row[..., 1:]], axis=-1)
    return antidiagonals[..., np.arange(m)[:, None] + np.arange(n)[None, :]]


def circulant(c: ArrayLike) -> Array:
    """The matrix whose columns are a vector, each turned by one element more.

    Args: c: the first column, array `(..., n)`. Returns: array `(..., n, n)`.

    >>> ferrax.scipy.linalg.circulant(jnp.array([1, 2, 3]))
    Array([[1, 3, 2],
           [2, 1, 3],
           [3, 2, 1]], dtype=int32)
    """
    column = _vector("circulant", ensure_array(c, "circulant"))
    places = np.arange(column.shape[-1])
    return column[..., (places[:, None] - places[None, :]) % max(len(places), 1)]


def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """Leslie's matrix of a population: fecundities in the first row, survivals under the diagonal.

    Args: f: array `(..., n)`, n of at least 2; s: array `(..., n - 1)`.
    Returns: array `(..., n, n)`. Errors: ValueError for other sizes. Leslie (Biometrika 33, 1945).

    >>> ferrax.scipy.linalg.leslie(jnp.array([0.1, 2.0]), jnp.array([0.5]))
    Array([[0.1, 2. ],
           [0.5, 0. ]], dtype=float32)
    """
    first, survivals = promote_dtypes(*ensure_arrays("leslie", f, s))
    first, survivals = _vector("leslie", first, 2), _vector("leslie", survivals)
    n = first.shape[-1]
    if survivals.shape[-1] != n - 1:
        raise ValueError(
            f"leslie: s must have one element less than f, got the shapes {tuple(survivals.shape)} and "
            f"{tuple(first.shape)}"
        )
    return _with_subdiagonal(*_batched(first, survivals))


def _with_subdiagonal(first: Array, below: Array) -> Array:
    """The square matrix with this first row and this subdiagonal."""
    n = first.shape[-1]
    lower = jnp.where(np.eye(n - 1, n, dtype=bool), below[..., :, None], jnp.zeros((), below.dtype))
    return jnp.concatenate([first[..., None, :], lower], axis=-2)


def companion(a: ArrayLike) -> Array:
    """The companion matrix of a polynomial, whose eigenvalues are its roots.

    Args: a: coefficients from the highest power on, array `(..., n)` of at least two; integers become
    floats. The first must not be 0.
    Returns: array `(..., n - 1, n - 1)`. Errors: ValueError for fewer coefficients.

    >>> ferrax.scipy.linalg.companion(jnp.array([1.0, -10.0, 31.0]))
    Array([[ 10., -31.],
           [  1.,   0.]], dtype=float32)
    """
    (a,) = promote_args_inexact("companion", a)
    a = _vector("companion", a, 2)
    first = -a[..., 1:] / a[..., :1]
    return _with_subdiagonal(first, jnp.ones_like(first[..., 1:]))


def fiedler(a: ArrayLike) -> Array:
    """The symmetric matrix of distances `|a[i] - a[j]|`.

    Args: a: array `(..., n)`. Returns: array `(..., n, n)`.

    >>> ferrax.scipy.linalg.fiedler(jnp.array([1, 4, 6]))
    Array([[0, 3, 5],
           [3, 0, 2],
           [5, 2, 0]], dtype=int32)
    """
    a = _vector("fiedler", ensure_array(a, "fiedler"))
    return jnp.abs(a[..., :, None] - a[..., None, :])


def fiedler_companion(a: ArrayLike) -> Array:
    """Fiedler's companion matrix of a polynomial: pentadiagonal, with its roots for eigenvalues.

    Args: a: coefficients from the highest power on, array `(..., n)`; integers become floats. The first
    must not be 0.
    Returns: array `(..., n - 1, n - 1)`. Errors: ValueError for no coefficients.

    Fiedler, "A note on companion matrices" (Linear Algebra Appl. 372, 2003).

    >>> ferrax.scipy.linalg.fiedler_companion(jnp.array([1.0, -16.0, 86.0, -176.0]))
    Array([[  16.,  -86.,    1.],
           [   1.,    0.,    0.],
           [   0.,  176.,    0.]], dtype=float32)
    """
    (a,) = promote_args_inexact("fiedler_companion", a)
    a = _vector("fiedler_companion", a, 1)
    n = a.shape[-1] - 1
    if n < 1:
        return jnp.zeros((*a.shape[:-1], 0, 0), a.dtype)
    a = a / a[..., :1]
    # Each element is 0, 1 or one of the coefficients, negated.
    ones, coefficients = np.zeros((n, n), bool), np.zeros((n, n), np.int32)
    coefficients[0, 0] = 1
    ones[1:2, 0] = True
    for k in range(2, n + 1):
        coefficients[k - 1 if k % 2 else k - 2, k - 2 if k % 2 else k - 1] = k
    even, odd = np.arange(0, n - 2, 2), np.arange(1, n - 2, 2)
    ones[even, even + 2] = True
    ones[odd + 2, odd] = True
    values = jnp.where(coefficients > 0, -a[..., coefficients], jnp.zeros((), a.dtype))
    return jnp.where(ones, jnp.ones((), a.dtype), values)


def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """The Toeplitz matrix A with `A @ v == convolve(a, v, mode)` for vectors v of n elements.

    Args:
        a: array `(..., m)`.
        n: the size of the vectors.
        mode: "full", "same" or "valid", as for `numpy.convolve`.

    Returns: array `(..., k, n)`. Errors: ValueError for other modes and sizes, and for scalars.

    >>> ferrax.scipy.linalg.convolution_matrix(jnp.array([1, 2]), 2)
    Array([[1, 0],
           [2, 1],
           [0, 2]], dtype=int32)
    """
    n = _size("convolution_matrix", n, 1)
    a = ensure_array(a, "convolution_matrix")
    if not a.ndim:
        raise ValueError("convolution_matrix: a must have at least one axis, got a scalar")
    a = _vector("convolution_matrix", a, 1)
    if mode not in ("full", "same", "valid"):
        raise ValueError(
            f"convolution_matrix: mode must be 'full', 'same' or 'valid', got {mode!r}"
        )
    m = a.shape[-1]
    cut = {"full": 0, "same": min(m, n) - 1, "valid": 2 * (min(m, n) - 1)}[mode]
    first = cut // 2
    rows = np.arange(first, first + m + n - 1 - cut)
    places = rows[:, None] - np.arange(n)[None, :]
    inside = (places >= 0) & (places < m)
    return jnp.where(inside, a[..., np.clip(places, 0, m - 1)], jnp.zeros((), a.dtype))


def hilbert(n: int) -> Array:
    """Hilbert's matrix, with the elements `1 / (i + j + 1)`.

    Args: n: rows and columns.

    >>> ferrax.scipy.linalg.hilbert(2)
    Array([[1.        , 0.5       ],
           [0.5       , 0.33333334]], dtype=float32)
    """
    places = np.arange(_size("hilbert", n))
    return _constant(1.0 / (places[:, None] + places[None, :] + 1.0))


def invhilbert(n: int) -> Array:
    """The inverse of Hilbert's matrix, which has integers; rounded once to floats.

    Args: n: rows and columns.

    Choi, "Tricks or treats with the Hilbert matrix" (Amer. Math. Monthly 90, 1983).

    >>> ferrax.scipy.linalg.invhilbert(2)
    Array([[ 4., -6.],
           [-6., 12.]], dtype=float32)
    """
    n = _size("invhilbert", n)
    comb = math.comb
    rows = [
        [
            (-1) ** (i + j) * (i + j + 1) * comb(n + i, n - j - 1) * comb(n + j, n - i - 1)
            * comb(i + j, i) ** 2
            for j in range(n)
        ]
        for i in range(n)
    ]  # fmt: skip
    return _constant([[float(x) for x in row] for row in rows] if n else np.zeros((0, 0)))


def _pascal(name: str, n: int, kind: str | None, lower: list[list[int]], inverse: bool) -> Array:
    kinds = ("symmetric", "lower", "upper")
    kind = kinds[0] if kind is None else kind
    if kind not in kinds:
        raise ValueError(f"{name}: kind must be one of {', '.join(kinds)}, got {kind!r}")
    matrix = np.array(lower, dtype=object).reshape(n, n)
    if kind == "upper":
        matrix = matrix.T
    elif kind == "symmetric":
        matrix = matrix.T @ matrix if inverse else matrix @ matrix.T
    return _constant(matrix)


def pascal(n: int, kind: str | None = None) -> Array:
    """Pascal's matrix of binomial coefficients.

    Args: n: rows and columns; kind: "lower" for the triangle L, "upper" for its transpose, or
    "symmetric", the default, for `L @ L.T`. Errors: ValueError for other kinds.

    >>> ferrax.scipy.linalg.pascal(3)
    Array([[1., 1., 1.],
           [1., 2., 3.],
           [1., 3., 6.]], dtype=float32)
    """
    n = _size("pascal", n)
    return _pascal(
        "pascal", n, kind, [[math.comb(i, j) for j in range(n)] for i in range(n)], False
    )


def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of Pascal's matrix, which has integers.

    Args: n, kind: as for `pascal`.

    >>> ferrax.scipy.linalg.invpascal(2)
    Array([[ 2., -1.],
           [-1.,  1.]], dtype=float32)
    """
    n = _size("invpascal", n)
    lower = [[(-1) ** (i + j) * math.comb(i, j) for j in range(n)] for i in range(n)]
    return _pascal("invpascal", n, kind, lower, True)


def helmert(n: int, full: bool = False) -> Array:
    """Helmert's matrix: orthonormal rows, the k-th a contrast of k elements and the next.

    Args: n: columns; full: whether the constant row is there, as the first.

    >>> ferrax.scipy.linalg.helmert(2)
    Array([[ 0.70710677, -0.70710677]], dtype=float32)
    """
    n = _size("helmert", n, 1)
    k = np.arange(1, n)[:, None]
    columns = np.arange(n)[None, :]
    scale = np.sqrt(k * (k + 1.0))
    rows = np.where(columns < k, 1.0 / scale, np.where(columns == k, -k / scale, 0.0))
    return _constant(np.concatenate([np.full((1, n), 1 / math.sqrt(n)), rows]) if full else rows)


def hadamard(n: int, dtype: DTypeLike = int) -> Array:
    """Sylvester's matrix of orthogonal rows of 1 and -1.

    Args: n: rows and columns, a power of 2; dtype: default int.
    Errors: ValueError for other sizes.

    >>> ferrax.scipy.linalg.hadamard(2)
    Array([[ 1,  1],
           [ 1, -1]], dtype=int32)
    """
    n = _size("hadamard", n, 1)
    if n & (n - 1):
        raise ValueError(f"hadamard: n must be a power of 2, got {n}")
    matrix = np.ones((1, 1), np.int8)
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return jnp.asarray(matrix).astype(user_dtype(dtype, "hadamard"))


def dft(n: int, scale: str | None = None, *, dtype: DTypeLike | None = None) -> Array:
    """The matrix of the discrete Fourier transform: `exp(-2 pi i j k / n)`.

    Args:
        n: rows and columns.
        scale: None, "sqrtn" (the matrix is unitary) or "n": what elements are divided by.
        dtype: complex; default complex64, or complex128 where 64-bit types are on.

    Errors: ValueError for other scales and dtypes.

    >>> ferrax.scipy.linalg.dft(2).real
    Array([[ 1.,  1.],
           [ 1., -1.]], dtype=float32)
    """
    n = _size("dft", n)
    divisor = {None: 1.0, "sqrtn": math.sqrt(n), "n": float(n)}.get(scale)
    if divisor is None:
        raise ValueError(f"dft: scale must be None, 'sqrtn' or 'n', got {scale!r}")
    wanted = dtypes.default_complex_dtype() if dtype is None else user_dtype(dtype, "dft")
    if not dtypes.issubdtype(wanted, np.complexfloating):
        raise ValueError(f"dft: dtype must be complex, got {wanted}")
    places = np.arange(n)
    # Multiples of whole turns are left out before the angle is rounded.
    turns = (places[:, None] * places[None, :] % max(n, 1)) / max(n, 1)
    return jnp.asarray(np.exp(-2j * np.pi * turns) / divisor, dtype=wanted)
