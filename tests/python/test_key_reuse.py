"""Keys that are used twice are errors under `debug_key_reuse`, where JAX's checker finds them."""

import numpy as np
import pytest
from oracle import FERRAX, JAX, module

import ferrax
import ferrax.numpy as jnp
from ferrax import lax, random
from ferrax._src.experimental.key_reuse import consumed
from ferrax.errors import KeyReuseError
from ferrax.experimental import key_reuse

# Functions of the library and a key, and whether they use a key twice.
CASES = {
    "drawn twice": (lambda S, key: S.random.normal(key) + S.random.uniform(key), True),
    "split and drawn": (lambda S, key: (S.random.split(key), S.random.bits(key)), True),
    "split once": (lambda S, key: [S.random.bits(k) for k in S.random.split(key)], False),
    "one of several twice": (lambda S, key: [S.random.bits(S.random.split(key, 3)[n]) for n in (0, 1)], True),
    "element twice": (lambda S, key: (lambda ks: (S.random.bits(ks[0]), S.random.bits(ks[0])))(S.random.split(key)), True),
    "folded in": (lambda S, key: [S.random.bits(S.random.fold_in(key, n)) for n in range(3)], False),
    "cloned": (lambda S, key: (S.random.bits(key), S.random.bits(S.random.clone(key))), False),
    "reshaped": (lambda S, key: (S.random.bits(key), S.random.bits(key[None].squeeze())), True),
    "compared": (lambda S, key: (key == key, S.random.bits(key)), False),
    "data": (lambda S, key: (S.random.key_data(key), S.random.bits(key)), False),
    "inner function": (lambda S, key: (S.jax.jit(S.random.bits)(key), S.random.bits(key)), True),
    "in a branch": (lambda S, key: (S.lax.cond(True, S.random.uniform, lambda k: 1.0, key), S.random.bits(key)), True),
    "in no branch": (lambda S, key: (S.lax.cond(True, lambda k: 0.0, lambda k: 1.0, key), S.random.bits(key)), False),
    "loop over constant": (lambda S, key: S.lax.scan(lambda c, _: (c, S.random.bits(key)), 0, None, length=2), True),
    "carried": (lambda S, key: S.lax.scan(lambda k, _: (k, S.random.bits(k)), key, None, length=2), True),
    "carried and split": (
        lambda S, key: S.lax.scan(lambda k, _: tuple(S.random.split(k)), key, None, length=2), False),
    "mapped": (lambda S, key: S.lax.map(S.random.bits, S.random.split(key, 3)), False),
    "while": (lambda S, key: S.lax.while_loop(lambda c: c[1] < 2, lambda c: (c[0], c[1] + S.random.uniform(c[0])), (key, 0.0)), True),
    "while split": (lambda S, key: S.lax.while_loop(
        lambda c: c[1] < 2, lambda c: (S.random.split(c[0])[0], c[1] + 1), (key, 0)), False),
    "checkpointed": (lambda S, key: S.jax.checkpoint(lambda k: S.random.bits(k) + S.random.bits(k))(key), True),
    "gradient": (lambda S, key: S.jax.grad(S.jax.checkpoint(lambda x: x * S.random.normal(key)))(1.0), False),
    "gamma": (lambda S, key: (S.random.gamma(key, 2.0), S.random.bits(key)), True),
    "concatenated": (lambda S, key: (S.jnp.concatenate([key[None], key[None]]),), True),
    "batch": (lambda S, key: S.jax.vmap(S.random.bits)(S.random.split(key)), False),
}  # fmt: skip


def raises(error, call):
    try:
        call()
    except error:
        return True
    return False


