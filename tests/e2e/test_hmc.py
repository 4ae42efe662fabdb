"""Hamiltonian Monte Carlo: chains by `vmap`, samples and leapfrog steps by `scan`, the force by
`grad`. Samples are compared in distribution: with the target's own and with those of JAX from other
seeds.
"""

import jax
import numpy as np
import pytest
import scipy.stats

import ferrax

CHAINS, WARMUP, SAMPLES = 64, 50, 150
LEAPS, STEP = 15, 0.15
# A banana: the first coordinate is normal, the second normal around a parabola of it.
WIDTH, BEND, NARROW = 1.2, 0.4, 0.7


def program(jax):
    """`sample(key)`: `(states f32[samples, chains, 2], share of accepted proposals)`."""
    jnp, lax, random = jax.numpy, jax.lax, jax.random

    def energy(x):
        return 0.5 * (x[0] / WIDTH) ** 2 + 0.5 * ((x[1] - BEND * x[0] ** 2) / NARROW) ** 2

    force = jax.grad(lambda x: -energy(x))

    def leap(state, _):
        x, momentum = state
        momentum = momentum + 0.5 * STEP * force(x)
        x = x + STEP * momentum
        return (x, momentum + 0.5 * STEP * force(x)), None

    def transition(x, key):
        momentum_key, accept_key = random.split(key)
        momentum = random.normal(momentum_key, (2,))
        (proposal, end), _ = lax.scan(leap, (x, momentum), None, LEAPS)
        before = energy(x) + 0.5 * momentum @ momentum
        after = energy(proposal) + 0.5 * end @ end
        accepted = jnp.log(random.uniform(accept_key)) < before - after
        x = lax.cond(accepted, lambda: proposal, lambda: x)
        return x, (x, accepted)

    @jax.jit
    def sample(key):
        start_key, key = random.split(key)
        starts = random.normal(start_key, (CHAINS, 2))
        chain_keys = random.split(key, CHAINS)

        def chain(start, key):
            return lax.scan(transition, start, random.split(key, WARMUP + SAMPLES))[1]

        states, accepted = jax.vmap(chain, out_axes=1)(starts, chain_keys)
        return states[WARMUP:], jnp.mean(accepted[WARMUP:])

    return sample


@pytest.fixture(scope="module")
def samples():
    states, accepted = program(ferrax)(ferrax.random.key(11))
    return np.asarray(states), float(accepted)


def independent(states):
    """Every tenth state of each chain, standardised by the target: f[., 2], standard normal."""
    x, y = states[::10].reshape(-1, 2).T
    return np.stack([x / WIDTH, (y - BEND * x**2) / NARROW], axis=1)


def test_samples_follow_the_target(samples):
    states, accepted = samples
    assert states.shape == (SAMPLES, CHAINS, 2) and states.dtype == np.float32
    assert 0.85 < accepted < 1
    standard = independent(states)
    for coordinate in standard.T:
        assert scipy.stats.kstest(coordinate, "norm").pvalue > 0.01
    assert abs(np.corrcoef(standard.T)[0, 1]) < 3 / np.sqrt(len(standard))
    # All samples, in the moments that they were not standardised for.
    x, y = states.reshape(-1, 2).T
    np.testing.assert_allclose(y.mean(), BEND * WIDTH**2, atol=0.05)
    np.testing.assert_allclose(y.var(), NARROW**2 + 2 * BEND**2 * WIDTH**4, rtol=0.1)
    np.testing.assert_allclose((x**2).mean(), WIDTH**2, rtol=0.05)


def test_samples_are_distributed_as_jaxs(samples):
    states, accepted = samples
    theirs, their_accepted = program(jax)(jax.random.key(12))
    assert abs(accepted - float(their_accepted)) < 0.02
    ours, theirs = states[::10].reshape(-1, 2), np.asarray(theirs)[::10].reshape(-1, 2)
    directions = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, -0.6]])
    for direction in directions:
        assert scipy.stats.ks_2samp(ours @ direction, theirs @ direction).pvalue > 0.01


def test_chains_forget_their_starts(samples):
    """The variance between chains is what their length explains (Gelman & Rubin)."""
    states, _ = samples
    within = states.var(axis=0, ddof=1).mean(axis=0)
    between = states.mean(axis=0).var(axis=0, ddof=1)
    estimate = (SAMPLES - 1) / SAMPLES * within + between
    assert np.all(np.sqrt(estimate / within) < 1.02)


def test_leapfrog_steps_can_be_reversed_and_differentiated():
    """A trajectory with the momentum turned around at its end comes back to its start; its
    Jacobian has determinant one."""
    jnp = ferrax.numpy

    def force(x):
        return -ferrax.grad(lambda x: 0.5 * (x**2).sum() + 0.1 * (x**4).sum())(x)

    def leap(state, _):
        x, p = state
        p = p + 0.05 * force(x)
        x = x + 0.1 * p
        return (x, p + 0.05 * force(x)), None

    def trajectory(start):
        (x, p), _ = ferrax.lax.scan(leap, (start[:2], start[2:]), None, 40)
        return jnp.concatenate([x, p])

    turn = np.array([1.0, 1.0, -1.0, -1.0])
    with ferrax.enable_x64(True):
        start = jnp.asarray([0.3, -1.2, 0.8, 0.5])
        end = trajectory(start)
        assert np.linalg.norm(end - start) > 0.5
        np.testing.assert_allclose(trajectory(end * turn) * turn, start, rtol=0, atol=1e-12)
        jacobian = np.asarray(ferrax.jacrev(trajectory)(start))
        np.testing.assert_allclose(jacobian, ferrax.jacfwd(trajectory)(start), rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.linalg.det(jacobian), 1, rtol=1e-11)
