"""`custom_jvp`: functions whose forward derivative the user gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrax import _core
from ferrax._src import core, state
from ferrax._src.base import dtypes
from ferrax._src.core import api_util, named_axes
from ferrax._src.lax.elementwise import stop_gradient
from ferrax._src.transforms import linearized, stepwise
from ferrax._src.transforms.custom_rules import (
    VALUE_UNKNOWN,
    CustomFunction,
    P,
    R,
    SymbolicZero,
    array_types,
    pair,
    show,
    symbolic_zero,
    tangent_type,
    zeros,
)
from ferrax._src.tree import tree_util

__all__ = ["custom_jvp"]


class custom_jvp(CustomFunction[P, R]):  # noqa: N801
    """A function with a forward derivative of its own, which serves `jvp` and `grad` alike.

    Args:
      fun: the function of arrays and pytrees of them.
      nondiff_argnums: positions of arguments that are no arrays (functions, options) or are not
        differentiated in; the rule gets them first.
      nondiff_argnames: the same by name.

    The rule given to `defjvp` takes `(primals, tangents)`, two tuples, and returns the outputs and
    their tangents, two trees of the same structure, shapes and dtypes. It has to be linear in the
    tangents. It is traced, and differentiated itself for higher orders.

    Errors: AttributeError if no rule was defined before the first call; TypeError where a rule
    returns anything but such a pair.

    Example:
        >>> @ferrax.custom_jvp
        ... def safe_sqrt(x):
        ...     return jnp.sqrt(x)
        >>> @safe_sqrt.defjvp
        ... def safe_sqrt_jvp(primals, tangents):
        ...     (x,), (t,) = primals, tangents
        ...     y = safe_sqrt(x)
        ...     return y, t * jnp.where(x > 0, 0.5 / jnp.where(x > 0, y, 1.0), 0.0)
        >>> ferrax.grad(safe_sqrt)(0.0)
        Array(0., dtype=float32, weak_type=True)
    """

    kind = "custom_jvp"
    # None until `defjvp` is called, which `_check_rules` asks for.
    jvp: Any = None

    def defjvp(self, jvp: Any, symbolic_zeros: Any = False) -> Callable[..., Any]:
        """Defines the rule, which is returned: usable as a decorator.

        With `symbolic_zeros=True` tangents that are zero are `SymbolicZero`s, which have `shape`
        and `dtype`, in place of arrays of zeros.
        """
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Any) -> None:
        """Defines the rule by one function for each argument: `rule(tangent, out, *primals)` is
        that argument's part of the output's tangent; None for arguments without one.

        Example:
            >>> f = ferrax.custom_jvp(lambda x, y: jnp.sin(x) * y)
            >>> f.defjvps(lambda t, ans, x, y: jnp.cos(x) * t * y, lambda t, ans, x, y: jnp.sin(x) * t)
        """
        if self.nondiff_argnums:
            raise TypeError("can't use defjvps with nondiff_argnums; use defjvp")

        def jvp(primals, tangents):
            if len(jvps) != len(tangents):
                raise ValueError(
                    f"defjvps got {len(jvps)} functions for {api_util.fun_place(self.fun)}, which "
                    f"was called with {len(tangents)} arguments: give one for each, or None"
                )
            function: Callable[..., Any] = self
            out = function(*primals)
            parts = [
                rule(tangent, out, *primals) for rule, tangent in zip(jvps, tangents) if rule
            ]
            leaves, tree = tree_util.tree_flatten(out)
            total = [zeros(core_ty) for core_ty in array_types(map(core.as_array, leaves))]
            for part in parts:
                total = [a + b for a, b in zip(total, tree.flatten_up_to(part))]
            return out, tree.unflatten(total)

        self.defjvp(jvp)

    def _check_rules(self):
        if self.jvp is None:
            raise AttributeError(
                f"No JVP defined for the custom_jvp function {api_util.fun_name(self.fun)}: give "
                "its rule with defjvp or defjvps before the call"
            )

    def _call(self, args):
        if self.nondiff_argnums:
            kept = {position % len(args) for position in self.nondiff_argnums if -len(args) <= position < len(args)}
            held = tree_util.tree_leaves([args[position] for position in sorted(kept)])
            if any(isinstance(leaf, core.Tracer) for leaf in held):
                return self._call_holding(args, kept)
        return super()._call(args)

    def _call_holding(self, args, kept):
        """A call whose arguments at `nondiff_argnums` hold traced values: these are arguments of the
        call without derivatives, for a rule may be asked for when their trace has ended."""
        leaves, tree = tree_util.tree_flatten([arg if i in kept else None for i, arg in enumerate(args)])
        held = [i for i, leaf in enumerate(leaves) if isinstance(leaf, core.Tracer)]
        values = [stop_gradient(leaves[i]) for i in held]
        # What lives as long as the rule holds no traced value.
        leaves = [None if i in held else leaf for i, leaf in enumerate(leaves)]

        def whole(values, dynamic):
            filled = list(leaves)
            for i, value in zip(held, values):
                filled[i] = value
            rest = iter(dynamic)
            return [arg if i in kept else next(rest) for i, arg in enumerate(tree.unflatten(filled))]

        def function(values, *dynamic):
            return self.fun(*whole(values, dynamic))

        def rule(primals, tangents):
            values, *dynamic = primals
            given = whole(values, dynamic)
            return self.jvp(*(given[i] for i in sorted(kept)), tuple(dynamic), tuple(tangents[1:]))

        function.__name__ = api_util.fun_name(self.fun)
        rule.__name__ = api_util.fun_name(self.jvp)
        pure = custom_jvp(function)
        pure.defjvp(rule, self.symbolic_zeros)
        return pure._call((values, *(arg for i, arg in enumerate(args) if i not in kept)))

    def _record(self, call, kind):
        call.kept = tuple(_without_tangents(arg) for arg in call.kept)
        call.trace(kind)
        rule = _JvpRule(self, call)
        return _core.custom_jvp_call(
            call.call_program(),
            named_axes.kept(rule),
            call.name,
            len(call.constants),
            self.symbolic_zeros,
            [*call.constants, *call.arrays],
        )

    def _record_with_refs(self, call):
        def primal(arrays, values):
            return call.primal(arrays, values, [])[:2]

        def rule(primals, tangents):
            arrays, values = primals
            moving = call.fill(tangents[0], [zeros(state.array_type(ref)) for ref in call.refs])
            result, refs = call.run(
                lambda dynamic: self.jvp(*call.kept, dynamic, moving), arrays, values
            )
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                return result
            held = [state.read(ref) for ref in refs]
            return (result[0], held), (result[1], [zeros(state.array_type(ref)) for ref in call.refs])

        primal.__name__ = api_util.fun_name(self.fun)
        rule.__name__ = api_util.fun_name(self.jvp)
        pure = custom_jvp(primal)
        pure.defjvp(rule, self.symbolic_zeros)
        return call.call(lambda arrays, values, _: (*pure._call((arrays, values)), ()), False)


def _without_tangents(tree):
    return tree_util.tree_map(
        lambda leaf: stop_gradient(leaf) if isinstance(leaf, core.Tracer) else leaf, tree
    )


class _JvpRule:
    """Gives the rule's program for each set of tangents that are there."""

    def __init__(self, custom, call):
        self.custom = custom
        self.jvp = custom.jvp
        self.call = call
        self.done = {}
        # Whether it asks for the values of tangents.
        self.by_value = False
        # What the rule raised where it was traced ahead.
        self.failed = None
        if call.differentiated:
            self.failed = call.trace_ahead(self.trace_now)
        else:
            call.set_constants(call.captured)

    def trace_now(self):
        call = self.call
        key = self.key(call.perturbed)
        try:
            program, captured, flags = self.trace(key, call.arrays)
        except VALUE_UNKNOWN:
            # Under a `jvp` the tangents are known later.
            if not linearized.orders.forward:
                raise
            self.by_value = True
            linearized.orders.by_value += 1
            call.set_constants(call.captured)
            return
        call.set_constants(call.captured, captured)
        self.done[key] = call.with_constants(program, sum(key), captured), flags

    def key(self, nonzero):
        """Which tangents the rule gets. Without symbolic zeros it does not know which are zero."""
        return tuple(nonzero) if self.custom.symbolic_zeros else tuple(self.call.tangents)

    def __call__(self, nonzero):
        if self.failed is not None:
            raise self.failed
        if self.by_value and stepwise.steps.asking:
            raise stepwise.AskedRule(self)
        key = tuple(nonzero[len(self.call.constants) :])
        if key not in self.done:
            program, captured, flags = self.trace(key, None)
            self.done[key] = self.call.over_call(program, sum(key), captured), flags
        return self.done[key]

    def call_forward(self, primals, tangents):
        """What the rule gives for these values, tangents None where they are zero: the outputs, and
        their tangents, None where they are zero."""
        call = self.call
        count = len(call.constants)
        primals, tangents = primals[count:], tangents[count:]
        key = self.key([tangent is not None for tangent in tangents])
        flat = _FlatJvp(self, key)
        given = [
            zeros(ty) if tangent is None else tangent
            for tangent, ty, flag in zip(tangents, call.types, key)
            if flag
        ]
        results = flat([*primals, *given])
        found = iter(results[len(flat.flags) :])
        outputs = results[: len(flat.flags)]
        return outputs, [next(found) if flag else None for flag in flat.flags]

    def trace(self, nonzero, values):
        call = self.call
        flat = _FlatJvp(self, nonzero)
        types = call.types + [tangent_type(t) for t, flag in zip(call.types, nonzero) if flag]
        if values is not None:
            values = [*values, *[None] * sum(nonzero)]
        place = f"the jvp rule of {api_util.fun_place(call.fun)}"
        program, captured = call.traced_rule(flat, types, values, "jvp", place)
        return program, captured, flat.flags


