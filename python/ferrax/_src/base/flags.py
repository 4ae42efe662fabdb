"""Flags: process-wide values, environment variables, thread-local contexts.

Every flag is a `State`. Its value is the innermost context manager's value on this thread, or
else the process-wide one, set by `config.update` or, at import, by the environment: a flag
`jax_enable_x64` is read from `JAX_ENABLE_X64` and from `FERRAX_ENABLE_X64`; the latter wins.
Which flags there are is said in `config`.

Invariants:
- A `State` object is the context manager of its flag: `with enable_x64(True): ...`.
- Flags that are declared with a place in the trace context are part of the key of compiled
  functions. Whenever one of them changes, the hook set with `on_context_change` is told, so that
  the native core reads the trace context without calling Python.
- A flag has an effect or refuses the values that would need one (`fixed_flags`): a value that can
  be read is a value that holds.
"""

from __future__ import annotations

import enum
import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ferrax import _core
from ferrax._src.base import fixed_flags

P = ParamSpec("P")
R = TypeVar("R")

_UNSET = object()
_TRUE = frozenset(("y", "yes", "t", "true", "on", "1"))
_FALSE = frozenset(("n", "no", "f", "false", "off", "0"))

THREADS_AT_START = _core.num_threads()
_local = threading.local()  # attribute `jax_enable_x64` etc.: this thread's overrides
states: dict[str, State] = {}
# The flags that key compiled functions, in order; set by `declare_context`.
_context: tuple[str, ...] = ()
_context_set: frozenset[str] = frozenset()
# Flags that are set together with another one, by its name.
parts: dict[str, tuple[str, ...]] = {}
# Values that programs added to the trace context; they are no flags of `config`.
_of_users: dict[str, State] = {}


# ---------------------------------------------------------------------------------------------
# Parsers: (flag name, value given by the user) -> stored value, or ValueError/TypeError.


def parse_bool(name, value):
    return bool(value)


def parse_optional_bool(name, value):
    return None if value is None else bool(value)


def parse_int(name, value):
    if value is not None and not isinstance(value, int):
        raise ValueError(f"{name} must be an int or None, got {value!r} of type {type(value)}.")
    return value


def parse_cpu_count(name, value):
    """A number of devices that the processor plays; -1: as the environment says, or one."""
    if isinstance(parse_int(name, value), bool) or value is None or value != -1 and not 1 <= value <= 1 << 16:
        raise ValueError(f"{name} must be from 1 to {1 << 16}, or -1; got {value!r}.")
    return value


def parse_threads(name, value):
    """A number of threads; None stands for as many as there were at the start."""
    if value is None:
        return THREADS_AT_START
    if isinstance(parse_int(name, value), bool) or not 1 <= value <= _core.most_threads():
        raise ValueError(f"{name} must be from 1 to {_core.most_threads()}, got {value!r}.")
    return value


def parse_float(name, value):
    if value is not None and not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a float or None, got {value!r} of type {type(value)}.")
    return value


def parse_string(name, value):
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be a string or None, got {value!r} of type {type(value)}.")
    return value


def parse_device(name, value):
    """None, the name of a platform or a device (an object that says which platform it is of)."""
    if value is None or getattr(value, "platform", value) in fixed_flags.PLATFORMS:
        return value
    raise ValueError(
        f"{name} must be None, a device such as `ferrax.devices()[0]`, or the name of a platform "
        f"({', '.join(fixed_flags.PLATFORMS)}); got: {value!r}."
    )


def parse_modules(name, value):
    """Comma-separated names of this package's modules; "jax" is all of them."""
    text = parse_string(name, value) or ""
    own = ("", "ferrax")
    foreign = [module for module in text.split(",") if module != "jax" and module.partition(".")[0] not in own]
    if foreign:
        raise ValueError(f"{name} must name modules of ferrax such as 'ferrax', got {foreign}.")
    return text


class Choice:
    """One of a list of strings; None too where `optional`."""

    def __init__(self, *values, optional=False):
        self.values, self.optional = values, optional

    def __call__(self, name, value):
        if (value is None and self.optional) or (type(value) is str and value in self.values):
            return value
        none = "None or " if self.optional else ""
        raise ValueError(f"{name} must be {none}one of {list(self.values)}, got {value!r}.")


class EnumClass:
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
        if parser is parse_bool:
            lowered = text.lower()
            if lowered not in _TRUE and lowered not in _FALSE:
                raise ValueError(f"{text!r} is neither a true nor a false word")
            return lowered in _TRUE
        if parser in (parse_int, parse_cpu_count, parse_threads):
            return parser(name, int(text))
        if parser is parse_float:
            return float(text)
        return parser(name, text)
    except ValueError as error:
        raise ValueError(f"Invalid value {text!r} for the flag {name}: {error}") from None


