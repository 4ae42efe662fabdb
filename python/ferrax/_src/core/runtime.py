"""Tells the native core the settings, where this package is, and the dtypes that are Python objects.

Imported before all that traces.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from ferrax import _core
from ferrax._src.base import config, dtypes, errors, flags, log, monitoring
from ferrax._src.base.extended_dtypes import (
    REGISTERED,
    REGISTERED_BY_NAME,
    KeyTy,
    PRNGImpl,
    key_fry,
)
from ferrax._src.core import named_axes, placements
from ferrax._src.core.devices import _CPU, Device, local_devices
from ferrax._src.core.mesh import mesh_of_results, on_use
from ferrax._src.core.sharding import SingleDeviceSharding

_core.exclude_from_source(errors.PACKAGE_DIRECTORY)
_core.register_float0(dtypes.float0)


def register_generator(dtype: KeyTy, defines: bool) -> None:
    """Makes a key dtype and its generator known to the native core, which knows those of fixed names
    already; others it `defines`.

    Errors: ValueError for keys of other than one, two or four words.
    """
    impl: PRNGImpl = dtype._impl
    known = _core.register_key_dtype(dtype, impl.name, impl.tag, impl.key_shape, defines)
    REGISTERED[impl], REGISTERED_BY_NAME[known[1]] = known, impl


register_generator(key_fry, False)

# Numbers of settings, by the number of the types of mutable values outside of traces (`set_outside`).
_context_ids: dict[int, dict[tuple, int]] = {}
_next_id = itertools.count()
_outside = [0]
_RANK_PROMOTION = {"allow": 0, "warn": 1, "raise": 2}


def _on_context(context, process_wide) -> None:
    if context is None:
        _core.clear_trace_context()
        return
    named = dict(zip(config.TRACE_CONTEXT, context))
    known = _context_ids.setdefault(_outside[0], {})
    number = known.get(context)
    if number is None:
        number = known[context] = next(_next_id)
    _core.set_trace_context(
        bool(named["jax_enable_x64"]),
        str(named["jax_numpy_dtype_promotion"]) == "strict",
        _RANK_PROMOTION[str(named["jax_numpy_rank_promotion"])],
        bool(named["jax_disable_jit"]),
        dtypes.allows_explicit_x64(named["jax_explicit_x64"], named["jax_explicit_x64_dtypes"]),
        number,
        process_wide,
    )


flags.on_context_change(_on_context)


def set_outside(number: int, forgotten: Iterable[int] = ()) -> None:
    """Says by a number which types the mutable values have that jitted functions close over: functions are known by it
    on every thread, but on those that have settings of their own only once they call this or change settings.
    Those that are forgotten are not given again."""
    _outside[0] = number
    for other in forgotten:
        _context_ids.pop(other, None)
    flags.tell_context()

_GUARD, _GUARDS = "jax_transfer_guard_host_to_device", "jax_transfer_guard"
# Which values of a flag set a bit of those that the native core reads, in the order of the bits.
_CHECKS = (
    ("jax_debug_nans", (True,)),
    ("jax_debug_infs", (True,)),
    ("jax_check_tracer_leaks", (True,)),
    ("jax_explain_cache_misses", (True,)),
    ("jax_log_compiles", (True,)),
    ("jax_no_tracing", (True,)),
    ("jax_no_execution", (True,)),
    (_GUARD, ("log", "log_explicit")),
    (_GUARD, ("disallow", "disallow_explicit")),
    ("jax_debug_key_reuse", (True,)),
)
_LOG_COMPILES = 1 << 4
# The bit above: whether the default device is not the CPU.
_ELSEWHERE = 1 << len(_CHECKS)
_DEVICES = ("jax_default_device", "jax_platforms")
_CHECKED = {name for name, _ in _CHECKS} | {
    _GUARDS, "jax_logging_level", "jax_debug_log_modules", *_DEVICES,
}  # fmt: skip


def _bits(read, of_thread: bool) -> int:
    """The bits of the flags' values, as `read` gives them."""

    def value(name):
        own = read(flags.states[name])
        return read(flags.states[_GUARDS]) if name == _GUARD and own is None else own

    bits = (1 << bit for bit, (name, on) in enumerate(_CHECKS) if value(name) in on)
    elsewhere = _ELSEWHERE if _default_place(read, of_thread) else 0
    traces = log.details() or monitoring.heard() or value("jax_explain_cache_misses")
    return sum(bits) | (_LOG_COMPILES if traces else 0) | elsewhere


# Whether a flag that says where programs run is being set. Where there is no such device, that raises. While
# ferrax is imported the environment has said it, and what is imported may run nothing: there the first use raises.
_choosing = False


def _default_place(read, of_thread: bool) -> int:
    """The number of the placement of what was put nowhere, by the flags' values as `read` gives them and, `of_thread`,
    the mesh in use."""
    device = read(flags.states["jax_default_device"])
    if device is None and of_thread and (mesh := mesh_of_results()) is not None:
        return placements.number_of_mesh(mesh)
    if device is None:
        device = (read(flags.states["jax_platforms"]) or "cpu").partition(",")[0]
    if device == "cpu":
        return 0
    if not isinstance(device, Device):
        try:
            device = local_devices(backend=device)[0]
        except RuntimeError as error:
            if _choosing:
                raise
            return placements.number_of_missing(f"the default device is to be '{device}', but {error}")
    if device is _CPU:
        return 0
    return placements.number_of(SingleDeviceSharding(device), committed=False)


_verifies = False


def _verify(wanted: bool) -> None:
    """Tells the native core whether to verify programs and plans, if that changes."""
    global _verifies
    if wanted != _verifies:
        _core.set_verification(wanted)
        _verifies = wanted


def _on_flag(name, value, process_wide) -> None:
    if name == "jax_enable_checks":
        _verify(bool(flags.states[name].value))
    if name == "jax_num_threads":
        _core.set_num_threads(flags.states[name].get_global(), True)
        _core.set_num_threads(flags.states[name].get_local() or 0, False)
    if name not in _CHECKED:
        return
    global _choosing
    _choosing = _imported and name in _DEVICES
    try:
        _tell_checks(process_wide)
    finally:
        _choosing = False


def _tell_checks(process_wide: bool) -> None:
    """Tells the native core the bits, of this thread if any of them is set for it alone."""
    if process_wide:
        _core.set_checks(_bits(lambda state: state.get_global(), False), True)
        _core.set_default_place(_default_place(lambda state: state.get_global(), False), True)
    own = flags.states["jax_default_device"].get_local() is not None or mesh_of_results() is not None
    _core.set_default_place(_default_place(lambda state: state.value, True) if own else None, False)
    if mesh_of_results() is None and all(flags.states[check].get_local() is None for check in _CHECKED):
        _core.clear_checks()
    else:
        _core.set_checks(_bits(lambda state: state.value, True), False)


_imported = False
flags.on_flag_change(_on_flag)
_imported = True
monitoring.on_change(lambda: _tell_checks(True))
on_use(lambda: _tell_checks(False))


def named_context(number) -> dict:
    """The settings of the trace context with this number, and the named axes, by name."""
    axes, number = divmod(number, 1 << 32)
    every = [item for known in list(_context_ids.values()) for item in list(known.items())]
    values = next((values for values, known in every if known == number), ())
    return {**dict(zip(config.TRACE_CONTEXT, values)), "named axes": named_axes.numbered(axes)}
