"""Functions of `jnp.linalg` that are made of eigenvalues or singular values."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax, eigen, linalg as lax_linalg
from ferrax._src.lax.linalg import adjoint, symmetrize
from ferrax._src.numpy import array_creation, products, reductions, shape
from ferrax._src.numpy.take import take_along_axis
from ferrax._src.numpy.util import (
    convert,
    ensure_array,
    promote_dtypes_inexact,
    real_dtype,
    strong_constant,
    where,
)
from ferrax._src.transforms.custom_jvp import custom_jvp
from ferrax._src.transforms.jit import jit


class EigResult(NamedTuple):
    """What `eig` returns: `eigenvalues` (..., n) and `eigenvectors` (..., n, n), as columns."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """What `eigh` returns: `eigenvalues` (..., n) and `eigenvectors` (..., n, n), as columns."""

    eigenvalues: Array
    eigenvectors: Array


class SVDResult(NamedTuple):
    """What `svd` returns: `U`, the singular values `S`, and `Vh`; `U @ diag(S) @ Vh` is the matrix."""

    U: Array
    S: Array
    Vh: Array


# ---------------------------------------------------------------------------- eigenvalues


def eig(a: ArrayLike) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, `a @ v = v * w`.

    Args: a: array (..., n, n); integers become floats. Returns `EigResult`: complex eigenvalues (..., n), in
    no order, and eigenvectors (..., n, n) as columns of length 1. A matrix that is not finite gives NaN.
    Raises: TypeError below rank 2; ValueError for matrices that are not square; NotImplementedError for
    16-bit floats and for derivatives of eigenvectors (see `lax.linalg.eig`).

    (Golub and Van Loan, Matrix Computations, 4th ed., chapter 7.)

    >>> jnp.linalg.eig(jnp.array([[2.0, 1.0], [0.0, 3.0]])).eigenvalues
    Array([2.+0.j, 3.+0.j], dtype=complex64)
    """
    (a,) = promote_dtypes_inexact(ensure_array(a, "jnp.linalg.eig"))
    return EigResult(*eigen.eig(a, compute_left_eigenvectors=False))


@jit
def eigvals(a: ArrayLike) -> Array:
    """Eigenvalues (..., n) of square matrices (..., n, n), as `eig`: complex, in no order.

    Their derivatives are those of `eig`'s, which are NaN or inf where eigenvectors do not span.

    Args: a: array; integers become floats.

    >>> jnp.linalg.eigvals(jnp.array([[0.0, -1.0], [1.0, 0.0]]))
    Array([0.+1.j, 0.-1.j], dtype=complex64)
    """
    (a,) = promote_dtypes_inexact(ensure_array(a, "jnp.linalg.eigvals"))
    return eigen.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


