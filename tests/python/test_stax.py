"""Layers of `example_libraries.stax` beside the reference: shapes, parameters, outputs and derivatives."""

import numpy as np
import pytest
from oracle import compiled, module
from roundings import same_within_roundings

import ferrax
from ferrax.example_libraries import stax

IMAGE, BATCH = (2, 8, 7, 3), (3, 5)


def inputs(S, shape):
    return S.jnp.asarray(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def residual(s):
    return s.serial(s.FanOut(2), s.parallel(s.Dense(5), s.Identity), s.FanInSum, s.Relu)


LAYERS = {
    "dense": (lambda s: s.Dense(4), BATCH),
    "convolution": (lambda s: s.Conv(4, (3, 2), strides=(2, 1), padding="SAME"), IMAGE),
    "dimensions": (lambda s: s.GeneralConv(("NCHW", "OIHW", "NHWC"), 4, (3, 2)), (2, 3, 8, 7)),
    "initializers": (lambda s: s.Conv(2, (2, 2), W_init=s.randn(0.5), b_init=s.ones), IMAGE),
    "transposed": (lambda s: s.ConvTranspose(4, (3, 3), strides=(2, 2), padding="SAME"), IMAGE),
    "transposed line": (lambda s: s.Conv1DTranspose(4, (3,), strides=(2,)), (2, 6, 3)),
    "batch norm": (lambda s: s.BatchNorm(), IMAGE),
    "batch norm of columns": (lambda s: s.BatchNorm(axis=0, center=False), BATCH),
    "max pool": (lambda s: s.MaxPool((2, 3), strides=(2, 2), padding="SAME"), IMAGE),
    "sum pool": (lambda s: s.SumPool((2, 3), spec="NCHW"), IMAGE),
    "mean pool": (lambda s: s.AvgPool((2, 2), padding="SAME"), IMAGE),
    "flatten": (lambda s: s.Flatten, IMAGE),
    "functions": (lambda s: s.serial(s.Tanh, s.Elu, s.Gelu, s.LogSoftmax), BATCH),
    "residual": (residual, BATCH),
    "joined": (lambda s: s.serial(s.FanOut(2), s.parallel(s.Tanh, s.Dense(2)), s.FanInConcat()), BATCH),
    "dropout": (lambda s: s.serial(s.Dense(4), s.Dropout(0.5)), BATCH),
    "kept": (lambda s: s.Dropout(0.5, mode="test"), BATCH),
    "by shape": (lambda s: s.shape_dependent(lambda shape: s.Dense(shape[-1] - 2)), BATCH),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
@same_within_roundings
def test_layers(S, name):
    layer, shape = LAYERS[name]
    init, apply = layer(module(S, "example_libraries.stax"))
    found = []

    def run(key, x):
        result, params = init(key, shape)
        found.append([int(size) for size in result])

        def loss(params, x):
            outputs = apply(params, x, rng=S.random.key(1))
            return S.jnp.sum(S.jnp.sin(outputs)), outputs

        slopes, outputs = S.jax.grad(loss, (0, 1), has_aux=True)(params, x)
        return params, outputs, slopes

    return compiled(S, run, S.random.key(0), inputs(S, shape)), found[0]


@pytest.mark.parametrize("name", ["dense", "convolution", "transposed", "max pool", "flatten"])
def test_any_size_of_batches(name):
    """The reference's pools make 0 of such a size."""
    layer, shape = LAYERS[name]
    init, _ = layer(stax)
    key = ferrax.random.key(0)
    assert init(key, (-1, *shape[1:]))[0] == (-1, *init(key, shape)[0][1:])


def test_means_of_windows_leave_padding_out():
    _, apply = stax.AvgPool((2, 2), padding="SAME")
    np.testing.assert_array_equal(apply((), np.ones((1, 3, 3, 1), np.float32)), 1)


def test_dropout_asks_for_a_key():
    with pytest.raises(ValueError, match="rng="):
        stax.Dropout(0.5)[1]((), ferrax.numpy.ones(3))
