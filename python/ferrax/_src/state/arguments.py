"""Mutable arrays among the arguments of transformed functions.

Where a function is traced at each call and each ref stays whole (branches, checkpoints), the body
gets *views*: refs that stand for the outer ones. In trees of arguments a `Slot`, a node without
leaves, takes the ref's place meanwhile. Where the body sees another array than the ref holds
(elements in `scan` and `vmap`), or runs without being traced (`jit`), it gets refs of its own
frame, made by `place`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import api_util, placements
from ferrax._src.state.messages import at_user_line, passed_twice, returned, type_text
from ferrax._src.state.ref import (
    AbstractRef,
    Ref,
    argument,
    home_ref,
    innermost_scope,
    new_ref,
    read,
    view_of,
)
from ferrax._src.state.views import TransformedRef
from ferrax._src.tree import tree_util


def of_leaves(leaves) -> dict[int, Ref]:
    """The refs among leaves, by number."""
    return {number: leaf for number, leaf in enumerate(leaves) if type(leaf) is Ref}


def values(leaves, refs):
    """The leaves with what the refs hold in their places."""
    return [read(leaf) if number in refs else leaf for number, leaf in enumerate(leaves)]


def place(leaves, refs, names=None):
    """The leaves with refs of the innermost frame at these numbers, which are their keys."""
    names = names() if names is not None else None
    leaves = list(leaves)
    for number in refs:
        name = names[number] if names else None
        leaves[number] = argument(leaves[number], number, name, kind=refs[number]._kind)
    return leaves


def own(leaves, refs, fun, kind, names):
    """The leaves with new refs of the innermost frame at these numbers, which hold what the leaves are; the refs from
    outside are not used there meanwhile."""
    leaves = list(leaves)
    for number, ref in refs.items():
        innermost_scope().views[home_ref(ref)] = (fun, kind, names[number])
        leaves[number] = new_ref(leaves[number], kind=ref._kind)
    return leaves


def made(tree):
    """The tree with new refs in the places of types that stand for mutable arrays.

    Errors: NotImplementedError for one of keys.
    """

    def ref_of(leaf):
        if not _is_ref_type(leaf):
            return leaf
        if dtypes.issubdtype(leaf.dtype, dtypes.extended):
            raise NotImplementedError(f"{leaf!r}: a type of keys stands for no mutable array; pass a ref of keys")
        zeros = _core.array_from_numpy(np.zeros(leaf.shape, dtypes.canonicalize_dtype(leaf.dtype)), leaf.weak_type)
        where = None if type(leaf) is AbstractRef else leaf.sharding
        return new_ref(zeros if where is None else placements.placed(zeros, where))

    for leaf in tree_util.tree_leaves(tree):
        if _is_ref_type(leaf):
            return tree_util.tree_map(ref_of, tree)
    return tree


def _is_ref_type(leaf) -> bool:
    return type(leaf) is AbstractRef or (type(leaf) is core.ShapeDtypeStruct and leaf.is_ref)


def check_distinct(refs, fun, kind, names) -> None:
    """Errors: ValueError for a ref that is there twice. `names` gives the leaves' names."""
    seen: dict[Any, int] = {}
    for number, ref in refs.items():
        first = seen.setdefault(home_ref(_base(ref)), number)
        if first != number:
            names = names()
            raise ValueError(passed_twice(ref, fun, kind, names[first], names[number]))


def check_returned(fun, kind, leaves, result) -> None:
    """Errors: ValueError for a ref among the leaves of what a function returned."""
    for leaf in leaves:
        if type(leaf) is Ref:
            raise ValueError(returned(leaf, fun, kind, result))


def reject(leaves, what, advice) -> None:
    """Errors: ValueError for refs among arguments that must be arrays."""
    for leaf in leaves:
        if type(leaf) is Ref:
            raise ValueError(
                f"{what} got a mutable array reference of type {type_text(leaf)}. {advice}"
                f"{at_user_line()}"
            )


class Slot:
    """Where a ref, or a view of one, was in a tree of arguments: a node of the tree without leaves."""

    __slots__ = ("name", "passed", "ref")

    def __init__(self, passed, name):
        self.passed = passed
        self.ref = _base(passed)
        self.name = name

    def __eq__(self, other):
        return isinstance(other, Slot) and self.passed is other.passed

    def fill(self, ref):
        """What the function gets, where `ref` stands for the slot's."""
        passed = self.passed
        return passed.rebased(ref) if type(passed) is TransformedRef else ref

    def __hash__(self):
        return id(self.passed)


tree_util.register_pytree_node(Slot, lambda slot: ((), slot), lambda slot, _: slot)


def _base(leaf) -> Ref:
    return leaf.ref if type(leaf) is TransformedRef else leaf


def _is_slot(x) -> bool:
    return type(x) is Slot


class WithViews:
    """A function whose arguments have slots, which become views. `func` is the user's function."""

    __slots__ = ("func", "kind")

    def __init__(self, func, kind):
        self.func = func
        self.kind = kind

    def __call__(self, *args, **kwargs):
        def view(x):
            if type(x) is not Slot:
                return x
            innermost_scope().views[home_ref(x.ref)] = (self.func, self.kind, x.name)
            return x.fill(view_of(x.ref, x.name))

        args, kwargs = tree_util.tree_map(view, (args, kwargs), is_leaf=_is_slot)
        return self.func(*args, **kwargs)

    def leaf_names(self, trees):
        args = [tree_util.with_placeholders(tree) for tree in trees]
        return api_util.argument_names(self.func, args, None)


def slots(kind, funs, args, kwargs=None):
    """`(funs, args, kwargs)` where slots stand for refs, and functions that expect this.

    Errors: ValueError for a ref that is passed twice.
    """
    kwargs = kwargs or {}
    leaves, tree = tree_util.tree_flatten((tuple(args), kwargs))
    refs = {
        number: leaf for number, leaf in enumerate(leaves) if type(leaf) in (Ref, TransformedRef)
    }
    if not refs:
        return funs, args, kwargs
    names = api_util.argument_names(funs[0], args, kwargs)
    check_distinct(refs, funs[0], kind, lambda: names)
    for number, ref in refs.items():
        leaves[number] = Slot(ref, names[number])
    args, kwargs = tree.unflatten(leaves)
    return [WithViews(fun, kind) for fun in funs], args, kwargs
