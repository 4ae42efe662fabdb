"""`lax.reduce` and `lax.reduce_window`: a binary function folded over axes, or over windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.composed import window_primitives
from ferrax._src.composed.folds import (
    MONOIDS,
    is_identity,
    known_monoid,
    scalar_jaxpr,
    tree_reduce,
    vectorized,
)
from ferrax._src.composed.window_primitives import reduce_p
from ferrax._src.composed.windows import Windows, fold
from ferrax._src.core import ensure_compile_time_eval
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import elementwise
from ferrax._src.lax.arguments import (
    describe as _describe,
    operand as _operand,
)
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.lax.reduce import _check_axes
from ferrax._src.tree import tree_util
from ferrax._src.tree.tree_util import tree_flatten, tree_unflatten, treedef_is_leaf


def reduce(
    operands: Any, init_values: Any, computation: Callable, dimensions: Sequence[int],
    out_sharding: Any = None,
) -> Any:
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
    if out_sharding is not None:
        return with_out_sharding(
            "reduce", out_sharding, reduce, operands, init_values, computation, dimensions,
        )  # fmt: skip
    flat, tree = tree_flatten(operands)
    flat_init, init_tree = tree_flatten(init_values)
    if tree != init_tree:
        raise ValueError(
            f"reduce: init_values has the pytree structure {init_tree}, expected that of the operands, "
            f"{tree}"
        )
    if not flat:
        return operands
    if not callable(computation):
        raise TypeError(f"reduce: expected a function of two scalars, got {computation!r}")
    flat = [_operand(x, "reduce", 0) for x in flat]
    weak_init = [_operand(x, "reduce", 1) for x in flat_init]
    with ensure_compile_time_eval():
        flat_init = [elementwise._convert_element_type(x) for x in weak_init]
    if any(x.shape != flat[0].shape for x in flat):
        raise ValueError(f"reduce operands must have equal shapes, got {[x.shape for x in flat]}")
    if any(x.ndim for x in flat_init):
        raise ValueError(
            f"reduce found non-scalar initial value, got shapes {[tuple(x.shape) for x in flat_init]}"
        )
    axes = _check_axes(flat[0], dimensions)
    weak = [bool(x.weak_type and init.weak_type) for x, init in zip(flat, weak_init)]

    def result(leaves):
        return tree_unflatten(
            tree, [elementwise._convert_element_type(x, x.dtype, w) for x, w in zip(leaves, weak)]
        )

    if treedef_is_leaf(tree):
        name = known_monoid(computation)
        if name is not None and is_identity(name, flat_init[0]):
            return result([MONOIDS[name][0](flat[0], axes)])
    if any(x.dtype != y.dtype for x, y in zip(flat, flat_init)):
        raise TypeError(
            "reduce: each operand and its initial value need one dtype, got "
            f"{[_describe(x) for x in flat]} and {[_describe(x) for x in flat_init]}"
        )

    jaxpr = scalar_jaxpr("reduce", computation, tree, flat)
    if jaxpr is None:
        combine = vectorized("reduce", computation, tree, flat)
        if not axes:
            return result(flat)
        return result(tree_reduce(combine, flat, flat_init, tuple(sorted(axes))))
    params = {"computation": computation, "jaxpr": jaxpr, "dimensions": axes}
    return result(reduce_p.bind(*flat, *flat_init, **params))


def reduce_window(
    operand: ArrayLike, init_value: ArrayLike, computation: Callable,
    window_dimensions: Sequence[int], window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID", base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Combines the elements of each window of an array with a binary function.

    Args:
      operand: an array, or a pytree of arrays of one shape.
      init_value: a scalar of the same dtype (or a pytree of scalars): what the fold of a window
        starts from; the function's identity, as a rule.
      computation: ``(a, b) -> c`` on scalars (or pytrees of scalars), associative.
      window_dimensions: the window's size along each axis.
      window_strides: steps between windows; 1 by default.
      padding: ``"VALID"``, ``"SAME"``, ``"SAME_LOWER"`` (see ``padtype_to_pads``) or a pair ``(low,
        high)`` for each axis; negative ones remove elements.
      base_dilation: distances between neighbours of the operand. Named paddings are those of the
        operand without its holes.
      window_dilation: distances between neighbours of the window.

    Returns arrays with ``floor((padded - span) / stride) + 1`` windows along each axis, where a
    window spans ``(size - 1) * dilation + 1`` places. Padding and holes are left out of the fold.

    ``lax.add``, ``lax.max`` and ``lax.min`` from their identities have the derivatives of sums and
    of the first greatest or least element; other functions those of the fold.

    Errors: TypeError for parameters that are no positive integers or not one for each axis, and for
    dtypes that do not fit; ValueError for other trees of initial values or results, for operands of
    unequal shapes, and for paddings of another form.

    >>> lax.reduce_window(jnp.arange(6.0), 0.0, lax.add, (3,), (2,), "SAME")
    Array([3., 9., 9.], dtype=float32)
    """
    flat, tree = tree_util.tree_flatten(operand)
    flat_init, init_tree = tree_util.tree_flatten(init_value)
    if tree != init_tree:
        raise ValueError(
            f"reduce_window: init_value has the pytree structure {init_tree}, expected that of the "
            f"operands, {tree}"
        )
    if not flat:
        raise ValueError("reduce_window: got no operands; at least one is needed")
    if not callable(computation):
        raise TypeError(f"reduce_window: {computation!r} is not callable")
    flat = [_operand(x, "reduce_window", 0) for x in flat]
    flat_init = [_operand(x, "reduce_window", 1) for x in flat_init]
    if any(x.shape != flat[0].shape for x in flat):
        raise ValueError(
            f"reduce_window operands must have equal shapes, got {[tuple(x.shape) for x in flat]}."
        )
    if any(x.ndim for x in flat_init):
        raise TypeError(
            "reduce_window: init_values have to be scalars, got shapes "
            f"{[tuple(x.shape) for x in flat_init]}."
        )
    windows = Windows(
        flat[0].shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )
    if tree_util.treedef_is_leaf(tree):
        result = _special(flat[0], flat_init[0], computation, windows)
        if result is not None:
            return tree.unflatten([result])
    flat = [elementwise._convert_element_type(x, weak_type=False) for x in flat]
    with core.ensure_compile_time_eval():
        flat_init = [elementwise._convert_element_type(x, weak_type=False) for x in flat_init]
    if any(x.dtype != y.dtype for x, y in zip(flat, flat_init)):
        raise TypeError(
            "reduce_window: each operand and its initial value need one dtype, got "
            f"{[x.dtype for x in flat]} and {[x.dtype for x in flat_init]}."
        )
    closed = scalar_jaxpr("reduce_window", computation, tree, flat)
    if closed is None:
        combine = vectorized("reduce_window", computation, tree, flat)
        return tree.unflatten(fold(combine, windows, flat, flat_init))
    params = {"jaxpr": closed.open, "consts": tuple(closed.consts), **window_primitives.window_params(windows)}
    return tree.unflatten(window_primitives.reduce_window_p.bind(*flat, *flat_init, **params))


def _special(x, init, computation, windows):
    """Sums, maxima and minima from their identities; else None."""
    name = known_monoid(computation)
    if name not in ("add", "max", "min") or not is_identity(name, init):
        return None
    if name != "add" and dtypes.issubdtype(x.dtype, np.complexfloating):
        return None
    if name == "add" and dtypes.issubdtype(x.dtype, np.bool_):
        raise TypeError("reduce_window_sum: booleans have no sum; convert the operand to int32, or use jnp.any")
    primitive = {
        "add": window_primitives.reduce_window_sum_p,
        "max": window_primitives.reduce_window_max_p,
        "min": window_primitives.reduce_window_min_p,
    }[name]
    return primitive.bind(x, **window_primitives.window_params(windows))
