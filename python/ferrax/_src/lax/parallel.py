"""Collectives of ``ferrax.lax``: functions of values over all lanes of a named axis.

A function that is mapped over an axis with a name, `vmap(f, axis_name='i')`, is written for one
lane, and these are how it sees the others. Meaning and arguments are those of
https://docs.jax.dev/en/latest/jax.lax.html#parallel-operators. Over several axes at once, all but
the reductions are made of the same over one axis after the other, the first being the major one.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ferrax._core import bind
from ferrax._src.base import dtypes
from ferrax._src.core import Array, Tracer, as_array, named_axes
from ferrax._src.lax.arguments import canonical_axis, operand as _operand
from ferrax._src.lax.elementwise import convert_element_type
from ferrax._src.lax.reduce import reduce_max, reduce_min, reduce_sum
from ferrax._src.lax.shape import expand_dims, reshape, squeeze, transpose
from ferrax._src.tree import tree_util

__all__ = [
    "all_gather",
    "all_to_all",
    "axis_index",
    "axis_size",
    "pbroadcast",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "pshuffle",
    "psum",
    "psum_scatter",
    "pswapaxes",
]


def _split_names(axis_name, function):
    """The names and the positions among axes, checked."""
    axes = named_axes.as_names(axis_name)
    if len(set(axes)) != len(axes):
        raise ValueError(f"duplicate value in 'axes' of a collective, {axes}: name each axis once")
    names = tuple(axis for axis in axes if not isinstance(axis, int))
    for name in names:
        named_axes.size_of(name, function)
    return names, tuple(axis for axis in axes if isinstance(axis, int))


def _bound_names(axis_name, function) -> tuple:
    names = named_axes.as_names(axis_name)
    if not names:
        raise ValueError(f"{function} requires the name of an axis, got an empty tuple")
    for name in names:
        named_axes.size_of(name, function)
    return names


def _groups(groups, names, function):
    """Groups of lanes as tuples, checked: they take each lane once."""
    if groups is None:
        return None
    if len(names) != 1:
        raise ValueError(f"{function}: axis_index_groups is only possible over one axis")
    groups = tuple(tuple(map(operator.index, group)) for group in groups)
    size = named_axes.size_of(names[0], function)
    if sorted(lane for group in groups for lane in group) != list(range(size)):
        raise ValueError(
            f"{function}: axis_index_groups must take each of the {size} lanes once, got {groups}"
        )
    return groups


def _group_size(groups, names, function):
    if groups is None:
        return named_axes.size_of_all(names, function)
    if len({len(group) for group in groups}) > 1:
        raise ValueError(f"{function}: axis_index_groups must all be of one size, got {groups}")
    return len(groups[0]) if groups else 0


def _texts(names):
    return tuple(map(named_axes.text, names))


def _reduce(name, reduce, x, axis_name, axis_index_groups):
    names, positions = _split_names(axis_name, name)
    groups = _groups(axis_index_groups, names, name)
    params = {"axes": _texts(names), "axis_index_groups": groups}

    def leaf(x):
        x = _operand(x, name)
        if positions:
            x = reduce(x, positions)
        return bind(name, (x,), params) if names else x

    return tree_util.tree_map(leaf, x)


def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The sum over the lanes of a named axis.

    Args:
        x: a tree of arrays; bool counts as int32.
        axis_name: the axis, or a tuple of axes; ints among them are axes of the arrays.
        axis_index_groups: lists of lanes, to sum over each group. Not over an axis of vmap.

    What is no traced value is the same in all lanes: it is multiplied by their number at once, so
    that `psum(1, 'i')` is the axis' size as a Python int. The derivative's transpose is the psum
    of the cotangents.

    Errors: NameError where no axis of that name is mapped over; NotImplementedError for groups
    over an axis of vmap; TypeError for leaves that are no numbers.

    Example:
        >>> ferrax.vmap(lambda x: x / lax.psum(x, "i"), axis_name="i")(jnp.array([1.0, 3.0]))
        Array([0.25, 0.75], dtype=float32)
    """
    names, positions = _split_names(axis_name, "psum")
    groups = _groups(axis_index_groups, names, "psum")
    params = {"axes": _texts(names), "axis_index_groups": groups}

    def leaf(x):
        if dtypes.dtype(x) == np.bool_:
            x = convert_element_type(x, np.int32)
        if positions:
            x = reduce_sum(_operand(x, "psum"), positions)
        if not names:
            return x
        if not isinstance(x, Tracer):
            return x * _group_size(groups, names, "psum")
        return bind("psum", (x,), params)

    return tree_util.tree_map(leaf, x)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The mean over the lanes of a named axis; of integers it is a float. Arguments and errors as
    for `psum`.

    >>> ferrax.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i")(jnp.array([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    count = psum(1, axis_name, axis_index_groups=axis_index_groups)
    return tree_util.tree_map(lambda leaf: leaf / count, total)


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The maximum over the lanes of a named axis; NaN wins. Arguments and errors as for `psum`.

    Lanes that reach it share its derivative in equal parts, as for a maximum along an axis of an
    array.

    >>> ferrax.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(jnp.array([1.0, 3.0]))
    Array([3., 3.], dtype=float32)
    """
    return _reduce("pmax", reduce_max, x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The minimum over the lanes of a named axis; as `pmax`.

    Args: x, axis_name, axis_index_groups: as for `psum`, with its errors.

    >>> ferrax.vmap(lambda x: x - lax.pmin(x, "lanes"), axis_name="lanes")(jnp.array([3, 1, 2]))
    Array([2, 0, 1], dtype=int32)
    """
    return _reduce("pmin", reduce_min, x, axis_name, axis_index_groups)


