"""Tangents of integers as inputs and outputs of traced functions.

They have no values, only shapes: programs know nothing of them. In the tree of a function's
arguments and outputs they are nodes without leaves, from which `tree_unflatten` makes NumPy arrays
of dtype float0.
"""

from __future__ import annotations

import numpy as np

from ferrax._src import dtypes, tree_util


def is_float0(leaf) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype == dtypes.float0


class _Shape:
    """Stands for an array of dtype float0."""

    __slots__ = ("shape",)

    def __init__(self, shape):
        self.shape = shape

    def __repr__(self):
        return f"float0[{','.join(map(str, self.shape))}]"


tree_util.register_pytree_node(
    _Shape, lambda node: ((), node.shape), lambda shape, _: np.zeros(shape, dtypes.float0)
)


def hide(tree):
    """The tree with nodes without leaves for its arrays of dtype float0."""
    return tree_util.tree_map(lambda leaf: _Shape(leaf.shape) if is_float0(leaf) else leaf, tree)


def flatten(tree):
    """As `tree_flatten`, where arrays of dtype float0 are no leaves."""
    leaves, treedef = tree_util.tree_flatten(tree)
    if any(map(is_float0, leaves)):
        leaves, treedef = tree_util.tree_flatten(hide(tree))
    return leaves, treedef


def changed(leaves, treedef, axes, change):
    """The structure whose arrays of dtype float0 have the shapes that `change` makes of theirs and
    of their entries in `axes`, and the entries of the other leaves."""
    nodes = [
        _Shape(change(leaf.shape, axis)) if is_float0(leaf) else leaf
        for leaf, axis in zip(leaves, axes)
    ]
    others = [axis for leaf, axis in zip(leaves, axes) if not is_float0(leaf)]
    return tree_util.tree_structure(treedef.unflatten(nodes)), others


def stacked(treedef, size):
    """The structure whose arrays of dtype float0 have a first axis of this size more."""
    leaves, whole = tree_util.tree_flatten(treedef.unflatten(range(treedef.num_leaves)))
    if len(leaves) == treedef.num_leaves:
        return treedef
    return changed(leaves, whole, leaves, lambda shape, _: (size, *shape))[0]


def shown(treedef, types):
    """The structure where arrays of dtype float0 are leaves, and the types of its leaves."""
    leaves, whole = tree_util.tree_flatten(treedef.unflatten(range(treedef.num_leaves)))
    return whole, [(x.shape, x.dtype, False) if is_float0(x) else types[x] for x in leaves]
