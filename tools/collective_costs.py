"""Writes into docs/devices.md what collectives cost over many processes: messages, bytes and seconds, on paper.

Nothing is measured and nothing is sent. The plans of processes, by which MPI does a collective
(`ferrax._src.parallel.exchange`), are gone through step by step, and what they would send is counted; plans do not
depend on what they receive. Of 1,024 processes those are taken that `typical` names, as others do the same, up
to an element where parts do not come out even; `tests/python/test_collective_costs.py` compares with what all
processes send. Seconds follow from the counts by a model: a process sends one message after another, each takes a
latency and its bytes by the bandwidth, and a step ends for all when it ends for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from generated import ROOT, emit

from ferrax._src.parallel import algorithms, exchange

PAGE = "docs/devices.md"
START, END = "<!-- collectives:start -->\n", "<!-- collectives:end -->\n"
RANKS = 1024
LATENCY, BANDWIDTH = 2e-6, 25e9
MIB = 1 << 20

Plan = algorithms.Plan[Any]


class Cost(NamedTuple):
    """The most that a process sends, and how long all take."""

    messages: int
    bytes: int
    steps: int
    seconds: float


def sent(plan: Plan) -> Iterator[tuple[int, int]]:
    """The messages and bytes that a process sends in each step of its plan."""
    for step in plan:
        for _, memory in step.receives:
            memory[...] = 0  # any value will do, but memory that nobody wrote may hold what is slow to add
        yield len(step.sends), sum(memory.nbytes for _, memory in step.sends)


def typical(ranks: int) -> list[int]:
    """Processes that between them do the most that any does: 0, from which broadcasts go, and some near and far."""
    powers = (1 << bit for bit in range((ranks - 1).bit_length()))
    return sorted({0, *powers, ranks // 3, ranks - 1})


def cost(plan: Callable[[int], Plan], ranks: int) -> Cost:
    """The cost of a collective, of which `plan(p)` is what process p does."""
    messages = size = 0
    steps: list[float] = []
    for process in typical(ranks):
        own = list(sent(plan(process)))
        messages = max(messages, sum(count for count, _ in own))
        size = max(size, sum(count for _, count in own))
        steps += [0.0] * (len(own) - len(steps))
        for number, (count, total) in enumerate(own):
            steps[number] = max(steps[number], count * LATENCY + total / BANDWIDTH)
    return Cost(messages, size, sum(1 for seconds in steps if seconds), sum(steps))


def collective(kind: str, size: int, ranks: int, **params: Any) -> Cost:
    """The cost of a collective of all devices, one in each process, of which each has `size` bytes."""
    groups = (tuple(range(ranks)),)
    frames = np.zeros((1, size // 4), np.float32)
    return cost(lambda process: exchange.plan(kind, frames, groups, process, ranks, **params), ranks)


def barrier(ranks: int) -> Cost:
    return cost(lambda process: algorithms.barrier(range(ranks), process), ranks)


def rows(ranks: int) -> Iterator[tuple[str, str, int, Cost]]:
    """Collectives, what they are of, over how many processes, and their costs."""
    size, odd = 4 * MIB, ranks - 24
    around = [(place, (place + 1) % ranks) for place in range(ranks)]
    yield "`psum`", "8 B", ranks, collective("psum", 8, ranks)
    yield "`psum`", "4 MiB", ranks, collective("psum", size, ranks)
    yield "`psum`", "8 B", odd, collective("psum", 8, odd)
    yield "`psum`", "4 MiB", odd, collective("psum", size, odd)
    yield "`all_gather`", "4 MiB, of 4 KiB each", ranks, collective("all_gather", size // ranks, ranks, tiled=True)
    yield "`psum_scatter`", "4 MiB, to 4 KiB each", ranks, collective("psum_scatter", size, ranks, tiled=True)
    yield "`all_to_all`", "4 MiB, 4 KiB to each", ranks, collective("all_to_all", size, ranks, tiled=True)
    yield "`ppermute`, around a ring", "4 MiB", ranks, collective("ppermute", size, ranks, perm=around)
    yield "`pbroadcast`", "8 B", ranks, collective("pbroadcast", 8, ranks)
    yield "`pbroadcast`", "4 MiB", ranks, collective("pbroadcast", size, ranks)
    yield "barrier", "", ranks, barrier(ranks)


def time_of(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def table(ranks: int) -> str:
    lines = [
        f"With {LATENCY * 1e6:g} µs for a message and {BANDWIDTH / 1e9:g} GB/s:",
        "",
        "| collective | of | processes | messages | bytes | steps | time |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, what, count, (messages, size, steps, seconds) in rows(ranks):
        lines.append(f"| {name} | {what} | {count:,} | {messages:,} | {size:,} | {steps} | {time_of(seconds)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    before, _, rest = (ROOT / PAGE).read_text(encoding="utf-8").partition(START)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{PAGE} must have the lines {START!r} and {END!r}, between which the table is written")
    emit(PAGE, before + START + table(RANKS) + END + after, __doc__)


if __name__ == "__main__":
    main()
