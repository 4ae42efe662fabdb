"""Eigenvalues of matrices of any kind, Schur's form, reductions, tridiagonal systems, updates of factors and
polar factors beside the reference: values, batches, derivatives, errors."""

import warnings

import jax
import numpy as np
import pytest
from conformance_numpy import check_batches, check_derivatives, check_values, parametrise, row
from conformance_table import data
from numpy_oracle import expressions
from oracle import FERRAX, JAX, attempt, compare

import ferrax
import ferrax.numpy as jnp

LAPACK = (np.float32, np.float64, np.complex64, np.complex128)
DTYPES = [np.dtype(t).name for t in LAPACK]
OPTIONS = {"dtypes": LAPACK, "special": False, "ulps": 512, "derivative_ulps": 1 << 14}
REALS = OPTIONS | {"dtypes": (np.float32, np.float64)}


def adjoint(S, x):
    return S.jnp.conj(S.jnp.swapaxes(x, -1, -2))


def product(S, x, y):
    return S.jnp.matmul(x, y, precision="highest")


def spread(S, x):
    """A matrix with distinct eigenvalues."""
    n = x.shape[-1]
    return x * 0.2 + S.jnp.diag(S.jnp.arange(1, n + 1) * 3).astype(x.dtype)


def in_order(S, w):
    return w[S.jnp.argsort(S.jnp.real(w))]


def eigenvalues(S, x):
    return in_order(S, S.jnp.linalg.eigvals(spread(S, x)))


def function_of(S, x):
    """The exponential of a matrix, which does not depend on how vectors are scaled."""
    w, v = S.jnp.linalg.eig(spread(S, x))
    return product(S, v * S.jnp.exp(0.2 * w)[..., None, :], S.jnp.linalg.inv(v))


def vectors(S, x):
    w, vl, vr = S.lax.linalg.eig(spread(S, x), enable_eigvec_derivs=True)
    order = S.jnp.argsort(S.jnp.real(w))
    return [S.jnp.abs(v[:, order]) for v in (vl, vr)]


def tridiagonal(S, x):
    h = x + adjoint(S, x)
    return [list(S.lax.linalg.tridiagonal(h, lower=lower)) for lower in (True, False)]


def systems(S, dl, d, du, b):
    return S.lax.linalg.tridiagonal_solve(dl, d + 8, du, b)


def polar(S, x):
    u, h, _, converged = S.lax.linalg.qdwh(x + 3 * S.jnp.eye(*x.shape, dtype=x.dtype))
    return u, h, converged


def update(S, r, w):
    return S.lax.linalg.cholesky_update(S.jnp.triu(r) + 4 * S.jnp.eye(3, dtype=r.dtype), w)


ROWS = [
    row("eigvals", eigenvalues, (4, 4), batch=False, points=False, **OPTIONS),
    row("eig", function_of, (3, 3), batch=False, points=False, **OPTIONS),
    row("eigenvectors", vectors, (3, 3), batch=False, points=False, **OPTIONS),
    row("hessenberg", lambda S, x: list(S.lax.linalg.hessenberg(x)), (2, 4, 4), points=False, **OPTIONS),
    row("tridiagonal", tridiagonal, (4, 4), points=False, **OPTIONS),
    row("tridiagonal_solve", systems, (4,), (4,), (4,), (4, 2), **OPTIONS),
    row("tridiagonal_solve of many", systems, (2, 5), (2, 5), (2, 5), (2, 5, 1), **OPTIONS),
    row("polar", polar, (4, 3), batch=False, points=False, **OPTIONS),
    row("cholesky_update", update, (3, 3), (3,), batch=False, points=False, **REALS),
    row("symmetric_product", lambda S, a, c: S.lax.linalg.symmetric_product(
        a, c + adjoint(S, c), alpha=2.0, beta=0.5, symmetrize_output=True), (3, 2), (3, 3), batch=False, points=False, **REALS),
    row("poly", lambda S, x: S.jnp.poly(spread(S, x)), (3, 3), points=False, batch=False, **REALS),
    row("roots", lambda S, p: in_order(S, S.jnp.roots(p.at[0].set(1), strip_zeros=False)), (5,), points=False, batch=False, **REALS),
]  # fmt: skip


@parametrise(ROWS)
def test_values(row):
    check_values(row)


@parametrise([r for r in ROWS if r.batch])
def test_batches(row):
    check_batches(row)


@parametrise([r for r in ROWS if r.points])
def test_derivatives(row):
    check_derivatives(row)


