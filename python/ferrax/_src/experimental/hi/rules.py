"""Primitives over values as equations over arrays: `call_hi_primitive`, and the rules of its transformations.

An equation has its rules, `Rules`, as a parameter: functions of flat lists of arrays, which the classes of `prims`
make of what users define. Of a batch the rules are those of an element, mapped (`Batched`). Reverse mode leaves an
equation `call_hi_primitive_linearized` in the linear program, which is transposed by the reverse rule and computes
nothing.
Cost: a rule is traced where a transformation meets the equation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.core import named_axes
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import (
    Primitive,
    apply_program,
    fancy_primitive_batchers,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.experimental.hi.accums import is_zero
from ferrax._src.tracing import staging
from ferrax._src.transforms.ad import UndefinedPrimal, Zero, instantiate_zeros, is_undefined_primal
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.batching_rules import moveaxis
from ferrax._src.transforms.composites import composite_transpose
from ferrax._src.transforms.linearized import orders
from ferrax._src.tree import tree_util


class Rules:
    """What an equation `call_hi_primitive` does: types of inputs and outputs, which have tangents, and rules."""

    in_types: list[Any]
    out_types: list[Any]
    in_active: list[bool]
    out_active: list[bool]
    has_vjp = False
    has_jvp = False
    has_lin = False
    # Whether values among inputs and outputs have tangents that are none of their arrays'.
    carried = False
    name = "a primitive"

    def run(self, arrays: Any) -> list[Any]:
        """The outputs."""
        raise NotImplementedError

    def jvp(self, primals: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
        """Outputs and their tangents; tangents are arrays or `Zero`s."""
        raise NotImplementedError

    def vjp_fwd(self, nonzero: Any, primals: Any) -> tuple[list[Any], Any, list[bool]]:
        """Outputs, residuals, and which outputs have tangents."""
        raise NotImplementedError

    def vjp_bwd(self, nonzero: Any, residuals: Any, cotangents: Any) -> list[Any]:
        """The cotangents of the inputs, arrays or `Zero`s, for those of the outputs."""
        raise NotImplementedError

    def lin(self, nonzero: Any, primals: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
        """Outputs and their tangents, by a rule for `linearize`."""
        raise NotImplementedError

    def transpose(self, cotangents: Any, args: Any) -> list[Any]:
        """The cotangents of the inputs that are `UndefinedPrimal`s."""
        return composite_transpose(lambda *xs: self.run(list(xs)), cotangents, args, {})

    def batch(self, data: Any, args: Any, dims: Any) -> tuple[list[Any], list[Any]]:
        """The outputs of a batch, and where they have its axis: None for those that are the same for each."""
        moves = self._moves(data, dims)
        outs = call_p.bind(*args, _prim=Batched(self, data, dims))
        return [x if flag else x[0] for x, flag in zip(outs, moves)], [0 if flag else None for flag in moves]

    def _moves(self, data, dims):
        """Which outputs, or their tangents, differ between the elements of a batch."""
        moves = _differ(lambda *xs: self.run(list(xs)), self.in_types, data, dims)
        if self.carried or (not self.has_jvp and (self.has_vjp or self.has_lin)):
            return [flag or there for flag, there in zip(moves, self.out_active)]
        if self.has_jvp and any(self.in_active) and not _asking.tangents:
            active = [ty for ty, flag in zip(self.in_types, self.in_active) if flag]
            every = [*dims, *[dim for dim, flag in zip(dims, self.in_active) if flag]]
            # The rule may apply the primitive itself, to tangents.
            _asking.tangents = True
            try:
                moved = _differ(self._tangents, [*self.in_types, *active], data, every)
            finally:
                _asking.tangents = False
            return [flag or other for flag, other in zip(moves, moved)]
        return moves

    def _tangents(self, *args):
        """The tangents of the outputs, of the inputs and the tangents of those that have any."""
        count, given = len(self.in_types), iter(args[len(self.in_types) :])
        pairs = zip(self.in_active, self.in_types)
        tangents = [next(given) if flag else Zero(ty.to_tangent_aval()) for flag, ty in pairs]
        _, found = self.jvp(args[:count], tangents)
        # What has no tangent differs as its value does.
        return [x if flag else 0.0 for x, flag in zip(map(instantiate_zeros, found), self.out_active)]


class _Asking(threading.local):
    # Whether it is found out which tangents differ between the elements of a batch.
    tangents = False


_asking = _Asking()


def _differ(fun, types, data, dims):
    program, captured, _ = staging.stage(fun, types, {})
    text = None if data.name is None else named_axes.text(data.name)
    _, found = program.batch(data.size, [*dims, *[None] * len(captured)], None, text)
    return [dim is not None for dim in found]


call_p = Primitive("call_hi_primitive")
call_p.multiple_results = True
linear_p = Primitive("call_hi_primitive_linearized")
linear_p.multiple_results = True


call_p._high = linear_p._high = True


def rules_of(prim: Any) -> Rules:
    return prim if isinstance(prim, Rules) else prim._rules


def _run(*arrays, _prim):
    rules = rules_of(_prim)
    return rules.run([core.as_array(x, rules.name) for x in arrays])


def _types(*avals, _prim):
    rules = rules_of(_prim)
    if not any(aval._varying for aval in avals):
        return rules.out_types
    # Along which axes of a mesh the results vary is what the primitive is made of says.
    found = staging.eval_shape(lambda *args: rules.run(list(args)), *avals)
    return [
        core.ShapedArray(ty.shape, ty.dtype, ty.weak_type, x._varying) for ty, x in zip(rules.out_types, found)
    ]


call_p.def_impl(_run)
call_p.def_abstract_eval(_types)
register_lowering(call_p, lower_fun(_run))


def _jvp(primals, tangents, *, _prim):
    rules = rules_of(_prim)
    tangents = [
        t if flag and type(t) is not Zero else Zero(aval.to_tangent_aval())
        for t, flag, aval in zip(tangents, rules.in_active, rules.in_types)
    ]
    if all(type(t) is Zero for t in tangents):
        outs = call_p.bind(*primals, _prim=_prim)
        return outs, [Zero(aval.to_tangent_aval()) for aval in rules.out_types]
    if not orders.pushes and rules.has_vjp:
        return _reverse_jvp(rules, _prim, primals, tangents)
    if rules.has_jvp and not (orders.linearizes and rules.has_lin):
        return rules.jvp(primals, tangents)
    if rules.has_lin:
        nonzero = [type(t) is not Zero for t in tangents]
        return rules.lin(nonzero, primals, tangents)
    if rules.has_vjp:
        raise NotImplementedError(f"for jvp support, {rules.name} must implement `jvp`")
    if rules.carried:
        raise NotImplementedError(
            f"for grad support, {rules.name} must implement `vjp_fwd` and `vjp_bwd` or `vjp_bwd_retval`, and for jvp "
            "support `jvp`: its values have tangents of types of their own"
        )
    return _made_jvp(rules, primals, tangents)


def _made_jvp(rules, primals, tangents):
    """The derivative of what the primitive is made of."""
    program, captured, _ = staging.stage(lambda *args: rules.run(list(args)), primals, {})
    nonzero = [type(t) is not Zero for t in tangents] + [False] * len(captured)
    primal, linear, flags = program.linearize(nonzero)
    results = apply_program(primal, [*primals, *captured])
    outs, residuals = results[: len(flags)], results[len(flags) :]
    moved = iter(apply_program(linear, [*residuals, *[t for t in tangents if type(t) is not Zero]]))
    return outs, [next(moved) if flag else Zero.from_primal_value(x) for x, flag in zip(outs, flags)]


def _reverse_jvp(rules, prim, primals, tangents):
    nonzero = tuple(type(t) is not Zero for t in tangents)
    outs, residuals, out_nonzero = rules.vjp_fwd(nonzero, primals)
    leaves, tree = tree_util.tree_flatten(residuals)
    leaves = [core.as_array(x, f"a residual of {rules.name}") for x in leaves]
    flags = tuple(flag and there for flag, there in zip(rules.out_active, out_nonzero))
    made = iter(
        linear_p.bind(
            *leaves, *[t for t in tangents if type(t) is not Zero], _prim=prim, residuals_tree=tree, nz_in_flat=nonzero,
            nz_out_flat=flags,
        )
    )  # fmt: skip
    pairs = zip(flags, rules.out_types)
    return outs, [next(made) if flag else Zero(aval.to_tangent_aval()) for flag, aval in pairs]


def _transpose(cotangents, *args, _prim):
    found = rules_of(_prim).transpose(cotangents, args)
    return [ct if is_undefined_primal(x) and not is_zero(ct) else None for ct, x in zip(found, args)]


def _batch(data, args, dims, *, _prim):
    if all(dim is None for dim in dims):
        outs = call_p.bind(*args, _prim=_prim)
        return outs, [None] * len(outs)
    return rules_of(_prim).batch(data, args, dims)


primitive_jvps[call_p] = _jvp
primitive_transposes[call_p] = _transpose
fancy_primitive_batchers[call_p] = _batch


# What reverse rules leave in linear programs.


def _linear_types(*avals, _prim, residuals_tree, nz_in_flat, nz_out_flat):
    rules = rules_of(_prim)
    return [aval.strip_weak_type() for aval, flag in zip(rules.out_types, nz_out_flat) if flag]


def _not_forward(*args, _prim, **params):
    raise TypeError(
        f"can't apply forward-mode differentiation (jvp) to {rules_of(_prim).name}, which has a reverse rule here: "
        "give it `jvp`, or `lin` and `linearized`, too"
    )


def _linear_transpose(cotangents, *args, _prim, residuals_tree, nz_in_flat, nz_out_flat):
    rules = rules_of(_prim)
    count = residuals_tree.num_leaves
    residuals = residuals_tree.unflatten(args[:count])
    given = iter(cotangents)
    every = [
        next(given) if flag else Zero(aval.to_tangent_aval()) for flag, aval in zip(nz_out_flat, rules.out_types)
    ]
    found = rules.vjp_bwd(nz_in_flat, residuals, every)
    wanted = [None if is_zero(ct) else ct for ct, flag in zip(found, nz_in_flat) if flag]
    return [None] * count + wanted


def _linear_batch(data, args, dims, *, _prim, residuals_tree, nz_in_flat, nz_out_flat):
    # All in a batch of their own: what is the same for each is repeated.
    args = [_repeated(x, dim, data.size) for x, dim in zip(args, dims)]
    rules = Batched(rules_of(_prim), data, [0 if flag else None for flag in nz_in_flat])
    outs = linear_p.bind(
        *args, _prim=rules, residuals_tree=residuals_tree, nz_in_flat=nz_in_flat, nz_out_flat=nz_out_flat
    )
    return outs, [0] * len(outs)


def _repeated(x, dim, size):
    x = core.as_array(x, "vmap")
    return vmap(lambda: x, axis_size=size, in_axes=())() if dim is None else moveaxis(x, dim, 0)


linear_p.def_impl(_not_forward)
linear_p.def_abstract_eval(_linear_types)
register_lowering(linear_p, lower_fun(_not_forward))
primitive_transposes[linear_p] = _linear_transpose
fancy_primitive_batchers[linear_p] = _linear_batch


class ByJvp(Rules):
    """The rules of a primitive without that of reverse mode."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.name, self.carried = rules.name, rules.carried
        self.in_types, self.out_types = rules.in_types, rules.out_types
        self.in_active, self.out_active = rules.in_active, rules.out_active
        self.has_jvp = rules.has_jvp
        self.run, self.jvp = rules.run, rules.jvp  # type: ignore[method-assign]  # theirs
        self.transpose, self.batch = rules.transpose, rules.batch  # type: ignore[method-assign]  # theirs

    def __repr__(self) -> str:
        return repr(self.rules)


