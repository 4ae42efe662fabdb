"""Updates of factors, symmetric products, polar factors: what `lax.linalg` has that is made of others."""

from __future__ import annotations

import math

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import describe, operand as _operand
from ferrax._src.lax.factorisations import cholesky, qr, triangular_solve
from ferrax._src.lax.linalg import adjoint
from ferrax._src.transforms.composites import composite

HIGHEST = lax.Precision.HIGHEST


def _product(x, y):
    return lax.batch_matmul(x, y, precision=HIGHEST)


def _in_triangle(x, upper: bool):
    """A triangle of matrices, with zeros elsewhere."""
    row, column = (lax.broadcasted_iota(np.int32, x.shape, x.ndim - k) for k in (2, 1))
    return lax.select(lax.le(row, column) if upper else lax.ge(row, column), x, lax.full_like(x, 0))


# ---------------------------------------------------------------------------- Cholesky factors


def _cholesky_update(r, w):
    """Rotations of a row of the factor and the vector, by which the vector's elements become zero."""
    size = r.shape[0]
    places = lax.iota(np.int32, size)

    def step(k, state):
        r, w = state
        row = lax.dynamic_index_in_dim(r, k, keepdims=False)
        x = lax.dynamic_index_in_dim(row, k, keepdims=False)
        y = lax.dynamic_index_in_dim(w, k, keepdims=False)
        most = lax.max(lax.abs(x), lax.abs(y))
        nothing = lax.eq(y, lax.full_like(y, 0))
        safe = lax.select(lax.eq(most, lax.full_like(most, 0)), lax.full_like(most, 1), most)
        x, y = x / safe, y / safe
        length = lax.sqrt(x * x + y * y)
        length = lax.select(nothing, lax.full_like(length, 1), length)
        c = lax.select(nothing, lax.full_like(x, 1), x / length)
        s = lax.select(nothing, lax.full_like(y, 0), y / length)
        turned = c * row + s * w
        w = c * w - s * row
        # What is turned to zero is zero.
        w = lax.select(lax.eq(places, lax.convert_element_type(k, places.dtype)), lax.full_like(w, 0), w)
        return lax.dynamic_update_index_in_dim(r, turned, k, 0), w

    return lax.fori_loop(0, size, step, (r, w))[0]


cholesky_update_p = composite("cholesky_update", _cholesky_update)


def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """The Cholesky factor after an update of rank one: of ``R^T @ R + outer(w, w)``.

    Args:
      r_matrix: upper triangular ``R`` (n, n) of floats.
      w_vector: vector (n,) of the same dtype.

    Returns an upper triangular matrix (n, n). Diagonal elements have the signs that rotations give.

    Errors: TypeError for other ranks and dtypes; ValueError for sizes that do not match.

    (By Givens' rotations: Golub and Van Loan, Matrix Computations, 4th ed., section 6.5.4.)

    >>> lax.linalg.cholesky_update(jnp.array([[3.0]]), jnp.array([4.0]))
    Array([[5.]], dtype=float32)
    """
    name = "cholesky_update"
    r, w = _operand(r_matrix, name), _operand(w_vector, name, 1)
    for position, (x, rank) in enumerate(((r, 2), (w, 1))):
        if x.ndim != rank:
            raise TypeError(
                f"Input {position} to {name} must have a rank of exactly {rank}, got {describe(x)}"
            )
        if not dtypes.issubdtype(x.dtype, np.floating):
            raise TypeError(
                f"{name} does not accept dtype {x.dtype} for operand {position}, which"
                f" takes floating"
            )
    if r.dtype != w.dtype:
        raise TypeError(f"{name} takes arguments of one dtype, got {r.dtype} and {w.dtype}")
    if r.shape[0] != r.shape[1] or r.shape[1] != w.shape[0]:
        raise ValueError(
            f"{name} takes a square matrix and a vector of its size, got shapes {tuple(r.shape)}"
            f" and {tuple(w.shape)}"
        )
    return cholesky_update_p.bind(r, w)


# ---------------------------------------------------------------------------- symmetric products


