"""Type hints for functions of arrays."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from ferrax._core import Array


@runtime_checkable
class SupportsDType(Protocol):
    """Anything with a dtype."""

    @property
    def dtype(self) -> np.dtype: ...


ArrayLike: TypeAlias = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
DTypeLike: TypeAlias = str | type[Any] | np.dtype | SupportsDType
# One axis or several; sizes.
Axis: TypeAlias = int | Sequence[int]
Shape: TypeAlias = int | Sequence[int]

__all__ = ["ArrayLike", "DTypeLike"]
