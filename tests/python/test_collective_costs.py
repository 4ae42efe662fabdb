"""The table of what collectives cost over many processes (`tools/collective_costs.py`): its counts are what simulated
processes send, and its seconds follow from them."""

import math
import pathlib
import sys
from unittest import mock

import numpy as np
import pytest
from exchange_simulation import collective, simulate

from ferrax._src.parallel import algorithms

with mock.patch.object(sys, "path", [str(pathlib.Path(__file__).parents[2] / "tools"), *sys.path]):
    import collective_costs as costs


def most(sent):
    return max(sent.messages.values(), default=0), max(sent.bytes.values(), default=0)


@pytest.mark.parametrize("ranks", range(2, 65))
def test_counts_are_what_all_processes_send(ranks):
    groups = [range(ranks)]
    around = [(place, (place + 1) % ranks) for place in range(ranks)]
    whole = 32 * ranks * 4  # bytes, which all processes can share evenly
    for kind, sizes, params in [
        ("psum", (8, 400, whole, 40_000), {}),
        ("pbroadcast", (8, 40_000), {}),
        ("all_gather", (4, 4000), {"tiled": True}),
        ("psum_scatter", (whole, 8 * whole), {"tiled": True}),
        ("all_to_all", (whole,), {"tiled": True}),
        ("ppermute", (8, 40_000), {"perm": around}),
    ]:
        for size in sizes:
            frames = np.ones((ranks, size // 4), np.float32)
            _, sent = collective(kind, frames, groups, ranks, **params)
            found = costs.collective(kind, size, ranks, **params)
            messages, size_sent = most(sent)
            assert found.messages == messages, (kind, size)
            # Parts that do not come out even differ by an element, and the table looks at some processes only.
            assert 0 <= size_sent - found.bytes <= (4 * messages if size // 4 % ranks else 0), (kind, size)
    _, sent = simulate([algorithms.barrier(range(ranks), process) for process in range(ranks)])
    assert costs.barrier(ranks)[:2] == most(sent)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_seconds_are_those_of_the_model(ranks):
    """Where all do the same at each step: a latency for each message, and the bytes by the bandwidth."""
    size, steps = 4 * costs.MIB, int(math.log2(ranks))
    part = size * (ranks - 1) // ranks
    for found, messages, sent in [
        (costs.collective("psum", size, ranks), 2 * steps, 2 * part),
        (costs.collective("psum_scatter", size, ranks, tiled=True), steps, part),
        (costs.collective("all_gather", size // ranks, ranks, tiled=True), steps, part),
        (costs.collective("all_to_all", size, ranks, tiled=True), ranks - 1, part),
        (costs.barrier(ranks), steps, 8 * steps),
    ]:
        assert (found.messages, found.bytes) == (messages, sent)
        np.testing.assert_allclose(found.seconds, messages * costs.LATENCY + sent / costs.BANDWIDTH, rtol=1e-12)


def test_a_step_ends_with_the_slowest():
    """A broadcast of little along a tree: some process sends at each step, though most send less than the root."""
    found = costs.collective("pbroadcast", 8, 16)
    assert (found.messages, found.bytes, found.steps) == (4, 32, 4)
    np.testing.assert_allclose(found.seconds, 4 * (costs.LATENCY + 8 / costs.BANDWIDTH), rtol=1e-12)
