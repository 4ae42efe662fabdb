"""Operations of `lax` on BCOO arrays: shapes, slices, sums, elementwise products, convolutions.

Elements out of bounds stay so in what is made of them, and are zero where indices are dropped. Where a
result has fewer places than stored elements, elements at one place are added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.core import Array
from ferrax._src.core.op_types import precision_name
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import check_out_sharding
from ferrax._src.lax.convolution_shapes import conv_dimension_numbers, padtype_to_pads
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import canonical_shape
from ferrax._src.sparse.base import in_bounds, masked, out_of_bounds, over_batches
from ferrax._src.sparse.bcoo import (
    BCOO,
    bcoo_sum_duplicates,
    bcoo_transpose,
    bcoo_update_layout,
    without_padding,
)
from ferrax._src.sparse.bcoo_elements import Layout, layout_of, least_nse
from ferrax._src.tracing import staging
from ferrax._src.transforms.batching import vmap


def _checked(mat: BCOO) -> Layout:
    return layout_of(mat.data, mat.indices, mat.shape)


def _compact(mat: BCOO) -> BCOO:
    """With no more stored elements than there are places."""
    sparse = mat._layout.parts(mat.shape)[1]
    nse = least_nse(mat.nse, sparse)
    return bcoo_sum_duplicates(mat, nse=nse) if nse < mat.nse else mat


def _batches(x: Array, batch: Sequence[int]) -> Array:
    """A buffer with full batch axes."""
    return jnp.broadcast_to(x, (*batch, *x.shape[len(batch) :]))


def bcoo_broadcast_in_dim(
    mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCOO:
    """`lax.broadcast_in_dim` of a sparse array.

    Args: mat: BCOO array; shape: of the result; broadcast_dimensions: where its axes are there. New axes
    before the first sparse or dense axis are batch axes, those behind the first dense axis are dense,
    others sparse; elements are stored once for each place along new sparse axes. sharding: where the
    result is to be.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_broadcast_in_dim(sparse.eye(2), shape=(2, 1, 2), broadcast_dimensions=(0, 2))
    BCOO(float32[2, 1, 2], nse=2)
    """
    check_out_sharding("bcoo_broadcast_in_dim", sharding)
    layout = _checked(mat)
    shape, axes = canonical_shape(shape), tuple(int(axis) for axis in broadcast_dimensions)
    if len(axes) != mat.ndim or any(a >= b for a, b in zip(axes, axes[1:])):
        raise ValueError(
            f"bcoo_broadcast_in_dim: broadcast_dimensions must be {mat.ndim} increasing axes, got {axes}"
        )
    if any(size not in (1, shape[axis]) for size, axis in zip(mat.shape, axes)):
        raise ValueError(
            f"bcoo_broadcast_in_dim: shape {mat.shape} does not broadcast to {shape} at {axes}"
        )
    batch, sparse, dense = layout.parts(axes)
    n_batch = min(axes[layout.n_batch :], default=len(shape))
    n_dense = len(shape) - min(dense) if dense else 0
    n_sparse = len(shape) - n_batch - n_dense
    sparse_sizes = shape[n_batch : n_batch + n_sparse]
    # Batch axes that are new or repeated are stored with size 1.
    head_data, head_indices = [1] * n_batch, [1] * n_batch
    for k, axis in enumerate(batch):
        head_data[axis], head_indices[axis] = mat.data.shape[k], mat.indices.shape[k]
    tail = shape[n_batch + n_sparse :]
    moved = [*batch, n_batch, *(axis - n_sparse + 1 for axis in dense)]
    data = lax.broadcast_in_dim(mat.data, (*head_data, layout.nse, *tail), moved)
    old = lax.broadcast_in_dim(
        mat.indices, (*head_indices, layout.nse, layout.n_sparse), [*batch, n_batch, n_batch + 1]
    )
    places = {axis - n_batch: k for k, axis in enumerate(sparse)}
    repeated = [
        k
        for k, size in enumerate(sparse_sizes)
        if k not in places or mat.shape[layout.n_batch + places[k]] != size
    ]
    copies = math.prod(sparse_sizes[k] for k in repeated)
    grid = np.zeros((1, 0), int)
    if repeated:
        ranges = [np.arange(sparse_sizes[k]) for k in repeated]
        grid = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(copies, len(ranges))
    valid = in_bounds(old, layout.parts(mat.shape)[1])
    columns = []
    for k in range(n_sparse):
        if k in repeated:
            column = jnp.asarray(grid[:, repeated.index(k)], old.dtype)
            column = column.reshape((1,) * (n_batch + 1) + (copies,))
        else:
            column = old[..., places[k]][..., None]
        columns.append(jnp.broadcast_to(column, (*head_indices, layout.nse, copies)))
    stacked = (
        jnp.stack(columns, axis=-1)
        if columns
        else jnp.zeros((*head_indices, layout.nse, copies, 0), old.dtype)
    )
    valid = jnp.broadcast_to(valid[..., None], (*head_indices, layout.nse, copies))
    indices = out_of_bounds(stacked, valid, sparse_sizes) if n_sparse else stacked
    indices = indices.reshape(*head_indices, layout.nse * copies, n_sparse)
    if copies != 1:
        data = jnp.repeat(data, copies, axis=n_batch)
    return BCOO((data, indices), shape=shape, unique_indices=mat.unique_indices)


def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """`lax.concatenate` of sparse arrays of one layout.

    Args: operands: BCOO arrays; dimension: the axis. Errors: ValueError for other layouts, or sizes of other
    axes.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_concatenate([sparse.eye(2), sparse.eye(2)], dimension=0)
    BCOO(float32[4, 2], nse=4)
    """
    arrays = list(operands)
    layouts = [_checked(mat) for mat in arrays]
    first = layouts[0]
    if any(layout[:3] != first[:3] for layout in layouts):
        raise ValueError(f"bcoo_concatenate: arrays must have one layout, got {layouts}")
    shapes = [mat.shape for mat in arrays]
    dimension = int(dimension)
    if not 0 <= dimension < len(shapes[0]) or any(
        other[k] != shapes[0][k] for other in shapes for k in range(len(other)) if k != dimension
    ):
        raise ValueError(
            f"bcoo_concatenate: shapes must agree but along axis {dimension}, got {shapes}"
        )
    shape = list(shapes[0])
    shape[dimension] = sum(other[dimension] for other in shapes)
    sparse = first.parts(shape)[1]
    dtype = arrays[0].indices.dtype
    datas, indices = [], []
    start = 0
    most = max(layout.nse for layout in layouts)
    for mat, layout in zip(arrays, layouts):
        batch, own, _ = layout.parts(mat.shape)
        rows = mat.indices.astype(dtype)
        if dimension < first.n_batch:
            data, rows = _batches(mat.data, batch), _batches(rows, batch)
            lacking = most - layout.nse
            pad = [(0, 0)] * data.ndim
            pad[first.n_batch] = (0, lacking)
            data = jnp.pad(data, pad)
            limits = jnp.broadcast_to(jnp.array(sparse, dtype), (*batch, lacking, layout.n_sparse))
            rows = jnp.concatenate([rows, limits], axis=first.n_batch)
        else:
            keep = in_bounds(rows, own)
            data = mat.data
            if dimension < first.n_batch + first.n_sparse:
                shift = np.zeros(layout.n_sparse, int)
                shift[dimension - first.n_batch] = start
                rows = rows + jnp.array(shift, dtype).reshape((1,) * (rows.ndim - 1) + (-1,))
            else:
                pad = [(0, 0)] * data.ndim
                axis = dimension - first.n_sparse + 1
                pad[axis] = (start, shape[dimension] - start - mat.shape[dimension])
                data = jnp.pad(data, pad)
            rows = out_of_bounds(rows, keep, sparse) if sparse else rows
        datas.append(data)
        indices.append(rows)
        start += mat.shape[dimension]
    axis = dimension if dimension < first.n_batch else first.n_batch
    if axis == first.n_batch:
        datas, indices = (_one_batch(parts, first.n_batch) for parts in (datas, indices))
    return BCOO((jnp.concatenate(datas, axis), jnp.concatenate(indices, axis)), shape=shape)


def _one_batch(parts: list[Array], n_batch: int) -> list[Array]:
    batch = np.broadcast_shapes(*(tuple(x.shape[:n_batch]) for x in parts))
    return [_batches(x, batch) for x in parts]


def bcoo_reshape(
    mat: BCOO,
    *,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
    sharding: Any = None,
) -> BCOO:
    """`lax.reshape` of a sparse array.

    Args: mat: BCOO array; new_sizes: the new shape; dimensions: the order in which axes are read, by
    default their own; sharding: where the result is to be. Batch and dense axes stay such where the new
    shape keeps them apart from the sparse ones, and become sparse otherwise.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_reshape(sparse.eye(4), new_sizes=(2, 8))
    BCOO(float32[2, 8], nse=4)
    """
    check_out_sharding("bcoo_reshape", sharding)
    new = canonical_shape(new_sizes)
    if math.prod(new) != mat.size:
        raise TypeError(f"bcoo_reshape: shape {mat.shape} has another size than {new}")
    if dimensions is not None and tuple(dimensions) != tuple(range(mat.ndim)):
        mat = bcoo_transpose(mat, permutation=dimensions)
    layout = _checked(mat)
    batch, sparse, dense = layout.parts(mat.shape)
    n_dense = layout.n_dense
    if dense and new[len(new) - n_dense :] != dense:
        return bcoo_reshape(bcoo_update_layout(mat, n_dense=0), new_sizes=new)
    middle = new[: len(new) - n_dense]
    splits = [
        k
        for k in range(len(middle) + 1)
        if math.prod(middle[:k]) == math.prod(batch) and math.prod(middle[k:]) == math.prod(sparse)
    ]
    splits = [k for k in splits if k or not batch]
    if not splits:
        return bcoo_reshape(bcoo_update_layout(mat, n_batch=0), new_sizes=new)
    n_batch = splits[0]
    new_batch, new_sparse = middle[:n_batch], middle[n_batch:]
    data, indices = mat.data, mat.indices
    if new_batch != batch:
        data, indices = _batches(data, batch), _batches(indices, batch)
        data = data.reshape(*new_batch, *data.shape[layout.n_batch :])
        indices = indices.reshape(*new_batch, *indices.shape[layout.n_batch :])
    if new_sparse != sparse:
        keep = in_bounds(indices, sparse)
        place = jnp.zeros(indices.shape[:-1], indices.dtype)
        for k, size in enumerate(sparse):
            place = place * size + indices[..., k]
        rest, rows = place, []
        for size in reversed(new_sparse):
            rows.append(rest % max(size, 1))
            rest = rest // max(size, 1)
        empty = jnp.zeros((*indices.shape[:-1], 0), indices.dtype)
        if not new_sparse:
            shape = np.broadcast_shapes(data.shape[:n_batch], keep.shape[:n_batch])
            data = masked(_batches(data, shape), _batches(keep, shape))
        indices = out_of_bounds(jnp.stack(rows[::-1], axis=-1), keep, new_sparse) if rows else empty
    return BCOO(
        (data, indices),
        shape=new,
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """`lax.rev` of a sparse array.

    Args: operand: BCOO array; dimensions: the axes to turn around.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_rev(sparse.eye(2), (0,)).todense()
    Array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    layout = _checked(operand)
    axes = [int(axis) % operand.ndim for axis in dimensions]
    sparse = layout.parts(operand.shape)[1]
    data, indices = operand.data, operand.indices
    for axis in axes:
        if axis < layout.n_batch:
            data = jnp.flip(data, axis)
            indices = jnp.flip(indices, axis)
        elif axis >= layout.n_batch + layout.n_sparse:
            data = jnp.flip(data, axis - layout.n_sparse + 1)
    turned = [
        axis - layout.n_batch for axis in axes if 0 <= axis - layout.n_batch < layout.n_sparse
    ]
    if turned:
        keep = in_bounds(indices, sparse)
        lasts = jnp.array(sparse, indices.dtype).reshape((1,) * (indices.ndim - 1) + (-1,)) - 1
        chosen = np.isin(np.arange(layout.n_sparse), turned)
        indices = out_of_bounds(jnp.where(chosen, lasts - indices, indices), keep, sparse)
    return BCOO((data, indices), shape=operand.shape, unique_indices=operand.unique_indices)


