"""Flags of which only some values say what ferrax does: what these are, and what others answer.

JAX has flags for machinery that ferrax does not have: other platforms, passes of its compiler. A value
is accepted here if ferrax does what it asks for, such as `jax_platforms='cpu'`; to accept another would
be to ignore it.
"""

from __future__ import annotations

import itertools

_COMPILER = "ferrax has a compiler of its own, which has no such setting"
_ONE_CPU = "the only device is the CPU, once"

# The platforms that there are; `ferrax._src.core.devices` says what they are.
PLATFORMS = ("cpu", "gpu", "reference")
_LISTS = [
    ",".join(order) for count in range(4) for order in itertools.permutations(PLATFORMS, count)
]

# name: (accepted values, what holds here). The first value is the default, or what it means.
FIXED = {
    "jax_platforms": ((None, *_LISTS), f"the platforms are {', '.join(PLATFORMS)}"),
    "jax_platform_name": (("", "cpu"), _ONE_CPU),
    "jax_xla_backend": (("", "cpu"), _ONE_CPU),
    "jax_cuda_visible_devices": (("all",), _ONE_CPU),
    "jax_rocm_visible_devices": (("all",), _ONE_CPU),
    "jax_cpu_collectives_implementation": (
        ("gloo", None), "programs run in one process, and collectives are operations of `vmap`"),
    # Synchronous dispatch is what there is; asynchronous one is a permission that is not used.
    "jax_cpu_enable_async_dispatch": ((True, False), "results are there when a call returns"),
    "jax_persistent_cache_enable_xla_caches": (
        ("xla_gpu_per_fusion_autotune_cache_dir",), _COMPILER),
    "jax_array_garbage_collection_guard": (
        (None, "allow"), "arrays in reference cycles are collected like others"),
    # It is about programs of several processes.
    "jax_thread_guard": ((False, True), "a program is one process"),
    "jax_auto_pcast": ((True,), "there are no meshes of devices"),
    "jax_use_shardy_partitioner": ((True,), "there are no meshes of devices"),
    "jax_log_checkpoint_residuals": (
        (False,), "ad_checkpoint.print_saved_residuals shows what a checkpoint saves"),
    "jax_error_checking_behavior_nan": (
        ("ignore",), "jax_debug_nans makes NaNs errors, and experimental.checkify finds them"),
    "jax_error_checking_behavior_divide": (
        ("ignore",), "experimental.checkify finds divisions by zero"),
    "jax_error_checking_behavior_oob": (
        ("ignore",), "experimental.checkify finds indices out of bounds"),
    # Programs are printed without colour, which `True` leaves open.
    "jax_pprint_use_color": ((True, False), "programs are printed without colour"),
    "jax_tracer_error_num_traceback_frames": (
        (5,), "errors about tracers name one line of the user's for each operation"),
    "jax_include_full_tracebacks_in_locations": (
        (True, False), "operations know one line of the user's"),
    "jax_disable_most_optimizations": ((False,), _COMPILER),
    "jax_dump_ir_to": (("",), "jit(f).lower(...).as_text() is the program as text"),
    "jax_exec_time_optimization_effort": ((0.0,), _COMPILER),
    "jax_memory_fitting_effort": ((0.0,), _COMPILER),
    "jax_optimization_level": (("UNKNOWN",), _COMPILER),
    "jax_compiler_enable_remat_pass": ((True, False), "the compiler does not rematerialise"),
    "jax_enable_pgle": ((False,), _COMPILER),
    "jax_use_magma": (("auto", "off"), _ONE_CPU),
    "jax_use_direct_linearize": ((True,), "there is one way to linearise"),
    "jax_compilation_cache_check_contents": (
        (False,), "programs are compiled or read from disk, not both; what is read is checked by its checksum"),
    "jax_compilation_cache_expect_pgle": ((False,), _COMPILER),
    "jax_compilation_cache_include_metadata_in_key": (
        (False,), "programs are found on disk by what they compute, whichever lines they are from"),
    "jax_hlo_source_file_canonicalization_regex": ((None,), "operations know files by their full names"),
    "jax_memory_fitting_level": (("O2",), _COMPILER),
    "jax_remove_custom_partitioning_ptr_from_cache_key": ((False, True), "keys hold no pointers"),
    "jax_share_binary_between_hosts": ((False,), "each process compiles, or reads the cache on disk"),
    "jax_threefry_gpu_kernel_lowering": ((False, True), "the bits are the same in any case"),
    "jax_xla_profile_version": ((0,), _COMPILER),
    # Flags of JAX 0.12.
    "jax_accurate_erf_inv": ((False, True), "erf_inv is accurate"),
    "jax_custom_jvp3": ((False,), "there is one way to differentiate functions with rules"),
    "jax_distributed_verify_secure_credentials": ((False,), "processes connect without credentials"),
    "jax_export_deserialize_expired_versions": (
        (False, True), "exported programs have one format"),
    "jax_mosaic_unzip_debug_locations": ((True, False), "there is no Mosaic"),
    "jax_mtls_ca_file": ((None,), "processes connect without credentials"),
    "jax_mtls_cert_file": ((None,), "processes connect without credentials"),
    "jax_mtls_key_file": ((None,), "processes connect without credentials"),
    "jax_mtls_peer_uri_prefix": ((None,), "processes connect without credentials"),
    "jax_pallas_auto_assign_collective_ids": (("no",), "kernels have no identifiers"),
    "jax_pallas_auto_assign_collective_ids_limit": ((25,), "kernels have no identifiers"),
    "jax_raise_on_ppermute_sort_diff": ((True,), "ppermute takes pairs in any order"),
    "jax_remat_barrier_no_cotangents": ((False,), "checkpoints need no barriers"),
    "jax_use_cpp_shard_args": ((False, True), "there is one way to divide arguments"),
    "jax_use_hlo_logistic_lowering": ((None,), _COMPILER),
    "jax_use_rgv3": ((True,), "there is one way to differentiate references"),
    "jax2tf_associative_scan_reductions": ((False,), "there is no jax2tf"),
}  # fmt: skip


class UnsupportedFlagError(ValueError):
    """A flag was given a value that asks for what ferrax does not have.

    Example:
        >>> ferrax.config.update("jax_optimization_level", "O3")
        Traceback (most recent call last):
            ...
        ferrax.errors.UnsupportedFlagError: ...
    """


def check(name: str, value) -> None:
    """Errors: UnsupportedFlagError if ferrax does not do what the value asks for."""
    accepted, holds = FIXED.get(name, ((value,), ""))
    # `==` alone would take 1 for True.
    is_bool = isinstance(value, bool)
    if any(value == known and isinstance(known, bool) == is_bool for known in accepted):
        return
    shown = " or ".join(map(repr, accepted))
    raise UnsupportedFlagError(
        f"{name}={value!r} is not supported: {holds}. It must be {shown}; the default is "
        f"{accepted[0]!r}."
    )
