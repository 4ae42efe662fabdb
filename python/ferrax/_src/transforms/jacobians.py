"""Jacobians and Hessians: derivatives along all unit tangents or cotangents as one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import api_util, float0 as float0_leaves
from ferrax._src.lax import api as lax
from ferrax._src.transforms import derivative_checks as checks
from ferrax._src.transforms.autodiff import jvp, vjp
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.linearized import strengthen, weaken, zeros
from ferrax._src.tree import tree_util


def _std_basis(leaves):
    """For each leaf, the unit tangents of all leaves stacked along a new first axis."""
    sizes = [int(np.prod(leaf.shape)) for leaf in leaves]
    total, start, basis = sum(sizes), 0, []
    if total == 1 == len(leaves):
        return [lax.full((1, *leaves[0].shape), 1, leaves[0].dtype)]
    for leaf, size in zip(leaves, sizes):
        rows, columns = (lax.broadcasted_iota(np.int32, (total, size), axis) for axis in (0, 1))
        ones = lax.eq(rows, lax.add(columns, np.int32(start)))
        block = lax.convert_element_type(ones, leaf.dtype)
        basis.append(block.reshape((total, *leaf.shape)))
        start += size
    return basis


def _split_rows(array, leaves, axis):
    """Cuts the axis of all unit tangents into the leaves' own axes."""
    parts, start = [], 0
    for leaf in leaves:
        size = int(np.prod(leaf.shape))
        part = lax.slice_in_dim(array, start, start + size, axis=axis)
        shape = part.shape[:axis] + tuple(leaf.shape) + part.shape[axis + 1 :]
        parts.append(part.reshape(shape))
        start += size
    return parts


def _check_jacobian_input(name, leaves, holomorphic, allow_int=False):
    for leaf in leaves:
        checks.check_input_dtype(name, leaf, holomorphic, allow_int)
        if not holomorphic and name == "jacfwd":
            if dtypes.issubdtype(leaf.dtype, np.complexfloating):
                raise TypeError(
                    f"jacfwd: expected real inputs, got {leaf.dtype.name}. Pass holomorphic=True if "
                    "the function is; for other complex functions there is jvp."
                )


def jacfwd(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """The Jacobian of `fun`, one column (input element) at a time in forward mode.

    The result has the output's tree, each leaf of shape output shape + input shape. Cheaper
    than `jacrev` where there are fewer inputs than outputs.

    Args: fun: a function of arrays; argnums, has_aux, holomorphic: as for `grad`.

    Example:
        >>> ferrax.jacfwd(lambda x: x ** 2)(jnp.array([1.0, 2.0]))
        Array([[2., 0.],
               [0., 4.]], dtype=float32)
    """
    api_util.check_callable(fun)
    argnums = checks.check_argnums(argnums, "jacfwd")

    @api_util.wraps(fun, "Jacobian", f"with respect to argument {argnums}")
    def jacfwd_f(*args, **kwargs):
        chosen, merge, single = checks.select(argnums, args, fun)
        leaves, tree = tree_util.tree_flatten(chosen)
        leaves = [core.as_array(leaf, "jacfwd") for leaf in leaves]
        _check_jacobian_input("jacfwd", leaves, holomorphic)

        def at(*chosen):
            return fun(*merge(chosen), **kwargs)

        def push(*tangents):
            out, columns, *aux = jvp(at, tree.unflatten(leaves), tree.unflatten(tangents), has_aux)
            return out, tree_util.tree_map(_column, out, columns), *aux

        out_axes = (None, -1, None) if has_aux else (None, -1)
        result = vmap(push, out_axes=out_axes)(*_std_basis(leaves))
        out, columns = result[0], result[1]
        if holomorphic:
            for leaf in tree_util.tree_leaves(out):
                if not dtypes.issubdtype(leaf.dtype, np.complexfloating):
                    raise TypeError(
                        "jacfwd: holomorphic=True is for functions with complex results, got "
                        f"{leaf.dtype.name}; leave it out, or convert the result with astype"
                    )

        def columns_of(column):
            parts = tree.unflatten(_split_rows(column, leaves, column.ndim - 1))
            return parts[0] if single else parts

        jacobian = tree_util.tree_map(columns_of, columns)
        return (jacobian, result[2]) if has_aux else jacobian

    return jacfwd_f


def _column(out, tangent):
    """What a Jacobian holds of an output's tangent: integers have slopes of zero."""
    if float0_leaves.is_float0(tangent):
        return zeros(out.shape, out.dtype, out.weak_type)
    return tangent


def jacrev(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False,
) -> Callable[..., Any]:
    """The Jacobian of `fun`, one row (output element) at a time in reverse mode.

    As `jacfwd`; cheaper where there are fewer outputs than inputs.

    Args: fun, argnums, has_aux, holomorphic, allow_int: as for `grad`.

    Example:
        >>> ferrax.jacrev(lambda x: x ** 2)(jnp.array([1.0, 2.0]))
        Array([[2., 0.],
               [0., 4.]], dtype=float32)
    """
    api_util.check_callable(fun)
    argnums = checks.check_argnums(argnums, "jacrev")

    @api_util.wraps(fun, "Jacobian", f"with respect to argument {argnums}")
    def jacrev_f(*args, **kwargs):
        chosen, merge, single = checks.select(argnums, args, fun)
        inputs = [core.as_array(leaf, "jacrev") for leaf in tree_util.tree_leaves(chosen)]
        _check_jacobian_input("jacrev", inputs, holomorphic, allow_int)

        def at(*chosen):
            return fun(*merge(chosen), **kwargs)

        result = vjp(at, *chosen, has_aux=has_aux)
        out, pull = result[0], result[1]
        leaves, out_tree = tree_util.tree_flatten(out)
        for leaf in leaves:
            wanted = np.complexfloating if holomorphic else np.floating
            if not dtypes.issubdtype(leaf.dtype, wanted):
                kind = "complex" if holomorphic else "real"
                raise TypeError(
                    f"jacrev{' with holomorphic=True' if holomorphic else ''} requires "
                    f"{kind}-valued "
                    f"outputs, but got {leaf.dtype.name}."
                )
        rows = vmap(lambda *cts: pull(out_tree.unflatten(cts)))(*_std_basis(leaves))
        rows = rows[0] if single else rows
        in_leaves, in_tree = tree_util.tree_flatten(rows)
        for number, (row, primal) in enumerate(zip(in_leaves, inputs)):
            if float0_leaves.is_float0(row):
                in_leaves[number] = zeros(row.shape, primal.dtype, primal.weak_type)
            elif row.weak_type != primal.weak_type:
                in_leaves[number] = weaken(row) if primal.weak_type else strengthen(row)
        parts = [_split_rows(leaf, leaves, 0) for leaf in in_leaves]
        jacobian = out_tree.unflatten(
            [in_tree.unflatten([part[index] for part in parts]) for index in range(len(leaves))]
        )
        return (jacobian, result[2]) if has_aux else jacobian

    return jacrev_f


jacobian = jacrev


def hessian(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """The matrix of second derivatives: `jacfwd` of `jacrev`.

    Args: fun: a function of arrays, with one output or several; argnums, has_aux, holomorphic: as
    for `grad`.

    Example:
        >>> ferrax.hessian(lambda x: (x ** 3).sum())(jnp.array([1.0, 2.0]))
        Array([[ 6.,  0.],
               [ 0., 12.]], dtype=float32)
    """
    return jacfwd(
        jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic
    )
