"""Binary functions on scalars, as `lax.reduce` and `lax.reduce_window` take them: recognised where
they are one op, traced to jaxprs, applied to vectors, and folded over axes in a tree."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from ferrax._core import Array, bind, trace_program
from ferrax._src.base import dtypes
from ferrax._src.base.traceback_util import behind
from ferrax._src.core import ShapeDtypeStruct, is_concrete, to_concrete_value
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.lax import elementwise
from ferrax._src.lax.arguments import describe as _describe, operand as _operand
from ferrax._src.lax.reduce import (
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    reduce_xor,
)
from ferrax._src.lax.shape import _broadcast_to, concatenate, reshape, transpose
from ferrax._src.tracing import known
from ferrax._src.tracing.staging import make_jaxpr
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.jit import jit
from ferrax._src.tree.tree_util import tree_flatten, tree_unflatten

# What ``lax.reduce`` recognises: a computation of one op, by the op's name.
MONOIDS = {
    "add": (reduce_sum, elementwise.add),
    "mul": (reduce_prod, elementwise.mul),
    "max": (reduce_max, elementwise.max),
    "min": (reduce_min, elementwise.min),
    "and": (reduce_and, elementwise.bitwise_and),
    "or": (reduce_or, elementwise.bitwise_or),
    "xor": (reduce_xor, elementwise.bitwise_xor),
}
_KNOWN_FUNCTIONS = {combine: name for name, (_, combine) in MONOIDS.items()}


def known_monoid(computation: Callable) -> str | None:
    """The name of the op if ``computation`` is a function of this package for one, or None."""
    try:
        return _KNOWN_FUNCTIONS.get(behind(computation))
    except TypeError:
        return None


def monoid_of(jaxpr) -> str | None:
    """The name of the one op that a jaxpr of two scalars is, or None."""
    inputs = jaxpr.invars
    while len(jaxpr.eqns) == 1:
        (equation,) = jaxpr.eqns
        if list(equation.invars) not in ([inputs[0], inputs[1]], [inputs[1], inputs[0]]):
            return None
        if list(equation.outvars) != list(jaxpr.outvars):
            return None
        name = equation.primitive.name
        if name in ("jit", "pjit"):
            jaxpr = equation.params["jaxpr"].open
            inputs = jaxpr.invars
            continue
        return name if name in MONOIDS else None
    return None


def identity_of(name: str, dtype):
    """The number that combined with another one leaves that as it is."""
    if name in ("add", "or", "xor"):
        return 0
    if name == "mul":
        return 1
    if name == "and":
        return 1 if dtypes.issubdtype(dtype, np.bool_) else int(~np.zeros((), dtype))
    if dtypes.issubdtype(dtype, np.bool_):
        return name == "min"
    if dtypes.issubdtype(dtype, np.inexact):
        return -math.inf if name == "max" else math.inf
    info = dtypes.iinfo(dtype)
    return int(info.min if name == "max" else info.max)


def is_identity(name: str, value: Array) -> bool:
    """Whether ``value`` is known, and the identity on numbers of its dtype. It stands for that of any
    other: maxima of integers may start from -inf."""
    if dtypes.issubdtype(value.dtype, dtypes.extended) or not is_concrete(value):
        return False
    number = to_concrete_value(value)
    if name in ("and", "or", "xor") and dtypes.issubdtype(number.dtype, np.inexact):
        return False
    return number.item() == identity_of(name, number.dtype)


def scalar_jaxpr(name: str, computation: Callable, tree, like: list):
    """``computation`` on scalars as a closed jaxpr; None if it uses values that are being traced,
    for which a jaxpr has no place.

    Errors: ValueError if it returns another tree, other shapes or dtypes.
    """
    monoid = known_monoid(computation)
    if monoid is not None and len(like) == 1:
        return _known_jaxpr(monoid, like[0].dtype)
    types = [((), x.dtype, False) for x in (*like, *like)]
    jaxpr, key = known.find(computation, (name, tree, *types))
    if jaxpr is not None:
        return jaxpr
    combine = _checked(name, computation, tree, like)
    count = len(like)
    program, captured, refs = trace_program(
        lambda leaves: combine(leaves[:count], leaves[count:]), "stage", name, types
    )
    if not known.lasting(captured, refs):
        return None
    jaxpr = ClosedJaxpr(program, captured)
    if key is not None:
        known.keep(computation, key, jaxpr)
    return jaxpr


@functools.cache
def _known_jaxpr(name: str, dtype):
    scalar = ShapeDtypeStruct((), dtype)
    return make_jaxpr(MONOIDS[name][1])(scalar, scalar)


def vectorized(name: str, computation: Callable, tree, like: list) -> Callable:
    """``computation`` on two lists of vectors; traced once for each length.

    Errors of a call: ValueError if it returns another tree, other shapes or dtypes.
    """
    return jit(vmap(_checked(name, computation, tree, like)))


def _checked(name: str, computation: Callable, tree, like: list) -> Callable:
    """``computation`` on two lists of scalars, with its results checked."""
    def combine(a, b):
        out = computation(tree_unflatten(tree, a), tree_unflatten(tree, b))
        leaves, out_tree = tree_flatten(out)
        if out_tree != tree:
            raise ValueError(
                f"{name}: the function has to return the pytree structure of the operands, {tree}, "
                f"got {out_tree}"
            )
        leaves = [_operand(leaf, name) for leaf in leaves]
        for leaf, x in zip(leaves, like):
            if leaf.shape or leaf.dtype != x.dtype:
                raise ValueError(
                    f"{name}: the function must return scalars of the operands' dtypes "
                    f"{[x.dtype.name for x in like]}, got {[_describe(leaf) for leaf in leaves]}."
                )
        return leaves

    return combine


def reduced(jaxpr, combine: Callable, flat: list, init: list, axes: tuple[int, ...]) -> list:
    """The reductions of arrays by the function that a jaxpr of scalars is; ``combine`` is the same
    function of two lists of vectors."""
    if not axes:
        return list(flat)
    name = monoid_of(jaxpr) if len(flat) == 1 else None
    if name is None:
        return tree_reduce(combine, flat, init, tuple(sorted(axes)))
    reduction, function = MONOIDS[name]
    start = _broadcast_to(init[0], _kept_shape(flat[0], axes))
    return [function(reduction(flat[0], axes), start)]


def tree_reduce(combine: Callable, flat: list, init: list, axes: tuple[int, ...]) -> list:
    """Reduces by combining neighbours until one row remains, so that their order is kept."""
    kept = [axis for axis in range(flat[0].ndim) if axis not in axes]
    kept_shape = _kept_shape(flat[0], axes)
    count, rest = math.prod([flat[0].shape[a] for a in axes]), math.prod(kept_shape)
    rows = [reshape(transpose(x, (*axes, *kept)), (count, rest)) for x in flat]

    def part(x, start, stop, every=1):
        params = {"start_indices": (start, 0), "limit_indices": (stop, rest), "strides": (every, 1)}
        return bind("slice", (x,), params)

    def vectors(xs):
        return [reshape(x, (x.shape[0] * rest,)) for x in xs]

    while count > 1:
        half = count // 2
        left = vectors([part(x, 0, 2 * half, 2) for x in rows])
        right = vectors([part(x, 1, 2 * half, 2) for x in rows])
        joined = [reshape(x, (half, rest)) for x in combine(left, right)]
        if count % 2:
            joined = [concatenate([x, part(t, count - 1, count)], 0) for x, t in zip(joined, rows)]
        rows, count = joined, half + count % 2
    first = [_broadcast_to(x, (rest,)) for x in init]
    if count and rest:
        first = combine(first, vectors(rows))
    return [reshape(x, kept_shape) for x in first]


def _kept_shape(x: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([size for axis, size in enumerate(x.shape) if axis not in axes])
