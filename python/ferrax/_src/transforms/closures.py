"""`closure_convert`: a function's captured arrays as arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import api_util, float0
from ferrax._src.core.primitives import apply_program
from ferrax._src.tracing import staging

__all__ = ["closure_convert"]


def closure_convert(
    fun: Callable[..., Any], *example_args: Any, every: bool = False
) -> tuple[Callable[..., Any], list[Any]]:
    """Makes the traced values that `fun` closes over arguments of a new function.

    Args:
      fun: a function of arrays and pytrees of them.
      example_args: arguments that say on which types `fun` will be called.
      every: take out every captured array; else traced ones of inexact dtype only, for these alone
        can be differentiated in.

    Returns:
      `(converted, values)` with `converted(*args, *values)` equal to `fun(*args)`. Arguments must
      have the types and the tree structure of `example_args`.

    Errors: TypeError if `converted` is called with other trees.

    Example:
        >>> y = jnp.float32(2.0)
        >>> converted, values = ferrax.closure_convert(lambda x: x * y, 1.0)
        >>> converted(3.0, *values)
        Array(6., dtype=float32)
    """
    program, captured, flat = staging.stage(fun, example_args, {})
    if flat.touched is not None:
        raise ValueError(
            f"closure_convert: {api_util.fun_place(fun)} uses a mutable array. Pass its value, "
            "ref[...], as an argument."
        )
    taken = [
        every or (isinstance(value, core.Tracer) and dtypes.has_tangent(value.dtype)) for value in captured
    ]
    in_tree = float0.flatten((example_args, {}))[1]
    count = len(example_args)

    def converted(*args):
        args, values = args[:count], list(args[count:])
        leaves, tree = float0.flatten((args, {}))
        if tree != in_tree:
            raise TypeError(
                f"the converted function takes arguments of the structure {in_tree}, got {tree}"
            )
        if len(values) != sum(taken):
            raise TypeError(
                "the converted function takes the values that closure_convert gave as arguments behind "
                f"{count} of the function, {sum(taken)} of them one by one, got {len(values)}: call "
                "converted(*args, *values)"
            )
        given = iter(values)
        all_values = [next(given) if flag else own for own, flag in zip(captured, taken)]
        return flat.out_tree.unflatten(apply_program(program, [*leaves, *all_values]))

    return converted, [value for value, flag in zip(captured, taken) if flag]
