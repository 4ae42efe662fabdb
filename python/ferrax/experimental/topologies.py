"""The devices that programs are compiled for."""

from ferrax._src.base import public as _public
from ferrax._src.parallel.topologies import (
    TopologyDescription as TopologyDescription,
    get_attached_topology as get_attached_topology,
    get_topology_desc as get_topology_desc,
    make_mesh as make_mesh,
)

_public.export(__name__)
