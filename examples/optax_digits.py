"""A program for JAX, run as it is: a network for scanned digits, trained by Optax.

    python -m ferrax.compat examples/optax_digits.py

AdamW (Loshchilov & Hutter, Decoupled Weight Decay Regularization, 2019) under a learning rate that rises and
falls as a cosine, gradients clipped by their norm, and an average of the weights to predict with.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import check, options, pyplot, save
from sklearn.datasets import load_digits

SIZES, BATCH = (64, 96, 48, 10), 128


def load_data():
    """Images f32[N, 64] between 0 and 1 and labels i32[N], as a training and a test set."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = jnp.asarray(digits.data[order] / 16, jnp.float32)
    labels = jnp.asarray(digits.target[order], jnp.int32)
    return (images[:1500], labels[:1500]), (images[1500:], labels[1500:])


def init(key):
    glorot = jax.nn.initializers.glorot_normal()
    keys = jax.random.split(key, len(SIZES) - 1)
    return [
        {"w": glorot(key, (n, m)), "b": jnp.zeros(m)} for key, n, m in zip(keys, SIZES, SIZES[1:])
    ]


def network(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.gelu(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def loss(layers, images, labels):
    smooth = optax.smooth_labels(jax.nn.one_hot(labels, 10), 0.05)
    return optax.softmax_cross_entropy(network(layers, images), smooth).mean()


def is_matrix(layers):
    return jax.tree.map(lambda x: x.ndim == 2, layers)


def train(images, labels, steps):
    """The averaged weights, and of every step the loss, the norm of the gradient and the learning rate."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.01, steps // 10, steps)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(schedule, weight_decay=0.01, mask=is_matrix),
    )
    average = optax.ema(0.9)

    def step(carry, key):
        layers, state, averaged = carry
        rows = jax.random.randint(key, (BATCH,), 0, len(images))
        value, gradients = jax.value_and_grad(loss)(layers, images[rows], labels[rows])
        updates, state = optimizer.update(gradients, state, layers)
        layers = optax.apply_updates(layers, updates)
        _, averaged = average.update(layers, averaged)
        return (layers, state, averaged), (value, optax.global_norm(gradients))

    @jax.jit
    def run(key):
        layers = init(key)
        start = layers, optimizer.init(layers), average.init(layers)
        keys = jax.random.split(key, steps)
        (layers, _, averaged), (losses, norms) = jax.lax.scan(step, start, keys)
        return average.update(layers, averaged)[0], losses, norms

    return *run(jax.random.key(0)), schedule(jnp.arange(steps))


def main():
    small = options(__doc__).small
    (images, labels), (test_images, test_labels) = load_data()
    layers, losses, norms, rates = train(images, labels, 150 if small else 2000)
    chance = jax.nn.softmax(jax.jit(network)(layers, test_images))
    found = jnp.argmax(chance, axis=1)
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4))
    axes[0].plot(losses, linewidth=0.8)
    axes[0].set(title="training", xlabel="step", ylabel="cross entropy")
    axes[1].plot(rates, label="learning rate")
    axes[1].plot(norms * rates.max() / norms.max(), linewidth=0.5, label="norm of the gradient, scaled")
    axes[1].set(title="AdamW under a schedule", xlabel="step")
    axes[1].legend()
    # The digits that the network is least sure of.
    least = jnp.argsort(jnp.max(chance, axis=1))[:16]
    tiles = test_images[least].reshape(4, 4, 8, 8)
    axes[2].imshow(tiles.transpose(0, 2, 1, 3).reshape(32, 32), cmap="gray_r")
    axes[2].set(title="the least sure", xticks=[], yticks=[])
    save(figure, "training.png")
    check("first loss", losses[0], 2, 4)
    check("loss after 20 steps", losses[20], 0.5, 2)
    check("norm of the first gradient", norms[0], 0)
    check("last loss", losses[-1], 0, 0.6)
    check("accuracy", jnp.mean(found == test_labels), 0.93)


if __name__ == "__main__":
    main()
