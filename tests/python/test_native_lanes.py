"""Loops over vectors that are machine code, of all lengths that end within, at and behind a register: against JAX, and bit by
bit against the vector VM."""

import functools
import json
import types

import numpy as np
import pytest
from machine_code import in_a_process, is_expected

import ferrax
from ferrax import lib

LANES = "loop: vectors in machine code"
FERRAX = types.SimpleNamespace(jax=ferrax, jnp=ferrax.numpy, lax=ferrax.lax)
f32 = np.float32

# Within a register and behind one, more than are values of their own, whole blocks of a sum and a little more, the most.
SIZES = (16, 17, 20, 24, 31, 40, 63, 64, 65, 100, 255, 256, 257, 272, 511, 1000, 1024, 1025)
FEW = (16, 20, 64, 257)


def oracle():
    jax = pytest.importorskip("jax")
    return types.SimpleNamespace(jax=jax, jnp=jax.numpy, lax=jax.lax)


def vector(n, seed=0, dtype=f32):
    return np.random.RandomState(seed).standard_normal(n).astype(dtype)


def affine(S, n):
    return S.lax.fori_loop(0, 40, lambda i, c: c * 0.9 + 0.1, vector(n))


def functions(S, n):
    def step(i, c):
        c = c + 0.01 * S.jnp.tanh(c) - 0.02 * S.jnp.exp(-c * c) + S.jnp.log1p(S.jnp.abs(c)) * 0.001
        return S.jnp.where(c > 0.5, c - 0.1, S.jnp.minimum(c, 2.0)) / S.jnp.sqrt(1.0 + 0.01 * c * c)

    return S.lax.fori_loop(0, 30, step, vector(n))


def doubles(S, n):
    step = lambda i, c: S.jnp.maximum(c * 0.99 + i.astype(c.dtype), -c)  # noqa: E731
    return S.lax.fori_loop(0, 20, step, vector(n, dtype=np.float64))


def integers(S, n):
    def step(i, c):
        c = c * 1664525 + 1013904223 + i
        return c ^ S.lax.shift_right_logical(c, np.int32(13)) | S.jnp.where(c < 0, 1, 2)

    return S.lax.fori_loop(0, 30, step, np.arange(n, dtype=np.int32))


def truths(S, n):
    def step(i, state):
        c, held = state
        held = S.jnp.logical_xor(held, c > S.jnp.float32(i) * 0.1)
        return S.jnp.where(held, c * 0.9, c + 0.1), held

    return S.lax.fori_loop(0, 25, step, (vector(n), np.zeros(n, bool)))


def normalised(S, n):
    return S.lax.fori_loop(0, 30, lambda i, c: (c + 0.1) / (1e-3 + S.jnp.sqrt(S.jnp.sum(c * c))), vector(n))


def sums(S, n):
    def step(c, e):
        c = c * 0.9 + e
        return c, (c.sum(), c.max(), (c - c.mean()).var(), S.jnp.prod(1.0 + 0.01 * c), (c > 0).any(), (c * c).min())

    return S.lax.scan(step, vector(n), vector(20))


def whole_sums(S, n):
    def step(c, _):
        return c * 5 + 3, (c.sum(), c.max(), S.jnp.bitwise_and.reduce(c))

    return S.lax.scan(step, np.arange(n, dtype=np.int32), None, 20)


def softmax(S, n):
    def step(i, c):
        e = S.jnp.exp(c - c.max())
        return e / e.sum() + 0.9 * c

    return S.lax.fori_loop(0, 20, step, vector(n))


def rolled(S, n):
    step = lambda i, c: c + 0.1 * (S.jnp.roll(c, 1) - 2 * c + S.jnp.roll(c, -3))  # noqa: E731
    return S.lax.fori_loop(0, 20, step, vector(n))


def heat(S, n):
    step = lambda i, c: c.at[1:-1].add(0.2 * (c[2:] - 2 * c[1:-1] + c[:-2]))  # noqa: E731
    return S.lax.fori_loop(0, 30, step, vector(n))


def padded(S, n):
    step = lambda i, c: 0.5 * (S.jnp.pad(c, (2, 1), constant_values=0.25)[1:n + 1] + c)  # noqa: E731
    return S.lax.fori_loop(0, 20, step, vector(n))


