"""`bincount` and histograms: values, batches and derivatives beside the reference, errors."""

import numpy as np
import pytest
from conformance_numpy import (
    ALL,
    BF16,
    Row,
    check_batches,
    check_derivatives,
    check_values,
    parametrise,
    row,
)
from numpy_oracle import check, expressions

import ferrax
import ferrax.numpy as jnp

REAL = tuple(d for d in ALL if np.dtype(d).kind != "c")
INDEX = np.array([3, 0, 0, 7, 1, -2, 3, 11])
EDGES = np.array([-2.0, -0.5, 0.25, 2.0])
# Off the edges that are computed: those are rounded in an order of their own.
POINTS = np.array([-1.7, 0.13, 2.9, 0.13, 1.3, -2.2])


def weighted(dtype, size=8, seed=1):
    return np.random.default_rng(seed).integers(0, 5, size).astype(dtype)


def histogram(label, call, *arrays, dtypes=REAL, **options):
    if len(arrays) > 2 or "2d" in label:
        dtypes = (np.float32, np.float64, np.int32)
    return Row(label, call, [tuple(a.astype(d) for a in arrays) for d in dtypes], **options)


ROWS = [
    Row("bincount", lambda S, x: S.jnp.bincount(x, length=9),
        [(INDEX.astype(d),) for d in (np.int8, np.int32, np.int64)] + [(abs(INDEX).astype(np.uint8),), (INDEX > 0,)]),
    Row("bincount of weights", lambda S, x, w: S.jnp.bincount(x, w, length=9),
        [(INDEX, weighted(d)) for d in ALL[:-1]]),
    Row("bincount of nothing", lambda S, x: S.jnp.bincount(x, length=4), [(np.zeros(0, np.int32),)], batch=False),
    Row("bincount into nothing", lambda S, x: S.jnp.bincount(x, length=0), [(INDEX,)]),
    Row("bincount derivatives", lambda S, w: S.jnp.bincount(S.jnp.asarray(INDEX), w, length=9), [],
        [(weighted(np.float64),), (weighted(np.float64) * 1j,)]),
    histogram("histogram", lambda S, x: S.jnp.histogram(x, 4), POINTS),
    row("histogram of a matrix", lambda S, x: S.jnp.histogram(x, 5), (4, 5), dtypes=(np.float32, np.float64), points=False),
    row("histogram of complex", lambda S, x: S.jnp.histogram(x, 3), (6,), dtypes=(np.complex64,), points=False),
    histogram("histogram in a range", lambda S, x: S.jnp.histogram(x, 4, (-1, 2)), POINTS),
    histogram("histogram of edges", lambda S, x, e: S.jnp.histogram(x, e), np.append(POINTS, [-2, 0.25, 2.0, -9]), EDGES,
              dtypes=[d for d in REAL if np.dtype(d).kind != "u"]),
    histogram("histogram of weights", lambda S, x, w: S.jnp.histogram(x, 4, weights=w), POINTS, weighted(float, 6)),
    histogram("histogram as a density", lambda S, x, w: S.jnp.histogram(x, 3, weights=w, density=True), POINTS,
              weighted(float, 6), points=[(POINTS, weighted(float, 6) + 0.5)]),
    Row("histogram of special values", lambda S, x: S.jnp.histogram(x, S.jnp.asarray(EDGES)), [
        (np.array([np.nan, np.inf, -np.inf, 2.0, -2.0, -0.0]),), (np.array([np.nan]),), (np.zeros(0),)], batch=False),
    Row("histogram derivatives", lambda S, x, w: S.jnp.histogram(x, 3, weights=w), [], [(POINTS, weighted(float, 6))]),
    histogram("histogram_bin_edges", lambda S, x: S.jnp.histogram_bin_edges(x, 4), POINTS, points=[(POINTS,)]),
    histogram("histogram_bin_edges of one value", lambda S, x: S.jnp.histogram_bin_edges(x, 2), np.full(3, 2.0)),
    Row("histogram_bin_edges of traced ends", lambda S, x, a, b: S.jnp.histogram_bin_edges(x, 3, (a, b)),
        [(POINTS, np.float64(1), np.float32(2)), (POINTS.astype(np.float32), np.int32(1), np.float64(1))],
        [(POINTS, np.array(0.5), np.array(3.5))]),
    histogram("histogram2d", lambda S, x, y: S.jnp.histogram2d(x, y, 3), POINTS, POINTS[::-1] * 2),
    histogram("histogram2d of bins", lambda S, x, y, e: S.jnp.histogram2d(x, y, [2, e]), POINTS, POINTS[::-1], EDGES),
    histogram("histogram2d of edges", lambda S, x, y, e: S.jnp.histogram2d(x, y, e), POINTS, POINTS[::-1], EDGES),
    histogram("histogram2d in ranges", lambda S, x, y: S.jnp.histogram2d(x, y, 2, [(-1, 2), None]), POINTS, POINTS[::-1]),
    histogram("histogram2d as a density", lambda S, x, y, w: S.jnp.histogram2d(x, y, 2, weights=w, density=True), POINTS,
              POINTS[::-1], weighted(float, 6), points=[(POINTS, POINTS[::-1] * 2, weighted(float, 6) + 0.5)]),
    row("histogramdd", lambda S, x: S.jnp.histogramdd(x, 3), (20, 3), dtypes=(np.float32, np.float64, np.float16), points=False),
    row("histogramdd of weights", lambda S, x, w: S.jnp.histogramdd(x, (2, 3), [None, (-1, 2)], w), (20, 2), (20,),
        dtypes=(np.float32, np.float64, BF16)),
    row("histogramdd as a density", lambda S, x: S.jnp.histogramdd(x, 3, density=True), (20, 2),
        dtypes=(np.float32, np.float64, np.float16), points=False),
    Row("histogramdd of no points", lambda S, x: S.jnp.histogramdd(x, 2, [(0, 1), (0, 2)]), [(np.zeros((0, 2)),)], batch=False),
]


