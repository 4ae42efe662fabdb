"""Iterative solvers of linear systems that are given as products: `cg`, `bicgstab` and `gmres`.

The unknown is a tree of arrays. The solution is differentiated as that of the system, not through the
iterations: its derivatives are solutions of systems with the same map or its transpose, to the same
tolerance.

Saad, "Iterative Methods for Sparse Linear Systems" (2nd ed., 2003): algorithms 9.1 (CG), 7.7 (BiCGSTAB, van
der Vorst 1992), 6.9 and 9.4 (GMRES, preconditioned from the left).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.composed.custom_solves import custom_linear_solve
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.control_flow.while_loop import fori_loop, while_loop
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.flatten_util import ravel_pytree
from ferrax._src.numpy.util import convert, is_array_like
from ferrax._src.tree import tree_util

Operator = Any  # a function of trees, a square matrix, or anything with shape and @

_HIGHEST = lax.Precision.HIGHEST


def _identity(x):
    return x


def _as_function(name: str, f: Any) -> Callable[[Any], Any]:
    """The product with an operator."""
    if callable(f):
        return f
    if not hasattr(f, "__matmul__"):
        raise TypeError(
            f"{name}: a linear operator is a function, a square matrix or has @, got {f!r} of type "
            f"{type(f).__name__}"
        )
    shape = getattr(f, "shape", None)
    if shape is not None and (len(shape) != 2 or shape[0] != shape[1]):
        raise ValueError(f"{name}: a linear operator must be square, got shape {tuple(shape)}")
    if isinstance(f, (np.ndarray, Array)):
        return functools.partial(jnp.dot, f, precision=_HIGHEST)
    return functools.partial(operator.matmul, f)


def _dot(x, y):
    """The inner product of trees."""
    products = tree_util.tree_map(lambda a, b: jnp.vdot(a, b, precision=_HIGHEST), x, y)
    return functools.reduce(operator.add, tree_util.tree_leaves(products), 0)


def _real_dot(x, y):
    return jnp.real(_dot(x, y))


def _plus(x, scale, y):
    """`x + scale * y` for trees like one another."""
    return tree_util.tree_map(lambda a, b: a + convert(scale, b.dtype, b.weak_type) * b, x, y)


def _minus(x, y):
    return tree_util.tree_map(operator.sub, x, y)


def _picked(flag, x, y):
    return tree_util.tree_map(functools.partial(jnp.where, flag), x, y)


def _least_square(b, tol, atol):
    """The square of the residual's norm at which the iteration ends."""
    return jnp.maximum(jnp.square(tol) * _real_dot(b, b), jnp.square(atol))


def _cg(A, b, x0, tol, atol, maxiter, M):
    least = _least_square(b, tol, atol)

    def going(state):
        _, residual, _, _, number = state
        return (_real_dot(residual, residual) > least) & (number < maxiter)

    def step(state):
        x, residual, gamma, direction, number = state
        image = A(direction)
        alpha = gamma / _real_dot(direction, image)
        x, residual = _plus(x, alpha, direction), _plus(residual, -alpha, image)
        z = M(residual)
        new = _real_dot(residual, z).astype(gamma.dtype)
        return x, residual, new, _plus(z, new / gamma, direction), number + 1

    residual = _minus(b, A(x0))
    z = M(residual)
    start = (x0, residual, _real_dot(residual, z), z, jnp.asarray(0, np.int32))
    return while_loop(going, step, start)[0]


