"""Layers of neural networks as pairs of functions, and how layers are put together.

A layer is `(init, apply)`: `init(key, shape)` gives the shape of the outputs and a tree of parameters for
inputs of this shape; `apply(params, inputs, **kwargs)` gives the outputs. `rng=key` among the keyword
arguments is for layers that are random. The batch's size in a shape may be -1, for any: initial
parameters do not depend on it, and the shape of the outputs has it as well.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.composed.reduce import reduce_window
from ferrax._src.core import Array
from ferrax._src.lax import api as lax
from ferrax._src.nn import functions as nn
from ferrax._src.nn.initializers import glorot_normal, normal, ones, zeros
from ferrax._src.numpy import api as jnp
from ferrax._src.random import prng, samplers
from ferrax._src.tracing import staging

Init = Callable[..., tuple[Any, Any]]
Apply = Callable[..., Any]
Layer = tuple[Init, Apply]
Initializer = Callable[..., Array]
Padding = str | Sequence[tuple[int, int]]

_GLOROT, _NORMAL, _SMALL = glorot_normal(), normal(), normal(1e-6)


def _shape_after(function, shape, batch_in, batch_out, *others) -> tuple[int, ...]:
    """The shape of `function(x, *others)` for x of this shape, whose batch, at `batch_in`, may be -1."""
    known = list(shape)
    if known[batch_in] == -1:
        known[batch_in] = 1
    types = [core.ShapeDtypeStruct(tuple(sizes), np.float32) for sizes in (known, *others)]
    result = list(staging.eval_shape(function, *types).shape)
    if shape[batch_in] == -1:
        result[batch_out] = -1
    return tuple(result)


def _affine(shapes, W_init, b_init, product) -> Layer:
    """A layer of `product(inputs, W) + b`; `shapes` gives those of outputs, W and b from that of inputs."""

    def init(rng, input_shape):
        output_shape, *own_shapes = shapes(input_shape)
        made = zip((W_init, b_init), prng.split(rng), own_shapes)
        return output_shape, tuple(initializer(key, shape) for initializer, key, shape in made)

    def apply(params, inputs, **kwargs):
        weights, bias = params
        return product(inputs, weights) + bias

    return init, apply


def Dense(out_dim: int, W_init: Initializer = _GLOROT, b_init: Initializer = _NORMAL) -> Layer:
    """A layer that multiplies the last axis by a matrix and adds a vector.

    Args:
        out_dim: the size of the last axis of outputs.
        W_init, b_init: initializers of the matrix `(in_dim, out_dim)` and of the vector.

    >>> init, apply = stax.Dense(3)
    >>> shape, (W, b) = init(ferrax.random.key(0), (-1, 2))
    >>> shape, W.shape, apply((W, b), jnp.ones((5, 2))).shape
    ((-1, 3), (2, 3), (5, 3))
    """

    def shapes(input_shape):
        *batch, in_dim = input_shape
        return (*batch, out_dim), (in_dim, out_dim), (out_dim,)

    return _affine(shapes, W_init, b_init, jnp.dot)


def _convolution(dimension_numbers, out_chan, filter_shape, W_init, b_init, convolve) -> Layer:
    """A layer of `convolve(inputs, kernel)` and a bias for each channel."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    W_init = W_init or glorot_normal(rhs_spec.index("I"), rhs_spec.index("O"))

    def shapes(input_shape):
        extents = iter(filter_shape)
        sizes = {"O": out_chan, "I": input_shape[lhs_spec.index("C")]}
        kernel_shape = tuple(sizes[c] if c in sizes else next(extents) for c in rhs_spec)
        output_shape = _shape_after(
            convolve, input_shape, lhs_spec.index("N"), out_spec.index("N"), kernel_shape
        )
        bias_shape = tuple(out_chan if c == "C" else 1 for c in out_spec)
        return output_shape, kernel_shape, bias_shape

    return _affine(shapes, W_init, b_init, convolve)


