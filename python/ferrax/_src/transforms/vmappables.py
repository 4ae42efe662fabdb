"""Types of a library's own that `vmap` maps over, and their axes.

Such a type says how to take an element of a batch (`to_elt`) and how to make a batch of elements
(`from_elt`), by way of the arrays that it holds. Both are called twice: once to see which arrays
there are, once with their elements or their batches, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.core import api_util
from ferrax._src.lax import api as lax
from ferrax._src.tree import tree_util

__all__ = ["register_vmappable", "unregister_vmappable"]

vmappables: dict[type, tuple[type, type]] = {}
_to_elt: dict = {}
_from_elt: dict = {}
_make_iota: dict = {}


def register_vmappable(
    data_type: Any,
    spec_type: Any,
    axis_size_type: Any,
    to_elt: Callable[..., Any],
    from_elt: Callable[..., Any],
    make_iota: Callable[..., Any],
) -> None:
    """Says how `vmap` maps over values of a type.

    Args:
        data_type: the type of values.
        spec_type: the type of entries of `in_axes` and `out_axes` for them.
        axis_size_type: the type of the sizes of their axes.
        to_elt: `to_elt(cont, get_idx, value, spec)` is the element that the mapped function gets:
            `cont(array, axis)` is that of an array, `get_idx()` its number.
        from_elt: `from_elt(cont, axis_size, element, spec)` is the batch that `vmap` returns:
            `cont(axis_size, array, axis)` is that of an array.
        make_iota: the numbers of elements for an axis size, or None where that is an int.

    `to_elt` and `from_elt` must do the same at each call for the same value.

    Example:
        >>> import dataclasses
        >>> from ferrax.interpreters import batching
        >>> @dataclasses.dataclass
        ... class Named:
        ...     data: ferrax.Array
        >>> @dataclasses.dataclass
        ... class Axis:
        ...     number: int
        >>> batching.register_vmappable(
        ...     Named, Axis, int,
        ...     lambda cont, _, x, spec: Named(cont(x.data, spec.number)),
        ...     lambda cont, size, x, spec: Named(cont(size, x.data, spec.number)), None)
        >>> double = ferrax.vmap(lambda x: Named(2 * x.data), in_axes=Axis(0), out_axes=Axis(0))
        >>> double(Named(jnp.arange(3)))
        Named(data=Array([0, 2, 4], dtype=int32))
        >>> batching.unregister_vmappable(Named)
    """
    vmappables[data_type] = (spec_type, axis_size_type)
    _to_elt[data_type] = to_elt
    _from_elt[data_type] = from_elt
    if make_iota is not None:
        _make_iota[axis_size_type] = make_iota


def unregister_vmappable(data_type: Any) -> None:
    """Forgets a type that `register_vmappable` was told of.

    Args: data_type: the type.

    >>> from ferrax.interpreters import batching
    >>> class Lanes:
    ...     pass
    >>> batching.register_vmappable(Lanes, int, int, lambda *_: 0, lambda *_: Lanes(), None)
    >>> batching.unregister_vmappable(Lanes)
    """
    vmappables.pop(data_type, None)
    _to_elt.pop(data_type, None)
    _from_elt.pop(data_type, None)


def is_vmappable(value) -> bool:
    return type(value) in vmappables


def is_spec(value) -> bool:
    """Whether a value is an axis of a registered type; whole numbers are axes of arrays, too."""
    return any(type(value) is spec and spec is not int for spec, _ in vmappables.values())


def _is_axis(value) -> bool:
    return value is None or is_spec(value)


def _axes(name, axes, tree):
    dummy = tree_util.with_placeholders(tree)
    try:
        return tree_util.broadcast_prefix(axes, dummy, is_leaf=_is_axis)
    except ValueError as error:
        raise ValueError(
            f"vmap: {name} has to be a tree prefix of {tree}, got {axes}: {error}"
        ) from None


class _Elements:
    """Takes values apart into arrays with axes, and puts elements in the places of these."""

    def __init__(self):
        self.arrays, self.axes = [], []

    def note(self, value, spec):
        """Notes the arrays of a value."""

        def cont(array, axis):
            if is_vmappable(array):
                return take(array, axis)
            self.arrays.append(core.as_array(array, "vmap"))
            self.axes.append(axis)
            return array

        def take(value, spec):
            return _to_elt[type(value)](cont, lambda: 0, value, spec)

        take(value, spec) if is_vmappable(value) else cont(value, spec)

    @staticmethod
    def element(value, spec, elements, index):
        """The value with elements in the places of its arrays."""

        def cont(array, axis):
            return take(array, axis) if is_vmappable(array) else next(elements)

        def take(value, spec):
            return _to_elt[type(value)](cont, lambda: index, value, spec)

        return cont(value, spec)


def _batched(value, spec, size, cont_array):
    """The batch of an element, where `cont_array(array, axis)` is that of an array."""

    def cont(size, value, spec):
        if is_vmappable(value):
            return _from_elt[type(value)](cont, size, value, spec)
        return cont_array(value, spec)

    return cont(size, value, spec)


def _iota(size):
    make = _make_iota.get(type(size))
    return lax.iota("int32", int(size)) if make is None else make(size)


def call(vmap, fun, in_axes, out_axes, axis_name, axis_size, sum_match, args, kwargs):
    """Calls `fun` mapped over arguments among which are values of registered types."""
    leaves, tree = tree_util.tree_flatten((args, kwargs), is_leaf=is_vmappable)
    dummy = tree_util.with_placeholders(tree)
    axes = _axes("in_axes", in_axes, tree_util.tree_structure(dummy[0]))
    axes += [0] * (len(leaves) - len(axes))
    elements = _Elements()
    for leaf, axis in zip(leaves, axes):
        elements.note(leaf, axis)
    sizes = [x.shape[axis] for x, axis in zip(elements.arrays, elements.axes) if axis is not None]
    if axis_size is None and not sizes:
        raise ValueError(
            "vmap: no argument is mapped; give in_axes at least one non-None entry, or pass axis_size"
        )
    size = sizes[0] if axis_size is None else axis_size
    outs: list[Any] = []
    out_specs: list[Any] = []
    # Of the outputs; the function has set it when it is used.
    out_tree: Any = None

    def mapped(index, *arrays):
        nonlocal out_tree
        rest = iter(arrays)
        own = [_Elements.element(x, axis, rest, index) for x, axis in zip(leaves, axes)]
        own_args, own_kwargs = tree.unflatten(own)
        found, out_tree = tree_util.tree_flatten(fun(*own_args, **own_kwargs), is_leaf=is_vmappable)
        outs[:] = found
        out_specs[:] = _axes("out_axes", out_axes, out_tree)
        noted = []

        def note(x, axis):
            noted.append((x, axis))
            return x

        for value, spec in zip(found, out_specs):
            _batched(value, spec, size, note)
        places[:] = [axis for _, axis in noted]
        return [x for x, _ in noted]

    places: list = []
    mapped.__name__ = api_util.fun_name(fun)
    in_places = (0, *elements.axes)
    # The axes of outputs are known once the function has run, which is before `vmap` looks at them.
    results = vmap(mapped, in_places, places, axis_name, int(size), None, sum_match)(_iota(size), *elements.arrays)
    rest = iter(results)
    found = [_batched(x, spec, size, lambda *_: next(rest)) for x, spec in zip(outs, out_specs)]
    return out_tree.unflatten(found)


def finished(result, size, out_axes):
    """What `vmap` returns, where values of registered types that are trees have batches of arrays."""
    leaves, tree = tree_util.tree_flatten(result, is_leaf=is_vmappable)
    if not any(map(is_vmappable, leaves)):
        return result
    axes = _axes("out_axes", out_axes, tree)
    return tree.unflatten(
        _from_elt[type(leaf)](lambda size, array, axis: array, size, leaf, axis)
        if is_vmappable(leaf) and axis is not None
        else leaf
        for leaf, axis in zip(leaves, axes)
    )

