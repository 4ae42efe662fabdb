"""Linear systems, determinants and triangular and orthonormal factors: functions of `jnp.linalg`.

Solutions are differentiated at the solution, by the factors that they were found with.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Literal, NamedTuple, overload

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.base.jax_version import follows
from ferrax._src.composed.custom_solves import custom_linear_solve
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax, factorisations
from ferrax._src.lax.linalg import adjoint
from ferrax._src.numpy import (
    array_creation,
    cumulative,
    decompositions,
    joining,
    matrices,
    products,
    reductions,
    shape,
)
from ferrax._src.numpy.take import take_along_axis
from ferrax._src.numpy.ufuncs import isfinite
from ferrax._src.numpy.util import (
    broadcast_to,
    convert,
    ensure_array,
    ensure_arrays,
    promote_dtypes_inexact,
    strong_constant,
    where,
)
from ferrax._src.transforms.custom_jvp import custom_jvp
from ferrax._src.transforms.jit import jit


class QRResult(NamedTuple):
    """What `qr` returns: orthonormal columns `Q` and the upper triangular `R`."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """What `slogdet` returns: the sign (or phase) and the logarithm of the absolute value."""

    sign: Array
    logabsdet: Array


def _product(x, y):
    return products.matmul(x, y, precision="highest")


def _check_square(name, a, error: type[Exception] = ValueError) -> None:
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise error(f"Argument to {name} must have shape [..., n, n], got {tuple(a.shape)}")


# ---------------------------------------------------------------------------- systems


def _in_order(x, order):
    """The rows of matrices in this order."""
    places = lax.expand_dims(order, (order.ndim,))
    return take_along_axis(
        x, places, axis=-2, mode="promise_in_bounds", wrap_negative_indices=False
    )


def lu_solve(lu: Array, permutation: Array, b: Array, trans: int = 0) -> Array:
    """The solution of `op(a) @ x = b` by the factors of `a`, all of one batch.

    Args: lu, permutation: of `lax.linalg.lu`, (..., n, n) and (..., n). b: matrix (..., n, k). trans:
    what `op` does: 0 nothing, 1 transposes, 2 also conjugates.
    """
    if trans == 0:
        x = factorisations.triangular_solve(
            lu, _in_order(b, permutation), left_side=True, lower=True, unit_diagonal=True
        )
        return factorisations.triangular_solve(lu, x, left_side=True)
    options = {"left_side": True, "transpose_a": True, "conjugate_a": trans == 2}
    x = factorisations.triangular_solve(lu, b, **options)
    x = factorisations.triangular_solve(lu, x, lower=True, unit_diagonal=True, **options)
    places = lax.broadcasted_iota(permutation.dtype, permutation.shape, permutation.ndim - 1)
    _, back = lax.sort((permutation, places), num_keys=1)
    return _in_order(x, back)


def _solve(a, b):
    """Of matrices over one batch, of which that of `a` may be missing."""
    factors, _, permutation = factorisations.lu(lax.stop_gradient(a))
    # Right-hand sides that share a matrix are columns of one.
    shared = a.ndim == 2 and b.ndim > 2
    columns = shape.moveaxis(b, -2, 0) if shared else b
    rest = columns.shape
    if shared:
        columns = columns.reshape(rest[0], -1)
    x = custom_linear_solve(
        lambda x: _product(a, x),
        columns,
        lambda _, b: lu_solve(factors, permutation, b),
        lambda _, b: lu_solve(factors, permutation, b, 1),
    )
    return shape.moveaxis(x.reshape(rest), 0, -2) if shared else x


@jit
def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """Solutions of linear systems: the `x` with `a @ x = b`.

    Args: a: array (..., n, n). b: array (..., n, k), or (n,), which is one column. Leading axes
    broadcast; integers become floats. Returns an array (..., n, k) or (..., n). A singular matrix gives
    inf and NaN.
    Raises: ValueError for other shapes; NotImplementedError for 16-bit floats.

    (By LU factors; the derivative is a solution with the same factors: Giles, An extended collection of
    matrix derivative results, 2008, section 2.3.1.)

    >>> jnp.linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.ones(2))
    Array([0.5 , 0.25], dtype=float32)
    """
    a, b = promote_dtypes_inexact(*ensure_arrays("jnp.linalg.solve", a, b))
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(
            f"jnp.linalg.solve: the matrix must have shape [..., n, n], got shape {tuple(a.shape)}"
        )
    vector = b.ndim == 1
    if b.ndim == 0 or b.shape[-1 if vector else -2] != a.shape[-1]:
        hint = ""
        if b.ndim > 1 and b.ndim == a.ndim - 1 and b.shape[-1] == a.shape[-1]:
            hint = "; for a batch of vectors pass b[..., None]"
        raise ValueError(
            f"jnp.linalg.solve: shapes {tuple(a.shape)} and {tuple(b.shape)}: the right-hand side"
            f" must have shape [..., {a.shape[-1]}, k] or [{a.shape[-1]}]{hint}"
        )
    if vector:
        b = lax.expand_dims(b, (1,))
    batch = shape.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if a.ndim > 2:
        a = broadcast_to(a, (*batch, *a.shape[-2:]))
    x = _solve(a, broadcast_to(b, (*batch, *b.shape[-2:])))
    return lax.squeeze(x, (x.ndim - 1,)) if vector else x


@jit
def inv(a: ArrayLike) -> Array:
    """Inverses (..., n, n) of square matrices: the solution of `a @ x = 1`.

    Args: a: array (..., n, n); integers become floats. A singular matrix gives inf and NaN.
    Raises: ValueError for what are no square matrices; NotImplementedError for 16-bit floats.

    (Derivative: Giles, An extended collection of matrix derivative results, 2008, section 2.2.3.)

    >>> jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    a = ensure_array(a, "jnp.linalg.inv")
    _check_square("inv", a)
    unit = matrices.eye(a.shape[-1], dtype=a.dtype)
    return solve(a, broadcast_to(unit, tuple(a.shape)))


