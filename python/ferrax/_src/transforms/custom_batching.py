"""`custom_vmap`: functions whose batching the user gives; `sequential_vmap`.

The call is a primitive over the traced function. Its derivative is the primitive again, over the
function's derivative, with a rule that is the derivative of the user's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import api_util
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import (
    Primitive,
    apply_program,
    axis_primitive_batchers,
    data_forms,
    primitive_jvps,
)
from ferrax._src.lax.shape import broadcast
from ferrax._src.tracing import staging
from ferrax._src.transforms.ad import Zero, instantiate_zeros
from ferrax._src.transforms.autodiff import jvp
from ferrax._src.transforms.batching_rules import moveaxis
from ferrax._src.transforms.custom_rules import (
    forwarded_attribute,
    resolve_arguments,
    zeros,
)
from ferrax._src.transforms.map import map as lax_map
from ferrax._src.tree import tree_util

__all__ = ["custom_vmap", "sequential_vmap"]


class custom_vmap:  # noqa: N801
    """A function with a batching rule of its own, which `vmap` uses.

    Args:
      fun: the function of arrays and pytrees of them. It is traced at every call, so Python
        control flow on its arguments' values does not work in it.

    The rule given to `def_vmap` takes `(axis_size, in_batched, *args)`: the size of the batch, a
    list with a tree of booleans for each argument (whether a leaf is batched), and the arguments,
    whose batched leaves have the batch as their axis 0. It returns `(out, out_batched)`, two trees
    of the structure of the function's output: the outputs, and whether each is batched at axis 0.

    Errors: AttributeError if no rule was defined before the first call; ValueError where the rule
    returns other trees; TypeError where it returns other shapes or dtypes; NotImplementedError for
    reverse-mode differentiation, which needs `custom_vjp` around it.

    Example:
        >>> @ferrax.custom_batching.custom_vmap
        ... def f(x, y):
        ...     return x + y
        >>> @f.def_vmap
        ... def f_vmap(axis_size, in_batched, xs, ys):
        ...     return xs * ys, True
        >>> ferrax.vmap(f)(jnp.arange(3), jnp.arange(3))
        Array([0, 1, 4], dtype=int32)
    """

    def __init__(self, fun: Any) -> None:
        functools.update_wrapper(self, fun)
        api_util.check_callable(fun)
        self.fun = fun
        self.vmap_rule = None

    __getattr__ = forwarded_attribute

    def def_vmap(self, vmap_rule: Any) -> Callable[..., Any]:
        """Defines the rule, which is returned: usable as a decorator."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = resolve_arguments(self.fun, "custom_vmap", args, kwargs)
        if self.vmap_rule is None:
            raise AttributeError(
                f"No batching rule defined for the custom_vmap function "
                f"{api_util.fun_name(self.fun)}: give its rule with def_vmap before the call"
            )
        leaves, in_tree = tree_util.tree_flatten(args)
        program, captured, flat = staging.stage(self.fun, args, {})
        results = custom_vmap_p.bind(
            *leaves,
            *captured,
            call=ClosedJaxpr(program),
            rule=_Rule(self.vmap_rule),
            in_tree=tree_util.treedef_tuple((in_tree, tree_util.tree_structure(captured))),
            out_tree=flat.out_tree,
        )
        return flat.out_tree.unflatten(results)


class _Rule:
    """The user's rule, for a call whose inputs are arguments and then captured values."""

    def __init__(self, rule):
        functools.update_wrapper(self, rule)
        self.rule = rule
        # Whether the rule is a loop over the cases, which files can say.
        self.sequential = getattr(rule, "_sequential", False)

    def __call__(self, axis_size, in_batched, args):
        args, captured = args
        in_batched, captured_batched = in_batched
        if any(captured_batched):
            place = captured_batched.index(True)
            raise ValueError(
                f"the custom_vmap rule {self} is asked for a batch of a value of type "
                f"{core.typeof(captured[place])} that the function closes over, which rules are "
                "not given. Pass the value as an argument of the function."
            )
        return self.rule(axis_size, list(in_batched), *args)

    def __repr__(self):
        return api_util.fun_name(self.rule)


