"""Functions as files: exported here, loaded by Python or by a Rust program."""

from ferrax._src.export import DisabledSafetyCheck as DisabledSafetyCheck
from ferrax._src.export import Exported as Exported
from ferrax._src.export import SymbolicScope as SymbolicScope
from ferrax._src.export import default_export_platform as default_export_platform
from ferrax._src.export import deserialize as deserialize
from ferrax._src.export import export as export
from ferrax._src.export import is_symbolic_dim as is_symbolic_dim
from ferrax._src.export import load as load
from ferrax._src.export import (
    maximum_supported_calling_convention_version as maximum_supported_calling_convention_version,
)
from ferrax._src.export import (
    minimum_supported_calling_convention_version as minimum_supported_calling_convention_version,
)
from ferrax._src.export import (
    register_namedtuple_serialization as register_namedtuple_serialization,
)
from ferrax._src.export import (
    register_pytree_node_serialization as register_pytree_node_serialization,
)
from ferrax._src.export import save as save
from ferrax._src.export import symbolic_args_specs as symbolic_args_specs
from ferrax._src.export import symbolic_shape as symbolic_shape