# ---------------------------------------------------------------------------------------------
# Change notification.

_context_hook = None
_flag_hooks: list = []


def on_context_change(callback):
    """Sets the function told of every change of the trace context; returns the one before.

    `callback(context, process_wide)`: with `process_wide` true, `context` is the tuple of
    the trace context's values that hold on threads without overrides; with it false, `context` is
    this thread's own tuple, or None when the thread has no override left and follows the process.
    Called at once with the present state. `None` as callback removes the hook.
    """
    global _context_hook
    previous, _context_hook = _context_hook, callback
    if callback is not None:
        callback(_shared_context(), True)
        _notify_thread()
    return previous


def tell_context() -> None:
    """Tells the hook of `on_context_change` the present state once more."""
    if _context_hook is not None:
        _context_hook(_shared_context(), True)
        _notify_thread()


def on_flag_change(callback):
    """Adds `callback(name, value, process_wide)`, called for each flag now and at each change."""
    _flag_hooks.append(callback)
    for name, state in states.items():
        callback(name, state._global, True)


def trace_context() -> tuple:
    """The values, on this thread, of the flags of the trace context, in their order."""
    overrides = _local.__dict__
    return tuple(overrides.get(name, state._global) for name, state in _context_states())


def own_values() -> dict[str, Any]:
    """The values of flags that this thread has for itself, for `adopt`."""
    return dict(_local.__dict__)


def adopt(values: dict[str, Any]) -> None:
    """Gives this thread, which has none, the values that another has for itself."""
    for name, value in values.items():
        states[name]._set_local(value)


def _context_states():
    return ((name, states[name] if name in states else _of_users[name]) for name in _context)


def _shared_context() -> tuple:
    return tuple(state._global for _, state in _context_states())


def _notify_thread():
    if _context_hook is not None:
        overridden = any(name in _context_set for name in _local.__dict__)
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

    def _checked(self, value):
        """The value to store. Errors: ValueError or TypeError for values that are refused."""
        value = self._parser(self._name, value)
        fixed_flags.check(self._name, value)
        return value

    @property
    def name(self) -> str:
        return self._name

    @property
    def value(self) -> Any:
        return _local.__dict__.get(self._name, self._global)

    def get_global(self) -> Any:
        return self._global

    def get_local(self) -> Any:
        """This thread's override, or None where there is none."""
        return _local.__dict__.get(self._name)

    def __bool__(self) -> bool:
        raise TypeError(
            f"bool() is not supported for the flag {self._name}: use its `.value` to read it."
        )

    def __call__(self, new_val: Any = _UNSET) -> StateContext:
        if new_val is _UNSET:
            if self._parser is not parse_bool:
                raise TypeError(
                    f"The context manager of {self.__name__} needs the flag's new value as an "
                    "argument."
                )
            new_val = True
        return StateContext(self, self._checked(new_val))

    def __repr__(self):
        return f"<flag {self._name}={self.value!r}>"

    def _set(self, value):
        """Sets the value of the process. What cannot be done leaves the former one, and raises."""
        value, former = self._checked(value), self._global
        try:
            self._take(value)
        except BaseException:
            self._take(former)
            raise
        done = []
        try:
            for part in parts.get(self._name, ()):
                done.append((states[part], states[part]._global))
                states[part]._set(value)
        except BaseException:
            for state, former_part in reversed(done):
                state._take(former_part)
            self._take(former)
            raise

    def _take(self, value):
        self._global = value
        for hook in _flag_hooks:
            hook(self._name, value, True)
        if self._name in _context_set and _context_hook is not None:
            _context_hook(_shared_context(), True)
            _notify_thread()

    def _set_local(self, value):
        """Sets or ends the value of this thread. What cannot be done leaves the former one, and raises."""
        former = _local.__dict__.get(self._name, _UNSET)
        try:
            self._take_local(value)
        except BaseException:
            self._take_local(former)
            raise

    def _take_local(self, value):
        overrides = _local.__dict__
        if value is _UNSET:
            overrides.pop(self._name, None)
        else:
            overrides[self._name] = value
        for hook in _flag_hooks:
            hook(self._name, self.value, False)
        if self._name in _context_set:
            _notify_thread()


