"""The flags that there are, what keys compiled functions, and the object `ferrax.config`.

How flags work is in `flags`. The table `_FLAGS` is the only place where flags are declared; each is
an attribute of this module under its name without `jax_`.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterator

from ferrax._src.base import jax_version
from ferrax._src.base.flags import (
    THREADS_AT_START,
    Choice,
    Config,
    EnumClass,
    State as State,
    declare,
    declare_context,
    hide,
    on_flag_change,
    parse_bool,
    parse_cpu_count,
    parse_device,
    parse_float,
    parse_int,
    parse_modules,
    parse_optional_bool,
    parse_string,
    parse_threads,
    parts,
    states,
    trace_context as trace_context,
    visible,
)


class _StringEnum(str, enum.Enum):
    def __str__(self):
        return self.value


class NumpyDtypePromotion(_StringEnum):
    """How operands of different dtypes are promoted; see `numpy_dtype_promotion`."""

    STANDARD = "standard"
    STRICT = "strict"


class LegacyPrngKeyState(_StringEnum):
    """What happens when a raw uint32 key is used; see `legacy_prng_key`."""

    ALLOW = "allow"
    WARN = "warn"
    ERROR = "error"


class ExplicitX64Mode(enum.IntEnum):
    """What an explicit request of a 64-bit dtype does while x64 is disabled."""

    WARN = 1
    ERROR = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, value):
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


_MATMUL_PRECISIONS = (
    "default", "high", "highest", "bfloat16", "tensorfloat32", "float32", "ANY_F8_ANY_F8_F32",
    "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY", "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
    "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16", "BF16_BF16_F32", "BF16_BF16_F32_X3",
    "BF16_BF16_F32_X6", "BF16_BF16_F32_X9", "TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32",
    "F64_F64_F64",
)
_GUARD = Choice(
    "allow", "log", "disallow", "log_explicit", "disallow_explicit", optional=True
)
_ERROR_CHECK = Choice("ignore", "raise")
_TRANSFER_GUARDS = (
    "jax_transfer_guard_host_to_device",
    "jax_transfer_guard_device_to_device",
    "jax_transfer_guard_device_to_host",
)
_OF_JAX = "A setting of JAX's own machinery: values other than what ferrax does are refused."



def _cache_dir() -> str | None:
    """`$XDG_CACHE_HOME/ferrax`, or that in the user's home; None where there is neither."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(caches, "ferrax") if os.path.isabs(caches) else None


