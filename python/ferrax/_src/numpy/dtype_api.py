"""Dtype queries of the public namespace: `can_cast`, `issubdtype`, `result_type`, `isdtype`."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.numpy.util import is_array_like

Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


def result_type(*args: Any) -> Any:
    """The dtype that the arguments (arrays, scalars, dtypes) promote to.

    Args: args: arrays, Python scalars, dtypes and scalar types. Raises: ValueError for none,
    TypeError for what has no dtype.

    >>> jnp.result_type(jnp.int32, jnp.float16), jnp.result_type(jnp.ones(2, jnp.int8), 1)
    (dtype('float16'), dtype('int8'))
    """
    return dtypes.result_type(*args)


def promote_types(a: ArrayLike, b: ArrayLike) -> Any:
    """The dtype that two dtypes promote to.

    Args: a, b: dtypes or scalar types. Raises: TypeError for what is no dtype.

    >>> jnp.promote_types(jnp.int32, jnp.bfloat16)
    dtype(bfloat16)
    """
    return dtypes.promote_types(a, b)


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """True if the first dtype or dtype class lies below the second in the hierarchy.

    Args: arg1: a dtype or scalar type; arg2: likewise, or a class such as `jnp.floating`.

    >>> jnp.issubdtype(jnp.bfloat16, jnp.floating), jnp.issubdtype(int, jnp.floating)
    (True, False)
    """
    return dtypes.issubdtype(arg1, arg2)


def isdtype(dtype: DTypeLike, kind: Any) -> bool:
    """True if a dtype is of a kind: a dtype, a kind's name ("integral", ...), or a tuple.

    Args: dtype: a dtype or scalar type; kind: "bool", "signed integer", "unsigned integer",
    "integral", "real floating", "complex floating", "numeric", a dtype, or a tuple of these.
    Raises: ValueError for another name, TypeError for another kind.

    >>> jnp.isdtype(jnp.int8, "integral"), jnp.isdtype(jnp.int8, (jnp.float32, "bool"))
    (True, False)
    """
    asked = np.dtype(dtype)
    for one in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(one, str) and one in dtypes.kinds:
            if asked in dtypes.kinds[one]:
                return True
            continue
        try:
            other = np.dtype(one)
        except TypeError as error:
            if isinstance(one, str):
                raise ValueError(
                    f"Unrecognized kind {one!r}: expected a dtype or one of {list(dtypes.kinds)}."
                ) from None
            raise TypeError(f"kind must be a dtype, a string or a tuple, got {one!r}.") from error
        if asked == other:
            return True
    return False


def can_cast(from_: Any, to: Any, casting: Casting = "safe") -> bool:
    """True if a cast between dtypes is allowed under a casting rule.

    Args: from_: a dtype; to: a dtype; casting: "no", "equiv", "safe", "same_kind" or "unsafe".

    >>> jnp.can_cast("int32", "float64"), jnp.can_cast("int64", "int32")
    (True, False)
    """
    if is_array_like(from_) and not hasattr(from_, "dtype"):
        raise TypeError("can_cast() does not support Python ints, floats, and complex")
    source = from_.dtype if hasattr(from_, "dtype") else from_
    return np.can_cast(np.dtype(source), np.dtype(getattr(to, "dtype", to)), casting=casting)
