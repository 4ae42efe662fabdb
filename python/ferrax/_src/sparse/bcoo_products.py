"""Products of BCOO arrays with dense and with sparse ones, as primitives on their buffers.

A product with a dense array takes the rows of it that stored elements meet, and adds what they make to
the rows where these elements are: `O(nse * columns)`. Of two sparse arrays all pairs of elements are
compared: `O(nse * nse)`.
"""

from __future__ import annotations

from typing import NamedTuple

from ferrax._src import core
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.sparse.base import columns, in_bounds, masked, over_batches, sparse_primitive
from ferrax._src.sparse.bcoo_elements import (
    bcoo_extract_p,
    bcoo_sum_duplicates_p,
    layout_of,
    least_nse,
)
from ferrax._src.tracing import staging
from ferrax._src.transforms.batching import vmap


class Dimensions(NamedTuple):
    """The axes of a product, as `lax.dot_general` has them."""

    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]
    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]


def dimensions(dimension_numbers) -> Dimensions:
    (lc, rc), (lb, rb) = dimension_numbers
    return Dimensions(*(tuple(int(axis) for axis in axes) for axes in (lc, rc, lb, rb)))


def product_type(lhs_shape, lhs_dtype, rhs_shape, rhs_dtype, dimension_numbers, preferred=None):
    """The type of the dense product; raises the errors of `lax.dot_general`."""
    return staging.eval_shape(
        lambda x, y: lax.dot_general(x, y, dimension_numbers, preferred_element_type=preferred),
        core.ShapeDtypeStruct(tuple(lhs_shape), lhs_dtype),
        core.ShapeDtypeStruct(tuple(rhs_shape), rhs_dtype),
    )


def _dot_general(
    lhs_data, lhs_indices, rhs, *, dimension_numbers, preferred_element_type, lhs_spinfo
):
    axes = dimensions(dimension_numbers)
    shape = lhs_spinfo.shape
    layout = layout_of(lhs_data, lhs_indices, shape)
    _, sparse, _ = layout.parts(shape)
    out_type = product_type(
        shape, lhs_data.dtype, rhs.shape, rhs.dtype, dimension_numbers, preferred_element_type
    )
    first_dense = layout.n_batch + layout.n_sparse
    if any(axis >= layout.n_batch for axis in axes.lhs_batch):
        raise NotImplementedError(
            "bcoo_dot_general: batch dimensions of the product have to be batch axes of the sparse "
            f"array, got {axes.lhs_batch} for {layout}; use update_layout"
        )
    if any(axis >= first_dense for axis in axes.lhs_contract):
        raise NotImplementedError(
            "bcoo_dot_general: contracting over dense axes of the sparse array is not supported, got "
            f"{axes.lhs_contract} for {layout}; use update_layout"
        )
    # Each batch axis of the sparse array goes along one of the dense array's, or along none.
    partner = dict(zip(axes.lhs_batch, axes.rhs_batch)) | {
        left: right
        for left, right in zip(axes.lhs_contract, axes.rhs_contract)
        if left < layout.n_batch
    }
    pairs = [
        (left - layout.n_batch, right)
        for left, right in zip(axes.lhs_contract, axes.rhs_contract)
        if left >= layout.n_batch
    ]
    contracted = [left for left, _ in pairs]
    kept = [k for k in range(layout.n_sparse) if k not in contracted]
    mapped = [partner[k] for k in range(layout.n_batch) if k in partner]
    first = [*mapped, *(right for _, right in pairs)]
    rhs = jnp.transpose(rhs, (*first, *(k for k in range(rhs.ndim) if k not in first)))

    def one(data, indices, rhs):
        rows = columns(indices)
        if contracted:
            rhs = rhs.at[tuple(rows[k] for k in contracted)].get(mode="fill", fill_value=0)
        out_shape = tuple(sparse[k] for k in kept)
        dtype = out_type.dtype
        if not kept:
            data = masked(data, in_bounds(indices, sparse))
            if contracted:
                numbers = (((0,), (0,)), ((), ()))
                return lax.dot_general(data, rhs, numbers, preferred_element_type=dtype)
            data = jnp.sum(data, axis=0, dtype=data.dtype)
            return lax.dot_general(data, rhs, (((), ()), ((), ())), preferred_element_type=dtype)
        if contracted:
            along = (((), ()), ((0,), (0,)))
            terms = lax.dot_general(data, rhs, along, preferred_element_type=dtype)
        else:
            terms = lax.dot_general(data, rhs, (((), ()), ((), ())), preferred_element_type=dtype)
        result = jnp.zeros((*out_shape, *terms.shape[1:]), dtype)
        return result.at[tuple(rows[k] for k in kept)].add(terms, mode="drop")

    def nested(level):
        """`one` over the batch axes from this one on; the dense array has those of its own in front."""
        if level == layout.n_batch:
            return one
        inner = nested(level + 1)
        size, goes_along = shape[level], level in partner

        def over_axis(data, indices, rhs):
            if size == 0 and not goes_along:
                return jnp.zeros((0, *staging.eval_shape(
                    inner, *(core.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in (data, indices)), rhs
                ).shape), out_type.dtype)  # fmt: skip
            own = tuple(0 if x.shape[0] == size else None for x in (data, indices))
            buffers = [
                lax.squeeze(x, (0,)) if axis is None else x for x, axis in zip((data, indices), own)
            ]
            if own == (None, None) and not goes_along:
                return jnp.broadcast_to((part := inner(*buffers, rhs))[None], (size, *part.shape))
            return vmap(inner, in_axes=(*own, 0 if goes_along else None))(*buffers, rhs)

        return over_axis

    result = nested(0)(lhs_data, lhs_indices, rhs)
    summed = [k for k in range(layout.n_batch) if k in axes.lhs_contract]
    batch_axes = [k for k in range(layout.n_batch) if k not in summed]
    result = jnp.sum(result, axis=tuple(summed), dtype=result.dtype) if summed else result
    order = [batch_axes.index(k) for k in axes.lhs_batch]
    order += [k for k in range(result.ndim) if k not in order]
    return jnp.transpose(result, order).astype(out_type.dtype)


