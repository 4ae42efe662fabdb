"""The argument `out_sharding`: how an operation's result is divided over explicit axes of a mesh.

The operation is done with nothing refused for how its operands are divided, and the result is resharded. Functions
ask for this by calling themselves, `with_out_sharding(name, out_sharding, function, *args)`. Cost without the
argument: a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ferrax._src.core import Array, Tracer, trace_state_clean, typeof
from ferrax._src.core.explicit_types import resharded
from ferrax._src.core.mesh import Mesh, concrete_mesh
from ferrax._src.core.placement import check_devices, explicit_sharding
from ferrax._src.core.placements import placement
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.core.spec_rules.unchecked import unchecked


def with_out_sharding(
    name: str, out_sharding: Any, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """`function(*args, **kwargs)`, an array, divided as `out_sharding` says.

    Errors: TypeError for what is no sharding; ValueError for a `PartitionSpec` where no mesh is in use, for axes that
    are not explicit, for another mesh than the one in use, for other processes' devices, and where the sharding does
    not fit the result; ShardingTypeError where a result that is to be unreduced is no sum over these axes.
    """
    where = explicit_sharding(out_sharding, f"{name}: out_sharding", same_mesh=True)
    if where is None:
        return function(*args, **kwargs)
    if isinstance(where.mesh, Mesh):
        check_devices(where, name)
    where = of_result(name, where, (*args, *kwargs.values()))
    if where.spec.unreduced and name in _NO_SUMS:
        raise NotImplementedError(f"{name}: its result is no sum over devices, got out_sharding={where.spec}")
    if name in _SAME_SUMS:
        _check_sums(name, args[0], where.spec)
    with unchecked(where.spec):
        result = function(*args, **kwargs)
    return resharded(result, where) if where.mesh.explicit_axes else result


def of_result(name: str, where: NamedSharding, operands: Sequence[Any]) -> NamedSharding:
    """What an `out_sharding` says of a result. Over a mesh that is not in use it is part of the result's type only: the
    devices are those of operands.

    Errors: ValueError outside of traced functions, where no operand is on these devices.
    """
    if not isinstance(where.mesh, Mesh) or where.mesh.size == 1 or not concrete_mesh().empty:
        return where
    if not trace_state_clean() or any(isinstance(x, Tracer) for x in operands):
        return where.update(mesh=where.mesh.abstract_mesh, memory_kind=None)
    if not any(isinstance(x, Array) and placement(x).sharding.device_set == where.device_set for x in operands):
        raise ValueError(
            f"{name}: out_sharding is over {where.mesh}, which is not in use, and no operand is on its devices: set "
            "the mesh with ferrax.set_mesh, or pass device= where the function has it"
        )
    return where


# Functions that move elements, of which sums over devices stay such.
_SAME_SUMS = {"reshape", "ravel"}
# Functions whose results are no sums of what devices could have.
_NO_SUMS = {
    "at[].multiply", "at[].divide", "at[].power", "at[].min", "at[].max", "segment_prod", "segment_min", "segment_max",
    "conv_general_dilated", "reduce", "reduce_max", "reduce_min", "percentile", "one_hot",
}  # fmt: skip


def _check_sums(name, x, asked) -> None:
    """Errors: ValueError where a result is to be a sum over other devices than the operand is."""
    known = typeof(x).sharding.spec
    if (known.unreduced, known.reduced) != (asked.unreduced, asked.reduced):
        raise ValueError(
            f"{name}: out_sharding must be unreduced and reduced over the same axes as the operand, got {asked} and an "
            f"operand that is divided as {known}; reshard after it"
        )