def _bicgstab(A, b, x0, tol, atol, maxiter, M):
    least = _least_square(b, tol, atol)

    def going(state):
        _, residual, *_, number, broken = state
        return (_real_dot(residual, residual) > least) & (number < maxiter) & ~broken

    def step(state):
        x, residual, alpha, omega, rho, p, v, number, _ = state
        new = _dot(shadow, residual).astype(rho.dtype)
        beta = new / rho * alpha / omega
        p = _plus(residual, beta, _plus(p, -omega, v))
        preconditioned = M(p)
        v = A(preconditioned)
        alpha = (new / _dot(shadow, v)).astype(rho.dtype)
        half = _plus(residual, -alpha, v)
        early = _real_dot(half, half) < least
        other = M(half)
        t = A(other)
        omega = (_dot(t, half) / _dot(t, t)).astype(rho.dtype)
        halfway = _plus(x, alpha, preconditioned)
        x = _picked(early, halfway, _plus(halfway, omega, other))
        residual = _picked(early, half, _plus(half, -omega, t))
        broken = (omega == 0) | (alpha == 0) | (new == 0)
        return x, residual, alpha, omega, new, p, v, number + 1, broken

    shadow = residual = _minus(b, A(x0))
    one = jnp.ones((), dtypes.result_type(*tree_util.tree_leaves(b)))
    zero, no = jnp.asarray(0, np.int32), jnp.asarray(False)
    return while_loop(going, step, (x0, residual, one, one, one, residual, residual, zero, no))[0]


def _krylov(A, M, restart, tolerance, early, x, residual, norm):
    """x after one cycle of GMRES, for vectors.

    `residual` is the preconditioned one, of this norm. The least-squares problem of the Hessenberg matrix
    is solved by Givens rotations, a column a step; their product is `turned`. Ends at `tolerance` if
    `early`, and where the space is invariant.
    """
    dtype, size = residual.dtype, residual.shape[0]
    eps = float(dtypes.finfo(dtype).eps)

    def going(state):
        number, error, broken, *_ = state
        return (number < restart) & ~broken & ((error > tolerance) if early else True)

    def step(state):
        number, _, _, basis, triangle, turned, rhs = state
        w = M(A(basis[number]))
        before = jnp.sqrt(_real_dot(w, w))
        column = jnp.zeros(restart + 1, dtype)
        # Gram and Schmidt's projection, twice: then the basis is orthogonal to rounding.
        for _ in range(2):
            overlaps = jnp.dot(jnp.conj(basis), w, precision=_HIGHEST)
            w = w - jnp.dot(overlaps, basis, precision=_HIGHEST)
            column = column + overlaps
        after = jnp.sqrt(_real_dot(w, w))
        broken = after <= eps * before
        length = jnp.where(broken, 0, after).astype(dtype)
        w = jnp.where(broken, 0, w / jnp.where(broken, 1, after).astype(dtype))
        column = jnp.dot(turned, column.at[number + 1].set(length), precision=_HIGHEST)
        top, bottom = column[number], column[number + 1]
        radius = jnp.sqrt(jnp.abs(top) ** 2 + jnp.abs(bottom) ** 2).astype(dtype)
        safe = jnp.where(radius == 0, 1, radius)
        cosine = jnp.where(radius == 0, 1, top / safe)
        sine = jnp.where(radius == 0, 0, bottom / safe)

        def rotated(rows):
            one, other = rows[number], rows[number + 1]
            upper = jnp.conj(cosine) * one + jnp.conj(sine) * other
            return rows.at[number].set(upper).at[number + 1].set(cosine * other - sine * one)

        triangle = triangle.at[:, number].set(rotated(column)[:-1])
        rhs = rotated(rhs)
        basis = basis.at[number + 1].set(w)
        error = jnp.abs(rhs[number + 1])
        return number + 1, error, broken, basis, triangle, rotated(turned), rhs

    safe = jnp.where(norm == 0, 1, norm).astype(dtype)
    basis = jnp.zeros((restart + 1, size), dtype).at[0].set(residual / safe)
    start = (
        jnp.asarray(0, np.int32),
        norm,
        norm == 0,
        basis,
        jnp.eye(restart, dtype=dtype),
        jnp.eye(restart + 1, dtype=dtype),
        jnp.zeros(restart + 1, dtype).at[0].set(norm.astype(dtype)),
    )
    number, _, _, basis, triangle, _, rhs = while_loop(going, step, start)

    def back(k, y):
        row = restart - 1 - k
        pivot = triangle[row, row]
        value = (rhs[row] - jnp.dot(triangle[row], y, precision=_HIGHEST)) / jnp.where(
            pivot == 0, 1, pivot
        )
        # Of a singular matrix, and behind the last step, nothing is taken.
        return y.at[row].set(jnp.where((pivot == 0) | (row >= number), 0, value))

    y = fori_loop(0, restart, back, jnp.zeros(restart, dtype))
    return x + jnp.dot(y, basis[:-1], precision=_HIGHEST)


