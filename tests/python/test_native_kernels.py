"""Kernels whose operations are machine code: programs of all kinds against JAX, and bit by bit against the vector VM."""

import json
import resource
import types

import numpy as np
import pytest
from machine_code import in_a_process, is_expected

import ferrax
from ferrax import lib

MADE, KNOWN, REFUSED = (f"kernel: {what}" for what in ("machine code", "known machine code", "no memory for machine code"))
FERRAX = types.SimpleNamespace(jax=ferrax, jnp=ferrax.numpy, lax=ferrax.lax)
N = 12_345  # no multiple of any number of lanes
R = np.random.RandomState(3)
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3e38, 88.8, -104.0, 0.5, 2.5, 2147483648.0, -2147483649.0]
X, Y = (np.concatenate([np.float32(SPECIAL), (R.standard_normal(N - len(SPECIAL)) * 3).astype(np.float32)]) for _ in "xy")
K = R.randint(-(2**31), 2**31 - 1, N).astype(np.int32)
M = R.rand(N) < 0.5
ROWS = R.standard_normal((150, 83)).astype(np.float32)


def oracle():
    jax = pytest.importorskip("jax")
    return types.SimpleNamespace(jax=jax, jnp=jax.numpy, lax=jax.lax)


def bf16(S, x):
    return x.astype(S.jnp.bfloat16)


def rotated(x, by):
    return (x << by) | (x >> np.uint32(32 - by))


def mixed(S, k):
    u = S.lax.bitcast_convert_type(k, np.uint32)
    for by in (13, 15, 26, 6):
        u = rotated(u + np.uint32(0x9E3779B9), by) ^ u
    return u, k // 2 * 2 == k, abs(k) ^ ~k, S.jnp.minimum(u, u >> 3), S.jnp.clip(k, -1000, 77), k >> 40


def several(S, x, y, m):
    """Results in the middle, truths between, more values than registers."""
    parts = [x * np.float32(i + 1) + y for i in range(24)]
    total = sum(p * q for p, q in zip(parts, reversed(parts), strict=True))
    holds = (x < y) & m | ~(total >= 0)
    return total, holds, S.jnp.where(holds, x, -y), S.jnp.where(m, parts[3], total) - parts[7]


PROGRAMS = {
    "gelu": (lambda S, x: S.jax.nn.gelu(x), X),
    "silu and its gradient": (lambda S, x: S.jax.value_and_grad(lambda x: S.jax.nn.silu(x).sum())(x)[1], X[len(SPECIAL) :]),
    "exp, log, tanh": (lambda S, x, y: (S.jnp.exp(x) + y, S.jnp.log(abs(x)) * y, S.jnp.tanh(x - y), S.jnp.expm1(x) * x), X, Y),
    "inverse functions": (lambda S, x: S.jnp.arctan(x) + S.jnp.arcsinh(x) * S.jnp.cbrt(x) - S.lax.rsqrt(abs(x)), X),
    "bessel": (lambda S, x: S.jax.scipy.special.i0e(x) + S.jax.scipy.special.i1e(x), X),
    "extremes": (lambda S, x, y: (S.jnp.minimum(x, y) - S.jnp.maximum(-x, y), S.jnp.clip(x * y, -1, 1)), X, Y),
    "rounding": (lambda S, x: (S.jnp.floor(x) + S.jnp.ceil(x), S.jnp.round(x) * S.jnp.trunc(x), S.jnp.sign(x) + x), X),
    "integers of floats": (lambda S, x: ((x * 3).astype(np.int32) + 1, (x > 1).astype(np.float32) + x), X),
    "bits": (mixed, K),
    "several": (several, X, Y, M),
    "truths": (lambda S, x, y, m: ((x < y) ^ m, (x == y) | (x != x), S.jnp.isfinite(x) & ~m), X, Y, M),
    "narrow floats": (lambda S, x, y: bf16(S, x) * bf16(S, y) + bf16(S, x), X, Y),
    "rows": (lambda S, a: S.jax.nn.softmax(a * 2, axis=-1) + S.jnp.tanh(a.T).T, ROWS),
    "sums of computed terms": (lambda S, a: ((S.jnp.exp(a) * a + 1).sum(0), (S.jnp.exp(a) * a + 1).sum(1), (a * a + a).sum()), ROWS),
    "strides": (lambda S, a: S.jnp.tanh(a[::2, ::3] * 2 + 1) + S.jnp.exp(a[1::2, ::-3]), ROWS),
    "parts outside": (lambda S, a: S.jnp.tanh(S.jnp.pad(a, 2) * 2 + 1), ROWS),
    "complex": (lambda S, x, y: (lambda z: z * z + z.conj() / (z + 3))(S.lax.complex(x, y)), X[len(SPECIAL) :], Y[len(SPECIAL) :]),
    # What is read backwards keeps the loop from being machine code as a whole.
    "in a loop": (lambda S, a: S.lax.scan(lambda h, r: (S.jnp.tanh(h * 0.5 + r[::-1]) + h, h[:3]), a[0], a), ROWS),
    "indices": (lambda S, a: S.jnp.tril(S.jnp.exp(a) * a + 1, 5), ROWS),
    "random numbers": (lambda S, x: S.jax.random.normal(S.jax.random.key(7), x.shape) * x + x, X[len(SPECIAL) :]),
}
WIDE = {
    "doubles": (lambda S, x, y: (S.jnp.exp(x) * y - S.jnp.log1p(abs(y)), S.jnp.where(x < y, x, -y), S.jnp.minimum(x, y) * 2), X, Y),
    "to doubles and back": (lambda S, x, y: ((x.astype(np.float32) * 2 + 1).astype(np.float64) * y).astype(np.float32) - 1, X, Y),
    "long integers": (lambda S, k: ((k << 3) + 5 ^ (k - 9), (k < 7) & (k != 3), (k + 1).astype(np.int32) * 2), K),
}


