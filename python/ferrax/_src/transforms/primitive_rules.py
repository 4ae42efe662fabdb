"""The rules of primitives that are defined in Python, as the native core asks for them.

Each function looks a rule up, calls it by JAX's protocol on traced values, checks what it gives,
and returns a program for the native core to put in the equation's place. Types are
`(shape, dtype, weak)`. Parameters are passed on as they are.
"""

from __future__ import annotations

import dataclasses

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes, effects, errors
from ferrax._src.core import named_axes, primitives
from ferrax._src.dims.sizes import is_constant_shape
from ferrax._src.dims.solving import substitute
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.transforms import ad
from ferrax._src.transforms.ad import UndefinedPrimal, Zero
from ferrax._src.transforms.linearized import orders


def abstract_eval(primitive, params, types):
    """`(types of the outputs, whether it has unordered effects, whether ordered ones, the texts of
    the named axes that it sees)`."""
    avals, found = primitive.abstract_eval(*map(_aval, types), **params)
    if primitive.multiple_results:
        if not isinstance(avals, (tuple, list)):
            raise ValueError(
                f"The abstract evaluation of '{primitive}', which has multiple results, must "
                f"return a sequence of types, got {avals!r}"
            )
    elif isinstance(avals, (tuple, list)):
        raise ValueError(
            f"The abstract evaluation of '{primitive}' must return one type, got the sequence {avals!r}; "
            f"a primitive with several results says so by {primitive}_p.multiple_results = True"
        )
    else:
        avals = [avals]
    for aval in avals:
        if not (hasattr(aval, "shape") and hasattr(aval, "dtype")):
            raise TypeError(
                f"The abstract evaluation of '{primitive}' must return types such as "
                f"ShapedArray(shape, dtype), got {aval!r}"
            )
    axes = {effect for effect in found if isinstance(effect, effects.NamedAxisEffect)}
    happen = set(found) - axes
    ordered = any(effects.ordered_effects.contains(effect) for effect in happen)
    texts = [named_axes.text(effect.name) for effect in axes]
    types = [primitives.aval_type(aval) for aval in avals]
    return types, bool(happen) and not ordered, ordered, texts


def _host(primitive):
    """The Python code that a primitive is in compiled programs, or None: what `def_impl` was given, where
    the lowering is no function of existing operations, or where there is none and JAX would not compile."""
    if primitive._host is not None:
        return primitive._host
    lower = primitives.lowerings.get(primitive)
    if lower is None:
        known = primitives.at_once.depth or orders.derivatives
        return _implementation(primitive) if known else None
    return _implementation(primitive) if lower.writes_mlir else None


def _implementation(primitive):
    """What `def_impl` was given, or None where that is the lowering."""
    if "impl" not in vars(primitive) or _asks_for_lowering(primitive.impl):
        return None
    return primitive.impl


def _asks_for_lowering(impl) -> bool:
    return getattr(impl, "func", impl) is primitives.apply_primitive


def coupled_axes(primitive, params):
    """The axes along which elements depend on others; None if nothing is said of the primitive."""
    rule = primitives.coupled_axes.get(primitive)
    return None if rule is None else rule(**params)


def is_host(primitive) -> bool:
    """Whether the primitive runs as Python code in compiled programs."""
    return _host(primitive) is not None


def evaluate(primitive, params, arrays, types):
    """The outputs for concrete arrays."""
    host = _host(primitive)
    if host is None and primitive not in primitives.lowerings:
        host = _implementation(primitive)  # a step of a program that was compiled at once
    if host is None:
        program, _ = lowering(primitive, params, [_type(array) for array in arrays], types)
        return program.run(arrays)
    results = host(*arrays, **params)
    results = list(results) if primitive.multiple_results else [results]
    if primitive._host is not None:  # one of ferrax's own, which gives these types
        return results
    return _outputs(results, types, f"the implementation of '{primitive}'")


