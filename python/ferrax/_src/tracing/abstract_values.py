"""What stands for a `ShapeDtypeStruct` that a traced function returns: a value of a program that has a
type and never a value. Shapes go through it; a program with it cannot be compiled or run."""

from __future__ import annotations

from ferrax import _core
from ferrax._src.core import lowering, primitives
from ferrax._src.core.avals import ShapedArray, ShapeDtypeStruct

abstract_value_p = primitives.Primitive("abstract_value")


@abstract_value_p.def_impl
def _no_value(*, aval):
    raise TypeError(
        f"a traced function returned a ShapeDtypeStruct, {aval.str_short()}, which has a type and no value: "
        "eval_shape and make_jaxpr go on with it, but a program with it cannot run. Return an array, such "
        "as jnp.zeros(struct.shape, struct.dtype)."
    )


abstract_value_p.def_abstract_eval(lambda *, aval: aval)
lowering.register_lowering(abstract_value_p, lowering.lower_fun(_no_value, multiple_results=False))


def stand_in(leaf):
    """The value that stands for a `ShapeDtypeStruct` in what is being traced; None for other leaves.

    Errors: TypeError where nothing is traced.
    """
    if not isinstance(leaf, ShapeDtypeStruct):
        return None
    return abstract_value_p.bind(aval=ShapedArray(leaf.shape, leaf.dtype, leaf.weak_type))


def refuse(program) -> None:
    """Errors: TypeError for a program with values that are none."""
    for primitive, params, *_ in program.equations():
        if primitive is abstract_value_p:
            _no_value(**params)
        for value in params.values():
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, _core.Program):
                    refuse(inner)
