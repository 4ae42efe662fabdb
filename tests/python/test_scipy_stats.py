"""Distributions and statistics of `scipy.stats`: values and derivatives, beside JAX's."""

import importlib
import inspect
import warnings

import mpmath
import numpy as np
import pytest
import scipy.stats
from closeness import norm
from oracle import FERRAX, JAX, compare, compiled, module, same

import ferrax
from ferrax.scipy import stats

F32 = np.float32
X = np.array([-2.0, -0.4, 0.0, 0.3, 0.8, 1.0, 3.5, 20.0], F32)
K = np.array([-1.0, 0, 1, 2, 3, 4, 7, 9], F32)
Q = np.array([-0.1, 0.0, 0.01, 0.3, 0.5, 0.9, 1.0, np.nan], F32)
A = np.array([0.3, 1, 2, 5, 0.7, 1.5, 3, 40], F32)
B = np.array([2, 0.6, 3, 1, 12, 0.5, 1, 30], F32)
N = np.array([1, 5, 2, 2, 9, 4, 8, 30], F32)
P = np.array([0.1, 0.5, 0.9, 0.3, 0.7, 0.2, 0.99, 0.6], F32)
# What each takes after its first argument, and whether that is a number of events.
PARAMETERS = {
    "bernoulli": ([P], True), "beta": ([A, B], False), "betabinom": ([N, A, B], True),
    "binom": ([N, P], True), "cauchy": ([], False), "chi2": ([A], False), "expon": ([], False),
    "gamma": ([A], False), "gennorm": ([A], False), "geom": ([P], True), "gumbel_l": ([], False),
    "gumbel_r": ([], False), "laplace": ([], False), "logistic": ([], False), "nbinom": ([N, P], True),
    "norm": ([], False), "pareto": ([B], False), "poisson": ([A], True), "t": ([A], False),
    "truncnorm": ([-B, A], False), "uniform": ([], False), "vonmises": ([A], False), "wrapcauchy": ([P], False),
}  # fmt: skip
# Where two logarithms of the gamma function, or probabilities of tails, cancel.
CANCELS = {"betabinom": 100.0, "binom": 100.0, "nbinom": 100.0, "truncnorm": 20.0, "chi2": 10.0, "beta": 10.0}

# The same in derivatives: differences of two digamma functions; the ratio of Bessel functions and a cosine;
# 1 + c² - 2c cos(x) as a divisor; exponentials of squares of the lower limit.
SLOPES = {
    "t": 1.0, "betabinom": 4.0, "vonmises": 1.0, "truncnorm": lambda size: amplified(size, B**2 / 2),
    "wrapcauchy": lambda size: amplified(size, (1 + P) ** 2 / (1 + P**2 - 2 * P * np.cos(X + F32(0.011)))),
}  # fmt: skip


def amplified(size, factors):
    """Errors are so many times as large, of sums as large as of the largest term."""
    return np.minimum(factors * size, norm(size)) if size.ndim else size


def functions(name):
    return [f for f in dir(getattr(stats, name)) if f[0] != "_" and f != "entropy"]


def arguments(function, name):
    parameters, counted = PARAMETERS[name]
    first = K if counted else X
    if function in ("ppf", "isf"):
        # SciPy's own inverses are NaN outside of the interval, JAX's of some are what the formula gives.
        # At 0 and 1 its tangents for the Cauchy distribution are large, and not infinite.
        first = Q[2:6] if name == "cauchy" else Q if name not in ("logistic", "norm") else Q[2:7]
        parameters = [x[: len(first)] for x in parameters]
    shift = [F32(0.25), F32(1.5)] if name not in ("poisson", "nbinom", "binom", "geom", "betabinom") else []
    taken = len(inspect.signature(getattr(getattr(stats, name), function)).parameters) - 1
    return [first, *parameters, *shift][: taken + 1]


@pytest.mark.parametrize("name", PARAMETERS)
def test_values(name):
    def case(S):
        def values():
            distribution = module(S, f"scipy.stats.{name}")
            return {f: getattr(distribution, f)(*arguments(f, name)) for f in functions(name)}

        return compiled(S, values)

    compare(case(FERRAX), case(JAX), cancels=CANCELS.get(name, norm))