def jvp(primitive, params, types, nonzero, out_types):
    """The program from inputs and the flagged ones' tangents to outputs and those of their
    tangents that are not zero, and flags of these."""
    rule = primitives.primitive_jvps.get(primitive)
    if rule is None:
        raise NotImplementedError(
            f"Differentiation rule for '{primitive}' not implemented: give it with "
            f"ad.primitive_jvps[{primitive}_p] or ad.defjvp"
        )
    what = f"the jvp rule of '{primitive}'"
    flags = []

    def flat(leaves):
        primals, rest = leaves[: len(types)], iter(leaves[len(types) :])
        tangents = [
            next(rest) if flag else Zero(_aval(ty).to_tangent_aval())
            for ty, flag in zip(types, nonzero)
        ]
        outs, out_tangents = _pair(rule(tuple(primals), tuple(tangents), **params), what)
        if not primitive.multiple_results:
            outs, out_tangents = [outs], [out_tangents]
        outs = _outputs(outs, out_types, what)
        if len(out_tangents) != len(out_types):
            raise TypeError(f"{what} gave {len(out_tangents)} tangents of {len(out_types)}")
        given = []
        for tangent, (shape, dtype, *_) in zip(out_tangents, out_types):
            there = not _is_zero(tangent) and dtypes.has_tangent(dtype)
            flags.append(there)
            if there:
                tangent = core.as_array(tangent, what)
                _check(tangent, shape, dtype, f"{what}: a tangent")
                given.append(tangent)
        return outs + given

    given = [(*ty[:2], False, *ty[3:]) for ty, flag in zip(types, nonzero) if flag]
    return _trace(flat, primitive, [*types, *given], what), flags


def transpose(primitive, params, types, linear, out_types, given):
    """The program from known inputs and the cotangents that are there to the cotangents of the
    linear inputs that are not zero, and flags of these among all inputs."""
    rule = ad.get_primitive_transpose(primitive)
    what = f"the transpose rule of '{primitive}'"
    flags = []

    def flat(leaves):
        leaves = iter(leaves)
        args = [
            UndefinedPrimal(_aval(ty)) if flag else next(leaves)
            for ty, flag in zip(types, linear)
        ]
        cotangents = [
            next(leaves) if flag else Zero(_aval(ty).to_tangent_aval())
            for ty, flag in zip(out_types, given)
        ]
        given_to = cotangents if primitive.multiple_results else cotangents[0]
        results = rule(given_to, *args, **params)
        results = [None] * len(types) if results is None else list(results)
        if len(results) != len(types):
            raise TypeError(f"{what} gave {len(results)} cotangents for {len(types)} inputs")
        found = []
        for result, ty, flag in zip(results, types, linear):
            there = flag and result is not None and not _is_zero(result)
            flags.append(there)
            if there:
                result = core.as_array(result, what)
                _check(result, ty[0], ty[1], f"{what}: a cotangent")
                found.append(result)
        return found

    known = [ty for ty, flag in zip(types, linear) if not flag]
    cotangents = [(*ty[:2], False, *ty[3:]) for ty, flag in zip(out_types, given) if flag]
    return _trace(flat, primitive, [*known, *cotangents], what), flags


@dataclasses.dataclass(frozen=True)
class AxisData:
    """What a batching rule of `fancy_primitive_batchers` is told of the new axis."""

    name: object
    size: int
    spmd_name: object = None
    explicit_mesh_axis: object = None


def batch(primitive, params, batched, types, out_types):
    """The program over batched inputs, and where its outputs have the batch axis. `batched` is the
    axis' size, the text of its name or None, and where the inputs have it."""
    size, text, dims = batched
    dims = tuple(dims)
    name = None if text is None else named_axes.from_text(text)
    what = f"the batching rule of '{primitive}'"
    if primitive in primitives.fancy_primitive_batchers:
        rule = primitives.fancy_primitive_batchers[primitive]

        def call(args):
            return rule(AxisData(name, size), args, dims, **params)

    elif primitive in primitives.axis_primitive_batchers:
        rule = primitives.axis_primitive_batchers[primitive]

        def call(args):
            return rule(size, name, None, args, dims, **params)

    elif primitive in primitives.primitive_batchers:
        rule = primitives.primitive_batchers[primitive]

        def call(args):
            return rule(args, dims, **params)

    else:
        raise NotImplementedError(
            f"Batching rule for '{primitive}' not implemented: give it with "
            f"batching.primitive_batchers[{primitive}_p]"
        )
    out_dims = []

    def flat(leaves):
        outs, found = _pair(call(tuple(leaves)), what)
        if not primitive.multiple_results:
            outs, found = [outs], [found]
        if isinstance(found, int):
            found = [found] * len(outs)
        if not len(outs) == len(found) == len(out_types):
            raise TypeError(
                f"{what} gave {len(outs)} outputs and {len(found)} batch dimensions for "
                f"{len(out_types)} outputs"
            )
        arrays = []
        for out, dim, (shape, dtype, *_) in zip(outs, found, out_types):
            array = core.as_array(out, what)
            if dim is not None:
                dim = dim + array.ndim if dim < 0 else int(dim)
                shape = (*shape[:dim], size, *shape[dim:])
            _check(array, shape, dtype, f"{what}: an output batched at {dim}")
            out_dims.append(dim)
            arrays.append(array)
        return arrays

    return _trace(flat, primitive, types, what), out_dims


