"""Short names for the pytree functions: `tree.map` for `tree_util.tree_map` and so on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from ferrax._src.base.traceback_util import bounded, leave
from ferrax._src.tree import opaque as _opaque, tree_util as _tree_util

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


@bounded
def all(tree: Any, *, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether all leaves are true; see `tree_util.tree_all`.

    Args: tree, is_leaf: as for `tree_util.tree_all`.

    >>> ferrax.tree.all((True, [False]))
    False
    """
    try:
        return _opaque.tree_all(tree, is_leaf=is_leaf)
    except Exception:
        leave()
        raise


def broadcast(
    prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Repeats a prefix tree's leaves to a full structure; see `tree_util.tree_broadcast`.

    Args: prefix_tree, full_tree, is_leaf: as for `tree_util.tree_broadcast`, with its errors.

    >>> ferrax.tree.broadcast((1, 2), (0, [0, 0]))
    (1, [2, 2])
    """
    return _opaque.tree_broadcast(prefix_tree, full_tree, is_leaf=is_leaf)


@bounded
def flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], _tree_util.PyTreeDef]:
    """Leaves and structure of a tree; see `tree_util.tree_flatten`.

    Args: tree, is_leaf: as for `tree_util.tree_flatten`.

    >>> ferrax.tree.flatten((1, [2]))
    ([1, 2], PyTreeDef((*, [*])))
    """
    try:
        return _opaque.tree_flatten(tree, is_leaf)
    except Exception:
        leave()
        raise


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[_tree_util.KeyPath, Any]], _tree_util.PyTreeDef]:
    """Leaves with key paths, and structure; see `tree_util.tree_flatten_with_path`.

    Args: tree, is_leaf, is_leaf_takes_path: as for `tree_util.tree_flatten_with_path`.

    >>> ferrax.tree.flatten_with_path({"a": [1]})[0]
    [((DictKey(key='a'), SequenceKey(idx=0)), 1)]
    """
    return _opaque.tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)


@bounded
def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree; see `tree_util.tree_leaves`.

    Args: tree, is_leaf: as for `tree_util.tree_leaves`.

    >>> ferrax.tree.leaves({"a": [1, 2]})
    [1, 2]
    """
    try:
        return _opaque.tree_leaves(tree, is_leaf)
    except Exception:
        leave()
        raise


def leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[_tree_util.KeyPath, Any]]:
    """Leaves with key paths; see `tree_util.tree_leaves_with_path`.

    Args: tree, is_leaf, is_leaf_takes_path: as for `tree_util.tree_leaves_with_path`.

    >>> ferrax.tree.leaves_with_path({"a": [1]})
    [((DictKey(key='a'), SequenceKey(idx=0)), 1)]
    """
    return _opaque.tree_leaves_with_path(tree, is_leaf, is_leaf_takes_path)


@bounded
def map(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Applies a function to the leaves of trees; see `tree_util.tree_map`.

    Args: f, tree, rest, is_leaf: as for `tree_util.tree_map`, with its errors.

    >>> ferrax.tree.map(lambda x, y: x + y, {"a": 1}, {"a": 2})
    {'a': 3}
    """
    try:
        return _opaque.tree_map(f, tree, *rest, is_leaf=is_leaf)
    except Exception:
        leave()
        raise


def map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Applies a function to key paths and leaves; see `tree_util.tree_map_with_path`.

    Args: f, tree, rest, is_leaf, is_leaf_takes_path: as for `tree_util.tree_map_with_path`.

    >>> ferrax.tree.map_with_path(lambda path, x: (ferrax.tree_util.keystr(path), x), [5])
    [('[0]', 5)]
    """
    return _opaque.tree_map_with_path(
        f, tree, *rest, is_leaf=is_leaf, is_leaf_takes_path=is_leaf_takes_path
    )


@bounded
def reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = _tree_util._unspecified,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Folds the leaves from the left; see `tree_util.tree_reduce`.

    Args: function, tree, initializer, is_leaf: as for `tree_util.tree_reduce`, with its errors.

    >>> ferrax.tree.reduce(lambda total, x: total + x, [1, (2, 3)])
    6
    """
    try:
        return _opaque.tree_reduce(function, tree, initializer, is_leaf=is_leaf)
    except Exception:
        leave()
        raise


def reduce_associative(
    operation: Callable[[Any, Any], Any],
    tree: Any,
    *,
    identity: Any = _tree_util._unspecified,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Reduces the leaves in a balanced order; see `tree_util.tree_reduce_associative`.

    Args: operation, tree, identity, is_leaf: as for `tree_util.tree_reduce_associative`, with its
    errors.

    >>> ferrax.tree.reduce_associative(lambda x, y: x + y, [1, (2, 3)])
    6
    """
    return _opaque.tree_reduce_associative(operation, tree, identity=identity, is_leaf=is_leaf)


def static(**kwargs: Any) -> Any:
    """A dataclass field that `register_dataclass` makes part of the structure.

    Args:
      kwargs: passed to `dataclasses.field`; entries of `metadata` are kept.

    >>> import dataclasses
    >>> @ferrax.tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Named:
    ...     values: ferrax.Array
    ...     name: str = ferrax.tree.static(default="x")
    >>> ferrax.tree.leaves(Named(1.0, "y"))
    [1.0]
    """
    metadata = {**(kwargs.pop("metadata", None) or {}), "static": True}
    return dataclasses.field(metadata=metadata, **kwargs)


@bounded
def structure(tree: Any, is_leaf: None | Callable[[Any], bool] = None) -> _tree_util.PyTreeDef:
    """The structure of a tree; see `tree_util.tree_structure`.

    Args: tree, is_leaf: as for `tree_util.tree_structure`.

    >>> ferrax.tree.structure({"a": [1, 2]})
    PyTreeDef({'a': [*, *]})
    """
    try:
        return _opaque.tree_structure(tree, is_leaf)
    except Exception:
        leave()
        raise


def transpose(
    outer_treedef: _tree_util.PyTreeDef,
    inner_treedef: _tree_util.PyTreeDef | None,
    pytree_to_transpose: Any,
) -> Any:
    """Exchanges an outer and an inner structure; see `tree_util.tree_transpose`.

    Args: outer_treedef, inner_treedef, pytree_to_transpose: as for `tree_util.tree_transpose`, with
    its errors.

    >>> ferrax.tree.transpose(ferrax.tree.structure([0, 0]), None, [(1, 2), (3, 4)])
    ([1, 3], [2, 4])
    """
    return _tree_util.tree_transpose(outer_treedef, inner_treedef, pytree_to_transpose)


@bounded
def unflatten(treedef: _tree_util.PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The tree with a structure and leaves; see `tree_util.tree_unflatten`.

    Args: treedef, leaves: as for `tree_util.tree_unflatten`, with its errors.

    >>> ferrax.tree.unflatten(ferrax.tree.structure((0, [0])), [1, 2])
    (1, [2])
    """
    try:
        return _tree_util.tree_unflatten(treedef, leaves)
    except Exception:
        leave()
        raise
