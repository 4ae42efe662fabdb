"""Other threads of Python go on while something large is computed, however small its operands are."""

import threading
import time

import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import lax

#: Elements of a result: a few hundred milliseconds of work, of which a thread that waits sees much or nothing.
COUNT = 60_000_000
ROW = jnp.ones((1, 6000))
COLUMN = jnp.ones((10_000, 1))
ONE = jnp.float32(1)
KEY = ferrax.random.key(3)
LARGE = jnp.zeros(COUNT)

CALLS = {
    "iota": lambda: lax.iota(jnp.float32, COUNT),
    "broadcast": lambda: lax.broadcast_in_dim(ONE, (COUNT,), ()),
    "full": lambda: lax.full((COUNT,), 2.5),
    "zeros": lambda: jnp.zeros(COUNT),
    "arange": lambda: jnp.arange(COUNT),
    "tile": lambda: jnp.tile(ROW, (10_000, 1)),
    "repeat": lambda: jnp.repeat(ROW, 10_000, axis=0),
    "pad": lambda: jnp.pad(ONE[None], (0, COUNT)),
    "sums of a row and a column": lambda: ROW + COLUMN,
    "comparisons of a row and a column": lambda: ROW < COLUMN,
    "outer": lambda: jnp.outer(COLUMN, ROW),
    "a product": lambda: COLUMN @ ROW,
    "random bits": lambda: ferrax.random.bits(KEY, (COUNT // 4,)),
    "uniform": lambda: ferrax.random.uniform(KEY, (COUNT // 4,)),
    "a copy": lambda: LARGE.copy(),
    "jit without arguments": ferrax.jit(lambda: lax.iota(jnp.float32, COUNT)),
    "jit of a scalar": lambda: ferrax.jit(lambda x: jnp.full(COUNT, x))(ONE),
    "grad": lambda: ferrax.grad(lambda x: lax.broadcast_in_dim(x, (COUNT,), ()).sum())(ONE),
    "jvp": lambda: ferrax.jvp(lambda x: lax.broadcast_in_dim(x, (COUNT,), ()), (ONE,), (ONE,)),
    "vmap": lambda: ferrax.vmap(lambda x: x + ROW[0])(COLUMN[:, 0]),
    "a loop": lambda: lax.fori_loop(0, 300_000, lambda i, x: x + jnp.sin(x), ONE),
}


@pytest.mark.parametrize("name", CALLS)
def test_others_go_on(name):
    call = CALLS[name]
    call()  # Compiled.
    ticks, stop = 0, threading.Event()

    def tick():
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.0002)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        before = ticks
        # More than one call where calls are short; between two of them the other thread may tick once.
        calls, end = 0, time.monotonic() + 0.3
        while time.monotonic() < end:
            call()
            calls += 1
        during = ticks - before
    finally:
        stop.set()
        thread.join()
    assert during > 2 * calls + 2, f"{during} ticks in {calls} calls"
