"""A network whose layer is applied until nothing changes (Bai, Kolter & Koltun, "Deep equilibrium
models", 2019): the fixed point by a `while_loop`, its derivatives by `custom_root`. The derivatives
are those of the unrolled iteration; training goes as in JAX.
"""

import jax
import numpy as np
import pytest

import ferrax

INPUTS, UNITS, POINTS = 3, 8, 24
STEPS, RATE = 15, 0.5


@pytest.fixture(autouse=True)
def float64():
    with ferrax.enable_x64(True), jax.enable_x64(True):
        yield


def data():
    """Parameters of a contraction, inputs f64[24, 3] and targets f64[24]."""
    rng = np.random.default_rng(2)
    recurrent = rng.normal(size=(UNITS, UNITS))
    parameters = {
        "recurrent": 0.5 * recurrent / np.linalg.norm(recurrent, 2),
        "input": rng.normal(size=(UNITS, INPUTS)),
        "bias": 0.1 * rng.normal(size=UNITS),
        "read": rng.normal(size=UNITS) / UNITS,
    }
    inputs = rng.normal(size=(POINTS, INPUTS))
    return parameters, inputs, np.sin(inputs.sum(1))


def program(jax, unrolled=None):
    """`(fixed_point, loss, step)` on one library; `unrolled` steps instead of the implicit
    derivative."""
    jnp, lax = jax.numpy, jax.lax

    def layer(parameters, x, z):
        return jnp.tanh(
            parameters["recurrent"] @ z + parameters["input"] @ x + parameters["bias"]
        )

    def iterate(residual, z):
        """To the fixed point of `z + residual(z)`, and the number of steps there: a float, since
        JAX does not differentiate roots beside integers."""

        def body(state):
            z, change, count = state
            return z + change, residual(z + change), count + 1

        far = lambda state: (jnp.abs(state[1]).max() > 1e-13) & (state[2] < 500)  # noqa: E731
        z, _, count = lax.while_loop(far, body, (z, residual(z), 0.0))
        return z, count

    def by_neumanns_series(linear, y):
        """`x` with `linear(x) = y`, where `linear` is a contraction less the identity."""
        return lax.scan(lambda x, _: (x + linear(x) - y, None), jnp.zeros_like(y), None, 100)[0]

    def fixed_point(parameters, x):
        start = jnp.zeros(UNITS)
        if unrolled is not None:
            return lax.scan(lambda z, _: (layer(parameters, x, z), None), start, None, unrolled)[0], 0.0
        return lax.custom_root(
            lambda z: layer(parameters, x, z) - z, start, iterate, by_neumanns_series, has_aux=True
        )

    def loss(parameters, inputs, targets):
        z, counts = jax.vmap(fixed_point, (None, 0))(parameters, inputs)
        return jnp.mean((z @ parameters["read"] - targets) ** 2), counts

    @jax.jit
    def step(parameters, inputs, targets):
        (value, counts), gradients = jax.value_and_grad(loss, has_aux=True)(
            parameters, inputs, targets
        )
        return jax.tree.map(lambda p, g: p - RATE * g, parameters, gradients), value, counts

    return fixed_point, loss, step


def arrays(jax, tree):
    return jax.tree.map(jax.numpy.asarray, tree)


def train(jax):
    _, _, step = program(jax)
    parameters, inputs, targets = arrays(jax, data())
    losses = []
    for _ in range(STEPS):
        parameters, value, counts = step(parameters, inputs, targets)
        losses.append(float(value))
    return parameters, np.array(losses), np.asarray(counts)


def test_training_goes_as_in_jax():
    ours, losses, counts = train(ferrax)
    theirs, their_losses, their_counts = train(jax)
    np.testing.assert_allclose(losses, their_losses, rtol=1e-9)
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-8, atol=1e-10, err_msg=name)
    assert losses[-1] < 0.3 * losses[0]
    # Each point of the batch takes the steps that it needs.
    assert len(set(counts.tolist())) > 1 and counts.min() > 10 and counts.max() < 500
    assert np.abs(counts - their_counts).max() <= 1


def test_the_derivatives_are_those_of_many_unrolled_steps():
    parameters, inputs, targets = arrays(ferrax, data())
    implicit = ferrax.grad(program(ferrax)[1], has_aux=True)(parameters, inputs, targets)[0]
    explicit = ferrax.grad(program(ferrax, 200)[1], has_aux=True)(parameters, inputs, targets)[0]
    for name in implicit:
        np.testing.assert_allclose(
            implicit[name], explicit[name], rtol=1e-9, atol=1e-12, err_msg=name
        )


def test_jacobians_are_the_implicit_function_theorems():
    """dz/dx = (I - D W)^-1 D U with D the derivatives of tanh; forwards, backwards and twice."""
    fixed_point, _, _ = program(ferrax)
    parameters, inputs, _ = arrays(ferrax, data())
    solution = lambda x: fixed_point(parameters, x)[0]  # noqa: E731
    z = np.asarray(solution(inputs[0]))
    held = {name: np.asarray(value) for name, value in parameters.items()}
    slope = np.diag(1 - z**2)
    expected = np.linalg.solve(np.eye(UNITS) - slope @ held["recurrent"], slope @ held["input"])
    np.testing.assert_allclose(ferrax.jacfwd(solution)(inputs[0]), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ferrax.jacrev(solution)(inputs[0]), expected, rtol=1e-9, atol=1e-12)
    hessian = ferrax.jacfwd(ferrax.jacrev(solution))(inputs[0])
    unrolled = lambda x: program(ferrax, 200)[0](parameters, x)[0]  # noqa: E731
    np.testing.assert_allclose(
        hessian, ferrax.jacfwd(ferrax.jacrev(unrolled))(inputs[0]), rtol=1e-8, atol=1e-10
    )
