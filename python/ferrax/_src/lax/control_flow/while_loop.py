"""``while_loop`` and ``fori_loop``.

How a loop goes backwards. With ``max_steps`` what each step leaves for the derivative is kept in
arrays with room for that many steps. Without, only the loop's inputs are kept: the backward pass
runs the loop once more, keeping what it needs on stacks that grow and that go when it is done.
With both ``max_steps`` and ``checkpoints`` the backward pass runs the loop once more too, but keeps
only so many values of it, and runs parts of it again from these: binomial checkpointing, which does
with the fewest runs for the memory (Griewank and Walther, Algorithm 799: Revolve, ACM TOMS 26,
2000). The schedule is for ``max_steps`` steps until the loop has ended, then for those made.
With ``checkpoints`` alone, and so no schedule, the loop becomes loops of so many steps in a loop: the
first values of the inner loops are what is kept on stacks, until an inner loop goes backwards.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import config, dtypes, errors
from ferrax._src.core import api_util, float0
from ferrax._src.core.primitives import bind_over_programs
from ferrax._src.dims import is_symbolic_dim
from ferrax._src.dims.sizes import max_dim, surely_below
from ferrax._src.lax import elementwise
from ferrax._src.lax.control_flow import common
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.state import arguments as ref_args
from ferrax._src.tree import tree_util

__all__ = ["fori_loop", "while_loop"]


def while_loop(
    cond_fun: Callable, body_fun: Callable, init_val: Any, *, max_steps: int | None = None,
    checkpoints: int | None = None,
) -> Any:
    """Applies ``body_fun`` to a value as long as ``cond_fun`` holds of it.

    Both functions are traced and compiled as a loop. All transformations go through it, reverse
    mode too, whatever the number of steps; ``max_steps`` and ``checkpoints`` choose what reverse
    mode costs. For ``n`` steps, a value of size ``s`` and residuals of size ``r`` for each step
    (at most what the step computes):

    ===================  =====================================  ========================
    arguments            memory                                 runs forwards
    ===================  =====================================  ========================
    none                 ``n r``, during the backward pass      2
    ``max_steps``        ``max_steps r``, between the passes    1
    ``checkpoints=c``    ``(n / c) s + c r``                    3
    both                 ``(c + 1) s + r``                      at most ``k + 2``
    ===================  =====================================  ========================

    Here ``k`` is the least number with ``comb(c + k, c) >= max_steps``, where ``comb`` counts
    combinations: 2 for 60 steps and 10 checkpoints, 4 for 1000, and 5 for 2000. If there are as many
    steps as there may be, the loop's function is called ``(k + 2) n - comb(c + k, c + 1)`` times, the
    fewest for so many values and a forward pass that keeps nothing. Reverse mode of reverse mode
    multiplies both: 60 steps with 10 checkpoints take 228 calls for a gradient, 3000 for its gradient;
    forward mode of reverse mode (``hessian``) does not.

    A gradient through 100 steps over 4 MB took 398 MB without arguments, 104 MB with
    ``checkpoints=10``, and with ``max_steps=100`` too 40 MB, or 12 MB for 3 checkpoints.

    Args:
      cond_fun: a function of the value that returns a boolean scalar.
      body_fun: a function from the value to the next one, of the same structure, shapes and
        dtypes; a weakly typed first value takes the dtype that ``body_fun`` gives it.
      init_val: the first value, a pytree of arrays.
      max_steps: how many steps there are at most.
      checkpoints: how many values of the loop reverse mode keeps at a time, the first included: at
        least 1, and at least 2 without ``max_steps``.

    Errors: TypeError for a condition that is no boolean scalar, for a value that changes
    structure, shape or dtype (it lists where), and for bounds that are no ints; ValueError for a
    negative ``max_steps`` or too few ``checkpoints``, and when the loop runs if the condition still
    holds after ``max_steps`` steps. NotImplementedError for reverse mode with other arguments than
    ``max_steps`` alone if steps need results of operations with effects: those happen only once.

    >>> lax.while_loop(lambda x: x < 100, lambda x: 2 * x, 3)
    Array(192, dtype=int32, weak_type=True)
    >>> ferrax.grad(lambda x: lax.while_loop(lambda y: y < 100, lambda y: y * y, x))(3.0)
    Array(17496., dtype=float32, weak_type=True)
    """
    if not (callable(body_fun) and callable(cond_fun)):
        raise TypeError(
            "lax.while_loop: cond_fun and body_fun have to be callable, got "
            f"{type(cond_fun).__name__} and {type(body_fun).__name__}."
        )
    max_steps = _bound("max_steps", max_steps, 0)
    checkpoints = _bound("checkpoints", checkpoints, 2 if max_steps is None else 1)
    if config.disable_jit.value:
        try:
            return _python_loop(cond_fun, body_fun, init_val, max_steps)
        except errors.ConcretizationTypeError:
            pass  # Nobody knows the value, under vmap for instance: trace after all.
    ref_args.reject(
        tree_util.tree_leaves(init_val), "lax.while_loop, in the value,", "Close over it."
    )
    init, tree, types = common.flatten(init_val, "lax.while_loop")
    traced = _trace(cond_fun, body_fun, tree, types, init)
    out_types = traced[2].out_types[: traced[4].num_leaves]
    if len(out_types) == len(init):
        init, types, changed = common.promote_carry(init, types, out_types, body_fun)
        if changed:
            traced = _trace(cond_fun, body_fun, tree, types, init)
            out_types = traced[2].out_types
    condition, condition_captured, body, body_captured, out_tree, asked, touched = traced
    out_types = out_types[: out_tree.num_leaves]
    common.check_carry("while_loop body", body_fun, tree, types, out_tree, out_types)
    if checkpoints is not None and max_steps is None:
        return _in_levels(cond_fun, body_fun, tree.unflatten(init), checkpoints)
    if asked is not None and asked.count:
        return _while_with_effects(
            cond_fun, body_fun, out_tree.unflatten(init), max_steps=max_steps, checkpoints=checkpoints
        )
    count = len(init)
    body, body_captured, held = common.carry_refs(body, body_captured, touched, count)
    if held:
        condition, condition_captured = _with_held(
            condition, condition_captured, asked, touched, held, count
        )
    outputs = _bind_while(
        condition,
        condition_captured,
        body,
        body_captured,
        init + held,
        {"checkpoints": checkpoints, "max_steps": max_steps},
    )
    if held:
        touched.write(outputs[count:], {})
    return out_tree.unflatten(outputs[:count])


def _with_held(condition, captured, asked, touched, held, count):
    """The condition of a loop whose carry has what refs hold in the end: `(program, captured)`."""
    entries = {} if asked is None else asked.entries
    places = [
        entries[entry.ref].position if entry.ref in entries else None for entry in touched.written
    ]
    kept = [place for place in range(len(captured)) if place not in places]
    first = len(captured)
    program = condition.rewire(
        [
            *kept,
            *range(first, first + count),
            *[_core.type_of(x) if p is None else p for x, p in zip(held, places)],
        ]
    )
    return program, [captured[place] for place in kept]


def _while_with_effects(cond_fun, body_fun, value, **kept):
    """A loop whose condition writes to refs: it is asked before the loop and after each step."""

    def step(carry):
        value = body_fun(carry[1])
        return cond_fun(value), value

    return while_loop(lambda carry: carry[0], step, (cond_fun(value), value), **kept)[1]


def _bound(name, value, least):
    if value is None:
        return None
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be an int that is known while tracing, or None; got {value!r} of type "
            f"{type(value).__name__}"
        ) from None
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return value


def _in_levels(cond_fun, body_fun, value, size):
    """The same loop as a loop of loops of `size` steps."""

    def run(value):
        return while_loop(
            lambda carry: elementwise.bitwise_and(carry[0] < size, cond_fun(carry[1])),
            lambda carry: (carry[0] + 1, body_fun(carry[1])),
            (np.int32(0), value),
        )[1]

    return while_loop(cond_fun, run, value)


def _trace(cond_fun, body_fun, tree, types, init):
    condition, condition_captured, condition_tree, asked = common.trace(
        cond_fun, (tree,), types, "while_cond", init
    )
    place = f"{api_util.fun_place(cond_fun)}.{common.at_user_line()}"
    if condition_tree != _LEAF:
        raise TypeError(
            f"while_loop: expected a boolean scalar of cond_fun, got the pytree {condition_tree} from "
            f"{place}"
        )
    ty = condition.out_types[0]
    if ty[0] or ty[1] != np.bool_:
        raise TypeError(
            f"while_loop: expected a boolean scalar of cond_fun, got {common.type_text(ty)} from "
            f"{place}"
        )
    body, body_captured, out_tree, touched = common.trace(body_fun, (tree,), types, "while_body", init)
    return condition, condition_captured, body, body_captured, out_tree, asked, touched


_LEAF = tree_util.tree_structure(0)


def _bind_while(condition, condition_captured, body, body_captured, init, kept):
    """The last value's leaves.

    A leaf that the body hands on unchanged and that the condition does not look at becomes a
    constant of the loop.
    """
    consts, count = len(body_captured), len(init)
    fixed = [place == consts + i for i, place in enumerate(body.forwarded())]
    if any(fixed):
        condition, used = condition.trimmed()
        first = len(condition_captured)
        fixed = [same and not flag for same, flag in zip(fixed, used[first:])]
    still = [i for i in range(count) if fixed[i]]
    moving = [i for i in range(count) if not fixed[i]]
    if still:
        condition = condition.rearranged([*range(first), *[first + i for i in moving]], [0])
        order = [*[consts + i for i in still], *range(consts), *[consts + i for i in moving]]
        body = body.rearranged(order, moving)
    outputs = bind_over_programs(
        "while",
        (
            *condition_captured,
            *[init[i] for i in still],
            *body_captured,
            *[init[i] for i in moving],
        ),
        {
            "body_jaxpr": body,
            "body_nconsts": consts + len(still),
            "cond_jaxpr": condition,
            "cond_nconsts": len(condition_captured),
            **kept,
        },
    )
    outputs = iter(outputs)
    return [core.as_array(leaf) if same else next(outputs) for leaf, same in zip(init, fixed)]


def _python_loop(cond_fun, body_fun, value, max_steps):
    """What runs under `disable_jit`."""
    value = _arrays(value)
    steps = 0
    while cond_fun(value):
        if steps == max_steps:
            raise ValueError(
                f"the loop over '{api_util.fun_name(body_fun)}' still goes on after "
                f"max_steps={max_steps} steps; give a larger max_steps, or None for no bound"
            )
        steps += 1
        value = _arrays(body_fun(value))
    return value


def _arrays(tree):
    return float0.show(tree_util.tree_map(core.as_array, float0.hide(tree)))


def _index_dtype(lower, upper):
    """The common dtype of the bounds: equal ones, or that of the one that is no Python int."""
    types = [common.type_of(bound, "lax.fori_loop") for bound in (lower, upper)]
    if any(shape for shape, *_ in types):
        raise TypeError(
            "fori_loop: lower and upper have to be scalars, got "
            f"{' and '.join(map(common.type_text, types))}{common.at_user_line()}"
        )
    (_, first, first_weak), (_, second, second_weak) = types
    if first == second:
        return first
    if all(np.issubdtype(dtype, np.signedinteger) for dtype in (first, second)):
        if first_weak and not second_weak:
            return second
        if second_weak and not first_weak:
            return first
    raise TypeError(
        f"fori_loop: lower and upper have the dtypes {first.name} and {second.name}; convert one to "
        f"the other's{common.at_user_line()}"
    )


def fori_loop(
    lower: Any, upper: Any, body_fun: Callable, init_val: Any, *, unroll: int | bool | None = None,
    max_steps: int | None = None, checkpoints: int | None = None,
) -> Any:
    """Applies ``value = body_fun(i, value)`` for each ``i`` from ``lower`` to ``upper - 1``.

    Where both bounds are known while tracing and no ``checkpoints`` are asked for, this is a
    ``scan``, else a ``while_loop``.

    Args:
      lower, upper: integer scalars of one dtype (Python ints go with any).
      body_fun: a function of the index and the value; returns the next value, of the same
        structure, shapes and dtypes.
      init_val: the first value, a pytree of arrays.
      unroll: as in ``scan``; for known bounds only.
      max_steps, checkpoints: as in ``while_loop``: how many steps there are at most, and how many
        values reverse mode keeps.

    Errors: TypeError for bounds of different dtypes and for a value that changes structure, shape
    or dtype; ValueError for ``unroll`` with bounds that are not known, and for more steps than
    ``max_steps``: at once if the bounds are known, else when the loop runs.

    >>> lax.fori_loop(1, 5, lambda i, product: product * i, 1)
    Array(24, dtype=int32, weak_type=True)
    """
    if not callable(body_fun):
        raise TypeError(
            f"lax.fori_loop: body_fun has to be callable, got {type(body_fun).__name__}."
        )
    if type(lower) is int and type(upper) is int:
        # No step either way; the bound may be less than any dtype holds.
        upper = max(lower, upper)
    dtype = _index_dtype(lower, upper)
    max_steps = _bound("max_steps", max_steps, 0)
    known = _known_bounds(lower, upper)
    length = None if known is None else max_dim(known[1] - known[0], 0)
    checkpoints = _bound("checkpoints", checkpoints, 2 if max_steps is None and length is None else 1)
    if length is not None and max_steps is not None and surely_below(max_steps, length):
        raise ValueError(
            f"fori_loop from {known[0]} to {known[1]} makes {length} steps, more than "
            f"max_steps={max_steps}"
        )
    if length is not None and checkpoints is None:
        first = known[0]
        if config.disable_jit.value and length == 0:
            return init_val
        (_, result), _ = scan(
            _ScanStep(body_fun),
            (first, init_val),
            None,
            length=length,
            unroll=False if unroll is None else unroll,
        )
        return result
    if unroll is not None and unroll is not False and unroll != 1:
        raise ValueError(
            f"fori_loop: unroll={unroll!r} needs bounds that are statically known, got traced ones; "
            f"mark them as static, or leave unroll out.{common.at_user_line()}"
        )
    lower, upper = (_as_dtype(bound, dtype) for bound in (lower, upper))
    _, _, result = while_loop(
        _before_end,
        _WhileStep(body_fun),
        (lower, upper, init_val),
        max_steps=max_steps if length is None else length,
        checkpoints=checkpoints,
    )
    return result


def _known_bounds(lower, upper):
    known = core.to_concrete_value(lower), core.to_concrete_value(upper)
    if any(bound is None for bound in known):
        return None
    try:
        return tuple([bound if is_symbolic_dim(bound) else int(bound) for bound in known])
    except TypeError:
        return None


def _as_dtype(bound, dtype):
    if isinstance(bound, core.Array):
        return elementwise._convert_element_type(bound, dtype) if bound.dtype != dtype else bound
    return bound if _core.type_of(bound)[1] == dtype else np.asarray(bound).astype(dtype)[()]


class _ScanStep(common.OfUser):
    """The body of a loop with a known number of steps."""

    __slots__ = ()

    def __call__(self, loop_carry, _):
        i, value = loop_carry
        return (i + 1, self.func(i, value)), None

    def leaf_names(self, trees):
        index, value = trees[0].children()
        return common.leaf_names(self.func, (index, value))


class _WhileStep(common.OfUser):
    """The body of a loop whose end is a value of its carry."""

    __slots__ = ()

    def __call__(self, loop_carry):
        i, upper, value = loop_carry
        return elementwise.add(i, _one(i)), upper, self.func(i, value)

    def leaf_names(self, trees):
        index, _, value = trees[0].children()
        first, *rest = common.leaf_names(self.func, (index, value))
        return [first, "upper", *rest]


def _one(i):
    if not i.weak_type:
        return np.ones((), i.dtype)[()]
    return 1.0 if dtypes.issubdtype(i.dtype, np.floating) else 1


def _before_end(loop_carry):
    i, upper, _ = loop_carry
    return elementwise.lt(i, upper)
