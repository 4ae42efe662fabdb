"""Copies between refs and the semaphores that kernels wait on.

Steps run here wait for nobody: a copy is done when it is started, and adds to its semaphore what the
wait takes off again. A wait for more than was signalled, which would wait for ever, makes a semaphore
negative: under `pl.enable_debug_checks` that is an error.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ferrax._src.pallas.helpers import debug_check
from ferrax._src.pallas.specs import DeviceIdType
from ferrax._src.state import at_user_line

_ONE = np.int32(1)


def semaphore_read(sem_or_view: Any) -> Any:
    """The count of a semaphore, an int32 scalar.

    Args: sem_or_view: a ref of a semaphore, or a view of one.
    """
    return sem_or_view[...]


def semaphore_signal(
    sem_or_view: Any, inc: Any = 1, *, device_id: Any = None,
    device_id_type: DeviceIdType = DeviceIdType.MESH, core_index: Any = None,
) -> None:  # fmt: skip
    """Adds to a semaphore.

    Args: sem_or_view: a ref of a semaphore; inc: how much; device_id, core_index: None, this one.

    Errors: NotImplementedError for another device.
    """
    _own_device("semaphore_signal", device_id)
    sem_or_view[...] = sem_or_view[...] + np.int32(inc) if isinstance(inc, int) else sem_or_view[...] + inc


def semaphore_wait(sem_or_view: Any, value: Any = 1, *, decrement: bool = True) -> None:
    """Waits until a semaphore is at least `value`, and takes that off if `decrement`.

    Args: sem_or_view: a ref of a semaphore; value: an int32.
    """
    now = sem_or_view[...]
    value = np.int32(value) if isinstance(value, int) else value
    debug_check(now >= value, "a kernel waits for a semaphore that nothing signals")
    if decrement:
        sem_or_view[...] = now - value


def _own_device(name, device_id):
    if device_id is not None:
        raise NotImplementedError(
            f"{name}: a kernel runs on one device, got device_id={device_id!r}. Exchange values between devices "
            f"around the kernel: lax.ppermute in shard_map.{at_user_line()}"
        )


@dataclasses.dataclass(frozen=True)
class AsyncCopyDescriptor:
    """A copy from one ref to another, and the semaphore that says when it is done."""

    src_ref: Any
    dst_ref: Any
    sem: Any

    def start(self, priority: int = 0, *, add: bool = False) -> None:
        """Copies; `add` adds to what is there."""
        _copy(self.src_ref, self.dst_ref, add)
        self.sem[...] = self.sem[...] + _ONE

    def wait(self) -> None:
        """Waits until the copy is done."""
        semaphore_wait(self.sem)

    wait_send = wait_recv = wait


def _copy(source, target, add):
    if tuple(source.shape) != tuple(target.shape) or source.dtype != target.dtype:
        raise ValueError(
            f"a copy is between refs of one type, got {source.dtype}{list(source.shape)} and "
            f"{target.dtype}{list(target.shape)}.{at_user_line()}"
        )
    target[...] = target[...] + source[...] if add else source[...]


def make_async_copy(src_ref: Any, dst_ref: Any, sem: Any) -> AsyncCopyDescriptor:
    """A copy that is not started yet: `copy.start()`, then `copy.wait()`.

    Args: src_ref, dst_ref: refs or views of one type; sem: a DMA semaphore.
    """
    return AsyncCopyDescriptor(src_ref, dst_ref, sem)


def async_copy(
    src_ref: Any, dst_ref: Any, sem: Any, *, priority: int = 0, add: bool = False
) -> AsyncCopyDescriptor:
    """A copy that is started: `copy.wait()` follows.

    Args: src_ref, dst_ref: refs or views of one type; sem: a DMA semaphore; add: whether to add to what is there;
    priority: a hint.
    """
    copy = make_async_copy(src_ref, dst_ref, sem)
    copy.start(priority, add=add)
    return copy


def sync_copy(src_ref: Any, dst_ref: Any, *, add: bool = False) -> None:
    """Copies one ref to another of its type; `add` adds to what is there.

    Args: src_ref, dst_ref: refs or views.
    """
    _copy(src_ref, dst_ref, add)


def make_async_remote_copy(*args: Any, **kwargs: Any) -> Any:
    """A copy to another device: not supported.

    Errors: NotImplementedError, which says how to do it.
    """
    raise NotImplementedError(
        "a kernel runs on one device. Exchange values between devices around the kernel: lax.ppermute in shard_map."
        f"{at_user_line()}"
    )


async_remote_copy = make_async_remote_copy
