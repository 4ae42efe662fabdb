"""Triangular and orthonormal factors, systems and determinants, beside the reference: values, batches,
derivatives, sizes of all kernels, singular matrices, jaxprs, errors."""

import warnings

import jax
import numpy as np
import pytest
from closeness import norm
from conformance_numpy import check_batches, check_derivatives, check_values, parametrise, row
from conformance_table import data
from numpy_oracle import expressions
from oracle import FERRAX, JAX, attempt, compare

import ferrax
import ferrax.numpy as jnp

LAPACK = (np.float32, np.float64, np.complex64, np.complex128)
DTYPES = [np.dtype(t).name for t in LAPACK]
# Rounding units of the largest element, for factors of matrices with conditions up to a hundred.
OPTIONS = {"dtypes": LAPACK, "special": False, "ulps": 256, "derivative_ulps": 4096}


def adjoint(S, x):
    return S.jnp.conj(S.jnp.swapaxes(x, -1, -2))


def definite(S, x):
    n = x.shape[-1]
    return S.jnp.matmul(x, adjoint(S, x), precision="highest") + S.jnp.eye(n, dtype=x.dtype)


def regular(S, x):
    """Diagonally dominant matrices, whose pivots are clear."""
    n = x.shape[-1]
    return x + 4 * n * S.jnp.eye(n, dtype=x.dtype)[::-1]


def solve(**how):
    return lambda S, a, b: S.lax.linalg.triangular_solve(regular(S, a)[..., ::-1], b, **how)


def of(name, make=None, **keywords):
    def call(S, *xs):
        function = getattr(S.jnp.linalg, name)
        return function(xs[0] if make is None else make(S, xs[0]), *xs[1:], **keywords)

    return call


def lapack(name, make=None, **keywords):
    def call(S, *xs):
        out = getattr(S.lax.linalg, name)(xs[0] if make is None else make(S, xs[0]), *xs[1:], **keywords)
        return list(out) if isinstance(out, (list, tuple)) else out

    return call


def factors(S, x):
    """Beyond the first columns of Q derivatives depend on the reflections."""
    q, r = S.lax.linalg.qr(x, full_matrices=True)
    return q, r


def with_pivots(S, x):
    return list(S.lax.linalg.qr(x * S.jnp.arange(1, x.shape[-1] + 1), pivoting=True, full_matrices=False))[:2]


def reflections(S, x):
    h, taus = S.jnp.linalg.qr(x, mode="raw")
    a = S.jnp.swapaxes(h, -1, -2)
    c = S.jnp.ones((*x.shape[:-1], 2), x.dtype)
    return [S.lax.linalg.householder_product(a, taus), S.lax.linalg.ormqr(a, taus, c),
            S.lax.linalg.ormqr(a, taus, adjoint(S, c), left=False, transpose=True)]