@pytest.mark.parametrize("name", CASES)
def test_functions(name):
    function, expected = CASES[name]
    for S in (JAX, FERRAX):
        check = module(S, "experimental.key_reuse" + ("._core" if S is JAX else "")).check_key_reuse
        error = S.jax.errors.KeyReuseError
        assert raises(error, lambda: check(lambda key: function(S, key), S.random.key(0))) == expected, S.name  # noqa: B023
        with S.jax.debug_key_reuse(True):
            jitted = S.jax.jit(lambda key: function(S, key))  # noqa: B023
            assert raises(error, lambda: jitted(S.random.key(0))) == expected, S.name  # noqa: B023
        jitted(S.random.key(0))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_arrays(impl):
    key = random.key(0, impl=impl)
    random.bits(key)
    with ferrax.debug_key_reuse(True):
        assert consumed(key) is False
        x = random.normal(key, (2,))
        assert x.shape == (2,) and consumed(key)
        with pytest.raises(KeyReuseError, match="used before at .*test_key_reuse.py"):
            random.bits(key)
        fresh = random.clone(key)
        draw = ferrax.jit(lambda key: random.bits(key))
        draw(fresh)
        with pytest.raises(KeyReuseError, match="jit-compiled function at index 0"):
            draw(fresh)
        captured = random.key(1, impl=impl)
        closed = ferrax.jit(lambda: random.uniform(captured))
        closed()
        with pytest.raises(KeyReuseError):
            closed()
        keys = random.split(random.key(2, impl=impl), 3)
        random.bits(keys[0])
        np.testing.assert_array_equal(consumed(keys), [True, False, False])
        random.bits(keys[1])
        with pytest.raises(KeyReuseError):
            keys[0]
        first, second = random.split(random.key(3, impl=impl))
        random.bits(first), random.bits(second)
        many = random.split(random.key(4, impl=impl), 3)
        ferrax.vmap(random.bits)(many)
        with pytest.raises(KeyReuseError):
            ferrax.vmap(random.bits)(many)
        lax.scan(lambda k, _: tuple(random.split(k)), random.key(5, impl=impl), None, length=2)
        ferrax.grad(lambda x, k: x * random.normal(k))(1.0, random.key(6, impl=impl))
    random.bits(key)


def test_samplers_use_their_key_once():
    with ferrax.debug_key_reuse(True):
        for sample in [
            lambda key: random.gamma(key, 2.0, (3,)), lambda key: random.poisson(key, 3.0, (3,)),
            lambda key: random.poisson(key, 30.0, (3,)), lambda key: random.binomial(key, 10, 0.3, (3,)),
            lambda key: random.permutation(key, 10), lambda key: random.choice(key, 10, (3,), replace=False),
            lambda key: random.dirichlet(key, jnp.ones(3)), lambda key: random.randint(key, (3,), 0, 10),
            lambda key: random.t(key, 2.0, (3,)), lambda key: random.beta(key, 2.0, 3.0, (3,)),
            lambda key: random.truncated_normal(key, -1, 1, (3,)), lambda key: random.categorical(key, jnp.ones(3)),
            lambda key: random.multivariate_normal(key, jnp.zeros(2), jnp.eye(2)), lambda key: random.ball(key, 2),
            lambda key: random.orthogonal(key, 2), lambda key: random.wald(key, 1.0, (3,)),
        ]:  # fmt: skip
            sample(random.key(0))
            ferrax.jit(sample)(random.key(1))


def test_signatures():
    signature = key_reuse.function_type_signature(random.split, random.key(0))
    assert signature == key_reuse.KeyReuseSignature(key_reuse.Source(0), key_reuse.Sink(0))
    assert str(signature) == "KeyReuseSignature(Sink(0), Source(0))"
    sink = key_reuse.Sink(0, np.array([True, False]))
    assert sink != key_reuse.Sink(0) == key_reuse.Sink(0, np.ones(2, bool))
    with pytest.raises(ValueError, match="changed"):
        sink.idx = 1

    def marked(key):
        key_reuse.assert_unconsumed(key)
        key_reuse.consume(key)
        key_reuse.assert_consumed(key)

    key_reuse.check_key_reuse(marked, random.key(0))
    with pytest.raises(AssertionError):
        key_reuse.check_key_reuse(key_reuse.assert_consumed, random.key(0))
