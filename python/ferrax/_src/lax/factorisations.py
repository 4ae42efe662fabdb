"""``ferrax.lax.linalg``: triangular and orthonormal factors, and systems that they solve.

Matrices are the last two axes, all leading axes are batches. Signs, pivots and the places of results
are LAPACK's (Anderson et al., LAPACK Users' Guide, 3rd ed., 1999).
"""

from __future__ import annotations

from typing import Literal, overload

import numpy as np

from ferrax._core import Array, bind
from ferrax._src.base import dtypes
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax.arguments import describe, operand as _operand
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.lax.linalg import _check_dtype, _check_rank, symmetrize


def _matrix(x, name: str, position: int = 0, rank: int = 2) -> Array:
    x = _operand(x, name, position)
    _check_rank(name, x, rank, position)
    _check_dtype(name, x, position)
    return x


def _square(x, name: str) -> Array:
    if x.shape[-1] != x.shape[-2]:
        raise ValueError(f"{name} takes square matrices in the last two axes, got {describe(x)}")
    return x


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """Cholesky factors: lower triangular ``L`` with ``L @ L^H = x``.

    Args:
      x: array (..., n, n) of float32, float64, complex64 or complex128, Hermitian and positive
        definite.
      symmetrize_input: whether ``(x + x^H) / 2`` takes the place of ``x``; else its lower triangle is
        read alone.

    Returns ``L`` (..., n, n), with zeros above the diagonal; NaN in the lower triangle where a matrix
    is not positive definite.

    Errors: TypeError for other ranks, integers, and what is not square if it is symmetrized, else
    ValueError; NotImplementedError for 16-bit floats.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 4.2; derivatives: Murray,
    Differentiation of the Cholesky decomposition, 2016.)

    >>> lax.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    Array([[2., 0.],
           [1., 1.]], dtype=float32)
    """
    x = _operand(x, "cholesky")
    _check_rank("cholesky", x)
    if symmetrize_input:
        x = symmetrize(x)
    _check_dtype("cholesky", x)
    return bind("cholesky", (_square(x, "cholesky"),), {})


def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """Solves ``op(a) @ x = b``, or ``x @ op(a) = b``, for ``x``, where ``a`` is triangular.

    Args:
      a: array (..., n, n), of which one triangle is read.
      b: array (..., n, m), or (..., m, n) unless ``left_side``, of the same dtype and batch; one axis
        less stands for m = 1.
      left_side: whether ``op(a)`` stands left of ``x``.
      lower: whether the lower triangle is read, or the upper one.
      transpose_a, conjugate_a: what ``op`` does.
      unit_diagonal: whether ones are taken for the diagonal.

    Returns ``x``, in the shape of ``b``. A zero on the diagonal gives inf and NaN.

    Errors: TypeError for other ranks, batches that differ, integers and dtypes that differ;
    ValueError for sizes that do not match.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 3.1.)

    >>> a = jnp.array([[2.0, 0.0], [1.0, 4.0]])
    >>> lax.linalg.triangular_solve(a, jnp.array([[2.0], [9.0]]), left_side=True, lower=True)
    Array([[1.],
           [2.]], dtype=float32)
    """
    a, b = _operand(a, "triangular_solve"), _operand(b, "triangular_solve", 1)
    conjugate_a = bool(conjugate_a) and np.dtype(a.dtype).kind == "c"
    # A vector is a matrix of one column, or row.
    vector = b.ndim == a.ndim - 1
    if vector:
        shape = tuple(b.shape)
        b = b.reshape(*shape, 1) if left_side else b.reshape(*shape[:-1], 1, *shape[-1:])
    params = {
        "left_side": bool(left_side),
        "lower": bool(lower),
        "transpose_a": bool(transpose_a),
        "conjugate_a": conjugate_a,
        "unit_diagonal": bool(unit_diagonal),
    }
    dtype = a.dtype
    if dtype == b.dtype and dtypes.issubdtype(dtype, np.floating) and dtype.itemsize == 2:
        # Halves are computed with as single precision, and rounded once.
        a, b = (_convert_element_type(x, np.float32) for x in (a, b))
        out = _convert_element_type(bind("triangular_solve", (a, b), params), dtype)
    else:
        out = bind("triangular_solve", (a, b), params)
    return out.reshape(shape) if vector else out


def lu(x: ArrayLike) -> tuple[Array, Array, Array]:
    """LU factors with exchanges of rows: ``P @ x = L @ U``.

    Args: x: array (..., m, n) of float32, float64, complex64 or complex128.

    Returns ``(lu, pivots, permutation)``: ``U`` in the upper triangle of ``lu`` (..., m, n) and ``L``,
    whose diagonal is 1, below it; int32 ``pivots`` (..., min(m, n)), the row that each row was
    exchanged with; and int32 ``permutation`` (..., m), the rows of ``x`` in the order of ``P``.

    Errors: TypeError for other ranks and for integers; NotImplementedError for 16-bit floats.

    (Toledo, Locality of reference in LU decomposition with partial pivoting, 1997; derivatives: de
    Hoog, Anderssen and Lukas, Differentiation of matrix functionals using triangular factorization,
    2011.)

    >>> lax.linalg.lu(jnp.array([[0.0, 1.0], [2.0, 4.0]]))
    (Array([[2., 4.],
           [0., 1.]], dtype=float32), Array([1, 1], dtype=int32), Array([1, 0], dtype=int32))
    """
    factors, pivots, permutation = bind("lu", (_matrix(x, "lu"),), {})
    return factors, pivots, permutation


