"""`lobpcg_standard` beside dense eigenvalues and JAX's; `spsolve_p` and the functions that eliminate zeros."""

import jax
import numpy as np
import pytest
from jax.experimental import sparse as theirs
from jax.experimental.sparse import linalg as their_linalg

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental import sparse
from ferrax.experimental.sparse import bcoo, bcsr, linalg

N, K = 60, 3


def _orthogonal(seed):
    return np.linalg.qr(np.random.RandomState(seed).standard_normal((N, N)))[0]


SPECTRA = {
    "linear": np.linspace(1, 50, N),
    "wide": np.logspace(0, 5, N),
    "equal": np.ones(N),
    "cluster": np.array([1.0] * (N - K) + [900.0] * K),
    "low rank": np.array([0.0] * (N - 2) + [3.0, 4.0]),
    "negative": -np.linspace(1, 50, N),
    "both signs": np.linspace(-40, 30, N),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_largest_eigenvalues(name, dtype):
    turn = _orthogonal(1).astype(np.complex128 if dtype is np.complex64 else np.float64)
    if dtype is np.complex64:
        turn = turn * np.exp(1j * np.linspace(0, 3, N))[:, None]
    matrix = ((turn * SPECTRA[name]) @ turn.conj().T).astype(dtype)
    start = np.random.RandomState(2).standard_normal((N, K)).astype(dtype)
    values, vectors, steps = linalg.lobpcg_standard(matrix, start, m=200)
    assert values.dtype == np.float32 and vectors.dtype == dtype
    # Of an eigenvalue that is zero no residual is small beside it.
    assert (int(steps) < 200) == (name != "low rank")
    scale = abs(SPECTRA[name]).max()
    np.testing.assert_allclose(values, np.sort(SPECTRA[name])[::-1][:K], atol=3e-5 * scale)
    np.testing.assert_allclose(vectors.conj().T @ vectors, np.eye(K), atol=1e-5)
    assert np.linalg.norm(matrix @ np.asarray(vectors) - np.asarray(vectors) * np.asarray(values)) < 2e-3 * scale


def test_steps_and_accuracy_are_about_those_of_jax():
    matrix = np.diag(np.arange(1, 101)).astype(np.float32)
    start = np.random.RandomState(0).standard_normal((100, 2)).astype(np.float32)
    ours, reference = linalg.lobpcg_standard(matrix, start), their_linalg.lobpcg_standard(matrix, start)
    np.testing.assert_allclose(ours[0], reference[0], rtol=1e-5)
    assert int(ours[2]) <= int(reference[2]) + 3
    assert ours[2].dtype == reference[2].dtype
    assert int(linalg.lobpcg_standard(matrix, start, m=7, tol=0.0)[2]) == 7


def test_functions_jit_and_vmap():
    matrix = np.diag(np.linspace(1, 9, N)).astype(np.float32)
    stored = sparse.BCOO.fromdense(matrix)
    start = np.random.RandomState(0).standard_normal((N, 1)).astype(np.float32)
    direct = linalg.lobpcg_standard(matrix, start)[0]
    np.testing.assert_allclose(linalg.lobpcg_standard(lambda x: stored @ x, start)[0], direct, rtol=1e-5)
    np.testing.assert_allclose(ferrax.jit(linalg.lobpcg_standard)(matrix, start)[0], direct, rtol=1e-5)
    both = ferrax.vmap(linalg.lobpcg_standard, in_axes=(0, None))(np.stack([matrix, 2 * matrix]), start)[0]
    np.testing.assert_allclose(both[:, 0], [9, 18], rtol=1e-5)


def test_what_is_refused():
    start = np.ones((N, K), np.float32)
    matrix = np.eye(N, dtype=np.float32)
    for args in (
        (matrix, start[:, :0]),
        (matrix[:10, :10], start[:10]),
        (matrix[:20], start),
        (matrix[:, :20], start),
        (lambda x: x.astype(jnp.float16), start),
        (np.eye(N, dtype=np.int32), np.ones((N, K), np.int32)),
        (matrix, start[:, 0]),
    ):
        with pytest.raises(ValueError, match="lobpcg_standard"):
            linalg.lobpcg_standard(*args)


def test_solutions_are_one_equation():
    a = np.array([[2, 0, 1], [0, 3, 0], [1, 0, 4]], np.float32)
    right = np.array([1, 2, 3], np.float32)
    ours, other = sparse.CSR.fromdense(jnp.asarray(a)), theirs.CSR.fromdense(a)

    def solution(module, m, data, b):
        return module.spsolve(data, m.indices, m.indptr, b)

    eqns = [
        module.make_jaxpr(lambda d, b, s=s, m=m: solution(s, m, d, b))(m.data, right).eqns[0]
        for module, s, m in ((ferrax, linalg, ours), (jax, their_linalg, other))
    ]
    assert eqns[0].primitive is linalg.spsolve_p
    assert [(e.primitive.name, e.params) for e in eqns[:1]] == [(e.primitive.name, e.params) for e in eqns[1:]]
    grads = ferrax.jit(ferrax.grad(lambda d, b: solution(linalg, ours, d, b).sum(), argnums=(0, 1)))(ours.data, right)
    x, y = np.linalg.solve(a, right), np.linalg.solve(a.T, np.ones(3))
    rows, columns = np.nonzero(a)
    np.testing.assert_allclose(grads[0], -y[rows] * x[columns], rtol=1e-5)
    np.testing.assert_allclose(grads[1], y, rtol=1e-5)


def test_zeros_are_eliminated():
    data = np.array([0, 2, 0, 3, 1], np.float32)
    places = np.array([[0, 0], [0, 1], [1, 2], [2, 0], [2, 0]])
    for nse in (None, 4):
        ours = bcoo.bcoo_eliminate_zeros(sparse.BCOO((data, places), shape=(3, 3)), nse)
        other = theirs.bcoo.bcoo_eliminate_zeros(theirs.BCOO((data, places), shape=(3, 3)), nse)
        np.testing.assert_array_equal(ours.data, other.data)
        np.testing.assert_array_equal(ours.indices, other.indices)
        rows = data, places[:, 1], np.array([0, 2, 3, 5])
        ours = bcsr.bcsr_eliminate_zeros(sparse.BCSR(tuple(map(jnp.asarray, rows)), shape=(3, 3)), nse)
        other = theirs.bcsr.bcsr_eliminate_zeros(theirs.BCSR(tuple(map(jax.numpy.asarray, rows)), shape=(3, 3)), nse)
        np.testing.assert_array_equal(ours.indptr, other.indptr)
        np.testing.assert_array_equal(ours.todense(), other.todense())
