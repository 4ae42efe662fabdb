"""Keys of generators other than Threefry-2x32, beside JAX's."""

import pickle

import numpy as np
import pytest
from oracle import FERRAX, JAX, compare, compiled, module

import ferrax
import ferrax.extend.random
import ferrax.numpy as jnp
from ferrax import lax, random

NAMES = ["threefry4x32", "philox2x32", "philox4x32", "rbg", "unsafe_rbg"]


@pytest.mark.parametrize("name", NAMES)
def test_numbers(name):
    def case(S):
        random, data = S.random, S.random.key_data

        def drawn(seed):
            key = random.key(seed, impl=name)
            keys = random.split(key, (2, 3))
            folded = random.fold_in(key, 7)
            bits = [random.bits(key, shape, kind) for shape in [(), (5,), (2, 3)] for kind in ("uint8", "uint16", "uint32")]
            samples = random.normal(folded, (3,)), random.randint(keys[1, 2], (4,), 0, 1000), random.uniform(key, (2,))
            batched = S.jax.vmap(lambda key: (random.bits(key, (3,)), data(random.split(key))))(keys[0])
            return data(key), data(keys), data(folded), bits, samples, batched

        with S.jax.enable_x64(True):
            wide = random.bits(random.key(-1, impl=name), (3,), "uint64")
        key = random.key(3, impl=name)
        legacy = random.PRNGKey(1, impl=name)
        return (
            [compiled(S, drawn, np.int32(seed)) for seed in (0, -5)], wide, str(key.dtype), str(key.aval.str_short()),
            random.key_impl(key), legacy, data(random.wrap_key_data(legacy, impl=name)),
            key.itemsize, str(random.key_dtype(name)),
        )  # fmt: skip

    compare(case(FERRAX), case(JAX))


def test_settings():
    def case(S):
        with S.jax.default_prng_impl("rbg"):
            key = S.random.key(1)
            legacy = S.random.split(S.random.PRNGKey(2))
            drawn = S.random.bits(S.random.PRNGKey(2), (3,))
        with S.jax.threefry_partitionable(False):
            older = [S.random.key_data(S.random.split(S.random.key(1, impl=name), 3)) for name in ("rbg", "unsafe_rbg")]
        return str(key.dtype), S.random.key_data(key), legacy, drawn, older

    compare(case(FERRAX), case(JAX))


@pytest.mark.parametrize("name", ["philox2x32", "rbg"])
def test_keys_go_where_arrays_go(name):
    def case(S):
        data, lax, jnp, vmap = S.random.key_data, S.lax, S.jnp, S.jax.vmap

        def moved(keys, flag, place):
            def step(key, other):
                return S.random.fold_in(key, 1), jnp.where(flag, key, other)

            last, chosen = lax.scan(step, keys[0], keys)
            until = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, S.random.split(c[1])[1]), (0, keys[1]))[1]
            branch = lax.cond(flag, lambda k: k, lambda k: S.random.fold_in(k, 2), keys[2])
            some = [keys[place], keys[::-1], jnp.concatenate([keys, keys[:1]]), keys.reshape(2, 2).T, keys[jnp.array([3, 1])]]
            put = keys.at[place].set(keys[0])
            equal = keys == keys[place], keys[:2] != keys[1:3]
            return [data(x) for x in [last, chosen, until, branch, put, *some]], equal

        keys = S.random.split(S.random.key(5, impl=name), 4)
        found = [S.jax.jit(moved)(keys, flag, place) for flag, place in [(True, 2), (False, 1)]]
        slope = S.jax.grad(lambda x, key: S.random.normal(key) * x**2)(3.0, keys[0])
        twice = vmap(vmap(lambda key: S.random.uniform(key, (2,)), 0), 1)(keys.reshape(2, 2))
        mixed = vmap(vmap(S.random.fold_in, (0, None)), (None, 0))(keys, np.arange(2))
        return found, slope, twice, data(mixed), data(vmap(lambda n: S.random.key(n, impl=name))(np.arange(3)))

    compare(case(FERRAX), case(JAX))


@pytest.mark.parametrize("name", ["threefry2x32", "philox2x32", "rbg"])
def test_keys_out_of_bounds(name):
    def case(S):
        def taken(keys, places):
            numbers = S.lax.GatherDimensionNumbers((1,), (0,), (0,))
            return [
                S.random.key_data(x)
                for x in (
                    keys.at[places].get(mode="fill"), keys.at[:, 5].get(mode="fill", fill_value=3),
                    S.jnp.take(keys, places, axis=1), S.jnp.take_along_axis(keys, places[None], 1),
                    S.lax.gather(keys, places[:, None], numbers, (1, 2), mode="fill"),
                )
            ]  # fmt: skip

        keys = S.random.split(S.random.key(5, impl=name), (3, 2))
        places = S.jnp.array([1, 7])
        return taken(keys, places), S.jax.jit(taken)(keys, places), np.asarray(keys._base_array), keys.nbytes

    compare(case(FERRAX), case(JAX))


def test_eager_and_pickled_keys():
    for name in NAMES:
        keys = random.split(random.key(2, impl=name), 3)
        again = pickle.loads(pickle.dumps(keys))
        assert again.dtype == keys.dtype and bool((again == keys).all())
        np.testing.assert_array_equal(random.bits(keys[1], (2,)), ferrax.jit(random.bits, static_argnums=1)(keys[1], (2,)))
        text = str(ferrax.make_jaxpr(lambda key: random.bits(key))(keys[0]))
        assert f"key<{keys.dtype._impl.tag}>" in text and "random_bits[" in text
        with ferrax.disable_jit():
            np.testing.assert_array_equal(random.bits(keys[1]), ferrax.jit(random.bits)(keys[1]))
        assert jnp.full((2,), 0, keys.dtype).dtype == keys.dtype


def test_a_generator_of_ones_own():
    def case(S):
        implementation = module(S, "extend.random").define_prng_impl(
            key_shape=(2, 2),
            seed=lambda seed: S.jnp.full((2, 2), seed, np.uint32) + S.jnp.arange(4, dtype=np.uint32).reshape(2, 2),
            split=lambda key, shape: S.jnp.broadcast_to(key, (*shape, 2, 2)) + np.uint32(10),
            random_bits=lambda key, width, shape: S.jnp.full(shape, key.sum(), f"uint{width}"),
            fold_in=lambda key, data: key + data.astype(np.uint32),
            name="own", tag="own",
        )  # fmt: skip
        key = S.random.key(3, impl=implementation)
        keys = S.random.split(key, 2)
        assert S.random.key_impl(key) == implementation
        words = S.random.key_data(keys), S.random.key_data(S.random.fold_in(key, 5))
        drawn = S.jax.vmap(lambda key: S.random.bits(key, (2,)))(keys)
        return str(key.dtype), key.shape, words, drawn, S.jax.jit(S.random.bits)(key)

    compare(case(FERRAX), case(JAX))


def test_errors():
    with pytest.raises(ValueError, match="words"):
        odd = ferrax.extend.random.define_prng_impl(
            key_shape=(3,), seed=abs, split=abs, random_bits=abs, fold_in=abs
        )
        random.key(0, impl=odd)
    key = random.key(0, impl="rbg")
    for error, call in [
        (TypeError, lambda: random.wrap_key_data(np.zeros(2, np.uint32), impl="rbg")),
        (TypeError, lambda: key + 1),
        (TypeError, lambda: lax.concatenate([key[None], random.key(0)[None]], 0)),
        (ValueError, lambda: random.bits(random.split(key))),
    ]:
        with pytest.raises(error):
            call()
