"""Dtype objects such as `float32`: callable, equal to NumPy's types, usable wherever a dtype is.

Invariant: `scalar_type(x)` makes a strongly typed array; instances cannot be made.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ferrax._src.core import Array
from ferrax._src.numpy.array_creation import asarray


class ScalarType(type):
    """The class of `float32` and its like."""

    dtype: np.dtype

    def __hash__(self) -> int:
        return hash(self.dtype.type)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, ScalarType):
            return self.dtype == other.dtype
        try:
            return self.dtype == other if other is not None else False
        except TypeError:
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __call__(self, x: Any) -> Array:
        return asarray(x, dtype=self.dtype)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self.dtype.type)


_HELP = """The dtype {name}: for `dtype` arguments; called, it converts to an array of it.

    Args: x: array, scalar or nested sequence, as for `array`, with its errors. Without
    `jax_enable_x64` types of 64 bits give those of 32.

    >>> jnp.{name}.dtype == jnp.dtype(jnp.{name})
    True
    """


def _scalar_type(name, numpy_type) -> ScalarType:
    dtype = np.dtype(numpy_type)
    # "bool_" is the dtype bool, as its name says elsewhere.
    name = name.rstrip("_")
    kind = ScalarType(name, (object,), {"dtype": dtype, "__doc__": _HELP.format(name=name)})
    kind.__module__ = "ferrax.numpy"
    return kind


_names = {
    "bool_": np.bool_,
    **{f"{u}int{b}": getattr(np, f"{u}int{b}") for u in ("", "u") for b in (8, 16, 32, 64)},
    **{f"float{b}": getattr(np, f"float{b}") for b in (16, 32, 64)},
    "complex64": np.complex64,
    "complex128": np.complex128,
    **{
        name: getattr(ml_dtypes, name)
        for name in (
            "bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4",
            "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
            "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "int1", "int2", "int4", "uint1",
            "uint2", "uint4",
        )
        if hasattr(ml_dtypes, name)
    },
}
SCALAR_TYPES = {name: _scalar_type(name, kind) for name, kind in _names.items()}
SCALAR_TYPES |= {
    "bool": SCALAR_TYPES["bool_"],
    "single": SCALAR_TYPES["float32"],
    "double": SCALAR_TYPES["float64"],
    "csingle": SCALAR_TYPES["complex64"],
    "cdouble": SCALAR_TYPES["complex128"],
}
