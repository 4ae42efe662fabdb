"""What is accepted is true: flags and arguments have their effect or are refused."""

import copy
import itertools
import logging
import os
import pickle
import warnings

import jax
import numpy as np
import pytest
from flag_cases import GIVEN, logged, retraced, with_flags
from oracle import compare_arrays
from test_config import restore_flags, run_python  # noqa: F401

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax._src.base import config as cfg, fixed_flags, flags
from ferrax.errors import JaxRuntimeError

config = cfg.config
CPU = ferrax.devices()[0]


# Flags.




# For a process that is to find no GPU, whatever this machine has: no driver of Vulkan, and a name that none has.
NO_GPU = {"VK_DRIVER_FILES": os.devnull, "VK_ICD_FILENAMES": os.devnull, "FERRAX_GPU": "a name that no GPU has"}


def has_gpu():
    try:
        return with_flags(lambda: bool(ferrax.devices("gpu")), jax_platforms=None)
    except RuntimeError:
        return False


@pytest.mark.parametrize("name", fixed_flags.FIXED)
def test_flags_take_the_values_that_hold_and_no_others(name):
    of_version = {"jax_version": "0.12"} if name in cfg._SINCE_0_12 else {}
    with_flags(lambda: check_values(name), **of_version)


def check_values(name):
    accepted, holds = fixed_flags.FIXED[name]
    default = config.read(name)
    for value in accepted:
        if name == "jax_platforms" and str(value).startswith("gpu") and not has_gpu():
            former = config.read(name)
            with pytest.raises(RuntimeError, match="no GPU"):
                config.update(name, value)
            assert config.read(name) == former
            continue
        config.update(name, value)
        assert config.read(name) == value
    config.update(name, default)
    if isinstance(default, bool):
        refused = [value for value in (True, False) if value not in accepted]
    else:
        choices = getattr(flags.states[name]._parser, "values", ())
        refused = [value for value in (*choices, "gpu", "0", 7, 7.5, True) if value not in accepted]
        assert refused
    for value in refused:
        with pytest.raises(ValueError):
            config.update(name, value)
        with pytest.raises(ValueError):
            flags.states[name](value)
    assert config.read(name) == default
    if isinstance(default, bool) and refused:
        with pytest.raises(fixed_flags.UnsupportedFlagError, match="the default is") as error:
            config.update(name, refused[0])
        assert holds in str(error.value)


def test_environment_variables_for_other_programs_warn():
    code = "print(config.jax_platforms, config.jax_optimization_level, config.jax_num_cpu_devices)"
    result = run_python(code, JAX_PLATFORMS="tpu,cpu", JAX_OPTIMIZATION_LEVEL="O3",
                        FERRAX_NUM_CPU_DEVICES="1")  # fmt: skip
    assert result.stdout.split() == ["None", "UNKNOWN", "1"]
    assert result.stderr.count("UserWarning") == 2
    assert "JAX_PLATFORMS is ignored: jax_platforms='tpu,cpu'" in result.stderr


def test_a_gpu_that_is_not_there_is_missed_where_it_is_used():
    code = """
import ferrax, ferrax.numpy as jnp, numpy as np
ferrax.config.update("jax_enable_x64", True)
for use in (lambda: jnp.ones(3), lambda: jnp.asarray(np.ones(3)), lambda: ferrax.jit(lambda x: x + 1)(1.0),
            lambda: ferrax.devices(), lambda: ferrax.random.key(0)):
    try:
        use()
    except RuntimeError as error:
        print(str(error).count("\\n"), error)
ferrax.config.update("jax_platforms", "cpu")
print(jnp.ones(3).sum())
"""
    for platforms in ("gpu", "gpu,cpu"):
        result = run_python(code, FERRAX_PLATFORMS=platforms, **NO_GPU)
        assert not result.stderr
        *lines, last = result.stdout.splitlines()
        # One line, and where it is known that of the user's.
        errors = [line for line in lines if not line.startswith("  at <string>:")]
        assert len(errors) == 5 and last == "3.0"
        for error in errors:
            assert error[:2] in ("0 ", "1 ") and "no GPU" in error and "Vulkan" in error


