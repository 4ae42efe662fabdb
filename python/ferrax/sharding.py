"""Where arrays live: devices, meshes of them, and how arrays are divided over meshes."""

from ferrax._src.base import public as _public
from ferrax._src.core.manual_axes import ManualAxisType
from ferrax._src.core.mesh import (
    AbstractDevice,
    AbstractMesh,
    AxisType,
    Mesh,
    get_abstract_mesh,
    get_mesh,
    set_mesh,
    use_abstract_mesh,
)
from ferrax._src.core.partition import PartitionSpec, UnreducedKind
from ferrax._src.core.sharding import (
    DuplicateSpecError,
    IndivisibleError,
    NamedSharding,
    Sharding,
    SingleDeviceSharding,
    make_single_device_sharding,
)
from ferrax._src.parallel.constraints import auto_axes, explicit_axes, reshard

__all__ = [
    "AbstractDevice",
    "AbstractMesh",
    "AxisType",
    "DuplicateSpecError",
    "IndivisibleError",
    "ManualAxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "UnreducedKind",
    "auto_axes",
    "explicit_axes",
    "get_abstract_mesh",
    "get_mesh",
    "make_single_device_sharding",
    "reshard",
    "set_mesh",
    "use_abstract_mesh",
]

_public.export(__name__)
