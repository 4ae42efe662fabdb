"""Binary operators of `Array` that Python composes: `/ // % ** @ divmod` and reflections.

Invariant: an operand that is neither an array nor a scalar gives NotImplemented, so that Python
tries the other operand and then raises TypeError itself.
"""

from __future__ import annotations

import operator

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.numpy import products, rounding, ufuncs as composed
from ferrax._src.numpy.util import convert

_ACCEPTED = (Array, np.ndarray, np.generic, bool, int, float, complex)


def _binary(function):
    def forward(self: Array, other: ArrayLike) -> Array:
        if isinstance(other, _ACCEPTED) or hasattr(other, "__jax_array__"):
            return function(self, other)
        return NotImplemented

    def reflected(self: Array, other: ArrayLike) -> Array:
        if isinstance(other, _ACCEPTED) or hasattr(other, "__jax_array__"):
            return function(other, self)
        return NotImplemented

    return forward, reflected


truediv, rtruediv = _binary(ufuncs.true_divide)
floordiv, rfloordiv = _binary(composed.floor_divide)
mod, rmod = _binary(composed.remainder)
pow_, rpow = _binary(composed.power)
divmod_, rdivmod = _binary(composed.divmod)
for _pair in (divmod_, rdivmod):
    _pair.__annotations__["return"] = "tuple[Array, Array]"
matmul, rmatmul = _binary(products.matmul)


def round_(self: Array, ndigits: int | None = None) -> Array:
    """`round(x)` gives integers, `round(x, n)` keeps the dtype."""
    out = rounding.round(self, decimals=operator.index(ndigits or 0))
    if ndigits is not None or np.issubdtype(out.dtype, np.integer):
        return out
    return convert(out, dtypes.default_int_dtype())


OPERATORS = {
    "__truediv__": truediv,
    "__rtruediv__": rtruediv,
    "__floordiv__": floordiv,
    "__rfloordiv__": rfloordiv,
    "__mod__": mod,
    "__rmod__": rmod,
    "__pow__": pow_,
    "__rpow__": rpow,
    "__divmod__": divmod_,
    "__rdivmod__": rdivmod,
    "__matmul__": matmul,
    "__rmatmul__": rmatmul,
    "__round__": round_,
}
