"""Programs over several processes of one machine, beside JAX with as many.

A step of training, the batch divided over two processes, is timed by the step of one process, with as many threads as
there are cores: what dividing costs. ferrax's processes are joined by MPI, JAX's by the sockets of its own service.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import time

import models
import timing
from timing import Library, Row

TITLE = "Several processes"
SECONDS, STEPS = 300, 12
MODELS = {f"step of training ({model.name}), 2 processes, of that in one": model.name for model in models.MODELS}


def _mpiexec() -> str | None:
    return shutil.which("mpiexec", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("mpiexec")


def _seconds(library: str, name: str, processes: int, number: int, port: int) -> float:
    """The median time of a step."""
    jax = importlib.import_module(library)
    jnp = importlib.import_module(f"{library}.numpy")
    if processes > 1:
        if library == "jax":
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
            jax.distributed.initialize(f"localhost:{port}", processes, number)
        else:
            jax.distributed.initialize()
    mesh = jax.make_mesh((processes,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    model = next(model for model in models.MODELS if model.name == name)
    put = lambda tree, *spec: jax.device_put(tree, jax.NamedSharding(mesh, jax.P(*spec)))  # noqa: E731
    zeros = models._map(lambda x: 0 * x, model.parameters)
    state = list(put((model.parameters, zeros, zeros, models.np.float32(0))))
    batch = put((model.inputs, model.labels), "x")
    step = jax.jit(models._step(Library(library, jax, jnp), model))
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        *state[:], _ = jax.block_until_ready(step(*state, *batch))
        times.append(time.perf_counter() - start)
    return statistics.median(times[STEPS // 3 :])


def _ended(started: list[subprocess.Popen]) -> float | None:
    """What the first one printed; None where one failed or does not end."""
    try:
        found = [process.communicate(timeout=SECONDS)[0] for process in started]
    except subprocess.TimeoutExpired:
        return None
    finally:
        for process in started:
            process.kill()
    if any(process.returncode for process in started):
        return None
    # JAX's transport writes lines of its own.
    lines = [line for text in found for line in text.splitlines() if not line.startswith("[")]
    return json.loads(lines[-1]) if lines else None


def _start(library, name, processes, number, port, before=(), **settings) -> subprocess.Popen:
    arguments = [sys.executable, __file__, library, name, str(processes), str(number), str(port)]
    environment = os.environ | {"FERRAX_NUM_CPU_DEVICES": "-1", "XLA_FLAGS": ""} | settings
    return subprocess.Popen(
        [*before, *arguments], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def _over(library, name, processes) -> float | None:
    if processes == 1:
        return _ended([_start(library, name, 1, 0, 0)])
    if library == "ferrax":
        return _ended([_start(library, name, processes, -1, 0, [_mpiexec(), "-n", str(processes)])])
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    return _ended([_start(library, name, processes, number, port) for number in range(processes)])


def _measure(name, found) -> dict[str, float]:
    figures: dict[str, list[float]] = {}
    if _mpiexec() is None:
        return {}
    for _ in range(min(3, timing.most_rounds)):
        for library in found:
            whole, divided = (_over(library, name, processes) for processes in (1, 2))
            if whole is not None and divided is not None:
                figures.setdefault(library, []).append(divided / whole)
    return {library: statistics.median(ratios) for library, ratios in figures.items()}


ROWS = [Row(row, "×", 1.18, functools.partial(_measure, name)) for row, name in MODELS.items()]


if __name__ == "__main__":
    library, name, *numbers = sys.argv[1:]
    processes, number, port = map(int, numbers)
    seconds = _seconds(library, name, processes, number, port)
    if importlib.import_module(library).process_index() == 0:
        print(json.dumps(seconds))
