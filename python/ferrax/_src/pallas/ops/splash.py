"""`pallas.ops.tpu.splash_attention`: attention under a mask that is known beforehand, head by head.

In: queries `(heads, T, features)`, keys and values `(key heads, S, features)`, or `(S, features)` shared by
all heads; there is no axis of a batch, for which there is `vmap`. Out: `(heads, T, features)`. It goes
block by block of keys (`flash`); a mask that a rule makes is computed for each block, others are arrays.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.numpy import api as jnp
from ferrax._src.pallas.ops import flash
from ferrax._src.pallas.ops.flash import MASK_VALUE
from ferrax._src.pallas.ops.splash_masks import Mask, MultiHeadMask, NumpyMask
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util


class SegmentIds(NamedTuple):
    """Segments of queries and of keys: a query sees keys of its own. Attributes: q: `(T,)`; kv: `(S,)`.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> sa.SegmentIds(jnp.array([0, 0, 1]), jnp.array([0, 1])).q.shape
    (3,)
    """

    q: Any
    kv: Any


class QKVLayout(enum.IntEnum):
    """Which axis of an array in a TPU's memory is the last: that of features or that of the sequence.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> sa.QKVLayout.SEQ_MINOR.value
    2
    """

    HEAD_DIM_MINOR = 1
    SEQ_MINOR = 2


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """How many queries and keys a TPU takes at a time.

    Attributes:
      block_q, block_kv, block_kv_compute: of queries, keys that are fetched, keys that are computed with.
      block_q_dkv, block_kv_dkv, block_kv_dkv_compute: the same for derivatives by keys and values.
      block_q_dq, block_kv_dq: for derivatives by queries; None with `use_fused_bwd_kernel`.
      use_fused_bwd_kernel: whether a TPU computes all derivatives at once.
      q_layout, k_layout, v_layout: for TPUs.

    Here keys are taken `block_kv_compute` at a time, in derivatives `block_kv_dkv_compute`; queries all at
    once; derivatives need no sizes.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> sa.BlockSizes(128, 512).block_kv_compute
    512
    """

    block_q: int
    block_kv: int
    block_kv_compute: int | None = None
    block_q_dkv: int | None = None
    block_kv_dkv: int | None = None
    block_kv_dkv_compute: int | None = None
    block_q_dq: int | None = None
    block_kv_dq: int | None = None
    use_fused_bwd_kernel: bool = False
    q_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR
    k_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR
    v_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR

    def __post_init__(self) -> None:
        if self.use_fused_bwd_kernel and not (self.block_q_dq is None and self.block_kv_dq is None):
            raise ValueError("BlockSizes: with use_fused_bwd_kernel there are no block_q_dq and block_kv_dq")
        for compute, fetched in (("block_kv_compute", "block_kv"), ("block_kv_dkv_compute", "block_kv_dkv")):
            if getattr(self, compute) is None:
                object.__setattr__(self, compute, getattr(self, fetched))

    @property
    def has_backward_blocks(self) -> bool:
        """Whether all sizes for derivatives are given."""
        names = ["block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute"]
        if not self.use_fused_bwd_kernel:
            names += ["block_q_dq", "block_kv_dq"]
        return all(getattr(self, name) is not None for name in names)

    @classmethod
    def get_default(cls) -> BlockSizes:
        """Blocks of 128."""
        return cls(128, 128, 128, 128, 128, 128, 128, 128)


class _Settings(NamedTuple):
    """What is known of a kernel when it is compiled."""

    options: flash.Options
    is_mqa: bool
    save_residuals: bool


class SplashAttentionKernel:
    """Attention under a mask: a function of queries, keys and values, and a pytree of what the mask needs.

    `make_splash_mha` and such make it.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> mask = sa.MultiHeadMask([sa.CausalMask((4, 4))] * 2)
    >>> x = jnp.ones((2, 4, 8))
    >>> kernel = sa.make_splash_mha_single_device(mask)
    >>> ferrax.vmap(kernel)(x[None], x[None], x[None]).shape
    (1, 2, 4, 8)
    """

    def __init__(self, allowed: Any, places: Any, settings: Any) -> None:
        """Args: allowed: booleans `(heads or 1, T, S)`, or None; places: the queries' numbers for a rule, or
        None; settings: what is static."""
        self._allowed = allowed
        self._places = places
        self._settings = settings

    def __call__(self, q: Any, k: Any, v: Any, segment_ids: SegmentIds | None = None, sinks: Any = None) -> Any:
        """The attention of each query.

        Args:
          q: array `(heads, T, features)`. Logits are not scaled: scale q.
          k, v: arrays `(key heads, S, features)`, of which groups of heads share one; for mqa `(S, features)`.
          segment_ids: `SegmentIds`, or None.
          sinks: array `(heads,)`: a further logit of each head that has no value; or None.

        Returns an array of the type of q; with `save_residuals`, `(out, (logsumexp,))`, float32 `(heads, T)`.

        Errors: ValueError for shapes that do not fit.
        """
        q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
        if self._settings.is_mqa:
            k, v = k[None], v[None]
        if q.ndim != 3 or k.ndim != 3 or k.shape[:2] != v.shape[:2] or q.shape[0] % k.shape[0]:
            raise ValueError(f"splash attention: shapes do not fit: q {q.shape}, k {k.shape}, v {v.shape}")
        seen = (q.shape[1], k.shape[1])
        rows = self._places.shape[0] if self._allowed is None else self._allowed.shape[1]
        if q.shape[2] != k.shape[2] or seen[0] != rows:
            raise ValueError(f"splash attention: of {rows} queries, as many features, got {q.shape}, {k.shape}")
        if self._allowed is not None and (
            self._allowed.shape[0] not in (1, q.shape[0]) or self._allowed.shape[2] != seen[1]
        ):
            raise ValueError(f"splash attention: the mask has shape {self._allowed.shape}, q {q.shape}, k {k.shape}")
        return _splash(q, k, v, segment_ids, sinks, self._allowed, self._places, self._settings)

    def manual_sharding_spec(self, sharding: NamedSharding) -> SplashAttentionKernel:
        """The kernel with partition specs in place of its arrays, for `in_specs` of `shard_map`.

        Args: sharding: a `NamedSharding` whose spec names the axes of heads and of queries.
        """
        spec = sharding.spec
        if len(spec) != 2:
            raise ValueError(f"manual_sharding_spec: a spec of heads and of queries, got {spec}")
        allowed = places = None
        if self._allowed is not None:
            allowed = PartitionSpec(spec[0] if self._allowed.shape[0] > 1 else None, spec[1])
        if self._places is not None:
            places = PartitionSpec(spec[1])
        return SplashAttentionKernel(allowed, places, self._settings)

    def tree_flatten(self) -> tuple[tuple, Any]:
        """Its arrays, and what is static."""
        return (self._allowed, self._places), self._settings

    @classmethod
    def tree_unflatten(cls, settings: Any, arrays: tuple) -> SplashAttentionKernel:
        """Args: settings, arrays: as `tree_flatten` gives them."""
        allowed, places = arrays
        return cls(allowed, places, settings)


tree_util.register_pytree_node_class(SplashAttentionKernel)


@functools.partial(jit, static_argnums=(7,))
def _splash(q, k, v, segment_ids, sinks, allowed, places, settings):
    heads, rows, _ = q.shape
    groups, columns, _ = k.shape
    shared = heads // groups

    def spread(x):
        return jnp.broadcast_to(x[:, None], (groups, shared, *x.shape[1:]))

    by_group = None
    if allowed is not None:
        by_group = allowed[None] if allowed.shape[0] == 1 else allowed.reshape(groups, shared, rows, columns)
    ids = (None, None) if segment_ids is None else tuple(jnp.asarray(x)[None, None] for x in segment_ids)
    mask = flash.Mask(ids[0], ids[1], allowed=by_group, places=places)
    out, level = flash.attend_with_level(
        q.reshape(groups, shared, rows, -1), spread(k), spread(v), None, mask, settings.options
    )
    out, level = out.reshape(heads, rows, -1), level.reshape(heads, rows)
    if sinks is not None:
        sinks = jnp.asarray(sinks, np.float32)[:, None]
        whole = jnp.logaddexp(level, sinks)
        out, level = out * jnp.exp(level - whole)[..., None].astype(out.dtype), whole
    out = out.astype(q.dtype)
    return (out, (level,)) if settings.save_residuals else out


def _make(mask, block_sizes, is_mqa, save_residuals, mask_value, cap):
    if len(mask.shape) != 3:
        raise ValueError(f"splash attention: a mask of heads, queries and keys has 3 axes, got shape {mask.shape}")
    block_sizes = block_sizes or BlockSizes.get_default()
    allowed = places = rule = None
    if isinstance(mask, np.ndarray):
        mask = MultiHeadMask([NumpyMask(head) for head in mask])
    if isinstance(mask, Array):
        allowed = mask
    elif len(set(mask.masks)) > 1:
        allowed = jnp.asarray(np.stack([head[:, :] for head in mask.masks]))
    else:
        rule = getattr(mask.masks[0], "mask_function", None)
        if rule is None:
            allowed = jnp.asarray(mask.masks[0][:, :])[None]
        else:
            places = jnp.asarray(mask.masks[0].q_sequence)
    back = block_sizes.block_kv_dkv_compute or block_sizes.block_kv_compute
    options = flash.Options(
        1.0, block_sizes.block_kv_compute, back, False, float(mask_value), cap, rule
    )
    return SplashAttentionKernel(allowed, places, _Settings(options, bool(is_mqa), bool(save_residuals)))


def make_splash_mha(
    mask: Any, *, block_sizes: BlockSizes | None = None, is_mqa: bool = False, save_residuals: bool = False,
    mask_value: float = MASK_VALUE, attn_logits_soft_cap: float | None = None, downcast_smem_data: bool = True,
    head_shards: int, q_seq_shards: int, residual_checkpoint_name: str | None = None, interpret: bool = False,
) -> SplashAttentionKernel:  # fmt: skip
    """Attention under a mask, of keys that groups of heads share.

    Args:
      mask: a `MultiHeadMask`, or booleans `(heads, T, S)`, also traced.
      block_sizes: None: `BlockSizes.get_default()`.
      is_mqa: whether all heads share keys without an axis of heads.
      save_residuals: whether the logarithms of the sums are returned too.
      mask_value: the logit of what is not seen.
      attn_logits_soft_cap: bounds logits to `cap * tanh(logit / cap)`; None: they are not.
      downcast_smem_data, head_shards, q_seq_shards, residual_checkpoint_name, interpret: for TPUs; they
        change nothing here.

    Errors: ValueError for a mask of another number of axes.

    >>> mask = splash_attention.MultiHeadMask([splash_attention.CausalMask((4, 4))] * 2)
    >>> x = jnp.ones((2, 4, 8))
    >>> splash_attention.make_splash_mha_single_device(mask)(x, x, x).shape
    (2, 4, 8)
    """
    return _make(mask, block_sizes, is_mqa, save_residuals, mask_value, attn_logits_soft_cap)


def make_splash_mqa(
    mask: Any, *, block_sizes: BlockSizes | None = None, save_residuals: bool = False,
    mask_value: float = MASK_VALUE, attn_logits_soft_cap: float | None = None, downcast_smem_data: bool = True,
    head_shards: int, q_seq_shards: int, residual_checkpoint_name: str | None = None, interpret: bool = False,
) -> SplashAttentionKernel:  # fmt: skip
    """`make_splash_mha` of keys that all heads share.

    Args: mask, block_sizes, save_residuals, mask_value, attn_logits_soft_cap, downcast_smem_data, head_shards,
    q_seq_shards, residual_checkpoint_name, interpret: as there.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> mask = sa.MultiHeadMask([sa.CausalMask((4, 4))] * 2)
    >>> x = jnp.ones((2, 4, 8))
    >>> sa.make_splash_mqa(mask, head_shards=1, q_seq_shards=1)(x, x[0], x[0]).shape
    (2, 4, 8)
    """
    return _make(mask, block_sizes, True, save_residuals, mask_value, attn_logits_soft_cap)


def make_splash_mha_single_device(mask: Any, **params: Any) -> SplashAttentionKernel:
    """`make_splash_mha` on one device.

    Args: mask, params: as for `make_splash_mha`, without the numbers of shards.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> x = jnp.ones((2, 4, 8))
    >>> sa.make_splash_mha_single_device(np.ones((2, 4, 4), bool))(x, x, x).shape
    (2, 4, 8)
    """
    return make_splash_mha(mask, **{"head_shards": 1, "q_seq_shards": 1, **params})


def make_splash_mqa_single_device(mask: Any, **params: Any) -> SplashAttentionKernel:
    """`make_splash_mqa` on one device.

    Args: mask, params: as for `make_splash_mqa`, without the numbers of shards.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> x = jnp.ones((2, 4, 8))
    >>> sa.make_splash_mqa_single_device(np.ones((2, 4, 4), bool))(x, x[0], x[0]).shape
    (2, 4, 8)
    """
    return make_splash_mqa(mask, **{"head_shards": 1, "q_seq_shards": 1, **params})


def attention_reference(
    mask: Any, q: Any, k: Any, v: Any, segment_ids: SegmentIds | None, sinks: Any = None, *,
    mask_value: float = MASK_VALUE, save_residuals: bool = False, custom_type: str = "flash",
    attn_logits_soft_cap: float | None = None,
) -> Any:  # fmt: skip
    """The attention of one head, with all logits at once and in float32.

    Args:
      mask: booleans `(T, S)`.
      q, k, v: arrays `(T, features)`, `(S, features)`, `(S, features)`.
      segment_ids, sinks, mask_value, save_residuals, attn_logits_soft_cap: as for `SplashAttentionKernel`;
        sinks is a scalar here.
      custom_type: changes nothing: derivatives are those of the operations.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> x = jnp.ones((4, 8))
    >>> splash_attention_kernel.attention_reference(jnp.ones((4, 4), bool), x, x, x, None).shape
    (4, 8)
    """
    logits = jnp.asarray(q).astype(np.float32) @ jnp.asarray(k).astype(np.float32).T
    if attn_logits_soft_cap is not None:
        logits = jnp.tanh(logits / attn_logits_soft_cap) * attn_logits_soft_cap
    seen = jnp.asarray(mask)
    if segment_ids is not None:
        seen = seen & (segment_ids[0][:, None] == segment_ids[1][None])
    logits = jnp.where(seen, logits, np.float32(mask_value))
    top = logits.max(-1)
    if sinks is not None:
        top = jnp.maximum(top, jnp.broadcast_to(sinks, top.shape))
    weights = jnp.exp(logits - top[:, None])
    total = weights.sum(-1)
    if sinks is not None:
        total = total + jnp.exp(jnp.broadcast_to(sinks, top.shape) - top)
    out = (weights / total[:, None]) @ jnp.asarray(v).astype(np.float32)
    return (out, (top + jnp.log(total),)) if save_residuals else out


def _reference(mask, q, k, v, segment_ids=None, sinks=None, *, is_mqa, **params):
    q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
    if is_mqa:
        k, v = k[None], v[None]
    shared = q.shape[0] // k.shape[0]
    found = [
        attention_reference(
            mask[head], q[head], k[head // shared], v[head // shared], segment_ids,
            None if sinks is None else sinks[head], **params,
        )
        for head in range(q.shape[0])
    ]  # fmt: skip
    return tree_util.tree_map(lambda *heads: jnp.stack(heads), *found)


def make_masked_mha_reference(mask: Mask | np.ndarray, backward_impl: str = "vanilla", **params: Any) -> Callable:
    """What `make_splash_mha` makes, head by head with all logits at once: a function of q, k, v, segment ids
    and sinks.

    Args:
      mask: a `MultiHeadMask`, or booleans `(heads, T, S)`.
      backward_impl: "vanilla", "custom" or "custom_vanilla"; derivatives are the same.
      params: for `attention_reference`.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> mask = sa.MultiHeadMask([sa.CausalMask((4, 4))] * 2)
    >>> x = jnp.ones((2, 4, 8))
    >>> sa.make_masked_mha_reference(mask)(x, x, x).shape
    (2, 4, 8)
    """
    return functools.partial(_reference, jnp.asarray(mask[:, :, :]), is_mqa=False, **params)


def make_masked_mqa_reference(mask: Mask | np.ndarray, backward_impl: str = "vanilla", **params: Any) -> Callable:
    """`make_masked_mha_reference` of keys that all heads share. Args: mask, backward_impl, params: as there.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> mask = sa.MultiHeadMask([sa.CausalMask((4, 4))] * 2)
    >>> x = jnp.ones((2, 4, 8))
    >>> sa.make_masked_mqa_reference(mask)(x, x[0], x[0]).shape
    (2, 4, 8)
    """
    return functools.partial(_reference, jnp.asarray(mask[:, :, :]), is_mqa=True, **params)
