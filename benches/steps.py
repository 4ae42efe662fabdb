"""Loops whose steps touch a part of a large array: what a step costs, at three sizes of the array.

A step that changes or reads an element should cost the same whatever the size. Results are a few elements of the last
state, or the gradient.
"""

from __future__ import annotations

import functools

import numpy as np
from timing import timed

TITLE = "Steps that touch a part of an array"

STEPS, WIDTH = 1_000, 16
SIZES = (1_000, 30_000, 1_000_000)


# Of the library, the array and the numbers of steps: what is left of it.


def scanned(step):
    """The first elements of a state that goes through the steps."""

    def run(library, x, numbers):
        body = lambda state, i: (step(library, state, i), None)  # noqa: E731
        state = library.jax.lax.scan(body, x, numbers)[0]
        return library.jax.tree.leaves(state)[0][:8]

    return run


def _set(library, x, i):
    return x.at[i].set(1.0)


def _window(library, x, i):
    lax = library.jax.lax
    return lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i,), (8,)) * 0.5, (i,))


def _cond(library, x, i):
    return library.jax.lax.cond(i % 2 == 0, lambda x: x.at[i].set(1.0), lambda x: x, x)


def _switch(library, x, i):
    changes = [lambda x: x.at[i].set(1.0), lambda x: x, lambda x: x.at[0].add(x[i])]
    return library.jax.lax.switch(i % 3, changes, x)


def _of_two(library, arrays, i):
    """Of two arrays a branch changes one."""
    lax = library.jax.lax
    change = lambda x, y: (x.at[i].set(y[0]), y)  # noqa: E731
    other = lambda x, y: (x, y.at[i].add(1.0))  # noqa: E731
    return lax.cond(i % 2 == 0, change, other, *arrays)


def _nested(library, x, i):
    return library.jax.lax.fori_loop(0, 4, lambda j, x: x.at[i + j].add(1.0), x)


def _cond_in_nested(library, x, i):
    change = lambda j, x: library.jax.lax.cond(j % 2 == 0, lambda x: x.at[i + j].add(1.0), lambda x: x, x)  # noqa: E731
    return library.jax.lax.fori_loop(0, 4, change, x)


def _nested_in_cond(library, x, i):
    lax = library.jax.lax
    return lax.cond(i % 2 == 0, lambda x: _nested(library, x, i), lambda x: x, x)


def _cond_in_cond(library, x, i):
    lax = library.jax.lax
    inner = lambda x: lax.cond(i % 3 == 0, lambda x: x.at[i].set(2.0), lambda x: x, x)  # noqa: E731
    return lax.cond(i % 2 == 0, inner, lambda x: x, x)


def two_arrays(library, x, numbers):
    body = lambda state, i: (_of_two(library, state, i), None)  # noqa: E731
    return library.jax.lax.scan(body, (x, x), numbers)[0][0][:8]


def swapped(library, x, numbers):
    """The arrays change places in each step."""
    body = lambda state, i: ((state[1], state[0].at[i].set(1.0)), None)  # noqa: E731
    return library.jax.lax.scan(body, (x, x + 1), numbers)[0][0][:8]


def recorded(library, x, numbers):
    """With what there was at the place before."""
    return library.jax.lax.scan(lambda x, i: (x.at[i].add(1.0), x[i]), x, numbers)[1]


def until(library, x, numbers):
    """A `while` with a branch."""
    lax = library.jax.lax
    body = lambda state: (state[0] + 1, _cond(library, state[1], state[0]))  # noqa: E731
    return lax.while_loop(lambda state: state[0] < len(numbers), body, (0, x))[1][:8]


def read_back(function):
    """The gradient of a loop that reads parts of the array."""

    def run(library, x, numbers):
        start = library.jnp.ones(WIDTH)
        rows = x.reshape(-1, WIDTH)

        def loss(rows):
            body = lambda c, i: (function(library, c, rows, i), None)  # noqa: E731
            return library.jax.lax.scan(body, start, numbers % len(rows))[0].sum()

        return library.jax.grad(loss)(rows)[:2]

    return run


def _row(library, c, rows, i):
    return library.jnp.tanh(c + rows[i])


def _rows(library, c, rows, i):
    places = (i + library.jnp.arange(4)) % len(rows)
    return library.jnp.tanh(c + rows[places].sum(0))


def _layer(library, c, rows, i):
    return library.jnp.tanh(c @ library.jax.lax.dynamic_slice(rows, (i, 0), (WIDTH, WIDTH)))


def _row_in_switch(library, c, rows, i):
    reads = [lambda c: c * rows[i], lambda c: c + library.jnp.sin(rows[i]), lambda c: c]
    return library.jax.lax.switch(i % 3, reads, c)


def _row_in_nested(library, c, rows, i):
    read = lambda j, c: library.jnp.tanh(c + rows[(i + j) % len(rows)])  # noqa: E731
    return library.jax.lax.fori_loop(0, 4, read, c)


def _fixed_row(library, c, rows, i):
    return library.jnp.tanh(c * rows[3] + rows[i])


def changed_and_read(library, x, numbers):
    """The gradient of a state that is read and changed."""

    def loss(x):
        body = lambda x, i: (x.at[i + 1].set(library.jnp.sin(x[i])), None)  # noqa: E731
        return library.jax.lax.scan(body, x, numbers % (len(x) - 1))[0][:8].sum()

    return library.jax.grad(loss)(x)[:8]


PROGRAMS = {
    "an element set": scanned(_set),
    "a window changed": scanned(_window),
    "an element set in a branch": scanned(_cond),
    "`switch` of three": scanned(_switch),
    "one of two arrays in a branch": two_arrays,
    "`fori_loop` within": scanned(_nested),
    "a branch in a `fori_loop`": scanned(_cond_in_nested),
    "a `fori_loop` in a branch": scanned(_nested_in_cond),
    "a branch in a branch": scanned(_cond_in_cond),
    "two arrays that change places": swapped,
    "an element read and set": recorded,
    "`while` with a branch": until,
    "gradient of a row": read_back(_row),
    "gradient of several rows": read_back(_rows),
    "gradient of a matrix out of many": read_back(_layer),
    "gradient of a row in a `switch`": read_back(_row_in_switch),
    "gradient of a row in a `fori_loop`": read_back(_row_in_nested),
    "gradient of a fixed row": read_back(_fixed_row),
    "gradient of an array read and set": changed_and_read,
}


def repeated(library, x, numbers):
    """Each element as often as a count says that is not known before, to four times as many."""
    counts = library.jnp.where(library.jnp.arange(len(x)) % 2 == 0, 1, 7) + 0 * numbers[0]
    return library.jnp.repeat(x, counts, total_repeat_length=4 * len(x))[-8:]


def _prepare(library, program, size):
    jax = library.jax
    x = jax.device_put(np.random.default_rng(0).normal(size=size // WIDTH * WIDTH).astype(np.float32))
    numbers = jax.device_put((np.arange(STEPS, dtype=np.int32) * 7) % (size // WIDTH * WIDTH - 8))
    fun = jax.jit(lambda x, numbers: program(library, x, numbers))
    return lambda: jax.block_until_ready(fun(x, numbers))


ROWS = [
    timed(
        f"{name}, {size:,} elements, a step", "ns", None,
        functools.partial(_prepare, program=program, size=size), rounds=3, per=STEPS, alike=False,
    )
    for name, program in PROGRAMS.items()
    for size in SIZES
] + [
    timed(
        f"`repeat` by counts, {size:,} elements", "µs", None,
        functools.partial(_prepare, program=repeated, size=size), rounds=3,
    )
    for size in SIZES
]  # fmt: skip