def lowering(primitive, params, types, out_types):
    """`(program, [])`: what the primitive is made of. One without results is made of nothing, if nobody says more."""
    lower = primitives.lowerings.get(primitive)
    if lower is None and not out_types:
        return _trace(lambda leaves: [], primitive, types, f"the lowering of '{primitive}'"), []
    if lower is None:
        raise primitives.lacks_lowering(
            primitive,
            f"Lowering rule for '{primitive}' not found: a primitive that is compiled (in jit, or "
            f"under a derivative) needs mlir.register_lowering({primitive}_p, "
            "mlir.lower_fun(function_of_existing_operations))",
        )
    what = f"the lowering of '{primitive}'"

    def flat(leaves):
        outs = lower.outputs(primitive, map(_aval, types), map(_aval, out_types), leaves, params)
        return _outputs(outs, out_types, what)

    return _trace(flat, primitive, types, what), []


def as_data(primitive, params, rules):
    """`(name, parameters)` of the op that files hold in the primitive's place, if there is one."""
    form = primitives.data_forms.get(primitive)
    return None if form is None else form(rules, **params)


def _aval(ty):
    return core.ShapedArray(*ty)


def _type(array):
    return array.shape, array.dtype, array.weak_type


def _is_zero(value) -> bool:
    # Rules may return the class itself.
    return value is None or value is Zero or type(value) is Zero


def _pair(result, what):
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(f"{what} must return a pair, got {result!r}")
    return result


def _check(array, shape, dtype, what):
    if tuple(array.shape) != tuple(shape) or array.dtype != dtype:
        raise TypeError(
            f"{what} must be {core.ShapedArray(shape, dtype).str_short()}, got "
            f"{core.ShapedArray(array.shape, array.dtype).str_short()}"
        )


def _outputs(outs, types, what):
    """Arrays of these types, weakness included."""
    outs = list(outs)
    if len(outs) != len(types):
        raise TypeError(f"{what} gave {len(outs)} outputs of {len(types)}")
    arrays = []
    for out, (shape, dtype, weak, *_) in zip(outs, types):
        array = core.as_array(out, what)
        _check(array, shape, dtype, f"{what}: an output")
        if array.weak_type != weak:
            array = _convert_element_type(array, dtype, weak_type=weak)
        arrays.append(array)
    return arrays


def _trace(flat, primitive, types, what):
    program, captured, refs = _core.trace_program(flat, "stage", str(primitive), types)
    if refs is not None:
        raise ValueError(
            f"{what} uses a mutable array. Rules are traced on their own: pass its value, "
            "ref[...], as an operand of the primitive."
        )
    for value in captured:
        if isinstance(value, core.Tracer):
            raise errors.UnexpectedTracerError(
                f"{what} uses a value of type {core.typeof(value)} that is being traced: "
                f"{_core.describe_tracer(value)}. Rules are traced on their own: pass values as "
                "operands of the primitive, not as parameters."
            )
    return program.bind_constants(captured) if captured else program


def specialised(params, values):
    """Parameters with values, sizes or symbolic dimensions, in place of dimension variables."""
    return {name: _substituted(param, values) for name, param in params.items()}


def _substituted(param, values):
    if isinstance(param, (tuple, list)) and not hasattr(param, "_fields"):
        return type(param)(_substituted(item, values) for item in param)
    if isinstance(param, core.ShapedArray) and not is_constant_shape(param.shape):
        shape = tuple(substitute(size, values) for size in param.shape)
        return param.update(shape=shape)
    return substitute(param, values)
