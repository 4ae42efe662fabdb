"""Triangular and orthonormal factors in the table of `test_conformance`, of matrices that are well away
from being singular; and matrices that are not: what has no factor, zeros as pivots."""

import numpy as np
from conformance_linalg import LAPACK, MATRICES, SQUARES, adjoint
from conformance_table import add, data
from oracle import FERRAX, module

OPTIONS = {"loose": 20, "sums": True}
SOLVED = (((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 3)), ((1, 1), (1, 4)), ((3, 3), (3, 0)), ((0, 0), (0, 2)), ((0, 2, 2), (0, 2, 1)))
REFLECTED = ((3, 3), (4, 2), (2, 4, 3), (1, 1), (0, 0), (3, 0), (0, 3, 2))


def call(S, function, *arguments):
    return function(S, *arguments)


def product(S, x, y):
    return S.jnp.matmul(x, y, precision="highest")


def definite(S, x):
    return product(S, x, adjoint(S, x)) + S.jnp.eye(x.shape[-1], dtype=x.dtype)


def regular(S, x):
    """Diagonally dominant."""
    n = x.shape[-1]
    return x + 4 * n * S.jnp.eye(n, dtype=x.dtype)


def graded(S, x):
    """Columns whose lengths are in a clear order, which is not theirs."""
    n = x.shape[-1]
    return x * S.jnp.asarray(10.0 ** ((np.arange(n) + 1) % max(n, 1)), x.dtype)


def cholesky(S, x):
    return S.lax.linalg.cholesky(definite(S, x))


def lower(S, x):
    """The lower triangle alone is read."""
    upper = S.jnp.triu(S.jnp.ones_like(x), 1)
    return S.lax.linalg.cholesky(definite(S, x) + upper, symmetrize_input=False)


def not_definite(S, x):
    return S.lax.linalg.cholesky(x - 40 * S.jnp.eye(x.shape[-1], dtype=x.dtype))


def solver(**how):
    """The other triangle, and the diagonal if it counts as one, are not read."""

    def solve(S, a, b):
        b = b if how.get("left_side") else S.jnp.swapaxes(b, -1, -2)
        a = a if how.get("unit_diagonal") else regular(S, a)
        return S.lax.linalg.triangular_solve(a, b, **how)

    return solve


SOLVERS = (
    solver(left_side=True), solver(lower=True), solver(left_side=True, lower=True, unit_diagonal=True),
    solver(transpose_a=True), solver(lower=True, left_side=True, transpose_a=True, conjugate_a=True),
)  # fmt: skip


def lu(S, x):
    return list(S.lax.linalg.lu(x))


def zero_pivots(S, x):
    return list(S.lax.linalg.lu(S.jnp.zeros_like(x).at[..., :, -1:].set(x[..., :, -1:])))


def qr(S, x):
    return list(S.lax.linalg.qr(x, full_matrices=False))


def qr_full(S, x):
    return list(S.lax.linalg.qr(x))


def qr_pivoting(S, x):
    return list(S.lax.linalg.qr(graded(S, x), pivoting=True, full_matrices=False))


def geqrf(S, x):
    return list(S.jnp.linalg.qr(x, mode="raw"))


def geqp3(S, x):
    """The last column comes first."""
    wanted = np.zeros((*x.shape[:-2], x.shape[-1]), np.int32)
    wanted[..., -1:] = 1
    of = module(S, "_src.lax.factorisations" if S is FERRAX else "_src.lax.linalg").geqp3
    return list(of(graded(S, x), S.jnp.asarray(wanted)))


def reflections(S, x):
    h, taus = S.jnp.linalg.qr(x, mode="raw")
    return S.jnp.swapaxes(h, -1, -2), taus


def householder_product(S, x):
    return S.lax.linalg.householder_product(*reflections(S, x))


def some_reflections(S, x):
    a, taus = reflections(S, x)
    return S.lax.linalg.householder_product(a, taus[..., :1])


def ormqr(S, x):
    return S.lax.linalg.ormqr(*reflections(S, x), x + 1)


def ormqr_right(S, x):
    return S.lax.linalg.ormqr(*reflections(S, x), S.jnp.swapaxes(x, -1, -2), left=False)


def ormqr_transpose(S, x):
    return S.lax.linalg.ormqr(*reflections(S, x), x + 1, transpose=True)


def each(functions, shapes):
    return [(f, data(shape, dtype)) for f in functions for dtype in LAPACK for shape in shapes]


def smooth(function, shape):
    return function, data(shape, np.float64, 5, special=False)


add("cholesky", call, each((cholesky, lower, not_definite), SQUARES), smooth(cholesky, (3, 3)), **OPTIONS)
add("triangular_solve", call, [(f, data(a, dtype, 1), data(b, dtype, 2)) for f in SOLVERS for dtype in LAPACK
                               for a, b in SOLVED],
    (SOLVERS[0], data((3, 3), np.float64, 5), data((3, 2), np.float64, 6)), **OPTIONS)
add("lu", call, each((lu, zero_pivots), MATRICES), smooth(lu, (3, 3)), **OPTIONS)
add("qr", call, each((qr, qr_full, qr_pivoting), MATRICES), smooth(qr, (4, 3)), **OPTIONS)
add("geqrf", call, each((geqrf,), MATRICES), **OPTIONS)
# The reference has no pivots for matrices without rows.
add("geqp3", call, each((geqp3,), [shape for shape in MATRICES if shape[-2]]), **OPTIONS)
add("householder_product", call, each((householder_product, some_reflections), REFLECTED), **OPTIONS)
add("ormqr", call, each((ormqr, ormqr_right, ormqr_transpose), MATRICES), **OPTIONS)
