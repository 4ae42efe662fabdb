"""Functions of matrices: exponentials, square roots, any function of eigenvalues, polar factors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, overload

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.composed.matrix_updates import qdwh
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax, eigen, factorisations, linalg as lax_linalg
from ferrax._src.lax.linalg import adjoint
from ferrax._src.numpy import api as jnp, systems
from ferrax._src.numpy.util import ensure_array, promote_dtypes_inexact, real_dtype
from ferrax._src.scipy.linalg.eigenvalues import as_complex, rsf2csf, schur
from ferrax._src.scipy.linalg.systems import product
from ferrax._src.transforms.autodiff import jvp
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------- exponentials

# The degree of Padé's approximant and the norm up to which it is exact but for rounding, by the size of a
# real number (Higham, table 2.3; for single precision by the same bound).
_PADE = {4: (7, 3.925724783138660), 8: (13, 5.371920351148152)}


def _pade(a, degree):
    """The numerator's even and odd part of Padé's approximant of the exponential at 0."""
    half = [
        math.factorial(2 * degree - k) // math.factorial(degree) * math.comb(degree, k)
        for k in range(degree + 1)
    ]
    # With a last coefficient of 1 all are integers, which floats of the dtype hold or round once.
    coefficients = np.asarray(half, np.float64).astype(a.dtype)
    unit = jnp.eye(a.shape[-1], dtype=a.dtype)
    square = product(a, a)
    powers = [unit, square]
    while len(powers) < 4:
        powers.append(product(powers[-1], square))

    def polynomial(terms):
        """Of the square, with degrees from 0 on; above the third by a product with the third power."""
        low = sum(p * c for c, p in zip(terms[:4], powers))
        if len(terms) <= 4:
            return low
        high = sum(p * c for c, p in zip(terms[4:], powers[1:]))
        return low + product(powers[3], high)

    return polynomial(coefficients[0::2]), product(a, polynomial(coefficients[1::2]))


@jit(static_argnames=("upper_triangular", "max_squarings"))
def _expm(a, upper_triangular, max_squarings):
    (a,) = promote_dtypes_inexact(a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"expm takes arrays (..., n, n), got shape {tuple(a.shape)}")
    if a.dtype not in (np.float32, np.float64, np.complex64, np.complex128):
        raise TypeError(
            f"expm takes float32, float64, complex64 and complex128, got {a.dtype}; convert it with astype"
        )
    if a.size == 0:
        return a
    real = real_dtype(a.dtype)
    degree, most = _PADE[np.dtype(real).itemsize]
    sums = jnp.sum(jnp.abs(lax.stop_gradient(a)), axis=-2)
    ratio = jnp.log2(jnp.max(sums, axis=-1) / np.asarray(most, real))
    times = jnp.maximum(0, jnp.ceil(ratio))
    # What is beyond the limit, or not finite, is NaN.
    beyond = ~(jnp.floor(ratio) <= max_squarings)
    times = jnp.where(beyond, 0, times)
    a = a * jnp.exp2(-times).astype(a.dtype)[..., None, None]
    even, odd = _pade(a, degree)
    if upper_triangular:
        x = factorisations.triangular_solve(even - odd, even + odd, left_side=True)
    else:
        x = systems.solve(even - odd, even + odd)
    rounds = jnp.max(times)

    def again(x, k):
        def squared(x):
            return jnp.where((k < times)[..., None, None], product(x, x), x)

        return lax.cond(k < rounds, squared, lambda x: x, x), None

    x, _ = lax.scan(again, x, np.arange(max_squarings + 1, dtype=real))
    return jnp.where(beyond[..., None, None], jnp.full_like(x, np.nan), x)


def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """Exponentials of square matrices.

    Args:
      A: array (..., n, n); integers become floats.
      upper_triangular: whether matrices are upper triangular.
      max_squarings: how often a matrix is halved before it is approximated, and the result squared. One
        whose norm needs more gives NaN.

    Returns an array (..., n, n). Derivatives are those of the approximation.

    Errors: ValueError for what are no square matrices; TypeError for 16-bit floats.

    (Padé's approximant with scaling and squaring: Higham, The scaling and squaring method for the matrix
    exponential revisited, SIAM J. Matrix Anal. Appl. 26, 2005.)

    >>> ferrax.scipy.linalg.expm(jnp.zeros((2, 2)))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return _expm(ensure_array(A, "expm"), bool(upper_triangular), int(max_squarings))


