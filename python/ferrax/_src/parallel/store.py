"""Keys and values that the processes of a program share, and barriers by name: what checkpointing libraries ask of
`global_state.client`.

Process 0 has them, and a thread there answers the others, from when its program first asked for the client. Requests
and answers are messages of a communicator of their own, so that they cross no collective. Cost: a request is
answered within about 5 ms.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterable
from typing import Any

from ferrax._src.base.errors import JaxRuntimeError
from ferrax._src.parallel.mpi import MpiRanks

# Tags: requests have this one; each answer one of its own, from FIRST on.
REQUESTS, FIRST, LAST = 1, 2, 30000
# Seconds between looks for messages.
SHORTEST, LONGEST = 0.2e-3, 5e-3

Request = dict[str, Any]
Answer = dict[str, Any]


def _found(value: Any) -> Answer:
    return {"value": value}


def _error(status: str, text: str) -> Answer:
    return {"error": f"{status}: {text}"}


class _Barrier:
    """One meeting at a barrier: who is there, of whom, and how it ended."""

    def __init__(self, members: frozenset[int]) -> None:
        self.members = members
        self.there: set[int] = set()
        self.outcome: Answer | None = None


class Store:
    """What process 0 keeps. Values are text, one character a byte."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._values: dict[str, str] = {}
        self._barriers: dict[str, _Barrier] = {}

    def attempt(self, request: Request, process: int) -> Answer | None:
        """The answer to a request, None if there is none yet. Under `changed`."""
        kind, key = request["kind"], request["key"]
        if kind == "set":
            if key in self._values and not request["overwrite"]:
                return _error("ALREADY_EXISTS", f"there is a value of key {key!r}; pass allow_overwrite=True")
            self._values[key] = request["value"]
        elif kind == "get":
            if key in self._values:
                return _found(self._values[key])
            return None if request["wait"] else _error("NOT_FOUND", f"there is no value of key {key!r}")
        elif kind == "dir":
            folder = key.rstrip("/") + "/"
            return _found(sorted([k, v] for k, v in self._values.items() if k.startswith(folder)))
        elif kind == "delete":
            folder = key.rstrip("/") + "/"
            for there in [k for k in self._values if k == key or k.startswith(folder)]:
                del self._values[there]
        elif kind == "add":
            self._values[key] = str(int(self._values.get(key, "0")) + request["by"])
            self.changed.notify_all()
            return _found(int(self._values[key]))
        else:
            return self._meet(request, process)
        self.changed.notify_all()
        return _found(None)

    def late(self, request: Request) -> Answer:
        """What a request gets whose time is over."""
        key, seconds = request["key"], request["timeout"]
        if request["kind"] != "barrier":
            return _error("DEADLINE_EXCEEDED", f"nobody set key {key!r} within {seconds:g} s")
        meeting = request["meeting"]
        missing = sorted(meeting.members - meeting.there)
        text = f"barrier {key!r}: processes {', '.join(map(str, missing))} did not come within {seconds:g} s"
        self._end(key, meeting, _error("DEADLINE_EXCEEDED", text))
        return meeting.outcome

    def _meet(self, request: Request, process: int) -> Answer | None:
        meeting: _Barrier | None = request.get("meeting")
        key, members = request["key"], frozenset(request["members"])
        if meeting is None:
            meeting = self._barriers.setdefault(key, _Barrier(members))
            if members != meeting.members or process not in members or process in meeting.there:
                text = f"process {process} came to barrier {key!r} of processes {sorted(members)}, others to one of "
                self._end(key, meeting, _error("INVALID_ARGUMENT", f"{text}{sorted(meeting.members)}"))
            request["meeting"] = meeting
            meeting.there.add(process)
            if meeting.there == members:
                self._end(key, meeting, _found(None))
        return meeting.outcome

    def _end(self, key: str, meeting: _Barrier, outcome: Answer) -> None:
        """Those who are there get the outcome; the next ones meet anew."""
        meeting.outcome = meeting.outcome or outcome
        if self._barriers.get(key) is meeting:
            del self._barriers[key]
        self.changed.notify_all()


