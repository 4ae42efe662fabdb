"""Linear systems under SciPy's names: by factors that are given, triangular, positive definite, Sylvester's.

Leading axes of arrays are batches and broadcast. Arguments by which SciPy writes over its operands or
looks for values that are not finite are not read: arrays are immutable, and NaN gives NaN.
"""

from __future__ import annotations

import warnings

import numpy as np

from ferrax._src.base.errors import user_stacklevel
from ferrax._src.composed.custom_solves import custom_linear_solve
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax, eigen, factorisations
from ferrax._src.lax.linalg import adjoint
from ferrax._src.numpy import api as jnp, systems
from ferrax._src.numpy.util import promote_dtypes_inexact
from ferrax._src.transforms.jit import jit


def product(x: Array, y: Array) -> Array:
    """Products of matrices in the full precision of their dtype."""
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)


def _right_hand_side(name: str, matrix: Array, b: Array) -> str:
    """What axes of `b` a solver takes: those of a vector or those of a matrix."""
    if b.ndim == 1:
        return "(n)"
    if matrix.ndim == b.ndim + 1 and matrix.shape[-1] == b.shape[-1]:
        warnings.warn(
            f"{name}: a batch of vectors as right-hand side, here of shape {tuple(b.shape)}, is"
            " deprecated and will be taken for matrices; pass b[..., None]",
            FutureWarning,
            stacklevel=user_stacklevel(),
        )
        return "(n)"
    return "(n,k)"


# ---------------------------------------------------------------------------- triangular systems

_OPERATIONS: dict[int | str, tuple[bool, bool]] = {
    0: (False, False),
    1: (True, False),
    2: (True, True),
    "N": (False, False),
    "T": (True, False),
    "C": (True, True),
}


def _triangular(a, b, lower, transposed=False, conjugated=False, unit=False):
    """Solutions of one system; `b` is a vector or a matrix."""
    return factorisations.triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=transposed, conjugate_a=conjugated, unit_diagonal=unit,
    )  # fmt: skip


@jit(static_argnames=("trans", "lower", "unit_diagonal"))
def _solve_triangular(a, b, trans, lower, unit_diagonal):
    if trans not in _OPERATIONS:
        raise ValueError(
            f"solve_triangular: trans has to be 0 or 'N', 1 or 'T', or 2 or 'C', got {trans!r}"
        )
    a, b = promote_dtypes_inexact(a, b)
    columns = _right_hand_side("solve_triangular", a, b)
    solve = jnp.vectorize(
        lambda a, b: _triangular(a, b, lower, *_OPERATIONS[trans], unit_diagonal),
        signature=f"(n,n),{columns}->{columns}",
    )
    return solve(a, b)


def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: object = None,
    check_finite: bool = True,
) -> Array:
    """Solves ``op(a) @ x = b`` for ``x``, where ``a`` is triangular.

    Args:
      a: array (..., n, n), of which one triangle is read; integers become floats.
      b: array (n,) or (..., n, k). One of shape (..., n) beside a batch of matrices is taken for vectors,
        with a FutureWarning.
      trans: what ``op`` does: 0 or "N" nothing, 1 or "T" transposes, 2 or "C" also conjugates.
      lower: whether the lower triangle is read, or the upper one.
      unit_diagonal: whether ones are taken for the diagonal.
      overwrite_b, debug, check_finite: are not read.

    Returns an array in the shape of ``b``, its batch broadcast. A zero on the diagonal gives inf and NaN.

    Errors: ValueError for other shapes and another ``trans``.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 3.1.)

    >>> a = jnp.array([[2.0, 0.0], [1.0, 4.0]])
    >>> ferrax.scipy.linalg.solve_triangular(a, jnp.array([2.0, 9.0]), lower=True)
    Array([1., 2.], dtype=float32)
    """
    del overwrite_b, debug, check_finite
    a, b = jnp.asarray(a), jnp.asarray(b)
    return _solve_triangular(a, b, trans, lower, unit_diagonal)


# ---------------------------------------------------------------------------- Cholesky's factors


