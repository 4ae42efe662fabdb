"""`scipy.linalg` beside the reference: values, batches, derivatives, failures, errors."""

import warnings

import jax
import numpy as np
import pytest
from closeness import norm
from conformance_numpy import check_batches, check_derivatives, check_values, parametrise, row
from conformance_table import data
from numpy_oracle import expressions
from oracle import FERRAX, JAX, attempt, compare, module

import ferrax
import ferrax.numpy as jnp
from ferrax.test_util import check_grads

LAPACK = (np.float32, np.float64, np.complex64, np.complex128)
OPTIONS = {"dtypes": LAPACK, "special": False, "ulps": 1024, "derivative_ulps": 1 << 14}
# The reference has no derivatives of these, or those of its iterations.
VALUES = OPTIONS | {"points": False}


def linalg(S):
    return module(S, "scipy.linalg")


def adjoint(S, x):
    return S.jnp.conj(S.jnp.swapaxes(x, -1, -2))


def definite(S, x):
    n = x.shape[-1]
    return S.jnp.matmul(x, adjoint(S, x), precision="highest") + 4 * S.jnp.eye(n, dtype=x.dtype)


def regular(S, x):
    n = x.shape[-1]
    return x + 4 * n * S.jnp.eye(n, dtype=x.dtype)


def spread(S, x):
    """A matrix with distinct eigenvalues that have square roots."""
    n = x.shape[-1]
    return 0.3 * x + S.jnp.diag(S.jnp.arange(1.0, n + 1)).astype(x.dtype) * 3


def of(name, make=None, **keywords):
    def call(S, *xs):
        xs = xs if make is None else (make(S, xs[0]), *xs[1:])
        out = getattr(linalg(S), name)(*xs, **keywords)
        return list(out) if isinstance(out, (list, tuple)) else out

    return call


def by_cholesky(S, a, b):
    L, a = linalg(S), definite(S, a)
    return [L.cho_solve(L.cho_factor(a, lower=lower), b) for lower in (False, True)]


def by_lu(S, a, b):
    L = linalg(S)
    return [L.lu_solve(L.lu_factor(a), b, trans=trans) for trans in (0, 1, 2)]


def triangles(S, a, b):
    solve, a = linalg(S).solve_triangular, regular(S, a)
    return [solve(a, b, trans, lower) for trans in (0, "T", 2) for lower in (False, True)] + [
        solve(a / 16, b, unit_diagonal=True)]


def products_with_q(S, a, c):
    multiply, out = linalg(S).qr_multiply, []
    for conjugate in (False, True):
        out += multiply(a, c, "left", conjugate=conjugate)
        out += multiply(a, c, "right", conjugate=conjugate)
    graded = a * S.jnp.arange(1, a.shape[-1] + 1)
    return out + list(multiply(graded, c[:, 0], "left", pivoting=True))


def singular_values(S, a):
    L = linalg(S)
    u, s, vh = L.svd(a, full_matrices=False)
    return s, S.jnp.matmul(u * s, vh, precision="highest"), L.svd(a, compute_uv=False)


def eigenvalues(S, a):
    L, a = linalg(S), definite(S, a)
    w, v = L.eigh(a)
    return w, S.jnp.matmul(v * w, adjoint(S, v), precision="highest"), L.eigh(a, lower=False, eigvals_only=True)


def tridiagonal(S, d, e):
    """Eigenvalues by bisection, and what does not depend on the phases of vectors."""
    L = linalg(S)
    w, v = L.eigh_tridiagonal(d, e, select="i", select_range=(1, 2))
    return w, S.jnp.abs(v), L.eigh_tridiagonal(d, e, eigvals_only=True)


def schur(S, a):
    L = linalg(S)
    t, z = L.schur(a)
    forms = [(t, z), L.rsf2csf(t, z), L.schur(a, output="complex")]
    return [S.jnp.matmul(S.jnp.matmul(z, t, precision="highest"), adjoint(S, z), precision="highest") for t, z in forms]


def exponentials(S, a):
    L = linalg(S)
    return [L.expm(a), L.expm(S.jnp.triu(a), upper_triangular=True), L.expm(30 * S.jnp.triu(a, 1)),
            L.expm(a, max_squarings=0)]


def of_matrices(S, a):
    L, a = linalg(S), spread(S, a)
    return [L.sqrtm(a), L.funm(a, S.jnp.log), *L.funm(a, S.jnp.sqrt, disp=False)]


def polar(S, a):
    L, flat = linalg(S), adjoint(S, a)
    return [*L.polar(a), *L.polar(a, method="svd"), *L.polar(flat, "left"), *L.polar(flat, "left", method="svd")]


