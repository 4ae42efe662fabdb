"""Tells the native core the settings, where this package is, and the dtypes that are Python objects.

Imported before all that traces.
"""

from __future__ import annotations

from ferrax import _core
from ferrax._src.base import config, dtypes, errors, flags, log, monitoring
from ferrax._src.base.extended_dtypes import (
    REGISTERED,
    REGISTERED_BY_NAME,
    KeyTy,
    PRNGImpl,
    key_fry,
)
from ferrax._src.core import named_axes

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

_context_ids: dict[tuple, int] = {}
_RANK_PROMOTION = {"allow": 0, "warn": 1, "raise": 2}


def _on_context(context, process_wide) -> None:
    if context is None:
        _core.clear_trace_context()
        return
    named = dict(zip(config.TRACE_CONTEXT, context))
    number = _context_ids.setdefault(context, len(_context_ids))
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
_CHECKED = {name for name, _ in _CHECKS} | {_GUARDS, "jax_logging_level", "jax_debug_log_modules"}


def _bits(read) -> int:
    """The bits of the flags' values, as `read` gives them."""

    def value(name):
        own = read(flags.states[name])
        return read(flags.states[_GUARDS]) if name == _GUARD and own is None else own

    bits = (1 << bit for bit, (name, on) in enumerate(_CHECKS) if value(name) in on)
    traces = log.details() or monitoring.timed() or value("jax_explain_cache_misses")
    return sum(bits) | (_LOG_COMPILES if traces else 0)


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
    if name not in _CHECKED:
        return
    _tell_checks(process_wide)


def _tell_checks(process_wide: bool) -> None:
    """Tells the native core the bits, of this thread if any of them is set for it alone."""
    if process_wide:
        _core.set_checks(_bits(lambda state: state.get_global()), True)
    if all(flags.states[check].get_local() is None for check in _CHECKED):
        _core.clear_checks()
    else:
        _core.set_checks(_bits(lambda state: state.value), False)


flags.on_flag_change(_on_flag)
monitoring.on_change(lambda: _tell_checks(True))


def named_context(number) -> dict:
    """The settings of the trace context with this number, and the named axes, by name."""
    axes, number = divmod(number, 1 << 32)
    values = next((values for values, known in _context_ids.items() if known == number), ())
    return {**dict(zip(config.TRACE_CONTEXT, values)), "named axes": named_axes.numbered(axes)}
