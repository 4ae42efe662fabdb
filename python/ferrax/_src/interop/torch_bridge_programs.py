"""Functions of arrays as PyTorch calls them: with a fixed number of arrays, in all the forms that autograd asks for.

In: a function `(rest, *arrays) -> tree`, where `rest` is a tree of values without derivatives. Out: the same function
compiled, its value with residuals and what these and cotangents give, and, as functions of the same kind, its
gradient, its tangent and itself over a batch, from which all higher ones follow. Each form is made once, and compiled
for each new signature.

Cotangents of complex values are torch's: the conjugates of those of `ferrax.vjp`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.lax import api as lax
from ferrax._src.tracing.staging import eval_shape
from ferrax._src.transforms.autodiff import jvp, vjp
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util

Positions = tuple[int, ...]


def inexact(leaves: Sequence[Any]) -> list[Any]:
    """Those that have derivatives."""
    return [leaf for leaf in leaves if dtypes.has_tangent(leaf.dtype)]


def _conjugates(arrays):
    return [lax.conj(x) if dtypes.issubdtype(x.dtype, np.complexfloating) else x for x in arrays]


class Program:
    """A function `(rest, *arrays) -> tree` and what is made of it."""

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        """`count`: the number of its arrays."""
        self.function = function
        self.count = count
        self.run = jit(function)
        self._made: dict[Any, Any] = {}

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        found = self._made.get(key)
        return self._made.setdefault(key, make()) if found is None else found

    def types(self, rest: Any, arrays: Sequence[core.ShapeDtypeStruct]) -> Any:
        """The tree of the types of its results."""
        return eval_shape(self.function, rest, *arrays)

    def forward(self, chosen: Positions) -> Callable[..., Any]:
        """From `(rest, *arrays)` to its result and the residuals for derivatives in the arrays at `chosen`, which are
        a tree for `pull_back`."""

        def value_and_residuals(rest, *arrays):
            function, picked = self._of(chosen, rest, arrays)
            _, pull, out = vjp(function, *picked, has_aux=True)
            return out, pull

        return self._once(("forward", chosen), lambda: jit(value_and_residuals))

    def gradient(self, chosen: Positions, cotangents: int) -> Program:
        """From its arrays and so many cotangents, those of its inexact results, to those of the arrays at `chosen`."""

        def gradients(rest, *given):
            function, picked = self._of(chosen, rest, given[: self.count])
            _, pull, _ = vjp(function, *picked, has_aux=True)
            return _pulled(pull, given[self.count :])

        return self._once(("gradient", chosen), lambda: Program(gradients, self.count + cotangents))

    def tangent(self, chosen: Positions) -> Program:
        """From its arrays and tangents of those at `chosen` to tangents of its inexact results."""

        def tangents(rest, *given):
            function, picked = self._of(chosen, rest, given[: self.count])
            _, found, _ = jvp(function, picked, list(given[self.count :]), has_aux=True)
            return found

        return self._once(("tangent", chosen), lambda: Program(tangents, self.count + len(chosen)))

    def batched(self, axes: tuple[int | None, ...]) -> Program:
        """Itself over a batch, which its arrays have along these axes and results along the first."""
        return self._once(
            ("batched", axes), lambda: Program(vmap(self.function, (None, *axes)), len(axes))
        )

    def _of(self, chosen, rest, arrays):
        """A function of the arrays at `chosen` to the inexact results and, passed on beside them, the whole; and these
        arrays."""

        def function(*picked):
            own = list(arrays)
            for position, array in zip(chosen, picked):
                own[position] = array
            out = self.function(rest, *own)
            return inexact([core.as_array(leaf) for leaf in tree_util.tree_leaves(out)]), out

        return function, [arrays[position] for position in chosen]


def _pulled(pull, cotangents):
    return _conjugates(pull(_conjugates(cotangents)))


# From residuals and cotangents of the inexact results to those of the chosen arrays.
pull_back = jit(_pulled)
