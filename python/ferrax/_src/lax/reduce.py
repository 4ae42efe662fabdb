"""Reductions, argmax/argmin and cumulative functions of ``ferrax.lax``."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence

import numpy as np

from ferrax._core import Array, bind
from ferrax._src.base import dtypes
from ferrax._src.core import ensure_compile_time_eval, is_concrete, to_concrete_value
from ferrax._src.lax import elementwise
from ferrax._src.lax.arguments import (
    describe as _describe,
    int_tuple as _int_tuple,
    known_axis,
    operand as _operand,
    reject_out_sharding as _reject_out_sharding,
)
from ferrax._src.lax.shape import _broadcast_to, concatenate, reshape, transpose


def _check_axes(x: Array, axes: Sequence[int]) -> tuple[int, ...]:
    axes = _int_tuple(axes)
    if len(set(axes)) != len(axes):
        raise ValueError(f"duplicate value in 'axes' of reduction: {axes}")
    if not all(0 <= axis < x.ndim for axis in axes):
        raise ValueError(
            f"reduction axes {axes} contains out-of-bounds indices for {_describe(x)}."
        )
    return axes


def _reduction(name: str, x, axes: Sequence[int]) -> Array:
    x = _operand(x, name)
    return bind(name, (x,), {"axes": _check_axes(x, axes)})


def reduce_sum(operand, axes: Sequence[int], *, out_sharding=None):
    """Sum over ``axes`` (non-negative); the dtype, which must be numeric, stays.

    >>> lax.reduce_sum(jnp.ones((2, 3)), (1,))
    Array([3., 3.], dtype=float32)
    """
    _reject_out_sharding("reduce_sum", out_sharding)
    return _reduction("reduce_sum", operand, axes)


def reduce_prod(operand, axes: Sequence[int]):
    """Product over ``axes``; of nothing it is 1."""
    return _reduction("reduce_prod", operand, axes)


def reduce_max(operand, axes: Sequence[int]):
    """Maximum over ``axes``; NaN wins; of nothing it is the dtype's lowest value."""
    return _reduction("reduce_max", operand, axes)


def reduce_min(operand, axes: Sequence[int]):
    """Minimum over ``axes``; NaN wins; of nothing it is the dtype's highest value."""
    return _reduction("reduce_min", operand, axes)


def reduce_and(operand, axes: Sequence[int]):
    """Bitwise (for booleans logical) "and" over ``axes``."""
    return _reduction("reduce_and", operand, axes)


def reduce_or(operand, axes: Sequence[int]):
    """Bitwise (for booleans logical) "or" over ``axes``."""
    return _reduction("reduce_or", operand, axes)


def reduce_xor(operand, axes: Sequence[int]):
    """Bitwise (for booleans logical) "exclusive or" over ``axes``."""
    return _reduction("reduce_xor", operand, axes)


def _arg_reduction(name: str, x, axis: int, index_dtype) -> Array:
    index_dtype = dtypes.check_and_canonicalize_user_dtype(index_dtype, name)
    x = _operand(x, name)
    axis = operator.index(axis)
    if not 0 <= axis < x.ndim:
        raise ValueError(f"Invalid axis {axis} for operand shape {tuple(x.shape)}")
    if x.shape[axis] < 1:
        raise ValueError(
            "argmin and argmax require non-empty reduced dimension. "
            f"operand.shape={tuple(x.shape)} axis={axis}"
        )
    if index_dtype.kind not in "iu":
        raise TypeError(f"index_dtype must be an integer type, but got {index_dtype.name}")
    return bind(name, (x,), {"axes": (axis,), "index_dtype": index_dtype})


def argmax(operand, axis: int, index_dtype):
    """Position of the maximum along ``axis``; the first one, and NaN counts as the largest.

    >>> lax.argmax(jnp.array([1, 3, 2]), 0, jnp.int32)
    Array(1, dtype=int32)
    """
    return _arg_reduction("argmax", operand, axis, index_dtype)


def argmin(operand, axis: int, index_dtype):
    """Position of the minimum along ``axis``; the first one, and NaN counts as the smallest."""
    return _arg_reduction("argmin", operand, axis, index_dtype)