class Batched(Rules):
    """The rules of a batch: those of an element, mapped. Outputs and residuals have the axis first."""

    def __init__(self, rules: Rules, data: Any, dims: Any) -> None:
        self.rules = rules
        self.data = data
        self.dims = tuple(dims)
        self.name = rules.name
        self.in_types = [
            ty if dim is None else ty.inc_rank(data.size, dim) for ty, dim in zip(rules.in_types, self.dims)
        ]
        self.out_types = [ty.inc_rank(data.size, 0) for ty in rules.out_types]
        self.in_active, self.out_active = rules.in_active, rules.out_active
        self.has_vjp, self.has_jvp, self.has_lin = rules.has_vjp, rules.has_jvp, rules.has_lin
        self.carried = rules.carried

    def __repr__(self) -> str:
        return f"vmap of {self.rules!r}"

    def _map(self, fun: Callable[..., Any], in_axes: Any) -> Callable[..., Any]:
        return vmap(
            fun, in_axes=in_axes, axis_name=self.data.name, axis_size=self.data.size, spmd_axis_name=self.data.spmd_name
        )

    def run(self, arrays):
        return self._map(self.rules.run, (list(self.dims),))(list(arrays))

    def _lanes(self, tangents):
        """Those that are there, as a function that makes a list of all of an element's of these."""
        flags = [type(t) is not Zero for t in tangents]

        def every(given):
            given = iter(given)
            pairs = zip(flags, self.rules.in_types)
            return [next(given) if flag else Zero(ty.to_tangent_aval()) for flag, ty in pairs]

        given = [t for t in tangents if type(t) is not Zero]
        return given, [dim for dim, flag in zip(self.dims, flags) if flag], every

    def _pushed(self, rule, primals, tangents):
        given, given_dims, every = self._lanes(tangents)
        flags: list[bool] = []

        def mapped(primals, given):
            outs, found = rule(primals, every(given))
            flags[:] = [not is_zero(t) for t in found]
            return outs, [t for t in found if not is_zero(t)]

        outs, found = self._map(mapped, (list(self.dims), given_dims))(list(primals), given)
        found = iter(found)
        return outs, [next(found) if flag else Zero(ty.to_tangent_aval()) for flag, ty in zip(flags, self.out_types)]

    def jvp(self, primals, tangents):
        return self._pushed(self.rules.jvp, primals, tangents)

    def lin(self, nonzero, primals, tangents):
        return self._pushed(lambda xs, ts: self.rules.lin(nonzero, xs, ts), primals, tangents)

    def vjp_fwd(self, nonzero, primals):
        known: list[Any] = []

        def mapped(primals):
            outs, residuals, flags = self.rules.vjp_fwd(nonzero, primals)
            leaves, tree = tree_util.tree_flatten(residuals)
            known[:] = [tree, flags]
            return outs, [core.as_array(x, f"a residual of {self.name}") for x in leaves]

        outs, leaves = self._map(mapped, (list(self.dims),))(list(primals))
        return outs, _Residuals(leaves, known[0]), known[1]

    def vjp_bwd(self, nonzero, residuals, cotangents):
        if isinstance(residuals, _Residuals):
            leaves, tree = residuals.leaves, residuals.tree
        else:
            leaves, tree = tree_util.tree_flatten(residuals)
        there = [type(ct) is not Zero for ct in cotangents]
        flags: list[bool] = []

        def mapped(leaves, given):
            given = iter(given)
            pairs = zip(there, self.rules.out_types)
            every = [next(given) if flag else Zero(ty.to_tangent_aval()) for flag, ty in pairs]
            found = self.rules.vjp_bwd(nonzero, tree.unflatten(leaves), every)
            flags[:] = [not is_zero(ct) for ct in found]
            return [ct for ct in found if not is_zero(ct)]

        given = [ct for ct in cotangents if type(ct) is not Zero]
        found = iter(self._map(mapped, (0, 0))(list(leaves), given))
        cts = []
        for flag, dim, ty in zip(flags, self.dims, self.in_types):
            if not flag:
                cts.append(Zero(ty.to_tangent_aval()))
                continue
            ct = next(found)
            cts.append(ct.sum(0).astype(ct.dtype) if dim is None else moveaxis(ct, 0, dim))
        return cts

    def transpose(self, cotangents, args):
        linear = [is_undefined_primal(x) for x in args]
        known = [x for x, flag in zip(args, linear) if not flag]
        known_dims = [dim for dim, flag in zip(self.dims, linear) if not flag]
        there = [type(ct) is not Zero for ct in cotangents]
        flags: list[bool] = []

        def mapped(known, given):
            known, given = iter(known), iter(given)
            own = [
                UndefinedPrimal(ty) if flag else next(known) for flag, ty in zip(linear, self.rules.in_types)
            ]
            pairs = zip(there, self.rules.out_types)
            every = [next(given) if flag else Zero(ty.to_tangent_aval()) for flag, ty in pairs]
            found = self.rules.transpose(every, own)
            flags[:] = [flag and not is_zero(ct) for ct, flag in zip(found, linear)]
            return [instantiate_zeros(ct) for ct, flag in zip(found, flags) if flag]

        given = [ct for ct in cotangents if type(ct) is not Zero]
        found = iter(self._map(mapped, (known_dims, 0))(known, given))
        cts = []
        for flag, dim in zip(flags, self.dims):
            ct = next(found) if flag else None
            cts.append(ct if ct is None else ct.sum(0).astype(ct.dtype) if dim is None else moveaxis(ct, 0, dim))
        return cts


class _Residuals:
    """The residuals of a batch, whose leaves have its axis first."""

    def __init__(self, leaves, tree):
        self.leaves = leaves
        self.tree = tree


tree_util.register_pytree_node(
    _Residuals, lambda x: (tuple(x.leaves), x.tree), lambda tree, leaves: _Residuals(list(leaves), tree)
)
