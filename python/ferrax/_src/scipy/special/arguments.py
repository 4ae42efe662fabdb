"""What the functions of this package do with their arguments.

Arguments are promoted to one floating dtype and to one shape; bodies are functions of such arrays of 32 or
64 bits (and of complex ones, where they say so), and half precision is computed in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.composed.special.elementwise import of_one_shape
from ferrax._src.core import Array
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.transforms.jit import jit
from ferrax._src.tree.tree_util import tree_map


def is_complex(x: Array) -> bool:
    """Whether the dtype is complex."""
    return dtypes.issubdtype(x.dtype, np.complexfloating)


def real_arguments(name: str, *args: Any, error: type[Exception] = ValueError) -> list[Array]:
    """The arguments as floating arrays of one dtype. Errors: `error` for complex ones."""
    arrays = promote_args_inexact(name, *args)
    if is_complex(arrays[0]):
        raise error(f"{name} does not support complex-valued inputs, got {arrays[0].dtype}")
    return arrays


def apply(body: Any, arrays: list[Array], weak: bool = False, repeated: bool = True) -> Any:
    """`body(*arrays)` of promoted arrays, as one program: of one shape, or unless `repeated` as they are. With
    `weak` the result of weakly typed arrays is that, too."""
    return _applied(body, weak, repeated, *arrays)


@jit(static_argnums=(0, 1, 2), inline=True)
def _applied(body, weak, repeated, *arrays):
    dtype = arrays[0].dtype
    weak = weak and all(x.weak_type for x in arrays)
    wide = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
    together = of_one_shape(*arrays) if repeated else arrays
    results = body(*(_convert_element_type(x, wide, False) for x in together))

    def narrow(result):
        real = is_complex(arrays[0]) and not is_complex(result)
        return _convert_element_type(result, result.dtype if real else dtype, weak)

    return tree_map(narrow, results)


def standard_type(name: str, x: Any) -> Array:
    """`x` as an array. Errors: TypeError for other dtypes than float32 and float64."""
    array = jnp.asarray(x)
    if array.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"{name}: x.dtype={array.dtype} is not supported, give it float32 or float64"
        )
    return array
