"""Explicit types of operations that move elements: transposes, reshapes, slices, joins, windows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ferrax._src.core.partition import entry_names
from ferrax._src.core.spec_rules.equation import (
    Equation,
    Rule,
    Specs,
    joined,
    made,
    no_sums,
    resized,
    undivided,
    without,
)


def broadcast_in_dim(equation: Equation) -> Specs:
    spec, shape = equation.specs[0], equation.params["shape"]
    if spec is None:
        return [None]
    entries: list[Any] = [None] * len(shape)
    for entry, size, axis in zip(spec.partitions, equation.shapes[0], equation.params["broadcast_dimensions"]):
        entries[axis] = entry if size == shape[axis] or equation.parts(entry) == 1 else None
    return [spec.update(partitions=entries)]


def transpose(equation: Equation) -> Specs:
    spec = equation.specs[0]
    if spec is None:
        return [None]
    return [spec.update(partitions=[spec.partitions[axis] for axis in equation.params["permutation"]])]


def squeeze(equation: Equation) -> Specs:
    rank = len(equation.shapes[0])
    return [without(equation.specs[0], [axis % rank for axis in equation.params["dimensions"]])]


def _groups(before, after) -> Iterator[tuple[list[int], list[int]]]:
    """The runs of axes that are not of size one, before and after a reshape, that have as many elements."""
    old = [axis for axis, size in enumerate(before) if size != 1]
    new = [axis for axis, size in enumerate(after) if size != 1]
    while old or new:
        some: list[int] = []
        others: list[int] = []
        x = y = 1
        while not some or x != y:
            if x <= y and old:
                x *= before[old[0]]
                some.append(old.pop(0))
            elif new:
                y *= after[new[0]]
                others.append(new.pop(0))
            else:
                return
        yield some, others


def reshape(equation: Equation) -> Specs:
    """Axes that stay keep their entries; of an axis that is split, parts go over its axes from the major one on; axes
    that are merged are divided from the major one on. One split or merge at a time."""
    spec, before, after = equation.specs[0], equation.shapes[0], equation.params["new_sizes"]
    if spec is None:
        return [None]
    entries: list[Any] = [None] * len(after)
    if not any(spec.partitions):
        return [spec.update(partitions=entries)]
    if math.prod(before) == 0 or equation.params.get("dimensions") is not None:
        equation.refuse(_HINT.format(before=before, after=after))
        return [spec.update(partitions=entries)]
    groups = list(_groups(before, after))
    changed = [group for group in groups if len(group[0]) > 1 or len(group[1]) > 1]
    several = len(changed) > 1 or any(len(old) > 1 and len(new) > 1 for old, new in changed)
    if several and any(spec.partitions[axis] for axis in range(len(before))):
        equation.refuse(_HINT.format(before=before, after=after))
    for old, new in groups:
        names = _names(equation, [spec.partitions[axis] for axis in old], before, after)
        for axis in new:
            size, own = after[axis], []
            while names and size > 1:
                size, left = divmod(size, equation.sizes.get(names[0], 1))
                if left:
                    equation.refuse(_HINT.format(before=before, after=after))
                    names = []
                    break
                own.append(names.pop(0))
            entries[axis] = tuple(own) or None
    return [spec.update(partitions=entries)]


_HINT = (
    "from {before} to {after}, axes that are divided are neither merged from the major one on nor split alone; pass "
    "out_sharding, or reshard before"
)


def _names(equation, entries, before, after) -> list[Any]:
    """The axes of the mesh over which some axes together are divided, major first."""
    while entries and entries[-1] is None:
        entries.pop()
    if None in entries:
        equation.refuse(_HINT.format(before=before, after=after))
        return []
    return [name for entry in entries for name in entry_names(entry)]


def concatenate(equation: Equation) -> Specs:
    known = [spec for spec in equation.specs if spec is not None]
    if any(spec != known[0] for spec in known[1:]):
        equation.refuse("operands are divided differently; reshard one")
        first = known[0]
        return [made(equation, joined(equation, [x.partitions for x in known]), first.unreduced, first.reduced)]
    return [known[0]]


def cut(equation: Equation) -> Specs:
    """Of operations that change the sizes of the first operand's axes."""
    return [resized(equation, 0, shape) for shape in equation.outs]


def windows(equation: Equation) -> Specs:
    no_sums(equation)
    return cut(equation)


def dynamic_slice(equation: Equation) -> Specs:
    no_sums(equation, reduced=False)
    return cut(equation)


def dynamic_update_slice(equation: Equation) -> Specs:
    x, update = equation.specs[:2]
    if x is not None and update is not None and x != update:
        equation.refuse("what is updated and the update are divided differently; reshard one")
    return [update if x is None else x]


def rev(equation: Equation) -> Specs:
    no_sums(equation)
    return list(equation.specs)


def fft(equation: Equation) -> Specs:
    no_sums(equation)
    return cut(equation)


def tile(equation: Equation) -> Specs:
    repeated = [axis for axis, count in enumerate(equation.params["reps"]) if count != 1]
    undivided(equation, 0, repeated, "repeats")
    return cut(equation)


def clamp(equation: Equation) -> Specs:
    """Bounds that are no scalars are divided as the operand."""
    no_sums(equation)
    low, x, high = equation.specs
    for bound, shape in ((low, equation.shapes[0]), (high, equation.shapes[2])):
        if shape and bound is not None and x is not None and bound != x:
            equation.refuse("bounds are divided differently from what is bounded; reshard one")
    return [next((spec for spec in (x, low, high) if spec is not None and len(spec) == len(equation.outs[0])), x)]


RULES: dict[str, Rule] = {
    "broadcast_in_dim": broadcast_in_dim,
    "transpose": transpose,
    "squeeze": squeeze,
    "reshape": reshape,
    "concatenate": concatenate,
    **dict.fromkeys(("slice", "pad", "split"), cut),
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "rev": rev,
    "fft": fft,
    "tile": tile,
    "clamp": clamp,
    **dict.fromkeys(
        ("reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min", "cumred_reduce_window_impl",
         "select_and_scatter", "select_and_scatter_add", "select_and_gather_add"), windows),
}  # fmt: skip