def geqrf(a: ArrayLike) -> tuple[Array, Array]:
    """``R`` and the reflections that make it, of which the product is ``Q``.

    Args: a: array (..., m, n) of float32, float64, complex64 or complex128.

    Returns ``(a, taus)``: ``R`` in the upper triangle, vectors of reflections ``1 - tau v v^H`` below
    it (their first element is 1), and the factors ``taus`` (..., min(m, n)).

    Errors: TypeError for other ranks and for integers; NotImplementedError for 16-bit floats.

    (Schreiber and Van Loan, A storage-efficient WY representation for products of Householder
    transformations, 1989.)
    """
    packed, taus = bind("geqrf", (_matrix(a, "geqrf"),), {})
    return packed, taus


def geqp3(
    a: ArrayLike, jpvt: ArrayLike, *, use_magma: bool | None = None
) -> tuple[Array, Array, Array]:
    """As `geqrf`, with the columns in the order of the lengths of what is left of them.

    Args:
      a: array (..., m, n).
      jpvt: int32 (..., n); columns with a number that is not 0 come first.
      use_magma: is not read.

    Returns ``(a, jpvt, taus)``; ``jpvt`` counts from 1.

    Errors: those of `geqrf`; TypeError for another ``jpvt``.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 5.4.2.)
    """
    del use_magma
    a = _matrix(a, "geqp3")
    packed, order, taus = bind("geqp3", (a, _operand(jpvt, "geqp3", 1)), {})
    return packed, order, taus


@overload
def qr(
    x: ArrayLike,
    *,
    pivoting: Literal[False] = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Array, Array]: ...
@overload
def qr(
    x: ArrayLike,
    *,
    pivoting: Literal[True],
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Array, Array, Array]: ...
@overload
def qr(
    x: ArrayLike,
    *,
    pivoting: bool = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Array, Array] | tuple[Array, Array, Array]: ...
def qr(
    x: ArrayLike,
    *,
    pivoting: bool = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """QR factors: ``x = Q @ R``, orthonormal columns and an upper triangle.

    Args:
      x: array (..., m, n) of float32, float64, complex64 or complex128. Let k be min(m, n).
      pivoting: whether columns are put in an order ``p``, ``x[..., p] = Q @ R``, by which the diagonal
        of ``R`` falls in absolute value.
      full_matrices: whether ``Q`` is completed to a square matrix.
      use_magma: is not read.

    Returns ``(Q, R)``, or ``(Q, R, p)`` with int32 ``p`` (..., n): ``Q`` (..., m, k) and ``R``
    (..., k, n), or with m in the place of k if full.

    Errors: TypeError for other ranks and for integers; NotImplementedError for 16-bit floats.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 5.2; derivatives: Walter and Lehmann,
    Algorithmic differentiation of linear algebra functions, 2010.)

    >>> q, r = lax.linalg.qr(jnp.array([[0.0, 1.0], [2.0, 4.0]]))
    >>> jnp.abs(r)
    Array([[2., 4.],
           [0., 1.]], dtype=float32)
    """
    del use_magma
    params = {"pivoting": bool(pivoting), "full_matrices": bool(full_matrices)}
    return tuple(bind("qr", (_matrix(x, "qr"),), params))


def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """The first columns of a product of reflections, ``Q`` of `geqrf`.

    Args:
      a: array (..., m, n) with m >= n, of which the reflections are below the diagonal.
      taus: array (..., k) of their factors, k <= n.

    Returns the first n columns of the product, (..., m, n).

    Errors: TypeError for other ranks, integers and dtypes or batches that differ; ValueError for
    other sizes; NotImplementedError for 16-bit floats and derivatives.

    (Schreiber and Van Loan, A storage-efficient WY representation for products of Householder
    transformations, 1989.)

    >>> lax.linalg.householder_product(jnp.zeros((3, 2)), jnp.array([0.0, 2.0]))
    Array([[ 1.,  0.],
           [ 0., -1.],
           [ 0.,  0.]], dtype=float32)
    """
    a, taus = _matrix(a, "householder_product"), _matrix(taus, "householder_product", 1, 1)
    return bind("householder_product", (a, taus), {})


def ormqr(
    a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False
) -> Array:
    """Products of a matrix and a product of reflections, which is not made.

    Args:
      a: array (..., m, n) of which the reflections are below the diagonal.
      taus: array (..., k) of their factors.
      c: array (..., m, p), or (..., p, m) unless ``left``.
      left: whether ``Q`` stands left of ``c``.
      transpose: whether the conjugate transpose of ``Q`` takes its place.

    Returns ``Q @ c`` or ``c @ Q``, in the shape of ``c``.

    Errors: as `householder_product`.

    >>> q, taus = jnp.zeros((2, 2)), jnp.array([2.0, 0.0])
    >>> lax.linalg.ormqr(q, taus, jnp.ones((2, 1)))
    Array([[-1.],
           [ 1.]], dtype=float32)
    """
    operands = (_matrix(a, "ormqr"), _matrix(taus, "ormqr", 1, 1), _matrix(c, "ormqr", 2))
    return bind("ormqr", operands, {"left": bool(left), "transpose": bool(transpose)})
