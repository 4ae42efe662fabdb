"""Explicit types of operations element by element, of reductions and of what keeps axes as they are."""

from __future__ import annotations

from typing import Any

from ferrax._src.core.partition import names_of
from ferrax._src.core.spec_rules.equation import (
    Equation,
    Rule,
    Spec,
    Specs,
    joined,
    made,
    no_sums,
    undivided,
    without,
)


def reduced_by_all(equation: Equation) -> frozenset:
    """The axes that operands are reduced over: the same of all that are on the mesh."""
    said = {spec.reduced for spec in equation.specs if spec is not None and spec.reduced}
    if len(said) > 1:
        shown = ", ".join(str(set(names)) for names in said)
        equation.refuse(f"operands are reduced over different axes, {shown}; reshard one")
    reduced = next(iter(said), frozenset())
    if reduced:
        for spec in equation.specs:
            if spec is None:
                continue
            if set(names_of(spec.partitions)) & reduced:
                equation.refuse(f"an operand is divided over {set(reduced)}, another is reduced over it; reshard one")
            elif not reduced <= spec.reduced | spec.unreduced:
                equation.refuse(f"an operand is whole over {set(reduced)}, another is reduced over it; reshard one")
    return reduced


def nary(equation: Equation) -> Specs:
    """The default: results are divided as the operands of their shape together."""
    no_sums(equation, reduced=False)
    reduced = reduced_by_all(equation)
    return [_alike(equation, shape, frozenset(), reduced) for shape in equation.outs]


def _alike(equation, shape, unreduced, reduced) -> Spec | None:
    """Scalars beside arrays are broadcast, and say nothing."""
    specs = [spec.partitions for spec, own in zip(equation.specs, equation.shapes) if spec is not None and own == shape]
    if specs:
        return made(equation, joined(equation, specs), unreduced, reduced)
    if any(spec is not None for spec in equation.specs):
        return made(equation, [None] * len(shape), unreduced, reduced)
    return None


def add(equation: Equation) -> Specs:
    """Sums of sums over the same axes are such sums."""
    reduced = reduced_by_all(equation)
    said = [frozenset() if spec is None else spec.unreduced for spec in equation.specs]
    if len(set(said)) > 1:
        equation.refuse("one operand is unreduced where the other is not; reshard it before")
    unreduced = frozenset().union(*said)
    return [_alike(equation, equation.outs[0], unreduced, reduced - unreduced)]


def mul(equation: Equation) -> Specs:
    """A sum times what is the same on all devices (`reduced`) is such a sum."""
    reduced = reduced_by_all(equation)
    x, y = (frozenset() if spec is None else spec.unreduced for spec in equation.specs)
    if x and y:
        equation.refuse("both operands are unreduced, and a product of sums is no sum of products; reshard before")
    for sums, other in ((x, equation.specs[-1]), (y, equation.specs[0])):
        if sums and (other is None or other.reduced != sums):
            equation.refuse(f"an operand is unreduced over {set(sums)}, so that the other must be reduced over it")
    unreduced = x | y
    return [_alike(equation, equation.outs[0], unreduced, reduced - unreduced)]


def kept(equation: Equation) -> Specs:
    """Results have the spec of the first operand, sums included."""
    return [equation.specs[0]] * len(equation.outs)


def select(equation: Equation) -> Specs:
    """All cases are divided alike, and so is what selects, if it is no scalar."""
    cases = [spec for spec in equation.specs[1:] if spec is not None]
    which = equation.specs[0] if equation.shapes[0] else None
    if any(spec != cases[0] for spec in cases[1:]):
        equation.refuse("the cases are divided differently; reshard one")
    if which is not None and cases and which.partitions != cases[0].partitions:
        equation.refuse("what selects is divided differently from the cases; reshard one")
    if not equation.strict:
        known = [spec.partitions for spec in (*cases, which) if spec is not None]
        sums = cases[0] if cases else which
        if sums is None:
            return [None]
        return [made(equation, joined(equation, known), sums.unreduced, sums.reduced)]
    return [cases[0] if cases else which]


def reduction(equation: Equation) -> Specs:
    no_sums(equation)
    axes = equation.params.get("axes", equation.params.get("dimensions", ()))
    return [without(equation.first(), axes)] * len(equation.outs)


def reduce_sum(equation: Equation) -> Specs:
    axes = equation.params["axes"]
    spec = without(equation.specs[0], axes)
    asked = equation.summed_over([equation.entries(0)[axis] for axis in axes])
    return [spec and spec.update(unreduced=spec.unreduced | asked)]


def lines(along: str, what: str) -> Rule:
    """Of operations on the lines along the axis that a parameter names, which are not cut."""

    def rule(equation: Equation) -> Specs:
        no_sums(equation)
        known = [spec for spec in equation.specs if spec is not None]
        for number, shape in enumerate(equation.shapes):
            if shape:
                undivided(equation, number, [equation.params[along] % len(shape)], what)
        if any(spec != known[0] for spec in known[1:]):
            equation.refuse("operands are divided differently; reshard one")
        axis = equation.params[along] % len(equation.shapes[0])
        spec: Any = known[0]
        if spec.partitions[axis] is not None:
            spec = spec.update(partitions=[None if n == axis else entry for n, entry in enumerate(spec.partitions)])
        return [spec] * len(equation.outs)

    return rule


def matrices(equation: Equation) -> Specs:
    """Of matrices, in the last two axes, which are not cut; the axes before are those of a batch."""
    no_sums(equation)
    ranks = [min(2, len(shape)) for shape in equation.shapes]
    batch: list[Any] = []
    for number, (shape, rank) in enumerate(zip(equation.shapes, ranks)):
        undivided(equation, number, range(len(shape) - rank, len(shape)), "works on matrices, and one is cut")
        own = list(equation.entries(number)[: len(shape) - rank])
        batch = batch if len(batch) >= len(own) and any(batch) else own
    return [made(equation, (batch + [None] * len(shape))[: len(shape)]) for shape in equation.outs]


def key_bits(equation: Equation) -> Specs:
    """Of operations on keys, which add or take away axes at the end."""
    spec = equation.first()
    if spec is None:
        return [None] * len(equation.outs)
    rank = len(equation.shapes[0])
    return [made(equation, (*spec.partitions[:rank], *[None] * (len(out) - rank))[: len(out)]) for out in equation.outs]


RULES: dict[str, Rule] = {
    **dict.fromkeys(("add", "add_any"), add),
    "mul": mul,
    "select_n": select,
    "reduce_sum": reduce_sum,
    **dict.fromkeys(("convert_element_type", "reduce_precision", "copy", "copy_p", "stop_gradient", "name"), kept),
    **dict.fromkeys(
        ("reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin",
         "reduce"), reduction),
    "optimization_barrier": lambda equation: list(equation.specs),
    "sort": lines("dimension", "sorts"),
    "top_k": lines("axis", "looks for the largest"),
    "approx_top_k": lines("reduction_dimension", "looks for the largest"),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), lines("axis", "accumulates")),
    **dict.fromkeys(
        ("cholesky", "lu", "qr", "svd", "eigh", "eig", "schur", "hessenberg", "triangular_solve", "householder_product",
         "tridiagonal", "tridiagonal_solve", "lu_pivots_to_permutation"), matrices),
    **dict.fromkeys(("random_bits", "random_wrap", "random_unwrap", "random_seed", "random_split"), key_bits),
}  # fmt: skip
