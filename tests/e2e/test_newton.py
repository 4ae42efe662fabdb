"""Logistic regression by Newton's method: `hessian` and `grad` of a loss, a solver of jnp alone,
float64. Every iterate is JAX's, and the last is a minimum.
"""

import jax
import numpy as np
import pytest

import ferrax
from ferrax import export

ITERATIONS = 8


@pytest.fixture(autouse=True)
def float64():
    with ferrax.enable_x64(True), jax.enable_x64(True):
        yield


def data():
    """Features f64[200, 5], the last of them one, and labels in {0, 1}."""
    rng = np.random.default_rng(3)
    features = np.concatenate([rng.normal(size=(200, 4)), np.ones((200, 1))], axis=1)
    true = np.array([1.5, -2.0, 0.5, 0.0, 0.3])
    labels = (rng.uniform(size=200) < 1 / (1 + np.exp(-features @ true))).astype(np.float64)
    return features, labels


def program(jax):
    """`(loss, newton)` on one library."""
    jnp = jax.numpy

    def loss(weights, features, labels):
        logits = features @ weights
        fit = jnp.mean(jnp.logaddexp(0.0, logits) - labels * logits)
        return fit + 0.005 * jnp.sum(weights**2)

    def solve(matrix, vector):
        """Gauss-Jordan elimination of a positive definite system, unrolled."""
        system = jnp.concatenate([matrix, vector[:, None]], axis=1)
        for k in range(len(vector)):
            row = system[k] / system[k, k]
            system = (system - jnp.outer(system[:, k], row)).at[k].set(row)
        return system[:, -1]

    @jax.jit
    def newton(weights, features, labels):
        gradient = jax.grad(loss)(weights, features, labels)
        curvature = jax.hessian(loss)(weights, features, labels)
        return weights - solve(curvature, gradient), curvature

    return loss, newton


def iterates(jax):
    _, newton = program(jax)
    weights = jax.numpy.zeros(5)
    path, curvature = [], None
    for _ in range(ITERATIONS):
        weights, curvature = newton(weights, *data())
        path.append(np.asarray(weights))
    return np.stack(path), np.asarray(curvature)


def test_every_iterate_is_jaxs():
    ours, our_curvature = iterates(ferrax)
    theirs, their_curvature = iterates(jax)
    assert ours.dtype == theirs.dtype == np.float64
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(our_curvature, their_curvature, rtol=1e-9, atol=1e-12)


def test_the_last_iterate_is_a_minimum():
    loss, _ = program(ferrax)
    path, curvature = iterates(ferrax)
    gradient = np.asarray(ferrax.grad(loss)(ferrax.numpy.asarray(path[-1]), *data()))
    assert np.abs(gradient).max() < 1e-12
    np.testing.assert_allclose(curvature, curvature.T, rtol=0, atol=1e-14)
    assert np.linalg.eigvalsh(curvature).min() > 0.01
    # It converges quadratically: the digits double until there are no more.
    distances = np.linalg.norm(path[:-1] - path[-1], axis=1)
    assert distances[3] < 10 * distances[2] ** 2


def test_hessians_agree_however_they_are_composed():
    loss, _ = program(ferrax)
    weights = ferrax.numpy.asarray(iterates(ferrax)[0][1])
    forward_over_reverse = ferrax.jacfwd(ferrax.grad(loss))(weights, *data())
    reverse_over_reverse = ferrax.jacrev(ferrax.grad(loss))(weights, *data())
    columns = [
        ferrax.jvp(lambda w: ferrax.grad(loss)(w, *data()), (weights,), (basis,))[1]
        for basis in ferrax.numpy.eye(5)
    ]
    for other in (reverse_over_reverse, ferrax.numpy.stack(columns, axis=1)):
        np.testing.assert_allclose(
            np.asarray(forward_over_reverse), np.asarray(other), rtol=1e-11, atol=1e-14
        )


def test_a_saved_step_of_newtons_method(tmp_path):
    _, newton = program(ferrax)
    weights = ferrax.numpy.zeros(5)
    export.save(tmp_path / "newton.ferrax", export.export(newton)(weights, *data()))
    loaded = export.load(tmp_path / "newton.ferrax")
    path, _ = iterates(ferrax)
    for expected in path:
        weights, _ = loaded.call(weights, *data())
        np.testing.assert_array_equal(np.asarray(weights), expected)