def axis_index(axis_name: Any) -> Array:
    """The number of the lane on a named axis, as an int32 scalar; over a tuple of axes, counted
    with the last one as the fastest, and over none 0.

    Errors: NameError where no axis of that name is mapped over.

    >>> ferrax.vmap(lambda x: x + lax.axis_index("i"), axis_name="i")(jnp.zeros(3))
    Array([0., 1., 2.], dtype=float32)
    """
    if not named_axes.as_names(axis_name):
        return as_array(0)
    *outer, last = _bound_names(axis_name, "axis_index")
    index = bind("axis_index", (), {"axis_name": named_axes.text(last)})
    stride = named_axes.size_of(last)
    for name in reversed(outer):
        index = index + bind("axis_index", (), {"axis_name": named_axes.text(name)}) * stride
        stride *= named_axes.size_of(name)
    return index


def axis_size(axis_name: Any) -> int:
    """The number of lanes of a named axis, or of all of a tuple of axes, as a Python int.

    Errors: NameError where no axis of that name is mapped over.
    Args: axis_name: a name or a tuple of names.

    >>> ferrax.vmap(lambda x: x / lax.axis_size("lanes"), axis_name="lanes")(jnp.ones(4))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    return named_axes.size_of_all(axis_name, "axis_size")


def _permutation(perm, size, function):
    """The pairs of source and destination, checked."""
    pairs = [(operator.index(source), operator.index(to)) for source, to in perm]
    pairs = [(source + size * (source < 0), to + size * (to < 0)) for source, to in pairs]
    for source, to in pairs:
        if not (0 <= source < size and 0 <= to < size):
            raise IndexError(
                f"{function}: a pair of {perm} is out of bounds for an axis of {size} lanes"
            )
    # JAX's class: over an axis of vmap, no lane may be left without a value.
    if len(pairs) != size:
        raise AssertionError(
            f"{function}: over an axis of vmap the permutation must have a pair for each of its "
            f"{size} lanes, got the {len(pairs)} pairs {perm}"
        )
    if len({source for source, _ in pairs}) < size or len({to for _, to in pairs}) < size:
        raise ValueError(
            f"{function}: a lane sends once and receives once, got perm={perm}; to send one lane's "
            "value to several, use all_gather or pbroadcast"
        )
    return tuple(pairs)


def ppermute(x: Any, axis_name: Any, perm: Any) -> Any:
    """Values sent from lane to lane along a named axis.

    Args:
        x: a tree of arrays.
        axis_name: the axis, or a tuple of axes, whose lanes are counted as `axis_index` does.
        perm: pairs (source, destination), one for each lane.

    Errors: NameError where no axis of that name is mapped over; AssertionError if pairs are
    missing, IndexError for lanes that there are none of, ValueError for lanes that come twice.

    >>> ring = [(0, 1), (1, 2), (2, 0)]
    >>> ferrax.vmap(lambda x: lax.ppermute(x, "i", ring), axis_name="i")(jnp.arange(3))
    Array([2, 0, 1], dtype=int32)
    """
    names = _bound_names(axis_name, "ppermute")
    pairs = _permutation(perm, named_axes.size_of_all(names), "ppermute")
    if len(names) == 1:
        params = {"axis_name": _texts(names), "perm": pairs}
        return tree_util.tree_map(
            lambda leaf: bind("ppermute", (_operand(leaf, "ppermute"),), params), x
        )
    sources = [source for source, _ in sorted(pairs, key=operator.itemgetter(1))]
    table = as_array(np.array(sources, dtypes.default_int_dtype()))
    source = table[axis_index(names)]
    return tree_util.tree_map(lambda leaf: all_gather(leaf, names)[source], x)


def pshuffle(x: Any, axis_name: Any, perm: Any) -> Any:
    """`ppermute` by the list of the lanes that each lane has its value from.

    Errors: ValueError if that is no permutation; else as `ppermute`.
    Args: x: a pytree of arrays; axis_name: a name; perm: a permutation of the lanes.

    >>> turned = ferrax.vmap(lambda x: lax.pshuffle(x, "lanes", [2, 0, 1]), axis_name="lanes")
    >>> turned(jnp.array([5, 6, 7]))
    Array([7, 5, 6], dtype=int32)
    """
    lanes = range(len(perm))
    if sorted(perm) != list(lanes):
        raise ValueError(
            f"pshuffle: perm has to name each of the lanes 0 to {len(perm) - 1} once, got {perm}"
        )
    return ppermute(x, axis_name, list(zip(perm, lanes)))


def pbroadcast(x: Any, axis_name: Any, source: Any) -> Any:
    """The value of the lane of number `source`, in all lanes of a named axis.

    Errors: NameError where no axis of that name is mapped over; ValueError if there is no such
    lane.

    >>> ferrax.vmap(lambda x: lax.pbroadcast(x, "i", 1), axis_name="i")(jnp.arange(3))
    Array([1, 1, 1], dtype=int32)
    """
    names = _bound_names(axis_name, "pbroadcast")
    size, source = named_axes.size_of_all(names), operator.index(source)
    if not 0 <= source < size:
        raise ValueError(f"pbroadcast: there is no lane {source} among {size}")

    def leaf(x):
        x, rest = _operand(x, "pbroadcast"), size
        for name in names:
            own = named_axes.size_of(name)
            rest //= own
            params = {"axis_name": named_axes.text(name), "source": source // rest % own}
            x = bind("pbroadcast", (x,), params)
        return x

    return tree_util.tree_map(leaf, x)


def all_gather(
    x: Any, axis_name: Any, *, axis_index_groups: Any = None, axis: int = 0,
    tiled: bool = False, to: Any = "varying",
) -> Any:
    """The arrays of all lanes of a named axis, in each lane.

    Args:
        x: a tree of arrays.
        axis_name: the axis, or a tuple of axes.
        axis_index_groups: lists of lanes, to gather in each group. Not over an axis of vmap.
        axis: where the lanes are in the result; may be negative.
        tiled: whether they are one after the other along an axis that the arrays have, and not
            along a new one.
        to: only "varying".

    Errors: NameError where no axis of that name is mapped over; ValueError for an `axis` out of
    bounds.

    >>> ferrax.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(jnp.arange(2))
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    if to != "varying":
        raise NotImplementedError(f"all_gather: to={to!r} is a type of values on several devices")
    names = _bound_names(axis_name, "all_gather")
    groups = _groups(axis_index_groups, names, "all_gather")

    def leaf(x):
        x = _operand(x, "all_gather")
        own = canonical_axis(axis, x.ndim + (not tiled))
        for number, name in enumerate(reversed(names)):
            params = {
                "all_gather_dimension": own,
                "axis_index_groups": groups,
                "axis_name": _texts([name]),
                "axis_size": _group_size(groups, [name], "all_gather"),
                "tiled": tiled,
            }
            x = bind("all_gather", (x,), params)
            if number and not tiled:
                x = _merged(x, own)
        return x

    return tree_util.tree_map(leaf, x)


