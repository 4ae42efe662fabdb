"""Functions of whole rows over bounded values: reductions, running reductions, order."""

import math

import numpy as np

from .bounds import (
    INTEGERS,
    REALS,
    UNIT,
    Bounded,
    Setting,
    cast,
    moved,
    quiet,
    rounded,
    setting,
    summed,
    sums_dtype,
    wide,
)
from .reference_elementwise import (
    absolute,
    add,
    divide,
    exp,
    log,
    maximum,
    multiply,
    rsqrt,
    sqrt,
    subtract,
)


def axes_of(x, axis):
    return tuple(range(x.ndim)) if axis is None else tuple(a % x.ndim for a in np.atleast_1d(axis))


def count(x, axis):
    return math.prod(x.shape[a] for a in axes_of(x, axis))


def sum_(x, axis=None, keepdims=False, dtype=None):
    x = cast(x, dtype or sums_dtype(x.dtype))
    how = {"axis": axes_of(x, axis), "keepdims": keepdims}
    value = np.sum(x.value, **how, dtype=wide(x.dtype))
    if x.dtype not in UNIT:
        return Bounded(value, np.sum(x.errors(), **how) if x.inexact() else 0.0, x.dtype)
    error = np.sum(x.errors(), **how) if x.inexact() else 0.0
    return summed(value, error, x.dtype, np.sum(np.abs(x.value), **how), 20 + 2 * math.log2(count(x, axis) + 1))


def prod(x, axis=None, keepdims=False):
    """Of factors that are not zero: relative errors add up."""
    x = cast(x, sums_dtype(x.dtype))
    how = {"axis": axes_of(x, axis), "keepdims": keepdims}
    with np.errstate(all="ignore"):
        value = np.prod(x.value, **how, dtype=wide(x.dtype))
        relative = np.sum(x.errors() / np.abs(x.value), **how) if x.inexact() else 0.0
        relative = np.where(relative < 0.5, 2 * relative, np.inf)
        error = relative * np.abs(value) if x.inexact() else 0.0
    return rounded(value, error, x.dtype, 2.0 * count(x, axis))


def extreme(function):
    """Each result is as exact as the least exact element."""

    def apply(x, axis=None, keepdims=False):
        how = {"axis": axes_of(x, axis), "keepdims": keepdims}
        error = np.max(x.errors(), **how) if x.inexact() else 0.0
        return Bounded(function(x.value, **how), error, x.dtype)

    return apply


def truth(function):
    def apply(x, axis=None, keepdims=False):
        x, how = cast(x, "bool"), {"axis": axes_of(x, axis), "keepdims": keepdims}
        error = np.max(x.errors(), **how) if x.inexact() else 0.0
        return Bounded(function(x.value, **how), error, "bool")

    return apply


max_, min_, any_, all_ = extreme(np.max), extreme(np.min), truth(np.any), truth(np.all)


def mean(x, axis=None, keepdims=False):
    x = cast(x, "float64" if Setting.x64 else "float32") if x.dtype in INTEGERS else x
    return divide(sum_(x, axis, keepdims), float(count(x, axis)))


def var(x, axis=None, keepdims=False):
    centred = absolute(subtract(x, mean(x, axis, True)))
    return mean(multiply(centred, centred), axis, keepdims)


def std(x, axis=None, keepdims=False):
    return sqrt(var(x, axis, keepdims))


def norm(x, axis=None, keepdims=False):
    size = absolute(x)
    return sqrt(sum_(multiply(size, size), axis, keepdims))


def below_top(x, axis):
    """Less the largest of the row; the same number is taken from all, so its own error matters to none."""
    return subtract(x, Bounded(np.max(x.value, axis=axis, keepdims=True), 0.0, x.dtype))


def softmax(x, axis=-1, where=None):
    powers = exp(below_top(x, axis))
    return divide(powers, sum_(powers, axis, True))


@quiet
def log_softmax(x, axis=-1):
    below = below_top(x, axis)
    return subtract(below, log(sum_(exp(below), axis, True)))


def logsumexp(x, axis=None, keepdims=False):
    axis = axes_of(x, axis)
    top = Bounded(np.max(x.value, axis=axis, keepdims=True), 0.0, x.dtype)
    result = add(log(sum_(exp(below_top(x, axis)), axis, True)), top)
    return result if keepdims else moved(np.squeeze)(result, axis=axis)


def standardize(x, axis=-1, epsilon=1e-5):
    """Its variance is the mean of squares less the square of the mean, of magnitudes that may cancel."""
    average = mean(x, axis, True)
    variance = subtract(mean(multiply(x, x), axis, True), multiply(average, average))
    return multiply(subtract(x, average), rsqrt(add(maximum(variance, 0.0), epsilon)))