def counted(S, n):
    def step(i, c):
        return S.jnp.where(S.jnp.arange(n) < i, c * 0.9, c + 0.01 * S.jnp.arange(n, dtype=f32))

    return S.lax.fori_loop(0, 40, step, vector(n))


def swapped(S, n):
    step = lambda i, s: (s[1], s[0] + s[1] * 0.1, s[2], s[4], s[3])  # noqa: E731
    return S.lax.fori_loop(0, 41, step, (vector(n), vector(n, 1), vector(n, 2), vector(n, 3), vector(n, 4)))


def kept(S, n):
    """The former value is needed when the new one is there."""
    def step(c, _):
        new = c * 0.9 + 0.1
        return new, (c[::-1] + new, new[0], c[n - 1])

    return S.lax.scan(step, vector(n), None, 20)


def gone_through(S, n):
    rows, weights = vector(25 * n, 1).reshape(25, n), vector(n, 2)

    def step(c, row):
        c = c * 0.5 + row * weights
        return c, (c * 2.0, row - c, c.sum())

    return S.lax.scan(step, vector(n), rows, reverse=True)


def nested(S, n):
    def outer(c, e):
        c, parts = S.lax.scan(lambda d, k: (d * 0.9 + k * c, d * k), c + e, np.arange(3, dtype=f32))
        return c / (1.0 + S.jnp.abs(c)), parts.sum(0)

    return S.lax.scan(outer, vector(n), vector(20))


def chosen(S, n):
    def step(i, c):
        return S.lax.cond(c.sum() > 0.5, lambda c: c * 0.9, lambda c: S.jnp.flip(c) + 0.1, c)

    return S.lax.fori_loop(0, 30, step, vector(n))


def until(S, n):
    def step(state):
        c, steps = state
        return c * 0.9, steps + 1

    return S.lax.while_loop(lambda state: S.jnp.sum(state[0] ** 2) > 0.1, step, (vector(n), 0))


