"""``scan``: a loop over the leading axis of arrays, with a carry."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base import config
from ferrax._src.core import api_util, float0
from ferrax._src.core.explicit_types import all_typed
from ferrax._src.core.primitives import bind_over_programs
from ferrax._src.dims import is_symbolic_dim
from ferrax._src.dims.sizes import surely_below
from ferrax._src.lax import slicing
from ferrax._src.lax.control_flow import common
from ferrax._src.lax.shape import concatenate, expand_dims
from ferrax._src.state import arguments as ref_args
from ferrax._src.tree import tree_util

__all__ = ["scan"]


def scan(
    f: Callable, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False,
    unroll: int | bool = 1, _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Calls ``carry, y = f(carry, x)`` for each ``x`` along axis 0 of ``xs``.

    ``f`` is traced once and compiled as the body of a loop.

    Args:
      f: a function of the carry and of one element of ``xs``; returns a pair.
      init: the first carry, a pytree of arrays. The carry keeps its structure, shapes and dtypes;
        a weakly typed first value (a Python number) takes the dtype that ``f`` gives it.
      xs: a pytree of arrays with equal leading axes, or None.
      length: the number of steps; needed if ``xs`` has no leaves.
      reverse: go from the last element to the first; ``ys`` stay aligned to ``xs``.
      unroll: how many steps one iteration of the compiled loop has; True or 0 for all.
      _split_transpose: accepted, without effect.

    Returns ``(carry, ys)``: the last carry, and the outputs stacked along a new axis 0. Errors:
    TypeError for a carry that changes structure, shape or dtype (it lists where) and for an ``f``
    that does not return a pair; ValueError for leading axes that do not fit.

    >>> lax.scan(lambda total, x: (total + x, total), jnp.zeros(()), jnp.arange(4.0))
    (Array(6., dtype=float32), Array([0., 0., 1., 3.], dtype=float32))
    """
    if not callable(f):
        raise TypeError(
            f"lax.scan: f has to be callable, got {type(f).__name__}."
        )
    ref_args.reject(
        tree_util.tree_leaves(init), "lax.scan, in the carry,", "Close over it in the body."
    )
    init, init_tree, init_types = common.flatten(init, "lax.scan")
    xs, xs_tree = tree_util.tree_flatten(xs)
    refs = ref_args.of_leaves(xs)
    names = lambda: [f"xs{path}" for path in common.paths(xs_tree)]  # noqa: E731
    ref_args.check_distinct(refs, f, "scan", names)
    values = ref_args.values(xs, refs)
    xs_types = [
        (x.shape, x.dtype, False) if float0.is_float0(x) else common.type_of(x, "lax.scan")
        for x in values
    ]
    steps = _length(values, xs_tree, xs_types, length)
    if any(map(float0.is_float0, xs)):
        elements = float0.reshaped(xs_tree.unflatten(xs), lambda shape: shape[1:])
        xs, xs_tree = float0.flatten(elements)
        refs = ref_args.of_leaves(xs)
        values = ref_args.values(xs, refs)
        xs_types = [common.type_of(x, "lax.scan") for x in values]
    xs = values
    for number, sharding in enumerate(all_typed(xs)):
        if sharding is not None and sharding.spec.partitions[0] is not None:
            raise ValueError(
                f"scan: xs is gone through along axis 0, which no mesh may divide, and leaf {number} of it is divided, "
                f"as {sharding.spec}: reshard it.{common.at_user_line()}"
            )
    if config.disable_jit.value and not refs:
        return _python_loop(f, init_tree.unflatten(init), xs, xs_tree, steps, reverse)
    unroll = _unroll(unroll, steps)
    elements = [(shape[1:], *rest) for shape, *rest in xs_types]
    trees = (init_tree, xs_tree)
    placed = {len(init) + number: ref for number, ref in refs.items()}

    program, captured, touched, carry_tree, ys_tree = _trace(
        f, trees, init_types + elements, [*init, *xs], placed
    )
    out_types = program.out_types[: carry_tree.num_leaves]
    if len(out_types) == len(init):
        init, init_types, changed = common.promote_carry(init, init_types, out_types, f)
        if changed:
            program, captured, touched, carry_tree, ys_tree = _trace(
                f, trees, init_types + elements, [*init, *xs], placed
            )
            out_types = program.out_types[: carry_tree.num_leaves]
    common.check_carry("scan body", f, init_tree, init_types, carry_tree, out_types)
    count = len(init)
    program, captured, held = common.carry_refs(program, captured, touched, count)
    outputs = bind_scan(program, captured, init + held, xs, steps, bool(reverse), unroll)
    carry, ys = outputs[:count], outputs[count + len(held) :]
    if touched is not None:
        # The elements of refs in `xs` are stacked like other outputs.
        ys, elements = ys[: ys_tree.num_leaves], ys[ys_tree.num_leaves :]
        touched.write([*outputs[count : count + len(held)], *elements], placed)
    return carry_tree.unflatten(carry), _stacked_float0(ys_tree.unflatten(ys), steps)


def _stacked_float0(ys, steps):
    return float0.reshaped(ys, lambda shape: (steps, *shape))


