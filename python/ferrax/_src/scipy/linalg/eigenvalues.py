"""Eigenvalues and the forms that show them, under SciPy's names.

Arguments by which SciPy writes over its operands or looks for values that are not finite are not read:
arrays are immutable, and NaN gives NaN.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, overload

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax, eigen, factorisations, linalg as lax_linalg
from ferrax._src.lax.arguments import int_tuple
from ferrax._src.lax.control_flow.while_loop import fori_loop, while_loop
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import ensure_array, promote_dtypes_inexact, real_dtype
from ferrax._src.transforms.custom_jvp import custom_jvp
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------- Hermitian matrices


@overload
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: Literal[False] = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: tuple[int, int] | None = None,
    type: int = 1,
    check_finite: bool = True,
) -> tuple[Array, Array]: ...
@overload
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    *,
    eigvals_only: Literal[True],
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: tuple[int, int] | None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Array: ...
@overload
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: tuple[int, int] | None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Array | tuple[Array, Array]: ...
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: tuple[int, int] | None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Array | tuple[Array, Array]:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices.

    Args:
      a: array (..., n, n), of which the Hermitian part counts; integers become floats.
      b: None, or an array of that shape, of which the Hermitian part counts and has to be positive definite.
      lower: makes no difference, for both triangles count.
      eigvals_only: whether eigenvalues alone are returned.
      eigvals: the first and the last number, from 0, of the eigenvalues that are returned with their
        vectors, counted from the least; None for all. All are computed.
      type: which problem is solved with `b`: 1: a @ v = w * b @ v; 2: a @ b @ v = w * v; 3: b @ a @ v = w * v.
      overwrite_a, overwrite_b, turbo, check_finite: are not read.

    Returns ``(w, v)`` or ``w``: real eigenvalues (..., d), ascending, and orthonormal eigenvectors as the
    columns of an array (..., n, d), where d is n, or how many are asked for. With `b` the eigenvectors are
    orthonormal in its sense, and all NaN where it is not positive definite.

    Errors: NotImplementedError for 16-bit floats; ValueError for another type, for numbers that are not those of
    eigenvalues, in order, and for matrices of different sizes; TypeError for what are no square matrices.

    With a Cholesky factor of `b` the problem becomes one without it (Golub and Van Loan, Matrix Computations,
    4th ed., chapter 8).

    >>> ferrax.scipy.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]]), eigvals_only=True)
    Array([1., 2.], dtype=float32)
    """
    del overwrite_a, overwrite_b, turbo, check_finite
    if type not in (1, 2, 3):
        raise ValueError(f"eigh: type has to be 1, 2 or 3, got {type!r}")
    chosen = None if eigvals is None else int_tuple(eigvals)
    if b is None:
        return _eigh(jnp.asarray(a), bool(lower), bool(eigvals_only), chosen)
    return _eigh_of_two(jnp.asarray(a), jnp.asarray(b), bool(eigvals_only), chosen, int(type))


@jit(static_argnames=("lower", "eigvals_only", "chosen"))
def _eigh(a, lower, eigvals_only, chosen):
    (a,) = promote_dtypes_inexact(a)
    part = None
    if chosen is not None and a.ndim > 1:
        if len(chosen) != 2 or not 0 <= chosen[0] <= chosen[1] < a.shape[-1]:
            raise ValueError(
                f"eigh: eigvals has to be (first, last) with 0 <= first <= last < {a.shape[-1]}, got {chosen!r}"
            )
        part = (chosen[0], chosen[1] + 1)
    vectors, values = lax_linalg.eigh(a, lower=lower, subset_by_index=part)
    return values if eigvals_only else (values, vectors)


