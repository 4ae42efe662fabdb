"""Devices: the CPU, and what is attached beside it.

A platform other than the CPU is looked for when its devices are first asked for, so that importing touches
nothing. A device has a number in the native core (`_number`), by which placements know it, beside its `id`, which
counts within the platform.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import os
import re
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from ferrax import _core
from ferrax._src.base import config, fixed_flags, flags
from ferrax._src.base.errors import user_stacklevel

# The kinds of memory that a device has, its own first. On the CPU they are one and the same.
MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")


class Space(enum.Enum):
    """The kinds of memory that programs tell apart: the device's, and the host's. Here they are one.

    >>> ferrax.device_put(jnp.ones(2), ferrax.memory.Space.Host).sharding.memory_kind
    'pinned_host'
    """

    Device = enum.auto()
    Host = enum.auto()
    Any = enum.auto()


class Memory:
    """A memory of a device.

    Attributes: `kind`, one of "device", "pinned_host", "unpinned_host"; `platform`,
    `process_index`, `device_ids` as of the device.

    >>> ferrax.devices()[0].default_memory().kind
    'device'
    """

    __slots__ = ("kind", "_device")

    def __init__(self, device: Device, kind: str) -> None:
        self._device = device
        self.kind = kind

    @property
    def platform(self) -> str:
        return self._device.platform

    @property
    def process_index(self) -> int:
        return self._device.process_index

    @property
    def device_ids(self) -> list[int]:
        return [self._device.id]

    def attached_to_devices(self) -> list[Device]:
        """The devices whose memory this is."""
        return [self._device]

    addressable_by_devices = attached_to_devices

    def __repr__(self) -> str:
        name = f"{self.platform}_{self.kind}" if self.kind == "device" else self.kind
        return f"{name.upper()}_{MEMORY_KINDS.index(self.kind)}"


class Client:
    """What a process runs programs by: its devices, and what they are.

    Attributes: `platform`, `platform_version`, `runtime_type`.

    >>> ferrax.devices()[0].client.device_count() == ferrax.device_count()
    True
    """

    __slots__ = ("platform", "__weakref__")

    def __init__(self, platform: str) -> None:
        self.platform = platform

    platform_version = runtime_type = property(lambda self: self.platform)

    def process_index(self) -> int:
        """The number of this process."""
        return _processes.this

    def devices(self) -> list[Device]:
        """All devices, of all processes."""
        return devices(self.platform)

    def local_devices(self) -> list[Device]:
        """The devices of this process."""
        return local_devices(backend=self.platform)

    def device_count(self) -> int:
        """How many devices there are."""
        return len(self.devices())

    def local_device_count(self) -> int:
        """How many devices this process has."""
        return len(self.local_devices())


class Device:
    """A device that arrays live on and programs run on.

    Attributes: `id`, a number; `platform`, such as "cpu"; further ones that say what it is.

    >>> ferrax.devices()[0].id, ferrax.devices()[0].platform
    (0, 'cpu')
    """

    __slots__ = (
        "id", "platform", "device_kind", "process_index", "host_id", "task_id", "client",
        "_number", "__weakref__",
    )  # fmt: skip

    def __init__(self, id: int, client: Client, number: int = 0, process: int | None = None) -> None:
        self.id = id
        self.client = client
        self._number = number
        self.platform = client.platform
        self.device_kind = _core.device_name(number) or client.platform
        self._of_process(client.process_index() if process is None else process)

    def _of_process(self, process: int) -> None:
        self.process_index = self.host_id = self.task_id = process

    @property
    def local_hardware_id(self) -> int:
        return self.id % OF_A_PROCESS

    def addressable_memories(self) -> list[Memory]:
        """The kinds of memory that it can address: here all are the host's."""
        return [Memory(self, kind) for kind in MEMORY_KINDS]

    def default_memory(self) -> Memory:
        """The memory that arrays are put in."""
        return Memory(self, MEMORY_KINDS[0])

    def memory(self, kind: str) -> Memory:
        """The memory of this kind. Errors: ValueError if there is none."""
        if kind not in MEMORY_KINDS:
            raise ValueError(f"{self} has the memories {', '.join(MEMORY_KINDS)}; got {kind!r}")
        return Memory(self, kind)

    def memory_stats(self) -> dict[str, int]:
        """What the memory of arrays and of programs that run takes, under JAX's names.

        `bytes_in_use`, `peak_bytes_in_use` and `pool_bytes`, which includes what waits for reuse (and goes back with
        `ferrax.memory.trim`); `num_allocs`: how often memory was asked for; `largest_alloc_size`; `bytes_limit`: what
        the process may take. Memory is given in blocks, up to a quarter larger than arrays; arrays of at most 64
        bytes, those of NumPy and what programs and their constants take are not counted.

        >>> ferrax.devices()[0].memory_stats()["bytes_in_use"] >= jnp.zeros(1000).nbytes
        True
        """
        if self._number:
            in_use, peak, given, largest, kept = _core.device_usage(self._number)
            return {
                "num_allocs": given,
                "bytes_in_use": in_use,
                "peak_bytes_in_use": peak,
                "largest_alloc_size": largest,
                "pool_bytes": in_use + kept,
            }
        in_use, peak, waiting, given, largest, limit = _core.memory_stats()
        return {
            "num_allocs": given,
            "bytes_in_use": in_use,
            "peak_bytes_in_use": peak,
            "largest_alloc_size": largest,
            "bytes_limit": limit,
            "pool_bytes": in_use + waiting,
        }

    @contextlib.contextmanager
    def profile(self, path: str | os.PathLike[str]) -> Iterator[None]:
        """Writes how long each kernel takes that runs on this GPU, by its own clock, as a Chrome trace.

        Open the file in `chrome://tracing` or Perfetto (ui.perfetto.dev). Kernels are in one row, library calls
        that have no kernels there and run on the CPU in another, with the times of their copies; the clocks of the
        two rows begin with the first kernel and with the profile. Kernels do not overlap while a profile is taken.
        The file is not written if the body raises.

        Errors: NotImplementedError on devices without such a clock, as the CPU, and on GPUs that do not tell
        their times; ValueError if a profile of the device is being taken.

        >>> with ferrax.devices("gpu")[0].profile("trace.json"):  # doctest: +SKIP
        ...     step(parameters).block_until_ready()
        """
        import json  # what is seldom needed

        if not self._number:
            raise NotImplementedError(f"profile: {self} does not tell the times of kernels, only GPUs do")
        _core.device_begin_profile(self._number)
        try:
            yield
        except BaseException:
            _core.device_end_profile(self._number)
            raise
        rows = {False: f"{self}: {self.device_kind}", True: "on the CPU"}
        events: list[dict[str, Any]] = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": int(host), "args": {"name": name}}
            for host, name in rows.items()
        ]
        for name, begin, end, host in _core.device_end_profile(self._number):
            times = {"ts": begin / 1e3, "dur": (end - begin) / 1e3}
            events.append({"name": name, "ph": "X", "pid": 0, "tid": int(host), **times})
        with open(path, "w") as file:
            json.dump({"traceEvents": events}, file)

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_id, (self.platform, self.id)

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"


