"""Attention block by block of keys: what all attention of `pallas.ops` is made of.

In: queries `(*batch, T, D)`, keys `(*batch, S, D)`, values `(*batch, S, E)`. Out: `Result`, the weighted
values, and of each row of logits its maximum and the sum of the exponentials less that.

Logits are float32, weights are rounded to the values' dtype before the product, as kernels do. No more
than `T * block` logits are there at a time, in derivatives too, which compute them again. Cost: of
values 2 products of `T * S * D`, of derivatives 5.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.transforms.custom_vjp import custom_vjp

# What kernels put in place of a logit that is masked: so small that its weight is 0 beside any other.
MASK_VALUE = -0.7 * float(np.finfo(np.float32).max)


class Options(NamedTuple):
    """`logits = cap * tanh((q @ k + bias) * scale / cap)`; without a cap just `(q @ k + bias) * scale`.

    Attributes: `block`, how many keys at a time in values, `block_back` in derivatives; `causal`, whether
    row t sees no columns after t; `cap`, or None; `rule`, a function of `Mask.places` `(T, 1)` and columns'
    numbers `(1, block)` that gives which are seen, or None.
    """

    scale: float
    block: int
    block_back: int
    causal: bool = False
    mask_value: float = MASK_VALUE
    cap: float | None = None
    rule: Callable[[Any, Any], Any] | None = None


class Mask(NamedTuple):
    """Which columns a row sees: those for which all that is given holds.

    Attributes: `rows`, `columns`: equal integers, of shapes `(*batch, T)` and `(*batch, S)`; `start`,
    `stop`: bounds of the columns' numbers, of shape `batch`; `allowed`: booleans `(*batch, T, S)`. Any may
    be None, any axis of length 1; of `allowed` the first may lack. `places`: what `Options.rule` knows of
    the rows, of shape `(T,)`.
    """

    rows: Any = None
    columns: Any = None
    start: Any = None
    stop: Any = None
    allowed: Any = None
    places: Any = None


class Result(NamedTuple):
    """`out`: `sum(exp(logits - top) * v) / total`, float32; `total` and `top` have no last axis."""

    out: Any
    total: Any
    top: Any


class _Blocks(NamedTuple):
    """Keys in blocks of `size`, `number` of them, of `length` keys; the last is filled up."""

    size: int
    number: int
    length: int

    def cut(self, x, number, axis):
        """A block of an array along an axis, counted from the end."""
        if x is None or x.shape[axis] == 1 != self.length:
            return x
        short = self.size * self.number - x.shape[axis]
        if short:
            widths = [(0, 0, 0)] * x.ndim
            widths[axis] = (0, short, 0)
            x = lax.pad(x, np.zeros((), x.dtype), widths)
        return x if self.number == 1 else lax.dynamic_slice_in_dim(x, number * self.size, self.size, axis)


def ranked(x: Any, rank: int) -> Any:
    """An array with axes of length 1 before its own, `rank` in all."""
    return x.reshape((1,) * (rank - x.ndim) + x.shape)


def _blocks(length, size):
    size = max(min(size, length), 1)
    return _Blocks(size, -(-length // size), length)


def _product(x, y, x_axis, y_axis):
    """The sums of products along these of the last two axes, counted from the end."""
    batch = tuple(range(x.ndim - 2))
    numbers = (((x.ndim + x_axis,), (y.ndim + y_axis,)), (batch, batch))
    return lax.dot_general(x, y, numbers, preferred_element_type=np.float32)


def _logits(q, k, bias, mask, options, blocks, number):
    """Of one block: logits, of which masked ones are `mask_value`; which are not masked, or None; and the
    derivative of the capped logits by those that are not, or None."""
    logits = _product(q, blocks.cut(k, number, -2), -1, -1)
    if bias is not None:
        logits = logits + ranked(blocks.cut(bias, number, -1).astype(np.float32), logits.ndim)
    logits = logits * np.float32(options.scale)
    slope = None
    if options.cap is not None:
        bounded = jnp.tanh(logits / np.float32(options.cap))
        logits, slope = bounded * np.float32(options.cap), 1 - bounded * bounded
    columns = ranked(number * np.int32(blocks.size) + lax.iota(np.int32, blocks.size), q.ndim)
    allowed = _allowed(q, mask, options, blocks, number, columns)
    if allowed is not None:
        logits = jnp.where(allowed, logits, np.float32(options.mask_value))
    if blocks.size * blocks.number != blocks.length:
        # What fills the last block up is not even seen where nothing else is.
        logits = jnp.where(columns < blocks.length, logits, np.float32(-np.inf))
    return logits, allowed, slope


def _allowed(q, mask, options, blocks, number, columns):
    conditions = []
    if options.causal:
        conditions.append(ranked(lax.iota(np.int32, q.shape[-2])[:, None], q.ndim) >= columns)
    if options.rule is not None:
        seen = jnp.asarray(options.rule(mask.places[:, None], columns.reshape(1, -1)))
        conditions.append(ranked(seen, q.ndim))
    if mask.rows is not None:
        conditions.append(mask.rows[..., :, None] == blocks.cut(mask.columns, number, -1)[..., None, :])
    if mask.start is not None:
        conditions.append(columns >= mask.start[..., None, None])
    if mask.stop is not None:
        conditions.append(columns < mask.stop[..., None, None])
    if mask.allowed is not None:
        conditions.append(ranked(blocks.cut(mask.allowed, number, -1), q.ndim))
    return functools.reduce(lambda x, y: x & y, conditions) if conditions else None


def _each(blocks, body, carry):
    """The last carry of `body(carry, number)`, and what it gave beside for each block, one after the other."""
    if blocks.number == 1:
        carry, found = body(carry, np.int32(0))
        return carry, None if found is None else tuple(x[None] for x in found)
    return lax.scan(body, carry, lax.iota(np.int32, blocks.number))


def values(q: Any, k: Any, v: Any, bias: Any, mask: Mask, options: Options) -> Result:
    """The attention of each query, see the module's comment."""
    blocks = _blocks(k.shape[-2], options.block)
    top = jnp.full(q.shape[:-1], -np.inf, np.float32)
    total = jnp.zeros(q.shape[:-1], np.float32)
    out = jnp.zeros((*q.shape[:-1], v.shape[-1]), np.float32)

    def body(carry, number):
        out, total, top = carry
        logits, _, _ = _logits(q, k, bias, mask, options, blocks, number)
        now = lax.stop_gradient(jnp.maximum(top, logits.max(-1)))
        kept = jnp.exp(top - now)
        weights = jnp.exp(logits - now[..., None])
        part = _product(weights.astype(v.dtype), blocks.cut(v, number, -2), -1, -2)
        return (out * kept[..., None] + part, total * kept + weights.sum(-1), now), None

    (out, total, top), _ = _each(blocks, body, (out, total, top))
    return Result(out / total[..., None], total, top)


