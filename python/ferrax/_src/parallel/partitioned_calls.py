"""The equations of `custom_partitioning`: functions that say themselves what each device computes of its parts.

On one device, and where they are differentiated or batched, they are the function. In a program over several devices
they ask how their operands and results are divided (`placed_programs`): what the sharding rule says is followed with
all else, the user's function `partition` is called with what was found, and what it gives runs as a `shard_map`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.core import named_axes
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.mesh import Mesh, using_abstract
from ferrax._src.core.partition import PartitionSpec, filled
from ferrax._src.core.primitives import (
    Primitive,
    apply_program,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.core.sharding import IndivisibleError, NamedSharding, Sharding
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.lax.reduce import reduce_max
from ferrax._src.lax.shape import broadcast, broadcast_in_dim, reshape, transpose
from ferrax._src.lax.slicing import slice_in_dim
from ferrax._src.lax.sorting import sort
from ferrax._src.parallel.shard_map import shard_map
from ferrax._src.parallel.sharding_rule import SdyShardingRule, factors_of, rule_of_text
from ferrax._src.transforms import placed_programs
from ferrax._src.transforms.ad import UndefinedPrimal, Zero
from ferrax._src.transforms.autodiff import jvp, linear_transpose
from ferrax._src.transforms.batching_rules import fancy_primitive_batchers
from ferrax._src.tree import tree_util

custom_partitioning_p = Primitive("custom_partitioning")
custom_partitioning_p.multiple_results = True


def _call(*args, call, **params):
    """The function itself."""
    return call._run(list(args))


def _types(*avals, call, **params):
    return call.out_avals, call.effects


def _jvp(primals, tangents, **params):
    moving = [number for number, tangent in enumerate(tangents) if not isinstance(tangent, Zero)]

    def of_moving(*values):
        own = list(primals)
        for number, value in zip(moving, values):
            own[number] = value
        return _call(*own, **params)

    return jvp(of_moving, [primals[n] for n in moving], [tangents[n] for n in moving])


def _transpose(cotangents, *args, **params):
    linear = [number for number, x in enumerate(args) if isinstance(x, UndefinedPrimal)]

    def of_linear(*values):
        own = list(args)
        for number, value in zip(linear, values):
            own[number] = value
        return _call(*own, **params)

    types = [ShapeDtypeStruct(args[n].aval.shape, args[n].aval.dtype) for n in linear]
    given = [ct.instantiate() if isinstance(ct, Zero) else ct for ct in cotangents]
    found = iter(linear_transpose(of_linear, *types)(given))
    return [next(found) if number in linear else None for number in range(len(args))]


def _batch(axis, args, dims, *, call, **params):
    name = None if axis.name is None else named_axes.text(axis.name)
    program, found = call._to_program().batch(axis.size, list(dims), None, name)
    return apply_program(program, list(args)), list(found)


custom_partitioning_p.def_impl(_call)
custom_partitioning_p.def_effectful_abstract_eval(_types)
primitive_jvps[custom_partitioning_p] = _jvp
primitive_transposes[custom_partitioning_p] = _transpose
fancy_primitive_batchers[custom_partitioning_p] = _batch


# ---------------------------------------------------------------------------------------------
# What hangs together.


def _stands_for(values, avals, params) -> list[Any]:
    """Operations whose axes hang together as the rule says; without one, nothing does."""
    rule = params["sharding_rule"]
    if rule is None or placed_programs.mesh_of_call() is None:
        return [broadcast(core.as_array(np.zeros((), aval.dtype)), aval.shape) for aval in avals]
    rule = _rule_of(rule, values, avals, params)
    sizes, axes = factors_of(rule, [np.shape(x) for x in values], [aval.shape for aval in avals])
    names = list(sizes)
    # All factors together, the maximum of what operands have there.
    space = broadcast(core.as_array(np.zeros((), np.int32)), [sizes[name] for name in names])
    for value, own in zip(values, axes):
        space = space + _spread(value, own, names, sizes)
    for name in rule.need_replication_factors:
        # Lines that are sorted are whole.
        space = sort(space, dimension=names.index(name))
    return [_of_space(space, own, names, sizes, aval) for own, aval in zip(axes[len(values) :], avals)]


def _rule_of(rule, values, avals, params) -> SdyShardingRule:
    """The rule; one that is a function is asked."""
    if callable(rule):
        mesh = placed_programs.mesh_of_call()
        types = [core.typeof(x) for x in values]
        rule = rule(*params["static_args"], mesh, types, list(avals))
        said: dict[str, Any] = {}
        if isinstance(rule, (tuple, list)) and len(rule) == 2:
            rule, said = rule
        if isinstance(rule, str):
            kinds = ("reduction_factors", "need_replication_factors", "permutation_factors")
            rule = rule_of_text(rule, **(dict.fromkeys(kinds, ()) | said))
    if not isinstance(rule, SdyShardingRule):
        raise ValueError(
            f"custom_partitioning: the function sharding_rule must return text or an SdyShardingRule, got {rule!r}"
        )
    return rule


def _spread(value, axes, names, sizes):
    """An operand's zeros, over all factors."""
    x = _convert_element_type(core.as_array(value) != core.as_array(value), np.int32)
    for number, factors in enumerate(axes):
        if len(factors) == 1 and x.shape[number] > sizes[factors[0]]:
            x = slice_in_dim(x, 0, sizes[factors[0]], axis=number)
    own = [factor for factors in axes for factor in factors]
    x = reshape(x, [sizes[factor] for factor in own])
    # A factor that an operand has twice ties it no more than once.
    for number in reversed(range(len(own))):
        if own[number] in own[:number]:
            x = reduce_max(x, (number,))
            del own[number]
    order = sorted(range(len(own)), key=lambda number: names.index(own[number]))
    places = [names.index(own[number]) for number in order]
    return broadcast_in_dim(transpose(x, order), [sizes[name] for name in names], places)


