"""How processes exchange memory in a few steps: the algorithms of collectives, as lists of steps.

An algorithm is a generator. Each step that it yields names the memory that this process sends and where it
receives, and it goes on when that is done; what it returns is this process's result. It sees neither time nor a
network, so that MPI (`mpi.py`) and simulations drive the same code. `members` are the numbers of the processes of
a group, `me` is this one's place among them. Messages between two processes arrive in the order in which both name
them; messages of no bytes are left out on both sides. What one sends in its step n is received in step n.

Costs, for P members and S bytes of a process (messages and bytes that each sends):

| function | messages | bytes |
|---|---|---|
| `doubling` (P a power of two) | log2 P | S log2 P |
| `halving`, then `gathered_back` (P a power of two) | 2 log2 P | 2 S (P - 1) / P |
| `all_gather` | ceil(log2 P) | S (P - 1) |
| `routed` | one to each that gets something | what it gets |
| `broadcast` | at most ceil(log2 P) | S each |
| `dealt` | at most 2 ceil(log2 P) | 2 S (P - 1) / P of the root, at most 3/4 of it of others |
| `barrier` | ceil(log2 P) | 8 each |

Sources: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005);
Bruck et al., "Efficient algorithms for all-to-all communications" (1997). Distances grow from 1 while blocks are
halved, which makes sums in adjacent pairs, the order that `exchange.py` promises.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

Message = tuple[int, np.ndarray]
# Two values to one, into the memory of the third: the first is of the members before those of the second.
Fold = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
T = TypeVar("T")


class Step(NamedTuple):
    """Memory to send, by process, and where to receive, by process."""

    sends: list[Message]
    receives: list[Message]


Plan = Generator[Step, None, T]

# How many processes `routed` sends to at a time: more requests than that wait in no order.
ROUTES = 32


def _filled(messages) -> list[Message]:
    return [(process, memory) for process, memory in messages if memory.nbytes]


def doubling(members: Sequence[int], me: int, block: np.ndarray, fold: Fold) -> Plan[np.ndarray]:
    """The fold of all blocks, in each process: recursive doubling. `block` is not changed."""
    distance = 1
    while distance < len(members):
        peer = me ^ distance
        other = np.empty_like(block)
        yield Step(_filled([(members[peer], block)]), _filled([(members[peer], other)]))
        block = fold(block, other, other) if me < peer else fold(other, block, other)
        distance *= 2
    return block


def halving(
    members: Sequence[int], me: int, block: np.ndarray, fold: Fold
) -> Plan[tuple[np.ndarray, list[tuple[int, int, int]]]]:
    """This process's part of the fold of all blocks of one axis: recursive halving. `block` is not changed.

    Returns the part, and the ranges that were halved: peer, start, stop, the last one the part's own.
    """
    low, high = 0, block.size
    halved = []
    distance = 1
    while distance < len(members):
        peer = me ^ distance
        middle = (high - low) // 2
        first, second = block[:middle], block[middle:]
        kept, given = (first, second) if me < peer else (second, first)
        other = np.empty_like(kept)
        yield Step(_filled([(members[peer], given)]), _filled([(members[peer], other)]))
        block = fold(kept, other, other) if me < peer else fold(other, kept, other)
        halved.append((peer, low, high))
        low, high = (low, low + middle) if me < peer else (low + middle, high)
        distance *= 2
    return block, [*halved, (me, low, high)]


def gathered_back(
    members: Sequence[int], part: np.ndarray, size: int, halved: list[tuple[int, int, int]]
) -> Plan[np.ndarray]:
    """All parts that `halving` left, in their order, in each process."""
    whole = np.empty(size, part.dtype)
    _, low, high = halved[-1]
    whole[low:high] = part
    for peer, start, stop in reversed(halved[:-1]):
        theirs = whole[start:low] if low > start else whole[high:stop]
        mine = whole[low:high]
        yield Step(_filled([(members[peer], mine)]), _filled([(members[peer], theirs)]))
        low, high = start, stop
    return whole


def all_gather(members: Sequence[int], me: int, block: np.ndarray, sizes: Sequence[int]) -> Plan[np.ndarray]:
    """The bytes of all members, in each process, in the order of members; `sizes` are how many each has."""
    count = len(members)
    ends = [0, *np.cumsum(sizes).tolist()]
    whole = np.empty(ends[-1], np.uint8)
    if count & (count - 1) == 0:
        whole[ends[me] : ends[me + 1]] = block
        distance = 1
        while distance < count:
            peer = me ^ distance
            # Runs of `distance` members, mine and those that the peer has.
            mine, theirs = (first - first % distance for first in (me, peer))
            yield Step(
                _filled([(members[peer], whole[ends[mine] : ends[mine + distance]])]),
                _filled([(members[peer], whole[ends[theirs] : ends[theirs + distance]])]),
            )
            distance *= 2
        return whole
    # Members from this one on, in a circle, so that what is sent is one piece.
    order = [(me + place) % count for place in range(count)]
    starts = [0, *np.cumsum([sizes[place] for place in order]).tolist()]
    circle = np.empty(ends[-1], np.uint8)
    circle[: starts[1]] = block
    have = 1
    while have < count:
        passed = min(have, count - have)
        sent, received = circle[: starts[passed]], circle[starts[have] : starts[have + passed]]
        yield Step(
            _filled([(members[(me - have) % count], sent)]),
            _filled([(members[(me + have) % count], received)]),
        )
        have += passed
    first = starts[count - me]
    whole[ends[me] :], whole[: ends[me]] = circle[:first], circle[first:]
    return whole


def cut(whole: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """The blocks of so many bytes that lie one after the other."""
    ends = [0, *np.cumsum(sizes).tolist()]
    return [whole[start:stop] for start, stop in zip(ends, ends[1:])]


def routed(
    process: int,
    processes: int,
    sends: Mapping[int, np.ndarray],
    receives: Mapping[int, np.ndarray],
) -> Plan[None]:
    """Each process sends to some and receives from some, directly; a few at a time, by their distance."""

    def near(messages, first, sign):
        distance = {peer: sign * (peer - process) % processes for peer in messages}
        chosen = [peer for peer in messages if first <= distance[peer] < first + ROUTES]
        return _filled([(peer, messages[peer]) for peer in sorted(chosen, key=distance.__getitem__)])

    for first in range(0, processes, ROUTES):
        yield Step(near(sends, first, 1), near(receives, first, -1))


def broadcast(members: Sequence[int], me: int, root: int, block: np.ndarray) -> Plan[np.ndarray]:
    """The block of the member at place `root`, in each process: along a binomial tree. Others' is overwritten."""
    count = len(members)
    place = (me - root) % count
    distance = 1 << (count - 1).bit_length() >> 1
    while distance:
        step = Step([], [])
        if place % (2 * distance) == 0 and place + distance < count:
            step.sends.extend(_filled([(members[(me + distance) % count], block)]))
        elif place % (2 * distance) == distance:
            step.receives.extend(_filled([(members[(me - distance) % count], block)]))
        yield step
        distance //= 2
    return block