@pytest.mark.parametrize("fun", [eigenvalues, vectors])
def test_first_derivatives(fun):
    """The reference has no others: those of eigenvalues need eigenvectors' own."""
    x = data((3, 3), np.float64, 5, special=False)
    with ferrax.enable_x64(True), jax.enable_x64(True):
        compare(*(S.jax.jacfwd(lambda x, S=S: fun(S, x))(S.jnp.asarray(x)) for S in (FERRAX, JAX)), ulps=1 << 14)


def near(got, wanted, dtype, size=1.0):
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0)))
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=0, atol=200 * size * scale * np.finfo(dtype).eps)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 40, 90])
@pytest.mark.parametrize("dtype", DTYPES)
def test_decompositions_make_the_matrix(dtype, n):
    a = data((n, n), dtype, n, special=False)
    with ferrax.enable_x64(True), jax.enable_x64(True):
        t, z = map(np.asarray, ferrax.lax.linalg.schur(jnp.asarray(a)))
        w, vl, vr = map(np.asarray, ferrax.lax.linalg.eig(jnp.asarray(a)))
        wanted = np.asarray(jax.lax.linalg.eig(a)[0])
    near(z @ t @ z.conj().T, a, dtype, n)
    near(z.conj().T @ z, np.eye(n), dtype, n)
    below = np.abs(np.tril(t, -1))
    assert not below.any() if a.dtype.kind == "c" else not np.tril(t, -2).any() and not (
        np.diag(below, -1)[1:] * np.diag(below, -1)[:-1]).any()
    near(a @ vr, vr * w, dtype, n)
    near(vl.conj().T @ a, w[:, None] * vl.conj().T, dtype, n)
    for v in (vl, vr):
        near(np.linalg.norm(v, axis=0), np.ones(n), dtype)
        largest = v[np.argmax(np.abs(v), axis=0), np.arange(n)]
        near(largest.imag, np.zeros(n), dtype)
    # The same eigenvalues as the reference, each once.
    apart = np.abs(w[:, None] - wanted[None, :])
    assert sorted(apart.argmin(axis=1)) == list(range(n))
    assert apart.min(axis=1).max() <= 1e4 * n * np.finfo(dtype).eps * max(1.0, np.abs(wanted).max())
    if a.dtype.kind == "f":
        assert set(np.round(w, 4)) == set(np.round(w.conj(), 4))


