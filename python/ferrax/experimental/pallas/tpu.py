"""``ferrax.experimental.pallas.tpu``: what kernels for TPUs name."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.copies import (
    async_copy as async_copy,
    async_remote_copy as async_remote_copy,
    get_barrier_semaphore as get_barrier_semaphore,
    make_async_copy as make_async_copy,
    make_async_remote_copy as make_async_remote_copy,
    sync_copy as sync_copy,
)
from ferrax._src.pallas.einshape import einshape as einshape
from ferrax._src.pallas.generator import (
    prng_random_bits as prng_random_bits,
    prng_seed as prng_seed,
    stateful_bernoulli as stateful_bernoulli,
    stateful_bits as stateful_bits,
    stateful_normal as stateful_normal,
    stateful_uniform as stateful_uniform,
)
from ferrax._src.pallas.masked import load as load, store as store
from ferrax._src.pallas.mesh import (
    create_tensorcore_mesh as create_tensorcore_mesh,
    run_on_first_core as run_on_first_core,
)
from ferrax._src.pallas.specs import (
    PrefetchScalarGridSpec as PrefetchScalarGridSpec,
    dma_semaphore as dma_semaphore,
)
from ferrax._src.pallas.tpu import (
    CompilerParams as CompilerParams,
    CoreType as CoreType,
    GridDimensionSemantics as GridDimensionSemantics,
    InterpretParams as InterpretParams,
    MemorySpace as MemorySpace,
    SemaphoreType as SemaphoreType,
    SideEffectType as SideEffectType,
    Tiling as Tiling,
    bitcast as bitcast,
    core_barrier as core_barrier,
    emit_pipeline as emit_pipeline,
    force_tpu_interpret_mode as force_tpu_interpret_mode,
    is_tpu_device as is_tpu_device,
    matmul_acc_lhs as matmul_acc_lhs,
    matmul_pop as matmul_pop,
    matmul_push_rhs as matmul_push_rhs,
    pack_elementwise as pack_elementwise,
    reset_tpu_interpret_mode_state as reset_tpu_interpret_mode_state,
    roll as roll,
    sample_block as sample_block,
    set_tpu_interpret_mode as set_tpu_interpret_mode,
    stochastic_round as stochastic_round,
    to_pallas_key as to_pallas_key,
    touch as touch,
    trace_value as trace_value,
    unpack_elementwise as unpack_elementwise,
    with_memory_space_constraint as with_memory_space_constraint,
)
from ferrax._src.pallas.tpu_info import (
    ChipVersion as ChipVersion,
    LoweringException as LoweringException,
    TpuInfo as TpuInfo,
    get_tpu_info as get_tpu_info,
    get_tpu_info_for_chip as get_tpu_info_for_chip,
)

VMEM, VMEM_SHARED, SMEM, CMEM, SEMAPHORE, HBM = MemorySpace
PARALLEL, CORE_PARALLEL, SUBCORE_PARALLEL, ARBITRARY = GridDimensionSemantics

_public.export(__name__)
