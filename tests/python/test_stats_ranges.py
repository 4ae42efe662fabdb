"""Every function of the distributions of `scipy.stats` over all its range, tails too, against mpmath.

Errors are in ulps by the rule of `ranges.py`. What a distribution has of functions is compared: densities,
probabilities of both sides, their logarithms, and the inverses.
"""

from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
from ranges import Row, check
from test_special_ranges import (
    HUGE,
    LARGE,
    MIDDLE,
    NEAR_ONE,
    SMALL,
    TINY,
    central_difference,
    inverse_ncdf,
    lower_gamma,
    regularised_beta,
    upper_gamma,
)

import ferrax
import ferrax.numpy as jnp
from ferrax.scipy import stats

COUNT = 6
PROBABILITIES = [[(1e-30, 1e-3)], [(0.001, 0.999)], [NEAR_ONE]]


class Distribution(NamedTuple):
    """Exact functions of x and parameters, and ranges of these; inverses are of a probability and parameters."""

    log_density: Any
    lower: Any
    upper: Any
    regions: list
    inverse: Any = None
    inverse_upper: Any = None
    of_parameters: tuple = ()
    bound: float = 12.0
    beside: float = 1.0


def _gamma_log_density(x, a):
    return (a - 1) * mpmath.log(x) - x - mpmath.loggamma(a)


def _cauchy_upper(x):
    return mpmath.atan2(1, x) / mpmath.pi


def _log_choose(n, k):
    return mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)


def _log_beta(a, b):
    return mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b)


def _tail(x):
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def _logistic(x):
    return 1 / (1 + mpmath.exp(-x))


def _cotangent(q):
    return mpmath.cospi(q) / mpmath.sinpi(q)


COUNTS = [np.array([0.0, 1, 3, 7, 12]), np.array([40.0, 300, 1000])]