@jit(static_argnames=("eigvals_only", "chosen", "kind"))
def _eigh_of_two(a, b, eigvals_only, chosen, kind):
    a, b = promote_dtypes_inexact(a, b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != a.shape[-2] or b.shape[-1] != b.shape[-2]:
        raise TypeError(f"eigh: the matrices have to be square, got arrays of shapes {a.shape} and {b.shape}")
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"eigh: the matrices have to have the same size, got shapes {a.shape} and {b.shape}")
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    factor = factorisations.cholesky(b, symmetrize_input=True)
    adjoint = jnp.conj(jnp.swapaxes(factor, -1, -2))
    if kind == 1:  # inv(L) a inv(L)^H
        half = factorisations.triangular_solve(factor, a, left_side=True, lower=True)
        plain = factorisations.triangular_solve(factor, half, lower=True, transpose_a=True, conjugate_a=True)
    else:  # L^H a L
        plain = adjoint @ a @ factor
    found = _eigh(plain, True, eigvals_only, chosen)
    if eigvals_only:
        return found
    values, vectors = found
    if kind == 3:
        return values, factor @ vectors
    return values, factorisations.triangular_solve(
        factor, vectors, left_side=True, lower=True, transpose_a=True, conjugate_a=True
    )


# ---------------------------------------------------------------------------- tridiagonal matrices


def _counts(d, squares, x):
    """How many eigenvalues are below each `x`: negative pivots of `T - x` (Sturm's sequence).

    A pivot of 0 divides to an infinity of the other sign, after which a row begins anew: no case for itself,
    as long as signs of zeros count and no square is 0. (Demmel and Li, Faster numerical algorithms via
    exception handling, IEEE Trans. Computers 43, 1994, section 4.)
    """
    bits = dtypes.finfo(x.dtype).bits
    unsigned = np.dtype(f"uint{bits}")

    def below(state, row):
        diagonal, square = row
        pivot, count = state
        pivot = (diagonal - x) - square / pivot
        sign = lax.shift_right_logical(lax.bitcast_convert_type(pivot, unsigned), unsigned.type(bits - 1))
        return (pivot, count + sign), None

    state = (jnp.ones_like(x), jnp.zeros(x.shape, unsigned))
    rows = (d, jnp.concatenate([jnp.zeros_like(squares[:1]), squares]))
    (_, count), _ = lax.scan(below, state, rows, unroll=4)
    return count.astype(np.int32)


def _bisected(d, e, tol, first, last):
    """Eigenvalues number `first` up to `last` of the tridiagonal matrix, each within its interval."""
    info = dtypes.finfo(d.dtype)
    eps, tiny = float(info.eps), float(info.tiny)
    beside = jnp.abs(e)
    pad = jnp.zeros_like(beside[:1])
    around = jnp.concatenate([pad, beside]) + jnp.concatenate([beside, pad])
    # Gershgorin's circles.
    norm = jnp.maximum(jnp.abs(jnp.min(d - around)), jnp.abs(jnp.max(d + around)))
    # Of elements of at most 1, squares of those that count are numbers.
    _, exponent = jnp.frexp(norm)
    d, beside, around, norm = (jnp.ldexp(x, -exponent) for x in (d, beside, around, norm))
    squares = jnp.maximum(beside * beside, tiny)
    slack = 4 * d.shape[0] * eps * norm + 4 * tiny
    wanted = np.arange(first, last, dtype=np.int32)
    enough = eps * norm
    if tol is not None:
        enough = jnp.maximum(jnp.ldexp(jnp.asarray(tol, d.dtype), -exponent), enough)

    def wide(state):
        step, lower, upper = state
        return (step <= info.nmant) & (jnp.max(upper - lower) > enough)

    def halve(state):
        step, lower, upper = state
        middle = 0.5 * (lower + upper)
        left = _counts(d, squares, middle) > wanted
        return step + 1, jnp.where(left, lower, middle), jnp.where(left, middle, upper)

    start = (jnp.full(wanted.shape, x) for x in (jnp.min(d - around) - slack, jnp.max(d + around) + slack))
    _, lower, upper = while_loop(wide, halve, (0, *start))
    return jnp.ldexp(0.5 * (lower + upper), exponent)


def _dense(d, e):
    return jnp.diag(d.astype(e.dtype)) + jnp.diag(e, 1) + jnp.diag(jnp.conj(e), -1)


