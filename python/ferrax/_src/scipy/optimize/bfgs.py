"""The quasi-Newton methods BFGS and L-BFGS.

Nocedal and Wright, "Numerical Optimization" (2nd ed., 2006), algorithms 6.1 (BFGS) and 7.4, 7.5
(L-BFGS). BFGS keeps the inverse of the Hessian, n² numbers; L-BFGS the last m steps and changes of the
gradient, and works on complex arrays, whose real and imaginary parts it takes for coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.core import Array
from ferrax._src.lax import api as lax
from ferrax._src.lax.control_flow.while_loop import fori_loop, while_loop
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.linalg import norm as vector_norm
from ferrax._src.scipy.optimize.line_search import line_search
from ferrax._src.transforms.autodiff import value_and_grad

_HIGHEST = lax.Precision.HIGHEST


class State(NamedTuple):
    """Where a minimization stands. `memory` is what the method knows of the Hessian."""

    converged: Array
    failed: Array
    status: Array
    number: Array
    evaluations: Array
    x: Array
    value: Array
    gradient: Array
    value_before: Array
    memory: Any


def _dot(x, y):
    """The inner product over the reals."""
    return jnp.real(jnp.vdot(x, y, precision=_HIGHEST))


def _count(number) -> Array:
    return jnp.asarray(number, np.int32)


def _minimize(
    fun, x, memory, direction_of, remember, *, maxiter, norm, gtol, ftol, line_search_maxiter,
    most_evaluations, first_slope,
) -> State:  # fmt: skip
    """Descent along `direction_of(memory, gradient)`, with line searches."""
    value, gradient = value_and_grad(fun)(x)
    # As if the step before had changed the value by half the gradient's norm.
    before = value + vector_norm(gradient) / 2
    state = State(
        converged=vector_norm(gradient, ord=norm) < gtol,
        failed=jnp.asarray(False),
        status=_count(0),
        number=_count(0),
        evaluations=_count(1),
        x=x,
        value=value,
        gradient=gradient,
        value_before=before.astype(value.dtype),
        memory=memory,
    )

    def going(state):
        return (
            ~state.converged
            & ~state.failed
            & (state.number < maxiter)
            & (state.evaluations < most_evaluations)
        )

    def step(state):
        # The gradient as a vector: `grad` of complex numbers gives its conjugate.
        steepest = jnp.conj(state.gradient)
        direction = direction_of(state.memory, steepest)
        along = _dot(steepest, direction)
        guess = 2.02 * (state.value - state.value_before) / along
        first = jnp.where(first_slope & (state.number > 0), 1.0, jnp.where(guess > 1, 1.0, guess))
        found = line_search(
            fun, state.x, direction, state.value, state.gradient, first, maxiter=line_search_maxiter
        )
        point = found.point
        moved = point.step.astype(x.dtype) * direction
        changed = jnp.conj(point.gradient) - steepest
        small = vector_norm(point.gradient, ord=norm) < gtol
        if ftol is not None:
            scale = jnp.maximum(jnp.maximum(jnp.abs(state.value), jnp.abs(point.value)), 1.0)
            small |= ~found.failed & ((state.value - point.value) <= ftol * scale)
        return State(
            converged=small,
            failed=found.failed,
            status=found.status,
            number=state.number + 1,
            evaluations=state.evaluations + found.evaluations,
            x=state.x + moved,
            value=point.value.astype(value.dtype),
            gradient=point.gradient,
            value_before=state.value,
            memory=remember(state.memory, moved, changed),
        )

    end = while_loop(going, step, state)
    reason = jnp.where(end.number >= maxiter, 1, jnp.where(end.failed, 2 + end.status, -1))
    return end._replace(status=jnp.where(end.converged, 0, reason).astype(np.int32))


def minimize_bfgs(
    fun: Callable[[Array], Array], x: Array, *, maxiter: int | None = None, norm: Any = np.inf,
    gtol: float = 1e-5, line_search_maxiter: int = 10,
) -> State:  # fmt: skip
    """BFGS from x; the memory is the inverse of the Hessian. Options are those of `minimize`."""

    def remember(inverse, moved, changed):
        rho = 1 / _dot(changed, moved)
        left = jnp.eye(x.shape[0], dtype=x.dtype) - rho * moved[:, None] * changed[None, :]
        product = jnp.einsum("ij,jk,lk->il", left, inverse, left, precision=_HIGHEST)
        updated = product + rho * moved[:, None] * moved[None, :]
        return jnp.where(jnp.isfinite(rho), updated, inverse).astype(x.dtype)

    return _minimize(
        fun,
        x,
        jnp.eye(x.shape[0], dtype=x.dtype),
        lambda inverse, gradient: -jnp.dot(inverse, gradient, precision=_HIGHEST),
        remember,
        maxiter=200 * x.size if maxiter is None else maxiter,
        norm=norm,
        gtol=gtol,
        ftol=None,
        line_search_maxiter=line_search_maxiter,
        most_evaluations=np.iinfo(np.int32).max,
        first_slope=False,
    )


class _History(NamedTuple):
    """The last steps, changes of the gradient and `1 / (change . step)`, oldest first; 0 for none."""

    steps: Array
    changes: Array
    weights: Array
    scale: Array


def _two_loops(history: _History, gradient: Array) -> Array:
    """Minus the approximate inverse of the Hessian, times a gradient (algorithm 7.4)."""
    size = history.weights.shape[0]

    def down(number, carry):
        vector, factors = carry
        place = size - 1 - number
        factor = history.weights[place] * _dot(history.steps[place], vector)
        return vector - history.changes[place] * factor.astype(vector.dtype), factors.at[place].set(
            factor
        )

    def up(place, vector):
        factor = history.weights[place] * _dot(history.changes[place], vector)
        return vector + history.steps[place] * (factors[place] - factor).astype(vector.dtype)

    zeros = jnp.zeros_like(history.weights)
    vector, factors = fori_loop(0, size, down, (gradient, zeros))
    return -fori_loop(0, size, up, history.scale.astype(vector.dtype) * vector)


def minimize_lbfgs(
    fun: Callable[[Array], Array], x: Array, *, maxiter: int | None = None, norm: Any = np.inf,
    maxcor: int = 10, ftol: float = 2.220446049250313e-09, gtol: float = 1e-5,
    maxfun: float | None = None, maxgrad: float | None = None, maxls: int = 20,
) -> State:  # fmt: skip
    """L-BFGS from x with `maxcor` remembered steps. Options are those of `minimize`."""
    real = x.real.dtype
    start = _History(
        jnp.zeros((maxcor, x.size), x.dtype),
        jnp.zeros((maxcor, x.size), x.dtype),
        jnp.zeros(maxcor, real),
        jnp.ones((), real),
    )

    def remember(history, moved, changed):
        product = _dot(changed, moved)
        known = product > 0
        shifted = _History(
            jnp.concatenate([history.steps[1:], moved[None]]),
            jnp.concatenate([history.changes[1:], changed[None]]),
            jnp.append(history.weights[1:], 1 / product),
            product / _dot(changed, changed),
        )
        return _History(*(jnp.where(known, new, old) for new, old in zip(shifted, history)))

    limits = [limit for limit in (maxfun, maxgrad) if limit is not None]
    return _minimize(
        fun,
        x,
        start,
        _two_loops,
        remember,
        maxiter=np.iinfo(np.int32).max if maxiter is None else maxiter,
        norm=norm,
        gtol=gtol,
        ftol=ftol,
        line_search_maxiter=maxls,
        most_evaluations=min([*limits, np.iinfo(np.int32).max]),
        first_slope=True,
    )
