"""``ferrax.experimental.pallas.triton``: what kernels for GPUs by Triton name."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.helpers import max_contiguous as max_contiguous
from ferrax._src.pallas.masked import (
    atomic_add as atomic_add,
    atomic_and as atomic_and,
    atomic_cas as atomic_cas,
    atomic_max as atomic_max,
    atomic_min as atomic_min,
    atomic_or as atomic_or,
    atomic_xchg as atomic_xchg,
    atomic_xor as atomic_xor,
    load as load,
    store as store,
)
from ferrax._src.pallas.triton import (
    CompilerParams as CompilerParams,
    approx_tanh as approx_tanh,
    debug_barrier as debug_barrier,
    dot as dot,
    elementwise_inline_asm as elementwise_inline_asm,
)

_public.export(__name__)
