"""Memory: which arrays share it, what caches keep, what goes back to the system."""

import functools
import gc

import jax
import numpy as np
import psutil
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import _core

MIB = 1 << 20


def shared(ours, *arguments):
    """Which of the arguments and results of a function lie in the same memory."""
    results = ours(*arguments)
    arrays = [*arguments, *(results if isinstance(results, tuple) else (results,))]
    pointers = [array.unsafe_buffer_pointer() for array in arrays]
    return [(i, j) for i in range(len(arrays)) for j in range(i) if pointers[i] == pointers[j]]


CASES = {
    "twice": lambda np, x: (x, x),
    "computed twice": lambda np, x: (x * 3 + 1,) * 2,
    "copy": lambda np, x: np.copy(x),
    "array": lambda np, x: np.array(x),
    "reshaped": lambda np, x: (x.reshape(1, -1), x, x[None]),
    "constant": lambda np, x: (np.zeros(x.shape), np.zeros(x.shape)),
}


@pytest.mark.parametrize("n", [3, 100, 2 * MIB])
@pytest.mark.parametrize("name", CASES)
def test_results_of_jitted_functions_have_memory_of_their_own(name, n):
    case = CASES[name]
    ours = ferrax.jit(lambda x: case(jnp, x))
    x = jnp.arange(float(n))
    assert shared(ours, x) == []
    theirs = jax.jit(lambda x: case(jax.numpy, x))
    assert shared(theirs, jax.numpy.arange(float(n))) == []
    for a, b in zip(*map(jax.tree_util.tree_leaves, (ours(x), theirs(np.asarray(x)))), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n", [3, 100_000])
def test_copies_have_memory_of_their_own(n):
    for module in (jnp, jax.numpy):
        x = module.arange(float(n))
        copies = (module.copy, module.array, functools.partial(module.asarray, copy=True))
        for copy in (*copies, lambda x: x.copy()):
            assert shared(copy, x) == []
        assert module.asarray(x) is x


def test_captured_arrays_are_not_given_out():
    c = jnp.arange(5.0)
    f = ferrax.jit(lambda: (c, c))
    assert shared(lambda c: f() + f(), c) == []


def test_donating_one_result_leaves_the_others():
    for n in (3, 100_000):
        x = jnp.arange(float(n))
        first, second = ferrax.jit(lambda x: (x, x))(x)
        third = jnp.reshape(x, (1, n))
        add = ferrax.jit(lambda x: x + 1, donate_argnums=0)
        place = first.unsafe_buffer_pointer()
        result = add(first)
        assert first.is_deleted() and result.unsafe_buffer_pointer() == place
        add(x)
        expected = np.arange(float(n), dtype=np.float32)
        np.testing.assert_array_equal(result, expected + 1)
        np.testing.assert_array_equal(second, expected)
        np.testing.assert_array_equal(third[0], expected)


def test_a_donated_argument_that_is_a_result_too():
    f = ferrax.jit(lambda x: (x, x * 2), donate_argnums=0)
    for n in (3, 100_000):
        x = jnp.arange(float(n))
        same, twice = f(x)
        assert x.is_deleted()
        assert same.unsafe_buffer_pointer() != twice.unsafe_buffer_pointer()
        np.testing.assert_array_equal(same, np.arange(n))
        np.testing.assert_array_equal(twice, 2 * np.arange(n))


# Caches


def test_caches_keep_what_is_used_and_are_bounded():
    by_value = ferrax.jit(lambda x, n: x + n, static_argnums=1)
    x = jnp.ones(2)
    assert float(by_value(x, -1)[0]) == 0
    for n in range(9000):
        by_value(x, n)
        if n % 1000 == 0:
            by_value(x, -1)
    assert 4096 <= by_value._cache_size() <= 8192
    before = by_value._stats()[0]
    # What was asked for lately is there.
    for n in (-1, *range(9000 - 4000, 9000, 500)):
        by_value(x, n)
    assert by_value._stats()[0] == before


def test_clear_caches_empties_all_of_them():
    class Function:
        __slots__ = ()

        def __call__(self, x):
            return x * 2

    function, unknown = ferrax.jit(lambda x: x + 1), ferrax.jit(Function())
    for f in (function, unknown):
        f(1.0)
    data = np.zeros(100, np.float32)
    for n in range(100):
        jnp.sin(data[:n])
    assert _core.cache_sizes()[1] >= 100
    ferrax.clear_caches()
    assert _core.cache_sizes()[1] == 0
    assert function._cache_size() == 0
    assert float(function(1.0)) == 2 and float(unknown(1.0)) == 2
    assert function._stats()[0] == 1 and unknown._stats()[0] == 1


# Pages


def resident():
    return psutil.Process().memory_info().rss


def test_large_arrays_go_back_to_the_system():
    gc.collect()
    ferrax.clear_caches()
    before = resident()
    arrays = [jnp.ones(8 * MIB) + n for n in range(24)]
    assert resident() - before > 700 * MIB
    del arrays
    # A part of it is kept for arrays to come.
    assert resident() - before < 450 * MIB
    assert _core.cache_sizes()[0] < 400 * MIB
    ferrax.clear_caches()
    assert resident() - before < 150 * MIB


def test_a_loop_over_large_arrays_finds_its_memory_again():
    x = jnp.ones(4 * MIB)
    places = set()
    for _ in range(8):
        x = x + 1
        places.add(x.unsafe_buffer_pointer())
    assert len(places) <= 3
