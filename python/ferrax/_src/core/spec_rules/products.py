"""Explicit types of products of matrices, of convolutions, and of elements at computed places."""

from __future__ import annotations

from typing import Any

from ferrax._src.base.errors import ShardingTypeError
from ferrax._src.core.partition import names_of
from ferrax._src.core.spec_rules.equation import Equation, Rule, Specs, made, no_sums, resized

_UNSAID = (
    "is divided over axes that are summed over, and nobody said how the result should be; pass out_sharding, or reshard"
)


def dot_general(equation: Equation) -> Specs:
    (contract_x, contract_y), (batch_x, batch_y) = equation.params["dimension_numbers"]
    x, y = equation.entries(0), equation.entries(1)
    if equation.unreduced():
        equation.refuse("operands are unreduced, and a product of sums is no sum of products; reshard before")
    for a, b in zip(batch_x, batch_y):
        if x[a] is not None and y[b] is not None and x[a] != y[b]:
            equation.refuse("the axes of a batch are divided differently; reshard one")
    for a, b in zip(contract_x, contract_y):
        if x[a] is not None and y[b] is not None:
            equation.refuse(_UNSAID)
    summed = [x[a] for a in contract_x], [y[b] for b in contract_y]
    asked = equation.summed_over(summed[0])
    if asked and (summed[0] != summed[1] or asked != frozenset(names_of(summed[0]))):
        raise ShardingTypeError(
            f"dot_general: the result was asked to be unreduced over {set(asked)}: the axes that are summed over must "
            f"be divided over these on both sides, and are {tuple(summed[0])} and {tuple(summed[1])}"
        )
    # As JAX has it, the first operand says how a batch is divided.
    batch = [x[a] if equation.strict else x[a] or y[b] for a, b in zip(batch_x, batch_y)]
    free = [entry for axis, entry in enumerate(x) if axis not in (*contract_x, *batch_x)]
    free += [entry for axis, entry in enumerate(y) if axis not in (*contract_y, *batch_y)]
    return [made(equation, (*batch, *free), asked)]


def ragged_dot_general(equation: Equation) -> Specs:
    if any(spec is not None and any(spec.partitions) for spec in equation.specs):
        equation.refuse(_UNSAID)
    spec = equation.first()
    return [spec and made(equation, [None] * len(equation.outs[0]))]


def convolution(equation: Equation) -> Specs:
    """Over the batch and the places; features are not cut, nor is the kernel."""
    no_sums(equation)
    lhs, rhs = equation.specs[:2]
    numbers = equation.params["dimension_numbers"]
    batch, feature = numbers.lhs_spec[:2]
    if (rhs is not None and any(rhs.partitions)) or equation.entries(0)[feature] is not None:
        equation.refuse("features or the kernel are divided, nobody said how the result should be; pass out_sharding")
    if lhs is None:
        return [rhs and made(equation, [None] * len(equation.outs[0]))]
    if numbers.lhs_spec == numbers.out_spec and equation.strict:
        return [resized(equation, 0, equation.outs[0])]
    entries: list[Any] = [None] * len(equation.outs[0])
    entries[numbers.out_spec[0]] = lhs.partitions[batch]
    return [made(equation, entries)]


def _places(numbers, name) -> tuple[int, ...]:
    return tuple(getattr(numbers, name, ()) or ())


def gather(equation: Equation) -> Specs:
    """Axes that are taken whole keep their entries, and so do those of a batch; indices are not divided else."""
    no_sums(equation)
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    x, places = equation.entries(0), list(equation.entries(1))
    if equation.first() is None:
        return [None]
    rank = len(equation.outs[0])
    if not any(x) and not any(places):
        return [made(equation, [None] * rank)]
    batch, own = _places(numbers, "operand_batching_dims"), _places(numbers, "start_indices_batching_dims")
    whole = all(sizes[axis] == equation.shapes[0][axis] or x[axis] is None for axis in numbers.start_index_map)
    agreed = all(x[a] == places[b] or None in (x[a], places[b]) for a, b in zip(batch, own))
    if not whole or not agreed or any(entry for axis, entry in enumerate(places) if axis not in own):
        equation.refuse(
            "it is not said how what is taken out should be divided; pass out_sharding, as x.at[i].get(out_sharding=…)"
        )
    for a, b in zip(batch, own):
        places[b] = places[b] or x[a]
    gone = (*numbers.collapsed_slice_dims, *batch)
    taken = iter(
        entry if sizes[axis] == equation.shapes[0][axis] else None
        for axis, entry in enumerate(x) if axis not in gone
    )  # fmt: skip
    rest = iter(places)
    return [made(equation, [next(taken) if axis in numbers.offset_dims else next(rest, None) for axis in range(rank)])]


def scatter(equation: Equation) -> Specs:
    """As `gather` the other way: what is updated keeps its spec, and updates of whole axes are divided like it."""
    no_sums(equation)
    if equation.first() is None:
        return [None]
    numbers = equation.params["dimension_numbers"]
    x, places, updates = (list(equation.entries(number)) for number in range(3))
    shape, given = equation.shapes[0], equation.shapes[2]
    window, inserted = numbers.update_window_dims, numbers.inserted_window_dims
    batch, own = _places(numbers, "operand_batching_dims"), _places(numbers, "scatter_indices_batching_dims")
    free = [axis for axis in range(len(shape)) if axis not in (*inserted, *batch)]
    others = [axis for axis in range(len(given)) if axis not in window]
    at = [others[axis] for axis in own]
    agreed = all(
        len({entry for entry in (x[a], places[b], updates[c]) if entry is not None}) <= 1
        for a, b, c in zip(batch, own, at)
    )
    windows = all(
        (given[u] == shape[a] and updates[u] == x[a]) or (updates[u] is None and x[a] is None)
        for u, a in zip(window, free)
    )
    loose = [x[axis] for axis in inserted]
    loose += [updates[axis] for axis in others if axis not in at]
    loose += [entry for axis, entry in enumerate(places) if axis not in own]
    # Updates that are on no mesh are made of numbers, and are divided as they need to be.
    if equation.specs[2] is None:
        windows = all(given[u] == shape[a] or x[a] is None for u, a in zip(window, free))
    if not (agreed and windows) or any(loose):
        equation.refuse(
            "it is not said how the updated array should be divided; pass out_sharding, as x.at[i].set(y, "
            "out_sharding=…)"
        )
    if equation.specs[0] is None or equation.strict:
        for a, b, c in zip(batch, own, at):
            x[a] = x[a] or places[b] or updates[c]
        for u, a in zip(window, free):
            x[a] = x[a] or (updates[u] if given[u] == shape[a] else None)
    return [made(equation, x)]


RULES: dict[str, Rule] = {
    "dot_general": dot_general,
    "ragged_dot_general": ragged_dot_general,
    "conv_general_dilated": convolution,
    "gather": gather,
    **dict.fromkeys(
        ("scatter", "scatter_add", "scatter-add", "scatter_sub", "scatter-sub", "scatter_mul", "scatter-mul",
         "scatter_min", "scatter-min", "scatter_max", "scatter-max", "scatter_apply"), scatter),
}  # fmt: skip