# Devices of process p have ids from p times this on.
OF_A_PROCESS = 2048


class _Processes:
    """Which of the processes of a program this is, and of those on this machine. They have as many devices each, once
    they are joined."""

    this = 0
    count = 1
    here = 0


_processes = _Processes()
_CPU = Device(0, Client("cpu"), 0)

_WHAT = {
    "cpu": "the processor, with all its cores",
    "gpu": "GPUs with a driver of Vulkan, Metal or DX12, as config.jax_gpu says",
    "reference": "an interpreter with memory of its own, slow and obvious, to compare others with",
}


def trim() -> int:
    """Gives memory of arrays that waits for reuse back to the system; how many bytes that were.

    This happens by itself where memory is refused, or would exceed `bytes_limit` of `Device.memory_stats`.
    `clear_caches` forgets programs, too.

    >>> del_me = jnp.zeros(1 << 20)
    >>> del del_me
    >>> ferrax.memory.trim() >= 1 << 20
    True
    """
    return _core.release_memory()


def _of_id(platform, id):
    for device in devices(platform):
        if device.id == id:
            return device
    raise RuntimeError(f"there is no device {platform}:{id}: ferrax.devices('{platform}') is {devices(platform)}")


_client = functools.cache(Client)


# One object for each device, whatever it was chosen by.
@functools.cache
def _device(platform, id, number) -> Device:
    device = Device(id, _client(platform), number)
    if platform == "gpu":
        opened_gpus.append(device)
    return device


