"""`experimental.rnn` beside JAX's reference: values, states, derivatives, and what is refused."""

import jax
import numpy as np
import pytest
from jax.experimental import rnn as theirs

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental import rnn

BATCH, TIME = 3, 5
LENGTHS = np.array([5, 1, 3], np.int32)


def _case(inputs, hidden, layers, bidirectional):
    directions = 2 if bidirectional else 1
    draw = np.random.RandomState(inputs + 10 * hidden + 100 * layers)
    count = theirs.get_num_params_in_lstm(inputs, hidden, layers, bidirectional)
    shapes = (BATCH, TIME, inputs), *[(layers * directions, BATCH, hidden)] * 2, (count,)
    return [draw.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]


SIZES = [(1, 1, 1, False), (2, 3, 1, True), (3, 2, 3, False), (2, 4, 2, True)]


def _reference(x, h, c, weights, sizes):
    unpacked = theirs.unpack_lstm_weights(weights, *sizes)
    return theirs.lstm_ref(x, h, c, *unpacked, LENGTHS, *sizes[:3], 0.0, sizes[3])


@pytest.mark.parametrize("sizes", SIZES)
def test_values_and_derivatives(sizes):
    args = _case(*sizes)

    def ours(*args):
        return rnn.lstm(*args, LENGTHS, *sizes[:3], 0.0, sizes[3])

    wanted = _reference(*args, sizes)
    for got in ours(*args), ferrax.jit(ours)(*args):
        for one, other in zip(got, wanted):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-7)

    def loss(f):
        return lambda *args: sum((v * v).sum() for v in f(*args))

    got = ferrax.grad(loss(ours), argnums=(0, 1, 2, 3))(*args)
    wanted = jax.grad(loss(lambda *args: _reference(*args, sizes)), argnums=(0, 1, 2, 3))(*args)
    for one, other in zip(got, wanted):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("sizes", SIZES)
def test_weights(sizes):
    assert rnn.get_num_params_in_lstm(*sizes) == theirs.get_num_params_in_lstm(*sizes)
    weights = _case(*sizes)[3]
    for one, other in zip(rnn.unpack_lstm_weights(weights, *sizes), theirs.unpack_lstm_weights(weights, *sizes)):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[key], other[key]) for key in one)
    np.testing.assert_array_equal(rnn.swap_lstm_gates(weights, *sizes), theirs.swap_lstm_gates(weights, *sizes))
    ours, reference = (m.init_lstm_weight(k, *sizes) for m, k in ((rnn, ferrax.random.key(7)), (theirs, jax.random.key(7))))
    np.testing.assert_array_equal(ours, reference)


def test_sequences_of_no_length_and_batches():
    sizes = 2, 3, 2, True
    x, h, c, weights = _case(*sizes)

    def run(x, lengths):
        return rnn.lstm(x, h, c, weights, lengths, *sizes[:3], 0.0, sizes[3])

    y, last_h, last_c = run(x, np.zeros(BATCH, np.int32))
    np.testing.assert_array_equal(y, np.zeros_like(y))
    assert np.array_equal(last_h, h) and np.array_equal(last_c, c)
    garbage = x.copy()
    garbage[1, 1:] = np.nan
    for one, other in zip(run(x, LENGTHS), run(garbage, LENGTHS)):
        np.testing.assert_array_equal(one, other)
    many = ferrax.vmap(run, in_axes=(0, None))(np.stack([x, -x]), LENGTHS)
    for one, other in zip(many, run(-x, LENGTHS)):
        np.testing.assert_allclose(one[1], other, rtol=2e-6, atol=2e-7)


def test_what_is_refused():
    sizes = 2, 3, 1, False
    args = _case(*sizes)
    with pytest.raises(NotImplementedError, match="dropout"):
        rnn.lstm(*args, LENGTHS, 2, 3, 1, 0.5, False)
    with pytest.raises(NotImplementedError, match="int32"):
        rnn.lstm(*args, jnp.ones(BATCH), 2, 3, 1, 0.0, False)
    with pytest.raises(ValueError, match="weights"):
        rnn.lstm(*args[:3], args[3][:-1], LENGTHS, 2, 3, 1, 0.0, False)
    with pytest.raises(ValueError, match="shape"):
        rnn.lstm(args[0][..., :1], *args[1:], LENGTHS, 2, 3, 1, 0.0, False)
    with pytest.raises(ValueError, match="seq_lengths"):
        rnn.lstm(*args, LENGTHS[:2], 2, 3, 1, 0.0, False)
    with pytest.raises(ValueError, match="positive"):
        rnn.get_num_params_in_lstm(2, 0, 1, False)
