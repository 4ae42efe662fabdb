"""Functions of ``ferrax.lax`` that move elements without arithmetic.

Invariant: shapes and axes reach the core as tuples of non-negative Python integers. Functions
return their operand itself where nothing would change.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from ferrax._core import Array, bind
from ferrax._src.core.explicit_types import retyped, typed
from ferrax._src.core.typing import ArrayLike, Shape
from ferrax._src.dims.sizes import (
    as_dim,
    is_constant_dim,
    is_constant_shape,
    surely_below,
    surely_negative,
)
from ferrax._src.lax.arguments import (
    canonical_axis as _canonical_axis,
    canonical_shape as _canonical_shape,
    describe as _describe,
    int_tuple as _int_tuple,
    operand as _operand,
)
from ferrax._src.lax.out_sharding import with_out_sharding

__all__ = [
    "broadcast",
    "broadcast_in_dim",
    "broadcast_like",
    "broadcast_shapes",
    "broadcast_to_rank",
    "collapse",
    "concatenate",
    "expand_dims",
    "pad",
    "reshape",
    "rev",
    "split",
    "squeeze",
    "stack",
    "tile",
    "transpose",
    "unstack",
]


def _nonnegative(name: str, what: str, values: tuple[int, ...]) -> None:
    if surely_negative(values):
        raise TypeError(f"{name} {what} must have every element be nonnegative, got {values}.")


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to; ValueError if they do not, TypeError for what
    is no shape.

    >>> lax.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    if not shapes:
        return ()
    rank = max([len(shape) for shape in shapes])
    result = [1] * rank
    for given in shapes:
        shape = _canonical_shape(given)
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1 and size != result[axis]:
                if surely_below(size, 0):
                    raise TypeError(f"broadcast_shapes: sizes cannot be negative, got the shape {tuple(shape)}")
                if result[axis] != 1:
                    raise ValueError(
                        f"Incompatible shapes for broadcasting: {[tuple(s) for s in shapes]}"
                    )
                result[axis] = size
    return tuple(result)


def broadcast_in_dim(
    operand: ArrayLike, shape: Shape, broadcast_dimensions: Sequence[int], *,
    out_sharding: Any = None,
) -> Array:
    """Broadcasts to ``shape``, operand axis ``i`` becoming axis ``broadcast_dimensions[i]``.

    Raises TypeError where an operand axis is neither 1 nor its target's size.
    Args: out_sharding: how the result is divided over a mesh.

    >>> lax.broadcast_in_dim(jnp.array([1, 2]), (2, 3), (0,)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "broadcast_in_dim", out_sharding, broadcast_in_dim, operand, shape, broadcast_dimensions,
        )  # fmt: skip
    shape = _canonical_shape(shape)
    dims = _int_tuple(broadcast_dimensions)
    operand = _operand(operand, "broadcast_in_dim")
    if not dims and not shape and operand.ndim == 0:
        return operand
    _nonnegative("broadcast_in_dim", "shape", shape)
    if dims:
        _nonnegative("broadcast_in_dim", "broadcast_dimensions", dims)
    if len(dims) != operand.ndim:
        raise TypeError(
            "broadcast_in_dim: broadcast_dimensions names an output axis for each of the "
            f"operand's {operand.ndim}, got {dims}."
        )
    if dims and max(dims) >= len(shape):
        raise TypeError(
            "broadcast_in_dim: broadcast_dimensions have to be axes of the output shape "
            f"{shape}, got {dims}."
        )
    return bind("broadcast_in_dim", (operand,), {"shape": shape, "broadcast_dimensions": dims})


