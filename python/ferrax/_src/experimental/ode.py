"""`odeint`: initial value problems by the Dormand-Prince method of orders 5(4), with its adjoint.

A step and its error estimate, the choice of step sizes and of the first one are those of Hairer,
Nørsett & Wanner, "Solving Ordinary Differential Equations I" (2nd ed., II.4 and table II.5.2); the
values between steps come from the quartic through Shampine's midpoint value ("Some practical
Runge-Kutta formulas", Math. Comp. 46, 1986). The reverse derivative integrates the adjoint equation
backwards from one requested time to the one before and keeps only the values at those times.

Everything here sees the state as one vector. Invariant of the loop: `quartic` is the polynomial in
`(s - before) / (time - before)` that takes the value `state` at `s = time`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import api_util
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.lax.control_flow.while_loop import while_loop
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.flatten_util import ravel_pytree
from ferrax._src.transforms.autodiff import vjp
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.closures import closure_convert
from ferrax._src.transforms.custom_vjp import custom_vjp
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util

__all__ = ["odeint"]

NODES = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
STAGES = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    # The last stage is evaluated at the new state: it is the first one of the next step.
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
# The weights of order 5 less those of the formula of order 4 that Shampine embeds: two thirds of
# the estimate by Dormand and Prince's own.
ERROR = (71 / 86400, 0.0, -142 / 50085, 71 / 2880, -5751 / 169600, 44 / 1575, -1 / 60)
MIDPOINT = (
    6025192743 / 60171106304,
    0.0,
    51252292925 / 130801643196,
    -2691868925 / 90256659456,
    187940372067 / 3189068634112,
    -1776094331 / 39487288512,
    11237099 / 470086768,
)
ORDER = 5
SAFETY, GROWTH, SHRINKAGE = 0.9, 10.0, 0.2


class Options(NamedTuple):
    """Tolerances and limits. They are constants of the compiled program."""

    rtol: float
    atol: float
    mxstep: float
    hmax: float


class Loop(NamedTuple):
    """Where the integration stands; see the invariant above."""

    state: core.Array
    slope: core.Array
    time: core.Array
    step: core.Array
    before: core.Array
    quartic: core.Array


def odeint(
    func: Callable[..., Any], y0: Any, t: Any, *args: Any, rtol: ArrayLike = 1.4e-8,
    atol: ArrayLike = 1.4e-8, mxstep: float = math.inf, hmax: float = math.inf,
) -> Any:
    """Solves `dy/dt = func(y, t, *args)` with `y(t[0]) = y0`, by adaptive steps.

    Args:
      func: the slope at a state and a time: of the structure, the shapes and the dtypes of `y0`.
      y0: the state at `t[0]`: an array or a pytree of arrays, floating or complex.
      t: float array of shape `(n,)`, strictly increasing: the times to report.
      args: further arguments of `func`: pytrees of arrays.
      rtol, atol: a step is accepted if the root mean square of its error over
        `atol + rtol * max(|y|, |y_next|)` is at most one.
      mxstep: the most steps, accepted or not, between two of the times. Where they do not suffice
        the result continues the last step and is wrong.
      hmax: the longest step.

    Returns the states at the times: as `y0`, with a leading axis of size `n`. They are NaN where
    the steps became too small, and for decreasing times.

    `grad` and `vjp` solve the adjoint equation with the same tolerances; they reach `y0`, `t`,
    `args` and what `func` closes over. Forward-mode derivatives raise TypeError. `rtol`, `atol`,
    `mxstep` and `hmax` are Python numbers.

    Errors: TypeError for arguments that are no arrays, times that are no floats, integer states and
    slopes that do not fit the state's dtype; ValueError for times without elements or with other
    than one axis, and for slopes of another size.

    Steps of Dormand and Prince as in Hairer, Nørsett and Wanner, Solving Ordinary Differential
    Equations I (2nd ed., II.4); values between them as in Shampine (1986).

    Example:
        >>> from ferrax.experimental.ode import odeint
        >>> decay = odeint(lambda y, t, rate: -rate * y, 1.0, jnp.array([0.0, 1.0, 2.0]), 0.5)
        >>> decay.round(4)
        Array([1.    , 0.6065, 0.3679], dtype=float32)
    """
    for leaf in tree_util.tree_leaves(args):
        if not isinstance(leaf, core.Array) and not _is_arraylike(leaf):
            raise TypeError(
                f"odeint: args have to be arrays or scalars, got {leaf!r}; close over other objects"
            )
    t = core.as_array(t, "odeint")
    if not dtypes.issubdtype(t.dtype, jnp.floating):
        raise TypeError(f"odeint: t has to hold floats, got {t.dtype}")
    if t.ndim != 1 or not t.shape[0]:
        raise ValueError(
            "odeint: t must be a vector of at least one time, the first that of y0, but got shape "
            f"{tuple(t.shape)}."
        )
    for path, leaf in tree_util.tree_leaves_with_path(y0):
        dtype = dtypes.dtype(leaf)
        if not dtypes.issubdtype(dtype, jnp.inexact):
            raise TypeError(
                f"odeint: y0{tree_util.keystr(path)} has dtype {dtype.name}, but states must be "
                "floating or complex, as their slopes are: convert it."
            )
    options = Options(*map(_number, Options._fields, (rtol, atol, mxstep, hmax)))
    return _solve_tree(func, options, y0, t, args)


def _is_arraylike(leaf) -> bool:
    try:
        core.as_array(leaf, "odeint")
    except TypeError:
        return False
    return True


def _number(name, value) -> float:
    message = f"odeint: {name} is part of the compiled program and must be a number that is known."
    return core.concrete_or_error(float, value, message)


def _solve_tree(func, options, y0, t, args):
    """Compiled once for a function, options and types."""
    converted, captured = closure_convert(func, y0, t[0], *args)
    state, unravel = ravel_pytree(y0)
    # Integers (and keys) have no derivative; they stay out of the adjoint's state.
    leaves, tree = tree_util.tree_flatten((args, tuple(captured)))
    leaves = [core.as_array(leaf, "odeint") for leaf in leaves]
    moving = [dtypes.has_tangent(leaf.dtype) for leaf in leaves]

    def slope(state, time, moved, fixed):
        moved, fixed = iter(moved), iter(fixed)
        args, captured = tree.unflatten([next(moved if m else fixed) for m in moving])
        result, _ = ravel_pytree(converted(unravel(state), time, *args, *captured))
        return _as_slope(func, result, state)

    moved = tuple(leaf for leaf, m in zip(leaves, moving) if m)
    fixed = tuple(leaf for leaf, m in zip(leaves, moving) if not m)
    states = _solve(slope, options, state, t, moved, fixed)
    return vmap(unravel)(states)


_solve_tree = jit(_solve_tree, static_argnums=(0, 1))


def _as_slope(func, slope, state):
    if slope.shape != state.shape:
        raise ValueError(
            f"odeint: {api_util.fun_place(func)} returned a slope of {slope.shape[0]} elements for "
            f"a state of {state.shape[0]}: it must have the structure and the shapes of y0."
        )
    if _is_complex(slope) and not _is_complex(state):
        raise TypeError(
            f"odeint: {api_util.fun_place(func)} returned a slope of dtype {slope.dtype.name} for a "
            f"state of dtype {state.dtype.name}: make y0 complex."
        )
    return lax.convert_element_type(slope, state.dtype)


def _is_complex(x) -> bool:
    return dtypes.issubdtype(x.dtype, jnp.complexfloating)


def _forwards(slope, options, y0, t, moved, fixed):
    """The states at `t`, a matrix; `slope(state, time, moved, fixed)` is a function of vectors."""

    def at(state, time):
        return slope(state, time, moved, fixed)

    def unfinished(carry, target):
        count, loop = carry
        going = (loop.time < target) & (loop.step > 0)
        return going if math.isinf(options.mxstep) else going & (count < options.mxstep)

    def reach(loop, target):
        _, loop = while_loop(
            lambda carry: unfinished(carry, target),
            lambda carry: (carry[0] + 1, _try_step(at, options, carry[1])),
            (jnp.int32(0), loop),
        )
        # At the time of the last step's start, where no step may have been made, it is zero.
        part = jnp.where(
            target == loop.before, 0, (target - loop.before) / (loop.time - loop.before)
        )
        return loop, jnp.polyval(loop.quartic, part.astype(_real(y0.dtype)))

    first = at(y0, t[0])
    step = jnp.clip(_first_step(at, options, y0, t[0], first), 0, options.hmax)
    quartic = jnp.stack([jnp.zeros_like(y0)] * 4 + [y0])
    loop = Loop(y0, first, t[0], step.astype(t.dtype), t[0], quartic)
    _, states = scan(reach, loop, t[1:])
    return jnp.concatenate([y0[None], states])


def _try_step(at, options, loop):
    """One step of the loop: accepted or not, with the step size to try next."""
    state, slope, time, step = loop.state, loop.slope, loop.time, loop.step
    length = step.astype(_real(state.dtype))
    slopes = [slope]
    for node, weights in list(zip(NODES, STAGES))[1:]:
        new_state = state + length * _combination(weights, slopes)
        slopes.append(at(new_state, time + node * step))
    error = length * _combination(ERROR, slopes)
    scale = options.atol + options.rtol * jnp.maximum(jnp.abs(state), jnp.abs(new_state))
    ratio = jnp.sqrt(jnp.mean(jnp.abs(error / scale) ** 2)).astype(step.dtype)
    middle = state + length * _combination(MIDPOINT, slopes)
    accepted = Loop(
        new_state,
        slopes[-1],
        time + step,
        step,
        time,
        _quartic(state, middle, new_state, length * slopes[0], length * slopes[-1]),
    )
    chosen = tree_util.tree_map(lambda new, old: jnp.where(ratio <= 1, new, old), accepted, loop)
    return chosen._replace(step=jnp.clip(_next_step(step, ratio), 0, options.hmax))


def _combination(weights, slopes):
    return sum(weight * slope for weight, slope in zip(weights, slopes) if weight)


def _quartic(start, middle, end, start_rise, end_rise):
    """Coefficients, highest first, of the quartic on [0, 1] with the values `start`, `middle` (at
    1/2) and `end` and the derivatives `start_rise` and `end_rise` at the ends."""
    return jnp.stack(
        [
            -2 * start_rise + 2 * end_rise - 8 * start - 8 * end + 16 * middle,
            5 * start_rise - 3 * end_rise + 18 * start + 14 * end - 32 * middle,
            -4 * start_rise + end_rise - 11 * start - 5 * end + 16 * middle,
            start_rise,
            start,
        ]
    )


def _next_step(step, ratio):
    """Hairer, Nørsett & Wanner, (4.13): grows only after an accepted step."""
    least = jnp.where(ratio < 1, 1.0, SHRINKAGE)
    factor = jnp.clip(SAFETY * ratio ** (-1 / ORDER), least, GROWTH)
    return step * jnp.where(ratio == 0, GROWTH, factor)


def _first_step(at, options, state, time, slope):
    """The algorithm "starting step size" of Hairer, Nørsett & Wanner, II.4."""

    def norm(x):
        return jnp.sqrt(jnp.sum(jnp.abs(x / scale) ** 2))

    scale = options.atol + options.rtol * jnp.abs(state)
    size, speed = norm(state), norm(slope)
    small = (size < 1e-5) | (speed < 1e-5)
    guess = jnp.where(small, 1e-6, 0.01 * size / jnp.where(small, 1, speed))
    moved = at(state + guess * slope, time + guess.astype(time.dtype))
    bend = norm(moved - slope) / guess
    flat = (speed <= 1e-15) & (bend <= 1e-15)
    most = jnp.where(flat, 1, jnp.maximum(speed, bend))
    better = jnp.where(flat, jnp.maximum(1e-6, guess * 1e-3), (0.01 / most) ** (1 / ORDER))
    return jnp.minimum(100 * guess, better)


def _real(dtype):
    return jnp.finfo(dtype).dtype


# What errors call it.
_forwards.__name__ = "odeint"
_solve = custom_vjp(_forwards, nondiff_argnums=(0, 1))


def _solve_fwd(slope, options, y0, t, moved, fixed):
    states = _solve(slope, options, y0, t, moved, fixed)
    return states, (states, t, moved, fixed)


def _solve_bwd(slope, options, residuals, cotangents):
    """The adjoint equation: with `a` the derivative of the result by `y`,
    `da/dt = -a df/dy`, and `-a df/dt`, `-a df/dargs` accumulate those by the first time and by the
    arguments. It is integrated in `-t`."""
    states, t, moved, fixed = residuals

    def backwards(joint, minus_time, moved, fixed):
        state, adjoint, _, _ = unravel(joint)
        value, pull = vjp(
            lambda state, time, moved: slope(state, time, moved, fixed), state, -minus_time, moved
        )
        return ravel_pytree((-value, *pull(adjoint)))[0]

    def earlier(carry, inputs):
        adjoint, by_first, by_moved = carry
        state, start, end, cotangent, cotangent_before = inputs
        # Moving the later time alone moves its state along the slope.
        by_end = jnp.sum(slope(state, end, moved, fixed) * cotangent).real.astype(t.dtype)
        by_first = by_first - by_end
        joint, _ = ravel_pytree((state, adjoint, by_first, by_moved))
        solved = _solve(backwards, options, joint, jnp.stack([-end, -start]), moved, fixed)
        _, adjoint, by_first, by_moved = unravel(solved[1])
        return (adjoint + cotangent_before, by_first, by_moved), by_end

    zeros = tree_util.tree_map(jnp.zeros_like, moved)
    carry = cotangents[-1], jnp.zeros((), t.dtype), zeros
    _, unravel = ravel_pytree((states[0], *carry))
    inputs = states[1:], t[:-1], t[1:], cotangents[1:], cotangents[:-1]
    (adjoint, by_first, by_moved), by_later = scan(earlier, carry, inputs, reverse=True)
    return adjoint, jnp.concatenate([by_first[None], by_later]), by_moved, None


_solve.defvjp(_solve_fwd, _solve_bwd)
