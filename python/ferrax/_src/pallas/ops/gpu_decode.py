"""`pallas.ops.gpu.decode_attention` and `paged_attention`: attention of one new position to those before it.

In: queries `(batch, heads, features)`; keys and values of all positions, or of pages and a table that
names each sequence's pages. Heads of queries share heads of keys: their products are one product. Out:
`(batch, heads, features)`. Cost of pages: a copy of those that the tables name.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ferrax._src.core.typing import ArrayLike
from ferrax._src.numpy import api as jnp
from ferrax._src.pallas.ops import flash
from ferrax._src.pallas.ops.flash import MASK_VALUE
from ferrax._src.transforms.jit import jit


def mqa(
    q: Any, k: Any, v: Any, start_idx: ArrayLike | None = None, kv_seq_len: ArrayLike | None = None,
    sm_scale: float | None = None, block_h: int = 16, block_k: int = 256, k_splits: int = 16,
    num_warps: int | None = None, num_stages: int = 2, grid: tuple[int, ...] | None = None,
    interpret: bool = False, debug: bool = False, return_residuals: bool = False, normalize_output: bool = True,
) -> Any:  # fmt: skip
    """Attention of one query for each head to keys that all heads share.

    Args:
      q: array `(batch, heads, features)`.
      k, v: arrays `(batch, positions, features)`.
      start_idx, kv_seq_len: integers, scalars or `(batch,)`: the first position that is seen, and the first
        that is not any more. None: all are.
      sm_scale: factor of the logits; None: `1 / sqrt(features)`.
      block_k: how many keys at a time.
      block_h, k_splits, num_warps, num_stages, grid, interpret, debug: for GPUs; they change nothing here.
      return_residuals: whether to return `(out, (l, m))`: of the logits of each head the sum of exponentials
        less their maximum, and the maximum; float32 `(batch, heads)`.
      normalize_output: False leaves out the division by that sum.

    Returns an array of the type of q; 0 where no position is seen.

    Errors: ValueError for shapes that do not fit.

    >>> x = jnp.ones((2, 4, 8))
    >>> decode_attention.mqa(x, x, x).shape
    (2, 4, 8)
    """
    q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
    _check("mqa", q, k[:, :, None] if k.ndim == 3 else k, v[:, :, None] if v.ndim == 3 else v)
    return _decode(
        q, k[:, :, None], v[:, :, None], start_idx, kv_seq_len, sm_scale, block_k, return_residuals, normalize_output
    )


def gqa(
    q: Any, k: Any, v: Any, start_idx: ArrayLike | None = None, kv_seq_len: ArrayLike | None = None,
    sm_scale: float | None = None, block_h: int = 16, block_k: int = 128, k_splits: int = 16,
    num_warps: int | None = None, num_stages: int = 2, grid: tuple[int, ...] | None = None,
    interpret: bool = False, debug: bool = False, return_residuals: bool = False, normalize_output: bool = True,
) -> Any:  # fmt: skip
    """Attention of one query for each head to keys that groups of heads share.

    Args:
      q: array `(batch, heads, features)`.
      k, v: arrays `(batch, positions, key heads, features)`; `heads` is a multiple of `key heads`.
      start_idx, kv_seq_len, sm_scale, block_k, return_residuals, normalize_output: as for `mqa`.
      block_h, k_splits, num_warps, num_stages, grid, interpret, debug: for GPUs; they change nothing here.

    Returns what `mqa` does.

    Errors: ValueError for shapes that do not fit; NotImplementedError where the output is not normalised and
    the sums are not returned.

    >>> q, k = jnp.ones((2, 4, 8)), jnp.ones((2, 16, 2, 8))
    >>> decode_attention.gqa(q, k, k, kv_seq_len=3).shape
    (2, 4, 8)
    """
    if not normalize_output and not return_residuals:
        raise NotImplementedError("gqa: normalize_output=False goes with return_residuals=True, which has the sums")
    q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
    _check("gqa", q, k, v)
    return _decode(q, k, v, start_idx, kv_seq_len, sm_scale, block_k, return_residuals, normalize_output)


def _check(name, q, k, v):
    if q.ndim != 3 or k.ndim != 4 or k.shape != v.shape or (q.shape[0], q.shape[2]) != (k.shape[0], k.shape[3]):
        raise ValueError(f"{name}: shapes do not fit: q {q.shape}, k {k.shape}, v {v.shape}")
    if q.shape[1] % k.shape[2]:
        raise ValueError(f"{name}: {q.shape[1]} heads of queries cannot share {k.shape[2]} heads of keys evenly")


@functools.partial(jit, static_argnums=(5, 6, 7, 8))
def _decode(q, k, v, start_idx, kv_seq_len, sm_scale, block_k, return_residuals, normalize_output):
    batch, heads, features = q.shape
    groups, length = k.shape[2], k.shape[1]
    bounds = [
        None if x is None else jnp.broadcast_to(x, (batch,))[:, None] for x in (start_idx, kv_seq_len)
    ]
    scale = 1 / math.sqrt(features) if sm_scale is None else sm_scale
    found = flash.values(
        q.reshape(batch, groups, heads // groups, features), jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2), None,
        flash.Mask(start=bounds[0], stop=bounds[1]), flash.Options(scale, block_k, block_k),
    )  # fmt: skip
    first = 0 if bounds[0] is None else jnp.maximum(bounds[0], 0)
    last = length if bounds[1] is None else jnp.minimum(bounds[1], length)
    sees = jnp.broadcast_to(first < last, (batch, groups))[..., None]
    total = jnp.where(sees, found.total, 0)
    top = jnp.where(sees, found.top, np.finfo(np.float32).min)
    out = found.out if normalize_output else found.out * found.total[..., None]
    out = jnp.where(sees[..., None], out, 0).astype(q.dtype).reshape(q.shape)
    return (out, (total.reshape(batch, heads), top.reshape(batch, heads))) if return_residuals else out


def mqa_reference(
    q: Any, k: Any, v: Any, start_idx: ArrayLike | None = None, kv_seq_len: ArrayLike | None = None,
    sm_scale: float | None = None, return_residuals: bool = False, normalize_output: bool = True,
) -> Any:  # fmt: skip
    """What `mqa` computes, with all logits at once and in float32.

    Args: q, k, v, start_idx, kv_seq_len, sm_scale, return_residuals, normalize_output: as for `mqa`.

    >>> q, k = jnp.ones((2, 4, 8)), jnp.ones((2, 16, 2, 8))
    >>> decode_attention.mqa_reference(q, k[:, :, 0], k[:, :, 0]).shape
    (2, 4, 8)
    """
    return gqa_reference(
        q, jnp.asarray(k)[:, :, None], jnp.asarray(v)[:, :, None], start_idx, kv_seq_len, sm_scale, return_residuals,
        normalize_output,
    )  # fmt: skip


def mha_reference(
    q: Any, k: Any, v: Any, start_idx: ArrayLike | None = None, kv_seq_len: ArrayLike | None = None,
    sm_scale: float | None = None,
) -> Any:  # fmt: skip
    """What `gqa` computes where each head of queries has a head of keys, with all logits at once.

    Args: q, k, v, start_idx, kv_seq_len, sm_scale: as for `gqa`.

    >>> q, k = jnp.ones((2, 4, 8)), jnp.ones((2, 16, 2, 8))
    >>> decode_attention.mha_reference(q[:, :2], k, k).shape
    (2, 2, 8)
    """
    return gqa_reference(q, k, v, start_idx, kv_seq_len, sm_scale)


def gqa_reference(
    q: Any, k: Any, v: Any, start_idx: ArrayLike | None = None, kv_seq_len: ArrayLike | None = None,
    sm_scale: float | None = None, return_residuals: bool = False, normalize_output: bool = True,
) -> Any:  # fmt: skip
    """What `gqa` computes, with all logits at once and in float32.

    Args: q, k, v, start_idx, kv_seq_len, sm_scale, return_residuals, normalize_output: as for `gqa`.

    >>> q, k = jnp.ones((2, 4, 8)), jnp.ones((2, 16, 2, 8))
    >>> decode_attention.gqa_reference(q, k, k, kv_seq_len=3).shape
    (2, 4, 8)
    """
    q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
    _check("gqa_reference", q, k, v)
    return _reference(q, k, v, start_idx, kv_seq_len, sm_scale, return_residuals, normalize_output, None, MASK_VALUE)


@functools.partial(jit, static_argnums=(5, 6, 7, 8, 9))
def _reference(q, k, v, start, stop, sm_scale, return_residuals, normalize_output, cap, mask_value):
    batch, heads, features = q.shape
    groups, length = k.shape[2], k.shape[1]
    queries = q.reshape(batch, groups, heads // groups, features).astype(np.float32)
    logits = jnp.einsum("bgtd,bsgd->bgts", queries, k.astype(np.float32))
    logits = logits * (1 / math.sqrt(features) if sm_scale is None else sm_scale)
    if cap is not None:
        logits = jnp.tanh(logits / cap) * cap
    columns = jnp.arange(length)
    for bound, seen in ((start, jnp.greater_equal), (stop, jnp.less)):
        if bound is not None:
            allowed = seen(columns[None], jnp.broadcast_to(bound, (batch,))[:, None])
            logits = jnp.where(allowed[:, None, None], logits, np.float32(mask_value))
    top = logits.max(-1, keepdims=True)
    weights = jnp.exp(logits - top)
    total = weights.sum(-1, keepdims=True)
    if normalize_output:
        weights = weights / total
    out = jnp.einsum("bgts,bsgd->bgtd", weights, v.astype(np.float32)).astype(q.dtype).reshape(q.shape)
    return (out, (total.reshape(batch, heads), top.reshape(batch, heads))) if return_residuals else out


# Pages.


def paged_attention(
    q: Any, k_pages: Any, v_pages: Any, block_tables: Any, lengths: Any, k_scales_pages: Any = None,
    v_scales_pages: Any = None, *, block_h: int = 16, pages_per_compute_block: int = 8, k_splits: int = 16,
    num_warps: int = 8, num_stages: int = 2, interpret: bool = False, debug: bool = False,
    mask_value: float = MASK_VALUE, attn_logits_soft_cap: float | None = None,
) -> Any:  # fmt: skip
    """Attention of one query for each head to the keys of the pages that a table names.

    Args:
      q: array `(batch, heads, features)`. Logits are not scaled: scale q.
      k_pages, v_pages: arrays `(key heads, pages, page size, features)`; `heads` is a multiple of `key heads`.
      block_tables: int32 `(batch, pages of a sequence)`, the pages of each sequence in order.
      lengths: int32 `(batch,)`, how many positions of each are seen; None: all.
      k_scales_pages, v_scales_pages: arrays `(key heads, pages, page size)` that narrow keys and values are to
        be multiplied by; or None.
      block_h: a multiple of 16, for GPUs, as are k_splits, num_warps, num_stages, interpret, debug, which
        change nothing here.
      pages_per_compute_block: of how many pages keys are taken at a time.
      mask_value: the logit of what is not seen.
      attn_logits_soft_cap: bounds logits to `cap * tanh(logit / cap)`; None: they are not.

    Returns an array of the type of q.

    Errors: ValueError for shapes and dtypes that do not fit.

    >>> q, pages = jnp.ones((2, 4, 8)), jnp.ones((2, 6, 16, 8))
    >>> table, lengths = jnp.array([[0, 3], [5, 1]]), jnp.array([20, 7])
    >>> from ferrax.experimental.pallas.ops.gpu.paged_attention import paged_attention
    >>> paged_attention(q, pages, pages, table, lengths).shape
    (2, 4, 8)
    """
    q, k_pages, v_pages = jnp.asarray(q), jnp.asarray(k_pages), jnp.asarray(v_pages)
    block_tables = jnp.asarray(block_tables)
    check_pages("paged_attention", q, k_pages, v_pages, block_tables, lengths, "block_tables")
    if block_h % 16:
        raise ValueError(f"paged_attention: block_h is a multiple of 16, got {block_h}")
    for scales in (k_scales_pages, v_scales_pages):
        if scales is not None and scales.shape != k_pages.shape[:-1]:
            raise ValueError(
                f"paged_attention: a scale for each position of each page, {k_pages.shape[:-1]}, got {scales.shape}"
            )
    return of_pages(
        q, k_pages, v_pages, block_tables, lengths, _last(k_scales_pages), _last(v_scales_pages),
        pages_per_compute_block, float(mask_value), attn_logits_soft_cap,
    )  # fmt: skip


def _last(scales):
    return None if scales is None else jnp.asarray(scales)[..., None]


def check_pages(name: str, q: Any, k_pages: Any, v_pages: Any, tables: Any, lengths: Any, tables_name: str) -> None:
    """Raises ValueError for shapes and dtypes that do not fit."""
    if q.ndim != 3 or k_pages.ndim != 4 or tables.ndim != 2 or k_pages.shape != v_pages.shape:
        raise ValueError(
            f"{name}: q has 3 axes, k_pages and v_pages have one shape of 4, {tables_name} has 2 axes, got shapes "
            f"{q.shape}, {k_pages.shape}, {v_pages.shape}, {tables.shape}"
        )
    if q.shape[1] % k_pages.shape[0]:
        raise ValueError(f"{name}: {q.shape[1]} heads of queries cannot share {k_pages.shape[0]} heads of keys evenly")
    if q.shape[2] != k_pages.shape[3]:
        raise ValueError(f"{name}: q has {q.shape[2]} features, keys have {k_pages.shape[3]}")
    if tables.shape[0] != q.shape[0]:
        raise ValueError(f"{name}: {tables_name} is of {tables.shape[0]} sequences, q of {q.shape[0]}")
    if lengths is not None and (lengths.shape != q.shape[:1] or lengths.dtype != np.int32):
        raise ValueError(f"{name}: lengths is int32{[q.shape[0]]}, got {lengths.dtype}{list(lengths.shape)}")


@functools.partial(jit, static_argnums=(7, 8, 9))
def of_pages(
    q: Any, k_pages: Any, v_pages: Any, tables: Any, lengths: Any, k_scales: Any, v_scales: Any, pages_at_once: int,
    mask_value: float, cap: float | None,
) -> Any:  # fmt: skip
    """`paged_attention`, with scales of shape `(key heads, pages, page size, 1 or features)`."""
    batch, heads, features = q.shape
    groups, _, page, _ = k_pages.shape
    block = max(min(pages_at_once, tables.shape[1]), 1) * page

    def gathered(pages, scales):
        found = jnp.swapaxes(jnp.take(pages, tables, 1), 0, 1).reshape(batch, groups, -1, features)
        if scales is None:
            return found
        factors = jnp.swapaxes(jnp.take(scales, tables, 1), 0, 1).reshape(batch, groups, found.shape[2], -1)
        return found.astype(np.float32) * factors.astype(np.float32)

    stop = None if lengths is None else jnp.broadcast_to(jnp.asarray(lengths)[:, None], (batch, groups))
    k, v = gathered(k_pages, k_scales), gathered(v_pages, v_scales)
    queries = q.reshape(batch, groups, heads // groups, features)
    if k.dtype != q.dtype:
        queries, k = queries.astype(np.float32), k.astype(np.float32)
    options = flash.Options(1.0, block, block, False, mask_value, cap)
    out = flash.attend(queries, k, v, None, flash.Mask(stop=stop), options)
    if stop is not None:
        out = jnp.where((stop > 0)[..., None, None], out, 0)
    return out.astype(q.dtype).reshape(q.shape)


def paged_attention_reference(
    q: Any, k: Any, v: Any, lengths: Any, *, mask_value: float = MASK_VALUE, attn_logits_soft_cap: float | None = None
) -> Any:
    """What `paged_attention` computes, of keys and values that are no pages, with all logits at once.

    Args:
      q: array `(batch, heads, features)`.
      k, v: arrays `(batch, positions, key heads, features)`.
      lengths: int32 `(batch,)`, how many positions are seen; None: all.
      mask_value, attn_logits_soft_cap: as for `paged_attention`.

    >>> q, k = jnp.ones((2, 4, 8)), jnp.ones((2, 16, 2, 8))
    >>> from ferrax.experimental.pallas.ops.gpu.paged_attention import paged_attention_reference
    >>> paged_attention_reference(q, k, k, jnp.array([3, 9])).shape
    (2, 4, 8)
    """
    q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
    _check("paged_attention_reference", q, k, v)
    return _reference(q, k, v, None, lengths, 1.0, False, True, attn_logits_soft_cap, float(mask_value))
