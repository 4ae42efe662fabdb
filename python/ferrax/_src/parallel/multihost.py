"""What programs of several processes ask of each other. One process agrees with itself."""

from __future__ import annotations

import contextlib
import signal
import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src.core.global_array import GlobalArray
from ferrax._src.core.mesh import Mesh
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.parts import parts_of
from ferrax._src.core.placement import device_get, device_put
from ferrax._src.core.placements import placement
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.core.values import Array
from ferrax._src.parallel import algorithms, ranks
from ferrax._src.parallel.across import relaid
from ferrax._src.parallel.global_arrays import (
    make_array_from_process_local_data,
    make_array_from_single_device_arrays,
)
from ferrax._src.tree import tree_util

__all__ = [
    "ProcessFailureError", "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array",
    "host_local_array_to_global_array", "live_devices", "process_allgather",
    "reached_preemption_sync_point", "sync_global_devices",
]  # fmt: skip


def _host(leaf):
    return leaf if isinstance(leaf, np.ndarray) else np.asarray(leaf)


def _spans(leaf) -> bool:
    """Whether other processes have devices of an array."""
    return isinstance(leaf, Array) and not placement(leaf).sharding.is_fully_addressable


def _values(in_tree):
    """The leaves as NumPy arrays, of the dtypes that arrays have."""
    leaves, tree = tree_util.tree_flatten(device_get(in_tree))
    return [_core.as_numpy(_core.as_array(leaf, "multihost_utils")) for leaf in leaves], tree


def _all(what: str, detail: Any = "") -> tuple[ranks.Ranks, range, ranks.Call]:
    joined = ranks.current()
    everybody = range(joined.processes)
    return joined, everybody, ranks.Call(what, _core.user_location(), everybody, detail)


def _bytes(leaves) -> np.ndarray:
    """All elements of arrays, one after the other."""
    return np.frombuffer(b"".join(leaf.tobytes() for leaf in leaves), np.uint8)


def _of_bytes(memory: np.ndarray, leaves) -> list[np.ndarray]:
    """Arrays of the types of others, of all their elements."""
    found, start = [], 0
    for leaf in leaves:
        # A copy: memory in which elements of any size may begin.
        piece = memory[start : start + leaf.nbytes].tobytes()
        found.append(np.frombuffer(bytearray(piece), leaf.dtype).reshape(leaf.shape))
        start += leaf.nbytes
    return found


def _gathered(what: str, leaves) -> list[list[np.ndarray]]:
    """The leaves of each process."""
    joined, everybody, call = _all(what, [(leaf.dtype.name, leaf.shape) for leaf in leaves])
    mine = _bytes(leaves)
    sizes = [mine.nbytes] * joined.processes
    whole = joined.run(call, algorithms.all_gather(everybody, joined.process, mine, sizes))
    return [_of_bytes(block, leaves) for block in algorithms.cut(whole, sizes)]


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The tree of the source process, in all processes, as NumPy arrays.

    Args: in_tree: a tree of arrays, of the same types in each process; is_source: whether this process is the source,
    which one is; None: process 0 is.

    Errors: ValueError unless one process is the source; JaxRuntimeError if processes have trees of different types.

    >>> from ferrax.experimental import multihost_utils
    >>> multihost_utils.broadcast_one_to_all(np.arange(2))
    array([0, 1])
    """
    if ranks.current().processes == 1:
        return tree_util.tree_map(_host, device_get(in_tree))
    leaves, tree = _values(in_tree)
    root = 0
    if is_source is not None:
        flags = _gathered("broadcast_one_to_all: is_source", [np.array(bool(is_source))])
        sources = [process for process, (flag,) in enumerate(flags) if flag]
        if len(sources) != 1:
            raise ValueError(f"broadcast_one_to_all: is_source must be true in one process, it is in {sources}")
        (root,) = sources
    types = [(leaf.dtype.name, leaf.shape) for leaf in leaves]
    joined, everybody, call = _all("broadcast_one_to_all", (types, str(tree), is_source is None))
    memory = np.array(_bytes(leaves))
    joined.run(call, algorithms.broadcast(everybody, joined.process, root, memory))
    return tree.unflatten(_of_bytes(memory, leaves))


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The arrays of all processes, in each, as NumPy arrays.

    Args: in_tree: a tree of arrays; tiled: whether they are one after the other along axis 0, and not
    along a new one. Arrays over several processes are gathered as they are.

    Errors: ValueError for arrays over several processes unless `tiled`; JaxRuntimeError if processes have trees of
    different types.

    >>> from ferrax.experimental import multihost_utils
    >>> multihost_utils.process_allgather(np.arange(2)).shape
    (1, 2)
    """
    if ranks.current().processes == 1:
        return tree_util.tree_map(lambda leaf: _host(leaf) if tiled else _host(leaf)[None], in_tree)
    leaves, tree = tree_util.tree_flatten(in_tree)
    own = [number for number, leaf in enumerate(leaves) if not _spans(leaf)]
    found: list[Any] = [None] * len(leaves)
    for number, leaf in enumerate(leaves):
        if _spans(leaf):
            if not tiled:
                raise ValueError(
                    f"process_allgather: an array over several processes, as this one of shape {leaf.shape}, is "
                    "gathered as it is: pass tiled=True"
                )
            found[number] = _whole(leaf)
    if own:
        gathered = _gathered("process_allgather", _values([leaves[number] for number in own])[0])
        for place, number in enumerate(own):
            parts = [each[place] for each in gathered]
            found[number] = np.concatenate(parts) if tiled and parts[0].ndim else np.stack(parts)
    return tree.unflatten(found)