def GeneralConv(
    dimension_numbers: tuple[str, str, str], out_chan: int, filter_shape: Sequence[int],
    strides: Sequence[int] | None = None, padding: Padding = "VALID",
    W_init: Initializer | None = None, b_init: Initializer = _SMALL,
) -> Layer:  # fmt: skip
    """A convolution with a bias for each channel.

    Args:
        dimension_numbers: the axes of inputs, kernel and outputs, as `("NHWC", "HWIO", "NHWC")`.
        out_chan: channels of the outputs.
        filter_shape: extents of the kernel along the spatial axes, in the kernel's order.
        strides, padding: as `lax.conv_general_dilated` has them; strides are 1 by default.
        W_init, b_init: initializers of kernel and biases; by default `glorot_normal` and `normal(1e-6)`.

    >>> init, apply = stax.Conv(4, (3, 3), padding="SAME")
    >>> shape, params = init(ferrax.random.key(0), (-1, 8, 8, 1))
    >>> shape, apply(params, jnp.ones((2, 8, 8, 1))).shape
    ((-1, 8, 8, 4), (2, 8, 8, 4))
    """
    steps = strides or (1,) * len(filter_shape)

    def convolve(x, kernel):
        return lax.conv_general_dilated(
            x, kernel, steps, padding, dimension_numbers=dimension_numbers
        )

    return _convolution(dimension_numbers, out_chan, filter_shape, W_init, b_init, convolve)


def Conv(
    out_chan: int, filter_shape: Sequence[int], strides: Sequence[int] | None = None,
    padding: Padding = "VALID", W_init: Initializer | None = None,
    b_init: Initializer = _SMALL,
) -> Layer:  # fmt: skip
    """`GeneralConv` for the axes `("NHWC", "HWIO", "NHWC")`.

    Args: out_chan, filter_shape, strides, padding, W_init, b_init: as for `GeneralConv`.

    >>> init, apply = stax.Conv(4, (3, 3), padding="SAME")
    >>> init(ferrax.random.key(0), (-1, 8, 8, 1))[0]
    (-1, 8, 8, 4)
    """
    return GeneralConv(
        ("NHWC", "HWIO", "NHWC"), out_chan, filter_shape, strides, padding, W_init, b_init
    )


def GeneralConvTranspose(
    dimension_numbers: tuple[str, str, str], out_chan: int, filter_shape: Sequence[int],
    strides: Sequence[int] | None = None, padding: Padding = "VALID",
    W_init: Initializer | None = None, b_init: Initializer = _SMALL,
) -> Layer:  # fmt: skip
    """A transposed convolution with a bias for each channel.

    Args: dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init: as for
    `GeneralConv`, with padding and strides as `lax.conv_transpose` has them.

    >>> init, apply = stax.ConvTranspose(4, (3, 3), strides=(2, 2), padding="SAME")
    >>> init(ferrax.random.key(0), (-1, 8, 8, 1))[0]
    (-1, 16, 16, 4)
    """
    steps = strides or (1,) * len(filter_shape)

    def convolve(x, kernel):
        return lax.conv_transpose(x, kernel, steps, padding, dimension_numbers=dimension_numbers)

    return _convolution(dimension_numbers, out_chan, filter_shape, W_init, b_init, convolve)


def Conv1DTranspose(
    out_chan: int, filter_shape: Sequence[int], strides: Sequence[int] | None = None,
    padding: Padding = "VALID", W_init: Initializer | None = None,
    b_init: Initializer = _SMALL,
) -> Layer:  # fmt: skip
    """`GeneralConvTranspose` for the axes `("NHC", "HIO", "NHC")`.

    Args: out_chan, filter_shape, strides, padding, W_init, b_init: as for `GeneralConvTranspose`.

    >>> init, apply = stax.Conv1DTranspose(4, (3,), strides=(2,), padding="SAME")
    >>> init(ferrax.random.key(0), (-1, 8, 1))[0]
    (-1, 16, 4)
    """
    return GeneralConvTranspose(
        ("NHC", "HIO", "NHC"), out_chan, filter_shape, strides, padding, W_init, b_init
    )


