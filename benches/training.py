"""A training step of the digits classifier, and the memory that ten thousand of them take.

`python benches/training.py LIBRARY` prints the growth of the resident memory in MiB.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import numpy as np
from timing import Library, Row, timed

TITLE = "Training of the digits classifier"

SIZES = [64, 128, 64, 10]
BATCH = 64
STEPS = 10_000


def _training(library):
    """The jitted step of Adam, and its first arguments."""
    jax, jnp = library.jax, library.jnp
    random = np.random.default_rng(0)
    parameters = [
        (
            jnp.asarray(random.normal(size=(m, n), scale=(2 / m) ** 0.5).astype(np.float32)),
            jnp.zeros(n, np.float32),
        )
        for m, n in zip(SIZES[:-1], SIZES[1:])
    ]
    images = jnp.asarray(random.uniform(size=(BATCH, SIZES[0])).astype(np.float32))
    labels = jnp.asarray(random.integers(0, 10, BATCH).astype(np.int32))

    def loss(parameters, images, labels):
        x = images
        for weights, bias in parameters[:-1]:
            x = jax.nn.relu(x @ weights + bias)
        logits = x @ parameters[-1][0] + parameters[-1][1]
        target = jax.nn.one_hot(labels, SIZES[-1])
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * target, axis=1))

    @jax.jit
    def step(parameters, first, second, count, images, labels):
        value, gradients = jax.value_and_grad(loss)(parameters, images, labels)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
        rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        parameters = jax.tree.map(
            lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), parameters, first, second
        )
        return parameters, first, second, count, value

    zeros = jax.tree.map(jnp.zeros_like, parameters)
    return step, [parameters, zeros, zeros, jnp.zeros((), np.float32)], (images, labels)


def _step(library):
    step, state, batch = _training(library)

    def call():
        *state[:], value = step(*state, *batch)
        value.block_until_ready()

    return call


def _resident_mebibytes() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def _growth(library) -> float:
    call = _step(library)
    for _ in range(500):
        call()
    before = _resident_mebibytes()
    for _ in range(STEPS):
        call()
    return _resident_mebibytes() - before


def _memory(found):
    return {
        key: float(
            subprocess.run(
                [sys.executable, __file__, key], capture_output=True, check=True, text=True
            ).stdout
        )
        for key in found
    }


ROWS = [
    timed("digits training step (64 images)", "µs", None, _step),
    Row("memory growth over 10,000 steps", "MiB", 1.0, _memory),
]

if __name__ == "__main__":
    name = sys.argv[1]
    package = importlib.import_module(name)
    print(_growth(Library(name, package, importlib.import_module(f"{name}.numpy"))))
