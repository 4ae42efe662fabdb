"""Type hints for functions of arrays."""

from collections.abc import Sequence
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
# One axis or several; sizes.
Axis = int | Sequence[int]
Shape = int | Sequence[int]

__all__ = ["ArrayLike", "DTypeLike"]