@jit(static_argnames=("lower",))
def _cho_solve(c, b, lower):
    c, b = promote_dtypes_inexact(c, b)
    columns = _right_hand_side("cho_solve", c, b)

    def solve(c, b):
        x = _triangular(c, b, lower, not lower, not lower)
        return _triangular(c, x, lower, lower, lower)

    return jnp.vectorize(solve, signature=f"(n,n),{columns}->{columns}")(c, b)


def cho_solve(
    c_and_lower: tuple[ArrayLike, bool],
    b: ArrayLike,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solves ``a @ x = b`` by the factor of ``a`` that `cho_factor` returns.

    Args:
      c_and_lower: triangular ``c`` (..., n, n), and whether it is the lower one: ``a`` is ``c @ c^H``, else
        ``c^H @ c``.
      b: array (n,) or (..., n, k); one of shape (..., n) as of `solve_triangular`.
      overwrite_b, check_finite: are not read.

    Returns an array in the shape of ``b``, its batch broadcast.

    Errors: ValueError for other shapes.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 4.2.)

    >>> c = ferrax.scipy.linalg.cho_factor(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> ferrax.scipy.linalg.cho_solve(c, jnp.array([8.0, 6.0]))
    Array([1., 2.], dtype=float32)
    """
    del overwrite_b, check_finite
    c, lower = c_and_lower
    c, b = jnp.asarray(c), jnp.asarray(b)
    return _cho_solve(c, b, bool(lower))


# ---------------------------------------------------------------------------- Gauss' factors


def lu_factor(
    a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array]:
    """LU factors in one matrix, as `lu_solve` takes them.

    Args:
      a: array (..., m, n); integers become floats.
      overwrite_a, check_finite: are not read.

    Returns ``(lu, piv)``: ``U`` in the upper triangle of ``lu`` (..., m, n), ``L`` without its diagonal
    of ones below it, and int32 (..., min(m, n)), the row that each row was exchanged with.

    Errors: TypeError below rank 2; NotImplementedError for 16-bit floats.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 3.4.)

    >>> ferrax.scipy.linalg.lu_factor(jnp.array([[0.0, 1.0], [2.0, 4.0]]))
    (Array([[2., 4.],
           [0., 1.]], dtype=float32), Array([1, 1], dtype=int32))
    """
    del overwrite_a, check_finite
    return _lu_factor(jnp.asarray(a))


@jit
def _lu_factor(a):
    factors, pivots, _ = factorisations.lu(*promote_dtypes_inexact(a))
    return factors, pivots


@jit(static_argnames=("trans",))
def _lu_solve(lu, pivots, b, trans):
    lu, b = promote_dtypes_inexact(lu, b)
    if trans not in (0, 1, 2):
        raise ValueError(f"lu_solve: trans has to be 0, 1 or 2, got {trans!r}")
    columns = _right_hand_side("lu_solve", lu, b)

    def solve(lu, permutation, b):
        if b.ndim == 1:
            return systems.lu_solve(lu, permutation, b[:, None], trans)[:, 0]
        return systems.lu_solve(lu, permutation, b, trans)

    permutation = eigen.lu_pivots_to_permutation(pivots, lu.shape[-2])
    return jnp.vectorize(solve, signature=f"(n,n),(n),{columns}->{columns}")(lu, permutation, b)


def lu_solve(
    lu_and_piv: tuple[ArrayLike, ArrayLike],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solves ``op(a) @ x = b`` by the factors of ``a`` that `lu_factor` returns.

    Args:
      lu_and_piv: (..., n, n) and int32 (..., n).
      b: array (n,) or (..., n, k); one of shape (..., n) as of `solve_triangular`.
      trans: what ``op`` does: 0 nothing, 1 transposes, 2 also conjugates.
      overwrite_b, check_finite: are not read.

    Returns an array in the shape of ``b``, its batch broadcast.

    Errors: ValueError for other shapes and another ``trans``; TypeError for pivots that are not int32.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 3.4.)

    >>> factors = ferrax.scipy.linalg.lu_factor(jnp.array([[0.0, 1.0], [2.0, 4.0]]))
    >>> ferrax.scipy.linalg.lu_solve(factors, jnp.array([1.0, 6.0]))
    Array([1., 1.], dtype=float32)
    """
    del overwrite_b, check_finite
    lu, pivots = lu_and_piv
    lu, pivots, b = jnp.asarray(lu), jnp.asarray(pivots), jnp.asarray(b)
    return _lu_solve(lu, pivots, b, trans)


