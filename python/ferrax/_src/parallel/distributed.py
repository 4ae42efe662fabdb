"""Processes that make one program together: joined by MPI, which started them."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import os
import warnings
from collections.abc import Sequence
from typing import Any

from ferrax._src.base import config, flags
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.core import devices
from ferrax._src.parallel import across, algorithms, mpi, ranks
from ferrax._src.parallel.store import Client, client_over

__all__ = ["initialize", "is_initialized", "shutdown"]

# What says of how many processes, and which of them this is, under the programs that start processes.
_LAUNCHERS = {
    "mpich": ("PMI_SIZE", "PMI_RANK"),
    "ompi": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    "slurm": ("SLURM_NTASKS", "SLURM_PROCID"),
}
_METHODS = (None, "deactivate", "mpi4py", *_LAUNCHERS)
_INSTALL = "pip install 'ferrax[mpi]', and an MPI, such as pip install mpich"


class State:
    """What `initialize` was told, and what joins the processes."""

    service = None
    preemption_sync_manager = None

    def __init__(self) -> None:
        self.coordinator_address: str | None = None
        self.process_id = 0
        self.num_processes = 1
        self.partition_index: int | None = None
        self._joined: mpi.MpiRanks | None = None
        self._client: Client | None = None
        self._shutdown_timeout = 300.0

    @property
    def client(self) -> Client | None:
        """Keys and values that all processes share, and barriers; None where there is one process."""
        if self._joined is not None and self._client is None:
            self._client = client_over(self._joined)
        return self._client


global_state = State()


def initialize(
    coordinator_address: str | None = None, num_processes: int | None = None,
    process_id: int | None = None, local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None, initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 100, shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None, slice_index: int | None = None,
    partition_index: int | None = None, mtls_cert_file: str | None = None, mtls_key_file: str | None = None,
    mtls_ca_file: str | None = None, mtls_peer_uri_prefix: str | None = None,
    verify_secure_credentials: bool | None = None,
) -> None:
    """Joins the processes of a program, which `mpiexec -n 4 python program.py`, or Slurm, starts.

    Each process then has devices of its own, `ferrax.local_devices()`, and sees those of all, `ferrax.devices()`. MPI
    finds the processes, so all arguments may be left out, and numbers that are given are checked. A process that
    nothing started as one of several may say that it is all there are.

    Args:
        coordinator_address: the address and port of process 0, which MPI has no need of; None: what
            JAX_COORDINATOR_ADDRESS says.
        num_processes, process_id: how many processes there are, and which this is; None: as MPI says.
        local_device_ids: the number of a device, or several: those that this process has, all there are.
            None: what JAX_LOCAL_DEVICE_IDS says, else all.
        cluster_detection_method: None: what the environment says; "mpi4py", "mpich", "ompi" or "slurm": MPI;
            "deactivate": address and numbers are those given, of one process.
        heartbeat_timeout_seconds: how long a process waits for others in a collective before it is an error.
        shutdown_timeout_seconds: how long `shutdown` waits for the others.
        initialization_timeout, coordinator_bind_address: MPI has started and found the processes before.
        partition_index: the group of machines that this process is in, kept in the state. None: what
            JAX_PARTITION_INDEX says. slice_index: its old name.
        mtls_cert_file, mtls_key_file, mtls_ca_file, mtls_peer_uri_prefix, verify_secure_credentials: unset:
            there is no service whose connections they would secure.

    From then on an exception that nobody catches ends all processes, not only the one that raised it.

    Errors: ValueError if the address or a number is missing, makes no sense or is another than MPI says, if other
    devices are named than there are, and if processes have different numbers of devices; TypeError for numbers
    that are none; RuntimeError if it was called before, or if devices of several processes were looked at before;
    ImportError where there are several processes and no mpi4py; NotImplementedError for several processes that
    nothing joins, for other methods and for certificates.

    >>> ferrax.distributed.initialize("localhost:1234", num_processes=1, process_id=0)
    >>> ferrax.distributed.is_initialized()
    True
    >>> ferrax.distributed.shutdown()
    """
    if cluster_detection_method not in _METHODS:
        raise NotImplementedError(
            f"distributed.initialize: cluster_detection_method must be one of "
            f"{', '.join(map(repr, _METHODS))}; got {cluster_detection_method!r}"
        )
    files = {"mtls_cert_file": mtls_cert_file, "mtls_key_file": mtls_key_file, "mtls_ca_file": mtls_ca_file}
    more = {"mtls_peer_uri_prefix": mtls_peer_uri_prefix, "verify_secure_credentials": verify_secure_credentials}
    for option, asked in (files | more).items():
        if asked:
            raise NotImplementedError(
                f"distributed.initialize: {option} is not available: processes are joined by MPI, which has a network "
                "of its own; use one that is secured"
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
    if global_state.coordinator_address is not None:
        raise RuntimeError("distributed.initialize: this process is initialized already; call shutdown() first")
    if global_state._joined is not None:
        raise RuntimeError("distributed.initialize: processes that were shut down are not joined again; start anew")
    for name, value in (("num_processes", num_processes), ("process_id", process_id)):
        if value is not None and not isinstance(value, int):
            raise TypeError(f"distributed.initialize: {name} must be an int, got {value!r}")
    address = coordinator_address or os.environ.get("JAX_COORDINATOR_ADDRESS")
    size = _started(cluster_detection_method)
    if size is None:
        _check_one(address, num_processes, process_id, cluster_detection_method)
    elif size > 1:
        _join(num_processes, process_id, heartbeat_timeout_seconds, shutdown_timeout_seconds)
        address = address or "MPI"
    else:
        _check_numbers(num_processes, process_id, 1, 0)
        address = address or "MPI"
    global_state.coordinator_address = address
    global_state.partition_index = partition_index


def _started(method: str | None) -> int | None:
    """How many processes were started together; None if nothing says so."""
    if method == "deactivate":
        return None
    if method == "mpi4py":
        return _mpi().COMM_WORLD.Get_size()
    for name, (size, rank) in _LAUNCHERS.items():
        if method in (None, name) and size in os.environ and rank in os.environ:
            # A job of Slurm's may have more processes than take part in this program: those that MPI joins do.
            if name != "slurm" or method == name:
                return int(os.environ[size])
            if int(os.environ[size]) > 1 and importlib.util.find_spec("mpi4py") is not None:
                return _mpi().COMM_WORLD.Get_size()
    if method is not None:
        raise NotImplementedError(
            f"distributed.initialize: cluster_detection_method={method!r}, but nothing started processes in that "
            f"way: {' and '.join(_LAUNCHERS[method])} are not set. Start the program with mpiexec -n N python …"
        )
    return None


def _mpi() -> Any:
    """The module that speaks MPI. Errors: ImportError, which says what to install."""
    try:
        # Importing it starts MPI.
        return importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"distributed.initialize: several processes are joined by MPI, through mpi4py, which cannot be loaded "
            f"({error}): {_INSTALL}"
        ) from error


def _check_numbers(num_processes, process_id, size, rank) -> None:
    if num_processes not in (None, size):
        raise ValueError(f"distributed.initialize: num_processes={num_processes}, but {size} were started")
    if process_id not in (None, rank):
        raise ValueError(f"distributed.initialize: process_id={process_id}, but this process was started as {rank}")


def _check_one(address, num_processes, process_id, method) -> None:
    for name, value in (
        ("coordinator_address", address), ("num_processes", num_processes), ("process_id", process_id)
    ):  # fmt: skip
        if value is None:
            raise ValueError(
                f"distributed.initialize: {name} should be defined where MPI did not start this process; "
                "mpiexec -n N python … starts several, which need no arguments"
            )
    if not 0 <= process_id < num_processes:
        raise ValueError(
            f"distributed.initialize: process_id must be from 0 to num_processes - 1, got {process_id} of "
            f"{num_processes}"
        )
    if num_processes > 1:
        raise NotImplementedError(
            f"distributed.initialize: num_processes={num_processes}, but "
            + ('"deactivate" is for one' if method else "MPI, which joins processes, did not start this one")
            + f": start the program with mpiexec -n {num_processes} python … ({_INSTALL})"
        )


def _join(num_processes, process_id, heartbeat_timeout, shutdown_timeout) -> None:
    if devices.devices_were_used():
        raise RuntimeError(
            "distributed.initialize: must be called before devices are first asked for, as what they are depends on "
            "the processes there are"
        )
    MPI = _mpi()
    if MPI.COMM_WORLD.Get_size() == 1:
        raise RuntimeError(
            "distributed.initialize: several processes were started, and MPI knows of this one alone: mpiexec is of "
            f"another MPI than mpi4py uses, {MPI.Get_library_version().splitlines()[0]}"
        )
    _check_numbers(num_processes, process_id, MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.Get_rank())
    joined = mpi.MpiRanks(MPI, heartbeat_timeout)
    mpi.end_all_on_errors(joined)
    counts = joined.counts(devices.local_cpu_count())
    if len(set(counts)) > 1:
        raise ValueError(
            f"distributed.initialize: all processes must have as many devices, got {counts} of processes 0 to "
            f"{len(counts) - 1}; config.jax_num_cpu_devices and XLA_FLAGS say how many"
        )
    devices.join_processes(joined.process, joined.processes, joined.local_process)
    ranks.join(joined)
    across.install()
    _share_cores(joined.local_processes)
    global_state.process_id, global_state.num_processes = joined.process, joined.processes
    global_state._joined, global_state._shutdown_timeout = joined, shutdown_timeout


def _is_bound() -> bool:
    """Whether this process may use some of the machine's cores alone."""
    allowed = getattr(os, "sched_getaffinity", None)
    return allowed is not None and len(allowed(0)) < (os.cpu_count() or 1)


