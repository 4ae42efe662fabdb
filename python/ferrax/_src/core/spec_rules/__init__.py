"""Types over explicit axes of a mesh: for each primitive, how results are divided, by how operands are.

`specs_of` goes through a jaxpr with the specs of its inputs and gives those of its outputs, `of_operation` is for
one operation on two operands that are broadcast. The rules are JAX's, in a file for each family of operations
(`elementwise`, `movement`, `products`, `control`); an operation that has none is one element by element. Where
something cannot be done without talk between devices of which nobody said how it should go there is
`ShardingTypeError`, and NotImplementedError where arrays are sums over devices (`unreduced`) that an operation does
not commute with. Cost: linear in the jaxpr.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ferrax._src.core.jaxpr import Literal
from ferrax._src.core.partition import filled
from ferrax._src.core.spec_rules import control, elementwise, movement, products
from ferrax._src.core.spec_rules.equation import Equation, Spec, joined, made
from ferrax._src.core.spec_rules.unchecked import asks, unchecked, wanted
from ferrax._src.core.sum_terms import terms_after

__all__ = ["is_alias", "of_operation", "specs_of", "terms_of_results", "unchecked"]

_RULES = {**elementwise.RULES, **movement.RULES, **products.RULES}


def specs_of(
    jaxpr: Any, inputs: Sequence[Spec | None], sizes: Mapping[Hashable, int], strict: bool = True
) -> list[Spec | None]:
    """The specs of a jaxpr's outputs; `sizes` are those of the mesh's axes. Errors, if `strict` and not within
    `unchecked`: ShardingTypeError, NotImplementedError."""
    known = _all_specs(jaxpr, inputs, sizes, strict)
    return [None if isinstance(atom, Literal) else known.get(atom) for atom in jaxpr.outvars]


def _all_specs(jaxpr, inputs, sizes, strict) -> dict[Any, Spec | None]:
    """As `specs_of`, of all variables; those without a spec may be missing."""
    result = wanted() if strict else None
    strict = strict and asks()
    known: dict[Any, Spec | None] = {}
    for var, spec in zip(jaxpr.invars, inputs):
        known[var] = None if spec is None else filled(spec, var.aval.ndim)

    def of(atom):
        return None if isinstance(atom, Literal) else known.get(atom)

    for eqn in jaxpr.eqns:
        given = [of(atom) for atom in eqn.invars]
        if all(spec is None for spec in given) and not _says(eqn):
            continue
        known.update(zip(eqn.outvars, _of_equation(eqn, given, sizes, strict, result)))
    return known


def terms_of_results(
    jaxpr: Any, inputs: Sequence[Spec | None], terms: Sequence[Spec | None], sizes: Mapping[Hashable, int]
) -> list[Spec | None]:
    """What the outputs of a jaxpr are cut into (`sum_terms`), those that are sums over devices because a `reshard` says
    so, by the specs of its inputs and by what these are cut into. None for what other equations make."""
    specs = _all_specs(jaxpr, inputs, sizes, False)
    known: dict[Any, Spec | None] = dict(zip(jaxpr.invars, terms))

    def of(atom, table):
        return None if isinstance(atom, Literal) else table.get(atom)

    for eqn in jaxpr.eqns:
        outs = [specs.get(out) for out in eqn.outvars]
        if not any(spec is not None and spec.unreduced for spec in outs):
            continue
        given, cut = ([of(atom, table) for atom in eqn.invars] for table in (specs, known))
        known.update(zip(eqn.outvars, _terms_of_equation(eqn, given, cut, outs, sizes)))
    return [of(atom, known) for atom in jaxpr.outvars]


def _terms_of_equation(eqn, specs, terms, outs, sizes) -> list[Spec | None]:
    if is_alias(eqn):
        return terms
    if eqn.primitive.name in control.STATED:
        return [None if specs[0] is None or outs[0] is None else terms_after(specs[0], terms[0], outs[0])]
    called = None if eqn.primitive.name in control.RULES else control.called(eqn)
    return [None] * len(outs) if called is None else terms_of_results(called, specs, terms, sizes)


def is_alias(eqn: Any) -> bool:
    """Whether an equation gives its operand: an array is taken for another by a reshape to its own shape."""
    name = eqn.primitive.name
    return name == "copy" or name == "reshape" and tuple(eqn.params["new_sizes"]) == tuple(eqn.invars[0].aval.shape)


def _says(eqn) -> bool:
    """Whether an equation may say how its results are divided where its operands do not."""
    name = eqn.primitive.name
    return name in control.STATED or name in control.RULES or control.called(eqn) is not None


def _of_equation(eqn, specs, sizes, strict, result) -> list[Spec | None]:
    name = eqn.primitive.name
    stated = control.STATED.get(name)
    if stated is not None:
        return stated(eqn)
    inner = functools.partial(specs_of, sizes=sizes, strict=False)
    structured = control.RULES.get(name)
    if structured is not None:
        return structured(eqn, specs, inner)
    called = control.called(eqn)
    if called is not None:
        return inner(called, specs)
    shapes = [tuple(atom.aval.shape) for atom in eqn.invars]
    outs = [tuple(out.aval.shape) for out in eqn.outvars]
    equation = Equation(name, eqn.params, shapes, outs, specs, sizes, strict, result)
    return _RULES.get(name, elementwise.nary)(equation)


def of_operation(
    shapes: Sequence[tuple[int, ...]], specs: Sequence[Spec | None], sizes: Mapping[Hashable, int]
) -> Spec:
    """The spec of the result of an operation element by element on operands that are broadcast, of which it is not
    known which it is: sums are taken to be added, or multiplied by what is the same on all devices."""
    rank = max(map(len, shapes))
    wide = [
        None if spec is None else spec.update(partitions=(None,) * (rank - len(shape)) + spec.partitions)
        for shape, spec in zip(shapes, specs)
    ]
    # Scalars are broadcast, and say nothing of axes.
    full: list[Any] = [(0,) * rank] * len(shapes)
    equation = Equation("this operation", {}, full, full[:1], wide, sizes, asks())
    sums = {spec.unreduced for spec in wide if spec is not None}
    added = len(sums) == 1 and None not in wide
    rule = (elementwise.add if added else elementwise.mul) if equation.unreduced() else elementwise.nary
    found = rule(equation)[0]
    return made(equation, joined(equation, [()])) if found is None else found

