"""What programs of several processes ask of each other. There is one process, which agrees with itself."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ferrax._src.core.mesh import Mesh
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.placement import device_get, device_put
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.tree import tree_util

__all__ = [
    "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array",
    "host_local_array_to_global_array", "live_devices", "process_allgather",
    "reached_preemption_sync_point", "sync_global_devices",
]  # fmt: skip


def _host(leaf):
    return leaf if isinstance(leaf, np.ndarray) else np.asarray(leaf)


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The tree of the source process, in all processes, as NumPy arrays.

    Args: in_tree: a tree of arrays; is_source: whether this process is the source; None: process 0 is.

    >>> from ferrax.experimental import multihost_utils
    >>> multihost_utils.broadcast_one_to_all(np.arange(2))
    array([0, 1])
    """
    return tree_util.tree_map(_host, device_get(in_tree))


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The arrays of all processes, in each, as NumPy arrays.

    Args: in_tree: a tree of arrays; tiled: whether they are one after the other along axis 0, and not
    along a new one. Arrays over several processes are gathered as they are.

    >>> from ferrax.experimental import multihost_utils
    >>> multihost_utils.process_allgather(np.arange(2)).shape
    (1, 2)
    """
    return tree_util.tree_map(lambda leaf: _host(leaf) if tiled else _host(leaf)[None], in_tree)


def sync_global_devices(name: str) -> None:
    """Waits until all processes are here. Errors: AssertionError if some are at another `name`.

    >>> from ferrax.experimental import multihost_utils
    >>> multihost_utils.sync_global_devices("saved")
    """
    assert_equal(np.uint32(zlib.crc32(name.encode())), f"processes are not all at {name!r}")


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Checks that all processes have the same. Errors: AssertionError, with this message.

    Args: in_tree: a tree of arrays; fail_message: what the error says.

    >>> from ferrax.experimental import multihost_utils
    >>> multihost_utils.assert_equal(np.arange(2))
    """
    expected = broadcast_one_to_all(in_tree)

    def equal(x, y):
        return np.array_equal(_host(x), _host(y), equal_nan=_host(x).dtype.kind in "fc")

    if not all(tree_util.tree_leaves(tree_util.tree_map(equal, in_tree, expected))):
        raise AssertionError(f"{fail_message}: expected {expected}, got {in_tree}")


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether processes are to save their state at this step, since they will end: False, for nobody
    says so of the one process.

    Args: step_id: the number of the step.

    >>> from ferrax.experimental import multihost_utils
    >>> multihost_utils.reached_preemption_sync_point(3)
    False
    """
    return False


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

    Args: local_inputs: a tree of arrays; global_mesh: the mesh; pspecs: a `PartitionSpec`, or a tree of
    these above the inputs.

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
        [device_put(x, NamedSharding(global_mesh, spec)) for x, spec in zip(leaves, specs)]
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
    return tree.unflatten(
        [device_put(x, NamedSharding(local, spec)) for x, spec in zip(leaves, specs)]
    )


@contextlib.contextmanager
def live_devices(devices: Sequence[Any]) -> Iterator[list[Any]]:
    """A context with those devices whose processes live. Errors: RuntimeError: nobody tells.

    Args: devices: the devices.

    >>> from ferrax.experimental import multihost_utils
    >>> try:
    ...     with multihost_utils.live_devices(ferrax.devices()):
    ...         pass
    ... except RuntimeError as error:
    ...     print(str(error).split(":")[0])
    live_devices
    """
    raise RuntimeError(
        f"live_devices: ferrax.distributed is not initialized for several processes, which could tell of {devices}"
    )
    yield []
