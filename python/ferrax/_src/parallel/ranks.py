"""What collectives ask of the processes of a program: to exchange memory. MPI is one answer (`mpi.py`).

`current()` is what joins the processes of this program: `Alone` until `distributed.initialize` joined several.
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Sequence
from typing import Any, TypeVar

from ferrax._src.parallel.algorithms import Plan, Step

T = TypeVar("T")


class Call:
    """What processes do together: they must agree on `what`, and each says where in its program (`line`).

    `members` are the processes that it is done with, `digest` stands for `what` in messages. Two processes whose
    digests differ do not do the same.
    """

    __slots__ = ("digest", "line", "members", "what")

    def __init__(self, what: str, line: str | None, members: Sequence[int], detail: Any = "") -> None:
        self.what = what
        self.line = line
        self.members = members
        text = f"{what}\n{detail}".encode()
        self.digest = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def __str__(self) -> str:
        return f"{self.what} at {self.line}" if self.line else self.what


class Ranks(abc.ABC):
    """The processes of a program, of which this is number `process` of `processes`."""

    process: int
    processes: int

    @abc.abstractmethod
    def exchange(self, call: Call, step: Step) -> None:
        """Does a step: returns when all that it names is sent and received.

        Errors: JaxRuntimeError if other processes do something else, or do not answer.
        """

    def run(self, call: Call, plan: Plan[T]) -> T:
        """Does all steps of a plan. Errors: as `exchange`."""
        while True:
            try:
                step = next(plan)
            except StopIteration as ended:
                return ended.value
            if step.sends or step.receives:
                self.exchange(call, step)


class Alone(Ranks):
    """One process, which has nobody to exchange anything with."""

    process = 0
    processes = 1

    def exchange(self, call: Call, step: Step) -> None:
        raise AssertionError(f"{call}: there is one process, and it exchanges nothing")


ALONE = Alone()
_current: Ranks = ALONE


def current() -> Ranks:
    """What joins the processes of this program."""
    return _current


def join(ranks: Ranks | None) -> None:
    """Sets what joins the processes; None: nothing, this one is alone."""
    global _current
    _current = ALONE if ranks is None else ranks
