"""Types over explicit axes of a mesh: for each primitive, how results are divided, by how operands are.

A spec here is a tuple with an entry for each axis of an array (None, a name, a tuple of names), or None for
values that are on no mesh. A rule gives the specs of an equation's outputs. Where an operation cannot be
done without talk between devices of which nobody said how it should go (both sides of a contraction
divided, axes that are merged or split across parts), there is `ShardingTypeError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ferrax._src.base.errors import ShardingTypeError
from ferrax._src.core.jaxpr import Literal
from ferrax._src.core.partition import filled

Spec = tuple[Any, ...]


def specs_of(jaxpr: Any, inputs: Sequence[Spec | None]) -> list[Spec | None]:
    """The specs of a jaxpr's outputs. Errors: ShardingTypeError."""
    known: dict[Any, Spec | None] = {}
    for var, spec in zip(jaxpr.invars, inputs):
        known[var] = None if spec is None else spec + (None,) * (var.aval.ndim - len(spec))

    def of(atom):
        return None if isinstance(atom, Literal) else known.get(atom)

    for eqn in jaxpr.eqns:
        given = [of(atom) for atom in eqn.invars]
        if all(spec is None for spec in given) and eqn.primitive.name not in _STATED:
            continue
        known.update(zip(eqn.outvars, _of_equation(eqn, given)))
    return [of(atom) for atom in jaxpr.outvars]


def joined(name: str, specs: Sequence[Spec]) -> Spec:
    """The spec of what has the axes of all. Errors: ShardingTypeError where two of them differ."""
    result = []
    for entries in zip(*specs):
        said = [entry for entry in dict.fromkeys(entries) if entry is not None]
        if len(said) > 1:
            raise ShardingTypeError(
                f"{name}: operands are divided differently, as {' and '.join(map(str, specs))}; reshard one"
            )
        result.append(said[0] if said else None)
    return tuple(result)


def _of_equation(eqn, inputs) -> list[Spec | None]:
    name = eqn.primitive.name
    rule = _STATED.get(name) or _RULES.get(name)
    if rule is not None:
        return rule(eqn, inputs)
    if name.startswith("reduce_") and "axes" in eqn.params:
        return [_without(_first(inputs), eqn.params["axes"])] * len(eqn.outvars)
    for inner in ("jaxpr", "call_jaxpr"):
        if inner in eqn.params:
            jaxpr = _open(eqn.params[inner])
            if len(jaxpr.invars) == len(inputs) and len(jaxpr.outvars) == len(eqn.outvars):
                return specs_of(jaxpr, inputs)
    return [_alike(name, eqn, inputs, out.aval.shape) for out in eqn.outvars]


def _open(jaxpr):
    return getattr(jaxpr, "jaxpr", jaxpr)


def _first(inputs) -> Spec | None:
    return next((spec for spec in inputs if spec is not None), None)


def _alike(name, eqn, inputs, shape) -> Spec | None:
    """The spec of an output that is made element by element, or keeps its axes."""
    alike = [
        spec
        for atom, spec in zip(eqn.invars, inputs)
        if spec is not None and tuple(atom.aval.shape) == tuple(shape)
    ]
    return joined(name, alike) if alike else None


def _without(spec, axes) -> Spec | None:
    if spec is None:
        return None
    return tuple(entry for axis, entry in enumerate(spec) if axis not in axes)


def _kept(eqn, inputs):
    """Of operations that change sizes of the first operand at most."""
    return [inputs[0]] * len(eqn.outvars)


def _broadcast_in_dim(eqn, inputs):
    spec, shape = inputs[0], eqn.params["shape"]
    if spec is None:
        return [None]
    entries: list[Any] = [None] * len(shape)
    for entry, size, axis in zip(spec, eqn.invars[0].aval.shape, eqn.params["broadcast_dimensions"]):
        entries[axis] = entry if size == shape[axis] else None
    return [tuple(entries)]


def _transpose(eqn, inputs):
    spec = inputs[0]
    return [spec and tuple(spec[axis] for axis in eqn.params["permutation"])]


def _squeeze(eqn, inputs):
    rank = eqn.invars[0].aval.ndim
    return [_without(inputs[0], [axis % rank for axis in eqn.params["dimensions"]])]


def _groups(before, after):
    """The runs of axes, before and after a reshape, that have as many elements."""
    i = j = 0
    while i < len(before) or j < len(after):
        first, second = i, j
        x = y = 1
        while True:
            if x == y and (i > first or j > second):
                break
            if x <= y and i < len(before):
                x *= before[i]
                i += 1
            elif j < len(after):
                y *= after[j]
                j += 1
            else:
                x *= math.prod(before[i:])
                i = len(before)
                break
        yield range(first, i), range(second, j)