@overload
def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: Literal[True] = True
) -> tuple[Array, Array]: ...
@overload
def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: Literal[False]
) -> Array: ...
@overload
def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Array | tuple[Array, Array]: ...
def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Array | tuple[Array, Array]:
    """The derivative of the exponential of matrices in a direction.

    Args:
      A, E: arrays (..., n, n) of one shape and dtype: where, and in which direction.
      method: is not read: the derivative is that of `expm`, forwards.
      compute_expm: whether the exponential is returned, too.

    Returns ``(expm(A), derivative)`` or the derivative, (..., n, n) each.

    Errors: ValueError for other shapes; TypeError for dtypes that differ.

    (Al-Mohy and Higham, Computing the Fréchet derivative of the matrix exponential, SIAM J. Matrix Anal.
    Appl. 30, 2009.)

    >>> ferrax.scipy.linalg.expm_frechet(jnp.zeros((1, 1)), jnp.ones((1, 1)), compute_expm=False)
    Array([[1.]], dtype=float32)
    """
    del method
    A, E = jnp.asarray(A), jnp.asarray(E)
    for name, x in (("A", A), ("E", E)):
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"expm_frechet: {name} must have shape (..., n, n), got {tuple(x.shape)}")
    if A.shape != E.shape:
        raise ValueError(
            f"expm_frechet: A and E must have one shape, got {tuple(A.shape)} and {tuple(E.shape)}"
        )
    value, derivative = jvp(expm, (A,), (E,))
    return (value, derivative) if compute_expm else derivative


# ---------------------------------------------------------------------------- by Schur's form


def _column(x, k):
    return lax.dynamic_index_in_dim(x, k, 1, keepdims=False)


def _root_of_triangular(t):
    """The upper triangular `U` with `U U = T`: column after column, `(U + u_jj I) u_j = t_j`."""
    size = t.shape[0]
    roots = jnp.sqrt(jnp.diagonal(t))
    rows = np.arange(size)

    def step(u, j):
        above = rows < j
        own = jnp.take(roots, j)
        sums = roots + own
        none = sums == 0
        # Where the divisor is zero, what is divided has to be.
        shift = jnp.where(none, 1, own) - jnp.where(none, roots, 0)
        rest = jnp.where(above, _column(t, j), 0)
        found = factorisations.triangular_solve(u + jnp.diag(shift), rest, left_side=True)
        found = jnp.where(none & (found != 0), jnp.full_like(found, np.nan), found)
        return lax.dynamic_update_index_in_dim(u, jnp.where(above, found, _column(u, j)), j, 1), None

    # Columns from j on are those of the diagonal alone.
    return lax.scan(step, jnp.diag(roots), rows)[0]


def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """The principal square root of a matrix.

    Args:
      A: matrix (n, n); integers become floats.
      blocksize: 1.

    Returns a complex matrix (n, n) whose square is ``A``; its eigenvalues have no negative real part. NaN
    where there is no root.

    Errors: ValueError for other shapes; NotImplementedError for another blocksize, 16-bit floats and
    derivatives.

    (Björck and Hammarling, A Schur method for the square root of a matrix, Linear Algebra and its
    Applications 52/53, 1983.)

    >>> ferrax.scipy.linalg.sqrtm(jnp.array([[4.0, 0.0], [0.0, 9.0]]))
    Array([[2.+0.j, 0.+0.j],
           [0.+0.j, 3.+0.j]], dtype=complex64)
    """
    if blocksize > 1:
        raise NotImplementedError(f"sqrtm: blocksize has to be 1, got {blocksize!r}")
    return _sqrtm(jnp.asarray(A))


@jit
def _sqrtm(a):
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(
            f"sqrtm takes one square matrix, got shape {tuple(a.shape)}; use ferrax.vmap for many"
        )
    t, z = eigen.schur(as_complex(a))
    return product(product(z, _root_of_triangular(t)), adjoint(z))


def _of_triangular(t, values):
    """The upper triangular `F` with this diagonal that commutes with `T`, and the least distance of
    eigenvalues that was divided by.

    Column after column: with what is known, `F` of the rows above, `(T - t_jj) f_j = F t_j - f_jj t_j`.
    """
    rows = np.arange(t.shape[0])
    own = jnp.diagonal(t)

    def step(state, j):
        f, least = state
        above = rows < j
        apart = own - jnp.take(own, j)
        same = apart == 0
        # Equal eigenvalues: what is divided stays as it is.
        shifted = jnp.triu(t, 1) + jnp.diag(jnp.where(same, -1, apart))
        column = jnp.where(above, _column(t, j), 0)
        rest = jnp.where(above, product(f, column) - jnp.take(values, j) * column, 0)
        # Rows from j on of the solution are zero, for those of the right-hand side are.
        found = factorisations.triangular_solve(shifted, rest, left_side=True)
        f = lax.dynamic_update_index_in_dim(f, jnp.where(above, found, _column(f, j)), j, 1)
        distances = jnp.where(above, jnp.abs(apart), np.inf)
        return (f, jnp.minimum(least, jnp.min(distances, initial=np.inf))), None

    return lax.scan(step, (jnp.diag(values), jnp.abs(t[0, 0])), rows)[0]


