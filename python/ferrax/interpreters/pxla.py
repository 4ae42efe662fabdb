"""What is left of JAX's module of this name: the mesh of `with mesh`, and small names."""

# ruff: noqa: F401

import warnings

from ferrax._src.base.absent import absent as _make_absent, group as _group
from ferrax._src.core.primitive_params import UNSPECIFIED as _UNSPECIFIED
from ferrax._src.interop import core_functions as _core_functions

_absent = _make_absent(
    __name__,
    _group(
        "MeshComputation MeshExecutable create_compile_options global_aval_to_result_handler "
        "global_avals_to_results_handler global_result_handlers",
        "programs are compiled and run by ferrax itself, not by XLA; see ferrax.stages",
    )
    | _group(
        "Mesh MeshPspec PartitionSpec UNSPECIFIED are_hlo_shardings_equal is_hlo_sharding_replicated "
        "op_sharding_to_indices",
        "ferrax.sharding has what there is of shardings",
    ),
)
_DEPRECATED = ("ArrayMapping", "Index", "MeshAxisName", "array_mapping_to_axis_resources", "thread_resources")


def __getattr__(name):
    if name not in _DEPRECATED:
        return _absent(name)
    warnings.warn(f"ferrax.interpreters.pxla.{name} is deprecated.", DeprecationWarning, stacklevel=2)
    return getattr(_core_functions, name)
