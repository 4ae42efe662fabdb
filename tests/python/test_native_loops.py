"""Small loops that are machine code: programs of all kinds against JAX, and bit by bit against the vector VM."""

import functools
import json
import resource
import types

import numpy as np
import pytest
from machine_code import in_a_process, is_expected

import ferrax
from ferrax import lib

NATIVE = "loop: machine code"
FERRAX = types.SimpleNamespace(jax=ferrax, jnp=ferrax.numpy, lax=ferrax.lax)
R = np.random.RandomState(0)
TABLE = R.standard_normal(300).astype(np.float32)
ROWS = R.standard_normal((40, 5)).astype(np.float32)
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")


def oracle():
    jax = pytest.importorskip("jax")
    return types.SimpleNamespace(jax=jax, jnp=jax.numpy, lax=jax.lax)


def lorenz(S, start):
    def step(state, _):
        x, y, z = state
        state = x + 0.01 * (10.0 * (y - x)), y + 0.01 * (x * (28.0 - z) - y), z + 0.01 * (x * y - 8.0 / 3.0 * z)
        return state, S.jnp.stack(state)

    return S.lax.scan(step, start, None, 60)


def collatz(S, n):
    def step(state):
        n, steps = state
        return S.jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    return S.lax.while_loop(lambda state: state[0] != 1, step, (n, 0))


def bisection(S, target):
    def step(state):
        low, high, count = state
        middle = 0.5 * (low + high)
        smaller = middle * middle * middle < target
        return S.lax.cond(smaller, lambda: (middle, high), lambda: (low, middle)) + (count + 1,)

    return S.lax.while_loop(lambda state: (state[1] - state[0] > 1e-5) & (state[2] < 60), step, (0.0, 8.0, 0))


def switched(S, x):
    branches = [S.jnp.sin, lambda v: v * 0.5, lambda v: v + S.jnp.where(v > 1.0, -1.0, 1.0)]
    return S.lax.fori_loop(0, 50, lambda i, v: S.lax.switch(i % 4, branches, v), x)


def nested(S, x):
    def outer(i, state):
        total, last = state
        inner = lambda j, v: v * 0.9 + S.jnp.float32(i) * 0.01 * j  # noqa: E731
        last = S.lax.fori_loop(0, 7, inner, last)
        return total + last, last

    return S.lax.fori_loop(0, 30, outer, (x, x))


def inner_while(S, x):
    def outer(v, i):
        v = S.lax.while_loop(lambda v: v > 2.0, lambda v: v * 0.5, v + S.jnp.float32(i))
        return v, v

    return S.lax.scan(outer, x, S.jnp.arange(40))


def inner_scan(S, x):
    def outer(v, row):
        v, parts = S.lax.scan(lambda c, e: (c * 0.5 + e, c * e), v, row)
        return v, parts

    return S.lax.scan(outer, x, ROWS)


def backwards(S, x):
    def step(c, row):
        c = c * 0.9 + row[1] - row[3]
        return c, (c, row[::-1], row.sum(), row.max())

    return S.lax.scan(step, x, ROWS, reverse=True)


def looked_up(S, i):
    def step(i, _):
        at = S.jnp.abs(S.jnp.int32(S.jnp.asarray(TABLE)[i] * 100.0)) % 300
        return (i + at) % 300, at

    return S.lax.scan(step, i, None, 50)


def small_vector(S, x):
    def step(v, _):
        v = S.jnp.roll(v, 1) * 0.5 + v / S.jnp.sqrt(1.0 + (v * v).sum())
        return v, S.jnp.argmax(v > 0.3)

    return S.lax.scan(step, x, None, 40)


def swapped(S, x):
    return S.lax.fori_loop(0, 41, lambda i, s: (s[1], s[0] + s[1] * 0.1, s[2]), (x, x * 2.0, ROWS))


def complex_orbit(S, c):
    return S.lax.scan(lambda z, _: (z * z + c, S.jnp.abs(z)), c * 0, None, 40)


def integers(S, dtype, x):
    np_dtype = np.dtype(dtype)
    one = np_dtype.type(1)

    def step(v, e):
        v = v * np_dtype.type(37) + e
        v = v ^ S.lax.shift_right_logical(v, np_dtype.type(3))
        v = S.jnp.where(v > e, v - e, v + one) + S.lax.population_count(v) + S.lax.clz(v)
        quotient = S.lax.div(v, S.jnp.where(e == 0, one, e)) - S.lax.rem(v, S.jnp.where(e == 0, one, e))
        return v, (quotient, S.lax.shift_left(v, e), S.lax.shift_right_arithmetic(v, e), v.astype("float32"), abs(v))

    elements = np.arange(-20, 20).astype(np_dtype)
    return S.lax.scan(step, x, elements)


def conversions(S, x):
    def step(v, e):
        kinds = [(v * e).astype(kind) for kind in INTEGERS + ("bool", "float16")]
        return v * 1.3, (kinds[:-1], S.jnp.minimum(v, e), S.jnp.maximum(v, e), S.jnp.floor(v), S.jnp.round(v), -v)

    return S.lax.scan(step, x, np.array([0.0, -0.0, 1e9, -1e10, np.nan, np.inf, -np.inf, 0.5, 2.5, -1.5] * 4, np.float32))


