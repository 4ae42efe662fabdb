"""Timing shared by all benchmarks: rows, interleaved measurement, formatting.

Each library is timed in turn within a round, and the rounds repeat, so that a change in the
machine's load meets all of them alike. A figure is the best round's median.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import statistics
import time
from collections.abc import Callable

LIBRARIES = ("ferrax", "jax")


@dataclasses.dataclass(frozen=True)
class Library:
    """One implementation of the API: the package and its `numpy`."""

    name: str
    jax: object
    jnp: object


def libraries() -> dict[str, Library]:
    """ferrax, and JAX where it is installed."""
    found = {}
    for name in LIBRARIES:
        try:
            package = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        found[name] = Library(name, package, importlib.import_module(f"{name}.numpy"))
    return found


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table.

    `measure` maps the libraries to one figure each (smaller is better); `target` is the
    greatest figure ferrax is meant to have, None where the target is to beat JAX.
    """

    name: str
    unit: str
    target: float | None
    measure: Callable[[dict[str, Library]], dict[str, float]]


SCALES = {"ns": 1e9, "µs": 1e6, "ms": 1e3, "s": 1.0}


def compiled(array, function):
    """Prepares the jitted `function(library, x)` of an array, for `timed`."""

    def prepare(library):
        x = library.jax.device_put(array)
        fun = library.jax.jit(lambda x: function(library, x))
        return lambda: library.jax.block_until_ready(fun(x))

    return prepare


def timed(name, unit, target, prepare, *, rounds=7, sample_seconds=0.02, samples=5, per=1):
    """A row that times the callable `prepare(library)` returns, in calls of enough length."""

    def measure(found):
        calls = {key: prepare(library) for key, library in found.items()}
        inner = {key: _calibrate(call, sample_seconds) for key, call in calls.items()}
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(rounds):
            for key, call in calls.items():
                best[key] = min(best[key], _median_of(call, inner[key], samples))
        return {key: value * SCALES[unit] / per for key, value in best.items()}

    return Row(name, unit, target, measure)


def timed_once(name, unit, target, prepare, *, rounds=5, per=1):
    """A row whose every call is a first call: `prepare(library)` yields a fresh one each time."""

    def measure(found):
        seconds = {key: [] for key in found}
        for _ in range(rounds + 1):
            for key, library in found.items():
                call = prepare(library)
                gc.collect()
                start = time.perf_counter()
                call()
                seconds[key].append(time.perf_counter() - start)
        # The first round pays for what is done once in a process.
        return {k: statistics.median(v[1:]) * SCALES[unit] / per for k, v in seconds.items()}

    return Row(name, unit, target, measure)


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
    results = []
    counter = range(inner)
    for _ in range(samples):
        start = time.perf_counter()
        for _ in counter:
            call()
        results.append((time.perf_counter() - start) / inner)
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