# (name, parser, default, documentation), and of which environment variables, if not those of its name.
_FLAGS = (
    ("jax_enable_x64", parse_bool, False, "Whether 64-bit dtypes are kept; if not, they become "
     "32-bit ones."),
    ("jax_explicit_x64_dtypes", EnumClass(ExplicitX64Mode), ExplicitX64Mode.WARN,
     "What an explicit request of a 64-bit dtype does while x64 is disabled: 'warn' (and use 32 "
     "bits), 'error' or 'allow'."),
    ("jax_explicit_x64", parse_bool, False, "Whether 64-bit dtypes that are asked for by name, or that "
     "NumPy arrays have, are kept while defaults stay 32-bit: as jax_explicit_x64_dtypes='allow'."),
    ("jax_numpy_dtype_promotion", EnumClass(NumpyDtypePromotion), NumpyDtypePromotion.STANDARD,
     "'standard': operands are promoted along the lattice. 'strict': only Python scalars are."),
    ("jax_numpy_rank_promotion", Choice("allow", "warn", "raise"), "allow",
     "Whether operands of different rank broadcast in ferrax.numpy: 'allow', 'warn' or 'raise'."),
    ("jax_default_matmul_precision", Choice(*_MATMUL_PRECISIONS, optional=True), None,
     "The precision of matrix products and convolutions that do not name one."),
    ("jax_default_device", parse_device, None, "The device for operations that name none: a device, the "
     "name of a platform, or None for the first device of the first platform."),
    ("jax_default_prng_impl", Choice("threefry2x32", "threefry4x32", "rbg", "unsafe_rbg",
     "philox2x32", "philox4x32"), "threefry2x32", "The random number generator of new keys."),
    ("jax_threefry_partitionable", parse_bool, True, "Whether random bits are a function of "
     "each element's own position; the older stream otherwise."),
    ("jax_random_seed_offset", parse_int, 0, "A number added to every seed."),
    ("jax_high_dynamic_range_gumbel", parse_bool, False, "Whether Gumbel samples use twice the "
     "bits, so that they resolve probabilities below 1e-7."),
    ("jax_enable_custom_prng", parse_bool, False, "Whether PRNGKey, like key, gives typed keys."),
    ("jax_legacy_prng_key", EnumClass(LegacyPrngKeyState), LegacyPrngKeyState.ALLOW,
     "What the use of a raw uint32 key does: 'allow', 'warn' or 'error'."),
    ("jax_debug_key_reuse", parse_bool, False, "Whether the use of a consumed key is an error."),
    ("jax_softmax_custom_jvp", parse_bool, False, "Whether softmax has a derivative rule of its "
     "own, rather than that of its formula."),
    ("jax_debug_nans", parse_bool, False, "Whether a NaN in a result is an error."),
    ("jax_debug_infs", parse_bool, False, "Whether an infinity in a result is an error."),
    ("jax_disable_jit", parse_bool, False, "Whether jit and the control-flow functions call "
     "Python directly instead of compiling; for debugging."),
    ("jax_check_tracer_leaks", parse_bool, False, "Whether tracers that outlive their "
     "transformation are an error at its end."),
    ("jax_disable_vmap_shmap_error", parse_bool, False, "Whether vmap divides no batch over axes of a mesh that a "
     "function of shard_map names, where else that is an error."),
    ("jax_check_static_indices", parse_bool, False, "Whether static indices are bounds-checked."),
    ("jax_debug_index", parse_bool, False, "Whether an index out of bounds is an error, also in compiled "
     "programs: of x[i], x.at[i], take and take_along_axis without mode=."),
    ("jax_pallas_enable_debug_checks", parse_bool, False, "Whether `pl.debug_check` of a kernel checks."),
    ("jax_pallas_poison_buffers", parse_bool, False, "Whether memory of kernels that nothing was written to is "
     "made to hold NaN or the least integer: it does in any case."),
    ("jax_enable_checks", parse_bool, False, "Whether programs are verified between passes, and plans."),
    ("jax_log_compiles", parse_bool, False, "Whether each trace and compilation is logged as a "
     "warning, with its time."),
    ("jax_log_checkpoint_residuals", parse_bool, False, "Whether checkpoint logs what it saves."),
    ("jax_explain_cache_misses", parse_bool, False, "Whether each retrace is logged with its "
     "cause, and each trace of a new function like one before."),
    ("jax_no_tracing", parse_bool, False, "Whether tracing a function for jit, make_jaxpr or a loop "
     "is an error."),
    ("jax_no_execution", parse_bool, False, "Whether the execution of a program is an error."),
    (
        "jax_allow_f16_reductions",
        parse_bool,
        True,
        "Whether `lax.reduce_sum` may add in 16-bit "
        "floats; if not, it is an error. (`jax.numpy.sum` adds in 32 bits.)",
    ),
    ("jax_error_checking_behavior_nan", _ERROR_CHECK, "ignore", "What a NaN does."),
    ("jax_error_checking_behavior_divide", _ERROR_CHECK, "ignore", "What a division by zero does."),
    ("jax_error_checking_behavior_oob", _ERROR_CHECK, "ignore", "What a bad index does."),
    ("jax_platforms", parse_string, None, "The platforms that may be used, separated by commas; the "
     "first is the default one. None or empty: all, and the CPU by default."),
    ("jax_platform_name", parse_string, "", "The older form of jax_platforms."),
    ("jax_gpu", parse_string, "", "Which GPUs `devices('gpu')` are: parts of their names or of their drivers', in any "
     "case of letters, or their numbers, separated by commas; one that is named twice is two devices. Empty: all "
     "that are not software."),
    ("jax_num_cpu_devices", parse_cpu_count, -1, "How many devices the CPU plays, until one is first "
     "looked at; -1: as XLA_FLAGS says (--xla_force_host_platform_device_count), or one."),
    ("jax_num_threads", parse_threads, THREADS_AT_START, "How many threads work on a program: no result "
     "depends on it. At first it is as many as the process may use."),
    ("jax_compilation_cache_dir", parse_string, _cache_dir(), "The folder where compiled programs are kept, "
     "for other processes too; None and '': nowhere."),
    ("jax_enable_compilation_cache", parse_bool, True, "Whether the cache on disk is used."),
    ("jax_compilation_cache_max_size", parse_int, 256 << 20, "The cache's largest size in bytes, beyond "
     "which the programs that were not used for longest go; -1: unbounded, 0: nothing is kept."),
    ("jax_persistent_cache_min_compile_time_secs", parse_float, 0.001, "Programs whose optimisation "
     "takes less are not kept on disk: they are made as fast as read."),
    ("jax_persistent_cache_min_entry_size_bytes", parse_int, 0, "Smaller programs are not kept."),
    ("jax_raise_persistent_cache_errors", parse_bool, False, "Whether failures of the cache on "
     "disk are errors rather than warnings."),
    ("jax_transfer_guard", _GUARD, None, "What transfers do, in all directions: nothing (None and "
     "'allow'), a warning in the log ('log') or an error ('disallow'). Those that are asked for, with "
     "device_put, are let through but for 'log_explicit' and 'disallow_explicit'."),
    ("jax_transfer_guard_host_to_device", _GUARD, None, "What transfers from host to device do: "
     "NumPy arrays that become arrays, and Python numbers that jitted functions are given."),
    ("jax_transfer_guard_device_to_device", _GUARD, None, "What transfers between devices do: the "
     "copies of device_put(x, may_alias=False)."),
    ("jax_transfer_guard_device_to_host", _GUARD, None, "What transfers from device to host do: "
     "arrays on another device than the CPU that are read on the host."),
    ("jax_array_garbage_collection_guard", Choice("allow", "log", "fatal", optional=True), None,
     "What the collection of an array in a reference cycle does."),
    ("jax_thread_guard", parse_bool, False, "Whether use of one device by several threads is an "
     "error."),
    ("jax_remove_size_one_mesh_axis_from_type", parse_bool, False, "Whether mesh axes of size one "
     "are left out of types."),
    ("jax_auto_pcast", parse_bool, True, "Whether values vary over mesh axes where needed."),
    ("jax_pprint_use_color", parse_bool, True, "Whether printed programs may be coloured."),
    ("jax_traceback_filtering", Choice("off", "tracebackhide", "remove_frames",
     "quiet_remove_frames", "auto"), "auto", "How frames of this package leave tracebacks."),
    ("jax_tracer_error_num_traceback_frames", parse_int, 5, "Frames shown in tracer errors."),
    ("jax_logging_level", Choice("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
     "NOTSET", "The level of this package's logger."),
    ("jax_version", jax_version.parse, jax_version.OLD, "The version of JAX that is followed where versions "
     "differ: '0.10.2' or '0.12.0.1'; the environment variable is FERRAX_JAX_VERSION. See docs/jax_versions.md.",
     ("FERRAX_JAX_VERSION",)),
    ("jax_export_calling_convention_version", parse_int, 10, "The version export writes."),
    # Settings of JAX's own machinery.
    ("jax2tf_associative_scan_reductions", parse_bool, False, _OF_JAX),
    ("jax_cpu_enable_async_dispatch", parse_bool, True, _OF_JAX),
    ("jax_cpu_collectives_implementation", Choice("gloo", "mpi", "megascale", optional=True),
     "gloo", _OF_JAX),
    ("jax_cuda_visible_devices", parse_string, "all", _OF_JAX),
    ("jax_rocm_visible_devices", parse_string, "all", _OF_JAX),
    ("jax_debug_log_modules", parse_modules, "", "Comma-separated modules of this package whose "
     "loggers show everything; 'jax' names all."),
    ("jax_disable_most_optimizations", parse_bool, False, _OF_JAX),
    ("jax_dump_ir_to", parse_string, "", _OF_JAX),
    ("jax_exec_time_optimization_effort", parse_float, 0.0, _OF_JAX),
    ("jax_memory_fitting_effort", parse_float, 0.0, _OF_JAX),
    ("jax_include_full_tracebacks_in_locations", parse_bool, True, _OF_JAX),
    ("jax_optimization_level", Choice("UNKNOWN", "O0", "O1", "O2", "O3"), "UNKNOWN", _OF_JAX),
    ("jax_persistent_cache_enable_xla_caches", parse_string,
     "xla_gpu_per_fusion_autotune_cache_dir", _OF_JAX),
    ("jax_compiler_enable_remat_pass", parse_bool, True, _OF_JAX),
    ("jax_enable_pgle", parse_bool, False, _OF_JAX),
    ("jax_use_shardy_partitioner", parse_bool, True, _OF_JAX),
    ("jax_use_direct_linearize", parse_bool, True, _OF_JAX),
    ("jax_use_magma", Choice("off", "on", "auto"), "auto", _OF_JAX),
    ("jax_xla_backend", parse_string, "", _OF_JAX),
    ("jax_compilation_cache_check_contents", parse_bool, False, _OF_JAX),
    ("jax_compilation_cache_expect_pgle", parse_bool, False, _OF_JAX),
    ("jax_compilation_cache_include_metadata_in_key", parse_bool, False, _OF_JAX),
    ("jax_hlo_source_file_canonicalization_regex", parse_string, None, _OF_JAX),
    ("jax_memory_fitting_level", Choice("UNKNOWN", "O0", "O1", "O2", "O3"), "O2", _OF_JAX),
    ("jax_remove_custom_partitioning_ptr_from_cache_key", parse_bool, False, _OF_JAX),
    ("jax_share_binary_between_hosts", parse_bool, False, _OF_JAX),
    ("jax_threefry_gpu_kernel_lowering", parse_bool, False, _OF_JAX),
    ("jax_xla_profile_version", parse_int, 0, _OF_JAX),
    # Those of JAX 0.12.
    ("jax_accurate_erf_inv", parse_bool, False, _OF_JAX),
    ("jax_custom_jvp3", parse_bool, False, _OF_JAX),
    ("jax_distributed_verify_secure_credentials", parse_bool, False, _OF_JAX),
    ("jax_export_deserialize_expired_versions", parse_bool, False, _OF_JAX),
    ("jax_mosaic_unzip_debug_locations", parse_bool, True, _OF_JAX),
    ("jax_mtls_ca_file", parse_string, None, _OF_JAX),
    ("jax_mtls_cert_file", parse_string, None, _OF_JAX),
    ("jax_mtls_key_file", parse_string, None, _OF_JAX),
    ("jax_mtls_peer_uri_prefix", parse_string, None, _OF_JAX),
    ("jax_pallas_auto_assign_collective_ids", parse_string, "no", _OF_JAX),
    ("jax_pallas_auto_assign_collective_ids_limit", parse_int, 25, _OF_JAX),
    ("jax_raise_on_ppermute_sort_diff", parse_bool, True, _OF_JAX),
    ("jax_remat_barrier_no_cotangents", parse_bool, False, _OF_JAX),
    ("jax_use_cpp_shard_args", parse_bool, False, _OF_JAX),
    ("jax_use_hlo_logistic_lowering", parse_optional_bool, None, _OF_JAX),
    ("jax_use_rgv3", parse_bool, True, _OF_JAX),
)
# Those that JAX has from 0.12 on, and those that it has no more.
_SINCE_0_12 = frozenset(flag[0] for flag in _FLAGS[[flag[0] for flag in _FLAGS].index("jax_accurate_erf_inv") :])
_UNTIL_0_10 = frozenset(("jax_exec_time_optimization_effort", "jax_memory_fitting_effort"))

# The flags that key compiled functions, in the order in which `trace_context()` gives them. The
# native core relies on the first five places.
TRACE_CONTEXT = (
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_disable_jit",
    "jax_explicit_x64_dtypes",
    "jax_softmax_custom_jvp",
    "jax_high_dynamic_range_gumbel",
    "jax_random_seed_offset",
    "jax_debug_key_reuse",
    "jax_check_static_indices",
    "jax_allow_f16_reductions",
    "jax_error_checking_behavior_nan",
    "jax_error_checking_behavior_divide",
    "jax_error_checking_behavior_oob",
    "jax_remove_size_one_mesh_axis_from_type",
    "jax_auto_pcast",
    "jax_no_execution",
    "jax_debug_index",
    "jax_explicit_x64",
    "jax_pallas_enable_debug_checks",
    "jax_version",
)

declare_context(TRACE_CONTEXT)
parts["jax_transfer_guard"] = _TRANSFER_GUARDS
for _flag in _FLAGS:
    globals()[_flag[0].removeprefix("jax_")] = declare(*_flag)

# Those that `ferrax` exports, for type checkers: the table has put them here.
allow_f16_reductions: State
array_garbage_collection_guard: State
auto_pcast: State
check_static_indices: State
check_tracer_leaks: State
debug_index: State
debug_infs: State
debug_key_reuse: State
debug_nans: State
default_device: State
default_matmul_precision: State
default_prng_impl: State
disable_jit: State
enable_checks: State
enable_custom_prng: State
enable_x64: State
explain_cache_misses: State
explicit_x64: State
legacy_prng_key: State
log_compiles: State
num_threads: State
numpy_dtype_promotion: State
numpy_rank_promotion: State
pallas_enable_debug_checks: State
pallas_poison_buffers: State
remove_size_one_mesh_axis_from_type: State
thread_guard: State
threefry_partitionable: State

jax2tf_associative_scan_reductions = states["jax2tf_associative_scan_reductions"]



def _follow(name, value, of_process) -> None:
    """`config` has the flags of the version of JAX that the process follows."""
    if name == "jax_version" and of_process:
        hide(_UNTIL_0_10 if jax_version.VERSIONS[value] >= (0, 12) else _SINCE_0_12)
        jax_version.publish()


on_flag_change(_follow)
config = Config()
update = config.update
transfer_guard_level = states["jax_transfer_guard"]
disable_vmap_shmap_error = states["jax_disable_vmap_shmap_error"]
checking_leaks = states["jax_check_tracer_leaks"]
transfer_guard_host_to_device, transfer_guard_device_to_device, transfer_guard_device_to_host = map(
    states.get, _TRANSFER_GUARDS
)
no_tracing, no_execution = states["jax_no_tracing"], states["jax_no_execution"]
softmax_custom_jvp = states["jax_softmax_custom_jvp"]


@contextlib.contextmanager
def transfer_guard(new_val: str | None) -> Iterator[None]:
    """Sets the level of the transfer guard, in all directions, for a block of this thread.

    Args:
        new_val: 'allow', 'log', 'disallow', 'log_explicit', 'disallow_explicit' or None.

    Example:
        >>> with ferrax.transfer_guard("disallow"):
        ...     x = ferrax.device_put(np.arange(3.0))  # jnp.sin(np.arange(3.0)) raises
        >>> x
        Array([0., 1., 2.], dtype=float32)
    """
    with contextlib.ExitStack() as stack:
        for name in (*_TRANSFER_GUARDS, "jax_transfer_guard"):
            stack.enter_context(states[name](new_val))
        yield


def __getattr__(name):
    # `from ferrax._src.base import config; config.jax_enable_x64` reads as `config.config` does.
    if name == "x64_enabled":
        return config.x64_enabled
    state = visible(name)
    if state is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return state.value
