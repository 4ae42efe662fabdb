"""Rows for GPUs: ferrax on the GPU that FERRAX_GPU names (any, if it is not set), beside JAX and PyTorch
where these have one.

    python benches/gpu.py            sizes of a discrete GPU
    python benches/gpu.py --small    sizes of a processor that plays one
    python benches/gpu.py --peak 60  and products as parts of a peak of 60 TFLOP/s

Figures are of calls one after the other, of which the last is waited for: the best of several rounds. What a
kernel streams is told as a part of the bandwidth of a copy, `x + 0`, in the same run.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("FERRAX_PLATFORMS", "gpu,cpu")

import numpy as np
from timing import Library, libraries, tensor, torch

ROUNDS, SECONDS = 5, 0.2


@dataclasses.dataclass(frozen=True)
class Case:
    """A jitted function of arrays; what it moves or computes once is told by the second."""

    name: str
    function: Callable
    arrays: list[np.ndarray]
    bytes: int = 0
    operations: int = 0
    kernels: int = 1
    torch: Callable | None = None


def on_gpu(library: Library):
    """The first GPU of a library, or None."""
    try:
        return library.jax.devices("gpu")[0]
    except (RuntimeError, ValueError) as error:
        print(f"{library.name} has no GPU: {str(error).splitlines()[0]}", file=sys.stderr)
        return None


def best(call: Callable, wait: Callable) -> float:
    """Seconds of a call among many that are waited for together."""
    wait(call())
    begin = time.perf_counter()
    wait(call())
    calls = max(1, min(200, int(SECONDS / max(time.perf_counter() - begin, 1e-7))))
    figures = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(calls):
            result = call()
        wait(result)
        figures.append((time.perf_counter() - begin) / calls)
    return min(figures)


def of_jax(library: Library, device, case: Case) -> float:
    arrays = [library.jax.device_put(array, device) for array in case.arrays]
    function = library.jax.jit(lambda *arrays: case.function(library, *arrays))
    return best(lambda: function(*arrays), library.jax.block_until_ready)


def of_torch(case: Case) -> float:
    arrays = [tensor(array).cuda() for array in case.arrays]
    return best(lambda: case.torch(torch(), *arrays), lambda _: torch().cuda.synchronize())


def many_kernels(library: Library, x, y):
    """A hundred products of small matrices, none of which can be one kernel with another."""
    for _ in range(100):
        x = x @ y
    return x


def transformer_loss(library: Library, x, *weights):
    jax, jnp = library.jax, library.jnp
    for wq, wk, wv, wo, up, down in zip(*[iter(weights)] * 6):
        batch, places, width = x.shape
        normed = jax.nn.standardize(x, axis=-1)
        heads = [(normed @ w).reshape(batch, places, -1, 64) for w in (wq, wk, wv)]
        attended = jax.nn.dot_product_attention(*heads, is_causal=True)
        x = x + attended.reshape(batch, places, width) @ wo
        x = x + jax.nn.gelu(jax.nn.standardize(x, axis=-1) @ up) @ down
    return jnp.mean(x * x)


def transformer_step(library: Library, x, *weights):
    gradients = library.jax.grad(lambda weights: transformer_loss(library, x, *weights))(weights)
    return [weight - 0.01 * gradient for weight, gradient in zip(weights, gradients)]


def cases(small: bool) -> list[Case]:
    random = np.random.default_rng(0)

    def normal(*sizes, dtype=np.float32):
        return random.standard_normal(sizes, np.float32).astype(dtype)

    count, side = (1 << 17, 128) if small else (1 << 26, 4096)
    x, rows = normal(count), normal(count // 1024, 1024)
    places = random.integers(0, count // 1024, count // 1024).astype(np.int32)
    width, batch, length, layers = (64, 2, 32, 1) if small else (512, 16, 256, 4)
    weights = [normal(width, width) * width**-0.5 for _ in range(4)]
    weights += [
        normal(width, 4 * width) * width**-0.5,
        normal(4 * width, width) * 0.5 * width**-0.5,
    ]

    def product(size, dtype):
        a, b = normal(size, size, dtype=dtype), normal(size, size, dtype=dtype)
        name = f"product {size} × {size} {np.dtype(dtype).name}"
        function = lambda library, a, b: a @ b  # noqa: E731
        return Case(name, function, [a, b], operations=2 * size**3, torch=lambda t, a, b: a @ b)

    square = normal(128, 128) * 0.1
    return [
        Case("copy", lambda l, x: x + 0, [x], bytes=8 * count, torch=lambda t, x: x + 0),
        Case("x² + 2x", lambda l, x: x * x + 2 * x, [x], bytes=8 * count),
        Case(
            "gelu",
            lambda l, x: l.jax.nn.gelu(x),
            [x],
            bytes=8 * count,
            torch=lambda t, x: t.nn.functional.gelu(x),
        ),
        Case("sum", lambda l, x: x.sum(), [x], bytes=4 * count, torch=lambda t, x: x.sum()),
        Case(
            "sums of rows",
            lambda l, x: x.sum(1),
            [rows],
            bytes=4 * count,
            torch=lambda t, x: x.sum(1),
        ),
        Case(
            "softmax of rows",
            lambda l, x: l.jax.nn.softmax(x),
            [rows],
            bytes=8 * count,
            torch=lambda t, x: t.softmax(x, 1),
        ),
        Case(
            "running sums of rows",
            lambda l, x: l.jnp.cumsum(x, 1),
            [rows],
            bytes=8 * count,
            torch=lambda t, x: t.cumsum(x, 1),
        ),
        Case("sorted rows", lambda l, x: l.jnp.sort(x, 1), [rows], torch=lambda t, x: t.sort(x, 1)),
        Case(
            "rows added at places",
            lambda l, x, i: l.jnp.zeros_like(x).at[i].add(x),
            [rows, places],
            bytes=8 * count,
        ),
        product(side // 4, np.float32),
        product(side, np.float32),
        product(side, np.float16),
        Case("100 kernels, each", many_kernels, [square, square], kernels=100),
        Case(
            "transformer, a training step",
            transformer_step,
            [normal(batch, length, width), *weights * layers],
        ),
    ]


def first_call(library: Library, device) -> float:
    """Seconds of the first call of a small function."""
    jnp = library.jnp
    x = library.jax.device_put(np.ones(100, np.float32), device)
    library.jax.block_until_ready(x)
    begin = time.perf_counter()
    library.jax.block_until_ready(library.jax.jit(lambda x: jnp.tanh(x * 3 + 1).sum())(x))
    return time.perf_counter() - begin


def told(case: Case, seconds: float, bandwidth: float, peak: float | None) -> str:
    """What a figure is beside its time."""
    if case.bytes:
        rate = case.bytes / seconds
        return f"{rate / 1e9:.0f} GB/s, {rate / bandwidth:.0%} of a copy"
    if case.operations:
        rate = case.operations / seconds
        return f"{rate / 1e12:.2f} TFLOP/s" + (
            f", {rate / peak / 1e12:.0%} of the peak" if peak else ""
        )
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--small", action="store_true", help="sizes of a processor that plays a GPU"
    )
    parser.add_argument("--peak", type=float, help="TFLOP/s that products are compared with")
    options = parser.parse_args()
    gpus = {name: (library, on_gpu(library)) for name, library in libraries().items()}
    gpus = {name: pair for name, pair in gpus.items() if pair[1] is not None}
    if "ferrax" not in gpus:
        sys.exit(
            "benches/gpu.py: no GPU. FERRAX_GPU=llvmpipe takes Mesa's software one, where it is installed"
        )
    beside = [name for name in gpus if name != "ferrax"]
    if torch() and torch().cuda.is_available():
        beside.append("torch")
    print(f"{gpus['ferrax'][1].device_kind}\n")
    for name, (library, device) in gpus.items():
        print(f"First call of a small function, {name}: {first_call(library, device) * 1e3:.1f} ms")
    print("\n| | ferrax | " + "".join(f"{name} | ratio | " for name in beside) + "|")
    print("|---|---|" + "---|---|" * len(beside) + "---|")
    bandwidth = None
    for case in cases(options.small):
        figures = {name: of_jax(*pair, case) for name, pair in gpus.items()}
        if "torch" in beside and case.torch:
            figures["torch"] = of_torch(case)
        own = figures["ferrax"]
        bandwidth = bandwidth or case.bytes / own
        line = [case.name, f"{own / case.kernels * 1e6:.1f} µs"]
        for name in beside:
            known = name in figures
            line.append(f"{figures[name] / case.kernels * 1e6:.1f} µs" if known else "")
            line.append(f"{figures[name] / own:.2f}" if known else "")
        print(
            "| " + " | ".join([*line, told(case, own, bandwidth, options.peak)]) + " |", flush=True
        )


if __name__ == "__main__":
    main()
