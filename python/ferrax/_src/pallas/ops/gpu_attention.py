"""`pallas.ops.gpu.attention`: multi-head attention with the sequence before the heads.

In and out: arrays `(batch, sequence, heads, features)`. Values and derivatives go block by block of keys
(`flash`), on any device.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from ferrax._src.core.typing import ArrayLike
from ferrax._src.numpy import api as jnp
from ferrax._src.pallas.ops import flash
from ferrax._src.pallas.ops.flash import MASK_VALUE
from ferrax._src.transforms.custom_vjp import custom_vjp
from ferrax._src.transforms.jit import jit

DEFAULT_MASK_VALUE = MASK_VALUE


@dataclasses.dataclass(frozen=True, slots=True)
class BlockSizes:
    """How many queries and keys a GPU takes at a time.

    Attributes:
      block_q, block_k: of queries and keys, for values.
      block_q_dkv, block_kv_dkv: for derivatives by keys and values.
      block_q_dq, block_kv_dq: for derivatives by queries.

    Here keys are taken `block_k` at a time, in derivatives `block_kv_dkv`; queries all at once.

    >>> attention.BlockSizes.get_default().block_k
    128
    """

    block_q: int
    block_k: int
    block_q_dkv: int | None = None
    block_kv_dkv: int | None = None
    block_q_dq: int | None = None
    block_kv_dq: int | None = None

    @classmethod
    def get_default(cls) -> BlockSizes:
        """Blocks of 128, in derivatives of 32."""
        return cls(128, 128, 32, 32, 32, 32)

    @property
    def has_backward_blocks(self) -> bool:
        """Whether all sizes for derivatives are given."""
        backward = (self.block_q_dkv, self.block_kv_dkv, self.block_q_dq, self.block_kv_dq)
        return None not in backward


_DEFAULT = BlockSizes.get_default()


def segment_mask(q_segment_ids: Any, kv_segment_ids: Any) -> Any:
    """Which pairs of a query and a key are of one segment.

    Args:
      q_segment_ids: integers `(T,)` or `(batch, T)`.
      kv_segment_ids: integers `(S,)` or `(batch, S)`.

    Returns booleans `(T, S)` or `(batch, T, S)`.

    >>> attention.segment_mask(jnp.array([0, 1]), jnp.array([0, 0, 1]))
    Array([[ True,  True, False],
           [False, False,  True]], dtype=bool)
    """
    return jnp.asarray(q_segment_ids)[..., :, None] == jnp.asarray(kv_segment_ids)[..., None, :]


def mha(
    q: Any, k: Any, v: Any, segment_ids: ArrayLike | None, sm_scale: float = 1.0, causal: bool = False,
    block_sizes: BlockSizes = _DEFAULT, backward_pass_impl: str = "triton",
    num_warps: int | None = None, num_stages: int = 2, grid: tuple[int, ...] | None = None,
    interpret: bool = False, debug: bool = False, return_residuals: bool = False,
) -> Any:  # fmt: skip
    """`softmax(q @ k.T * sm_scale) @ v` for each head, block by block of keys.

    Args:
      q: array `(batch, T, heads, features)`.
      k, v: arrays `(batch, S, heads, features)`.
      segment_ids: integers `(batch, S)`, or None: queries see keys of their own segment; T is S then.
      sm_scale: factor of the logits. There is no default of `1 / sqrt(features)`.
      causal: whether query t sees no keys behind t.
      block_sizes: sizes of blocks. They divide T and S, or are longer.
      backward_pass_impl: "triton" or "xla"; derivatives are the same. The first asks for all block sizes.
      num_warps, num_stages, grid, interpret, debug: for the compiler of GPUs; they change nothing here.
      return_residuals: whether to return `(out, lse)`, where `lse`, float32 `(batch, heads, T)`, is the
        logarithm to base 2 of the sum of the logits' exponentials. This is not differentiable.

    Returns an array of the shape and dtype of q.

    Errors: ValueError for sizes that do not fit, another `backward_pass_impl`, and derivatives with residuals.

    >>> x = jnp.ones((1, 4, 2, 8))
    >>> attention.mha(x, x, x, None).shape
    (1, 4, 2, 8)
    """
    if backward_pass_impl not in ("triton", "xla"):
        raise ValueError(f"mha: backward_pass_impl is 'triton' or 'xla', got {backward_pass_impl!r}")
    q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
    if not q.ndim == k.ndim == v.ndim == 4 or not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        raise ValueError(
            "mha: q, k and v are (batch, sequence, heads, features) with as many features, got shapes "
            f"{q.shape}, {k.shape} and {v.shape}"
        )
    for length, size, name in ((q.shape[1], block_sizes.block_q, "q"), (k.shape[1], block_sizes.block_k, "k")):
        if length % min(size, length or 1):
            raise ValueError(f"mha: block_{name}={size} does not divide the sequence of {length}")
    function = _mha_with_residuals if return_residuals else _mha
    checks = backward_pass_impl == "triton"
    return function(q, k, v, segment_ids, float(sm_scale), bool(causal), block_sizes, checks)


def _operands(q, k, v, segment_ids, sm_scale, causal, block_sizes):
    by_head = [jnp.swapaxes(x, 1, 2) for x in (q, k, v)]
    ids = None if segment_ids is None else jnp.asarray(segment_ids)[:, None]
    options = flash.Options(
        sm_scale, block_sizes.block_k, block_sizes.block_kv_dkv or block_sizes.block_k, causal
    )
    return (*by_head, None, flash.Mask(ids, ids), options)


@functools.partial(jit, static_argnums=(4, 5, 6, 7))
def _mha(q, k, v, segment_ids, sm_scale, causal, block_sizes, checks):
    out = flash.attend(*_operands(q, k, v, segment_ids, sm_scale, causal, block_sizes))
    if checks:
        out = _differentiable(out, block_sizes)
    return jnp.swapaxes(out, 1, 2).astype(q.dtype)


@functools.partial(custom_vjp, nondiff_argnums=(1,))
def _differentiable(out, block_sizes):
    return out


def _needs_blocks(block_sizes, _, cotangent):
    if not block_sizes.has_backward_blocks:
        raise ValueError(f"mha: derivatives need all block sizes, got {block_sizes}; or backward_pass_impl='xla'")
    return (cotangent,)


_differentiable.defvjp(lambda out, block_sizes: (out, None), _needs_blocks)


@functools.partial(custom_vjp, nondiff_argnums=(4, 5, 6, 7))
@functools.partial(jit, static_argnums=(4, 5, 6, 7))
def _mha_with_residuals(q, k, v, segment_ids, sm_scale, causal, block_sizes, checks):
    found = flash.values(*_operands(q, k, v, segment_ids, sm_scale, causal, block_sizes))
    level = found.top * np.float32(math.log2(math.e)) + jnp.log2(found.total)
    return jnp.swapaxes(found.out, 1, 2).astype(q.dtype), level


def _residuals_backward(sm_scale, causal, block_sizes, checks, kept, cotangent):
    raise ValueError("mha: with return_residuals=True there are no derivatives; leave it out")


_mha_with_residuals.defvjp(lambda *args: (_mha_with_residuals(*args), None), _residuals_backward)


def mha_reference(
    q: Any, k: Any, v: Any, segment_ids: ArrayLike | None, sm_scale: float = 1.0, causal: bool = False
) -> Any:
    """What `mha` computes, in one go and in float32, with all logits at once.

    Args: q, k, v, segment_ids, sm_scale, causal: as for `mha`.

    Returns a float32 array of the shape of q. A query that sees no key gives NaN.

    >>> x = jnp.ones((1, 4, 2, 8))
    >>> attention.mha_reference(x, x, x, None, causal=True).shape
    (1, 4, 2, 8)
    """
    return _reference(q, k, v, segment_ids, sm_scale, bool(causal))


@functools.partial(jit, static_argnums=(5,))
def _reference(q, k, v, segment_ids, sm_scale, causal):
    logits = jnp.einsum("bthd,bshd->bhts", q, k, preferred_element_type=np.float32) * sm_scale
    seen = jnp.ones((1, 1, *logits.shape[-2:]), bool)
    if causal:
        seen = jnp.tril(seen)
    if segment_ids is not None:
        seen = seen & segment_mask(segment_ids, segment_ids)[:, None]
    logits = jnp.where(seen, logits, -np.inf)
    weights = jnp.exp(logits - logits.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return jnp.einsum("bhts,bshd->bthd", weights, v, preferred_element_type=np.float32)