def _decomposed(d, e):
    vectors, values = lax_linalg.eigh(_dense(d, e), symmetrize_input=False)
    return values, vectors


@partial(custom_jvp, nondiff_argnums=(2, 3, 4))
def _eigenvalues(d, e, tol, first, last):
    return _bisected(d, e, tol, first, last)


@_eigenvalues.defjvp
def _eigenvalues_jvp(tol, first, last, primals, tangents):
    """The tangent of a simple eigenvalue is `v^H dT v`, where `v` is its vector of length 1."""
    (d, e), (dd, de) = primals, tangents
    values = _eigenvalues(d, e, tol, first, last)
    v = _decomposed(d, e)[1][:, first:last]
    sizes = jnp.real(jnp.conj(v) * v)
    beside = 2 * jnp.real(jnp.conj(v[:-1]) * de[:, None] * v[1:])
    return values, jnp.sum(sizes * dd[:, None], axis=0) + jnp.sum(beside, axis=0)


def _range(size, select, select_range):
    if select == "a":
        return 0, size
    if select == "v":
        raise NotImplementedError(
            "eigh_tridiagonal: eigenvalues cannot be selected by values, for their number is not known;"
            " pass select='a' or 'i'"
        )
    if select != "i":
        raise ValueError(f"eigh_tridiagonal: select has to be 'a', 'i' or 'v', got {select!r}")
    if select_range is None or select_range[0] > select_range[1]:
        raise ValueError(
            "eigh_tridiagonal: select='i' takes select_range=(first, last) with first <= last, got"
            f" {select_range!r}"
        )
    first, last = (int(x) for x in select_range)
    if first < 0 or last >= size:
        raise ValueError(
            f"eigh_tridiagonal: select_range={select_range!r} is beyond the {size} eigenvalues"
        )
    return first, last + 1


@jit(static_argnames=("eigvals_only", "select", "select_range", "tol"))
def _eigh_tridiagonal(d, e, eigvals_only, select, select_range, tol):
    if d.dtype != e.dtype:
        raise TypeError(
            f"eigh_tridiagonal: both diagonals must have one dtype, got {d.dtype} and {e.dtype}"
        )
    if d.dtype not in (np.float32, np.float64, np.complex64, np.complex128):
        raise TypeError(
            f"eigh_tridiagonal takes float32, float64, complex64 and complex128, got {d.dtype}"
        )
    size = d.shape[0] if d.ndim == 1 else 0
    if d.ndim != 1 or e.ndim != 1 or e.shape[0] != max(size - 1, 0):
        raise TypeError(
            "eigh_tridiagonal takes diagonals of shapes (n,) and (n - 1,), got"
            f" {tuple(d.shape)} and {tuple(e.shape)}"
        )
    first, last = _range(size, select, select_range)
    real = jnp.real(d)
    if eigvals_only:
        return real if size <= 1 else _eigenvalues(real, e, tol, first, last)
    if size <= 1:
        return real, jnp.eye(size, dtype=d.dtype)
    values, vectors = _decomposed(real, e)
    return values[first:last], vectors[:, first:last]


def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: ArrayLike | None = None,
) -> Array | tuple[Array, Array]:
    """Eigenvalues and eigenvectors of a symmetric or Hermitian tridiagonal matrix.

    Args:
      d: the diagonal (n,), of which the real part counts.
      e: what is above it, (n - 1,), of the same dtype; below it stands the conjugate.
      eigvals_only: whether eigenvalues alone are returned.
      select: "a" for all, "i" for those of the numbers in ``select_range``.
      select_range: the first and the last number, from 0 on.
      tol: how far eigenvalues may be away if they alone are computed; never less than the rounding of the
        largest one.
      key: is not read: nothing is random here.

    Returns ``(w, v)`` or ``w``: real eigenvalues (k,), ascending, and orthonormal eigenvectors (n, k) as
    columns. Both have derivatives, those of vectors where eigenvalues are distinct.

    Errors: TypeError for other dtypes and shapes; ValueError for another ``select`` and numbers that are not
    there; NotImplementedError for "v".

    (Eigenvalues alone: bisection by Sturm's sequences, Barth, Martin and Wilkinson, Calculation of the
    eigenvalues of a symmetric tridiagonal matrix by the method of bisection, Numerische Mathematik 9, 1967.)

    >>> ferrax.scipy.linalg.eigh_tridiagonal(jnp.array([2.0, 1.0]), jnp.zeros(1), eigvals_only=True)
    Array([1., 2.], dtype=float32)
    """
    del key
    d, e = jnp.asarray(d), jnp.asarray(e)
    if select_range is not None:
        select_range = (select_range[0], select_range[1])
    tol = None if tol is None else float(tol)
    return _eigh_tridiagonal(d, e, bool(eigvals_only), select, select_range, tol)


