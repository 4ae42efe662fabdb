"""Timing shared by all benchmarks: libraries, rows, interleaved measurement, formatting.

Each library is timed in turn within a round, and the rounds repeat, so that a change in the
machine's load meets all of them alike. A figure is the best round's median.

A row's function is written once, over `library.jax` and `library.jnp`, for ferrax and JAX; where
NumPy or PyTorch have a counterpart, the row names it. All of them use as many threads as there are
processors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import importlib
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

LIBRARIES = ("ferrax", "jax")
# Those with functions of their own; a program that compares fewer takes some away.
OTHERS = ("numpy", "torch")
# Seconds for which their threads spin when there is no more work: 0.1 were measured of OpenBLAS. Whoever is measured
# meanwhile has a core less.
OTHERS_SPIN = 0.15


@dataclasses.dataclass(frozen=True)
class Library:
    """One implementation of the API: the package and its `numpy`. NumPy itself has no package."""

    name: str
    jax: Any
    jnp: Any


def libraries() -> dict[str, Library]:
    """ferrax, and JAX where it is installed."""
    # First calls are measured as such, and not what earlier processes left on disk.
    os.environ.setdefault("FERRAX_ENABLE_COMPILATION_CACHE", "0")
    found = {}
    for name in LIBRARIES:
        try:
            package = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        found[name] = Library(name, package, importlib.import_module(f"{name}.numpy"))
    return found


NUMPY = Library("numpy", None, np)


@functools.cache
def torch():
    """PyTorch, or None where it is not installed."""
    try:
        module = importlib.import_module("torch")
    except ModuleNotFoundError:
        return None
    module.set_num_threads(os.cpu_count() or 1)
    module.set_grad_enabled(False)
    return module


def tensor(array):
    """The array of NumPy as PyTorch's, bfloat16 included, which NumPy does not know itself."""
    if array.dtype.name == "bfloat16":
        return torch().from_numpy(array.view(np.int16)).view(torch().bfloat16)
    return torch().from_numpy(np.array(array))