ROWS = [
    row("cholesky", lapack("cholesky", definite), (3, 3), **OPTIONS),
    row("cholesky lower", lapack("cholesky", definite, symmetrize_input=False), (2, 3, 3), **OPTIONS),
    row("cholesky upper", of("cholesky", definite, upper=True), (3, 3), **OPTIONS),
    *[row(f"triangular_solve {how}", solve(**how), (3, 3), (3, 3), **OPTIONS) for how in (
        {}, {"left_side": True}, {"lower": True, "left_side": True, "unit_diagonal": True},
        {"lower": True, "transpose_a": True}, {"left_side": True, "transpose_a": True, "conjugate_a": True},
        {"lower": True, "conjugate_a": True})],
    row("triangular_solve vector", solve(left_side=True), (2, 3, 3), (2, 3), **OPTIONS),
    row("lu", lapack("lu", regular), (3, 3), **OPTIONS),
    row("lu tall", lapack("lu"), (4, 2), **OPTIONS), row("lu wide", lapack("lu"), (2, 2, 4), **OPTIONS),
    row("qr", of("qr"), (3, 3), **OPTIONS), row("qr tall", of("qr"), (2, 4, 3), **OPTIONS),
    row("qr wide", of("qr"), (2, 4), **OPTIONS), row("qr r", of("qr", mode="r"), (3, 2), **OPTIONS),
    row("qr full", factors, (4, 2), **OPTIONS), row("qr pivots", with_pivots, (4, 3), **OPTIONS),
    row("qr raw", of("qr", mode="raw"), (4, 3), points=False, **OPTIONS),
    row("reflections", reflections, (4, 3), points=False, **OPTIONS),
    row("solve", of("solve", regular), (3, 3), (3, 2), **OPTIONS),
    row("solve vector", of("solve", regular), (3, 3), (3,), **OPTIONS),
    row("solve vectors", of("solve", regular), (2, 3, 3), (3,), batch=False, **OPTIONS),
    row("solve shared", of("solve", regular), (3, 3), (2, 2, 3, 2), batch=False, **OPTIONS),
    row("solve broadcast", of("solve", regular), (2, 1, 3, 3), (4, 3, 1), batch=False, points=False, **OPTIONS),
    row("inv", of("inv", regular), (3, 3), **OPTIONS), row("inv of many", of("inv", regular), (2, 2, 2), **OPTIONS),
    *[row(f"det {n}", of("det"), (n, n), **OPTIONS) for n in (1, 2, 3, 4)],
    row("det of many", of("det"), (2, 5, 5), **OPTIONS),
    *[row(f"slogdet {n}", of("slogdet", regular), (n, n), **OPTIONS) for n in (1, 2, 3, 4)],
    row("slogdet qr", of("slogdet", regular, method="qr"), (2, 3, 3),
        **OPTIONS | {"dtypes": (np.float32, np.float64)}),
    *[row(f"cond {p}", of("cond", regular, p=p), (3, 3), **OPTIONS) for p in (1, -np.inf, "fro")],
    row("matrix_power", of("matrix_power", regular, n=-3), (3, 3), **OPTIONS),
    row("tensorinv", lambda S, x: S.jnp.linalg.tensorinv(regular(S, x).reshape(2, 3, 6)), (6, 6), **OPTIONS),
    row("tensorsolve", lambda S, x, b: S.jnp.linalg.tensorsolve(regular(S, x).reshape(2, 3, 6), b), (6, 6), (2, 3), **OPTIONS),
    row("lstsq", of("lstsq"), (4, 2), (4,), batch=False, **OPTIONS),
    row("lstsq of many", of("lstsq"), (4, 2), (4, 3), batch=False, points=False, **OPTIONS),
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


# ---------------------------------------------------------------------------- sizes

# One matrix by blocks, few, and more than there are lanes; sizes at which kernels change.
SIZES = [
    ("float32", (), 1), ("float32", (19,), 2), ("float32", (19,), 13), ("float32", (3,), 8), ("float32", (), 70),
    ("float64", (19,), 3), ("float64", (3,), 33), ("float64", (), 150), ("complex64", (19,), 4), ("complex64", (), 40),
    ("complex128", (19,), 13), ("complex128", (3,), 9), ("complex128", (), 70),
]  # fmt: skip


def near(got, wanted, dtype, factor=1.0):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    size = 1 + np.max(np.abs(wanted), initial=0)
    bound = 64 * np.finfo(dtype).eps * max(got.shape[-2:]) * factor
    np.testing.assert_allclose(got, wanted, rtol=0, atol=bound * size)


@pytest.mark.parametrize(("dtype", "batch", "n"), SIZES, ids=str)
def test_all_sizes(dtype, batch, n):
    a = data((*batch, n, n), dtype, n, special=False)
    b = data((*batch, n, 5), dtype, n + 1, special=False)
    wide, tall = a[..., : (n + 1) // 2, :], a[..., : (n + 1) // 2]

    def run(S):
        x, y = S.jnp.asarray(a), S.jnp.asarray(b)
        linalg = S.lax.linalg
        factor, pivots, order = linalg.lu(x)
        solved = linalg.triangular_solve(factor, y, left_side=True, lower=True, unit_diagonal=True)
        turned = linalg.triangular_solve(
            factor, S.jnp.swapaxes(y, -1, -2), lower=True, unit_diagonal=True, transpose_a=True, conjugate_a=True)
        return {"lu": factor, "pivots": pivots, "order": order, "solved": solved, "turned": turned,
                "cholesky": linalg.cholesky(definite(S, x)), "square": linalg.qr(x),
                "tall": linalg.qr(S.jnp.asarray(tall)), "wide": linalg.qr(S.jnp.asarray(wide)),
                "lu of tall": linalg.lu(S.jnp.asarray(tall))[0], "lu of wide": linalg.lu(S.jnp.asarray(wide))[0]}

    with jax.enable_x64(True), ferrax.enable_x64(True):
        theirs, ours = run(JAX), run(FERRAX)
    # Factors are amplified by the condition of the leading parts.
    compare([ours["pivots"], ours["order"]], [theirs["pivots"], theirs["order"]])
    for name in ("lu", "solved", "turned", "cholesky", "lu of tall", "lu of wide"):
        near(ours[name], theirs[name], dtype, 100 * n)
    for name in ("square", "tall", "wide"):
        for got, wanted in zip(ours[name], theirs[name]):
            near(got, wanted, dtype, 100)


@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_in_order(dtype):
    a = data((2, 40, 35), dtype, 3, special=False) * np.linspace(1, 9, 35).astype(dtype)
    with jax.enable_x64(True), ferrax.enable_x64(True):
        theirs, ours = (S.lax.linalg.qr(S.jnp.asarray(a), pivoting=True) for S in (JAX, FERRAX))
    compare(ours[2], theirs[2])
    for got, wanted in zip(ours[:2], theirs[:2]):
        near(got, wanted, dtype, 100)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_elements(dtype):
    def run(S):
        linalg, lax = S.jnp.linalg, S.lax.linalg
        none, many, tall = (S.jnp.zeros(s, dtype) for s in ((0, 0), (2, 0, 0), (3, 0)))
        empty, wide = S.jnp.zeros((0, 3, 3), dtype), S.jnp.zeros((0, 3), dtype)
        return [lax.cholesky(none), lax.lu(many), lax.lu(tall), linalg.qr(tall), linalg.qr(wide, "complete"),
                lax.qr(tall, pivoting=True), lax.qr(many, pivoting=True), linalg.det(none), linalg.det(many), linalg.slogdet(many),
                linalg.inv(many), linalg.solve(empty, S.jnp.zeros((3, 2), dtype)), linalg.cholesky(empty),
                lax.triangular_solve(many, S.jnp.zeros((2, 3, 0), dtype)), linalg.solve(none, S.jnp.zeros((0, 2), dtype)),
                linalg.lstsq(tall, S.jnp.ones((3, 2), dtype)), linalg.inv(empty), linalg.det(empty)]

    with jax.enable_x64(True), ferrax.enable_x64(True):
        theirs, ours = run(JAX), run(FERRAX)
    compare(*(jax.tree.leaves(jax.tree.map(np.asarray, list(x))) for x in (ours, theirs)))


# ---------------------------------------------------------------------------- singular points

ONES, NOT_DEFINITE = np.ones((3, 3)), np.array([[1.0, 2.0], [2.0, 1.0]])
LOW = np.diag([1.0, 0.0, 0.0, 2.0])
FLAT = np.diag([1.0, 2.0, 3.0, 0.0]) + np.triu(np.ones((4, 4)), 1)

POINTS = {
    "cholesky": lambda S: S.jnp.linalg.cholesky(S.jnp.asarray(NOT_DEFINITE)),
    "cholesky of a batch": lambda S: S.jnp.linalg.cholesky(S.jnp.asarray(np.stack([np.eye(2), NOT_DEFINITE, np.eye(2)]))),
    "cholesky of 40": lambda S: S.jnp.linalg.cholesky(-S.jnp.eye(40)),
    "cholesky of NaN": lambda S: S.jnp.linalg.cholesky(S.jnp.full((2, 2), S.jnp.nan)),
    "cholesky of zeros": lambda S: S.jnp.linalg.cholesky(S.jnp.zeros((2, 2))),
    "lu": lambda S: tuple(S.lax.linalg.lu(S.jnp.asarray(ONES))),
    "lu of zeros": lambda S: tuple(S.lax.linalg.lu(S.jnp.zeros((2, 2)))),
    "solve": lambda S: S.jnp.linalg.solve(S.jnp.diag(S.jnp.array([1.0, 0.0])), S.jnp.array([1.0, 2.0])),
    "inv": lambda S: S.jnp.linalg.inv(S.jnp.diag(S.jnp.array([1.0, 0.0]))),
    "slogdet": lambda S: S.jnp.linalg.slogdet(S.jnp.asarray(ONES)),
    "det": lambda S: S.jnp.linalg.det(S.jnp.asarray(LOW)),
    "det'": lambda S: S.jax.grad(S.jnp.linalg.det)(S.jnp.asarray(FLAT)),
    "det' of rank 2": lambda S: S.jax.grad(S.jnp.linalg.det)(S.jnp.asarray(LOW)),
    "det' forwards": lambda S: S.jax.jacfwd(S.jnp.linalg.det)(S.jnp.asarray(FLAT)),
    "det' of a batch": lambda S: S.jax.grad(lambda x: S.jnp.linalg.det(x).sum())(S.jnp.asarray(np.stack([FLAT, LOW, np.eye(4)]))),
    "det of zeros of 3": lambda S: S.jax.grad(S.jnp.linalg.det)(S.jnp.zeros((3, 3))),
    "cond": lambda S: [S.jnp.linalg.cond(S.jnp.asarray(np.diag([1.0, 0.0])), p) for p in (1, np.inf, "fro")],
    "small pivots": lambda S: tuple(S.lax.linalg.lu(S.jnp.asarray(np.array([[1e-300, 1.0], [5e-301, 3.0]])))),
    "zero reflection": lambda S: S.jnp.linalg.qr(S.jnp.eye(3), mode="raw"),
}


@pytest.mark.parametrize("name", POINTS)
def test_singular_points(name):
    with warnings.catch_warnings(), jax.enable_x64(True), ferrax.enable_x64(True):
        warnings.simplefilter("ignore")
        compare(attempt(POINTS[name], FERRAX), attempt(POINTS[name], JAX), ulps=64)


def test_pivots_whose_inverse_is_no_number():
    with ferrax.enable_x64(True):
        factors = ferrax.lax.linalg.lu(jnp.array([[1e-310, 1.0], [5e-311, 3.0]]))[0]
    np.testing.assert_allclose(np.asarray(factors), [[1e-310, 1], [0.5, 2.5]], rtol=1e-10)


def test_a_batch_that_is_solved_together_is_as_one_by_one():
    a = regular(FERRAX, jnp.asarray(data((37, 6, 6), np.float32, 1, special=False)))
    b = jnp.asarray(data((37, 6, 2), np.float32, 2, special=False))
    one = jnp.stack([jnp.linalg.solve(x, y) for x, y in zip(a, b)])
    compare(jnp.linalg.solve(a, b), one, ulps=64)
    compare(ferrax.vmap(jnp.linalg.solve)(a, b), one, ulps=64)


# ---------------------------------------------------------------------------- jaxprs and arguments


@pytest.mark.parametrize("call", [
    lambda S, x: S.lax.linalg.lu_p.bind(x), lambda S, x: S.lax.linalg.qr(x), lambda S, x: S.lax.linalg.qr(x, pivoting=True),
    lambda S, x: S.lax.linalg.triangular_solve(x, x, lower=True),
    lambda S, x: S.lax.linalg.householder_product(x, x[0]), lambda S, x: S.lax.linalg.ormqr(x, x[0], x),
])  # fmt: skip
def test_jaxprs(call):
    def last(S):
        eqn = S.jax.make_jaxpr(lambda x: call(S, x))(S.jnp.ones((2, 2))).jaxpr.eqns[-1]
        return eqn.primitive.name, dict(eqn.params), [str(v.aval) for v in eqn.outvars]

    assert last(FERRAX) == last(JAX)


def test_initializers():
    for make, shape in (("orthogonal", (5, 3)), ("orthogonal", (2, 3, 4)), ("delta_orthogonal", (3, 2, 4))):
        for axis in (-1, 0):
            if make == "delta_orthogonal" and axis == 0:
                continue
            got, wanted = (getattr(S.jax.nn.initializers, make)(1.5, axis)(S.jax.random.key(3), shape) for S in (FERRAX, JAX))
            compare(got, wanted, ulps=64, cancels=norm)


def test_fits():
    x, y = data((9,), np.float32, 1, special=False), data((9, 2), np.float32, 2, special=False)
    for call in (lambda S: S.jnp.polyfit(x, y, 2), lambda S: S.jnp.polyfit(x, y[:, 0], 3, w=np.abs(x)),
                 lambda S: S.jnp.polyfit(x, y[:, 0], 2, full=True), lambda S: S.jnp.polyfit(x, y[:, 0], 2, cov=True),
                 lambda S: S.jnp.polyfit(x, y, 1, cov="unscaled"), lambda S: S.jnp.polyfit(x, y, 1, cov=True)):
        compare(call(FERRAX), call(JAX), ulps=256, cancels=norm)


# `l` is jnp.linalg, `L` lax.linalg; h half precision, i integers, r a matrix that is not square.
CALLS = """
L.cholesky(i, symmetrize_input=False); L.cholesky(h); L.cholesky(v); L.cholesky(r, symmetrize_input=False)
L.lu(i); L.lu(h); L.lu(v); L.qr(i); L.qr(h); L.qr(v); L.householder_product(r, v); L.householder_product(m, v); L.householder_product(i, i[0])
L.triangular_solve(r, r); L.triangular_solve(m, n.ones((3, 3))); L.triangular_solve(m, i); L.triangular_solve(v, v); L.triangular_solve(m, 1.0)
L.ormqr(m, m[0], r.T); L.ormqr(m, m[0], r, left=False); L.ormqr(m, i[0], m)
l.cholesky(r); l.cholesky(h); l.cholesky([[1.0]]); l.inv(r); l.inv(v); l.inv(h); l.inv([[1.0]]); l.solve(r, v); l.solve(m, v); l.solve(v, v)
l.solve(n.ones((4, 2, 2)), n.ones((4, 2))); l.solve(m, 1.0); l.solve(m, [1.0, 2.0]); l.solve(h, h); l.det(r); l.det(v); l.det(n.ones((4, 4), 'float16'))
l.slogdet(r); l.slogdet(m, method='x'); l.slogdet(m + 0j, method='qr'); l.slogdet([[1.0]]); l.qr(m, mode='x'); l.qr(v); l.qr(h); l.qr([[1.0]])
l.tensorinv(m, 0); l.tensorinv(r); l.tensorsolve(r, v); l.tensorsolve(m, v); l.lstsq(m, v); l.lstsq(v, v); l.lstsq(m, n.ones((2, 2, 2))); l.lstsq(h, h)
l.matrix_power(h, -1); l.cond(r, 'fro'); n.polyfit(v, v, -1); n.polyfit(m, v, 1); n.polyfit(v, m, 1); n.polyfit(v, v, 1, w=m); n.polyfit(v, v, 4, cov=True)
"""


def scope(S):
    n = S.jnp
    return {"n": n, "l": n.linalg, "L": S.lax.linalg, "m": n.ones((2, 2)) + n.eye(2), "r": n.ones((2, 3)), "v": n.ones(3),
            "h": n.ones((2, 2), "float16"), "i": n.array([[2, 1], [1, 3]]), "np": np}


@pytest.mark.raises("NotImplementedError", "TypeError", "ValueError")
@pytest.mark.parametrize("text", expressions(CALLS))
def test_errors(text):
    code = compile(text, "<case>", "eval")
    ours, theirs = (attempt(lambda S: eval(code, scope(S)), S) for S in (FERRAX, JAX))
    assert hasattr(theirs, "error"), f"the reference returns {theirs!r}"
    compare(ours, theirs)


VALUES = """
L.cholesky(i); L.cholesky(m); l.cholesky(i); l.inv(i); l.solve(i, v[:2]); l.solve(m, i); l.det(i); l.det(h); l.det(i > 1); l.slogdet(i); l.slogdet(h)
l.qr(i); l.qr(n.ones((1, 1))); l.qr(np.eye(2)); l.lstsq(i, v[:2]); l.lstsq(i, i, 0.5); l.lstsq(n.ones((3, 2)) + n.eye(3, 2), v, -1.0); l.lstsq(n.ones((3, 2)), v, numpy_resid=True)
l.matrix_power(i, -2); l.cond(i, 1); l.tensorinv(i, 1); l.tensorsolve(i, i[0]); l.inv(np.eye(2)); L.triangular_solve(h, h); L.triangular_solve(h, h[0], lower=True)
L.triangular_solve(m, m, conjugate_a=True); l.slogdet(i, method='qr'); l.det(n.zeros((2, 0, 0)))
"""


@pytest.mark.parametrize("text", expressions(VALUES))
def test_arguments_and_dtypes(text):
    code = compile(text, "<case>", "eval")
    ours, theirs = (attempt(lambda S: eval(code, scope(S)), S) for S in (FERRAX, JAX))
    assert not hasattr(theirs, "error"), theirs
    # Residuals of systems that have a solution are squares of roundings.
    compare(ours, theirs, ulps=64, cancels=(norm, 1e-6 if "lstsq" in text else 0.0))


def test_products_of_derivatives_are_precise():
    """Their parameters are the reference's: a precision for each operand."""
    def precisions(S):
        solve = lambda a, b: S.lax.linalg.triangular_solve(a, b)  # noqa: E731
        x = S.jnp.eye(3)
        eqns = S.jax.make_jaxpr(lambda a, b: S.jax.jvp(solve, (a, b), (a, b)))(x, x).jaxpr.eqns
        return [str(e.params["precision"]) for e in eqns if e.primitive.name == "dot_general"]

    assert precisions(FERRAX) == precisions(JAX)
