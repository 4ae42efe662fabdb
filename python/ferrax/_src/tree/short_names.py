"""Short names for the pytree functions: `tree.map` for `tree_util.tree_map` and so on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from ferrax._src.tree import tree_util as _tree_util

__all__ = [
    "all",
    "broadcast",
    "flatten",
    "flatten_with_path",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "reduce",
    "reduce_associative",
    "static",
    "structure",
    "transpose",
    "unflatten",
]


def all(tree: Any, *, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether all leaves are true; see `tree_util.tree_all`."""
    return _tree_util.tree_all(tree, is_leaf=is_leaf)


def broadcast(
    prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Repeats a prefix tree's leaves to a full structure; see `tree_util.tree_broadcast`."""
    return _tree_util.tree_broadcast(prefix_tree, full_tree, is_leaf=is_leaf)


def flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], _tree_util.PyTreeDef]:
    """Leaves and structure of a tree; see `tree_util.tree_flatten`.

    Example: `flatten((1, [2]))` gives `([1, 2], PyTreeDef((*, [*])))`.
    """
    return _tree_util.tree_flatten(tree, is_leaf)


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[_tree_util.KeyPath, Any]], _tree_util.PyTreeDef]:
    """Leaves with key paths, and structure; see `tree_util.tree_flatten_with_path`."""
    return _tree_util.tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree; see `tree_util.tree_leaves`."""
    return _tree_util.tree_leaves(tree, is_leaf)


def leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[_tree_util.KeyPath, Any]]:
    """Leaves with key paths; see `tree_util.tree_leaves_with_path`."""
    return _tree_util.tree_leaves_with_path(tree, is_leaf, is_leaf_takes_path)


def map(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Applies a function to the leaves of trees; see `tree_util.tree_map`.

    Example: `map(lambda x, y: x + y, {'a': 1}, {'a': 2})` gives `{'a': 3}`.
    """
    return _tree_util.tree_map(f, tree, *rest, is_leaf=is_leaf)


def map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Applies a function to key paths and leaves; see `tree_util.tree_map_with_path`."""
    return _tree_util.tree_map_with_path(
        f, tree, *rest, is_leaf=is_leaf, is_leaf_takes_path=is_leaf_takes_path
    )


def reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = _tree_util._unspecified,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Folds the leaves from the left; see `tree_util.tree_reduce`."""
    return _tree_util.tree_reduce(function, tree, initializer, is_leaf=is_leaf)


def reduce_associative(
    operation: Callable[[Any, Any], Any],
    tree: Any,
    *,
    identity: Any = _tree_util._unspecified,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Reduces the leaves in a balanced order; see `tree_util.tree_reduce_associative`."""
    return _tree_util.tree_reduce_associative(operation, tree, identity=identity, is_leaf=is_leaf)


def static(**kwargs: Any) -> Any:
    """A dataclass field that `register_dataclass` makes part of the structure.

    Args:
      kwargs: passed to `dataclasses.field`; entries of `metadata` are kept.

    Example: `name: str = tree.static(default='x')`.
    """
    metadata = {**(kwargs.pop("metadata", None) or {}), "static": True}
    return dataclasses.field(metadata=metadata, **kwargs)


def structure(tree: Any, is_leaf: None | Callable[[Any], bool] = None) -> _tree_util.PyTreeDef:
    """The structure of a tree; see `tree_util.tree_structure`."""
    return _tree_util.tree_structure(tree, is_leaf)


def transpose(
    outer_treedef: _tree_util.PyTreeDef,
    inner_treedef: _tree_util.PyTreeDef | None,
    pytree_to_transpose: Any,
) -> Any:
    """Exchanges an outer and an inner structure; see `tree_util.tree_transpose`."""
    return _tree_util.tree_transpose(outer_treedef, inner_treedef, pytree_to_transpose)


def unflatten(treedef: _tree_util.PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The tree with a structure and leaves; see `tree_util.tree_unflatten`."""
    return _tree_util.tree_unflatten(treedef, leaves)
