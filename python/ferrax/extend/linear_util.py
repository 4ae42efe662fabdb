"""Functions with transformations applied to them: `wrap_init`, `transformation` and the like."""

# ruff: noqa: F401

from ferrax._src.base import public as _public
from ferrax._src.tracing.linear_util import (
    StoreException as StoreException,
    WrappedFun as WrappedFun,
    _missing_debug_info,
    cache as cache,
    merge_linear_aux as merge_linear_aux,
    transformation as transformation,
    transformation2 as transformation2,
    transformation_with_aux as transformation_with_aux,
    transformation_with_aux2 as transformation_with_aux2,
    wrap_init as wrap_init,
)

_public.export(__name__)
