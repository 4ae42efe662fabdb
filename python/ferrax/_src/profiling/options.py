"""What a profile records: `ProfileOptions`.

In: attributes, checked when they are set. Out: settings that the session reads when it starts; what has no meaning
here is refused then.
"""

from __future__ import annotations

from typing import Any

# What programs set in `advanced_configuration`: the events that are kept of each thread; the shortest call of a Python
# function that is recorded, in microseconds; whether registered processes are asked for theirs.
EVENTS, SHORTEST, SUBPROCESSES = "ferrax_max_events_per_thread", "ferrax_python_min_us", "profile_subprocesses"
_DEFAULTS: dict[str, int | bool] = {EVENTS: 1_000_000, SHORTEST: 10, SUBPROCESSES: False}
# Of the tracers of machines that this is not: they say nothing of processors and of ferrax's GPUs.
_OF_OTHERS = ("tpu_", "gpu_", "enableFw")


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and 0 <= value <= most


class _Setting:
    """An attribute of one type."""

    def __init__(self, default: int | bool | str, description: str) -> None:
        self.default, self.__doc__ = default, description

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, options: ProfileOptions | None, owner: type) -> Any:
        return self if options is None else options._values.get(self.name, self.default)

    def __set__(self, options: ProfileOptions, value: Any) -> None:
        kind = type(self.default)
        most = (1 << 32) - 1 if self.name.endswith("_level") else (1 << 63) - 1
        right = _is_count(value, most) if kind is int else isinstance(value, kind)
        if not right:
            wanted = "an integer from 0 on" if kind is int else kind.__name__
            raise TypeError(f"ProfileOptions.{self.name} takes {wanted}, got {value!r}")
        options._values[self.name] = kind(value)


class ProfileOptions:
    """What a profile records.

    Attributes:
        host_tracer_level: 0: nothing of this process; 1: what users mark; 2: also calls, compilations, each step of a
            program, transfers, callbacks; 3: also steps in loops and branches.
        python_tracer_level: 0: no functions of Python; 1: those of the user's own files and of other libraries that
            take 10 microseconds at least; 2: all.
        device_tracer_level: 0: no times of GPUs.
        duration_ms: how long events are recorded from the start on; 0: until the profile stops.
        start_timestamp_ns: events are recorded from this time on, in nanoseconds since 1970; 0: at once.
        session_id: the name of the folder of the profile's files; "": the time.
        repository_path: not supported: a profile is written where `start_trace` is told.
        raise_error_on_start_failure: whether it is an error if a GPU cannot tell its times, else a warning.
        enable_hlo_proto, include_dataset_ops: no meaning, for there is no HLO and there are no pipelines of TensorFlow.
        advanced_configuration: a dict of texts to integers, bools and texts. "ferrax_max_events_per_thread" (a
            million): of more the oldest are dropped; "ferrax_python_min_us" (10): the shortest call of a Python
            function; "profile_subprocesses" (False): whether processes of `register_subprocess` take part. What
            begins with "tpu_", "gpu_" or "enableFw" sets tracers of other machines, and nothing here.

    Errors: TypeError for values of other types; AttributeError for other names. Starting a profile raises
    NotImplementedError for `repository_path`, and ValueError for other names in `advanced_configuration`.

    >>> options = ferrax.profiler.ProfileOptions()
    >>> options.python_tracer_level = 0
    >>> options.host_tracer_level, options.python_tracer_level
    (2, 0)
    """

    __slots__ = ("_values",)

    host_tracer_level = _Setting(2, "What is recorded of this process.")
    python_tracer_level = _Setting(1, "Which functions of Python are recorded.")
    device_tracer_level = _Setting(1, "Whether GPUs tell their times.")
    duration_ms = _Setting(0, "How long events are recorded.")
    start_timestamp_ns = _Setting(0, "From when on events are recorded.")
    session_id = _Setting("", "The name of the folder of a profile.")
    repository_path = _Setting("", "Not supported.")
    raise_error_on_start_failure = _Setting(False, "Whether GPUs without times are errors.")
    enable_hlo_proto = _Setting(True, "No meaning here.")
    include_dataset_ops = _Setting(True, "No meaning here.")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    @property
    def advanced_configuration(self) -> dict[str, int | bool | str]:
        """Further settings."""
        return dict(self._values.get("advanced_configuration", {}))

    @advanced_configuration.setter
    def advanced_configuration(self, value: dict[str, int | bool | str]) -> None:
        if not isinstance(value, dict):
            raise TypeError(f"ProfileOptions.advanced_configuration takes a dict, got {value!r}")
        self._values["advanced_configuration"] = dict(value)


def checked(options: ProfileOptions | None) -> tuple[ProfileOptions, dict[str, int]]:
    """The options that are meant, and the further settings with their defaults.

    Errors: TypeError for what are no options; NotImplementedError and ValueError as the class says.
    """
    if options is None:
        options = ProfileOptions()
    elif not isinstance(options, ProfileOptions):
        raise TypeError(f"profiler_options takes a ProfileOptions, got {type(options).__name__}")
    if options.repository_path:
        raise NotImplementedError(
            "ProfileOptions.repository_path: a profile is written to the log_dir that start_trace is given"
        )
    if "/" in options.session_id or "\\" in options.session_id or options.session_id in (".", ".."):
        raise ValueError(f"ProfileOptions.session_id is the name of a folder, got {options.session_id!r}")
    advanced: dict[str, int] = dict(_DEFAULTS)
    for name, value in options.advanced_configuration.items():
        if name in _DEFAULTS:
            least = int(name == EVENTS)
            if not isinstance(value, int) or not least <= value <= 1 << 32:
                raise ValueError(f"ProfileOptions: {name} takes an integer from {least} on, got {value!r}")
            advanced[name] = int(value)
        elif not str(name).startswith(_OF_OTHERS):
            raise ValueError(
                f"ProfileOptions.advanced_configuration has '{name}', which is unknown; "
                f"known are {', '.join(_DEFAULTS)}"
            )
    return options, advanced
