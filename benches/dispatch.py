"""What a call costs when the arithmetic costs nothing: eager ops and warm jitted calls."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import numpy as np
from timing import LIBRARIES, Row, tensor, timed

TITLE = "Calls and the package"


def _eager(function):
    """`function` of 8 floats, in NumPy and PyTorch."""
    x = np.arange(8, dtype=np.float32)

    def of_torch():
        values = tensor(x)
        return lambda: function(values)

    return {"numpy": lambda: lambda: function(x), "torch": of_torch}


def _eager_add(library):
    x = library.jnp.arange(8, dtype=np.float32)
    return lambda: x + 1


def _item(library):
    x = library.jnp.arange(8, dtype=np.float32)
    return lambda: x[3]


def _set_item(library):
    x = library.jnp.arange(8, dtype=np.float32)
    return lambda: x.at[3].set(1.0)


def _sum(library):
    x = library.jnp.arange(8, dtype=np.float32)
    return lambda: x.sum()


def _reshape(library):
    x = library.jnp.arange(8, dtype=np.float32)
    return lambda: x.reshape(2, 4)


def _stack(library):
    x = library.jnp.arange(8, dtype=np.float32)
    return lambda: library.jnp.stack([x, x])


def _jit_one(library):
    x = library.jnp.arange(8, dtype=np.float32)
    fun = library.jax.jit(lambda x: x + 1)
    return lambda: fun(x)


def _jit_dict(library):
    jnp = library.jnp
    tree = {f"parameter_{i:02}": jnp.full(4, i, np.float32) for i in range(50)}
    fun = library.jax.jit(lambda tree: {key: value + 1 for key, value in tree.items()})
    return lambda: fun(tree)


def _over_a_mesh(library):
    """A mesh of one device, and an array that is on it."""
    sharding = library.jax.sharding
    mesh = sharding.Mesh(library.jax.devices()[:1], ("x",))
    placed = sharding.NamedSharding(mesh, sharding.PartitionSpec("x"))
    return mesh, placed, library.jax.device_put(np.arange(8, dtype=np.float32), placed)


def _jit_shardings(library):
    _, placed, x = _over_a_mesh(library)
    fun = library.jax.jit(lambda x: x + 1, in_shardings=placed, out_shardings=placed)
    return lambda: fun(x)


def _shard_map(library):
    mesh, placed, x = _over_a_mesh(library)
    spec = library.jax.sharding.PartitionSpec
    total = lambda x: library.jax.lax.psum(x, "x")  # noqa: E731
    fun = library.jax.jit(
        library.jax.shard_map(total, mesh=mesh, in_specs=spec("x"), out_specs=spec())
    )
    return lambda: fun(x)


def _pmap(library):
    fun = library.jax.pmap(lambda x: library.jax.lax.psum(x, "i"), axis_name="i")
    x = fun(np.ones((1, 8), np.float32))
    return lambda: fun(x)


def _import_seconds(found):
    """Wall time of `import package` after `import numpy`, each in a fresh process.

    Both packages load from bytecode, as after installation: a cache of the benchmark's own, that
    the first, unmeasured import fills, so neither a checkout nor a setting of the environment
    that forbids writing bytecode makes one of them compile its source.
    """
    code = (
        "import numpy, time; start = time.perf_counter(); import {}; "
        "print(time.perf_counter() - start)"
    )
    seconds = {key: [] for key in found}
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(8):
            for key in found:
                output = subprocess.run(
                    [sys.executable, "-c", code.format(key)],
                    capture_output=True, check=True, text=True, env=environment,
                ).stdout  # fmt: skip
                seconds[key].append(float(output))
    return {key: 1000 * min(v[1:]) for key, v in seconds.items()}


def _module_megabytes(found):
    """Size of the extension module without its symbols."""
    import importlib.util
    import pathlib
    import shutil

    sizes = {}
    for key in LIBRARIES:
        if key not in found:
            continue
        if key == "ferrax":
            path = pathlib.Path(importlib.util.find_spec("ferrax._core").origin)
        else:
            folder = pathlib.Path(importlib.util.find_spec("jaxlib").origin).parent
            path = max(folder.glob("*.so"), key=lambda file: file.stat().st_size)
        with tempfile.TemporaryDirectory() as temporary:
            copy = pathlib.Path(shutil.copy(path, temporary))
            if shutil.which("strip"):
                subprocess.run(["strip", str(copy)], check=True)
            sizes[key] = copy.stat().st_size / 2**20
    return sizes


ROWS = [
    timed("eager `x + 1`, 8 floats", "µs", 1.0, _eager_add, others=_eager(lambda x: x + 1)),
    timed("eager `x[3]`", "µs", 3.0, _item, others=_eager(lambda x: x[3])),
    timed("eager `x.at[3].set(1.)`", "µs", 5.0, _set_item),
    timed("eager `x.sum()`, 8 floats", "µs", None, _sum, others=_eager(lambda x: x.sum())),
    timed("eager `x.reshape(2, 4)`", "µs", None, _reshape,
          others=_eager(lambda x: x.reshape(2, 4))),
    timed("eager `jnp.stack([x, x])`, 8 floats each", "µs", None, _stack),
    timed("warm `jit(f)(x)`", "µs", 1.0, _jit_one),
    timed("warm `jit(f)` of a dict of 50 arrays", "µs", 20.0, _jit_dict),
    timed("warm `jit(f, in_shardings=…, out_shardings=…)(x)`", "µs", None, _jit_shardings),
    timed("warm `jit(shard_map(f))(x)`", "µs", None, _shard_map),
    timed("warm `pmap(f)(x)`", "µs", None, _pmap),
    Row("`import`, beyond NumPy's own", "ms", 80.0, _import_seconds),
    Row("extension module, stripped", "MB", 15.0, _module_megabytes),
]  # fmt: skip
