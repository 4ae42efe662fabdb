"""Decompositions of matrices, beside JAX (which calls LAPACK)."""

from __future__ import annotations

import importlib

import numpy as np
from timing import case

TITLE = "Decompositions of matrices"


def _matrices(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _symmetric(*shape):
    a = _matrices(*shape)
    return a + np.swapaxes(a, -1, -2)


def _spread(library, a):
    """A function of eigenvectors too, with a derivative wherever eigenvalues are distinct."""
    jnp = library.jnp
    values, vectors = jnp.linalg.eigh(a)
    return jnp.sum(vectors * jnp.tanh(values))


def _definite(*shape):
    a = _matrices(*shape)
    return np.matmul(a, np.swapaxes(a, -1, -2)) + np.eye(shape[-1], dtype=np.float32)


def _regular(*shape):
    return _matrices(*shape) + 3 * np.eye(shape[-1], dtype=np.float32)


def _scipy(name, *more, **options):
    """A function of `scipy.linalg`."""

    def run(library, a):
        module = importlib.import_module(f"{library.name}.scipy.linalg")
        return getattr(module, name)(a, *(x(a) for x in more), **options)

    return run


FACTORS = {
    "cholesky": (_definite, lambda lib, a: lib.jnp.linalg.cholesky(a)),
    "lu": (_regular, lambda lib, a: lib.jax.lax.linalg.lu(a)),
    "qr": (_regular, lambda lib, a: lib.jnp.linalg.qr(a)),
    "solve": (_regular, lambda lib, a: lib.jnp.linalg.solve(a, a[..., :1])),
    "inv": (_regular, lambda lib, a: lib.jnp.linalg.inv(a)),
    "det": (_regular, lambda lib, a: lib.jnp.linalg.det(a)),
}
LARGE = [(f"`{name}` of 512×512", make(512, 512), run) for name, (make, run) in FACTORS.items()]
BATCHES = [
    (f"`{name}` of {count:,} matrices of {size}×{size}", FACTORS[name][0](count, size, size), FACTORS[name][1])
    for name in ("cholesky", "lu", "solve", "inv", "det")
    for count, size in ((10_000, 3), (1_000, 16))
]  # fmt: skip

CASES = [
    *LARGE, *BATCHES,
    ("`svd` of 512×512", _matrices(512, 512), lambda lib, a: lib.jnp.linalg.svd(a)),
    ("`eigh` of 512×512", _symmetric(512, 512), lambda lib, a: lib.jnp.linalg.eigh(a)),
    ("`eigh` of 256×256", _symmetric(256, 256), lambda lib, a: lib.jnp.linalg.eigh(a)),
    ("gradient through `eigh` of 256×256", _symmetric(256, 256),
     lambda lib, a: lib.jax.grad(lambda a: _spread(lib, a))(a)),
    ("`eigh` of 1,000 matrices of 8×8", _symmetric(1000, 8, 8),
     lambda lib, a: lib.jnp.linalg.eigh(a)),
    ("`svd` of 512×128", _matrices(512, 128),
     lambda lib, a: lib.jnp.linalg.svd(a, full_matrices=False)),
    ("`svdvals` of 256×256", _matrices(256, 256), lambda lib, a: lib.jnp.linalg.svdvals(a)),
    ("`eig` of 128×128", _matrices(128, 128), lambda lib, a: lib.jnp.linalg.eig(a)),
    ("`schur` of 128×128", _matrices(128, 128), _scipy("schur")),
    ("`solve_triangular` of 512×512", _regular(512, 512) + 60 * np.eye(512, dtype=np.float32),
     _scipy("solve_triangular", lambda a: a[:, :64])),
    ("`expm` of 128×128", _matrices(128, 128), _scipy("expm")),
    ("`expm` of 1,000 matrices of 4×4", _matrices(1000, 4, 4), _scipy("expm")),
    ("`sqrtm` of 64×64", _definite(64, 64), _scipy("sqrtm")),
    ("`polar` of 128×128", _regular(128, 128), _scipy("polar")),
    ("`solve_sylvester` of 64×64", _definite(64, 64), _scipy("solve_sylvester", lambda a: a, lambda a: a)),
    ("`eigh_tridiagonal` of 1,000, eigenvalues alone", _matrices(1000),
     _scipy("eigh_tridiagonal", lambda a: a[1:], eigvals_only=True)),
]  # fmt: skip

# Those that NumPy and PyTorch name as JAX does.
NAMED = ("cholesky", "qr", "solve", "inv", "det", "svd", "svdvals", "eigh")
# Their vectors have signs, or phases, that nothing determines.
SIGNS = ("svd`", "eigh`", "eig`", "schur`")


def _row(name, array, function):
    named = name.startswith(tuple(f"`{x}`" for x in NAMED))
    return case(
        name, [array], function, numpy=named or None, torch=named or None, unit="ms",
        alike=not any(word in name for word in SIGNS),
    )  # fmt: skip


ROWS = [_row(*of_case) for of_case in CASES]
