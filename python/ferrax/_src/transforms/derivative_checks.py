"""Arguments of functions that differentiate: which are meant, and whether derivatives are defined.

Each check raises what the function's help says, before anything is differentiated; it returns what it
checked, as arrays.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import api_util
from ferrax._src.core.explicit_types import of_cotangent, typed
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.tree import tree_util


def check_argnums(argnums, name):
    if isinstance(argnums, bool) or not isinstance(argnums, (int, np.integer, tuple, list)):
        try:
            return operator.index(argnums)
        except TypeError:
            raise TypeError(
                f"{name}: argnums must be an int or a tuple of ints, got {argnums!r}"
            ) from None
    return tuple(argnums) if isinstance(argnums, list) else argnums


def select(argnums, args, fun, too_few=ValueError):
    """The differentiated arguments and how to put tracers in their places.

    `too_few` is the class of error where fewer arguments than `argnums` asks for were given.
    """
    single = not isinstance(argnums, tuple)
    nums = (operator.index(argnums),) if single else tuple(map(operator.index, argnums))
    for num in nums:
        if not -len(args) <= num < len(args):
            raise (too_few if num >= 0 else ValueError)(
                f"differentiating with respect to argnums={argnums} takes at least "
                f"{max(num + 1, -num)} arguments that are given by position, got {len(args)}: arguments "
                "given by name are not counted."
            )
    nums = tuple(num % len(args) for num in nums)

    def merge(chosen):
        merged = list(args)
        for num, value in zip(nums, chosen):
            merged[num] = value
        return merged

    return tuple(args[num] for num in nums), merge, single


def check_input_dtype(name, array, holomorphic, allow_int):
    dtype = array.dtype
    if not holomorphic and dtypes.issubdtype(dtype, np.inexact):
        return
    if dtypes.issubdtype(dtype, dtypes.extended):
        if allow_int:
            return
        raise TypeError(
            f"{name}: expected inputs of real or complex numbers, got {dtype.name}. PRNG keys have no "
            "derivatives; close over them, or pass allow_int=True."
        )
    if holomorphic:
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(
                f"{name}: holomorphic=True is for complex inputs, got {dtype.name}; convert them "
                "with astype"
            )
    elif dtypes.issubdtype(dtype, np.integer) or dtypes.issubdtype(dtype, np.bool_):
        if not allow_int:
            raise TypeError(
                f"{name}: expected inputs of real or complex numbers, got {dtype.name}. Convert it "
                "to a float; for integers and booleans there are vjp and allow_int=True."
            )
    else:
        raise TypeError(f"{name}: expected inputs that are numbers, got {dtype.name}.")


def check_output(fun, types, tree, holomorphic):
    if tree.num_leaves != 1 or not tree_util.treedef_is_leaf(tree):
        raise TypeError(
            f"grad: expected {api_util.fun_place(fun)} to return a scalar, got the pytree {tree}; return one, or use "
            "jacobian or vjp."
        )
    shape, dtype, *_ = types[0]
    if shape != ():
        raise TypeError(
            f"grad: expected {api_util.fun_place(fun)} to return a scalar, got an array of shape {shape}. "
            f"Reduce it (for instance with .sum()) or use jacobian or vjp."
        )
    if holomorphic:
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(
                f"grad: holomorphic=True is for functions with complex results, got {dtype.name}; "
                "leave it out, or convert the result with astype."
            )
    elif not dtypes.issubdtype(dtype, np.floating):
        advice = (
            " Pass holomorphic=True if the function is; for other complex functions there is vjp."
            if dtypes.issubdtype(dtype, np.complexfloating)
            else " Convert it to a float, or use vjp, whose cotangents of integers are float0."
        )
        raise TypeError(
            f"grad: expected a real result, of a floating dtype, got {dtype.name}.{advice}"
        )


def check_tangents(name, types, tangents, tree, tangent_tree, wrong_dtype=TypeError):
    if tree != tangent_tree:
        raise TypeError(
            f"{name}: the tangents have the pytree structure {tangent_tree}, expected that of the "
            f"primals, {tree}."
        )
    checked: list[Any] = []
    for (primal_shape, primal_dtype, _), tangent in zip(types, tangents):
        expected = primal_dtype if dtypes.has_tangent(primal_dtype) else dtypes.float0
        if isinstance(tangent, np.ndarray) and tangent.dtype == dtypes.float0:
            shape, dtype = tangent.shape, dtypes.float0
        else:
            tangent = core.as_array(tangent, name)
            shape, dtype = tangent.shape, tangent.dtype
        if dtype != expected:
            raise wrong_dtype(
                f"{name}: a primal of dtype {primal_dtype.name} takes a tangent of dtype "
                f"{np.dtype(expected).name}, got {np.dtype(dtype).name}. "
                + (
                    "Convert the tangent with astype."
                    if expected != dtypes.float0
                    else "Integers and booleans do not vary: np.zeros(shape, ferrax.dtypes.float0)."
                )
            )
        if shape != primal_shape:
            raise ValueError(
                f"{name}: a primal of shape {primal_shape} takes a tangent of that shape, got {shape}."
            )
        checked.append(tangent)
    return checked


def check_explicit_cotangents(leaves, types) -> None:
    """Errors: ValueError for cotangents that are divided over explicit axes of a mesh otherwise than outputs."""
    for leaf, sharding in zip(leaves, types):
        if leaf is None or sharding is None:
            continue
        wanted = of_cotangent(sharding)
        expected = sharding.spec if wanted is None else wanted.spec
        known = typed(leaf)
        got = PartitionSpec(*[None] * leaf.ndim) if known is None else known.spec
        # Traced ones of which nothing is known are this package's, as those of `jacrev`.
        if got != expected and not (known is None and isinstance(leaf, core.Tracer)):
            raise ValueError(
                f"vjp: a cotangent is divided over the mesh as {got}, expected {expected}, "
                f"as that of an output that is "
                f"divided as {sharding.spec}: reshard it"
            )


def check_cotangents(leaves, types):
    checked: list[Any] = []
    for leaf, (shape, dtype, *_) in zip(leaves, types):
        if not dtypes.has_tangent(dtype):
            checked.append(None)
            continue
        if isinstance(leaf, np.ndarray) and leaf.dtype == dtypes.float0:
            got_shape, got_dtype = leaf.shape, dtypes.float0
        else:
            leaf = core.as_array(leaf, "vjp")
            got_shape, got_dtype = leaf.shape, leaf.dtype
        if got_shape != shape or got_dtype != dtype:
            raise ValueError(
                f"vjp: a cotangent has type {np.dtype(got_dtype).name}{list(got_shape)}, expected "
                f"that of the output of the function, {dtype.name}{list(shape)}"
            )
        checked.append(leaf)
    return checked