class _FlatJvp:
    """The rule as a function of flat primals and the tangents that are there."""

    def __init__(self, rule, nonzero):
        self.rule = rule
        self.nonzero = nonzero

    def __call__(self, leaves):
        call, custom = self.rule.call, self.rule.custom
        count = len(call.types)
        given = iter(leaves[count:])
        tangents = []
        for ty, flag in zip(call.types, self.nonzero):
            if flag:
                tangents.append(next(given))
            else:
                tangents.append(symbolic_zero(ty) if custom.symbolic_zeros else zeros(ty))
        primals = call.in_tree.unflatten(leaves[:count])
        tangents = call.in_tree.unflatten(tangents)
        result = self.rule.jvp(*call.kept, primals, tangents)
        rule = f"Custom JVP rule {api_util.fun_name(self.rule.jvp)} for function {call.name}"
        out, out_tangents = pair(result, rule, "primal and tangent outputs")
        out_leaves, out_tree = tree_util.tree_flatten(out)
        is_zero = lambda x: isinstance(x, SymbolicZero)  # noqa: E731
        tangent_leaves, tangent_tree = tree_util.tree_flatten(out_tangents, is_leaf=is_zero)
        if out_tree != tangent_tree:
            raise TypeError(
                f"{rule}: the tangents that it returns have the pytree structure {tangent_tree}, "
                f"expected that of the primal outputs, {out_tree}."
            )
        primals = call.checked_output(out_leaves, out_tree, rule)
        types = array_types(primals)
        given, self.flags = [], []
        for leaf, ty in zip(tangent_leaves, types):
            expected = tangent_type(ty)
            float0 = not dtypes.has_tangent(ty[1])
            if is_zero(leaf):
                got = (leaf.shape, leaf.dtype)
            elif float0 and not isinstance(leaf, core.Tracer):
                got = (getattr(leaf, "shape", ()), getattr(leaf, "dtype", None))
            else:
                leaf = core.as_array(leaf, rule)
                got = (leaf.shape, leaf.dtype)
            if tuple(got) != expected[:2]:
                shown = show((*got, False)) if got[1] is not None else repr(leaf)
                raise TypeError(
                    f"{rule}: a tangent that it returns has type {shown}, expected {show(expected)} "
                    f"(the tangent type of the output {show(ty)})."
                )
            there = not float0 and not is_zero(leaf)
            self.flags.append(there)
            if there:
                given.append(leaf)
        return primals + given