def _of_space(space, axes, names, sizes, aval):
    """A result, of what is over all factors."""
    own = [factor for factors in axes for factor in factors]
    rest = [number for number, name in enumerate(names) if name not in own]
    kept = [name for name in names if name in own]
    x = reduce_max(space, tuple(rest)) if rest else space
    x = reshape(transpose(x, [kept.index(factor) for factor in own]), _extents(axes, sizes))
    for number, (size, wanted) in enumerate(zip(x.shape, aval.shape)):
        if size != wanted:
            shape = [*x.shape[:number], wanted, *x.shape[number + 1 :]]
            rest = [place for place in range(x.ndim) if place != number]
            x = broadcast_in_dim(reduce_max(x, (number,)), shape, rest)
    return _convert_element_type(x, aval.dtype, weak_type=aval.weak_type)


def _extents(axes, sizes) -> list[int]:
    return [int(np.prod([sizes[factor] for factor in factors], dtype=int)) for factors in axes]


# ---------------------------------------------------------------------------------------------
# What each device does.


def _placed(values, shardings, params) -> list[Any]:
    mesh = next((where.mesh for where in shardings if isinstance(where, NamedSharding)), None)
    if not isinstance(mesh, Mesh) or mesh.size == 1:
        return _call(*values, **params)
    avals = params["call"].out_avals
    types = [*map(core.typeof, values), *avals]
    infos = [_info(aval, where, mesh) for aval, where in zip(types, shardings)]
    in_tree, out_tree = params["in_tree"], params["out_tree"]
    answer = params["partition"](
        *params["static_args"], mesh, in_tree.unflatten(infos[: len(values)]), out_tree.unflatten(infos[len(values) :])
    )
    if not isinstance(answer, (tuple, list)) or len(answer) != 4:
        raise ValueError(
            "custom_partitioning: partition must return the mesh, the function of the parts, the results' shardings "
            f"and the arguments', got {answer!r}"
        )
    mesh, function, results, arguments = answer
    if not isinstance(mesh, Mesh) or not callable(function):
        raise ValueError(
            f"custom_partitioning: partition must return a Mesh and a function first, got {mesh!r} and {function!r}"
        )
    in_specs = _specs(in_tree, arguments, types[: len(values)], mesh, "arguments")
    out_specs = _specs(out_tree, results, avals, mesh, "results")
    tiles = [NamedSharding(mesh, spec).shard_shape(aval.shape) for spec, aval in zip(out_specs, avals)]

    def of_parts(*parts):
        found = function(*in_tree.unflatten(parts))
        leaves, tree = tree_util.tree_flatten(found)
        got = [(tuple(x.shape), x.dtype) for x in map(core.as_array, leaves)]
        wanted = [(tuple(tile), aval.dtype) for tile, aval in zip(tiles, avals)]
        if tree != out_tree or got != wanted:
            raise ValueError(
                "custom_partitioning: Mismatch in result shapes. The function of the parts, which partition returned, "
                f"gives {_listed(got)}, and parts of results that are divided as {results} are {_listed(wanted)}"
            )
        return leaves

    with using_abstract(mesh.abstract_mesh):
        return shard_map(
            of_parts, mesh=mesh, in_specs=tuple(in_specs), out_specs=list(out_specs), check_vma=False
        )(*values)


def _info(aval, where, mesh) -> ShapeDtypeStruct:
    spec = filled(where.spec, aval.ndim) if isinstance(where, NamedSharding) else PartitionSpec(*[None] * aval.ndim)
    return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=NamedSharding(mesh, spec))


def _listed(types) -> str:
    return ", ".join(core.ShapedArray(shape, dtype).str_short() for shape, dtype in types) or "nothing"


def _specs(tree, shardings, avals, mesh, what) -> list[PartitionSpec]:
    """The specs of a tree of shardings.

    Errors: ValueError for another tree, for what is no sharding of this mesh, and where parts would not be equal.
    """
    try:
        leaves = tree.flatten_up_to(shardings)
    except ValueError as error:
        raise ValueError(f"custom_partitioning: shardings of the {what}, from partition: {error}") from None
    specs = []
    for number, (where, aval) in enumerate(zip(leaves, avals)):
        if not isinstance(where, Sharding):
            raise ValueError(
                f"custom_partitioning: partition must return shardings of the {what}, got {where!r} of type "
                f"{type(where).__name__}"
            )
        if not isinstance(where, NamedSharding) or where.mesh.shape_tuple != mesh.shape_tuple:
            raise ValueError(
                f"custom_partitioning: shardings of the {what} must be NamedShardings over the mesh that partition "
                f"returned, {mesh}, got {where}"
            )
        try:
            where.shard_shape(aval.shape)
        except (IndivisibleError, ValueError) as error:
            raise ValueError(f"custom_partitioning: {what}, number {number}: {error}") from None
        specs.append(where.spec)
    return specs


placed_programs.asks(custom_partitioning_p, _stands_for, _placed, _call)