def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """The inverse of the map `x -> tensordot(a, x)` over all but the first `ind` axes.

    Args: a: array whose first `ind` axes have as many elements as the others. ind: a positive
    integer. Returns an array with the last axes first.
    Raises: ValueError for another `ind` and other numbers of elements.

    >>> jnp.linalg.tensorinv(jnp.eye(6).reshape(2, 3, 6)).shape
    (6, 2, 3)
    """
    a = ensure_array(a, "tensorinv")
    ind = operator.index(ind)
    first, last = tuple(a.shape[:ind]), tuple(a.shape[ind:])
    if ind <= 0:
        raise ValueError(f"tensorinv: ind must be a positive integer; got {ind}")
    if math.prod(first) != math.prod(last):
        raise ValueError(
            f"tensorinv: the first {ind} axes must have as many elements as the others; got shape"
            f" {tuple(a.shape)}"
        )
    return inv(a.reshape(math.prod(first), -1)).reshape(*last, *first)


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """The `x` with `tensordot(a, x, x.ndim) = b`.

    Args: a: array whose first axes are those of `b`, and whose others have as many elements. b: array.
    axes: axes of `a` that are moved to the end first. Returns an array of the last axes of `a`.
    Raises: ValueError for other shapes.

    >>> jnp.linalg.tensorsolve(jnp.eye(6).reshape(2, 3, 6), jnp.ones((2, 3))).shape
    (6,)
    """
    a, b = ensure_arrays("tensorsolve", a, b)
    if axes is not None:
        a = shape.moveaxis(a, tuple(axes), len(axes) * (a.ndim - 1,))
    out_shape = tuple(a.shape[b.ndim :])
    if tuple(a.shape[: b.ndim]) != tuple(b.shape) or b.size != math.prod(out_shape):
        raise ValueError(
            "tensorsolve: the first axes of a, once axes are moved, must be those of b, and the"
            " others have as many elements; got shapes"
            f" {tuple(a.shape)} and {tuple(b.shape)}"
        )
    return solve(a.reshape(b.size, math.prod(out_shape)), b.ravel()).reshape(out_shape)


