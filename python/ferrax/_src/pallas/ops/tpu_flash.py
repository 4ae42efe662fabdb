"""`pallas.ops.tpu.flash_attention`: multi-head attention with the heads before the sequence.

In and out: arrays `(batch, heads, sequence, features)`. Values and derivatives go block by block of keys
(`flash`), on any device.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.numpy import api as jnp
from ferrax._src.pallas.ops import flash
from ferrax._src.pallas.ops.flash import MASK_VALUE
from ferrax._src.transforms.jit import jit


class SegmentIds(NamedTuple):
    """Segments of queries and of keys: a query sees keys of its own.

    Attributes: q: integers `(batch, T)`; kv: integers `(batch, S)`.

    >>> x = jnp.ones((1, 2, 4, 8))
    >>> ids = jnp.array([[0, 0, 1, 1]])
    >>> flash_attention.flash_attention(x, x, x, segment_ids=flash_attention.SegmentIds(ids, ids)).shape
    (1, 2, 4, 8)
    """

    q: Any
    kv: Any


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """How many queries and keys a TPU takes at a time.

    Attributes:
      block_q, block_k_major, block_k, block_b: of queries, of keys that are fetched, of keys that are computed
        with, and of the batch, for values.
      block_q_major_dkv, block_k_major_dkv, block_k_dkv, block_q_dkv: for derivatives by keys and values.
      block_k_major_dq, block_k_dq, block_q_dq: for derivatives by queries.

    Here keys are taken `block_k` at a time, in derivatives `block_k_dkv`; queries all at once.

    Errors: ValueError where a block that is computed with does not divide the one that is fetched.

    >>> flash_attention.BlockSizes(128, 512, 256, 1).has_backward_blocks
    False
    """

    block_q: int
    block_k_major: int
    block_k: int
    block_b: int
    block_q_major_dkv: int | None = None
    block_k_major_dkv: int | None = None
    block_k_dkv: int | None = None
    block_q_dkv: int | None = None
    block_k_major_dq: int | None = None
    block_k_dq: int | None = None
    block_q_dq: int | None = None

    def __post_init__(self) -> None:
        for major, minor in (
            ("block_k_major", "block_k"), ("block_q_major_dkv", "block_q_dkv"),
            ("block_k_major_dkv", "block_k_dkv"), ("block_k_major_dq", "block_k_dq"),
        ):  # fmt: skip
            whole, part = getattr(self, major), getattr(self, minor)
            if whole is not None and part is not None and whole % part:
                raise ValueError(f"BlockSizes: {minor}={part} does not divide {major}={whole}")

    @property
    def has_backward_blocks(self) -> bool:
        """Whether all sizes for derivatives are given."""
        return None not in [getattr(self, field.name) for field in dataclasses.fields(self)[4:]]

    @classmethod
    def get_default(cls, batch_size: int, num_heads: int, q_seq_len: int, kv_len: int, d_model: int) -> BlockSizes:
        """Blocks of 128, of one of the batch.

        Args: batch_size, num_heads, q_seq_len, kv_len, d_model: the sizes; the blocks are the same for all.
        """
        return cls(128, 128, 128, 1, *[128] * 7)


def flash_attention(
    q: Any, k: Any, v: Any, ab: Any = None, segment_ids: SegmentIds | None = None, *, causal: bool = False,
    sm_scale: float = 1.0, block_sizes: BlockSizes | None = None, debug: bool = False,
) -> Any:  # fmt: skip
    """`softmax((q @ k.T + ab) * sm_scale) @ v` for each head, block by block of keys.

    Args:
      q: array `(batch, heads, T, features)`.
      k, v: arrays `(batch, heads, S, features)`.
      ab: array `(batch, heads, T, S)` that is added to the products, or None.
      segment_ids: `SegmentIds`, or None.
      causal: whether query t sees no keys behind t.
      sm_scale: factor of the logits. There is no default of `1 / sqrt(features)`.
      block_sizes: None: those of `BlockSizes.get_default`. The last block may be shorter.
      debug: for the compiler of TPUs; it changes nothing here.

    Returns an array of the shape and dtype of q.

    Errors: ValueError for shapes that do not fit; NotImplementedError for another number of features of v.

    >>> x = jnp.ones((1, 2, 4, 8))
    >>> flash_attention.flash_attention(x, x, x, causal=True).shape
    (1, 2, 4, 8)
    """
    q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
    ab = None if ab is None else jnp.asarray(ab)
    if not q.ndim == k.ndim == v.ndim == 4 or k.shape[:3] != v.shape[:3] or q.shape[:2] != k.shape[:2]:
        raise ValueError(
            "flash_attention: q, k and v are (batch, heads, sequence, features) of one batch and as many heads, k and "
            f"v of one sequence, got shapes {q.shape}, {k.shape} and {v.shape}"
        )
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"flash_attention: q has {q.shape[3]} features, k has {k.shape[3]}")
    if q.shape[3] != v.shape[3]:
        raise NotImplementedError(f"flash_attention: v has {v.shape[3]} features, q {q.shape[3]}: pad v with zeros")
    if ab is not None and ab.shape != (*q.shape[:3], k.shape[2]):
        raise ValueError(f"flash_attention: ab has shape {(*q.shape[:3], k.shape[2])}, got {ab.shape}")
    if segment_ids is not None:
        wanted = ((q.shape[0], q.shape[2]), (q.shape[0], k.shape[2]))
        given = (segment_ids.q.shape, segment_ids.kv.shape)
        if given != wanted:
            raise ValueError(f"flash_attention: segment_ids of shapes {wanted}, got {given}")
    if block_sizes is None:
        block_sizes = BlockSizes.get_default(q.shape[0], q.shape[1], q.shape[2], k.shape[2], q.shape[3])
    blocks = (block_sizes.block_k, block_sizes.block_k_dkv or block_sizes.block_k)
    return _flash(q, k, v, ab, segment_ids, flash.Options(float(sm_scale), *blocks, bool(causal)))


@functools.partial(jit, static_argnums=(5,))
def _flash(q, k, v, ab, segment_ids, options):
    mask = flash.Mask()
    if segment_ids is not None:
        mask = flash.Mask(jnp.asarray(segment_ids[0])[:, None], jnp.asarray(segment_ids[1])[:, None])
    return flash.attend(q, k, v, ab, mask, options).astype(q.dtype)


def mha_reference_no_custom_vjp(
    q: Any, k: Any, v: Any, ab: Any = None, segment_ids: SegmentIds | None = None, *, causal: bool = False,
    mask_value: float = MASK_VALUE, sm_scale: float = 1.0, save_residuals: bool = False,
) -> Any:  # fmt: skip
    """What `flash_attention` computes, with all logits at once, in the operands' dtype.

    Args:
      q, k, v, ab, segment_ids, causal, sm_scale: as for `flash_attention`.
      mask_value: what is added to logits that are not seen.
      save_residuals: whether to return `(out, l, m)`: of each row of logits the sum of exponentials less the
        maximum, and the maximum.

    >>> x = jnp.ones((1, 2, 4, 8))
    >>> flash_attention.mha_reference_no_custom_vjp(x, x, x).shape
    (1, 2, 4, 8)
    """
    logits = jnp.einsum("bhtd,bhsd->bhts", q, k)
    if ab is not None:
        logits = logits + ab
    if sm_scale != 1.0:
        logits = logits * sm_scale
    seen = None
    if segment_ids is not None:
        seen = (segment_ids.q[:, :, None] == segment_ids.kv[:, None])[:, None]
    if causal:
        lower = jnp.tri(logits.shape[-2], logits.shape[-1], dtype=bool)[None, None]
        seen = lower if seen is None else seen & lower
    if seen is not None:
        logits = logits + jnp.where(seen, 0.0, mask_value)
    top = logits.max(-1)
    weights = jnp.exp(logits - top[..., None])
    total = weights.sum(-1)
    out = jnp.einsum("bhts,bhsd->bhtd", weights / total[..., None], v)
    return (out, total, top) if save_residuals else out


def mha_reference(
    q: Any, k: Any, v: Any, ab: Any, segment_ids: SegmentIds | None = None, causal: bool = False,
    mask_value: float = MASK_VALUE, sm_scale: float = 1.0,
) -> Any:  # fmt: skip
    """`mha_reference_no_custom_vjp`, compiled.

    Args: q, k, v, ab, segment_ids, causal, mask_value, sm_scale: as there.

    >>> x = jnp.ones((1, 2, 4, 8))
    >>> flash_attention.mha_reference(x, x, x, None, causal=True).shape
    (1, 2, 4, 8)
    """
    return _reference(q, k, v, ab, segment_ids, bool(causal), float(mask_value), float(np.asarray(sm_scale)))


@functools.partial(jit, static_argnums=(5, 6, 7))
def _reference(q, k, v, ab, segment_ids, causal, mask_value, sm_scale):
    return mha_reference_no_custom_vjp(
        q, k, v, ab, segment_ids, causal=causal, mask_value=mask_value, sm_scale=sm_scale
    )
