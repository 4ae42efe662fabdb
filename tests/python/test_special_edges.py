"""Special functions and distributions at edges: NaN, poles, infinities and the ends of supports."""

import importlib
import inspect

import numpy as np
import pytest
import scipy.special
import scipy.stats

import ferrax
import ferrax.numpy as jnp
from ferrax.scipy import special, stats

INF, NAN = np.inf, np.nan
# Parameters beside the first argument.
PARAMETERS = {
    "bernoulli": [0.3], "beta": [2.0, 3.0], "betabinom": [5.0, 2.0, 3.0], "binom": [5.0, 0.3], "cauchy": [],
    "chi2": [3.0], "expon": [], "gamma": [2.0], "geom": [0.3], "gumbel_l": [], "gumbel_r": [], "laplace": [],
    "logistic": [], "nbinom": [3.0, 0.4], "norm": [], "pareto": [3.0], "poisson": [2.5], "t": [4.0], "uniform": [],
    "vonmises": [2.0], "wrapcauchy": [0.5],
}  # fmt: skip


def functions(name):
    return [f for f in dir(getattr(stats, name)) if f[0] != "_" and f != "entropy"]


@pytest.mark.parametrize("name", PARAMETERS)
def test_nan_of_any_argument_is_nan(name):
    for function in functions(name):
        call = getattr(getattr(stats, name), function)
        first = 0.5 if function in ("ppf", "isf") or name == "beta" else 1.5 if name == "pareto" else 1.0
        arguments = [first, *PARAMETERS[name]]
        assert np.isfinite(call(*arguments)), function
        for place in range(len(arguments)):
            with_nan = [NAN if k == place else x for k, x in enumerate(arguments)]
            assert np.isnan(call(*with_nan)), (function, place)


@pytest.mark.parametrize("name", [n for n in PARAMETERS if n not in ("bernoulli", "betabinom", "binom", "geom", "nbinom")])
def test_infinite_arguments(name):
    """The limits of probabilities, and no density."""
    if name in ("vonmises", "wrapcauchy", "poisson"):
        return
    for function in functions(name):
        if function in ("ppf", "isf"):
            continue
        call, given = getattr(getattr(stats, name), function), PARAMETERS[name]
        low, high = float(call(-INF, *given)), float(call(INF, *given))
        expected = {"pdf": (0, 0), "logpdf": (-INF, -INF), "cdf": (0, 1), "sf": (1, 0), "logcdf": (-INF, 0), "logsf": (0, -INF)}
        assert (low, high) == expected[function], function


BETA = [
    (-3.0, 2.0), (-3.0, 3.0), (-3.0, 4.0), (-3.0, 2.5), (-1.0, 0.5), (2.0, -2.0), (0.0, 1.0), (1.0, -1.0), (5.0, -40.0),
    (-2.5, 1.5), (-2.5, 0.5), (-0.5, -0.5), (-7.0, 7.0), (3.0, 0.0),
]  # fmt: skip


@pytest.mark.parametrize("a,b", BETA)
def test_beta_at_poles(a, b):
    np.testing.assert_allclose(special.betaln(a, b), scipy.special.betaln(a, b), rtol=1e-5)
    np.testing.assert_allclose(special.beta(a, b), scipy.special.beta(a, b), rtol=1e-5, atol=1e-30)


def test_beta_of_two_poles_is_infinite():
    assert special.beta(-3.0, -2.0) == INF and special.betaln(-3.0, -2.0) == INF


def test_densities_at_ends_of_supports():
    assert stats.chi2.logpdf(0.0, 2.0) == pytest.approx(-np.log(2))
    assert stats.chi2.logpdf(0.0, 1.0) == INF and stats.chi2.logpdf(0.0, 3.0) == -INF
    assert stats.gamma.logpdf(0.0, 1.0) == 0 and stats.gamma.pdf(0.0, 20.0) == 0
    assert stats.beta.logpdf(0.0, 1.0, 3.0) == pytest.approx(np.log(3))
    assert stats.beta.logpdf(1.0, 3.0, 1.0) == pytest.approx(np.log(3))
    assert stats.beta.logpdf(0.0, 0.5, 3.0) == INF and stats.beta.logpdf(1.0, 2.0, 3.0) == -INF
    assert stats.poisson.logpmf(0.0, 0.0) == 0 and stats.poisson.logpmf(1.0, 0.0) == -INF
    for p, k in ((0.0, 0.0), (1.0, 30.0)):
        assert stats.binom.pmf(k, 30.0, p) == 1
        assert stats.binom.pmf(15.0, 30.0, p) == 0
    assert stats.nbinom.pmf(0.0, 3.0, 1.0) == 1


def test_student_with_infinite_degrees_of_freedom_is_normal():
    x = jnp.linspace(-5, 5, 7)
    np.testing.assert_allclose(stats.t.logpdf(x, INF), scipy.stats.norm.logpdf(np.asarray(x)), rtol=1e-5)


def test_dirichlet_at_edges_of_the_simplex():
    x, alpha = jnp.array([0.0, 0.25, 0.75]), jnp.array([1.0, 2.0, 3.0])
    # With an exponent of 0 the edge has a density.
    expected = scipy.stats.dirichlet.logpdf(np.asarray(x, np.float64), np.asarray(alpha, np.float64))
    assert stats.dirichlet.logpdf(x, alpha) == pytest.approx(expected, rel=1e-5)
    assert stats.dirichlet.logpdf(x, jnp.array([2.0, 2.0, 3.0])) == -INF
    assert stats.dirichlet.logpdf(x, jnp.array([0.5, 2.0, 3.0])) == INF
    assert stats.dirichlet.logpdf(jnp.array([-0.25, 0.5, 0.75]), alpha) == -INF
    assert np.isnan(stats.dirichlet.logpdf(jnp.array([NAN, 0.25, 0.75]), alpha))