# ---------------------------------------------------------------------------- least squares


def _least_squares(a, b, rcond, numpy_resid):
    a, b = promote_dtypes_inexact(a, b)
    if a.shape[:1] != b.shape[:1]:
        raise ValueError(
            "jnp.linalg.lstsq: the first sizes must match, got shapes"
            f" {tuple(a.shape)} and {tuple(b.shape)}"
        )
    if a.ndim != 2 or b.ndim not in (1, 2):
        raise TypeError(
            "jnp.linalg.lstsq: expected a matrix and a matrix or vector, got shapes"
            f" {tuple(a.shape)} and {tuple(b.shape)}"
        )
    vector = b.ndim == 1
    if vector:
        b = lax.expand_dims(b, (1,))
    rows, columns = a.shape
    if a.size == 0:
        s = array_creation.empty(0, dtype=a.dtype)
        rank = array_creation.array(0, dtype=int)
        x = array_creation.zeros((columns, b.shape[1]), dtype=a.dtype)
    else:
        eps = float(dtypes.finfo(a.dtype).eps)
        u, s, vh = decompositions.svd(a, full_matrices=False)
        if rcond is None:
            cut = strong_constant(eps * max(rows, columns), s)
        else:
            rcond = ensure_array(rcond, "jnp.linalg.lstsq")
            cut = convert(where(ufuncs.less(rcond, 0), eps, rcond), s.dtype)
        zero = strong_constant(0, s)
        kept = ufuncs.logical_and(ufuncs.greater(s, zero), ufuncs.greater_equal(s, cut * s[0]))
        rank = reductions.sum(kept)
        safe = where(kept, s, strong_constant(1, s))
        inverse = convert(where(kept, 1 / safe, zero), a.dtype)
        along = _product(adjoint(u), b)
        x = _product(adjoint(vh), lax.expand_dims(inverse, (1,)) * along)
    if numpy_resid and (rank < columns or rows <= columns):
        residuals = array_creation.array([])
    else:
        rest = b - _product(a, x)
        residuals = reductions.sum(ufuncs.real(rest * ufuncs.conj(rest)), axis=0)
    return (x.ravel() if vector else x), residuals, rank, s


_jit_least_squares = jit(_least_squares, static_argnums=(3,))