def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """`lax.squeeze` of a sparse array.

    Args: arr: BCOO array; dimensions: axes of size 1. ValueError for others.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_squeeze(sparse.eye(1, 3), dimensions=(0,))
    BCOO(float32[3], nse=1)
    """
    layout = _checked(arr)
    axes = sorted({int(axis) % arr.ndim for axis in dimensions})
    if any(arr.shape[axis] != 1 for axis in axes):
        raise ValueError(f"bcoo_squeeze: axes {axes} of shape {arr.shape} must have size 1")
    batch: list[int] = []
    sparse: list[int] = []
    dense: list[int] = []
    for axis in axes:
        kind = (
            batch
            if axis < layout.n_batch
            else sparse
            if axis < layout.n_batch + layout.n_sparse
            else dense
        )
        kind.append(axis)
    if sparse:
        arr = without_padding(arr)
    data = jnp.squeeze(arr.data, (*batch, *(axis - layout.n_sparse + 1 for axis in dense)))
    kept = [k for k in range(layout.n_sparse) if k + layout.n_batch not in sparse]
    indices = jnp.squeeze(arr.indices, tuple(batch))
    indices = indices[..., np.array(kept, int)] if sparse else indices
    shape = [size for axis, size in enumerate(arr.shape) if axis not in axes]
    return BCOO(
        (data, indices),
        shape=shape,
        indices_sorted=arr.indices_sorted,
        unique_indices=arr.unique_indices,
    )


