"""Configuration flags: process-wide values, environment variables, thread-local contexts.

Every flag is a `State`. Its value is the innermost context manager's value on this thread, or
else the process-wide one, set by `config.update` or, at import, by the environment: a flag
`jax_enable_x64` is read from `JAX_ENABLE_X64` and from `FERRAX_ENABLE_X64`; the latter wins.

Invariants:
- A `State` object is the context manager of its flag: `with enable_x64(True): ...`.
- Flags with a place in `TRACE_CONTEXT` are part of the key of compiled functions. Whenever one of
  them changes, the hook set with `_on_context_change` is told, so that the native core reads the
  trace context without calling Python.
- The table `_FLAGS` at the end is the only place where flags are declared.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import os
import sys
import threading

_UNSET = object()
_TRUE = frozenset(("y", "yes", "t", "true", "on", "1"))
_FALSE = frozenset(("n", "no", "f", "false", "off", "0"))

_local = threading.local()  # attribute `jax_enable_x64` etc.: this thread's overrides
_states: dict[str, State] = {}


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


# ---------------------------------------------------------------------------------------------
# Parsers: (flag name, value given by the user) -> stored value, or ValueError/TypeError.


def _parse_bool(name, value):
    return bool(value)


def _parse_int(name, value):
    if value is not None and not isinstance(value, int):
        raise ValueError(f"{name} must be an int or None, got {value!r} of type {type(value)}.")
    return value


def _parse_float(name, value):
    if value is not None and not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a float or None, got {value!r} of type {type(value)}.")
    return value


def _parse_string(name, value):
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be a string or None, got {value!r} of type {type(value)}.")
    return value


def _parse_device(name, value):
    """None, a platform name or a Device (any object that says which platform it is of)."""
    if value is None or value in ("cpu", "gpu", "tpu") or hasattr(value, "platform"):
        return value
    raise ValueError(
        f"{name} must be a Device object such as `ferrax.devices('cpu')[0]`, or a platform name such "
        f"as 'cpu' or 'gpu', got: {value!r}."
    )


class _Choice:
    """One of a list of strings; None too where `optional`."""

    def __init__(self, *values, optional=False):
        self.values, self.optional = values, optional

    def __call__(self, name, value):
        if (value is None and self.optional) or (type(value) is str and value in self.values):
            return value
        none = "None or " if self.optional else ""
        raise ValueError(f"{name} must be {none}one of {list(self.values)}, got {value!r}.")


class _EnumClass:
    """A member of an enum class, or the string that stands for it."""

    def __init__(self, enum_class):
        self.enum_class = enum_class

    def __call__(self, name, value):
        if isinstance(value, (str, self.enum_class)):
            return self.enum_class(value)
        raise TypeError(f"{name} must be a {self.enum_class.__name__}, got {value!r}.")


def _from_environment(name, parser, text):
    """The value that the text of an environment variable or command-line option stands for."""
    try:
        if parser is _parse_bool:
            lowered = text.lower()
            if lowered not in _TRUE and lowered not in _FALSE:
                raise ValueError(f"{text!r} is neither a true nor a false word")
            return lowered in _TRUE
        if parser is _parse_int:
            return int(text)
        if parser is _parse_float:
            return float(text)
        return parser(name, text)
    except ValueError as error:
        raise ValueError(f"Invalid value {text!r} for the flag {name}: {error}") from None


# ---------------------------------------------------------------------------------------------
# Change notification.

_context_hook = None
_flag_hooks: list = []


def _on_context_change(callback):
    """Sets the function told of every change of the trace context; returns the one before.

    `callback(context, process_wide)`: with `process_wide` true, `context` is the tuple of
    `TRACE_CONTEXT` values that hold on threads without overrides; with it false, `context` is
    this thread's own tuple, or None when the thread has no override left and follows the process.
    Called at once with the present state. `None` as callback removes the hook.
    """
    global _context_hook
    previous, _context_hook = _context_hook, callback
    if callback is not None:
        callback(tuple(_states[name]._global for name in TRACE_CONTEXT), True)
        _notify_thread()
    return previous


def _on_flag_change(callback):
    """Adds `callback(name, value, process_wide)`, called for each flag now and at each change."""
    _flag_hooks.append(callback)
    for name, state in _states.items():
        callback(name, state._global, True)


def trace_context() -> tuple:
    """The values, on this thread, of the flags in `TRACE_CONTEXT`, in that order."""
    overrides = _local.__dict__
    return tuple(overrides.get(name, _states[name]._global) for name in TRACE_CONTEXT)


def _notify_thread():
    if _context_hook is not None:
        overridden = any(name in _TRACE_CONTEXT_SET for name in _local.__dict__)
        _context_hook(trace_context() if overridden else None, False)


# ---------------------------------------------------------------------------------------------
# Flags.


class State:
    """A flag. `state.value` reads it; `with state(new_value):` sets it for a block of this thread.

    Boolean flags may be entered without an argument, which means True. The object returned by
    `state(new_value)` also decorates functions.
    """

    def __init__(self, name, default, parser, doc):
        self._name = name
        self.__name__ = name.removeprefix("jax_")
        self.__doc__ = doc
        self._parser = parser
        self._global = default

    @property
    def name(self):
        return self._name

    @property
    def value(self):
        return _local.__dict__.get(self._name, self._global)

    def get_global(self):
        return self._global

    def get_local(self):
        """This thread's override, or None where there is none."""
        return _local.__dict__.get(self._name)

    def __bool__(self):
        raise TypeError(
            f"bool() is not supported for the flag {self._name}: use its `.value` to read it."
        )

    def __call__(self, new_val=_UNSET):
        if new_val is _UNSET:
            if self._parser is not _parse_bool:
                raise TypeError(
                    f"The context manager of {self.__name__} needs the flag's new value as an "
                    "argument."
                )
            new_val = True
        return _StateContext(self, self._parser(self._name, new_val))

    def __repr__(self):
        return f"<flag {self._name}={self.value!r}>"

    def _set(self, value):
        value = self._parser(self._name, value)
        self._global = value
        for hook in _flag_hooks:
            hook(self._name, value, True)
        if self._name in _TRACE_CONTEXT_SET and _context_hook is not None:
            _context_hook(tuple(_states[name]._global for name in TRACE_CONTEXT), True)
            _notify_thread()
        if self._name == "jax_transfer_guard":
            for part in _TRANSFER_GUARDS:
                _states[part]._set(value)

    def _set_local(self, value):
        overrides = _local.__dict__
        if value is _UNSET:
            overrides.pop(self._name, None)
        else:
            overrides[self._name] = value
        for hook in _flag_hooks:
            hook(self._name, self.value, False)
        if self._name in _TRACE_CONTEXT_SET:
            _notify_thread()


