"""Backward passes one equation at a time, for reverse rules that ask for values of cotangents.

A linear program is transposed as a whole where its rules are programs. A rule with Python control
flow on a cotangent is none: it has to be called with the values, which are arrays or, under further
derivatives and `vmap`, tracers of these, as in JAX. The equations of such a program are transposed
by themselves, backwards, and the results applied at once. Equations that do not depend on tangents
are evaluated first. Cost: linear, but an application for each equation.
"""

from __future__ import annotations

import threading

from ferrax import _core
from ferrax._src import core
from ferrax._src.jaxpr import Jaxpr, Literal, eval_jaxpr


class AskedRule(Exception):
    """Raised by a reverse rule that is no program, when it is asked for one in `pullback`."""

    def __init__(self, rule):
        super().__init__("a reverse rule that asks for the values of cotangents")
        self.rule = rule


class _Steps(threading.local):
    asking = False


steps = _Steps()


def applies(point) -> bool:
    """Whether an equation of a linearised function, outside of calls, is a reverse rule. Rules that
    use mutable arrays have an order, which programs keep."""
    if point.ordered or point.reverses:
        return False
    return any(primitive == "custom_lin" for primitive, *_ in point.linear.equations())


def pullback(point, residuals, wanted, given) -> list:
    """The cotangents of a linearised function's inputs, None where they are zero, for `given`
    cotangents of the flagged ones of its outputs with tangents."""
    from ferrax._src.lax.elementwise import _convert_element_type

    given = iter(given)
    cotangents = [next(given) if flag else None for flag in wanted]
    found = iter(_pull(point.linear, residuals, cotangents))
    results = [next(found) if nonzero else None for nonzero in point.nonzero_in]
    return [
        ct if ct is None or ct.weak_type == weak else _convert_element_type(ct, ct.dtype, weak)
        for ct, (_, _, weak) in zip(results, point.in_types)
    ]


def _pull(program, residuals, cotangents) -> list:
    """The cotangents of a linear program's inputs after the residuals."""
    constants = program.constants()
    jaxpr = Jaxpr._of_program(program, 0, constants)
    count = len(residuals)
    values = dict(zip(jaxpr.constvars, (value for _, value in constants)))
    values.update(zip(jaxpr.invars[:count], residuals))
    linear = set(jaxpr.invars[count:])
    backward = []
    for eqn in jaxpr.eqns:
        if any(atom in linear for atom in _variables(eqn.invars)):
            linear.update(eqn.outvars)
            backward.append(eqn)
        else:
            alone, inputs = _alone(eqn)
            values.update(zip(eqn.outvars, eval_jaxpr(alone, (), *map(values.get, inputs))))
    sums = {}
    _add(sums, linear, zip(jaxpr.outvars, cotangents))
    for eqn in reversed(backward):
        given = [sums.pop(var, None) for var in eqn.outvars]
        if all(ct is None for ct in given):
            continue
        rule = _custom if eqn.primitive.name == "custom_lin" else _transposed
        _add(sums, linear, rule(eqn, values, linear, given))
    return [sums.get(var) for var in jaxpr.invars[count:]]


def _variables(atoms):
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _alone(eqn):
    """A jaxpr of the equation, and its inputs."""
    inputs = list(dict.fromkeys(_variables(eqn.invars)))
    return Jaxpr([], inputs, list(eqn.outvars), [eqn], eqn.effects), inputs


def _add(sums, linear, pairs):
    from ferrax._src.lax.elementwise import add

    for atom, cotangent in pairs:
        if cotangent is None or isinstance(atom, Literal) or atom not in linear:
            continue
        before = sums.get(atom)
        sums[atom] = cotangent if before is None else add(before, cotangent)


def _transposed(eqn, values, linear, given):
    """The cotangents of an equation's linear inputs, by the transpose of the equation."""
    alone, inputs = _alone(eqn)
    flags = [var in linear for var in inputs]
    program, found = alone._to_program().transpose(flags, [ct is not None for ct in given])
    known = [values[var] for var, flag in zip(inputs, flags) if not flag]
    results = iter(_core.apply_program(program, known + [ct for ct in given if ct is not None]))
    return [(var, next(results)) for var, flag in zip(inputs, found) if flag]


def _custom(eqn, values, linear, given):
    """The cotangents that a reverse rule gives: its program's, or else of a call of its function."""
    rule, perturbed = eqn.params["rule"], list(eqn.params["perturbed"])
    count = eqn.params["num_res"]
    residuals = [
        core.as_array(atom.val) if isinstance(atom, Literal) else values[atom]
        for atom in eqn.invars[:count]
    ]
    there = [ct is not None for ct in given]
    cotangents = [ct for ct in given if ct is not None]
    before, steps.asking = steps.asking, True
    try:
        program, flags = rule.backward(perturbed, there)
    except AskedRule as asked:
        program, rule = None, asked.rule
    finally:
        steps.asking = before
    if program is None:
        results, flags = rule.call_backward(perturbed, there, residuals, cotangents)
    else:
        results = _core.apply_program(program, residuals + cotangents)
    results = iter(results)
    found = [next(results) if flag else None for flag in flags]
    # The linear inputs are the tangents that are there.
    return zip(eqn.invars[count:], [ct for ct, flag in zip(found, perturbed) if flag])
