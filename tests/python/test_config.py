"""Configuration: flags, contexts, threads, environment, change hooks."""

import os
import subprocess
import sys
import threading

import jax
import pytest
from oracle import same

from ferrax._src.base import config as cfg, flags

config = cfg.config


@pytest.fixture(autouse=True)
def restore_flags():
    before = {name: state.get_global() for name, state in flags.states.items()}
    yield
    for name, value in before.items():
        if flags.states[name].get_global() != value:
            config.update(name, value)


def test_defaults_are_those_of_jax():
    ours, theirs = config.values, jax.config.values
    environment = {"jax_platforms", "jax_enable_x64", "jax_num_cpu_devices"}  # these may come from there
    own = {"jax_debug_index", "jax_explicit_x64", "jax_gpu", "jax_num_threads", "jax_version"}
    assert not own & theirs.keys(), "these have become JAX's"
    # Programs are kept on disk unless one says no, and are compiled faster than JAX's would have to be.
    other = {
        "jax_compilation_cache_dir",
        "jax_compilation_cache_max_size",
        "jax_persistent_cache_min_compile_time_secs",
    }
    assert other <= theirs.keys()
    for name in ours.keys() - environment - own - other:
        assert name in theirs, name
        default = theirs[name]
        assert ours[name] == (default.value if hasattr(default, "value") else default), name


def test_states_of_the_jax_module_exist():
    for name, value in vars(jax).items():
        if type(value) is type(jax.enable_x64):
            assert isinstance(getattr(cfg, name), cfg.State), name


def test_update_and_reads_agree():
    config.update("jax_enable_x64", True)
    assert config.jax_enable_x64 is config.x64_enabled is cfg.enable_x64.value is True
    assert config.read("jax_enable_x64") is config.values["jax_enable_x64"] is True
    config.update("jax_enable_x64", 0)
    assert config.jax_enable_x64 is False


def test_unknown_names():
    for call in (
        lambda: config.update("jax_no_such_flag", 1),
        lambda: config.update("enable_x64", True),
        lambda: config.read("jax_no_such_flag"),
        lambda: config.jax_no_such_flag,
        lambda: setattr(config, "jax_enable_x64", True),
    ):
        with pytest.raises(AttributeError):
            call()


@pytest.mark.parametrize(
    "name,bad,error",
    [
        ("jax_numpy_rank_promotion", "sometimes", ValueError),
        ("jax_numpy_dtype_promotion", "sometimes", ValueError),
        ("jax_numpy_dtype_promotion", 3, TypeError),
        ("jax_default_matmul_precision", "very", ValueError),
        ("jax_default_device", 3, ValueError),
        ("jax_default_prng_impl", None, ValueError),
        ("jax_legacy_prng_key", "never", ValueError),
        ("jax_compilation_cache_max_size", "big", ValueError),
        ("jax_compilation_cache_dir", 1, ValueError),
    ],
)
def test_bad_values_raise_and_change_nothing(name, bad, error):
    before = config.read(name)
    with pytest.raises(error):
        jax.config.update(name, bad)
    with pytest.raises(error, match="." if error is TypeError else None):
        config.update(name, bad)
    with pytest.raises(error):
        flags.states[name](bad)
    assert config.read(name) == before


def test_context_managers_nest_and_restore():
    assert not cfg.debug_nans.value
    with cfg.debug_nans(True):
        with cfg.debug_nans(False):
            assert not cfg.debug_nans.value
        assert cfg.debug_nans.value
        config.update("jax_debug_nans", False)  # the context still holds here
        assert cfg.debug_nans.value
    assert not cfg.debug_nans.value
    with pytest.raises(ZeroDivisionError), cfg.enable_x64():
        assert config.x64_enabled
        1 / 0  # noqa: B018
    assert not config.x64_enabled


def test_context_manager_argument_is_needed_unless_boolean():
    with pytest.raises(TypeError):
        cfg.default_matmul_precision()
    with cfg.default_matmul_precision("float32"), cfg.default_matmul_precision(None):
        assert cfg.default_matmul_precision.value is None
    with pytest.raises(TypeError, match="value"):
        bool(cfg.enable_x64)


def test_context_manager_decorates():
    @cfg.numpy_dtype_promotion("strict")
    def mode():
        """doc"""
        return cfg.numpy_dtype_promotion.value

    assert mode() == "strict" and mode.__doc__ == "doc"
    assert cfg.numpy_dtype_promotion.value is cfg.NumpyDtypePromotion.STANDARD


