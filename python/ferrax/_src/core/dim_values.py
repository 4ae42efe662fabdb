"""Symbolic dimensions as arrays, where a function is traced.

In: a dimension of `ferrax._src.dims`. Out: a weak 0-d integer array, an equation without inputs, of the default width.
A dimension that may be negative is written as the difference of two that are not.
"""

from __future__ import annotations

from typing import Any

from ferrax import _core
from ferrax._src.base import dtypes
from ferrax._src.dims.expressions import DimExpr, set_as_value
from ferrax._src.dims.sizes import max_dim


def dim_as_value(dim: DimExpr) -> Any:
    if _core.trace_state_clean():
        raise NotImplementedError(
            f"the symbolic dimension '{dim}' is used as an array outside of a function that is traced: only there its "
            "value can be computed with."
        )
    # A size of the native core is not negative.
    plus, minus = max_dim(dim, 0), max_dim(-dim, 0)
    return _core.bind("dim_as_value", (), {"dim": plus, "minus": minus, "dtype": dtypes.default_int_dtype()})



def size_as(size: Any, dtype: Any) -> Any:
    """A size as a scalar of a dtype, to compute with: NumPy's where it is known."""
    if not isinstance(size, DimExpr):
        return dtype.type(size)
    return _core.bind("convert_element_type", (dim_as_value(size),), {"new_dtype": dtype, "weak_type": False})


set_as_value(dim_as_value)
# In promotion a dimension is a Python integer.
dtypes.register_like_python_scalar(DimExpr, int)