def table(S, n):
    """Rows and columns, a sum along each."""
    start = vector(4 * n).reshape(4, n)[:, :n // 4 * 2]

    def step(i, c):
        return c * 0.9 + 0.01 * c.sum(1, keepdims=True) - 0.01 * c.mean(0) + S.jnp.arange(4, dtype=f32)[:, None]

    return S.lax.fori_loop(0, 20, step, start)


def stacked(S, n):
    """Rows of an array that one kernel writes."""
    def step(i, c):
        return S.jnp.stack([c[1] * 0.9, c[0] + 0.1, -c[3], c[2] * c[0]]) * 0.9

    return S.lax.fori_loop(0, 20, step, vector(4 * (n // 4)).reshape(4, n // 4))


def joined(S, n):
    """Parts of an array, the last ones first."""
    def step(i, c):
        return S.jnp.concatenate([c[n // 2:] * 0.9, c[3:n // 2] + 0.01, S.jnp.flip(c[:3])])

    return S.lax.fori_loop(0, 20, step, vector(n))


def updated(S, n):
    def step(i, c):
        return (c * 0.99).at[i % n].set(1.0).at[(3 * i) % n].add(c[0])

    return S.lax.fori_loop(0, 30, step, vector(n))


def windows(S, n):
    """Parts that are set, added to, multiplied and bounded, each of another length and begin."""
    def step(i, c):
        c = c.at[1:-1].add(0.1 * c[2:]).at[3:n - 4].multiply(0.9)
        c = c.at[:n // 2].set(c[n - n // 2:] * 0.5)
        return c.at[2:11].min(0.5).at[n - 10:].max(-0.25 * c[0])

    return S.lax.fori_loop(0, 20, step, vector(n))


def windows_beside(S, n):
    """The array that is updated is needed afterwards, and the last result is elsewhere."""
    def step(c, _):
        new = c.at[1:-1].add(0.2 * (c[2:] - 2 * c[1:-1] + c[:-2]))
        return new * 0.99 + 0.01 * c, (new, c[n - 1])

    return S.lax.scan(step, vector(n), None, 20)


def windows_at_computed_places(S, n):
    table = vector(3 * n, 1)

    def step(i, c):
        part = S.lax.dynamic_slice(table, (7 * i,), (n,))
        mine = S.lax.dynamic_slice(c, (i % 5,), (n - 3,))
        return S.lax.dynamic_update_slice(c * 0.9 + part * 0.1, mine, (i % 7,))

    return S.lax.fori_loop(0, 25, step, vector(n))


def windows_that_leave(S, n):
    """What is not wholly inside has no effect."""
    numbers = S.lax.ScatterDimensionNumbers((0,), (), (0,))

    def step(i, c):
        place = S.jnp.stack([i - 9])
        return S.lax.scatter_add(c, place, 0.1 * c[:n - 5], numbers, mode=S.lax.GatherScatterMode.FILL_OR_DROP)

    return S.lax.fori_loop(0, 24, step, vector(n))


def windows_of_rows(S, n):
    """Parts of rows, of whole numbers and of truths, too."""
    start = vector(5 * n).reshape(5, n)

    def step(i, state):
        c, counts, held = state
        c = c.at[1:4, 2:-3].add(0.1 * c[2:, 5:]).at[i % 5].set(c[0] * 0.5)
        return c, counts.at[i % 4, 1:].multiply(3).at[2].add(i), held.at[:, 3:-1].set(held[:, 4:] ^ (c[:2, 3:-1] > 0))

    state = start, np.arange(4 * n, dtype=np.int32).reshape(4, n), np.zeros((2, n), bool)
    return S.lax.fori_loop(0, 20, step, state)


def derivative(S, n):
    def loss(x):
        return S.jnp.sum(S.lax.fori_loop(0, 12, lambda i, c: c - 0.1 * S.jnp.sin(c) * c + 0.1 * S.jnp.tanh(c), x) ** 2)

    return S.jax.value_and_grad(loss)(vector(n))


PROGRAMS = {
    f.__name__: f
    for f in (affine, functions, doubles, integers, truths, normalised, sums, whole_sums, softmax, rolled, heat, padded, counted,
              swapped, kept, gone_through, nested, chosen, until, table, stacked, joined, updated, windows, windows_beside,
              windows_at_computed_places, windows_that_leave, windows_of_rows, derivative)
}
# These are loops of vectors in machine code, whatever else is.
EXPECTED = {"affine", "functions", "doubles", "integers", "truths", "normalised", "sums", "rolled", "counted", "swapped",
            "gone_through", "until"}
# And these, where parts of vectors have as many elements as lanes are made for.
EXPECTED_OF_64 = EXPECTED | {"heat", "windows", "windows_beside", "windows_at_computed_places", "windows_that_leave",
                               "windows_of_rows"}


def run(name, n, S):
    with S.jax.enable_x64(name == "doubles"):
        call = functools.partial(PROGRAMS[name], S, n)
        return [np.asarray(leaf) for leaf in S.jax.tree_util.tree_leaves(S.jax.jit(call)())]


@pytest.mark.parametrize("n", FEW)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_of_vectors_agrees_with_jax(name, n):
    before = lib.stats()[LANES]
    got = run(name, n, FERRAX)
    if (n == 16 and name in EXPECTED) or (n == 64 and name in EXPECTED_OF_64):
        assert lib.stats()[LANES] > before or not is_expected()
    for a, b in zip(got, run(name, n, oracle()), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4 * max(1.0, float(np.abs(b).max())))
        else:
            np.testing.assert_array_equal(a, b)


def bits() -> dict:
    """The results of all programs, as text; of what is no number no more than that."""
    canonical = lambda a: np.where(a != a, np.full_like(a, np.nan), a).tobytes().hex()  # noqa: E731
    return {f"{name} {n}": [canonical(leaf) for leaf in run(name, n, FERRAX)] for name in PROGRAMS for n in SIZES}


def test_the_vector_machine_gives_the_same_bits():
    code = "import json, test_native_lanes as t; print(json.dumps([t.bits(), t.lib.stats()[t.LANES]]))"
    slow, none = json.loads(in_a_process(code, FERRAX_CPU="vm").splitlines()[0])
    assert none == 0
    fast = bits()
    assert [name for name in fast if fast[name] != slow[name]] == []
