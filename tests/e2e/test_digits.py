"""Training a classifier, whole: random parameters, a jitted step of Adam over pytrees, the loss
curve, and the trained function saved and loaded. The curve is JAX's.
"""

import jax
import numpy as np
import pytest

import ferrax
from ferrax import export

SIZES = [64, 32, 16, 10]
STEPS, BATCH = 50, 32


def digits():
    """Images f32[320, 64] and labels i32[320]: ten smooth prototypes of 8x8 pixels, with noise."""
    rng = np.random.default_rng(0)
    prototypes = rng.uniform(size=(10, 4, 4)).repeat(2, axis=1).repeat(2, axis=2).reshape(10, 64)
    labels = rng.integers(10, size=320).astype(np.int32)
    images = np.clip(prototypes[labels] + 0.3 * rng.normal(size=(320, 64)), 0, 1)
    return images.astype(np.float32), labels


def program(jax):
    """`(initial, step, predict)` on one library."""
    jnp = jax.numpy

    def initial(key):
        layers = []
        for fan_in, fan_out in zip(SIZES[:-1], SIZES[1:]):
            key, layer_key = jax.random.split(key)
            scale = (2 / fan_in) ** 0.5
            layers.append(
                {
                    "weights": scale * jax.random.normal(layer_key, (fan_in, fan_out)),
                    "bias": jnp.zeros(fan_out),
                }
            )
        return layers

    def predict(layers, images):
        *hidden, last = layers
        x = images
        for layer in hidden:
            x = jax.nn.relu(x @ layer["weights"] + layer["bias"])
        return x @ last["weights"] + last["bias"]

    def loss(layers, images, labels):
        logits = jax.nn.log_softmax(predict(layers, images))
        return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], axis=1))

    @jax.jit
    def step(state, images, labels):
        layers, first, second, count = state
        value, gradients = jax.value_and_grad(loss)(layers, images, labels)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
        rate = 3e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        layers = jax.tree.map(
            lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), layers, first, second
        )
        return (layers, first, second, count), value

    return initial, step, predict


def train(jax):
    initial, step, predict = program(jax)
    images, labels = digits()
    layers = initial(jax.random.key(0))
    zeros = jax.tree.map(jax.numpy.zeros_like, layers)
    state = (layers, zeros, zeros, jax.numpy.float32(0))
    order = np.random.default_rng(1)
    curve = []
    for _ in range(STEPS):
        chosen = order.choice(len(labels), BATCH, replace=False)
        state, value = step(state, images[chosen], labels[chosen])
        curve.append(float(value))
    return state[0], np.array(curve), predict


@pytest.fixture(scope="module")
def trained():
    return train(ferrax)


def test_the_loss_curve_is_jaxs(trained):
    layers, curve, _ = trained
    their_layers, their_curve, _ = train(jax)
    np.testing.assert_allclose(curve, their_curve, rtol=0, atol=1e-4)
    ours, theirs = ferrax.tree.leaves(layers), jax.tree.leaves(their_layers)
    assert [x.shape for x in ours] == [x.shape for x in theirs]
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=1e-3)
    assert curve[-5:].mean() < 0.5 * curve[:5].mean()


def test_the_trained_function_is_saved_with_its_parameters(trained, tmp_path):
    layers, _, predict = trained
    images, labels = digits()
    logits = predict(layers, images)
    exported = export.export(ferrax.jit(lambda images: predict(layers, images)))(images)
    export.save(tmp_path / "digits.ferrax", exported)
    loaded = export.load(tmp_path / "digits.ferrax")
    assert [str(aval) for aval in loaded.in_avals] == ["float32[320,64]"]
    np.testing.assert_allclose(np.asarray(loaded.call(images)), np.asarray(logits), atol=1e-5)
    correct = np.mean(np.argmax(np.asarray(logits), axis=1) == labels)
    assert correct > 0.8, f"{correct:.2f} of the images are recognised"


def test_a_whole_step_is_saved(trained, tmp_path):
    """The trees of parameters and moments, the gradients and the update are all in the file."""
    layers, _, _ = trained
    images, labels = digits()
    _, step, _ = program(ferrax)
    zeros = ferrax.tree.map(ferrax.numpy.zeros_like, layers)
    state = (layers, zeros, zeros, ferrax.numpy.float32(0))
    export.save(tmp_path / "step.ferrax", export.export(step)(state, images, labels))
    found = export.load(tmp_path / "step.ferrax").call(state, images, labels)
    expected = step(state, images, labels)
    assert ferrax.tree.structure(found) == ferrax.tree.structure(expected)
    for a, b in zip(ferrax.tree.leaves(found), ferrax.tree.leaves(expected)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
