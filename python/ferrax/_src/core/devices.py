"""Devices. There is one, the CPU."""

from __future__ import annotations


class Device:
    """A device that arrays live on and programs run on.

    Attributes: `id`, a number; `platform`, "cpu"; further ones that say what it is.

    >>> ferrax.devices()[0].id, ferrax.devices()[0].platform
    (0, 'cpu')
    """

    __slots__ = ("id", "platform", "device_kind", "process_index", "host_id")

    def __init__(self, id: int, platform: str) -> None:
        self.id = id
        self.platform = platform
        self.device_kind = platform
        self.process_index = self.host_id = 0

    @property
    def client(self) -> Device:
        return self

    @property
    def local_hardware_id(self) -> int:
        return self.id

    def memory_stats(self) -> None:
        """None: memory is the host's."""
        return

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"


_CPU = Device(0, "cpu")


def devices(backend: str | None = None) -> list[Device]:
    """All devices of a backend. Errors: RuntimeError for backends that do not exist.

    Args: backend: None or "cpu".

    >>> [device.platform for device in ferrax.devices()]
    ['cpu']
    """
    if backend not in (None, "cpu"):
        raise RuntimeError(
            f"Unknown backend: '{backend}' requested, but no platforms that are instances of it are "
            f"present. Platforms present are: cpu"
        )
    return [_CPU]


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None,
) -> list[Device]:
    """The devices of a process, by its number; `host_id` is its older name.

    Errors: ValueError for processes other than the one there is, and as `devices`.
    Args: process_index, host_id: the number, 0 or None; backend: None or "cpu".

    >>> ferrax.local_devices() == ferrax.devices()
    True
    """
    for number in (process_index, host_id):
        if number not in (None, 0):
            raise ValueError(f"Unknown process_index {number!r}: there is one process, 0")
    return devices(backend)


def device_count(backend: str | None = None) -> int:
    """How many devices a backend has: 1.

    Args: backend: None or "cpu". Errors: RuntimeError for backends that do not exist.

    >>> ferrax.device_count()
    1
    """
    return len(devices(backend))


local_device_count = device_count


def default_backend() -> str:
    """The name of the backend that programs run on: "cpu".

    >>> ferrax.default_backend()
    'cpu'
    """
    return "cpu"


def process_index(backend: str | None = None) -> int:
    """The number of this process among those of a backend: 0.

    Args: backend: None or "cpu". Errors: RuntimeError for backends that do not exist.

    >>> ferrax.host_id()
    0
    """
    return devices(backend)[0].process_index


def process_count(backend: str | None = None) -> int:
    """How many processes share a backend: 1.

    Args: backend: None or "cpu". Errors: RuntimeError for backends that do not exist.

    >>> ferrax.host_count()
    1
    """
    return len(process_indices(backend))


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of the processes that share a backend.

    Args: backend: None or "cpu". Errors: RuntimeError for backends that do not exist.

    >>> ferrax.process_indices()
    [0]
    """
    return [device.process_index for device in devices(backend)]


host_id = process_index
host_count = process_count
