"""Copies between refs, also of other devices (`remote`), and the semaphores that kernels wait on.

Steps run here wait for nobody: a copy is done when it is started, and adds its bytes to its semaphore, which the
wait takes off again. A wait for more than was signalled, which would wait for ever, makes a semaphore
negative: under `pl.enable_debug_checks` that is an error.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from ferrax._src import state
from ferrax._src.base import dtypes
from ferrax._src.pallas import grid, remote
from ferrax._src.pallas.helpers import debug_check
from ferrax._src.pallas.specs import DeviceIdType
from ferrax._src.state import at_user_line


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

    Args:
      sem_or_view: a ref of a semaphore, or a view of one.
      inc: how much, an int32.
      device_id: None for this device's, or another device of the mesh that the kernel is mapped over, in `shard_map`:
        its place on each axis of the mesh, in a tuple or a dict by the axes' names, or its number.
      device_id_type: `pl.DeviceIdType.LOGICAL` where `device_id` is the number.
      core_index: None or the core whose semaphore is meant: cores have one memory.

    Errors: ValueError for what names no device of the mesh, and outside of `shard_map`.

    >>> def signalled(sem):
    ...     pl.semaphore_signal(sem, 2)
    ...     return pl.semaphore_read(sem)
    >>> pl.run_scoped(signalled, pltpu.SemaphoreType.REGULAR)
    Array(2, dtype=int32)
    """
    inc = np.int32(inc) if isinstance(inc, int) else inc
    if device_id is None:
        _signal((sem_or_view, inc))
        return
    target = remote.device_index("semaphore_signal", device_id, device_id_type)
    remote.to_device("semaphore_signal", target, (sem_or_view, inc), _signal)


def _signal(message):
    sem, inc = message
    sem[...] = sem[...] + inc


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
    reached = now >= value
    for mask in state.masks():
        reached = reached | ~mask
    debug_check(reached, "a kernel waits for a semaphore that nothing signals")
    if decrement:
        sem_or_view[...] = now - value


@dataclasses.dataclass
class AsyncCopyDescriptor:
    """A copy from one ref to another, and the semaphores that say when it is done: `sem` where it is received, and for
    one to another device `send_sem` where it is sent from. They count bytes."""

    src_ref: Any
    dst_ref: Any
    sem: Any
    send_sem: Any = None
    device_id: Any = None
    device_id_type: DeviceIdType = DeviceIdType.MESH

    def __post_init__(self) -> None:
        if (self.send_sem is None) != (self.device_id is None):
            raise ValueError(
                "a copy to another device has a semaphore where it is sent from and a device_id, others have neither; "
                f"got device_id={self.device_id!r}.{at_user_line()}"
            )

    @property
    def is_remote(self) -> bool:
        """Whether it is one to another device."""
        return self.send_sem is not None

    def start(self, priority: int = 0, *, add: bool = False) -> None:
        """Copies; `add` adds to what is there, `priority` is a hint."""
        _check(self.src_ref, self.dst_ref)
        message = self.dst_ref, self.sem, self.src_ref[...], _bytes(self.dst_ref)
        if not self.is_remote:
            _receive(message, add)
            return
        target = remote.device_index("a remote copy", self.device_id, self.device_id_type)
        remote.to_device("a remote copy", target, message, functools.partial(_receive, add=add))
        semaphore_signal(self.send_sem, _bytes(self.src_ref))

    def wait(self) -> None:
        """Waits until the copy is done: until it is sent, and what this device gets by the same program is there."""
        if self.is_remote:
            self.wait_send()
        self.wait_recv()

    def wait_recv(self) -> None:
        """Waits until as much as the copy writes is received here."""
        semaphore_wait(self.sem, _bytes(self.dst_ref))

    def wait_send(self) -> None:
        """Waits until the copy is sent. Errors: ValueError for one within a device."""
        if not self.is_remote:
            raise ValueError(f"wait_send: this is a copy within a device: wait() for it.{at_user_line()}")
        semaphore_wait(self.send_sem, _bytes(self.src_ref))


def _receive(message, add):
    target, sem, value, count = message
    target[...] = target[...] + value if add else value
    _signal((sem, count))