class _StateContext:
    """What `state(value)` returns: a context manager, re-enterable, and a decorator."""

    __slots__ = ("state", "new_val", "_previous")

    def __init__(self, state, new_val):
        self.state, self.new_val = state, new_val
        self._previous = []

    def __enter__(self):
        self._previous.append(_local.__dict__.get(self.state._name, _UNSET))
        self.state._set_local(self.new_val)

    def __exit__(self, exc_type, exc_value, traceback):
        self.state._set_local(self._previous.pop())

    def __call__(self, function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            with _StateContext(self.state, self.new_val):
                return function(*args, **kwargs)

        return wrapper


class Config:
    """The object `ferrax.config`: reads flags as attributes, sets them with `update`.

    Example:
        >>> ferrax.config.update("jax_enable_x64", True)
        >>> ferrax.config.jax_enable_x64
        True
    """

    def update(self, name, val):
        """Sets a flag for the whole process. Raises AttributeError for a name that is no flag."""
        state = _states.get(name)
        if state is None:
            raise AttributeError(f"Unrecognized config option: {name}")
        state._set(val)

    def read(self, name):
        """The value of a flag on this thread. Raises AttributeError for a name that is no flag."""
        state = _states.get(name)
        if state is None:
            raise AttributeError(f"Unrecognized config option: {name}")
        return state.value

    _read = read

    @property
    def values(self) -> dict:
        """All flags' values by name."""
        return {name: state.value for name, state in _states.items()}

    @property
    def x64_enabled(self) -> bool:
        return _states["jax_enable_x64"].value

    def __getattr__(self, name):
        state = _states.get(name)
        if state is None:
            raise AttributeError(f"'Config' object has no attribute {name!r}")
        return state.value

    def __setattr__(self, name, value):
        raise AttributeError(
            f"Flags cannot be assigned: use `config.update({name!r}, {value!r})` to set one."
        )

    def __dir__(self):
        return [*super().__dir__(), *_states]

    def parse_flags_with_absl(self):
        """Sets flags from `--jax_name=value` (or `--jax_name value`) in the command line.

        Boolean flags may also be written `--jax_name` and `--nojax_name`. Other arguments, and all
        that follow a lone `--`, are left to the program.
        """
        arguments = iter(sys.argv[1:])
        for argument in arguments:
            if argument == "--":
                break
            flag, has_value, text = argument.lstrip("-").partition("=")
            if not argument.startswith("-"):
                continue
            if flag.startswith("nojax_") and flag[2:] in _states:
                self.update(flag[2:], False)
                continue
            state = _states.get(flag)
            if state is None:
                continue
            if not has_value:
                if state._parser is _parse_bool:
                    state._set(True)
                    continue
                text = next(arguments, None)
                if text is None:
                    raise ValueError(f"The command-line option --{flag} needs a value.")
            state._set(_from_environment(flag, state._parser, text))

    config_with_absl = parse_flags_with_absl


_MATMUL_PRECISIONS = (
    "default", "high", "highest", "bfloat16", "tensorfloat32", "float32", "ANY_F8_ANY_F8_F32",
    "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY", "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
    "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16", "BF16_BF16_F32", "BF16_BF16_F32_X3",
    "BF16_BF16_F32_X6", "BF16_BF16_F32_X9", "TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32",
    "F64_F64_F64",
)
_GUARD = _Choice(
    "allow", "log", "disallow", "log_explicit", "disallow_explicit", optional=True
)
_TRANSFER_GUARDS = (
    "jax_transfer_guard_host_to_device",
    "jax_transfer_guard_device_to_device",
    "jax_transfer_guard_device_to_host",
)
_ERROR_CHECK = _Choice("ignore", "raise")
_NO_EFFECT = "Accepted so that programs written for JAX run unchanged; ferrax has no such setting."

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
)
_TRACE_CONTEXT_SET = frozenset(TRACE_CONTEXT)

