"""Special functions over all their ranges, tails too, against mpmath: values and gradients.

`docs/special_functions.md` has the errors where the functions are of moderate size; here is what holds
everywhere else. Errors are in ulps by the rule of `ranges.py`.
"""


import mpmath
import numpy as np
import pytest
from ranges import Row, check

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.scipy import special

mp = mpmath.mp
COUNT = 8


def regularised_beta(a, b, x):
    """The probabilities of at most x and of more, by the series of positive terms DLMF 8.17.8."""

    def series(a, b, x):
        term = total = mpmath.mpf(1)
        n = 0
        while term > total * mpmath.mpf(10) ** -(mp.dps + 5):
            term *= (a + b + n) / (a + 1 + n) * x
            total += term
            n += 1
        return total * x**a * (1 - x) ** b / (a * mpmath.beta(a, b))

    with mpmath.workdps(mp.dps + 30):
        if x <= 0.5 or x * (a + b) <= a:
            low = series(a, b, x)
            return low, 1 - low if low < 1 - mpmath.mpf(10) ** -25 else series(b, a, 1 - x)
        high = series(b, a, 1 - x)
        return 1 - high if high < 1 - mpmath.mpf(10) ** -25 else series(a, b, x), high


def lower_gamma(a, x):
    return mpmath.gammainc(a, 0, x, regularized=True)


def upper_gamma(a, x):
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


def log_ncdf(x):
    if x > 0:
        return mpmath.log1p(-mpmath.erfc(x / mpmath.sqrt(2)) / 2)
    return mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)


def inverse_ncdf(p):
    """By Newton's method in the logarithm."""
    if p > 0.5:
        return -inverse_ncdf(1 - p)
    x = -mpmath.sqrt(-2 * mpmath.log(p)) if p < 0.1 else -(mpmath.mpf("0.5") - p) * 2.5
    for _ in range(60):
        value = mpmath.erfc(-x / mpmath.sqrt(2)) / 2
        step = value * mpmath.log(value / p) / mpmath.npdf(x)
        x -= step
        if abs(step) < mpmath.mpf(10) ** -45:
            break
    return x


def owens_t(h, a):
    return mpmath.quad(lambda t: mpmath.exp(-h * h * (1 + t * t) / 2) / (1 + t * t), mpmath.linspace(0, a, 4)) / (
        2 * mpmath.pi
    )


def entropy_of(p, q):
    return p * mpmath.log(p / q)


def box_cox(x, power):
    return mpmath.expm1(power * mpmath.log(x)) / power if power else mpmath.log(x)


def scaled(function):
    return lambda x: function(x) * mpmath.exp(-abs(x))


def of_order(order):
    return lambda x: mpmath.besseli(order, x)


NEAR_ONE = 1 - 2.0 ** -np.arange(1, 25)
TINY, SMALL, MIDDLE, LARGE, HUGE = (1e-30, 1e-8), (1e-6, 0.5), (0.3, 30.0), (20.0, 1e4), (1e5, 1e30)