DISTRIBUTIONS = {
    "norm": Distribution(
        lambda x: -x * x / 2 - mpmath.log(2 * mpmath.pi) / 2, lambda x: _tail(-x), _tail,
        [[(-9, 9)], [(-38, 38)], [(1e2, 1e15)], [(-1e4, -1e2)]],
        inverse_ncdf, lambda q: -inverse_ncdf(q),
    ),
    "beta": Distribution(
        lambda x, a, b: (a - 1) * mpmath.log(x) + (b - 1) * mpmath.log1p(-x) - _log_beta(a, b),
        lambda *args: regularised_beta(*args[1:], args[0])[0], lambda *args: regularised_beta(*args[1:], args[0])[1],
        [[(0.01, 0.99), MIDDLE, MIDDLE], [SMALL, SMALL, LARGE], [(0.01, 0.99), SMALL, SMALL], [TINY, MIDDLE, MIDDLE],
         [NEAR_ONE[::3], 0.01, 5.0], [(0.3, 0.7), (1, 1e3), (1, 1e3)]],
    ),
    "cauchy": Distribution(
        lambda x: -mpmath.log(mpmath.pi) - mpmath.log1p(x * x), lambda x: _cauchy_upper(-x), _cauchy_upper,
        [[(-5, 5)], [(10, 1e15)], [(-1e30, -10)], [TINY]], lambda q: -_cotangent(q), _cotangent, bound=6,
    ),
    "chi2": Distribution(
        lambda x, df: _gamma_log_density(x / 2, df / 2) - mpmath.log(2),
        lambda x, df: lower_gamma(df / 2, x / 2), lambda x, df: upper_gamma(df / 2, x / 2),
        [[MIDDLE, MIDDLE], [SMALL, MIDDLE], [(100, 1e3), (1, 1e3)], [(1e4, 1e9), (1, 20)]],
    ),
    "gamma": Distribution(
        _gamma_log_density, lambda x, a: lower_gamma(a, x), lambda x, a: upper_gamma(a, x),
        [[MIDDLE, MIDDLE], [SMALL, MIDDLE], [SMALL, SMALL], [LARGE, LARGE], [(1e4, 1e9), (1, 20)]],
    ),
    "expon": Distribution(
        lambda x: -x, lambda x: -mpmath.expm1(-x), lambda x: mpmath.exp(-x), [[TINY], [(0.01, 3)], [(3, 700)]],
        lambda q: -mpmath.log1p(-q), bound=4,
    ),
    "gumbel_l": Distribution(
        lambda x: x - mpmath.exp(x), lambda x: -mpmath.expm1(-mpmath.exp(x)), lambda x: mpmath.exp(-mpmath.exp(x)),
        [[(-3, 3)], [(-100, -3)], [(-1e3, -100)], [(3, 6)]], lambda q: mpmath.log(-mpmath.log1p(-q)), bound=8,
    ),
    "gumbel_r": Distribution(
        lambda x: -x - mpmath.exp(-x), lambda x: mpmath.exp(-mpmath.exp(-x)), lambda x: -mpmath.expm1(-mpmath.exp(-x)),
        [[(-3, 3)], [(3, 100)], [(100, 1e3)], [(-6, -3)]], lambda q: -mpmath.log(-mpmath.log(q)), bound=8,
    ),
    "laplace": Distribution(
        lambda x: -abs(x) - mpmath.log(2), lambda x: mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2, None,
        [[(-5, 5)], [(-700, -5)], [(5, 700)]], bound=4,
    ),
    "logistic": Distribution(
        lambda x: -abs(x) - 2 * mpmath.log1p(mpmath.exp(-abs(x))), _logistic, lambda x: _logistic(-x),
        [[(-5, 5)], [(-700, -5)], [(5, 700)]], lambda q: mpmath.log(q / (1 - q)), lambda q: mpmath.log((1 - q) / q), bound=4,
    ),
    "pareto": Distribution(
        lambda x, b: mpmath.log(b) - (b + 1) * mpmath.log(x), lambda x, b: -mpmath.expm1(-b * mpmath.log(x)),
        lambda x, b: x**-b, [[(1, 5), MIDDLE], [(10, 1e9), MIDDLE], [1 + 2.0 ** -np.arange(1, 23, 3), 2.0], [(1, 5), SMALL]],
        lambda q, b: mpmath.exp(-mpmath.log1p(-q) / b), of_parameters=(3.0,), bound=6,
    ),
    "t": Distribution(
        lambda x, df: -_log_beta(df / 2, mpmath.mpf("0.5")) - mpmath.log(df) / 2 - (df + 1) / 2 * mpmath.log1p(x * x / df),
        None, None, [[(-5, 5), MIDDLE], [(-5, 5), HUGE], [(1e3, 1e15), MIDDLE], [(-1e30, -1e9), MIDDLE]],
    ),
    "uniform": Distribution(lambda x: mpmath.mpf(0), lambda x: x, None, [[TINY], [(0, 1)]], lambda q: q, bound=2),
    "vonmises": Distribution(
        lambda x, kappa: kappa * mpmath.cos(x) - mpmath.log(2 * mpmath.pi * mpmath.besseli(0, kappa)), None, None,
        [[(-3, 3), MIDDLE], [SMALL, LARGE], [(-3, 3), LARGE], [(-3, 3), SMALL]],
    ),
    "wrapcauchy": Distribution(
        lambda x, c: mpmath.log((1 - c * c) / (2 * mpmath.pi * (1 + c * c - 2 * c * mpmath.cos(x)))), None, None,
        [[(0, 6.28), (0.01, 0.99)], [np.geomspace(1e-6, 0.5, 5), NEAR_ONE[:18:4]], [(0, 6.28), SMALL]], bound=8,
    ),
    "bernoulli": Distribution(
        lambda k, p: k * mpmath.log(p) + (1 - k) * mpmath.log1p(-p), lambda k, p: 1 - p if k == 0 else mpmath.mpf(1), None,
        [[0.0, SMALL], [1.0, SMALL], [0.0, (0.01, 0.99)], [1.0, (0.01, 0.99)]], bound=4,
    ),
    "binom": Distribution(
        lambda k, n, p: _log_choose(n, k) + k * mpmath.log(p) + (n - k) * mpmath.log1p(-p), None, None,
        [[k, k + extra, p] for k in COUNTS for extra in (0.0, 1.0, 25.0, 1e3) for p in (1e-5, 0.3, 0.875)],
    ),
    "nbinom": Distribution(
        lambda k, n, p: _log_choose(k + n - 1, k) + n * mpmath.log(p) + k * mpmath.log1p(-p), None, None,
        [[k, n, p] for k in COUNTS for n in (0.25, 3.0, 900.0) for p in (1e-5, 0.3, 0.875)],
    ),
    "betabinom": Distribution(
        lambda k, n, a, b: _log_choose(n, k) + _log_beta(k + a, n - k + b) - _log_beta(a, b), None, None,
        [[k, k + extra, a, b] for k in COUNTS for extra in (0.0, 25.0, 1e3) for a in (0.25, 30.0, 1e3) for b in (1e-3, 4.0, 900.0)],
        bound=24,
    ),
    "geom": Distribution(
        lambda k, p: (k - 1) * mpmath.log1p(-p) + mpmath.log(p), None, None,
        [[k + 1, p] for k in COUNTS for p in (1e-5, 0.3, 0.875)], bound=6,
    ),
    "poisson": Distribution(
        lambda k, mu: k * mpmath.log(mu) - mu - mpmath.loggamma(k + 1), lambda k, mu: upper_gamma(k + 1, mu), None,
        [[k, mu] for k in COUNTS for mu in (1e-4, 0.7, 9.5, 950.0, 1e6)],
    ),
}  # fmt: skip


def _log(low, high):
    return mpmath.log(low) if high is None or low < 0.5 else mpmath.log1p(-high)


def exact(name, function):
    """The exact function, or None where there is none."""
    of = DISTRIBUTIONS[name]
    either = lambda f: lambda *args: f(*args) if f else None  # noqa: E731
    lower, upper = either(of.lower), either(of.upper)
    found = {
        "logpdf": of.log_density, "logpmf": of.log_density,
        "pdf": lambda *args: mpmath.exp(of.log_density(*args)), "pmf": lambda *args: mpmath.exp(of.log_density(*args)),
        "cdf": of.lower, "sf": of.upper,
        "logcdf": lambda *args: _log(lower(*args), upper(*args)), "logsf": lambda *args: _log(upper(*args), lower(*args)),
        "ppf": of.inverse, "isf": of.inverse_upper,
    }  # fmt: skip
    return found.get(function)