def _gmres(A, b, x0, tol, atol, maxiter, M, restart, early):
    flat_b, restore = ravel_pytree(b)
    if not flat_b.size:
        return b
    product = lambda v: ravel_pytree(A(restore(v)))[0].astype(v.dtype)  # noqa: E731
    precondition = lambda v: ravel_pytree(M(restore(v)))[0].astype(v.dtype)  # noqa: E731

    def size_of(v):
        return jnp.sqrt(_real_dot(v, v))

    norm = size_of(flat_b)
    least = jnp.maximum(tol * norm, atol)
    part = jnp.where(norm == 0, 1.0, jnp.minimum(1.0, least / jnp.where(norm == 0, 1, norm)))
    tolerance = size_of(precondition(flat_b)) * part

    def going(state):
        _, residual, number = state
        return (size_of(residual) > least) & (number < maxiter)

    def step(state):
        x, residual, number = state
        preconditioned = precondition(residual)
        x = _krylov(
            product,
            precondition,
            restart,
            tolerance,
            early,
            x,
            preconditioned,
            size_of(preconditioned),
        )
        return x, flat_b - product(x), number + 1

    x = ravel_pytree(x0)[0].astype(flat_b.dtype)
    start = (x, flat_b - product(x), jnp.asarray(0, np.int32))
    return restore(while_loop(going, step, start)[0])


