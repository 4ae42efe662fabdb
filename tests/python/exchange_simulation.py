"""Processes that exchange in one: their plans run step by step, and what they send is counted."""

import collections
from dataclasses import dataclass, field

import numpy as np

from ferrax._src.parallel import exchange


@dataclass
class Sent:
    """What each process sent: messages and bytes."""

    messages: collections.Counter = field(default_factory=collections.Counter)
    bytes: collections.Counter = field(default_factory=collections.Counter)


def simulate(plans):
    """The results of all processes' plans, and what was sent. A process whose messages are missing waits."""
    waiting = collections.defaultdict(collections.deque)
    results, steps, sent = [None] * len(plans), {}, Sent()

    def advance(process):
        try:
            step = next(plans[process])
        except StopIteration as ended:
            results[process] = ended.value
            steps.pop(process, None)
            return
        for peer, memory in step.sends:
            assert peer != process and memory.nbytes and memory.flags.c_contiguous
            waiting[process, peer].append(np.array(memory).reshape(-1).view(np.uint8))
            sent.messages[process] += 1
            sent.bytes[process] += memory.nbytes
        steps[process] = collections.deque(step.receives)

    for process in range(len(plans)):
        advance(process)
    while steps:
        moved = False
        for process in list(steps):
            left = steps[process]
            while left and waiting[left[0][0], process]:
                peer, memory = left.popleft()
                memory.reshape(-1).view(np.uint8)[...] = waiting[peer, process].popleft()
                moved = True
            if not left:
                advance(process)
                moved = True
        assert moved, f"processes wait for each other: {steps}"
    assert not any(waiting.values()), "messages that nobody received"
    return results, sent


def collective(kind, frames, groups, processes, **params):
    """The frames of all devices after a collective, and what processes sent for it."""
    each = len(frames) // processes
    groups = tuple(map(tuple, groups))
    plans = [
        exchange.plan(kind, frames[p * each : (p + 1) * each], groups, p, processes, **params) for p in range(processes)
    ]
    results, sent = simulate(plans)
    return np.concatenate(results), sent
