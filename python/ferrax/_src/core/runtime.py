"""Connects the native core with the Python layer: settings, dtypes, methods of `Array`.

Imported before everything else; nothing here is public.
"""

from __future__ import annotations

import sys

from ferrax import _core
from ferrax._src.base import config, dtypes, errors
from ferrax._src.base.extended_dtypes import key_fry
from ferrax._src.core import named_axes

_core.exclude_from_source(errors.PACKAGE_DIRECTORY)
_core.register_extended_dtypes(key_fry, dtypes.float0)

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
        number,
        process_wide,
    )


config._on_context_change(_on_context)

# In the order in which the native core takes them.
_CHECKS = (
    "jax_debug_nans", "jax_debug_infs", "jax_check_tracer_leaks", "jax_explain_cache_misses",
)  # fmt: skip


def _on_flag(name, value, process_wide) -> None:
    if name not in _CHECKS:
        return
    states = [config._states[check] for check in _CHECKS]
    if process_wide:
        _core.set_checks(*[state.get_global() for state in states], True)
    if all(state.get_local() is None for state in states):
        _core.clear_checks()
    else:
        _core.set_checks(*[state.value for state in states], False)


config._on_flag_change(_on_flag)


def named_context(number) -> dict:
    """The settings of the trace context with this number, and the named axes, by name."""
    axes, number = divmod(number, 1 << 32)
    values = next((values for values, known in _context_ids.items() if known == number), ())
    return {**dict(zip(config.TRACE_CONTEXT, values)), "named axes": named_axes.numbered(axes)}


def install_array_methods() -> None:
    """Sets the methods of `Array` that are written in Python."""
    from ferrax._src.core import array
    from ferrax._src.numpy import array_methods, indexing

    array_methods.install(_core.Array)
    indexing.install(_core.Array)
    array.install(_core.Array)
    _answer_native_core()


def _answer_native_core() -> None:
    """Gives the native core the modules that it asks for, under the names by which it does."""
    from ferrax._src.base import errors
    from ferrax._src.core import api_util, float0
    from ferrax._src.numpy import indexing
    from ferrax._src.state import refs
    from ferrax._src.tracing import leaks
    from ferrax._src.transforms import primitive_rules, stats
    from ferrax._src.tree import tree_util

    for module in (errors, api_util, float0, refs, leaks, primitive_rules, stats, tree_util, indexing):
        name = module.__name__.rpartition(".")[2]
        sys.modules.setdefault(f"ferrax._src.{name}", module)
