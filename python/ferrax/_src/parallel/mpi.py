"""Processes joined by MPI, through mpi4py. MPI moves bytes; what they mean, and all sums, are of `exchange.py`.

No call of MPI blocks: receives are posted first, then sends, and the thread asks MPI whether they are done: without
pause at first, then it sleeps between, so that processes that share a core, signals and other threads go on. Messages
are of a communicator of our own.

Each message begins with 16 bytes: what the sender is doing (a digest), the message's number between the two
processes, and whether the memory follows as a message of its own, which large memory does. So whatever arrives can be
told from what was expected; large memory is only then received, where the result belongs, and no other ever is. A
process that meets another call says so to the others and raises, and so do they; it is of no use for exchanges any
more. One that waits for long tells its peers, so that each knows who is missing when its time is over, and at once if
that one has ended.

Cost: for a message to a process on the same machine about 10 µs, and the memory's copy.
"""

from __future__ import annotations

import atexit
import json
import os
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ferrax._src.base.errors import JaxRuntimeError
from ferrax._src.parallel.algorithms import Step, all_gather
from ferrax._src.parallel.ranks import Call, Ranks

# Memory of at most so many bytes travels with its header.
INLINE = 16 << 10
# Counts in MPI may be numbers of 32 bits.
LONGEST_MESSAGE = 1 << 30
HEADER = struct.Struct("<QII")
# Tags: headers, what processes say of their waiting and failing, and from MEMORY on, by the number of the message,
# memory that follows its header. MPI promises 32,767 of them.
HEADERS, NEWS, MEMORY, NUMBERED = 1, 2, 3, 16384
# Seconds: how long a wait asks without pause, for how long it then only lets others have the core between, and how
# long it sleeps between after that. Memory moves while MPI is asked, so waits for much of it sleep later, and not at
# all where its sender is known to be there.
SPIN, LIVELY, SHORTEST, LONGEST = 50e-6, 300e-6, 50e-6, 500e-6
LIVELY_PER_BYTE = 1 / 5e8
# Where processes do not agree, how long each waits for what the others say of where they are.
GRACE = 0.5
# How long a process that failed waits for others to print their errors before it ends them.
PARTING = 3.0
# How long what was printed takes through the program that started processes.
FORWARDING = 0.2


def _bytes(memory: np.ndarray) -> np.ndarray:
    return memory.reshape(-1).view(np.uint8)


def _pieces(memory: np.ndarray) -> list[np.ndarray]:
    """The memory in messages that every MPI takes."""
    whole = _bytes(memory)
    return [whole[start : start + LONGEST_MESSAGE] for start in range(0, whole.size, LONGEST_MESSAGE)]


def _named(processes) -> str:
    listed = sorted(processes)
    some = ", ".join(map(str, listed[:20])) + (", …" if len(listed) > 20 else "")
    return f"process {some}" if len(listed) == 1 else f"processes {some}"