def test_contexts_are_local_to_threads_and_updates_are_not():
    seen = {}

    def read():
        seen["x64"], seen["nans"] = cfg.enable_x64.value, cfg.debug_nans.value

    config.update("jax_debug_nans", True)
    with cfg.enable_x64(True):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert seen == {"x64": False, "nans": True}


def test_context_hook():
    calls = []
    previous = flags.on_context_change(lambda context, wide: calls.append((context, wide)))
    try:
        assert calls == [(cfg.trace_context(), True), (None, False)]
        calls.clear()
        with cfg.enable_x64(True):
            assert calls == [(cfg.trace_context(), False)] and calls[0][0][0] is True
            with cfg.debug_nans(True), cfg.log_compiles(True), cfg.default_prng_impl("rbg"):
                assert len(calls) == 1  # not part of the key of compiled functions
        assert calls[1:] == [(None, False)]
        calls.clear()
        config.update("jax_threefry_partitionable", False)
        assert calls[0] == (cfg.trace_context(), True)
    finally:
        flags.on_context_change(previous)


@pytest.mark.parametrize(
    "name,value",
    [
        ("enable_x64", True),
        ("default_matmul_precision", "float32"),
        ("numpy_dtype_promotion", "strict"),
        ("numpy_rank_promotion", "raise"),
        ("threefry_partitionable", False),
        ("default_device", "cpu"),
    ],
)
def test_trace_context_distinguishes(name, value):
    before = cfg.trace_context()
    with getattr(cfg, name)(value):
        assert cfg.trace_context() != before
        assert hash(cfg.trace_context()) is not None
    assert cfg.trace_context() == before


def test_transfer_guard_sets_all_directions():
    with cfg.transfer_guard("disallow"):
        assert config.jax_transfer_guard_host_to_device == "disallow"
        assert config.jax_transfer_guard_device_to_host == "disallow"
    assert config.jax_transfer_guard_device_to_host is None
    config.update("jax_transfer_guard", "log")
    assert config.jax_transfer_guard_device_to_device == "log"


def run_python(code, arguments=(), **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "FERRAX_"))}
    clean["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-c", f"from ferrax._src.base.config import config\n{code}", *arguments],
        env=clean | environment,
        capture_output=True,
        text=True,
    )


def test_environment_variables():
    code = "print(config.jax_enable_x64, config.jax_numpy_rank_promotion, config.jax_platforms)"
    assert run_python(code).stdout.split() == ["False", "allow", "None"]
    result = run_python(code, JAX_ENABLE_X64="On", JAX_NUMPY_RANK_PROMOTION="warn")
    assert result.stdout.split() == ["True", "warn", "None"]
    result = run_python(code, JAX_ENABLE_X64="1", FERRAX_ENABLE_X64="0", JAX_PLATFORMS="cpu")
    assert result.stdout.split() == ["False", "allow", "cpu"]
    assert "jax_enable_x64" in run_python(code, JAX_ENABLE_X64="perhaps").stderr


def test_command_line_flags():
    code = (
        "config.parse_flags_with_absl()\n"
        "print(config.jax_enable_x64, config.jax_platforms, config.jax_threefry_partitionable, "
        "config.jax_debug_nans)"
    )
    arguments = ["--jax_enable_x64", "other", "--jax_platforms", "cpu",
                 "--nojax_threefry_partitionable", "--", "--jax_debug_nans"]  # fmt: skip
    assert run_python(code, arguments).stdout.split() == ["True", "cpu", "False", "False"]


@same
def test_functions_depend_on_values_of_the_user(s):
    units, traced = s.jax.make_user_context(1.0), []

    @s.jax.jit
    def f(x):
        traced.append(units.value)
        return x * units.value

    with units(3.0):
        inside = f(2.0), f(2.0)
    outside = f(2.0)
    units.set_global(5.0)
    return inside, outside, f(2.0), units.get_global(), traced


@same
def test_sums_in_16_bits_may_be_refused(s):
    x = s.jnp.ones((2, 1), s.jnp.bfloat16)
    with s.jax.allow_f16_reductions(False):
        refused = False
        try:
            s.jax.lax.reduce_sum(x, (0,))
        except ValueError:
            refused = True
        return refused, s.jax.lax.reduce_sum(x, (1,)), s.jnp.sum(x)
