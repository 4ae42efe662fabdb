"""Activations, normalisations and attention of `ferrax.nn`.

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
from ferrax._src.core.typing import Array, ArrayLike, Axis, DTypeLike
from ferrax._src.lax import api as lax
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
    """The argument as an array."""
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
    """`min(max(x, 0), 6)`, with derivative 0 at 0 and at 6."""
    return jnp.minimum(jnp.maximum(x, 0), 6.0)


relu6.defjvps(lambda tangent, _, x: jnp.where((x > 0) & (x < 6), tangent, 0))


@jit
def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """`(x + sqrt(x**2 + b)) / 2`: a smooth relu of algebraic form."""
    x, b = ensure_array(x, "squareplus"), ensure_array(b, "squareplus", 1)
    return (x + jnp.sqrt(jnp.square(x) + b)) / 2


@jit
def softplus(x: ArrayLike) -> Array:
    """`log(1 + exp(x))`: a smooth relu."""
    return jnp.logaddexp(x, 0)


@jit
def sparse_plus(x: ArrayLike) -> Array:
    """0 below -1, x above 1, and the parabola `(x + 1)**2 / 4` that joins the two."""
    x = ensure_array(x, "sparse_plus")
    return jnp.select([x <= -1.0, x < 1.0], [0.0, jnp.square(x + 1.0) / 4], x)


@jit
def soft_sign(x: ArrayLike) -> Array:
    """`x / (abs(x) + 1)`."""
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
    """0 below -1, 1 above 1, and `(x + 1) / 2` between: the derivative of `sparse_plus`."""
    return 0.5 * jnp.clip(ensure_array(x, "sparse_sigmoid") + 1.0, 0.0, 2.0)


@jit
def silu(x: ArrayLike) -> Array:
    """`x * sigmoid(x)`, also known as swish."""
    x = ensure_array(x, "silu")
    return x * sigmoid(x)


swish = silu


@jit
def mish(x: ArrayLike) -> Array:
    """`x * tanh(softplus(x))`."""
    x = ensure_array(x, "mish")
    return x * jnp.tanh(softplus(x))


@jit
def log_sigmoid(x: ArrayLike) -> Array:
    """`log(sigmoid(x))`, exact also where the sigmoid underflows."""
    return -softplus(-ensure_array(x, "log_sigmoid"))


@jit
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """x for x > 0, else `alpha * (exp(x) - 1)`."""
    x = ensure_array(x, "elu")
    positive = x > 0
    # 0 in place of a large x, whose exponential would be infinite and its derivative NaN.
    return jnp.where(positive, x, alpha * jnp.expm1(jnp.where(positive, 0.0, x)))


@jit
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 0.01) -> Array:
    """x for x >= 0, else `negative_slope * x`."""
    x = ensure_array(x, "leaky_relu")
    return jnp.where(x >= 0, x, negative_slope * x)


@jit
def hard_tanh(x: ArrayLike) -> Array:
    """x, limited to [-1, 1]."""
    x = ensure_array(x, "hard_tanh")
    return jnp.select([x > 1, x < -1], [1, -1], x)


@jit
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """x for x > 0, else `alpha * (exp(x / alpha) - 1)`."""
    return jnp.maximum(x, 0.0) + alpha * jnp.expm1(jnp.minimum(x, 0.0) / alpha)


@jit
def selu(x: ArrayLike) -> Array:
    """`elu`, scaled so that layers keep mean zero and variance one (Klambauer et al., 2017)."""
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """`x` times the standard normal distribution function of x.

    Args:
        x: array.
        approximate: whether to use the approximation by tanh (Hendrycks and Gimpel, 2016), of
            error below 1e-3, rather than erfc.
    Returns:
        Floating array of the same shape.
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
    """`relu6(x + 3) / 6`: a piecewise linear sigmoid."""
    return relu6(ensure_array(x, "hard_sigmoid") + 3.0) / 6.0


