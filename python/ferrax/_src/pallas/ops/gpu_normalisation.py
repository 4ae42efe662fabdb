"""`pallas.ops.gpu.softmax`, `layer_norm` and `rms_norm`: along the last axis, computed in float32.

In and out: arrays of one dtype. They are elementwise programs and reductions, which are fused like any
other, and differentiated as such.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ferrax._src.lax import api as lax
from ferrax._src.nn.functions import softmax as _softmax
from ferrax._src.numpy import api as jnp
from ferrax._src.pallas.ops.flash import ranked
from ferrax._src.transforms.jit import jit


def softmax(
    x: Any, *, axis: int = -1, num_warps: int = 4, interpret: bool = False, debug: bool = False
) -> Any:
    """The softmax along the last axis, computed in float32.

    Args:
      x: a floating-point array.
      axis: the last axis.
      num_warps, interpret, debug: for the compiler of GPUs; they change nothing here.

    Returns an array of the type of x.

    Errors: NotImplementedError for another axis: use `jax.nn.softmax`.

    >>> softmax.softmax(jnp.zeros((1, 4)))
    Array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    x = jnp.asarray(x)
    if axis not in (-1, x.ndim - 1):
        raise NotImplementedError(f"softmax: of the last axis, got axis={axis}. Use jax.nn.softmax.")
    return _jitted_softmax(x)


@jit
def _jitted_softmax(x):
    return _softmax(_wide(x), axis=-1).astype(x.dtype)


def _wide(x):
    return x.astype(np.float32) if x.dtype.itemsize < 4 else x


def _checked(name, x, weight, bias, backward_pass_impl):
    x, weight, bias = jnp.asarray(x), jnp.asarray(weight), jnp.asarray(bias)
    if backward_pass_impl not in ("triton", "xla"):
        raise ValueError(f"{name}: backward_pass_impl is 'triton' or 'xla', got {backward_pass_impl!r}")
    if not x.ndim or weight.shape != x.shape[-1:] or bias.shape != x.shape[-1:]:
        raise ValueError(
            f"{name}: weight and bias have an element for each of the last axis of x, got shapes {x.shape}, "
            f"{weight.shape} and {bias.shape}"
        )
    return x, weight, bias


def layer_norm(
    x: Any, weight: Any, bias: Any, num_warps: int | None = None, num_stages: int | None = 3, eps: float = 1e-5,
    backward_pass_impl: str = "triton", interpret: bool = False,
) -> Any:  # fmt: skip
    """`(x - mean) / sqrt(variance + eps) * weight + bias`, of the last axis.

    Args:
      x: a floating-point array `(..., n)`.
      weight, bias: arrays `(n,)`.
      eps: what is added to the variance.
      backward_pass_impl: "triton" or "xla"; derivatives are the same.
      num_warps, num_stages, interpret: for the compiler of GPUs; they change nothing here.

    Returns an array of the type of x.

    Errors: ValueError for other shapes and another `backward_pass_impl`.

    >>> layer_norm.layer_norm(jnp.array([[1.0, 3.0]]), jnp.ones(2), jnp.zeros(2), eps=0.0)
    Array([[-1.,  1.]], dtype=float32)
    """
    return _layer_norm(*_checked("layer_norm", x, weight, bias, backward_pass_impl), float(eps))


@functools.partial(jit, static_argnums=(3,))
def _layer_norm(x, weight, bias, eps):
    wide = _wide(x)
    centred = wide - wide.mean(-1, keepdims=True)
    scale = lax.rsqrt((centred * centred).mean(-1, keepdims=True) + eps)
    return (centred * scale * ranked(weight, x.ndim) + ranked(bias, x.ndim)).astype(x.dtype)


def layer_norm_reference(x: Any, weight: Any, bias: Any, *, eps: float = 1e-5) -> Any:
    """`layer_norm` of a variance that is the mean of squares less the square of the mean, in the dtype of x.

    Args: x: an array `(..., n)`; weight, bias: arrays `(n,)`; eps: what is added to the variance.

    >>> layer_norm.layer_norm_reference(jnp.array([[1.0, 3.0]]), jnp.ones(2), jnp.zeros(2), eps=0.0)
    Array([[-1.,  1.]], dtype=float32)
    """
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.maximum(0, jnp.mean(x * x, -1, keepdims=True) - mean * mean)
    return (x - mean) * lax.rsqrt(variance + eps) * ranked(weight, x.ndim) + ranked(bias, x.ndim)


def rms_norm(
    x: Any, weight: Any, bias: Any, num_warps: int | None = None, num_stages: int | None = 3, eps: float = 1e-5,
    backward_pass_impl: str = "triton", interpret: bool = False,
) -> Any:  # fmt: skip
    """`x / sqrt(mean(x ** 2) + eps) * weight + bias`, of the last axis.

    Args:
      x: a floating-point array `(..., n)`.
      weight, bias: arrays `(n,)`.
      eps: what is added to the mean of squares.
      backward_pass_impl: "triton" or "xla"; derivatives are the same.
      num_warps, num_stages, interpret: for the compiler of GPUs; they change nothing here.

    Returns an array of the type of x.

    Errors: ValueError for other shapes and another `backward_pass_impl`.

    >>> rms_norm.rms_norm(jnp.array([[1.0, 7.0]]), jnp.ones(2), jnp.zeros(2), eps=0.0)
    Array([[0.2, 1.4]], dtype=float32)
    """
    return _rms_norm(*_checked("rms_norm", x, weight, bias, backward_pass_impl), float(eps))


@functools.partial(jit, static_argnums=(3,))
def _rms_norm(x, weight, bias, eps):
    wide = _wide(x)
    scale = lax.rsqrt((wide * wide).mean(-1, keepdims=True) + eps)
    return (wide * scale * ranked(weight, x.ndim) + ranked(bias, x.ndim)).astype(x.dtype)


def rms_norm_reference(x: Any, weight: Any, bias: Any, *, eps: float = 1e-5) -> Any:
    """`rms_norm` in the dtype of x.

    Args: x: an array `(..., n)`; weight, bias: arrays `(n,)`; eps: what is added to the mean of squares.

    >>> rms_norm.rms_norm_reference(jnp.array([[1.0, 7.0]]), jnp.ones(2), jnp.zeros(2), eps=0.0)
    Array([[0.2, 1.4]], dtype=float32)
    """
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * ranked(weight, x.ndim) + ranked(bias, x.ndim)
