"""Primitives on the buffers of BCOO arrays: to and from dense arrays, order and duplicates of elements.

A BCOO array has `data` of shape `(*batch, nse, *dense)` and `indices` of shape `(*batch, nse, n_sparse)`;
its own shape is `(*batch, *sparse, *dense)`. Batch axes of the buffers may have size 1 for any size.
Elements at one place are added; those whose indices are out of bounds are padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.numpy import api as jnp
from ferrax._src.sparse.base import (
    columns,
    in_bounds,
    masked,
    out_of_bounds,
    over_batches,
    sparse_primitive,
)


class Layout(NamedTuple):
    """How many axes of each kind there are, and how many elements are stored."""

    n_batch: int
    n_sparse: int
    n_dense: int
    nse: int

    def parts(
        self, shape: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The sizes of the batch, sparse and dense axes."""
        first, second = self.n_batch, self.n_batch + self.n_sparse
        return tuple(shape[:first]), tuple(shape[first:second]), tuple(shape[second:])


def layout_of_indices(indices, shape) -> Layout:
    """The layout of indices for an array of this shape. ValueError where they do not fit."""
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise ValueError(f"indices of sparse arrays must be integers, got {indices.dtype}")
    n_batch, n_sparse = indices.ndim - 2, indices.shape[-1]
    n_dense = len(shape) - n_batch - n_sparse
    batch = tuple(shape[: max(n_batch, 0)])
    if n_batch < 0 or n_dense < 0 or any(a not in (1, b) for a, b in zip(indices.shape, batch)):
        raise ValueError(
            f"indices of shape {tuple(indices.shape)} are not of a sparse array of shape {tuple(shape)}: "
            "(*batch, nse, n_sparse) is expected, with n_sparse at most the number of other axes"
        )
    return Layout(n_batch, n_sparse, n_dense, indices.shape[-2])


def layout_of(data, indices, shape) -> Layout:
    """The layout of a BCOO array of this shape. ValueError for buffers that are none."""
    layout = layout_of_indices(indices, shape)
    batch, _, dense = layout.parts(shape)
    wanted = (*batch, layout.nse, *dense)
    fits = len(wanted) == data.ndim and all(
        a == b or (a == 1 and k < layout.n_batch)
        for k, (a, b) in enumerate(zip(data.shape, wanted))
    )
    if not fits:
        raise ValueError(
            f"data of shape {tuple(data.shape)} are not of a sparse array of shape {tuple(shape)} with "
            f"indices of shape {tuple(indices.shape)}: {wanted} is expected"
        )
    return layout


def _todense(data, indices, *, spinfo):
    layout = layout_of(data, indices, spinfo.shape)
    _, sparse, dense = layout.parts(spinfo.shape)
    dtype = data.dtype
    numbers = data.astype(np.int8) if dtype == np.bool_ else data

    def one(data, indices):
        if not sparse:
            return jnp.sum(data, axis=0, dtype=data.dtype)
        return jnp.zeros((*sparse, *dense), data.dtype).at[columns(indices)].add(data, mode="drop")

    result = over_batches(one, layout.n_batch)(numbers, indices)
    result = result != 0 if dtype == np.bool_ else result
    return jnp.broadcast_to(result, spinfo.shape)


def _fromdense(mat, *, nse, n_batch, n_dense, index_dtype):
    n_sparse = mat.ndim - n_batch - n_dense

    def one(mat):
        if not n_sparse:
            indices = jnp.zeros((nse, 0), index_dtype)
            rest = jnp.zeros((max(nse - 1, 0), *mat.shape), mat.dtype)
            return jnp.concatenate([mat[None], rest])[:nse], indices
        mask = mat != 0
        if n_dense:
            mask = mask.any(tuple(range(n_sparse, mat.ndim)))
        places = jnp.nonzero(mask, size=nse, fill_value=tuple(mat.shape[:n_sparse]))
        data = mat.at[places].get(mode="fill", fill_value=0)
        return data, jnp.stack(places, axis=-1).astype(index_dtype)

    data, indices = over_batches(one, n_batch)(mat)
    return [data, indices]


def _extract(indices, arr, *, assume_unique):
    layout = layout_of_indices(indices, arr.shape)

    def one(indices, arr):
        if not layout.n_sparse:
            return jnp.broadcast_to(arr[None], (layout.nse, *arr.shape))
        data = arr.at[columns(indices)].get(mode="fill", fill_value=0)
        if assume_unique:
            return data
        order, first, _ = _groups(indices, arr.shape[: layout.n_sparse])
        return masked(data, jnp.zeros(first.shape, bool).at[order].set(first))

    return over_batches(one, layout.n_batch)(indices, arr)