def _merged(x, axis, count=2):
    """`count` axes from `axis` on as one."""
    sizes = x.shape[axis : axis + count]
    return reshape(x, (*x.shape[:axis], math.prod(sizes), *x.shape[axis + count :]))


def psum_scatter(
    x: Any, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """The lane's part of `psum`: as that, of which each lane keeps what has its number.

    Args:
        x: a tree of arrays.
        axis_name: the axis, or a tuple of axes.
        scatter_dimension: the axis of the arrays that is divided among the lanes.
        axis_index_groups: lists of lanes, to sum in each group. Not over an axis of vmap.
        tiled: whether lanes keep a block of that axis, and not one index of it, without it.

    Errors: NameError where no axis of that name is mapped over; ValueError if the dimension is out
    of bounds or its size does not fit the number of lanes.

    >>> ferrax.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")(jnp.ones((2, 2)))
    Array([2., 2.], dtype=float32)
    """
    names = _bound_names(axis_name, "psum_scatter")
    groups = _groups(axis_index_groups, names, "psum_scatter")
    size = _group_size(groups, names, "psum_scatter")

    def leaf(x):
        x = _operand(x, "psum_scatter")
        axis = canonical_axis(scatter_dimension, x.ndim)
        if not tiled and x.shape[axis] != size:
            raise ValueError(
                f"psum_scatter: scatter_dimension {axis} of an array of shape {x.shape} must have "
                f"the number of lanes, {size}; use tiled=True to divide it into blocks"
            )
        if not tiled and len(names) > 1:
            sizes = [named_axes.size_of(name) for name in names]
            x = reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))
        for name in names:
            params = {
                "axis_index_groups": groups,
                "axis_name": _texts([name]),
                "axis_size": _group_size(groups, [name], "psum_scatter"),
                "scatter_dimension": axis,
                "tiled": tiled,
            }
            x = bind("reduce_scatter", (x,), params)
        return x

    return tree_util.tree_map(leaf, x)


