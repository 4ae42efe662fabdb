"""Gradients that are added to mutable arrays: `vjp(...)[1].with_refs`."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.state import Ref
from ferrax._src.tree import tree_util

__all__ = ["VJP", "DidntWant", "DontWant", "GradRef", "GradValue", "ad"]


@dataclasses.dataclass(frozen=True, slots=True)
class GradValue:
    """Asks for the cotangent of an argument as a value."""


@dataclasses.dataclass(frozen=True, slots=True)
class DontWant:
    """Asks for no cotangent of an argument."""


@tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class GradRef:
    """Stands for a cotangent that was added to a ref."""


@tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class DidntWant:
    """Stands for a cotangent that nobody wanted."""


ad = types.SimpleNamespace(
    DidntWant=DidntWant, DontWant=DontWant, GradRef=GradRef, GradValue=GradValue
)


class VJP(tree_util.Partial):
    """The function from output to input cotangents that `vjp` returns: a pytree of its residuals."""

    func: Any

    def with_refs(self, *wanted):
        """The same function, where `wanted` says for each leaf of the arguments what becomes of its
        cotangent: it is added to a `Ref`, returned (`GradValue()`) or left out (`DontWant()`).

        In the result `GradRef()` and `DidntWant()` are in the places of what is not returned.

        Errors: ValueError where `wanted` has not the structure of the arguments.

        Example:
            >>> total = ferrax.new_ref(0.0)
            >>> _, f_vjp = ferrax.vjp(jnp.square, 3.0)
            >>> f_vjp.with_refs(total)(1.0)
            (GradRef(),)
            >>> total
            Ref(6., dtype=float32, weak_type=True)
        """
        leaves, tree = tree_util.tree_flatten(wanted)
        if tree != self.func.tree:
            raise ValueError(
                f"with_refs takes a Ref, GradValue() or DontWant() for each leaf of the arguments, "
                f"which have the structure {self.func.tree}, but got {tree}"
            )

        def accumulate(cotangent):
            cotangents = tree_util.tree_leaves(self(cotangent))
            return tree.unflatten(map(_deliver, leaves, cotangents))

        return accumulate


def _deliver(wanted, cotangent):
    if isinstance(wanted, DontWant):
        return DidntWant()
    if not isinstance(wanted, Ref):
        return cotangent
    if not (isinstance(cotangent, np.ndarray) and cotangent.dtype == dtypes.float0):
        wanted.addupdate(cotangent)
    return GradRef()


def _rebuilt(func, children):
    arguments, keywords = children
    return VJP(func, *arguments, **keywords)


tree_util.register_pytree_node(
    VJP,
    lambda vjp: ((vjp.args, vjp.keywords), vjp.func),
    _rebuilt,
)
