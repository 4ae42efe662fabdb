"""``ferrax.lax.linalg``: eigenvalues of matrices of any kind, and forms that are close to triangular.

Matrices are the last two axes, all leading axes are batches. The places of reflections and what
eigenvectors are divided by are LAPACK's (Anderson et al., LAPACK Users' Guide, 3rd ed., 1999).
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable
from typing import Any

from ferrax._core import Array, bind
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax.arguments import operand as _operand
from ferrax._src.lax.factorisations import _matrix, _square


class EigImplementation(enum.Enum):
    """Algorithms of `eig`. On the CPU there is one, which `LAPACK` and None name.

    >>> lax.linalg.EigImplementation.LAPACK.value
    'lapack'
    """

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Array]:
    """Eigenvalues and eigenvectors of square matrices: ``x @ v = v * w``.

    Args:
      x: array (..., n, n) of float32, float64, complex64 or complex128.
      compute_left_eigenvectors: whether ``vl`` is returned, with ``vl^H @ x = w * vl^H``.
      compute_right_eigenvectors: whether ``vr`` is returned.
      enable_eigvec_derivs: whether eigenvectors have derivatives. These are those of vectors of length
        1 with a real element of largest absolute value, where all eigenvalues are distinct and no two
        elements of a vector are the largest.
      implementation: None or `EigImplementation.LAPACK`.
      use_magma: another name of it, deprecated: False is LAPACK.

    Returns ``[w, vl, vr]`` without those that are not asked for: complex eigenvalues (..., n), in no
    order, and eigenvectors (..., n, n) as columns. A matrix that is not finite gives NaN.

    Errors: TypeError for other ranks and for integers; ValueError for matrices that are not square and
    for other implementations; NotImplementedError for 16-bit floats, and for derivatives of eigenvectors
    that were not enabled.

    (Golub and Van Loan, Matrix Computations, 4th ed., chapter 7; derivatives: Giles, An extended
    collection of matrix derivative results, 2008, section 3.1.)

    >>> lax.linalg.eig(jnp.array([[2.0, 1.0], [0.0, 3.0]]), compute_left_eigenvectors=False)[0]
    Array([2.+0.j, 3.+0.j], dtype=complex64)
    """
    if use_magma is not None:
        warnings.warn(
            "use_magma is deprecated: pass implementation=EigImplementation.MAGMA or LAPACK",
            DeprecationWarning,
            stacklevel=user_stacklevel(),
        )
        implementation = EigImplementation.MAGMA if use_magma else EigImplementation.LAPACK
    x = _square(_matrix(x, "eig"), "eig")
    if (
        implementation is not None
        and EigImplementation(implementation) is not EigImplementation.LAPACK
    ):
        raise ValueError(
            f"eig: {implementation} is not supported on CPU; pass None or EigImplementation.LAPACK"
        )
    params = {
        "compute_left_eigenvectors": bool(compute_left_eigenvectors),
        "compute_right_eigenvectors": bool(compute_right_eigenvectors),
        "enable_eigvec_derivs": bool(enable_eigvec_derivs),
    }
    return _listed(bind("eig", (x,), params))


def _listed(results) -> list[Array]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def schur(
    x: ArrayLike,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> list[Array]:
    """Schur's form: ``x = Q @ U @ Q^H`` with unitary ``Q``.

    Args:
      x: array (..., n, n) of float32, float64, complex64 or complex128.
      compute_schur_vectors: whether ``Q`` is returned.
      sort_eig_vals: False; eigenvalues are in no order.
      select_callable: is not read.

    Returns ``[U, Q]`` or ``[U]``, (..., n, n) each: ``U`` is upper triangular, save that real matrices
    have blocks of two rows for pairs of complex eigenvalues. A matrix that is not finite gives NaN.

    Errors: TypeError for other ranks and for integers; ValueError for matrices that are not square;
    NotImplementedError for 16-bit floats, sorting and derivatives.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 7.5.)

    >>> lax.linalg.schur(jnp.array([[2.0, 1.0], [0.0, 3.0]]))[0]
    Array([[2., 1.],
           [0., 3.]], dtype=float32)
    """
    del select_callable
    if sort_eig_vals:
        raise NotImplementedError("schur: eigenvalues cannot be sorted; pass sort_eig_vals=False")
    x = _square(_matrix(x, "schur"), "schur")
    return _listed(bind("schur", (x,), {"compute_schur_vectors": bool(compute_schur_vectors)}))


def hessenberg(a: ArrayLike) -> tuple[Array, Array]:
    """Hessenberg's form, ``a = Q @ H @ Q^H``.

    Args: a: array (..., n, n) of float32, float64, complex64 or complex128.

    Returns ``(a, taus)``: ``H`` in the upper triangle and next to it, vectors of reflections below, as
    `householder_product` reads them in ``a[..., 1:, :-1]``, and their factors (..., n - 1).

    Errors: TypeError for other ranks and for integers; ValueError for matrices that are not square or
    have no elements; NotImplementedError for 16-bit floats and derivatives.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 7.4.3.)

    >>> lax.linalg.hessenberg(jnp.array([[1.0, 2.0], [3.0, 4.0]]))[1]
    Array([0.], dtype=float32)
    """
    packed, taus = bind("hessenberg", (_square(_matrix(a, "hessenberg"), "hessenberg"),), {})
    return packed, taus


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """Tridiagonal form of symmetric or Hermitian matrices, ``a = Q @ T @ Q^H``.

    Args:
      a: array (..., n, n) of float32, float64, complex64 or complex128.
      lower: which triangle is read.

    Returns ``(a, d, e, taus)``: in that triangle of ``a`` the diagonal, what is next to it, and the
    vectors of reflections; the real diagonal (..., n) and what is next to it (..., n - 1); and the
    reflections' factors (..., n - 1).

    Errors: as `hessenberg`.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 8.3.1.)

    >>> lax.linalg.tridiagonal(jnp.array([[1.0, 2.0], [2.0, 4.0]]))[1:3]
    (Array([1., 4.], dtype=float32), Array([2.], dtype=float32))
    """
    a = _square(_matrix(a, "tridiagonal"), "tridiagonal")
    packed, diagonal, beside, taus = bind("tridiagonal", (a,), {"lower": bool(lower)})
    return packed, diagonal, beside, taus


def tridiagonal_solve(
    dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike, *, perturb_singular: bool = False
) -> Array:
    """Solves tridiagonal systems.

    Args:
      dl, d, du: arrays (..., n): the diagonal below the main one, of which the first element is not
        read, the main one, and the one above, of which the last element is not read.
      b: right-hand sides (..., n, k), of the same dtype.
      perturb_singular: whether pivots that are as good as zero are made as large as the rounding of the
        matrix; else a singular matrix gives NaN.

    Returns the solutions (..., n, k).

    Errors: TypeError for other shapes and for integers; NotImplementedError for 16-bit floats.

    (Elimination with exchanges of rows: Golub and Van Loan, Matrix Computations, 4th ed., section 4.3.4.)

    >>> zero, two = jnp.zeros(2), jnp.full(2, 2.0)
    >>> lax.linalg.tridiagonal_solve(zero, two, zero, jnp.ones((2, 1)))
    Array([[0.5],
           [0.5]], dtype=float32)
    """
    name = "tridiagonal_solve"
    operands = [_matrix(x, name, at, 1) for at, x in enumerate((dl, d, du))]
    operands.append(_matrix(b, name, 3))
    return bind(name, tuple(operands), {"perturb_singular": bool(perturb_singular)})


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """The order of rows after they were exchanged.

    Args:
      pivots: int32 (..., k): the row that each row was exchanged with, of `lu`.
      permutation_size: the number of rows, at least k.

    Returns int32 (..., permutation_size).

    Errors: TypeError for other dtypes and rank 0; ValueError for too small a size.

    >>> lax.linalg.lu_pivots_to_permutation(jnp.array([2, 2, 2]), 3)
    Array([2, 0, 1], dtype=int32)
    """
    pivots = _operand(pivots, "lu_pivots_to_permutation")
    params = {"permutation_size": int(permutation_size)}
    return bind("lu_pivots_to_permutation", (pivots,), params)