def _reshape(eqn, inputs):
    spec, before, after = inputs[0], eqn.invars[0].aval.shape, eqn.params["new_sizes"]
    if spec is None:
        return [None]
    entries: list[Any] = [None] * len(after)
    for old, new in _groups(before, after):
        own = [axis for axis in old if before[axis] != 1 or spec[axis] is not None]
        made = [axis for axis in new if after[axis] != 1]
        said = [axis for axis in own if spec[axis] is not None]
        if not said:
            continue
        if len(own) == 1 and len(made) >= 1:
            # One axis, or one that is split: its parts go over the first.
            entries[made[0]] = spec[own[0]]
        elif len(made) == 1 and said == own[: len(said)]:
            names: list[Any] = []
            for axis in said:
                names += spec[axis] if isinstance(spec[axis], tuple) else (spec[axis],)
            entries[made[0]] = names[0] if len(names) == 1 else tuple(names)
        elif made or any(before[axis] != 1 for axis in own):
            raise ShardingTypeError(
                f"reshape of {before}, divided as {spec}, to {after}: axes that are divided are neither merged "
                "nor split alone; pass out_sharding, or reshard before"
            )
    return [tuple(entries)]


def _dot_general(eqn, inputs):
    (contract_x, contract_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    ranks = [atom.aval.ndim for atom in eqn.invars]
    x, y = ((None,) * rank if spec is None else spec for spec, rank in zip(inputs, ranks))
    for a, b in zip(contract_x, contract_y):
        if x[a] is not None and y[b] is not None:
            raise ShardingTypeError(
                f"dot_general: axes that are summed over are divided on both sides, {x} and {y}, and it is not "
                "said how the result should be: pass out_sharding, or reshard before"
            )
    batch = joined("dot_general", [[x[a] for a in batch_x], [y[a] for a in batch_y]])  # type: ignore[list-item]
    free = [x[a] for a in range(ranks[0]) if a not in (*contract_x, *batch_x)]
    free += [y[a] for a in range(ranks[1]) if a not in (*contract_y, *batch_y)]
    said = [entry for entry in (*batch, *free) if entry is not None]
    if len(set(said)) < len(said):
        raise ShardingTypeError(
            f"dot_general: two axes of the result would be divided alike, as {(*batch, *free)}; reshard before"
        )
    return [(*batch, *free)]


def _concatenate(eqn, inputs):
    return [joined("concatenate", [spec for spec in inputs if spec is not None])]


def _gather(eqn, inputs):
    """Axes that are taken whole keep their entries."""
    spec = inputs[0]
    if spec is None:
        return [None] * len(eqn.outvars)
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    gone = (*numbers.collapsed_slice_dims, *getattr(numbers, "operand_batching_dims", ()))
    whole = [
        entry if sizes[axis] == eqn.invars[0].aval.shape[axis] else None
        for axis, entry in enumerate(spec)
        if axis not in gone
    ]
    entries: list[Any] = [None] * eqn.outvars[0].aval.ndim
    for axis, entry in zip(numbers.offset_dims, whole):
        entries[axis] = entry
    return [tuple(entries)]


def _scan(eqn, inputs):
    consts, count = eqn.params["num_consts"], eqn.params["num_carry"]
    rest = [None if spec is None else spec[1:] for spec in inputs[consts + count :]]
    outs = specs_of(_open(eqn.params["jaxpr"]), [*inputs[: consts + count], *rest])
    stacked = [None if spec is None else (None, *spec) for spec in outs[count:]]
    carry = [new if old is None else old for old, new in zip(inputs[consts : consts + count], outs)]
    return [*carry, *stacked]


def _while(eqn, inputs):
    return inputs[eqn.params["cond_nconsts"] + eqn.params["body_nconsts"] :]


def _cond(eqn, inputs):
    branches = [specs_of(_open(branch), inputs[1:]) for branch in eqn.params["branches"]]
    return [_first(found) for found in zip(*branches)]


def _custom(eqn, inputs):
    """Of functions with derivatives of their own, and of loops in several forms: as element by element."""
    return [_alike(eqn.primitive.name, eqn, inputs, out.aval.shape) for out in eqn.outvars]


def _filled(spec, aval) -> Spec:
    return filled(spec, aval.ndim).partitions


_RULES: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "transpose": _transpose,
    "squeeze": _squeeze,
    "reshape": _reshape,
    "dot_general": _dot_general,
    "concatenate": _concatenate,
    "gather": _gather,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "sweeps": _custom,
    **dict.fromkeys(
        ("slice", "dynamic_slice", "dynamic_update_slice", "pad", "rev", "scatter", "scatter_add",
         "scatter-add", "scatter_mul", "scatter_min", "scatter_max", "copy", "copy_p"),
        _kept,
    ),
    "optimization_barrier": lambda eqn, inputs: list(inputs),
    **dict.fromkeys(
        ("argmax", "argmin"), lambda eqn, inputs: [_without(inputs[0], eqn.params["axes"])]
    ),
}  # fmt: skip
# Primitives that say how their results are divided.
_STATED: dict[str, Callable] = {
    "reshard": lambda eqn, inputs: [
        _filled(eqn.params["dst_sharding"].spec, eqn.outvars[0].aval)
    ],
    "shard_map": lambda eqn, inputs: [
        _filled(spec, out.aval) for spec, out in zip(eqn.params["out_specs"], eqn.outvars)
    ],
}
