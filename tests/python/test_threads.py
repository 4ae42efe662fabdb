"""The number of threads: how it is set, and that no bit of a result depends on it."""

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import _core, lax

RNG = np.random.default_rng(7)
WIDE = RNG.standard_normal((700, 1300)).astype(np.float32)
TALL = RNG.standard_normal((40_000, 9)).astype(np.float32)
LONG = RNG.standard_normal(1_500_000).astype(np.float32)
CUBE = RNG.standard_normal((24, 130, 70)).astype(np.float32)
IMAGES = RNG.standard_normal((8, 33, 37, 6)).astype(np.float32)
FILTERS = RNG.standard_normal((3, 3, 6, 16)).astype(np.float32)
INDICES = RNG.integers(0, 5000, 60_000).astype(np.int32)
SQUARES = RNG.standard_normal((40, 24, 24)).astype(np.float32)


def network(x):
    sizes = [1300, 257, 64, 10]
    key = ferrax.random.key(3)
    params = [0.05 * ferrax.random.normal(key, pair) for pair in zip(sizes, sizes[1:])]

    def loss(params):
        h = x
        for w in params[:-1]:
            h = jnp.tanh(h @ w)
        return -ferrax.nn.log_softmax(h @ params[-1]).mean()

    return ferrax.value_and_grad(loss)(params)


def attention(x):
    q = x[:8, :128, :64].reshape(1, 128, 8, 64)
    return ferrax.grad(lambda q: ferrax.nn.dot_product_attention(q, q, q, is_causal=True).sum())(q)


