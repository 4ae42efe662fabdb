"""The class of views of mutable arrays. What a view's transforms do is the business of
`numpy.ref_views`."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ferrax._src import core
from ferrax._src.state.ref import AbstractRef, OfType, Ref
from ferrax._src.tree import tree_util

__all__ = ["TransformedRef"]


class TransformedRef(OfType):
    """A view of a mutable array: some of its elements, in another shape or as another dtype.

    It is made by `ref.at[index]`, `ref.reshape`, `ref.bitcast`, `ref.transpose` and by the same of
    a view. `view[index]` reads what the ref holds there now, `view[index] = value` writes to the
    ref. A view is no array: `view[...]` is what it sees.

    Attributes: `ref`, `transforms`, `shape`, `dtype`, `ndim`, `size`, `T`, `at`.

    Example:
        >>> ref = ferrax.new_ref(jnp.zeros((2, 3)))
        >>> row = ref.at[1]
        >>> row[:2] = jnp.ones(2)
        >>> ref
        Ref([[0., 0., 0.],
               [1., 1., 0.]], dtype=float32)
    """

    __slots__ = ("__weakref__", "_type", "ref", "transforms")

    if TYPE_CHECKING:
        # From `numpy.ref_ops`.
        def __getitem__(self, idx: Any, /) -> core.Array: ...
        def __setitem__(self, idx: Any, value: Any, /) -> None: ...
        def get(self, idx: Any = ()) -> core.Array: ...
        def set(self, value: Any, idx: Any = ()) -> None: ...
        def swap(self, value: Any, idx: Any = ()) -> core.Array: ...
        def addupdate(self, value: Any, idx: Any = ()) -> None: ...
        def reshape(self, *shape: Any) -> TransformedRef: ...
        def bitcast(self, dtype: Any) -> TransformedRef: ...
        def transpose(self, *axes: Any) -> TransformedRef: ...
        at: Any
        T: TransformedRef

    def __init__(self, ref: Ref, transforms: tuple, type_: tuple) -> None:
        self.ref = ref
        self.transforms = transforms
        self._type = type_

    @property
    def weak_type(self) -> bool:
        """Whether the dtype is weak."""
        return self.ref.weak_type and self.dtype == self.ref.dtype

    @property
    def aval(self) -> AbstractRef:
        """The type: an `AbstractRef`."""
        return AbstractRef(core.ShapedArray(self.shape, self.dtype, self.weak_type))

    def __repr__(self) -> str:
        return f"TransformedRef({self.dtype}{list(self.shape)} of {self.ref.aval})"

    def rebased(self, ref: Ref) -> TransformedRef:
        """The same view of another ref of the same type."""
        return TransformedRef(ref, self.transforms, self._type)


core.register_type(TransformedRef, lambda view: view.aval)


class _Node:
    """A view as a node of a tree, whose leaves are the ref and the arrays among its transforms. From these the tree
    makes the view again."""

    __slots__ = ("leaves", "static")

    def __init__(self, view: TransformedRef):
        parts, tree = tree_util.tree_flatten(view.transforms)
        arrays = [isinstance(part, (core.Array, np.ndarray)) for part in parts]
        self.leaves = [view.ref, *itertools.compress(parts, arrays)]
        known = tuple(None if flag else (part,) for part, flag in zip(parts, arrays))
        self.static = tree, known, view._type


def _view(static, leaves):
    tree, known, type_ = static
    ref, *arrays = leaves
    rest = iter(arrays)
    return TransformedRef(ref, tree.unflatten([next(rest) if part is None else part[0] for part in known]), type_)


tree_util.register_pytree_node(_Node, lambda node: (node.leaves, node.static), _view)


def opened(tree: Any) -> Any:
    """The tree, where views are leaves, with nodes in their places that have refs as leaves."""
    for leaf in tree_util.tree_leaves(tree):
        if type(leaf) is TransformedRef:
            return tree_util.tree_map(lambda x: _Node(x) if type(x) is TransformedRef else x, tree)
    return tree