def functions(S, x):
    def step(v, _):
        parts = [S.jnp.exp(-v), S.jnp.log(v), S.jnp.tanh(v), S.jnp.sin(v), S.jnp.power(v, 1.3), S.lax.rsqrt(v), S.jnp.arctan2(v, 2.0)]
        return v * 1.1 + 0.01, parts

    return S.lax.scan(step, x, None, 60)


def many(S, x):
    """More values than there are registers."""
    def step(vs, e):
        vs = [a * 0.9 + b * e for a, b in zip(vs, vs[1:] + vs[:1])]
        return vs, sum(vs)

    return S.lax.scan(step, [x + i for i in range(40)], ROWS[:, 0])


def generator(S, seed):
    def step(state, _):
        state = state * np.uint32(1664525) + np.uint32(1013904223)
        return state, (state >> np.uint32(9)).astype("float32") / np.float32(1 << 23)

    return S.lax.scan(step, seed, None, 50)


f32 = np.float32
PROGRAMS = {
    "lorenz": (lorenz, (f32(1), f32(1), f32(1))),
    "collatz": (collatz, np.int32(871)),
    "bisection": (bisection, f32(27)),
    "switched": (switched, f32(0.7)),
    "nested": (nested, f32(0.3)),
    "inner_while": (inner_while, f32(1)),
    "inner_scan": (inner_scan, f32(0.2)),
    "backwards": (backwards, f32(0.5)),
    "looked_up": (looked_up, np.int32(3)),
    "small_vector": (small_vector, np.array([0.1, -0.4, 0.9], f32)),
    "swapped": (swapped, f32(0.6)),
    "complex_orbit": (complex_orbit, np.complex64(-0.4 + 0.6j)),
    "conversions": (conversions, f32(0.37)),
    "functions": (functions, f32(0.01)),
    "many": (many, f32(0.25)),
    "generator": (generator, np.uint32(12345)),
    **{f"integers-{dtype}": (functools.partial(integers, dtype=dtype), np.dtype(dtype).type(5)) for dtype in INTEGERS},
}


def run(name, S):
    program, argument = PROGRAMS[name]
    if isinstance(program, functools.partial):
        call = lambda x: program.func(S, program.keywords["dtype"], x)  # noqa: E731
    else:
        call = functools.partial(program, S)
    return [np.asarray(leaf) for leaf in S.jax.tree_util.tree_leaves(S.jax.jit(call)(argument))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_agrees_with_jax(name):
    before = lib.stats()[NATIVE]
    got = run(name, FERRAX)
    assert lib.stats()[NATIVE] > before or not is_expected()
    for a, b in zip(got, run(name, oracle()), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
        else:
            np.testing.assert_array_equal(a, b)


def bits() -> dict:
    """The results of all programs, as text; of what is no number no more than that."""
    canonical = lambda a: np.where(a != a, np.full_like(a, np.nan), a).tobytes().hex()  # noqa: E731
    return {name: [canonical(leaf) for leaf in run(name, FERRAX)] for name in PROGRAMS}


def test_the_vector_machine_gives_the_same_bits():
    code = "import json, test_native_loops as t; print(json.dumps([t.lib.stats()[t.NATIVE], t.bits(), t.lib.stats()[t.NATIVE]]))"
    none, slow, still_none = json.loads(in_a_process(code, FERRAX_CPU="vm").splitlines()[0])
    assert none == still_none == 0
    assert bits() == slow


def test_what_the_variable_may_say():
    said = in_a_process("import ferrax", FERRAX_CPU="sse")
    assert "FERRAX_CPU expected 'avx512', 'avx2' or 'vm', got 'sse'" in said


def test_where_no_memory_is_given_for_code_loops_run_without():
    refused = "loop: no memory for machine code"
    before = lib.stats()[refused]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        for number in range(400 if is_expected() else 3):
            step = lambda v, e, number=number: ([a * f32(number + 2) + e for a in v], e)  # noqa: E731
            result = ferrax.jit(lambda x: ferrax.lax.scan(step, [x] * 12, np.zeros(20, f32))[0])(f32(0))  # noqa: B023
            assert float(result[3]) == 0
            if lib.stats()[refused] > before:
                break
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (lib.stats()[refused] > before) == is_expected()


def test_a_child_of_a_fork_makes_code_of_its_own():
    code = """
import os, numpy as np, ferrax
def made(k):
    f = ferrax.jit(lambda x: ferrax.lax.fori_loop(0, 100, lambda i, v: v * np.float32(0.5) + np.float32(k), x))
    return f, float(f(np.float32(1)))
first, value = made(1)
child = os.fork()
if child == 0:
    assert float(first(np.float32(1))) == value
    for k in range(2, 40):
        assert abs(made(k)[1] - 2 * k) < 1e-3
    os._exit(0)
for k in range(50, 90):
    assert abs(made(k)[1] - 2 * k) < 1e-3
assert os.waitpid(child, 0)[1] == 0
assert float(first(np.float32(1))) == value
print("done", ferrax.lib.stats()["loop: machine code"] > 40 or os.environ.get("FERRAX_CPU"))
"""
    assert "done" in in_a_process(code, FERRAX_PLATFORMS="cpu")  # a GPU refuses to be forked