def _checked_rule(rule, axis_size, in_batched, args, out_tree):
    """The rule's outputs and whether they are batched, both flat."""
    result = rule(axis_size, in_batched, args)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(
            f"the custom_vmap rule {rule} must return a pair (output, whether each leaf of it is "
            f"batched), got {result!r}"
        )
    out, tree = tree_util.tree_flatten(result[0])
    out_batched, batched_tree = tree_util.tree_flatten(result[1])
    if tree != batched_tree:
        raise ValueError(
            f"the custom vmap rule {rule} returned outputs of one structure and flags of another:"
            f"\n  outputs: {tree}\n  flags:   {batched_tree}"
        )
    if tree != out_tree:
        raise ValueError(
            f"the custom vmap rule {rule} returned another structure than the function that it is "
            f"for:\n  function: {out_tree}\n  rule:     {tree}"
        )
    return out, out_batched


def _run(*args, call, rule, in_tree, out_tree):
    return call._run(args)


def _at_front(value, dim):
    return value if dim is None or dim == 0 else moveaxis(value, dim, 0)


def _repeated(value, size):
    return broadcast(value, (size,))


def _batch(axis_size, axis_name, trace_type, args, dims, *, call, rule, in_tree, out_tree):
    args = in_tree.unflatten([_at_front(x, dim) for x, dim in zip(args, dims)])
    in_batched = in_tree.unflatten([dim is not None for dim in dims])
    out, batched = _checked_rule(rule, axis_size, in_batched, args, out_tree)
    return out, [0 if flag else None for flag in batched]


def _jvp(primals, tangents, *, call, rule, in_tree, out_tree):
    nonzero = [dtypes.has_tangent(core.typeof(x).dtype) for x in primals]
    given = [instantiate_zeros(t) for t, flag in zip(tangents, nonzero) if flag]
    program, flags = call._to_program().jvp(nonzero)
    results = custom_vmap_p.bind(
        *primals,
        *given,
        call=ClosedJaxpr(program),
        rule=_JvpRule(rule, in_tree, out_tree, nonzero, flags),
        in_tree=tree_util.tree_structure(([0] * len(primals), [0] * len(given))),
        out_tree=tree_util.tree_structure(([0] * len(flags), [0] * sum(flags))),
    )
    outs, rest = results[: len(flags)], iter(results[len(flags) :])
    return outs, [
        next(rest) if flag else Zero.from_primal_value(out) for out, flag in zip(outs, flags)
    ]


class _JvpRule:
    """The derivative of a rule, as a rule over flat primals and the tangents that are there.

    Where primals and tangents are batched alike, the user's rule is differentiated. Where some
    inputs have a batch of only primals, or only tangents, and none of both, the user's rule is
    told that nothing is batched, and its derivative is batched instead.
    """

    def __init__(self, rule, in_tree, out_tree, nonzero, flags):
        self.rule, self.in_tree, self.out_tree = rule, in_tree, out_tree
        self.nonzero, self.flags = nonzero, flags
        self.sequential = rule.sequential

    def __repr__(self):
        return f"jvp_of_{self.rule}"

    def __call__(self, axis_size, in_batched, args):
        primals, given = map(list, args)
        batched, given_batched = map(list, in_batched)
        places = [place for place, flag in enumerate(self.nonzero) if flag]
        paired = dict(zip(places, given_batched))
        alike = any(batched[place] and flag for place, flag in paired.items())
        alike = alike or any(b for place, b in enumerate(batched) if place not in paired)
        axes = (list(batched), list(given_batched))
        if alike:
            # One batch for all: what only one of primal and tangent has, both get.
            for number, place in enumerate(places):
                if batched[place] != given_batched[number]:
                    if batched[place]:
                        given[number] = _repeated(given[number], axis_size)
                    else:
                        primals[place] = _repeated(primals[place], axis_size)
                        batched[place] = True
        told = batched if alike else [False] * len(batched)
        found: list[Any] = []

        def function(*leaves):
            arguments = self.in_tree.unflatten(leaves)
            flags = self.in_tree.unflatten(told)
            out, out_batched = _checked_rule(self.rule, axis_size, flags, arguments, self.out_tree)
            found[:] = out_batched
            return out

        def derivative(primals, given):
            rest = iter(given)
            tangents = [
                next(rest) if flag else zeros((x.shape, x.dtype, False))
                for x, flag in zip(primals, self.nonzero)
            ]
            outs, out_tangents = jvp(function, tuple(primals), tuple(tangents))
            return outs, [t for t, flag in zip(out_tangents, self.flags) if flag]

        if alike or not any(batched + given_batched):
            outs, tangents = derivative(primals, given)
            flags = tangent_flags = found
        else:
            outs, tangents, flags = _batched_where_reached(derivative, axis_size, primals, given, axes)
            count = len(outs)
            if not any(batched):
                outs = function(*primals)
                flags[:count] = [False] * count
            return (outs, tangents), (flags[:count], flags[count:])
        given_flags = [b for b, flag in zip(tangent_flags, self.flags) if flag]
        return (outs, tangents), (list(flags), given_flags)