def ConvTranspose(
    out_chan: int, filter_shape: Sequence[int], strides: Sequence[int] | None = None,
    padding: Padding = "VALID", W_init: Initializer | None = None,
    b_init: Initializer = _SMALL,
) -> Layer:  # fmt: skip
    """`GeneralConvTranspose` for the axes `("NHWC", "HWIO", "NHWC")`.

    Args: out_chan, filter_shape, strides, padding, W_init, b_init: as for `GeneralConvTranspose`.

    >>> init, apply = stax.ConvTranspose(4, (3, 3), strides=(2, 2), padding="SAME")
    >>> init(ferrax.random.key(0), (-1, 8, 8, 1))[0]
    (-1, 16, 16, 4)
    """
    return GeneralConvTranspose(
        ("NHWC", "HWIO", "NHWC"), out_chan, filter_shape, strides, padding, W_init, b_init
    )


def BatchNorm(
    axis: int | Sequence[int] = (0, 1, 2), epsilon: float = 1e-5, center: bool = True,
    scale: bool = True, beta_init: Initializer = zeros, gamma_init: Initializer = ones,
) -> Layer:  # fmt: skip
    """A layer that gives its inputs mean 0 and variance 1, then a learned mean and deviation.

    Args:
        axis: the axes over which mean and variance are taken.
        epsilon: added to the variance.
        center, scale: whether there is a learned mean (beta), and a learned deviation (gamma).
        beta_init, gamma_init: their initializers.

    Ioffe and Szegedy, "Batch normalization" (ICML 2015), with the statistics of the batch at hand.

    >>> init, apply = stax.BatchNorm(axis=0)
    >>> shape, params = init(ferrax.random.key(0), (-1, 2))
    >>> apply(params, jnp.array([[0.0, 1.0], [2.0, 3.0]])).round(2)
    Array([[-1., -1.],
           [ 1.,  1.]], dtype=float32)
    """
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    learned = [(center, beta_init), (scale, gamma_init)]

    def init(rng, input_shape):
        kept = [size for place, size in enumerate(input_shape) if place not in axes]
        params = (
            initializer(key, tuple(kept)) if wanted else ()
            for key, (wanted, initializer) in zip(prng.split(rng), learned)
        )
        return input_shape, tuple(params)

    def apply(params, x, **kwargs):
        result = nn.standardize(x, axes, epsilon=epsilon)
        reduced = [place for place in range(result.ndim) if place in axes]
        shift, factor = params
        if scale:
            result = result * lax.expand_dims(factor, reduced)
        if center:
            result = result + lax.expand_dims(shift, reduced)
        return result

    return init, apply


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """A layer that applies a function, which keeps shapes, and has no parameters.

    Args: fun: called as `fun(inputs, **fun_kwargs)`.

    `Tanh`, `Relu`, `Exp`, `LogSoftmax`, `Softmax`, `Softplus`, `Sigmoid`, `Elu`, `LeakyRelu`, `Selu`
    and `Gelu` are such layers.

    >>> init, apply = stax.elementwise(ferrax.nn.leaky_relu, negative_slope=0.5)
    >>> apply((), jnp.array([-1.0, 3.0]))
    Array([-0.5,  3. ], dtype=float32)
    """
    return (
        lambda rng, input_shape: (input_shape, ()),
        lambda params, inputs, **kwargs: fun(inputs, **fun_kwargs),
    )


