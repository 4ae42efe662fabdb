"""Indices out of bounds as errors: `debug_index`. JAX has no such flag."""

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import lax

X = jnp.arange(5.0)

CALLS = {
    "integer": (lambda x, i: x[i], 9),
    "negative": (lambda x, i: x[i], -6),
    "array": (lambda x, i: x[i], np.array([[1, 2], [3, 7]])),
    "narrow array": (lambda x, i: x[i], np.array([200], np.uint8)),
    "set": (lambda x, i: x.at[i].set(2.0), np.array([0, 5])),
    "add": (lambda x, i: x.at[i].add(2.0), 5),
    "apply": (lambda x, i: x.at[i].apply(jnp.sin), np.array([5])),
    "second axis": (lambda x, i: jnp.stack([x, x])[:, i], np.array([1, 8])),
    "take": (lambda x, i: jnp.take(x, i), np.array([1, 9])),
    "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i, 0), np.array([1, 9])),
    "gradient": (ferrax.grad(lambda x, i: jnp.sum(x[i] ** 2)), np.array([1, 9])),
    "lanes": (ferrax.vmap(lambda x, i: x[i], (None, 0)), np.array([1, 9, 2])),
    "loop": (lambda x, i: lax.fori_loop(0, i, lambda k, s: s + x[k], 0.0), 7),
}


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_error(name, jit):
    call, index = CALLS[name]
    run = ferrax.jit(call) if jit else call
    without = run(X, index)
    with ferrax.debug_index():
        with pytest.raises(IndexError, match=r"index -?\d+ is out of bounds for axis \d with size 5") as error:
            run(X, index)
        assert f"{__file__}:" in str(error.value)
    np.testing.assert_array_equal(run(X, index), without)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("call", [
    lambda x: x[jnp.array([-5, 4])], lambda x: x.at[jnp.array([-5, 4])].set(1.0), lambda x: x[jnp.zeros((0,), int)],
    lambda x: x.at[9].set(1.0, mode="drop"), lambda x: x.at[9].get(mode="clip"), lambda x: x[x > 2] if x is X else x,
    lambda x: jnp.take(x, 9, mode="fill"), lambda x: x[jnp.array([127, -128], jnp.int8) // 64],
    lambda x: jnp.sort(x)[::-1], lambda x: jnp.median(x), lambda x: jnp.nonzero(x, size=7),
    lambda x: ferrax.ops.segment_sum(x, jnp.array([0, 1, 9, 1, 0]), 2),
])  # fmt: skip
def test_no_error(call, jit):
    run = ferrax.jit(call) if jit else call
    expected = run(X)
    with ferrax.debug_index():
        got = run(X)
    ferrax.tree.map(np.testing.assert_array_equal, got, expected)
