"""Differences, integration, interpolation, covariance, polynomials' values, phase unwrapping.

Invariant: integer input is promoted to floats once, at the start, wherever a division follows.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.base.jax_version import follows
from ferrax._src.composed.polynomial import polynomial
from ferrax._src.core import Array, as_array
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import cumulative, reductions
from ferrax._src.numpy.joining import atleast_2d, concatenate
from ferrax._src.numpy.rearrangement import _take_rows
from ferrax._src.numpy.rounding import clip
from ferrax._src.numpy.shape import moveaxis, ravel, squeeze
from ferrax._src.numpy.ufuncs import floor_divide, isfinite, isinf, remainder
from ferrax._src.numpy.util import (
    broadcast_to,
    convert,
    ensure_array,
    ensure_arrays,
    is_subdtype,
    normalize_axes,
    normalize_axis,
    promote_args_inexact,
    promote_dtypes,
    promote_dtypes_inexact,
    strong_constant,
    user_dtype,
    where,
)
from ferrax._src.transforms.jit import jit


def _slice(x, start, stop, axis):
    return lax.slice_in_dim(x, start, stop, axis=axis)


@jit(static_argnames=("n", "axis"))
def diff(
    a: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Array:
    """n-th differences along an axis; booleans give exclusive or.

    Args: prepend, append: values joined at the ends first. Raises ValueError for negative n or a
    scalar.

    a: array; n: how often; axis: the axis.

    >>> jnp.diff(jnp.array([1, 4, 9]))
    Array([3, 5], dtype=int32)
    """
    a = ensure_array(a, "diff")
    n = operator.index(n)
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"diff: n has to be 0 or more, got {n}")
    if a.ndim == 0:
        raise ValueError("diff: a scalar has no axis along which to take differences")
    axis = normalize_axis(axis, a.ndim)
    end_shape = tuple(1 if d == axis else m for d, m in enumerate(a.shape))

    def end(given: ArrayLike) -> list[Array]:
        x = ensure_array(given, "diff")
        return [broadcast_to(x, end_shape) if x.ndim == 0 else x]

    parts = (end(prepend) if prepend is not None else []) + [a]
    parts += end(append) if append is not None else []
    if len(parts) > 1:
        a = concatenate(parts, axis=axis)
    for _ in range(n):
        m = a.shape[axis]
        later, earlier = _slice(a, min(1, m), m, axis), _slice(a, 0, max(m - 1, 0), axis)
        a = lax.ne(later, earlier) if is_subdtype(a, np.bool_) else lax.sub(later, earlier)
    return a


@jit
def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Array:
    """Differences of the flattened array, with values to put before and after.

    Args: ary: array; to_end, to_begin: None, or values of its dtype kind.

    >>> jnp.ediff1d(jnp.array([1, 4, 9]), to_end=0)
    Array([3, 5, 0], dtype=int32)
    """
    flat = ravel(ensure_array(ary, "ediff1d"))
    m = flat.shape[0]
    out = lax.sub(_slice(flat, min(1, m), m, 0), _slice(flat, 0, max(m - 1, 0), 0))
    if to_begin is not None:
        out = concatenate([ravel(convert(ensure_array(to_begin, "ediff1d"), out.dtype)), out])
    if to_end is not None:
        out = concatenate([out, ravel(convert(ensure_array(to_end, "ediff1d"), out.dtype))])
    return out


@jit(static_argnames=("axis", "edge_order"))
def gradient(f: ArrayLike, *varargs: ArrayLike, axis: Any = None, edge_order: int | None = None) -> Any:
    """Central differences inside, one-sided at the ends.

    Args: varargs: no spacing, one scalar, or one scalar or coordinate vector per axis; axis: the
    axes. Returns one array per axis, in a list if there are several.

    f: array of numbers; edge_order: None or 1. Raises: TypeError for another number of spacings,
    ValueError for fewer than two elements along an axis.

    >>> jnp.gradient(jnp.array([1.0, 4.0, 9.0, 16.0]))
    Array([3., 4., 6., 7.], dtype=float32)
    """
    if edge_order is not None:
        raise NotImplementedError(
            "gradient: edges are of first order; leave out the argument edge_order")
    (f,) = promote_args_inexact("gradient", f)
    axes = normalize_axes(axis, f.ndim)
    if any(f.shape[d] < 2 for d in axes):
        raise ValueError(
            "gradient: differences need two elements or more along each axis, got shape"
            f" {tuple(f.shape)}")
    if len(varargs) not in (0, 1, len(axes)):
        raise TypeError(
            f"gradient: one spacing or one for each of {len(axes)} axes, got {len(varargs)}")
    spacings: tuple[Any, ...] = varargs or (1.0,)
    if len(spacings) == 1:
        spacings *= len(axes)
    out = [_gradient_along(f, ensure_array(h, "gradient"), d) for h, d in zip(spacings, axes)]
    return out[0] if len(out) == 1 else out


def _gradient_along(f, h, axis):
    n = f.shape[axis]
    first = lax.sub(_slice(f, 1, 2, axis), _slice(f, 0, 1, axis))
    last = lax.sub(_slice(f, n - 1, n, axis), _slice(f, n - 2, n - 1, axis))
    if h.ndim == 0:
        step = convert(h, f.dtype)
        inner = lax.mul(lax.sub(_slice(f, 2, n, axis), _slice(f, 0, n - 2, axis)),
                        strong_constant(0.5, f))
        return lax.div(concatenate([first, inner, last], axis=axis), step)
    if h.ndim != 1 or h.shape[0] != n:
        raise ValueError(
            f"jnp.gradient: spacing along axis {axis} must be a scalar or a vector of {n}"
            f" coordinates, got shape {tuple(h.shape)}")
    steps = diff(convert(h, f.dtype))
    dims = tuple(-1 if d == axis else 1 for d in range(f.ndim))

    def along(x):
        return lax.reshape(x, tuple(x.shape[0] if d == -1 else 1 for d in dims))

    left, right = along(_slice(steps, 0, n - 2, 0)), along(_slice(steps, 1, n - 1, 0))
    total = ufuncs.add(left, right)
    low = ufuncs.negative(ufuncs.true_divide(right, ufuncs.multiply(left, total)))
    mid = ufuncs.true_divide(ufuncs.subtract(right, left), ufuncs.multiply(left, right))
    high = ufuncs.true_divide(left, ufuncs.multiply(right, total))
    inner = ufuncs.add(
        ufuncs.add(ufuncs.multiply(low, _slice(f, 0, n - 2, axis)),
                   ufuncs.multiply(mid, _slice(f, 1, n - 1, axis))),
        ufuncs.multiply(high, _slice(f, 2, n, axis)))
    first = ufuncs.true_divide(first, along(_slice(steps, 0, 1, 0)))
    last = ufuncs.true_divide(last, along(_slice(steps, n - 2, n - 1, 0)))
    return concatenate([first, inner, last], axis=axis)


@jit(static_argnames=("axis",))
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """Integral along an axis by the trapezoidal rule, over coordinates `x` or steps `dx`.

    An array of steps broadcasts against the intervals, whose axes are those of the values.

    Args: y: array of values; x: None, or coordinates; dx: steps, unless there is `x`; axis: the
    axis.

    >>> jnp.trapezoid(jnp.array([1.0, 2.0, 3.0]), dx=2.0)
    Array(8., dtype=float32)
    """
    given_steps = x is None
    if x is None and np.ndim(dx) == 0:
        (y,) = promote_args_inexact("trapezoid", y)
        dx = convert(dx, y.dtype)
        y = moveaxis(y, axis, -1)
        n = y.shape[-1]
        ends = lax.add(lax.index_in_dim(y, 0, -1, keepdims=False),
                       lax.index_in_dim(y, n - 1, -1, keepdims=False))
        inner = lax.sub(reductions.sum(y, -1), lax.mul(strong_constant(0.5, y), ends))
        return ufuncs.multiply(dx, inner)
    y, x = promote_dtypes_inexact(*ensure_arrays("trapezoid", y, dx if x is None else x))
    y = moveaxis(y, axis, -1)
    if given_steps:
        steps = lax.expand_dims(x, tuple(range(max(y.ndim - x.ndim, 0))))
        steps = moveaxis(steps, axis, -1)
    else:
        steps = diff(x) if x.ndim == 1 else moveaxis(diff(x, axis=axis), axis, -1)
    n = y.shape[-1]
    pairs = lax.add(_slice(y, 1, n, y.ndim - 1), _slice(y, 0, n - 1, y.ndim - 1))
    return lax.mul(strong_constant(0.5, y), reductions.sum(ufuncs.multiply(steps, pairs), -1))


def search_right(sorted_values, x):
    """Number of sorted values that are <= x, by a binary search unrolled to log2(n) steps."""
    n = sorted_values.shape[0]
    # Complex numbers are ordered by their real parts, then by their imaginary ones.
    le = ufuncs.less_equal if is_subdtype(x, np.complexfloating) else lax.le
    low = lax.full(x.shape, 0, np.int32)
    high = lax.full(x.shape, n, np.int32)
    for _ in range(n.bit_length()):
        middle = lax.shift_right_logical(lax.add(low, high), as_array(np.int32(1)))
        # A search that has ended behind the last value reads that one, to no effect.
        flat = lax.reshape(lax.min(middle, as_array(np.int32(n - 1))), (middle.size,))
        probe = lax.reshape(_take_rows(sorted_values, flat, 0), x.shape)
        go_right = lax.bitwise_and(le(probe, x), lax.lt(low, high))
        next_low = lax.select(go_right, lax.add(middle, as_array(np.int32(1))), low)
        high = lax.select(go_right, high, middle)
        low = next_low
    return low


@jit(static_argnames=("left", "right"))
def _interp_static_ends(x, xp, fp, left, right, period):
    return _interp(x, xp, fp, left, right, period)


@jit
def _interp_jit(x, xp, fp, left=None, right=None, period=None):
    return _interp(x, xp, fp, left, right, period)


def _sorted_by_first(keys, values):
    """Both vectors in the stable order of `keys`, by counting for each how many come before it."""
    n = keys.shape[0]
    row = lax.broadcast_in_dim(keys, (n, n), (1,))
    column = lax.broadcast_in_dim(keys, (n, n), (0,))
    earlier = lax.lt(lax.broadcasted_iota(np.int32, (n, n), 1),
                     lax.broadcasted_iota(np.int32, (n, n), 0))
    before = lax.bitwise_or(lax.lt(row, column), lax.bitwise_and(lax.eq(row, column), earlier))
    rank = lax.reduce_sum(lax.convert_element_type(before, np.int32), axes=(1,))
    return keys.at[rank].set(keys), values.at[rank].set(values)


def _interp(x, xp, fp, left, right, period):
    x, xp, fp = ensure_arrays("interp", x, xp, fp)
    if xp.shape != fp.shape or xp.ndim != 1:
        raise ValueError(f"interp: xp and fp have to be vectors of one length, got {xp.shape}, {fp.shape}")
    x, xp = promote_dtypes_inexact(x, xp)
    (fp,) = promote_dtypes_inexact(fp)
    if is_subdtype(x, np.complexfloating):
        raise ValueError("interp: complex x have no order; only fp may be complex")
    if period is not None:
        period = convert(ufuncs.abs(ensure_array(period, "interp")), x.dtype)
        if period.ndim:
            raise ValueError(f"interp: period must be a scalar, got shape {period.shape}")
        x, xp = remainder(x, period), remainder(xp, period)
        xp, fp = _sorted_by_first(xp, fp)
        n = xp.shape[0]
        xp = concatenate([ufuncs.subtract(_slice(xp, n - 1, n, 0), period), xp,
                          ufuncs.add(_slice(xp, 0, 1, 0), period)])
        fp = concatenate([_slice(fp, n - 1, n, 0), fp, _slice(fp, 0, 1, 0)])
    n = xp.shape[0]
    flat = lax.reshape(x, (x.size,))
    i = clip(search_right(xp, flat), 1, max(n - 1, 1))
    before = lax.sub(i, as_array(np.int32(1)))
    x0, x1 = _take_rows(xp, before, 0), _take_rows(xp, i, 0)
    f0, f1 = _take_rows(fp, before, 0), _take_rows(fp, i, 0)
    width, delta = lax.sub(x1, x0), lax.sub(flat, x0)
    epsilon = strong_constant(np.spacing(dtypes.finfo(x.dtype).eps).astype(x.dtype), width)
    tiny = lax.le(lax.abs(width), epsilon)
    part = ufuncs.true_divide(delta, where(tiny, strong_constant(1, width), width))
    # From an infinite place it is all the way, to one it is the start, but for the ends themselves.
    there = lax.bitwise_or(lax.eq(flat, x1), lax.bitwise_and(isinf(x0), lax.ne(flat, x0)))
    part = where(isinf(width), convert(there, part.dtype), part)
    rise = lax.sub(f1, f0)
    value = ufuncs.add(f0, ufuncs.multiply(part, rise))
    # Infinite values count where they have a weight.
    ends = ((f0, lax.sub(lax.full_like(part, 1), part)), (f1, part))
    terms = [where(lax.eq(w, lax.full_like(w, 0)), 0, ufuncs.multiply(w, f)) for f, w in ends]
    value = where(isfinite(rise), value, ufuncs.add(*terms))
    value = where(tiny, f0, value)
    if period is None:
        first, last = _slice(xp, 0, 1, 0), _slice(xp, n - 1, n, 0)
        if left != "extrapolate" if isinstance(left, str) else True:
            end = _slice(fp, 0, 1, 0) if left is None else left
            value = where(ufuncs.less(flat, first), end, value)
        if right != "extrapolate" if isinstance(right, str) else True:
            end = _slice(fp, n - 1, n, 0) if right is None else right
            value = where(ufuncs.greater(flat, last), end, value)
    return lax.reshape(value, x.shape)


def interp(
    x: ArrayLike, xp: ArrayLike, fp: ArrayLike, left: ArrayLike | None = None,
    right: ArrayLike | None = None, period: ArrayLike | None = None,
) -> Array:
    """Piecewise linear interpolation at `x` of points (xp, fp), `xp` increasing.

    Args: left, right: values outside, or "extrapolate" (default: the end values); period: wraps
    `x` and `xp` (then `xp` need not be sorted).

    Raises: ValueError unless xp and fp are vectors of one size.

    >>> jnp.interp(jnp.array([0.5, 9.0]), jnp.array([0.0, 1.0]), jnp.array([10.0, 20.0]))
    Array([15., 20.], dtype=float32)
    """
    for end in (left, right):
        if isinstance(end, str) and end != "extrapolate":
            raise ValueError(
                f"interp: left and right are numbers, None or 'extrapolate', got {end!r}")
    if isinstance(left, str) or isinstance(right, str):
        return _interp_static_ends(x, xp, fp, left, right, period)
    return _interp_jit(x, xp, fp, left, right, period)


@jit(static_argnames=("rowvar", "bias", "ddof", "dtype"))
def cov(
    m: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, bias: bool = False,
    ddof: int | float | None = None, fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None, dtype: DTypeLike | None = None,
) -> Array:
    """Covariance matrix of variables (rows of `m`, or columns).

    Args: y: more variables; bias: divide by N; ddof: overrides bias; fweights: integer counts;
    aweights: importance weights. Raises ValueError above rank 2.

    m: vector or matrix; rowvar: whether rows are variables; dtype: of the computation.

    >>> jnp.cov(jnp.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    dtype = user_dtype(dtype, "cov")
    m = ensure_array(m, "cov")
    if y is not None:
        y = ensure_array(y, "cov")
        m, y = promote_dtypes_inexact(m, y)
        if y.ndim > 2:
            raise ValueError("y has more than 2 dimensions")
    else:
        (m,) = promote_args_inexact("cov", m)
    if m.ndim > 2:
        raise ValueError("m has more than 2 dimensions")
    if dtype is not None:
        m = convert(m, dtype)
    X = atleast_2d(m)
    if not rowvar and m.ndim != 1:
        X = lax.transpose(X, (1, 0))
    if X.shape[0] == 0:
        return lax.full((0, 0), 0, X.dtype)
    if y is not None:
        Y = atleast_2d(convert(y, X.dtype))
        if not rowvar and Y.shape[0] != 1:
            Y = lax.transpose(Y, (1, 0))
        X = concatenate([X, Y], axis=0)
    if X.shape[1] == 0:
        # No observation says nothing about the mean nor about what is around it.
        return squeeze(lax.full((X.shape[0],) * 2, math.nan, X.dtype))
    if ddof is None:
        ddof = 0 if bias else 1
    w = None
    for name, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is None:
            continue
        weights = ensure_array(weights, "cov")
        if weights.ndim > 1:
            raise RuntimeError(f"cannot handle multidimensional {name}")
        if weights.shape[0] != X.shape[1]:
            raise RuntimeError(f"incompatible numbers of samples and {name}")
        if name == "fweights" and not is_subdtype(weights, np.integer):
            raise TypeError("fweights must be integer.")
        weights = ufuncs.abs(weights)
        w = weights if w is None else ufuncs.multiply(w, weights)
    average, total = reductions.average(X, axis=1, weights=w, returned=True)
    total = lax.index_in_dim(total, 0, keepdims=False)
    if w is None:
        divisor = as_array(np.asarray(X.shape[1] - ddof, X.dtype))
    elif ddof == 0:
        divisor = total
    elif aweights is None:
        divisor = ufuncs.subtract(total, ddof)
    else:
        spread = reductions.sum(ufuncs.multiply(w, ufuncs.abs(ensure_array(aweights, "cov"))))
        divisor = ufuncs.subtract(
            total, ufuncs.true_divide(ufuncs.multiply(ddof, spread), total))
    X = ufuncs.subtract(X, lax.expand_dims(average, (1,)))
    weighted = lax.transpose(X if w is None else ufuncs.multiply(X, lax.expand_dims(w, (0,))),
                             (1, 0))
    product = lax.dot_general(X, convert(ufuncs.conj(weighted), X.dtype), (((1,), (0,)), ((), ())),
                              preferred_element_type=X.dtype)
    return squeeze(ufuncs.true_divide(product, divisor))


@jit(static_argnames=("rowvar", "dtype"))
def corrcoef(
    x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: DTypeLike | None = None,
) -> Array:
    """Matrix of Pearson correlation coefficients.

    Args: x: vector or matrix; y, rowvar, dtype: as for `cov`, with its errors.

    >>> jnp.corrcoef(jnp.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    c = cov(x, y, rowvar=rowvar, dtype=dtype)
    if c.ndim == 0:
        return ufuncs.true_divide(c, c)
    n = c.shape[0]
    variances = lax.slice_in_dim(lax.reshape(c, (n * n,)), 0, n * n, n + 1)
    deviation = lax.sqrt(lax.real(variances) if is_subdtype(c, np.complexfloating) else variances)
    c = ufuncs.true_divide(c, convert(lax.expand_dims(deviation, (1,)), c.dtype))
    c = ufuncs.true_divide(c, convert(lax.expand_dims(deviation, (0,)), c.dtype))
    if is_subdtype(c, np.complexfloating):
        return lax.complex(clip(lax.real(c), -1, 1), clip(lax.imag(c), -1, 1))
    return clip(c, -1, 1)


@jit(static_argnames=("unroll",))
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int | None = None) -> Array:
    """Value at `x` of the polynomial with coefficients `p`, highest power first (Horner).

    Args: p: vector; x: array; unroll: how many steps an iteration of the loop has, None or a number that is not
    negative: the steps are written out in any case.
    Raises: ValueError for a negative `unroll`.

    >>> jnp.polyval(jnp.array([1, 0, 2]), 3)
    Array(11, dtype=int32)
    """
    if unroll is not None and operator.index(unroll) < 0:
        raise ValueError(f"polyval: unroll must not be negative, got {unroll}")
    p, x = promote_dtypes(*ensure_arrays("polyval", p, x))
    shape = lax.broadcast_shapes(p.shape[1:], x.shape)
    if follows(0, 12) and p.shape[0] and x.dtype != np.bool_:
        x = lax.broadcast_to_rank(x, len(shape)) if x.ndim else x
        return polynomial(x, _coefficients(p, len(shape)), unroll=unroll)
    y = broadcast_to(lax.full_like(x, 0), shape)
    for position in range(p.shape[0]):
        coefficient = lax.index_in_dim(p, position, keepdims=False)
        y = ufuncs.add(ufuncs.multiply(x, y), coefficient)
    return y


def _coefficients(p, rank):
    """What is along the first axis, from the last to the first; arrays have this rank."""
    rows = [lax.index_in_dim(p, position, keepdims=False) for position in reversed(range(p.shape[0]))]
    return [lax.broadcast_to_rank(row, rank) if row.ndim else row for row in rows]


@jit(static_argnames=("axis",))
def unwrap(
    p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, period: ArrayLike = 2 * np.pi,
) -> Array:
    """Adds multiples of `period` along an axis so that jumps stay within half a period.

    Args: p: array; discont: jumps up to this size stay, default half a period; axis: the axis;
    period: 2 pi unless given.

    >>> jnp.unwrap(jnp.array([0, 1, 7, 8]), period=6)
    Array([0, 1, 1, 2], dtype=int32)
    """
    p = ensure_array(p, "unwrap")
    if is_subdtype(p, np.complexfloating):
        raise ValueError(f"unwrap: needs real angles, got {p.dtype}; take jnp.angle first")
    if p.shape[axis] == 0:
        return convert(p, dtypes.to_inexact_dtype(p.dtype))
    p, period = promote_dtypes(p, period)
    axis = normalize_axis(axis, p.ndim)
    discont = ufuncs.true_divide(period, 2) if discont is None else discont
    integer = is_subdtype(p, np.integer)
    half = floor_divide(period, 2) if integer else ufuncs.true_divide(period, 2)
    jump = diff(p, axis=axis)
    wrapped = ufuncs.subtract(remainder(ufuncs.add(jump, half), period), half)
    boundary = ufuncs.logical_and(ufuncs.equal(wrapped, ufuncs.negative(half)),
                                  ufuncs.greater(jump, 0))
    wrapped = where(boundary, half, wrapped)
    correction = where(ufuncs.less(ufuncs.abs(jump), discont), 0, ufuncs.subtract(wrapped, jump))
    n = p.shape[axis]
    rest = ufuncs.add(_slice(p, 1, n, axis), cumulative.cumsum(correction, axis=axis))
    return concatenate([_slice(p, 0, 1, axis), rest], axis=axis)


