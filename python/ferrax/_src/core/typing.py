"""Type hints for functions of arrays."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from ferrax._core import Array


@runtime_checkable
class SupportsDType(Protocol):
    """Anything with a dtype."""

    @property
    def dtype(self) -> np.dtype: ...


ArrayLike = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
DTypeLike = str | type[Any] | np.dtype | SupportsDType

__all__ = ["ArrayLike", "DTypeLike"]