# ---------------------------------------------------------------------------- Schur's form


def schur(a: ArrayLike, output: str = "real") -> list[Array]:
    """Schur's form: ``a = Z @ T @ Z^H`` with unitary ``Z``.

    Args:
      a: array (..., n, n) of floats or complex numbers.
      output: "real", or "complex" for the form of the matrix as a complex one.

    Returns ``[T, Z]``, (..., n, n) each: ``T`` is upper triangular, save that real ones have blocks of two
    rows for pairs of complex eigenvalues. A matrix that is not finite gives NaN.

    Errors: ValueError for another output and matrices that are not square; TypeError below rank 2 and for
    integers if real; NotImplementedError for 16-bit floats and derivatives.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 7.5.)

    >>> ferrax.scipy.linalg.schur(jnp.array([[2.0, 1.0], [0.0, 3.0]]))[0]
    Array([[2., 1.],
           [0., 3.]], dtype=float32)
    """
    if output not in ("real", "complex"):
        raise ValueError(f"schur: output has to be 'real' or 'complex', got {output!r}")
    return _schur(ensure_array(a, "schur"), output)


def as_complex(x: Array) -> Array:
    """Real numbers as complex ones, integers in the default precision."""
    if jnp.iscomplexobj(x):
        return x
    (x,) = promote_dtypes_inexact(x)
    return x.astype(np.result_type(x.dtype, np.complex64))


@jit(static_argnames=("output",))
def _schur(a, output):
    return eigen.schur(as_complex(a) if output == "complex" else a)


def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """The complex Schur form of a real one.

    Args:
      T, Z: arrays (..., n, n): the form and the unitary matrix, as `schur` returns them.
      check_finite: is not read.

    Returns complex ``(T, Z)`` with the same ``Z @ T @ Z^H``, ``T`` upper triangular.

    Errors: ValueError for other shapes.

    (By rotations that make the blocks triangular, from the last one on: Golub and Van Loan, Matrix
    Computations, 4th ed., section 7.4.1.)

    >>> t, z = ferrax.scipy.linalg.rsf2csf(jnp.array([[0.0, -1.0], [1.0, 0.0]]), jnp.eye(2))
    >>> jnp.diagonal(t).round(3)
    Array([0.+1.j, 0.-1.j], dtype=complex64)
    """
    del check_finite
    T, Z = jnp.asarray(T), jnp.asarray(Z)
    for name, x in (("T", T), ("Z", Z)):
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"rsf2csf: {name} must have shape (..., n, n), got {tuple(x.shape)}")
    if T.shape[-1] != Z.shape[-1]:
        raise ValueError(
            f"rsf2csf: matrices must have one size, got shapes {tuple(T.shape)} and {tuple(Z.shape)}"
        )
    return _rsf2csf(T, Z)


@jit
def _rsf2csf(t, z):
    t, z = (as_complex(x) for x in promote_dtypes_inexact(t, z))
    return jnp.vectorize(_triangular, signature="(n,n),(n,n)->(n,n),(n,n)")(t, z)