def dealt(members: Sequence[int], me: int, root: int, block: np.ndarray) -> Plan[np.ndarray]:
    """As `broadcast`, of bytes: each member is given a part, along the same tree, and all gather the parts."""
    count = len(members)
    circle = [*members[root:], *members[:root]]
    place = (me - root) % count
    ends = [block.size * other // count for other in range(count + 1)]
    distance = 1 << (count - 1).bit_length() >> 1
    while distance:
        step = Step([], [])
        # Who has the parts of 2 * distance members gives those of the second half to the first of these.
        if place % (2 * distance) == 0 and place + distance < count:
            given = block[ends[place + distance] : ends[min(place + 2 * distance, count)]]
            step.sends.extend(_filled([(circle[place + distance], given)]))
        elif place % (2 * distance) == distance:
            got = block[ends[place] : ends[min(place + distance, count)]]
            step.receives.extend(_filled([(circle[place - distance], got)]))
        yield step
        distance //= 2
    sizes = [stop - start for start, stop in zip(ends, ends[1:])]
    whole = yield from all_gather(circle, place, block[ends[place] : ends[place + 1]], sizes)
    if place:
        block[...] = whole
    return block


def barrier(members: Sequence[int], me: int) -> Plan[None]:
    """Ends when all members have begun: by dissemination."""
    token, other = np.zeros(1, np.uint64), np.empty(1, np.uint64)
    distance = 1
    while distance < len(members):
        before, after = (
            members[(me - distance) % len(members)],
            members[(me + distance) % len(members)],
        )
        yield Step([(after, token)], [(before, other)])
        distance *= 2


def together(plans: Sequence[Plan[Any]]) -> Plan[list[Any]]:
    """Plans of one process side by side: their first steps at once, then their second ones.

    This cannot block if all processes have the plans that they share in one order, and messages are sent and received
    in steps of one number, as those of all plans here: steps with nothing to do count.
    """
    if len(plans) == 1:
        return [(yield from plans[0])]
    results: list[Any] = [None] * len(plans)
    live = dict(enumerate(plans))
    while live:
        sends, receives = [], []
        for number, plan in list(live.items()):
            try:
                step = next(plan)
            except StopIteration as ended:
                results[number] = ended.value
                del live[number]
            else:
                sends += step.sends
                receives += step.receives
        if live:
            yield Step(sends, receives)
    return results
