"""Each flag has an effect, or refuses the values that would need one."""

import functools
import itertools
import warnings

import pytest
from flag_cases import GIVEN, logged, retraced, with_flags
from test_config import restore_flags, run_python  # noqa: F401

import ferrax
import ferrax.numpy as jnp
from ferrax import _core, lax
from ferrax._src.base import config as cfg, fixed_flags, flags
from ferrax.experimental import checkify, pallas as pl

config = cfg.config
CPU = ferrax.devices()[0]


def outcome(call):
    """What a call gives, as text: its value, or the class of its exception; with what it warned of."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            value = call()
        except Exception as error:
            value = type(error).__name__
    return f"{value} {[record.category.__name__ for record in seen]}"


def shown(function, *args):
    """The jaxpr of a function that was not traced before."""
    return str(ferrax.make_jaxpr(lambda *args: function(*args))(*args))




def chosen_gpu():
    """The GPU, or what was looked for where there is none."""
    try:
        return with_flags(lambda: ferrax.devices("gpu"), jax_platforms=None)
    except RuntimeError as error:
        return str(error)


def frames_of(call):
    """How many frames the traceback of an error has."""
    with pytest.raises(Exception) as caught:
        call()
    return len(caught.traceback)




def leaking():
    kept = []
    ferrax.jit(lambda x: kept.append(x) or x)(1.0)


def sees_tracer():
    seen = []
    ferrax.jit(lambda x: seen.append(isinstance(x, ferrax.core.Tracer)))(1.0)
    return seen


def drawn_twice():
    once = key(0)
    return ferrax.random.bits(once), ferrax.random.bits(once)


NUMBERS = itertools.count()


def new_program_is_kept():
    """Whether a program that is quickly made is written to disk."""
    before, number = ferrax.cache.stats().written, next(NUMBERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ferrax.jit(lambda x: x * 3 + number)(1.0)
    return ferrax.cache.stats().written - before


key = ferrax.random.key
# A value other than the default, and a call whose outcome it changes.
def _on_a_mesh():
    """The type of an array over an explicit axis of size one."""
    mesh = ferrax.make_mesh((1,), ("x",))
    return ferrax.typeof(ferrax.device_put(jnp.ones(2), ferrax.NamedSharding(mesh, ferrax.P("x"))))


def batched_over_an_axis_of_its_own():
    spec = ferrax.P("x")
    mapped = ferrax.shard_map(lambda x: x, mesh=ferrax.make_mesh((1,), ("x",)), in_specs=spec, out_specs=spec)
    return ferrax.vmap(mapped, spmd_axis_name="x")(jnp.ones((1, 1)))


def checked_kernel():
    def kernel(x_ref, o_ref):
        pl.debug_check(x_ref[0] > 0, "positive")
        o_ref[...] = x_ref[...]

    run = checkify.checkify(pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((2,), jnp.float32)))
    return run(jnp.zeros(2))[0].get() is None


EFFECTS = {
    "jax_enable_x64": (True, lambda: jnp.arange(2).dtype),
    "jax_pallas_enable_debug_checks": (True, checked_kernel),
    "jax_explicit_x64_dtypes": (cfg.ExplicitX64Mode.ERROR, lambda: jnp.zeros(2, "int64")),
    "jax_explicit_x64": (True, lambda: jnp.zeros(2, "int64").dtype),
    "jax_debug_key_reuse": (True, drawn_twice),
    "jax_numpy_dtype_promotion": ("strict", lambda: jnp.arange(2) + jnp.ones(2)),
    "jax_numpy_rank_promotion": ("raise", lambda: jnp.ones(2) + jnp.ones((2, 2))),
    "jax_default_matmul_precision": ("highest", lambda: shown(lambda x: x @ x, GIVEN)),
    "jax_default_prng_impl": ("rbg", lambda: key(0).dtype),
    "jax_threefry_partitionable": (False, lambda: ferrax.random.bits(key(0), (3,))),
    "jax_random_seed_offset": (5, lambda: ferrax.random.key_data(key(0))),
    "jax_high_dynamic_range_gumbel": (True, lambda: ferrax.random.gumbel(key(0))),
    "jax_disable_vmap_shmap_error": (True, batched_over_an_axis_of_its_own),
    "jax_enable_custom_prng": (True, lambda: ferrax.random.PRNGKey(0).dtype),
    "jax_legacy_prng_key": ("error", lambda: ferrax.random.normal(ferrax.random.PRNGKey(0))),
    "jax_softmax_custom_jvp": (True, lambda: shown(ferrax.nn.softmax, GIVEN)),
    "jax_debug_nans": (True, lambda: jnp.log(-1.0)),
    "jax_debug_infs": (True, lambda: jnp.ones(1) / 0),
    "jax_disable_jit": (True, sees_tracer),
    "jax_check_tracer_leaks": (True, leaking),
    "jax_check_static_indices": (True, lambda: jnp.ones(2)[5]),
    "jax_remove_size_one_mesh_axis_from_type": (True, lambda: str(_on_a_mesh())),
    "jax_version": ("0.12", lambda: ferrax.__version__),
    "jax_export_calling_convention_version": (
        9,
        lambda: ferrax.export.export(ferrax.jit(jnp.sin))(1.0).calling_convention_version,
    ),
    "jax_num_threads": (7, _core.num_threads),
    "jax_gpu": ("none of this name", chosen_gpu),
    "jax_traceback_filtering": ("off", lambda: frames_of(lambda: jnp.reshape(GIVEN, (3,)))),
    "jax_compilation_cache_dir": ("/elsewhere", lambda: ferrax.cache.stats().dir),
    "jax_enable_compilation_cache": (False, lambda: ferrax.cache.stats().dir),
    "jax_compilation_cache_max_size": (0, lambda: ferrax.cache.stats().dir),
    "jax_persistent_cache_min_compile_time_secs": (0.0, new_program_is_kept),
    "jax_persistent_cache_min_entry_size_bytes": (1 << 30, lambda: with_flags(new_program_is_kept)),
    "jax_raise_persistent_cache_errors": (
        True, lambda: with_flags(new_program_is_kept, jax_compilation_cache_dir=f"{__file__}/below")),
    "jax_debug_index": (True, lambda: jnp.ones(2)[jnp.array([5])]),
    "jax_allow_f16_reductions": (False, lambda: lax.reduce_sum(jnp.ones(2, jnp.float16), (0,))),
    "jax_log_compiles": (True, lambda: logged(retraced)),
    "jax_explain_cache_misses": (True, lambda: logged(retraced)),
    "jax_logging_level": ("DEBUG", lambda: logged(retraced)),
    "jax_debug_log_modules": ("ferrax._src.transforms.stats", lambda: logged(retraced)),
    "jax_no_tracing": (True, lambda: ferrax.jit(lambda x: x)(1.0)),
    "jax_no_execution": (True, lambda: jnp.sin(1.0)),
    "jax_transfer_guard": ("disallow", lambda: jnp.asarray(GIVEN)),
    "jax_transfer_guard_host_to_device": ("disallow", lambda: jnp.asarray(GIVEN)),
    "jax_transfer_guard_device_to_device": (
        "disallow_explicit", lambda: ferrax.device_put(jnp.ones(2), may_alias=False)),
}  # fmt: skip
# All values that these accept mean the same: the only device, and transfers that do not happen.
# Programs are verified in any case where the native core is built for debugging.
# Memory of kernels that nothing was written to is poisoned in any case.
WITHOUT_EFFECT = {
    "jax_pallas_poison_buffers",
    "jax_default_device",
    "jax_num_cpu_devices",
    "jax_transfer_guard_device_to_host",
    "jax_enable_checks",
}


def test_every_flag_has_an_effect_or_refuses_values():
    assert set(flags.states) == set(EFFECTS) | set(fixed_flags.FIXED) | WITHOUT_EFFECT
    assert not set(EFFECTS) & set(fixed_flags.FIXED)


@pytest.mark.parametrize("name", EFFECTS)
def test_flags_have_effects(name):
    value, call = EFFECTS[name]
    call = functools.partial(outcome, call)
    default = config.read(name)
    before = call()
    config.update(name, value)
    changed = call()
    config.update(name, default)
    if name == "jax_transfer_guard":
        for part in flags.parts[name]:
            config.update(part, None)
    assert changed != before == call()
