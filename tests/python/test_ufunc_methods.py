"""Methods of ufuncs that go by the function alone, from the left."""

import numpy as np
import pytest
from oracle import same


def arithmetic(s):
    """A function that is neither associative nor commutative."""
    return s.jnp.frompyfunc(lambda a, b: a * 2 - b, 2, 1)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("initial", [None, 3])
@same
def test_reduce(s, axis, initial):
    x = s.jnp.arange(12).reshape(3, 4) if axis is not None else s.jnp.arange(5)
    f = arithmetic(s)
    return [
        f.reduce(x, axis=axis, initial=initial),
        f.reduce(x, axis=axis, initial=initial, keepdims=True),
        f.reduce(x.astype("int8"), axis=axis, dtype=np.float32, initial=initial),
        s.jax.jit(lambda x: f.reduce(x, axis=axis, initial=initial))(x),
    ]


@same
def test_reduce_where(s):
    x = s.jnp.arange(12).reshape(3, 4)
    return arithmetic(s).reduce(x, where=x % 3 > 0, initial=1)


@same
def test_reduce_of_nothing_is_the_identity(s):
    return s.jnp.frompyfunc(lambda a, b: a + b, 2, 1, identity=7).reduce(s.jnp.zeros((0, 2), int))


@pytest.mark.parametrize("axis", [0, -1])
@same
def test_accumulate(s, axis):
    x = s.jnp.arange(12).reshape(3, 4)
    f = arithmetic(s)
    return f.accumulate(x, axis=axis), f.accumulate(x, axis=axis, dtype=np.float32)


@same
def test_accumulate_has_derivatives(s):
    f = s.jnp.frompyfunc(lambda a, b: a * b + b, 2, 1)
    x = s.jnp.array([0.5, 2.0, -1.0])
    return s.jax.jacrev(f.accumulate)(x), s.jax.hessian(lambda x: f.reduce(x))(x)


@same
def test_at(s):
    x = s.jnp.arange(6).reshape(2, 3)
    twice = s.jnp.array([1, 1, 0])
    f = arithmetic(s)
    return [
        f.at(x, twice, 5, inplace=False),
        f.at(x, (twice, 2), s.jnp.array([1, 2, 3]), inplace=False),
        s.jnp.bitwise_or.at(x, s.jnp.array([1, 0]), 8, inplace=False),
    ]


@same
def test_reduceat_at_traced_places(s):
    x, places = s.jnp.arange(8), s.jnp.array([0, 4, 1, 5])
    return [
        s.jax.jit(s.jnp.add.reduceat)(x, places),
        s.jax.jit(s.jnp.maximum.reduceat)(x, places),
        s.jnp.add.reduceat(x, s.jnp.array([], int)),
    ]


@same
def test_ufuncs_are_what_they_are_made_of(s):
    def f(a, b):
        return a

    one, two = (s.jnp.frompyfunc(f, 2, 1) for _ in range(2))
    return [one == two, hash(one) == hash(two), one == s.jnp.frompyfunc(f, 2, 1, identity=0)]


@pytest.mark.raises("AttributeError")
@same
def test_attributes_are_read_only(s):
    s.jnp.add.nin = 3
