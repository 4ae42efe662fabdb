"""Helpers for code that wraps functions as transformations do."""

# ruff: noqa: F401

from ferrax._src.base import public as _public
from ferrax._src.base.util import safe_map as safe_map
from ferrax._src.core import shaped_abstractify as shaped_abstractify
from ferrax._src.interop.flat_functions import (
    argnums_partial as argnums_partial,
    debug_info as debug_info,
    donation_vector as donation_vector,
    flatten_axes as flatten_axes,
    flatten_fun as flatten_fun,
    flatten_fun_nokwargs as flatten_fun_nokwargs,
    rebase_donate_argnums as rebase_donate_argnums,
)

_public.export(__name__)
