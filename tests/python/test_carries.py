"""What a loop hands from step to step: values go to other carries and to what is stacked without being copied.

Each loop is the same steps in NumPy, of whole numbers.
"""

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp

HANDED_ON = {
    "to the one before": lambda a, b, c: (b, c, a + 2 * c),
    "to the next": lambda a, b, c: (c - a, a, b),
    "around": lambda a, b, c: (b, c, a),
    "around, one anew": lambda a, b, c: (c, a, b[::-1] - 1),
    "read from behind": lambda a, b, c: (b, c[::-1] - a[::-1], a),
    "two of one": lambda a, b, c: (b, b + 1, b - c),
}


@pytest.mark.parametrize("size", [4, 5000])
@pytest.mark.parametrize("name", HANDED_ON)
def test_carries_that_are_handed_on(name, size):
    """A step that gives the old value of a carry to another one computes no new value where that still is."""
    start = expected = [np.arange(size, dtype=np.float32) % 7 + k for k in range(3)]
    for _ in range(6):
        expected = HANDED_ON[name](*expected)
    step = lambda carry: HANDED_ON[name](*carry)  # noqa: E731
    carry = tuple(map(jnp.asarray, start))
    for got in (
        ferrax.lax.fori_loop(0, 6, lambda _, carry: step(carry), carry),
        ferrax.lax.scan(lambda carry, _: (step(carry), carry[0]), carry, None, length=6)[0],
    ):
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(a), b)


@pytest.mark.parametrize("size", [3, 3000])
@pytest.mark.parametrize("reverse", [False, True])
def test_values_that_are_stacked_twice(size, reverse):
    """And one that is a carry, too, and one that was an element."""
    xs = np.arange(5 * size, dtype=np.float32).reshape(5, size) % 11

    def step(c, x):
        y = c - x
        return y + 1, [y, c, y, x, y + 1]

    c, rows = xs[0] * 2, []
    for x in xs[::-1] if reverse else xs:
        c, row = step(c, x)
        rows.append(row)
    got, stacked = ferrax.lax.scan(step, jnp.asarray(xs[0] * 2), jnp.asarray(xs), reverse=reverse)
    np.testing.assert_array_equal(np.asarray(got), c)
    for k, ys in enumerate(stacked):
        np.testing.assert_array_equal(np.asarray(ys), np.stack([row[k] for row in rows][:: -1 if reverse else 1]))
