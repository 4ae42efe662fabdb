"""Counts of integers and histograms.

Invariant: a value's bin is found among the edges themselves, never computed from a bin's width, so
that it agrees with comparisons to the edges that are returned.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.core import Array, as_array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.numpy import reductions
from ferrax._src.numpy.array_creation import asarray, linspace, zeros
from ferrax._src.numpy.joining import stack
from ferrax._src.numpy.matrices import ravel_multi_index
from ferrax._src.numpy.numeric import diff, search_right
from ferrax._src.numpy.util import (
    canonical_shape,
    check_array_like,
    convert,
    ensure_array,
    ensure_arrays,
    is_subdtype,
    promote_dtypes,
    promote_dtypes_inexact,
    strong_constant,
    where,
)
from ferrax._src.transforms.jit import jit


def bincount(
    x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0, *, length: Any = None,
    out_sharding: Any = None,
) -> Array:
    """How often each of 0, 1, 2, … occurs in an integer vector, or the sum of its weights.

    Args: x: integers (or bools) of one axis; negative ones count as 0. weights: one for each
    element, whose dtype the result has. minlength: the result has at least so many elements.
    length: it has exactly so many, larger values are dropped; needed where `x` is traced.
    out_sharding: how the result is divided over a mesh.
    Raises: TypeError for other dtypes and a negative length; ValueError for other ranks and
    weights of another shape; ConcretizationTypeError for a traced `x` without `length`.

    >>> jnp.bincount(jnp.array([0, 2, 2]))
    Array([1, 0, 2], dtype=int32)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "bincount", out_sharding, bincount, x, weights, minlength, length=length,
        )  # fmt: skip
    x = ensure_array(x, "bincount")
    if is_subdtype(x, np.bool_):
        x = lax.convert_element_type(x, np.int32)
    if not is_subdtype(x, np.integer):
        raise TypeError(f"bincount: x counts integers, got {x.dtype}; convert it with astype")
    if x.ndim != 1:
        raise ValueError(f"only 1-dimensional input supported: bincount got shape {tuple(x.shape)}")
    minlength = concrete_or_error(operator.index, minlength, "'minlength' argument of jnp.bincount")
    if length is None:
        # All processes have the largest of an array of which each has some parts.
        largest = concrete_or_error(
            int, reductions.max(x, initial=-1), "The largest element decides the shape. Say how many bins there are: "
            "jnp.bincount(x, length=n)."
        ) if x.size else -1
        length = max(minlength, largest + 1)
    else:
        (length,) = canonical_shape(
            concrete_or_error(operator.index, length, "'length' argument of jnp.bincount")
        )
    if weights is None:
        weights = as_array(np.ones((), dtypes.default_int_dtype()))
    else:
        weights = ensure_array(weights, "bincount")
        if weights.shape != x.shape:
            raise ValueError(
                "jnp.bincount: weights must have the shape of x, got shapes"
                f" {tuple(weights.shape)} and {tuple(x.shape)}"
            )
    position = lax.max(x, strong_constant(0, x))
    return zeros((length,), weights.dtype).at[position].add(weights, mode="drop")


# ---------------------------------------------------------------------------- histograms

# Up to so many edges are all compared, in one kernel; more are searched.
_COMPARED = 256


@jit
def _edges_up_to(edges, x):
    """How many of the edges, which increase, are not above each of the values."""
    count = edges.shape[0]
    if count > _COMPARED or is_subdtype(x, np.complexfloating):
        return search_right(edges, x)
    shape = (count, *x.shape)
    wide = lax.broadcast_in_dim(x, shape, tuple(range(1, len(shape))))
    below = lax.le(lax.broadcast_in_dim(edges, shape, (0,)), wide)
    return lax.reduce_sum(lax.convert_element_type(below, np.int32), axes=(0,))