class _Server:
    """The thread of process 0 that answers the others."""

    def __init__(self, comm: Any, mpi: Any, store: Store) -> None:
        self.comm, self.mpi, self.store = comm, mpi, store
        self.stopping = False
        # Requests without an answer: process, request, when its time is over.
        self.open: list[tuple[int, Request, float]] = []
        self.sending: list[tuple[Any, bytes]] = []
        self.thread = threading.Thread(target=self._serve, name="ferrax-store", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        pause = SHORTEST
        while not self.stopping:
            pause = SHORTEST if self._look() else min(pause * 1.5, LONGEST)
            time.sleep(pause)

    def _look(self) -> bool:
        """Reads what came and answers what can be answered. Whether there was anything."""
        status = self.mpi.Status()
        message = self.comm.Improbe(self.mpi.ANY_SOURCE, REQUESTS, status)
        if message is not None:
            memory = bytearray(status.Get_count(self.mpi.BYTE))
            message.Recv([memory, self.mpi.BYTE])
            request = json.loads(memory)
            self.open.append((status.Get_source(), request, time.monotonic() + request["timeout"]))
        left = []
        for process, request, end in self.open:
            with self.store.changed:
                answer = self.store.attempt(request, process)
                if answer is None and time.monotonic() > end:
                    answer = self.store.late(request)
            if answer is None:
                left.append((process, request, end))
            else:
                text = json.dumps(answer).encode()
                self.sending.append((self.comm.Isend([text, self.mpi.BYTE], process, request["tag"]), text))
        self.open = left
        self.sending = [(sent, text) for sent, text in self.sending if not sent.Test()]
        return message is not None

    def stop(self) -> None:
        self.stopping = True
        self.thread.join()


class Client:
    """Keys and values that all processes share, and barriers. Times are in milliseconds.

    Errors of all methods: JaxRuntimeError, which begins with NOT_FOUND, ALREADY_EXISTS, DEADLINE_EXCEEDED (nobody came
    in time) or INVALID_ARGUMENT.
    """

    def __init__(self, process: int, processes: int, comm: Any, mpi: Any) -> None:
        self._process, self._processes, self._comm, self._mpi = process, processes, comm, mpi
        self._tags = itertools.count()
        self._lock = threading.Lock()
        self._store = Store() if process == 0 else None
        self._server = _Server(comm, mpi, self._store) if self._store is not None else None

    def _ask(self, kind: str, key: str, timeout: float = 60.0, **rest: Any) -> Any:
        request = {"kind": kind, "key": key, "timeout": timeout, **rest}
        answer = self._here(request) if self._store is not None else self._there(request)
        if "error" in answer:
            raise JaxRuntimeError(answer["error"])
        return answer["value"]

    def _here(self, request: Request) -> Answer:
        assert self._store is not None
        end = time.monotonic() + request["timeout"]
        with self._store.changed:
            while (answer := self._store.attempt(request, 0)) is None:
                left = end - time.monotonic()
                if left <= 0:
                    return self._store.late(request)
                # Not for long, so that signals are seen.
                self._store.changed.wait(min(left, 0.1))
        return answer

    def _there(self, request: Request) -> Answer:
        with self._lock:
            tag = FIRST + next(self._tags) % (LAST - FIRST)
        memory = json.dumps({**request, "tag": tag}).encode()
        sent = self._comm.Isend([memory, self._mpi.BYTE], 0, REQUESTS)
        # The server ends the request in time; one that does not answer at all is given up some seconds later.
        end = time.monotonic() + request["timeout"] + 5
        status, pause = self._mpi.Status(), SHORTEST
        while (message := self._comm.Improbe(0, tag, status)) is None:
            if time.monotonic() > end:
                raise JaxRuntimeError(
                    f"DEADLINE_EXCEEDED: process 0 did not answer {request['kind']} of {request['key']!r} within "
                    f"{request['timeout']:g} s: it answers from when it first asks for global_state.client"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST)
        answer = bytearray(status.Get_count(self._mpi.BYTE))
        message.Recv([answer, self._mpi.BYTE])
        sent.Wait()
        return json.loads(answer)

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Sets the value of a key, which has none yet unless `allow_overwrite`."""
        self.key_value_set_bytes(key, value.encode(), allow_overwrite)

    def key_value_set_bytes(self, key: str, value: bytes, allow_overwrite: bool = False) -> None:
        """As `key_value_set`."""
        self._ask("set", key, value=value.decode("latin-1"), overwrite=allow_overwrite)

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """The value of a key, as soon as there is one."""
        return self.blocking_key_value_get_bytes(key, timeout_in_ms).decode()

    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes:
        """As `blocking_key_value_get`."""
        return self._ask("get", key, timeout_in_ms / 1000, wait=True).encode("latin-1")

    def key_value_try_get(self, key: str) -> str:
        """The value that a key has now."""
        return self.key_value_try_get_bytes(key).decode()

    def key_value_try_get_bytes(self, key: str) -> bytes:
        """As `key_value_try_get`."""
        return self._ask("get", key, wait=False).encode("latin-1")

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """All keys below one, as paths are below a folder, with their values."""
        return [(name, value.decode()) for name, value in self.key_value_dir_get_bytes(key)]

    def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        """As `key_value_dir_get`."""
        return [(name, value.encode("latin-1")) for name, value in self._ask("dir", key)]

    def key_value_delete(self, key: str) -> None:
        """Forgets a key, and those below it."""
        self._ask("delete", key)

    def key_value_increment(self, key: str, increment: int) -> int:
        """Adds to the number that a key has, from 0 on; the new number."""
        return self._ask("add", key, by=increment)

    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int, process_ids: Iterable[int] | None = None) -> None:
        """Waits until all processes, or those named, came to this barrier. It may be used again then."""
        members = sorted(range(self._processes) if process_ids is None else process_ids)
        self._ask("barrier", barrier_id, timeout_in_ms / 1000, members=members)

    def close(self) -> None:
        """Ends the thread that answers others."""
        if self._server is not None:
            self._server.stop()


def client_over(joined: MpiRanks) -> Client:
    """The client of this process. Errors: JaxRuntimeError if MPI does not let several threads in."""
    if joined.mpi.Query_thread() < joined.mpi.THREAD_MULTIPLE:
        raise JaxRuntimeError("global_state.client needs an MPI that lets several threads in (MPI_THREAD_MULTIPLE)")
    client = Client(joined.process, joined.processes, joined.store_comm, joined.mpi)
    joined.at_end.append(client.close)
    return client
