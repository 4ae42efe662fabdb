"""`pjit`, an older name of `ferrax.jit`, for which `with mesh:` says where functions run."""

import warnings

from ferrax._src.base import public as _public
from ferrax._src.transforms.pjit import pjit as _pjit


def __getattr__(name):
    if name != "pjit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "ferrax.experimental.pjit.pjit is deprecated. Use ferrax.jit.",
        DeprecationWarning,
        stacklevel=2,
    )
    return _public.shown(_pjit)
