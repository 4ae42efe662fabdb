"""Eigenvalues and singular values beside the reference: values, batches, derivatives, errors."""

import warnings

import conformance_linalg as table
import jax
import numpy as np
import pytest
from closeness import norm
from conformance_numpy import (
    check_batches,
    check_derivatives,
    check_values,
    parametrise,
    row,
)
from conformance_table import data
from numpy_oracle import expressions
from oracle import FERRAX, JAX, attempt, compare

import ferrax
import ferrax.numpy as jnp
from ferrax.extend.core import primitives as extend_primitives

DTYPES = [np.dtype(t).name for t in table.LAPACK]
TOLERANCE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-12, "complex128": 1e-12}


def hermitian(shape, dtype, seed=0):
    a = data(shape, dtype, seed, special=False)
    return ((a + np.swapaxes(a, -1, -2).conj()) / 2).astype(dtype)


def near(got, wanted, dtype):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.shape == wanted.shape
    scale = 1 + np.max(np.abs(wanted), initial=0)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE[dtype] * scale)


def orthonormal(columns, dtype):
    columns = np.asarray(columns)
    identity = np.broadcast_to(np.eye(columns.shape[-1]), (*columns.shape[:-2], *[columns.shape[-1]] * 2))
    near(np.swapaxes(columns, -1, -2).conj() @ columns, identity, dtype)


# ---------------------------------------------------------------------------- values


EXTREME = {
    "svd": lambda l, a: [l.svd(a).S],
    "svdvals": lambda l, a: [l.svdvals(a)],
    "norm": lambda l, a: [l.norm(a, 2), l.norm(a, "nuc")],
    "pinv": lambda l, a: [l.pinv(a)],
    "rank": lambda l, a: [l.matrix_rank(a), l.matrix_rank(a[:1] + 0 * a)],
    "eigh": lambda l, a: [l.eigvalsh(a + a.T)],
    "cond": lambda l, a: [l.cond(a)],
}


@pytest.mark.parametrize("scale", [1e20, 1e30, 1e-25, 1e-30], ids=str)
@pytest.mark.parametrize("name", EXTREME)
def test_elements_may_be_large_and_small(name, scale):
    for dtype, factor in (("float32", scale), ("float64", scale**5), ("complex64", scale)):
        with ferrax.enable_x64(True), jax.enable_x64(True):
            a = (np.array([[1, 2.5], [3, 4]]) * factor).astype(dtype)
            for got, want in zip(EXTREME[name](jnp.linalg, jnp.asarray(a)), EXTREME[name](jax.numpy.linalg, a)):
                np.testing.assert_allclose(got, want, rtol=1e-4 if dtype != "float64" else 1e-11)


@pytest.mark.parametrize("scale", [1.0, 1e-7, 1e25], ids=str)
def test_eigenvectors_of_larger_matrices_are_as_accurate_as_those_of_lapack(scale):
    rng = np.random.default_rng(5)
    g = rng.standard_normal((150, 150)).astype(np.float32)
    for a in (g + g.T, g[:, :149] @ g[:, :149].T):
        a = (a * np.float32(scale)).astype(np.float32)
        got, want = (
            [np.asarray(x, np.float64) for x in l.eigh(array(a))]
            for l, array in ((jnp.linalg, jnp.asarray), (jax.numpy.linalg, jax.numpy.asarray))
        )
        residual = lambda w, v, a=a: np.linalg.norm(a.astype(np.float64) @ v - v * w)  # noqa: E731
        skew = lambda w, v: np.linalg.norm(v.T @ v - np.eye(len(w)))  # noqa: E731
        assert residual(*got) < 1.5 * residual(*want)
        assert skew(*got) < 1.5 * skew(*want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (2, 3, 4, 4), (40, 40)], ids=str)