@jit(static_argnames=("UPLO", "symmetrize_input"))
def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices.

    Args: a: array (..., n, n); integers become floats. UPLO: "L" (or None) or "U", the triangle
    that is read. symmetrize_input: take `(a + a^H) / 2` for `a`; the triangle makes no difference
    then. Returns `EighResult`: real eigenvalues (..., n), ascending, and orthonormal eigenvectors
    (..., n, n) as columns. NaN gives NaN. The signs of eigenvectors are not specified, and their
    derivatives are NaN where eigenvalues are equal.
    Raises: ValueError for another UPLO; TypeError for what are no square matrices (ValueError
    unless symmetrized); NotImplementedError for 16-bit floats.

    >>> jnp.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    Array([1., 2.], dtype=float32)
    """
    a = ensure_array(a, "jnp.linalg.eigh")
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"eigh: UPLO has to be 'L' or 'U' (or None: 'L'), got {UPLO!r}")
    (a,) = promote_dtypes_inexact(a)
    vectors, values = lax_linalg.eigh(a, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(values, vectors)


@jit(static_argnames=("UPLO", "symmetrize_input"))
def eigvalsh(a: ArrayLike, UPLO: str = "L", *, symmetrize_input: bool = True) -> Array:
    """Eigenvalues of symmetric or Hermitian matrices, as `eigh`: real, ascending, of shape (..., n).

    Their derivatives are finite where they are equal, too.

    >>> jnp.linalg.eigvalsh(jnp.array([[2.0, 0.0], [0.0, 1.0]]))
    Array([1., 2.], dtype=float32)
    """
    a = ensure_array(a, "jnp.linalg.eigvalsh")
    return eigh(a, UPLO, symmetrize_input=symmetrize_input).eigenvalues


# ---------------------------------------------------------------------------- singular values


@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: Literal[True] = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> SVDResult: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Array: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any: ...
@jit(static_argnames=("full_matrices", "compute_uv", "hermitian", "subset_by_index"))
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> SVDResult | Array:
    """Singular value decomposition, `a = U @ diag(S) @ Vh`.

    Args: a: array (..., m, n); integers become floats; let k be min(m, n). full_matrices: complete
    `U` and `Vh` to square matrices. compute_uv: return vectors too. hermitian: the matrices are
    taken for Hermitian, `(a + a^H) / 2`, and decomposed by `eigh`; rows of `Vh` of the singular
    value 0 are then 0. subset_by_index: the range `(start, end)` of singular values, counted from
    the largest, that are returned with their vectors, or None for all; all are computed.
    Returns `SVDResult` of `U` (..., m, k), `S` (..., k) and `Vh` (..., k, n), or of `U` (..., m, m)
    and `Vh` (..., n, n) if full; only `S` without vectors. Of a range, its length takes the place
    of k. `S` is real and descending. NaN gives NaN.
    Raises: TypeError below rank 2, and for matrices that are not square where Hermitian; ValueError
    for a range that is empty or beyond the singular values, and for part of the range if full,
    unless Hermitian; NotImplementedError for 16-bit floats and for derivatives of full matrices that
    are not square.

    >>> jnp.linalg.svd(jnp.array([[0.0, 3.0], [2.0, 0.0]])).S
    Array([3., 2.], dtype=float32)
    """
    (a,) = promote_dtypes_inexact(ensure_array(a, "jnp.linalg.svd"))
    if hermitian:
        return _svd_of_hermitian(a, compute_uv, subset_by_index)
    results: Any = lax_linalg.svd(
        a, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index
    )
    return SVDResult(*results) if compute_uv else results


def _svd_of_hermitian(a, compute_uv, subset_by_index):
    """Singular values are the absolute eigenvalues; their signs go into `Vh`."""
    vectors, values = lax_linalg.eigh(a)
    sizes = lax.abs(values)
    last = sizes.ndim - 1
    chosen = lax_linalg.index_range("svd", subset_by_index, sizes.shape[last])
    start, end = chosen or (0, sizes.shape[last])
    if not compute_uv:
        return lax.slice_in_dim(lax.rev(lax.sort(sizes), (last,)), start, end, axis=last)
    places = lax.broadcasted_iota(np.uint32, sizes.shape, last)
    ascending = lax.sort((sizes, places, lax.sign(values)), num_keys=1)
    descending = (lax.rev(x, (last,)) for x in ascending)
    sizes, places, signs = (lax.slice_in_dim(x, start, end, axis=last) for x in descending)
    u = take_along_axis(vectors, lax.expand_dims(places, (last,)), axis=-1)
    signed = ufuncs.multiply(u, convert(lax.expand_dims(signs, (last,)), u.dtype))
    return SVDResult(u, sizes, adjoint(signed))


def svdvals(x: ArrayLike, /) -> Array:
    """Singular values (..., min(m, n)) of matrices (..., m, n), as `svd`: real, descending.

    >>> jnp.linalg.svdvals(jnp.array([[0.0, 3.0], [2.0, 0.0]]))
    Array([3., 2.], dtype=float32)
    """
    return svd(ensure_array(x, "jnp.linalg.svdvals"), compute_uv=False)


@jit(static_argnames=("hermitian",))
def matrix_rank(
    M: Any,
    rtol: ArrayLike | None = None,
    *,
    hermitian: bool = False,
    tol: ArrayLike | None = None,
) -> Array:
    """How many singular values are greater than a tolerance: int32 (...), of matrices (..., m, n).

    Args: M: array; of a vector or a number: whether any element is not 0. rtol: the tolerance, an
    array that broadcasts with (...), in spite of its name not relative; by default the largest
    singular value times max(m, n) times the epsilon of the dtype. tol: another name of it.
    hermitian: as of `svd`.
    Raises: ValueError for both rtol and tol, and for no elements without either.

    >>> jnp.linalg.matrix_rank(jnp.ones((3, 3)))
    Array(1, dtype=int32)
    """
    M = ensure_array(M, "jnp.linalg.matrix_rank")
    if tol is not None:
        if rtol is not None:
            raise ValueError("matrix_rank: tol is the older name of rtol; pass one of them")
        rtol = tol
    (M,) = promote_dtypes_inexact(M)
    if M.ndim < 2:
        return convert(reductions.any(lax.ne(M, strong_constant(0, M))), np.int32)
    s = svd(M, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if rtol is None:
        scale = max(M.shape[-2:]) * float(dtypes.finfo(s.dtype).eps)
        rtol = lax.mul(reductions.max(s, axis=-1), strong_constant(scale, s))
    rtol = ensure_array(rtol, "jnp.linalg.matrix_rank")
    return reductions.sum(ufuncs.greater(s, lax.expand_dims(rtol, (rtol.ndim,))), axis=-1)


# ---------------------------------------------------------------------------- pseudo-inverse


def pinv(
    a: ArrayLike,
    rtol: ArrayLike | None = None,
    hermitian: bool = False,
    *,
    rcond: ArrayLike | None = None,
) -> Array:
    """Moore-Penrose pseudo-inverses (..., n, m) of matrices (..., m, n).

    Args: a: array; integers become floats. rtol: singular values up to `rtol` times the largest
    count as 0; an array that broadcasts with (...), by default 10 * max(m, n) times the epsilon of
    the dtype. It has no derivative. hermitian: as of `svd`. rcond: another name of rtol.
    Raises: ValueError for both rtol and rcond, and below rank 2; NotImplementedError for 16-bit
    floats.

    The inverse is made of the singular value decomposition (Golub and Van Loan, Matrix
    Computations, 4th ed., section 5.5).

    >>> jnp.linalg.pinv(jnp.array([[2.0, 0.0], [0.0, 0.0]]))
    Array([[0.5, 0. ],
           [0. , 0. ]], dtype=float32)
    """
    a = ensure_array(a, "jnp.linalg.pinv")
    if rcond is not None:
        if rtol is not None:
            raise ValueError("pinv: rcond is the older name of rtol; pass one of them")
        rtol = rcond
    if a.ndim < 2:
        raise ValueError(
            f"ferrax.numpy.linalg.pinv: expected at least two axes, got shape {tuple(a.shape)}"
        )
    (a,) = promote_dtypes_inexact(a)
    if 0 in a.shape[-2:]:
        return array_creation.empty((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if rtol is None:
        dtype = real_dtype(a.dtype)
        rtol = np.asarray(10 * max(a.shape[-2:]) * float(dtypes.finfo(dtype).eps), dtype)
    return _pinv(a, ensure_array(rtol, "jnp.linalg.pinv"), bool(hermitian))


@partial(custom_jvp, nondiff_argnums=(2,))
@jit(static_argnums=(2,))
def _pinv(a, rtol, hermitian):
    u, s, vh = svd(a, full_matrices=False, hermitian=hermitian)
    rtol = shape.expand_dims(rtol, -1)
    cutoff = ufuncs.multiply(rtol, s[..., :1])
    kept = ufuncs.greater(s, cutoff)
    inverses = ufuncs.true_divide(strong_constant(1, s), where(kept, s, strong_constant(np.inf, s)))
    inverses = convert(lax.expand_dims(inverses, (inverses.ndim - 1,)), a.dtype)
    return _product(ufuncs.multiply(adjoint(vh), inverses), adjoint(u))


@_pinv.defjvp
def _pinv_jvp(hermitian, primals, tangents):
    """Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares
    problems whose variables separate", SIAM J. Numer. Anal. 10 (1973), equation 4.12:
    `dP = -P dA P + P P^H dA^H (1 - A P) + (1 - P A) dA^H P^H P`."""
    (a, rtol), (da, _) = primals, tangents
    p = _pinv(a, rtol, hermitian)
    if hermitian:
        a, da = symmetrize(a), symmetrize(da)
    ph, dah = adjoint(p), adjoint(da)
    # Each product has the smaller of the two sizes inside.
    if a.shape[-2] >= a.shape[-1]:
        left = _product(_product(p, ph), dah)
        right = _product(_product(dah, ph), p)
        inner = _product(_product(p, da), p)
        left_rest = _product(_product(left, a), p)
        right_rest = _product(_product(p, a), right)
    else:
        left = _product(p, _product(ph, dah))
        right = _product(dah, _product(ph, p))
        inner = _product(p, _product(da, p))
        left_rest = _product(left, _product(a, p))
        right_rest = _product(p, _product(a, right))
    return p, left + right - inner - left_rest - right_rest


def _product(x, y):
    return products.matmul(x, y, precision="highest")
