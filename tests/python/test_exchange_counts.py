"""Collectives over frames, by the steps that MPI does, with processes that are simulated: their results, which have
the same bits for any number of processes, and how many messages and bytes they cost."""

import itertools
import math

import numpy as np
import pytest
from exchange_cases import DTYPES, by_hand, cases, dtype_of, groupings, same_bits, values
from exchange_simulation import collective, simulate

from ferrax._src.parallel import algorithms, folds


def sizes():
    return [(processes, each) for processes in (1, 2, 3, 4, 5, 6, 8) for each in (1, 2, 3, 4)]


@pytest.mark.parametrize("processes, each", sizes())
def test_results(processes, each):
    devices = processes * each
    for (name, groups), dtype in zip(groupings(devices), itertools.cycle(DTYPES)):
        size = None if name == "uneven" else len(groups[0])
        for kind, shape, params in cases(size):
            frames = values((devices, *shape), dtype)
            got, _ = collective(kind, frames, groups, processes, **params)
            same_bits(got, by_hand(kind, frames, groups, **params))


@pytest.mark.parametrize("processes", range(2, 65))
def test_sums_of_any_number_of_processes(processes):
    """Small and large ones, in the bits of one process that has all devices."""
    for length in (3, 5000):
        frames = values((processes, length), "float32", processes)
        got, _ = collective("psum", frames, [range(processes)], processes)
        alone, sent = collective("psum", frames, [range(processes)], 1)
        same_bits(got, alone)
        assert not sent.messages
    parts = values((processes, processes * 2), "bfloat16", processes)
    scattered = {"axis": 0, "tiled": True}
    got, _ = collective("psum_scatter", parts, [range(processes)], processes, **scattered)
    same_bits(got, collective("psum_scatter", parts, [range(processes)], 1, **scattered)[0])


@pytest.mark.parametrize("seed", range(12))
def test_random_groups(seed):
    """Groups that share processes in any way: nobody waits for somebody who waits."""
    rng = np.random.default_rng(seed)
    processes, each = int(rng.integers(2, 9)), int(rng.integers(1, 5))
    devices = processes * each
    size = int(rng.choice([size for size in range(1, devices + 1) if devices % size == 0]))
    groups = rng.permutation(devices).reshape(-1, size).tolist()
    for kind, shape, params in cases(size):
        frames = values((devices, *shape), DTYPES[seed % len(DTYPES)], seed)
        same_bits(collective(kind, frames, groups, processes, **params)[0], by_hand(kind, frames, groups, **params))


def test_zeros_and_nan():
    x = np.array([[0.0, -0.0, np.nan, 1.0] * 9, [-0.0, 0.0, 1.0, np.nan] * 9], np.float32)
    for dtype in ("float32", "bfloat16", "float8_e5m2"):
        frames = x.astype(dtype_of(dtype))
        for kind, sign in (("pmax", False), ("pmin", True)):
            found = collective(kind, frames, [[0, 1]], 2)[0].astype(np.float32)
            assert np.isnan(found[:, 2::4]).all() and np.isnan(found[:, 3::4]).all()
            assert (np.signbit(found[:, ::4]) == sign).all() and (np.signbit(found[:, 1::4]) == sign).all()


def test_groups_are_checked():
    frames = np.zeros((4, 4))
    for groups in ([[0, 1]], [[0, 1], [1, 2], [3]], [[0, 1, 2, 4]]):
        with pytest.raises(ValueError, match="each of the devices 0 to 3 once"):
            collective("psum", frames, groups, 2)
    for kind, shape, params in [
        ("all_gather", (4,), {}),
        ("psum_scatter", (4,), {}),
        ("all_to_all", (4,), {}),
    ]:
        with pytest.raises(ValueError, match="one size"):
            collective(kind, np.zeros((4, *shape)), [[0, 1, 2], [3]], 2, **params)
    with pytest.raises(ValueError, match="of size 4, got shape"):
        collective("psum_scatter", np.zeros((4, 8)), [range(4)], 2)
    with pytest.raises(ValueError, match="that 4 divides"):
        collective("all_to_all", np.zeros((4, 6)), [range(4)], 2, tiled=True)
    for perm in ([(0, 1), (0, 2)], [(0, 1), (2, 1)], [(0, 4)]):
        with pytest.raises(ValueError, match="ppermute"):
            collective("ppermute", np.zeros((4, 6)), [range(4)], 2, perm=perm)
    with pytest.raises(ValueError, match="no collective"):
        collective("sum", frames, [range(4)], 2)


def most(sent):
    return max(sent.messages.values()), max(sent.bytes.values())


