"""A generator of random numbers that advances by itself, beside JAX's."""

import numpy as np
import pytest
from oracle import FERRAX, JAX, compare, module

import ferrax
from ferrax.experimental.random import StatefulPRNG, stateful_rng


def draws(S):
    rng = module(S, "experimental.random").stateful_rng(42)
    jitted = S.jax.jit(rng.uniform)
    return [
        rng.uniform(),
        rng.random(4),
        rng.integers(10, size=(2, 2)),
        rng.uniform(np.zeros(3, np.float32), 2.0),
        rng.normal(1.0, size=3),
        S.jax.random.key_data(rng.key((2,))),
        jitted(),
        jitted(),
        S.jax.jit(lambda rng: rng.uniform(size=2))(rng),
        [child.integers(0, 10, 2) for child in rng.spawn(2)],
        S.jax.vmap(lambda rng, x: x + rng.uniform())(rng.split(3), S.jnp.zeros(3)),
        rng._counter[...],
    ]


def test_draws():
    compare(draws(FERRAX), draws(JAX))


def test_errors():
    rng = stateful_rng(0)
    with pytest.raises(ValueError, match="vmap"):
        rng.split(2).uniform()
    with pytest.raises(TypeError, match="seed"):
        ferrax.jit(lambda: stateful_rng().uniform())()
    with pytest.raises(ValueError, match="typed key"):
        StatefulPRNG(ferrax.random.PRNGKey(0), ferrax.new_ref(0))
    with pytest.raises(ValueError, match="mutable array"):
        StatefulPRNG(ferrax.random.key(0), 0)


def test_unseeded_generators_differ():
    assert stateful_rng().integers(2**31 - 1) != stateful_rng().integers(2**31 - 1)