def _solve(name, method, A, b, x0, M, maxiter, symmetric, **settings):
    """The solution by `method`, with implicit derivatives."""
    for leaf in tree_util.tree_leaves(b):
        if not is_array_like(leaf):
            raise TypeError(f"{name}: b must be an array or a tree of arrays, got {leaf!r}")
    b = tree_util.tree_map(_inexact, b)
    x0 = (
        tree_util.tree_map(jnp.zeros_like, b) if x0 is None else tree_util.tree_map(jnp.asarray, x0)
    )
    trees = [tree_util.tree_structure(tree) for tree in (x0, b)]
    if trees[0] != trees[1]:
        raise ValueError(
            f"{name}: x0 has the pytree structure {trees[0]}, expected that of b, {trees[1]}"
        )
    shapes = [[tuple(leaf.shape) for leaf in tree_util.tree_leaves(tree)] for tree in (x0, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"{name}: x0 has leaves of shapes {shapes[0]}, expected those of b, {shapes[1]}"
        )
    x0 = tree_util.tree_map(lambda x, y: convert(x, y.dtype, y.weak_type), x0, b)
    if maxiter is None:
        maxiter = 10 * sum(leaf.size for leaf in tree_util.tree_leaves(b))
    A = _as_function(name, A)
    M = _identity if M is None else _as_function(name, M)
    real = all(leaf.dtype.kind != "c" for leaf in tree_util.tree_leaves(b))

    def solve(product, rhs):
        rhs = tree_util.tree_map(jnp.asarray, rhs)
        return method(product, rhs, x0, maxiter=maxiter, M=M, **settings)

    return custom_linear_solve(A, b, solve, transpose_solve=solve, symmetric=symmetric and real)


def _inexact(x):
    x = jnp.asarray(x)
    return (
        x if dtypes.issubdtype(x.dtype, np.inexact) else x.astype(dtypes.to_inexact_dtype(x.dtype))
    )


def cg(
    A: Operator, b: Any, x0: Any = None, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0,
    maxiter: int | None = None, M: Operator | None = None,
) -> tuple[Any, None]:  # fmt: skip
    """The solution of `A x = b` by conjugate gradients, for Hermitian and positive definite A.

    Args:
        A: a function from trees like b to such trees, a square matrix, or anything with `@`.
        b: array or tree of arrays, floating or complex (integers become floats).
        x0: where to begin, a tree like b; zeros by default.
        tol, atol: it ends where `norm(b - A x) <= max(tol * norm(b), atol)`.
        maxiter: the most iterations; ten times the number of unknowns by default.
        M: the preconditioner, an approximate inverse of A, in the forms of A.

    Returns: `(x, None)`. Where it does not converge x is the last iterate.

    Errors: TypeError for an A that is no operator, ValueError for matrices that are not square and x0
    unlike b.

    Derivatives are those of the exact solution, by another solve. Hestenes and Stiefel (1952); Saad,
    Iterative Methods for Sparse Linear Systems (2003), algorithm 9.1.

    Example:
        >>> A = jnp.array([[4.0, 1.0], [1.0, 3.0]])
        >>> ferrax.scipy.sparse.linalg.cg(A, jnp.array([1.0, 2.0]))[0].round(4)
        Array([0.0909, 0.6364], dtype=float32)
    """
    return _solve("cg", _cg, A, b, x0, M, maxiter, True, tol=tol, atol=atol), None


def bicgstab(
    A: Operator, b: Any, x0: Any = None, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0,
    maxiter: int | None = None, M: Operator | None = None,
) -> tuple[Any, None]:  # fmt: skip
    """The solution of `A x = b` by the stabilized biconjugate gradient method, for any A.

    Args: A, b, x0, tol, atol, maxiter, M: as for `cg`, where A need not be Hermitian.

    Returns: `(x, None)`. It also ends where the method breaks down.

    Errors: as `cg`. Van der Vorst (SIAM J. Sci. Stat. Comput. 13, 1992).

    Example:
        >>> A = jnp.array([[4.0, 2.0], [1.0, 3.0]])
        >>> ferrax.scipy.sparse.linalg.bicgstab(A, jnp.array([1.0, 2.0]))[0].round(4)
        Array([-0.1,  0.7], dtype=float32)
    """
    return _solve("bicgstab", _bicgstab, A, b, x0, M, maxiter, False, tol=tol, atol=atol), None


def gmres(
    A: Operator, b: Any, x0: Any = None, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0,
    restart: int = 20, maxiter: int | None = None, M: Operator | None = None,
    solve_method: str = "batched",
) -> tuple[Any, Array]:  # fmt: skip
    """The solution of `A x = b` by the generalized minimal residual method, for any A.

    Args:
        A, b, x0, tol, atol, M: as for `cg`, where A need not be Hermitian.
        restart: the dimension of the Krylov spaces; so many vectors are kept.
        maxiter: the most spaces; ten times the number of unknowns by default.
        solve_method: "incremental" looks at the residual after each vector and ends there, "batched"
            after each space.

    Returns: `(x, info)`; info is 0, or -1 where x has NaNs.

    Errors: as `cg`; ValueError for other methods.

    Saad and Schultz (SIAM J. Sci. Stat. Comput. 7, 1986), with Gram and Schmidt's orthogonalization done
    twice and Givens rotations.

    Example:
        >>> A = jnp.array([[4.0, 2.0], [1.0, 3.0]])
        >>> ferrax.scipy.sparse.linalg.gmres(A, jnp.array([1.0, 2.0]))[0].round(4)
        Array([-0.1,  0.7], dtype=float32)
    """
    if solve_method not in ("incremental", "batched"):
        raise ValueError(
            f"gmres: solve_method must be 'incremental' or 'batched', got {solve_method!r}"
        )
    size = sum(np.size(leaf) for leaf in tree_util.tree_leaves(b))
    x = _solve(
        "gmres", _gmres, A, b, x0, M, maxiter, False, tol=tol, atol=atol, restart=min(restart, size),
        early=solve_method == "incremental",
    )  # fmt: skip
    failed = jnp.any(jnp.isnan(ravel_pytree(x)[0]))
    return x, jnp.where(failed, -1, 0)
