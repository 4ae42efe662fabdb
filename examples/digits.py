"""Trains a classifier of handwritten digits, exports it, and leaves files for the Rust example.

The data are the 1,797 images of 8x8 pixels that scikit-learn carries. Everything lands in
`out/digits`: the learning curve, the exported functions, the test images and the parameters.
`cargo run --release -p ferrax --example digits` then runs the functions without Python.
"""

import pathlib
import struct
import time

import matplotlib
import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import ferrax as jax
import ferrax.numpy as jnp
from ferrax import export

matplotlib.use("agg")
from matplotlib import pyplot  # noqa: E402  (the backend is chosen first)

OUT = pathlib.Path("out/digits")
SIZES = [64, 128, 64, 10]
TEST_COUNT = 360
BATCH = 64
EPOCHS = 60
RATE, DECAY_1, DECAY_2, EPSILON = 2e-3, 0.9, 0.999, 1e-8


def load_data():
    """Images f32[N, 64] in [0, 1] and labels i32[N], split by a seeded permutation."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.data[order] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    return (images[TEST_COUNT:], labels[TEST_COUNT:]), (images[:TEST_COUNT], labels[:TEST_COUNT])


def initial_parameters(key):
    """A list of (weights, bias), one pair a layer."""
    layers = []
    for fan_in, fan_out in zip(SIZES[:-1], SIZES[1:]):
        key, layer_key = jax.random.split(key)
        scale = (2 / fan_in) ** 0.5
        weights = scale * jax.random.normal(layer_key, (fan_in, fan_out))
        layers.append((weights, jnp.zeros(fan_out)))
    return layers


def predict(parameters, images):
    """Logits f32[N, 10]."""
    *hidden, (last_weights, last_bias) = parameters
    activations = images
    for weights, bias in hidden:
        activations = jax.nn.relu(activations @ weights + bias)
    return activations @ last_weights + last_bias


def loss(parameters, images, labels):
    """Mean cross entropy."""
    log_probabilities = jax.nn.log_softmax(predict(parameters, images))
    return -jnp.mean(jnp.sum(log_probabilities * jax.nn.one_hot(labels, 10), axis=1))


@jax.jit
def train_step(parameters, moments, count, images, labels):
    """One step of Adam (Kingma & Ba, 2015): new parameters, moments, count, and the loss."""
    value, gradients = jax.value_and_grad(loss)(parameters, images, labels)
    count = count + 1
    first = jax.tree.map(lambda m, g: DECAY_1 * m + (1 - DECAY_1) * g, moments[0], gradients)
    second = jax.tree.map(lambda v, g: DECAY_2 * v + (1 - DECAY_2) * g * g, moments[1], gradients)
    rate = RATE * jnp.sqrt(1 - DECAY_2**count) / (1 - DECAY_1**count)
    parameters = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v) + EPSILON), parameters, first, second
    )
    return parameters, (first, second), count, value


@jax.jit
def accuracy(parameters, images, labels):
    """Share of the images whose largest logit is that of the label."""
    return jnp.mean(jnp.argmax(predict(parameters, images), axis=1) == labels)


def train(parameters, train_set, test_set):
    """Returns the trained parameters, and per epoch the mean loss and the test accuracy."""
    images, labels = train_set
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    moments, count = (zeros, zeros), jnp.float32(0)
    shuffle = np.random.default_rng(1)
    batches = len(labels) // BATCH
    losses, accuracies, seconds = [], [], []
    bar = tqdm(range(EPOCHS), desc="training", unit="epoch")
    for _ in bar:
        order = shuffle.permutation(len(labels))[: batches * BATCH].reshape(batches, BATCH)
        epoch_losses = []
        for indices in order:
            start = time.perf_counter()
            parameters, moments, count, value = train_step(
                parameters, moments, count, images[indices], labels[indices]
            )
            value.block_until_ready()
            seconds.append(time.perf_counter() - start)
            epoch_losses.append(value)
        losses.append(float(np.mean([float(value) for value in epoch_losses])))
        accuracies.append(float(accuracy(parameters, *test_set)))
        bar.set_postfix(loss=f"{losses[-1]:.4f}", accuracy=f"{accuracies[-1]:.4f}")
    steady = float(np.median(seconds[1:]))
    print(f"compile time: {1000 * (seconds[0] - steady):.1f} ms (first step less a steady one)")
    print(f"steps per second: {1 / steady:.0f} ({1e6 * steady:.0f} µs a step of {BATCH} images)")
    return parameters, losses, accuracies


def draw_curve(losses, accuracies, path):
    figure, left = pyplot.subplots(figsize=(7, 4))
    epochs = range(1, len(losses) + 1)
    left.semilogy(epochs, losses, color="tab:blue")
    left.set_xlabel("epoch")
    left.set_ylabel("training loss", color="tab:blue")
    right = left.twinx()
    right.plot(epochs, accuracies, color="tab:orange")
    right.set_ylabel("test accuracy", color="tab:orange")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def save_test_set(path, images, labels):
    """Little endian: u32 count, u32 features, f32 images, i32 labels."""
    with path.open("wb") as file:
        file.write(struct.pack("<II", *images.shape))
        file.write(images.astype("<f4").tobytes())
        file.write(labels.astype("<i4").tobytes())


def save_parameters(path, arrays):
    """Little endian: u32 number of arrays; for each u32 rank, u32 dimensions, f32 data."""
    with path.open("wb") as file:
        file.write(struct.pack("<I", len(arrays)))
        for array in map(np.asarray, arrays):
            file.write(struct.pack(f"<{1 + array.ndim}I", array.ndim, *array.shape))
            file.write(array.astype("<f4").tobytes())


def export_functions(parameters, images, labels):
    """`predict` holds the trained parameters; `loss` takes them as a flat list."""
    leaves, tree = jax.tree.flatten(parameters)
    exported = export.export(jax.jit(lambda images: predict(parameters, images)))(images)
    export.save(OUT / "predict.ferrax", exported)

    def flat_loss(leaves, images, labels):
        return loss(jax.tree.unflatten(tree, leaves), images, labels)

    export.save(OUT / "loss.ferrax", export.export(jax.jit(flat_loss))(leaves, images, labels))
    save_parameters(OUT / "params.bin", leaves)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    train_set, test_set = load_data()
    parameters = initial_parameters(jax.random.key(0))
    parameters, losses, accuracies = train(parameters, train_set, test_set)
    test_accuracy = float(accuracy(parameters, *test_set))
    print(f"test accuracy: {100 * test_accuracy:.2f} % of {len(test_set[1])} images")
    draw_curve(losses, accuracies, OUT / "curve.png")
    save_test_set(OUT / "test.bin", *test_set)
    export_functions(parameters, *test_set)
    print(f"written: {', '.join(sorted(str(path) for path in OUT.iterdir()))}")
    if test_accuracy < 0.97:
        raise SystemExit(f"the test accuracy {test_accuracy:.4f} is below 0.97")


if __name__ == "__main__":
    main()