def cumsum(x, axis, reverse=False):
    x = cast(x, sums_dtype(x.dtype)) if x.dtype == "bool" else x
    turn = (lambda v: np.flip(v, axis)) if reverse else (lambda v: v)

    def along(v, **how):
        return turn(np.cumsum(turn(v), axis=axis, **how))

    value, error = along(x.value, dtype=x.value.dtype), along(x.errors()) if x.inexact() else 0.0
    if x.dtype not in UNIT:
        return Bounded(value, error, x.dtype)
    return summed(value, error, x.dtype, along(np.abs(x.value)), 20 + 2 * math.log2(x.shape[axis] + 1))


def associative_sum(_, x, axis=0):
    """`lax.associative_scan` of additions: each of its levels rounds."""
    total = cumsum(x, axis)
    with setting(track=False):
        size = cumsum(absolute(x), axis).value
    return rounded(total.value, total.error + 2 * (1 + math.log2(x.shape[axis] + 1)) * UNIT[x.dtype] * size, x.dtype)


def cumextreme(function):
    def apply(x, axis=0, reverse=False):
        turn = (lambda v: np.flip(v, axis)) if reverse else (lambda v: v)
        error = turn(np.maximum.accumulate(turn(x.errors()), axis=axis)) if x.inexact() else 0.0
        return Bounded(turn(function.accumulate(turn(x.value), axis=axis)), error, x.dtype)

    return apply


cummax, cummin = cumextreme(np.maximum), cumextreme(np.minimum)


def cumlogsumexp(x, axis=0):
    """Conditioned like the largest element before it; its error is what all elements' may change."""
    value = np.logaddexp.accumulate(x.value, axis=axis)
    size = np.maximum.accumulate(np.abs(x.value), axis=axis) + math.log(x.shape[axis] + 1)
    error = np.maximum.accumulate(x.errors(), axis=axis)
    units = 12 + 2 * math.log2(x.shape[axis] + 1)
    return rounded(value, error + units * UNIT[x.dtype] * size, x.dtype, 4.0)


def sort(x, axis=-1, descending=False):
    turn = (lambda v: np.flip(v, axis)) if descending else (lambda v: v)
    value, error = turn(np.sort(x.value, axis=axis)), 0.0
    if x.inexact():  # the k-th of the least and of the largest that elements may be
        ends = [turn(np.sort(x.value + way * x.errors(), axis=axis)) for way in (1, -1)]
        error = np.maximum(ends[0] - value, value - ends[1])
    return Bounded(value, error, x.dtype)


def order(x, axis=-1, descending=False):
    """Which element comes at each place, equal ones in their order; unknown where their bounds meet."""
    keys = x.value.astype(float) if x.dtype in (*REALS, *INTEGERS) and x.dtype != "int64" else x.value
    places = np.argsort(-keys if descending else keys, axis=axis, kind="stable")
    index = "int64" if Setting.x64 else "int32"
    if not x.inexact():
        return Bounded(places.astype(index), 0.0, index)
    way = -1 if descending else 1
    low, high = (np.take_along_axis(way * keys + side * x.errors(), places, axis) for side in (-1, 1))
    flipped = np.flip(np.minimum.accumulate(np.flip(low, axis), axis=axis), axis)
    top = np.maximum.accumulate(high, axis=axis)
    meets = np.zeros(x.shape, bool)
    head, tail = ((slice(None),) * (axis % x.ndim) + (part,) for part in (slice(None, -1), slice(1, None)))
    meets[tail] |= top[head] >= low[tail]
    meets[head] |= high[head] >= flipped[tail]
    return Bounded(places.astype(index), np.where(meets, np.inf, 0.0), index)


def first_of(x, axis, descending):
    function = np.argmax if descending else np.argmin
    index = "int64" if Setting.x64 else "int32"
    value = np.asarray(function(x.value, axis=axis)).astype(index)
    if not x.inexact():
        return Bounded(value, 0.0, index)
    way = 1 if descending else -1
    best = np.max(way * x.value - x.errors(), axis=axis, keepdims=True)
    rivals = (way * x.value + x.errors() >= best).sum(axis=axis)
    return Bounded(value, np.where(rivals > 1, np.inf, 0.0), index)


def top_k(x, k):
    first = moved(lambda v: v[..., :k])
    return first(sort(x, -1, True)), cast(first(order(x, -1, True)), "int32")


JNP = {"sum": sum_, "prod": prod, "max": max_, "min": min_, "any": any_, "all": all_, "mean": mean, "var": var,
       "std": std, "cumsum": cumsum, "sort": sort, "argsort": order,
       "argmax": lambda x, axis: first_of(x, axis, True),
       "argmin": lambda x, axis: first_of(x, axis, False)}  # fmt: skip
LAX = {"cumsum": cumsum, "cummax": cummax, "cummin": cummin, "cumlogsumexp": cumlogsumexp, "top_k": top_k,
       "associative_scan": associative_sum}  # fmt: skip
NN = {"softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp, "standardize": standardize}


def install():
    for name in ("sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "argmax", "argmin"):
        setattr(Bounded, name, JNP[name])


install()
