"""ferrax: NumPy functions that `grad`, `vmap` and `jit` transform, on a compiler of its own.

Example:
    >>> import ferrax
    >>> import ferrax.numpy as jnp
    >>> ferrax.grad(lambda x: jnp.sum(x ** 2))(jnp.arange(3.0))
    Array([0., 2., 4.], dtype=float32)
"""

# ruff: noqa: I001, F401
from ferrax._src import startup as _startup  # first: it connects the native core

from ferrax import (
    ad_checkpoint as ad_checkpoint,
    api_util as api_util,
    cache as cache,
    core as core,
    custom_batching as custom_batching,
    custom_derivatives as custom_derivatives,
    debug as debug,
    distributed as distributed,
    dlpack as dlpack,
    dtypes as dtypes,
    errors as errors,
    experimental as experimental,
    export as export,
    ffi as ffi,
    image as image,
    interpreters as interpreters,
    lax as lax,
    lib as lib,
    memory as memory,
    monitoring as monitoring,
    nn as nn,
    numpy as numpy,
    ops as ops,
    random as random,
    ref as ref,
    scipy as scipy,
    sharding as sharding,
    stages as stages,
    tree as tree,
    tree_util as tree_util,
    typing as typing,
    util as util,
)
from ferrax._core import Array as Array
from ferrax._src.base import public as _public
from ferrax._src.transforms.ad_checkpoint import (
    checkpoint as checkpoint,
    remat as remat,
)
from ferrax._src.core import ShapeDtypeStruct as ShapeDtypeStruct
from ferrax._src.core.array import Shard as Shard
from ferrax._src.core.inlining import (
    CompilerEffortLevel as CompilerEffortLevel,
    Inline as Inline,
)
from ferrax._src.core.mesh import (
    get_abstract_mesh as get_abstract_mesh,
    get_mesh as get_mesh,
    make_mesh as make_mesh,
    set_mesh as set_mesh,
    use_abstract_mesh as use_abstract_mesh,
)
from ferrax._src.core.partition import PartitionSpec as P
from ferrax._src.core.sharding import NamedSharding as NamedSharding
from ferrax._src.core.placement import (
    block_until_ready as block_until_ready,
    copy_to_host_async as copy_to_host_async,
    device_get as device_get,
    device_put as device_put,
)
from ferrax._src.transforms.jit import (
    clear_caches as clear_caches,
    disable_jit as disable_jit,
    jit as jit,
)
from ferrax._src.tracing.staging import (
    eval_shape as eval_shape,
    make_jaxpr as make_jaxpr,
)
from ferrax._src.tracing.scopes import (
    named_call as named_call,
    named_scope as named_scope,
)
from ferrax._src.transforms.autodiff import (
    fwd_and_bwd as fwd_and_bwd,
    grad as grad,
    jvp as jvp,
    linear_transpose as linear_transpose,
    linearize as linearize,
    value_and_grad as value_and_grad,
    vjp as vjp,
)
from ferrax._src.transforms.batching import vmap as vmap
from ferrax._src.transforms.jacobians import (
    hessian as hessian,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
)
from ferrax._src.transforms.checkpoint_policies import checkpoint_policies as checkpoint_policies
from ferrax._src.callbacks.callback import pure_callback as pure_callback
from ferrax._src.base.config import (
    allow_f16_reductions as allow_f16_reductions,
    array_garbage_collection_guard as array_garbage_collection_guard,
    auto_pcast as auto_pcast,
    check_tracer_leaks as check_tracer_leaks,
    checking_leaks as checking_leaks,
    config as config,
    debug_index as debug_index,
    debug_infs as debug_infs,
    debug_key_reuse as debug_key_reuse,
    debug_nans as debug_nans,
    default_device as default_device,
    default_matmul_precision as default_matmul_precision,
    default_prng_impl as default_prng_impl,
    enable_checks as enable_checks,
    enable_custom_prng as enable_custom_prng,
    enable_x64 as enable_x64,
    explain_cache_misses as explain_cache_misses,
    explicit_x64 as explicit_x64,
    jax2tf_associative_scan_reductions as jax2tf_associative_scan_reductions,
    legacy_prng_key as legacy_prng_key,
    log_compiles as log_compiles,
    no_execution as no_execution,
    no_tracing as no_tracing,
    num_threads as num_threads,
    numpy_dtype_promotion as numpy_dtype_promotion,
    numpy_rank_promotion as numpy_rank_promotion,
    remove_size_one_mesh_axis_from_type as remove_size_one_mesh_axis_from_type,
    softmax_custom_jvp as softmax_custom_jvp,
    thread_guard as thread_guard,
    threefry_partitionable as threefry_partitionable,
    transfer_guard as transfer_guard,
    transfer_guard_device_to_device as transfer_guard_device_to_device,
    transfer_guard_device_to_host as transfer_guard_device_to_host,
    transfer_guard_host_to_device as transfer_guard_host_to_device,
)
from ferrax._src.base.user_contexts import make_user_context as make_user_context
from ferrax._src.transforms.closures import closure_convert as closure_convert
from ferrax._src.core import (
    ensure_compile_time_eval as ensure_compile_time_eval,
    typeof as typeof,
)
from ferrax._src.transforms.custom_jvp import custom_jvp as custom_jvp
from ferrax._src.transforms.custom_vjp import (
    custom_gradient as custom_gradient,
    custom_vjp as custom_vjp,
)
from ferrax._src.core.devices import (
    Device as Device,
    default_backend as default_backend,
    device_count as device_count,
    devices as devices,
    host_count as host_count,
    host_id as host_id,
    host_ids as host_ids,
    local_device_count as local_device_count,
    local_devices as local_devices,
    process_count as process_count,
    process_index as process_index,
    process_indices as process_indices,
)
from ferrax._src.core.live import live_arrays as live_arrays
from ferrax._src.base.dtypes import float0 as float0
from ferrax._src.base.effects import effects_barrier as effects_barrier
from ferrax._src.transforms.gradient_refs import ad as ad
from ferrax._src.interop.environment_info import (
    print_environment_info as print_environment_info,
)
from ferrax._src.state import (
    Ref as Ref,
    free_ref as free_ref,
    freeze as freeze,
    new_ref as new_ref,
)
from ferrax._src.numpy.ref_ops import empty_ref as empty_ref
from ferrax._src.numpy.slices import ds as ds
from ferrax._src.parallel.constraints import reshard as reshard
from ferrax._src.parallel.global_arrays import (
    make_array_from_callback as make_array_from_callback,
    make_array_from_process_local_data as make_array_from_process_local_data,
    make_array_from_single_device_arrays as make_array_from_single_device_arrays,
)
from ferrax._src.parallel.pmap import pmap as pmap
from ferrax._src.parallel.shard_map import (
    shard_map as shard_map,
    smap as smap,
)
from ferrax.version import __version__, __version_info__

_public.export(__name__)
