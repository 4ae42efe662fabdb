"""A Kalman filter in logarithmic depth: the filtering steps are elements of a monoid whose product
`associative_scan` takes (Särkkä & García-Fernández, "Temporal parallelization of Bayesian
smoothers", IEEE Trans. Automatic Control 66, 2021). It is the sequential filter, and JAX's.
"""

import jax
import numpy as np
import pytest

import ferrax

STEPS, TICK = 100, 0.1


@pytest.fixture(autouse=True)
def float64():
    with ferrax.enable_x64(True), jax.enable_x64(True):
        yield


def measurements():
    """Noisy positions f64[100, 1] of a body that is pushed at random."""
    rng = np.random.default_rng(7)
    position, speed, out = 0.0, 1.0, []
    for _ in range(STEPS):
        push = rng.normal(scale=0.4)
        position += TICK * speed + TICK**2 / 2 * push
        speed += TICK * push
        out.append(position + rng.normal(scale=0.3))
    return np.array(out)[:, None]


def model(np, noise):
    """Transition, its covariance, observation, its covariance, and the state before the first
    step; `noise` holds the standard deviations of pushes and of measurements."""
    move = np.asarray([[1.0, TICK], [0.0, 1.0]])
    push = np.asarray([[TICK**2 / 2], [TICK]])
    look = np.asarray([[1.0, 0.0]])
    return move, noise[0] ** 2 * (push @ push.T), look, noise[1] ** 2 * np.eye(1), np.zeros(2), np.eye(2)


def sequential(noise, measured):
    """Means, covariances and the logarithm of the likelihood, in NumPy and by the book."""
    move, q, look, r, mean, covariance = model(np, noise)
    means, covariances, likelihood = [], [], 0.0
    for z in measured:
        mean, covariance = move @ mean, move @ covariance @ move.T + q
        surprise, s = z - look @ mean, look @ covariance @ look.T + r
        gain = covariance @ look.T @ np.linalg.inv(s)
        mean, covariance = mean + gain @ surprise, covariance - gain @ s @ gain.T
        likelihood -= 0.5 * (np.log(2 * np.pi * s[0, 0]) + surprise[0] ** 2 / s[0, 0])
        means.append(mean)
        covariances.append(covariance)
    return np.stack(means), np.stack(covariances), likelihood


def program(jax):
    """`filter(noise, measured)` on one library."""
    jnp = jax.numpy

    def inverse(m):
        """Of matrices of 2 by 2."""
        determinant = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
        adjugate = jnp.stack([jnp.stack([m[1, 1], -m[0, 1]]), jnp.stack([-m[1, 0], m[0, 0]])])
        return adjugate / determinant

    def first(parts, z):
        """The first element: what is known after the first measurement."""
        move, q, look, r, mean, covariance = parts
        mean, covariance = move @ mean, move @ covariance @ move.T + q
        s = look @ covariance @ look.T + r
        gain = covariance @ look.T / s
        zero = jnp.zeros((2, 2))
        return zero, mean + gain @ (z - look @ mean), covariance - gain @ s @ gain.T, jnp.zeros(2), zero

    def later(parts, z):
        """A step as a function of the state before: `N(x; a x' + b, c)` and, of what it says of
        that state, the information vector and matrix."""
        move, q, look, r, _, _ = parts
        s = look @ q @ look.T + r
        gain = q @ look.T / s
        keep = jnp.eye(2) - gain @ look
        seen = move.T @ look.T / s
        return keep @ move, gain @ z, keep @ q, seen @ z, seen @ look @ move

    @jax.vmap
    def product(one, two):
        a1, b1, c1, eta1, j1 = one
        a2, b2, c2, eta2, j2 = two
        left = a2 @ inverse(jnp.eye(2) + c1 @ j2)
        right = a1.T @ inverse(jnp.eye(2) + j2 @ c1)
        return (
            left @ a1,
            left @ (b1 + c1 @ eta2) + b2,
            left @ c1 @ a2.T + c2,
            right @ (eta2 - j2 @ b1) + eta1,
            right @ j2 @ a1 + j1,
        )

    @jax.jit
    def filtered(noise, measured):
        parts = model(jnp, noise)
        elements = jax.vmap(lambda z: later(parts, z))(measured[1:])
        elements = jax.tree.map(
            lambda head, rest: jnp.concatenate([head[None], rest]), first(parts, measured[0]), elements
        )
        _, means, covariances, _, _ = jax.lax.associative_scan(product, elements)
        move, q, look, r, mean, covariance = parts
        means_before = jnp.concatenate([mean[None], means[:-1]])
        covariances_before = jnp.concatenate([covariance[None], covariances[:-1]])
        predicted = (look @ move @ means_before.T)[0]
        spread = jax.vmap(lambda p: look @ (move @ p @ move.T + q) @ look.T + r)(covariances_before)[:, 0, 0]
        surprise = measured[:, 0] - predicted
        likelihood = -0.5 * jnp.sum(jnp.log(2 * jnp.pi * spread) + surprise**2 / spread)
        return means, covariances, likelihood

    return filtered


NOISE = np.array([0.5, 0.25])


def test_the_parallel_filter_is_the_sequential_one_and_jaxs():
    measured = measurements()
    ours = program(ferrax)(ferrax.numpy.asarray(NOISE), measured)
    theirs = program(jax)(jax.numpy.asarray(NOISE), measured)
    for a, b, expected in zip(ours, theirs, sequential(NOISE, measured)):
        np.testing.assert_allclose(a, expected, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
    # It filters: the estimates are closer to a smooth path than what was measured is.
    steps = np.diff(np.asarray(ours[0])[20:, 0])
    assert np.std(steps) < 0.3 * np.std(np.diff(measured[20:, 0]))


def test_the_likelihoods_gradient_is_jaxs_and_that_of_the_sequential_filter():
    measured = measurements()

    def gradient(jax):
        return jax.grad(lambda noise: program(jax)(noise, measured)[2])

    ours = gradient(ferrax)(ferrax.numpy.asarray(NOISE))
    np.testing.assert_allclose(ours, gradient(jax)(jax.numpy.asarray(NOISE)), rtol=1e-9)
    differences = [
        (sequential(NOISE + h, measured)[2] - sequential(NOISE - h, measured)[2]) / 2e-6
        for h in 1e-6 * np.eye(2)
    ]
    np.testing.assert_allclose(ours, differences, rtol=1e-6)
    # The curvature, by which one would estimate the errors of the noise.
    curvature = ferrax.jacfwd(gradient(ferrax))(ferrax.numpy.asarray(NOISE))
    columns = [
        np.asarray(gradient(ferrax)(ferrax.numpy.asarray(NOISE + h)))
        - np.asarray(gradient(ferrax)(ferrax.numpy.asarray(NOISE - h)))
        for h in 1e-5 * np.eye(2)
    ]
    np.testing.assert_allclose(curvature, np.stack(columns, axis=1) / 2e-5, rtol=1e-6)


def test_many_filters_at_once():
    measured = measurements()
    noises = ferrax.numpy.asarray([[0.3, 0.3], [0.5, 0.25], [1.0, 0.1]])
    means, _, likelihoods = ferrax.vmap(program(ferrax), (0, None))(noises, measured)
    assert means.shape == (3, STEPS, 2)
    for noise, mean, likelihood in zip(np.asarray(noises), means, likelihoods):
        expected = sequential(noise, measured)
        np.testing.assert_allclose(mean, expected[0], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(likelihood, expected[2], rtol=1e-9)
