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
from collections.abc import Iterator
from typing import Any

from ferrax._src import core
from ferrax._src.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    Var,
    bind_equation,
    eval_jaxpr,
    interpret,
    jaxprs_in_params,
)
from ferrax._src.core.primitives import apply_program
from ferrax._src.lax.elementwise import _convert_element_type, add


class AskedRule(Exception):
    """Raised by a rule that is no program, when it is asked for one here."""

    def __init__(self, rule):
        super().__init__("a rule that asks for the values of tangents or cotangents")
        self.rule = rule


class _Steps(threading.local):
    """Whether a rule is asked for its program here, and whether it is for what it logs, which programs do not give."""

    asking = logging = False


steps = _Steps()


@contextlib.contextmanager
def asking(yes: bool = True, logging: bool = False) -> Iterator[None]:
    """A context in which rules that are no programs say so, and, if `logging`, those that log, too."""
    before = steps.asking, steps.logging
    steps.asking, steps.logging = yes, logging
    try:
        yield
    finally:
        steps.asking, steps.logging = before


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
        with asking():
            eqn.params["jvp_jaxpr_fun"].rule.jvp([tangent is not None for tangent in given])
    except AskedRule as asked:
        return asked.rule
    return None


def pullback(point, residuals, wanted, given, logs=None) -> list:
    """The cotangents of a linearised function's inputs, None where they are zero, for `given`
    cotangents of the flagged ones of its outputs with tangents. What reverse rules log goes into the dict `logs`,
    if there is one.

    Errors: with logs ValueError for a name that is logged twice; NotImplementedError for rules that log in loops and
    branches.
    """
    given = iter(given)
    cotangents = [next(given) if flag else None for flag in wanted]
    found = iter(_pull(point.linear, residuals, cotangents, logs))
    results = [next(found) if nonzero else None for nonzero in point.nonzero_in]
    return [
        ct if ct is None or ct.weak_type == weak else _convert_element_type(ct, ct.dtype, weak)
        for ct, (_, _, weak, *_) in zip(results, point.in_types)
    ]


def _pull(program, residuals, cotangents, logs) -> list:
    """The cotangents of a linear program's inputs after the residuals."""
    jaxpr, values = _opened(program, residuals)
    if logs is not None:
        jaxpr = _without_calls(jaxpr, values)
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
        if eqn.primitive.name == "custom_lin":
            found = _custom(eqn, values, given, logs)
        else:
            found = _transposed(eqn, values, linear, given)
        _add(sums, linear, found)
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


def _without_calls(jaxpr, values):
    """The jaxpr with the equations of functions whose rules log in place of calls of these, whose constants become
    values. Errors: NotImplementedError for loops and branches with such rules."""
    eqns: list[Any] = []
    renamed: dict[Any, Any] = {}

    def own(atom):
        return atom if isinstance(atom, Literal) else renamed.get(atom, atom)

    for eqn in jaxpr.eqns:
        eqn = eqn.replace(invars=[own(atom) for atom in eqn.invars])
        name = eqn.primitive.name
        if not any(_logs(inner) for inner in jaxprs_in_params(eqn.params)):
            eqns.append(eqn)
            continue
        if name not in _CALLS:
            raise NotImplementedError(
                f"with_logs: a reverse rule logs within {name}, whose logs are not collected: call the function that "
                "logs outside of loops and branches, or return what it would log"
            )
        called = eqn.params["jaxpr"]
        opened, consts = (called.open, called.consts) if isinstance(called, ClosedJaxpr) else (called, [])
        # A function that is called twice has other variables in each call.
        names = {var: Var(var.aval) for inner in opened.eqns for var in inner.outvars}
        names |= dict(zip(opened.invars, eqn.invars))
        for var, value in zip(opened.constvars, consts):
            names[var] = Var(var.aval)
            values[names[var]] = core.as_array(value)
        body = [
            inner.replace(
                invars=[x if isinstance(x, Literal) else names[x] for x in inner.invars],
                outvars=[names[x] for x in inner.outvars],
            )
            for inner in opened.eqns
        ]
        eqns += _without_calls(Jaxpr([], [], [], body), values).eqns
        for var, out in zip(eqn.outvars, opened.outvars):
            renamed[var] = out if isinstance(out, Literal) else names[out]
    return jaxpr.replace(eqns=eqns, outvars=[own(atom) for atom in jaxpr.outvars])


# Calls of functions whose equations may stand in their places.
_CALLS = ("jit", "remat2")


def _logs(jaxpr) -> bool:
    """Whether a reverse rule within a jaxpr logs."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name != "custom_lin":
            if any(map(_logs, jaxprs_in_params(eqn.params))):
                return True
            continue
        try:
            with asking(logging=True):
                eqn.params["rule"].backward(list(eqn.params["perturbed"]), [True] * len(eqn.outvars))
        except AskedRule as asked:
            if asked.rule.logs:
                return True
    return False


def _custom(eqn, values, given, logs):
    """The cotangents that a reverse rule gives: its program's, or else of a call of its function."""
    rule, perturbed = eqn.params["rule"], list(eqn.params["perturbed"])
    count = eqn.params["num_res"]
    residuals = [_value(atom, values) for atom in eqn.invars[:count]]
    there = [ct is not None for ct in given]
    cotangents = [ct for ct in given if ct is not None]
    try:
        with asking(logging=logs is not None):
            program, flags = rule.backward(perturbed, there)
    except AskedRule as asked:
        program, rule = None, asked.rule
    if program is None:
        results, flags = rule.call_backward(perturbed, there, residuals, cotangents, logs)
    else:
        results = apply_program(program, residuals + cotangents)
    results = iter(results)
    found = [next(results) if flag else None for flag in flags]
    # The linear inputs are the tangents that are there.
    return zip(eqn.invars[count:], [ct for ct, flag in zip(found, perturbed) if flag])