@parametrise([r for r in ROWS if r.cases])
def test_values(row):
    check_values(row)


@parametrise([r for r in ROWS if r.cases and r.batch])
def test_batches(row):
    check_batches(row)


@parametrise([r for r in ROWS if r.points])
def test_derivatives(row):
    check_derivatives(row)


EXPRESSIONS = """
n.bincount(x); n.bincount(x, x); n.bincount(x, minlength=10); n.bincount(x, minlength=-1); n.bincount(-x)
n.bincount(x[:0]); n.bincount(x > 1); n.bincount(x, length=-1); n.bincount(x[None]); n.bincount(g); n.bincount([1])
n.bincount(3); n.bincount(x, g[:3]); n.bincount(x, 2.0); n.bincount(x, [1] * 7); n.bincount(x, x > 1)
n.bincount(x, minlength=1.5); n.bincount(x, length=1.5); n.bincount(x, length=n.array(4)); n.histogram(g, [1, 2])
n.histogram([1.0]); n.histogram(g, 2.5); n.histogram(g, -3); n.histogram(g, 0); n.histogram(g, n.ones((2, 2)))
n.histogram(g, 2, (1, 2, 3)); n.histogram(g[:0], 2); n.histogram(3.0, 2)
n.histogram(x, 2, weights=g[:3]); n.histogram(g, 2, weights=n.ones((1, 5))); n.histogram(x, 2, weights=[1] * 7)
n.histogram_bin_edges(g, 'auto'); n.histogram_bin_edges(g, 3, weights='any'); n.histogram_bin_edges([1.0], 2)
n.histogram_bin_edges(x, 2, range=n.array([0, 1])); n.histogram_bin_edges(g, 3, (None, 1)); n.histogram2d(g, x)
n.histogram2d(g, g, [3]); n.histogram2d(g, g, (2, 2, 2)); n.histogram2d(g, g, n.array([3])); n.histogram2d([1.0], g)
n.histogram2d(g, x[:5], 2); n.histogramdd(g, 2); n.histogramdd([g, g], 2); n.histogramdd(n.ones((2, 2)), (2,))
n.histogramdd(n.ones((2, 2)), 2, weights=g); n.histogramdd(n.ones((2, 2)), 2, [(0, 1)])
n.histogramdd(n.ones((2, 2)), 2, [(0, 1), (1, 2, 3)]); n.histogramdd(n.ones((3, 0)), 2); n.histogram2d(g[:2], g[2:4], 2, None, x[:2])
"""


@pytest.mark.parametrize("text", expressions(EXPRESSIONS))
def test_keywords_and_errors(text):
    code = compile(text, "<case>", "eval")
    x, g = np.array([0, 1, 1, 3, 2, 1, 7]), np.array([0.5, 1.5, 2.5, 3.0, 0.0], np.float32)
    check(lambda n: eval(code, {"n": n, "x": n.asarray(x), "g": n.asarray(g)}))


def test_traced_arguments_name_the_way_out():
    with pytest.raises(ferrax.errors.ConcretizationTypeError, match="length=n"):
        ferrax.jit(jnp.bincount)(jnp.arange(3))
    with pytest.raises(ferrax.errors.ConcretizationTypeError, match="'bins' argument"):
        ferrax.jit(jnp.histogram)(jnp.arange(3.0), 3)
    with pytest.raises(NotImplementedError, match="bins='auto'"):
        jnp.histogram(jnp.arange(3.0), "auto")


@pytest.mark.parametrize("bins", [1, 100, 255, 256, 1000])
def test_counts_agree_with_the_edges_that_are_returned(bins):
    """Few edges are compared, many are searched."""
    x = jnp.asarray(np.random.default_rng(0).integers(0, 1000, 5000) / 1000, jnp.float32)
    counts, edges = jnp.histogram(x, bins)
    expected, _ = np.histogram(np.asarray(x), np.asarray(edges))
    np.testing.assert_array_equal(np.asarray(counts), expected)
    assert float(counts.sum()) == x.size