def _cumulative(name: str, x, axis: int, reverse: bool) -> Array:
    x = _operand(x, name)
    axis = known_axis(f"lax.{name}", axis)
    if axis < 0:
        raise ValueError(f"lax.{name} does not take negative axes, got axis {axis}")
    if axis >= x.ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of shape {tuple(x.shape)}")
    return bind(name, (x,), {"axis": axis, "reverse": bool(reverse)})


def cumsum(operand, axis: int = 0, reverse: bool = False):
    """Running sums along ``axis``, from the end if ``reverse``.

    >>> lax.cumsum(jnp.array([1, 2, 3]), reverse=True)
    Array([6, 5, 3], dtype=int32)
    """
    return _cumulative("cumsum", operand, axis, reverse)


def cumprod(operand, axis: int = 0, reverse: bool = False):
    """Running products along ``axis``, from the end if ``reverse``."""
    return _cumulative("cumprod", operand, axis, reverse)


def cummax(operand, axis: int = 0, reverse: bool = False):
    """Running maxima along ``axis``, from the end if ``reverse``."""
    return _cumulative("cummax", operand, axis, reverse)


def cummin(operand, axis: int = 0, reverse: bool = False):
    """Running minima along ``axis``, from the end if ``reverse``."""
    return _cumulative("cummin", operand, axis, reverse)


def cumlogsumexp(operand, axis: int = 0, reverse: bool = False):
    """Running ``log(sum(exp(x)))`` along ``axis`` without overflow."""
    return _cumulative("cumlogsumexp", operand, axis, reverse)


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


def reduce(
    operands, init_values, computation: Callable, dimensions: Sequence[int], out_sharding=None
):
    """Combines the elements along ``dimensions`` with a binary function.

    Args:
      operands: an array, or a pytree of arrays of one shape.
      init_values: a scalar of the same dtype (or a pytree of scalars): the function's identity.
      computation: ``(a, b) -> c`` on scalars (or pytrees of scalars), associative.
      dimensions: axes to reduce.

    Returns arrays without those axes. One-op functions (sum, product, maximum, minimum, and, or,
    xor) run as that reduction; any other is applied to neighbours in row-major order, in a tree of
    log2(n) steps over vectors: it need not be commutative.

    Errors: ValueError for other trees of initial values or results, unequal shapes, initial values
    that are no scalars, and axes that are out of range or repeated; TypeError for dtypes that do
    not fit.

    >>> lax.reduce(jnp.arange(4), 0, lax.add, (0,))
    Array(6, dtype=int32)
    """
    from ferrax._src.tree.tree_util import tree_flatten, tree_unflatten, treedef_is_leaf

    _reject_out_sharding("reduce", out_sharding)
    flat, tree = tree_flatten(operands)
    flat_init, init_tree = tree_flatten(init_values)
    if tree != init_tree:
        raise ValueError(
            f"Operands must have the same tree structure as init_values: {tree} vs. {init_tree}"
        )
    if not flat:
        return operands
    if not callable(computation):
        raise TypeError(f"reduce: expected a function of two scalars, got {computation!r}")
    flat = [_operand(x, "reduce", 0) for x in flat]
    with ensure_compile_time_eval():
        flat_init = [elementwise._convert_element_type(_operand(x, "reduce", 1)) for x in flat_init]
    if any(x.shape != flat[0].shape for x in flat):
        raise ValueError(f"reduce operands must have equal shapes, got {[x.shape for x in flat]}")
    if any(x.ndim for x in flat_init):
        raise ValueError(
            f"reduce found non-scalar initial value: {[tuple(x.shape) for x in flat_init]}"
        )
    axes = _check_axes(flat[0], dimensions)
    if treedef_is_leaf(tree):
        name = known_monoid(computation)
        if name is not None and is_identity(name, flat_init[0], flat[0].dtype):
            return tree_unflatten(tree, [MONOIDS[name][0](flat[0], axes)])
    if any(x.dtype != y.dtype for x, y in zip(flat, flat_init)):
        raise TypeError(
            "reduce operand dtypes should match corresponding initial value dtypes, got operands="
            f"{[_describe(x) for x in flat]} and initial_values={[_describe(x) for x in flat_init]}"
        )

    jaxpr = scalar_jaxpr("reduce", computation, tree, flat)
    if jaxpr is None:
        combine = vectorized("reduce", computation, tree, flat)
        if not axes:
            return tree_unflatten(tree, flat)
        return tree_unflatten(tree, _tree_reduce(combine, flat, flat_init, sorted(axes)))
    from ferrax._src.lax.window_primitives import reduce_p

    params = {"computation": computation, "jaxpr": jaxpr, "dimensions": axes}
    return tree_unflatten(tree, reduce_p.bind(*flat, *flat_init, **params))