ROWS = [
    row("cholesky", of("cholesky", definite), (3, 3), **OPTIONS),
    row("cholesky lower", of("cholesky", definite, lower=True), (2, 3, 3), **OPTIONS),
    row("cho_solve", by_cholesky, (3, 3), (3, 2), **OPTIONS),
    row("cho_solve of many", by_cholesky, (2, 3, 3), (3,), batch=False, **VALUES),
    row("lu", of("lu"), (4, 3), **OPTIONS), row("lu wide", of("lu", permute_l=True), (2, 4), **OPTIONS),
    row("lu_solve", by_lu, (3, 3), (3, 2), **OPTIONS), row("lu_solve of many", by_lu, (2, 3, 3), (3, 1), **VALUES),
    row("solve_triangular", triangles, (3, 3), (3, 2), **OPTIONS),
    row("solve_triangular vector", triangles, (2, 3, 3), (3,), batch=False, **VALUES),
    *[row(f"solve {how}", of("solve", definite, assume_a=how, lower=True), (3, 3), (3, 2), **OPTIONS) for how in ("sym", "her")],
    *[row(f"solve pos {lower}", of("solve", definite, assume_a="pos", lower=lower), (3, 3), b, batch=False,
          **OPTIONS | {"dtypes": (np.float32, np.float64)}) for lower, b in ((False, (3,)), (True, (3, 2)))],
    row("solve pos complex", of("solve", definite, assume_a="pos"), (2, 3, 3), (2, 3, 1), **VALUES),
    row("inv", of("inv", regular), (3, 3), **VALUES), row("det", of("det"), (2, 3, 3), **VALUES),
    row("qr", of("qr"), (4, 3), points=False, **OPTIONS), row("qr economic", of("qr", mode="economic"), (4, 3), **OPTIONS),
    row("qr r", of("qr", mode="r"), (3, 3), **VALUES),
    row("qr pivoting", of("qr", lambda S, x: x * S.jnp.arange(1, 4), mode="r", pivoting=True), (4, 3), **VALUES),
    row("qr_multiply", products_with_q, (4, 3), (3, 4), batch=False, **VALUES | {"dtypes": (np.float32,)}),
    row("qr_multiply square", products_with_q, (3, 3), (3, 3), batch=False, **VALUES),
    row("svd", singular_values, (4, 3), **OPTIONS), row("eigh", eigenvalues, (3, 3), **OPTIONS),
    row("eigh_tridiagonal", tridiagonal, (4,), (3,), batch=False, **VALUES),
    row("schur", schur, (4, 4), **VALUES),
    row("hessenberg", of("hessenberg", calc_q=True), (2, 4, 4), **VALUES), row("hessenberg alone", of("hessenberg"), (4, 4), **VALUES),
    row("expm", exponentials, (3, 3), batch=False, **VALUES), row("expm of many", of("expm"), (2, 3, 3), **VALUES),
    row("expm_frechet", of("expm_frechet"), (3, 3), (3, 3), batch=False, **VALUES),
    row("functions", of_matrices, (4, 4), batch=False, **VALUES),
    row("polar", polar, (4, 3), batch=False, **VALUES),
    *[row(f"solve_sylvester {how}", of("solve_sylvester", spread, method=how), (4, 4), (3, 3), (4, 3), **VALUES | {"ulps": 1 << 14})
      for how in ("schur", "eigen")],
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


def test_complex_definite_systems_backwards():
    """The transpose of a Hermitian matrix is not itself."""
    a, b = (data((3, 3), np.complex128, seed, special=False) for seed in (1, 2))
    with ferrax.enable_x64(True), jax.enable_x64(True):
        def grads(S, how):
            loss = lambda a, b: S.jnp.sum(S.jnp.abs(linalg(S).solve(definite(S, a), b, assume_a=how)) ** 2)  # noqa: E731
            return S.jax.grad(loss, (0, 1))(S.jnp.asarray(a), S.jnp.asarray(b))
        compare(grads(FERRAX, "pos"), grads(JAX, "gen"), ulps=1 << 12)


def test_derivatives_of_exponentials():
    """Of small matrices and of such that are squared, also where a batch has both."""
    a = np.stack([data((3, 3), np.float64, 1, special=False), 30 * data((3, 3), np.float64, 2, special=False)])
    a[1] /= np.abs(a[1]).sum(axis=0).max() / 12
    with ferrax.enable_x64(True), jax.enable_x64(True):
        def derivatives(S):
            expm = linalg(S).expm
            loss = lambda a: S.jnp.sum(S.jnp.sin(S.jnp.log1p(S.jnp.abs(expm(a)))))  # noqa: E731
            return S.jax.jit(S.jax.grad(loss))(S.jnp.asarray(a))
        compare(derivatives(FERRAX), derivatives(JAX), ulps=1 << 14)
        check_grads(ferrax.scipy.linalg.expm, (a[0] / 4,), 2, atol=2e-5, rtol=2e-5, eps=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("eigvals_only", [True, False])
def test_derivatives_of_tridiagonal_matrices(dtype, eigvals_only):
    """Those of the dense matrix, whether vectors are computed or not."""
    def tridiagonal(d, e):
        out = ferrax.scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=eigvals_only)
        return jnp.sum(jnp.sin(out if eigvals_only else out[0]))

    def dense(d, e):
        return jnp.sum(jnp.sin(jnp.linalg.eigvalsh(jnp.diag(d) + jnp.diag(e, 1) + jnp.diag(jnp.conj(e), -1))))

    d, e = data((5,), np.float64, 1, special=False).astype(dtype), data((4,), dtype, 2, special=False)
    with ferrax.enable_x64(True):
        for got, wanted in zip(*(ferrax.grad(f, (0, 1))(d, e) for f in (tridiagonal, dense))):
            np.testing.assert_allclose(got, wanted, atol=1e-9)


def test_large_tridiagonal_matrix():
    """Eigenvalues of the second difference are known, also those of a matrix that is too large as a dense one."""
    n, numbers = 20000, (7, 9)
    w = ferrax.scipy.linalg.eigh_tridiagonal(jnp.full(n, 2.0), jnp.full(n - 1, -1.0), eigvals_only=True, select="i",
                                             select_range=numbers)
    wanted = 2 - 2 * np.cos(np.pi * (np.arange(7, 10) + 1) / (n + 1))
    np.testing.assert_allclose(w, wanted, atol=2e-6)


@pytest.mark.parametrize("d, e", [
    ([0.0] * 51, [1.0] * 50), ([0.0, -0.0, 0.0, 0.0], [1.0, 0.0, 1.0]), ([1.0] * 4, [0.0] * 3), ([-0.0, 1, -0.0, 2], [1.0, 0.0, 3.0]),
    ([1e-30, 3e-30, 2e-30], [1e-31, 2e-30]), ([1e30, 3e30, 2e30], [1e29, 2e30]),
], ids=["zero pivots", "zeros apart", "equal", "negative zeros", "small", "large"])
def test_tridiagonal_eigenvalues_of_all_magnitudes(d, e):
    """Pivots of Sturm's sequence may be 0, and squares of elements no numbers."""
    d, e = np.float32(d), np.float32(e)
    got = ferrax.scipy.linalg.eigh_tridiagonal(jnp.asarray(d), jnp.asarray(e), eigvals_only=True)
    want = np.linalg.eigvalsh(np.diag(d.astype(float)) + np.diag(e.astype(float), 1) + np.diag(e.astype(float), -1))
    np.testing.assert_allclose(got, want, rtol=0, atol=2 * np.finfo(np.float32).eps * np.abs(want).max())


def test_strict_promotion():
    """Real and complex numbers meet in these, by explicit conversions."""
    a = jnp.asarray(data((3, 3), np.complex64, 1, special=False))
    L = ferrax.scipy.linalg
    with ferrax.numpy_dtype_promotion("strict"):
        L.rsf2csf(*L.schur(a.real))
        L.funm(a, jnp.exp, disp=False)
        L.eigh_tridiagonal(a[0], a[0, :2], eigvals_only=True)
        L.solve_sylvester(a, a, a), L.polar(a), L.polar(a, method="svd"), L.expm(a), L.sqrtm(a)


FAILURES = """
L.expm(m * 1e6); L.expm(m * n.inf); L.expm(n.zeros((2, 2))); L.expm(n.zeros((0, 0))); L.cholesky(-m); L.cho_factor(-m, True)[0]; L.solve(-m, m, assume_a="pos")
L.sqrtm(n.diag(n.array([0.0, 4.0, 0.0]))); L.sqrtm(n.zeros((2, 2))); L.funm(n.eye(2), n.exp); L.solve_sylvester(m, -m, m, tol=1e-3); n.isnan(L.schur(m * n.nan)[0][0])
L.eigh_tridiagonal(n.ones(1), n.ones(0)); L.eigh_tridiagonal(n.ones(1) + 0j, n.ones(0) + 0j); L.hessenberg(n.zeros((0, 0)), calc_q=True); L.rsf2csf(n.ones((1, 1)), n.ones((1, 1)))
L.cholesky(i); L.lu(i); L.lu_factor(i); L.qr(i, mode="r"); L.solve(i, i[0]); L.solve(i, i, assume_a="pos"); L.inv(i); L.det(i); L.eigh(i, eigvals_only=True); L.expm(i); L.sqrtm(i)
L.schur(i, "complex")[0].dtype; L.rsf2csf(i, i)[0].dtype; L.solve_sylvester(i, i, i); L.eigh_tridiagonal(n.ones(3), n.zeros(2), eigvals_only=True); L.lu([[1.0, 2.0], [3.0, 4.0]])
L.solve_triangular(h, h); L.solve_triangular(m + 0j, m); L.solve_triangular(n.stack([m, m]), n.ones((2, 2))); L.qr_multiply(m, m[0])[0].shape; L.expm_frechet(m, m, compute_expm=False).shape
"""


def scope(S):
    n = S.jnp
    return {"n": n, "L": linalg(S), "m": n.ones((2, 2)) + n.eye(2), "r": n.ones((2, 3)), "v": n.ones(3), "h": n.eye(2, dtype="float16"),
            "i": n.array([[2, 1], [1, 3]])}


@pytest.mark.parametrize("text", expressions(FAILURES))
def test_failures_and_dtypes(text):
    code = compile(text, "<case>", "eval")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = (attempt(lambda S: eval(code, scope(S)), S) for S in (FERRAX, JAX))
    assert not hasattr(theirs, "error"), theirs
    compare(ours, theirs, ulps=256, weak=False, cancels=norm if "sylvester" in text else 0.0)


ERRORS = """
L.cholesky(None); L.cholesky(r, lower=True); L.cholesky(h); L.lu(n.stack([m, m])); L.lu_solve(L.lu_factor(m), m, trans=3); L.lu_solve(L.lu_factor(m), v); L.cho_solve((m, True), v)
L.solve_triangular(m, m, trans="X"); L.solve_triangular(m, 1.0); L.solve(m, m, assume_a="banded"); L.solve(m, v, assume_a="pos"); L.solve(m, n.stack([m, m]), assume_a="pos")
L.inv(r); L.det(r); L.qr(m, mode="raw"); L.qr_multiply(m, v); L.qr_multiply(m, m, "both"); L.svd(v); L.svd(h); L.eigh(r)
L.eigh_tridiagonal(v, v[:2], select="v"); L.eigh_tridiagonal(v, v[:2], select="q"); L.eigh_tridiagonal(v, v[:2], select="i"); L.eigh_tridiagonal(v, v[:2], select="i", select_range=(2, 1))
L.eigh_tridiagonal(i[0], i[0, :1]); L.eigh_tridiagonal(v, v[:2] + 0j); L.eigh_tridiagonal(r, r[:, :2]); L.schur(m, "other"); L.schur(i); L.schur(r); L.schur(h)
L.rsf2csf(r, m); L.rsf2csf(m, r); L.rsf2csf(m, n.eye(3)); L.hessenberg(r); L.hessenberg(i); L.expm(r); L.expm(v); L.expm(h); L.expm([[1.0]]); L.expm_frechet(r, m); L.expm_frechet(m, r)
L.expm_frechet(m, n.eye(3)); L.expm_frechet(m, i); L.sqrtm(m, blocksize=2); L.sqrtm(n.stack([m, m])); L.funm(r, n.exp); L.funm(n.stack([m, m]), n.exp); L.funm(i, n.exp); L.polar(v); L.polar(i)
L.polar(m, "both"); L.polar(m, method="newton"); L.polar(r); L.polar(m, "left"); L.solve_sylvester(m, m, r); L.solve_sylvester(m, m, v); L.solve_sylvester(m, m, m, method="other")
"""


@pytest.mark.raises("NotImplementedError", "TypeError", "ValueError")
@pytest.mark.parametrize("text", expressions(ERRORS))
def test_errors(text):
    code = compile(text, "<case>", "eval")
    ours, theirs = (attempt(lambda S: eval(code, scope(S)), S) for S in (FERRAX, JAX))
    assert hasattr(theirs, "error"), f"the reference returns {theirs!r}"
    compare(ours, theirs)


def test_batches_of_vectors_are_deprecated():
    a, b = np.stack([np.eye(3, dtype=np.float32)] * 2), np.ones((2, 3), np.float32)
    for S in (FERRAX, JAX):
        with pytest.warns(FutureWarning):
            x = linalg(S).cho_solve((S.jnp.asarray(a), True), S.jnp.asarray(b))
        np.testing.assert_array_equal(x, b)
