"""Programs over several devices of the processor, beside JAX with as many.

How many devices there are is said before a library is used, so each library runs in a process of its own, in turn.
JAX has a thread for each device; where there are more of these than cores they may wait for each other for ever, and
JAX ends the process then: such a row has no figure of it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import numpy as np
import timing
from timing import SCALES, WARM, Row

TITLE = "Several devices"
COUNT = 8
SECONDS = 100


def _over(jax, count):
    mesh = jax.make_mesh((count,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    return mesh, lambda *spec: jax.NamedSharding(mesh, jax.P(*spec))


def _psum(jax):
    mesh, on = _over(jax, 4)
    x = jax.device_put(np.ones((4, 1024), np.float32), on("x"))
    run = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P()))
    return lambda: run(x)


def _pmap(jax):
    run = jax.pmap(lambda x: jax.lax.psum(x, "x"), "x", devices=jax.devices()[:4])
    x = run(np.ones((4, 1024), np.float32))
    return lambda: run(x)


def _step(jax, w, x):
    def loss(w):
        return ((jax.numpy.tanh(x @ w[0]) @ w[1]) ** 2).mean()

    return [a - 0.1 * b for a, b in zip(w, jax.grad(loss)(w))]


def _network(rows, width):
    scale = np.float32(width**-0.5)
    w = [np.random.default_rng(n).standard_normal((width, width), np.float32) * scale for n in range(2)]
    return w, np.random.default_rng(2).standard_normal((rows, width), np.float32)


def _whole(jax, rows, width):
    w, x = jax.device_put(_network(rows, width))
    run = jax.jit(lambda w, x: _step(jax, w, x))
    return lambda: run(w, x)


def _divided(jax, rows, width, count=COUNT):
    _, on = _over(jax, count)
    w, x = _network(rows, width)
    w, x = jax.device_put(w, on()), jax.device_put(x, on("x"))
    run = jax.jit(lambda w, x: _step(jax, w, x))
    return lambda: run(w, x)


def _mapped(jax, rows, width, count):
    mesh, on = _over(jax, count)
    w, x = _network(rows, width)
    w, x = jax.device_put(w, on()), jax.device_put(x, on("x"))

    def step(w, x):
        return [jax.lax.pmean(leaf, "x") for leaf in _step(jax, w, x)]

    # Each device takes a step of its own, and the mean is kept.
    own = jax.shard_map(step, mesh=mesh, in_specs=(jax.P(), jax.P("x")), out_specs=jax.P(), check_vma=False)
    run = jax.jit(own)
    return lambda: run(w, x)


PREPARED = {
    "`psum` of 4×1024 floats over 4 devices": _psum,
    "`pmap` of `psum`, 4 devices, 1024 floats": _pmap,
    "step of a small network over 8 devices": lambda jax: _divided(jax, 8, 16),
    "step of a network, 512×256, over 8 devices": lambda jax: _divided(jax, 512, 256),
    "step of a network, 512×256, by `shard_map` over 2 devices": lambda jax: _mapped(jax, 512, 256, 2),
}
# Of the same step: over devices, and whole on one.
PAIRS = {
    "step of a network over 8 devices, of that on one": (
        lambda jax: _divided(jax, 512, 256), lambda jax: _whole(jax, 512, 256),
    ),
}  # fmt: skip


def _seconds(jax, prepare) -> float:
    start = prepare(jax)
    call = lambda: jax.block_until_ready(start())  # noqa: E731
    inner = timing._calibrate(call, 0.02)
    return min(timing._median_of(call, inner, 3) for _ in range(5))


def _in_process(library, name):
    """The figure of a library in a process of its own; None where it does not end."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={COUNT}"
    environment = os.environ | {"FERRAX_NUM_CPU_DEVICES": str(COUNT), "XLA_FLAGS": flags}
    command = [sys.executable, __file__, library, name]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout) if done.returncode == 0 else None


def _measure(name, scale):
    def measure(found):
        figures: dict[str, float] = {}
        for _ in range(min(3, timing.most_rounds)):
            for library in found:
                seconds = _in_process(library, name)
                if seconds is not None:
                    figures[library] = min(figures.get(library, float("inf")), seconds * scale)
        return figures

    return measure


ROWS = [
    *(Row(name, "µs", 10 if "psum" in name else None, _measure(name, SCALES["µs"]), kind=WARM) for name in PREPARED),
    *(Row(name, "×", 1.3, _measure(name, 1)) for name in PAIRS),
]


if __name__ == "__main__":
    jax = importlib.import_module(sys.argv[1])
    importlib.import_module(f"{sys.argv[1]}.numpy")
    if sys.argv[2] in PREPARED:
        print(json.dumps(_seconds(jax, PREPARED[sys.argv[2]])))
    else:
        first, second = (_seconds(jax, prepare) for prepare in PAIRS[sys.argv[2]])
        print(json.dumps(first / second))
