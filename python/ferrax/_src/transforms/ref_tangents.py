"""Mutable arrays as arguments of `jvp` and `linearize`: the tangent of a reference is a reference.

In go a function and primals with references, and tangents with a reference for each; those that the function writes to
hold afterwards what it gave them, and their tangents what it gave these. Cost: that of a function of what they hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import api_util
from ferrax._src.state import Ref, arguments as ref_args, held, read, type_text, write
from ferrax._src.tree import tree_util


def refs_among(tree: Any) -> bool:
    return any(type(x) is Ref for x in tree_util.tree_leaves(tree))


class _OfValues:
    """A function of what its references hold: `pure` gives the last values of those it writes to beside the result.

    Errors: ValueError for a reference that is passed twice, or passed and used otherwise.
    """

    def __init__(self, name, fun, primals, has_aux):
        self.name, self.fun, self.has_aux = name, fun, has_aux
        leaves, self.tree = tree_util.tree_flatten(primals)
        self.refs = ref_args.of_leaves(leaves)
        names = api_util.argument_names(fun, primals, {})
        self.names = names
        ref_args.check_distinct(self.refs, fun, name, lambda: names)
        self.values = self.tree.unflatten(ref_args.values(leaves, self.refs))
        # Numbers of the references that were written to; known once the function has run.
        self.written: list[int] = []

    def pure(self, *args):
        leaves = ref_args.own(self.tree.flatten_up_to(args), self.refs, self.fun, self.name, self.names)
        starts = {number: held(leaves[number]) for number in self.refs}
        result = self.fun(*self.tree.unflatten(leaves))
        out, aux = result if self.has_aux else (result, None)
        ref_args.check_returned(self.fun, self.name, tree_util.tree_leaves(result), result)
        self.written[:] = [number for number, start in starts.items() if held(leaves[number]) is not start]
        return (out, [read(leaves[number]) for number in self.written]), aux

    def write(self, leaves, values) -> None:
        for number, value in zip(self.written, values):
            if value.dtype != dtypes.float0:
                write(leaves[number], value)

    def tangents(self, tangents):
        """`(leaves, tangents)` with what the references among tangents hold; those of integers are not looked at.

        Errors: TypeError where trees differ; ValueError where the tangent of a reference is none of its type, and for a
        reference that is there twice."""
        leaves, tree = tree_util.tree_flatten(tangents)
        if tree != self.tree:
            raise TypeError(f"{self.name}: primals have the structure {self.tree}, tangents {tree}")
        for number, ref in self.refs.items():
            moved = leaves[number]
            fits = type(moved) is Ref and (moved.shape, moved.dtype) == (ref.shape, ref.dtype)
            if not fits and dtypes.has_tangent(ref.dtype):
                raise ValueError(
                    f"{self.name}: the tangent of the argument {self.names[number]}, a mutable array of type "
                    f"{type_text(ref)}, is one of this type, got {moved!r}. Or differentiate by its "
                    "value, ref[...]"
                )
        given = {number: leaves[number] for number, ref in self.refs.items() if dtypes.has_tangent(ref.dtype)}
        twice = {**given, **{len(leaves) + number: ref for number, ref in self.refs.items()}}
        names = [f"the tangent of {name}" for name in self.names] + list(self.names)
        ref_args.check_distinct(twice, self.fun, self.name, lambda: names)
        values = ref_args.values(leaves, given)
        for number in self.refs.keys() - given.keys():
            values[number] = np.zeros(self.refs[number].shape, dtypes.float0)
        return leaves, tree.unflatten(values)


def jvp(jvp_of: Any, fun: Any, primals: Any, tangents: Any, has_aux: bool) -> tuple[Any, ...]:
    """`jvp_of(fun, primals, tangents)`."""
    call = _OfValues("jvp", fun, primals, has_aux)
    moving, given = call.tangents(tangents)
    (out, after), (tangent, moved), aux = jvp_of(call.pure, call.values, given, has_aux=True)
    call.write(tree_util.tree_leaves(primals), after)
    call.write(moving, moved)
    return (out, tangent, aux) if has_aux else (out, tangent)


def linearize(linearize_of: Any, fun: Any, primals: Any, has_aux: bool) -> tuple[Any, ...]:
    """`linearize_of(fun, *primals)`."""
    call = _OfValues("linearize", fun, primals, has_aux)
    (out, after), derivative, aux = linearize_of(call.pure, *call.values, has_aux=True)
    call.write(tree_util.tree_leaves(primals), after)
    f_jvp = tree_util.Partial(_Push(call), derivative)
    return (out, f_jvp, aux) if has_aux else (out, f_jvp)


class _Push:
    """The derivative as a function of tangents."""

    def __init__(self, call):
        self.call = call

    def __call__(self, derivative, *tangents):
        moving, given = self.call.tangents(tangents)
        tangent, moved = derivative(*given)
        self.call.write(moving, moved)
        return tangent
