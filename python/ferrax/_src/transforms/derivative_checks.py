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
                f"{max(num + 1, -num)} positional arguments, got "
                f"{len(args)}."
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
    if dtypes.issubdtype(dtype, dtypes.extended):
        if allow_int:
            return
        raise TypeError(
            f"{name} requires real- or complex-valued inputs (input dtype that is a sub-dtype of "
            f"np.inexact), but got {dtype.name}. PRNG keys have no derivatives; close over them, or "
            "set allow_int to True."
        )
    if holomorphic:
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(
                f"{name} with holomorphic=True requires inputs with complex dtype, got "
                f"{dtype.name}; convert them with astype"
            )
    elif dtypes.issubdtype(dtype, np.integer) or dtypes.issubdtype(dtype, np.bool_):
        if not allow_int:
            raise TypeError(
                f"{name} requires real- or complex-valued inputs, got "
                f"{dtype.name}. Convert it to a float; for integers and booleans there are vjp and "
                "allow_int=True."
            )
    elif not dtypes.issubdtype(dtype, np.inexact):
        raise TypeError(f"{name} requires numeric inputs, got {dtype.name}.")


def check_output(name, types, tree, holomorphic):
    if tree.num_leaves != 1 or not tree_util.treedef_is_leaf(tree):
        raise TypeError(
            f"Gradient only defined for scalar-output functions. Output of {name} was a tree: "
            f"{tree}."
        )
    shape, dtype, _ = types[0]
    if shape != ():
        raise TypeError(
            f"Gradient only defined for scalar-output functions. Output of {name} had shape: "
            f"{shape}. "
            f"Reduce it (for instance with .sum()) or use jacobian or vjp."
        )
    if holomorphic:
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(
                "grad with holomorphic=True requires outputs with complex dtype, but got "
                f"{dtype.name}."
            )
    elif not dtypes.issubdtype(dtype, np.floating):
        advice = (
            " For holomorphic differentiation, pass holomorphic=True. For differentiation of "
            "non-holomorphic functions involving complex outputs, use vjp directly."
            if dtypes.issubdtype(dtype, np.complexfloating)
            else " For differentiation of functions with integer outputs, use vjp directly."
        )
        raise TypeError(
            f"grad requires real-valued outputs (output dtype that is a sub-dtype of np.floating), "
            f"but got {dtype.name}.{advice}"
        )


def check_tangents(name, types, tangents, tree, tangent_tree, wrong_dtype=TypeError):
    if tree != tangent_tree:
        raise TypeError(
            f"primal and tangent arguments to {name} must have the same tree structure; primals "
            "have "
            f"tree structure {tree} whereas tangents have tree structure {tangent_tree}."
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
                f"primal and tangent arguments to {name} do not match; dtypes must be equal, or "
                "in case "
                f"of int/bool primal dtype the tangent dtype must be float0. Got primal dtype "
                f"{primal_dtype.name} and so expected tangent dtype {np.dtype(expected).name}, "
                "but got "
                f"tangent dtype {np.dtype(dtype).name} instead."
            )
        if shape != primal_shape:
            raise ValueError(
                f"{name} called with different primal and tangent shapes; got primal shape "
                f"{primal_shape} and tangent shape as {shape}."
            )
        checked.append(tangent)
    return checked


def check_cotangents(leaves, types):
    checked: list[Any] = []
    for leaf, (shape, dtype, _) in zip(leaves, types):
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
                f"unexpected JAX type (e.g. shape/dtype) for argument to vjp function: got "
                f"{np.dtype(got_dtype).name}{list(got_shape)}, but expected "
                f"{dtype.name}{list(shape)} "
                f"because the corresponding output of the differentiated function had that type"
            )
        checked.append(leaf)
    return checked
