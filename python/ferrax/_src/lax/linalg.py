"""``ferrax.lax.linalg``: eigenvalues and singular values of matrices.

Matrices are the last two axes, all leading axes are batches. The dtypes are those of LAPACK:
float32, float64, complex64 and complex128.
"""

from __future__ import annotations

import enum

import numpy as np

from ferrax._core import Array, bind
from ferrax._src.base import dtypes
from ferrax._src.base.jax_version import follows
from ferrax._src.lax.arguments import describe, int_tuple, operand as _operand
from ferrax._src.lax.elementwise import conj
from ferrax._src.lax.shape import transpose
from ferrax._src.lax.slicing import slice_in_dim


class EighImplementation(enum.Enum):
    """Names of algorithms of `eigh`, of which the CPU has one: each name, and None, means
    tridiagonal form and divide and conquer, and gives the same result.

    >>> lax.linalg.EighImplementation.QR.value
    'qr'
    """

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """Names of algorithms of `svd`, of which the CPU has one: each name, and None, means bidiagonal
    form and divide and conquer, and gives the same result.

    >>> [algorithm.name for algorithm in lax.linalg.SvdAlgorithm]
    ['DEFAULT', 'QR', 'JACOBI', 'POLAR', 'DIVIDE_AND_CONQUER']
    """

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


_DTYPES = frozenset(map(np.dtype, (np.float32, np.float64, np.complex64, np.complex128)))


def adjoint(x: Array) -> Array:
    """The matrices of the last two axes, transposed and conjugated."""
    *batch, row, column = range(x.ndim)
    swapped = transpose(x, (*batch, column, row))
    return swapped if np.dtype(x.dtype).kind != "c" else conj(swapped)


def symmetrize(x: Array) -> Array:
    """The Hermitian part of square matrices, ``(x + x^H) / 2``; integers become floats.

    Errors: TypeError for what are no square matrices.

    >>> symmetrize(jnp.array([[1.0, 4.0], [0.0, 1.0]]))
    Array([[1., 2.],
           [2., 1.]], dtype=float32)
    """
    x = _operand(x, "symmetrize")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise TypeError(
            "symmetrize: the transpose of a matrix can be added to it if the matrix is square:"
            f" expected shape [..., n, n], got {describe(x)}"
        )
    return (x + adjoint(x)) / 2


def eigh(
    x: Array,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Array, Array]:
    """Eigenvectors and eigenvalues of symmetric or Hermitian matrices.

    Args:
      x: array (..., n, n) of float32, float64, complex64 or complex128.
      lower: whether the lower triangle is read, or the upper one.
      symmetrize_input: whether ``(x + x^H) / 2`` takes the place of ``x``; integers then become
        floats, and ``lower`` makes no difference.
      sort_eigenvalues: here eigenvalues always ascend.
      subset_by_index: the range ``(start, end)`` of eigenvalues, counted from the least, that are
        returned with their vectors; None for all. All are computed, so a range saves no time.
      implementation: a hint that makes no difference: see `EighImplementation`.

    Returns ``(v, w)``: eigenvectors as the columns of ``v`` (..., n, d), orthonormal, of the dtype
    of ``x``; real eigenvalues ``w`` (..., d), where d is n, or the range's length. A matrix with NaN
    gives NaN. Derivatives of eigenvectors are NaN where eigenvalues are equal; those of eigenvalues
    are finite.

    Errors: TypeError for other ranks and for integers that are not symmetrized; ValueError for an
    empty range, one beyond the eigenvalues, and what is no `EighImplementation`; NotImplementedError
    for 16-bit floats; for matrices that are not square TypeError from symmetrizing, else ValueError.

    (Golub and Van Loan, Matrix Computations, 4th ed., sections 8.3 and 8.4.)

    >>> lax.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]]))[1]
    Array([1., 2.], dtype=float32)
    """
    x = _operand(x, "eigh")
    _check_rank("eigh", x)
    if symmetrize_input:
        x = symmetrize(x)
    _check_dtype("eigh", x)
    if x.shape[-1] != x.shape[-2]:
        raise ValueError(
            f"eigh: expected square matrices in the last two axes, got shape {tuple(x.shape)}"
        )
    chosen = index_range("eigh", subset_by_index, x.shape[-1])
    if implementation is not None:
        EighImplementation(implementation)
    params = {"lower": bool(lower), "sort_eigenvalues": bool(sort_eigenvalues)}
    vectors, values = bind("eigh", (x,), params)
    return (vectors, values) if chosen is None else (_last(vectors, chosen), _last(values, chosen))


