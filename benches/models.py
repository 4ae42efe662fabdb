"""Networks: forward, for one example, a training step with Adam, and the first calls of these.

A perceptron of 784-512-512-10 on 128 images; a network of two convolutions on 32 images of 28×28; a
transformer of 4 layers of 256 units and 8 heads on 8×128 tokens of 1,024 words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import tensor, timed, timed_once, torch

TITLE = "Networks"
IMAGES, CLASSES = 128, 10
LAYERS, UNITS, HEADS, WORDS = 4, 256, 8, 1024
SENTENCES, LENGTH = 8, 128
RATE, DECAY, SECOND_DECAY, SMALL = 1e-4, 0.9, 0.999, 1e-8

_random = np.random.default_rng(0)


def _weights(*shape):
    """Of the standard deviation that keeps the size of what goes through."""
    scale = np.prod(shape[:-1]) ** -0.5
    return (_random.standard_normal(shape) * scale).astype(np.float32)


def _zeros(n):
    return np.zeros(n, np.float32)


def _ones(n):
    return np.ones(n, np.float32)


def _labels(*shape, count=CLASSES):
    return _random.integers(0, count, shape).astype(np.int32)


def _map(function, tree):
    if isinstance(tree, dict):
        return {key: _map(function, value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_map(function, value) for value in tree]
    return function(tree)


# The perceptron


def _mlp_parameters():
    sizes = [784, 512, 512, CLASSES]
    return [{"w": _weights(m, n), "b": _zeros(n)} for m, n in zip(sizes[:-1], sizes[1:])]


def _mlp(library, p, x):
    for layer in p[:-1]:
        x = library.jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ p[-1]["w"] + p[-1]["b"]


def _np_mlp(p, x):
    for layer in p[:-1]:
        x = np.maximum(x @ layer["w"] + layer["b"], 0)
    return x @ p[-1]["w"] + p[-1]["b"]


def _t_mlp(t, p, x):
    for layer in p[:-1]:
        x = t.relu(t.addmm(layer["b"], x, layer["w"]))
    return t.addmm(p[-1]["b"], x, p[-1]["w"])


# The network of convolutions; PyTorch has features before places


def _cnn_parameters():
    return {
        "first": {"w": _weights(3, 3, 1, 32), "b": _zeros(32)},
        "second": {"w": _weights(3, 3, 32, 64), "b": _zeros(64)},
        "dense": {"w": _weights(7 * 7 * 64, 128), "b": _zeros(128)},
        "last": {"w": _weights(128, CLASSES), "b": _zeros(CLASSES)},
    }


def _cnn(library, p, x):
    jax, lax = library.jax, library.jax.lax
    for name in ("first", "second"):
        x = lax.conv_general_dilated(
            x, p[name]["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + p[name]["b"])
        x = lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ p["dense"]["w"] + p["dense"]["b"])
    return x @ p["last"]["w"] + p["last"]["b"]


def _t_cnn(t, p, x):
    functional = t.nn.functional
    x = x.permute(0, 3, 1, 2)
    for name in ("first", "second"):
        x = functional.conv2d(x, p[name]["w"].permute(3, 2, 0, 1), p[name]["b"], padding="same")
        x = functional.max_pool2d(functional.relu(x), 2)
    x = x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)
    x = functional.relu(t.addmm(p["dense"]["b"], x, p["dense"]["w"]))
    return t.addmm(p["last"]["b"], x, p["last"]["w"])


# The transformer


def _transformer_parameters():
    def layer():
        return {
            "norm": {"gain": _ones(UNITS), "bias": _zeros(UNITS)},
            "qkv": {"w": _weights(UNITS, 3 * UNITS), "b": _zeros(3 * UNITS)},
            "out": {"w": _weights(UNITS, UNITS), "b": _zeros(UNITS)},
            "second_norm": {"gain": _ones(UNITS), "bias": _zeros(UNITS)},
            "wide": {"w": _weights(UNITS, 4 * UNITS), "b": _zeros(4 * UNITS)},
            "back": {"w": _weights(4 * UNITS, UNITS), "b": _zeros(UNITS)},
        }

    return {
        "words": _weights(WORDS, UNITS) * np.float32(UNITS**-0.5),
        "places": _weights(LENGTH, UNITS),
        "layers": [layer() for _ in range(LAYERS)],
        "norm": {"gain": _ones(UNITS), "bias": _zeros(UNITS)},
    }


def _dense(p, x):
    return x @ p["w"] + p["b"]


def _norm(library, p, x):
    jnp = library.jnp
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) * library.jax.lax.rsqrt(variance + 1e-5) * p["gain"] + p["bias"]


def _transformer(library, p, tokens):
    jax, jnp = library.jax, library.jnp
    x = p["words"][tokens] + p["places"]
    batch, length, units = x.shape
    for layer in p["layers"]:
        mixed = _dense(layer["qkv"], _norm(library, layer["norm"], x))
        q, k, v = (
            part.reshape(batch, length, HEADS, units // HEADS) for part in jnp.split(mixed, 3, axis=-1)
        )
        seen = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + _dense(layer["out"], seen.reshape(batch, length, units))
        hidden = jax.nn.gelu(_dense(layer["wide"], _norm(library, layer["second_norm"], x)))
        x = x + _dense(layer["back"], hidden)
    return _norm(library, p["norm"], x) @ p["words"].T


def _t_transformer(t, p, tokens):
    functional = t.nn.functional

    def norm(p, x):
        return functional.layer_norm(x, (UNITS,), p["gain"], p["bias"])

    x = p["words"][tokens] + p["places"]
    batch, length, units = x.shape
    for layer in p["layers"]:
        mixed = _dense(layer["qkv"], norm(layer["norm"], x))
        q, k, v = (
            part.view(batch, length, HEADS, units // HEADS).transpose(1, 2)
            for part in mixed.split(units, dim=-1)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + _dense(layer["out"], seen.transpose(1, 2).reshape(batch, length, units))
        hidden = _dense(layer["wide"], norm(layer["second_norm"], x))
        x = x + _dense(layer["back"], functional.gelu(hidden, approximate="tanh"))
    return norm(p["norm"], x) @ p["words"].T


# What is done with them


@dataclasses.dataclass(frozen=True)
class Model:
    """A network: `forward(library, parameters, inputs)` gives the logits, `of_torch(t, …)` PyTorch's,
    `of_numpy(parameters, inputs)` NumPy's."""

    name: str
    parameters: Any
    inputs: np.ndarray
    labels: np.ndarray
    forward: Callable
    of_torch: Callable
    of_numpy: Callable | None = None

    def first(self) -> np.ndarray:
        """A batch of one example."""
        return self.inputs[:1]


