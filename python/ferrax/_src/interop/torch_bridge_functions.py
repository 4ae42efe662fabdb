"""Functions of arrays as functions of PyTorch's tensors, with derivatives.

In: a function of trees of arrays. Out: one of trees of tensors, which autograd, `torch.func` and `torch.compile` take
as an operation. For each structure of arguments, and each value of static ones, there is a program, compiled as by
`ferrax.jit`. Cost: a call is that of a compiled function and of the copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import config
from ferrax._src.core import api_util
from ferrax._src.interop.torch_bridge import is_tensor, library
from ferrax._src.interop.torch_bridge_programs import Program
from ferrax._src.tree import tree_util


def as_torch_function(
    fun: Callable[..., Any], *, static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
) -> Callable[..., Any]:
    """A function of arrays as one of PyTorch's tensors, which it differentiates.

    Arguments are trees of tensors; numbers, NumPy arrays and arrays among them go to `fun` as they are, without
    derivatives. Results are a tree of tensors, on the device of the arguments; those of integers and booleans are not
    differentiable. It works with `backward`, `torch.autograd.grad` to any order, forward-mode derivatives, `torch.func`
    (`grad`, `vmap`, `jvp`, `jacrev`, …) and `torch.compile`, which sees one operation. `fun` itself runs on the CPU,
    compiled for each signature.

    Args:
        fun: a pure function of trees of arrays of any shapes and dtypes.
        static_argnums, static_argnames: arguments that are part of the signature by value, as for `jit`.

    Raises:
        ImportError: PyTorch is not installed.
        TypeError: `fun` is not callable; when called, a leaf of an argument is none of the above.
        OverflowError: when called, an integer needs 64 bits, which are off (see `from_torch`).

    Example:
        >>> import torch
        >>> norm = ferrax.torch.as_torch_function(lambda x: jnp.sqrt(jnp.sum(x**2)))
        >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> norm(x).backward()
        >>> x.grad
        tensor([0.6000, 0.8000])
    """
    torch = library()
    api_util.check_callable(fun)
    static = api_util.resolve_argnums(fun, static_argnums, static_argnames, "static")
    programs: dict[Any, Program] = {}

    @api_util.wraps(fun, "A function of PyTorch's tensors", "made by as_torch_function")
    def called(*args, **kwargs):
        return _call(fun, static, programs, args, kwargs)

    torch.compiler.allow_in_graph(called)
    return called


def _call(fun, static, programs, args, kwargs):
    # It needs torch, which is an extra.
    from ferrax._src.interop.torch_bridge_autograd import Call, apply

    numbers = sorted({number % len(args) for number in static[0] if -len(args) <= number < len(args)})
    fixed, args = api_util.split_arguments(args, numbers)
    named = {name: kwargs.pop(name) for name in static[1] if name in kwargs}
    leaves, tree = tree_util.tree_flatten((args, kwargs))
    places = tuple(map(is_tensor, leaves))
    rest = [_passed(fun, tree, i, leaf) for i, leaf in enumerate(leaves) if not places[i]]
    key = tree, places, tuple(numbers), _by_value(fun, fixed), tuple(named), _by_value(fun, named.values())
    program = programs.get(key)
    if program is None:
        made = Program(_flat(fun, tree, places, numbers, fixed, named), sum(places))
        program = programs.setdefault(key, made)
    call = Call(program, rest, config.enable_x64.value)
    outs = apply(call, [leaf for leaf, place in zip(leaves, places) if place])
    return call.out_tree.unflatten(outs)


def _flat(fun, tree, places, numbers, fixed, named):
    """The function of what is not a tensor and of what is, in their order."""

    def function(rest, *arrays):
        others, own = iter(rest), iter(arrays)
        args, kwargs = tree.unflatten([next(own) if place else next(others) for place in places])
        return fun(*api_util.join_arguments(numbers, fixed, args), **kwargs, **named)

    return api_util.update_wrapper(function, fun)


def _passed(fun, tree, number, leaf):
    """A leaf that is no tensor. NumPy's arrays are copied: they may be written to before derivatives are asked for."""
    if isinstance(leaf, np.ndarray):
        return core.as_array(leaf.copy())
    if core.valid_jaxtype(leaf):
        return leaf
    path, _ = tree_util.tree_leaves_with_path(tree.unflatten(range(tree.num_leaves)))[number]
    raise TypeError(
        f"{api_util.fun_name(fun)}, made by as_torch_function, takes trees of tensors, numbers and arrays, got "
        f"{leaf!r} of type {type(leaf).__name__} at {_argument(path)}. Make the argument static, with static_argnums "
        "or static_argnames"
    )


def _argument(path) -> str:
    where = "args" if path[0].idx == 0 else "kwargs"
    return where + tree_util.keystr(path[1:])


def _by_value(fun, values):
    """Static values as part of a key, in which 1, 1.0 and True are different."""
    values = tuple(values)
    try:
        hash(values)
    except TypeError as error:
        raise ValueError(f"static arguments of {api_util.fun_name(fun)} must be hashable: {error}") from None
    return values, tuple(map(type, values))


__all__ = ["as_torch_function"]
