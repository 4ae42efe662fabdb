"""Systems of equations with sparse matrices."""

from __future__ import annotations

import operator

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.systems import solve
from ferrax._src.sparse.coo import CSR, csr_todense
from ferrax._src.transforms.composites import composite


def _solved(values, columns, starts, right, *, tol, reorder):
    size = starts.shape[0] - 1
    return solve(csr_todense(CSR((values, columns, starts), shape=(size, size))), right)


spsolve_p = composite("spsolve", _solved)


def spsolve(
    data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, b: ArrayLike, tol: float = 1e-6,
    reorder: int = 1,
) -> Array:  # fmt: skip
    """The solution x of `A @ x = b` for a square sparse matrix A.

    Args:
        data, indices, indptr: the buffers of A as a CSR matrix: elements, their columns, and where rows begin.
        b: vector of the dtype of `data`.
        tol: not negative. JAX's solver for GPUs takes pivots below it for zero; here none is, and a singular
            matrix gives infinities or NaN.
        reorder: from 0 to 3: how JAX's solver orders rows. The solution is the same.

    Errors: ValueError for other shapes and options.

    A is made dense and factored with partial pivoting, in `O(n**2)` memory and `O(n**3)` operations (Golub
    and Van Loan, "Matrix Computations", 3.4); large matrices are for `ferrax.scipy.sparse.linalg.cg` and
    its like. Derivatives are those of a solution.

    >>> from ferrax.experimental import sparse
    >>> a = sparse.CSR.fromdense(jnp.array([[2.0, 0.0], [1.0, 4.0]]))
    >>> sparse.linalg.spsolve(a.data, a.indices, a.indptr, jnp.array([2.0, 9.0]))
    Array([1., 2.], dtype=float32)
    """
    if operator.index(reorder) not in range(4):
        raise ValueError(f"spsolve: reorder must be 0, 1, 2 or 3, got {reorder}")
    if not tol >= 0:
        raise ValueError(f"spsolve: tol must not be negative, got {tol}")
    values, columns, starts, right = map(jnp.asarray, (data, indices, indptr, b))
    size = starts.shape[0] - 1
    if right.shape != (size,) or values.shape != columns.shape or values.ndim != 1:
        raise ValueError(
            f"spsolve: buffers of shapes {values.shape}, {columns.shape} and {starts.shape} are of a matrix "
            f"of {size} rows, with which b must agree, got shape {right.shape}"
        )
    if values.dtype != right.dtype:
        raise ValueError(
            f"spsolve: data and b must have one dtype, got {values.dtype} and {right.dtype}"
        )
    return spsolve_p.bind(values, columns, starts, right, tol=tol, reorder=reorder)