def test_inverses_at_the_ends():
    assert stats.norm.isf(1e-30) == pytest.approx(scipy.stats.norm.isf(1e-30), rel=1e-6)
    assert stats.norm.isf(0.0) == INF and stats.norm.isf(1.0) == -INF
    assert stats.cauchy.isf(0.0) == INF and stats.cauchy.ppf(0.0) == -INF
    assert stats.cauchy.ppf(0.5) == 0 and stats.cauchy.isf(0.5) == 0


def test_incomplete_gamma_functions_far_out():
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float32):
        a = jnp.array([0.5, 1.3, 3.0, 5.0, 7.5, 9.0], dtype)
        x = jnp.full(a.shape, 3e4, dtype)
        assert (special.gammainc(a, x) == 1).all() and (special.gammaincc(a, x) == 0).all()
    assert stats.poisson.cdf(6.0, 1e6) == 0 and stats.chi2.cdf(2e6, 14.0) == 1 and stats.gamma.cdf(1e6, 7.0) == 1
    with ferrax.enable_x64(True):
        assert special.gammainc(7.0, 1e100) == 1 and special.gammaincc(1.5, jnp.array(1e300)) == 0


def test_incomplete_beta_function_of_small_parameters():
    with ferrax.enable_x64(True):
        found = float(special.betainc(0.0005, 266.0, 2.29e-6))
        assert found == pytest.approx(0.9965912508765661, rel=1e-14)
        # More than x has all digits where x is lost beside 1.
        assert float(stats.beta.sf(1e-20, 0.01, 1.0)) == pytest.approx(-np.expm1(0.01 * np.log(1e-20)), rel=1e-14)


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles_of_infinite_elements(method):
    for values, q, expected in [
        ([-INF, 1.0], 0.0, -INF), ([-INF, 1.0], 1.0, 1.0), ([1.0, INF], 0.0, 1.0), ([1.0, INF], 1.0, INF),
        ([INF, INF, INF], 0.3, INF), ([-INF, 2.0, INF], 0.5, 2.0),
    ]:  # fmt: skip
        assert float(jnp.quantile(jnp.array(values), q, method=method)) == expected, (values, q)
    assert float(jnp.quantile(jnp.array([-INF, 1.0]), 0.1)) == -INF
    assert float(jnp.median(jnp.array([1.0, 2.0, INF]))) == 2
    assert float(jnp.nanquantile(jnp.array([NAN, 1.0, INF]), 0.0)) == 1


def test_interpolation_with_infinite_points():
    x = jnp.array([0.0, 0.5, 1.0, 2.0, INF])
    for xp, fp, expected in [
        ([0.0, 1.0, 2.0], [0.0, INF, 3.0], [0, INF, INF, 3, 3]),
        ([0.0, 1.0, 2.0], [INF, INF, INF], [INF] * 5),
        ([0.0, 1.0, INF], [0.0, 1.0, 3.0], [0, 0.5, 1, 1, 3]),
        ([-INF, 1.0, INF], [0.0, 1.0, 3.0], [1, 1, 1, 1, 3]),
    ]:
        found = jnp.interp(x, jnp.array(xp), jnp.array(fp))
        np.testing.assert_array_equal(np.asarray(found), expected)
    assert jnp.interp(-INF, jnp.array([-INF, 1.0]), jnp.array([5.0, 1.0])) == 5
    # The slope at points is that of the part on their right.
    slope = ferrax.grad(lambda x: jnp.interp(x, jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 1.0, 3.0])))
    assert [float(slope(x)) for x in (0.25, 1.0, 1.5)] == [1, 2, 2]


def test_gradients_where_a_rounded_result_would_lose_them():
    grad = ferrax.grad
    with ferrax.enable_x64(True):
        for name, x, expected in [
            ("expm1", -40.0, np.exp(-40.0)), ("exp2", -1000.0, np.log(2) * 2.0**-1000),
            ("asinh", 1e200, 1e-200), ("asinh", -1e-3, 1 / np.sqrt(1 + 1e-6)), ("asinh", 2.0, 1 / np.sqrt(5)),
        ]:  # fmt: skip
            assert float(grad(getattr(ferrax.lax, name))(x)) == pytest.approx(expected, rel=1e-14, abs=0), name
    assert float(grad(ferrax.lax.asinh)(jnp.float16(300))) == pytest.approx(1 / 300, rel=2e-3)


def test_derivatives_of_powers_of_zero():
    power = ferrax.grad(lambda x, y: x**y, (0, 1))
    assert list(map(float, power(0.0, 0.0))) == [0, 0]
    assert list(map(float, power(0.0, 2.0))) == [0, 0]
    # Where the base is not zero, the slope in it still changes with the exponent: d2/(dx dy) x^y at y = 0.
    mixed = ferrax.grad(lambda y: ferrax.grad(lambda x: x**y)(2.0))(0.0)
    assert float(mixed) == pytest.approx(0.5)
    assert ferrax.grad(lambda x: jnp.sum(x ** jnp.array([0.0, 1.0, 2.0])))(jnp.zeros(3)).tolist() == [0, 1, 0]


def test_every_distribution_is_here():
    others = {"gennorm", "truncnorm", "multinomial", "dirichlet", "multivariate_normal"}
    modules = {n for n in dir(stats) if inspect.ismodule(getattr(stats, n)) and n[0] != "_"}
    assert {n for n in modules if hasattr(importlib.import_module(f"ferrax.scipy.stats.{n}"), "logpdf")} - others <= set(PARAMETERS)