MODELS = [
    Model("MLP", _mlp_parameters(), _random.random((IMAGES, 784), np.float32), _labels(IMAGES), _mlp, _t_mlp,
          _np_mlp),
    Model("CNN", _cnn_parameters(), _random.random((32, 28, 28, 1), np.float32), _labels(32), _cnn, _t_cnn),
    Model("transformer", _transformer_parameters(), _labels(SENTENCES, LENGTH, count=WORDS),
          _labels(SENTENCES, LENGTH, count=WORDS), _transformer, _t_transformer),
]  # fmt: skip


def _forward(model, inputs):
    def prepare(library):
        p, x = library.jax.device_put((model.parameters, inputs))
        run = library.jax.jit(lambda p, x: model.forward(library, p, x))
        return lambda: library.jax.block_until_ready(run(p, x))

    return prepare


def _other_forwards(model, inputs):
    def of_torch():
        t = torch()
        p, x = _map(tensor, model.parameters), tensor(inputs)
        return lambda: model.of_torch(t, p, x)

    def of_numpy():
        return lambda: model.of_numpy(model.parameters, inputs)

    return {"torch": of_torch} | ({"numpy": of_numpy} if model.of_numpy else {})


def _step(library, model):
    """Of Adam: the function of parameters, moments, count, inputs and labels."""
    jax, jnp = library.jax, library.jnp

    def loss(p, x, labels):
        logarithms = jax.nn.log_softmax(model.forward(library, p, x), axis=-1)
        return -jnp.mean(jnp.take_along_axis(logarithms, labels[..., None], axis=-1))

    def step(p, first, second, count, x, labels):
        value, gradients = jax.value_and_grad(loss)(p, x, labels)
        count = count + 1
        first = jax.tree.map(lambda m, g: DECAY * m + (1 - DECAY) * g, first, gradients)
        second = jax.tree.map(
            lambda v, g: SECOND_DECAY * v + (1 - SECOND_DECAY) * g * g, second, gradients
        )
        rate, scale = RATE / (1 - DECAY**count), 1 / (1 - SECOND_DECAY**count)
        p = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v * scale) + SMALL), p, first, second)
        return p, first, second, count, value

    return step


def _training(model):
    def prepare(library):
        jax = library.jax
        zeros = _map(np.zeros_like, model.parameters)
        state = list(jax.device_put((model.parameters, zeros, zeros, np.float32(0))))
        batch = jax.device_put((model.inputs, model.labels))
        step = jax.jit(_step(library, model))

        def call():
            *state[:], value = jax.block_until_ready(step(*state, *batch))
            return value

        return call

    return prepare


def _t_training(model):
    def start():
        t = torch()
        leaves = []

        def parameter(array):
            leaves.append(tensor(array).requires_grad_())
            return leaves[-1]

        p = _map(parameter, model.parameters)
        x, labels = tensor(model.inputs), tensor(model.labels).long().flatten()
        adam = t.optim.Adam(leaves, lr=RATE, betas=(DECAY, SECOND_DECAY), eps=SMALL)

        def call():
            with t.enable_grad():
                adam.zero_grad()
                logits = model.of_torch(t, p, x)
                loss = t.nn.functional.cross_entropy(logits.flatten(0, -2), labels)
                loss.backward()
                adam.step()
            return loss.detach()

        return call

    return start


def _rows(model):
    goal = 2.5 if model.name == "transformer" else 1.0
    yield timed(
        f"{model.name}, forward", "ms", None, _forward(model, model.inputs),
        others=_other_forwards(model, model.inputs),
    )  # fmt: skip
    yield timed(
        f"{model.name}, forward, batch 1", "ms", None, _forward(model, model.first()),
        others=_other_forwards(model, model.first()),
    )  # fmt: skip
    yield timed(
        f"{model.name}, a training step", "ms", None, _training(model), goal=goal,
        others={"torch": _t_training(model)},
    )  # fmt: skip
    yield timed_once(
        f"first call of the {model.name} forward", "ms", None, _forward(model, model.inputs), rounds=2
    )
    yield timed_once(
        f"first call of the {model.name}'s training step", "ms", None, _training(model), rounds=2
    )


ROWS = [row for model in MODELS for row in _rows(model)]
