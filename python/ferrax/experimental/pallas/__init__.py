"""``ferrax.experimental.pallas``: kernels over grids of blocks, written with mutable arrays.

Example:
    >>> from ferrax.experimental import pallas as pl
    >>> def double(x_ref, o_ref):
    ...     o_ref[...] = x_ref[...] * 2
    >>> pl.pallas_call(double, ferrax.ShapeDtypeStruct((3,), jnp.float32))(jnp.arange(3.0))
    Array([0., 2., 4.], dtype=float32)
"""

from ferrax._src.base import config as _config, public as _public
from ferrax._src.numpy.ref_ops import run_state as run_state
from ferrax._src.numpy.slices import Slice as Slice, ds as ds
from ferrax._src.pallas.call import pallas_call as pallas_call, pallas_call_p as pallas_call_p
from ferrax._src.pallas.copies import (
    semaphore_read as semaphore_read,
    semaphore_signal as semaphore_signal,
    semaphore_wait as semaphore_wait,
)
from ferrax._src.pallas.cost import estimate_cost as estimate_cost
from ferrax._src.pallas.grid import num_programs as num_programs, program_id as program_id
from ferrax._src.pallas.helpers import (
    align_to as align_to,
    broadcast_to as broadcast_to,
    cdiv as cdiv,
    debug_check as debug_check,
    debug_print as debug_print,
    delay as delay,
    empty as empty,
    empty_like as empty_like,
    empty_ref_like as empty_ref_like,
    get_global as get_global,
    loop as loop,
    multiple_of as multiple_of,
    next_power_of_2 as next_power_of_2,
    reciprocal as reciprocal,
    run_scoped as run_scoped,
    select_ref as select_ref,
    strides_from_shape as strides_from_shape,
    when as when,
    with_scoped as with_scoped,
)
from ferrax._src.pallas.mesh import core_map as core_map, kernel as kernel
from ferrax._src.pallas.specs import (
    ANY as ANY,
    HOST as HOST,
    BlockDim as BlockDim,
    Blocked as Blocked,
    BlockSpec as BlockSpec,
    BoundedSlice as BoundedSlice,
    Buffered as Buffered,
    CompilerParams as CompilerParams,
    CostEstimate as CostEstimate,
    DeviceIdType as DeviceIdType,
    Element as Element,
    GridSpec as GridSpec,
    Indirect as Indirect,
    MemoryRef as MemoryRef,
    MemorySpace as MemorySpace,
    RevisitMode as RevisitMode,
    Squeezed as Squeezed,
    no_block_spec as no_block_spec,
    semaphore as semaphore,
    squeezed as squeezed,
)

dslice = ds
enable_debug_checks = _config.pallas_enable_debug_checks
enable_poison_buffers = _config.pallas_poison_buffers

_public.export(__name__)
