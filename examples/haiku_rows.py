"""A program for JAX, run as it is: a recurrent network of Haiku reads scanned digits row by row.

    python -m ferrax.compat examples/haiku_rows.py

A long short-term memory (Hochreiter & Schmidhuber, 1997) over the eight rows of an image, with dropout
between its layers; what it thinks after each row shows how a digit becomes clear. Optax trains it.
"""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import check, options, pyplot, save
from sklearn.datasets import load_digits

BATCH = 100


def load_data():
    """Images f32[N, 8, 8] and labels i32[N], as a training and a test set."""
    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.target))
    images = jnp.asarray(digits.images[order] / 8 - 1, jnp.float32)
    labels = jnp.asarray(digits.target[order], jnp.int32)
    return (images[:1500], labels[:1500]), (images[1500:], labels[1500:])


class Reader(hk.Module):
    """Scores of the ten digits after each row of images, f32[8, N, 10]."""

    def __init__(self, width, name=None):
        super().__init__(name=name)
        self.width = width

    def __call__(self, images, training):
        rows = jnp.swapaxes(images, 0, 1)
        seen = hk.Sequential([hk.Linear(self.width), hk.LayerNorm(-1, True, True), jax.nn.silu])(rows)
        core = hk.LSTM(self.width)
        states, _ = hk.dynamic_unroll(core, seen, core.initial_state(images.shape[0]))
        if training:
            states = hk.dropout(hk.next_rng_key(), 0.2, states)
        return hk.Linear(10)(states)


def train(model, images, labels, steps):
    """The parameters, and the loss of every step."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01))
    # Later rows count more: before the last one a digit need not be clear.
    weights = jnp.linspace(0, 1, 8)[:, None] ** 2

    def loss(params, key, images, labels):
        scores = model.apply(params, key, images, True)
        each = optax.softmax_cross_entropy_with_integer_labels(scores, jnp.tile(labels, (8, 1)))
        return jnp.sum(weights * each) / jnp.sum(weights) / images.shape[0]

    @jax.jit
    def step(params, state, key):
        choice, key = jax.random.split(key)
        rows = jax.random.randint(choice, (BATCH,), 0, len(images))
        value, gradients = jax.value_and_grad(loss)(params, key, images[rows], labels[rows])
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, value

    keys = hk.PRNGSequence(2)
    params = jax.jit(model.init, static_argnums=2)(next(keys), images[:1], False)
    state, losses = optimizer.init(params), []
    for _ in range(steps):
        params, state, value = step(params, state, next(keys))
        losses.append(value)
    return params, jnp.stack(losses)


def main():
    small = options(__doc__).small
    (images, labels), (test_images, test_labels) = load_data()
    model = hk.transform(lambda images, training: Reader(32 if small else 96)(images, training))
    params, losses = train(model, images, labels, 200 if small else 1500)
    for module, leaves in params.items():
        print(f"  {module}: {', '.join(f'{name} {x.shape}' for name, x in leaves.items())}")
    scores = jax.jit(model.apply, static_argnums=3)(params, None, test_images, False)
    right = jnp.mean(jnp.argmax(scores, axis=-1) == test_labels, axis=1)
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4))
    axes[0].plot(losses, linewidth=0.8)
    axes[0].set(title="training", xlabel="step", ylabel="cross entropy")
    axes[1].plot(range(1, 9), right, "o-")
    axes[1].set(title="accuracy after so many rows", xlabel="rows", ylim=(0, 1))
    axes[2].imshow(jax.nn.softmax(scores[:, 0]), cmap="Blues", vmin=0, vmax=1)
    axes[2].set(title=f"reading a {test_labels[0]}", xlabel="digit", ylabel="row", xticks=range(10))
    save(figure, "reading.png")
    check("parameters", hk.data_structures.tree_size(params), 0)
    check("first loss", losses[0], 2, 3)
    check("loss after 20 steps", losses[20], 0, 2.3)
    check("last loss", losses[-1], 0, 1)
    check("accuracy after four rows", right[3], 0.3)
    check("accuracy", right[-1], 0.85)


if __name__ == "__main__":
    main()