def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: ArrayLike | None = None, *, numpy_resid: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Least-squares solutions: the shortest `x` for which `a @ x` is nearest to `b`.

    Args: a: matrix (m, n). b: matrix (m, k) or vector (m,). rcond: singular values below `rcond` times
    the largest count as 0; by default the epsilon of the dtype times max(m, n). numpy_resid: return no
    residuals where NumPy does not, for matrices of lower rank and for m <= n; values must be known then.
    Returns `(x, residuals, rank, s)`: the solution (n, k) or (n,), the squared lengths (k,) of
    `b - a @ x`, the rank, and the singular values (min(m, n),) of `a`.
    Raises: ValueError for first sizes that differ; TypeError for other ranks; NotImplementedError for
    16-bit floats.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 5.5.)

    >>> x, *_ = jnp.linalg.lstsq(jnp.array([[1.0], [1.0]]), jnp.array([1.0, 3.0]))
    >>> bool(jnp.allclose(x, 2))
    True
    """
    a, b = ensure_arrays("jnp.linalg.lstsq", a, b)
    run = _least_squares if numpy_resid else _jit_least_squares
    return run(a, b, rcond, bool(numpy_resid))


# ---------------------------------------------------------------------------- factors


@jit(static_argnames=("upper", "symmetrize_input"))
def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """Cholesky factors: lower triangular `L` with `L @ L^H = a`, or `U = L^H`.

    Args: a: array (..., n, n), Hermitian and positive definite; integers become floats. upper: return
    `U`. symmetrize_input: take `(a + a^H) / 2` for `a`, else its lower triangle is read alone. NaN in
    the triangle where a matrix is not positive definite.
    Raises: TypeError for what are no square matrices (ValueError unless symmetrized, or where JAX 0.12 is followed);
    NotImplementedError for 16-bit floats.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 4.2.)

    >>> jnp.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    Array([[2., 0.],
           [1., 1.]], dtype=float32)
    """
    (a,) = promote_dtypes_inexact(ensure_array(a, "jnp.linalg.cholesky"))
    if follows(0, 12) and (a.ndim < 2 or a.shape[-1] != a.shape[-2]):
        raise ValueError(f"linalg.cholesky: expected square matrices, of shape [..., n, n], got {tuple(a.shape)}")
    factor = factorisations.cholesky(a, symmetrize_input=symmetrize_input)
    return adjoint(factor) if upper else factor


@overload
def qr(
    a: ArrayLike, mode: Literal["reduced", "complete", "raw", "full"] = "reduced"
) -> QRResult: ...
@overload
def qr(a: ArrayLike, mode: Literal["r"]) -> Array: ...
@overload
def qr(a: ArrayLike, mode: str) -> Array | QRResult: ...
@jit(static_argnames=("mode",))
def qr(a: ArrayLike, mode: str = "reduced") -> Array | QRResult:
    """QR factors: `a = Q @ R` with orthonormal columns and an upper triangle.

    Args: a: array (..., m, n); integers become floats; let k be min(m, n). mode: "reduced" (or "full")
    gives `Q` (..., m, k) and `R` (..., k, n); "complete" `Q` (..., m, m) and `R` (..., m, n); "r" only
    `R`; "raw" the reflections as LAPACK has them, transposed, (..., n, m), and their factors (..., k).
    Raises: ValueError for another mode; TypeError below rank 2; NotImplementedError for 16-bit floats.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 5.2.)

    >>> jnp.abs(jnp.linalg.qr(jnp.array([[0.0, 1.0], [2.0, 4.0]])).R)
    Array([[2., 4.],
           [0., 1.]], dtype=float32)
    """
    (a,) = promote_dtypes_inexact(ensure_array(a, "jnp.linalg.qr"))
    if mode == "raw":
        packed, taus = factorisations.geqrf(a)
        return QRResult(shape.matrix_transpose(packed), taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ValueError(
            f"Unsupported QR decomposition mode '{mode}': expected 'reduced', 'complete', 'r' or"
            " 'raw'"
        )
    q, r = factorisations.qr(a, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


# ---------------------------------------------------------------------------- determinants


def _diagonal(a):
    return matrices.diagonal(a, axis1=-2, axis2=-1)


def _trace(a):
    return matrices.trace(a, axis1=-2, axis2=-1)


def _odd_exchanges(pivots):
    """Whether a permutation, given by exchanges, is odd: int32 0 or 1."""
    own = lax.broadcasted_iota(pivots.dtype, pivots.shape, pivots.ndim - 1)
    return reductions.count_nonzero(lax.ne(pivots, own), axis=-1) % 2


def _signed_log(det):
    return ufuncs.sign(det), ufuncs.log(ufuncs.abs(det))


def _split_tangent(sign, moved):
    """Tangents of the sign and of the logarithm, of that of the logarithm of the determinant."""
    if not shape.iscomplexobj(sign):
        return lax.full_like(sign, 0), moved
    real = ufuncs.real(moved)
    return (moved - convert(real, moved.dtype)) * sign, real


@custom_jvp
def _slogdet_of_few(a):
    return _signed_log(a[..., 0, 0] if a.shape[-1] == 1 else _det_of_two(a))


@_slogdet_of_few.defjvp
def _(primals, tangents):
    (a,), (da,) = primals, tangents
    sign, log = _slogdet_of_few(a)
    if a.shape[-1] == 1:
        moved = da[..., 0, 0] / a[..., 0, 0]
    else:
        det = _det_of_two(a)
        moved = (
            da[..., 0, 0] * a[..., 1, 1]
            - da[..., 0, 1] * a[..., 1, 0]
            - da[..., 1, 0] * a[..., 0, 1]
            + da[..., 1, 1] * a[..., 0, 0]
        ) / det
    return (sign, log), _split_tangent(sign, moved)


@custom_jvp
def _slogdet_by_lu(a):
    factors, pivots, _ = factorisations.lu(a)
    diagonal = _diagonal(factors)
    singular = reductions.any(lax.eq(diagonal, strong_constant(0, diagonal)), axis=-1)
    odd = _odd_exchanges(pivots)
    sizes = ufuncs.abs(diagonal)
    if shape.iscomplexobj(a):
        phase = reductions.prod(diagonal / convert(sizes, diagonal.dtype), axis=-1)
    else:
        phase = strong_constant(1, a)
        odd = (odd + reductions.count_nonzero(ufuncs.less(diagonal, 0), axis=-1)) % 2
    sign = where(singular, strong_constant(0, a), phase * convert(1 - 2 * odd, a.dtype))
    log = reductions.sum(ufuncs.log(sizes), axis=-1)
    return sign, where(singular, strong_constant(-np.inf, log), log)


@custom_jvp
def _slogdet_by_qr(a):
    packed, taus = factorisations.geqrf(a)
    diagonal = _diagonal(packed)
    log = reductions.sum(ufuncs.log(ufuncs.abs(diagonal)), axis=-1)
    # The determinant of a reflection is -1.
    reflections = reductions.count_nonzero(taus[..., :-1], axis=-1) % 2
    sign = reductions.prod(ufuncs.sign(diagonal), axis=-1)
    return sign * convert(1 - 2 * reflections, sign.dtype), log


def _slogdet_jvp(primals, tangents):
    """Of the logarithm of the determinant: the trace of `a^-1 da` (Giles, 2008, section 2.2.4)."""
    (a,), (da,) = primals, tangents
    sign, log = slogdet(a)
    return (sign, log), _split_tangent(sign, _trace(solve(a, da)))


_slogdet_by_lu.defjvp(_slogdet_jvp)
_slogdet_by_qr.defjvp(_slogdet_jvp)


@jit(static_argnames=("method",))
def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """Signs and logarithms of absolute values of determinants.

    Args: a: array (..., n, n); integers become floats. method: "lu" (or None) or "qr", of real
    matrices. Returns `SlogdetResult`: `sign` (...), for complex matrices a number of absolute value 1,
    and real `logabsdet` (...). A singular matrix gives 0 and -inf, with derivatives that are inf or NaN.
    Raises: ValueError for what are no square matrices and for another method; NotImplementedError for
    16-bit floats of more than two rows, and for "qr" of complex matrices.

    (Giles, An extended collection of matrix derivative results, 2008, section 2.2.4.)

    >>> jnp.linalg.slogdet(jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    SlogdetResult(sign=Array(-1., dtype=float32), logabsdet=Array(0., dtype=float32))
    """
    (a,) = promote_dtypes_inexact(ensure_array(a, "jnp.linalg.slogdet"))
    _check_square("slogdet()", a)
    if method == "qr":
        if shape.iscomplexobj(a):
            raise NotImplementedError(
                "jnp.linalg.slogdet: method='qr' is of real matrices; use 'lu' for complex ones"
            )
        return SlogdetResult(*_slogdet_by_qr(a))
    if method not in (None, "lu"):
        raise ValueError(f"Unknown slogdet method '{method}': expected 'lu' (or None) or 'qr'")
    few = a.shape[-1] in (1, 2)
    return SlogdetResult(*(_slogdet_of_few(a) if few else _slogdet_by_lu(a)))


def _det_of_two(a):
    p, q, r, s = (a[..., row, column] for row in (0, 1) for column in (0, 1))
    return p * s - q * r


def _det_of_three(a):
    def term(*columns):
        return a[..., 0, columns[0]] * a[..., 1, columns[1]] * a[..., 2, columns[2]]

    even = term(0, 1, 2) + term(1, 2, 0) + term(2, 0, 1)
    return even - term(2, 1, 0) - term(0, 2, 1) - term(1, 0, 2)


@custom_jvp
def _det(a):
    sign, log = slogdet(a)
    return sign * convert(ufuncs.exp(log), sign.dtype)


@_det.defjvp
def _(primals, tangents):
    """`d det(a) = trace(adj(a) da)` (Giles, 2008, section 2.2.4), also of singular matrices."""
    (a,), (da,) = primals, tangents
    det, product = _times_adjugate(a, da)
    return det, _trace(product)


def _times_adjugate(a, b):
    """The determinant of `a`, and `adj(a) @ b`.

    With `P a = L U`, the adjugate is `s adj(U) L^-1 P` where `s = det P`. Let `u` be the last element of
    `U`'s diagonal and `d` the product of the others: the last row of `adj(U) y` is `d y_n`, and what is
    above it solves the system of `U` without its last row for `d u y`. Both are one solution with `U` in
    which `1 / (s d)` has the place of `u`, and `s d u y` that of `y` but for the last row. Where `d` is 0,
    which is of rank below n - 1 unless other pivots would do, the product is 0.
    """
    if a.shape[-1] == 1:
        return a[..., 0, 0], b
    factors, pivots, permutation = factorisations.lu(a)
    batch = shape.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    factors = broadcast_to(factors, (*batch, *a.shape[-2:]))
    permutation = broadcast_to(permutation, (*batch, a.shape[-1]))
    y = broadcast_to(b, (*batch, *b.shape[-2:]))
    sign = convert(1 - 2 * _odd_exchanges(pivots), a.dtype)
    dets = cumulative.cumprod(_diagonal(factors), axis=-1) * lax.expand_dims(sign, (sign.ndim,))
    det, before = dets[..., -1], dets[..., -2]
    changed = factors.at[..., -1, -1].set(1 / before)
    ones = lax.full((*batch, a.shape[-1], 1), 1, a.dtype)
    test = factorisations.triangular_solve(changed, ones, left_side=True)
    low = ufuncs.logical_not(reductions.all(isfinite(test), axis=(-2, -1), keepdims=True))
    zeros = lax.full_like(y, 0)
    y = _in_order(where(low, zeros, y), permutation)
    y = factorisations.triangular_solve(changed, y, left_side=True, lower=True, unit_diagonal=True)
    scaled = y[..., :-1, :] * lax.expand_dims(det, (det.ndim, det.ndim + 1))
    y = joining.concatenate((scaled, y[..., -1:, :]), axis=-2)
    return det, where(low, zeros, factorisations.triangular_solve(changed, y, left_side=True))


@jit
def det(a: ArrayLike) -> Array:
    """Determinants (...) of square matrices (..., n, n).

    Args: a: array; integers become floats. Derivatives of singular matrices are those of the polynomial,
    save where the rank is below n - 1, where they are 0 to the first order.
    Raises: ValueError for what are no square matrices; NotImplementedError for 16-bit floats of four
    rows and more.

    (By LU factors; Giles, An extended collection of matrix derivative results, 2008, section 2.2.4.)

    >>> jnp.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., dtype=float32)
    """
    (a,) = promote_dtypes_inexact(ensure_array(a, "jnp.linalg.det"))
    _check_square("det()", a)
    if a.shape[-1] == 2:
        return _det_of_two(a)
    if a.shape[-1] == 3:
        return _det_of_three(a)
    return _det(a)