# The GPUs of this process that somebody has asked for.
opened_gpus: list[Device] = []


@functools.cache
def _attached(platform, choice) -> list[Device]:
    return [_device(platform, id, number) for number, id in _core.platform_devices(platform, choice)]


# The devices that the processor plays are what this asks for, where `config.jax_num_cpu_devices` says nothing: this
# process's, once somebody asked, and those of all processes.
_forced = re.compile(r"--xla_force_host_platform_device_count=(\d+)")
_lock = threading.Lock()
_processors: list[Device] = []
_all_processors: list[Device] = []


def _cpu_count() -> int:
    """How many devices the processor plays in this process; without asking for one."""
    asked = flags.states["jax_num_cpu_devices"].value
    if _processors or asked > 0:
        return len(_processors) or asked
    found = _forced.findall(os.environ.get("XLA_FLAGS", ""))
    return max(int(found[-1]), 1) if found else 1


def _cpus() -> list[Device]:
    """The devices that the processor plays in this process, whose number is fixed from now on."""
    with _lock:
        if not _processors:
            others = [Device(_CPU.id + number, _CPU.client) for number in range(1, _cpu_count())]
            _processors.extend((_CPU, *others))
            for process in range(_processes.count):
                first = OF_A_PROCESS * process
                _all_processors.extend(
                    _processors if process == _processes.this
                    else [Device(first + number, _CPU.client, process=process) for number in range(len(_processors))]
                )  # fmt: skip
    return _processors


@functools.cache
def _gpus_of_all(choice) -> list[Device]:
    """One GPU of each process: this one's is that of the machine's whose turn it is, as many as there are."""
    there, client = _core.platform_devices("gpu", choice), _client("gpu")
    number, _ = there[_processes.here % len(there)]
    return [
        _device("gpu", OF_A_PROCESS * process, number) if process == _processes.this
        else Device(OF_A_PROCESS * process, client, process=process)
        for process in range(_processes.count)
    ]  # fmt: skip


def join_processes(this: int, count: int, here: int) -> None:
    """Says that this process is one of several, all with as many devices as this one, which are fixed from now on, and
    which of those on its machine it is.

    Nobody may have seen devices before: `devices_were_used`.
    """
    _processes.this, _processes.count, _processes.here = this, count, here
    _CPU.id = OF_A_PROCESS * this
    _CPU._of_process(this)
    _attached.cache_clear()
    _cpus()


def devices_were_used() -> bool:
    """Whether somebody asked for devices, whose ids are fixed since."""
    return bool(_processors)


def local_cpu_count() -> int:
    """How many devices the processor plays in this process; without asking for one."""
    return _cpu_count()


def _check_count(name: str, count: Any, process_wide: bool) -> None:
    """Errors: RuntimeError for a number of CPU devices other than that of those which there are."""
    if name == "jax_num_cpu_devices" and _processors and count not in (-1, len(_processors)):
        raise RuntimeError(
            f"{name}: there are {len(_processors)} CPU devices, of which the first were looked at already; "
            f"set it before any device is asked for. Got {count}"
        )


flags.on_flag_change(_check_count)


def devices(backend: str | None = None) -> list[Device]:
    """All devices of a backend: of each process that `distributed.initialize` joined, this one's and others'.

    Devices of process p have ids from 2048 p on. Of several processes each has one GPU: those on a machine share its
    GPUs, one after the other.

    Args: backend: "cpu", "gpu", "reference", or None for the default: the first of `config.jax_platforms`, or the
    CPU. "gpu" are the GPUs with a driver of Vulkan, Metal or DX12, or those that `config.jax_gpu` says.
    Arrays that are put on a device of "reference", and what is computed from them, are there: an interpreter, slow
    and obvious, with memory of its own.

    Errors: RuntimeError for backends that do not exist, or that `config.jax_platforms` does not name, and where there
    is no such GPU.

    >>> ferrax.devices()[0].platform
    'cpu'
    """
    platform = _platform(backend)
    if platform == "cpu":
        _cpus()
        return list(_all_processors)
    choice = (flags.states["jax_gpu"].value or "") if platform == "gpu" else ""
    if platform == "gpu" and _processes.count > 1:
        return list(_gpus_of_all(choice))
    return list(_attached(platform, choice))