@jit
def hard_silu(x: ArrayLike) -> Array:
    """`x * hard_sigmoid(x)`, also known as hard swish."""
    x = ensure_array(x, "hard_silu")
    return x * hard_sigmoid(x)


hard_swish = hard_silu


@custom_jvp
@jit
def log1mexp(x: ArrayLike) -> Array:
    """`log(1 - exp(-x))` for x > 0, by the formula that is exact at that x (Maechler, 2012)."""
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


def softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """`exp(x) / sum(exp(x))` along an axis, without overflow.

    Args:
        x: array.
        axis: the axis or axes along which the result sums to one.
        where: boolean array that broadcasts with `x`: which elements count; others give 0.
    Returns:
        Floating array of the shape of `x`.

    Example:
        >>> ferrax.nn.softmax(jnp.array([0.0, jnp.log(3.0)]))
        Array([0.25, 0.75], dtype=float32)
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
    safe = x if where is None else jnp.where(where, x, -np.inf)
    terms = jnp.exp(safe - lax.stop_gradient(_max(x, axis, where)))
    result = terms / jnp.sum(terms, axis, where=where, keepdims=True)
    return result if where is None else jnp.where(where, result, 0)


@functools.partial(custom_jvp, nondiff_argnums=(2,))
def _softmax_by_rule(x, where, axis):
    """`_softmax` with the rule `dy = y (dx - sum(y dx))`, which keeps nothing but its result."""
    return _softmax(x, where, axis)


@_softmax_by_rule.defjvp
def _softmax_jvp(axis, primals, tangents):
    y = _softmax_by_rule(*primals, axis)
    moved = y * tangents[0]
    return y, moved - y * jnp.sum(moved, axis, where=primals[1], keepdims=True)


@jit(static_argnames=("axis",))
def log_softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """The logarithm of `softmax`, without overflow.

    Args:
        x: array.
        axis: the axis or axes along which the softmax sums to one.
        where: boolean array that broadcasts with `x`: which elements count; others give -inf.
    Returns:
        Floating array of the shape of `x`.
    """
    x = as_inexact("log_softmax", x)
    safe = x if where is None else jnp.where(where, x, -np.inf)
    shifted = safe - lax.stop_gradient(_max(x, axis, where))
    total = jnp.sum(jnp.exp(shifted), axis, where=where, keepdims=True)
    result = shifted - jnp.log(total)
    return result if where is None else jnp.where(where, result, -np.inf)


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


def one_hot(x: ArrayLike, num_classes: int, *, dtype: DTypeLike | None = None, axis: int = -1) -> Array:
    """Vectors with a one at the place that an integer gives, and zeros elsewhere.

    Args:
        x: integer array; integers out of range give zeros alone.
        num_classes: int: the length of the vectors.
        dtype: default float32 (float64 with x64).
        axis: the position of the new axis in the result; or the name of a mapped axis of size
            `num_classes`, over which the vector is then spread.
    Returns:
        Array of one more axis than `x`.

    Example:
        >>> ferrax.nn.one_hot(jnp.array([0, 2]), 3)
        Array([[1., 0., 0.],
               [0., 0., 1.]], dtype=float32)
    """
    num_classes = core.concrete_or_error(
        operator.index, num_classes, "The error arose in ferrax.nn.one_hot argument `num_classes`."
    )
    x = jnp.asarray(x)
    if not dtypes.issubdtype(x.dtype, np.integer):
        warnings.warn(
            f"ferrax.nn.one_hot input should be integer-typed; got dtype={x.dtype}",
            DeprecationWarning,
            stacklevel=2,
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


# ---------------------------------------------------------------------------------------------
# Attention.


def _check_operand(name, x, shape, dtype):
    """Raises ValueError unless `x` is None or has this shape (-1: any size) and dtype."""
    if x is None:
        return
    if x.ndim != len(shape):
        raise ValueError(f"dot_product_attention: {name} needs {len(shape)} axes, got {x.ndim}")
    if dtype is not None and x.dtype != dtype:
        raise ValueError(f"dot_product_attention: {name} needs dtype {dtype}, got {x.dtype}")
    if any(want not in (-1, got) for want, got in zip(shape, x.shape)):
        raise ValueError(
            f"dot_product_attention: {name} needs shape {shape} (-1: any), got {x.shape}"
        )


def dot_product_attention(  
    query: ArrayLike, key: Array, value: Any, bias: ArrayLike | None = None,
    mask: ArrayLike | None = None, *, scale: Any = None, is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None, key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: Any = None, implementation: Any = None, return_residual: bool = False,
) -> Array:
    """Scaled dot-product attention: `softmax(query @ key.T * scale + bias) @ value`.

    Sizes: B batch, T query positions, S key positions, N query heads, K key heads (N is a
    multiple of K: each key head serves N / K query heads), H features. B may be left out.

    Args:
        query: array of shape (B, T, N, H).
        key, value: arrays of shape (B, S, K, H).
        bias: array that broadcasts to (B, N, T, S), added to the logits.
        mask: boolean array that broadcasts to (B, N, T, S): which pairs may attend.
        scale: factor of the logits; default `1 / sqrt(H)`.
        is_causal: whether position t attends to positions up to t only.
        query_seq_lengths, key_value_seq_lengths: int32 arrays of shape (B,): positions from
            there on are padding.
        local_window_size: how many positions before, and after, are attended: an int or a pair.
        implementation: None or 'xla'.
        return_residual: whether to return, second, the logarithm of the softmax's denominator, of
            shape (B, T, N).
    Returns:
        Array of the shape of `query` and the dtype of `value`.
    Raises:
        ValueError: if shapes or dtypes do not fit.
        NotImplementedError: for `implementation='cudnn'`.
    """
    if implementation == "cudnn":
        raise NotImplementedError(
            "dot_product_attention: implementation='cudnn' is not available; use None."
        )
    if implementation not in (None, "xla"):
        raise ValueError(f"Unsupported implementation option: {implementation}")
    query = jnp.asarray(query)
    output_shape = query.shape

    def four_axes(x):
        if x is None:
            return None
        x = jnp.asarray(x)
        return x.reshape((1,) * (4 - x.ndim) + x.shape) if x.ndim < 4 else x

    query, key, value = four_axes(query), four_axes(key), four_axes(value)
    bias, mask = four_axes(bias), four_axes(mask)
    lengths = [
        None if x is None else jnp.asarray(x) for x in (query_seq_lengths, key_value_seq_lengths)
    ]
    if key.ndim != 4:
        raise ValueError(f"key ndim should be 4, but got {key.ndim}")
    batch, _, key_heads, features = key.shape
    _check_operand("value", value, list(key.shape), key.dtype)
    _check_operand("query", query, [batch, -1, -1, features], key.dtype)
    _check_operand("mask", mask, [-1] * 4, np.dtype(bool))
    _check_operand("bias", bias, [-1] * 4, None)
    _check_operand("query_seq_lengths", lengths[0], [batch], np.dtype("int32"))
    _check_operand("key_value_seq_lengths", lengths[1], [batch], np.dtype("int32"))
    if query.shape[2] % key_heads:
        raise ValueError(
            "dot_product_attention: each head of key and value serves as many of the query; "
            f"got {query.shape[2]} heads of the query for {key_heads}"
        )
    if isinstance(local_window_size, int):
        local_window_size = (local_window_size, local_window_size)
    output, residual = _attention(
        query, key, value, bias, mask, *lengths,
        1.0 / np.sqrt(features) if scale is None else scale,
        bool(is_causal), local_window_size, bool(return_residual),
    )  # fmt: skip
    output = output.reshape(output_shape)
    return (output, residual.reshape(output_shape[:-1])) if return_residual else output


@jit(static_argnums=(8, 9, 10), inline=True)
def _attention(
    query, key, value, bias, mask, query_lengths, key_lengths, scale, is_causal, window,
    with_residual,
):  # fmt: skip
    batch, size_t, heads, features = query.shape
    size_s, key_heads = key.shape[1:3]
    groups = heads // key_heads

    def grouped(x):
        """(B, N, T, S) with broadcast axes of size 1, as (B, K, G, T, S)."""
        if x is None:
            return None
        split = (1, 1) if x.shape[1] == 1 else (key_heads, groups)
        return x.reshape((x.shape[0], *split, *x.shape[2:]))

    logits_dtype = dtypes.promote_types(query.dtype, np.float32)
    logits = jnp.einsum(
        "BTKGH,BSKH->BKGTS",
        query.reshape((batch, size_t, key_heads, groups, features)),
        key,
        preferred_element_type=logits_dtype,
    )
    logits = logits * jnp.asarray(scale, dtype=logits.dtype)
    if bias is not None:
        logits = (logits + grouped(bias)).astype(logits.dtype)

    rows = jnp.arange(size_t).reshape((size_t, 1))
    columns = jnp.arange(size_s).reshape((1, size_s))
    rows, columns = (x.reshape((1, 1, 1, *x.shape)) for x in (rows, columns))
    allowed = grouped(mask)

    def restrict(condition):
        nonlocal allowed
        allowed = condition if allowed is None else jnp.logical_and(allowed, condition)

    if is_causal:
        restrict(columns <= rows)
    if window is not None:
        restrict((rows <= columns + window[0]) & (rows >= columns - window[1]))
    if query_lengths is not None:
        restrict(rows < query_lengths.reshape((batch, 1, 1, 1, 1)))
    if key_lengths is not None:
        restrict(columns < key_lengths.reshape((batch, 1, 1, 1, 1)))
    if allowed is not None:
        # Not -inf: a row that may attend to nothing gives the plain mean.
        largest = min(dtypes.finfo(logits.dtype).max, dtypes.finfo(np.float32).max)
        logits = jnp.where(allowed, logits, jnp.asarray(-0.7 * float(largest), logits.dtype))

    logits = logits.astype(np.float32)
    weights = softmax(logits, axis=-1).astype(key.dtype)
    output = jnp.einsum("BKGTS,BSKH->BTKGH", weights, value)
    if query_lengths is not None:
        real = jnp.arange(size_t).reshape((1, size_t)) < query_lengths.reshape((batch, 1))
        output = output * real.reshape((batch, size_t, 1, 1, 1)).astype(output.dtype)
    residual = None
    if with_residual:
        residual = logsumexp(logits, axis=-1).astype(key.dtype)
        residual = lax.stop_gradient(jnp.transpose(residual, (0, 3, 1, 2)))
    return output.reshape(query.shape), residual


# ---------------------------------------------------------------------------------------------
# Products of block-scaled arrays.


class BlockScaleConfig:
    """How the operands of `scaled_dot_general` are quantised: see `get_scaled_dot_general_config`.

    Attributes:
        mode: 'nvfp4' or 'mxfp8'.
        block_size: how many elements along the contracted axis share a scale.
        data_type, scale_type: the dtypes of elements and of scales.
        global_scale: one more scale, for 'nvfp4'.
        infer_only: whether derivatives are left out.
    """

    def __init__(self, mode, block_size, data_type, scale_type, global_scale, infer_only):
        self.mode, self.block_size = mode, block_size
        self.data_type, self.scale_type = data_type, scale_type
        self.global_scale, self.infer_only = global_scale, infer_only

    def __repr__(self):
        return f"BlockScaleConfig(mode={self.mode!r}, block_size={self.block_size})"


def get_scaled_dot_general_config(mode: Any, global_scale: ArrayLike | None = None) -> BlockScaleConfig:
    """The quantisation of an operand of `scaled_dot_general`.

    Args:
        mode: 'nvfp4' (float4_e2m1fn in blocks of 16) or 'mxfp8' (float8_e4m3fn in blocks of 32).
        global_scale: float32 array of shape (1,), for 'nvfp4'; default: one.
    Raises:
        ValueError: for another mode.
    """
    if mode == "nvfp4":
        scale = jnp.ones((1,), dtype=np.float32) if global_scale is None else global_scale
        return BlockScaleConfig(
            mode, 16, dtypes.float4_e2m1fn, dtypes.float8_e4m3fn, scale, False
        )
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, dtypes.float8_e4m3fn, dtypes.float8_e8m0fnu, None, False)
    raise ValueError(f"Unsupported mode: {mode}")


def scaled_dot_general(  
    lhs: ArrayLike, rhs: ArrayLike, dimension_numbers: Any,
    preferred_element_type: DTypeLike = np.float32, configs: Any = None,
    implementation: Any = None,
) -> Array:
    """`lax.dot_general` of operands that are quantised on the way, as `configs` say.

    Args:
        lhs, rhs, dimension_numbers, preferred_element_type: as in `lax.dot_general`.
        configs: quantisations of operands and gradients; None: none.
        implementation: ignored.
    Raises:
        NotImplementedError: if `configs` are given.
    """
    if implementation is not None:
        warnings.warn(
            "The implementation argument of scaled_dot_general is ignored.",
            DeprecationWarning,
            stacklevel=2,
        )
    if configs is not None:
        raise NotImplementedError(
            "scaled_dot_general: quantised products are not available; quantise the operands and "
            "use ferrax.nn.scaled_matmul."
        )
    return lax.dot_general(
        lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type
    )


def scaled_matmul(
    lhs: ArrayLike, rhs: ArrayLike, lhs_scales: ArrayLike, rhs_scales: ArrayLike,
    preferred_element_type: DTypeLike = np.float32,
) -> Array:
    """`lhs @ rhs.T` of batches of matrices whose elements have scales in common by blocks.

    Args:
        lhs: array of shape (B, M, K).
        rhs: array of shape (B, N, K).
        lhs_scales: array of shape (B, M, K / block): factors of blocks of `lhs` along K.
        rhs_scales: array of shape (B, N, K / block).
        preferred_element_type: dtype of the result.
    Returns:
        Array of shape (B, M, N).
    Raises:
        ValueError: if shapes do not fit.
    """
    arrays = [jnp.asarray(x) for x in (lhs, rhs, lhs_scales, rhs_scales)]
    lhs, rhs, lhs_scales, rhs_scales = arrays
    shapes = [x.shape for x in arrays]
    if any(x.ndim != 3 for x in arrays):
        raise ValueError(f"scaled_matmul requires 3-dimensional arrays, got shapes {shapes}.")
    if lhs.shape[::2] != rhs.shape[::2] or lhs_scales.shape[::2] != rhs_scales.shape[::2]:
        raise ValueError(
            "scaled_matmul requires equal batch (B) and contracted (K) sizes of both sides, got "
            f"shapes {shapes}."
        )
    if (
        lhs.shape[:2] != lhs_scales.shape[:2]
        or rhs.shape[:2] != rhs_scales.shape[:2]
        or lhs_scales.shape[2] == 0
        or lhs.shape[2] % lhs_scales.shape[2]
    ):
        raise ValueError(
            "scaled_matmul requires scales of the operands' shapes, but for blocks along the last "
            f"axis, got shapes {shapes}."
        )
    dtype = dtypes.check_and_canonicalize_user_dtype(preferred_element_type, "scaled_matmul")

    def scaled(x, scales):
        blocks = x.astype(np.float32).reshape((*scales.shape, x.shape[2] // scales.shape[2]))
        return (blocks * scales.astype(np.float32).reshape((*scales.shape, 1))).reshape(x.shape)

    product = jnp.einsum("bmk,bnk->bmn", scaled(lhs, lhs_scales), scaled(rhs, rhs_scales))
    return product.astype(dtype)
