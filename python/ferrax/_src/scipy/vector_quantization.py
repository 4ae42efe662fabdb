"""Vector quantization."""

from __future__ import annotations

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.linalg import norm
from ferrax._src.numpy.util import ensure_arrays, promote_dtypes_inexact


def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """The nearest of some codes for each observation.

    Args:
        obs: array `(M, N)`, one observation a row; `(M,)` for numbers.
        code_book: array `(K, N)`, or `(K,)`.
        check_finite: must be True or False and changes nothing: values of traced arrays raise no errors.

    Returns: integers `(M,)`, the number of the code at the least Euclidean distance (the first of
    several), and these distances.

    Errors: ValueError for different numbers of axes, and other than one or two.

    Example:
        >>> ferrax.scipy.cluster.vq.vq(jnp.array([0.9, 4.0]), jnp.array([1.0, 2.0, 5.0]))
        (Array([0, 2], dtype=int32), Array([0.1, 1. ], dtype=float32))
    """
    observations, codes = promote_dtypes_inexact(*ensure_arrays("vq", obs, code_book))
    if observations.ndim != codes.ndim or observations.ndim not in (1, 2):
        raise ValueError(
            "vq: observations and codes must both be matrices or both be vectors, got the shapes "
            f"{tuple(observations.shape)} and {tuple(codes.shape)}"
        )
    if observations.ndim == 1:
        observations, codes = observations[:, None], codes[:, None]
    distances = norm(observations[:, None] - codes[None], axis=-1)
    nearest = jnp.argmin(distances, axis=-1)
    return nearest, jnp.take_along_axis(distances, nearest[:, None], axis=-1)[:, 0]
