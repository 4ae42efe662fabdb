"""Decompositions of matrices under SciPy's names.

Arguments by which SciPy writes over its operands, looks for values that are not finite or chooses among
LAPACK's routines are not read: arrays are immutable, NaN gives NaN, and there is one algorithm of each.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax, factorisations, linalg as lax_linalg
from ferrax._src.lax.linalg import adjoint
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_dtypes_inexact
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------- Cholesky's factors


@jit(static_argnames=("lower",))
def _cholesky(a, lower):
    (a,) = promote_dtypes_inexact(a)
    factor = factorisations.cholesky(a if lower else adjoint(a), symmetrize_input=False)
    return factor if lower else adjoint(factor)


def cholesky(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array:
    """Cholesky factors: upper triangular ``U`` with ``U^H @ U = a``, or lower ``L`` with ``L @ L^H = a``.

    Args:
      a: array (..., n, n), Hermitian and positive definite, of which one triangle is read; integers become
        floats.
      lower: whether the lower triangle is read, and ``L`` returned.
      overwrite_a, check_finite: are not read.

    Returns an array (..., n, n), with NaN in the triangle where a matrix is not positive definite.

    Errors: TypeError or ValueError below rank 2; ValueError for matrices that are not square;
    NotImplementedError for 16-bit floats.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 4.2.)

    >>> ferrax.scipy.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    Array([[2., 1.],
           [0., 1.]], dtype=float32)
    """
    del overwrite_a, check_finite
    return _cholesky(jnp.asarray(a), bool(lower))


def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """The factor of `cholesky` and which one it is, as `cho_solve` takes them.

    Args: those of `cholesky`. Returns ``(c, lower)``.

    >>> ferrax.scipy.linalg.cho_factor(jnp.array([[4.0]]), lower=True)
    (Array([[2.]], dtype=float32), True)
    """
    del overwrite_a, check_finite
    return cholesky(a, lower=lower), lower


# ---------------------------------------------------------------------------- Gauss' factors


@overload
def lu(
    a: ArrayLike,
    permute_l: Literal[False] = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> tuple[Array, Array, Array]: ...
@overload
def lu(
    a: ArrayLike, permute_l: Literal[True], overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array]: ...
@overload
def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array] | tuple[Array, Array, Array]: ...
def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """LU factors with exchanges of rows: ``a = P @ L @ U``.

    Args:
      a: matrix (m, n); integers become floats. Let k be min(m, n).
      permute_l: whether ``P @ L`` is returned in the place of both.
      overwrite_a, check_finite: are not read.

    Returns ``(P, L, U)`` or ``(P @ L, U)``: the permutation matrix (m, m), real also of complex matrices,
    ``L`` (m, k) with a diagonal of ones, and upper triangular ``U`` (k, n).

    Errors: ValueError for other ranks; NotImplementedError for 16-bit floats.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 3.4.)

    >>> ferrax.scipy.linalg.lu(jnp.array([[0.0, 1.0], [2.0, 4.0]]))[2]
    Array([[2., 4.],
           [0., 1.]], dtype=float32)
    """
    del overwrite_a, check_finite
    return _lu(jnp.asarray(a), bool(permute_l))


@jit(static_argnames=("permute_l",))
def _lu(a, permute_l):
    (a,) = promote_dtypes_inexact(a)
    if a.ndim != 2:
        raise ValueError(
            f"lu takes one matrix, got shape {tuple(a.shape)}; use ferrax.vmap for many"
        )
    rows, columns = a.shape
    least = min(rows, columns)
    factors, _, order = factorisations.lu(a)
    lower = jnp.tril(factors, -1)[:, :least] + jnp.eye(rows, least, dtype=a.dtype)
    upper = jnp.triu(factors)[:least]
    # Row order[i] of the product is row i of the factor.
    placed = order[None, :] == np.arange(rows, dtype=np.int32)[:, None]
    if permute_l:
        return jnp.matmul(placed.astype(a.dtype), lower, precision=lax.Precision.HIGHEST), upper
    return jnp.real(placed.astype(a.dtype)), lower, upper


# ---------------------------------------------------------------------------- orthonormal factors


@jit(static_argnames=("mode", "pivoting"))
def _qr(a, mode, pivoting):
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"qr: mode has to be 'full', 'r' or 'economic', got {mode!r}")
    (a,) = promote_dtypes_inexact(a)
    q, *rest = factorisations.qr(a, pivoting=pivoting, full_matrices=mode != "economic")
    return tuple(rest) if mode == "r" else (q, *rest)


def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array] | tuple[Array, Array] | tuple[Array, Array, Array]:
    """QR factors: ``a = Q @ R``, orthonormal columns and an upper triangle.

    Args:
      a: array (..., m, n); integers become floats. Let k be min(m, n).
      overwrite_a, lwork, check_finite: are not read.
      mode: "full" gives ``Q`` (..., m, m) and ``R`` (..., m, n); "economic" ``Q`` (..., m, k) and ``R``
        (..., k, n); "r" only ``R`` of "full".
      pivoting: whether columns are put in an order ``p``, ``a[..., p] = Q @ R``, by which the diagonal of
        ``R`` falls in absolute value.

    Returns a tuple of ``Q``, ``R`` and, with pivoting, int32 ``p`` (..., n); without ``Q`` for "r".

    Errors: ValueError for another mode; TypeError below rank 2; NotImplementedError for 16-bit floats.

    (Golub and Van Loan, Matrix Computations, 4th ed., sections 5.2 and 5.4.2.)

    >>> (r,) = ferrax.scipy.linalg.qr(jnp.array([[0.0, 1.0], [2.0, 4.0]]), mode="r")
    >>> jnp.abs(r)
    Array([[2., 4.],
           [0., 1.]], dtype=float32)
    """
    del overwrite_a, lwork, check_finite
    return _qr(jnp.asarray(a), mode, bool(pivoting))


@jit(static_argnames=("mode", "pivoting", "conjugate"))
def _qr_multiply(a, c, mode, pivoting, conjugate):
    a, c = promote_dtypes_inexact(a, c)
    if mode not in ("right", "left"):
        raise ValueError(f"qr_multiply: mode has to be 'right' or 'left', got {mode!r}")
    on_left = mode == "left"
    vector = c.ndim == 1
    if vector:
        c = c[:, None] if on_left else c[None, :]
    rows, columns = a.shape[-2:]
    least = min(rows, columns)
    expected, axis = (least, -2) if on_left else (rows, -1)
    if c.shape[axis] != expected:
        raise ValueError(
            f"qr_multiply: axis {axis} of c must have size {expected} for mode={mode!r}, got shapes"
            f" {tuple(a.shape)} and {tuple(c.shape)}"
        )
    batch = np.broadcast_shapes(tuple(a.shape[:-2]), tuple(c.shape[:-2]))
    a, c = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, c))
    order = None
    if pivoting:
        free = jnp.zeros((*batch, columns), np.int32)
        packed, order, taus = factorisations.geqp3(a, free)
        order = order - 1
    else:
        packed, taus = factorisations.geqrf(a)
    if on_left and rows > least:
        below = jnp.zeros((*batch, rows - least, c.shape[-1]), c.dtype)
        c = jnp.concatenate([c, below], axis=-2)
    # conj(Q) c is the transpose of c^T Q^H.
    if conjugate:
        c = jnp.swapaxes(c, -1, -2)
    out = factorisations.ormqr(packed, taus, c, left=on_left != conjugate, transpose=conjugate)
    if conjugate:
        out = jnp.swapaxes(out, -1, -2)
    if not on_left:
        out = out[..., :least]
    if vector:
        out = jnp.ravel(out)
    r = jnp.triu(packed[..., :least, :])
    return (out, r) if order is None else (out, r, order)


def qr_multiply(
    a: ArrayLike,
    c: ArrayLike,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """``R`` of the QR factors of ``a``, and the product of ``Q``, which is not made, and ``c``.

    Args:
      a: array (..., m, n); integers become floats. Let k be min(m, n), and ``Q`` have k columns.
      c: array (..., k, p) for "left", (..., p, m) for "right"; a vector is one column, or one row.
      mode: "left" for ``Q @ c``, "right" for ``c @ Q``.
      pivoting: as of `qr`.
      conjugate: whether the conjugate of ``Q`` takes its place.
      overwrite_a, overwrite_c: are not read.

    Returns ``(product, R)`` or ``(product, R, p)``: (..., m, p) or (..., p, k), and (..., k, n). The
    product with a vector has one axis.

    Errors: ValueError for other shapes and modes; NotImplementedError for 16-bit floats and derivatives.

    (Schreiber and Van Loan, A storage-efficient WY representation for products of Householder
    transformations, 1989.)

    >>> ferrax.scipy.linalg.qr_multiply(jnp.eye(2), jnp.array([1.0, 2.0]))[0]
    Array([1., 2.], dtype=float32)
    """
    del overwrite_a, overwrite_c
    a, c = jnp.asarray(a), jnp.asarray(c)
    return _qr_multiply(a, c, mode, bool(pivoting), bool(conjugate))


# ---------------------------------------------------------------------------- singular values


@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: Literal[True] = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> tuple[Array, Array, Array]: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Array: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Array | tuple[Array, Array, Array]: ...
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Array | tuple[Array, Array, Array]:
    """Singular values and vectors of matrices: ``a = u @ diag(s) @ vh``.

    Args:
      a: array (..., m, n); integers become floats. Let k be min(m, n).
      full_matrices: whether ``u`` and ``vh`` are completed to square matrices.
      compute_uv: whether singular vectors are returned.
      overwrite_a, check_finite, lapack_driver: are not read.

    Returns ``(u, s, vh)`` or ``s``: ``u`` (..., m, k), real descending ``s`` (..., k) and ``vh`` (..., k, n);
    ``u`` (..., m, m) and ``vh`` (..., n, n) if full.

    Errors: TypeError below rank 2; NotImplementedError for 16-bit floats and for derivatives of full
    matrices that are not square.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 8.6.)

    >>> ferrax.scipy.linalg.svd(jnp.array([[0.0, 3.0], [2.0, 0.0]]), compute_uv=False)
    Array([3., 2.], dtype=float32)
    """
    del overwrite_a, check_finite, lapack_driver
    return _svd(jnp.asarray(a), bool(full_matrices), bool(compute_uv))


@jit(static_argnames=("full_matrices", "compute_uv"))
def _svd(a, full_matrices, compute_uv):
    (a,) = promote_dtypes_inexact(a)
    return lax_linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)