def _bytes(ref):
    bits = 32 if dtypes.issubdtype(ref.dtype, dtypes.extended) else dtypes.itemsize_bits(ref.dtype)
    return np.int32(math.prod(ref.shape) * bits // 8)


def _check(source, target):
    if tuple(source.shape) != tuple(target.shape) or source.dtype != target.dtype:
        raise ValueError(
            f"a copy is between refs of one type, got {source.dtype}{list(source.shape)} and "
            f"{target.dtype}{list(target.shape)}.{at_user_line()}"
        )


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
    _check(src_ref, dst_ref)
    dst_ref[...] = dst_ref[...] + src_ref[...] if add else src_ref[...]


def make_async_remote_copy(
    src_ref: Any, dst_ref: Any, send_sem: Any, recv_sem: Any, device_id: Any,
    device_id_type: DeviceIdType = DeviceIdType.MESH,
) -> AsyncCopyDescriptor:  # fmt: skip
    """A copy to a device of the mesh that `shard_map` maps the kernel over, not started yet.

    Args:
      src_ref: a ref or a view of this device's memory.
      dst_ref: one of its type, which stands for the other device's; its indices are this device's.
      send_sem: a DMA semaphore of this device, for `wait_send`.
      recv_sem: one that stands for the other device's, which waits by `wait_recv` of its own copy.
      device_id: the other device: its place on each axis of the mesh, in a tuple or a dict by the axes' names, or its
        number.
      device_id_type: `pl.DeviceIdType.LOGICAL` where `device_id` is the number.

    Devices run a kernel in lockstep: all are at the same operation, and a copy is done when it is started. In `pl.when`
    it depends on the condition of the device that sends.

    Errors: ValueError, when it is started, for refs of two types, for what names no device of the mesh, and outside of
    `shard_map`; NotImplementedError in `lax.cond` and in loops whose length is not known.

    >>> def to_the_right(x_ref, o_ref, send_sem, recv_sem):
    ...     right = (lax.axis_index("x") + 1) % 1
    ...     copy = pltpu.make_async_remote_copy(x_ref, o_ref, send_sem, recv_sem, device_id=(right,))
    ...     copy.start()
    ...     copy.wait()
    >>> call = pl.pallas_call(to_the_right, ferrax.ShapeDtypeStruct((2,), jnp.float32),
    ...                       scratch_shapes=[pltpu.SemaphoreType.DMA] * 2)
    >>> axis = ferrax.P("x")
    >>> ferrax.shard_map(
    ...     call, mesh=ferrax.make_mesh((1,), ("x",)), in_specs=axis, out_specs=axis, check_vma=False)(jnp.arange(2.0))
    Array([0., 1.], dtype=float32)
    """
    return AsyncCopyDescriptor(src_ref, dst_ref, recv_sem, send_sem, device_id, device_id_type)


def async_remote_copy(
    src_ref: Any, dst_ref: Any, send_sem: Any, recv_sem: Any, device_id: Any,
    device_id_type: DeviceIdType = DeviceIdType.MESH,
) -> AsyncCopyDescriptor:  # fmt: skip
    """A copy to another device that is started: `copy.wait()` follows.

    Args: src_ref, dst_ref, send_sem, recv_sem, device_id, device_id_type: as for `make_async_remote_copy`, with the
    same errors.

    >>> def to_itself(x_ref, o_ref, send_sem, recv_sem):
    ...     pltpu.async_remote_copy(x_ref, o_ref, send_sem, recv_sem, 0, pl.DeviceIdType.LOGICAL).wait()
    >>> call = pl.pallas_call(to_itself, ferrax.ShapeDtypeStruct((2,), jnp.float32),
    ...                       scratch_shapes=[pltpu.SemaphoreType.DMA] * 2)
    >>> axis = ferrax.P("x")
    >>> ferrax.shard_map(
    ...     call, mesh=ferrax.make_mesh((1,), ("x",)), in_specs=axis, out_specs=axis, check_vma=False)(jnp.arange(2.0))
    Array([0., 1.], dtype=float32)
    """
    copy = make_async_remote_copy(src_ref, dst_ref, send_sem, recv_sem, device_id, device_id_type)
    copy.start()
    return copy


def get_barrier_semaphore() -> Any:
    """The semaphore of a kernel that its devices signal to each other when they are ready. It begins at 0.

    The kernel has one where its `compiler_params` have a `collective_id`, a number that kernels with other partners do
    not have.

    Errors: ValueError elsewhere.

    >>> def kernel(o_ref):
    ...     barrier = pltpu.get_barrier_semaphore()
    ...     pl.semaphore_signal(barrier)
    ...     pl.semaphore_wait(barrier)
    ...     o_ref[...] = pl.semaphore_read(barrier)
    >>> pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((), jnp.int32),
    ...                compiler_params=pltpu.CompilerParams(collective_id=0))()
    Array(0, dtype=int32)
    """
    frame = grid.innermost()
    if frame is None or frame.barrier is None:
        raise ValueError(
            "get_barrier_semaphore: of a kernel that is given compiler_params=pltpu.CompilerParams(collective_id=...)."
            f"{at_user_line()}"
        )
    return frame.barrier