Tanh = elementwise(jnp.tanh)
Relu = elementwise(nn.relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(nn.log_softmax, axis=-1)
Softmax = elementwise(nn.softmax, axis=-1)
Softplus = elementwise(nn.softplus)
Sigmoid = elementwise(nn.sigmoid)
Elu = elementwise(nn.elu)
LeakyRelu = elementwise(nn.leaky_relu)
Selu = elementwise(nn.selu)
Gelu = elementwise(nn.gelu)


def _pooling(window_shape, strides, padding, spec, reduce) -> Layer:
    """A layer of `reduce(inputs, other axes, window, strides, padding)` over windows of spatial axes."""
    rank = len(window_shape) + 2
    batch, channel = (0, rank - 1) if spec is None else (spec.index("N"), spec.index("C"))
    window, steps = list(window_shape), list(strides or (1,) * len(window_shape))
    for axis in sorted((batch, channel)):
        window.insert(axis, 1)
        steps.insert(axis, 1)

    def pool(x):
        return reduce(x, (batch, channel), tuple(window), tuple(steps), padding)

    return (
        lambda rng, input_shape: (_shape_after(pool, input_shape, batch, batch), ()),
        lambda params, inputs, **kwargs: pool(inputs),
    )


def _window_sum(x, others, window, steps, padding):
    return reduce_window(x, 0.0, lax.add, window, steps, padding)


def _window_mean(x, others, window, steps, padding):
    spatial = tuple(1 if axis in others else size for axis, size in enumerate(x.shape))
    counts = _window_sum(jnp.ones(spatial, x.dtype), others, window, steps, padding)
    return _window_sum(x, others, window, steps, padding) / counts


def MaxPool(
    window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = "VALID",
    spec: str | None = None,
) -> Layer:  # fmt: skip
    """A layer that takes the largest element of each window.

    Args:
        window_shape: extents along the spatial axes.
        strides: steps between windows, 1 by default.
        padding: "VALID", "SAME", or pairs for all axes, as `lax.reduce_window` has them.
        spec: the axes, as "NCHW"; by default batch first and channels last.

    >>> init, apply = stax.MaxPool((2,), strides=(2,))
    >>> apply((), jnp.array([1.0, 5.0, 2.0, 3.0]).reshape(1, 4, 1)).ravel()
    Array([5., 3.], dtype=float32)
    """

    def largest(x, others, window, steps, padding):
        return reduce_window(x, -np.inf, lax.max, window, steps, padding)

    return _pooling(window_shape, strides, padding, spec, largest)


def SumPool(
    window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = "VALID",
    spec: str | None = None,
) -> Layer:  # fmt: skip
    """A layer that sums the elements of each window.

    Args: window_shape, strides, padding, spec: as for `MaxPool`.

    >>> init, apply = stax.SumPool((2,), strides=(2,))
    >>> apply((), jnp.array([1.0, 5.0, 2.0, 3.0]).reshape(1, 4, 1)).ravel()
    Array([6., 5.], dtype=float32)
    """
    return _pooling(window_shape, strides, padding, spec, _window_sum)


def AvgPool(
    window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = "VALID",
    spec: str | None = None,
) -> Layer:  # fmt: skip
    """A layer that takes the mean of each window, of the elements that are not padding.

    Args: window_shape, strides, padding, spec: as for `MaxPool`.

    >>> init, apply = stax.AvgPool((2,), strides=(2,))
    >>> apply((), jnp.array([1.0, 5.0, 2.0, 3.0]).reshape(1, 4, 1)).ravel()
    Array([3. , 2.5], dtype=float32)
    """
    return _pooling(window_shape, strides, padding, spec, _window_mean)


# All axes but the first as one.
Flatten: Layer = (
    lambda rng, input_shape: ((input_shape[0], math.prod(input_shape[1:])), ()),
    lambda params, inputs, **kwargs: jnp.reshape(inputs, (inputs.shape[0], -1)),
)

Identity: Layer = (
    lambda rng, input_shape: (input_shape, ()),
    lambda params, inputs, **kwargs: inputs,
)


def FanOut(num: int) -> Layer:
    """A layer that gives its inputs `num` times, as a list: for `parallel`.

    >>> init, apply = stax.FanOut(2)
    >>> apply((), 3.0)
    [3.0, 3.0]
    """
    return (
        lambda rng, input_shape: ([input_shape] * num, ()),
        lambda params, inputs, **kwargs: [inputs] * num,
    )


# The sum of several inputs.
FanInSum: Layer = (
    lambda rng, input_shape: (input_shape[0], ()),
    lambda params, inputs, **kwargs: sum(inputs),
)


def FanInConcat(axis: int = -1) -> Layer:
    """A layer that joins several inputs along an axis.

    >>> init, apply = stax.FanInConcat()
    >>> init(ferrax.random.key(0), [(-1, 2), (-1, 3)])[0], apply((), [jnp.ones((1, 2)), jnp.ones((1, 3))]).shape
    ((-1, 5), (1, 5))
    """

    def init(rng, input_shape):
        shape = list(input_shape[0])
        shape[axis] = sum(other[axis] for other in input_shape)
        return tuple(shape), ()

    return init, lambda params, inputs, **kwargs: jnp.concatenate(inputs, axis)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """A layer that keeps each element with probability `rate`, divided by it, and sets others to 0.

    Args: rate: probability that an element is kept; mode: "train", or anything else to keep all.

    `apply` raises ValueError without `rng=`.

    Srivastava et al., "Dropout" (JMLR 15, 2014).

    >>> init, apply = stax.Dropout(0.5)
    >>> kept = apply((), jnp.ones(1000), rng=ferrax.random.key(0))
    >>> sorted(set(kept.tolist()))
    [0.0, 2.0]
    """

    def apply(params, inputs, **kwargs):
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError(
                "Dropout: apply needs a key, as apply(params, inputs, rng=ferrax.random.key(0))"
            )
        if mode != "train":
            return inputs
        keep = samplers.bernoulli(rng, rate, inputs.shape)
        return jnp.where(keep, inputs / rate, 0)

    return lambda rng, input_shape: (input_shape, ()), apply


def _keys(kwargs, number):
    """A key for each of so many layers, taken out of the keyword arguments; None without one."""
    rng = kwargs.pop("rng", None)
    return [None] * number if rng is None else prng.split(rng, number)


def _successive_keys(rng):
    """Keys, each split off from what the one before it left."""
    while True:
        rng, own = prng.split(rng)
        yield own


def serial(*layers: Layer) -> Layer:
    """Layers one after the other, as one layer.

    Args: layers: pairs `(init, apply)`.
    Returns: a layer whose parameters are a list, with those of each layer.

    >>> init, apply = stax.serial(stax.Dense(4), stax.Relu, stax.Dense(2))
    >>> shape, params = init(ferrax.random.key(0), (-1, 3))
    >>> shape, apply(params, jnp.ones((5, 3))).shape
    ((-1, 2), (5, 2))
    """

    def init(rng, input_shape):
        steps: list[tuple[Any, Any]] = [(input_shape, ())]
        for layer, key in zip(layers, _successive_keys(rng)):
            steps.append(layer[0](key, steps[-1][0]))
        return steps[-1][0], [own for _, own in steps[1:]]

    def apply(params, inputs, **kwargs):
        keys = _keys(kwargs, len(layers))
        return functools.reduce(
            lambda x, step: step[0][1](step[1], x, rng=step[2], **kwargs),
            zip(layers, params, keys),
            inputs,
        )

    return init, apply


def parallel(*layers: Layer) -> Layer:
    """Layers side by side, as one layer: each for its own of a list of inputs.

    Args: layers: pairs `(init, apply)`.
    Returns: a layer from and to sequences, of shapes and of arrays.

    >>> init, apply = stax.parallel(stax.Dense(4), stax.Identity)
    >>> shapes, params = init(ferrax.random.key(0), [(-1, 3), (-1, 2)])
    >>> shapes
    ((-1, 4), (-1, 2))
    """

    def init(rng, input_shape):
        rngs = prng.split(rng, len(layers))
        made = [layer[0](own, shape) for layer, own, shape in zip(layers, rngs, input_shape)]
        return tuple(shape for shape, _ in made), tuple(params for _, params in made)

    def apply(params, inputs, **kwargs):
        rngs = _keys(kwargs, len(layers))
        return [
            layer[1](param, x, rng=rng, **kwargs)
            for layer, param, x, rng in zip(layers, params, inputs, rngs)
        ]

    return init, apply


def shape_dependent(make_layer: Callable[..., Layer]) -> Layer:
    """A layer that is made when the shape of its inputs is known.

    Args: make_layer: a function of a shape that returns a layer.

    >>> init, apply = stax.shape_dependent(lambda shape: stax.Dense(2 * shape[-1]))
    >>> init(ferrax.random.key(0), (-1, 3))[0]
    (-1, 6)
    """

    def init(rng, input_shape):
        begin, _ = make_layer(input_shape)
        return begin(rng, input_shape)

    def apply(params, inputs, **kwargs):
        _, use = make_layer(inputs.shape)
        return use(params, inputs, **kwargs)

    return init, apply