def test_eigenvectors_diagonalise(shape, dtype):
    a = hermitian(shape, dtype)
    with ferrax.enable_x64(True), jax.enable_x64(True):
        want = jax.numpy.linalg.eigvalsh(a)
        for fun in (jnp.linalg.eigh, ferrax.jit(jnp.linalg.eigh), lambda x: jnp.linalg.eigh(x, "U", False)):
            got = fun(jnp.asarray(a))
            assert type(got).__name__ == "EighResult" and got._fields == ("eigenvalues", "eigenvectors")
            w, v = got
            assert w.dtype == want.dtype and v.dtype == dtype and not w.weak_type and not v.weak_type
            near(w, want, dtype)
            orthonormal(v, dtype)
            near(a @ np.asarray(v), np.asarray(v) * np.asarray(w)[..., None, :], dtype)
            assert np.all(np.diff(np.asarray(w), axis=-1) >= 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 5), (5, 2), (2, 3, 4, 3), (1, 6), (6, 1), (30, 20)], ids=str)
def test_singular_vectors_reconstruct(shape, full, dtype):
    a = data(shape, dtype, 1, special=False)
    k = min(shape[-2:])
    with ferrax.enable_x64(True), jax.enable_x64(True):
        want = jax.numpy.linalg.svd(a, full_matrices=full)
        for fun in (jnp.linalg.svd, ferrax.jit(jnp.linalg.svd, static_argnums=1)):
            got = fun(jnp.asarray(a), full)
            assert type(got).__name__ == "SVDResult" and got._fields == ("U", "S", "Vh")
            for x, y in zip(got, want):
                assert x.shape == y.shape and x.dtype == y.dtype and not x.weak_type
            u, s, vh = map(np.asarray, got)
            near(s, want.S, dtype)
            orthonormal(u, dtype)
            orthonormal(np.swapaxes(vh, -1, -2).conj(), dtype)
            near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, dtype)
            assert np.all(s >= 0) and np.all(np.diff(s, axis=-1) <= 0)
        near(jnp.linalg.svd(jnp.asarray(a), full, False), want.S, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_svd_of_hermitian_matrices(dtype):
    a = hermitian((2, 4, 4), dtype)
    with ferrax.enable_x64(True), jax.enable_x64(True):
        want = jax.numpy.linalg.svd(a, hermitian=True)
        u, s, vh = jnp.linalg.svd(jnp.asarray(a), hermitian=True)
        assert [x.dtype for x in (u, s, vh)] == [x.dtype for x in want]
        near(s, want.S, dtype)
        orthonormal(u, dtype)
        near((np.asarray(u) * np.asarray(s)[..., None, :]) @ np.asarray(vh), a, dtype)
        near(jnp.linalg.svd(jnp.asarray(a), compute_uv=False, hermitian=True), want.S, dtype)


def test_eigh_reads_one_triangle():
    a = np.array([[2.0, np.nan], [1.0, 3.0]], np.float32)
    want = np.linalg.eigvalsh(np.array([[2.0, 1.0], [1.0, 3.0]]))
    near(jnp.linalg.eigvalsh(jnp.asarray(a), symmetrize_input=False), want, "float32")
    near(jnp.linalg.eigvalsh(jnp.asarray(a.T), "U", symmetrize_input=False), want, "float32")
    assert np.isnan(jnp.linalg.eigvalsh(jnp.asarray(a), "U", symmetrize_input=False)).all()
    assert np.isnan(jnp.linalg.eigvalsh(jnp.asarray(a))).all()


@pytest.mark.parametrize("name", ["eigh", "svd", "svd_reduced", "svdvals", "pinv", "matrix_rank", "norm"])
def test_nan_stays_in_its_matrix(name):
    a = data((3, 3, 3), np.float32, special=False)
    a[1, 2, 0] = np.nan

    def fun(S):
        l, x = S.jnp.linalg, S.jnp.asarray(a)
        results = {
            "eigh": lambda: l.eigh(x), "svd": lambda: l.svd(x), "svdvals": lambda: [l.svdvals(x)],
            "svd_reduced": lambda: l.svd(x, False), "pinv": lambda: [l.pinv(x)],
            "matrix_rank": lambda: [l.matrix_rank(x)], "norm": lambda: [l.norm(x, 2, axis=(1, 2))],
        }[name]()
        return [np.isnan(np.asarray(r)) if name != "matrix_rank" else np.asarray(r) for r in results]

    for got, want in zip(fun(FERRAX), fun(JAX)):
        np.testing.assert_array_equal(got, want)


EMPTY = [
    *[(f"{name} {shape}", lambda S, shape=shape, name=name: getattr(S.jnp.linalg, name)(S.jnp.zeros(shape)))
      for name in ("eigh", "eigvalsh") for shape in ((0, 0), (2, 0, 0), (0, 3, 3))],
    *[(f"svd {shape} {options}", lambda S, shape=shape, options=options: S.jnp.linalg.svd(S.jnp.zeros(shape), *options))
      for shape in ((0, 0), (0, 3), (3, 0), (2, 0, 3), (2, 3, 0), (0, 2, 3), (0, 3, 2), (0, 3, 0))
      for options in ((), (False,), (True, False), (False, False))],
    *[(f"svd hermitian {shape}", lambda S, shape=shape: S.jnp.linalg.svd(S.jnp.zeros(shape), hermitian=True))
      for shape in ((0, 0), (2, 0, 0), (0, 3, 3))],
    *[(f"norm {ord} {shape}", lambda S, shape=shape, ord=ord: S.jnp.linalg.norm(S.jnp.zeros(shape), ord, axis=(-2, -1)))
      for ord in (2, -2, "nuc") for shape in ((0, 0), (0, 3), (3, 0), (0, 2, 3))],
    *[(f"{name} {shape}", lambda S, shape=shape, name=name: getattr(S.jnp.linalg, name)(S.jnp.zeros(shape)))
      for name in ("matrix_rank", "cond", "pinv", "svdvals") for shape in ((0, 0), (0, 3), (3, 0), (2, 0, 3), (0, 2, 3))],
    ("rank with a tolerance", lambda S: S.jnp.linalg.matrix_rank(S.jnp.zeros((0, 3)), 0.1)),
    ("complex", lambda S: S.jnp.linalg.svd(S.jnp.zeros((0, 2), "complex64"))),
    ("an algorithm", lambda S: S.lax.linalg.svd(S.jnp.zeros((0, 3)), algorithm=S.lax.linalg.SvdAlgorithm.POLAR)),
]


@pytest.mark.parametrize("case", [c for _, c in EMPTY], ids=[name for name, _ in EMPTY])
def test_empty_shapes(case):
    compare(attempt(case, FERRAX), attempt(case, JAX))


# ---------------------------------------------------------------------------- functions of values


def linalg(name, *shapes, label="", args=(), **options):
    keywords = options.pop("keywords", {})
    return row(f"{name}{label} {shapes} {args or ''}{keywords or ''}",
               lambda S, *xs: getattr(S.jnp.linalg, name)(*xs, *args, **keywords), *shapes,
               **{"dtypes": (*table.LAPACK, np.int32), "ulps": 64, "special": False} | options)


def invariant(label, function, *shapes, **options):
    return row(f"{label} {shapes}", function, *shapes, dtypes=table.LAPACK, special=False, ulps=64, **options)


def spectral(S, x):
    w, v = S.jnp.linalg.eigh(x)
    return table.product(S, v, S.jnp.tanh(w), table.adjoint(S, v))


def projection(S, x):
    """Onto the eigenvector of the largest eigenvalue."""
    v = S.jnp.linalg.eigh(x).eigenvectors[..., -1:]
    return S.jnp.matmul(v, table.adjoint(S, v), precision="highest")


def polar(S, x):
    u, _, vh = S.jnp.linalg.svd(x, full_matrices=False)
    return S.jnp.matmul(u, vh, precision="highest")


def of_hermitian(S, x):
    u, s, vh = S.jnp.linalg.svd(x, hermitian=True)
    return s, table.product(S, u, S.jnp.sin(s), vh)


ROWS = [
    linalg("eigvalsh", (3, 3)), linalg("eigvalsh", (2, 2, 2), args=("U",)), linalg("svdvals", (3, 3)),
    linalg("svdvals", (2, 4)), linalg("svdvals", (4, 2)), linalg("svdvals", (2, 2, 3)),
    *[linalg("norm", (2, 3), args=(ord,)) for ord in (2, -2, "nuc")],
    *[linalg("norm", (2, 3, 4), args=(ord, axis, keep)) for ord, axis, keep in (
        (2, (2, 0), False), (-2, (0, 1), True), ("nuc", (-1, -3), True), ("nuc", (1, 2), False))],
    *[linalg("matrix_norm", (2, 3, 3), keywords={"ord": ord}) for ord in (2, -2, "nuc")],
    linalg("matrix_norm", (2, 3, 3), keywords={"ord": 2, "keepdims": True}),
    # Second derivatives have the square of the condition, about 10, as a factor.
    linalg("cond", (3, 3), derivative_ulps=1024), linalg("cond", (2, 3, 2), args=(2,)), linalg("cond", (2, 3), args=(-2,)),
    linalg("matrix_rank", (3, 3), points=False), linalg("matrix_rank", (2, 2, 3), args=(2.0,), points=False),
    linalg("matrix_rank", (2, 3, 3), keywords={"hermitian": True}, points=False),
    linalg("matrix_rank", (4,), points=False), linalg("matrix_rank", (), points=False),
    linalg("pinv", (3, 3), derivative_ulps=1024), linalg("pinv", (2, 4)), linalg("pinv", (4, 2)), linalg("pinv", (2, 2, 3)),
    linalg("pinv", (3, 2), args=(0.7,), label=" cut"), linalg("pinv", (2, 3), keywords={"rcond": 0.7}),
    linalg("pinv", (3, 3), keywords={"hermitian": True}),
    linalg("svd", (2, 3), args=(True, False)), linalg("svd", (3, 3), args=(True, False, True), label=" hermitian"),
    invariant("eigen", table.eigen, (3, 3)), invariant("lower", table.lower, (3, 3), points=False),
    invariant("upper", table.upper, (3, 3), points=False), invariant("spectral", spectral, (2, 3, 3)),
    invariant("projection", projection, (3, 3)), invariant("singular", table.singular, (3, 3)),
    invariant("singular", table.singular, (2, 4, 2)), invariant("singular", table.singular, (2, 3)),
    invariant("full", table.singular_full, (2, 4), points=False),
    invariant("full square", table.singular_full, (3, 3)), invariant("polar", polar, (2, 3)),
    invariant("polar", polar, (3, 2)), invariant("polar", polar, (3, 3)), invariant("of Hermitian", of_hermitian, (3, 3)),
]


@parametrise(ROWS)
def test_values(row):
    check_values(row)


@parametrise([r for r in ROWS if np.ndim(r.cases[0][0])])
def test_batches(row):
    check_batches(row)


@parametrise([r for r in ROWS if r.points])
def test_derivatives(row):
    check_derivatives(row)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("fun", [table.eigen, table.lower, table.singular, table.singular_full, table.singular_values],
                         ids=lambda f: f.__name__)
def test_vmap_is_a_loop(fun, axis):
    a = data((4, 3, 3), np.float32, special=False)
    one = lambda x: fun(FERRAX, x)  # noqa: E731
    looped = [one(jnp.asarray(x)) for x in a]
    want = ferrax.tree_util.tree_map(lambda *xs: jnp.stack(xs), *looped)
    for outer in (lambda f: f, ferrax.jit):
        got = outer(ferrax.vmap(one, in_axes=axis))(jnp.asarray(np.moveaxis(a, 0, axis)))
        compare(got, want, ulps=64)


# ---------------------------------------------------------------------------- singular points

POINTS = {
    "eigenvectors": lambda S: S.jax.grad(lambda x: S.jnp.linalg.eigh(x)[1].sum())(S.jnp.eye(2)),
    "eigenvalues": lambda S: S.jax.grad(lambda x: S.jnp.linalg.eigh(x)[0].sum())(S.jnp.eye(2)),
    "eigvalsh": lambda S: S.jax.jacrev(S.jnp.linalg.eigvalsh)(S.jnp.eye(3)),
    "eigvalsh forwards": lambda S: S.jax.jacfwd(S.jnp.linalg.eigvalsh)(2 * S.jnp.eye(3)),
    "second": lambda S: S.jax.hessian(lambda x: S.jnp.linalg.eigvalsh(x)[1])(S.jnp.eye(2)),
    "full": lambda S: S.jax.jacfwd(lambda x: S.jnp.linalg.svd(x)[0])(S.jnp.ones((2, 3))),
    "full backwards": lambda S: S.jax.grad(lambda x: S.jnp.linalg.svd(x)[1].sum())(S.jnp.ones((2, 3))),
    "full transposed": lambda S: S.jax.jacrev(lambda x: S.jnp.linalg.svd(x)[2])(S.jnp.ones((3, 2))),
    "full values": lambda S: S.jax.grad(lambda x: S.jnp.linalg.svd(x, True, False).sum())(
        S.jnp.array([[1.0, 2.0, 0.5], [0.0, 1.0, 3.0]])),
    "norm of nothing": lambda S: S.jax.grad(lambda x: S.jnp.linalg.norm(x, 2))(S.jnp.zeros((0, 3))),
    "pinv of rank 1": lambda S: S.jax.jacrev(S.jnp.linalg.pinv)(S.jnp.ones((2, 3))),
    "tolerance": lambda S: S.jax.grad(lambda r: S.jnp.linalg.pinv(S.jnp.eye(2), r).sum())(0.1),
}


@pytest.mark.parametrize("name", POINTS)
def test_singular_points(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cancels = norm if name == "pinv of rank 1" else 0.0
        compare(attempt(POINTS[name], FERRAX), attempt(POINTS[name], JAX), ulps=256, cancels=cancels)


def test_derivatives_of_full_matrices_say_so():
    for fun in (ferrax.jacfwd, ferrax.jacrev):
        with pytest.raises(NotImplementedError, match="full_matrices=True has no derivative"):
            fun(lambda x: jnp.linalg.svd(x)[0])(jnp.ones((2, 3)))


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_pseudo_inverses(shape, dtype):
    """The four conditions of Moore and Penrose; a matrix of lower rank, too."""
    a = data(shape, dtype, 3, special=False)
    a[..., -1] = a[..., 0]
    with ferrax.enable_x64(True):
        p = np.asarray(jnp.linalg.pinv(jnp.asarray(a)))
    assert p.dtype == dtype
    near(a @ p @ a, a, dtype)
    near(p @ a @ p, p, dtype)
    for product in (a @ p, p @ a):
        near(product, np.swapaxes(product, -1, -2).conj(), dtype)


def test_tolerances_of_batches():
    a = np.stack([np.diag([1.0, 0.5, 0.01])] * 2).astype(np.float32)
    for S in (FERRAX, JAX):
        x, cut = S.jnp.asarray(a), S.jnp.array([0.1, 0.7])
        assert S.jnp.linalg.matrix_rank(x, cut).tolist() == [2, 1]
        assert S.jnp.linalg.matrix_rank(x, tol=0.1).tolist() == [2, 2]
        np.testing.assert_allclose(S.jnp.linalg.pinv(x, cut), [np.diag([1, 2, 0]), np.diag([1, 0, 0])], atol=1e-6)


# ---------------------------------------------------------------------------- jaxprs and arguments


@pytest.mark.parametrize("call", [
    lambda S, x: S.lax.linalg.eigh(x),
    lambda S, x: S.lax.linalg.eigh(x, lower=False, symmetrize_input=False, sort_eigenvalues=False),
    lambda S, x: S.lax.linalg.svd(x), lambda S, x: S.lax.linalg.svd(x, full_matrices=False),
    lambda S, x: S.lax.linalg.svd(x, compute_uv=False),
    lambda S, x: S.lax.linalg.svd_p.bind(x, full_matrices=True, compute_uv=True, subset_by_index=None, algorithm=None),
    lambda S, x: S.lax.linalg.eigh_p.bind(x, lower=True, sort_eigenvalues=True, subset_by_index=None, algorithm=None),
])
def test_jaxprs(call):
    """Names, parameters and types of equations, and results, are those of the reference."""

    def equations(S):
        jaxpr = S.jax.make_jaxpr(lambda x: call(S, x))(S.jnp.ones((2, 2))).jaxpr
        assert jaxpr.eqns[-1].primitive is getattr(S.lax.linalg, f"{jaxpr.eqns[-1].primitive.name}_p")
        return ([(e.primitive.name, dict(e.params), [str(v.aval) for v in e.outvars]) for e in jaxpr.eqns],
                [jaxpr.eqns[-1].outvars.index(v) for v in jaxpr.outvars])

    assert equations(FERRAX) == equations(JAX)


def test_primitives():
    linalg = ferrax.lax.linalg
    assert linalg.eigh_p.multiple_results and linalg.svd_p.multiple_results
    assert not hasattr(ferrax.lax, "eigh_p") and not hasattr(jax.lax, "eigh_p")
    assert extend_primitives.svd_p is linalg.svd_p
    public = {name for name in dir(linalg) if not name.startswith("_")}
    assert public <= {name for name in dir(jax.lax.linalg) if not name.startswith("_")}
    for name in ("EighImplementation", "SvdAlgorithm"):
        ours, theirs = getattr(linalg, name), getattr(jax.lax.linalg, name)
        assert [(e.name, e.value) for e in ours] == [(e.name, e.value) for e in theirs]
    options = {"lower": True, "sort_eigenvalues": True}
    with pytest.raises(NotImplementedError, match=r"eigh: subset_by_index=\(0, 1\).*lax\.linalg\.eigh"):
        linalg.eigh_p.bind(jnp.ones((2, 2)), **options, subset_by_index=(0, 1), algorithm=None)


# ---------------------------------------------------------------------------- ranges and hints

RANGES = [(0, 2), (1, 3), (3, 4), (0, 4), (0, 5)]


def parts(S, x, chosen):
    """By LAPACK through the reference, which does not take ranges on the CPU: slices of all."""
    start, end = chosen
    here = S is FERRAX
    l, L = S.jnp.linalg, S.lax.linalg
    more = {"subset_by_index": chosen} if here else {}
    pick = (lambda r: r) if here else (lambda r: r[..., start:end])
    vectors, values = (pick(r) for r in L.eigh(x, **more))
    u, s, vh = L.svd(x, full_matrices=False, **more)
    u, s, vh = (u, s, vh) if here else (pick(u), pick(s), vh[..., start:end, :])
    hu, hs, hvh = l.svd(x, hermitian=True, **more)
    hu, hs, hvh = (hu, hs, hvh) if here else (pick(hu), pick(hs), hvh[..., start:end, :])
    # Products that do not depend on the vectors' signs.
    products = (table.product(S, vectors, S.jnp.sin(values), table.adjoint(S, vectors)),
                table.product(S, u, S.jnp.sin(s), vh), table.product(S, hu, S.jnp.sin(hs), hvh))
    return (*products, values, s, hs, pick(L.svd(x, full_matrices=False, compute_uv=False, **more)),
            pick(l.svd(x, False, False, **more)), pick(l.svd(x, False, False, True, **more)))


@pytest.mark.parametrize("chosen", RANGES, ids=str)
def test_ranges_are_slices(chosen):
    a = hermitian((2, 5, 5), "float64")
    with ferrax.enable_x64(True), jax.enable_x64(True):
        for dtype in ("float64", "complex128"):
            x = a.astype(dtype)
            ours, theirs = ((parts(S, S.jnp.asarray(x), chosen)) for S in (FERRAX, JAX))
            compare(list(ours), list(theirs), ulps=256, cancels=norm)
            vmapped = ferrax.jit(ferrax.vmap(lambda x: parts(FERRAX, x, chosen)))(jnp.asarray(x))
            compare(list(vmapped), list(ours), ulps=256, cancels=norm)
        tangent = hermitian((2, 5, 5), "float64")[::-1].copy()
        ours, theirs = (
            S.jax.jvp(lambda x, S=S: parts(S, x, chosen), (S.jnp.asarray(a),), (S.jnp.asarray(tangent),))[1]
            for S in (FERRAX, JAX))
        compare(list(ours), list(theirs), ulps=1 << 14, cancels=norm)


def test_ranges_of_scipy_are_inclusive():
    a = hermitian((4, 4), "float32")
    w, v = ferrax.scipy.linalg.eigh(jnp.asarray(a), eigvals=(1, 2))
    want_w, want_v = ferrax.scipy.linalg.eigh(jnp.asarray(a))
    np.testing.assert_array_equal(w, want_w[1:3])
    np.testing.assert_array_equal(v, want_v[:, 1:3])
    np.testing.assert_array_equal(ferrax.scipy.linalg.eigh(jnp.asarray(a), eigvals_only=True, eigvals=(3, 3)), want_w[3:])
    for wrong in ((2, 1), (0, 4), (-1, 2), (0,)):
        with pytest.raises(ValueError, match="eigvals has to be"):
            ferrax.scipy.linalg.eigh(jnp.asarray(a), eigvals=wrong)


@pytest.mark.parametrize("wrong", [(1, 1), (2, 1), (-1, 1), (0, 4), (0,), (0, 1, 2)], ids=str)
def test_ranges_that_are_none(wrong):
    x, linalg = jnp.eye(3), ferrax.lax.linalg
    for call in (lambda: linalg.eigh(x, subset_by_index=wrong),
                 lambda: linalg.svd(x, full_matrices=False, subset_by_index=wrong),
                 lambda: jnp.linalg.svd(x, hermitian=True, subset_by_index=wrong)):
        with pytest.raises(ValueError, match="subset_by_index has to be"):
            call()


def test_names_of_algorithms_are_hints():
    """Each name, which the reference takes on one backend or another, gives what None gives."""
    linalg = ferrax.lax.linalg
    x = jnp.asarray(data((3, 2), np.float32, special=False))
    for name in linalg.SvdAlgorithm:
        for got, want in zip(linalg.svd(x, algorithm=name), linalg.svd(x)):
            np.testing.assert_array_equal(got, want)
        s = linalg.svd_p.bind(x, full_matrices=True, compute_uv=False, subset_by_index=None, algorithm=name)
        np.testing.assert_array_equal(s[0], linalg.svd(x)[1])
    x = jnp.asarray(hermitian((3, 3), "float32"))
    for name in linalg.EighImplementation:
        for got, want in zip(linalg.eigh(x, implementation=name), linalg.eigh(x)):
            np.testing.assert_array_equal(got, want)


def test_jaxprs_run_again():
    x = jnp.asarray(hermitian((3, 3), "float32"))
    for fun in (lambda x: table.eigen(FERRAX, x), lambda x: table.singular_full(FERRAX, x)):
        closed = ferrax.make_jaxpr(fun)(x)
        got = ferrax.core.eval_jaxpr(closed.jaxpr, closed.consts, x)
        compare(list(got), list(fun(x)), ulps=8)


# `l` is jnp.linalg, `L` lax.linalg; h half precision, i integers, z of no elements. What the reference
# refuses on the CPU alone (ranges, names of algorithms) is taken here: see "ranges and hints".
CALLS = """
L.svd(i); L.eigh(i, symmetrize_input=False); L.eigh(h); L.svd(h); L.eigh(h, symmetrize_input=False); L.eigh(r)
L.eigh(r, symmetrize_input=False); L.eigh(v, symmetrize_input=False); L.eigh(v); L.svd(v); L.svd(1.0); L.svd([[1.0]])
L.svd(m, subset_by_index=(0, 1)); L.svd(m, subset_by_index=(1, 2), compute_uv=False); L.eigh(m, True); L.svd(m, False)
L.svd(m, algorithm='QR'); l.svd(h); l.svd(v); l.svd(2.0); l.svd([[1.0]]); l.svd(None); l.svd(r, hermitian=True)
l.svd(m, subset_by_index=(0, 1)); l.svdvals(v); l.svdvals(h); l.svdvals([[1.0]]); l.svdvals(x=m)
l.eigh(m, 'X'); l.eigh(m, 'l'); l.eigh(r); l.eigh(v); l.eigh([[1.0]]); l.eigh(h); l.eigh(r, None, False); l.eigvalsh(m, 'Q'); l.eigvalsh(r)
l.eigvalsh([[1.0]]); l.eigvalsh(h); l.norm(h, 2); l.norm(h, 'nuc'); l.norm(z, -2); l.norm(m, 3); l.matrix_norm(h, ord=2)
l.matrix_rank(m, 0.1, tol=0.1); l.matrix_rank([[1]]); l.matrix_rank(z); l.matrix_rank(h); l.matrix_rank(r, hermitian=True)
l.cond(r, 1); l.cond(r, 'x'); l.cond(m, 'x'); l.cond(m, 3); l.cond(z); l.cond(v); l.cond([[1.0]]); l.cond(h); l.cond(2.0)
l.pinv(r, 0.1, rcond=0.1); l.pinv(v); l.pinv(1.0); l.pinv([[1.0]]); l.pinv(h); l.pinv(r, hermitian=True)
"""


def scope(S):
    n, L = S.jnp, S.lax.linalg
    return {"n": n, "l": n.linalg, "L": L, "m": n.ones((2, 2)) + n.eye(2), "r": n.array([[1.0, 2, 0], [0, 1, 3]]),
            "v": n.ones(3), "h": n.ones((2, 2), "float16"), "i": n.array([[2, 1], [1, 3]]), "z": n.zeros((0, 3)),
            "QR": L.EighImplementation.QR, "D": L.SvdAlgorithm.DIVIDE_AND_CONQUER,
            "S": L.SvdAlgorithm.QR, "np": np}


@pytest.mark.raises("NotImplementedError", "TypeError", "ValueError")
@pytest.mark.parametrize("text", expressions(CALLS))
def test_errors(text):
    code = compile(text, "<case>", "eval")
    ours, theirs = (attempt(lambda S: eval(code, scope(S)), S) for S in (FERRAX, JAX))
    assert hasattr(theirs, "error"), f"the reference returns {theirs!r}"
    compare(ours, theirs)


VALUES = """
L.eigh(i)[1]; L.eigh(i > 1)[1]; L.eigh(m, subset_by_index=(0, 2))[1]; L.eigh(m, implementation=QR)[1]; L.eigh(n.ones((1, 1)))
L.svd(m, subset_by_index=(0, 2))[1]; L.svd(r, subset_by_index=(0, 2), compute_uv=False); L.svd(m, algorithm=D)[1]; L.svd(m, algorithm=S)[1]
L.eigh(np.ones((2, 2)))[1]; L.svd(np.ones((2, 3)) + np.eye(2, 3))[1]; l.eigh(i)[0]; l.eigvalsh(m, None); l.eigvalsh(i > 1); l.svdvals(i)
l.norm(i, 2); l.norm(m, 2.0); l.norm(m, np.float32(-2)); l.matrix_rank(i); l.matrix_rank(3); l.matrix_rank(v > 2); l.matrix_rank(m, 2.5)
l.matrix_rank(n.zeros((2, 2))); l.matrix_rank(n.full((2, 2), n.nan)); l.cond(i); l.cond(i, -2); l.cond(n.zeros((2, 2))); l.cond(m, -2.0)
l.cond(n.zeros((2, 2)), -2); l.cond(n.full((2, 2), n.nan), -2); l.cond(n.full((2, 2), n.nan)); l.pinv(i); l.pinv(m, 1); l.pinv(r.T, True)
l.pinv(n.zeros((2, 3))); l.pinv(np.eye(2)); l.pinv(m, n.array([0.1, 5.0])); l.eigvalsh(n.full((2, 2), 1.0)); l.svdvals(n.full((2, 2), n.inf))
"""


@pytest.mark.parametrize("text", expressions(VALUES))
def test_arguments_dtypes_and_special_values(text):
    code = compile(text, "<case>", "eval")
    ours, theirs = (attempt(lambda S: eval(code, scope(S)), S) for S in (FERRAX, JAX))
    assert not hasattr(theirs, "error"), theirs
    compare(ours, theirs)


def test_half_precision_says_what_to_use():
    for fun in (jnp.linalg.eigh, jnp.linalg.svd, ferrax.jit(ferrax.lax.linalg.svd)):
        for dtype in ("float16", "bfloat16"):
            with pytest.raises(NotImplementedError, match=f"Unsupported dtype {dtype}.*astype"):
                fun(jnp.ones((2, 2), dtype))
