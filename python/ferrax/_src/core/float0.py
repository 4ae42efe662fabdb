"""Tangents of integers as arguments and outputs of traced functions.

They have no values, only shapes: programs know nothing of them. In the trees of a function's
arguments and outputs they are nodes without leaves, from which `tree_unflatten` makes NumPy arrays
of dtype float0.
"""

from __future__ import annotations

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.tree import tree_util


def is_float0(leaf) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype == dtypes.float0


class Hidden:
    """Stands for an array of dtype float0."""

    __slots__ = ("shape",)

    def __init__(self, shape):
        self.shape = shape

    def __repr__(self):
        return f"float0[{','.join(map(str, self.shape))}]"


tree_util.register_pytree_node(
    Hidden, lambda node: ((), node.shape), lambda shape, _: np.zeros(shape, dtypes.float0)
)


def _any(leaves) -> bool:
    for leaf in leaves:  # noqa: SIM110  a generator expression would cost three times this loop
        if isinstance(leaf, np.ndarray) and leaf.dtype == dtypes.float0:  # `is_float0` without the call
            return True
    return False


def hide(tree):
    """The tree with nodes without leaves for its arrays of dtype float0."""
    if not _any(tree_util.tree_leaves(tree)):
        return tree
    return tree_util.tree_map(lambda leaf: Hidden(leaf.shape) if is_float0(leaf) else leaf, tree)


def hide_where(tree, point):
    """As `hide`, of those places alone where `point`, a tree of the same structure, has such arrays."""
    leaves, treedef = tree_util.tree_flatten(point)
    if not _any(leaves):
        return tree
    moved, moved_tree = tree_util.tree_flatten(tree)
    if moved_tree != treedef:
        return tree
    pairs = zip(leaves, moved)
    return treedef.unflatten([Hidden(y.shape) if is_float0(x) and is_float0(y) else y for x, y in pairs])


def show(tree):
    """The reverse of `hide`."""
    leaves, treedef = tree_util.tree_flatten(tree)
    return treedef.unflatten(leaves)


def reshaped(tree, shape_of):
    """The tree with arrays of dtype float0 whose shapes are `shape_of` those it has."""
    if not _any(tree_util.tree_leaves(tree)):
        return tree
    return tree_util.tree_map(
        lambda leaf: np.zeros(shape_of(leaf.shape), dtypes.float0) if is_float0(leaf) else leaf, tree
    )


def flatten(tree):
    """As `tree_flatten`, where arrays of dtype float0 are no leaves."""
    leaves, treedef = tree_util.tree_flatten(tree)
    if _any(leaves):
        leaves, treedef = tree_util.tree_flatten(hide(tree))
    return leaves, treedef


def flatten_as(tree, expected):
    """The leaves of a tree of cotangents and its structure: `expected`, if it has an array of dtype float0,
    which is no leaf, for each that the values had."""
    leaves, treedef = tree_util.tree_flatten(tree)
    if treedef == expected:
        return leaves, treedef
    stand_ins, shown = tree_util.tree_flatten(expected.unflatten([...] * expected.num_leaves))
    if treedef != shown:
        return leaves, treedef
    return [leaf for leaf, value in zip(leaves, stand_ins) if value is ...], expected
