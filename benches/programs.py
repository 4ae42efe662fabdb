"""Small programs of several fields: bodies, Hessians, linear recurrences, a stencil, a sampler."""

from __future__ import annotations

import functools

import numpy as np
from timing import NUMPY, case, shared

TITLE = "Programs"
BODIES, TICKS, TICK = 256, 100, np.float32(1e-3)
VARIABLES, SAMPLES = 200, 1_000
TIMES, STATES = 1_000, 64
GRID, SWEEPS = 512, 100
LEAPS, STRIDE = 10, np.float32(0.01)

_random = np.random.default_rng(0)


def _normal(*shape):
    return _random.standard_normal(shape, np.float32)


# N-body, by leapfrog


def _pulls(library, places):
    jnp = library.jnp
    apart = places[None] - places[:, None]
    squares = jnp.sum(apart**2, -1) + 1e-2
    return jnp.sum(apart * squares[..., None] ** -1.5, 1) / BODIES


def _leap(library, places, speeds):
    speeds = speeds + TICK / 2 * _pulls(library, places)
    places = places + TICK * speeds
    return places, speeds + TICK / 2 * _pulls(library, places)


def _bodies(library, places, speeds):
    def step(_, state):
        return _leap(library, *state)

    return library.jax.lax.fori_loop(0, TICKS, step, (places, speeds))


def _looped_bodies(library, places, speeds):
    for _ in range(TICKS):
        places, speeds = _leap(library, places, speeds)
    return places, speeds


# Hessians


def _rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def _logistic(library, x, data):
    return library.jnp.logaddexp(data @ x, library.jnp.float32(0)).mean() + 0.01 * (x * x).sum()


def _hessian(library, x):
    return library.jax.hessian(_rosenbrock)(x)


def _logistic_hessian(library, x, data):
    return library.jax.hessian(lambda x: _logistic(library, x, data))(x)


def _t_logistic_hessian(t, x, data):
    def loss(x):
        return t.nn.functional.softplus(data @ x).mean() + 0.01 * (x * x).sum()

    return t.func.hessian(loss)(x)


# Linear recurrences


def _recurrence(library, a, b):
    """h = a·h + b along the first axis."""

    def combine(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    return library.jax.lax.associative_scan(combine, (a, b))[1]


# A stencil


def _sweep(x):
    return 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


def _jacobi(library, x):
    def step(_, x):
        return x.at[1:-1, 1:-1].set(_sweep(x))

    return library.jax.lax.fori_loop(0, SWEEPS, step, x)


def _periodic(library, x):
    jnp = library.jnp

    def step(_, x):
        return 0.25 * (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1))

    return library.jax.lax.fori_loop(0, SWEEPS, step, x)


def _looped_jacobi(x):
    x = x.copy() if isinstance(x, np.ndarray) else x.clone()
    for _ in range(SWEEPS):
        x[1:-1, 1:-1] = _sweep(x)
    return x


def _looped_periodic(x):
    for _ in range(SWEEPS):
        x = 0.25 * (np.roll(x, 1, 0) + np.roll(x, -1, 0) + np.roll(x, 1, 1) + np.roll(x, -1, 1))
    return x


def _t_looped_periodic(t, x):
    for _ in range(SWEEPS):
        x = 0.25 * (t.roll(x, 1, 0) + t.roll(x, -1, 0) + t.roll(x, 1, 1) + t.roll(x, -1, 1))
    return x


# A step of Hamiltonian Monte Carlo for a logistic regression


def _hmc(library, x, data, words):
    jax, jnp = library.jax, library.jnp
    first, second = jax.random.split(jax.random.wrap_key_data(words))

    def potential(x):
        return SAMPLES * _logistic(library, x, data)

    def leap(_, state):
        x, p = state
        x = x + STRIDE * p
        return x, p - STRIDE * jax.grad(potential)(x)

    momentum = jax.random.normal(first, x.shape)
    p = momentum - STRIDE / 2 * jax.grad(potential)(x)
    proposal, p = jax.lax.fori_loop(0, LEAPS, leap, (x, p))
    p = p + STRIDE / 2 * jax.grad(potential)(proposal)
    change = potential(x) - potential(proposal) + (momentum**2 - p**2).sum() / 2
    return jnp.where(jnp.log(jax.random.uniform(second)) < change, proposal, x)


X, DATA = _normal(VARIABLES) * np.float32(0.1), _normal(SAMPLES, VARIABLES)
SMALL_DATA = _normal(SAMPLES, 32)
PLACES, SPEEDS = _normal(BODIES, 3), _normal(BODIES, 3)
PICTURE = _normal(GRID, GRID)
LONG_A, LONG_B = _random.uniform(0.9, 1, 100_000).astype(np.float32), _normal(100_000)
WIDE_A, WIDE_B = _random.uniform(0.9, 1, (TIMES, STATES)).astype(np.float32), _normal(TIMES, STATES)


ROWS = [
    case("N-body, 100 steps of 256 bodies", [PLACES, SPEEDS], _bodies, unit="ms",
         numpy=functools.partial(_looped_bodies, NUMPY), torch=shared(_looped_bodies)),
    case("Hessian of 200 variables", [X], _hessian, torch=lambda t, x: t.func.hessian(_rosenbrock)(x)),
    case("Hessian of a logistic regression, 1000×200", [X, DATA], _logistic_hessian, unit="ms",
         torch=_t_logistic_hessian),
    case("`associative_scan` of 100,000 steps", [LONG_A, LONG_B], _recurrence),
    case("`associative_scan` of 1,000 steps of 64 states", [WIDE_A, WIDE_B], _recurrence),
    case("Jacobi, 100 sweeps of 512×512", [PICTURE], _jacobi, unit="ms",
         numpy=_looped_jacobi, torch=lambda t, x: _looped_jacobi(x)),
    case("periodic Jacobi by `roll`, 100 sweeps of 512×512", [PICTURE], _periodic, unit="ms",
         numpy=_looped_periodic, torch=_t_looped_periodic),
    case("HMC step, 10 leaps, logistic regression of 1000×32",
         [X[:32], SMALL_DATA, np.array([0, 7], np.uint32)], _hmc),
]  # fmt: skip