@overload
def funm(A: ArrayLike, func: Callable[[Array], Array], disp: Literal[True] = True) -> Array: ...
@overload
def funm(
    A: ArrayLike, func: Callable[[Array], Array], disp: Literal[False]
) -> tuple[Array, Array]: ...
def funm(
    A: ArrayLike, func: Callable[[Array], Array], disp: bool = True
) -> Array | tuple[Array, Array]:
    """A function of a matrix, by that function of its eigenvalues.

    Args:
      A: matrix (n, n) of floats or complex numbers.
      func: takes the complex eigenvalues (n,) and returns as many values.
      disp: False returns an estimate of the error, too.

    Returns a complex matrix (n, n), or it and the estimated error, relative to its norm. Where eigenvalues
    are close to each other the result is inexact.

    Errors: ValueError for other shapes; TypeError for integers; NotImplementedError for 16-bit floats and
    derivatives.

    (Parlett, A recurrence among the elements of functions of triangular matrices, Linear Algebra and its
    Applications 14, 1976; Golub and Van Loan, Matrix Computations, 4th ed., section 9.1.4.)

    >>> ferrax.scipy.linalg.funm(jnp.array([[1.0, 0.0], [0.0, 2.0]]), lambda x: x**2)
    Array([[1.+0.j, 0.+0.j],
           [0.+0.j, 4.+0.j]], dtype=complex64)
    """
    A = jnp.asarray(A)
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"funm takes one square matrix, got shape {tuple(A.shape)}")
    real, basis = schur(A)
    t, z = rsf2csf(real, basis)
    values = jnp.asarray(func(jnp.diagonal(t))).astype(t.dtype)
    f, least = _of_triangular(t, values)
    f = product(product(z, f), adjoint(z))
    if disp:
        return f
    eps = float(dtypes.finfo(real_dtype(t.dtype)).eps)
    least = jnp.where(least == 0, eps, least)
    norm = jnp.max(jnp.sum(jnp.abs(jnp.triu(t, 1)), axis=0))
    error = jnp.minimum(1, jnp.maximum(eps, eps / least * norm))
    return f, jnp.where(jnp.any(jnp.isinf(f)), np.inf, error)


# ---------------------------------------------------------------------------- polar factors


def _polar_by_svd(a, side):
    u, s, vh = lax_linalg.svd(a, full_matrices=False)
    s = s.astype(u.dtype)
    positive = product(adjoint(vh) * s, vh) if side == "right" else product(u * s, adjoint(u))
    return product(u, vh), positive


def _polar_by_iteration(a, side, eps, steps):
    if side == "right":
        return qdwh(a, eps=eps, max_iterations=steps)[:2]
    unitary, positive, *_ = qdwh(adjoint(a), eps=eps, max_iterations=steps)
    return adjoint(unitary), adjoint(positive)


@jit(static_argnames=("side", "method", "eps", "max_iterations"))
def _polar(a, side, method, eps, max_iterations):
    if a.ndim < 2:
        raise ValueError(f"polar takes arrays (..., m, n), got shape {tuple(a.shape)}")
    if side not in ("right", "left"):
        raise ValueError(f"polar: side has to be 'right' or 'left', got {side!r}")
    if method not in ("qdwh", "svd"):
        raise ValueError(f"polar: method has to be 'qdwh' or 'svd', got {method!r}")
    rows, columns = a.shape[-2:]
    if method == "qdwh" and (rows >= columns) != (side == "right"):
        raise NotImplementedError(
            "polar: method='qdwh' takes side='right' for matrices (m, n) with m >= n and side='left' for"
            f" others, got shape {tuple(a.shape)} and side={side!r}; pass method='svd'"
        )
    if not dtypes.issubdtype(a.dtype, np.inexact):
        raise ValueError(f"polar takes floats and complex numbers, got {a.dtype}; convert with astype")

    def factors(a):
        if method == "svd":
            return _polar_by_svd(a, side)
        return _polar_by_iteration(a, side, eps, max_iterations)

    square = "(n,n)" if side == "right" else "(m,m)"
    return jnp.vectorize(factors, signature=f"(m,n)->(m,n),{square}")(a)


def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:
    """Polar factors: ``a = u @ p`` or ``a = p @ u``, with orthonormal columns or rows and a Hermitian matrix.

    Args:
      a: array (..., m, n) of floats or complex numbers.
      side: on which side of ``u`` the Hermitian matrix stands.
      method: "qdwh", an iteration, for m >= n on the right and m < n on the left; or "svd".
      eps: the accuracy of the iteration, by default the epsilon of the dtype.
      max_iterations: steps after which it ends, by default 10.

    Returns ``(u, p)``: (..., m, n), and positive semidefinite (..., n, n) on the right or (..., m, m) on the
    left.

    Errors: ValueError below rank 2, for integers, and for another side and method; NotImplementedError for
    shapes that the iteration does not take, and for 16-bit floats.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 9.4.3; the iteration: `lax.linalg.qdwh`.)

    >>> u, p = ferrax.scipy.linalg.polar(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> jnp.abs(p.round(3))
    Array([[3., 0.],
           [0., 2.]], dtype=float32)
    """
    a = jnp.asarray(a)
    eps = None if eps is None else float(eps)
    steps = None if max_iterations is None else int(max_iterations)
    return _polar(a, side, method, eps, steps)