def reduced(jaxpr, combine: Callable, flat: list, init: list, axes: tuple[int, ...]) -> list:
    """The reductions of arrays by the function that a jaxpr of scalars is; ``combine`` is the same
    function of two lists of vectors."""
    if not axes:
        return list(flat)
    name = monoid_of(jaxpr) if len(flat) == 1 else None
    if name is None:
        return _tree_reduce(combine, flat, init, sorted(axes))
    reduction, function = MONOIDS[name]
    start = _broadcast_to(init[0], _kept_shape(flat[0], axes))
    return [function(reduction(flat[0], axes), start)]


def scalar_jaxpr(name: str, computation: Callable, tree, like: list):
    """``computation`` on scalars as a closed jaxpr; None if it uses values that are being traced,
    for which a jaxpr has no place.

    Errors: ValueError if it returns another tree, other shapes or dtypes.
    """
    known = known_monoid(computation)
    if known is not None and len(like) == 1:
        return _known_jaxpr(known, like[0].dtype)
    from ferrax._core import Tracer, trace_program
    from ferrax._src.core.jaxpr import ClosedJaxpr

    combine = _checked(name, computation, tree, like)
    count = len(like)
    program, captured, refs = trace_program(
        lambda leaves: combine(leaves[:count], leaves[count:]),
        "stage",
        name,
        [((), x.dtype, False) for x in (*like, *like)],
    )
    if refs is not None or any(isinstance(value, Tracer) for value in captured):
        return None
    return ClosedJaxpr(program, captured)


@functools.cache
def _known_jaxpr(name: str, dtype):
    from ferrax._src.core.avals import ShapeDtypeStruct
    from ferrax._src.transforms.api import make_jaxpr

    scalar = ShapeDtypeStruct((), dtype)
    return make_jaxpr(MONOIDS[name][1])(scalar, scalar)


def vectorized(name: str, computation: Callable, tree, like: list) -> Callable:
    """``computation`` on two lists of vectors; traced once for each length.

    Errors of a call: ValueError if it returns another tree, other shapes or dtypes.
    """
    from ferrax._src.transforms.api import jit, vmap

    return jit(vmap(_checked(name, computation, tree, like)))


def _checked(name: str, computation: Callable, tree, like: list) -> Callable:
    """``computation`` on two lists of scalars, with its results checked."""
    from ferrax._src.tree.tree_util import tree_flatten, tree_unflatten

    def combine(a, b):
        out = computation(tree_unflatten(tree, a), tree_unflatten(tree, b))
        leaves, out_tree = tree_flatten(out)
        if out_tree != tree:
            raise ValueError(
                f"{name} output must have the same tree structure as the operands {tree} vs. "
                f"{out_tree}"
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


def _kept_shape(x: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([size for axis, size in enumerate(x.shape) if axis not in axes])


def known_monoid(computation: Callable) -> str | None:
    """The name of the op if ``computation`` is a function of this package for one, or None."""
    try:
        return _KNOWN_FUNCTIONS.get(computation)
    except TypeError:
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


def is_identity(name: str, value: Array, dtype) -> bool:
    """Whether ``value`` is known, and the identity on numbers of ``dtype``."""
    if dtypes.issubdtype(dtype, dtypes.extended) or not is_concrete(value):
        return False
    return to_concrete_value(value).item() == identity_of(name, dtype)


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
            jaxpr = equation.params["jaxpr"].jaxpr
            inputs = jaxpr.invars
            continue
        return name if name in MONOIDS else None
    return None


def _tree_reduce(combine: Callable, flat: list, init: list, axes: Sequence[int]) -> list:
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
