"""Dtype queries of the public namespace: `can_cast`, `issubdtype`, `result_type`, `isdtype`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.numpy.util import is_array_like


def result_type(*args: Any) -> Any:
    """The dtype that the arguments (arrays, scalars, dtypes) promote to."""
    return dtypes.result_type(*args)


def promote_types(a: ArrayLike, b: ArrayLike) -> Any:
    """The dtype that two dtypes promote to."""
    return dtypes.promote_types(a, b)


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """True if the first dtype or dtype class lies below the second in the hierarchy."""
    return dtypes.issubdtype(arg1, arg2)


def isdtype(dtype: DTypeLike, kind: Any) -> bool:
    """True if a dtype is of a kind: a dtype, a kind's name ("integral", ...), or a tuple."""
    return dtypes.isdtype(dtype, kind)


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """True if a cast between dtypes is allowed under a casting rule."""
    if is_array_like(from_) and not hasattr(from_, "dtype"):
        raise TypeError("can_cast() does not support Python ints, floats, and complex")
    source = from_.dtype if hasattr(from_, "dtype") else from_
    return np.can_cast(np.dtype(source), np.dtype(getattr(to, "dtype", to)), casting=casting)
