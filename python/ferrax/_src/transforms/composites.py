"""Primitives that are made of other operations, with rules that follow from these.

Such a primitive is one equation in jaxprs, for programs that look for it by name; compiled, it is
what it is made of.
"""

from __future__ import annotations

from ferrax._src import core
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import (
    Primitive,
    apply_program,
    axis_primitive_batchers,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.tracing import staging
from ferrax._src.transforms.ad import Zero, is_undefined_primal
from ferrax._src.transforms.autodiff import linear_transpose
from ferrax._src.transforms.batching import vmap


def composite(name, run, multiple_results=False) -> Primitive:
    """The primitive of this name that does what `run(*arrays, **params)` does.

    It is differentiated, transposed and batched as `run` is. Rules that keep the equation replace
    these in the registries.
    """
    primitive = Primitive(name)
    primitive.multiple_results = multiple_results

    def impl(*args, **params):
        results = run(*(core.as_array(x, name) for x in args), **params)
        return list(results) if multiple_results else results

    def listed(*args, **params):
        results = impl(*args, **params)
        return results if multiple_results else [results]

    primitive.def_impl(impl)

    def abstract_eval(*avals, **params):
        found = staging.eval_shape(lambda *args: listed(*args, **params), *avals)
        found = [core.ShapedArray(x.shape, x.dtype, x.weak_type) for x in found]
        return found if multiple_results else found[0]

    def jvp(primals, tangents, **params):
        # The outputs by a program of their own, so that reverse mode finds them without tangents.
        program, captured, _ = staging.stage(lambda *args: listed(*args, **params), primals, {})
        nonzero = [type(t) is not Zero for t in tangents] + [False] * len(captured)
        primal, linear, flags = program.linearize(nonzero)
        results = apply_program(primal, [*primals, *captured])
        outs, residuals = results[: len(flags)], results[len(flags) :]
        given = [t for t in tangents if type(t) is not Zero]
        moved = iter(apply_program(linear, [*residuals, *given]))
        found = [
            next(moved) if flag else Zero.from_primal_value(x) for x, flag in zip(outs, flags)
        ]
        return (outs, found) if multiple_results else (outs[0], found[0])

    def transpose(cotangents, *args, **params):
        cotangents = cotangents if multiple_results else [cotangents]
        return composite_transpose(listed, cotangents, args, params)

    def batch(size, axis_name, trace_type, args, dims, /, **params):
        outs = vmap(lambda *args: listed(*args, **params), in_axes=tuple(dims))(*args)
        return (outs, [0] * len(outs)) if multiple_results else (outs[0], 0)

    primitive.def_abstract_eval(abstract_eval)
    primitive_jvps[primitive] = jvp
    primitive_transposes[primitive] = transpose
    axis_primitive_batchers[primitive] = batch
    register_lowering(primitive, lower_fun(impl, multiple_results=multiple_results))
    return primitive


def composite_transpose(run, cotangents, args, params):
    """The cotangents of the inputs that are `UndefinedPrimal`s, None for others, where
    `run(*args, **params)` is a list of outputs that is linear in those."""
    linear = [is_undefined_primal(x) for x in args]
    if all(type(ct) is Zero for ct in cotangents):
        return [Zero(x.aval.to_tangent_aval()) if flag else None for x, flag in zip(args, linear)]

    def of_linear(*moving):
        values = iter(moving)
        outs = run(*(next(values) if flag else x for x, flag in zip(args, linear)), **params)
        return [out for out, ct in zip(outs, cotangents) if type(ct) is not Zero]

    given = [ct for ct in cotangents if type(ct) is not Zero]
    avals = [x.aval for x, flag in zip(args, linear) if flag]
    found = iter(linear_transpose(of_linear, *avals)(given))
    return [next(found) if flag else None for flag in linear]
