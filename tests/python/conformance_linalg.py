"""Decompositions in the table of `test_conformance`, and what of them does not depend on the signs
and phases of vectors: eigenvalues, singular values, functions of matrices, projections."""

import numpy as np
from conformance_table import add, data

LAPACK = (np.float32, np.float64, np.complex64, np.complex128)
SQUARES = ((3, 3), (2, 3, 3), (1, 1), (0, 0), (2, 0, 0), (0, 2, 2))
MATRICES = ((3, 3), (2, 3), (3, 2), (2, 4, 3), (2, 3, 4), (1, 1), (0, 0), (0, 3), (3, 0), (2, 0, 3), (0, 3, 2))


def adjoint(S, x):
    return S.jnp.conj(S.jnp.swapaxes(x, -1, -2))


def product(S, u, values, vh):
    """`u @ diag(values) @ vh`."""
    return S.jnp.matmul(u * values[..., None, :], vh, precision="highest")


def eigen(S, x, **options):
    """The eigenvalues, and the exponential of the matrix."""
    v, w = S.lax.linalg.eigh(x, **options)
    return w, product(S, v, S.jnp.exp(0.3 * w), adjoint(S, v))


def lower(S, x):
    return eigen(S, x, symmetrize_input=False)


def upper(S, x):
    return eigen(S, x, symmetrize_input=False, lower=False)


def singular(S, x):
    """The singular values, and the matrix with other ones."""
    u, s, vh = S.lax.linalg.svd(x, full_matrices=False)
    return s, product(S, u, S.jnp.sin(0.5 * s), vh)


def singular_values(S, x):
    return S.lax.linalg.svd(x, compute_uv=False)


def singular_full(S, x):
    """The singular values, the matrix, and the projections onto what the full matrices add."""
    u, s, vh = S.lax.linalg.svd(x)
    k = s.shape[-1]
    more, below = u[..., :, k:], vh[..., k:, :]
    whole = product(S, u[..., :, :k], s, vh[..., :k, :])
    return s, whole, more @ adjoint(S, more), adjoint(S, below) @ below


def call(S, function, x):
    return function(S, x)


add("eigh", call, [(f, data(shape, dtype)) for f in (eigen, lower, upper) for dtype in LAPACK for shape in SQUARES],
    (eigen, data((3, 3), np.float64, 5, special=False)), loose=20, sums=True)
add("svd", call, [(f, data(shape, dtype)) for f in (singular, singular_values, singular_full)
                  for dtype in LAPACK for shape in MATRICES],
    (singular, data((3, 2), np.float64, 5, special=False)), loose=20, sums=True)
