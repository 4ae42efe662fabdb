"""Attention and products of block-scaled arrays of `ferrax.nn`.

Invariants: sizes and dtypes of operands are checked before anything is computed; logits and sums are
float32 for narrower floats.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.nn.functions import softmax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.logsumexp import logsumexp
from ferrax._src.transforms.jit import jit

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
    query: ArrayLike, key: ArrayLike, value: ArrayLike, bias: ArrayLike | None = None,
    mask: ArrayLike | None = None, *, scale: Any = None, is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None, key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: Any = None, implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
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

    Derivatives over many positions keep no logits for all pairs of them: see docs/running.md.
    (Vaswani et al., Attention Is All You Need, 2017; shared key heads: Ainslie et al., 2023.)

    >>> query, key = jnp.zeros((1, 1, 1, 2)), jnp.zeros((1, 2, 1, 2))
    >>> value = jnp.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 2, 1, 2)
    >>> ferrax.nn.dot_product_attention(query, key, value).ravel()
    Array([2., 3.], dtype=float32)
    """
    if implementation == "cudnn":
        raise NotImplementedError(
            "dot_product_attention: implementation='cudnn' is not available; use None."
        )
    if implementation not in (None, "xla"):
        raise ValueError(f"Unsupported implementation option: {implementation}")
    query = jnp.asarray(query)
    output_shape = query.shape

    def four_axes(x: ArrayLike) -> Array:
        x = jnp.asarray(x)
        return x.reshape((1,) * (4 - x.ndim) + x.shape) if x.ndim < 4 else x

    query, key, value = four_axes(query), four_axes(key), four_axes(value)
    bias = None if bias is None else four_axes(bias)
    mask = None if mask is None else four_axes(mask)
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
    query_lengths, key_lengths = lengths
    output, residual = _attention(
        query, key, value, bias, mask, query_lengths, key_lengths,
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
    """The attention, and the logarithm of its denominator or None."""
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
        real = rows.reshape((1, size_t)) < query_lengths.reshape((batch, 1))
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

    >>> ferrax.nn.get_scaled_dot_general_config("mxfp8").mode
    'mxfp8'
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

    >>> ferrax.nn.scaled_dot_general(jnp.ones((2, 3)), jnp.ones(3), (((1,), (0,)), ((), ())))
    Array([3., 3.], dtype=float32)
    """
    if configs is not None:
        raise NotImplementedError(
            "scaled_dot_general: quantised products are not available; quantise the operands and "
            "use ferrax.nn.scaled_matmul."
        )
    if implementation is not None:
        ignored = "The implementation argument of scaled_dot_general is ignored."
        warnings.warn(ignored, DeprecationWarning, stacklevel=user_stacklevel())
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

    >>> lhs, rhs = jnp.ones((1, 2, 4)), jnp.ones((1, 3, 4))
    >>> scales = jnp.full((1, 2, 1), 0.5), jnp.ones((1, 3, 1))
    >>> ferrax.nn.scaled_matmul(lhs, rhs, *scales)
    Array([[[2., 2., 2.],
            [2., 2., 2.]]], dtype=float32)
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
