"""Errors of functions of real numbers over ranges of their arguments, against exact values of mpmath.

An error is that in units in the last place (ulps) of the exact value `y`, over `1 + |log|y||`: the relative
error of an exponential is the absolute one of its exponent. Where a function crosses zero, elsewhere than at
zero, `beside` is the size of the values around it, whose ulps count there.
"""

from typing import Any, NamedTuple

import mpmath
import numpy as np

import ferrax
import ferrax.numpy as jnp

DTYPES = (np.float32, np.float64)
DIGITS = 50


class Row(NamedTuple):
    """A function, what is exact, ranges of its arguments, and the greatest errors in float32 and float64."""

    function: Any
    exact: Any
    regions: list
    single: float
    double: float
    beside: float = 0.0


def is_wide(values):
    """Whether float32 does not hold these values."""
    sizes = np.abs(values[values != 0])
    return bool(sizes.size) and bool(sizes.max() > 1e38 or sizes.min() < 1e-37)


def arguments(region, count, seed):
    """Arrays of float64, of values that float32 holds too if it has their range. A pair is a range, even in
    the logarithm where its ends have one sign and are 50 times apart; an array is taken as it is."""
    random = np.random.default_rng(seed)
    if all(isinstance(part, tuple) for part in region):
        region = [_spread(random, *part, count) for part in region]
    size = max(np.size(part) for part in region)
    arrays = [np.broadcast_to(np.asarray(part, np.float64), (size,)) for part in region]
    if any(map(is_wide, arrays)):
        return arrays
    return [x.astype(np.float32).astype(np.float64) for x in arrays]


def _spread(random, low, high, count):
    ends = sorted((abs(low), abs(high)))
    if low * high > 0 and ends[1] >= 50 * ends[0]:
        return np.sign(low) * np.exp(random.uniform(*np.log(ends), count))
    return random.uniform(low, high, count)


def error(result, exact, dtype, beside=0.0, gradient=False):
    """The error of one result. Overflow and underflow are those of the dtype, of subnormal numbers too; nothing
    is asked of gradients that overflow."""
    limits = np.finfo(dtype)
    if mpmath.isnan(exact):
        return 0.0 if np.isnan(result) else np.inf
    size = abs(exact)
    if size >= limits.max:
        if gradient:
            return 0.0
        right = np.isinf(result) and (result > 0) == (exact > 0)
        return 0.0 if right or abs(result) > 0.999 * limits.max else np.inf
    if not np.isfinite(result):
        return np.inf
    weight = 1 + abs(float(mpmath.log(size))) if size else 1.0
    size = max(float(size), beside, float(limits.tiny))
    return float(abs(mpmath.mpf(float(result)) - exact)) / float(np.spacing(dtype(size))) / weight


def greatest_errors(function, exact, regions, count, seed=0, beside=0.0, gradient=False):
    """Of each dtype the greatest error, and the arguments it is at."""
    worst = dict.fromkeys(DTYPES, (0.0, ()))
    with mpmath.workdps(DIGITS), ferrax.enable_x64(True):
        for number, region in enumerate(regions):
            arrays = arguments(region, count, seed + number)
            values = [exact(*map(mpmath.mpf, map(float, point))) for point in zip(*arrays)]
            for dtype in DTYPES[1:] if is_wide(np.concatenate(arrays)) else DTYPES:
                results = np.asarray(function(*(jnp.asarray(x, dtype) for x in arrays)))
                assert results.dtype == dtype
                for point, result, value in zip(zip(*arrays), results, values):
                    found = error(result, mpmath.re(value), dtype, beside, gradient)
                    if found > worst[dtype][0]:
                        worst[dtype] = found, (*map(float, point), float(result), mpmath.nstr(value, 10))
    return worst


def check(row, count, seed=0, gradient=False):
    worst = greatest_errors(row.function, row.exact, row.regions, count, seed, row.beside, gradient)
    for dtype, bound in zip(DTYPES, (row.single, row.double)):
        found, point = worst[dtype]
        assert found <= bound, f"{np.dtype(dtype)}: {found:.4g} for {bound} at {point}"