def _transpose(data, indices, *, permutation, spinfo):
    layout = layout_of(data, indices, spinfo.shape)
    batch, sparse, dense = layout.parts(permutation)
    moved = [*batch, layout.n_batch, *(axis - layout.n_sparse + 1 for axis in dense)]
    taken = np.array(sparse, np.int32) - layout.n_batch
    indices = jnp.transpose(indices, (*batch, layout.n_batch, layout.n_batch + 1))
    return [jnp.transpose(data, moved), indices[..., taken] if sparse else indices]


def _order(indices):
    """The permutation that sorts rows of indices, the first column counting most."""
    if not indices.shape[1]:
        return jnp.arange(indices.shape[0])
    return jnp.lexsort(columns(indices)[::-1])


def _groups(indices, shape):
    """The order of rows, which of them in it begin a new one, and the number of each one's group.

    Rows out of bounds are last, in one group.
    """
    rows = out_of_bounds(indices, in_bounds(indices, shape), shape) if shape else indices
    order = _order(rows)
    rows = rows[order]
    changes = jnp.any(rows[1:] != rows[:-1], axis=-1)
    first = jnp.concatenate([jnp.ones(min(rows.shape[0], 1), bool), changes])
    return order, first, jnp.cumsum(first) - 1


def _sort_indices(data, indices, *, spinfo):
    layout = layout_of(data, indices, spinfo.shape)
    # Batches that share indices share their order.
    order = over_batches(_order, layout.n_batch)(indices)
    taken = over_batches(lambda x, order: x[order], layout.n_batch)
    return [taken(data, order), taken(indices, order)]


def _sum_duplicates(data, indices, *, spinfo, nse):
    layout = layout_of(data, indices, spinfo.shape)
    sparse = layout.parts(spinfo.shape)[1]

    def one(data, indices):
        order, _, group = _groups(indices, sparse)
        data = masked(data, in_bounds(indices, sparse))[order]
        rows = (
            out_of_bounds(indices, in_bounds(indices, sparse), sparse)[order] if sparse else indices
        )
        limits = jnp.array(sparse, indices.dtype).reshape(1, -1)
        places = jnp.broadcast_to(limits, (nse, len(sparse))).at[group].set(rows, mode="drop")
        empty = jnp.zeros((nse, *data.shape[1:]), data.dtype)
        if data.dtype == np.bool_:
            return empty.at[group].max(data, mode="drop"), places
        return empty.at[group].add(data, mode="drop"), places

    return list(over_batches(one, layout.n_batch)(data, indices))


def count_distinct(indices, shape):
    """The most distinct elements in bounds of a batch; an array."""
    layout = layout_of_indices(indices, shape)
    sparse = layout.parts(shape)[1]

    def one(indices):
        order, first, _ = _groups(indices, sparse)
        return jnp.sum(first & in_bounds(indices, sparse)[order])

    counts = over_batches(one, layout.n_batch)(indices)
    return jnp.max(counts, initial=0)


def least_nse(nse: int, shape: Sequence[int]) -> int:
    """How many elements have to be stored of so many, in an array of these sparse sizes."""
    return min(nse, math.prod(shape))


def checked_permutation(layout: Layout, permutation: Sequence[int]) -> tuple[int, ...]:
    """The permutation of axes; NotImplementedError where it mixes kinds."""
    rank = layout.n_batch + layout.n_sparse + layout.n_dense
    axes = tuple(int(axis) for axis in permutation)
    if sorted(axes) != list(range(rank)):
        raise ValueError(f"permutation must have each of {rank} axes once, got {axes}")
    for kind, part in zip(("batch", "sparse", "dense"), layout.parts(axes)):
        if sorted(part) != list(
            dict(zip(("batch", "sparse", "dense"), layout.parts(range(rank))))[kind]
        ):
            raise NotImplementedError(
                f"permutation {axes} moves axes between the batch, sparse and dense ones of {layout}; use "
                "update_layout first"
            )
    return axes


bcoo_todense_p = sparse_primitive("bcoo_todense", _todense, ["spinfo"])
bcoo_fromdense_p = sparse_primitive(
    "bcoo_fromdense", _fromdense, ["nse", "n_batch", "n_dense", "index_dtype"], True
)
bcoo_extract_p = sparse_primitive("bcoo_extract", _extract, ["assume_unique"])
bcoo_transpose_p = sparse_primitive("bcoo_transpose", _transpose, ["permutation", "spinfo"], True)
bcoo_sort_indices_p = sparse_primitive("bcoo_sort_indices", _sort_indices, ["spinfo"], True)
bcoo_sum_duplicates_p = sparse_primitive(
    "bcoo_sum_duplicates", _sum_duplicates, ["spinfo", "nse"], True
)