def _whole(array: Any) -> np.ndarray:
    """All elements of an array over several processes, which all have to call this."""
    sharding = placement(array).sharding
    mesh = Mesh(np.array(sharding._device_assignment), ("all",))
    return np.asarray(relaid(array, NamedSharding(mesh, PartitionSpec())))


def sync_global_devices(name: str) -> None:
    """Waits until all processes are here. Errors: AssertionError if some are at another `name`.

    >>> from ferrax.experimental import multihost_utils
    >>> multihost_utils.sync_global_devices("saved")
    """
    if ranks.current().processes == 1:
        return
    crc = np.uint32(zlib.crc32(name.encode()))
    found = _gathered("sync_global_devices", [np.array(crc)])
    others = [process for process, (theirs,) in enumerate(found) if theirs != crc]
    if others:
        raise AssertionError(f"sync_global_devices: processes {others} are not at {name!r}")


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Checks that all processes have the same. Errors: AssertionError in all of them, with this message.

    Args: in_tree: a tree of arrays; fail_message: what the error says.

    >>> from ferrax.experimental import multihost_utils
    >>> multihost_utils.assert_equal(np.arange(2))
    """
    if ranks.current().processes == 1:
        return
    mine = _values(in_tree)[0]
    expected = tree_util.tree_leaves(broadcast_one_to_all(in_tree))

    def equal(x, y):
        return np.array_equal(x, y, equal_nan=x.dtype.kind in "fc")

    differs = not all(map(equal, mine, expected))
    flags = _gathered("assert_equal", [np.array(differs)])
    others = [process for process, (flag,) in enumerate(flags) if flag]
    if others:
        raise AssertionError(
            f"{fail_message}: processes {others} have others than process 0; expected {expected}, got {mine}"
        )


_lock = threading.Lock()
_asked_to_end: threading.Event | None = None


def _watch() -> threading.Event:
    """What is set when the system asks this process to end (SIGTERM), from the first call on."""
    global _asked_to_end
    with _lock:
        if _asked_to_end is None:
            event = threading.Event()
            before = signal.getsignal(signal.SIGTERM)

            def asked(number, frame):
                event.set()
                if callable(before):
                    before(number, frame)

            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, asked)
            _asked_to_end = event
        return _asked_to_end


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether processes are to save their state at this step, since they will end.

    That is so in all processes from the first step on that they reach after the system asked one of them to end, by
    SIGTERM, which ends none of them by itself once this was called. One process is asked by nobody.

    Args: step_id: the number of the step, the same in all processes. Cost: a message of a few bytes to a logarithm of
    processes.

    >>> from ferrax.experimental import multihost_utils
    >>> multihost_utils.reached_preemption_sync_point(3)
    False
    """
    if ranks.current().processes == 1:
        return False
    flags = _gathered(f"reached_preemption_sync_point({step_id})", [np.array(_watch().is_set())])
    return any(flag for (flag,) in flags)


