"""Classes whose values are leaves for users and containers for transformations.

The values of such a class (`experimental.hijax`) are taken apart wherever ferrax flattens arguments and results:
they are nodes of the registry. The functions of `ferrax.tree` and `ferrax.tree_util` see them as leaves, as JAX's do:
those are made here, of the functions that know nothing of this. Cost: as long as there are no such classes, one look
at an empty set.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ferrax._src.tree import tree_util

F = TypeVar("F", bound=Callable[..., Any])

# By class what makes a value of a node's data and children.
_classes: dict[type, Callable[[Any, Any], Any]] = {}

# Those whose values have derivatives.
_values: set[type] = set()


def register_opaque(
    cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any], values: bool = False
) -> None:
    """Makes the values of a class containers for transformations alone; a class that is a container already stays
    what it is. `values`: whether they have derivatives."""
    if tree_util.default_registry.is_node(cls):
        return
    tree_util.register_pytree_node(cls, flatten, unflatten)
    _classes[cls] = unflatten
    if values:
        _values.add(cls)


def unflatten_of(x: Any) -> Callable[[Any, Any], Any]:
    """What makes such a value of the data and the children of its node."""
    return _classes[type(x)]


class Placeholder:
    """Where a value was in a tree of other things than it is made of: axes, types, names."""

    __slots__ = ("children", "ty", "unflatten")

    def __init__(self, unflatten: Callable[[Any, Any], Any], ty: Any, children: Any) -> None:
        self.unflatten = unflatten
        self.ty = ty
        self.children = children

    def __repr__(self) -> str:
        return f"{self.ty}{self.children}"


# What a placeholder is made of again may be what the value is made of.
tree_util.register_pytree_node(
    Placeholder, lambda x: (x.children, (x.unflatten, x.ty)), lambda data, children: data[0](data[1], children)
)


def any_values() -> bool:
    """Whether there are such classes whose values have derivatives."""
    return bool(_values)


def is_value(x: Any) -> bool:
    return type(x) in _values


def is_opaque(x: Any) -> bool:
    return type(x) in _classes


def leaf_test(is_leaf: Callable[..., bool] | None, takes_path: bool = False) -> Callable[..., bool] | None:
    """The predicate by which values of these classes are leaves, too."""
    if not _classes:
        return is_leaf
    if is_leaf is None:
        return (lambda _, x: type(x) in _classes) if takes_path else is_opaque
    if takes_path:
        return lambda path, x: type(x) in _classes or is_leaf(path, x)
    return lambda x: type(x) in _classes or is_leaf(x)


class ValueSpec:
    """Base of what says something of each array that a value is made of, in place of one thing for all."""

    def _spread(self, ty: Any, count: int) -> list[Any]:
        """What it says of the `count` arrays of a value, of which a node's data is `ty`."""
        raise NotImplementedError


def broadcast_specs(specs: Any, tree: Any, is_leaf: Callable[[Any], bool] | None) -> list[Any]:
    """`broadcast_prefix` of a tree of specs, among which may be `ValueSpec`s. Errors: ValueError, and TypeError for one
    that stands for something else than values of opaque classes."""

    def is_spec(x):
        return isinstance(x, ValueSpec) or (is_leaf is not None and is_leaf(x))

    leaves, treedef = tree_util.tree_flatten(specs, is_spec)
    if not any(isinstance(leaf, ValueSpec) for leaf in leaves):
        return tree_util.broadcast_prefix(specs, tree, is_leaf)
    found = []
    for leaf, part in zip(leaves, treedef.flatten_up_to(tree)):
        if not isinstance(leaf, ValueSpec):
            found += [leaf] * len(tree_util.tree_leaves(part))
            continue
        for value in tree_util.tree_leaves(part, lambda x: is_opaque(x) or isinstance(x, Placeholder)):
            if not (is_opaque(value) or isinstance(value, Placeholder)):
                raise TypeError(
                    f"{leaf} is a spec of values that are no arrays, and was given for one of {type(value).__name__}"
                )
            children, data = tree_util.flatten_one_level(value)
            ty = value.ty if isinstance(value, Placeholder) else data
            found += leaf._spread(ty, len(list(children)))
    return found


def flatten(tree: Any) -> tuple[list[Any], tree_util.PyTreeDef]:
    """The leaves that users see, and their structure."""
    return tree_util.tree_flatten(tree, leaf_test(None))


def _public(function: F, position: int) -> F:
    """The function for users; `position` is where `is_leaf` may be among its arguments."""

    @functools.wraps(function)
    def public(*args, **kwargs):
        if not _classes:
            return function(*args, **kwargs)
        takes_path = kwargs.get("is_leaf_takes_path", position + 1 < len(args) and args[position + 1])
        if len(args) > position:
            args = (*args[:position], leaf_test(args[position], takes_path), *args[position + 1 :])
        else:
            kwargs["is_leaf"] = leaf_test(kwargs.get("is_leaf"), takes_path)
        return function(*args, **kwargs)

    return public  # type: ignore[return-value]  # of the same signature


# By name alone where a function takes any number of trees.
_BY_NAME = 1 << 30

tree_flatten = _public(tree_util.tree_flatten, 1)
tree_leaves = _public(tree_util.tree_leaves, 1)
tree_structure = _public(tree_util.tree_structure, 1)
tree_map = _public(tree_util.tree_map, _BY_NAME)
tree_flatten_with_path = _public(tree_util.tree_flatten_with_path, 1)
tree_leaves_with_path = _public(tree_util.tree_leaves_with_path, 1)
tree_map_with_path = _public(tree_util.tree_map_with_path, _BY_NAME)
tree_reduce = _public(tree_util.tree_reduce, 3)
tree_reduce_associative = _public(tree_util.tree_reduce_associative, _BY_NAME)
tree_all = _public(tree_util.tree_all, _BY_NAME)
all_leaves = _public(tree_util.all_leaves, 1)


@functools.wraps(tree_util.tree_broadcast)
def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    if _classes:
        full_tree = tree_util.with_placeholders(tree_structure(full_tree))
    return tree_util.tree_broadcast(prefix_tree, full_tree, leaf_test(is_leaf))


@functools.wraps(tree_util.is_tree_node)
def is_tree_node(typ: type) -> bool:
    return tree_util.is_tree_node(typ) and typ not in _classes