# ---------------------------------------------------------------------------- any systems


@jit(static_argnames=("lower",))
def _solve_definite(a, b, lower):
    a, b = promote_dtypes_inexact(a, b)
    shapes = f"got shapes {tuple(a.shape)} and {tuple(b.shape)}"
    if not (a.ndim >= 2 and a.shape[-1] == a.shape[-2] and b.ndim in (a.ndim, a.ndim - 1)):
        raise ValueError(f"solve takes arrays (..., n, n) and (..., n, k) or (..., n), {shapes}")
    if b.shape[a.ndim - 2] != a.shape[-1]:
        raise ValueError(
            f"solve: the right-hand side must have as many rows as the matrix, {shapes}"
        )
    vector = b.ndim == a.ndim - 1
    if vector:
        b = b[..., None]
    batch = np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    a, b = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    read = lax.stop_gradient(a)
    factor = factorisations.cholesky(read if lower else adjoint(read), symmetrize_input=False)

    def solve(_, b):
        return _triangular(factor, _triangular(factor, b, True), True, True, True)

    # The transpose of a Hermitian matrix is its conjugate.
    x = custom_linear_solve(
        lambda x: product(a, x), b, solve, lambda matvec, b: jnp.conj(solve(matvec, jnp.conj(b)))
    )
    return x[..., 0] if vector else x


def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """Solutions of linear systems: the ``x`` with ``a @ x = b``.

    Args:
      a: array (..., n, n); integers become floats.
      b: array (..., n, k), or (n,); or (..., n) if ``a`` is positive definite.
      lower: whether the lower triangle of a positive definite matrix is read, or the upper one.
      overwrite_a, overwrite_b, debug, check_finite: are not read.
      assume_a: "gen", "sym" or "her": LU factors; "pos": Cholesky's factor of a positive definite matrix.

    Returns an array in the shape of ``b``. A singular matrix gives inf and NaN, one that is not positive
    definite NaN.

    Errors: ValueError for other shapes and another ``assume_a``; NotImplementedError for 16-bit floats.

    (Golub and Van Loan, Matrix Computations, 4th ed., sections 3.4 and 4.2; derivatives: Giles, An extended
    collection of matrix derivative results, 2008, section 2.3.1.)

    >>> a = jnp.array([[4.0, 2.0], [2.0, 2.0]])
    >>> ferrax.scipy.linalg.solve(a, jnp.array([8.0, 6.0]), assume_a="pos")
    Array([1., 2.], dtype=float32)
    """
    del overwrite_a, overwrite_b, debug, check_finite
    kinds = ("gen", "sym", "her", "pos")
    if assume_a not in kinds:
        raise ValueError(f"solve: assume_a has to be one of {', '.join(kinds)}, got {assume_a!r}")
    if assume_a != "pos":
        return systems.solve(a, b)
    return _solve_definite(jnp.asarray(a), jnp.asarray(b), bool(lower))


