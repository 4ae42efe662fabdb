"""Loops: time for each step, recurrent networks, what gradients of loops keep, and how long nested
and repeated bodies take to compile.

`python benches/control_flow.py LIBRARY STEPS` prints the bytes by which the resident memory peaks
while the gradient of a loop of so many steps runs.
"""

from __future__ import annotations

import functools

import numpy as np
from memory import peak, peak_in_a_process, print_peak
from timing import Row, timed, timed_once, torch

TITLE = "Loops and recurrent networks"

STEPS = 100_000
SEQUENCE, HIDDEN = 1_000, 64
TIMES, BATCH, UNITS = 200, 32, 64
DEEP = 10_000
LAYERS, WIDTH = 50, 64
# The state of the loop whose memory is measured has this many bytes.
STATE_BYTES = 4096


def _blocking(library, fun, *args):
    """A call of the jitted function that waits for its result."""
    fun = library.jax.jit(fun)
    args = library.jax.device_put(args)
    return lambda: library.jax.block_until_ready(fun(*args))


def _array(library, random, *shape, scale=1.0):
    return library.jnp.asarray(random.normal(size=shape, scale=scale).astype(np.float32))


# Steps of almost nothing


def _fori(library):
    body = lambda i, x: x * 0.999 + 0.5  # noqa: E731
    return _blocking(library, lambda x: library.jax.lax.fori_loop(0, STEPS, body, x), np.float32(1))


def _lorenz(library):
    jnp = library.jnp

    def step(state, _):
        x, y, z = state
        dx, dy, dz = 10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z
        state = x + 0.001 * dx, y + 0.001 * dy, z + 0.001 * dz
        return state, jnp.stack(state)

    start = (np.float32(1), np.float32(1), np.float32(1))
    return _blocking(library, lambda s: library.jax.lax.scan(step, s, None, STEPS)[1], start)


def _runge_kutta(library):
    def slope(state):
        x, y, z = state
        return 10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z

    def along(state, slopes, by):
        return tuple(value + by * rise for value, rise in zip(state, slopes))

    def step(state, _):
        first = slope(state)
        second = slope(along(state, first, 0.0005))
        third = slope(along(state, second, 0.0005))
        last = slope(along(state, third, 0.001))
        rises = [a + 2.0 * b + 2.0 * c + d for a, b, c, d in zip(first, second, third, last)]
        return along(state, rises, 0.001 / 6), None

    start = (np.float32(1), np.float32(1), np.float32(1))
    return _blocking(library, lambda s: library.jax.lax.scan(step, s, None, STEPS)[0], start)


def _vector(library, body, count):
    """A loop over a vector, each step of which is a function of it."""
    start = np.linspace(-1.0, 1.0, count, dtype=np.float32)
    step = lambda i, x: body(library.jnp, x)  # noqa: E731
    return _blocking(library, lambda x: library.jax.lax.fori_loop(0, STEPS, step, x), start)


# Of a vector: what a step does to it, and how many elements it has.
VECTORS = {
    "16 elements, `x * 0.9 + 0.1`": (lambda jnp, x: x * 0.9 + 0.1, 16),
    "64 elements, `x * 0.9 + 0.1`": (lambda jnp, x: x * 0.9 + 0.1, 64),
    "256 elements, `x * 0.9 + 0.1`": (lambda jnp, x: x * 0.9 + 0.1, 256),
    "20 elements, `x + 0.01 * tanh(x)`": (lambda jnp, x: x + 0.01 * jnp.tanh(x), 20),
    "64 elements, `x + 0.01 * tanh(x)`": (lambda jnp, x: x + 0.01 * jnp.tanh(x), 64),
    "64 elements, divided by their norm": (lambda jnp, x: (x + 0.1) / (1e-3 + jnp.sqrt(jnp.sum(x * x))), 64),
    "64 points of the heat equation": (
        lambda jnp, x: x.at[1:-1].add(0.1 * (x[2:] - 2.0 * x[1:-1] + x[:-2])), 64
    ),
    "64 points of it on a ring": (lambda jnp, x: x + 0.1 * (jnp.roll(x, 1) - 2.0 * x + jnp.roll(x, -1)), 64),
}


def _newton(library):
    step = lambda s: (s[0] - (s[0] * s[0] - 2.0) / (2.0 * s[0]), s[1] + 1)  # noqa: E731
    return _blocking(
        library, lambda x: library.jax.lax.while_loop(lambda s: s[1] < STEPS, step, (x, 0)), np.float32(3)
    )


