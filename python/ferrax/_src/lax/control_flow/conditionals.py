"""``cond`` and ``switch``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core, state
from ferrax._src.base import config
from ferrax._src.core.primitives import bind_over_programs
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import elementwise
from ferrax._src.lax.control_flow import common
from ferrax._src.state import arguments as ref_args

__all__ = ["cond", "switch"]


def _operands(operands, operand):
    if operand is common.absent:
        return operands
    if operands:
        raise TypeError(
            "cond: operands are positional or the keyword 'operand', not both; got "
            f"operand={operand!r} and {operands}"
        )
    return (operand,)


def _scalar_type(value, what, wanted):
    """The dtype of a scalar. Errors: TypeError for other shapes and for what is no number."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        raise TypeError(f"{what} must be a scalar, got {value} of type {type(value)}.")
    try:
        shape, dtype, *_ = _core.type_of(value)
    except TypeError as error:
        raise TypeError(f"{what} type must be {wanted}, got {value!r}.") from error
    if shape:
        raise TypeError(
            f"{what} must be a scalar, got {value} of shape {shape}. Choose between elements with jnp.where or "
            "lax.select_n, or map the function over the array with vmap."
        )
    return dtype


def _known(value):
    """The number that a scalar is or stands for, else None."""
    value = core.to_concrete_value(value)
    return None if value is None else np.asarray(value)[()]


class _OfOne(common.OfUser):
    """A branch that takes one of the operands, that of this number."""

    __slots__ = ()

    def __call__(self, *operands):
        (number,) = self.rest
        return self.func(operands[number])


def cond(
    pred: ArrayLike, true_fun: Callable, false_fun: Callable, *operands: Any,
    operand: Any = common.absent,
) -> Any:
    """Applies one of two functions: ``true_fun`` where ``pred`` holds, else ``false_fun``.

    Both functions are traced; at run time one of them runs. Under ``vmap`` over ``pred`` both
    run, and each lane takes the results of its own.

    Args:
      pred: a scalar; numbers count as true unless 0.
      true_fun, false_fun: functions of ``*operands`` whose results have one tree structure and
        one shape and dtype at each leaf.
      operands: pytrees of arrays.
      operand: one operand, by keyword.

    The form ``cond(pred, true_operand, true_fun, false_operand, false_fun)`` works too.

    Returns what the function returns. Errors: TypeError for predicates that are no numeric
    scalars and for functions whose results differ in structure, shape or dtype; it lists where.

    >>> lax.cond(True, lambda x: x + 1, lambda x: x - 1, 10.0)
    Array(11., dtype=float32, weak_type=True)
    """
    if not (callable(true_fun) and callable(false_fun)):
        if callable(false_fun) and len(operands) == 2 and callable(operands[1]):
            true_operand, on_true, false_operand, on_false = true_fun, false_fun, *operands
            return cond(
                pred, _OfOne(on_true, 0), _OfOne(on_false, 1), true_operand, false_operand
            )
        raise TypeError(
            "lax.cond: true_fun and false_fun have to be callable, got "
            f"{type(true_fun).__name__} and {type(false_fun).__name__}. For values that are "
            "computed already there is jnp.where."
        )
    operands = _operands(operands, operand)
    if pred is None:
        raise TypeError("cond predicate is None, expected a scalar")
    dtype = _scalar_type(pred, "Pred", "either boolean or number")
    if getattr(dtype, "kind", "key") not in "biuf":
        raise TypeError(
            f"cond: pred has to be a boolean or a number, got {dtype}; compare it first"
        )
    if config.disable_jit.value:
        known = _known(pred)
        if known is not None:
            return (true_fun if known else false_fun)(*operands)
    index: Any
    if isinstance(pred, core.Array):
        if dtype.kind != "b":
            pred = elementwise.ne(pred, np.zeros((), dtype))
        index = elementwise._convert_element_type(pred, np.int32, weak_type=False)
    else:
        index = np.int32(bool(pred))
    return _branches(
        "cond", index, (false_fun, true_fun), ("false_fun", "true_fun"), operands, order=(1, 0)
    )