def attend(q: Any, k: Any, v: Any, bias: Any, mask: Mask, options: Options) -> Any:
    """`values(...).out`, with derivatives by queries, keys, values and bias, in the values' dtype."""
    return attend_with_level(q, k, v, bias, mask, options)[0]


@functools.partial(custom_vjp, nondiff_argnums=(5,))
def attend_with_level(q: Any, k: Any, v: Any, bias: Any, mask: Mask, options: Options) -> Any:
    """`attend`, and of each row of logits the logarithm of the sum of their exponentials, float32."""
    return _forward(q, k, v, bias, mask, options)[0]


def _forward(q, k, v, bias, mask, options):
    found = values(q, k, v, bias, mask, options)
    level = found.top + jnp.log(found.total)
    return (found.out.astype(v.dtype), level), (q, k, v, bias, mask, found)


def _backward(options, kept, cotangents):
    q, k, v, bias, mask, found = kept
    cotangent, of_level = cotangents
    blocks = _blocks(k.shape[-2], options.block_back)
    given = cotangent.astype(np.float32)
    mean = (found.out * given).sum(-1, keepdims=True) - of_level[..., None]

    def body(dq, number):
        logits, allowed, slope = _logits(q, k, bias, mask, options, blocks, number)
        weights = jnp.exp(logits - found.top[..., None]) / found.total[..., None]
        dv = _product(weights.astype(v.dtype), cotangent.astype(v.dtype), -2, -2)
        step = weights * (_product(cotangent.astype(v.dtype), blocks.cut(v, number, -2), -1, -1) - mean)
        if slope is not None:
            step = step * slope
        if allowed is not None:
            step = jnp.where(allowed, step, np.float32(0))
        step = step * np.float32(options.scale)
        narrow = step.astype(q.dtype)
        dk = _product(narrow, q, -2, -2)
        dq = dq + _product(narrow, blocks.cut(k, number, -2), -1, -2)
        return dq, (dk, dv) if bias is None else (dk, dv, step)

    dq, others = _each(blocks, body, jnp.zeros(q.shape, np.float32))
    dk, dv = (_joined(x, -2, k.shape[-2]) for x in others[:2])
    dbias = None
    if bias is not None:
        dbias = _joined(others[2], -1, k.shape[-2])
        axes = tuple(axis for axis, size in enumerate(bias.shape) if size != dbias.shape[axis])
        dbias = dbias.sum(axes, keepdims=True).astype(bias.dtype)
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype), dbias, None


def _joined(found, axis, length):
    """Blocks, whose number is the first axis, one after the other along an axis counted from the end."""
    found = jnp.moveaxis(found, 0, found.ndim + axis - 1)
    place = found.ndim + axis - 1
    shape = (*found.shape[:place], -1, *found.shape[place + 2 :])
    return lax.slice_in_dim(found.reshape(shape), 0, length, 1, place)


attend_with_level.defvjp(_forward, _backward)
