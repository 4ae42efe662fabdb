"""Gradients that are added to mutable arrays: `vjp(...)[1].with_refs`."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.base.traceback_util import boundary
from ferrax._src.core import as_array
from ferrax._src.core.jaxpr import ClosedJaxpr, Jaxpr
from ferrax._src.state import Ref
from ferrax._src.tree import tree_util

__all__ = ["VJP", "DidntWant", "DontWant", "GradRef", "GradValue", "NotNeeded", "ad"]


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


@tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class NotNeeded:
    """Stands in `VJP.args_res` for an argument that the derivative does not use."""


class VJP:
    """The function from output to input cotangents that `vjp` returns: a pytree of its residuals.

    Attributes:
        args_res: a list with one entry for each argument: its value as far as the derivative needs it,
            else `NotNeeded()`. Entries can be set: to None between the passes, so that nothing
            keeps the value alive, and to the value (or one like it) before the function is called.
        opaque_residuals: the residuals that were computed.
        jaxpr: the linear program of tangents, which the backward pass is the transpose of; its first inputs are
            the residuals.

    Example:
        >>> _, f_vjp = ferrax.vjp(jnp.multiply, 2.0, 3.0)
        >>> f_vjp.args_res = [None, None]
        >>> f_vjp.args_res = [2.0, 4.0]
        >>> f_vjp(1.0)
        (Array(4., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """

    __slots__ = ("__weakref__", "_args_res", "_residuals", "func")

    def __init__(self, func: Any, residuals: list[Any], args_res: list[Any] | None = None) -> None:
        self.func = func
        self._residuals = residuals
        self._args_res = args_res  # once somebody asked; the residuals have None in their places

    def __repr__(self) -> str:
        return f"VJP({self.func.tree})"

    @boundary
    def __call__(self, *cotangent: Any) -> tuple[Any, ...]:
        return self.func(self._together(), *cotangent)

    @property
    def args_res(self) -> list[Any]:
        if self._args_res is None:
            leaves: list[Any] = [NotNeeded()] * len(self.func.point.in_types)
            for place, number in enumerate(self.func.arguments):
                if number is not None:
                    leaves[number] = self._residuals[place]
            self._residuals = self._opaque(self._residuals)
            self._args_res = list(self.func.tree.unflatten(leaves))
        return self._args_res

    @args_res.setter
    def args_res(self, values: Any) -> None:
        self._residuals = self._opaque(self._residuals)
        self._args_res = list(values)

    @property
    def jaxpr(self) -> Jaxpr:
        return ClosedJaxpr(self.func.point.linear).open

    @property
    def out_nzs(self) -> Any:
        """A tree like the output of bools: whether its parts depend on what is differentiated in."""
        flat = self.func.point.flat
        return flat.out_tree.unflatten([bool(flag) for flag in self.func.point.flags[: flat.num_out]])

    @property
    def opaque_residuals(self) -> list[Any]:
        return [x for x, number in zip(self._residuals, self.func.arguments) if number is None]

    def _opaque(self, residuals: list[Any]) -> list[Any]:
        return [x if number is None else None for x, number in zip(residuals, self.func.arguments)]

    def _together(self):
        """The residuals, those that are arguments from where they may have been set."""
        if self._args_res is None:
            return self._residuals
        leaves = self.func.tree.flatten_up_to(tuple(self._args_res))
        found = []
        for residual, number in zip(self._residuals, self.func.arguments):
            if number is None:
                found.append(residual)
                continue
            shape, dtype, *_ = self.func.point.in_types[number]
            value = leaves[number]
            if value is None or isinstance(value, NotNeeded):
                raise ValueError(
                    f"args_res has no value for leaf {number} of the arguments, which the derivative "
                    f"needs: set an array of shape {shape} and dtype {dtype} before the call"
                )
            value = as_array(value, "args_res")
            if value.shape != shape or value.dtype != dtype:
                raise ValueError(
                    f"args_res for leaf {number} of the arguments must have shape {shape} and dtype "
                    f"{dtype}, got {value.shape} and {value.dtype}"
                )
            found.append(value)
        return found

    @boundary
    def with_logs(self, *cotangent: Any) -> tuple[tuple[Any, ...], dict[Any, Any]]:
        """`(cotangents, logs)`: what the function gives, and what reverse rules log that were defined by
        `defvjp_with_logs` or `defvjp_with_accums`, by its names.

        Args: cotangent: one, of the output.

        Errors: ValueError for a name that is logged twice; NotImplementedError for rules that log in loops, in
        branches and in functions that `vmap` maps: map the function that asks for the logs.

        >>> @ferrax.custom_vjp
        ... def sine(x):
        ...     return jnp.sin(x)
        >>> sine.defvjp_with_logs(lambda x: (jnp.sin(x), x), lambda x, g: ((g * jnp.cos(x),), {"cotangent": g}))
        >>> ferrax.vjp(sine, 0.0)[1].with_logs(2.0)[1]["cotangent"]
        Array(2., dtype=float32, weak_type=True)
        """
        logs: dict[Any, Any] = {}
        return self.func(self._together(), *cotangent, logs=logs), logs

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

        chosen = [not isinstance(leaf, DontWant) for leaf in leaves]

        def accumulate(cotangent):
            found = self.func(self._together(), cotangent, chosen=chosen)
            cotangents = tree.flatten_up_to(found)
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


tree_util.register_pytree_node(
    VJP,
    lambda vjp: ((vjp._residuals, vjp._args_res), vjp.func),
    lambda func, children: VJP(func, *children),
)
