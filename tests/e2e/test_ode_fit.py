"""Parameters of a differential equation from observations: an adaptive Runge-Kutta method, its
adjoint, and gradient descent on the logarithms of the parameters. Every value of the loss is JAX's,
and the solution at the end is the one that made the data.
"""

import jax
import jax.experimental.ode
import numpy as np
import pytest
import scipy.integrate

import ferrax
import ferrax.experimental.ode

TRUE = np.array([1.3, 0.9, 0.8, 1.1])
GUESS = np.array([1.1, 1.1, 1.0, 0.9])
START = np.array([1.0, 0.6])
TIMES = np.linspace(0.0, 5.0, 11)
STEPS = 12


@pytest.fixture(autouse=True)
def float64():
    with ferrax.enable_x64(True), jax.enable_x64(True):
        yield


def observations():
    """Prey and predators of Lotka and Volterra at `TIMES`, by SciPy: f64[11, 2]."""

    def slope(t, y):
        a, b, c, d = TRUE
        return [a * y[0] - b * y[0] * y[1], -c * y[1] + d * y[0] * y[1]]

    span = TIMES[0], TIMES[-1]
    return scipy.integrate.solve_ivp(
        slope, span, START, "DOP853", t_eval=TIMES, rtol=1e-12, atol=1e-12
    ).y.T


def program(jax):
    """`(loss, step)` on one library; the state of a step is the parameters' logarithms and an
    approximation of the inverse Hessian."""
    jnp, odeint = jax.numpy, jax.experimental.ode.odeint

    def slope(y, t, log_rates):
        grow, eaten, starve, feed = jnp.exp(log_rates)
        prey, predators = y["prey"], y["predators"]
        return {
            "prey": grow * prey - eaten * prey * predators,
            "predators": feed * prey * predators - starve * predators,
        }

    def loss(log_rates, data):
        start = {"prey": START[0], "predators": START[1]}
        start = jax.tree.map(jnp.asarray, start)
        path = odeint(slope, start, jnp.asarray(TIMES), log_rates, rtol=1e-9, atol=1e-9)
        return jnp.mean((jnp.stack([path["prey"], path["predators"]], axis=1) - data) ** 2)

    @jax.jit
    def step(state, data):
        """One of BFGS, of length one."""
        log_rates, inverse, gradient = state
        move = -inverse @ gradient
        value, new = jax.value_and_grad(loss)(log_rates + move, data)
        change = new - gradient
        rho = 1 / (change @ move)
        project = jnp.eye(4) - rho * jnp.outer(move, change)
        inverse = project @ inverse @ project.T + rho * jnp.outer(move, move)
        return (log_rates + move, inverse, new), value

    return loss, step


def fit(jax):
    loss, step = program(jax)
    jnp, data = jax.numpy, observations()
    log_rates = jnp.log(jnp.asarray(GUESS))
    state = log_rates, 0.05 * jnp.eye(4), jax.grad(loss)(log_rates, data)
    losses = []
    for _ in range(STEPS):
        state, value = step(state, data)
        losses.append(float(value))
    return np.exp(np.asarray(state[0])), np.array(losses)


def test_every_loss_is_jaxs_and_the_parameters_are_found():
    ours, losses = fit(ferrax)
    theirs, their_losses = fit(jax)
    np.testing.assert_allclose(losses, their_losses, rtol=1e-4, atol=1e-10)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert losses[-1] < 1e-3 * losses[0]
    np.testing.assert_allclose(ours, TRUE, rtol=0.05)


def test_the_adjoint_gives_the_derivatives_of_the_solution():
    loss, _ = program(ferrax)
    data, at = observations(), np.log(GUESS)
    gradient = ferrax.grad(loss)(ferrax.numpy.asarray(at), data)
    by_differences = [
        (loss(ferrax.numpy.asarray(at + h), data) - loss(ferrax.numpy.asarray(at - h), data)) / 2e-5
        for h in 1e-5 * np.eye(4)
    ]
    np.testing.assert_allclose(gradient, np.array(by_differences), rtol=2e-5, atol=1e-7)


def test_many_fits_at_once():
    """`vmap` over parameters: each solution takes steps of its own."""
    loss, _ = program(ferrax)
    data = observations()
    guesses = ferrax.numpy.log(ferrax.numpy.asarray([GUESS, TRUE, 0.5 * TRUE]))
    values, gradients = ferrax.vmap(ferrax.value_and_grad(loss), (0, None))(guesses, data)
    for guess, value, gradient in zip(guesses, values, gradients):
        alone = ferrax.value_and_grad(loss)(guess, data)
        np.testing.assert_allclose(value, alone[0], rtol=1e-7, atol=1e-15)
        np.testing.assert_allclose(gradient, alone[1], rtol=1e-6, atol=1e-8)
    assert values[1] < 1e-14
