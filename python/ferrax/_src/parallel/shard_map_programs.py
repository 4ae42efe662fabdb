"""The programs that an equation `shard_map` stands for.

What goes in is the jaxpr of one device's part and the parameters of the equation; what comes out is the program of
each device, whose types say nothing of the mesh (`device_program`), or what the equation computes of whole arrays
(`whole`): arguments are cut into parts, that program is batched over each axis of the mesh, which makes operations of
arrays of its collectives, and the results are put together. Cost: a batch of the jaxpr for each axis; at run time the
cuts and joins are views, or copies where an axis behind the first is cut.

Invariant: an axis of size one cuts nothing. Its parts are the arrays, its batch only removes collectives, and what the
jaxpr does stays as it is.
"""

from __future__ import annotations

import math

from ferrax._src import core
from ferrax._src.core import named_axes
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.manual_axes import ManualAxisType, texts_of
from ferrax._src.core.partition import entry_names, names_of
from ferrax._src.core.primitives import apply_program
from ferrax._src.lax.creation import full_like
from ferrax._src.lax.elementwise import select
from ferrax._src.lax.parallel import axis_index, psum
from ferrax._src.lax.shape import broadcast, reshape, transpose
from ferrax._src.lax.slicing import index_in_dim
from ferrax._src.lax.varying import as_terms, lying
from ferrax._src.parallel.part_jaxprs import on_each_device
from ferrax._src.parallel.shard_map_specs import named_in
from ferrax._src.tracing import staging


def device_program(jaxpr, mesh, in_specs, out_specs, newly_manual_axes):
    """The program of each device, whose types say nothing of the mesh.

    What is unreduced is whole on the first device and zero on the others where it enters, and summed where it leaves.
    """
    program = ClosedJaxpr(jaxpr)._to_program().erase_varying()
    if not any(spec.unreduced for spec in (*in_specs, *out_specs)):
        return program

    def order(names):
        return tuple(name for name in mesh.axis_names if name in names)

    def on_first(x, names):
        index = axis_index(order(names))
        return select(broadcast(index == 0, x.shape), x, full_like(x, 0)) if names else x

    def summing(*args):
        parts = [on_first(x, spec.unreduced) for x, spec in zip(args, in_specs)]
        results = apply_program(program, parts)
        return [psum(x, order(spec.unreduced)) for x, spec in zip(results, out_specs)]

    with on_each_device(mesh, newly_manual_axes, False):
        types = [core.ShapedArray(*ty) for ty in program.in_types]
        return staging.stage(summing, types, {})[0].erase_varying()


def differing(program, specs, manual, check_vma):
    """The program whose results lie by type over the axes that their specs name as these say."""
    if not check_vma:
        return program
    wanted = [
        texts_of(
            ManualAxisType(varying=set(named_in(spec, manual)), unreduced=spec.unreduced, reduced=spec.reduced)
        )
        for spec in specs
    ]
    if all(set(texts) <= set(*ty[3:]) for texts, ty in zip(wanted, program.out_types)):
        return program

    def differ(*args):
        results = apply_program(program, list(args))
        return [_as_terms(lying(x, texts), texts) for x, texts in zip(results, wanted)]

    return staging.stage(differ, [core.ShapedArray(*ty) for ty in program.in_types], {})[0]


def _as_terms(x, wanted):
    sums = {name[1:] for name in wanted if name.startswith(named_axes.UNREDUCED)}
    return as_terms(x, tuple(sorted(sums & set(x._varying))))


def whole(*args, jaxpr, mesh, in_specs, out_specs, check_vma, newly_manual_axes):
    """What the equation computes, of whole arrays."""
    program = device_program(jaxpr, mesh, in_specs, out_specs, newly_manual_axes)
    manual = [name for name in mesh.axis_names if name in newly_manual_axes]
    large = [name for name in manual if mesh.shape[name] > 1]
    cut = [[name for name in large if name in names_of(spec.partitions)] for spec in in_specs]
    values = [_cut(x, spec, large, mesh) if large else x for x, spec in zip(args, in_specs)]
    outputs: list[dict] = [{} for _ in out_specs]
    for name in reversed(manual):
        dims = [0 if name in names else None for names in cut]
        with named_axes.over_devices(name):
            program, found = program.batch(mesh.shape[name], dims, None, named_axes.text(name))
        for axes, dim in zip(outputs, found):
            if dim is not None:
                axes |= {known: at + (dim <= at) for known, at in axes.items()}
                axes[name] = dim
    results = apply_program(program, values)
    return [
        _join(x, spec, axes, mesh) if axes or large else x
        for x, spec, axes in zip(results, out_specs, outputs)
    ]


def _cut(x, spec, order, mesh):
    """The parts of an array, along new leading axes: those of `order` that cut it, in that order."""
    entries = [[name for name in entry_names(entry) if name in order] for entry in spec.partitions]
    counts = [[mesh.shape[name] for name in names] for names in entries]
    counts += [[] for _ in range(x.ndim - len(counts))]
    named = [name for names in entries for name in names]
    sizes: list[int] = []
    local: list[int] = []
    places: list[int] = []
    for size, parts in zip(x.shape, counts):
        places += range(len(sizes), len(sizes) + len(parts))
        sizes += [*parts, size // math.prod(parts)]
        local.append(len(sizes) - 1)
    place = dict(zip(named, places))
    front = [place[name] for name in order if name in place]
    return transpose(reshape(x, sizes), front + local)


def _join(x, spec, axes, mesh):
    """The array that parts make which lie along the axes `axes`, by name; one that lies along none is
    the same on all devices."""
    named = names_of(spec.partitions)
    for name in [name for name in axes if name not in named]:
        x = index_in_dim(x, 0, axes[name], keepdims=False)
        axes = {n: at - (at > axes[name]) for n, at in axes.items() if n != name}
    missing = [name for name in named if name not in axes]
    x = broadcast(x, [mesh.shape[name] for name in missing])
    axes = {name: at + len(missing) for name, at in axes.items()}
    axes |= {name: number for number, name in enumerate(missing)}
    local = [axis for axis in range(x.ndim) if axis not in axes.values()]
    order, sizes = [], []
    entries = [entry_names(entry) for entry in spec.partitions]
    entries += [()] * (len(local) - len(entries))
    for axis, names in zip(local, entries):
        order += [*(axes[name] for name in names), axis]
        sizes.append(x.shape[axis] * math.prod(mesh.shape[name] for name in names))
    return reshape(transpose(x, order), sizes)