def _specs(pspecs, tree, function):
    if pspecs is None:
        raise ValueError(
            f"{function}: pspecs must be PartitionSpecs, or a tree of these; PartitionSpec() is for what all "
            "processes have whole, got None"
        )
    leaf = lambda x: isinstance(x, PartitionSpec)  # noqa: E731
    return tree_util.broadcast_prefix(pspecs, tree, is_leaf=leaf)


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """The arrays that all processes' parts make, over a mesh.

    Args: local_inputs: a tree of arrays: what this process's part of the mesh holds; global_mesh: the mesh; pspecs: a
    `PartitionSpec`, or a tree of these above the inputs. Arrays over several processes stay as they are.

    Errors: ValueError where a spec does not fit.

    >>> from ferrax.experimental import multihost_utils
    >>> mesh = ferrax.make_mesh((1,), ("x",))
    >>> made = multihost_utils.host_local_array_to_global_array(np.arange(2), mesh, ferrax.P("x"))
    >>> made.sharding.spec
    P('x',)
    """
    leaves, tree = tree_util.tree_flatten(local_inputs)
    specs = _specs(pspecs, local_inputs, "host_local_array_to_global_array")
    return tree.unflatten(
        [
            leaf if _spans(leaf) else make_array_from_process_local_data(NamedSharding(global_mesh, spec), leaf)
            for leaf, spec in zip(leaves, specs)
        ]
    )


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """This process's parts of arrays over a mesh: with one process, all of them.

    Args and errors: as for `host_local_array_to_global_array`; global_inputs: a tree of arrays;
    global_mesh: the mesh, over this process's part of which they are; pspecs: the specs.

    >>> from ferrax.experimental import multihost_utils
    >>> mesh = ferrax.make_mesh((1,), ("x",))
    >>> multihost_utils.global_array_to_host_local_array(jnp.arange(2), mesh, ferrax.P("x"))
    Array([0, 1], dtype=int32)
    """
    leaves, tree = tree_util.tree_flatten(global_inputs)
    specs = _specs(pspecs, global_inputs, "global_array_to_host_local_array")
    local = global_mesh.local_mesh

    def taken(leaf, sharding):
        if not _spans(leaf):
            return device_put(leaf, sharding)
        if not placement(leaf).sharding.is_equivalent_to(NamedSharding(global_mesh, sharding.spec), leaf.ndim):
            leaf = relaid(leaf, NamedSharding(global_mesh, sharding.spec))
        parts = leaf.parts() if type(leaf) is GlobalArray else parts_of(leaf)
        counts = sharding._parts(leaf.ndim)
        shape = tuple(size * count for size, count in zip(parts[0][1].shape, counts))
        return make_array_from_single_device_arrays(shape, sharding, [part for _, part in parts])

    return tree.unflatten([taken(leaf, NamedSharding(local, spec)) for leaf, spec in zip(leaves, specs)])


class ProcessFailureError(Exception):
    """Processes failed, and with them the set `failed_devices`. It is for programs that catch it: where a process ends,
    MPI ends the others.

    >>> from ferrax.experimental import multihost_utils
    >>> multihost_utils.ProcessFailureError(set(ferrax.devices()[:0])).failed_devices
    set()
    """

    def __init__(self, failed_devices: set[Any]) -> None:
        super().__init__(f"processes failed, with the devices {failed_devices}")
        self.failed_devices = failed_devices


@contextlib.contextmanager
def live_devices(devices: Sequence[Any]) -> Iterator[list[Any]]:
    """A context with those devices whose processes live, which are all: where one ends, MPI ends the others.

    Args: devices: the devices. Errors: RuntimeError with one process, as nobody tells.

    >>> from ferrax.experimental import multihost_utils
    >>> try:
    ...     with multihost_utils.live_devices(ferrax.devices()):
    ...         pass
    ... except RuntimeError as error:
    ...     print(str(error).split(":")[0])
    live_devices
    """
    if ranks.current().processes == 1:
        raise RuntimeError(
            f"live_devices: ferrax.distributed is not initialized for several processes, which could tell of {devices}"
        )
    yield list(devices)
