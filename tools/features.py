"""Writes FEATURES.md: which public names of JAX 0.10.2 the package has, module by module.

The names are those of `jax_names.json`. A name counts as present where the same dotted path
resolves in ferrax to something that does more than refuse (`refusals.py`); that it behaves alike is
for the tests to show. What stays out is said in the words of `ferrax.compat`'s errors.
"""

import importlib
import json
import pathlib

from generated import emit
from refusals import refuses

from ferrax._src.compat.absences import INSTEAD

HEAD = """\
# Features

The public names of JAX 0.10.2 and which of them ferrax has: **{present:,} of {total:,}**. Generated
by introspection (`make docs`). A function that only says that it is not supported counts as missing;
how those that are present behave is tested in `tests/`.

| module | present | missing |
|---|---:|---|
"""

OUT = """
What stays out, and what there is instead. Programs run over the devices that a processor plays, and over those of
several processes; not yet over several GPUs.

| name | instead |
|---|---|
"""


# Kept by hand: what `ferrax-gpu` binds to the CPU, and what it refuses.
GPUS = """
## On GPUs

Every operation runs on a GPU. What is not in the table is made of shaders; what is, and callbacks, runs on the CPU, to
which its operands are copied, and its results back: `Device.profile` shows it as such.

| on the CPU | when |
|---|---|
| `sort`, `top_k` | keys of 8 words of 32 bits or more together |
| `cummax`, `cummin`, `cumlogsumexp`, `scatter_min`, `scatter_max` | of complex numbers |
| `fft` | of lengths with a prime factor above 1024 |
| `cholesky`, `lu`, `triangular_solve` | of matrices with more than 256 rows or columns; on Mesa's, 180 |
| `geqrf`, `householder_product`, `ormqr` | of matrices with more than 256 rows or columns; on Mesa's, 110 |
| `eigh`, `eig`, `svd`, `schur`, `hessenberg`, `tridiagonal`, `tridiagonal_solve`, `geqp3` | always |
| reverse-mode derivatives of `while_loop` | always |
| reductions but sums | of complex numbers |

| refused, with NotImplementedError | where |
|---|---|
| kernels over `int2`, `int4`, `uint2`, `uint4`, floats of 8 bits and less | on all GPUs |
| kernels over keys of other generators than Threefry | on all GPUs |
| kernels over `int64`, `uint64` | on GPUs without integers of 64 bits |
| kernels over `float64`, `complex128` | on GPUs without floats of 64 bits, as those of Apple |
| arrays of more than 2^31 elements, or of more bytes than a buffer of the GPU has | on all GPUs |
| a profile of kernels' times | on GPUs without timestamps |

The host waits for the GPU where it decides: once for a chunk of steps of a `while` that is not over a counter, once for
the bounds of a counter, and at each step, or branch, with callbacks, calls on the CPU or much to compute in it.
"""


def owner_of(module: str):
    """The object whose attributes the names of a module of the list are; None without it."""
    path, _, kind = module.partition(" ")
    if path.startswith("jax.Array"):
        array = importlib.import_module("ferrax.numpy").ones(3)
        return array.at[0] if ".at[]" in path else type(array)
    assert not kind, module
    try:
        return importlib.import_module("ferrax" + path.removeprefix("jax"))
    except ModuleNotFoundError:
        return None


# JAX has these names to say that they do nothing there, as they do here.
REFUSED_BY_JAX_TOO = {"jax.numpy": ("fromfile", "fromiter", "load")}


def has(owner, module: str, name: str) -> bool:
    """Whether the module has this name, and it is of use."""
    try:
        value = getattr(owner, name)
    except (AttributeError, ImportError):  # or a module loaded on demand lacks something
        return False
    return name in REFUSED_BY_JAX_TOO.get(module, ()) or not refuses(value)


def main() -> None:
    names = json.loads(
        pathlib.Path(__file__).with_name("jax_names.json").read_text(encoding="utf-8")
    )
    rows, out, present_total, total = [], [], 0, 0
    for module, listed in names.items():
        owner = owner_of(module)
        missing = [name for name in listed if owner is None or not has(owner, module, name)]
        present = len(listed) - len(missing)
        present_total += present
        total += len(listed)
        text = "the module" if owner is None else " ".join(f"`{name}`" for name in missing)
        rows.append(f"| `{module}` | {present} / {len(listed)} | {text} |")
        paths = [module] if owner is None else [f"{module}.{name}" for name in missing]
        reasons = ((path, INSTEAD.get(path) or INSTEAD.get(path.rpartition(".")[0])) for path in paths)
        out += [f"| `{path}` | {reason} |" for path, reason in reasons if reason]
    head = HEAD.format(present=present_total, total=total)
    emit("FEATURES.md", head + "\n".join(rows) + "\n" + OUT + "\n".join(out) + "\n" + GPUS, __doc__)


if __name__ == "__main__":
    main()
