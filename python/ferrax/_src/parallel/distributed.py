"""Processes that make one program together: so far one."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["initialize", "is_initialized", "shutdown"]


class State:
    """What `initialize` was told. `client` and `service` are None: one process needs none."""

    client = None
    service = None

    def __init__(self) -> None:
        self.coordinator_address: str | None = None
        self.process_id = 0
        self.num_processes = 1


global_state = State()


def initialize(
    coordinator_address: str | None = None, num_processes: int | None = None,
    process_id: int | None = None, local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None, initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 100, shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None, slice_index: int | None = None,
    partition_index: int | None = None,
) -> None:
    """Joins the processes of a program. One process may be said to be all of them.

    Args:
        coordinator_address: the address and port of process 0; None: what JAX_COORDINATOR_ADDRESS says.
        num_processes, process_id: how many processes there are, and which this is.
        local_device_ids, cluster_detection_method, initialization_timeout, heartbeat_timeout_seconds,
            shutdown_timeout_seconds, coordinator_bind_address, slice_index, partition_index: for several
            processes, of which there are none.

    Errors: ValueError if the address or a number is missing or makes no sense; TypeError for numbers that
    are none; RuntimeError if it was called before; NotImplementedError for several processes.

    >>> ferrax.distributed.initialize("localhost:1234", num_processes=1, process_id=0)
    >>> ferrax.distributed.is_initialized()
    True
    >>> ferrax.distributed.shutdown()
    """
    address = coordinator_address or os.environ.get("JAX_COORDINATOR_ADDRESS")
    missing = {
        "coordinator_address": address, "num_processes": num_processes, "process_id": process_id
    }  # fmt: skip
    for name, value in missing.items():
        if value is None:
            raise ValueError(f"distributed.initialize: {name} should be defined")
    for name in ("num_processes", "process_id"):
        if not isinstance(missing[name], int):
            raise TypeError(f"distributed.initialize: {name} must be an int, got {missing[name]!r}")
    assert num_processes is not None and process_id is not None  # for type checkers
    if not 0 <= process_id < num_processes:
        raise ValueError(
            f"distributed.initialize: process_id must be from 0 to num_processes - 1, got {process_id} of "
            f"{num_processes}"
        )
    if global_state.coordinator_address is not None:
        raise RuntimeError("distributed.initialize should only be called once")
    if num_processes > 1:
        raise NotImplementedError(
            f"distributed.initialize: programs run in one process, got num_processes={num_processes}"
        )
    global_state.coordinator_address = address


def is_initialized() -> bool:
    """Whether `initialize` was called.

    >>> ferrax.distributed.is_initialized()
    False
    """
    return global_state.coordinator_address is not None


def shutdown() -> None:
    """Undoes `initialize`.

    >>> ferrax.distributed.shutdown()
    """
    global_state.coordinator_address = None
