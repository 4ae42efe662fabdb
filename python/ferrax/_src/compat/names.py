"""Names that JAX has in one of the versions that can be followed and not in another.

ferrax has them all. The `jax` that `install` gives has those of the version that is followed: `hide` takes
the others out of a module, and `show` puts them back.
"""

from __future__ import annotations

import types
from typing import Any

from ferrax._src.base import jax_version
from ferrax._src.interop import one_jaxpr

# By module of JAX: what came after 0.10.2, and what went. Modules themselves are names of what they are in.
ADDED = {
    "jax": "CompilerEffortLevel Inline get_abstract_mesh get_mesh use_abstract_mesh",
    "jax.ad_checkpoint": "checkpoint_name_fwd name_p",
    "jax.experimental": "overlap thunky",
    "jax.experimental.hijax": "GradAccum HiPrim MappingSpec NullAccum RefAccum ValAccum bdims_at_front jvp_from_lin "
    "linearize_from_jvp unmap_avals vjp_from_jvp vjp_from_lin vmap_rule",
    "jax.experimental.layout": "explicit_layout",
    "jax.experimental.xla_metadata": "annotations fuse_limit must_fuse_call xla_metadata_call xla_metadata_call2",
    "jax.export": "symbolic_dim_bounds",
    "jax.extend.core": "create_call_primitive eval_jaxpr_transpose register_call_primitive_rules",
    "jax.extend.core.primitives": "create_call_primitive eval_jaxpr_transpose log2_p one_minus_square_p polynomial_p "
    "register_call_primitive_rules",
    "jax.ffi": "abstract_token",
    "jax.interpreters.ad": "backward_pass jvp_jaxpr",
    "jax.interpreters.batching": "batch_jaxpr_axes batch_subtrace zero_if_mapped",
    "jax.interpreters.partial_eval": "abstract_eval_fun close_jaxpr convert_constvars_jaxpr lower_jaxpr lower_jaxpr2 "
    "move_binders_to_back new_eqn_recipe partial_eval_jaxpr_nounits prune_closed_jaxpr_outputs",
    "jax.lax": "log2 log2_p one_minus_square one_minus_square_p polynomial polynomial_p psum_scatter_start",
    "jax.numpy": "minmax top_k",
    "jax.profiler": "ProfileLine ProfileSession export_profile_data",
    "jax.random": "Key",
    "jax.scipy.special": "erfcinv",
    "jax.sharding": "UnreducedKind no_collectives",
}
REMOVED = {
    "jax": "cloud_tpu_init",
    "jax.ad_checkpoint": "checkpoint remat",
    "jax.core": "AbstractToken CallPrimitive DebugInfo DropVar Effect Effects InconclusiveDimensionOperation "
    "JaxprPpContext JaxprPpSettings JaxprTypeError OutputType TraceTag abstract_token aval_mapping_handlers call "
    "call_impl check_jaxpr concrete_or_error concretization_function_error custom_typechecks find_top_trace gensym "
    "get_aval get_opaque_trace_state is_concrete is_constant_dim is_constant_shape jaxprs_in_params literalable_types "
    "mapped_aval new_jaxpr_eqn no_axis_name no_effects nonempty_axis_env_DO_NOT_USE primal_dtype_to_tangent_dtype "
    "set_current_trace subjaxprs take_current_trace trace_ctx traverse_jaxpr_params unmapped_aval "
    "unsafe_am_i_under_a_jit_DO_NOT_USE unsafe_am_i_under_a_vmap_DO_NOT_USE unsafe_get_axis_names_DO_NOT_USE "
    "valid_jaxtype",
    "jax.experimental": "control_deps cur_qdd shard_alike",
    "jax.experimental.compute_on": "compute_on2",
    "jax.experimental.hijax": "AvalMutableQDD AvalQDD HiPrimitive MutableHiType VJPHiPrimitive",
    "jax.extend.core": "CallPrimitive call_impl",
    "jax.interpreters.ad": "reducing_transposes",
    "jax.interpreters.batching": "NotMapped",
    "jax.interpreters.pxla": "ArrayMapping Chunked Index MapTracer MeshAxisName MeshExecutable NoSharding "
    "PmapExecutable Replicated ShardedAxis ShardingSpec Unstacked _UNSPECIFIED are_hlo_shardings_equal "
    "array_mapping_to_axis_resources global_aval_to_result_handler global_result_handlers is_hlo_sharding_replicated "
    "op_sharding_to_indices parallel_callable shard_args spec_to_indices",
    "jax.lax": "dce_sink_p pvary",
    "jax.numpy": "fix",
    "jax.scipy.special": "sph_harm",
}

# What is another object where 0.12 is followed.
CHANGED: dict[str, dict[str, Any]] = {
    path: {"ClosedJaxpr": one_jaxpr.Jaxpr, "Jaxpr": one_jaxpr.Jaxpr}
    for path in ("jax.core", "jax.extend.core", "jax._src.core")
}

# By module, what its names were, which are not there or are another object.
_hidden: dict[str, dict[str, Any]] = {}


def absent(path: str) -> frozenset[str]:
    """The names that JAX's module `path` has in another version and not in the one that is followed."""
    table = ADDED if jax_version.of_process() == jax_version.OLD else REMOVED
    return frozenset(table.get(path, "").split())


def hide(module: types.ModuleType, path: str) -> None:
    """From now on the module has no names that JAX's module `path` has not in the version followed."""
    show(module, path)
    namespace = vars(module)
    _hidden[path] = {name: namespace.pop(name) for name in absent(path) if name in namespace}
    if jax_version.of_process() == jax_version.NEW:
        changed = {name: value for name, value in CHANGED.get(path, {}).items() if name in namespace}
        _hidden[path] |= {name: namespace[name] for name in changed}
        namespace.update(changed)


def show(module: types.ModuleType, path: str) -> None:
    """Undoes `hide`."""
    vars(module).update(_hidden.pop(path, {}))


def is_hidden(path: str, name: str) -> bool:
    """Whether the name is one that the version followed has not, for names that a module's `__getattr__` gives."""
    return name in absent(path)
