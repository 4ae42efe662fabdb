"""Functions as files: exported here, loaded by Python or by a Rust program."""

from ferrax._src.base import public as _public
from ferrax._src.dims import (
    SymbolicScope as SymbolicScope,
    is_symbolic_dim as is_symbolic_dim,
    symbolic_shape as symbolic_shape,
)
from ferrax._src.dims.decisions import (
    symbolic_dim_bounds as symbolic_dim_bounds,
)
from ferrax._src.interop.export import (
    DisabledSafetyCheck as DisabledSafetyCheck,
    Exported as Exported,
    default_export_platform as default_export_platform,
    deserialize as deserialize,
    export as export,
    load as load,
    maximum_supported_calling_convention_version as maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version as minimum_supported_calling_convention_version,
    register_namedtuple_serialization as register_namedtuple_serialization,
    register_pytree_node_serialization as register_pytree_node_serialization,
    save as save,
)
from ferrax._src.transforms.symbolic_args import symbolic_args_specs as symbolic_args_specs

_public.export(__name__)
