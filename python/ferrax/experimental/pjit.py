"""`pjit`, the older name of `ferrax.jit`, which a warning says."""

import warnings
from typing import Any

from ferrax._src.transforms.jit import jit as _jit


def __getattr__(name: str) -> Any:
    if name != "pjit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "ferrax.experimental.pjit.pjit is deprecated. Use ferrax.jit.", DeprecationWarning, stacklevel=2
    )
    return _jit