def switch(
    index: ArrayLike, branches: Sequence[Callable], *operands: Any,
    operand: Any = common.absent,
) -> Any:
    """Applies ``branches[index]`` to the operands; an index out of range is clamped.

    Args:
      index: an integer scalar.
      branches: functions of ``*operands`` whose results have one tree structure and one shape
        and dtype at each leaf.
      operands: pytrees of arrays.
      operand: one operand, by keyword.

    Errors: TypeError for an index that is no integer scalar and for branches whose results
    differ; ValueError if there are no branches.

    >>> lax.switch(2, [jnp.sin, jnp.cos, lambda x: x * x], 3.0)
    Array(9., dtype=float32, weak_type=True)
    """
    branches = tuple(branches)
    if not all(callable(branch) for branch in branches):
        raise TypeError(
            "lax.switch: branches have to be callable, got "
            f"{[type(branch).__name__ for branch in branches]}."
        )
    operands = _operands(operands, operand)
    dtype = _scalar_type(index, "Branch index", "an integer")
    if getattr(dtype, "kind", "key") not in "iu":
        raise TypeError(f"lax.switch: expected an integer index, got {index} of dtype {dtype}.")
    if not branches:
        raise ValueError("lax.switch: Empty sequence of branches, expected one function or more")
    if len(branches) == 1:
        return branches[0](*operands)
    last = len(branches) - 1
    if config.disable_jit.value:
        known = _known(index)
        if known is not None:
            return branches[min(max(int(known), 0), last)](*operands)
    if isinstance(index, core.Array):
        index = elementwise._convert_element_type(index, np.int32, weak_type=False)
        index = elementwise.clamp(np.int32(0), index, np.int32(last))
    else:
        number: Any = index
        index = np.int32(min(max(int(number), 0), last))
    labels = tuple(f"branch {number}" for number in range(len(branches)))
    return _branches("switch", index, branches, labels, operands, order=range(len(branches)))


def _branches(name, index, funs, labels, operands, order):
    """Traces the branches, in this order, checks what they return and binds ``cond``."""
    funs, operands, _ = ref_args.slots(name, funs, operands)
    leaves, trees, types = [], [], []
    for operand in operands:
        own, tree, own_types = common.flatten(operand, f"lax.{name}")
        leaves += own
        trees.append(tree)
        types += own_types
    explicit: list[Any] = []
    bodies = [common.traced_body(funs[i], trees, types, name, leaves, found=explicit) for i in order]
    programs, captured, touched = _core.unite_branches([body for body, _ in bodies])
    out_trees = [tree for _, tree in bodies]
    common.check_branches(
        name,
        [labels[i] for i in order],
        [funs[i] for i in order],
        out_trees,
        [program.out_types[: tree.num_leaves] for program, tree in zip(programs, out_trees)],
    )
    common.check_explicit_branches(name, [labels[i] for i in order], explicit)
    programs, refs = _write_alike(programs, touched)
    inputs = [*captured, *leaves]
    # An output that is the same input in all branches needs no branch.
    handed_on = [
        places[0] if all(place == places[0] for place in places) else None
        for places in zip(*[program.forwarded() for program in programs])
    ]
    kept = [position for position, place in enumerate(handed_on) if place is None]
    if len(kept) != len(handed_on):
        everything = list(range(len(inputs)))
        programs = [program.rearranged(everything, kept) for program in programs]
    ordered: list[Any] = [None] * len(funs)
    for program, place in zip(programs, order):
        ordered[place] = program
    chosen = iter(bind_over_programs("cond", (index, *inputs), {"branches": tuple(ordered)}))
    outputs = [
        next(chosen) if place is None else core.as_array(inputs[place], name)
        for place in handed_on
    ]
    out_tree = out_trees[0]
    for ref, value in zip(refs, outputs[out_tree.num_leaves :]):
        state.write(ref, value)
    return out_tree.unflatten(outputs[: out_tree.num_leaves])


def _write_alike(programs, touched):
    """The programs with the values of every ref that any of them writes as last outputs, and these
    refs. `touched` has for each program what it does to refs, and where what it captured is."""
    places: dict = {}
    refs: dict = {}
    for scope, own in touched:
        if scope is not None:
            for ref, entry in scope.entries.items():
                if entry.position is not None:
                    places.setdefault(ref, own[entry.position])
            refs.update(dict.fromkeys(entry.ref for entry in scope.written))
    if not refs:
        return programs, []
    alike = []
    for program, (scope, own) in zip(programs, touched):
        written = [] if scope is None else [entry.ref for entry in scope.written]
        first = len(program.out_types) - len(written)
        entries = {} if scope is None else scope.entries
        kept = [ref for ref in refs if ref not in written]
        # A branch that leaves a ref alone hands on what it holds.
        program = program.with_outputs(
            [own[entries[ref].position] if ref in entries else places[ref] for ref in kept]
        )
        order = {ref: first + number for number, ref in enumerate([*written, *kept])}
        everything = list(range(len(program.in_types)))
        alike.append(
            program.rearranged(everything, [*range(first), *[order[ref] for ref in refs]])
        )
    return alike, list(refs)
