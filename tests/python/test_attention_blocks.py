"""Derivatives of products over all pairs of rows, which go block of rows by block of rows: here in small blocks."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import ferrax
from ferrax import _core

B, T, S, N, K, H = 2, 70, 64, 4, 2, 8


@pytest.fixture(autouse=True)
def small_blocks():
    """Blocks of 16 rows, the last of which is short."""
    before = _core.set_block_bytes(16 * B * N * S * 4)
    ferrax.clear_caches()
    yield
    _core.set_block_bytes(before)
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


def assert_close(got, wanted):
    """Beside the largest number of each array: small ones are sums of terms that cancel."""
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5 * np.abs(b).max())


def heads_first(lib, q, k, v):
    weights = lib.nn.softmax(q @ lib.numpy.swapaxes(k, -1, -2) / 3, axis=-1)
    return weights @ v


def by_exponents(lib, q, k, v):
    jnp = lib.numpy
    scores = jnp.einsum("bnth,bnsh->bnts", q, k, precision="highest").astype(jnp.float32)
    e = jnp.exp(scores - lib.lax.stop_gradient(scores.max(-1, keepdims=True)))
    return jnp.einsum("bnts,bnsh->bnth", e / e.sum(-1, keepdims=True), v)


def causal(lib, q, k, v):
    jnp = lib.numpy
    scores = jnp.einsum("bnth,bnsh->bnts", q, k)
    scores = jnp.where(jnp.tril(jnp.ones((T, S), bool)), scores, -jnp.inf)
    return jnp.einsum("bnts,bnsh->bnth", jnp.exp(lib.nn.log_softmax(scores)), v)


def decaying(lib, q, k, v):
    """With a bias of the distance, from one line each, and the logarithms of the sums beside the result."""
    jnp = lib.numpy
    scores = q @ jnp.swapaxes(k, -1, -2) - jnp.abs(jnp.arange(T)[:, None] - jnp.arange(S)) * 0.1
    sums = lib.nn.logsumexp(scores, axis=-1, keepdims=True)
    return jnp.exp(scores - sums) @ v + sums


def keys_first(lib, q, k, v):
    """The axis of the keys is the first of the product."""
    scores = lib.numpy.einsum("bnsh,bnth->bnst", k, q)
    return lib.numpy.einsum("bnst,bnsh->bnth", lib.nn.softmax(scores, axis=2), v)


def kernel(lib, q, k, v):
    """Sums of a kernel of squared distances."""
    squares = (q**2).sum(-1)[..., :, None] + (k**2).sum(-1)[..., None, :]
    return lib.numpy.exp(-0.1 * (squares - 2 * q @ lib.numpy.swapaxes(k, -1, -2))) @ v


def with_weights(lib, q, k, v):
    """The weights are asked for: nothing can be cut."""
    weights = lib.nn.softmax(q @ lib.numpy.swapaxes(k, -1, -2))
    return (weights @ v) * (weights**2).sum((-1, -2), keepdims=True) + weights[..., :1]


WRITTEN_OUT = [heads_first, by_exponents, causal, decaying, keys_first, kernel, with_weights]


@pytest.mark.parametrize("function", WRITTEN_OUT)
def test_written_out_forms(function):
    q, k, v, ct = (np.moveaxis(np.repeat(x, N // x.shape[2], 2), 1, 2) for x in arrays())

    def answers(lib):
        def f(q, k, v):
            return function(lib, q, k, v)

        out, back = lib.vjp(f, q, k, v)
        tangents = np.cos(q), np.cos(k), np.cos(v)

        def energy(k):
            return lib.numpy.sum(lib.grad(lambda k: lib.numpy.sum(f(q, k, v) ** 2))(k) * k)

        forward = lib.jit(lambda *xs: lib.jvp(f, xs, tangents)[1])(q, k, v)
        mapped = lib.vmap(lib.grad(lambda q, k, v: lib.numpy.sum(f(q[None], k[None], v[None]) ** 2)))(q, k, v)
        return out, back(ct), forward, lib.jit(lib.grad(energy))(k), mapped

    got, wanted = ferrax.tree.leaves(answers(ferrax)), jax.tree.leaves(answers(jax))
    assert_close(got, wanted)
    jaxpr = str(ferrax.make_jaxpr(ferrax.grad(lambda q: function(ferrax, q, k, v).sum()))(q))
    assert ("scan" in jaxpr) == (function is not with_weights)


def test_layers_of_a_network_have_a_loop_each():
    q = arrays()[0][0, :S].swapaxes(0, 1)

    def network(lib, x, w):
        for _ in range(3):
            y = lib.nn.gelu(x @ w)
            x = x + heads_first(lib, y[None], x[None], y[None])[0]
        return lib.numpy.mean(x**2)

    w = np.linspace(-1, 1, H * H, dtype=np.float32).reshape(H, H)
    before = _core.set_block_bytes(16 * N * S * 4)
    try:
        got = ferrax.jit(ferrax.grad(lambda *xs: network(ferrax, *xs), (0, 1)))(q, w)
        jaxpr = str(ferrax.make_jaxpr(ferrax.grad(lambda x: network(ferrax, x, w)))(q))
    finally:
        _core.set_block_bytes(before)
    assert jaxpr.count("= scan[") == 6
    assert_close(got, jax.grad(lambda *xs: network(jax, *xs), (0, 1))(q, w))


PEAK = """
import sys
import numpy as np
import ferrax
from ferrax import _core

_core.set_block_bytes(1 << 19)
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