def _dot_general_sampled(A, B, indices, *, dimension_numbers):
    axes = dimensions(dimension_numbers)
    out = product_type(A.shape, A.dtype, B.shape, B.dtype, dimension_numbers)
    if axes.lhs_batch or indices.ndim != 2 or indices.shape[-1] != len(out.shape):
        dense = lax.dot_general(A, B, dimension_numbers)
        return bcoo_extract_p.bind(indices, dense, assume_unique=True)
    # Only the elements that are asked for: a row of each factor, contracted.
    left = [k for k in range(A.ndim) if k not in axes.lhs_contract]
    right = [k for k in range(B.ndim) if k not in axes.rhs_contract]
    rows = columns(indices)
    a = jnp.transpose(A, (*left, *axes.lhs_contract))
    b = jnp.transpose(B, (*right, *axes.rhs_contract))
    count = indices.shape[0]

    def taken(x, places):
        if places:
            return x.at[places].get(mode="fill", fill_value=0)
        return jnp.broadcast_to(x[None], (count, *x.shape))

    a, b = taken(a, rows[: len(left)]), taken(b, rows[len(left) :])
    inner = tuple(range(1, a.ndim))
    result = lax.dot_general(a, b, ((inner, inner), ((0,), (0,))))
    return masked(result, in_bounds(indices, out.shape))


def spdot_layout(lhs, rhs, lhs_info, rhs_info, axes: Dimensions):
    """The layouts of the factors, and how many elements of the product are stored."""
    left, right = (
        layout_of(lhs[0], lhs[1], lhs_info.shape),
        layout_of(rhs[0], rhs[1], rhs_info.shape),
    )
    if left.n_dense or right.n_dense:
        raise NotImplementedError(
            "bcoo_spdot_general: products of sparse arrays with dense axes are not supported; use "
            "update_layout(n_dense=0)"
        )
    for layout, batch, contract in (
        (left, axes.lhs_batch, axes.lhs_contract),
        (right, axes.rhs_batch, axes.rhs_contract),
    ):
        if any(k >= layout.n_batch for k in batch) or any(k < layout.n_batch for k in contract):
            raise NotImplementedError(
                "bcoo_spdot_general: batch dimensions of the product have to be batch axes of both "
                f"arrays, and contracting ones sparse axes, got {tuple(axes)} for {left} and {right}"
            )
    free = left.n_sparse - len(axes.lhs_contract)
    if right.n_batch > len(axes.rhs_batch) and free:
        raise NotImplementedError(
            "bcoo_spdot_general: batch axes of the second array that the product keeps would come after "
            "sparse axes of the first; use update_layout"
        )
    return left, right