@pytest.mark.parametrize("processes", [2, 4, 8, 16, 32, 64, 256, 1024])
def test_costs_where_processes_are_a_power_of_two(processes):
    steps = int(math.log2(processes))
    everybody = [range(processes)]
    one = np.ones((processes, 1))
    assert most(collective("psum", one, everybody, processes)[1]) == (steps, 8 * steps)
    _, sent = simulate([algorithms.barrier(range(processes), me) for me in range(processes)])
    assert most(sent) == (steps, 8 * steps)
    # A megabyte beside which nothing else counts, of elements that all processes get equally many of.
    frames = np.broadcast_to(np.ones(max(processes, 8192), np.float32), (processes, max(processes, 8192)))
    size = frames[0].nbytes
    part = size * (processes - 1) // processes
    assert most(collective("psum", frames, everybody, processes)[1]) == (2 * steps, 2 * part)
    if processes > 256:  # enough of them to see that nothing else grows
        return
    assert most(collective("psum_scatter", frames, everybody, processes, tiled=True)[1]) == (
        steps,
        part,
    )
    share = np.ones((processes, max(8192 // processes, 1)), np.float32)
    gathered = share[0].nbytes * (processes - 1)
    assert most(collective("all_gather", share, everybody, processes, tiled=True)[1]) == (
        steps,
        gathered,
    )
    round_ = [(place, (place + 1) % processes) for place in range(processes)]
    assert most(collective("ppermute", frames, everybody, processes, perm=round_)[1]) == (1, size)
    if processes <= 64:
        assert most(collective("all_to_all", frames, everybody, processes, tiled=True)[1]) == (
            processes - 1,
            part,
        )


@pytest.mark.parametrize("processes", [3, 5, 6, 7, 12, 33, 60])
def test_costs_of_other_numbers(processes):
    steps = math.ceil(math.log2(processes))
    everybody = [range(processes)]
    small = np.ones((processes, 2), np.float32)
    assert most(collective("psum", small, everybody, processes)[1]) == (steps, 8 * (processes - 1))
    frames = np.ones((processes, processes * 2000), np.float32)
    part = frames[0].nbytes * (processes - 1) // processes
    # Each sends its parts to all others, and gets theirs in a logarithm of steps.
    assert most(collective("psum", frames, everybody, processes)[1]) == (
        processes - 1 + steps,
        2 * part,
    )
    assert most(collective("all_gather", small, everybody, processes)[1]) == (
        steps,
        8 * (processes - 1),
    )
    _, sent = simulate([algorithms.barrier(range(processes), me) for me in range(processes)])
    assert most(sent) == (steps, 8 * steps)


def test_devices_of_a_process_are_folded_before_anything_is_sent():
    frames = np.ones((32, 100), np.float32)
    assert most(collective("psum", frames, [range(32)], 4)[1]) == (2, 800)
    # Groups across processes share their messages.
    columns = np.arange(32).reshape(4, 8).T
    assert most(collective("psum", frames, columns, 4)[1]) == (2, 2 * 8 * 400)
    rows = np.arange(32).reshape(4, 8)
    assert not collective("psum", frames, rows, 4)[1].messages
    # What eight devices need is sent once.
    assert most(collective("all_gather", frames, [range(32)], 4)[1]) == (2, 3 * 8 * 400)
    assert most(collective("ppermute", frames, columns, 4, perm=[(0, 1), (1, 2), (2, 3), (3, 0)])[1]) == (1, 8 * 400)
    assert most(collective("all_to_all", np.ones((32, 32)), [range(32)], 4, tiled=True)[1]) == (
        3,
        3 * 8 * 8 * 8,
    )


def test_groups_that_share_some_processes():
    """Process 0 is in two groups whose other processes differ."""
    frames = values((6, 7), "float32")
    groups = [[0, 2, 3], [1, 4, 5]]
    got, sent = collective("psum", frames, groups, 3)
    same_bits(got, by_hand("psum", frames, groups))
    assert sent.messages[0] == 2


def test_everybody_gets_what_one_has():
    for processes in range(1, 34):
        steps = math.ceil(math.log2(processes))
        for root in {0, processes - 1, processes // 2}:
            blocks = [np.full(5, me) for me in range(processes)]
            plans = [algorithms.broadcast(range(processes), me, root, blocks[me]) for me in range(processes)]
            results, sent = simulate(plans)
            assert all((result == root).all() for result in results)
            assert sum(sent.messages.values()) == processes - 1
            assert max(sent.messages.values(), default=0) <= steps
            for size in (0, 3, 64 * processes, 1000):
                memory = [values((size,), "uint8", me) for me in range(processes)]
                expected = memory[root].copy()
                plans = [algorithms.dealt(range(processes), me, root, memory[me]) for me in range(processes)]
                results, sent = simulate(plans)
                assert all(np.array_equal(result, expected) for result in results)
                assert max(sent.messages.values(), default=0) <= 2 * steps
                if size == 64 * processes:
                    assert max(sent.bytes.values(), default=0) == 2 * 64 * (processes - 1)


def test_subtrees():
    assert folds.nodes([0] * 4 + [1] * 4) == [(0, (0, 4)), (1, (4, 8))]
    assert folds.nodes([0, 0, 0, 1, 1, 1]) == [(0, (0, 2)), (0, (2, 3)), (1, (3, 4)), (1, (4, 6))]
    assert folds.nodes([0, 1, 0, 1]) == [(0, (0, 1)), (1, (1, 2)), (0, (2, 3)), (1, (3, 4))]
    assert folds.nodes([2]) == [(2, (0, 1))]


def test_parts_of_a_long_axis_have_the_sum_of_the_whole():
    """Contiguous parts of a power of two terms, each summed in pairs: the bits of all terms in pairs."""
    terms = values((1024,), "float32")
    parts = terms.reshape(8, 128)
    whole = collective("psum", terms[:, None], [range(1024)], 1)[0][0]
    local = np.stack([collective("psum", part[:, None], [range(128)], 1)[0][0] for part in parts])
    same_bits(collective("psum", local, [range(8)], 8)[0][0], whole)