def histogram_bin_edges(
    a: ArrayLike, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None,
) -> Array:
    """The edges of the bins of a histogram, in floats.

    Args: a: array. bins: a number of bins of one width, or the edges as a vector that increases.
    range: first and last edge, by default the extrema of `a`; half a unit is added on both sides of
    an empty range. weights: not used.
    Raises: ValueError for an empty `a` without `range`, and for a range that is no pair; TypeError
    for bins of other kinds; NotImplementedError for names of rules, such as "auto".

    >>> jnp.histogram_bin_edges(jnp.array([0.0, 4.0]), 4)
    Array([0., 1., 2., 3., 4.], dtype=float32)
    """
    del weights
    if isinstance(bins, str):
        raise NotImplementedError(
            f"ferrax.numpy.histogram_bin_edges: bins={bins!r}: no rules for numbers of bins are"
            " implemented; pass a number or the edges."
        )
    check_array_like("histogram_bin_edges", a, bins)
    a = ensure_array(a, "histogram_bin_edges")
    dtype = dtypes.to_inexact_dtype(a.dtype)
    if np.ndim(bins) == 1:
        return asarray(bins, dtype=dtype)
    count = concrete_or_error(operator.index, bins, "'bins' argument of jnp.histogram_bin_edges")
    if range is None:
        ends = stack([reductions.min(a), reductions.max(a)])
    else:
        ends = asarray(range)
    ends = convert(ends, dtype)
    if tuple(ends.shape) != (2,):
        raise ValueError(
            "histogram_bin_edges: range is None or the pair of its ends, got an array of shape"
            f" {tuple(ends.shape)}"
        )
    low, high = (lax.index_in_dim(ends, i, keepdims=False) for i in (0, 1))
    empty = ufuncs.equal(low, high)
    half = strong_constant(0.5, low)
    return linspace(
        where(empty, lax.sub(low, half), low),
        where(empty, lax.add(high, half), high),
        count + 1,
        dtype=dtype,
    )


def histogram(
    a: ArrayLike, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None,
    density: bool | None = None, out_sharding: Any = None,
) -> tuple[Array, Array]:
    """Numbers of elements, or sums of weights, in bins: (counts, edges).

    The last bin contains both of its edges, the others the left one. NaN and values outside are in
    none.

    Args: a: array of any shape. bins, range: see `histogram_bin_edges`. weights: one for each
    element. density: divide by the bins' widths and the total. out_sharding: how counts and edges are divided over
    explicit axes of a mesh, a `PartitionSpec` or a `NamedSharding`; None: as operations give them.
    Returns: counts (bins,) in the float dtype of `a` and the weights, edges (bins + 1,).
    Raises: ValueError for weights of another shape, and as `histogram_bin_edges`.

    >>> jnp.histogram(jnp.array([0.0, 1.0, 3.0, 4.0]), 2)
    (Array([2., 2.], dtype=float32), Array([0., 2., 4.], dtype=float32))
    """
    if isinstance(bins, str):
        histogram_bin_edges(a, bins)  # raises
    if weights is None:
        check_array_like("histogram", a, bins)
        (a,) = promote_dtypes_inexact(ensure_array(a, "histogram"))
        weights = lax.full_like(a, 1)
    else:
        check_array_like("histogram", a, bins, weights)
        a, weights = ensure_arrays("histogram", a, weights)
        if a.shape != weights.shape:
            raise ValueError(
                f"histogram: weights of shape {tuple(weights.shape)} for elements of shape"
                f" {tuple(a.shape)}; each has one"
            )
        a, weights = promote_dtypes_inexact(a, weights)
    if out_sharding is None:
        return _histogram(a, bins, range, weights, density)

    def part(number):
        return lambda: _histogram(a, bins, range, weights, density)[number]

    counts, edges = (with_out_sharding("histogram", out_sharding, part(number)) for number in (0, 1))
    return counts, edges


def _histogram(a, bins, range, weights, density):
    """As `histogram`, of elements and weights of one float dtype."""
    edges = histogram_bin_edges(a, bins, range)
    # The bins are counted from 1; 0 is what is below, and dropped.
    last = lax.index_in_dim(edges, -1, keepdims=False)
    after = as_array(np.int32(edges.shape[0] - 1))
    position = where(ufuncs.equal(a, last), after, _edges_up_to(edges, a))
    sums = zeros((edges.shape[0],), weights.dtype).at[position].add(weights)
    counts = lax.slice_in_dim(sums, 1, None, axis=0)
    if density:
        counts = ufuncs.true_divide(ufuncs.true_divide(counts, diff(edges)), reductions.sum(counts))
    return counts, edges


