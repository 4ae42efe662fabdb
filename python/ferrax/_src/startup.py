"""What is connected when ferrax is imported: the native core, and classes of lower layers with what
layers above write for them.

The methods of `Array` and of `Ref` that compute, and the views of functions with rules of their own
among the parameters of equations (`custom_views`), are written above these classes. They are given
to them here, so that no layer asks for one above it.
"""

from __future__ import annotations

from ferrax import _core
from ferrax._src import state
from ferrax._src.callbacks import (
    global_operators,  # noqa: F401  operators of arrays over several processes
    over_processes,  # noqa: F401  functions over meshes of several processes
)
from ferrax._src.callbacks.debugging import debug_callback
from ferrax._src.core import (
    array,
    explicit_types,
    permuted_array,
    program_cache,  # noqa: F401  its settings, before anything is compiled
    runtime,  # noqa: F401  the settings, before anything is traced
)
from ferrax._src.experimental.hi.accums import NullAccum, ValAccum
from ferrax._src.numpy import array_methods, at, index_checks, indexing, ref_ops
from ferrax._src.parallel import (
    constraints,
    partition,  # noqa: F401  what compiled functions tell of devices
    shard_map_policies,  # noqa: F401  derivatives in checkpoints
    shard_map_rules,  # noqa: F401  derivatives and batches
)
from ferrax._src.random import generators  # noqa: F401  those that keys are named after
from ferrax._src.transforms import custom_dce, custom_views, custom_vjp  # noqa: F401

array_methods.install(_core.Array)
indexing.install(_core.Array)
at.install(_core.Array)
array.install(_core.Array)
permuted_array.install()
ref_ops.install(state.Ref)
ref_ops.install(state.TransformedRef)
explicit_types.install(constraints.reshard, constraints.with_sharding_constraint)
index_checks.callback = debug_callback
custom_vjp.accumulators += [ValAccum, NullAccum]
