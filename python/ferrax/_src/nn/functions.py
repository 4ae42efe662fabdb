"""Activations and normalisations of `ferrax.nn`.

Invariants:
- Values, dtypes and derivatives are JAX's, also at kinks: `relu'(0) = 0`, and NaN passes through.
  `relu` and `relu6` are functions with rules of their own, as jaxprs show. Where JAX has a rule that
  they do not show, the formula here is written so that its plain derivative is that rule: what must
  not be differentiated is under `stop_gradient`, and both sides of a `where` are finite wherever
  they are not chosen.
- What JAX compiles as one function is compiled here as one; so are the others, but inlined.
"""

from __future__ import annotations

import functools
import operator
import warnings
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, Axis, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.logsumexp import (
    _logsumexp,
    as_inexact,
    logsumexp as logsumexp,
    static_axis,
)
from ferrax._src.numpy.util import ensure_array
from ferrax._src.transforms.custom_jvp import custom_jvp
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------------------------
# Elementwise activations.


@jit
def identity(x: ArrayLike) -> Array:
    """The argument as an array.

    Args: x: array or scalar.

    >>> ferrax.nn.identity(2.0)
    Array(2., dtype=float32, weak_type=True)
    """
    return ensure_array(x, "identity")


@custom_jvp
@jit
def relu(x: ArrayLike) -> Array:
    """`max(x, 0)`, with derivative 0 at 0.

    Args:
        x: array.
    Returns:
        Array of the same shape and dtype.

    Example:
        >>> ferrax.nn.relu(jnp.array([-1.0, 0.0, 2.0]))
        Array([0., 0., 2.], dtype=float32)
    """
    return jnp.maximum(x, 0)


relu.defjvps(lambda tangent, _, x: jnp.where(x > 0, tangent, 0))


@custom_jvp
@jit
def relu6(x: ArrayLike) -> Array:
    """`min(max(x, 0), 6)`, with derivative 0 at 0 and at 6.

    Args: x: array of any shape. The result is floating.

    >>> ferrax.nn.relu6(jnp.array([-1.0, 3.0, 9.0]))
    Array([0., 3., 6.], dtype=float32)
    """
    return jnp.minimum(jnp.maximum(x, 0), 6.0)


relu6.defjvps(lambda tangent, _, x: jnp.where((x > 0) & (x < 6), tangent, 0))


@jit
def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """`(x + sqrt(x**2 + b)) / 2`: a smooth relu of algebraic form.

    Args: x: array; b: how smooth, a number or an array. The result is floating.

    (Barron, Squareplus, 2021.)

    >>> ferrax.nn.squareplus(jnp.array([0.0, 1.5]))
    Array([1., 2.], dtype=float32)
    """
    x, b = ensure_array(x, "squareplus"), ensure_array(b, "squareplus", 1)
    return (x + jnp.sqrt(jnp.square(x) + b)) / 2


@jit
def softplus(x: ArrayLike) -> Array:
    """`log(1 + exp(x))`: a smooth relu.

    Args: x: array. The result is floating.

    >>> ferrax.nn.softplus(jnp.array([0.0, 100.0]))
    Array([  0.6931472, 100.       ], dtype=float32)
    """
    return jnp.logaddexp(x, 0)


@jit
def sparse_plus(x: ArrayLike) -> Array:
    """0 below -1, x above 1, and the parabola `(x + 1)**2 / 4` that joins the two.

    Args: x: array. The result is floating.

    >>> ferrax.nn.sparse_plus(jnp.array([-2.0, 0.0, 2.0]))
    Array([0.  , 0.25, 2.  ], dtype=float32)
    """
    x = ensure_array(x, "sparse_plus")
    return jnp.select([x <= -1.0, x < 1.0], [0.0, jnp.square(x + 1.0) / 4], x)


@jit
def soft_sign(x: ArrayLike) -> Array:
    """`x / (abs(x) + 1)`.

    Args: x: array. The result is floating.

    >>> ferrax.nn.soft_sign(jnp.array([-1.0, 3.0]))
    Array([-0.5 ,  0.75], dtype=float32)
    """
    x = ensure_array(x, "soft_sign")
    return x / (jnp.abs(x) + 1)