class MpiRanks(Ranks):
    """The processes that MPI started together.

    Args: MPI: the module `mpi4py.MPI`; timeout: the seconds after which a wait is an error.
    """

    def __init__(self, MPI: Any, timeout: float) -> None:
        self.mpi = MPI
        self.timeout = timeout
        self._comm = MPI.COMM_WORLD.Dup()
        self.process = self._comm.Get_rank()
        self.processes = self._comm.Get_size()
        self.store_comm = MPI.COMM_WORLD.Dup()
        here = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_process, self.local_processes = here.Get_rank(), here.Get_size()
        here.Free()
        self._crowded = (
            self.local_processes > len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else True
        )
        self._lock = threading.Lock()
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()
        self._staging: list[np.ndarray] = []
        # Requests that nobody waits for, with their memory: of news, and (True) all of an exchange that failed.
        self._unwatched: list[tuple[Any, Any, bool]] = []
        self.broken = ""
        # What is done when all processes end.
        self.at_end: list[Callable[[], None]] = []
        atexit.register(self._end)
        # What others said: by process, of the call in which it waits (digest and number of news); of failing.
        self._waiting: dict[int, int] = {}
        self._failed: dict[int, dict[str, str]] = {}
        self._over: set[int] = set()
        self._ended: set[int] = set()
        self._last: Call | None = None

    def exchange(self, call: Call, step: Step) -> None:
        with self._lock:
            if self.broken:
                raise JaxRuntimeError(f"{call}: processes exchange nothing any more, since this failed: {self.broken}")
            try:
                _Exchange(self, call, step).done()
            except BaseException as error:
                if isinstance(error, JaxRuntimeError):
                    self._last = call
                self.broken = self.broken or f"{type(error).__name__} in {call}"
                raise

    def counts(self, number: int) -> list[int]:
        """The numbers that all processes give, in each."""
        everybody = range(self.processes)
        call = Call("distributed.initialize", "", everybody)
        mine = np.array([number], np.int64).view(np.uint8)
        found = self.run(call, all_gather(everybody, self.process, mine, [mine.nbytes] * self.processes))
        return found.view(np.int64).tolist()

    def tell(self, call: Call, kind: str, text: str = "", to: Sequence[int] | None = None) -> None:
        """News to all processes that a call is done with, or to some."""
        self._unwatched = [entry for entry in self._unwatched if entry[2] or not entry[0].Test()]
        news = {"kind": kind, "digest": call.digest, "call": str(call), "text": text[:2000]}
        memory = json.dumps(news).encode()
        for process in call.members if to is None else to:
            if process != self.process:
                self._unwatched.append((self._comm.Isend([memory, self.mpi.BYTE], process, NEWS), memory, False))

    def hear(self) -> None:
        """Reads the news that are there."""
        status = self.mpi.Status()
        while True:
            message = self._comm.Improbe(self.mpi.ANY_SOURCE, NEWS, status)
            if message is None:
                return
            memory = bytearray(status.Get_count(self.mpi.BYTE))
            message.Recv([memory, self.mpi.BYTE])
            news = json.loads(memory)
            process = status.Get_source()
            if news["kind"] == "failed":
                self._failed[process] = news
            elif news["kind"] == "waiting":
                self._waiting[process] = news["digest"]
            else:
                (self._ended if news["kind"] == "ended" else self._over).add(process)

    def part(self) -> None:
        """After an exchange that failed, waits shortly until the others printed what they have to say of it."""
        if self._last is None:
            return
        others = [process for process in self._last.members if process != self.process][:64]
        self.tell(self._last, "over", to=others)
        end = time.perf_counter() + PARTING
        while time.perf_counter() < end and not self._over.issuperset(others):
            self.hear()
            time.sleep(LONGEST)

    def _end(self) -> None:
        """Waits for the others, which may still ask this one for something, as MPI would, and ends what runs."""
        ended = self.store_comm.Ibarrier()
        call = Call("the end of the program", "", ())
        while not ended.Test():
            self.hear()
            # Who still waits for this process waits in vain.
            self.tell(call, "ended", to=list(self._waiting))
            self._waiting.clear()
            time.sleep(LONGEST)
        for end in self.at_end:
            end()

    def abort(self) -> NoReturn:
        """Ends all processes."""
        self.mpi.COMM_WORLD.Abort(1)
        raise SystemExit(1)


