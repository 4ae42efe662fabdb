"""`lobpcg_standard`: the largest eigenvalues of a Hermitian matrix that is known by its products.

Locally optimal block preconditioned conjugate gradients, without a preconditioner (Knyazev, SIAM J. Sci. Comput. 23(2),
2001, 517-541). A step looks for the best vectors in the space of the
present ones X, the directions P in which they last moved, and their residuals R.

That space is given to the small eigenproblem by one orthonormal basis S, from a Householder factorisation of [X P R]
(Golub and Van Loan, "Matrix Computations", 5.2), as U. Hetmaniuk and R. Lehoucq advise for stability ("Basis selection
in LOBPCG", J. Comput. Phys. 218(1), 2006): however dependent its columns are, S is orthonormal, and what replaces
them only makes the space larger. So nothing is locked or cut off near convergence. The new P is the orthogonal
complement of the new X within the space of new and present X (J. Duersch et al., "A robust and efficient implementation
of LOBPCG", SIAM J. Sci. Comput. 40(5), 2018, section 4).

Invariant: X and P are orthonormal, and orthogonal to each other. Cost of a step for n rows and k vectors: `3 * k`
products with the matrix, `O(n * k**2)` beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.lax.control_flow.while_loop import while_loop
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.decompositions import eigh
from ferrax._src.numpy.systems import qr
from ferrax._src.transforms.jit import jit

__all__ = ["lobpcg_standard"]

# What a residual may be, in units of its rounding errors as they are estimated.
_MARGIN = 10


def lobpcg_standard(
    A: Any,  # noqa: N803
    X: Any,  # noqa: N803
    m: int = 100,
    tol: Any = None,
) -> tuple[Array, Array, Array]:
    """The largest eigenvalues of a Hermitian matrix, and their eigenvectors.

    Args:
        A: the matrix, `(n, n)`, or a function that multiplies it by a matrix of `n` rows.
        X: where to begin, `(n, k)`, of the dtype of `A`: floats or complex numbers, and `5 * k < n`.
        m: how many steps are taken at most.
        tol: an eigenpair has converged where its residual's norm, `|A v - w v|`, is below `10 * n * tol * (|w| +
            |A v|)`. None: the dtype's epsilon, with which that is about what rounding leaves. With zero all steps are
            taken.

    Returns: `k` eigenvalues in descending order, the orthonormal eigenvectors as columns of an `(n, k)` array, and
    the number of steps taken. Derivatives in reverse mode are not defined, for the number of steps is not known.

    Errors: ValueError for shapes and dtypes that do not fit, for no vectors, and for too many.

    >>> from ferrax.experimental.sparse import linalg
    >>> start = ferrax.random.normal(ferrax.random.key(0), (100, 2))
    >>> values, vectors, steps = linalg.lobpcg_standard(jnp.diag(jnp.arange(1.0, 101.0)), start)
    >>> bool(jnp.allclose(values, jnp.array([100.0, 99.0]), rtol=1e-4)), int(steps) < 100
    (True, True)
    """
    if callable(A):
        return _lobpcg_standard_callable(A, X, m, tol)
    return _lobpcg_standard_matrix(A, X, m, tol)


def _product(a, b):
    return jnp.matmul(a, b, precision="highest")


def _lobpcg_standard_matrix(A: Any, X: Any, m: int, tol: Any, debug: bool = False) -> tuple[Any, ...]:  # noqa: N803
    """As `lobpcg_standard`, of a matrix; with `debug` all `m` steps are taken, and the fourth result has a dict of
    what was found in each."""
    return _of_matrix(jnp.asarray(A), jnp.asarray(X), m, tol, debug)


def _lobpcg_standard_callable(A: Any, X: Any, m: int, tol: Any, debug: bool = False) -> tuple[Any, ...]:  # noqa: N803
    """As `_lobpcg_standard_matrix`, of a function."""
    return _of_function(A, jnp.asarray(X), m, tol, debug)


@jit(static_argnums=(2, 4))
def _of_matrix(matrix, start, steps, tol, debug):
    return _solve(lambda x: _product(matrix, x), start, steps, tol, debug)


@jit(static_argnums=(0, 2, 4))
def _of_function(times, start, steps, tol, debug):
    return _solve(times, start, steps, tol, debug)


def _check(times, start) -> None:
    """Errors: ValueError as in `lobpcg_standard`."""
    if start.ndim != 2 or start.shape[1] == 0:
        raise ValueError(f"lobpcg_standard: X must be an (n, k) array with k > 0, got shape {start.shape}")
    rows, count = start.shape
    if 5 * count >= rows:
        raise ValueError(f"lobpcg_standard: expected 5 * k < n, got k={count} and n={rows}")
    if not dtypes.issubdtype(start.dtype, np.inexact):
        raise ValueError(f"lobpcg_standard: X must be of floats or complex numbers, got {start.dtype}")
    try:
        found = times(jnp.zeros((rows, 1), start.dtype))
    except TypeError as error:
        raise ValueError(f"lobpcg_standard: A must be a matrix of shape ({rows}, {rows}): {error}") from error
    if found.dtype != start.dtype:
        raise ValueError(f"lobpcg_standard: A and X must have one dtype, got {found.dtype} and {start.dtype}")
    if found.shape != (rows, 1):
        raise ValueError(
            f"lobpcg_standard: A must be a matrix of shape ({rows}, {rows}), its product with a column has shape "
            f"{found.shape}"
        )


def _norms(x):
    return jnp.sqrt(jnp.sum(abs(x) ** 2, axis=0))


def _solve(times: Callable[[Any], Any], start: Any, steps: int, tol: Any, debug: bool) -> tuple[Any, ...]:
    _check(times, start)
    rows, count = start.shape
    tol = float(dtypes.finfo(start.dtype).eps) if tol is None else tol

    def step(state):
        number, x, p, residual, _, _ = state
        basis, _ = qr(jnp.concatenate([x, p, residual], axis=1))
        image = times(basis)
        small = _product(basis.conj().T, image)
        values, coordinates = eigh((small + small.conj().T) / 2)
        values, best = values[::-1][:count], coordinates[:, ::-1][:, :count]
        # Which part of the present vectors is not in the new ones: the first columns of the basis are the former.
        present = jnp.eye(3 * count, count, dtype=start.dtype)
        complement = qr(jnp.concatenate([best, present], axis=1))[0][:, count:]
        x, p, ax = _product(basis, best), _product(basis, complement), _product(image, best)
        residual = ax - x * values.astype(x.dtype)[None, :]
        allowed = _MARGIN * rows * (abs(values) + _norms(ax))
        converged = jnp.sum(_norms(residual) < tol * allowed)
        return number + 1, x, p, residual, converged, values

    first, _ = qr(start)
    image = times(first)
    values = jnp.sum(first.conj() * image, axis=0).real
    residual = image - first * values.astype(first.dtype)[None, :]
    state = (0, first, jnp.zeros_like(first), residual, jnp.sum(jnp.zeros(count, bool)), values)
    if not debug:
        number, x, _, _, _, values = while_loop(lambda s: (s[0] < steps) & (s[4] < count), step, state)
        return values, x, number

    def noted(state, _):
        state = step(state)
        _, x, _, residual, converged, values = state
        found = {
            "lambda history": values,
            "residual history": _norms(residual),
            "converged": converged,
            "X zeros": jnp.sum(jnp.all(x == 0, axis=0)),
        }
        return state, found

    state, found = scan(noted, state, None, length=steps)
    return state[5], state[1], state[0], found