def functions(name):
    names = [f for f in dir(getattr(stats, name)) if f[0] != "_" and f != "entropy"]
    return [f for f in names if (name, f) != ("bernoulli", "ppf")]  # of few values, in test_values below


# `logistic.sf` is 0 where its value is subnormal, as the reference's is.
CASES = [(name, f) for name in DISTRIBUTIONS for f in functions(name) if (name, f) != ("logistic", "sf")]


@pytest.mark.parametrize("name,function", CASES, ids=[f"{name}-{function}" for name, function in CASES])
def test_values(name, function):
    of, call = DISTRIBUTIONS[name], getattr(getattr(stats, name), function)
    expected = exact(name, function)
    assert expected is not None, "a function without an exact one beside it"
    regions, beside = of.regions, 0.0
    if function in ("ppf", "isf"):
        regions, beside = [[*region, *of.of_parameters] for region in PROBABILITIES], of.beside
    elif function in ("logpdf", "logpmf"):
        beside = of.beside
    # The inverses of the normal distribution have the default dtype.
    check(Row(lambda *args: call(*args).astype(args[0].dtype), expected, regions, of.bound, of.bound, beside), COUNT)


# The arguments of logarithms of densities in which there are derivatives, of numbers of events none in the first.
PLACES = {
    "norm": (0,), "beta": (0, 1, 2), "cauchy": (0,), "chi2": (0, 1), "gamma": (0, 1), "gumbel_l": (0,), "gumbel_r": (0,),
    "logistic": (0,), "pareto": (0, 1), "t": (0, 1), "vonmises": (0, 1), "wrapcauchy": (0, 1), "binom": (2,),
    "nbinom": (1, 2), "betabinom": (2, 3), "geom": (1,), "poisson": (1,),
}  # fmt: skip
GRADIENTS = [(name, place) for name, places in PLACES.items() for place in places]


@pytest.mark.parametrize("name,place", GRADIENTS, ids=[f"{name}-{place}" for name, place in GRADIENTS])
def test_gradients_of_log_densities(name, place):
    of, module = DISTRIBUTIONS[name], getattr(stats, name)
    call = getattr(module, "logpdf", None) or module.logpmf

    def slope(*point):
        return central_difference(of.log_density, point, place)

    def gradient(*arguments):
        return ferrax.grad(lambda *arguments: jnp.sum(call(*arguments)), place)(*arguments)

    # In the beta-binomial distribution terms of 1 / b cancel.
    bound = 400 if (name, place) == ("betabinom", 3) else 12
    check(Row(gradient, slope, of.regions, bound, bound, 1.0), 2, gradient=True)


# Few and many, below and from 8 on, on either side.
SCALARS = [("gamma", (2.5,)), ("gamma", (20.0,)), ("chi2", (1.0,)), ("chi2", (40.0,)), ("beta", (2.5, 3.0)),
           ("beta", (20.0, 3.0)), ("beta", (0.5, 30.0)), ("beta", (20.0, 30.0))]  # fmt: skip


@pytest.mark.parametrize("name,parameters", SCALARS, ids=[f"{n}-{'-'.join(map(str, p))}" for n, p in SCALARS])
def test_scalar_parameters(name, parameters):
    """What scalars choose is what arrays select, with derivatives of order 1 and 2, jitted and batched."""
    call = getattr(stats, name).logpdf
    x = jnp.asarray(np.linspace(0.02, 0.98, 9, dtype=np.float32))
    arrays = [jnp.full(x.shape, p, np.float32) for p in parameters]
    scalars = [np.float32(p) for p in parameters]
    places = tuple(range(len(parameters) + 1))

    def all_orders(*arguments):
        first = ferrax.grad(lambda *args: jnp.sum(call(*args)), places)
        second = ferrax.grad(lambda *args: sum(jnp.sum(slope) for slope in first(*args)), places)
        sums = [jnp.sum(slope) for slope in (*first(*arguments), *second(*arguments))]
        return call(*arguments), sums

    expected = all_orders(x, *arrays)
    batched = ferrax.vmap(call, in_axes=(None, *[0] * len(arrays)))(x, *arrays)
    for found in (all_orders(x, *scalars), ferrax.jit(all_orders)(x, *scalars)):
        ferrax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=3e-5, atol=1e-5), found, expected)
    np.testing.assert_array_equal(batched, np.broadcast_to(expected[0], batched.shape))
    ends = call(jnp.asarray([-1.0, 0.0, 1.0, 2.0, np.inf, np.nan], np.float32), *scalars)
    repeated = call(jnp.asarray([-1.0, 0.0, 1.0, 2.0, np.inf, np.nan], np.float32), *[array[:6] for array in arrays])
    np.testing.assert_allclose(ends, repeated, rtol=1e-6)
