"""What only some hardware has: the names of `pallas.mosaic_gpu` and `pallas.tpu_sc`.

Programs that hold kernels for several kinds of hardware import these names. They can be imported;
calling one says what it is of and what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ferrax._src.state import at_user_line

_BLOCKS = "Blocks, loops and copies of pl.pallas_call run on any device"
_PRODUCT = "jnp.dot in a kernel of pl.pallas_call"
_COPY = "Refs are read and written by [...], or by pltpu.sync_copy"
_WAIT = "Steps run in order here: leave it out"
_DEVICES = "Exchange values between devices around the kernel: lax.ppermute in shard_map"
_GATHER = "Index a ref by an array: ref[places]"

_WHAT_TO_DO: dict[str, dict[str, tuple[str, ...]]] = {
    "mosaic_gpu": {
        _BLOCKS: (
            "LoweringSemantics", "MemorySpace", "NDLoopInfo", "OOBFillMode", "RefType", "Replicated", "SemaphoreSignal",
            "ShapeDtypeStruct", "Tiling", "Transform", "WGMMAAccumulatorRef",
            "Barrier", "BlockSpec", "ClusterBarrier", "CompilerParams", "CopyPartition", "Layout", "Mesh",
            "PipelinePipeline", "RefUnion", "SemaphoreType", "SwizzleTransform", "TMEMLayout", "TilingTransform",
            "TraceScope", "TryClusterCancelResult", "WarpMesh", "as_torch_kernel", "broadcasted_iota",
            "dynamic_scheduling_loop", "emit_pipeline", "emit_pipeline_warp_specialized", "find_swizzle",
            "inline_mgpu", "kernel", "layout_cast", "nd_loop", "planar_snake", "print_layout", "query_cluster_cancel",
            "set_max_registers", "transform_ref", "transpose_ref", "try_cluster_cancel", "warp_map",
        ),
        _PRODUCT: (
            "ACC", "tcgen05_commit_arrive", "tcgen05_mma", "format_tcgen05_sparse_metadata", "wgmma",
            "wgmma_accumulator_load", "wgmma_wait",
        ),
        _COPY: (
            "GMEM", "SMEM", "TMEM", "REGS", "async_copy_scales_to_tmem", "async_copy_smem_to_tmem",
            "async_copy_sparse_metadata_to_tmem", "async_load_tmem", "async_prefetch", "async_store_smem",
            "async_store_tmem", "copy_gmem_to_smem", "copy_smem_to_gmem", "load",
        ),
        _WAIT: (
            "barrier_arrive", "barrier_test", "barrier_wait", "commit_smem", "commit_smem_to_gmem_group", "commit_tmem",
            "griddepcontrol_launch_dependents", "griddepcontrol_wait", "semaphore_signal", "semaphore_wait",
            "wait_load_tmem", "wait_smem_to_gmem",
        ),
        _DEVICES: (
            "PeerMemRef", "cluster_ref", "multicast_ref", "multimem_load_reduce", "multimem_store", "remote_ref",
            "semaphore_signal_multicast", "semaphore_signal_parallel",
        ),
        "plgpu.atomic_add and such of pallas.triton run here": (
            "atomic_add", "atomic_and", "atomic_max", "atomic_min", "atomic_or", "atomic_xor",
        ),
    },
    "tpu_sc": {
        "pl.core_map with pltpu.create_tensorcore_mesh runs on cores here": (
            "ScalarSubcoreMesh", "VectorSubcoreMesh", "get_sparse_core_info", "parallel_loop", "subcore_barrier",
        ),
        _GATHER: (
            "Indices", "addupdate", "addupdate_compressed", "addupdate_scatter", "load_expanded", "load_gather",
            "store_compressed", "store_scatter", "fetch_and_add",
        ),
        "jnp, lax.cummax and lax.sort have it for any device": (
            "PackFormat", "all_reduce_ffs", "all_reduce_population_count", "bitcast", "cummax", "cumsum", "pack",
            "scan_count", "sort_key_val", "unpack",
        ),
    },
}  # fmt: skip

_UNITS = {"mosaic_gpu": "of NVIDIA's GPUs", "tpu_sc": "of a TPU's sparse cores"}


def _stub(module: str, name: str, instead: str) -> Callable[..., NoReturn]:
    def function(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"{module}.{name} is {_UNITS[module]} alone. {instead}.{at_user_line()}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{_UNITS[module].capitalize()} alone. Errors: NotImplementedError, which says what to do: {instead}.\n\n"
        f"    >>> callable({module}.{name})\n    True\n"
    )
    return function


def names(module: str) -> dict[str, Callable[..., NoReturn]]:
    """The names of a module, each a function that raises NotImplementedError."""
    return {
        name: _stub(module, name, instead) for instead, listed in _WHAT_TO_DO[module].items() for name in listed
    }
