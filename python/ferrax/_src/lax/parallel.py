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
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import Array, Tracer, as_array, named_axes
from ferrax._src.lax.arguments import canonical_axis, operand as _operand
from ferrax._src.lax.creation import full_like
from ferrax._src.lax.elementwise import clamp, convert_element_type, select
from ferrax._src.lax.reduce import reduce_max, reduce_min, reduce_sum
from ferrax._src.lax.shape import expand_dims, reshape, squeeze, transpose
from ferrax._src.lax.slicing import dynamic_slice_in_dim
from ferrax._src.lax.varying import missing, vary
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


def _differing(x, names):
    """`x` as a value that differs along those of the axes of which types speak."""
    typed = named_axes.typed_of(names)
    return vary(x, missing(x, _texts(typed))) if typed else x


def _groups(groups, names, function, several=False):
    """Groups of lanes as tuples, checked: they take each lane once. `several`: also of several axes of a mesh, whose
    types may say what differs, as it does after the collective."""
    if groups is None:
        return None
    if len(names) != 1 and not several:
        raise ValueError(f"{function}: axis_index_groups is only possible over one axis")
    groups = tuple(tuple(map(operator.index, group)) for group in groups)
    size = named_axes.size_of_all(names, function)
    if sorted(lane for group in groups for lane in group) != list(range(size)):
        raise ValueError(
            f"{function}: axis_index_groups must take each of the {size} lanes once, got {groups}"
        )
    if not all(map(named_axes.is_of_mesh, names)):
        raise NotImplementedError(
            f"{function}: axis_index_groups is not supported over an axis of vmap; map over the groups with an axis of "
            "their own: reshape the axis to (groups, lanes) and use two vmaps"
        )
    if not several and named_axes.typed_of(names):
        raise NotImplementedError(
            f"{function}: axis_index_groups is not supported where types say what differs between devices; pass "
            "check_vma=False to shard_map"
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
        return bind(name, (_differing(x, names),), params) if names else x

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
            if groups is not None and len({len(group) for group in groups}) > 1:
                return bind("psum", (_operand(x, "psum"),), params)
            return x * _group_size(groups, names, "psum")
        if _is_sum(x, names):
            return bind("unreduced_psum", (x,), params)
        name = "psum_invariant" if len(named_axes.typed_of(names)) == len(names) else "psum"
        return bind(name, (_differing(x, names),), params)

    return tree_util.tree_map(leaf, x)


def _is_sum(x, names):
    """Whether a value is a sum over all of these axes of what devices have.

    Errors: ValueError for axes over some of which a value differs, or is such a sum, and over others not.
    """
    texts, known = _texts(named_axes.typed_of(names)), x._varying
    if len({(name in known, named_axes.UNREDUCED + name in known) for name in texts}) > 1:
        raise ValueError(
            f"psum: over the axes {names} at once a value has to differ between devices along all or along none, or be "
            f"unreduced over all, got {core.typeof(x).str_short()}; call psum for axes of one kind at a time"
        )
    return any(named_axes.UNREDUCED + name in known for name in texts)


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
    index = _own_index(last)
    stride = named_axes.size_of(last)
    for name in reversed(outer):
        index = index + _own_index(name) * stride
        stride *= named_axes.size_of(name)
    return index


def _own_index(name):
    known = named_axes.index_of(name)
    if known is not None:
        return known
    return _differing(bind("axis_index", (), {"axis_name": named_axes.text(name)}), [name])


def axis_size(axis_name: Any) -> int:
    """The number of lanes of a named axis, or of all of a tuple of axes, as a Python int.

    Errors: NameError where no axis of that name is mapped over.
    Args: axis_name: a name or a tuple of names.

    >>> ferrax.vmap(lambda x: x / lax.axis_size("lanes"), axis_name="lanes")(jnp.ones(4))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    return named_axes.size_of_all(axis_name, "axis_size")


def _permutation(perm, names, function):
    """The pairs of source and destination, checked."""
    size = named_axes.size_of_all(names)
    pairs = [(operator.index(source), operator.index(to)) for source, to in perm]
    pairs = [(source + size * (source < 0), to + size * (to < 0)) for source, to in pairs]
    for source, to in pairs:
        if not (0 <= source < size and 0 <= to < size):
            raise IndexError(
                f"{function}: a pair of {perm} is out of bounds for an axis of {size} lanes"
            )
    whole = len(pairs) if all(map(named_axes.is_of_mesh, names)) else size
    # JAX's class: over an axis of vmap, no lane may be left without a value.
    if len(pairs) != whole:
        raise AssertionError(
            f"{function}: over an axis of vmap the permutation must have a pair for each of its "
            f"{size} lanes, got the {len(pairs)} pairs {perm}"
        )
    if len({source for source, _ in pairs}) < whole or len({to for _, to in pairs}) < whole:
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
        perm: pairs (source, destination), one for each lane; over axes of a mesh devices to which none
            sends get zeros.

    Errors: NameError where no axis of that name is mapped over; AssertionError if pairs are
    missing over an axis of vmap, IndexError for lanes that there are none of, ValueError for lanes that come twice.

    >>> ring = [(0, 1), (1, 2), (2, 0)]
    >>> ferrax.vmap(lambda x: lax.ppermute(x, "i", ring), axis_name="i")(jnp.arange(3))
    Array([2, 0, 1], dtype=int32)
    """
    names = _bound_names(axis_name, "ppermute")
    pairs = _permutation(perm, names, "ppermute")
    if len(names) == 1:
        params = {"axis_name": _texts(names), "perm": pairs}
        return tree_util.tree_map(
            lambda leaf: bind("ppermute", (_differing(_operand(leaf, "ppermute"), names),), params), x
        )
    sources = np.full(named_axes.size_of_all(names), -1, dtypes.default_int_dtype())
    for sender, to in pairs:
        sources[to] = sender
    source = as_array(sources)[axis_index(names)]

    def leaf(x):
        sent = all_gather(x, names)[source]
        return sent if (sources >= 0).all() else select(source >= 0, sent, full_like(sent, 0))

    return tree_util.tree_map(leaf, x)


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

    Args: x: a tree of arrays; axis_name: the axis, or a tuple of axes; source: an int, or a scalar array of integers,
    of which those out of bounds are the nearest lane.

    Errors: NameError where no axis of that name is mapped over; ValueError if there is no such
    lane; TypeError for another array than a scalar of integers.

    >>> ferrax.vmap(lambda x: lax.pbroadcast(x, "i", 1), axis_name="i")(jnp.arange(3))
    Array([1, 1, 1], dtype=int32)
    """
    names = _bound_names(axis_name, "pbroadcast")
    size = named_axes.size_of_all(names)
    if isinstance(source, Array | np.ndarray):
        return _broadcast_from(x, names, as_array(source), size)
    source = operator.index(source)
    if not 0 <= source < size:
        raise ValueError(f"pbroadcast: there is no lane {source} among {size}")

    def leaf(x):
        x, rest = _differing(_operand(x, "pbroadcast"), names), size
        for name in names:
            own = named_axes.size_of(name)
            rest //= own
            params = {"axis_name": named_axes.text(name), "source": source // rest % own}
            x = bind("pbroadcast", (x,), params)
        return x

    return tree_util.tree_map(leaf, x)


def _broadcast_from(x, names, source, size):
    """As `pbroadcast`, from a lane whose number is computed. Cost: an `all_gather`."""
    if source.ndim or not dtypes.issubdtype(source.dtype, np.integer):
        raise TypeError(f"pbroadcast: source must be an int or a scalar array of integers, got {core.typeof(source)}")
    lane = clamp(full_like(source, 0), source, full_like(source, size - 1))

    def leaf(x):
        every = all_gather(_operand(x, "pbroadcast"), names)
        return squeeze(dynamic_slice_in_dim(every, lane, 1), (0,))

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
        to: "varying"; or "invarying", for a result that is by type the same on all devices of a mesh; or
            "reduced", for one whose cotangent is a sum over them as well.

    Errors: NameError where no axis of that name is mapped over; ValueError for an `axis` out of
    bounds and for another `to`; NotImplementedError for groups with another `to` than "varying".

    >>> ferrax.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(jnp.arange(2))
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    if to not in ("varying", "invarying", "reduced"):
        raise ValueError(f"all_gather: to must be 'varying', 'invarying' or 'reduced', got {to!r}")
    if to != "varying" and axis_index_groups is not None:
        raise NotImplementedError(f"all_gather: to={to!r} is not supported with groups of devices")
    names = _bound_names(axis_name, "all_gather")
    groups = _groups(axis_index_groups, names, "all_gather", several=True)
    op = "all_gather" if not named_axes.typed_of(names) else _GATHERS[to]

    def leaf(x):
        x = _operand(x, "all_gather")
        own = canonical_axis(axis, x.ndim + (not tiled))
        if groups is not None and len(names) > 1:
            gathered = _first_to(_of_group(x, names, groups)[0], own)
            return _merged(gathered, own) if tiled else gathered
        for number, name in enumerate(reversed(names)):
            params = {
                "all_gather_dimension": own,
                "axis_index_groups": groups,
                "axis_name": _texts([name]),
                "axis_size": _group_size(groups, [name], "all_gather"),
                "tiled": tiled,
            }
            if op != "all_gather":
                del params["axis_index_groups"]
            x = bind(op, (_differing(x, [name]),), params)
            if number and not tiled:
                x = _merged(x, own)
        return x

    return tree_util.tree_map(leaf, x)


_GATHERS = {"varying": "all_gather", "invarying": "all_gather_invariant", "reduced": "all_gather_reduced"}


def _of_group(x, names, groups):
    """What the lanes of the own group have, along a new first axis, and the own place among them."""
    table = np.zeros((named_axes.size_of_all(names), len(groups[0])), np.int32)
    places = np.zeros(len(table), np.int32)
    for group in groups:
        for place, lane in enumerate(group):
            table[lane], places[lane] = group, place
    lane = axis_index(names)
    return all_gather(x, names)[as_array(table)[lane]], as_array(places)[lane]


def _first_to(x, axis):
    """The first axis at another place."""
    return transpose(x, [*range(1, axis + 1), 0, *range(axis + 1, x.ndim)])


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

    Of a value that is unreduced over an axis the terms are summed.

    Errors: NameError where no axis of that name is mapped over; ValueError if the dimension is out
    of bounds or its size does not fit the number of lanes.

    >>> ferrax.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")(jnp.ones((2, 2)))
    Array([2., 2.], dtype=float32)
    """
    names = _bound_names(axis_name, "psum_scatter")
    groups = _groups(axis_index_groups, names, "psum_scatter", several=True)
    size = _group_size(groups, names, "psum_scatter")

    def leaf(x):
        x = _operand(x, "psum_scatter")
        axis = canonical_axis(scatter_dimension, x.ndim)
        if not tiled and x.shape[axis] != size:
            raise ValueError(
                f"psum_scatter: scatter_dimension {axis} of an array of shape {x.shape} must have "
                f"the number of lanes, {size}; use tiled=True to divide it into blocks"
            )
        if groups is not None and len(names) > 1:
            lanes, place = _of_group(x, names, groups)
            block = x.shape[axis] // size
            part = dynamic_slice_in_dim(reduce_sum(lanes, (0,)), place * block, block, axis)
            return part if tiled else squeeze(part, (axis,))
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
            if groups is None and _is_sum(x, [name]):
                del params["axis_index_groups"]
                x = bind("unreduced_reduce_scatter", (x,), params)
            else:
                x = bind("reduce_scatter", (_differing(x, [name]),), params)
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
    groups = _groups(axis_index_groups, names, "all_to_all", several=True)
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
        if groups is not None and len(names) > 1:
            lanes, place = _of_group(x, names, groups)
            block = x.shape[split] // size
            received = dynamic_slice_in_dim(lanes, place * block, block, split + 1)
            return _merged(_first_to(received, concat), concat)
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
        return bind("all_to_all", (_differing(x, [name]),), params)

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