def bcoo_slice(
    mat: BCOO, *, start_indices: Sequence[int], limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> BCOO:  # fmt: skip
    """`lax.slice` of a sparse array.

    Args: mat: BCOO array; start_indices, limit_indices, strides: a number for each axis.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_slice(sparse.eye(4), start_indices=(1, 0), limit_indices=(3, 4))
    BCOO(float32[2, 4], nse=4)
    """
    layout = _checked(mat)
    starts, limits = (tuple(int(k) for k in given) for given in (start_indices, limit_indices))
    steps = (1,) * mat.ndim if strides is None else tuple(int(k) for k in strides)
    shape = staging.eval_shape(
        lambda x: lax.slice(x, starts, limits, steps), core.ShapeDtypeStruct(mat.shape, mat.dtype)
    ).shape
    data, indices = mat.data, mat.indices
    for axis in range(mat.ndim):
        part = slice(starts[axis], limits[axis], steps[axis])
        if axis < layout.n_batch:
            cut = (slice(None),) * axis + (part,)
            # Axes of size 1 stand for all, of which there may be none.
            data, indices = (
                x[cut]
                if x.shape[axis] == mat.shape[axis]
                else x[(slice(None),) * axis + (slice(shape[axis]),)]
                for x in (data, indices)
            )
        elif axis >= layout.n_batch + layout.n_sparse:
            data = data[(slice(None),) * (axis - layout.n_sparse + 1) + (part,)]
    first = [
        jnp.asarray(starts[k], indices.dtype)
        for k in range(layout.n_batch, layout.n_batch + layout.n_sparse)
    ]
    return _sliced(mat, data, indices, first, steps, shape)


def _sliced(mat, data, indices, starts, steps, shape) -> BCOO:
    """With elements outside of the slice along sparse axes put out of bounds."""
    layout = mat._layout
    if not layout.n_sparse:
        return BCOO((data, indices), shape=shape)
    sparse, wanted = layout.parts(mat.shape)[1], layout.parts(shape)[1]
    keep = in_bounds(indices, sparse)
    rows = []
    for k in range(layout.n_sparse):
        step = steps[layout.n_batch + k]
        offset = indices[..., k] - starts[k]
        place = offset // step
        keep &= (offset >= 0) & (offset % step == 0) & (place < wanted[k])
        rows.append(place)
    indices = out_of_bounds(jnp.stack(rows, axis=-1), keep, wanted)
    result = BCOO((data, indices), shape=shape, unique_indices=mat.unique_indices)
    return (
        _compact(without_padding(result))
        if least_nse(mat.nse, wanted) < mat.nse
        else without_padding(result)
    )


def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """`lax.dynamic_slice` of a sparse array.

    Args: mat: BCOO array; start_indices: an integer for each axis, which may be traced and is moved until
    the slice fits; slice_sizes: the result's shape.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_dynamic_slice(sparse.eye(4), (1, 0), (2, 4)).todense()[0]
    Array([0., 1., 0., 0.], dtype=float32)
    """
    layout = _checked(mat)
    sizes = tuple(int(size) for size in slice_sizes)
    if len(sizes) != mat.ndim or len(start_indices) != mat.ndim:
        raise TypeError(
            f"bcoo_dynamic_slice: {mat.ndim} starts and sizes are needed, got {len(start_indices)} and "
            f"{len(sizes)}"
        )
    if any(not 0 <= size <= whole for size, whole in zip(sizes, mat.shape)):
        raise TypeError(f"bcoo_dynamic_slice: sizes {sizes} must be within the shape {mat.shape}")
    starts = []
    for start, size, whole in zip(start_indices, sizes, mat.shape):
        start = jnp.asarray(start)
        start = jnp.where(start < 0, start + jnp.asarray(whole, start.dtype), start)
        starts.append(jnp.clip(start, 0, whole - size))
    data, indices = mat.data, mat.indices
    for axis in range(mat.ndim):
        if axis < layout.n_batch:
            data, indices = (
                lax.dynamic_slice_in_dim(x, starts[axis], sizes[axis], axis)
                if x.shape[axis] == mat.shape[axis]
                else x[(slice(None),) * axis + (slice(sizes[axis]),)]
                for x in (data, indices)
            )
        elif axis >= layout.n_batch + layout.n_sparse:
            data = lax.dynamic_slice_in_dim(
                data, starts[axis], sizes[axis], axis - layout.n_sparse + 1
            )
    first = [
        starts[k].astype(indices.dtype)
        for k in range(layout.n_batch, layout.n_batch + layout.n_sparse)
    ]
    return _sliced(mat, data, indices, first, (1,) * mat.ndim, sizes)


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """The sum of a sparse array over some axes, sparse.

    Args: mat: BCOO array; axes: those to sum over.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_reduce_sum(sparse.eye(3), axes=(0,)).todense()
    Array([1., 1., 1.], dtype=float32)
    """
    layout = _checked(mat)
    gone = sorted({int(axis) % mat.ndim for axis in axes})
    shape = [size for axis, size in enumerate(mat.shape) if axis not in gone]
    batch = [axis for axis in gone if axis < layout.n_batch]
    sparse = [
        axis - layout.n_batch for axis in gone if 0 <= axis - layout.n_batch < layout.n_sparse
    ]
    dense = [
        axis - layout.n_sparse + 1 for axis in gone if axis >= layout.n_batch + layout.n_sparse
    ]
    data, indices = (without_padding(mat) if sparse else mat)._bufs
    if dense:
        data = jnp.sum(data, axis=tuple(dense), dtype=data.dtype)
    if sparse:
        kept = [k for k in range(layout.n_sparse) if k not in sparse]
        indices = indices[..., np.array(kept, int)]
    if batch:
        # Elements of the batches that are added are stored side by side.
        sizes = [mat.shape[axis] if axis in batch else None for axis in range(layout.n_batch)]

        def merged(x):
            full = [own if size is None else size for own, size in zip(x.shape, sizes)]
            x = jnp.broadcast_to(x, (*full, *x.shape[layout.n_batch :]))
            left = [axis for axis in range(layout.n_batch) if axis not in batch]
            x = jnp.transpose(x, (*left, *batch, *range(layout.n_batch, x.ndim)))
            count = math.prod(x.shape[len(left) : layout.n_batch + 1])
            return x.reshape(*x.shape[: len(left)], count, *x.shape[layout.n_batch + 1 :])

        data, indices = merged(data), merged(indices)
    return BCOO((data, indices), shape=shape)


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The elementwise product of two sparse arrays of one rank; axes of size 1 go with any size.

    Args: lhs, rhs: BCOO arrays with as many dense axes. The result has the batch axes that both have.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_multiply_sparse(sparse.eye(2), sparse.eye(2)).todense()
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    n_batch = min(lhs.n_batch, rhs.n_batch)
    lhs, rhs = (bcoo_update_layout(mat, n_batch=n_batch) for mat in (lhs, rhs))
    left, right = _checked(lhs), _checked(rhs)
    if left[:3] != right[:3]:
        raise NotImplementedError(
            "bcoo_multiply_sparse: both arrays must have one rank and as many dense axes, got shapes "
            f"{lhs.shape} and {rhs.shape} with {left.n_dense} and {right.n_dense}; use update_layout"
        )
    shape = tuple(np.broadcast_shapes(lhs.shape, rhs.shape))
    a, b = left.parts(lhs.shape)[1], right.parts(rhs.shape)[1]
    sparse = left.parts(shape)[1]

    def one(x, i, y, j):
        meet = in_bounds(i, a)[:, None] & in_bounds(j, b)[None, :]
        for k, (m, n) in enumerate(zip(a, b)):
            if m == n:
                meet &= i[:, k][:, None] == j[:, k][None, :]
        if a == sparse:
            # Where the first array has an element, the sum of those that the second one has there.
            numbers = (((1,), (0,)), ((), ()))
            return x * lax.dot_general(meet.astype(y.dtype), y, numbers), i
        rows = [
            jnp.broadcast_to(
                (j[:, k][None, :].astype(i.dtype) if m == 1 and n != 1 else i[:, k][:, None]),
                meet.shape,
            )
            for k, (m, n) in enumerate(zip(a, b))
        ]
        indices = jnp.stack([row.ravel() for row in rows], axis=-1)
        data = (x[:, None] * y[None, :]).reshape(
            meet.size, *np.broadcast_shapes(x.shape[1:], y.shape[1:])
        )
        keep = meet.ravel()
        return masked(data, keep), out_of_bounds(indices, keep, sparse)

    data, indices = over_batches(one, left.n_batch)(lhs.data, lhs.indices, rhs.data, rhs.indices)
    return BCOO((data, indices), shape=shape)


def bcoo_multiply_dense(sp_mat: BCOO, v: ArrayLike) -> Array:
    """The stored elements of the elementwise product of a sparse and a dense array.

    Args: sp_mat: BCOO array; v: array that broadcasts to its shape. NotImplementedError where the product
    would be larger.

    Returns: data for the indices of `sp_mat`.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_multiply_dense(sparse.eye(2), jnp.array([2.0, 3.0]))
    Array([2., 3.], dtype=float32)
    """
    layout = _checked(sp_mat)
    dense = jnp.asarray(v)
    if not dense.ndim:
        return lax.mul(sp_mat.data, jnp.broadcast_to(dense, sp_mat.data.shape))
    if tuple(np.broadcast_shapes(dense.shape, sp_mat.shape)) != sp_mat.shape:
        raise NotImplementedError(
            "multiplication of a sparse and a dense array is only implemented where the product has the "
            f"sparse array's shape, got {sp_mat.shape} and {tuple(dense.shape)}"
        )
    dense = dense.reshape((1,) * (sp_mat.ndim - dense.ndim) + tuple(dense.shape))

    def one(data, indices, v):
        sizes = v.shape[: layout.n_sparse]
        places = tuple(
            jnp.zeros_like(indices[:, k])
            if size == 1 and sp_mat.shape[layout.n_batch + k] != 1
            else indices[:, k]
            for k, size in enumerate(sizes)
        )
        if not places:
            return data * v[None]
        return data * v.at[places].get(mode="fill", fill_value=0)

    return over_batches(one, layout.n_batch)(sp_mat.data, sp_mat.indices, dense)


def bcoo_gather(
    operand: BCOO, start_indices: Array, dimension_numbers: Any, slice_sizes: Sequence[int], *,
    unique_indices: bool = False, indices_are_sorted: bool = False, mode: Any = None,
    fill_value: Any = None,
) -> BCOO:  # fmt: skip
    """`lax.gather` from a sparse array.

    Args:
        operand: BCOO array.
        start_indices, dimension_numbers, slice_sizes: as for `lax.gather`; the slice is whole along axes
            without a start.
        mode: `promise_in_bounds`, also where it is None; NotImplementedError for others.
        unique_indices, indices_are_sorted, fill_value: as for `lax.gather`; nothing follows from them.

    >>> from ferrax.experimental import sparse
    >>> m = sparse.eye(3)
    >>> m[jnp.array([2, 0])].todense()
    Array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    _checked(operand)
    promise = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    if mode is not None and lax.GatherScatterMode.from_any(mode) != promise:
        raise NotImplementedError(
            f"bcoo_gather: mode must be 'promise_in_bounds', got {mode!r}: use indices that are in bounds"
        )
    starts = jnp.asarray(start_indices)
    out = staging.eval_shape(
        lambda x, i: lax.gather(x, i, dimension_numbers, tuple(slice_sizes), mode=promise),
        core.ShapeDtypeStruct(operand.shape, operand.dtype),
        core.ShapeDtypeStruct(starts.shape, starts.dtype),
    )
    numbers = dimension_numbers
    if getattr(numbers, "operand_batching_dims", ()):
        raise NotImplementedError("bcoo_gather: operand_batching_dims are not supported")
    if any(
        size != operand.shape[k]
        for k, size in enumerate(slice_sizes)
        if k not in numbers.start_index_map
    ):
        raise NotImplementedError(
            f"bcoo_gather: the slice must be whole along axes without a start, got slice_sizes={slice_sizes}"
        )
    batch = starts.shape[:-1]
    flat = starts.reshape(math.prod(batch), starts.shape[-1])

    def one(row):
        places: list[Any] = [jnp.zeros((), flat.dtype)] * operand.ndim
        for k, axis in enumerate(numbers.start_index_map):
            places[axis] = row[k]
        part = bcoo_dynamic_slice(operand, places, slice_sizes)
        return bcoo_squeeze(part, dimensions=numbers.collapsed_slice_dims)._bufs

    data, indices = vmap(one)(flat)
    slices = [size for k, size in enumerate(slice_sizes) if k not in numbers.collapsed_slice_dims]
    result = BCOO((data, indices), shape=(flat.shape[0], *slices))
    result = bcoo_reshape(result, new_sizes=(*batch, *slices)) if len(batch) != 1 else result
    # The axes of slices are put where `offset_dims` says.
    others = [axis for axis in range(len(out.shape)) if axis not in numbers.offset_dims]
    order = [0] * len(out.shape)
    for k, axis in enumerate((*others, *numbers.offset_dims)):
        order[axis] = k
    if order != list(range(len(order))):
        kinds = result._layout.parts(order)
        if any(
            sorted(kind) != list(part)
            for kind, part in zip(kinds, result._layout.parts(range(len(order))))
        ):
            result = bcoo_update_layout(result, n_batch=0, n_dense=0)
        result = bcoo_transpose(result, permutation=order)
    return result


def bcoo_conv_general_dilated(
    lhs: BCOO | Array, rhs: BCOO | Array, *, window_strides: Sequence[int], padding: Any,
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None, feature_group_count: int = 1, batch_group_count: int = 1,
    precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None,
) -> BCOO:  # fmt: skip
    """`lax.conv_general_dilated` in one dimension, of one batch and one channel, of sparse arrays.

    Args:
        lhs, rhs: arrays `(1, 1, n)`, of which at least one is a BCOO array.
        window_strides, lhs_dilation, rhs_dilation: must be 1; feature_group_count, batch_group_count: 1.
        padding: "SAME", "VALID", "SAME_LOWER" or a pair.
        dimension_numbers: must be the default, or mean it.
        precision: as for `lax.conv_general_dilated`, checked: products are of full precision.
        preferred_element_type: the dtype of the result; out_sharding: where it is to be.

    Errors: NotImplementedError for other arguments.

    >>> from ferrax.experimental import sparse
    >>> signal = sparse.BCOO.fromdense(jnp.array([[[1.0, 0.0, 2.0]]]))
    >>> kernel = jnp.array([[[1.0, 3.0]]])
    >>> sparse.bcoo_conv_general_dilated(signal, kernel, window_strides=(1,), padding="VALID").todense()
    Array([[[1., 6.]]], dtype=float32)
    """
    for name, value in (
        ("window_strides", window_strides), ("lhs_dilation", lhs_dilation), ("rhs_dilation", rhs_dilation),
    ):  # fmt: skip
        if value is not None and any(int(k) != 1 for k in value):
            raise NotImplementedError(f"bcoo convolution: {name} must be 1, got {tuple(value)}")
    precision_name(precision)
    check_out_sharding("bcoo_conv_general_dilated", out_sharding)
    default = conv_dimension_numbers(lhs.shape, rhs.shape, None)
    if conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers) != default:
        raise NotImplementedError(
            f"bcoo convolution: dimension_numbers must mean {default}, got {dimension_numbers}"
        )
    if feature_group_count != 1 or batch_group_count != 1:
        raise NotImplementedError("bcoo convolution: groups are not supported")
    if lhs.ndim != 3 or rhs.ndim != 3 or {*lhs.shape[:2], *rhs.shape[:2]} != {1}:
        raise NotImplementedError(
            f"bcoo convolution: shapes (1, 1, n) are supported, got {tuple(lhs.shape)} and {tuple(rhs.shape)}"
        )
    if isinstance(padding, str):
        ((before, after),) = padtype_to_pads(lhs.shape[2:], rhs.shape[2:], (1,), padding)
    else:
        ((before, after),) = padding
    sparse = next(x for x in (lhs, rhs) if isinstance(x, BCOO))
    (x, i), (y, j) = (_line(mat, sparse.indices.dtype) for mat in (lhs, rhs))
    dtype = jnp.result_type(x, y) if preferred_element_type is None else preferred_element_type
    data = (x.astype(dtype)[:, None] * y.astype(dtype)[None, :]).ravel()
    places = (i[:, None] - j[None, :] + before).ravel()
    size = max(0, lhs.shape[2] + int(before) + int(after) - rhs.shape[2] + 1)
    keep = (places >= 0) & (places < size)
    indices = jnp.where(keep, places, size)
    return BCOO((masked(data, keep)[None, None], indices[None, None, :, None]), shape=(1, 1, size))


def _line(mat: BCOO | Array, index_dtype: Any) -> tuple[Array, Array]:
    """The elements and places along the last axis of an array `(1, 1, n)`."""
    if not isinstance(mat, BCOO):
        return jnp.asarray(mat)[0, 0], jnp.arange(mat.shape[2], dtype=index_dtype)
    flat = without_padding(bcoo_update_layout(mat, n_batch=2, n_dense=0))
    return flat.data[0, 0], flat.indices[0, 0, :, 0]
