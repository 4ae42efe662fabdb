"""Special matrices beside the reference and SciPy."""

import numpy as np
import pytest
import scipy.linalg
from oracle import FERRAX, JAX, attempt, compare, module, same

import ferrax
import ferrax.scipy.linalg

OF_VECTORS = {
    "toeplitz": [((4,),), ((4,), (3,)), ((2, 3), (2, 4)), ((0,), (3,))],
    "hankel": [((4,),), ((4,), (3,)), ((2, 3), (1, 4))],
    "circulant": [((4,),), ((2, 3),), ((),)],
    "leslie": [((4,), (3,)), ((2, 3), (2, 2))],
    "companion": [((4,),), ((2, 3),), ((2,),)],
    "fiedler": [((4,),), ((2, 3),)],
    "fiedler_companion": [((n,),) for n in range(1, 8)] + [((2, 5),)],
    "block_diag": [((2, 3), (1, 2), (4,), ()), (), ((0, 2), (2, 1))],
}


@pytest.mark.parametrize("name", OF_VECTORS)
@same
def test_matrices_of_vectors(S, name):
    rng = np.random.default_rng(0)
    results = []
    for shapes in OF_VECTORS[name]:
        arrays = [S.jnp.asarray(rng.uniform(1, 2, shape).astype(np.float32)) for shape in shapes]
        results.append(getattr(module(S, "scipy.linalg"), name)(*arrays))
    return results


@same
def test_dtypes_and_modes(S):
    l, n = module(S, "scipy.linalg"), S.jnp
    convolution = [l.convolution_matrix(n.arange(1, 5), k, mode) for k in (1, 3, 6) for mode in ("full", "same", "valid")]
    return [
        *convolution, l.convolution_matrix(n.ones((2, 3)), 2), l.toeplitz(n.array([1, 2 + 1j, 3j])), l.toeplitz(n.arange(3), n.ones(2)),
        l.hankel(n.arange(3), n.array([1.5, 2.5])), l.block_diag(n.arange(3), n.ones((2, 2)), True), l.companion(n.arange(1, 4)),
        l.leslie(n.arange(3), n.arange(2)), l.hadamard(4), l.hadamard(2, "float16"), l.dft(5), l.dft(4, "sqrtn"), l.dft(3, "n"),
        l.hilbert(4), l.helmert(5), l.helmert(4, full=True),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["invhilbert", "pascal", "invpascal"])
def test_integer_matrices_are_exact(name):
    with ferrax.enable_x64(True):
        for n in (0, 1, 2, 6):
            kinds = [{}] if name == "invhilbert" else [{"kind": kind} for kind in ("symmetric", "lower", "upper")]
            for kind in kinds if n else []:
                got = getattr(ferrax.scipy.linalg, name)(n, **kind)
                np.testing.assert_array_equal(got, getattr(scipy.linalg, name)(n, **kind))
        assert getattr(ferrax.scipy.linalg, name)(3).dtype == np.float64


@same
def test_transformations(S):
    l, x = module(S, "scipy.linalg"), S.jnp.array([3.0, 1.0, 2.0])
    jacobians = [S.jax.jacobian(f)(x) for f in (l.toeplitz, l.hankel, l.circulant, l.companion, l.fiedler_companion)]
    return jacobians, S.jax.jit(S.jax.vmap(l.toeplitz))(S.jnp.stack([x, 2 * x]))


ERRORS = {
    "block_diag": lambda l, n: l.block_diag(n.ones((2, 2, 2))),
    "hankel": lambda l, n: l.hankel(3.0),
    "leslie": lambda l, n: l.leslie(n.ones(3), n.ones(3)),
    "companion": lambda l, n: l.companion(n.ones(1)),
    "fiedler_companion": lambda l, n: l.fiedler_companion(n.ones(0)),
    "convolution size": lambda l, n: l.convolution_matrix(n.ones(3), 0),
    "convolution mode": lambda l, n: l.convolution_matrix(n.ones(3), 2, "half"),
    "pascal": lambda l, n: l.pascal(3, "left"),
    "hadamard": lambda l, n: l.hadamard(6),
    "helmert": lambda l, n: l.helmert(0),
    "dft scale": lambda l, n: l.dft(3, "half"),
    "dft dtype": lambda l, n: l.dft(3, dtype="float32"),
    "list": lambda l, n: l.toeplitz([1, 2]),
}


@pytest.mark.raises("ValueError", "TypeError")
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    ours, theirs = (attempt(lambda S: ERRORS[name](module(S, "scipy.linalg"), S.jnp), S) for S in (FERRAX, JAX))
    compare(ours, theirs)
