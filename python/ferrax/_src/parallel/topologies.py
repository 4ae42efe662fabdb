"""`ferrax.experimental.topologies`: the devices that are there, as a description of where a program is compiled for.

Programs are compiled for the process that runs them, so that devices which are elsewhere have no description.
`experimental.transfer` is here, too: arrays go between processes by `ferrax.distributed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ferrax._src.core.devices import Device, devices
from ferrax._src.core.mesh import Mesh
from ferrax._src.parallel.mesh_utils import create_device_mesh

__all__ = ["TopologyDescription", "get_attached_topology", "get_topology_desc", "make_mesh"]


class TopologyDescription:
    """Devices: those in the list `devices`.

    >>> from ferrax.experimental import topologies
    >>> topologies.TopologyDescription(ferrax.devices()).devices == ferrax.devices()
    True
    """

    def __init__(self, devices: list[Device]) -> None:
        self.devices = devices


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """The devices that are there.

    Args: platform: None, for the default one, or a platform's name. Errors: RuntimeError for one that is not there.

    >>> from ferrax.experimental import topologies
    >>> topologies.get_attached_topology("cpu").devices == ferrax.devices("cpu")
    True
    """
    return TopologyDescription(devices(platform))


def get_topology_desc(topology_name: str = "", platform: str | None = None, **kwargs: Any) -> NoReturn:
    """Not supported: NotImplementedError. `topology_name`, `platform` and `kwargs` are the names and options of devices
    that are elsewhere.

    >>> from ferrax.experimental import topologies
    >>> topologies.get_topology_desc("v5e:2x2", "tpu")
    Traceback (most recent call last):
        ...
    NotImplementedError: get_topology_desc: programs are compiled for devices that are there, not for 'tpu' 'v5e:2x2'...
    """
    raise NotImplementedError(
        f"get_topology_desc: programs are compiled for devices that are there, not for {platform!r} {topology_name!r}; "
        "use get_attached_topology, or ferrax.export for other machines"
    )


def make_mesh(
    topo: TopologyDescription, mesh_shape: Sequence[int], axis_names: tuple[str, ...], *,
    contiguous_submeshes: bool = False,
) -> Mesh:  # fmt: skip
    """A mesh of the devices of a topology.

    Args: topo: the topology; mesh_shape: how many devices along each axis; axis_names: their names;
    contiguous_submeshes: as for `mesh_utils.create_device_mesh`. Errors: those of that function.

    >>> from ferrax.experimental import topologies
    >>> topologies.make_mesh(topologies.get_attached_topology(), (ferrax.device_count(),), ("x",)).axis_names
    ('x',)
    """
    grid = create_device_mesh(mesh_shape, list(topo.devices), contiguous_submeshes=contiguous_submeshes)
    return Mesh(grid, axis_names)


def _absent(name) -> NoReturn:
    raise NotImplementedError(
        f"transfer.{name}: arrays are not sent outside of a group of processes; ferrax.distributed joins processes, "
        "whose arrays ferrax.device_put moves, and ferrax.experimental.multihost_utils gathers"
    )


class TransferConnection:
    """Not supported: NotImplementedError.

    >>> from ferrax.experimental import transfer
    >>> transfer.TransferConnection()
    Traceback (most recent call last):
        ...
    NotImplementedError: transfer.TransferConnection: arrays are not sent outside of a group of processes...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _absent("TransferConnection")


class TransferServer:
    """Not supported: NotImplementedError. See `TransferConnection`.

    >>> from ferrax.experimental import transfer
    >>> transfer.TransferServer()
    Traceback (most recent call last):
        ...
    NotImplementedError: transfer.TransferServer: arrays are not sent outside of a group of processes...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _absent("TransferServer")


def start_transfer_server(*args: Any, **kwargs: Any) -> NoReturn:
    """Not supported: NotImplementedError, for all of `args` and `kwargs`.

    >>> from ferrax.experimental import transfer
    >>> transfer.start_transfer_server(ferrax.devices()[0].client)
    Traceback (most recent call last):
        ...
    NotImplementedError: transfer.start_transfer_server: arrays are not sent outside of a group of processes...
    """
    _absent("start_transfer_server")


def make_error_array(aval: Any, message: Any) -> NoReturn:
    """Not supported: NotImplementedError, for all of `aval` and `message`.

    >>> from ferrax.experimental import transfer
    >>> transfer.make_error_array(ferrax.typeof(1.0), "lost")
    Traceback (most recent call last):
        ...
    NotImplementedError: transfer.make_error_array: arrays are not sent outside of a group of processes...
    """
    _absent("make_error_array")
