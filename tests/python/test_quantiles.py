"""Medians, quantiles and percentiles against the reference."""

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest
from numpy_oracle import check
from oracle import compare_arrays

import ferrax
import ferrax.numpy as ferrax_numpy

NAN = np.nan
TABLE = np.array([[3.0, 1.0, NAN, 2.0], [0.0, -0.0, 5.0, 1.0], [7.0, 1.5, 1.0, -2.0]], np.float32)
ARRAYS = {
    "f32": TABLE,
    "f16": TABLE.astype(np.float16),
    "i32": np.array([[3, 1, 9, 2], [0, 5, 5, 1]]),
    "u8": np.array([[3, 255, 9, 2], [0, 5, 5, 1]], np.uint8),
    "bool": np.array([[True, False, True]]),
    "lines": np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32),
}
METHODS = ["linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf"]


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("method", METHODS)
def test_methods(method, kind):
    for name in ("quantile", "nanquantile"):
        for q in (0.3, np.float32([0.0, 0.25, 1.0, 1.5, -0.5]), np.float16([0.5])):
            # The reference has no weighted quantiles at parts of another dtype.
            if method == "inverted_cdf":
                q = np.asarray(q, np.float16 if kind == "f16" else np.float32)
            for axis in (None, 0, -1):
                check(lambda n, a, q: getattr(n, name)(a, q, axis=axis, method=method), ARRAYS[kind], q)  # noqa: B023


@pytest.mark.raises("AxisError", "ValueError")
@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("name", ["median", "nanmedian", "percentile", "nanpercentile"])
def test_shapes(name, kind):
    q = () if "median" in name else (np.array([30, 60]),)
    # Between neighbours of different signs.
    cancels = 1.0 if kind == "lines" and "percentile" in name else 0.0
    for axis in (None, 0, 1, (0, 1), (1, 0), (), (0, 0), 3, (0, -1)):
        for keepdims in (False, True):
            call = lambda n, a, *q: getattr(n, name)(a, *q, axis=axis, keepdims=keepdims)  # noqa: B023, E731
            check(call, ARRAYS[kind], *q, cancels=cancels)


EXPRESSIONS = """
n.quantile(x, 0); n.quantile(x, 1j); n.quantile(x, n.array([0, 1])); n.quantile(x, [0.5]); n.quantile([1, 2], 0.5)
n.quantile(x, n.ones((2, 2))); n.quantile(x, 0.5, method="hazen"); n.quantile(x, 0.5, out=1); n.median(x, out=1)
n.quantile(x, 0.5, overwrite_input=True); n.nanmedian(x, overwrite_input=True); n.percentile(x, 50, overwrite_input=True)
n.quantile(x + 0j, 0.5); n.median(x * 1j); n.quantile(n.ones(0), 0.5); n.quantile(n.ones((0, 3)), 0.5, axis=0)
n.quantile(n.ones((0, 3)), 0.5, axis=1); n.nanquantile(n.ones((0, 3)), 0.5, axis=0); n.median(n.ones(0)); n.nanmedian(n.ones((0, 3)), 1)
n.quantile(2.0, 0.5); n.quantile(3, 0.5); n.median(3); n.median(2.5); n.quantile(n.float32(3), n.array([0.1, 0.2])); n.quantile(2.0, 0.5, axis=0)
n.quantile(x, np.nan); n.nanquantile(x, n.array([0.5, np.nan])); n.percentile(x, 101.0); n.percentile(x, 50); n.percentile(x[0], n.array(50))
n.quantile(n.broadcast_to(2.5, (3,)), 0.5); n.quantile(n.ones(3, "bfloat16"), n.float32(0.4)); n.quantile(n.arange(4), np.float64(0.4))
n.quantile(n.arange(9.0), n.array([0.1, 0.77], "bfloat16")); n.percentile(n.arange(9, dtype="float16"), 33.3)
n.nanmedian(n.array([np.nan, np.nan])); n.nanquantile(n.array([1, np.nan, 3]), 0.2); n.median(n.array([1, np.nan, 4]))
n.percentile(x, True); n.median(n.array([True, False])); n.median("a"); n.percentile("a", 3)
n.quantile(x, 0.5, weights=n.ones(4)); n.quantile(x, 0.5, weights=n.ones(4), method="inverted_cdf")
n.quantile(x[1], 0.5, weights=n.array([1, 0, 2, 4]), method="inverted_cdf"); n.quantile(x, 0.5, 1, weights=n.array([1, 0, 2, 4]), method="inverted_cdf")
n.quantile(x, n.array([0.0, 0.4, 1.0]), 1, weights=n.ones((3, 4)), method="inverted_cdf", keepdims=True)
n.quantile(x, 0.5, 1, weights=n.ones(3), method="inverted_cdf"); n.quantile(x, 0.5, 0, weights=[1, 2, 3], method="inverted_cdf")
n.quantile(x[1], 0.5, weights=n.ones(4) * 1j, method="inverted_cdf"); n.quantile(x[1], 0.5, weights=1.0, method="inverted_cdf")
n.percentile(n.arange(4.0), 50, method="inverted_cdf", weights=n.array([1, np.nan, 1, 1])); n.quantile(x[1], 0.5, weights=n.zeros(4), method="inverted_cdf")
n.nanpercentile(n.arange(4.0), 50, method="inverted_cdf", weights=n.array([1, -1, 1, 1])); n.quantile(n.arange(4.0), n.array([0.5, np.nan]), method="inverted_cdf")
n.nanquantile(n.array([3.0, np.nan, 1.0]), n.array([0.0, 0.2, 0.5, 1.0]), weights=n.array([1, 5, 2.0]), method="inverted_cdf")
n.quantile(n.arange(6.0).reshape(2, 3), 0.5, weights=n.array([[3, 1, 2], [1, 1, 1]]), method="inverted_cdf", axis=(1, 0))
n.quantile(x, 0.5, interpolation="lower"); n.nanquantile(n.array([[1, np.nan], [np.nan, np.nan]]), n.array([0.5, 0.2]), axis=0, method="inverted_cdf")
"""


@pytest.mark.parametrize("expression", [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split("; ")])
def test_arguments(expression):
    code = compile(expression, "table", "eval")
    for jit in (False, True):
        check(lambda n, x: eval(code, {"n": n, "x": x, "np": np}), TABLE, jit=jit)


@pytest.mark.parametrize("name", ["median", "nanmedian", "quantile", "nanquantile", "weighted"])
def test_derivatives(name):
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    if name.startswith("nan"):
        x[0, 2] = NAN

    def value(numpy, x, q):
        if name == "weighted":
            return numpy.quantile(x, q, axis=1, weights=numpy.arange(1.0, 6.0), method="inverted_cdf")
        arguments = () if "median" in name else (q,)
        return getattr(numpy, name)(x, *arguments, axis=1)

    def derivatives(module, numpy):
        f = lambda x, q: (value(numpy, x, q) ** 2).sum()  # noqa: E731
        lanes = numpy.stack([x, 2 * x])
        arguments = numpy.asarray(x), numpy.float32(0.3)
        return [*module.grad(f, (0, 1))(*arguments), module.hessian(f)(*arguments),
                module.jit(module.vmap(module.grad(f), (0, None)))(lanes, arguments[1])]

    for got, expected in zip(derivatives(ferrax, ferrax_numpy), derivatives(jax, jax_numpy), strict=True):
        compare_arrays(got, expected)
