"""Mutable arrays in functions with derivative rules of their own.

A call that uses refs becomes a call of a function of arrays alone, whose rules make refs of their
own: it takes what the refs hold and gives what they hold afterwards. For reverse rules it hands on
a value more for each ref, of which `refs.reverse` tells: its cotangent is what the ref holds in the
backward pass.

Gradients go through the refs themselves by reverse rules alone: what a rule returns for a ref is the
cotangent of what that held when the call began.
"""

from __future__ import annotations

import numpy as np

from ferrax import _core
from ferrax._src import core, state
from ferrax._src.base import dtypes
from ferrax._src.core import api_util
from ferrax._src.lax.elementwise import stop_gradient
from ferrax._src.state import (
    Ref,
    arguments as ref_args,
    at_user_line,
    home_ref,
    new_ref,
    replaced,
    reverse,
    type_text,
)
from ferrax._src.tree import tree_util


class Slot:
    """Where one of the call's refs is in a tree of residuals: a node without leaves."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


tree_util.register_pytree_node(Slot, lambda slot: ((), slot.number), lambda number, _: Slot(number))


class RefCall:
    """A call whose arguments have refs, or whose functions close over `closed`."""

    def __init__(self, custom, args, closed, kind):
        self.custom = custom
        self.place = f"the {kind} function {api_util.fun_place(custom.fun)}"
        self.nondiff = positions(custom, args)
        self.kept, self.dynamic = api_util.split_arguments(args, self.nondiff)
        self.leaves, self.tree = tree_util.tree_flatten(self.dynamic)
        passed = ref_args.of_leaves(self.leaves)
        names = lambda: api_util.argument_names(custom.fun, args, {})  # noqa: E731
        ref_args.check_distinct(passed, custom.fun, kind, names)
        # The numbers of the refs among the leaves.
        self.numbers = {leaf: number for number, leaf in enumerate(passed)}
        homes = {home_ref(ref) for ref in passed.values()}
        self.closed = [
            ref for ref in closed if state.ordered_ref(ref) is None and home_ref(ref) not in homes
        ]
        self.refs = [*passed.values(), *self.closed]
        self.reversible = [ref for ref in self.refs if dtypes.issubdtype(ref.dtype, np.inexact)]
        self.written = [False] * len(self.refs)
        self.done = False

    def arrays(self):
        """The leaves of the arguments that are no refs."""
        return [leaf for number, leaf in enumerate(self.leaves) if number not in self.numbers]

    def fill(self, arrays, refs) -> tuple:
        """The arguments that are not kept, with these leaves."""
        arrays = iter(arrays)
        return self.tree.unflatten(
            [
                refs[self.numbers[number]] if number in self.numbers else next(arrays)
                for number in range(len(self.leaves))
            ]
        )

    def arguments(self, dynamic) -> tuple:
        """All arguments."""
        return api_util.join_arguments(self.nondiff, self.kept, dynamic)

    def run(self, fun, arrays, values):
        """`fun` of the arguments that are not kept, where refs hold these values: its result and
        the refs."""
        refs = [new_ref(value) for value in values]
        starts = [state.held(ref) for ref in refs]
        result = self.replacing(refs, fun, self.fill(arrays, refs))
        for number, (ref, start) in enumerate(zip(refs, starts)):
            if state.held(ref) is not start:
                if self.done and not self.written[number]:
                    raise ValueError(
                        f"the rule of {self.place} writes to a mutable array of type "
                        f"{type_text(ref)} that the function itself does not write to. Write to it "
                        f"in both.{at_user_line()}"
                    )
                self.written[number] = True
        return result, refs

    def replacing(self, refs, fun, *args):
        """`fun(*args)`, in which the call's own refs stand for those that are closed over."""
        with replaced(self.closed, refs[len(self.refs) - len(self.closed) :]):
            return fun(*args)

    def found(self, refs):
        """The refs of these that the call did not know of yet."""
        new = [ref for ref in refs if state.ordered_ref(ref) is None and ref not in self.refs]
        if not new:
            raise ValueError(
                f"{self.place} uses a mutable array of type {type_text(refs[0])} both as an "
                f"argument and closed over. Use the argument alone.{at_user_line()}"
            )
        return new

    def primal(self, arrays, values, tokens):
        """The function as one of arrays."""
        fun = self.custom.fun
        out, refs = self.run(lambda dynamic: fun(*self.arguments(dynamic)), arrays, values)
        return out, [state.read(ref) for ref in refs], tokens

    def call(self, pure, ordered):
        """Calls `pure`, a function of arrays, of what the refs hold and of what orders reverse
        rules, and writes what it gives. `ordered`: whether there are such rules."""
        values = [state.read(ref) for ref in self.refs]
        values = values if ordered else [_constant(value) for value in values]
        tokens = [reverse(ref) for ref in self.reversible] if ordered else []
        given = [state.read(token) for token in tokens]
        out, values, given = pure(self.arrays(), values, given)
        self.done = True
        for ref, value, flag in zip(self.refs, values, self.written):
            if flag:
                state.write(ref, state.conform(ref, _constant(value)))
        for token, value in zip(tokens, given):
            state.write(token, value)
        return out

    def recorded(self) -> bool:
        """Whether something records operations on the arguments."""
        arrays = [leaf for leaf in self.arrays() if isinstance(leaf, core.Array)]
        held = [state.read(ref) for ref in self.refs]
        return _core.recording_frame([*arrays, *held]) is not None

    def backward_refs(self, values, tokens):
        """The refs of a reverse rule: they hold what the backward pass has come to, else what the
        forward rule left."""
        there = dict(zip(self.reversible, tokens))
        refs = []
        for ref, value in zip(self.refs, values):
            token = there.get(ref)
            refs.append(new_ref(value if token is None else state.conform(ref, token)))
        return refs

    def backward_values(self, refs, starts):
        """What the refs of a reverse rule hold in the end, for those that order such rules."""
        for own, ref, start in zip(self.refs, refs, starts):
            if own not in self.reversible and state.held(ref) is not start:
                raise ValueError(
                    f"the reverse rule of {self.place} writes to a mutable array of type "
                    f"{type_text(own)}. Reverse rules write to floating ones alone: convert it."
                    f"{at_user_line()}"
                )
        return [state.read(ref) for own, ref in zip(self.refs, refs) if own in self.reversible]


def take_refs(tree, refs):
    """A tree of residuals with slots in the places of refs."""
    numbers = {ref: number for number, ref in enumerate(refs)}
    return tree_util.tree_map(
        lambda leaf: Slot(numbers[leaf]) if type(leaf) is Ref and leaf in numbers else leaf, tree
    )


def put_refs(tree, refs):
    """A tree of residuals with refs in the places of slots."""
    return tree_util.tree_map(
        lambda leaf: refs[leaf.number] if type(leaf) is Slot else leaf,
        tree,
        is_leaf=lambda leaf: type(leaf) is Slot,
    )


def positions(custom, args) -> list[int]:
    """Where the arguments are that are not differentiated in."""
    return sorted(position % len(args) for position in custom.nondiff_argnums) if args else []


def with_refs(custom, args) -> bool:
    """Whether there are refs among the arguments that are differentiated in."""
    _, dynamic = api_util.split_arguments(args, positions(custom, args))
    return any(type(leaf) is Ref for leaf in tree_util.tree_leaves(dynamic))



def _constant(value):
    return stop_gradient(value) if dtypes.issubdtype(value.dtype, np.inexact) else value
