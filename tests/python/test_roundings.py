"""How far roundings move an element: known sizes, and bounds by them that wrong terms do not pass."""

import numpy as np
import pytest
from closeness import errors
from oracle import JAX
from roundings import sizes

X = np.array([0.5, -3.0, 7.0], "float32")
ONCE = 12**-0.5  # the deviation of what is anywhere within half a step


def size_of(function):
    return [np.asarray(x, np.float64) for x in sizes(lambda S: function(S, S.jnp.asarray(X)))]


# The square roots of sums of squares of what is rounded.
KNOWN = {
    "moved": (lambda S, x: x[::-1].reshape(3, 1), 0.0),
    "rounded once": (lambda S, x: x * x, np.abs(X * X)),
    "cancelled": (lambda S, x: (x + 1e6) - 1e6, 1e6),
    "a sum": (lambda S, x: S.jnp.sum(x * np.array([1, 1, 0.5], "float32")), np.sqrt(2 * (0.25 + 9 + 12.25))),
    "a product of matrices": (lambda S, x: S.jnp.outer(x, x) @ x, None),
    "ill-conditioned": (lambda S, x: S.jnp.sin(x * 1e4), np.abs(np.cos(X * 1e4) * X * 1e4)),
    "a loop": (lambda S, x: S.lax.fori_loop(0, 4, lambda i, y: y + x, x), np.abs(X) * np.sqrt(4 + 9 + 16 + 25)),
    "a scan": (lambda S, x: S.lax.scan(lambda c, a: (c + a, c + a), 0 * x, S.jnp.stack([x] * 4))[0],
               np.abs(X) * np.sqrt(1 + 4 + 9 + 16)),
    "a loop until": (lambda S, x: S.lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] * 3, c[1] * 3), (1, x))[1],
                     np.abs(X) * 9 * np.sqrt(2)),
    "a branch": (lambda S, x: S.lax.cond(x[0] > 0, lambda x: x * 3, lambda x: x + 1e6, x), 3 * np.abs(X)),
    "a function of few digits": (lambda S, x: x.astype("float16") * x.astype("float16"), X * X),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, (_, size) in KNOWN.items() if size is not None])
def test_known_sizes(name):
    """Within what 16 samples say of a standard deviation: four standard errors of it."""
    function, expected = KNOWN[name]
    (found,) = size_of(function)
    np.testing.assert_allclose(found, np.broadcast_to(np.multiply(ONCE, expected), found.shape), rtol=0.75)


@pytest.mark.parametrize("name", KNOWN)
def test_results_are_within_roundings_and_those_of_a_wrong_term_are_not(name):
    function, _ = KNOWN[name]
    x = JAX.jnp.asarray(X)
    (size,) = size_of(function)
    expected = np.asarray(function(JAX, x))
    again = np.asarray(JAX.jax.jit(lambda x: function(JAX, x))(x))
    assert errors(again, expected, cancels=size) is None
    few = 2.0**-9 if expected.dtype == "float16" else 2.0**-18
    wrong = (expected + (64 * few * np.maximum(size, np.abs(expected)))).astype(expected.dtype)
    assert errors(wrong, expected, cancels=size) is not None


@pytest.mark.parametrize("function", [
    lambda S, x: S.jnp.linalg.cholesky(S.jnp.diag(x * x)), lambda S, x: S.lax.reduce(x, np.float32(0), lambda a, b: a + b * b, (0,)),
])  # fmt: skip
def test_what_rounds_within_is_refused(function):
    with pytest.raises(NotImplementedError, match="roundings within"):
        size_of(function)


def test_the_orders_of_results_and_of_sizes_are_the_same():
    found = sizes(lambda S: {"b": S.jnp.asarray(X) * 2, "a": [S.jnp.arange(3), None, "text", (S.jnp.ones(2) * 3,)]})
    assert [x.shape for x in found] == [(3,), (2,)]
