"""Answers for `jax._src.dtypes`."""

# ruff: noqa: F401

from __future__ import annotations

import ml_dtypes
import numpy as np

from ferrax._src.base.dtypes import (
    ExtendedDType as ExtendedDType,
    TypePromotionError as TypePromotionError,
    canonicalize_dtype as canonicalize_dtype,
    extended as extended,
    finfo as finfo,
    issubdtype,
)

DType = np.dtype
_WITHOUT_INFINITY = {
    np.dtype(getattr(ml_dtypes, name))
    for name in (
        "float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2fnuz "
        "float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn"
    ).split()
    if hasattr(ml_dtypes, name)
}


def supports_inf(dtype: object) -> bool:
    """Whether numbers of this dtype can be infinite."""
    found = np.dtype(dtype)  # type: ignore[call-overload]  # anything that NumPy takes for a dtype
    return found not in _WITHOUT_INFINITY and issubdtype(found, np.inexact)
