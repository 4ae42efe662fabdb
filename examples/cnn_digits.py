"""A convolutional network reads handwritten digits (LeCun et al., 1998), with batch normalisation (Ioffe &
Szegedy, 2015) and max-pooling. Images f32[N, 8, 8, 1], channels last.
"""

import numpy as np
from common import adam, apply_dense, check, dense, options, pyplot, save
from sklearn.datasets import load_digits
from tqdm import tqdm

import ferrax as jax
import ferrax.numpy as jnp

BATCH, TEST_COUNT = 64, 360


def load_data():
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.images[order, :, :, None] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    return (images[TEST_COUNT:], labels[TEST_COUNT:]), (images[:TEST_COUNT], labels[:TEST_COUNT])


def initial_parameters(key):
    keys = jax.random.split(key, 3)
    shapes = [(3, 3, 1, 16), (3, 3, 16, 32)]
    return {
        "convolutions": [
            {"w": jax.nn.initializers.he_normal()(k, shape), "scale": jnp.ones(shape[-1]), "b": jnp.zeros(shape[-1])}
            for k, shape in zip(keys, shapes)
        ],
        "last": dense(keys[2], 2 * 2 * 32, 10),
    }  # fmt: skip


def convolved(x, w):
    return jax.lax.conv_general_dilated(
        x, w, window_strides=(1, 1), padding="SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def pooled(x):
    """The largest of each 2 x 2 pixels."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def logits(parameters, x):
    """[B, 10] of images [B, 8, 8, 1]; each batch is normalised by its own moments."""
    for layer in parameters["convolutions"]:
        x = convolved(x, layer["w"])
        mean, variance = jnp.mean(x, axis=(0, 1, 2)), jnp.var(x, axis=(0, 1, 2))
        x = layer["scale"] * (x - mean) * jax.lax.rsqrt(variance + 1e-5) + layer["b"]
        x = pooled(jax.nn.relu(x))
    return apply_dense(parameters["last"], x.reshape(x.shape[0], -1))


def loss(parameters, images, labels):
    scores = jax.nn.log_softmax(logits(parameters, images))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


def main():
    small = options(__doc__).small
    (images, labels), (test_images, test_labels) = load_data()
    start, step = adam(loss, rate=3e-3)
    state, shuffle = start(initial_parameters(jax.random.key(0))), np.random.default_rng(0)
    predicted = jax.jit(lambda p, x: jnp.argmax(logits(p, x), axis=1))
    losses, accuracies = [], []
    for _ in tqdm(range(5 if small else 40), desc="training", unit="epoch"):
        order = shuffle.permutation(len(labels))[: len(labels) // BATCH * BATCH]
        for chosen in order.reshape(-1, BATCH):
            state, value = step(state, images[chosen], labels[chosen])
            losses.append(float(value))
        accuracies.append(float(jnp.mean(predicted(state[0], test_images) == test_labels)))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    left.semilogy(losses)
    left.set(xlabel="step", ylabel="training loss")
    filters = np.asarray(state[0]["convolutions"][0]["w"])[..., 0, :].reshape(3, 3, 4, 4)
    right.imshow(np.pad(filters, ((0, 1), (0, 1), (0, 0), (0, 0))).transpose(2, 0, 3, 1).reshape(16, 16))
    right.set(title="filters of the first layer", xticks=[], yticks=[])
    save(figure, "training.png")
    check("test accuracy", accuracies[-1], low=0.95 if small else 0.97)


if __name__ == "__main__":
    main()