# JAX has no derivatives of the Gumbel distributions.
@pytest.mark.parametrize("name", [n for n in PARAMETERS if not n.startswith("gumbel")])
def test_derivatives(name):
    log = "logpmf" if PARAMETERS[name][1] else "logpdf"
    first = np.array([1, 1, 2, 1, 2, 3, 1, 9], F32) if PARAMETERS[name][1] else X + F32(0.011)

    def case(S):
        function = getattr(module(S, f"scipy.stats.{name}"), log)

        def total(*args):
            found = function(*args)
            return S.jnp.sum(S.jnp.where(S.jnp.isfinite(found), found, 0))

        args = [first, *arguments(log, name)[1:]]
        return S.jax.jit(S.jax.grad(total, tuple(range(len(args)))))(*args)

    got, wanted = case(FERRAX), case(JAX)
    if name in ("beta", "chi2"):  # outside of the support, where the reference has NaN
        outside = [np.isnan(x) for x in map(np.asarray, wanted)]
        assert all((np.asarray(x)[out] == 0).all() for x, out in zip(got, outside, strict=True))
        wanted = tuple(np.where(out, np.float32(0), x) for x, out in zip(wanted, outside, strict=True))
    compare(got, wanted, ulps=64, cancels=SLOPES.get(name, 0.0))


@same
def test_python_numbers_and_integers(S):
    norm, poisson = module(S, "scipy.stats.norm"), module(S, "scipy.stats.poisson")
    return [norm.pdf(1.0), norm.cdf(1), norm.ppf(0.3), poisson.pmf(2, 3)]


# Probabilities are exponentials of differences of logarithms up to 300.
@same(ulps=256)
def test_entropy(S):
    return module(S, "scipy.stats.poisson").entropy(np.arange(0, 200, 40, dtype=F32).reshape(5, 1), np.zeros(2, F32))


@same
def test_vectors(S):
    dirichlet, multinomial = module(S, "scipy.stats.dirichlet"), module(S, "scipy.stats.multinomial")
    x = np.array([[0.2, 0.5], [0.3, 0.1], [0.5, 0.4]], F32)
    alpha = np.array([1, 2, 0.5], F32)
    return [
        dirichlet.logpdf(x, alpha), dirichlet.pdf(x[:2], alpha), dirichlet.logpdf(x + 1, alpha),
        multinomial.logpmf(np.array([1, 2, 3]), 6, x[:, 0]), multinomial.pmf(np.array([1, 2, 3]), 5, x[:, 0]),
    ]  # fmt: skip


@same(ulps=64)
def test_multivariate_normal(S):
    m = module(S, "scipy.stats.multivariate_normal")
    cov = np.array([[2, 0.5, 0.1], [0.5, 1, 0.2], [0.1, 0.2, 0.7]], F32)
    mean, x = np.array([1, 2, 3], F32), np.arange(12, dtype=F32).reshape(4, 1, 3) / 4
    gradient = S.jax.jit(S.jax.grad(lambda x, cov: m.logpdf(x, mean, cov), (0, 1)))(x[0, 0], cov)
    return [m.logpdf(x, mean, np.stack([cov, 2 * cov])), m.pdf(x, mean, 2.0), m.logpdf(1.0, 2.0, 3.0), gradient]


@same(ulps=64)
def test_kernel_density(S):
    estimate = module(S, "scipy.stats").gaussian_kde
    points = np.random.default_rng(0).standard_normal((2, 20)).astype(F32)
    plane = estimate(points)
    line = estimate(points[0], "silverman", np.arange(1, 21, dtype=F32))
    other = estimate(points[1], 0.5)
    at = points[:, :5] / 2
    return [
        plane(at), S.jax.jit(lambda kde, x: kde.logpdf(x))(plane, at), line.pdf(at[0]), plane.covariance, plane.neff,
        line.integrate_box_1d(-1.0, 1.0), plane.integrate_gaussian(np.zeros(2, F32), np.eye(2, dtype=F32)),
        line.integrate_kde(other), plane.resample(S.jax.random.key(0), (3,)), estimate(points[0], lambda kde: kde.n)(at[0]),
    ]  # fmt: skip


