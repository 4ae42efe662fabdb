"""Functions with transformations applied to them: `wrap_init`, `transformation` and the like."""

# ruff: noqa: F401

from ferrax._src.tracing.linear_util import (
    StoreException,
    WrappedFun,
    _missing_debug_info,
    cache,
    merge_linear_aux,
    transformation,
    transformation2,
    transformation_with_aux,
    transformation_with_aux2,
    wrap_init,
)