SPECIAL = {
    "nan": np.full((3, 3), np.nan), "zeros": np.zeros((3, 3)), "identity": np.eye(4), "jordan": np.eye(3) + np.eye(3, k=1),
    "rotation": np.array([[0.0, -1.0], [1.0, 0.0]]), "triangle": np.triu(np.arange(1.0, 10).reshape(3, 3)),
    "large": 1e30 * np.array([[1.0, 2.0], [3.0, 4.0]]), "cycle": np.eye(6)[[1, 2, 3, 4, 5, 0]],
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_matrices(name):
    a = SPECIAL[name].astype(np.float32)
    w = [np.asarray(jnp.linalg.eigvals(a)), None if name == "nan" else np.linalg.eigvals(SPECIAL[name])]
    if name == "nan":
        assert np.isnan(w[0]).all() and np.isnan(np.asarray(ferrax.lax.linalg.schur(a)[0])).all()
        return
    scale = max(1.0, float(np.abs(w[1]).max()))
    for x in w[1]:
        assert np.abs(w[0] - x).min() <= 5e-3 * scale
    t, z = map(np.asarray, ferrax.lax.linalg.schur(a))
    np.testing.assert_allclose(z @ t @ z.T, a, atol=1e-5 * scale)


def test_tridiagonal_systems_that_are_singular():
    zero, one = np.zeros(3, np.float32), np.ones((3, 1), np.float32)
    diagonal = np.array([1, 0, 2], np.float32)
    for S in (FERRAX, JAX):
        assert np.isnan(np.asarray(S.lax.linalg.tridiagonal_solve(zero, diagonal, zero, one))).all()
        found = np.asarray(S.lax.linalg.tridiagonal_solve(zero, diagonal, zero, one, perturb_singular=True))
        assert np.isfinite(found).all() and abs(found[1, 0]) > 1e5
    big = data((300,), np.float64, 1, special=False)
    with ferrax.enable_x64(True), jax.enable_x64(True):
        # Pivots that are exchanged: a diagonal that is small.
        arguments = [np.roll(big, 1), big * 1e-3, big + 1, np.stack([big, big**2], -1)]
        ours, theirs = (S.lax.linalg.tridiagonal_solve(*map(S.jnp.asarray, arguments)) for S in (FERRAX, JAX))
        compare(ours, theirs, ulps=1 << 20)


def test_orders_of_rows():
    pivots = np.array([[2, 2, 3], [0, 1, 2]], np.int32)
    compare(*(S.lax.linalg.lu_pivots_to_permutation(S.jnp.asarray(pivots), 5) for S in (FERRAX, JAX)))


@pytest.mark.parametrize("call", [
    lambda S, x: S.lax.linalg.eig(x), lambda S, x: S.lax.linalg.eig(x, compute_left_eigenvectors=False, enable_eigvec_derivs=True),
    lambda S, x: S.lax.linalg.schur(x), lambda S, x: S.lax.linalg.hessenberg(x), lambda S, x: S.lax.linalg.tridiagonal(x),
    lambda S, x: S.lax.linalg.tridiagonal_solve(x[0], x[0], x[0], x), lambda S, x: S.lax.linalg.cholesky_update(x, x[0]),
    lambda S, x: S.lax.linalg.symmetric_product(x, x), lambda S, x: S.lax.linalg.lu_pivots_to_permutation(x[0].astype("int32"), 3),
])  # fmt: skip
def test_jaxprs(call):
    def last(S):
        eqn = S.jax.make_jaxpr(lambda x: call(S, x))(S.jnp.ones((2, 2))).jaxpr.eqns[-1]
        return eqn.primitive.name, dict(eqn.params), [str(v.aval) for v in eqn.outvars]

    assert last(FERRAX) == last(JAX)


def test_eigenvectors_without_derivatives_say_so():
    for grad in (ferrax.jacfwd, ferrax.grad):
        with pytest.raises(NotImplementedError, match="enable_eigvec_derivs=True"):
            grad(lambda x: jnp.abs(jnp.linalg.eig(x)[1]).sum())(jnp.array([[1.0, 2.0], [3.0, 4.0]]))


# `l` is jnp.linalg, `L` lax.linalg; h half precision, i integers, r a matrix that is not square.
CALLS = """
L.eig(i); L.eig(h); L.eig(r); L.eig(v); L.eig(m, implementation=E.MAGMA); L.schur(r); L.schur(i); L.schur(m, sort_eig_vals=True); L.hessenberg(r)
L.tridiagonal(r); L.tridiagonal(i); L.tridiagonal_solve(v, v, v, v); L.tridiagonal_solve(v, v, m[0], m)
L.lu_pivots_to_permutation(i[0], 1); L.lu_pivots_to_permutation(v, 3); L.cholesky_update(m, v); L.cholesky_update(i, i[0]); L.symmetric_product(r, r)
L.qdwh(r); l.eig(r); l.eigvals(r); l.eigvals(h); l.eigvals(v); n.roots(m); n.poly(n.ones((2, 3)))
"""


def scope(S):
    n = S.jnp
    return {"n": n, "l": n.linalg, "L": S.lax.linalg, "m": n.ones((2, 2)) + n.eye(2), "r": n.ones((2, 3)), "v": n.ones(3),
            "h": n.ones((2, 2), "float16"), "i": n.array([[2, 1], [1, 3]]), "np": np, "E": S.lax.linalg.EigImplementation}


@pytest.mark.raises("NotImplementedError", "TypeError", "ValueError")
@pytest.mark.parametrize("text", expressions(CALLS))
def test_errors(text):
    code = compile(text, "<case>", "eval")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = (attempt(lambda S: eval(code, scope(S)), S) for S in (FERRAX, JAX))
    assert hasattr(theirs, "error"), f"the reference returns {theirs!r}"
    compare(ours, theirs)


VALUES = """
L.eig(m)[0].dtype; l.eigvals(i)[:0]; l.eigvals(n.zeros((2, 0, 0))); l.eig(n.zeros((0, 0))); n.roots(n.array([1.0])); n.roots(n.array([0.0, 0.0, 2.0, -4.0]))
n.roots(n.array([0.0, 2.0, -4.0]), strip_zeros=False); n.roots(i[0]); L.schur(m, compute_schur_vectors=False)[0].shape; n.roots(n.zeros(3))
"""


@pytest.mark.parametrize("text", expressions(VALUES))
def test_arguments_and_dtypes(text):
    code = compile(text, "<case>", "eval")
    ours, theirs = (attempt(lambda S: eval(code, scope(S)), S) for S in (FERRAX, JAX))
    assert not hasattr(theirs, "error"), theirs
    compare(ours, theirs, ulps=64)