@same
def test_modes_and_ranks(S):
    x = np.array([[3, 1, 3, 2], [1, 1, 2, 2], [5, 1, 5, 5]])
    s = module(S, "scipy.stats")
    methods = ("average", "min", "max", "dense", "ordinal")
    return [
        tuple(s.mode(x, axis=0)), tuple(s.mode(x, axis=None, keepdims=True)), tuple(s.mode(x[:0], axis=0)),
        [s.rankdata(x, m) for m in methods], s.rankdata(x, "min", axis=1),
        s.rankdata(np.array([1, np.nan, 2], F32)), s.sem(x, axis=1), s.sem(x, axis=None, ddof=0),
        s.sem(np.array([1, np.nan, 2, 5], F32), nan_policy="omit"),
    ]  # fmt: skip


@pytest.mark.parametrize("S", [FERRAX, JAX], ids=["ferrax", "jax"])
def test_errors(S):
    s = module(S, "scipy.stats")
    norm, dirichlet, multinomial = (module(S, f"scipy.stats.{n}") for n in ("norm", "dirichlet", "multinomial"))
    for error, call in [
        (TypeError, lambda: norm.pdf([1.0])),
        (TypeError, lambda: norm.cdf(np.ones(2, np.float16))),
        (ValueError, lambda: dirichlet.pdf(np.ones(4, F32), np.ones(2, F32))),
        (ValueError, lambda: dirichlet.pdf(np.ones(2, F32), np.ones((2, 2), F32))),
        (ValueError, lambda: multinomial.pmf(np.ones(2, F32), 2, np.ones(2, F32))),
        (ValueError, lambda: s.mode(np.ones(2), nan_policy="no")),
        (NotImplementedError, lambda: s.mode(np.ones(2), nan_policy="omit")),
        (ValueError, lambda: s.rankdata(np.ones(2), "no")),
        (NotImplementedError, lambda: s.rankdata(np.ones(2), nan_policy="raise")),
        (ValueError, lambda: s.sem(np.ones(2), nan_policy="raise")),
        (ValueError, lambda: s.gaussian_kde(np.ones(1))),
        (ValueError, lambda: s.gaussian_kde(np.arange(4.0), "no")),
        (ValueError, lambda: s.gaussian_kde(np.arange(4.0), weights=np.ones(3))),
        (ValueError, lambda: s.gaussian_kde(np.arange(4.0))(np.ones((2, 3)))),
        (NotImplementedError, lambda: s.gaussian_kde(np.ones(3, np.complex64))),
        (ValueError, lambda: s.multivariate_normal.pdf(np.ones(3), np.ones(3), np.ones((2, 2)))),
    ]:
        with pytest.raises(error):
            call()


def test_tails_of_the_normal_distribution():
    # Beyond where the probability itself underflows.
    x = np.array([-30.0, -12.0, -9.9, 4.9, 5.1, 9.0], F32)
    # At 4.9 JAX's has two digits. On the right these are exponentials of -x²/2.
    exponents = np.where(x > 0, x.astype(np.float64) ** 2 / 2, 0)
    expected = scipy.stats.norm.logcdf(x.astype(np.float64)).astype(F32)
    compare(stats.norm.logcdf(x), expected, weak=False, cancels=lambda size: exponents * size)
    slope = ferrax.vmap(ferrax.grad(stats.norm.logcdf))(x)
    # On the left JAX's are exponentials of differences of terms of 450.
    expected = np.exp(scipy.stats.norm.logpdf(x.astype(np.float64)) - scipy.stats.norm.logcdf(x.astype(np.float64)))
    compare(slope, expected.astype(F32), weak=False, cancels=lambda size: exponents * size)