class _Exchange:
    """One step: its messages on the way."""

    def __init__(self, ranks: MpiRanks, call: Call, step: Step) -> None:
        self.ranks, self.call = ranks, call
        # Of each request: None for sends and memory; for headers the process, the number, where what follows belongs,
        # and where the header is.
        self.requests: list[Any] = []
        self.about: list[tuple[int, int, np.ndarray, np.ndarray] | None] = []
        # By request, from whom it is.
        self.missing: dict[int, int] = {}
        self.large = 0
        # Requests of memory whose header is there, so that its sender is.
        self.coming: set[int] = set()
        self.kept: list[Any] = []
        # When it was first known that a process that this one waits for has ended.
        self.without = 0.0
        comm, byte = ranks._comm, ranks.mpi.BYTE
        for process, memory in step.receives:
            staging = ranks._staging.pop() if ranks._staging else np.empty(HEADER.size + INLINE, np.uint8)
            number = ranks._received[process] & 0xFFFFFFFF
            ranks._received[process] += 1
            self._add(comm.Irecv([staging, byte], process, HEADERS), process, (process, number, memory, staging))
            if memory.nbytes > INLINE:
                self.large += memory.nbytes
        for process, memory in step.sends:
            number = ranks._sent[process] & 0xFFFFFFFF
            header = HEADER.pack(call.digest, number, memory.nbytes > INLINE)
            ranks._sent[process] += 1
            packed = header if memory.nbytes > INLINE else header + _bytes(memory).tobytes()
            self.kept.append(packed)
            self._add(comm.Isend([packed, byte], process, HEADERS))
            if memory.nbytes > INLINE:
                for piece in _pieces(memory):
                    self._add(comm.Isend([piece, byte], process, MEMORY + number % NUMBERED))
                self.large += memory.nbytes

    def _add(self, request, source: int | None = None, about=None) -> None:
        if source is not None:
            self.missing[len(self.requests)] = source
        self.requests.append(request)
        self.about.append(about)

    def done(self) -> None:
        """Returns when all has arrived. Errors: JaxRuntimeError; KeyboardInterrupt and what signals else raise."""
        testsome = self.ranks.mpi.Request.Testsome
        begin = time.perf_counter()
        spin, pause = begin + SPIN, SHORTEST
        lively = begin + LIVELY + self.large * LIVELY_PER_BYTE
        told = begin + self.ranks.timeout / 10
        end = begin + self.ranks.timeout
        completed = 0
        try:
            while completed < len(self.requests):
                try:
                    arrived = testsome(self.requests)
                except self.ranks.mpi.Exception as error:
                    raise self._failure(f"MPI reports {error}") from None
                if arrived:
                    completed += len(arrived)
                    for number in arrived:
                        self.missing.pop(number, None)
                        self.coming.discard(number)
                        about = self.about[number]
                        if about is not None:
                            self._arrived(*about)
                    pause = SHORTEST
                    continue
                now = time.perf_counter()
                if now < lively or (self.coming and now < end):
                    if now > spin or self.ranks._crowded:
                        time.sleep(0)  # lets others have the core
                    continue
                self._listen()
                if now > end:
                    raise self._late()
                if now > told:
                    told = float("inf")
                    self.ranks.tell(self.call, "waiting")
                time.sleep(pause)
                pause = min(pause * 1.5, LONGEST)
        except BaseException:
            # The memory is MPI's as long as it has requests.
            self.ranks._unwatched.append((self.requests, self, True))
            raise
        self.ranks._waiting.clear()

    def _arrived(self, process: int, number: int, memory: np.ndarray, staging: np.ndarray) -> None:
        large = memory.nbytes > INLINE
        if HEADER.unpack(staging[: HEADER.size].tobytes()) != (self.call.digest, number, large):
            raise self._mismatch(process)
        if large:
            # Only now, when it is known to be what is expected: nothing else is ever received there.
            for piece in _pieces(memory):
                self.coming.add(len(self.requests))
                tag = MEMORY + number % NUMBERED
                self._add(self.ranks._comm.Irecv([piece, self.ranks.mpi.BYTE], process, tag), process)
        else:
            _bytes(memory)[...] = staging[HEADER.size : HEADER.size + memory.nbytes]
        self.ranks._staging.append(staging)

    def _listen(self) -> None:
        """Errors: JaxRuntimeError if another process says that it failed."""
        self.ranks.hear()
        gone = self.ranks._ended.intersection(self.missing.values())
        # What they sent before they ended may still be on its way.
        self.without = self.without or (time.perf_counter() if gone else 0.0)
        if gone and time.perf_counter() > self.without + GRACE:
            raise self._failure(f"{_named(gone)} ended without it")
        for process, news in self.ranks._failed.items():
            raise self._failure(f"process {process} failed in {news['call']}: {news['text']}", [process])

    def _mismatch(self, process: int) -> JaxRuntimeError:
        mine = f"this is process {self.ranks.process}, which does something else"
        self.ranks.tell(self.call, "failed", f"it met process {self.ranks.process} in {self.call}")
        end = time.perf_counter() + GRACE
        while time.perf_counter() < end and process not in self.ranks._failed:
            self.ranks.hear()
            time.sleep(LONGEST)
        theirs = self.ranks._failed.get(process)
        where = f"is in {theirs['call']}" if theirs else "does not say where it is"
        self.ranks.broken = f"{self.call} met another call of process {process}"
        return JaxRuntimeError(
            f"{self.call}: process {process} {where}, and {mine}. All processes must do the same collectives in the "
            "same order, with the same shapes, dtypes and groups"
        )

    def _late(self) -> JaxRuntimeError:
        ranks = self.ranks
        direct = set(self.missing.values())
        here = {process for process, digest in ranks._waiting.items() if digest == self.call.digest}
        missing = (direct - here) or (set(self.call.members) - here - {ranks.process}) or direct
        what = f"waited {ranks.timeout:g} s for {_named(missing)}, which did not come"
        if direct and not direct <= missing:
            what += f" ({_named(direct - missing)} waits for others, too)"
        return self._failure(what)

    def _failure(self, why: str, to: Sequence[int] | None = None) -> JaxRuntimeError:
        """The error, of which others are told; of another's failure that one alone, which may ask where this one is."""
        self.ranks.broken = f"{self.call}: {why}"
        self.ranks.tell(self.call, "failed", why, to)
        return JaxRuntimeError(f"{self.call}, in process {self.ranks.process}: {why}")


def end_all_on_errors(ranks: MpiRanks) -> None:
    """From now on an exception that nobody catches ends all processes, after it was printed."""
    before = sys.excepthook

    def hook(kind, error, traceback):
        before(kind, error, traceback)
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(FORWARDING)
        ranks.part()
        ranks.abort()

    sys.excepthook = hook
