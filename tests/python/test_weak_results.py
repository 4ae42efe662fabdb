"""Which results are weakly typed: those that numbers of Python's alone decide, as in JAX."""

import pytest
from oracle import same

import ferrax


def numbers(s):
    """A weakly typed array."""
    return s.jnp.broadcast_to(2.0, (3,))


@same
def test_truth_values(s):
    tests = ["isfinite", "isnan", "isinf", "isposinf", "signbit", "logical_not"]
    pairs = ["logical_and", "logical_or", "logical_xor", "isclose"]
    strong = s.jnp.ones(3)
    return [
        s.lax.is_finite(2.0),
        s.jax.jit(s.lax.is_finite)(2.0),
        [getattr(s.jnp, name)(2.0) for name in tests],
        [getattr(s.jnp, name)(strong) for name in tests],
        [getattr(s.jnp, name)(2.0, 3.0) for name in pairs],
        [getattr(s.jnp, name)(2.0, strong) for name in pairs],
        (s.lax.is_finite(numbers(s)) * 1, s.jnp.sum(s.lax.is_finite(numbers(s)))),
    ]


REDUCTIONS = {
    "sum": lambda s: s.lax.add,
    "maximum": lambda s: s.lax.max,
    "another": lambda s: lambda a, b: a + b + a * b,
    "strong": lambda s: lambda a, b: a + b + a * b * s.jnp.float32(1),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@same
def test_reductions(s, name):
    weak, strong = numbers(s), s.jnp.ones(3)
    start = -float("inf") if name == "maximum" else 0.0
    fold = lambda x, init: s.lax.reduce(x, init, REDUCTIONS[name](s), (0,))  # noqa: E731
    return [
        [fold(x, init) for x in (weak, strong) for init in (start, s.jnp.float32(start))],
        s.jax.jit(lambda x: fold(x, start))(weak),
        s.lax.reduce((weak, strong), (0.0, 0.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)),
        s.lax.reduce(s.jnp.broadcast_to(2, (3,)), -1, s.lax.bitwise_and, (0,)),
    ]


def test_what_operations_are_made_of_is_as_weak_as_they_are():
    """The orthogonal factor of a weakly typed matrix, which passes check."""
    weak = ferrax.lax.broadcast(1.0, (3, 4))
    with ferrax.enable_checks(True):
        found = ferrax.jit(lambda x: ferrax.lax.linalg.qr(x, full_matrices=False)[0].T)(weak)
    assert found.shape == (3, 3)
