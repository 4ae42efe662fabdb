"""Elementwise ops at special values: signed zeros, NaN, infinities and subnormal numbers, which XLA takes for
zero, beside NumPy, SciPy and mpmath. Types of 16 bits at each of their numbers, others at random ones too."""

import re

import mpmath
import numpy as np
import pytest
import special_table
from closeness import errors
from special_table import BINARY, UNARY, bits, specials

import ferrax
import ferrax.numpy as jnp

HALVES = ("bfloat16", "float16")
REAL = (*HALVES, "float32", "float64")


@pytest.fixture(autouse=True)
def wide():
    with ferrax.enable_x64(True), np.errstate(all="ignore"):
        yield


def rounded(values, dtype):
    values = np.asarray(values)
    return values if values.dtype == bool else values.astype(dtype)


def check(function, exact, arrays, dtype, **bounds):
    """Eager and compiled, within bounds of the exact values, rounded."""
    wanted = rounded(exact, dtype)
    for how, run in (("eager", function), ("jit", ferrax.jit(function))):
        got = np.asarray(run(*(jnp.asarray(a) for a in arrays)))
        assert got.dtype == wanted.dtype
        if got.dtype == bool:
            np.testing.assert_array_equal(got, wanted, err_msg=how)
            continue
        wrong = errors(got, wanted, zeros=True, **bounds)
        if wrong is not None:
            worst = int(re.search(r"the worst at \((\d+),", wrong)[1])
            pytest.fail(f"{how} at {[float(a[worst]) for a in arrays]}: {wrong.splitlines()[0]}")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(name, dtype):
    """By functions of float64, which has room for numbers that are subnormal here."""
    lax, exact, _ = UNARY[name]
    x = np.concatenate([specials(dtype), bits(dtype, 4000)])
    check(getattr(jnp if lax == "asarray" else ferrax.lax, lax), exact(x.astype(np.float64)), [x], dtype, **special_table.bounds(name, x, dtype))


@pytest.mark.parametrize("name", [name for name, (_, _, exact) in UNARY.items() if exact])
def test_unary_functions_of_double_precision(name):
    lax, near, exact = UNARY[name]
    x = np.concatenate([specials(np.float64), bits(np.float64, 60), np.random.default_rng(2).uniform(-3, 3, 60)])
    wanted = near(x)
    # By NumPy where the number is special or the value follows from its magnitude alone.
    ordinary = np.isfinite(x) & (x != 0) & ~np.isnan(wanted) & (np.abs(x) < 1e5) & ((np.floor(x) != x) | (x > 0))
    with mpmath.workdps(60):
        wanted[ordinary] = [float(exact(mpmath.mpf(float(v)))) for v in x[ordinary]]
    check(getattr(ferrax.lax, lax), wanted, [x], np.float64, **special_table.bounds(name, x, "float64"))


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", BINARY)
def test_binary_functions(name, dtype):
    """At all pairs of special values. In double precision by the same functions, where these are exact."""
    lax, exact = BINARY[name]
    values = np.concatenate([specials(dtype), bits(dtype)[:: 4001] if dtype in HALVES else bits(dtype, 24)])
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(np.float64), y.astype(np.float64))
    check(getattr(ferrax.lax, lax), wanted, [x, y], dtype, **special_table.bounds(name, x, dtype))
