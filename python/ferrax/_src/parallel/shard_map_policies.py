"""Derivatives of `shard_map` within `checkpoint`: policies are asked about what each device does.

A checkpoint whose policy is to see into the function of the devices makes a checkpoint of that (`_checkpointed`). Its
derivative (`_jvp`) is four equations: one gives the values that the policy keeps of each device, under a name by which
the outer checkpoint keeps them, too. Of these and the arguments the second gives the results, the third what the
derivative needs, the fourth is the derivative. Forward, the first two run, and what they both compute is one
computation once they are programs over whole arrays; backward, the third and the fourth, and the second if its results
are needed. What only results need, and not the derivative, is computed again whatever the policy says of it. Invariant:
nothing but the named values, arguments and results is kept from the one to the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ferrax import _core
from ferrax._src.core.dead_code import dce_jaxpr
from ferrax._src.core.jaxpr import ClosedJaxpr, bind_equation, interpret
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.primitives import apply_program, builtin, primitive_jvps
from ferrax._src.lax.shape import expand_dims, squeeze
from ferrax._src.parallel.part_jaxprs import know_axes
from ferrax._src.parallel.shard_map_primitive import shard_map_p
from ferrax._src.parallel.shard_map_rules import bind_over, kept_spec, program_of, staged
from ferrax._src.transforms.ad import Zero
from ferrax._src.transforms.ad_checkpoint import checkpoint_name, looked_into
from ferrax._src.transforms.checkpoint_policies import KEPT_WITHIN

_REMAT = builtin("remat2")


class _Parts(NamedTuple):
    """Values of the devices, as one that is cut by a spec; `scalar`: into parts of one element that is a scalar."""

    value: Any
    spec: PartitionSpec
    scalar: bool = False


def _checkpointed(params, policy, prevent_cse):
    """The parameters of the equation that a policy is asked about as about what each device does."""
    program = program_of(params)

    def call(*args):
        return _core.checkpoint_call(program, policy, prevent_cse, list(args))

    return params | {"jaxpr": ClosedJaxpr(staged(call, program.in_types, params)).open}


def _is_checkpoint(jaxpr) -> bool:
    if [eqn.primitive for eqn in jaxpr.eqns] != [_REMAT]:
        return False
    (eqn,) = jaxpr.eqns
    whole = eqn.invars == jaxpr.invars and eqn.outvars == jaxpr.outvars
    return whole and eqn.params["policy"] is not None and not eqn.params["differentiated"]


def _jvp(primals, tangents, **params):
    if not _is_checkpoint(params["jaxpr"]):
        return _jvp_of_equation(primals, tangents, **params)
    there = [type(t) is not Zero for t in tangents]
    primal, linear, flags = program_of(params).linearize(there)
    primal, linear, count = _opened(primal, params), _opened(linear, params), len(flags)
    args = [_Parts(x, spec) for x, spec in zip(primals, params["in_specs"])]
    given = [_Parts(t, spec) for t, spec, flag in zip(tangents, params["in_specs"], there) if flag]

    saved = _computed(primal, count, args, params, lambda x: checkpoint_name(x, KEPT_WITHIN))
    again, operands = _needed(_of_saved(primal, count, params), range(count), [*args, *saved], params)
    outs = _bound(again, operands, params["out_specs"], [False] * count, params)

    out_specs = [spec for spec, flag in zip(params["out_specs"], flags) if flag]
    values, moved, moving = linear.linearize([False] * len(saved) + [True] * len(given))
    residuals = _computed(values, len(moving), [*saved, *given], params)
    specs = [spec for spec, flag in zip(out_specs, moving) if flag]
    results = iter(_bound(moved, [*residuals, *given], specs, [False] * len(specs), params))
    changes = iter([next(results) if flag else None for flag in moving])
    found = [next(changes) if flag else None for flag in flags]
    return outs, [Zero.from_primal_value(out) if t is None else t for out, t in zip(outs, found)]


def _opened(program, params):
    """The program of each device without checkpoints around what it does."""

    def apply(eqn, values):
        if eqn.primitive is _REMAT:
            return interpret(eqn.params["jaxpr"], [], values, apply)
        return bind_equation(eqn, values)

    jaxpr = ClosedJaxpr(program).open
    return staged(lambda *args: interpret(jaxpr, [], args, apply), program.in_types, params)


def _of_saved(program, count, params):
    """The first outputs of a program, `count` of them, of its inputs and the other outputs."""
    jaxpr = ClosedJaxpr(program).open

    def again(*args):
        known = dict(zip(jaxpr.outvars[count:], args[len(jaxpr.invars) :]))

        def apply(eqn, values):
            if all(var in known for var in eqn.outvars):
                return [known[var] for var in eqn.outvars]
            return [known.get(var, x) for var, x in zip(eqn.outvars, bind_equation(eqn, values))]

        return interpret(jaxpr, [], args[: len(jaxpr.invars)], apply)[:count]

    return staged(again, [*program.in_types, *program.out_types[count:]], params)


def _computed(program, first, operands, params, name=list) -> list[_Parts]:
    """What the program gives on each device from output `first` on, of parts; inputs are those that were given, and
    the rest is what `name` makes of it."""
    inputs, outputs, _ = program.interface()
    own = [number for number in range(first, len(outputs)) if outputs[number] not in inputs]
    found: dict[int, _Parts] = {}
    if own:
        types = [program.out_types[number] for number in own]
        specs = [kept_spec(ty, params) for ty in types]
        scalars = [bool(spec.partitions) and not ty[0] for spec, ty in zip(specs, types)]
        part, used = _needed(program, own, operands, params)
        values = name(_bound(part, used, specs, scalars, params))
        found = dict(zip(own, map(_Parts, values, specs, scalars)))
    numbers = range(first, len(outputs))
    return [found[n] if n in found else operands[inputs.index(outputs[n])] for n in numbers]


def _needed(program, numbers, operands, params):
    """`(the program of these outputs, the operands that it needs)`."""
    chosen = [number in numbers for number in range(len(program.out_types))]
    jaxpr, used = dce_jaxpr(ClosedJaxpr(program).open, chosen)
    know_axes(jaxpr, params["mesh"], params["newly_manual_axes"], params["check_vma"])
    return jaxpr._to_program(), [parts for parts, flag in zip(operands, used) if flag]


def _bound(program, operands, specs, scalars, params) -> list:
    """The equation over the program of parts, whose results that are `scalars` get an axis."""

    def with_axes(*args):
        parts = [squeeze(x, (0,)) if own.scalar else x for x, own in zip(args, operands)]
        results = apply_program(program, parts)
        return [expand_dims(x, (0,)) if flag else x for x, flag in zip(results, scalars)]

    whole = program
    if any(scalars) or any(parts.scalar for parts in operands):
        types = [((1,), *ty[1:]) if own.scalar else ty for ty, own in zip(program.in_types, operands)]
        whole = staged(with_axes, types, params)
    return bind_over(whole, [parts.value for parts in operands], [parts.spec for parts in operands], specs, params)


_jvp_of_equation = primitive_jvps[shard_map_p]
looked_into[shard_map_p] = _checkpointed
primitive_jvps[shard_map_p] = _jvp