def _trace(f, trees, types, leaves, refs):
    """`(program, captured, refs, tree of the carry, tree of the stacked outputs)`."""
    program, captured, out_tree, touched = common.trace(f, trees, types, "scan", leaves, refs)
    children = out_tree.children()
    if len(children) != 2 or not issubclass(out_tree.node_data()[0], (tuple, list)):
        dummy = out_tree.unflatten([core.ShapedArray(*ty) for ty in program.out_types])
        raise TypeError(
            f"scan body output must be a pair (carry, y), got {dummy} from "
            f"{api_util.fun_place(f)}.{common.at_user_line()}"
        )
    return program, captured, touched, *children


def _length(xs, tree, types, length) -> int:
    """The number of steps. Errors: ValueError that lists the leaves that do not fit it."""
    if any(not shape for shape, *_ in types):
        bad = [leaf for leaf, (shape, *_) in zip(xs, types) if not shape]
        raise ValueError(
            "scan: no leading axis in the scalars of xs: "
            f"{', '.join(map(str, bad))}. Every leaf of xs is an array of one element for each "
            f"step.{common.at_user_line()}"
        )
    sizes = [shape[0] for shape, *_ in types]
    if length is not None:
        length = core.concrete_or_error(
            operator.index if is_symbolic_dim(length) else int,
            length,
            "scan: `length` has to be known while tracing; mark it as static. A number of steps that "
            "is known when the program runs is for `fori_loop` and `while_loop`.",
        )
        if surely_below(length, 0):
            raise ValueError(f"scan: length must not be negative, got {length}")
        if any(size != length for size in sizes):
            raise ValueError(
                f"scan got `length` argument of {length} which disagrees with leading axis sizes "
                f"{sizes}:\n{_list_sizes(tree, types)}{common.at_user_line()}"
            )
        return length
    if not sizes:
        raise ValueError(
            "scan: xs has no arrays and `length` not provided, so the number of steps is unknown; "
            "pass one of them."
        )
    if len(set(sizes)) > 1:
        raise ValueError(
            f"scan: leaves of xs have different leading axis sizes: {', '.join(map(str, sizes))}.\n"
            f"{_list_sizes(tree, types)}{common.at_user_line()}"
        )
    return sizes[0]


def _list_sizes(tree, types) -> str:
    return "\n".join(
        f"  * xs{path} has type {common.type_text(ty)}"
        for path, ty in zip(common.paths(tree), types)
    )


def _unroll(unroll, length) -> int:
    unroll = core.concrete_or_error(
        None,
        unroll,
        "scan: `unroll` has to be known while tracing; mark it as static.",
    )
    if isinstance(unroll, bool):
        return max(length, 1) if unroll else 1
    try:
        unroll = operator.index(unroll)
    except TypeError:
        raise TypeError(
            "scan: `unroll` is a number of steps for each iteration, or True for all of them; got "
            f"{unroll!r} of type {type(unroll).__name__}."
        ) from None
    if unroll < 0:
        raise ValueError(f"scan: `unroll` cannot be negative, got {unroll}; 0 stands for all steps.")
    return unroll or max(length, 1)


def bind_scan(program, captured, init, xs, length, reverse, unroll):
    """The carry's and the stacked outputs' leaves, for a body that takes what it captured first.

    A carry that the body hands on unchanged becomes a constant of the loop, and an output that is
    an element of `xs` is `xs`.
    """
    consts, carry = len(captured), len(init)
    handed_on = program.forwarded()
    fixed = [place == consts + i for i, place in enumerate(handed_on[:carry])]
    copied = [
        None if place is None or place < consts + carry else place - consts - carry
        for place in handed_on[carry:]
    ]
    still = [i for i in range(carry) if fixed[i]]
    moving = [i for i in range(carry) if not fixed[i]]
    if still or any(place is not None for place in copied):
        kept = moving + [carry + i for i, place in enumerate(copied) if place is None]
        order = [
            *[consts + i for i in still],
            *range(consts),
            *[consts + i for i in moving],
            *range(consts + carry, consts + carry + len(xs)),
        ]
        program = program.rearranged(order, kept)
    outputs = bind_over_programs(
        "scan",
        (*[init[i] for i in still], *captured, *[init[i] for i in moving], *xs),
        {
            "jaxpr": program,
            "length": length,
            "num_carry": len(moving),
            "num_consts": consts + len(still),
            "reverse": reverse,
            "unroll": unroll,
        },
    )
    outputs = iter(outputs)
    result = [core.as_array(leaf) if same else next(outputs) for leaf, same in zip(init, fixed)]
    result += [next(outputs) if place is None else core.as_array(xs[place]) for place in copied]
    return result


def _python_loop(f, carry, xs, xs_tree, length, reverse):
    """What runs under `disable_jit`."""
    if length == 0:
        raise ValueError(
            "zero-length scan: without steps, nothing tells the type of the outputs under "
            "disable_jit; run this scan with jit."
        )
    xs = [core.as_array(x) for x in xs]
    ys = []
    for i in range(length - 1, -1, -1) if reverse else range(length):
        element = [slicing.index_in_dim(x, i, keepdims=False) for x in xs]
        carry, y = f(carry, xs_tree.unflatten(element))
        ys.append(y)
    if reverse:
        ys.reverse()
    trees = [float0.hide(y) for y in ys]
    stacked = tree_util.tree_map(
        lambda *ys: concatenate([expand_dims(y, (0,)) for y in ys], 0), *trees
    )
    return carry, _stacked_float0(float0.show(stacked), length)
