"""Derivatives and batches of `shard_map`: those of its jaxpr, on each device.

What goes in is an equation's parameters, what comes out is the equation of the jaxpr that the native core makes
of it. Values that a linear program keeps are cut along all axes over which they differ, scalars along an axis of
their own; those that are arguments, or results that are cut so, are taken from there. By types, a cotangent is summed
over the devices where a value stopped to be the same on all of them, so that nothing is to be done here. Where types
say nothing (`check_vma=False`) each device has a share of the cotangent of what `out_specs` says to be the same on all,
and that of what `in_specs` says to be the same is the sum of theirs. Cost: that of the transformation of the jaxpr.
"""

from __future__ import annotations

import math

from ferrax._src import core
from ferrax._src.base import config
from ferrax._src.core import named_axes
from ferrax._src.core.dead_code import call_rule, dce_rules
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.manual_axes import ManualAxisType
from ferrax._src.core.partition import PartitionSpec, names_of
from ferrax._src.core.primitives import (
    apply_program,
    axis_primitive_batchers,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.lax.parallel import pmean, psum
from ferrax._src.lax.shape import expand_dims, squeeze
from ferrax._src.parallel.part_jaxprs import on_each_device
from ferrax._src.parallel.shard_map_primitive import shard_map_p
from ferrax._src.parallel.shard_map_programs import differing
from ferrax._src.parallel.shard_map_specs import named_in
from ferrax._src.tracing import staging
from ferrax._src.transforms.ad import Zero, is_undefined_primal


def bind_over(program, args, in_specs, out_specs, params):
    """The equation over another program for the parts."""
    check_vma, manual = params["check_vma"], params["newly_manual_axes"]
    jaxpr = ClosedJaxpr(differing(program, out_specs, manual, check_vma)).open
    params = params | {"jaxpr": jaxpr, "in_specs": tuple(in_specs), "out_specs": tuple(out_specs)}
    return shard_map_p.bind(*args, **params)


def program_of(params):
    return ClosedJaxpr(params["jaxpr"])._to_program()


def staged(function, types, params):
    """The program of a function of arrays of these types, on each device."""
    with on_each_device(params["mesh"], params["newly_manual_axes"], params["check_vma"]):
        return staging.stage(function, [core.ShapedArray(*ty) for ty in types], {})[0]


def _jvp(primals, tangents, **params):
    # Two equations, so that reverse mode finds the outputs without tangents.
    there = [type(t) is not Zero for t in tangents]
    primal, linear, flags = program_of(params).linearize(there)
    count, in_specs, out_specs = len(flags), params["in_specs"], params["out_specs"]
    kept_specs = [kept_spec(ty, params) for ty in primal.out_types[count:]]
    sources = _sources(primal, kept_specs, params)
    own = [number for number, source in enumerate(sources) if source is None]
    primal = primal.select_outputs([*range(count), *(count + number for number in own)])
    own_specs = [kept_specs[number] for number in own]
    kept_specs = [
        spec if source is None else params[source[0]][source[1]] for spec, source in zip(kept_specs, sources)
    ]
    own_scalars = [bool(spec.partitions) and not ty[0] for spec, ty in zip(own_specs, primal.out_types[count:])]
    scalars = [False] * len(sources)
    for number, flag in zip(own, own_scalars):
        scalars[number] = flag

    def with_axes(*args):
        results = apply_program(primal, list(args))
        residuals = [expand_dims(x, (0,)) if flag else x for x, flag in zip(results[count:], own_scalars)]
        return [*results[:count], *residuals]

    def without_axes(*args):
        residuals = [squeeze(x, (0,)) if flag else x for x, flag in zip(args, scalars)]
        return apply_program(linear, [*residuals, *args[len(kept_specs) :]])

    if any(scalars):
        types = [((1,), *ty[1:]) if flag else ty for ty, flag in zip(linear.in_types, scalars)]
        types += linear.in_types[len(kept_specs) :]
        primal = staged(with_axes, primal.in_types, params)
        linear = staged(without_axes, types, params)
    results = bind_over(primal, primals, in_specs, (*out_specs, *own_specs), params)
    rest = iter(results[count:])
    given_by = {"in_specs": primals, "out_specs": results}
    kept = [next(rest) if source is None else given_by[source[0]][source[1]] for source in sources]
    given = [(t, spec) for t, spec, flag in zip(tangents, in_specs, there) if flag]
    moved = iter(
        bind_over(
            linear,
            [*kept, *(t for t, _ in given)],
            (*kept_specs, *(spec for _, spec in given)),
            [spec for spec, flag in zip(out_specs, flags) if flag],
            params,
        )
    )
    outs = results[:count]
    return outs, [next(moved) if flag else Zero.from_primal_value(out) for out, flag in zip(outs, flags)]


def _sources(primal, kept_specs, params):
    """For each value that is kept behind the results where it is found too: `(the name of specs, number)`, or None."""
    manual = params["newly_manual_axes"]
    inputs, outputs, _ = primal.interface()
    count = len(outputs) - len(kept_specs)
    results = list(zip(outputs[:count], params["out_specs"]))

    def source(atom, kept):
        if not isinstance(atom, int):
            return None
        if atom in inputs:
            return "in_specs", inputs.index(atom)
        for number, (result, spec) in enumerate(results):
            # A result has the parts of all devices if it is cut along the axes along which they differ, and no others.
            if result == atom and not spec.unreduced and not kept.unreduced and spec.reduced == kept.reduced:
                if set(named_in(spec, manual)) == set(names_of(kept.partitions)):
                    return "out_specs", number
        return None

    return [source(atom, spec) for atom, spec in zip(outputs[count:], kept_specs)]


def kept_spec(ty, params):
    """The spec of a value that is kept on each device."""
    mesh, manual = params["mesh"], params["newly_manual_axes"]
    lies = core.ShapedArray(*ty).manual_axis_type if params["check_vma"] else ManualAxisType(varying=manual)
    cut = (lies.varying & manual).difference(named_axes.all_batched_over())
    names = tuple(name for name in mesh.axis_names if name in cut)
    sums = {"unreduced": lies.unreduced & manual, "reduced": lies.reduced & manual}
    return PartitionSpec(names, **sums) if names else PartitionSpec(**sums)


def _transpose(cotangents, *args, **params):
    linear = [is_undefined_primal(x) for x in args]
    there = [type(ct) is not Zero for ct in cotangents]
    program, flags = program_of(params).transpose(linear, there)
    known = [(x, spec) for x, spec, flag in zip(args, params["in_specs"], linear) if not flag]
    given = [(ct, _dual(spec)) for ct, spec, flag in zip(cotangents, params["out_specs"], there) if flag]
    wanted = [_dual(spec) for spec, flag in zip(params["in_specs"], flags) if flag]
    if not params["check_vma"]:
        program = _shared(program, len(known), [spec for _, spec in given], wanted, params)
    operands = [x for x, _ in (*known, *given)]
    in_specs = [spec for _, spec in (*known, *given)]
    found = iter(bind_over(program, operands, in_specs, wanted, params))
    return [next(found) if flag else None for flag in flags]


def _dual(spec):
    """The spec of cotangents."""
    return spec.update(unreduced=spec.reduced, reduced=spec.unreduced)


def _shared(program, count, given, wanted, params):
    """The transposed program whose cotangents, after `count` known operands, are shared between devices."""
    mesh, manual = params["mesh"], params["newly_manual_axes"]

    def others(spec):
        named = (*named_in(spec, manual), *spec.unreduced, *spec.reduced, *named_axes.all_batched_over())
        return tuple(name for name in mesh.axis_names if name in manual and name not in named)

    def shared(*args):
        sizes = [math.prod(mesh.shape[name] for name in others(spec)) for spec in given]
        cts = [ct if size == 1 else ct / size for ct, size in zip(args[count:], sizes)]
        results = apply_program(program, [*args[:count], *cts])
        results = [psum(x, names) if (names := others(spec)) else x for x, spec in zip(results, wanted)]
        # That of a sum is the same for all its terms.
        return [
            pmean(x, tuple(name for name in mesh.axis_names if name in spec.reduced)) if spec.reduced else x
            for x, spec in zip(results, wanted)
        ]

    return staged(shared, program.in_types, params)


def _batch(size, axis_name, trace_type, args, dims, **params):
    axis = None if axis_name is None else named_axes.text(axis_name)
    mesh, manual = params["mesh"], params["newly_manual_axes"]
    names = _divided_over(named_axes.batched_over(), params)
    size //= math.prod(mesh.shape[name] for name in names)
    program, out_dims = program_of(params).batch(size, list(dims), None, axis)
    in_specs = [_with_axis(spec, dim, names) for spec, dim in zip(params["in_specs"], dims)]
    out_specs = [_with_axis(spec, dim, names) for spec, dim in zip(params["out_specs"], out_dims)]
    if names and params["check_vma"]:
        program = staged(
            lambda *args: apply_program(program, list(args)),
            [_varying_more(ty, spec, manual) for ty, spec in zip(program.in_types, in_specs)],
            params,
        )
    return bind_over(program, args, in_specs, out_specs, params), out_dims


def _divided_over(names, params):
    """Those of the axes that the function is run over. Errors: ValueError for axes that its specs name."""
    specs = (*params["in_specs"], *params["out_specs"])
    named = {name for spec in specs for name in names_of(spec.partitions)}
    both = [name for name in names if name in named]
    if both and not config.disable_vmap_shmap_error.value:
        raise ValueError(
            f"vmap of shard_map: the batch is divided over {both}, which the specs of the function name too: a batch "
            "needs axes of its own"
        )
    return tuple(name for name in names if name in params["newly_manual_axes"] and name not in named)


def _varying_more(ty, spec, manual):
    """The type of a part that differs along all axes that its spec names."""
    varying = {named_axes.text(name) for name in named_in(spec, manual)} | set(*ty[3:])
    return (*ty[:3], tuple(sorted(varying)))


def _with_axis(spec, dim, names):
    """The spec of an array with another axis there, which is cut over these axes of the mesh."""
    if dim is None or not names and dim >= len(spec.partitions):
        return spec
    entries = (*spec.partitions, *[None] * (dim - len(spec.partitions)))
    own = names[0] if len(names) == 1 else names or None
    return spec.update(partitions=(*entries[:dim], own, *entries[dim:]))


dce_rules[shard_map_p] = call_rule("jaxpr")
primitive_jvps[shard_map_p] = _jvp
primitive_transposes[shard_map_p] = _transpose
axis_primitive_batchers[shard_map_p] = _batch