def _spdot_general(
    lhs_data, lhs_indices, rhs_data, rhs_indices, *, lhs_spinfo, rhs_spinfo, dimension_numbers,
    preferred_element_type,
):  # fmt: skip
    axes = dimensions(dimension_numbers)
    out_type = product_type(
        lhs_spinfo.shape, lhs_data.dtype, rhs_spinfo.shape, rhs_data.dtype, dimension_numbers,
        preferred_element_type,
    )  # fmt: skip
    left, right = spdot_layout(
        (lhs_data, lhs_indices), (rhs_data, rhs_indices), lhs_spinfo, rhs_spinfo, axes
    )
    lhs_shape, rhs_shape = left.parts(lhs_spinfo.shape)[1], right.parts(rhs_spinfo.shape)[1]
    lc = [k - left.n_batch for k in axes.lhs_contract]
    rc = [k - right.n_batch for k in axes.rhs_contract]
    lf = [k for k in range(left.n_sparse) if k not in lc]
    rf = [k for k in range(right.n_sparse) if k not in rc]
    out_shape = tuple(lhs_shape[k] for k in lf) + tuple(rhs_shape[k] for k in rf)

    def one(x, i, y, j):
        meet = in_bounds(i, lhs_shape)[:, None] & in_bounds(j, rhs_shape)[None, :]
        for a, b in zip(lc, rc):
            meet &= i[:, a][:, None] == j[:, b][None, :]
        data = lax.dot_general(x, y, (((), ()), ((), ())), preferred_element_type=out_type.dtype)
        count = meet.shape[0] * meet.shape[1]
        rows = [jnp.broadcast_to(i[:, k][:, None], meet.shape).ravel() for k in lf]
        rows += [jnp.broadcast_to(j[:, k][None, :].astype(i.dtype), meet.shape).ravel() for k in rf]
        places = jnp.stack(rows, axis=-1) if rows else jnp.zeros((count, 0), i.dtype)
        keep = meet.ravel()
        limits = jnp.array(out_shape, i.dtype).reshape(1, -1)
        return masked(data.ravel(), keep), jnp.where(keep[:, None], places, limits)

    others_left = [k for k in range(left.n_batch) if k not in axes.lhs_batch]
    others_right = [k for k in range(right.n_batch) if k not in axes.rhs_batch]

    def ordered(data, indices, batch, others, layout):
        order = [*batch, *others, layout.n_batch]
        return jnp.transpose(data, order), jnp.transpose(indices, [*order, layout.n_batch + 1])

    x, i = ordered(lhs_data, lhs_indices, axes.lhs_batch, others_left, left)
    y, j = ordered(rhs_data, rhs_indices, axes.rhs_batch, others_right, right)
    function = one
    for _ in others_right:
        function = vmap(function, in_axes=(None, None, 0, 0))
    for _ in others_left:
        function = vmap(function, in_axes=(0, 0, None, None))
    batch = [lhs_spinfo.shape[k] for k in (*axes.lhs_batch, *others_left)]
    batch += [rhs_spinfo.shape[k] for k in others_right]

    def widened(x, sizes, rank):
        return jnp.broadcast_to(x, (*sizes, *x.shape[x.ndim - rank :]))

    left_sizes, right_sizes = (
        batch[: left.n_batch],
        [*batch[: len(axes.rhs_batch)], *batch[left.n_batch :]],
    )
    x, i = widened(x, left_sizes, 1), widened(i, left_sizes, 2)
    y, j = widened(y, right_sizes, 1), widened(j, right_sizes, 2)
    data, indices = over_batches(function, len(axes.lhs_batch))(x, i, y, j)
    nse = least_nse(indices.shape[-2], out_shape) if lc else indices.shape[-2]
    info = type(lhs_spinfo)(tuple(batch) + out_shape)
    if nse == indices.shape[-2]:
        return [data, indices]
    return bcoo_sum_duplicates_p.bind(data, indices, spinfo=info, nse=nse)


bcoo_dot_general_p = sparse_primitive(
    "bcoo_dot_general", _dot_general, ["dimension_numbers", "preferred_element_type", "lhs_spinfo"]
)
bcoo_dot_general_sampled_p = sparse_primitive(
    "bcoo_dot_general_sampled", _dot_general_sampled, ["dimension_numbers"]
)
bcoo_spdot_general_p = sparse_primitive(
    "bcoo_spdot_general",
    _spdot_general,
    ["lhs_spinfo", "rhs_spinfo", "dimension_numbers", "preferred_element_type"],
    True,
)

__all__ = ["bcoo_dot_general_p", "bcoo_dot_general_sampled_p", "bcoo_spdot_general_p"]