def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Inverses (..., n, n) of square matrices, as `jnp.linalg.inv`.

    Args: a: array (..., n, n); integers become floats. overwrite_a, check_finite: are not read.

    A singular matrix gives inf and NaN.

    Errors: ValueError for what are no square matrices; NotImplementedError for 16-bit floats.

    >>> ferrax.scipy.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    del overwrite_a, check_finite
    return systems.inv(a)


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Determinants (...) of square matrices, as `jnp.linalg.det`.

    Args: a: array (..., n, n); integers become floats. overwrite_a, check_finite: are not read.

    Errors: ValueError for what are no square matrices.

    >>> ferrax.scipy.linalg.det(jnp.array([[2.0, 1.0], [0.0, 4.0]]))
    Array(8., dtype=float32)
    """
    del overwrite_a, check_finite
    return systems.det(a)


# ---------------------------------------------------------------------------- Sylvester's equation


def _by_schur(a, b, c):
    """The solution in the basis of both forms, column after column: `(R + s I) y = rest` is triangular."""
    left, u = eigen.schur(_complex(a))
    right, v = eigen.schur(_complex(b))
    unit = jnp.eye(left.shape[0], dtype=left.dtype)
    turned = product(product(adjoint(u), c.astype(left.dtype)), v)

    def column(y, k):
        # Columns that are not known yet are zero.
        s = lax.dynamic_index_in_dim(right, k, 1, keepdims=False)
        rest = lax.dynamic_index_in_dim(turned, k, 1, keepdims=False) - product(y, s)
        shift = lax.dynamic_index_in_dim(s, k, keepdims=False)
        found = factorisations.triangular_solve(left + shift * unit, rest, left_side=True)
        return lax.dynamic_update_index_in_dim(y, found, k, 1), None

    y, _ = lax.scan(column, jnp.zeros_like(turned), np.arange(turned.shape[1]))
    return product(product(u, y), adjoint(v)), jnp.diagonal(left), jnp.diagonal(right)


def _by_eigenvectors(a, b, c):
    (left, u), (right, v) = (eigen.eig(x, compute_left_eigenvectors=False) for x in (a, b))
    turned = systems.solve(u, product(c.astype(u.dtype), v))
    y = turned / (left[:, None] + right[None, :])
    return product(product(u, y), systems.inv(v)), left, right


def _complex(x):
    return x if jnp.iscomplexobj(x) else x.astype(np.result_type(x.dtype, np.complex64))


_SYLVESTER = {"schur": _by_schur, "eigen": _by_eigenvectors}


@jit(static_argnames=("method",))
def _solve_sylvester(a, b, c, tol, method):
    a, b, c = promote_dtypes_inexact(a, b, c)
    rows, columns = c.shape[-2:] if c.ndim > 1 else (None, None)
    if a.shape[-2:] != (rows, rows) or b.shape[-2:] != (columns, columns):
        raise ValueError(
            "solve_sylvester takes arrays (..., m, m), (..., n, n) and (..., m, n), got shapes"
            f" {tuple(a.shape)}, {tuple(b.shape)} and {tuple(c.shape)}"
        )
    if method not in _SYLVESTER:
        raise ValueError(f"solve_sylvester: method has to be 'schur' or 'eigen', got {method!r}")

    def solve(a, b, c):
        x, left, right = _SYLVESTER[method](a, b, c)
        x = x if jnp.iscomplexobj(c) else jnp.real(x)
        close = jnp.any(jnp.abs(left[:, None] + right[None, :]) < tol)
        return jnp.where(close, jnp.full_like(x, np.nan), x)

    return jnp.vectorize(solve, signature="(m,m),(n,n),(m,n)->(m,n)")(a, b, c)


def solve_sylvester(
    A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float = 1e-8
) -> Array:
    """The solution of Sylvester's equation, the ``X`` with ``A @ X + X @ B = C``.

    Args:
      A, B, C: arrays (..., m, m), (..., n, n) and (..., m, n); integers become floats.
      method: "schur", by Schur's forms, or "eigen", by eigenvectors, of which there must be enough.
      tol: the absolute value up to which the sum of an eigenvalue of ``A`` and one of ``B`` counts as zero;
        there is no solution then, or more than one, and the result is NaN.

    Returns an array (..., m, n).

    Errors: ValueError for other shapes and methods; NotImplementedError for 16-bit floats and derivatives.

    (Bartels and Stewart, Solution of the matrix equation AX + XB = C, Communications of the ACM 15, 1972.)

    >>> a = jnp.array([[1.0, 0.0], [0.0, 2.0]])
    >>> ferrax.scipy.linalg.solve_sylvester(a, a, jnp.array([[2.0, 3.0], [3.0, 4.0]]))
    Array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    return _solve_sylvester(jnp.asarray(A), jnp.asarray(B), jnp.asarray(C), tol, method)
