"""`ferrax.experimental.rnn`: layers of long short-term memory, with their weights packed as cuDNN packs them.

Input: sequences `(batch, time, features)` of lengths that may differ, states `(layers * directions, batch, hidden)`
and one vector of weights. Output: the states of the last layer at all times, and the last states of all layers. A
bidirectional layer counts as two, forwards then backwards.

The cell is Hochreiter's and Schmidhuber's (Neural Computation 9(8), 1997) with the forget gate of Gers, Schmidhuber
and Cummins (Neural Computation 12(10), 2000). What a layer does to its input is one product for all times; a scan does
the rest, whose steps leave the state of a sequence alone beyond its length, so that the backward direction needs no
reversed copies. Cost of a layer: `8 * batch * time * hidden * (features + hidden)` flops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.nn.functions import sigmoid
from ferrax._src.numpy import api as jnp
from ferrax._src.random import samplers
from ferrax._src.transforms.jit import jit

__all__ = [
    "get_num_params_in_lstm", "init_lstm_weight", "lstm", "lstm_ref", "swap_lstm_gates", "unpack_lstm_weights",
]  # fmt: skip

_GATES = 4  # input, forget, cell, output


def _shapes(input_size, hidden_size, num_layers, bidirectional) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """The parts of the packed vector in order: which, of which layer, and its shape. Matrices come before vectors.

    Errors: ValueError for sizes that are not positive.
    """
    if min(input_size, hidden_size, num_layers) < 1:
        raise ValueError(
            f"lstm: sizes must be positive, got input_size={input_size}, hidden_size={hidden_size}, "
            f"num_layers={num_layers}"
        )
    directions = 2 if bidirectional else 1
    rows = _GATES * hidden_size
    for layer in range(num_layers * directions):
        yield "ih", layer, (rows, input_size if layer < directions else directions * hidden_size)
        yield "hh", layer, (rows, hidden_size)
    for layer in range(num_layers * directions):
        yield "b_ih", layer, (rows,)
        yield "b_hh", layer, (rows,)


def get_num_params_in_lstm(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> int:
    """How many weights there are.

    Args:
        input_size: features of an input; hidden_size: of a state.
        num_layers: how many layers, each of two directions if `bidirectional`.

    Errors: ValueError for sizes that are not positive.

    >>> from ferrax.experimental import rnn
    >>> rnn.get_num_params_in_lstm(3, 2, num_layers=1, bidirectional=False)
    56
    """
    return sum(math.prod(shape) for _, _, shape in _shapes(input_size, hidden_size, num_layers, bidirectional))


def init_lstm_weight(rng: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Array:
    """Weights, float32, that are uniform between `-1/sqrt(hidden_size)` and that.

    Args: rng: a key; others as for `get_num_params_in_lstm`.

    >>> from ferrax.experimental import rnn
    >>> rnn.init_lstm_weight(ferrax.random.key(0), 3, 2, num_layers=1, bidirectional=False).shape
    (56,)
    """
    count = get_num_params_in_lstm(input_size, hidden_size, num_layers, bidirectional)
    bound = np.sqrt(1.0 / hidden_size)
    return samplers.uniform(rng, (count,), jnp.float32, -bound, bound)


def _parts(weights, sizes) -> Iterator[tuple[str, int, Array]]:
    """The parts of the packed vector, in order. Errors: ValueError for another number of weights."""
    count = get_num_params_in_lstm(*sizes)
    if weights.shape != (count,):
        raise ValueError(f"lstm: expected {count} weights in one vector, got an array of shape {weights.shape}")
    start = 0
    for kind, layer, shape in _shapes(*sizes):
        end = start + math.prod(shape)
        yield kind, layer, weights[start:end].reshape(shape)
        start = end


def swap_lstm_gates(
    weights: ArrayLike, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> Array:
    """The weights with those of the third and the fourth gate, cell and output, exchanged in each part. MIOpen's order
    is so got of cuDNN's.

    Args: weights: a vector; others as for `get_num_params_in_lstm`. Errors: ValueError for another number of weights.

    >>> from ferrax.experimental import rnn
    >>> rnn.swap_lstm_gates(jnp.arange(16.0), 1, 1, num_layers=1, bidirectional=False)[:4]
    Array([0., 1., 3., 2.], dtype=float32)
    """
    sizes = input_size, hidden_size, num_layers, bidirectional
    order = np.array([0, 1, 3, 2])
    parts = [part for _, _, part in _parts(jnp.asarray(weights), sizes)]
    return jnp.concatenate([part.reshape(_GATES, -1)[order].ravel() for part in parts])


def unpack_lstm_weights(
    weights: ArrayLike, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> tuple[dict[int, Array], dict[int, Array], dict[int, Array], dict[int, Array]]:
    """The matrices for inputs and for states, and the two vectors that are added: dicts by layer.

    Args: weights: a vector; others as for `get_num_params_in_lstm`.

    Returns: `W_ih`, `W_hh`, `b_ih`, `b_hh`, each with the rows of the gates input, forget, cell and output. A layer of
    two directions is the numbers `2 * layer` and `2 * layer + 1`. Errors: ValueError for another number of weights.

    >>> from ferrax.experimental import rnn
    >>> w_ih, w_hh, b_ih, b_hh = rnn.unpack_lstm_weights(jnp.arange(16.0), 1, 1, 1, False)
    >>> w_hh[0].ravel()
    Array([4., 5., 6., 7.], dtype=float32)
    """
    found: dict[str, dict[int, Array]] = {"ih": {}, "hh": {}, "b_ih": {}, "b_hh": {}}
    for kind, layer, part in _parts(jnp.asarray(weights), (input_size, hidden_size, num_layers, bidirectional)):
        found[kind][layer] = part
    return found["ih"], found["hh"], found["b_ih"], found["b_hh"]


def _layer(x, h, c, w_ih, w_hh, bias, valid, backwards, precision):
    """The states of one direction of one layer: of all times, `(time, batch, hidden)`, zero where not `valid`, and the
    last. `x` is `(time, batch, features)`."""
    driven = jnp.matmul(x, w_ih.T, precision=precision) + bias[None, None, :]

    def step(state, now):
        h, c = state
        given, there = now
        gates = given + jnp.matmul(h, w_hh.T, precision=precision)
        entry, keep, cell, out = jnp.split(gates, _GATES, axis=-1)
        new_c = sigmoid(keep) * c + sigmoid(entry) * jnp.tanh(cell)
        new_h = sigmoid(out) * jnp.tanh(new_c)
        return (jnp.where(there, new_h, h), jnp.where(there, new_c, c)), jnp.where(there, new_h, 0)

    return scan(step, (h, c), (driven, valid), reverse=backwards)


def _run(x, h_0, c_0, w_ih, w_hh, b_ih, b_hh, seq_lengths, sizes, precision):
    input_size, hidden_size, num_layers, bidirectional = sizes
    directions = 2 if bidirectional else 1
    states = (num_layers * directions, x.shape[0], hidden_size)
    if x.ndim != 3 or x.shape[2] != input_size or h_0.shape != states or c_0.shape != states:
        raise ValueError(
            f"lstm: expected x of shape (batch, time, {input_size}) and states of shape ({states[0]}, batch, "
            f"{hidden_size}), got {x.shape}, {h_0.shape} and {c_0.shape}"
        )
    if seq_lengths.shape != x.shape[:1]:
        raise ValueError(f"lstm: expected {x.shape[0]} seq_lengths, got shape {seq_lengths.shape}")
    times = jnp.arange(x.shape[1], dtype=jnp.int32)
    valid = (times[:, None] < seq_lengths[None, :])[..., None]
    y = x.swapaxes(0, 1)
    last_h, last_c = [], []
    for layer in range(num_layers):
        outs = []
        for number in range(layer * directions, (layer + 1) * directions):
            bias = b_ih[number] + b_hh[number]
            backwards = number % directions == 1
            args = y, h_0[number], c_0[number], w_ih[number], w_hh[number], bias
            (h, c), out = _layer(*args, valid, backwards, precision)
            last_h.append(h)
            last_c.append(c)
            outs.append(out)
        y = jnp.concatenate(outs, axis=-1)
    return y.swapaxes(0, 1), jnp.stack(last_h), jnp.stack(last_c)


def _check(seq_lengths, dropout) -> None:
    if seq_lengths.dtype != np.int32:
        raise NotImplementedError(f"lstm: seq_lengths must be int32, got {seq_lengths.dtype}")
    if dropout:
        raise NotImplementedError(
            f"lstm: dropout={dropout} is not supported; call one layer at a time, and drop between them with "
            "ferrax.random.bernoulli"
        )


_jitted = jit(_run, static_argnums=(8, 9))


def lstm_ref(
    x: Array, h_0: Array, c_0: Array, W_ih: dict[int, Array], W_hh: dict[int, Array],  # noqa: N803
    b_ih: dict[int, Array], b_hh: dict[int, Array], seq_lengths: Array, input_size: int, hidden_size: int,
    num_layers: int, dropout: float, bidirectional: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """As `lstm`, of weights that are unpacked.

    Args:
        x, h_0, c_0, seq_lengths, input_size, hidden_size, num_layers, dropout, bidirectional: as for `lstm`.
        W_ih, W_hh, b_ih, b_hh: what `unpack_lstm_weights` returns.

    >>> from ferrax.experimental import rnn
    >>> weights = rnn.unpack_lstm_weights(jnp.ones(16), 1, 1, 1, False)
    >>> zero, lengths = jnp.zeros((1, 1, 1)), jnp.array([2], jnp.int32)
    >>> rnn.lstm_ref(jnp.ones((1, 2, 1)), zero, zero, *weights, lengths, 1, 1, 1, 0.0, False)[0].shape
    (1, 2, 1)
    """
    _check(seq_lengths, dropout)
    unpacked = W_ih, W_hh, b_ih, b_hh
    sizes = input_size, hidden_size, num_layers, bool(bidirectional)
    return _jitted(x, h_0, c_0, *unpacked, seq_lengths, sizes, None)


def lstm(
    x: Array, h_0: Array, c_0: Array, weights: Array, seq_lengths: Array, input_size: int, hidden_size: int,
    num_layers: int, dropout: float, bidirectional: bool, precision: Any = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Layers of long short-term memory.

    Args:
        x: inputs, `(batch, time, input_size)`.
        h_0, c_0: the first states and cells, `(layers, batch, hidden_size)`, where a layer of two directions is two.
        weights: a vector, see `unpack_lstm_weights`.
        seq_lengths: `(batch,)`, int32: how many inputs of each sequence count.
        input_size, hidden_size, num_layers, bidirectional: as for `get_num_params_in_lstm`.
        dropout: zero.
        precision: that of products, as for `ferrax.numpy.matmul`.

    Returns: the states of the last layer, `(batch, time, directions * hidden_size)`, zero beyond the end of a sequence;
    the states and cells of all layers at the end of it, of shape `h_0.shape`, which are the first ones where there are
    no inputs. All floats; derivatives are those of the steps.

    Errors: ValueError for other shapes; NotImplementedError for dropout, and lengths of another dtype.

    >>> from ferrax.experimental import rnn
    >>> weights = rnn.init_lstm_weight(ferrax.random.key(0), 3, 2, num_layers=1, bidirectional=True)
    >>> zero, lengths = jnp.zeros((2, 1, 2)), jnp.array([4], jnp.int32)
    >>> y, h, c = rnn.lstm(jnp.ones((1, 5, 3)), zero, zero, weights, lengths, 3, 2, 1, 0.0, True)
    >>> y.shape, y[0, 4]
    ((1, 5, 4), Array([0., 0., 0., 0.], dtype=float32))
    """
    _check(seq_lengths, dropout)
    sizes = input_size, hidden_size, num_layers, bool(bidirectional)
    unpacked = unpack_lstm_weights(weights, *sizes)
    return _jitted(x, h_0, c_0, *unpacked, seq_lengths, sizes, precision)
