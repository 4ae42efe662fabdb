"""Derivatives of long attention, which go block of rows by block of rows: here of short rows, in small blocks."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import ferrax
from ferrax._src.nn import attention

B, T, S, N, K, H = 2, 70, 48, 4, 2, 8


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 16 rows, the last of which is short."""
    monkeypatch.setattr(attention, "_BLOCK_BYTES", 16 * B * N * S * 4)
    ferrax.clear_caches()
    yield
    ferrax.clear_caches()


def arrays():
    random = np.random.default_rng(3)
    shapes = [(B, T, N, H), (B, S, K, H), (B, S, K, H), (B, T, N, H)]
    return [random.normal(size=shape).astype(np.float32) for shape in shapes]


def case(name):
    random = np.random.default_rng(5)
    full = random.normal(size=(B, N, T, S)).astype(np.float32)
    lengths = {"query_seq_lengths": np.array([T, 20], np.int32), "key_value_seq_lengths": np.array([9, S], np.int32)}
    return {
        "plain": {},
        "causal": {"is_causal": True},
        "bias": {"bias": full},
        "bias of columns": {"bias": full[:1, :1, :1]},
        "mask": {"mask": full > -0.5},
        "mask of columns": {"mask": full[:, :1, :1] > -0.5},
        "window": {"local_window_size": (5, 3)},
        "lengths": lengths,
        "scale": {"scale": 0.3},
        "all": {"bias": full, "mask": full > -1, "is_causal": True, "local_window_size": 30, **lengths},
    }[name]


NAMES = ["plain", "causal", "bias", "bias of columns", "mask", "mask of columns", "window", "lengths", "scale", "all"]


def answers(lib, options):
    """Value, derivatives in both modes, those of the bias, and a second derivative."""
    q, k, v, ct = arrays()
    bias = options.get("bias")
    options = {name: x for name, x in options.items() if name != "bias"}

    def f(q, k, v, bias):
        return lib.nn.dot_product_attention(q, k, v, bias=bias, **options)

    primals = q, k, v, bias
    out, back = lib.vjp(f, *primals)
    tangents = tuple(None if x is None else np.cos(x) for x in primals)
    forward = lib.jvp(f, primals, tangents)[1]

    def energy(q):
        return lib.numpy.sum(lib.grad(lambda q: lib.numpy.sum(f(q, k, v, bias) ** 2))(q) * ct)

    return out, back(ct), forward, lib.jit(lib.grad(energy))(q)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_give_what_jax_gives(name):
    got, wanted = answers(ferrax, case(name)), answers(jax, case(name))
    got, wanted = ferrax.tree.leaves(got), jax.tree.leaves(wanted)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)


def test_blocks_are_used_and_batched():
    q, k, v, ct = arrays()
    def gradient(lib, q, k, v, ct):
        return lib.vjp(lambda q: lib.nn.dot_product_attention(q, k, v), q)[1](ct)[0]

    assert "scan" in str(ferrax.make_jaxpr(lambda q: gradient(ferrax, q, k, v, ct))(q))
    many = [np.stack([x, 2 * x]) for x in (q, k, v, ct)]
    got = ferrax.jit(ferrax.vmap(lambda *xs: gradient(ferrax, *xs)))(*many)
    wanted = jax.vmap(lambda *xs: gradient(jax, *xs))(*many)
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=2e-4, atol=2e-5)


def test_residuals_and_numbers_that_scale():
    q, k, v, _ = arrays()

    def answer(lib):
        def f(scale):
            out, residual = lib.nn.dot_product_attention(q, k, v, scale=scale, return_residual=True)
            return out.sum() + residual.sum()

        return np.array([float(x) for x in lib.value_and_grad(f)(np.float32(0.4))])

    np.testing.assert_allclose(answer(ferrax), answer(jax), rtol=1e-4)


PEAK = """
import sys
import numpy as np
import ferrax
from ferrax._src.nn import attention

attention._BLOCK_BYTES = 1 << 19
x = [np.ones((1, int(sys.argv[1]), 2, 16), np.float32)] * 4
gradient = ferrax.jit(lambda q, k, v, ct: ferrax.vjp(ferrax.nn.dot_product_attention, q, k, v)[1](ct))
ferrax.block_until_ready(gradient(*x))
print(ferrax.devices()[0].memory_stats()["peak_bytes_in_use"])
"""


def test_memory_grows_with_the_length_and_not_its_square():
    def peak(length):
        run = subprocess.run([sys.executable, "-c", PEAK, str(length)], capture_output=True, text=True, check=True)
        return int(run.stdout)

    assert peak(4096) < 4 * peak(1024)
