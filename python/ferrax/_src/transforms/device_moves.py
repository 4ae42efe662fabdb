"""`device_put` of traced values.

It is an equation (`device_put_p`), by which derivatives and batches know of it. A compiled function runs on the devices
of its arguments, and there it is the identity. Outside of compiled functions a transformation makes a program of a
call, too; such a one is run equation by equation where it moves values, so that each operation runs where its operands
are, as it would without the transformation.

Invariant: a cotangent goes back to where the value came from. That is known when the program runs: a residual without
elements (`_source_p`) is where the value was. Cost: a look through the equations of programs that transformations run,
from the first such equation of the process on; an eager operation for each equation of those that move values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.core import placement, primitives
from ferrax._src.core.explicit_types import with_axis
from ferrax._src.core.jaxpr import Jaxpr, bind_equation, interpret
from ferrax._src.core.partition import filled
from ferrax._src.core.placements import place, placed, placement as placement_of
from ferrax._src.core.primitives import (
    axis_primitive_batchers,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.core.sharding import NamedSharding, Sharding
from ferrax._src.lax.creation import full
from ferrax._src.transforms.ad import Zero
from ferrax._src.transforms.composites import composite


def _moved(x, where):
    """An array on these devices; a traced value, which a compiled function has, as it is."""
    return x if isinstance(x, core.Tracer) or where is None else placement.device_put(x, where)


def _put(*arrays, devices, **params):
    return [_moved(x, where) for x, where in zip(arrays, devices)]


def _source(x):
    """An array without elements that is where `x` is."""
    mark = full((0,), 0, np.int8)
    if isinstance(x, core.Tracer) or isinstance(mark, core.Tracer):
        return mark
    return placed(mark, *placement_of(x))


def _carry(x, source, *, device, back):
    """A tangent that goes to the device, or a cotangent that comes back to the source."""
    return _moved(x, placement_of(source).sharding if back else device)


device_put_p = composite("device_put", _put, multiple_results=True)
_source_p = composite("source_of_device_put", _source)
_carry_p = composite("device_put_linear", _carry)


def _put_jvp(primals, tangents, *, devices, **params):
    outs = device_put_p.bind(*primals, devices=devices, **params)
    made = [
        Zero.from_primal_value(out)
        if type(t) is Zero
        else _carry_p.bind(t, _source_p.bind(x), device=where, back=False)
        for out, x, t, where in zip(outs, primals, tangents, devices)
    ]
    return outs, made


def _put_transpose(cotangents, *args, devices, srcs, **params):
    """Of a linear function that is transposed, not differentiated: no more is known of where values were."""
    return [
        Zero(x.aval.to_tangent_aval()) if type(ct) is Zero
        else device_put_p.bind(ct, devices=(src,), srcs=(where,))[0]
        for ct, x, where, src in zip(cotangents, args, devices, srcs)
    ]  # fmt: skip


def _put_batch(size, axis_name, trace_type, args, dims, /, *, devices, **params):
    """A batch is on all the devices that an element is to be on, each of which has all elements."""
    devices = [_with_axis(where, x.ndim - 1, dim) for where, x, dim in zip(devices, args, dims)]
    return device_put_p.bind(*args, devices=tuple(devices), **params), list(dims)


def _source_jvp(primals, tangents):
    out = _source_p.bind(*primals)
    return out, Zero.from_primal_value(out)


def _source_batch(size, axis_name, trace_type, args, dims, /):
    return _source_p.bind(*args), None


def _carry_jvp(primals, tangents, **params):
    out, t = _carry_p.bind(*primals, **params), tangents[0]
    return out, Zero.from_primal_value(out) if type(t) is Zero else _carry_p.bind(t, primals[1], **params)


def _carry_transpose(cotangent, x, source, *, device, back):
    if type(cotangent) is Zero:
        return [Zero(x.aval.to_tangent_aval()), None]
    return [_carry_p.bind(cotangent, source, device=device, back=not back), None]


def _carry_batch(size, axis_name, trace_type, args, dims, /, *, device, back):
    (x, source), (dim, _) = args, dims
    return _carry_p.bind(x, source, device=_with_axis(device, x.ndim - 1, dim), back=back), dim


def _with_axis(where, rank, dim):
    """A place of an element as one of a batch along `dim`."""
    if dim is None or not isinstance(where, NamedSharding):
        return where
    return with_axis(where.update(spec=filled(where.spec, rank)), dim, None)


primitive_jvps[device_put_p] = _put_jvp
primitive_transposes[device_put_p] = _put_transpose
axis_primitive_batchers[device_put_p] = _put_batch
primitive_jvps[_source_p] = _source_jvp
axis_primitive_batchers[_source_p] = _source_batch
primitive_jvps[_carry_p] = _carry_jvp
primitive_transposes[_carry_p] = _carry_transpose
axis_primitive_batchers[_carry_p] = _carry_batch


def _traced(tracer: Any, where: Sharding) -> Any:
    """A traced value that is put there."""
    primitives.by_moves = _apply
    (result,) = device_put_p.bind(tracer, devices=(where,), srcs=(None,))
    return place(result, where)


_MOVING = device_put_p, _source_p, _carry_p


def _apply(program: Any, values: Sequence[Any]) -> list[Any] | None:
    """The outputs of a program that moves values; None for other programs, and where it becomes part of another one."""
    if any(isinstance(x, core.Tracer) for x in values):
        return None
    if not any(primitive in _MOVING for primitive, *_ in program.equations()):
        return None
    constants = program.constants()
    jaxpr = Jaxpr._of_program(program, 0, constants)
    return interpret(jaxpr, [value for _, value in constants], values, bind_equation)


placement.of_traced = _traced
