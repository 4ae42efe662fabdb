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
    ad_checkpoint, api_util, core, custom_batching, custom_derivatives, debug, dlpack, dtypes, errors, experimental,
    export, interpreters, lax, nn, numpy, ops, random, ref, sharding, stages, tree, tree_util, typing, util,
)  # fmt: skip
from ferrax._core import Array
from ferrax._src.transforms.ad_checkpoint import checkpoint, remat
from ferrax._src.core import ShapeDtypeStruct
from ferrax._src.core.placement import block_until_ready, copy_to_host_async, device_get, device_put
from ferrax._src.transforms.jit import clear_caches, disable_jit, jit
from ferrax._src.tracing.staging import eval_shape, make_jaxpr
from ferrax._src.tracing.scopes import named_call, named_scope
from ferrax._src.transforms.autodiff import (
    fwd_and_bwd,
    grad,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
)
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.jacobians import hessian, jacfwd, jacobian, jacrev
from ferrax._src.transforms.checkpoint_policies import checkpoint_policies
from ferrax._src.callbacks.callback import pure_callback
from ferrax._src.base.config import (
    check_tracer_leaks,
    checking_leaks,
    config,
    debug_infs,
    debug_key_reuse,
    debug_nans,
    default_device,
    default_matmul_precision,
    default_prng_impl,
    enable_checks,
    enable_custom_prng,
    enable_x64,
    explain_cache_misses,
    legacy_prng_key,
    log_compiles,
    numpy_dtype_promotion,
    numpy_rank_promotion,
    threefry_partitionable,
)
from ferrax._src.transforms.closures import closure_convert
from ferrax._src.core import ensure_compile_time_eval, typeof
from ferrax._src.transforms.custom_jvp import custom_jvp
from ferrax._src.transforms.custom_vjp import custom_gradient, custom_vjp
from ferrax._src.core.devices import (
    Device,
    default_backend,
    device_count,
    devices,
    host_count,
    host_id,
    local_device_count,
    local_devices,
    process_count,
    process_index,
    process_indices,
)
from ferrax._src.base.dtypes import float0
from ferrax._src.base.effects import effects_barrier
from ferrax._src.transforms.gradient_refs import ad
from ferrax._src.state import Ref, free_ref, freeze, new_ref
from ferrax._src.numpy.ref_ops import empty_ref
from ferrax.version import __version__, __version_info__