def _triangular(t, z):
    size = t.shape[0]
    if size <= 1:
        return t, z
    eps = float(dtypes.finfo(real_dtype(t.dtype)).eps)
    places = np.arange(size)

    def rotation(block, below):
        """The rotation that makes a block of two rows triangular, the eigenvalue that is farther from its
        last element first."""
        half = 0.5 * (block[0, 0] - block[1, 1])
        root = jnp.sqrt(half * half + block[0, 1] * below)
        along = jnp.real(jnp.conj(half) * root) < 0
        apart = half + jnp.where(along, -root, root)
        length = jnp.hypot(jnp.abs(apart), jnp.abs(below))
        safe = jnp.where(length == 0, 1, length).astype(block.dtype)
        c, s = apart / safe, below / safe
        return jnp.stack([jnp.stack([jnp.conj(c), s]), jnp.stack([-s, c])])

    def step(k, state):
        t, z = state
        row = size - 1 - k
        block = lax.dynamic_slice(t, (row - 1, row - 1), (2, 2))
        below = block[1, 0]
        beside = jnp.abs(block[0, 0]) + jnp.abs(block[1, 1])
        turn = rotation(block, below)
        unit = jnp.eye(2, dtype=t.dtype)
        turn = jnp.where(jnp.abs(below) > eps * beside, turn, unit)
        back = jnp.conj(turn.T)
        rows = lax.dynamic_slice(t, (row - 1, 0), (2, size))
        turned = _product(turn, rows)
        t = lax.dynamic_update_slice(t, jnp.where(places >= row - 1, turned, rows), (row - 1, 0))
        columns = lax.dynamic_slice(t, (0, row - 1), (size, 2))
        turned = _product(columns, back)
        columns = jnp.where(places[:, None] <= row, turned, columns)
        t = lax.dynamic_update_slice(t, columns, (0, row - 1))
        t = lax.dynamic_update_slice(t, jnp.zeros((1, 1), t.dtype), (row, row - 1))
        of_z = _product(lax.dynamic_slice(z, (0, row - 1), (size, 2)), back)
        return t, lax.dynamic_update_slice(z, of_z, (0, row - 1))

    return fori_loop(0, size - 1, step, (t, z))


def _product(x, y):
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)


# ---------------------------------------------------------------------------- Hessenberg's form


@overload
def hessenberg(
    a: ArrayLike,
    *,
    calc_q: Literal[False] = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> Array: ...
@overload
def hessenberg(
    a: ArrayLike,
    *,
    calc_q: Literal[True],
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> tuple[Array, Array]: ...
def hessenberg(
    a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array | tuple[Array, Array]:
    """Hessenberg's form, ``a = Q @ H @ Q^H``: zero below the elements next to the diagonal.

    Args:
      a: array (..., n, n) of floats or complex numbers.
      calc_q: whether unitary ``Q`` is returned.
      overwrite_a, check_finite: are not read.

    Returns ``(H, Q)`` or ``H``, (..., n, n) each.

    Errors: ValueError for matrices that are not square; TypeError below rank 2 and for integers;
    NotImplementedError for 16-bit floats and derivatives.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 7.4.3.)

    >>> ferrax.scipy.linalg.hessenberg(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    del overwrite_a, check_finite
    return _hessenberg(ensure_array(a, "hessenberg"), bool(calc_q))


@jit(static_argnames=("calc_q",))
def _hessenberg(a, calc_q):
    if a.ndim and a.shape[-1] == 0:
        return (jnp.zeros_like(a), jnp.zeros_like(a)) if calc_q else jnp.zeros_like(a)
    packed, taus = eigen.hessenberg(a)
    form = jnp.triu(packed, -1)
    if not calc_q:
        return form
    # The first row and column are those of the identity.
    q = factorisations.householder_product(packed[..., 1:, :-1], taus)
    width = [(0, 0)] * (q.ndim - 2) + [(1, 0), (1, 0)]
    corner = np.zeros(a.shape[-2:], bool)
    corner[0, 0] = True
    return form, jnp.where(corner, jnp.ones_like(a), jnp.pad(q, width))