class StateContext:
    """What `state(value)` returns: a context manager, re-enterable, and a decorator."""

    __slots__ = ("state", "new_val", "_previous")

    def __init__(self, state: State, new_val: Any) -> None:
        self.state, self.new_val = state, new_val
        self._previous: list[Any] = []

    def __enter__(self) -> None:
        previous = _local.__dict__.get(self.state._name, _UNSET)
        self.state._set_local(self.new_val)
        self._previous.append(previous)

    def __exit__(self, *exc: object) -> None:
        self.state._set_local(self._previous.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        # Each call has a context of its own: threads may be in several calls at once.
        def with_value(*args: P.args, **kwargs: P.kwargs) -> R:
            with StateContext(self.state, self.new_val):
                return function(*args, **kwargs)

        return functools.update_wrapper(with_value, function)


def _help(name, parser, default, doc) -> str:
    """What `help` says of a flag."""
    value = default.name.lower() if isinstance(default, enum.Enum) else default
    shown = f"ferrax.{name.removeprefix('jax_')}"
    shown = shown.replace("ferrax.pallas_enable_", "pl.enable_").replace("ferrax.pallas_", "pl.enable_")
    return f"""Context manager of the flag `{name}`, also a decorator; for this thread.

    {doc} The flag is {default} unless it is set.

    Args: new_val: the flag's value inside. Errors: ValueError or TypeError for what is no value of
    it or asks for what there is not.

    >>> with {shown}({value!r}):
    ...     print(ferrax.config.{name})
    {parser(name, value)}
    """


def declare(name, parser, default, doc, variables=()) -> State:
    """Makes a flag, whose value at first is the environment's or else `default`."""
    own = name.removeprefix("jax_").upper()
    for variable in variables or (f"FERRAX_{own}", f"JAX_{own}"):
        text = os.environ.get(variable)
        if text is None:
            continue
        value = _from_environment(name, parser, text)
        try:
            fixed_flags.check(name, value)
        except fixed_flags.UnsupportedFlagError as error:
            # The variable may be meant for other programs, so that it does not stop this one.
            warnings.warn(f"The environment variable {variable} is ignored: {error}", stacklevel=2)
        else:
            default = value
        break
    state = State(name, default, parser, _help(name, parser, default, doc))
    states[name] = state
    return state


def overrides() -> frozenset[str]:
    """The names of the flags that this thread has values of its own of."""
    return frozenset(_local.__dict__)


def declare_context(names) -> None:
    """Says which flags key compiled functions, and in which order `trace_context` gives them."""
    global _context, _context_set
    _context = tuple(names)
    _context_set = frozenset(names)


def add_to_context(state: State) -> None:
    """Makes a value that is no flag of `config` part of the trace context."""
    _of_users[state.name] = state
    declare_context((*_context, state.name))
    if _context_hook is not None:
        _context_hook(_shared_context(), True)
        _notify_thread()


def count_added() -> int:
    """How many values programs added to the trace context."""
    return len(_of_users)


_hidden: frozenset[str] = frozenset()


def hide(names: frozenset[str]) -> None:
    """`config` has all flags but these, until it is said anew."""
    global _hidden
    _hidden = names


def visible(name: str) -> State | None:
    """The flag of this name that `config` has."""
    return None if name in _hidden else states.get(name)


def _known(name: str) -> State:
    """The flag of this name. Errors: AttributeError where there is none."""
    state = visible(name)
    if state is not None:
        return state
    import difflib  # what is seldom needed

    near = difflib.get_close_matches(str(name), [known for known in states if known not in _hidden], 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise AttributeError(f"Unrecognized config option: {name}{meant}")


class Config:
    """The object `ferrax.config`: reads flags as attributes, sets them with `update`.

    Example:
        >>> ferrax.config.update("jax_enable_x64", True)
        >>> ferrax.config.jax_enable_x64
        True
    """

    def update(self, name, val):
        """Sets a flag for the whole process. Raises AttributeError for a name that is no flag."""
        state = _known(name)
        state._set(val)

    def read(self, name):
        """The value of a flag on this thread. Raises AttributeError for a name that is no flag."""
        state = _known(name)
        return state.value

    _read = read

    @property
    def values(self) -> dict:
        """All flags' values by name."""
        return {name: state.value for name, state in states.items() if name not in _hidden}

    @property
    def x64_enabled(self) -> bool:
        return states["jax_enable_x64"].value

    @property
    def debug_index(self) -> bool:
        return states["jax_debug_index"].value

    @property
    def explicit_x64(self) -> bool:
        return states["jax_explicit_x64"].value

    def __getattr__(self, name):
        state = visible(name)
        if state is None:
            raise AttributeError(f"'Config' object has no attribute {name!r}")
        return state.value

    def __setattr__(self, name, value):
        raise AttributeError(
            f"Flags cannot be assigned: use `config.update({name!r}, {value!r})` to set one."
        )

    def __dir__(self):
        return [*super().__dir__(), *self.values]

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
            if flag.startswith("nojax_") and flag[2:] in states:
                self.update(flag[2:], False)
                continue
            state = states.get(flag)
            if state is None:
                continue
            if not has_value:
                if state._parser is parse_bool:
                    state._set(True)
                    continue
                following = next(arguments, None)
                if following is None:
                    raise ValueError(f"The command-line option --{flag} needs a value.")
                text = following
            state._set(_from_environment(flag, state._parser, text))

    config_with_absl = parse_flags_with_absl
