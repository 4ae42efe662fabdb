"""A step of Optax's Adam for 50 leaves of 64×64, jitted, warm. Run by itself it prints the time of a step
in ms; under `python -m ferrax.compat` the library that it imports as `jax` is ferrax.

As a family of `benches/run.py` its row is each library's own process, in turn.
"""

from __future__ import annotations

import subprocess
import sys

TITLE = "Optax"

LEAVES, ROUNDS = 50, 3


def _step() -> float:
    import time

    import jax
    import numpy as np
    import optax

    values = {f"w{i}": jax.device_put(np.full((64, 64), 0.1 * i, np.float32)) for i in range(LEAVES)}
    adam = optax.adam(1e-3)
    state = adam.init(values)

    @jax.jit
    def step(values, state):
        updates, state = adam.update(values, state, values)
        return optax.apply_updates(values, updates), state

    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(20):
            values, state = step(values, state)
        jax.block_until_ready(values)
        best = min(best, (time.perf_counter() - begin) / 20)
    return best * 1e3


COMMANDS = {"ferrax": [sys.executable, "-m", "ferrax.compat", __file__], "jax": [sys.executable, __file__]}


def _processes(found):
    import optax  # noqa: F401  Without it the row fails here, by the name of what is missing.

    best = dict.fromkeys(found, float("inf"))
    for _ in range(ROUNDS):
        for name in found:
            out = subprocess.run(COMMANDS[name], check=True, capture_output=True, text=True)
            best[name] = min(best[name], float(out.stdout.split()[-1]))
    return best


if __name__ == "__main__":
    print(_step())
else:
    from timing import Row

    ROWS = [Row(f"step of Optax's Adam for {LEAVES} leaves", "ms", None, _processes)]