# (name, parser, default, documentation)
_FLAGS = (
    ("jax_enable_x64", _parse_bool, False, "Whether 64-bit dtypes are kept; if not, they become "
     "32-bit ones."),
    ("jax_explicit_x64_dtypes", _EnumClass(ExplicitX64Mode), ExplicitX64Mode.WARN,
     "What an explicit request of a 64-bit dtype does while x64 is disabled: 'warn' (and use 32 "
     "bits), 'error' or 'allow'."),
    ("jax_numpy_dtype_promotion", _EnumClass(NumpyDtypePromotion), NumpyDtypePromotion.STANDARD,
     "'standard': operands are promoted along the lattice. 'strict': only Python scalars are."),
    ("jax_numpy_rank_promotion", _Choice("allow", "warn", "raise"), "allow",
     "Whether operands of different rank broadcast in ferrax.numpy: 'allow', 'warn' or 'raise'."),
    ("jax_default_matmul_precision", _Choice(*_MATMUL_PRECISIONS, optional=True), None,
     "The precision of matrix products and convolutions that do not name one."),
    ("jax_default_device", _parse_device, None, "The device for operations that name none."),
    ("jax_default_prng_impl", _Choice("threefry2x32", "threefry4x32", "rbg", "unsafe_rbg",
     "philox2x32", "philox4x32"), "threefry2x32", "The random number generator of new keys."),
    ("jax_threefry_partitionable", _parse_bool, True, "Whether random bits are a function of "
     "each element's own position; the older stream otherwise."),
    ("jax_random_seed_offset", _parse_int, 0, "A number added to every seed."),
    ("jax_high_dynamic_range_gumbel", _parse_bool, False, "Whether Gumbel samples use twice the "
     "bits, so that they resolve probabilities below 1e-7."),
    ("jax_enable_custom_prng", _parse_bool, False, "Whether PRNGKey, like key, gives typed keys."),
    ("jax_legacy_prng_key", _EnumClass(LegacyPrngKeyState), LegacyPrngKeyState.ALLOW,
     "What the use of a raw uint32 key does: 'allow', 'warn' or 'error'."),
    ("jax_debug_key_reuse", _parse_bool, False, "Whether the use of a consumed key is an error."),
    ("jax_softmax_custom_jvp", _parse_bool, False, "Whether softmax has a derivative rule of its "
     "own, rather than that of its formula."),
    ("jax_debug_nans", _parse_bool, False, "Whether a NaN in a result is an error."),
    ("jax_debug_infs", _parse_bool, False, "Whether an infinity in a result is an error."),
    ("jax_disable_jit", _parse_bool, False, "Whether jit and the control-flow functions call "
     "Python directly instead of compiling; for debugging."),
    ("jax_check_tracer_leaks", _parse_bool, False, "Whether tracers that outlive their "
     "transformation are an error at its end."),
    ("jax_check_static_indices", _parse_bool, False, "Whether static indices are bounds-checked."),
    ("jax_enable_checks", _parse_bool, False, "Whether invariants are verified between passes."),
    ("jax_log_compiles", _parse_bool, False, "Whether each compilation is logged as a warning."),
    ("jax_log_checkpoint_residuals", _parse_bool, False, "Whether checkpoint logs what it saves."),
    ("jax_explain_cache_misses", _parse_bool, False, "Whether each retrace is logged with its "
     "cause."),
    ("jax_no_tracing", _parse_bool, False, "Whether tracing for jit is an error."),
    ("jax_no_execution", _parse_bool, False, "Whether the execution of a program is an error."),
    ("jax_allow_f16_reductions", _parse_bool, True, "Whether reductions may run in 16-bit floats."),
    ("jax_error_checking_behavior_nan", _ERROR_CHECK, "ignore", "What a NaN does."),
    ("jax_error_checking_behavior_divide", _ERROR_CHECK, "ignore", "What a division by zero does."),
    ("jax_error_checking_behavior_oob", _ERROR_CHECK, "ignore", "What a bad index does."),
    ("jax_platforms", _parse_string, None, "Comma-separated platforms to start, best first."),
    ("jax_platform_name", _parse_string, "", "The older form of jax_platforms."),
    ("jax_num_cpu_devices", _parse_int, -1, "How many CPU devices there are; -1: one."),
    ("jax_compilation_cache_dir", _parse_string, None, "Where compiled programs are kept on disk."),
    ("jax_enable_compilation_cache", _parse_bool, True, "Whether the cache on disk is used."),
    ("jax_compilation_cache_max_size", _parse_int, -1, "The cache's largest size in bytes; -1: "
     "unbounded."),
    ("jax_persistent_cache_min_compile_time_secs", _parse_float, 1.0, "Programs that compile "
     "faster are not kept on disk."),
    ("jax_persistent_cache_min_entry_size_bytes", _parse_int, 0, "Smaller programs are not kept."),
    ("jax_raise_persistent_cache_errors", _parse_bool, False, "Whether failures of the cache on "
     "disk are errors rather than warnings."),
    ("jax_transfer_guard", _GUARD, None, "What transfers between host and devices do."),
    ("jax_transfer_guard_host_to_device", _GUARD, None, "What transfers from host to device do."),
    ("jax_transfer_guard_device_to_device", _GUARD, None, "What transfers between devices do."),
    ("jax_transfer_guard_device_to_host", _GUARD, None, "What transfers from device to host do."),
    ("jax_array_garbage_collection_guard", _Choice("allow", "log", "fatal", optional=True), None,
     "What the collection of an array in a reference cycle does."),
    ("jax_thread_guard", _parse_bool, False, "Whether use of one device by several threads is an "
     "error."),
    ("jax_remove_size_one_mesh_axis_from_type", _parse_bool, False, "Whether mesh axes of size one "
     "are left out of types."),
    ("jax_auto_pcast", _parse_bool, True, "Whether values vary over mesh axes where needed."),
    ("jax_pprint_use_color", _parse_bool, True, "Whether printed programs may be coloured."),
    ("jax_traceback_filtering", _Choice("off", "tracebackhide", "remove_frames",
     "quiet_remove_frames", "auto"), "auto", "How frames of this package leave tracebacks."),
    ("jax_tracer_error_num_traceback_frames", _parse_int, 5, "Frames shown in tracer errors."),
    ("jax_logging_level", _Choice("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
     "NOTSET", "The level of this package's logger."),
    ("jax_export_calling_convention_version", _parse_int, 10, "The version export writes."),
    # Settings of JAX's own machinery.
    ("jax2tf_associative_scan_reductions", _parse_bool, False, _NO_EFFECT),
    ("jax_cpu_enable_async_dispatch", _parse_bool, True, _NO_EFFECT),
    ("jax_cpu_collectives_implementation", _Choice("gloo", "mpi", "megascale", optional=True),
     "gloo", _NO_EFFECT),
    ("jax_cuda_visible_devices", _parse_string, "all", _NO_EFFECT),
    ("jax_rocm_visible_devices", _parse_string, "all", _NO_EFFECT),
    ("jax_debug_log_modules", _parse_string, "", _NO_EFFECT),
    ("jax_disable_most_optimizations", _parse_bool, False, _NO_EFFECT),
    ("jax_dump_ir_to", _parse_string, "", _NO_EFFECT),
    ("jax_exec_time_optimization_effort", _parse_float, 0.0, _NO_EFFECT),
    ("jax_memory_fitting_effort", _parse_float, 0.0, _NO_EFFECT),
    ("jax_include_full_tracebacks_in_locations", _parse_bool, True, _NO_EFFECT),
    ("jax_optimization_level", _Choice("UNKNOWN", "O0", "O1", "O2", "O3"), "UNKNOWN", _NO_EFFECT),
    ("jax_persistent_cache_enable_xla_caches", _parse_string,
     "xla_gpu_per_fusion_autotune_cache_dir", _NO_EFFECT),
    ("jax_compiler_enable_remat_pass", _parse_bool, True, _NO_EFFECT),
    ("jax_enable_pgle", _parse_bool, False, _NO_EFFECT),
    ("jax_use_shardy_partitioner", _parse_bool, True, _NO_EFFECT),
    ("jax_use_direct_linearize", _parse_bool, True, _NO_EFFECT),
    ("jax_use_magma", _Choice("off", "on", "auto"), "auto", _NO_EFFECT),
    ("jax_xla_backend", _parse_string, "", _NO_EFFECT),
)


def _declare(name, parser, default, doc):
    for prefix in ("FERRAX_", "JAX_"):
        text = os.environ.get(prefix + name.removeprefix("jax_").upper())
        if text is not None:
            default = _from_environment(name, parser, text)
            break
    _states[name] = State(name, default, parser, f"Context manager of the flag `{name}`.\n\n{doc}")
    globals()[name.removeprefix("jax_")] = _states[name]


for _flag in _FLAGS:
    _declare(*_flag)

config = Config()
update = config.update
transfer_guard_level = _states["jax_transfer_guard"]
checking_leaks = _states["jax_check_tracer_leaks"]


@contextlib.contextmanager
def transfer_guard(new_val):
    """Sets the level of the transfer guard, in all directions, for a block of this thread.

    Args:
        new_val: 'allow', 'log', 'disallow', 'log_explicit', 'disallow_explicit' or None.
    """
    with contextlib.ExitStack() as stack:
        for name in (*_TRANSFER_GUARDS, "jax_transfer_guard"):
            stack.enter_context(_states[name](new_val))
        yield


def __getattr__(name):
    # `from ferrax._src import config; config.jax_enable_x64` reads as `config.config` does.
    if name == "x64_enabled":
        return config.x64_enabled
    state = _states.get(name)
    if state is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return state.value