def _symmetric_product(a, c, *, alpha, beta):
    swapped = lax.transpose(a, (*range(a.ndim - 2), a.ndim - 1, a.ndim - 2))
    constant = lambda value: np.asarray(value, a.dtype)  # noqa: E731
    return constant(alpha) * _product(a, swapped) + constant(beta) * c


symmetric_product_p = composite("symmetric_product", _symmetric_product)


def symmetric_product(
    a_matrix: ArrayLike,
    c_matrix: ArrayLike,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Array:
    """``alpha * a @ a^T + beta * c``.

    Args:
      a_matrix: array (..., m, n) of floats.
      c_matrix: symmetric matrices (..., m, m) of the same dtype.
      alpha, beta: constants.
      symmetrize_output: whether the lower triangle is copied to the upper one.

    Returns an array (..., m, m).

    Errors: TypeError for other ranks and dtypes; ValueError for sizes that do not match.

    >>> lax.linalg.symmetric_product(jnp.ones((2, 3)), jnp.eye(2), beta=2.0)
    Array([[5., 3.],
           [3., 5.]], dtype=float32)
    """
    name = "symmetric_product"
    a, c = _operand(a_matrix, name), _operand(c_matrix, name, 1)
    for position, x in enumerate((a, c)):
        if x.ndim < 2:
            raise TypeError(
                f"Input {position} to {name} must have rank at least 2, got {describe(x)}"
            )
        if not dtypes.issubdtype(x.dtype, np.floating):
            raise TypeError(
                f"{name} does not accept dtype {x.dtype} for operand {position}, which"
                f" takes floating"
            )
    if a.dtype != c.dtype or a.shape[:-2] != c.shape[:-2]:
        raise TypeError(
            f"{name} takes matrices of one dtype and one batch, got {describe(a)} and {describe(c)}"
        )
    if c.shape[-1] != c.shape[-2] or c.shape[-1] != a.shape[-2]:
        raise ValueError(
            f"{name} takes matrices of shapes (m, n) and (m, m), got shapes {tuple(a.shape)} and"
            f" {tuple(c.shape)}"
        )
    out = symmetric_product_p.bind(a, c, alpha=alpha, beta=beta)
    if not symmetrize_output:
        return out
    lower = _in_triangle(out, upper=False)
    row, column = (lax.broadcasted_iota(np.int32, out.shape, out.ndim - k) for k in (2, 1))
    return lax.select(lax.ge(row, column), lower, adjoint(lower))


# ---------------------------------------------------------------------------- polar factors


def _norms(x):
    """The largest sums of a column's and of a row's absolute values."""
    sizes = lax.abs(x)
    sums = (lax.reduce_sum(sizes, axes=(axis,)) for axis in (0, 1))
    return [lax.reduce_max(s, axes=(0,)) for s in sums]


def _weights(least: float, tolerance: float, count: int):
    """Halley's weights for singular values between `least` and 1, until they are 1 but for rounding."""
    found: list[tuple[float, float, float]] = []
    while least + tolerance < 1 and len(found) < count:
        a = _largest_weight(1 / least**2)
        b = 0.25 * (a - 1) ** 2
        found.append((a, b, a + b - 1))
        least *= (a + b * least**2) / (1 + (a + b - 1) * least**2)
    return found


def _largest_weight(steepness: float) -> float:
    """The weight a for singular values from the one on whose inverse square is `steepness`."""
    d = (4 * steepness * (steepness - 1)) ** (1 / 3)
    root = math.sqrt(1 + d)
    return root + math.sqrt(2 - d + 2 * (2 * steepness - 1) / root)


def _step(u, weights, by_cholesky: bool):
    """`u (a + b u^H u) (1 + c u^H u)^-1`, by factors of the inverse or of the matrix over it."""
    a, b, c = (np.asarray(x, u.dtype) for x in weights)
    rows, columns = u.shape
    ratio = b / c
    unit = _operand(np.eye(columns, dtype=u.dtype), "qdwh")
    if by_cholesky:
        gram = unit + c * _product(adjoint(u), u)
        factor = cholesky(gram, symmetrize_input=False)
        half = triangular_solve(factor, u, lower=True, transpose_a=True, conjugate_a=True)
        return ratio * u + (a - ratio) * triangular_solve(factor, half, lower=True)
    root = np.sqrt(c)
    stacked = lax.concatenate((root * u, unit), 0)
    q, _ = qr(stacked, full_matrices=False)
    upper, lower = lax.slice_in_dim(q, 0, rows), lax.slice_in_dim(q, rows, rows + columns)
    return ratio * u + ((a - ratio) / root) * _product(upper, adjoint(lower))


# Weights up to which the matrix is well enough conditioned for Cholesky's factors.
_CHOLESKY = 100.0


def qdwh(
    x: ArrayLike,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Polar factors: ``x = u @ h`` with orthonormal columns and a Hermitian matrix.

    Args:
      x: matrix (m, n) of full rank, m >= n, of float32, float64, complex64 or complex128.
      is_hermitian: is not read.
      max_iterations: steps after which the iteration ends, by default 10.
      eps: the accuracy, by default the epsilon of the dtype.
      dynamic_shape: ``(m, n)`` of a smaller matrix that ``x`` holds first; what is beyond it counts as 0.

    Returns ``(u, h, num_iters, is_converged)``: ``u`` (m, n), positive semidefinite ``h`` (n, n), the
    number of steps, and whether they sufficed.

    Errors: ValueError for m < n; those of `qr`.

    (QR-based dynamically weighted Halley iteration: Nakatsukasa, Bai and Gygi, Optimizing Halley's
    iteration for computing the matrix polar decomposition, SIAM J. Matrix Anal. Appl. 31, 2010.)

    >>> u, h, *_ = lax.linalg.qdwh(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> bool(jnp.allclose(u @ h, jnp.array([[0.0, 2.0], [3.0, 0.0]]), atol=1e-5))
    True
    """
    x = _operand(x, "qdwh")
    concrete_or_error(bool, is_hermitian, "The `is_hermitian` argument of qdwh")
    limit = 10
    if max_iterations is not None:
        limit = concrete_or_error(int, max_iterations, "The `max_iterations` argument of qdwh")
    if x.ndim != 2 or x.shape[0] < x.shape[1]:
        raise ValueError(
            f"qdwh: expected a matrix with at least as many rows as columns, got {describe(x)}"
        )
    if dynamic_shape is not None:
        for axis, size in enumerate(dynamic_shape):
            place = lax.broadcasted_iota(np.int32, x.shape, axis)
            x = lax.select(lax.lt(place, lax.full_like(place, size)), x, lax.full_like(x, 0))
    return _polar(x, limit, float(dtypes.finfo(x.dtype).eps) if eps is None else float(eps))


def _polar(x, limit, eps):
    columns, rows = _norms(x)
    zero, one = (lax.full_like(columns, value) for value in (0, 1))
    inverse = lax.select(lax.eq(columns, zero), one, lax.rsqrt(columns) * lax.rsqrt(rows))
    u = lax.convert_element_type(inverse, x.dtype) * x
    weights = _weights(eps, 5 * eps, limit)
    bound = np.asarray((5 * eps) ** (1 / 3), columns.dtype)

    def moved(u, before):
        apart = lax.abs(u - before)
        return lax.gt(lax.sqrt(lax.reduce_sum(apart * apart, axes=(0, 1))), bound)

    more = lax.full((), True, np.bool_)
    for each in weights:
        before = u
        by_cholesky = each[2] <= _CHOLESKY
        u = _step(u, each, by_cholesky)
        if by_cholesky:
            more = moved(u, before)

    def again(state):
        k, _, more = state
        return lax.bitwise_and(more, lax.lt(k, np.int32(limit)))

    def halley(state):
        k, before, _ = state
        u = _step(before, (3.0, 1.0, 3.0), True)
        return k + np.int32(1), u, moved(u, before)

    state = (lax.full((), len(weights), np.int32), u, more)
    steps, u, more = lax.while_loop(again, halley, state)
    # A step of Newton and Schulz takes what rounding left.
    half, three = (np.asarray(value, x.dtype) for value in (0.5, 1.5))
    u = three * u - half * _product(u, _product(adjoint(u), u))
    h = _product(adjoint(u), x)
    return u, half * (h + adjoint(h)), steps, lax.bitwise_not(more)
