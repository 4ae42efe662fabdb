"""Derivatives one equation at a time, for rules that ask for values of tangents or cotangents.

A program is differentiated, and a linear program transposed, as a whole where its rules are programs.
A rule with Python control flow on a tangent or cotangent is none: it has to be called with the
values, which are arrays or, under further derivatives and `vmap`, tracers of these, as in JAX. The
equations of such a program are taken by themselves, forwards or backwards, and the results applied at
once. Cost: linear, but an application for each equation.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from ferrax._src import core
from ferrax._src.core.jaxpr import ClosedJaxpr, Jaxpr, Literal, bind_equation, eval_jaxpr, interpret
from ferrax._src.core.primitives import apply_program
from ferrax._src.lax.elementwise import _convert_element_type, add


class AskedRule(Exception):
    """Raised by a rule that is no program, when it is asked for one here."""

    def __init__(self, rule):
        super().__init__("a rule that asks for the values of tangents or cotangents")
        self.rule = rule


class _Steps(threading.local):
    asking = False


steps = _Steps()


@contextlib.contextmanager
def _asking():
    before, steps.asking = steps.asking, True
    try:
        yield
    finally:
        steps.asking = before


# The primitives of equations that are forward and reverse rules.
_RULES = ("custom_jvp_call", "custom_lin")


def applies(program) -> bool:
    """Whether an equation of a program, outside of calls, is a forward rule, or of a linear program a
    reverse rule."""
    return any(primitive in _RULES for primitive, *_ in program.equations())


def pushforward(program, inputs, tangents) -> tuple[list, list]:
    """A program's outputs and their tangents, None where they are zero, for tangents of its inputs."""
    jaxpr, values = _opened(program, inputs)
    moving = {var: t for var, t in zip(jaxpr.invars, tangents) if t is not None}
    for eqn in jaxpr.eqns:
        given = _tangents(eqn.invars, moving)
        if all(tangent is None for tangent in given):
            _evaluate(eqn, values)
            continue
        rule = _forward_rule(eqn, given) if eqn.primitive.name == "custom_jvp_call" else None
        if rule is None:
            outputs, made = _pushed(eqn, values, moving)
        else:
            primals = [_value(atom, values) for atom in eqn.invars]
            outputs, made = rule.call_forward(primals, given)
        values.update(zip(eqn.outvars, outputs))
        moving.update((var, t) for var, t in zip(eqn.outvars, made) if t is not None)
    outputs = [_value(atom, values) for atom in jaxpr.outvars]
    return outputs, _tangents(jaxpr.outvars, moving)


def _tangents(atoms, moving):
    return [None if isinstance(atom, Literal) else moving.get(atom) for atom in atoms]


def _pushed(eqn, values, moving):
    """An equation's outputs and their tangents."""
    alone, inputs = _alone(eqn)
    program, flags = alone._to_program().jvp([var in moving for var in inputs])
    tangents = [moving[var] for var in inputs if var in moving]
    # One by one again, as a tangent may be known where the primal is not.
    closed = ClosedJaxpr(program)
    primals = [values[var] for var in inputs]
    results = interpret(closed.open, closed.consts, primals + tangents, bind_equation)
    found = iter(results[len(flags) :])
    return results[: len(flags)], [next(found) if flag else None for flag in flags]


def _forward_rule(eqn, given):
    """The rule, if it is no program."""
    try:
        with _asking():
            eqn.params["jvp_jaxpr_fun"].rule.jvp([tangent is not None for tangent in given])
    except AskedRule as asked:
        return asked.rule
    return None


def pullback(point, residuals, wanted, given) -> list:
    """The cotangents of a linearised function's inputs, None where they are zero, for `given`
    cotangents of the flagged ones of its outputs with tangents."""
    given = iter(given)
    cotangents = [next(given) if flag else None for flag in wanted]
    found = iter(_pull(point.linear, residuals, cotangents))
    results = [next(found) if nonzero else None for nonzero in point.nonzero_in]
    return [
        ct if ct is None or ct.weak_type == weak else _convert_element_type(ct, ct.dtype, weak)
        for ct, (_, _, weak, *_) in zip(results, point.in_types)
    ]


def _pull(program, residuals, cotangents) -> list:
    """The cotangents of a linear program's inputs after the residuals."""
    jaxpr, values = _opened(program, residuals)
    count = len(residuals)
    linear = set(jaxpr.invars[count:])
    backward = []
    for eqn in jaxpr.eqns:
        if any(atom in linear for atom in _variables(eqn.invars)):
            linear.update(eqn.outvars)
            backward.append(eqn)
        else:
            _evaluate(eqn, values)
    sums: dict[Any, Any] = {}
    _add(sums, linear, zip(jaxpr.outvars, cotangents))
    for eqn in reversed(backward):
        given = [sums.pop(var, None) for var in eqn.outvars]
        if all(ct is None for ct in given):
            continue
        rule = _custom if eqn.primitive.name == "custom_lin" else _transposed
        _add(sums, linear, rule(eqn, values, linear, given))
    return [sums.get(var) for var in jaxpr.invars[count:]]


def _opened(program, inputs):
    """A program's jaxpr, and the values of its constants and first inputs."""
    constants = program.constants()
    jaxpr = Jaxpr._of_program(program, 0, constants)
    values = dict(zip(jaxpr.constvars, (value for _, value in constants)))
    values.update(zip(jaxpr.invars, inputs))
    return jaxpr, values


def _value(atom, values):
    return core.as_array(atom.val) if isinstance(atom, Literal) else values[atom]


def _evaluate(eqn, values):
    alone, inputs = _alone(eqn)
    values.update(zip(eqn.outvars, eval_jaxpr(alone, (), *map(values.get, inputs))))


def _variables(atoms):
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _alone(eqn):
    """A jaxpr of the equation, and its inputs."""
    inputs = list(dict.fromkeys(_variables(eqn.invars)))
    return Jaxpr([], inputs, list(eqn.outvars), [eqn], eqn.effects), inputs


def _add(sums, linear, pairs):
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
    results = iter(apply_program(program, known + [ct for ct in given if ct is not None]))
    return [(var, next(results)) for var, flag in zip(inputs, found) if flag]


def _custom(eqn, values, linear, given):
    """The cotangents that a reverse rule gives: its program's, or else of a call of its function."""
    rule, perturbed = eqn.params["rule"], list(eqn.params["perturbed"])
    count = eqn.params["num_res"]
    residuals = [_value(atom, values) for atom in eqn.invars[:count]]
    there = [ct is not None for ct in given]
    cotangents = [ct for ct in given if ct is not None]
    try:
        with _asking():
            program, flags = rule.backward(perturbed, there)
    except AskedRule as asked:
        program, rule = None, asked.rule
    if program is None:
        results, flags = rule.call_backward(perturbed, there, residuals, cotangents)
    else:
        results = apply_program(program, residuals + cotangents)
    results = iter(results)
    found = [next(results) if flag else None for flag in flags]
    # The linear inputs are the tangents that are there.
    return zip(eqn.invars[count:], [ct for ct, flag in zip(found, perturbed) if flag])