ROWS = {
    "erf": Row(special.erf, mpmath.erf, [[(-6, 6)], [TINY], [(1e-300, 1e-50)]], 1, 1),
    "erfc": Row(special.erfc, mpmath.erfc, [[(-6, 9)], [(5, 28)], [TINY]], 2, 2),
    "erfcx": Row(
        special.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), [[(-9, 9)], [(-28, -8)], [(5, 1e3)]], 4, 4
    ),
    "erfinv": Row(special.erfinv, mpmath.erfinv, [[(-0.99, 0.99)], [NEAR_ONE], [TINY]], 3, 3),
    "dawsn": Row(
        special.dawsn,
        lambda x: mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x),
        [[(-8, 8)], [(5, 40)], [TINY]], 4, 4,
    ),
    "gammaln": Row(
        special.gammaln, lambda x: mpmath.log(abs(mpmath.gamma(x))),
        [[TINY], [SMALL], [MIDDLE], [LARGE], [(-20, -0.1)]], 4, 4, beside=1.0,
    ),
    "loggamma": Row(special.loggamma, mpmath.loggamma, [[TINY], [SMALL], [LARGE], [HUGE]], 4, 4),
    "gamma": Row(special.gamma, mpmath.gamma, [[TINY], [SMALL], [(1, 36)], [(30, 172)], [(-30, -0.1)]], 4, 4),
    "factorial": Row(special.factorial, mpmath.factorial, [[np.arange(0, 36.0)], [np.arange(36.0, 172, 9)]], 4, 4),
    "digamma": Row(special.digamma, mpmath.digamma, [[TINY], [SMALL], [MIDDLE], [HUGE], [(-20, -0.1)]], 8, 8, beside=1.0),
    "polygamma": Row(
        lambda n, x: lax.polygamma(n, x), lambda n, x: mpmath.polygamma(int(n), x),
        [[n, _x] for n in (1.0, 2.0, 5.0, 20.0) for _x in (np.geomspace(1e-3, 1, 5), np.geomspace(1, 1e4, 5))], 8, 8,
    ),
    "zeta": Row(special.zeta, mpmath.zeta, [[(1.001, 3), (0.01, 10)], [(2, 30), (0.1, 50)], [(1.5, 4), (10, 1e5)]], 8, 8),
    "betaln": Row(
        special.betaln, lambda a, b: mpmath.log(abs(mpmath.beta(a, b))),
        [[SMALL, SMALL], [MIDDLE, MIDDLE], [SMALL, LARGE], [LARGE, LARGE], [MIDDLE, HUGE], [LARGE, HUGE]], 30, 30,
        beside=1.0,
    ),
    "beta": Row(
        special.beta, mpmath.beta,
        [[SMALL, SMALL], [MIDDLE, MIDDLE], [SMALL, LARGE], [(8, 60), (8, 60)], [(-3.9, -0.1), MIDDLE]], 60, 60,
    ),
    "poch": Row(special.poch, mpmath.rf, [[SMALL, MIDDLE], [MIDDLE, (0.1, 20)], [LARGE, (0.1, 10)], [LARGE, SMALL]], 20, 20),
    "comb": Row(
        special.comb, mpmath.binomial, [[np.arange(1.0, 31), np.arange(1.0, 31) // 2], [np.arange(31.0, 120, 9), 7.0]],
        30, 30,
    ),
    "multigammaln": Row(
        lambda a: special.multigammaln(a, 3),
        lambda a: 1.5 * mpmath.log(mpmath.pi) + sum(mpmath.loggamma(a - j / mpmath.mpf(2)) for j in range(3)),
        [[(1.1, 10)], [LARGE], [HUGE]], 8, 8, beside=1.0,
    ),
    "gammainc": Row(
        special.gammainc, lower_gamma,
        [[SMALL, SMALL], [SMALL, MIDDLE], [MIDDLE, MIDDLE], [MIDDLE, SMALL], [LARGE, LARGE], [MIDDLE, (1e4, 1e12)]],
        8, 8,
    ),
    "gammaincc": Row(
        special.gammaincc, upper_gamma,
        [[SMALL, SMALL], [SMALL, MIDDLE], [MIDDLE, MIDDLE], [MIDDLE, SMALL], [LARGE, LARGE], [MIDDLE, (50, 1e3)],
         [(1, 8), (1e4, 1e12)]],
        8, 8,
    ),
    "betainc": Row(
        special.betainc, lambda a, b, x: regularised_beta(a, b, x)[0],
        [[SMALL, LARGE, SMALL], [SMALL, SMALL, (0.01, 0.99)], [LARGE, SMALL, (0.5, 0.99)], [MIDDLE, MIDDLE, (0.01, 0.99)],
         [MIDDLE, MIDDLE, TINY], [(1, 1e3), (1, 1e3), (0.1, 0.9)], [np.geomspace(1e-6, 1e-2, 24), 3.0, NEAR_ONE]],
        12, 12,
    ),
    "i0": Row(special.i0, of_order(0), [[SMALL], [(-8, 8)], [(8, 92)], [(-714, -500)]], 6, 6),
    "i1": Row(special.i1, of_order(1), [[SMALL], [(0.5, 8)], [(8, 92)], [(-714, -500)], [TINY]], 12, 12),
    "i0e": Row(special.i0e, scaled(of_order(0)), [[SMALL], [(-8, 8)], [(8, 1e3)], [(-1e5, -1e3)]], 6, 6),
    "i1e": Row(special.i1e, scaled(of_order(1)), [[SMALL], [(0.5, 8)], [(8, 1e3)], [(-1e5, -1e3)], [TINY]], 12, 12),
    "bessel_jn": Row(
        lambda x: special.bessel_jn(x, v=2, n_iter=60)[2], lambda x: mpmath.besselj(2, x), [[SMALL], [(0.5, 30)]], 64, 64,
        beside=1.0,
    ),
    "ndtr": Row(special.ndtr, mpmath.ncdf, [[(-13, 6)], [(-38, -13)], [TINY]], 6, 6),
    "log_ndtr": Row(special.log_ndtr, log_ncdf, [[(-10, 6)], [(-1e4, -10)], [(5, 35)]], 8, 12),
    "ndtri": Row(special.ndtri, inverse_ncdf, [[(0.01, 0.49)], [(1e-37, 1e-3)], [(1e-300, 1e-40)], [NEAR_ONE[1:]]], 6, 6),
    "owens_t": Row(special.owens_t, owens_t, [[(0.1, 4), (0.1, 1)], [(-4, 4), (-8, 8)], [SMALL, (0.1, 4)]], 12, 24),
    "expi": Row(special.expi, mpmath.ei, [[(-80, -0.1)], [SMALL], [(0.5, 30)], [(30, 93)], [(600, 715)]], 8, 8, beside=0.5),
    "exp1": Row(special.exp1, mpmath.e1, [[SMALL], [(0.3, 30)], [(30, 100)], [(300, 740)], [TINY]], 6, 6),
    "expn": Row(
        special.expn, lambda n, x: mpmath.expint(int(n), x),
        [[n, np.geomspace(1e-3, 60, 6)] for n in (0.0, 1.0, 2.0, 5.0, 40.0)], 40, 40,
    ),
    "sici Si": Row(lambda x: special.sici(x)[0], mpmath.si, [[TINY], [SMALL], [(-30, 30)], [LARGE]], 4, 4),
    "sici Ci": Row(lambda x: special.sici(x)[1], mpmath.ci, [[TINY], [SMALL], [(0.3, 30)]], 12, 12, beside=1.0),
    "spence": Row(
        special.spence, lambda x: mpmath.polylog(2, 1 - x), [[TINY], [SMALL], [(0.3, 30)], [HUGE]], 8, 8, beside=1.0
    ),
    "fresnel S": Row(lambda x: special.fresnel(x)[0], mpmath.fresnels, [[SMALL], [(-3, 3)], [(3, 40)]], 64, 64),
    "fresnel C": Row(lambda x: special.fresnel(x)[1], mpmath.fresnelc, [[SMALL], [(-2, 2)], [(3, 40)]], 64, 64),
    "logit": Row(special.logit, lambda x: mpmath.log(x / (1 - x)), [[TINY], [(0.01, 0.99)], [NEAR_ONE]], 4, 4),
    "expit": Row(special.expit, lambda x: 1 / (1 + mpmath.exp(-x)), [[(-30, 30)], [(-100, -30)], [(-740, -100)]], 3, 3),
    "entr": Row(special.entr, lambda x: -x * mpmath.log(x), [[TINY], [(0.01, 3)], [HUGE]], 3, 3),
    "xlogy": Row(special.xlogy, lambda x, y: x * mpmath.log(y), [[(-5, 5), TINY], [MIDDLE, MIDDLE], [LARGE, HUGE]], 3, 3),
    "xlog1py": Row(
        special.xlog1py, lambda x, y: x * mpmath.log1p(y), [[(-5, 5), TINY], [MIDDLE, (-0.99, 5)], [LARGE, HUGE]], 3, 3
    ),
    "rel_entr": Row(special.rel_entr, entropy_of, [[MIDDLE, MIDDLE], [TINY, MIDDLE], [MIDDLE, (1e-30, 1e20)]], 6, 6),
    "kl_div": Row(
        special.kl_div, lambda p, q: entropy_of(p, q) - p + q,
        [[MIDDLE, MIDDLE], [TINY, MIDDLE], [LARGE, TINY], [np.linspace(1, 2, 9), np.linspace(1, 2, 9) + 2.0**-12]], 8, 8,
    ),
    "boxcox": Row(special.boxcox, box_cox, [[MIDDLE, (-3, 3)], [HUGE, SMALL], [MIDDLE, TINY]], 6, 6),
    "boxcox1p": Row(
        special.boxcox1p, lambda x, power: box_cox(1 + x, power), [[MIDDLE, (-3, 3)], [TINY, (-3, 3)], [(-0.9, 1), TINY]], 6, 6
    ),
    "hyp1f1": Row(
        special.hyp1f1, mpmath.hyp1f1,
        [[(0.1, 10), (0.1, 10), (0, 40)], [(0.1, 20), (0.1, 20), (50, 95)], [(0.1, 10), (0.1, 10), (300, 715)],
         [(0.1, 8), (10, 30), (-100, 0)], [(0.1, 8), (10, 30), (-1e5, -100)], [(20, 200), (20, 300), (1, 300)],
         [SMALL, SMALL, SMALL]],
        40, 40,
    ),
    "hyp2f1": Row(
        special.hyp2f1, mpmath.hyp2f1,
        [[(0.2, 3), (0.2, 3), (3.2, 7), (-0.95, 0.9)], [(0.2, 3), (0.2, 3), (0.5, 7), (-40, -1)], [SMALL, SMALL, MIDDLE, SMALL]],
        40, 40,
    ),
}  # fmt: skip


# `expit` is 0 where its value is subnormal, as the reference's is.
@pytest.mark.parametrize("name", [name for name in ROWS if name != "expit"])
def test_values(name):
    check(ROWS[name], COUNT)


# The arguments in which there are gradients, and the bounds of their errors in float32 and float64. That of
# `expit` is made of the result alone, which is 1 from where the slope is below its spacing.
GRADIENTS = {
    "erf": ((0,), 40, 40), "erfc": ((0,), 40, 40), "erfcx": ((0,), 40, 40), "erfinv": ((0,), 40, 40),
    "dawsn": ((0,), 40, 40), "gammaln": ((0,), 40, 40), "gamma": ((0,), 40, 40), "digamma": ((0,), 40, 40),
    "polygamma": ((1,), 40, 40), "zeta": ((0, 1), 40, 40), "betaln": ((0, 1), 40, 40), "poch": ((0, 1), 40, 40),
    "gammainc": ((0, 1), 40, 40), "gammaincc": ((0, 1), 40, 40), "betainc": ((2,), 40, 40),
    "i0": ((0,), 40, 40), "i1": ((0,), 40, 40), "i0e": ((0,), 40, 40), "i1e": ((0,), 40, 40),
    "ndtr": ((0,), 40, 40), "log_ndtr": ((0,), 40, 40), "ndtri": ((0,), 40, 40), "expi": ((0,), 40, 40),
    "exp1": ((0,), 40, 40), "expn": ((1,), 40, 40), "sici Si": ((0,), 40, 40), "sici Ci": ((0,), 40, 40),
    "spence": ((0,), 40, 40), "logit": ((0,), 40, 40), "kl_div": ((0, 1), 40, 40), "entr": ((0,), 40, 40),
    "xlogy": ((0, 1), 40, 40), "xlog1py": ((0, 1), 40, 40), "rel_entr": ((0, 1), 40, 40), "boxcox": ((0, 1), 40, 40),
    "boxcox1p": ((0, 1), 40, 40), "hyp1f1": ((0, 1, 2), 100, 40), "hyp2f1": ((0, 3), 40, 40),
}  # fmt: skip


def _beta_density(a, b, x):
    return mpmath.exp((a - 1) * mpmath.log(x) + (b - 1) * mpmath.log1p(-x)) / mpmath.beta(a, b)


def gamma_density(a, x):
    return mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))


