"""Steps along a direction that satisfy the strong Wolfe conditions.

Nocedal and Wright, "Numerical Optimization" (2nd ed., 2006), algorithms 3.5 (bracketing) and 3.6 (zoom);
trial steps of the zoom are minimizers of cubics and parabolas as in section 3.5, else midpoints.

Invariant of the zoom: `low` satisfies the first condition and has the least value of the steps that
do, and between `low` and `high` there are steps that satisfy both. Where a value is NaN the
first condition fails, so that the interval shrinks away from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.lax import api as lax
from ferrax._src.lax.control_flow.while_loop import while_loop
from ferrax._src.numpy import api as jnp
from ferrax._src.transforms.autodiff import value_and_grad
from ferrax._src.tree import tree_util

# Trial steps by interpolation have to be this part of the interval away from its ends.
_CUBIC_MARGIN, _PARABOLA_MARGIN = 0.2, 0.1
_ZOOMS = 30
PASSED, ZOOM_FAILED, TOO_MANY_STEPS = 0, 1, 3


class Point(NamedTuple):
    """The function at a step: its value, its slope along the direction, its gradient."""

    step: Array
    value: Array
    slope: Array
    gradient: Array


class Result(NamedTuple):
    """What a line search found: the last point, whether it failed and why, calls of the function."""

    point: Point
    failed: Array
    status: Array
    evaluations: Array


class Conditions(NamedTuple):
    """The Wolfe conditions from a first point."""

    value: Array
    slope: Array
    c1: float
    c2: float

    def decreases(self, point: Point) -> Array:
        """Whether the value is below the line of the first condition."""
        return point.value <= self.value + self.c1 * point.step * self.slope

    def flat(self, point: Point) -> Array:
        """Whether the slope satisfies the second condition."""
        return jnp.abs(point.slope) <= -self.c2 * self.slope


def _pick(flag, x, y):
    return tree_util.tree_map(lambda a, b: jnp.where(flag, a, b), x, y)


def _cubic(a: Point, b: Point, c_step, c_value):
    """The minimizer of the cubic through three values with the slope of the first; NaN without one."""
    db, dc = b.step - a.step, c_step - a.step
    rb, rc = b.value - a.value - a.slope * db, c_value - a.value - a.slope * dc
    scale = (db * dc) ** 2 * (db - dc)
    third = (dc**2 * rb - db**2 * rc) / scale
    second = (db**3 * rc - dc**3 * rb) / scale
    root = jnp.sqrt(second * second - 3.0 * third * a.slope)
    return a.step + (root - second) / (3.0 * third)


def _parabola(a: Point, b: Point):
    """The minimizer of the parabola through two values with the slope of the first."""
    width = b.step - a.step
    return a.step - a.slope / (2.0 * ((b.value - a.value - a.slope * width) / width**2))


class _Zoom(NamedTuple):
    done: Array
    failed: Array
    number: Array
    low: Point
    high: Point
    # The step before: the third point of the cubic.
    recent: tuple[Array, Array]


def _zoom(evaluate, conditions, low, high, wanted) -> tuple[Point, Array, Array]:
    """The point found, whether none was, and how many were looked at; nothing if not `wanted`."""
    smallest = 1e-5 if dtypes.finfo(low.step.dtype).bits < 64 else 1e-10

    def going(state):
        return ~state.done & ~state.failed

    def step(state):
        low, high = state.low, state.high
        width = jnp.abs(high.step - low.step)
        least, most = jnp.minimum(low.step, high.step), jnp.maximum(low.step, high.step)

        def inside(trial, margin):
            return (trial > least + margin * width) & (trial < most - margin * width)

        cubic, parabola = _cubic(low, high, *state.recent), _parabola(low, high)
        trial = jnp.where(inside(parabola, _PARABOLA_MARGIN), parabola, (low.step + high.step) / 2)
        use_cubic = (state.number > 0) & inside(cubic, _CUBIC_MARGIN)
        new = evaluate(jnp.where(use_cubic, cubic, trial))
        shrinks = ~conditions.decreases(new) | (new.value >= low.value)
        done = conditions.flat(new) & ~shrinks
        turns = ~shrinks & ~done & (new.slope * (high.step - low.step) >= 0)
        replaced = _pick(shrinks | turns, high[:2], low[:2])
        return _Zoom(
            done=done,
            failed=(width <= smallest) | (state.number + 1 >= _ZOOMS),
            number=state.number + 1,
            low=_pick(shrinks, low, new),
            high=_pick(shrinks, new, _pick(turns, low, high)),
            recent=replaced,
        )

    flag = jnp.asarray(False)
    start = _Zoom(~wanted, flag, jnp.asarray(0, np.int32), low, high, low[:2])
    end = while_loop(going, step, start)
    return end.low, end.failed & ~end.done, end.number


class _Search(NamedTuple):
    done: Array
    failed: Array
    number: Array
    evaluations: Array
    previous: Point
    best: Point


def line_search(
    fun: Callable[[Array], Array], x: Array, direction: Array, value: Array, gradient: Array,
    first_step: Any = 1.0, c1: float = 1e-4, c2: float = 0.9, maxiter: int = 20,
) -> Result:  # fmt: skip
    """A step along a descent direction from x that satisfies the strong Wolfe conditions.

    Args:
        fun: a real function of an array like x; value, gradient: `fun` and its gradient at x.
        first_step: the first step to try; steps are doubled until they bracket one.
        c1, c2: the constants of the conditions, `0 < c1 < c2 < 1`.
        maxiter: the most steps to try before the zoom.

    Of complex arrays, the change of `fun` along p is `real(sum(gradient * p))`.
    """
    dtype = gradient.real.dtype

    def evaluate(step):
        found, slope = value_and_grad(fun)(x + step.astype(x.dtype) * direction)
        along = jnp.real(jnp.dot(slope, direction, precision=lax.Precision.HIGHEST))
        return Point(
            step.astype(dtype),
            found.astype(dtype),
            along.astype(dtype),
            slope.astype(gradient.dtype),
        )

    along = jnp.real(jnp.dot(gradient, direction, precision=lax.Precision.HIGHEST)).astype(dtype)
    start = Point(jnp.zeros((), dtype), value.astype(dtype), along, gradient)
    conditions = Conditions(start.value, start.slope, c1, c2)
    first = jnp.asarray(first_step, dtype)

    def going(state):
        return ~state.done & ~state.failed & (state.number < maxiter)

    def step(state):
        before = state.previous
        new = evaluate(jnp.where(state.number == 0, first, 2 * before.step))
        up = ~conditions.decreases(new) | ((new.value >= before.value) & (state.number > 0))
        accepted = ~up & conditions.flat(new)
        down = ~up & ~accepted & (new.slope >= 0)
        low, high = _pick(up, before, new), _pick(up, new, before)
        found, failed, zooms = _zoom(evaluate, conditions, low, high, up | down)
        return _Search(
            done=accepted | up | down,
            failed=(up | down) & failed,
            number=state.number + 1,
            evaluations=state.evaluations + 1 + zooms,
            previous=new,
            best=_pick(accepted, new, _pick(up | down, found, state.best)),
        )

    flag, zero = jnp.asarray(False), jnp.asarray(0, np.int32)
    end = while_loop(going, step, _Search(flag, flag, zero, zero, start, start))
    late = jnp.where(end.done, PASSED, TOO_MANY_STEPS)
    status = jnp.where(end.failed, ZOOM_FAILED, late).astype(np.int32)
    return Result(end.best, end.failed | ~end.done, status, end.evaluations)