def _share_cores(processes: int) -> None:
    """Gives this process its share of the machine's cores, where neither the launcher nor the user said how many."""
    started = flags.THREADS_AT_START
    unsaid = "FERRAX_NUM_THREADS" not in os.environ and config.config.jax_num_threads == started
    if unsaid and processes > 1 and not _is_bound():
        config.config.update("jax_num_threads", max(1, started // processes))


def _check_devices(numbers) -> None:
    """Errors: ValueError unless these are the numbers of all devices of this process."""
    if numbers is None and (text := os.environ.get("JAX_LOCAL_DEVICE_IDS")):
        numbers = [int(number) for number in text.split(",")]
    if numbers is None:
        return
    there = list(range(devices.local_cpu_count()))
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
    """Undoes `initialize`: several processes wait for each other, and exchange nothing any more.

    Errors: JaxRuntimeError if other processes do not come within `shutdown_timeout_seconds` of `initialize`.

    >>> ferrax.distributed.shutdown()
    """
    joined = global_state._joined
    if joined is not None and not joined.broken:
        joined.timeout = global_state._shutdown_timeout
        call = ranks.Call("distributed.shutdown", "", range(joined.processes))
        joined.run(call, algorithms.barrier(range(joined.processes), joined.process))
        joined.broken = "distributed.shutdown() was called"
    global_state._client = None
    global_state.coordinator_address = None
    global_state.partition_index = None