# Those that are not left to differences.
SLOPES = {
    ("betainc", 2): _beta_density, ("gammainc", 1): gamma_density, ("gammaincc", 1): lambda a, x: -gamma_density(a, x),
    ("ndtri", 0): lambda p: 1 / mpmath.npdf(inverse_ncdf(p)),
    ("kl_div", 0): lambda p, q: mpmath.log(p / q), ("kl_div", 1): lambda p, q: 1 - p / q,
}  # fmt: skip


def central_difference(function, point, place):
    """The partial derivative, by a step that is small beside the argument, with digits to spare."""
    with mpmath.workdps(mp.dps + 50):
        point = list(point)
        step = point[place] * mpmath.mpf(10) ** -25
        ends = [function(*point[:place], point[place] + h, *point[place + 1 :]) for h in (step, -step)]
        return (ends[0] - ends[1]) / (2 * step)


def slope_of(name, place):
    """The exact partial derivative."""
    function = ROWS[name].exact

    def by_differences(*point):
        return central_difference(function, point, place)

    return SLOPES.get((name, place), by_differences)


HELD = [(name, place) for name, row in GRADIENTS.items() for place in row[0]]


@pytest.mark.parametrize("name,place", HELD)
def test_gradients(name, place):
    row, (_, single, double) = ROWS[name], GRADIENTS[name]

    def gradient(*arguments):
        total = ferrax.grad(lambda *arguments: jnp.sum(row.function(*arguments)), place)
        return total(*arguments)

    check(Row(gradient, slope_of(name, place), row.regions, single, double, row.beside), 3, gradient=True)