def histogram2d(
    x: ArrayLike, y: ArrayLike, bins: Any = 10, range: Any = None,
    weights: ArrayLike | None = None, density: bool | None = None,
) -> tuple[Array, Array, Array]:
    """`histogramdd` of two vectors of coordinates: (counts, edges of x, edges of y).

    Args: bins: a number, a pair of numbers or vectors, or edges for both. The others as for
    `histogramdd`. Raises TypeError for vectors of several sizes, and as `histogramdd`.

    >>> jnp.histogram2d(jnp.arange(3.0), jnp.arange(3.0), 3)[0]
    Array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]], dtype=int32)
    """
    x, y = promote_dtypes(*ensure_arrays("histogram2d", x, y))
    if x.shape != y.shape:
        raise TypeError(
            "jnp.histogram2d: x and y must have one shape, got"
            f" {tuple(x.shape)} and {tuple(y.shape)}"
        )
    try:
        count = len(bins)
    except TypeError:
        count = 1
    if count not in (1, 2):
        bins = [asarray(bins)] * 2
    hist, edges = histogramdd(stack([x, y], axis=-1), bins, range, weights, density)
    return hist, edges[0], edges[1]


def histogramdd(
    sample: ArrayLike, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, list[Array]]:
    """Numbers of points, or sums of weights, in the cells of a grid: (counts, list of edges).

    Args: sample: (n, d), a point in a row. bins: a number, or for each coordinate a number or a
    vector of edges. range: for each coordinate None or a pair. weights: (n,). density: divide by
    the cells' volumes and the total.
    Returns: counts of d axes, integers unless there are weights or `density` is true; d vectors.
    Raises: ValueError for weights, bins or ranges that do not match the sample, for d = 0, and as
    `histogram_bin_edges`.

    >>> counts, edges = jnp.histogramdd(jnp.ones((5, 3)), 2)
    >>> counts.shape, counts.sum(), len(edges)
    ((2, 2, 2), Array(5, dtype=int32), 3)
    """
    sample = ensure_array(sample, "histogramdd")
    if weights is None:
        (sample,) = promote_dtypes_inexact(sample)
    else:
        weights = ensure_array(weights, "histogramdd")
        if tuple(weights.shape) != tuple(sample.shape[:1]):
            raise ValueError(
                f"histogramdd: weights of shape {tuple(weights.shape)} for a sample of shape"
                f" {tuple(sample.shape)}; each row has one"
            )
        sample, weights = promote_dtypes_inexact(sample, weights)
    if sample.ndim != 2 or sample.shape[1] == 0:
        raise ValueError(
            "jnp.histogramdd: expected a sample of shape (points, coordinates) with at least one"
            f" coordinate, got {tuple(sample.shape)}"
        )
    size = sample.shape[1]
    if range is not None and (
        len(range) != size or any(r is not None and np.shape(r)[:1] != (2,) for r in range)
    ):
        raise ValueError(
            f"histogramdd: range needs a pair or None for each of the {size} columns of"
            f" sample, got {range}"
        )
    try:
        bins = list(bins)
    except TypeError:
        bins = [bins] * size
    if len(bins) != size:
        raise ValueError(
            f"histogramdd: bins has a number or edges for each of {size} columns, got {len(bins)}"
        )
    edges, positions = [], []
    for i in builtins.range(size):
        values = lax.index_in_dim(sample, i, axis=1, keepdims=False)
        edges.append(histogram_bin_edges(values, bins[i], None if range is None else range[i]))
        last = lax.index_in_dim(edges[-1], -1, keepdims=False)
        position = _edges_up_to(edges[-1], values)
        before = lax.sub(position, as_array(np.int32(1)))
        positions.append(where(ufuncs.equal(values, last), before, position))
    # One cell more on each side takes what is outside.
    cells = tuple(e.shape[0] + 1 for e in edges)
    flat = ravel_multi_index(tuple(positions), cells, mode="clip")
    hist = lax.reshape(bincount(flat, weights, length=math.prod(cells)), cells)
    hist = lax.slice(hist, (1,) * size, tuple(n - 1 for n in cells))
    if density:
        hist = convert(hist, sample.dtype)
        hist = ufuncs.true_divide(hist, reductions.sum(hist))
        for i, e in enumerate(edges):
            widths = lax.reshape(
                diff(e), tuple(e.shape[0] - 1 if d == i else 1 for d in builtins.range(size))
            )
            hist = ufuncs.true_divide(hist, widths)
    return hist, edges
