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

    >>> pl.run_scoped(pl.semaphore_read, pltpu.SemaphoreType.REGULAR)
    Array(0, dtype=int32)
    """
    return sem_or_view[...]


def semaphore_signal(
    sem_or_view: Any, inc: Any = 1, *, device_id: Any = None,
    device_id_type: DeviceIdType = DeviceIdType.MESH, core_index: Any = None,
) -> None:  # fmt: skip
    """Adds to a semaphore.

    Args: sem_or_view: a ref of a semaphore; inc: how much; device_id, core_index: None, this one; device_id_type: how
    another device would be named.

    Errors: NotImplementedError for another device.

    >>> def signalled(sem):
    ...     pl.semaphore_signal(sem, 2)
    ...     return pl.semaphore_read(sem)
    >>> pl.run_scoped(signalled, pltpu.SemaphoreType.REGULAR)
    Array(2, dtype=int32)
    """
    _own_device("semaphore_signal", device_id)
    sem_or_view[...] = sem_or_view[...] + np.int32(inc) if isinstance(inc, int) else sem_or_view[...] + inc


def semaphore_wait(sem_or_view: Any, value: Any = 1, *, decrement: bool = True) -> None:
    """Waits until a semaphore is at least `value`, and takes that off if `decrement`.

    Args: sem_or_view: a ref of a semaphore; value: an int32; decrement: a bool.

    Nothing waits here: what was not signalled before leaves the semaphore negative, an error under
    `pl.enable_debug_checks`.

    >>> def waited(sem):
    ...     pl.semaphore_signal(sem, 2)
    ...     pl.semaphore_wait(sem)
    ...     return pl.semaphore_read(sem)
    >>> pl.run_scoped(waited, pltpu.SemaphoreType.REGULAR)
    Array(1, dtype=int32)
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

    >>> def kernel(x_ref, o_ref, sem):
    ...     copy = pltpu.make_async_copy(x_ref.at[1:], o_ref.at[:2], sem)
    ...     copy.start()
    ...     copy.wait()
    >>> pl.pallas_call(kernel, jnp.zeros(3), scratch_shapes=[pltpu.SemaphoreType.DMA])(jnp.arange(3.0))
    Array([ 1.,  2., nan], dtype=float32)
    """
    return AsyncCopyDescriptor(src_ref, dst_ref, sem)


def async_copy(
    src_ref: Any, dst_ref: Any, sem: Any, *, priority: int = 0, add: bool = False
) -> AsyncCopyDescriptor:
    """A copy that is started: `copy.wait()` follows.

    Args: src_ref, dst_ref: refs or views of one type; sem: a DMA semaphore; add: whether to add to what is there;
    priority: a hint.

    >>> def kernel(x_ref, o_ref, sem):
    ...     pltpu.async_copy(x_ref, o_ref, sem).wait()
    >>> pl.pallas_call(kernel, jnp.zeros(3), scratch_shapes=[pltpu.SemaphoreType.DMA])(jnp.arange(3.0))
    Array([0., 1., 2.], dtype=float32)
    """
    copy = make_async_copy(src_ref, dst_ref, sem)
    copy.start(priority, add=add)
    return copy


def sync_copy(src_ref: Any, dst_ref: Any, *, add: bool = False) -> None:
    """Copies one ref to another of its type; `add` adds to what is there.

    Args: src_ref, dst_ref: refs or views; add: a bool. Errors: ValueError for refs of two types.

    >>> ref = ferrax.new_ref(jnp.arange(4.0))
    >>> pltpu.sync_copy(ref.at[:2], ref.at[2:])
    >>> ref
    Ref([0., 1., 0., 1.], dtype=float32)
    """
    _copy(src_ref, dst_ref, add)


def make_async_remote_copy(*args: Any, **kwargs: Any) -> Any:
    """A copy to another device: not supported.

    Args: args, kwargs: any. Errors: NotImplementedError, which says how to do it.

    >>> pltpu.make_async_remote_copy()
    Traceback (most recent call last):
    NotImplementedError: a kernel runs on one device...
    """
    raise NotImplementedError(
        "a kernel runs on one device. Exchange values between devices around the kernel: lax.ppermute in shard_map."
        f"{at_user_line()}"
    )


async_remote_copy = make_async_remote_copy