def leaves(S, name):
    wide = name in WIDE
    function, *arguments = WIDE[name] if wide else PROGRAMS[name]
    longer = {np.float32: np.float64, np.int32: np.int64}
    if wide:
        arguments = [a.astype(longer.get(a.dtype.type, a.dtype)) for a in arguments]
    with S.jax.enable_x64(wide):
        results = S.jax.jit(lambda *a: function(S, *a))(*arguments)
        return [np.asarray(leaf) for leaf in S.jax.tree_util.tree_leaves(results)]


@pytest.mark.parametrize("name", [*PROGRAMS, *WIDE])
def test_a_program_agrees_with_jax(name):
    before = lib.stats()
    got = leaves(FERRAX, name)
    after = lib.stats()
    assert (after[MADE] > before[MADE] or after[KNOWN] > before[KNOWN]) == is_expected()
    for a, b in zip(got, leaves(oracle(), name), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind in "fcV":
            loose = {"rtol": 2e-2, "atol": 2e-2} if a.dtype.itemsize == 2 else {"rtol": 2e-4, "atol": 2e-5}
            np.testing.assert_allclose(a.astype(complex), b.astype(complex), **loose)
        else:
            np.testing.assert_array_equal(a, b)


def bits() -> dict:
    """The results of all programs, as text; of what is no number no more than that."""

    def canonical(a):
        return (a if a.dtype.kind in "iub" else np.where(a != a, np.full_like(a, np.nan), a)).tobytes().hex()

    return {name: [canonical(leaf) for leaf in leaves(FERRAX, name)] for name in [*PROGRAMS, *WIDE]}


@pytest.mark.parametrize("instead", ["vm", "avx2"])
def test_other_instructions_give_the_same_bits(instead):
    code = "import json, test_native_kernels as t; print(json.dumps([t.bits(), t.lib.stats()[t.MADE]]))"
    if instead == "avx2" and not is_expected():
        instead = ""
    other, made = json.loads(in_a_process(code, FERRAX_CPU=instead).splitlines()[-1])
    assert (made > 0) == (is_expected() and instead != "vm")
    for name, found in bits().items():
        assert found == other[name], name


def test_a_new_shape_makes_no_code():
    f = ferrax.jit(lambda x: ferrax.numpy.tanh(x) * ferrax.numpy.exp(-x) * 0.123 + x)
    before = lib.stats()
    for count in (40_000, 41_003, 50_001):
        f(np.ones(count, np.float32))
    f(np.ones((300, 301), np.float32))
    after = lib.stats()
    assert after[MADE] - before[MADE] == is_expected()
    assert after[KNOWN] - before[KNOWN] == (3 if is_expected() else 0)


def test_where_no_memory_is_given_for_code_kernels_run_without():
    before = lib.stats()[REFUSED]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    x = np.linspace(-3, 3, 50_000, dtype=np.float32)
    try:
        # There may be room in memory that was given before.
        for number in range(400 if is_expected() else 3):
            y = ferrax.jit(lambda x, number=number: FERRAX.jnp.tanh(x) * np.float32(number + 0.5) + x)(x)
            np.testing.assert_allclose(y, np.tanh(x) * np.float32(number + 0.5) + x, rtol=1e-4, atol=1e-5)
            if lib.stats()[REFUSED] > before:
                break
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (lib.stats()[REFUSED] > before) == is_expected()
