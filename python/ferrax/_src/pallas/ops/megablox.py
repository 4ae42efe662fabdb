"""`pallas.ops.tpu.megablox`: products of rows in groups, each with a matrix of its own.

In: rows `(m, k)` whose groups lie one after the other, their sizes, and matrices `(groups, k, n)`. Out:
`(m, n)`. Rows are taken in tiles; each group visits the tiles that it has rows in, so that there are at
most `tiles + groups` products of a tile. `lax.ragged_dot` takes a product with all groups for each row.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core.typing import DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.transforms.custom_vjp import custom_vjp
from ferrax._src.transforms.jit import jit


def _checked(name, lhs, rhs, axes, group_sizes, tiling, sizes):
    """The rows of a tile. Errors: ValueError."""
    if lhs.ndim != 2 or rhs.ndim != axes:
        raise ValueError(f"{name}: lhs has 2 axes and rhs {axes}, got shapes {lhs.shape} and {rhs.shape}")
    for operand in (lhs, rhs):
        if operand.dtype not in (np.float32, dtypes.bfloat16):
            raise ValueError(f"{name}: operands are float32 or bfloat16, got {operand.dtype}")
    if group_sizes.dtype != np.int32 or group_sizes.ndim != 1:
        raise ValueError(f"{name}: group_sizes is int32 of one axis, got {group_sizes.dtype}{list(group_sizes.shape)}")
    tiles = tiling(*sizes) if callable(tiling) else tiling
    if tiles is None:
        raise ValueError(f"{name}: the tiling knows no tiles for m, k and n of {sizes}")
    return max(min(int(tiles[0]), sizes[0]), 1)


def _offset(group_offset):
    if group_offset is None:
        return np.int32(0)
    group_offset = jnp.asarray(group_offset)
    if group_offset.ndim:
        raise ValueError(f"gmm: group_offset is a scalar, got shape {group_offset.shape}")
    return group_offset.astype(np.int32)


def gmm(
    lhs: Any, rhs: Any, group_sizes: Any, preferred_element_type: DTypeLike = np.float32,
    tiling: Any = (128, 128, 128), group_offset: Any = None, existing_out: Any = None, transpose_rhs: bool = False,
    interpret: bool = False,
) -> Any:  # fmt: skip
    """`lhs[rows of group g] @ rhs[g]` for each group. Differentiable in both modes of `rhs`, and to any order.

    Args:
      lhs: array `(m, k)`, float32 or bfloat16. Rows are in the order of their groups.
      rhs: array `(groups, k, n)`, or `(groups, n, k)` with `transpose_rhs`.
      group_sizes: int32, how many rows each group has; more than `rhs` has matrices where those of other
        devices' groups are counted too.
      preferred_element_type: the dtype of the result; sums are float32.
      tiling: tiles of m, k and n, or a function of these three sizes; the first is used here.
      group_offset: the group of the first matrix, an int32 scalar; None: 0.
      existing_out: array `(m, n)` that keeps its rows of other groups; None: they are 0.
      transpose_rhs: see `rhs`.
      interpret: changes nothing.

    Returns an array `(m, n)`.

    Errors: ValueError for shapes and dtypes that do not fit, and for a tiling that knows no tiles.

    >>> matrices = jnp.ones((2, 2, 3)) * jnp.array([1.0, 10.0])[:, None, None]
    >>> megablox.gmm(jnp.ones((4, 2)), matrices, jnp.array([1, 3], jnp.int32))[:, 0]
    Array([ 2., 20., 20., 20.], dtype=float32)
    """
    lhs, rhs, group_sizes = jnp.asarray(lhs), jnp.asarray(rhs), jnp.asarray(group_sizes)
    n = rhs.shape[1 if transpose_rhs else -1] if rhs.ndim == 3 else 0
    tile = _checked("gmm", lhs, rhs, 3, group_sizes, tiling, (lhs.shape[0], lhs.shape[-1], n))
    if rhs.shape[2 if transpose_rhs else 1] != lhs.shape[1]:
        raise ValueError(f"gmm: {lhs.shape} and {rhs.shape} have no product, transpose_rhs={transpose_rhs}")
    dtype = dtypes.canonicalize_dtype(preferred_element_type)
    if existing_out is not None and (existing_out.dtype != dtype or existing_out.shape != (lhs.shape[0], n)):
        raise ValueError(
            f"gmm: existing_out is {dtype}{[lhs.shape[0], n]}, got {existing_out.dtype}{list(existing_out.shape)}"
        )
    return _jitted_gmm(lhs, rhs, group_sizes, _offset(group_offset), existing_out, tile, bool(transpose_rhs), dtype)


@functools.partial(jit, static_argnums=(5, 6, 7))
def _jitted_gmm(lhs, rhs, group_sizes, offset, existing_out, tile, transposed, dtype):
    found = _rows(lhs, rhs, group_sizes, offset, tile, transposed).astype(dtype)
    if existing_out is None:
        return found
    ends = jnp.cumsum(group_sizes)
    edges = jnp.concatenate([jnp.zeros(1, np.int32), ends.astype(np.int32)])
    row = jnp.arange(lhs.shape[0])
    last = jnp.minimum(offset + rhs.shape[0], group_sizes.shape[0])
    return jnp.where(((row >= edges[offset]) & (row < edges[last]))[:, None], found, existing_out)


def _visits(group_sizes, offset, count, m, tile):
    """Of each visit: which of `count` groups, which tile, and which rows of it are of the group (first, end)."""
    tiles = -(-m // tile)
    ends = jnp.minimum(jnp.cumsum(group_sizes).astype(np.int32), np.int32(m))
    starts = jnp.concatenate([jnp.zeros(1, np.int32), ends[:-1]])
    own = offset + jnp.arange(count, dtype=np.int32)
    known = own < group_sizes.shape[0]
    starts = jnp.where(known, starts.at[own].get(mode="clip"), m)
    ends = jnp.where(known, ends.at[own].get(mode="clip"), m)
    first = starts // tile
    visited = jnp.where(ends > starts, (ends - 1) // tile - first + 1, 0)
    until = jnp.cumsum(visited).astype(np.int32)
    number = jnp.arange(tiles + count, dtype=np.int32)
    group = jnp.minimum(jnp.searchsorted(until, number, side="right").astype(np.int32), count - 1)
    at = first[group] + number - (until - visited)[group]
    is_visit = number < until[-1]
    at = jnp.clip(at, 0, tiles - 1)
    low = jnp.where(is_visit, starts[group] - at * tile, 0)
    high = jnp.where(is_visit, ends[group] - at * tile, 0)
    return group, at * tile, low, high


def _filled(x, tile):
    """Rows up to a whole number of tiles."""
    return lax.pad(x, np.zeros((), x.dtype), [(0, -x.shape[0] % tile, 0), *[(0, 0, 0)] * (x.ndim - 1)])


def _own(x, at, low, high, tile):
    """A tile of rows of which those of other groups are 0."""
    row = jnp.arange(tile, dtype=np.int32)
    rows = lax.dynamic_slice_in_dim(x, at, tile, 0)
    return jnp.where(((row >= low) & (row < high))[:, None], rows, np.zeros((), x.dtype))


@functools.partial(custom_vjp, nondiff_argnums=(4, 5))
def _rows(lhs, rhs, group_sizes, offset, tile, transposed):
    """The products, float32, 0 for rows of no group of `rhs`."""
    m, n = lhs.shape[0], rhs.shape[1 if transposed else 2]
    common = np.dtype(np.float32) if lhs.dtype != rhs.dtype else lhs.dtype
    filled = _filled(lhs.astype(common), tile)
    contracted = (((1,), (1 if transposed else 0,)), ((), ()))

    def visit(out, where):
        group, at, low, high = where
        matrix = lax.dynamic_index_in_dim(rhs, group, 0, keepdims=False).astype(common)
        part = lax.dot_general(
            _own(filled, at, low, high, tile), matrix, contracted, preferred_element_type=np.float32
        )
        before = lax.dynamic_slice_in_dim(out, at, tile, 0)
        return lax.dynamic_update_slice_in_dim(out, before + part, at, 0), None

    out = jnp.zeros((filled.shape[0], n), np.float32)
    out, _ = lax.scan(visit, out, _visits(group_sizes, offset, rhs.shape[0], m, tile))
    return out[:m]


def _rows_backward(tile, transposed, kept, cotangent):
    lhs, rhs, group_sizes, offset = kept
    dlhs = _rows(cotangent.astype(rhs.dtype), rhs, group_sizes, offset, tile, not transposed)
    operands = (cotangent.astype(lhs.dtype), lhs) if transposed else (lhs, cotangent.astype(lhs.dtype))
    drhs = _groups(*operands, group_sizes, offset, tile, rhs.shape[0])
    return dlhs.astype(lhs.dtype), drhs.astype(rhs.dtype), None, None


_rows.defvjp(
    lambda lhs, rhs, sizes, offset, tile, transposed: (
        _rows(lhs, rhs, sizes, offset, tile, transposed), (lhs, rhs, sizes, offset)
    ),
    _rows_backward,
)  # fmt: skip


def tgmm(
    lhs: Any, rhs: Any, group_sizes: Any, preferred_element_type: DTypeLike = np.float32,
    tiling: Any = (128, 128, 128), group_offset: Any = None, num_actual_groups: int | None = None,
    existing_out: Any = None, interpret: bool = False,
) -> Any:  # fmt: skip
    """`lhs[:, columns of group g] @ rhs[rows of group g]` for each group.

    Args:
      lhs: array `(k, m)`, float32 or bfloat16.
      rhs: array `(m, n)`, float32 or bfloat16.
      group_sizes: int32, how many of m each group has.
      preferred_element_type: the dtype of the result; sums are float32.
      tiling, group_offset, interpret: as for `gmm`.
      num_actual_groups: how many groups from the offset on are computed; None: as many as `group_sizes` has.
      existing_out: array `(groups, k, n)` that is added; or None.

    Returns an array `(groups, k, n)`. Errors as `gmm`.

    >>> from ferrax.experimental.pallas.ops.tpu.megablox.gmm import tgmm
    >>> tgmm(jnp.ones((2, 4)), jnp.ones((4, 3)), jnp.array([1, 3], jnp.int32))[:, 0, 0]
    Array([1., 3.], dtype=float32)
    """
    lhs, rhs, group_sizes = jnp.asarray(lhs), jnp.asarray(rhs), jnp.asarray(group_sizes)
    sizes = (lhs.shape[-1], lhs.shape[0], rhs.shape[-1])
    tile = _checked("tgmm", lhs, rhs, 2, group_sizes, tiling, sizes)
    if lhs.shape[1] != rhs.shape[0]:
        raise ValueError(f"tgmm: {lhs.shape} and {rhs.shape} have no product")
    count = group_sizes.shape[0] if num_actual_groups is None else num_actual_groups
    found = _jitted_groups(lhs.T, rhs, group_sizes, _offset(group_offset), tile, count)
    if existing_out is not None:
        found = found + existing_out.astype(np.float32)
    return found.astype(dtypes.canonicalize_dtype(preferred_element_type))


def _groups(lhs, rhs, group_sizes, offset, tile, count):
    """The sums over each group's rows of their outer products, float32 `(count, k, n)`."""
    common = np.dtype(np.float32) if lhs.dtype != rhs.dtype else lhs.dtype
    left, right = _filled(lhs.astype(common), tile), _filled(rhs.astype(common), tile)

    def visit(out, where):
        group, at, low, high = where
        part = lax.dot_general(
            _own(left, at, low, high, tile), lax.dynamic_slice_in_dim(right, at, tile, 0), (((0,), (0,)), ((), ())),
            preferred_element_type=np.float32,
        )  # fmt: skip
        before = lax.dynamic_index_in_dim(out, group, 0, keepdims=False)
        return lax.dynamic_update_index_in_dim(out, before + part, group, 0), None

    out = jnp.zeros((count, lhs.shape[1], rhs.shape[1]), np.float32)
    out, _ = lax.scan(visit, out, _visits(group_sizes, offset, count, lhs.shape[0], tile))
    return out


_jitted_groups = functools.partial(jit, static_argnums=(4, 5))(_groups)