def _batched_where_reached(derivative, axis_size, primals, given, axes):
    """The batched derivative: outputs, tangents, and whether the batch reaches each of them; others,
    such as the tangents of a linear function over a batch of primals alone, have no batch axis."""
    leaves, flags = [*primals, *given], [*axes[0], *axes[1]]
    lanes = [
        core.ShapedArray(x.shape[1:] if flag else x.shape, x.dtype, x.weak_type)
        for x, flag in zip(map(core.as_array, leaves), flags)
    ]
    program, captured, flat = staging.stage(derivative, (lanes[: len(primals)], lanes[len(primals) :]), {})
    dims = [0 if flag else None for flag in flags] + [None] * len(captured)
    reached = [dim is not None for dim in program.batch(axis_size, dims)[1]]
    batched, _ = program.batch(axis_size, dims, [0 if flag else None for flag in reached])
    results = apply_program(batched, [*leaves, *captured])
    outs, tangents = flat.out_tree.unflatten(results)
    return outs, tangents, reached


def _as_data(rules, *, call, rule, in_tree, out_tree):
    program = call._to_program()
    sequential = getattr(rule, "sequential", False)
    return "custom_vmap_call", {"call": program, "name": program.name, "sequential": sequential}


custom_vmap_p = Primitive("custom_vmap_call")
custom_vmap_p.multiple_results = True
custom_vmap_p.def_impl(_run)
custom_vmap_p.def_effectful_abstract_eval(
    lambda *avals, call, **params: (call.out_avals, call.effects)
)
axis_primitive_batchers[custom_vmap_p] = _batch
primitive_jvps[custom_vmap_p] = _jvp
data_forms[custom_vmap_p] = _as_data
register_lowering(custom_vmap_p, lower_fun(_run, multiple_results=True))


def sequential_vmap(f: Callable[..., Any]) -> custom_vmap:
    """A function that `vmap` calls for one element of the batch after the other, in a loop.

    Args:
      f: a function of arrays and pytrees of them.

    Errors: as `custom_vmap`.

    Example:
        >>> f = ferrax.custom_batching.sequential_vmap(lambda x: x + 1)
        >>> ferrax.vmap(f)(jnp.arange(3))
        Array([1, 2, 3], dtype=int32)
    """
    function = custom_vmap(f)

    def rule(axis_size, in_batched, *args):
        leaves, tree = tree_util.tree_flatten(args)
        flags = tree_util.tree_leaves(in_batched)
        places = [place for place, flag in enumerate(flags) if flag]

        def one(elements):
            whole = list(leaves)
            for place, element in zip(places, elements):
                whole[place] = element
            return function(*tree.unflatten(whole))

        out = lax_map(one, [leaves[place] for place in places])
        return out, tree_util.tree_map(lambda _: True, out)

    sequential: Any = rule
    sequential._sequential = True
    function.def_vmap(sequential)
    return function
