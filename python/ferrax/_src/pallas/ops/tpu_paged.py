"""`pallas.ops.tpu.paged_attention`: attention of one new position to pages of keys, which may be int8.

In: queries `(batch, heads, features)`, pages and a table of each sequence's. Out: an array like the
queries. See `gpu_decode` for how and at what cost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.callbacks.debugging import debug_print
from ferrax._src.core.typing import DTypeLike
from ferrax._src.nn.functions import softmax
from ferrax._src.numpy import api as jnp
from ferrax._src.pallas.ops.flash import MASK_VALUE
from ferrax._src.pallas.ops.gpu_decode import check_pages, of_pages

# int8 stands for this many parts of the scale, and half a part more so that none is lost to rounding.
MAX_INT8 = 127.5


class QuantizedTensor(NamedTuple):
    """An array as int8 and scales. Attributes: weight: int8 `(..., n)`; scales: `(..., 1)`.

    >>> x = jnp.array([[0.5, -1.0]])
    >>> quantization_utils.quantize_to_int8(x).scales
    Array([[1.]], dtype=float32)
    """

    weight: Any
    scales: Any


def to_int8(x: Any, h: Any) -> Any:
    """`x` in parts of `h / 127.5`, rounded.

    Args: x: a floating-point array; h: an array that broadcasts to it, the largest magnitude.

    >>> x = jnp.array([[0.5, -1.0]])
    >>> quantization_utils.to_int8(x, 1.0)
    Array([[  64, -128]], dtype=int8)
    """
    return jnp.int8(jnp.rint(x * (MAX_INT8 / h)))


def from_int8(x: Any, h: Any, dtype: DTypeLike = dtypes.bfloat16) -> Any:
    """What `to_int8` was given, as far as int8 holds it.

    Args: x: an int8 array; h: the largest magnitude; dtype: the dtype to compute in.

    >>> quantization_utils.from_int8(jnp.int8([51]), 1.0, jnp.float32)
    Array([0.4], dtype=float32)
    """
    return x.astype(dtype) * h / MAX_INT8


def get_quantization_scales(x: Any) -> Any:
    """The largest magnitude along the last axis, whose length becomes 1. Args: x: a floating-point array.

    >>> x = jnp.array([[0.5, -1.0]])
    >>> quantization_utils.get_quantization_scales(x)
    Array([[1.]], dtype=float32)
    """
    return jnp.max(jnp.abs(x), axis=-1, keepdims=True)


def quantize_to_int8(x: Any) -> QuantizedTensor:
    """An array as int8 and scales along the last axis. Args: x: a floating-point array.

    >>> quantization_utils.quantize_to_int8(jnp.array([[0.5, -1.0]])).weight
    Array([[  64, -128]], dtype=int8)
    """
    scales = get_quantization_scales(x)
    return QuantizedTensor(to_int8(x, scales), scales)


def unquantize_from_int8(x: QuantizedTensor, dtype: DTypeLike = dtypes.bfloat16) -> Any:
    """The array that int8 and scales stand for. Args: x: a `QuantizedTensor`; dtype: the dtype to compute in.

    >>> x = jnp.array([[0.5, -1.0]])
    >>> quantization_utils.unquantize_from_int8(quantization_utils.quantize_to_int8(x)).shape
    (1, 2)
    """
    return from_int8(x.weight, x.scales, dtype)


def paged_attention(
    q: Any, k_pages: Any, v_pages: Any, lengths: Any, page_indices: Any, *, mask_value: float = MASK_VALUE,
    attn_logits_soft_cap: float | None = None, pages_per_compute_block: int, megacore_mode: str | None = None,
    inline_seq_dim: bool = True,
) -> Any:  # fmt: skip
    """Attention of one query for each head to the keys of the pages that a table names.

    Args:
      q: array `(batch, heads, features)`. Logits are not scaled: scale q.
      k_pages, v_pages: arrays `(key heads, pages, page size, features)`, or `QuantizedTensor` of such.
      lengths: int32 `(batch,)`, how many positions of each are seen.
      page_indices: int32 `(batch, pages of a sequence)`, the pages of each sequence in order.
      mask_value: the logit of what is not seen.
      attn_logits_soft_cap: bounds logits to `cap * tanh(logit / cap)`; None: they are not.
      pages_per_compute_block: of how many pages keys are taken at a time; it divides the pages of a sequence.
      megacore_mode: "kv_head", "batch" or None: what the two cores of a TPU share out; nothing here.
      inline_seq_dim: for the compiler of TPUs; it changes nothing here.

    Returns an array of the type of q; 0 where the length is 0.

    Errors: ValueError for shapes and dtypes that do not fit, and for what two cores cannot share.

    >>> q, pages = jnp.ones((2, 4, 8)), jnp.ones((2, 6, 16, 8))
    >>> table, lengths = jnp.array([[0, 3], [5, 1]]), jnp.array([20, 7])
    >>> from ferrax.experimental.pallas.ops.tpu.paged_attention import paged_attention
    >>> paged_attention(q, pages, pages, lengths, table, pages_per_compute_block=2).shape
    (2, 4, 8)
    """
    pages, scales = [], []
    for each in (k_pages, v_pages):
        narrow = isinstance(each, QuantizedTensor)
        pages.append(jnp.asarray(each.weight if narrow else each))
        scales.append(each.scales / MAX_INT8 if narrow else None)
    q, page_indices = jnp.asarray(q), jnp.asarray(page_indices)
    lengths = jnp.asarray(lengths)
    check_pages("paged_attention", q, pages[0], pages[1], page_indices, lengths, "page_indices")
    if page_indices.shape[1] % pages_per_compute_block:
        raise ValueError(
            f"paged_attention: {pages_per_compute_block} pages at a time do not divide {page_indices.shape[1]}"
        )
    shared = {None: 0, "batch": q.shape[0], "kv_head": pages[0].shape[0]}
    if megacore_mode not in shared:
        raise ValueError(f"paged_attention: megacore_mode is one of {list(shared)}, got {megacore_mode!r}")
    if shared[megacore_mode] % 2:
        raise ValueError(f"paged_attention: two cores cannot share {shared[megacore_mode]} of {megacore_mode!r} evenly")
    return of_pages(
        q, *pages, page_indices, lengths, *scales, pages_per_compute_block, float(mask_value), attn_logits_soft_cap
    )


def grouped_query_attention_reference(
    queries: Any, k_pages: Any, v_pages: Any, seq_lens: Any, soft_cap: float | None = None, debug: bool = False
) -> Any:
    """What `paged_attention` computes, of keys and values in the order of positions, with all logits at once.

    Args:
      queries: array `(batch, heads, features)`.
      k_pages, v_pages: arrays `(batch, key heads, positions, features)`, or `QuantizedTensor` of such.
      seq_lens: integers `(batch,)`, how many positions are seen.
      soft_cap: bounds logits; None or 0: they are not.
      debug: whether to print logits and weights.

    Errors: ValueError for shapes that do not fit.

    >>> from ferrax.experimental.pallas.ops.tpu.paged_attention import util
    >>> q, k = jnp.ones((2, 4, 8)), jnp.ones((2, 2, 16, 8))
    >>> util.grouped_query_attention_reference(q, k, k, jnp.array([3, 9])).shape
    (2, 4, 8)
    """
    k, v = (
        unquantize_from_int8(x, np.float32) if isinstance(x, QuantizedTensor) else x for x in (k_pages, v_pages)
    )
    batch, heads, features = queries.shape
    if k.shape != v.shape or (batch, features) != (k.shape[0], k.shape[3]) or heads % k.shape[1]:
        raise ValueError(f"shapes do not fit: queries {queries.shape}, keys {k.shape}, values {v.shape}")
    grouped = queries.reshape(batch, k.shape[1], -1, features).astype(np.float32)
    logits = jnp.einsum("bgtd,bgsd->bgts", grouped, k.astype(np.float32))
    if soft_cap:
        logits = jnp.tanh(logits / soft_cap) * soft_cap
    seen = jnp.arange(k.shape[2])[None] < jnp.asarray(seq_lens)[:, None]
    logits = logits + jnp.where(seen, 0.0, MASK_VALUE)[:, None, None]
    weights = softmax(logits, axis=-1)
    if debug:
        debug_print("logits: {}\nweights: {}", logits, weights)
    return jnp.einsum("bgts,bgsd->bgtd", weights.astype(v.dtype), v).reshape(batch, heads, features)