def broadcast(operand: ArrayLike, sizes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """Adds leading axes of the given sizes.

    Args: operand: array; sizes: ints; out_sharding: how the result is divided over a mesh.

    >>> lax.broadcast(jnp.zeros(3), (2,)).shape
    (2, 3)
    """
    operand = _operand(operand, "broadcast")
    sizes = _canonical_shape(sizes)
    if not sizes:
        return operand
    first = len(sizes)
    dims = tuple(range(first, first + operand.ndim))
    return broadcast_in_dim(operand, sizes + operand.shape, dims, out_sharding=out_sharding)


def broadcast_to_rank(x: ArrayLike, rank: int) -> Array:
    """Adds leading axes of size 1 up to ``rank`` axes.

    Args: x: array; rank: an int, which does nothing unless above its rank.

    >>> lax.broadcast_to_rank(jnp.arange(3), 2)
    Array([[0, 1, 2]], dtype=int32)
    """
    x = _operand(x, "broadcast_to_rank")
    if x.ndim >= rank:
        return x
    return expand_dims(x, tuple(range(rank - x.ndim)))


def _typed_like(result: Array, arr: Any, like: Any) -> Array:
    """A result with the explicit type of `like`. Errors: ValueError where an axis of `arr` is divided otherwise."""
    wanted, own = typed(like), typed(arr)
    if wanted is None:
        return result
    last = wanted.spec.partitions[result.ndim - arr.ndim :]
    if own is not None and any(a is not None and a != b for a, b in zip(own.spec.partitions, last)):
        raise ValueError(
            f"broadcast_like: an array that is divided as {own.spec} cannot be broadcast to one that is divided as "
            f"{wanted.spec}: reshard it"
        )
    return retyped(result, wanted)


def broadcast_like(arr: ArrayLike, like_arr: ArrayLike) -> Array:
    """Broadcasts ``arr`` to ``like_arr``'s shape by NumPy's rules (ValueError if it cannot).

    Args: arr: array; like_arr: array or what has a shape.

    >>> lax.broadcast_like(jnp.arange(2), jnp.zeros((2, 2)))
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    arr, like = _operand(arr, "broadcast_like"), _operand(like_arr, "broadcast_like", 1)
    return _typed_like(_broadcast_to(arr, like.shape), arr, like)


def _broadcast_to(x: Array, shape: tuple[int, ...]) -> Array:
    """NumPy broadcast of an array to a shape, as one ``broadcast_in_dim``."""
    old = x.shape
    if old == shape:
        return x
    if len(old) > len(shape):
        raise ValueError(
            f"cannot broadcast shape {tuple(old)} to {tuple(shape)}, which has fewer axes; broadcasting "
            "adds axes in front"
        )
    first = len(shape) - len(old)
    for axis, size in enumerate(old, first):
        if size != 1 and size != shape[axis]:
            requested = f"{x.dtype}[{','.join(map(str, shape))}]"
            raise ValueError(
                f"Incompatible types for broadcasting: got {_describe(x)}, to be made "
                f"{requested}"
            )
    # Axes of size 1 that grow are dropped first, so that what is recorded is a plain broadcast.
    kept = [axis for axis, size in enumerate(old, first) if size == shape[axis]]
    if len(kept) < len(old):
        gone = tuple([axis - first for axis in range(first, len(shape)) if axis not in kept])
        x = bind("squeeze", (x,), {"dimensions": gone})
    return bind("broadcast_in_dim", (x,), {"shape": shape, "broadcast_dimensions": tuple(kept)})


def reshape(
    operand: ArrayLike, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, *,
    out_sharding: Any = None,
) -> Array:
    """The same elements, row-major, in another shape of equally many elements.

    ``dimensions`` permutes the axes first. Sizes must be given in full (no -1).

    Args: operand: array; new_sizes: ints; out_sharding: how the result is divided over a mesh.
    Errors: TypeError for another
    size.

    >>> lax.reshape(jnp.arange(6), (2, 3)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return with_out_sharding("reshape", out_sharding, reshape, operand, new_sizes, dimensions)
    operand = _operand(operand, "reshape")
    sizes = _canonical_shape(new_sizes)
    if surely_negative(sizes):
        raise TypeError(f"reshape: sizes cannot be negative, got {sizes}.")
    if dimensions is not None:
        dimensions = _int_tuple(dimensions)
        natural = tuple(range(operand.ndim))
        if dimensions == natural:
            dimensions = None
        elif tuple(sorted(dimensions)) != natural:
            raise TypeError(
                "reshape: dimensions has to name each axis of the shape "
                f"{tuple(operand.shape)} once, got {dimensions}."
            )
    if dimensions is None and sizes == operand.shape:
        return operand
    if not is_constant_shape((*sizes, *operand.shape)) and math.prod(sizes) != math.prod(operand.shape):
        raise TypeError(
            f"cannot reshape array of shape {tuple(operand.shape)} (size {math.prod(operand.shape)}) into shape "
            f"{sizes} (size {math.prod(sizes)}): these are not known to be equal"
        )
    return bind("reshape", (operand,), {"new_sizes": sizes, "dimensions": dimensions})


def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """Permutes axes: axis ``i`` of the result is axis ``permutation[i]`` of the operand.

    >>> lax.transpose(jnp.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    operand = _operand(operand, "transpose")
    permutation = _int_tuple(permutation)
    natural = tuple(range(operand.ndim))
    if permutation == natural:
        return operand
    if tuple(sorted(permutation)) != natural:
        raise TypeError(
            "transpose: the permutation has to name each axis of the shape "
            f"{tuple(operand.shape)} once, got {permutation}."
        )
    return bind("transpose", (operand,), {"permutation": permutation})


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Drops axes of size 1; ValueError where the size is another.

    Args: array: the operand; dimensions: the axes.

    >>> lax.squeeze(jnp.zeros((1, 3)), (0,)).shape
    (3,)
    """
    array = _operand(array, "squeeze")
    ndim = array.ndim
    dims = tuple([_canonical_axis(d, ndim) for d in dimensions])
    if not dims:
        return array
    if len(set(dims)) != len(dims):
        raise ValueError(f"squeeze: dimensions are not unique, got {dims}")
    shape = array.shape
    if any(shape[d] != 1 for d in dims):
        raise ValueError(
            "squeeze: cannot select an axis to squeeze out unless it has size one; got "
            f"dimensions {dims} of shape {tuple(shape)}"
        )
    return bind("squeeze", (array,), {"dimensions": tuple(sorted(dims))})


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Adds axes of size 1 at the given positions of the result.

    Args: array: the operand; dimensions: the positions. Errors: ValueError if they are repeated or
    out of range.

    >>> lax.expand_dims(jnp.zeros(3), (0, -1)).shape
    (1, 3, 1)
    """
    array = _operand(array, "expand_dims")
    ndim = array.ndim + len(dimensions)
    new = {_canonical_axis(d, ndim) for d in dimensions}
    if len(new) != len(dimensions):
        raise ValueError(
            f"repeated axis in lax.expand_dims: dimensions {tuple(dimensions)} of {ndim} axes"
        )
    if not new:
        return array
    kept = tuple([axis for axis in range(ndim) if axis not in new])
    shape = [1] * ndim
    for axis, size in zip(kept, array.shape):
        shape[axis] = size
    return bind(
        "broadcast_in_dim", (array,), {"shape": tuple(shape), "broadcast_dimensions": kept}
    )


def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Merges the axes ``start_dimension:stop_dimension`` into one.

    Args: operand: array.

    >>> lax.collapse(jnp.zeros((2, 3, 4)), 0, 2).shape
    (6, 4)
    """
    operand = _operand(operand, "collapse")
    shape = operand.shape
    lo, hi, _ = slice(start_dimension, stop_dimension).indices(len(shape))
    if hi < lo:
        raise ValueError(
            "collapse: start_dimension and stop_dimension have to be a range of axes of shape "
            f"{tuple(shape)}, got {start_dimension} and {stop_dimension}"
        )
    return reshape(operand, (*shape[:lo], math.prod(shape[lo:hi]), *shape[hi:]))


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Reverses the order of elements along axes.

    Args: operand: array; dimensions: the axes. Errors: TypeError if they are repeated or out of
    range.

    >>> lax.rev(jnp.array([1, 2, 3]), (0,))
    Array([3, 2, 1], dtype=int32)
    """
    operand = _operand(operand, "rev")
    dims = _int_tuple(dimensions)
    if len(set(dims)) != len(dims):
        raise TypeError(f"rev: dimensions names an axis twice, got {dims}.")
    _nonnegative("rev", "dimensions", dims)
    if any(d >= operand.ndim for d in dims):
        raise TypeError(
            "rev: dimensions have to be axes of the operand, got "
            f"{dims} for one of {operand.ndim} axes."
        )
    if not dims:
        return operand
    return bind("rev", (operand,), {"dimensions": dims})


def pad(
    operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]],
) -> Array:
    """Pads with a scalar: per axis (low, high, interior); negative low or high removes elements.

    Args: operand: array; padding_value: scalar of its dtype; padding_config: a triple of ints for
    each axis. Errors: TypeError for another dtype or rank, ValueError for another number of triples
    and a negative interior.

    >>> lax.pad(jnp.array([1, 2]), 0, [(1, 0, 1)])
    Array([0, 1, 0, 2], dtype=int32)
    """
    operand = _operand(operand, "pad")
    padding_value = _operand(padding_value, "pad", 1)
    config = tuple(
        [
            (as_dim(lo), as_dim(hi), operator.index(mid))
            for lo, hi, mid in padding_config
        ]
    )
    if len(config) != operand.ndim:
        raise ValueError(
            "pad: padding_config needs a triple for each axis of the operand, got "
            f"{config} for shape {tuple(operand.shape)}"
        )
    if padding_value.ndim != 0:
        raise ValueError(
            f"padding_value must be a scalar, got shape {padding_value.shape}"
        )
    if any(mid < 0 for _, _, mid in config):
        raise ValueError(
            f"pad: negative numbers between elements in padding_config {config}; only low and high may be"
        )
    result = tuple(
        [lo + hi + n + max(n - 1, 0) * mid for n, (lo, hi, mid) in zip(operand.shape, config)]
    )
    if surely_negative(result):
        raise ValueError(
            f"pad: padding_config {config} takes away more than shape {tuple(operand.shape)} has, "
            f"which leaves a negative size in {result}"
        )
    if all(is_constant_shape(widths) for widths in config):
        return bind("pad", (operand, padding_value), {"padding_config": config})
    return _pad_symbolic(operand, padding_value, config)


def _pad_symbolic(operand: Array, padding_value: Array, config) -> Array:
    """`pad` by symbolic widths: arrays of the value beside the operand, or a slice of it where they are negative."""
    known = tuple(
        [(*(w if is_constant_dim(w) else 0 for w in widths), interior) for *widths, interior in config]
    )
    result = bind("pad", (operand, padding_value), {"padding_config": known})
    for axis, (low, high, _) in enumerate(config):
        for width, before in ((low, True), (high, False)):
            if is_constant_dim(width):
                continue
            size = result.shape[axis]
            if surely_below(width, 1):
                starts, limits = [0] * result.ndim, list(result.shape)
                starts[axis], limits[axis] = (-width, size) if before else (0, size + width)
                params = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": None}
                result = bind("slice", (result,), params)
                continue
            shape = list(result.shape)
            shape[axis] = width
            values = broadcast(padding_value, shape)
            result = concatenate((values, result) if before else (result, values), axis)
    return result


def _listing(arrays) -> str:
    return ", ".join([str(tuple(x.shape)) for x in arrays])


def concatenate(operands: Any, dimension: int) -> Array:
    """Joins arrays of equal dtype along an existing axis.

    Raises ValueError without operands, TypeError where ranks, other sizes or dtypes differ.
    Args: operands: a sequence of arrays; dimension: the axis.

    >>> lax.concatenate([jnp.zeros(2), jnp.ones(1)], 0)
    Array([0., 0., 1.], dtype=float32)
    """
    if len(operands) == 0:
        raise ValueError("concatenate: got no arrays; at least one is needed")
    arrays = tuple([_operand(x, "concatenate", i) for i, x in enumerate(operands)])
    dimension = operator.index(dimension)
    first = arrays[0]
    if len(arrays) == 1:
        return first
    rank = first.ndim
    for x in arrays:
        if x.ndim != rank:
            raise TypeError(
                "concatenate: all arrays need as many axes as each other, got "
                f"{_listing(arrays)}."
            )
    if not 0 <= dimension < rank:
        raise TypeError(
            f"concatenate: dimension {dimension} is out of bounds for arrays of shapes "
            f"{_listing(arrays)}."
        )
    return bind("concatenate", arrays, {"dimension": dimension})


def stack(operands: Any, axis: int = 0) -> Array:
    """Joins arrays of equal shape and dtype along an axis that they do not have.

    Args: operands: the arrays, a sequence; axis: the new one, in the result. Errors: ValueError for
    none, TypeError for shapes or dtypes that differ.

    >>> lax.stack([jnp.arange(2), jnp.arange(2)], axis=1)
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    if len(operands) == 0:
        raise ValueError("stack: got an empty sequence, expected at least one array")
    arrays = [_operand(x, "stack", i) for i, x in enumerate(operands)]
    shapes = [tuple(x.shape) for x in arrays]
    if any(len(shape) != len(shapes[0]) for shape in shapes):
        raise ValueError(
            "stack: all arrays need one shape, got "
            f"{', '.join(map(str, shapes))}."
        )
    axis = _canonical_axis(axis, len(shapes[0]) + 1)
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"stack: expected arrays of one shape, got {shapes}.")
    return concatenate([expand_dims(x, (axis,)) for x in arrays], axis)


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Cuts an array along an axis into consecutive pieces of the given sizes (ValueError if the
    sizes do not add up).

    Args: operand: array; sizes: ints; axis: the axis.

    >>> lax.split(jnp.arange(5), (2, 3))
    [Array([0, 1], dtype=int32), Array([2, 3, 4], dtype=int32)]
    """
    operand = _operand(operand, "split")
    sizes = _int_tuple(sizes)
    axis = _canonical_axis(axis, operand.ndim)
    shape = operand.shape
    if any(size < 0 for size in sizes):
        raise ValueError(f"split: negative sizes among {tuple(sizes)}")
    if sum(sizes) != shape[axis]:
        raise ValueError(
            f"split: the sizes sum up to {sum(sizes)}, which is not the size of axis {axis} of "
            f"shape {tuple(shape)}"
        )
    pieces = []
    start = 0
    for size in sizes:
        starts, limits = [0] * len(shape), list(shape)
        starts[axis], limits[axis] = start, start + size
        pieces.append(
            bind(
                "slice",
                (operand,),
                {
                    "start_indices": tuple(starts),
                    "limit_indices": tuple(limits),
                    "strides": None,
                },
            )
        )
        start += size
    return pieces


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """The slices of an array along an axis, without that axis.

    Args: x: array of rank 1 or more; axis: the axis.

    >>> lax.unstack(jnp.array([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    x = _operand(x, "unstack")
    axis = _canonical_axis(axis, x.ndim)
    return tuple([squeeze(piece, (axis,)) for piece in split(x, (1,) * x.shape[axis], axis)])


def tile(operand: ArrayLike, reps: Sequence[int]) -> Array:
    """Repeats the whole array ``reps[i]`` times along each axis ``i``.

    Args: operand: array; reps: as many ints as it has axes.

    >>> lax.tile(jnp.arange(2), (3,))
    Array([0, 1, 0, 1, 0, 1], dtype=int32)
    """
    operand = _operand(operand, "tile")
    reps = _int_tuple(reps)
    shape = operand.shape
    if len(reps) != len(shape):
        raise TypeError(
            "tile: reps needs a number for each axis of x, got "
            f"{len(reps)} for {len(shape)} axes."
        )
    if any(r < 0 for r in reps):
        raise ValueError(f"tile reps must be nonnegative, got {reps}")
    if all(r == 1 for r in reps):
        return operand
    # Each repeated axis becomes a pair (repetition, element).
    wide: list[int] = []
    dims: list[int] = []
    for size, rep in zip(shape, reps):
        if rep != 1:
            wide.append(rep)
        dims.append(len(wide))
        wide.append(size)
    spread = broadcast_in_dim(operand, tuple(wide), dims)
    return reshape(spread, tuple([size * rep for size, rep in zip(shape, reps)]))