def test_a_flag_that_cannot_be_set_keeps_its_value():
    former = config.jax_platforms, config.jax_default_device
    state = flags.State("test_flag", 1, flags.parse_int, "")

    def refuse(name, value, process_wide):
        if name == "test_flag" and value == 2:
            raise RuntimeError("no two")

    flags._flag_hooks.append(refuse)
    try:
        with pytest.raises(RuntimeError, match="no two"):
            state._set(2)
        assert state.value == 1
        with pytest.raises(RuntimeError, match="no two"), state(2):
            pass
        assert state.value == 1 and state.get_local() is None
        state._set(3)
        assert state.value == 3
    finally:
        flags._flag_hooks.remove(refuse)
    if not has_gpu():
        for name, value in (("jax_platforms", "gpu,cpu"), ("jax_default_device", "gpu")):
            with pytest.raises(RuntimeError, match="no GPU|allows"):
                config.update(name, value)
    assert (config.jax_platforms, config.jax_default_device) == former
    assert jnp.ones(2).devices() == {CPU}


def test_the_number_of_cpu_devices():
    """By the environment, by a flag until a device is looked at, or one."""
    for settings, flag, expected in (({}, None, 1), ({"FERRAX_NUM_CPU_DEVICES": "3"}, None, 3), ({}, 4, 4),
                                     ({"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, None, 5),
                                     ({"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, 2, 2)):  # fmt: skip
        code = f"""
import ferrax
if {flag}:
    ferrax.config.update("jax_num_cpu_devices", {flag})
print(ferrax.device_count(), *[device.id for device in ferrax.devices()])
try:
    ferrax.config.update("jax_num_cpu_devices", 7)
except RuntimeError as error:
    print(ferrax.config.jax_num_cpu_devices, ferrax.device_count(), error)
"""
        first, second = run_python(code, **{"FERRAX_NUM_CPU_DEVICES": "-1", "XLA_FLAGS": ""} | settings).stdout.splitlines()
        assert first.split() == [str(expected), *map(str, range(expected))]
        held = flag or settings.get("FERRAX_NUM_CPU_DEVICES", "-1")
        assert second.startswith(f"{held} {expected} ") and f"there are {expected} CPU devices" in second
    for wrong in (0, -2, True, None, "3"):
        with pytest.raises(ValueError, match="jax_num_cpu_devices must be"):
            config.update("jax_num_cpu_devices", wrong)


def test_default_device_is_the_cpu():
    for value in (None, "cpu", CPU):
        with ferrax.default_device(value):
            assert jnp.ones(2).devices() == {CPU}
    with pytest.raises(ValueError, match=r"name of a platform \(cpu, gpu, reference\)"):
        config.update("jax_default_device", "tpu")


def test_logging_flags_set_loggers(caplog):
    package, module = logging.getLogger("ferrax"), logging.getLogger("ferrax._src.transforms.stats")
    assert not package.isEnabledFor(logging.DEBUG)
    config.update("jax_logging_level", "DEBUG")
    assert module.isEnabledFor(logging.DEBUG)
    config.update("jax_logging_level", "ERROR")
    assert not module.isEnabledFor(logging.WARNING)
    config.update("jax_debug_log_modules", "ferrax._src.transforms.stats")
    assert module.isEnabledFor(logging.DEBUG) and not package.isEnabledFor(logging.DEBUG)
    config.update("jax_debug_log_modules", "jax")
    assert package.isEnabledFor(logging.DEBUG)
    config.update("jax_debug_log_modules", "")
    assert not package.isEnabledFor(logging.DEBUG)
    config.update("jax_logging_level", "NOTSET")
    assert not module.isEnabledFor(logging.DEBUG)
    with pytest.raises(ValueError, match="modules of ferrax"):
        config.update("jax_debug_log_modules", "jax._src.dispatch")


def test_softmax_with_a_rule_of_its_own():
    x, where = np.linspace(-2, 3, 6, dtype=np.float32).reshape(2, 3), np.array([True, False, True])

    def results(S, n):
        def total(x, where):
            return n.sum(S.nn.softmax(x, where=where) ** 3)

        values = [S.nn.softmax(x, 0), S.nn.softmax(x, where=where), S.nn.softmax(np.arange(3))]
        for mask in (None, where):
            values += [S.grad(total)(x, mask), S.hessian(total)(x, mask), S.jit(S.grad(total))(x, mask)]
            values.append(S.vmap(S.grad(total), (0, None))(x, mask))
        return values

    plain = results(ferrax, jnp)
    jaxprs = [str(ferrax.make_jaxpr(ferrax.nn.softmax)(x))]
    config.update("jax_softmax_custom_jvp", True)
    jaxprs.append(str(ferrax.make_jaxpr(ferrax.nn.softmax)(x)))
    for value, other, theirs in zip(results(ferrax, jnp), plain, results(jax, jax.numpy)):
        compare_arrays(value, other, cancels=1.0)
        compare_arrays(value, theirs, cancels=1.0)
    assert ["custom_jvp_call" in text for text in jaxprs] == [False, True]


# Arguments of jit.


def double(x, y=0):
    return 2 * x


@pytest.mark.parametrize(
    "options,error,match",
    [
        ({"backend": "tpu"}, RuntimeError, "Unknown backend"),
        ({"device": "cpu"}, TypeError, "must be a device"),
        ({"device": CPU, "backend": "cpu"}, ValueError, "not both"),
        ({"compiler_options": {"nonsense": 1}}, JaxRuntimeError, "nonsense"),
        ({"compiler_options": 3}, TypeError, "must be a dict"),
        ({"in_shardings": "bogus"}, TypeError, "in_shardings"),
        ({"out_shardings": ("bogus",)}, TypeError, "out_shardings"),
        ({"abstracted_axes": ("n",)}, NotImplementedError, "static shapes"),
    ],
)
def test_options_of_jit_that_are_refused(options, error, match):
    with pytest.raises(error, match=match):
        ferrax.jit(double, **options)


def test_options_of_jit_that_hold():
    whole = jnp.ones(2).sharding
    for options in (
        {"backend": "cpu"}, {"device": CPU}, {"compiler_options": {}}, {"keep_unused": True},
        {"in_shardings": whole, "out_shardings": whole}, {"in_shardings": (None,)},
    ):  # fmt: skip
        assert ferrax.jit(double, **options)(3.0) == 6.0


def test_stages_refuse_options():
    lowered = ferrax.jit(double).lower(1.0)
    for call in (
        lambda: lowered.compile({"nonsense": 1}),
        lambda: ferrax.jit(double).trace(1.0).lower(lowering_platforms=("tpu",)).compile(),
        lambda: ferrax.jit(double).trace(1.0).lower(lowering_platforms=()),
        lambda: lowered.as_text("hlo"),
    ):
        with pytest.raises((JaxRuntimeError, ValueError)):
            call()
    with pytest.raises(TypeError, match="sequence of names"):
        ferrax.jit(double).trace(1.0).lower(lowering_platforms="cpu")
    for platforms in (("cpu",), ("tpu", "cpu"), ["cpu", "cuda"]):
        assert ferrax.jit(double).trace(1.0).lower(lowering_platforms=platforms).compile()(2.0) == 4.0
    assert "mul" in ferrax.jit(double).trace(1.0).lower(lowering_platforms=("tpu",)).as_text()


def positional_only(x, /, y):
    return x


def variadic(*args, **keywords):
    return args[0]


@pytest.mark.parametrize(
    "fun,options",
    [
        (positional_only, {"static_argnames": "x"}),
        (positional_only, {"donate_argnames": "x"}),
        (variadic, {"static_argnames": "args"}),
        (lambda x, /, **keywords: x, {"static_argnames": "x"}),
        (max, {"donate_argnames": "x"}),
    ],
)
def test_names_of_arguments_that_have_none(fun, options):
    for module in (jax, ferrax):
        with pytest.raises(ValueError):
            module.jit(fun, **options)


# Copies of jitted functions.


class Model:
    def __init__(self):
        self.scale = 2.0
        self.call = ferrax.jit(self.scaled, static_argnames="power")

    def scaled(self, x, *, power=1):
        return self.scale * x**power


increment = ferrax.jit(np.add, static_argnums=())


def test_jitted_functions_are_copied_and_pickled():
    function = ferrax.jit(double, static_argnames="y")
    function.note = [1]
    for again in (copy.copy(function), copy.deepcopy(function)):
        assert again is not function and again(3.0, y="text") == 6.0 and again.note == [1]
        assert again.stats().traces == function.stats().traces
    assert copy.copy(ferrax.jit(function))(1.0) == 2.0
    model = copy.deepcopy(Model())
    assert model.call.__wrapped__.__self__ is model
    model.scale = 3.0
    assert model.call(2.0, power=2) == 12.0
    assert pickle.loads(pickle.dumps(ferrax.jit(divmod)))(7, 2)[0] == 3


# Places.


def test_device_put_copies_where_memory_is_not_to_be_shared():
    x = jnp.arange(3.0)
    assert ferrax.device_put(x) is ferrax.device_put(x, may_alias=True) is x
    other = ferrax.device_put(x, may_alias=False)
    assert other is not x and (other == x).all()
    pointers = [np.asarray(y).ctypes.data for y in (x, other)]
    assert pointers[0] != pointers[1]


@pytest.mark.parametrize(
    "call",
    [
        lambda n, x, bad: n.dot(x, x, out_sharding=bad),
        lambda n, x, bad: n.matmul(x, x, out_sharding=bad),
        lambda n, x, bad: n.tensordot(x, x, 1, out_sharding=bad),
        lambda n, x, bad: n.einsum("i,i", x, x, out_sharding=bad),
        lambda n, x, bad: n.reshape(x, (3, 1), out_sharding=bad),
        lambda n, x, bad: n.ravel(x, out_sharding=bad),
        lambda n, x, bad: x.flatten(out_sharding=bad),
        lambda n, x, bad: n.repeat(x, 2, out_sharding=bad),
        lambda n, x, bad: n.broadcast_to(x, (2, 3), out_sharding=bad),
        lambda n, x, bad: n.bincount(x, out_sharding=bad),
        lambda n, x, bad: n.zeros(3, out_sharding=bad),
    ],
)
def test_out_sharding(call):
    for n in (jax.numpy, jnp):
        x = n.arange(3)
        call(n, x, None)
        with pytest.raises(TypeError, match="out_sharding"):
            call(n, x, "bogus")


@pytest.mark.parametrize("name", ["segment_sum", "segment_prod", "segment_max", "segment_min"])
def test_out_sharding_of_segments(name):
    for S, n in ((jax, jax.numpy), (ferrax, jnp)):
        call = getattr(S.ops, name)
        assert call(n.ones(3), n.zeros(3, int), out_sharding=None).shape == (1,)
        with pytest.raises(TypeError, match="out_sharding"):
            call(n.ones(3), n.zeros(3, int), out_sharding="bogus")


def test_callbacks_know_one_place():
    struct = ferrax.ShapeDtypeStruct((), jnp.float32)
    where = jnp.ones(2).sharding
    assert ferrax.pure_callback(np.negative, struct, jnp.float32(1), sharding=where) == -1
    with pytest.raises(NotImplementedError, match="SingleDeviceSharding"):
        ferrax.pure_callback(np.negative, struct, jnp.float32(1), sharding="bogus")


# Other arguments.


def test_product_in_another_dtype():
    for x, y, dtype in (
        (np.int8(100), np.int8(100), "int32"), (np.int32(300), np.int32(2), "int8"),
        (np.int8(100), np.float32(2.5), "float32"), (2.0, 3.0, "float16"), (1.5, np.ones(2), None),
        (np.float32(1.75), np.float32(3), "int32"),
    ):  # fmt: skip
        ours, theirs = lax.mul(x, y, out_dtype=dtype), jax.lax.mul(x, y, out_dtype=dtype)
        assert ours.dtype == theirs.dtype and ours.weak_type == theirs.weak_type
        np.testing.assert_array_equal(ours, theirs)
    grad = ferrax.grad(lambda x: lax.mul(x, x, out_dtype=jnp.float32))(jnp.float16(3))
    assert grad == 6 and grad.dtype == np.float16


def test_disable_jit_by_name():
    seen = []
    for disable in (False, True):
        with ferrax.disable_jit(disable=disable):
            ferrax.jit(lambda x: seen.append(isinstance(x, ferrax.core.Tracer)))(1.0)
    assert seen == [True, False]


def test_axes_of_vmap_are_ints():
    x = np.ones((2, 2), np.float32)
    for S, bad in itertools.product((jax, ferrax), (np.int64(0), np.array(0), "a", True)):
        for axes in ({"in_axes": (bad,)}, {"out_axes": bad}):
            with pytest.raises(TypeError):
                S.vmap(lambda x: x, **axes)(x)
    for size in (-3, "a", 2.0):
        with pytest.raises(TypeError, match="axis_size"):
            ferrax.vmap(lambda: np.float32(1), axis_size=size)()
    with pytest.raises(TypeError, match="axis_size must not be negative, got -3"):
        ferrax.vmap(lambda: np.float32(1), axis_size=-3)()


def test_complex_to_real_warns_as_in_jax():
    for n in (jax.numpy, jnp):
        z = n.ones(2) * 1j
        for call in (lambda: z.astype("float32"), lambda: n.astype(z, "int32")):  # noqa: B023
            with pytest.warns(DeprecationWarning) as seen:
                assert not call().any()
            assert n is not jnp or seen[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            z.astype(bool), z.astype("complex64")
        with pytest.warns(np.exceptions.ComplexWarning):
            n.asarray(z, dtype="float32")


def test_arguments_of_other_functions_that_are_refused():
    from ferrax.experimental.jet import jet
    from ferrax.extend import core
    from ferrax.interpreters import ad, batching, partial_eval

    for call in (
        lambda: ferrax.linear_transpose(lambda x: x, 1.0, reduce_axes=("i",)),
        lambda: ferrax.make_jaxpr(double, abstracted_axes=("n",)),
        lambda: batching.broadcast(jnp.ones(2), 2, 0, mesh_axis="i"),
        lambda: batching.bdim_at_front(jnp.ones(2), 0, 2, mesh_axis="i"),
        lambda: core.unmapped_aval(2, 0, ferrax.typeof(1.0), explicit_mesh_axis="i"),
        lambda: core.gensym("_x"),
        lambda: ad.linearize(lambda x: [x], [1.0], is_vjp=True),
        lambda: partial_eval.trace_to_jaxpr_dynamic(lambda x: [x], [ferrax.typeof(1.0)], lower=True),
    ):
        with pytest.raises(NotImplementedError):
            call()
    for struct in (ferrax.core.ShapedArray, ferrax.ShapeDtypeStruct):
        with pytest.raises(TypeError, match="ManualAxisType"):
            struct((), np.float32, manual_axis_type="i")
    with pytest.raises(TypeError, match="printed in one way"):
        ferrax.make_jaxpr(double)(1.0).pretty_print(source_info=True)
    assert ferrax.make_jaxpr(double)(1.0).pretty_print(use_color=False)
    with pytest.raises(TypeError, match="unexpected keyword"):
        jet(jnp.sin, (1.0,), ((1.0,),), order=2)


# Errors of callbacks within callbacks.


def nested(depth, fails):
    """A jitted function whose callback calls such a function, `depth` deep."""
    struct = ferrax.ShapeDtypeStruct((), jnp.float32)

    def call(x):
        return np.asarray(nested(depth - 1, fails)(x)) if depth else fails()

    return ferrax.jit(lambda x: ferrax.pure_callback(call, struct, x))


def test_errors_of_nested_callbacks_name_each_once():
    def fails():
        raise KeyError("deep inside")

    lengths = []
    for depth in (2, 4, 6):
        with pytest.raises(JaxRuntimeError) as error:
            nested(depth, fails)(1.0)
        text = str(error.value)
        lengths.append(len(text))
        assert text.count("KeyError: 'deep inside'") == 1 and text.count("pure_callback failed") == depth + 1
        assert isinstance(error.value.__cause__, KeyError)
    assert lengths[2] - lengths[1] == lengths[1] - lengths[0]


def test_callbacks_that_call_themselves_without_end():
    struct = ferrax.ShapeDtypeStruct((), jnp.float32)

    @ferrax.jit
    def again(x):
        return ferrax.pure_callback(lambda x: np.asarray(again(x)), struct, x)

    with pytest.raises(JaxRuntimeError, match="more callbacks") as error:
        again(1.0)
    assert isinstance(error.value.__cause__, RecursionError) and len(str(error.value)) < 20_000


# Every flag.


def test_levels_of_messages(no_disk_cache):
    ferrax.clear_caches()
    with ferrax.explain_cache_misses():
        assert [level for level, _ in logged(retraced)] == ["WARNING"]
    with ferrax.log_compiles():
        records = logged(retraced)
    assert records == [("WARNING", what) for what in ("Traced", "Compiled", "Traced", "Compiled")]


# Flags that the native core reads.


def test_compilations_are_logged(caplog):
    with ferrax.log_compiles(), caplog.at_level(logging.WARNING, "ferrax"):
        ferrax.jit(lambda some_argument: some_argument * 3)(jnp.ones(4))
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2 and {record.name for record in caplog.records} == {
        "ferrax._src.transforms.stats"
    }
    assert texts[0].startswith("Traced <lambda> at") and "of (f32[4]) in" in texts[1]


@pytest.fixture(params=["jax", "ferrax"])
def pair(request):
    """A library and its NumPy, once JAX's and once ours."""
    return (jax, jax.numpy) if request.param == "jax" else (ferrax, jnp)


def test_tracing_can_be_forbidden(pair):
    S, n = pair
    function, x, longer = S.jit(lambda x: x * 2), n.ones(2), n.ones(3)
    function(x)
    with S.no_tracing():
        assert function(x).shape == (2,)
        for call in (
            lambda: function(longer),
            lambda: S.make_jaxpr(lambda x: x * 5)(x),
            lambda: S.eval_shape(lambda x: x * 6, x),
            lambda: S.lax.scan(lambda c, x: (c, x), 0.0, x),
        ):
            with pytest.raises(RuntimeError, match="no_tracing"):
                call()
    assert function(longer)[0] == 2


def test_execution_can_be_forbidden(pair):
    S, n = pair
    function, x = S.jit(lambda x: x * 2), n.ones(2)
    function(x)
    with S.no_execution():
        for call in (lambda: function(x), lambda: x + x, lambda: n.sin(x), lambda: S.vmap(lambda x: x * 3)(x),
                     lambda: S.grad(lambda x: x * x)(1.0)):  # fmt: skip
            with pytest.raises(RuntimeError, match="no_execution"):
                call()
        assert S.eval_shape(function, x).shape == (2,)
        S.jit(lambda x: x * 4).lower(x).compile()
    assert function(x)[0] == 2


def test_transfers_from_the_host_are_guarded(pair):
    S, n = pair
    function, with_constant, x = S.jit(lambda x: x * 2), S.jit(lambda x: x + GIVEN), n.ones(2)
    function(x), function(1.0), with_constant(x)
    implicit = (lambda: x + GIVEN, lambda: function(GIVEN), lambda: function(1.0), lambda: n.asarray(GIVEN),
                lambda: n.sin(GIVEN), lambda: S.vmap(lambda x: x * 2)(GIVEN))  # fmt: skip
    free = (lambda: function(x), lambda: with_constant(x), lambda: np.asarray(x), lambda: S.device_get(x),
            lambda: S.make_jaxpr(lambda x: x + GIVEN)(x), lambda: n.arange(3), lambda: x.copy(),
            lambda: n.sum(x * x), lambda: S.jit(S.grad(lambda x: (x * GIVEN).sum()))(x))  # fmt: skip
    for level in ("disallow", "disallow_explicit"):
        with S.transfer_guard_host_to_device(level):
            for call in implicit:
                with pytest.raises(S.errors.JaxRuntimeError, match="Disallowed"):
                    call()
            for call in free:
                call()
    with S.transfer_guard("disallow"):
        S.device_put((GIVEN, 1.0))
        with S.transfer_guard("allow"):
            function(GIVEN)
    with S.transfer_guard("disallow_explicit"), pytest.raises(S.errors.JaxRuntimeError, match="Disallowed"):
        S.device_put(GIVEN)


def test_other_transfers_are_guarded(pair):
    S, n = pair
    x = n.ones(2)
    with S.transfer_guard_device_to_device("disallow"):
        S.device_put(x, may_alias=False)
    with S.transfer_guard_device_to_device("disallow_explicit"):
        S.device_put(x), S.device_put(GIVEN), x.copy()
        with pytest.raises(S.errors.JaxRuntimeError, match="Disallowed"):
            S.device_put(x, may_alias=False)
    # NumPy reads the memory of arrays.
    with S.transfer_guard_device_to_host("disallow_explicit"):
        assert np.asarray(n.ones(2)).sum() == float(x[0] + 1) == S.device_get(n.ones(2)).sum() == 2
        assert x.tolist() == [1, 1]


def test_transfers_are_logged(caplog):
    x = jnp.ones(2)
    explicit = {"log": 0, "log_explicit": 2}
    for level, count in explicit.items():
        with ferrax.transfer_guard(level), caplog.at_level(logging.WARNING, "ferrax"):
            x + GIVEN
            (record,) = caplog.records
            assert record.name == "ferrax._src.core.transfers" and "float32[2]" in record.getMessage()
            caplog.clear()
            ferrax.device_put(GIVEN), ferrax.device_put(x, may_alias=False)
            assert len(caplog.records) == count
            caplog.clear()


# Errors of arguments and of tracers.


def test_sizes_decide_before_values_of_tracers(pair):
    S, n = pair
    for convert, error in ((bool, ValueError), (int, TypeError), (float, TypeError), (complex, TypeError)):
        for size in (0, 3):
            with pytest.raises(error) as raised:
                S.jit(lambda x: convert(x))(n.arange(size))  # noqa: B023
            assert not isinstance(raised.value, S.errors.ConcretizationTypeError)
            with pytest.raises(error):
                convert(n.arange(size))
    with pytest.raises(S.errors.TracerBoolConversionError):
        S.jit(bool)(n.arange(1))
    with pytest.raises(ValueError, match="more than one element"):
        S.jit(bool)(n.arange(3))
    with pytest.raises(TypeError, match="[Ss]calar"):
        S.jit(lambda x: range(3)[x])(1.5)


def test_static_arguments_whose_comparison_fails(pair):
    class Incomparable:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            raise KeyError("no comparison")

    S, _ = pair
    function, one = S.jit(lambda x, static: x, static_argnums=1), Incomparable()
    assert function(1.0, one) == function(1.0, one)
    with pytest.raises(ValueError, match="no comparison"):
        function(1.0, Incomparable())
