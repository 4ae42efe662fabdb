"""Loops of machine code whose carries are updated at computed places, and small products in them, against JAX."""

import types

import numpy as np
import pytest
from machine_code import is_expected
from test_native_loops import NATIVE

import ferrax
from ferrax import lib

FERRAX = types.SimpleNamespace(jax=ferrax, jnp=ferrax.numpy, lax=ferrax.lax)
R = np.random.RandomState(1)
f32 = np.float32


def floats(*sizes):
    return R.standard_normal(sizes).astype(f32)


def small(S, x):
    return S.lax.fori_loop(0, 40, lambda k, v: v.at[k % 16].add(v[(k + 3) % 16] * 0.5), x)


def smallest(S, x):
    return S.lax.fori_loop(0, 40, lambda k, v: v.at[k % 3].set(v.sum() * 0.3), x)


def large(S, x):
    """A recurrence that fills an array."""
    return S.lax.fori_loop(2, x.shape[0], lambda k, v: v.at[k].set(v[k - 1] * 0.5 + v[k - 2] * 0.3 + v[k]), x)


def table(S, x):
    """Edit distances, in a matrix that is filled element by element."""
    n, m = x.shape
    a, b = S.jnp.arange(n) % 3, S.jnp.arange(m) % 4

    def step(k, d):
        i, j = k // (m - 1) + 1, k % (m - 1) + 1
        substituted = d[i - 1, j - 1] + (a[i] != b[j])
        return d.at[i, j].set(S.jnp.minimum(substituted, S.jnp.minimum(d[i - 1, j], d[i, j - 1]) + 1))

    return S.lax.fori_loop(0, (n - 1) * (m - 1), step, x)


def rows(S, x):
    def step(k, m):
        return S.lax.dynamic_update_slice(m, m[k % 20][None] * 0.5 + S.jnp.float32(k), (k * 7 % 20, 0))

    return S.lax.fori_loop(0, 50, step, x)


def beyond(S, x):
    """Some places are outside: they are left out, or moved inside."""
    def step(k, v):
        v = v.at[k - 5].add(1.0, mode="drop")
        v = v.at[k].set(2.0, mode="clip")
        return v.at[k].max(1.5).at[k].multiply(0.9).at[3].min(S.jnp.float32(k))

    return S.lax.fori_loop(0, 40, step, x)


def chosen(S, x):
    def step(k, v):
        return S.lax.cond(v[k % 100] > 0, lambda v: v.at[(k * 3) % 100].add(-0.5), lambda v: v.at[0].set(S.jnp.float32(k)), v)

    return S.lax.fori_loop(0, 60, step, x)


def within(S, x):
    def outer(k, v):
        return S.lax.fori_loop(0, 5, lambda j, v: v.at[j * 20 + k].add(v[j]), v)

    return S.lax.fori_loop(0, 20, outer, x)


def kept(S, x):
    """A loop that changes a copy of an array, which is needed afterwards."""
    def outer(k, v):
        w = S.lax.fori_loop(0, 12, lambda j, w: w.at[j].add(w[j + 1] * 0.5), v)
        return v.at[k].set(w.sum() * 0.1 - v[k + 1])

    return S.lax.fori_loop(0, 19, outer, x)


def sieve(S, x):
    def outer(p, flags):
        step = lambda state: (state[0] + p, state[1].at[state[0]].set(False, mode="drop"))  # noqa: E731
        return S.lax.while_loop(lambda state: state[0] < 200, step, (p * p, flags))[1]

    return S.lax.fori_loop(2, 15, outer, x)


def counted(S, x):
    return S.lax.scan(lambda counts, e: (counts.at[e].add(1), counts[e]), S.jnp.zeros(10, "int32"), x)


def matrices(S, x):
    def step(m, _):
        m = m @ ROTATION
        return m, m[0] + m[2, 1]

    return S.lax.scan(step, x, None, 40)


def vectors(S, x):
    return S.lax.fori_loop(0, 40, lambda i, v: MATRIX @ v + v @ MATRIX, x)


def complex_matrices(S, x):
    return S.lax.fori_loop(0, 20, lambda i, v: (x @ v) * 0.7, x)


def batches(S, x):
    return S.lax.fori_loop(0, 20, lambda i, v: S.jnp.einsum("bij,bjk->bik", v, v) * 0.3 + x, x)


def integer_products(S, x):
    return S.lax.fori_loop(0, 20, lambda i, v: v @ S.jnp.asarray([[1, 1], [1, 0]], "int32") % 1000, x)


ROTATION = np.array([[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]], f32)
MATRIX = (0.2 * floats(4, 4)).astype(f32)
PROGRAMS = {
    "small": (small, floats(16)),
    "smallest": (smallest, floats(3)),
    "large": (large, floats(300)),
    "table": (table, np.fromfunction(lambda i, j: np.where(i == 0, j, np.where(j == 0, i, 0)), (9, 12)).astype(np.int32)),
    "rows": (rows, floats(20, 5)),
    "beyond": (beyond, floats(20)),
    "beyond of many": (beyond, floats(80)),
    "chosen": (chosen, floats(100)),
    "within": (within, floats(100)),
    "kept": (kept, floats(20)),
    "sieve": (sieve, np.ones(200, bool)),
    "counted": (counted, R.randint(0, 10, 60).astype(np.int32)),
    "matrices": (matrices, np.eye(3, dtype=f32)),
    "vectors": (vectors, floats(4)),
    "complex_matrices": (complex_matrices, (floats(2, 2) + 1j * floats(2, 2)).astype(np.complex64)),
    "batches": (batches, 0.3 * floats(2, 2, 2)),
    "integer_products": (integer_products, np.array([[1, 2], [3, 4]], np.int32)),
}


def leaves(S, result):
    return [np.asarray(leaf) for leaf in S.jax.tree_util.tree_leaves(result)]


@pytest.mark.parametrize("donated", [False, True], ids=["", "donated"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_agrees_with_jax(name, donated):
    jax = pytest.importorskip("jax")
    oracle = types.SimpleNamespace(jax=jax, jnp=jax.numpy, lax=jax.lax)
    program, argument = PROGRAMS[name]
    given = ferrax.numpy.array(argument)
    before = lib.stats()[NATIVE]
    got = leaves(FERRAX, ferrax.jit(lambda x: program(FERRAX, x), donate_argnums=0 if donated else ())(given))
    if not donated:
        np.testing.assert_array_equal(np.asarray(given), argument)
    assert lib.stats()[NATIVE] > before or not is_expected()
    for a, b in zip(got, leaves(oracle, jax.jit(lambda x: program(oracle, x))(argument)), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
        else:
            np.testing.assert_array_equal(a, b)