@pytest.mark.parametrize(
    ("x", "n", "p"),
    [
        ([[1, 2, 3], [3, 2, 1]], 6, [0.2, 0.3, 0.5]),
        ([[1, 2, 3], [3, 2, 0]], [6, 5], [0.2, 0.3, 0.5]),
        ([[[1, 2]], [[2, 1]]], 3, [[0.5, 0.5], [0.25, 0.75]]),
        ([[1, 2, 3], [1, 2, 2]], 6, [0.2, 0.3, 0.5]),
        ([-1, 4, 3], 6, [0.2, 0.3, 0.5]),
        ([[0, 0], [1, -2]], [0, -1], [0.5, 0.5]),
        ([[1, 0], [0, 1]], 1, [1.0, 0.0]),
        ([1, 0], 1, [1.5, -0.5]),
    ],
)
def test_multinomial_is_scipys_for_each_row(x, n, p):
    expected = scipy.stats.multinomial.logpmf(np.array(x), np.array(n), np.array(p))
    found = stats.multinomial.logpmf(np.array(x), np.array(n), np.array(p, F32))
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def _truncnorm(x, a, b):
    """`logpdf`, `logcdf` and `logsf`, of as many digits as it takes."""
    with mpmath.workdps(400):
        x, a, b = (mpmath.mpf(float(v)) for v in (x, a, b))
        total = mpmath.ncdf(b) - mpmath.ncdf(a)
        parts = [mpmath.npdf(x), mpmath.ncdf(x) - mpmath.ncdf(a), mpmath.ncdf(b) - mpmath.ncdf(x)]
        return [float(mpmath.log(part / total)) if part else -np.inf for part in parts]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_truncnorm_in_tails_and_narrow_intervals(dtype):
    cases = [
        (30.1, 30, 40), (-30.1, -40, -30), (20.001, 20, 20.01), (0.0005, -0.0009, 0.0006), (5.0, -np.inf, 5.1),
        (-8.0, -np.inf, 3), (12.0, 11, np.inf), (0.3, -np.inf, np.inf), (1.0005, 1, 1.001), (0.3, -40, 40),
    ]  # fmt: skip
    with ferrax.enable_x64(True):
        for x, a, b in np.array(cases, dtype):
            found = [getattr(stats.truncnorm, f)(x, a, b) for f in ("logpdf", "logcdf", "logsf")]
            assert all(value.dtype == dtype for value in found)
            # An ulp of x is so much of a narrow interval.
            ulps = 16 * max(1.0, abs(x) / min(b - x, x - a))
            np.testing.assert_allclose(found, _truncnorm(x, a, b), rtol=ulps * np.finfo(dtype).eps, atol=1e-300)


def test_truncnorm_where_there_is_nothing_to_say():
    nan = np.nan
    for f in ("logpdf", "logcdf", "logsf", "pdf", "cdf", "sf"):
        function = getattr(stats.truncnorm, f)
        at = np.array([nan, 0, 0, 0, 0], F32), np.array([-1, nan, -1, 1, 0], F32), np.array([1, 1, nan, -1, 0], F32)
        np.testing.assert_array_equal(function(*at), np.full(5, nan))
    slopes = ferrax.grad(stats.truncnorm.logcdf, (0, 1, 2))(F32(0.3), F32(-np.inf), F32(np.inf))
    np.testing.assert_allclose(slopes, (scipy.stats.norm.pdf(0.3) / scipy.stats.norm.cdf(0.3), 0, 0), rtol=1e-6)


def test_tails_of_the_generalised_normal_distribution():
    x, beta = np.array([-30, -5, -1000, 3, 0.5], F32), np.array([1, 2, 0.3, 2, 1e9], F32)
    np.testing.assert_allclose(stats.gennorm.cdf(x, beta), scipy.stats.gennorm.cdf(x, beta), rtol=3e-6)
    np.testing.assert_allclose(stats.gennorm.logpdf(x, beta), scipy.stats.gennorm.logpdf(x, beta), rtol=1e-6)
    assert np.isnan(stats.gennorm.logpdf(F32(1), F32([0, -1, np.nan]))).all()


def test_public_names_are_those_of_jax():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = importlib.import_module("jax.scipy.stats")
        names = {n for n in dir(theirs) if n[0] != "_"}
        for name in PARAMETERS:
            there = importlib.import_module(f"jax.scipy.stats.{name}")
            assert {n for n in dir(there) if n[0] != "_"} <= set(dir(getattr(stats, name))), name
    assert names <= set(dir(stats))
