"""Processes that make one program together: so far one."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Sequence

from ferrax._src.base.errors import user_stacklevel
from ferrax._src.core.devices import local_devices

__all__ = ["initialize", "is_initialized", "shutdown"]


class State:
    """What `initialize` was told. What joins processes is None: one process needs none."""

    client = None
    service = None
    preemption_sync_manager = None

    def __init__(self) -> None:
        self.coordinator_address: str | None = None
        self.process_id = 0
        self.num_processes = 1
        self.partition_index: int | None = None


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
        local_device_ids: the number of a device, or several: those that this process has, all there are.
            None: what JAX_LOCAL_DEVICE_IDS says, else all.
        cluster_detection_method: None, or "deactivate": address and numbers are those given.
        initialization_timeout, heartbeat_timeout_seconds, shutdown_timeout_seconds,
            coordinator_bind_address: how processes find and wait for each other; one has none to wait for.
        partition_index: the group of machines that this process is in, kept in the state. None: what
            JAX_PARTITION_INDEX says. slice_index: its old name.

    Errors: ValueError if the address or a number is missing or makes no sense, or other devices are named
    than there are; TypeError for numbers that are none; RuntimeError if it was called before;
    NotImplementedError for several processes and for methods that find a cluster.

    >>> ferrax.distributed.initialize("localhost:1234", num_processes=1, process_id=0)
    >>> ferrax.distributed.is_initialized()
    True
    >>> ferrax.distributed.shutdown()
    """
    if cluster_detection_method not in (None, "deactivate"):
        raise NotImplementedError(
            f"distributed.initialize: cluster_detection_method={cluster_detection_method!r} looks for other "
            "processes, and programs run in one: pass coordinator_address, num_processes=1 and process_id=0"
        )
    if slice_index is not None:
        if partition_index is not None:
            raise ValueError(
                "distributed.initialize: slice_index is the old name of partition_index; got both"
            )
        warnings.warn(
            "slice_index is deprecated: use partition_index", DeprecationWarning, stacklevel=user_stacklevel()
        )
        partition_index = slice_index
    elif partition_index is None and "JAX_PARTITION_INDEX" in os.environ:
        partition_index = int(os.environ["JAX_PARTITION_INDEX"])
    _check_devices(local_device_ids)
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
        raise RuntimeError("distributed.initialize: this process is initialized already; call shutdown() first")
    if num_processes > 1:
        raise NotImplementedError(
            f"distributed.initialize: programs run in one process, got num_processes={num_processes}; start "
            "one, with num_processes=1 and process_id=0, whose threads share the work of each operation"
        )
    global_state.coordinator_address = address
    global_state.partition_index = partition_index


def _check_devices(numbers) -> None:
    """Errors: ValueError unless these are the numbers of all devices of this process."""
    if numbers is None and (text := os.environ.get("JAX_LOCAL_DEVICE_IDS")):
        numbers = [int(number) for number in text.split(",")]
    if numbers is None:
        return
    there = [device.id for device in local_devices()]
    asked = [operator.index(n) for n in ([numbers] if isinstance(numbers, int) else numbers)]
    if sorted(asked) != there:
        raise ValueError(
            f"distributed.initialize: local_device_ids must name the devices there are, {there}, got {asked}"
        )


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
    global_state.partition_index = None