def convolved(x, f):
    def apply(x, f):
        return lax.conv_general_dilated(x, f, (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    y, pull = ferrax.vjp(apply, x, f)
    return y, pull(jnp.ones_like(y))


PROGRAMS = {
    "sums": (lambda x: (x.sum(), x.sum(0), x.sum(1), x.mean(), x.var(1)), (WIDE,)),
    "sums of a tall array": (lambda x: (x.sum(), x.sum(0), x.sum(1), (x * x).sum(0)), (TALL,)),
    "sums of a cube": (lambda x: (x.sum(1), x.sum((0, 2)), x.sum((1, 2)), x.prod(2)), (CUBE,)),
    "sum of a long vector": (lambda x: (x.sum(), jnp.exp(x).sum(), jnp.linalg.norm(x)), (LONG,)),
    "double sums": (lambda x: x.astype(np.float64).sum(0), (WIDE,)),
    "half sums": (lambda x: x.astype(jnp.bfloat16).sum(1), (WIDE,)),
    "extrema": (lambda x: (x.max(0), x.argmin(1), x.argmax(), jnp.ptp(x)), (WIDE,)),
    "softmax": (lambda x: (ferrax.nn.softmax(x), ferrax.nn.logsumexp(x, 0)), (WIDE,)),
    "layer norm": (lambda x: ferrax.grad(lambda x: (ferrax.nn.standardize(x) ** 3).sum())(x), (WIDE,)),
    "products": (lambda x: (x @ x.T, x.T @ x, x @ x[0], x.astype(jnp.bfloat16) @ x.T), (WIDE,)),
    "products of few columns": (
        lambda x: [x[:m, :k] @ x[:k, :n] for m, n, k in ((70, 20, 600), (130, 60, 700), (20, 90, 600), (66, 65, 601))],
        (WIDE,)),
    "products over long axes": (lambda x: (x.T @ x, jnp.vdot(x, x)), (TALL,)),
    "batched products": (lambda x: x @ x.transpose(0, 2, 1), (CUBE,)),
    "convolutions": (convolved, (IMAGES, FILTERS)),
    "pooling": (lambda x: ferrax.grad(lambda x: (lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") ** 2).sum())(x), (IMAGES,)),
    "running sums": (lambda x: (jnp.cumsum(x, 0), jnp.cumsum(x, 1), lax.cumlogsumexp(x, 1)), (WIDE,)),
    "associative scan": (lambda x: lax.associative_scan(jnp.add, x, axis=1), (WIDE,)),
    "sorting": (lambda x: (jnp.sort(x, 0), jnp.argsort(x), lax.top_k(x, 11)), (WIDE,)),
    "sorting a vector": (lambda x: (jnp.sort(x), lax.top_k(x, 500)), (LONG,)),
    "scatter": (lambda x, i: (jnp.zeros(5000).at[i].add(x[: i.size]), jnp.zeros(5000).at[i].max(x[: i.size])),
                (LONG, INDICES)),
    "segments": (lambda x, i: ferrax.ops.segment_sum(x[: i.size], i, 5000), (LONG, INDICES)),
    "gather": (lambda x, i: ferrax.grad(lambda x: (x[i] ** 2).sum())(x[:5000]), (LONG, INDICES)),
    "random": (lambda x: (ferrax.random.normal(ferrax.random.key(1), (500_001,)) + x[0],
                          ferrax.random.permutation(ferrax.random.key(2), x)), (LONG,)),
    "transforms": (lambda x: (jnp.fft.fft(x), jnp.fft.rfft2(x), jnp.fft.irfft(x, axis=0)), (WIDE,)),
    "factorisations": (lambda x: (jnp.linalg.qr(x), jnp.linalg.inv(x), jnp.linalg.svd(x)), (SQUARES,)),
    "small factorisations": (lambda x: (jnp.linalg.inv(x), lax.linalg.lu(x), jnp.linalg.cholesky(x @ x.mT)),
                             (WIDE[:16, :1024].reshape(16, 32, 32),)),
    "one factorisation": (lambda x: (jnp.linalg.qr(x[:200, :200]), jnp.linalg.solve(x[:200, :200], x[:200])),
                          (WIDE,)),
    "gradient of a network": (network, (WIDE,)),
    "attention": (attention, (CUBE,)),
    "loop": (lambda x: lax.fori_loop(0, 5, lambda i, x: jnp.tanh(x) + x.mean(1, keepdims=True), x), (WIDE,)),
    "transpose": (lambda x: (x.T + 1, x.transpose(2, 0, 1) * 2) if x.ndim == 3 else (x.T + 1,), (CUBE,)),
}  # fmt: skip


def bits(results):
    leaves = ferrax.tree.leaves(results)
    return [(leaf.dtype, leaf.shape, np.asarray(leaf).tobytes()) for leaf in leaves]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_have_the_same_bits_for_any_number_of_threads(name):
    program, arguments = PROGRAMS[name]
    seen = []
    with ferrax.enable_x64():
        for threads in (1, 2, 3, 16):
            with ferrax.num_threads(threads):
                assert _core.num_threads() == threads
                # One executable, and one made under this number.
                seen.append(bits(ferrax.jit(program)(*arguments)))
                ferrax.clear_caches()
                seen.append(bits(ferrax.jit(program)(*arguments)))
    assert all(other == seen[0] for other in seen[1:])


# What work is cut for is fixed for a process.
DIGESTS = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import ferrax
import test_threads
with ferrax.enable_x64():
    for name, (program, arguments) in test_threads.PROGRAMS.items():
        found = test_threads.bits(ferrax.jit(program)(*arguments))
        print(name, hashlib.sha256(repr(found).encode()).hexdigest())
"""


def test_processes_that_cut_work_for_other_numbers_of_threads_get_the_same_bits():
    printed = []
    for threads in ("1", "2", "3", "7"):
        environment = {**os.environ, "FERRAX_NUM_THREADS": threads}
        command = [sys.executable, "-c", DIGESTS, os.path.dirname(__file__)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        printed.append(dict(line.rsplit(" ", 1) for line in done.stdout.splitlines()))
    assert len(printed[0]) == len(PROGRAMS)
    for other in printed[1:]:
        differ = [name for name in PROGRAMS if other[name] != printed[0][name]]
        assert differ == []


def test_setting_and_asking():
    start = _core.num_threads()
    assert ferrax.config.jax_num_threads == start
    with ferrax.num_threads(3):
        assert (ferrax.config.jax_num_threads, _core.num_threads()) == (3, 3)
        with ferrax.num_threads(1):
            assert _core.num_threads() == 1
        assert _core.num_threads() == 3
        # It is this thread's own.
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(_core.num_threads()))
        thread.start()
        thread.join()
        assert elsewhere == [start]
        # None: as at the start.
        with ferrax.num_threads(None):
            assert _core.num_threads() == start
    assert _core.num_threads() == start
    try:
        ferrax.config.update("jax_num_threads", 5)
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(_core.num_threads()))
        thread.start()
        thread.join()
        assert elsewhere == [5] and _core.num_threads() == 5
    finally:
        ferrax.config.update("jax_num_threads", None)
    assert _core.num_threads() == start

    @ferrax.num_threads(2)
    def decorated():
        return _core.num_threads()

    assert decorated() == 2


@pytest.mark.parametrize("value", [0, -1, 1 << 20, "2", 1.5, True])
def test_numbers_that_are_none(value):
    with pytest.raises(ValueError, match="jax_num_threads"):
        ferrax.num_threads(value)


def test_programs_are_not_traced_again():
    f = ferrax.jit(lambda x: jnp.exp(x).sum())
    for threads in (1, 2, 4):
        with ferrax.num_threads(threads):
            f(LONG)
    assert f.stats().traces == 1


def test_one_thread_starts_no_other():
    code = textwrap.dedent("""
        import psutil, ferrax, ferrax.numpy as jnp
        threads = psutil.Process().num_threads
        before = threads()
        with ferrax.num_threads(1):
            jnp.exp(jnp.ones(4_000_000)).sum()
            alone = threads() - before
        with ferrax.num_threads(4):
            jnp.exp(jnp.ones(4_000_000)).sum()
        print(alone, threads() - before)
    """)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "3"]


def test_environment():
    code = "import ferrax; print(ferrax.config.jax_num_threads)"
    environment = {**os.environ, "FERRAX_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3"
    environment["FERRAX_NUM_THREADS"] = "many"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "Invalid value 'many' for the flag jax_num_threads" in done.stderr
