"""Helpers for code that wraps functions as transformations do."""

# ruff: noqa: F401

from ferrax._src.base.util import safe_map
from ferrax._src.core import shaped_abstractify
from ferrax._src.interop.flat_functions import (
    argnums_partial,
    debug_info,
    donation_vector,
    flatten_axes,
    flatten_fun,
    flatten_fun_nokwargs,
    rebase_donate_argnums,
)