@jit(inline=True)
def sigmoid(x: ArrayLike) -> Array:
    """`1 / (1 + exp(-x))`. Floating or complex arrays only.

    Example:
        >>> ferrax.nn.sigmoid(0.0)
        Array(0.5, dtype=float32, weak_type=True)
    """
    return lax.logistic(x)


@jit
def sparse_sigmoid(x: ArrayLike) -> Array:
    """0 below -1, 1 above 1, and `(x + 1) / 2` between: the derivative of `sparse_plus`.

    Args: x: array. The result is floating.

    >>> ferrax.nn.sparse_sigmoid(jnp.array([-2.0, 0.0, 2.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return 0.5 * jnp.clip(ensure_array(x, "sparse_sigmoid") + 1.0, 0.0, 2.0)


@jit
def silu(x: ArrayLike) -> Array:
    """`x * sigmoid(x)`, also known as swish.

    Args: x: array of floats or complex numbers. Errors: TypeError for integers. (Elfwing et al.,
    2018.)

    >>> ferrax.nn.silu(jnp.array([0.0, 1.0]))
    Array([0.       , 0.7310586], dtype=float32)
    """
    x = ensure_array(x, "silu")
    return x * sigmoid(x)


swish = silu


@jit
def mish(x: ArrayLike) -> Array:
    """`x * tanh(softplus(x))`.

    Args: x: array. The result is floating. (Misra, 2019.)

    >>> ferrax.nn.mish(jnp.array([0.0, 1.0]))
    Array([0.       , 0.8650984], dtype=float32)
    """
    x = ensure_array(x, "mish")
    return x * jnp.tanh(softplus(x))


@jit
def log_sigmoid(x: ArrayLike) -> Array:
    """`log(sigmoid(x))`, exact also where the sigmoid underflows.

    Args: x: array. The result is floating.

    >>> ferrax.nn.log_sigmoid(jnp.array([0.0, -200.0]))
    Array([  -0.6931472, -200.       ], dtype=float32)
    """
    return -softplus(-ensure_array(x, "log_sigmoid"))


@jit
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """x for x > 0, else `alpha * (exp(x) - 1)`.

    Args: x: array; alpha: a number or an array. The result is floating. (Clevert et al., 2016.)

    >>> ferrax.nn.elu(jnp.array([-100.0, 2.0]))
    Array([-1.,  2.], dtype=float32)
    """
    x = ensure_array(x, "elu")
    positive = x > 0
    # 0 in place of a large x, whose exponential would be infinite and its derivative NaN.
    return jnp.where(positive, x, alpha * jnp.expm1(jnp.where(positive, 0.0, x)))


@jit
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 0.01) -> Array:
    """x for x >= 0, else `negative_slope * x`.

    Args: x: array; negative_slope: a number or an array. The result is floating.

    >>> ferrax.nn.leaky_relu(jnp.array([-1.0, 2.0]))
    Array([-0.01,  2.  ], dtype=float32)
    """
    x = ensure_array(x, "leaky_relu")
    return jnp.where(x >= 0, x, negative_slope * x)


@jit
def hard_tanh(x: ArrayLike) -> Array:
    """x, limited to [-1, 1].

    Args: x: array of any shape.

    >>> ferrax.nn.hard_tanh(jnp.array([-3.0, 0.5, 3.0]))
    Array([-1. ,  0.5,  1. ], dtype=float32)
    """
    x = ensure_array(x, "hard_tanh")
    return jnp.select([x > 1, x < -1], [1, -1], x)


@jit
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """x for x > 0, else `alpha * (exp(x / alpha) - 1)`.

    Args: x: array; alpha: a number or an array. The result is floating. (Barron, 2017.)

    >>> ferrax.nn.celu(jnp.array([-100.0, 2.0]), alpha=0.5)
    Array([-0.5,  2. ], dtype=float32)
    """
    return jnp.maximum(x, 0.0) + alpha * jnp.expm1(jnp.minimum(x, 0.0) / alpha)


@jit
def selu(x: ArrayLike) -> Array:
    """`elu`, scaled so that layers keep mean zero and variance one (Klambauer et al., 2017).

    Args: x: array. The result is floating.

    >>> ferrax.nn.selu(jnp.array([0.0, 1.0]))
    Array([0.      , 1.050701], dtype=float32)
    """
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """`x` times the standard normal distribution function of x.

    Args:
        x: array.
        approximate: whether to use the approximation by tanh (Hendrycks and Gimpel, 2016), of
            error below 1e-3, rather than erfc.
    Returns:
        Floating array of the same shape.

    >>> ferrax.nn.gelu(jnp.array([0.0, 1.0]))
    Array([0.      , 0.841192], dtype=float32)
    """
    return _gelu(ensure_array(x, "gelu"), bool(approximate))


@jit(static_argnums=(1,), inline=True)
def _gelu(x, approximate):
    x = as_inexact("gelu", x)
    if approximate:
        inner = np.array(np.sqrt(2 / np.pi), x.dtype) * (x + 0.044715 * x**3)
        return x * (0.5 * (1.0 + jnp.tanh(inner)))
    half = np.array(np.sqrt(0.5), x.dtype)
    return jnp.array(0.5 * x * lax.erfc(-x * half), dtype=x.dtype)


@jit
def hard_sigmoid(x: ArrayLike) -> Array:
    """`relu6(x + 3) / 6`: a piecewise linear sigmoid.

    Args: x: array. The result is floating.

    >>> ferrax.nn.hard_sigmoid(jnp.array([-4.0, 0.0, 4.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return relu6(ensure_array(x, "hard_sigmoid") + 3.0) / 6.0


@jit
def hard_silu(x: ArrayLike) -> Array:
    """`x * hard_sigmoid(x)`, also known as hard swish.

    Args: x: array. The result is floating. (Howard et al., 2019.)

    >>> ferrax.nn.hard_silu(jnp.array([-4.0, 3.0]))
    Array([-0.,  3.], dtype=float32)
    """
    x = ensure_array(x, "hard_silu")
    return x * hard_sigmoid(x)


hard_swish = hard_silu


@custom_jvp
@jit
def log1mexp(x: ArrayLike) -> Array:
    """`log(1 - exp(-x))` for x > 0, by the formula that is exact at that x (Maechler, 2012).

    Args: x: array. The result is floating; NaN for negative x.

    >>> ferrax.nn.log1mexp(jnp.array([1e-6, 50.0]))
    Array([-1.3815511e+01, -1.9287499e-22], dtype=float32)
    """
    x = ensure_array(x, "log1mexp")
    near, far = jnp.log(-jnp.expm1(-x)), jnp.log1p(-jnp.exp(-x))
    return jnp.where(x < float(np.log(2)), near, far)


def _log1mexp_slope(tangent, _, x):
    # 1 / expm1(x), whose own derivatives are finite for large x too.
    positive = x >= 0
    inside, outside = jnp.where(positive, x, 1), jnp.where(positive, -1, x)
    return tangent * jnp.where(
        positive, jnp.exp(-inside) / -jnp.expm1(-inside), 1 / jnp.expm1(outside)
    )


log1mexp.defjvps(_log1mexp_slope)


@jit(static_argnames=("axis",))
def glu(x: ArrayLike, axis: int = -1) -> Array:
    """The first half of the array along `axis`, times the sigmoid of the second half.

    Args:
        x: array whose size along `axis` is even.
        axis: which axis is halved.
    Raises:
        ValueError: if that size is odd.

    (Dauphin et al., Language Modeling with Gated Convolutional Networks, 2017.)

    >>> ferrax.nn.glu(jnp.array([2.0, 4.0, 0.0, 0.0]))
    Array([1., 2.], dtype=float32)
    """
    x = ensure_array(x, "glu")
    size = x.shape[axis]
    if size % 2:
        raise ValueError(f"glu needs an axis of even size, got size {size} along axis {axis}.")
    first, second = jnp.split(x, 2, axis)
    return first * sigmoid(second)


# ---------------------------------------------------------------------------------------------
# Along axes.


def _max(x, axis, where):
    return jnp.max(x, axis, where=where, initial=-np.inf, keepdims=True)


def _others(where, x, value):
    """x with this value for the elements that do not count."""
    return x if where is None else jnp.where(where, x, value)


def _below_largest(x, axis, where):
    """x less the largest element that counts; -inf for those that do not."""
    return _others(where, x, -np.inf) - lax.stop_gradient(_max(x, axis, where))


def softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """`exp(x) / sum(exp(x))` along an axis, without overflow.

    Args:
        x: array.
        axis: an axis or a tuple; the result sums to one along it.
        where: boolean array that broadcasts with `x`: which elements count; others give 0.
    Returns:
        Floating array of the shape of `x`.

    Example:
        >>> ferrax.nn.softmax(jnp.array([0.0, 0.0]))
        Array([0.5, 0.5], dtype=float32)
    """
    axis = core.concrete_or_error(
        static_axis,
        axis,
        "The axis argument of softmax. It must be known while tracing: mark it as static.",
    )
    x = ensure_array(x, "softmax")
    if config.softmax_custom_jvp.value:
        return _softmax_by_rule(as_inexact("softmax", x), where, axis)
    return _softmax(x, where, axis)


@jit(static_argnums=(2,), inline=True)
def _softmax(x, where, axis):
    x = as_inexact("softmax", x)
    terms = jnp.exp(_below_largest(x, axis, where))
    result = terms / jnp.sum(terms, axis, where=where, keepdims=True)
    return _others(where, result, 0)


@functools.partial(custom_jvp, nondiff_argnums=(2,))
def _softmax_by_rule(x, where, axis):
    """`_softmax` with the rule `dy = y (dx - sum(y dx))`, which keeps nothing but its result."""
    return _softmax(x, where, axis)


@_softmax_by_rule.defjvp
def _softmax_jvp(axis, primals, tangents):
    x, where = primals
    y = _softmax_by_rule(x, where, axis)
    moved = y * tangents[0]
    return y, moved - y * jnp.sum(moved, axis, where=where, keepdims=True)


@jit(static_argnames=("axis",))
def log_softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """The logarithm of `softmax`, without overflow.

    Args:
        x: array.
        axis: an axis or a tuple; the exponentials of the result sum to one along it.
        where: boolean array that broadcasts with `x`: which elements count; others give -inf.
    Returns:
        Floating array of the shape of `x`.

    >>> ferrax.nn.log_softmax(jnp.array([0.0, 0.0]))
    Array([-0.6931472, -0.6931472], dtype=float32)
    """
    x = as_inexact("log_softmax", x)
    fall = _below_largest(x, axis, where)
    total = jnp.sum(jnp.exp(fall), axis, where=where, keepdims=True)
    return _others(where, fall - jnp.log(total), -np.inf)


@jit(static_argnames=("axis", "keepdims"))
def logmeanexp(
    x: ArrayLike, axis: Axis | None = None, where: ArrayLike | None = None, keepdims: bool = False,
) -> Array:
    """`log(mean(exp(x)))` without overflow.

    Args:
        x: array.
        axis: the axis or axes of the mean; default: all.
        where: boolean array that broadcasts with `x`: which elements count.
        keepdims: whether the axes stay, with size 1.
    Returns:
        Floating array.

    >>> ferrax.nn.logmeanexp(jnp.array([1000.0, 1000.0]))
    Array(1000., dtype=float32)
    """
    x = ensure_array(x, "logmeanexp")
    total = _logsumexp(x, None, where, static_axis(axis), keepdims, False)
    counted = True if where is None else where
    counted = jnp.broadcast_to(counted, x.shape)
    count = jnp.sum(counted, axis=axis, keepdims=keepdims, dtype=total.dtype)
    return total - jnp.log(count)


@jit(static_argnames=("axis", "algorithm"))
def standardize(
    x: ArrayLike, axis: Axis = -1, mean: Any = None, variance: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-5, where: ArrayLike | None = None, *, algorithm: Any = "fast",
) -> Array:
    """`(x - mean) / sqrt(variance + epsilon)`, by default with the array's own mean and variance.

    Args:
        x: array.
        axis: the axis or axes over which mean and variance are taken.
        mean, variance: arrays that broadcast with `x`, instead of the array's own.
        epsilon: a small number.
        where: boolean array that broadcasts with `x`: which elements count.
        algorithm: 'fast': variance as mean of squares less square of mean; 'stable': mean square
            of differences.
    Returns:
        Floating array of the shape of `x`.
    Raises:
        ValueError: for another algorithm.

    >>> ferrax.nn.standardize(jnp.array([1.0, 3.0]))
    Array([-0.999995,  0.999995], dtype=float32)
    """
    x = ensure_array(x, "standardize")
    average = functools.partial(jnp.mean, axis=axis, keepdims=True, where=where)
    centre = average(x) if mean is None else mean
    difference = jnp.subtract(x, centre)
    if variance is not None:
        spread = variance
    elif algorithm == "stable":
        spread = average(jnp.square(difference))
    elif algorithm == "fast":
        # Not below 0, where rounding takes the difference of the two.
        spread = jnp.clip(average(jnp.square(x)) - jnp.square(centre), 0)
    else:
        raise ValueError(f"Unknown algorithm {algorithm!r}. Expected 'fast' or 'stable'.")
    return difference * lax.rsqrt(jnp.asarray(spread + epsilon))


def one_hot(
    x: ArrayLike, num_classes: int, *, dtype: DTypeLike | None = None, axis: int = -1, out_sharding: Any = None
) -> Array:
    """Vectors with a one at the place that an integer gives, and zeros elsewhere.

    Args:
        x: integer array; integers out of range give zeros alone.
        num_classes: int: the length of the vectors.
        dtype: default float32 (float64 with x64).
        axis: the position of the new axis in the result; or the name of a mapped axis of size
            `num_classes`, over which the vector is then spread.
        out_sharding: how the result is divided over a mesh.
    Returns:
        Array of one more axis than `x`.

    Example:
        >>> ferrax.nn.one_hot(jnp.array([0, 2]), 3)
        Array([[1., 0., 0.],
               [0., 0., 1.]], dtype=float32)
    """
    if out_sharding is not None:
        return with_out_sharding("one_hot", out_sharding, one_hot, x, num_classes, dtype=dtype, axis=axis)
    num_classes = core.concrete_or_error(
        operator.index, num_classes, "The error arose in ferrax.nn.one_hot argument `num_classes`."
    )
    x = jnp.asarray(x)
    if not dtypes.issubdtype(x.dtype, np.integer):
        warnings.warn(
            f"ferrax.nn.one_hot: expected integers, got an array of dtype {x.dtype}; convert it",
            DeprecationWarning,
            stacklevel=user_stacklevel(),
        )
    dtype = dtypes.default_float_dtype() if dtype is None else dtype
    dtype = dtypes.check_and_canonicalize_user_dtype(dtype, "one_hot")
    try:
        axis = operator.index(axis)
    except TypeError:
        size = lax.axis_size(axis)
        if size != num_classes:
            raise ValueError(
                f"one_hot: num_classes={num_classes} has to be the size of the named axis {axis}, "
                f"which is {size}"
            ) from None
        return jnp.asarray(x == lax.axis_index(axis), dtype=dtype)
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {x.ndim + 1}")
    return _one_hot(x, num_classes, dtype, axis % (x.ndim + 1))


@jit(static_argnums=(1, 2, 3))
def _one_hot(x, num_classes, dtype, axis):
    shape = [1] * (x.ndim + 1)
    shape[axis] = num_classes
    classes = lax.broadcasted_iota(x.dtype, tuple(shape), axis)
    return (lax.expand_dims(x, (axis,)) == classes).astype(dtype)
