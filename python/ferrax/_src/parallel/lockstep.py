"""Programs of several devices with memories of their own: a thread for each, which meet where they exchange something.

What goes in is a function for each device, and what does an exchange of all frames; what comes out is what the
functions return. A function that calls `meet` waits until all have, and goes on with its part of the result. The thread
that began does the exchanges itself, so that it alone speaks to other processes and is the one that Ctrl-C reaches.
Cost: a thread for each device, some tens of microseconds, and as much for each exchange.

Invariants: no function waits for one that has ended. The first error ends all of them, each at its next meeting, and is
raised when all have ended.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ferrax._src.base import flags
from ferrax._src.base.errors import JaxRuntimeError

T = TypeVar("T")
# What to do, of which all devices must say the same, and what one of them holds.
Asked = tuple[Any, np.ndarray]


class _Abandoned(Exception):
    """What ends a function that waits, when another one failed."""


class _Thread(threading.local):
    meet: Callable[[Any, np.ndarray], np.ndarray] | None = None


_thread = _Thread()


def meeting() -> Callable[[Any, np.ndarray], np.ndarray] | None:
    """What a function that runs for a device meets the others by: given what to do and what the device holds, it
    returns what it holds then. None elsewhere."""
    return _thread.meet


def run(functions: Sequence[Callable[[], T]], exchange: Callable[[Any, np.ndarray], np.ndarray]) -> list[T]:
    """What functions return that are called at once.

    Args: functions: one for each device; exchange: given what to do, as they say it, and [k, ...], what all hold, in
    their order, it returns what they hold then.

    Errors: the first of any function or exchange; JaxRuntimeError if they do not meet alike.
    """
    count, inbox = len(functions), queue.SimpleQueue[Any]()
    replies = [queue.SimpleQueue[Any]() for _ in functions]
    own = flags.own_values()

    def called(number: int) -> None:
        def meet(what: Any, frame: np.ndarray) -> np.ndarray:
            inbox.put((number, (what, frame), None, None))
            reply = replies[number].get()
            if reply is None:
                raise _Abandoned
            return reply

        try:
            flags.adopt(own)
            _thread.meet = meet
            inbox.put((number, None, functions[number](), None))
        except BaseException as error:
            inbox.put((number, None, None, error))

    for number in range(count):
        threading.Thread(target=called, args=(number,), name=f"device {number}", daemon=True).start()
    results: list[Any] = [None] * count
    waiting: dict[int, Asked] = {}
    ended: set[int] = set()
    failure: BaseException | None = None
    while len(ended) < count:
        try:
            number, asked, result, error = inbox.get()
        except KeyboardInterrupt as interrupt:
            failure = failure or interrupt
        else:
            if asked is not None:
                waiting[number] = asked
            else:
                ended.add(number)
                results[number], failure = result, failure or error
        if failure is None and waiting and len(waiting) + len(ended) == count:
            try:
                frames = _exchanged(waiting, ended, exchange)
            except BaseException as error:
                failure = error
            else:
                for number in range(count):
                    replies[number].put(frames[number])
                waiting.clear()
        if failure is not None:
            for number in waiting:
                replies[number].put(None)
            waiting.clear()
    if failure is not None:
        raise failure
    return results


def _exchanged(waiting: dict[int, Asked], ended: set[int], exchange: Callable[[Any, np.ndarray], np.ndarray]):
    """What all hold after they met."""
    first, _ = next(iter(waiting.values()))
    others = [str(what) for what, _ in waiting.values() if what != first]
    if ended or others:
        also = f"others do {others[0]}" if others else f"{len(ended)} of them have ended"
        raise JaxRuntimeError(
            f"the devices of a program do not do the same: {len(waiting)} wait in {first}, and {also}. Each device "
            "must call the same collectives in the same order, also where it chooses a branch by its own values"
        )
    return exchange(first, np.stack([frame for _, (_, frame) in sorted(waiting.items())]))
