"""Eigenvalues of matrices of any kind, forms that are close to triangular and tridiagonal systems in the table
of `test_conformance`: what of them does not depend on orders, signs and phases."""

import numpy as np
from conformance_linalg import LAPACK, SQUARES, adjoint
from conformance_table import add, data

OPTIONS = {"loose": 20, "sums": True}
SOME = ((3, 3), (2, 4, 4), (1, 1), (0, 2, 2))


def call(S, function, *arguments):
    return function(S, *arguments)


def product(S, *factors):
    out, *rest = factors
    for factor in rest:
        out = S.jnp.matmul(out, factor, precision="highest")
    return out


def spread(S, x):
    """A matrix with distinct eigenvalues."""
    n = x.shape[-1]
    return 0.2 * x + S.jnp.diag(S.jnp.arange(1.0, n + 1)).astype(x.dtype) * 3


def traces(S, x):
    square = product(S, x, x)
    return [S.jnp.trace(y, axis1=-2, axis2=-1) for y in (x, square, product(S, square, x))]


def of_eigenvalues(S, x):
    w, vl, vr = S.lax.linalg.eig(spread(S, x), enable_eigvec_derivs=True)
    return w, vl, vr, S.jnp.exp(0.2 * w)[..., None, :]


def right(S, x):
    w, _, vr, values = of_eigenvalues(S, x)
    return product(S, vr * values, S.jnp.linalg.inv(vr)), S.jnp.sum(w, axis=-1)


def left(S, x):
    _, vl, _, values = of_eigenvalues(S, x)
    rows = adjoint(S, vl)
    return product(S, S.jnp.linalg.inv(rows), S.jnp.swapaxes(values, -1, -2) * rows)


def values_alone(S, x):
    (w,) = S.lax.linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    return [S.jnp.sum(w**k, axis=-1) for k in (1, 2, 3)]


def schur(S, x):
    t, z = S.lax.linalg.schur(x)
    return [product(S, z, t, adjoint(S, z)), product(S, adjoint(S, z), z), *traces(S, t)]


def schur_alone(S, x):
    return traces(S, S.lax.linalg.schur(x, compute_schur_vectors=False)[0])


def hessenberg(S, x):
    return list(S.lax.linalg.hessenberg(x))


def tridiagonal(S, x):
    return list(S.lax.linalg.tridiagonal(x + adjoint(S, x)))


def tridiagonal_upper(S, x):
    return list(S.lax.linalg.tridiagonal(x + adjoint(S, x), lower=False))


def systems(S, dl, d, du, b):
    return S.lax.linalg.tridiagonal_solve(dl, d + 8, du, b)


def with_exchanges(S, dl, d, du, b):
    """The diagonal is smaller than what is below it."""
    return S.lax.linalg.tridiagonal_solve(dl + 8, d, du, b, perturb_singular=True)


def order(S, pivots):
    return S.lax.linalg.lu_pivots_to_permutation(pivots, 4)


def each(functions, shapes):
    return [(f, data(shape, dtype)) for f in functions for dtype in LAPACK for shape in shapes]


def diagonals(shape, dtype):
    return tuple(data(shape, dtype, seed, special=False) for seed in (1, 2, 3))


add("eig", call, each((right, left, values_alone), SQUARES), (right, data((3, 3), np.float64, 5, special=False)), **OPTIONS)
add("schur", call, each((schur, schur_alone), SQUARES), **OPTIONS)
add("hessenberg", call, each((hessenberg,), SOME), **OPTIONS)
add("tridiagonal", call, each((tridiagonal, tridiagonal_upper), SOME), **OPTIONS)
add("tridiagonal_solve", call, [
    (f, *diagonals(shape, dtype), data((*shape, 2), dtype, 4, special=False))
    for f in (systems, with_exchanges) for dtype in LAPACK for shape in ((4,), (2, 3), (1,), (0, 3))],
    (systems, *diagonals((3,), np.float64), data((3, 2), np.float64, 4, special=False)), **OPTIONS)
add("lu_pivots_to_permutation", call, [
    (order, np.asarray(pivots, np.int32)) for pivots in ([2, 2, 3], [[0, 1, 2, 3], [3, 3, 3, 3]], np.zeros((0, 2)))])