def all_to_all(
    x: Any, axis_name: Any, split_axis: int, concat_axis: int, *,
    axis_index_groups: Any = None, tiled: bool = False,
) -> Any:
    """An axis of arrays exchanged with the lanes: what lane `a` has at index `b`, lane `b` then has
    at index `a`.

    Args:
        x: a tree of arrays.
        axis_name: the named axis, or a tuple of them.
        split_axis: the axis whose indices go to the lanes; it disappears.
        concat_axis: where the lanes that they came from are in the result.
        axis_index_groups: lists of lanes, to exchange in each group. Not over an axis of vmap.
        tiled: whether blocks are exchanged: `split_axis` stays, divided by the number of lanes, and
            `concat_axis`, which there is already, is multiplied by it.

    Errors: NameError where no axis of that name is mapped over; ValueError if axes are out of
    bounds, or the size of `split_axis` does not fit the number of lanes.

    >>> x = jnp.arange(4).reshape(2, 2)
    >>> ferrax.vmap(lambda x: lax.all_to_all(x, "i", 0, 0), axis_name="i")(x)
    Array([[0, 2],
           [1, 3]], dtype=int32)
    """
    names = _bound_names(axis_name, "all_to_all")
    groups = _groups(axis_index_groups, names, "all_to_all")
    size = _group_size(groups, names, "all_to_all")

    def leaf(x):
        x = _operand(x, "all_to_all")
        split, concat = (canonical_axis(axis, x.ndim) for axis in (split_axis, concat_axis))
        if tiled:
            if size == 0 or x.shape[split] % size:
                raise ValueError(
                    f"all_to_all: split_axis has size {x.shape[split]}, which is not divisible by "
                    f"the {size} lanes of {axis_name}"
                )
            return exchange(x, split, concat)
        if x.shape[split] != size:
            raise ValueError(
                "all_to_all: without tiled=True, split_axis needs one element for each of the "
                f"{size} lanes, got size {x.shape[split]}"
            )
        if split == concat:
            return exchange(x, split, concat)
        place = concat + (split < concat)
        split += split >= place
        return squeeze(exchange(expand_dims(x, (place,)), split, place), (split,))

    def exchange(x, split, concat):
        """Blocks of `split` one after the other along `concat`."""
        if len(names) == 1:
            return along(names[0], x, split, concat)
        x = expand_dims(x, (concat,))
        for name in names:
            x = along(name, x, split + (split >= concat), concat)
        return _merged(first_is_major(x, concat), concat)

    def along(name, x, split, concat):
        params = {
            "axis_index_groups": groups,
            "axis_name": named_axes.text(name),
            "axis_size": _group_size(groups, [name], "all_to_all"),
            "concat_axis": concat,
            "split_axis": split,
            "tiled": tiled,
        }
        return bind("all_to_all", (x,), params)

    def first_is_major(x, axis):
        """The axis of the lanes, in which the first named axis is the minor one, the other way."""
        sizes = [named_axes.size_of(name) for name in reversed(names)]
        x = reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))
        order, end = list(range(x.ndim)), axis + len(names)
        order[axis:end] = reversed(order[axis:end])
        return _merged(transpose(x, order), axis, len(names))

    return tree_util.tree_map(leaf, x)


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """A named axis swapped with an axis of arrays, of the same size. Errors as `all_to_all`.

    Args: x, axis_name, axis, axis_index_groups: as for `all_to_all`, of which it is a case.

    >>> swapped = ferrax.vmap(lambda x: lax.pswapaxes(x, "lanes", 0), axis_name="lanes")
    >>> swapped(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)