def svd(
    x: Array,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Array | tuple[Array, Array, Array]:
    """Singular values and vectors of matrices: ``x = u @ diag(s) @ vh``.

    Args:
      x: array (..., m, n) of float32, float64, complex64 or complex128. Let k be min(m, n).
      full_matrices: whether ``u`` and ``vh`` are completed to square matrices.
      compute_uv: whether singular vectors are returned.
      subset_by_index: the range ``(start, end)`` of singular values, counted from the largest, that
        are returned with their vectors; None for all. All are computed, so a range saves no time.
      algorithm: a hint that makes no difference: see `SvdAlgorithm`.

    Returns the singular values ``s`` (..., k), real and descending, without vectors; else
    ``(u, s, vh)``, ``u`` of shape (..., m, k) and ``vh`` (..., k, n), or (..., m, m) and
    (..., n, n) if full; of a range, its length takes the place of k. A matrix with NaN gives NaN.

    Errors: TypeError for other ranks and for integers; ValueError for an empty range, one beyond the
    singular values, and part of the range with full matrices; NotImplementedError for 16-bit floats,
    what is no `SvdAlgorithm`, and for derivatives of full matrices that are not square.

    (Golub and Van Loan, Matrix Computations, 4th ed., sections 8.6.2 and 8.6.3.)

    >>> lax.linalg.svd(jnp.array([[0.0, 3.0], [2.0, 0.0]]), compute_uv=False)
    Array([3., 2.], dtype=float32)
    """
    x = _operand(x, "svd")
    _check_rank("svd", x)
    _check_dtype("svd", x)
    smaller = min(x.shape[-2:])
    if full_matrices and subset_by_index is not None and int_tuple(subset_by_index) != (0, smaller):
        raise ValueError(
            f"svd: full_matrices and subset_by_index={subset_by_index!r} cannot both be set;"
            " pass full_matrices=False"
        )
    chosen = index_range("svd", subset_by_index, smaller)
    # No algorithm is needed for matrices of no elements.
    if smaller and not (algorithm is None or isinstance(algorithm, SvdAlgorithm)):
        raise NotImplementedError(
            f"svd: algorithm={algorithm!r} is not implemented on CPU; pass None or one of"
            f" {', '.join(map(str, SvdAlgorithm))}"
        )
    params = {"compute_uv": bool(compute_uv), "full_matrices": bool(full_matrices)}
    results = bind("svd", (x,), params)
    if not compute_uv:
        s = results[0] if isinstance(results, (list, tuple)) else results
        return s if chosen is None else _last(s, chosen)
    s, u, vh = results
    if chosen is None:
        return u, s, vh
    return _last(u, chosen), _last(s, chosen), slice_in_dim(vh, *chosen, axis=vh.ndim - 2)


def index_range(
    name: str, subset_by_index: tuple[int, int] | None, count: int
) -> tuple[int, int] | None:
    """The range of so many values that is asked for; None for all.

    Errors: ValueError for what are not two numbers, an empty range and one beyond the values.
    """
    if subset_by_index is None:
        return None
    found = int_tuple(subset_by_index)
    if found == (0, count):
        return None
    if len(found) != 2 or not 0 <= found[0] < found[1] <= count:
        raise ValueError(
            f"{name}: subset_by_index has to be (start, end) with 0 <= start < end <= {count}, got"
            f" {subset_by_index!r}"
        )
    return found[0], found[1]


def _last(x: Array, chosen: tuple[int, int]) -> Array:
    """This range of the last axis."""
    return slice_in_dim(x, *chosen, axis=x.ndim - 1)


def _check_rank(name: str, x: Array, rank: int = 2, position: int = 0) -> None:
    if x.ndim < rank:
        raise TypeError(
            f"Input {position} to {name} must have rank at least {rank}, but got"
            f" shape={tuple(x.shape)}"
        )


def _check_dtype(name: str, x: Array, position: int = 0) -> None:
    if x.dtype in _DTYPES:
        return
    if not dtypes.issubdtype(x.dtype, np.inexact):
        raise TypeError(
            f"{name} does not accept dtype {x.dtype} for operand {position}, which"
            f" takes floating, complexfloating; convert it with astype."
        )
    if follows(0, 12):
        raise TypeError(
            f"{name} does not accept dtype {x.dtype} for operand {position}, which takes float32, float64, complex64 "
            "and complex128; convert it with astype."
        )
    raise NotImplementedError(
        f"{name}: Unsupported dtype {x.dtype}. Expected float32, float64, complex64 or complex128;"
        " convert it with astype."
    )