def _branches(library):
    lax = library.jax.lax
    body = lambda i, x: lax.cond(x > 1.0, lambda x: x * 0.5, lambda x: x * 1.7, x)  # noqa: E731
    return _blocking(library, lambda x: lax.fori_loop(0, STEPS, body, x), np.float32(0.3))


def _inner_loop(library):
    lax = library.jax.lax
    inner = lambda j, x: x * 0.9 + 0.1 * j  # noqa: E731
    outer = lambda i, x: lax.fori_loop(0, 10, inner, x)  # noqa: E731
    return _blocking(library, lambda x: lax.fori_loop(0, STEPS // 10, outer, x), np.float32(0.1))


def _filled(library):
    body = lambda i, x: x.at[i].set(x[i - 1] * 0.5 + x[i - 2] * 0.3 + x[i])  # noqa: E731
    return _blocking(
        library, lambda x: library.jax.lax.fori_loop(2, STEPS, body, x), np.ones(STEPS, np.float32)
    )


def _small_product(library):
    matrix = library.jnp.asarray((np.eye(3) * 0.9 + 0.05).astype(np.float32))
    body = lambda i, x: matrix @ x  # noqa: E731
    return _blocking(
        library, lambda x: library.jax.lax.fori_loop(0, STEPS, body, x), np.ones(3, np.float32)
    )


# Recurrent networks


def _rnn(library, gradient):
    jnp, random = library.jnp, np.random.default_rng(0)
    weights = {
        "hidden": _array(library, random, HIDDEN, HIDDEN, scale=HIDDEN**-0.5),
        "input": _array(library, random, HIDDEN, HIDDEN, scale=HIDDEN**-0.5),
        "bias": jnp.zeros(HIDDEN),
    }
    inputs = _array(library, random, SEQUENCE, HIDDEN)

    def run(weights, inputs):
        def step(h, x):
            h = jnp.tanh(h @ weights["hidden"] + x @ weights["input"] + weights["bias"])
            return h, h

        return library.jax.lax.scan(step, jnp.zeros(HIDDEN), inputs)[1].sum()

    run = library.jax.grad(run) if gradient else run
    return _blocking(library, run, weights, inputs)


def _t_rnn(gradient):
    return _t_recurrent("RNN", HIDDEN, (SEQUENCE, 1, HIDDEN), gradient)


def _t_lstm(gradient):
    return _t_recurrent("LSTM", UNITS, (TIMES, BATCH, UNITS), gradient)


def _t_recurrent(name, units, shape, gradient):
    """PyTorch's network of a layer, with weights of its own."""

    def start():
        t = torch()
        network = getattr(t.nn, name)(units, units)
        inputs = t.randn(shape)

        def run():
            with t.set_grad_enabled(gradient):
                total = network(inputs)[0].sum()
            return t.autograd.grad(total, list(network.parameters())) if gradient else total

        return run

    return {"torch": start}


def _lstm(library, gradient):
    jax, jnp, random = library.jax, library.jnp, np.random.default_rng(0)
    weights = {
        "hidden": _array(library, random, UNITS, 4 * UNITS, scale=UNITS**-0.5),
        "input": _array(library, random, UNITS, 4 * UNITS, scale=UNITS**-0.5),
        "bias": jnp.zeros(4 * UNITS),
    }
    inputs = _array(library, random, TIMES, BATCH, UNITS)

    def run(weights, inputs):
        def step(state, x):
            h, c = state
            gates = h @ weights["hidden"] + x @ weights["input"] + weights["bias"]
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((BATCH, UNITS))
        return jax.lax.scan(step, (zeros, zeros), inputs)[1].sum()

    run = jax.grad(run) if gradient else run
    return _blocking(library, run, weights, inputs)


# Gradients of long loops


def _long_loss(library, steps):
    jnp = library.jnp

    def loss(x):
        step = lambda c, _: (jnp.sin(c) * 1.01 + 0.1 * c, None)  # noqa: E731
        return library.jax.lax.scan(step, x, None, steps)[0].sum()

    return library.jax.grad(loss)


def _long_gradient(library):
    return _blocking(library, _long_loss(library, DEEP), np.ones(HIDDEN, np.float32))


def _peak(library, steps) -> int:
    """Of the gradient of the long loop."""
    x = library.jax.device_put(np.ones(STATE_BYTES // 4, np.float32))
    compiled = library.jax.jit(_long_loss(library, steps)).lower(x).compile()
    return peak(compiled, library, [x])


@functools.cache
def _peaks(name) -> list[int]:
    return [peak_in_a_process(__file__, name, steps) for steps in (DEEP, 2 * DEEP, 4 * DEEP)]


def _memory_of_a_step(found):
    """In states of the loop: what is kept of a step for the way back."""
    figures = {}
    for name in found:
        first, second, _ = _peaks(name)
        figures[name] = (second - first) / DEEP / STATE_BYTES
    return figures


def _memory_growth(found):
    """How much more a step costs where there are twice as many: one, if memory is linear."""
    figures = {}
    for name in found:
        first, second, third = _peaks(name)
        figures[name] = (third - second) / 2 / (second - first)
    return figures


# Compilation


def _block(library, x, weights):
    jax, jnp = library.jax, library.jnp
    gain, wide, back = weights
    y = gain * (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x + jax.nn.gelu(y @ wide) @ back


def _blocks(library, unrolled):
    random = np.random.default_rng(0)
    weights = (
        library.jnp.ones((LAYERS, WIDTH)),
        _array(library, random, LAYERS, WIDTH, 2 * WIDTH, scale=0.1),
        _array(library, random, LAYERS, 2 * WIDTH, WIDTH, scale=0.1),
    )

    def scanned(x, weights):
        return library.jax.lax.scan(lambda x, w: (_block(library, x, w), None), x, weights)[0]

    def written_out(x, weights):
        for i in range(LAYERS):
            x = _block(library, x, tuple(w[i] for w in weights))
        return x

    return _blocking(
        library, written_out if unrolled else scanned, np.ones((8, WIDTH), np.float32), weights
    )


def _nested(library):
    """A scan of a branch of a scan of a branch of a scan."""
    jnp, lax = library.jnp, library.jax.lax

    def looped(body):
        return lambda x: lax.scan(lambda c, _: (body(c), None), x, None, 3)[0]

    def branched(body):
        return lambda x: lax.cond(x.sum() > 0, body, lambda x: x * 0.5, x)

    fun = lambda x: jnp.sin(x) + 0.1 * x  # noqa: E731
    for wrap in (looped, branched, looped, branched, looped):
        fun = wrap(fun)
    return _blocking(library, fun, np.ones(8, np.float32))


_quick = functools.partial(timed, rounds=3, samples=3)
_first = functools.partial(timed_once, rounds=3)


ROWS = [
    _quick("`fori_loop` of a scalar, for each of 100,000 steps", "ns", None, _fori, per=STEPS),
    _quick(
        "`scan` of the Lorenz system, for each of 100,000 steps", "ns", None, _lorenz, per=STEPS,
        alike=False,
    ),
    _quick("Runge-Kutta steps of the Lorenz system, for each of 100,000", "ns", None, _runge_kutta, per=STEPS,
           alike=False),
    _quick("`while_loop` of Newton's method, for each of 100,000 steps", "ns", None, _newton, per=STEPS),
    _quick("`cond` of a scalar, for each of 100,000 steps", "ns", None, _branches, per=STEPS),
    _quick("`fori_loop` in a `fori_loop`, for each of 100,000 steps", "ns", None, _inner_loop, per=STEPS),
    _quick("an array that is filled one by one, for each of 100,000 elements", "ns", None, _filled, per=STEPS),
    _quick("3×3 matrix by a vector, for each of 100,000 steps", "ns", None, _small_product, per=STEPS),
    *[
        _quick(f"a vector of {name}, for each of 100,000 steps", "ns", None,
               functools.partial(_vector, body=body, count=count), per=STEPS)
        for name, (body, count) in VECTORS.items()
    ],
    _quick("RNN of 64 units, 1,000 steps", "ms", None, lambda lib: _rnn(lib, False), others=_t_rnn(False),
           alike=False),
    _quick("gradient of this RNN", "ms", None, lambda lib: _rnn(lib, True), others=_t_rnn(True), alike=False),
    _quick("LSTM, 200 steps of 32×64", "ms", None, lambda lib: _lstm(lib, False),
           others=_t_lstm(False), alike=False),
    _quick("gradient of the LSTM", "ms", None, lambda lib: _lstm(lib, True), others=_t_lstm(True),
           alike=False),
    _quick("gradient of a `scan` of 10,000 steps", "ms", None, _long_gradient),
    Row("memory that gradient keeps of a step, in states", "", None, _memory_of_a_step),
    Row("growth of that for twice the steps", "", 1.1, _memory_growth),
    _first("first call: `scan` of 50 layers", "ms", None, lambda lib: _blocks(lib, False)),
    _first("first call: the 50 layers unrolled", "ms", None, lambda lib: _blocks(lib, True)),
    _first("first call: `scan` and `cond` nested five deep", "ms", 50.0, _nested),
]  # fmt: skip

if __name__ == "__main__":
    print_peak(_peak)