def _platform(backend: str | None) -> str:
    """The platform that a backend is of. Errors: RuntimeError unless there is one that is allowed."""
    platform = default_backend() if backend is None else backend
    if platform not in fixed_flags.PLATFORMS:
        known = "; ".join(f"'{name}', {_WHAT[name]}" for name in fixed_flags.PLATFORMS)
        raise RuntimeError(f"Unknown backend: '{platform}'. There are: {known}")
    allowed = _allowed()
    if allowed and platform not in allowed:
        raise RuntimeError(
            f"Unknown backend: '{platform}'; jax_platforms allows {', '.join(allowed)}"
        )
    return platform


def _allowed() -> list[str]:
    """The platforms that `config.jax_platforms` names; none: all are allowed."""
    named = flags.states["jax_platforms"].value or ""
    return [name for name in named.split(",") if name]


def default_device() -> Device:
    """Where programs run whose arguments were put nowhere: as `config.default_device` says, or the first device.

    >>> str(ferrax.extend.backend.get_default_device())
    'cpu:0'
    """
    device = config.default_device.value
    return device if isinstance(device, Device) else local_devices(backend=device)[0]


def local_devices(
    process_index: int | None = None,
    backend: str | None = None,
    host_id: int | None = None,
) -> list[Device]:
    """The devices of a process, by its number; `host_id` is its older name.

    Errors: ValueError for processes that there are not, and as `devices`.
    Args: process_index, host_id: the number, or None: this process; backend: as of `devices`.

    >>> ferrax.local_devices() == ferrax.devices()
    True
    """
    number = host_id if process_index is None else process_index
    if number is None:
        number = _processes.this
    elif number not in range(_processes.count):
        last = _processes.count - 1
        there = f"processes 0 to {last}" if last else "one process, 0"
        raise ValueError(f"Unknown process_index {number!r}: there is {there}")
    return [device for device in devices(backend) if device.process_index == number]


def device_count(backend: str | None = None) -> int:
    """How many devices a backend has, of all processes.

    Args: backend: as of `devices`. Errors: RuntimeError for backends that do not exist.

    >>> ferrax.device_count() == len(ferrax.devices())
    True
    """
    return _cpu_count() * _processes.count if _platform(backend) == "cpu" else len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many devices of a backend this process has.

    Args: backend: as of `devices`. Errors: RuntimeError for backends that do not exist.

    >>> ferrax.local_device_count() == len(ferrax.local_devices())
    True
    """
    return _cpu_count() if _platform(backend) == "cpu" else len(local_devices(backend=backend))


def default_backend() -> str:
    """The name of the backend that programs run on whose arguments were put nowhere: "cpu", or what
    `config.jax_platforms` names first.

    >>> ferrax.default_backend()
    'cpu'
    """
    return (_allowed() or ["cpu"])[0]


def process_index(backend: str | None = None) -> int:
    """The number of this process among those of a backend.

    Args: backend: as of `devices`. Errors: RuntimeError for backends that do not exist.

    >>> ferrax.host_id()
    0
    """
    if backend is not None:
        devices(backend)
    return _processes.this


def process_count(backend: str | None = None) -> int:
    """How many processes share a backend.

    Args: backend: as of `devices`. Errors: RuntimeError for backends that do not exist.

    >>> ferrax.host_count()
    1
    """
    return len(process_indices(backend))


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of the processes that share a backend.

    Args: backend: as of `devices`. Errors: RuntimeError for backends that do not exist.

    >>> ferrax.process_indices()
    [0]
    """
    return sorted({device.process_index for device in devices(backend)})


def host_ids(backend: str | None = None) -> list[int]:
    """The older name of `process_indices`, which a warning says.

    Args: backend: as of `devices`. Errors: RuntimeError for backends that do not exist.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True):
    ...     ferrax.host_ids()
    [0]
    """
    warnings.warn("ferrax.host_ids is now called ferrax.process_indices", stacklevel=user_stacklevel())
    return process_indices(backend)


host_id = process_index
host_count = process_count
