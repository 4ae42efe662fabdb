"""Heat that flows through a plate of unknown conductivity: the temperatures solve a linear system
by conjugate gradients, which `custom_linear_solve` differentiates at the solution. The conductivity
is found from the temperatures.
"""

import jax
import numpy as np
import pytest

import ferrax

SIDE, STEPS = 8, 25


@pytest.fixture(autouse=True)
def float64():
    with ferrax.enable_x64(True), jax.enable_x64(True):
        yield


def data():
    """The logarithm of the conductivity f64[8, 8], and two heat sources f64[2, 8, 8]."""
    rng = np.random.default_rng(4)
    row, column = np.mgrid[:SIDE, :SIDE] / SIDE
    return 0.8 * np.sin(4 * row) * np.cos(3 * column), rng.normal(size=(2, SIDE, SIDE))


def program(jax):
    """`(heat_flow, temperatures, loss, step)` on one library."""
    jnp, lax = jax.numpy, jax.lax

    def heat_flow(log_conductivity, u):
        """Minus the divergence of conductivity times gradient; the rim is kept at zero."""
        conductivity = jnp.pad(jnp.exp(log_conductivity), 1, mode="edge")
        u = jnp.pad(u, 1)
        down = 0.5 * (conductivity[1:, 1:-1] + conductivity[:-1, 1:-1]) * jnp.diff(u, axis=0)[:, 1:-1]
        right = 0.5 * (conductivity[1:-1, 1:] + conductivity[1:-1, :-1]) * jnp.diff(u, axis=1)[1:-1]
        return -jnp.diff(down, axis=0) - jnp.diff(right, axis=1)

    def conjugate_gradients(matvec, b):
        """Hestenes & Stiefel's method, until the residual is small."""

        def body(state):
            x, r, p, rr, count = state
            ap = matvec(p)
            length = rr / jnp.vdot(p, ap)
            x, r = x + length * p, r - length * ap
            new = jnp.vdot(r, r)
            return x, r, r + new / rr * p, new, count + 1

        limit = 1e-26 * jnp.vdot(b, b)
        going = lambda state: (state[3] > limit) & (state[4] < 1000)  # noqa: E731
        return lax.while_loop(going, body, (jnp.zeros_like(b), b, b, jnp.vdot(b, b), 0))[0]

    def temperatures(log_conductivity, source):
        return lax.custom_linear_solve(
            lambda u: heat_flow(log_conductivity, u), source, conjugate_gradients, symmetric=True
        )

    def loss(log_conductivity, sources, measured):
        found = jax.vmap(temperatures, (None, 0))(log_conductivity, sources)
        return jnp.mean((found - measured) ** 2) + 1e-6 * jnp.mean(log_conductivity**2)

    @jax.jit
    def step(state, sources, measured):
        """One of Adam, whose moments are in `state`."""
        k, first, second, count = state
        value, g = jax.value_and_grad(loss)(k, sources, measured)
        first, second, count = 0.8 * first + 0.2 * g, 0.95 * second + 0.05 * g * g, count + 1
        m, v = first / (1 - 0.8**count), second / (1 - 0.95**count)
        return (k - 0.15 * m / (jnp.sqrt(v) + 1e-12), first, second, count), value

    return heat_flow, temperatures, loss, step


def matrix(log_conductivity):
    """The dense matrix of `heat_flow`."""
    heat_flow, *_ = program(ferrax)
    basis = ferrax.numpy.eye(SIDE**2).reshape(-1, SIDE, SIDE)
    columns = ferrax.vmap(lambda u: heat_flow(ferrax.numpy.asarray(log_conductivity), u))(basis)
    return np.asarray(columns).reshape(SIDE**2, SIDE**2).T


def test_solutions_and_gradients_are_those_of_the_dense_system():
    k, sources = data()
    dense = matrix(k)
    np.testing.assert_allclose(dense, dense.T, rtol=0, atol=1e-14)
    heat_flow, temperatures, _, _ = program(ferrax)
    jnp = ferrax.numpy
    u, pull = ferrax.vjp(temperatures, jnp.asarray(k), jnp.asarray(sources[0]))
    np.testing.assert_allclose(u.ravel(), np.linalg.solve(dense, sources[0].ravel()), rtol=1e-10)
    by_k, by_source = pull(jnp.asarray(sources[1]))
    adjoint = np.linalg.solve(dense.T, sources[1].ravel()).reshape(SIDE, SIDE)
    np.testing.assert_allclose(by_source, adjoint, rtol=1e-9)
    # By the conductivity: minus the adjoint times what the matrix's derivative makes of u.
    _, pull_matrix = ferrax.vjp(lambda k: heat_flow(k, u), jnp.asarray(k))
    np.testing.assert_allclose(by_k, -pull_matrix(jnp.asarray(adjoint))[0], rtol=1e-8, atol=1e-11)


def test_forward_reverse_and_second_derivatives_agree_with_jaxs():
    k, sources = data()
    direction = np.cos(np.arange(SIDE**2.0)).reshape(SIDE, SIDE)

    def derivatives(jax):
        _, temperatures, loss, _ = program(jax)
        jnp = jax.numpy
        at, b = jnp.asarray(k), jnp.asarray(sources)
        gradient = jax.grad(loss)
        return (
            jax.jit(gradient)(at, b, jnp.zeros_like(b)),
            jax.jvp(lambda k: loss(k, b, jnp.zeros_like(b)), (at,), (jnp.asarray(direction),))[1],
            jax.jvp(lambda k: gradient(k, b, jnp.zeros_like(b)), (at,), (jnp.asarray(direction),))[1],
        )

    ours, theirs = derivatives(ferrax), derivatives(jax)
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(np.vdot(ours[0], direction), ours[1], rtol=1e-9)


def fit(jax):
    _, temperatures, _, step = program(jax)
    jnp = jax.numpy
    true, sources = map(jnp.asarray, data())
    measured = jax.vmap(temperatures, (None, 0))(true, sources)
    zeros = jnp.zeros_like(true)
    state, losses = (zeros, zeros, zeros, 0), []
    for _ in range(STEPS):
        state, value = step(state, sources, measured)
        losses.append(float(value))
    return np.asarray(state[0]), np.array(losses), np.asarray(true)


def test_the_conductivity_is_found_as_by_jax():
    ours, losses, true = fit(ferrax)
    theirs, their_losses, _ = fit(jax)
    np.testing.assert_allclose(losses, their_losses, rtol=1e-6)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert losses[-1] < 0.02 * losses[0]
    inside = np.s_[1:-1, 1:-1]
    assert np.corrcoef(ours[inside].ravel(), true[inside].ravel())[0, 1] > 0.8
