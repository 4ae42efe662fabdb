"""Connects the native core with the Python layer: settings, dtypes, methods of `Array`.

Imported before everything else; nothing here is public.
"""

from __future__ import annotations

import os

from ferrax import _core
from ferrax._src import config, dtypes
from ferrax._src.extended_dtypes import key_fry

_core.set_package_directory(os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep)
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


def install_array_methods() -> None:
    """Sets the methods of `Array` that are written in Python."""
    from ferrax._src import array
    from ferrax._src.numpy import array_methods, indexing

    array_methods.install(_core.Array)
    indexing.install(_core.Array)
    array.install(_core.Array)
