"""Arrays as text by NumPy's printer, and from files by NumPy's reader."""

from __future__ import annotations

from typing import Any

import numpy as _np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.numpy.array_creation import asarray


def load(file: Any, *args: Any, **kwargs: Any) -> Array:
    """Loads an array from a .npy file, or a lazy mapping from a .npz file, as `numpy.load`.

    Files do not name dtypes that NumPy lacks: elements of two bytes are taken for bfloat16, and an array of
    other such elements is NumPy's, to be given its dtype by `view`.

    Args: args, kwargs: those of `numpy.load`, with its errors.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.arange(3))
    >>> _ = file.seek(0)
    >>> jnp.load(file)
    Array([0, 1, 2], dtype=int32)
    """
    out = _np.load(file, *args, **kwargs)
    if not isinstance(out, _np.ndarray):
        return out
    loaded: Any = out
    if loaded.dtype == _np.dtype("V2"):
        return asarray(loaded.view(dtypes.bfloat16))
    return loaded if type(loaded.dtype) is _np.dtypes.VoidDType else asarray(loaded)


def array_repr(
    arr: ArrayLike, max_line_width: int | None = None, precision: Any = None,
    suppress_small: Any = None,
) -> str:
    """The text of `repr`, with NumPy's options.

    Args: arr: array; max_line_width, precision, suppress_small: those of `numpy.array_repr`.

    >>> jnp.array_repr(jnp.array([1.25]), precision=1)
    'array([1.2], dtype=float32)'
    """
    return _np.array_repr(_np.asarray(arr), max_line_width, precision, suppress_small)


def array_str(
    a: ArrayLike, max_line_width: int | None = None, precision: Any = None,
    suppress_small: Any = None,
) -> str:
    """The text of `str`, with NumPy's options.

    Args: a: array; max_line_width, precision, suppress_small: those of `numpy.array_str`.

    >>> jnp.array_str(jnp.array([1.25]), precision=1)
    '[1.2]'
    """
    return _np.array_str(_np.asarray(a), max_line_width, precision, suppress_small)
