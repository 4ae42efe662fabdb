"""Errors of special functions in units in the last place, against mpmath: those that
docs/special_functions.md states, whose table is read here."""

import pathlib

import mpmath
import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax.scipy import special

TABLE = pathlib.Path(__file__).parents[2] / "docs" / "special_functions.md"
POINTS = 40


def _regularised(lower, upper):
    return lambda a, x: mpmath.gammainc(a, *((0, x) if lower else (x, mpmath.inf)), regularized=True)


def _scaled(order):
    return lambda x: mpmath.besseli(order, x) * mpmath.exp(-abs(x))


# What computes, and the exact value.
FUNCTIONS = {
    "erf": (special.erf, mpmath.erf),
    "erfc": (special.erfc, mpmath.erfc),
    "erfinv": (special.erfinv, mpmath.erfinv),
    "gammaln": (special.gammaln, mpmath.loggamma),
    "gamma": (special.gamma, mpmath.gamma),
    "digamma": (special.digamma, mpmath.digamma),
    "polygamma(1, x)": (lambda x: special.polygamma(1, x), lambda x: mpmath.polygamma(1, x)),
    "polygamma(3, x)": (lambda x: special.polygamma(3, x), lambda x: mpmath.polygamma(3, x)),
    "zeta": (special.zeta, mpmath.zeta),
    "betaln": (special.betaln, lambda a, b: mpmath.log(mpmath.beta(a, b))),
    "beta": (special.beta, mpmath.beta),
    "poch": (special.poch, mpmath.rf),
    "gammainc": (special.gammainc, _regularised(True, False)),
    "gammaincc": (special.gammaincc, _regularised(False, True)),
    "betainc": (special.betainc, lambda a, b, x: mpmath.betainc(a, b, 0, x, regularized=True)),
    "i0": (special.i0, lambda x: mpmath.besseli(0, x)),
    "i0e": (special.i0e, _scaled(0)),
    "i1": (special.i1, lambda x: mpmath.besseli(1, x)),
    "i1e": (special.i1e, _scaled(1)),
    "ndtr": (special.ndtr, mpmath.ncdf),
    "log_ndtr": (special.log_ndtr, lambda x: mpmath.log(mpmath.ncdf(x))),
    "ndtri": (special.ndtri, lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)),
    "expi": (special.expi, mpmath.ei),
    "exp1": (special.exp1, mpmath.e1),
    "expn(3, x)": (lambda x: special.expn(3, x), lambda x: mpmath.expint(3, x)),
    "spence": (special.spence, lambda x: mpmath.polylog(2, 1 - x)),
    "logit": (special.logit, lambda x: mpmath.log(x / (1 - x))),
    "expit": (special.expit, lambda x: 1 / (1 + mpmath.exp(-x))),
    "entr": (special.entr, lambda x: -x * mpmath.log(x)),
    "xlogy": (special.xlogy, lambda x, y: x * mpmath.log(y)),
    "xlog1py": (special.xlog1py, lambda x, y: x * mpmath.log1p(y)),
    "kl_div": (special.kl_div, lambda x, y: x * mpmath.log(x / y) - x + y),
    "hyp1f1": (special.hyp1f1, mpmath.hyp1f1),
    "hyp2f1": (special.hyp2f1, mpmath.hyp2f1),
    "fresnel S": (lambda x: special.fresnel(x)[0], mpmath.fresnels),
    "fresnel C": (lambda x: special.fresnel(x)[1], mpmath.fresnelc),
    "sici Si": (lambda x: special.sici(x)[0], mpmath.si),
    "sici Ci": (lambda x: special.sici(x)[1], mpmath.ci),
    "jnp.sinc": (jnp.sinc, lambda x: mpmath.sinpi(x) / (mpmath.pi * x)),
}


def _rows():
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            ranges = [tuple(map(float, text.split(" to "))) for text in cells[1].split(", ")]
            yield pytest.param(cells[0].strip("`"), ranges, *map(float, cells[2:]), id=f"{cells[0]} {cells[1]}")


def _arguments(ranges, points, seed):
    """Values that float32 holds, so that both dtypes have the same exact results."""
    random = np.random.default_rng(seed)
    for low, high in ranges:
        if low > 0 and high / low >= 50:
            yield np.exp(random.uniform(np.log(low), np.log(high), points)).astype(np.float32)
        else:
            yield random.uniform(low, high, points).astype(np.float32)


def errors(name, ranges, points=POINTS, seed=0):
    """The greatest errors in float32 and float64, in units in the last place of the exact values."""
    function, exact = FUNCTIONS[name]
    arguments = list(_arguments(ranges, points, seed))
    with mpmath.workdps(40):
        values = [mpmath.re(exact(*map(mpmath.mpf, map(float, point)))) for point in zip(*arguments)]
        with ferrax.enable_x64(True):
            for dtype in (np.float32, np.float64):
                results = np.asarray(function(*(jnp.asarray(x, dtype) for x in arguments)))
                assert results.dtype == dtype
                yield max(
                    float(abs(mpmath.mpf(float(result)) - value)) / float(np.spacing(dtype(abs(value))))
                    for result, value in zip(results, values)
                )


def test_every_function_of_the_table_is_known():
    assert {row.values[0] for row in _rows()} == FUNCTIONS.keys()


@pytest.mark.parametrize("name,ranges,single,double", list(_rows()))
def test_errors_are_those_stated(name, ranges, single, double):
    found = list(errors(name, ranges))
    assert found[0] <= single and found[1] <= double, found