# What the figures of a row are: of calls that were compiled before, of first calls, of first calls
# with a new shape, or something that is not a time.
WARM, FIRST, SHAPE, OTHER = "warm", "first call", "new shape", "other"


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table.

    `measure` maps the libraries to one figure each (smaller is better); `target` is the greatest
    figure ferrax is meant to have, None where it is meant to take `goal` times less than JAX.
    `starts` maps names of libraries to functions without arguments that prepare a call:
    `check.py` runs them once and compares what they return, if libraries must agree (`alike`). `wide`
    rows have 64-bit types.
    """

    name: str
    unit: str
    target: float | None
    measure: Callable[[dict[str, Library]], dict[str, float]]
    goal: float = 1.0
    kind: str = OTHER
    starts: Callable[[dict[str, Library]], dict[str, Callable]] | None = None
    wide: bool = False
    alike: bool = True


SCALES = {"ns": 1e9, "µs": 1e6, "ms": 1e3, "s": 1.0}
# No row is measured in more rounds; `--quick` makes it less.
most_rounds = 1000


def compiled(arrays, function):
    """Prepares the jitted `function(library, *arrays)` of an array or a list of them, for `timed`."""
    arrays = arrays if isinstance(arrays, list) else [arrays]

    def prepare(library):
        values = [library.jax.device_put(array) for array in arrays]
        fun = library.jax.jit(lambda *values: function(library, *values))
        return lambda: library.jax.block_until_ready(fun(*values))

    return prepare


def case(
    name, arrays, function, *, numpy=None, torch=None, unit="µs", wide=False, gradient=False, **more
):
    """A row for the jitted `function(library, *arrays)`, in ferrax and JAX.

    `numpy` is the function of the arrays in NumPy, `torch(t, *tensors)` that of PyTorch, whose module
    is `t`; either is True where `function` itself serves. `wide` rows run with 64-bit types.

    `gradient=k` makes it the derivative of the function by its first k arrays: the last array is
    the cotangent of the result, which the function is not given. NumPy has no counterpart then.
    """
    mine = pulled_back(function, gradient) if gradient else function
    if numpy is True:
        numpy = functools.partial(function, NUMPY)
    others = {}
    if numpy and not gradient:
        others["numpy"] = lambda: functools.partial(numpy, *arrays)
    if torch is True:
        torch = shared(function)
    if torch:
        others["torch"] = lambda: _of_torch(torch, arrays, gradient)
    return timed(name, unit, None, compiled(list(arrays), mine), others=others, wide=wide, **more)


def shared(function):
    """`function(library, *arrays)` of names that PyTorch has too."""
    return lambda t, *tensors: function(Library("torch", None, t), *tensors)


def pulled_back(function, count):
    """The derivative of `function(library, *values)` by its first `count` values, for a cotangent."""

    def run(library, *values):
        *values, cotangent = values
        first, rest = values[:count], values[count:]
        return library.jax.vjp(lambda *first: function(library, *first, *rest), *first)[1](cotangent)

    return run


def _of_torch(function, arrays, gradient):
    module = torch()
    values = [tensor(array) for array in arrays]
    if not gradient:
        return lambda: function(module, *values)
    *values, cotangent = values
    leaves = [value.requires_grad_() for value in values[:gradient]]

    def run():
        with module.enable_grad():
            result = function(module, *values)
        return module.autograd.grad(result, leaves, cotangent)

    return run


def installed(others) -> dict[str, Callable]:
    """Those of the functions, by names of libraries, whose library is there."""
    there = {key for key in OTHERS if key == "numpy" or torch() is not None}
    return {key: start for key, start in others.items() if key in there}


@contextlib.contextmanager
def widths(found, wide):
    """64-bit types in all libraries, if `wide`."""
    with contextlib.ExitStack() as stack:
        for library in found.values() if wide else ():
            stack.enter_context(library.jax.enable_x64(True))
        yield


def timed(
    name, unit, target, prepare, *, others=None, rounds=5, sample_seconds=0.02, samples=3, per=1,
    goal=1.0, wide=False, alike=True,
):  # fmt: skip
    """A row that times the callable `prepare(library)` returns, in calls of enough length.

    `others` maps "numpy" and "torch" to functions without arguments that return such a callable.
    """

    def starts(found):
        mine = {key: functools.partial(prepare, library) for key, library in found.items()}
        return mine | installed(others or {})

    def measure(found):
        with widths(found, wide):
            calls = {key: start() for key, start in starts(found).items()}
            inner = {key: _calibrate(call, sample_seconds) for key, call in calls.items()}
            time.sleep(OTHERS_SPIN)
            best = dict.fromkeys(calls, float("inf"))
            for _ in range(min(rounds, most_rounds)):
                for key, call in calls.items():
                    if 1 < best[key] < float("inf"):
                        continue  # calls of more than a second are measured in one round
                    best[key] = min(best[key], _median_of(call, inner[key], samples))
                    if key in OTHERS:
                        time.sleep(OTHERS_SPIN)
        return {key: value * SCALES[unit] / per for key, value in best.items()}

    return Row(name, unit, target, measure, goal, WARM, starts, wide, alike)


def timed_once(name, unit, target, prepare, *, rounds=5, per=1, goal=1.0):
    """A row whose every call is a first call: `prepare(library)` yields a fresh one each time.

    What the libraries know of programs like it is forgotten before, so that no part of the work is
    found in a cache.
    """

    def measure(found):
        seconds = {key: [] for key in found}
        for _ in range(min(rounds, most_rounds) + 1):
            for key, library in found.items():
                library.jax.clear_caches()
                call = prepare(library)
                gc.collect()
                _settle_allocator()
                seconds[key].append(_seconds_of(call))
        # The first round pays for what is done once in a process.
        return {k: statistics.median(v[1:]) * SCALES[unit] / per for k, v in seconds.items()}

    def starts(found):
        return {key: functools.partial(prepare, library) for key, library in found.items()}

    return Row(name, unit, target, measure, goal, FIRST, starts)


def timed_shapes(name, unit, target, prepare, *, others=None, shapes=201, theirs=13, goal=1.0):
    """A row whose every call has a shape that its function was not called with before.

    `prepare(library, i)` returns the call with the i-th shape; `others` are functions of i. JAX,
    which compiles for each of them, gets `theirs` shapes, the other libraries `shapes`.
    """

    def starts(found):
        mine = {key: functools.partial(prepare, library) for key, library in found.items()}
        return mine | installed(others or {})

    def measure(found):
        every = {key: shapes // theirs if key == "jax" else 1 for key in starts(found)}
        seconds = {key: [] for key in every}
        count = shapes if most_rounds >= 5 else shapes // 4
        for i in range(count):
            for key, start in starts(found).items():
                if i % every[key] == 0:
                    seconds[key].append(_seconds_of(start(i)))
        return {key: statistics.median(v[1:]) * SCALES[unit] for key, v in seconds.items()}

    def first(found):
        return {key: functools.partial(start, 0) for key, start in starts(found).items()}

    return Row(name, unit, target, measure, goal, SHAPE, first)


def _settle_allocator() -> None:
    """What the library before has freed waits in lists of C's allocator, which the next large block puts in order
    (`malloc_consolidate` of glibc): after a compilation of JAX's that takes half a millisecond."""
    bytes(1 << 16)


def _seconds_of(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _calibrate(call, sample_seconds) -> int:
    """How many calls last about `sample_seconds`; warms the call up."""
    call()
    call()
    inner = 1
    while True:
        start = time.perf_counter()
        for _ in range(inner):
            call()
        elapsed = time.perf_counter() - start
        if elapsed >= sample_seconds / 4 or inner >= 1 << 20:
            return max(1, round(inner * sample_seconds / max(elapsed, 1e-9)))
        inner *= 4


def _median_of(call, inner, samples) -> float:
    """The median of samples of `inner` calls each; one sample where a call takes longer than they should.

    Threads of the library before it, which wait for work while they spin, go to sleep first.
    """
    time.sleep(0.002)
    call()
    results = []
    counter = range(inner)
    for _ in range(samples):
        start = time.perf_counter()
        for _ in counter:
            call()
        results.append((time.perf_counter() - start) / inner)
        if results[0] > 0.1:
            break
    return statistics.median(results)


def number(value: float | None) -> str:
    """Three significant digits, without an exponent."""
    if value is None:
        return "—"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"
