"""Resizing, scaling and moving of images: products with matrices of weights, one for each axis.

The pixel `i` covers `[i, i + 1)` and stands for `i + 1/2`. The weights of an output pixel are a kernel at
the distances of the input pixels from the place that it comes from, divided by their sum; where several
input pixels fall on one output pixel, an antialiasing kernel is that much wider. Each matrix is
`(input size, output size)`; making it costs as much as it has elements.

Kernels: Keys, "Cubic convolution interpolation for digital image processing" (IEEE ASSP 29, 1981), with
a = -1/2, and with a = -3/4 as PyTorch and OpenCV have it; Lanczos's windowed sinc (Turkowski, "Filters
for common resampling tasks", 1990).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, Shape
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.logsumexp import as_inexact
from ferrax._src.numpy.util import (
    canonical_shape,
    ensure_array,
    normalize_axis,
    promote_args_inexact,
)
from ferrax._src.transforms.jit import jit


class ResizeMethod(enum.Enum):
    """How `resize` and `scale_and_translate` interpolate.

    `from_string` reads the names that these functions take for methods.

    >>> ferrax.image.ResizeMethod.from_string("bilinear")
    <ResizeMethod.LINEAR: 1>
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name. ValueError for names that are none."""
        if s not in _NAMES:
            raise ValueError(f'Unknown resize method "{s}": use one of {", ".join(_NAMES)}')
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}

Kernel = Callable[[Array], Array]


def _triangle(x: Array) -> Array:
    return jnp.maximum(0, 1 - x)


def _lanczos(radius: float) -> Kernel:
    """`sinc(x) sinc(x / radius)` up to the radius; 1 where x is so small that the quotient is inexact."""

    def kernel(x):
        angle = np.pi * x
        product = radius * jnp.sin(angle) * jnp.sin(angle / radius)
        inside = jnp.where(x > 1e-3, product / jnp.where(x != 0, angle**2, 1), 1)
        return jnp.where(x > radius, 0.0, inside)

    return kernel


def _cubic(a: float) -> Kernel:
    """Keys's piecewise cubic with parameter a."""

    def kernel(x):
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return jnp.where(x >= 2, 0.0, jnp.where(x >= 1, far, near))

    return kernel


_KERNELS: dict[ResizeMethod, Kernel] = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
    ResizeMethod.CUBIC: _cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _cubic(-0.75),
}
# How far PyTorch's kernel reaches over the edges, whose pixels count for those beyond.
_REACH = 2


def _overlaps(size: int, starts: Array, ends: Array) -> Array:
    """How much of each of so many input pixels is in the intervals of the output pixels."""
    left = jnp.arange(size, dtype=starts.dtype)[:, None]
    return jnp.maximum(0.0, jnp.minimum(ends, left + 1) - jnp.maximum(starts, left))


def _with_edges(weights: Array, reach: int) -> Array:
    """Weights of pixels beyond the edges, so many on both sides, added to those at the edges."""
    size = weights.shape[0] - 2 * reach
    if size == 1:
        return jnp.sum(weights, axis=0, keepdims=True)
    first = jnp.sum(weights[: reach + 1], axis=0, keepdims=True)
    last = jnp.sum(weights[reach + size - 1 :], axis=0, keepdims=True)
    return jnp.concatenate([first, weights[reach + 1 : reach + size - 1], last])


def _weights(
    size: int, output_size: int, scale: Any, translation: Any, method: ResizeMethod, antialias: bool
) -> Array:
    """The matrix `(size, output_size)` of weights along one axis; its columns sum to 1 or are 0."""
    dtype = jnp.result_type(scale, translation)
    inverse = 1.0 / scale
    shift = translation * inverse
    outputs = jnp.arange(output_size, dtype=dtype)
    centres = ((outputs + 0.5) * inverse - shift - 0.5)[None, :]
    edges = method is ResizeMethod.CUBIC_PYTORCH
    if method is ResizeMethod.AREA:
        starts = (outputs * inverse - shift)[None, :]
        weights = _overlaps(size, starts, starts + inverse)
    else:
        reach = _REACH if edges else 0
        inputs = jnp.arange(-reach, size + reach, dtype=dtype)[:, None]
        width = jnp.maximum(inverse, 1.0) if antialias else 1.0
        weights = _KERNELS[method](jnp.abs(centres - inputs) / width)
    if edges:
        weights = _with_edges(weights, _REACH)
    total = jnp.sum(weights, axis=0, keepdims=True)
    enough = jnp.abs(total) > 1000.0 * float(np.finfo(np.float32).eps)
    weights = jnp.where(enough, weights / jnp.where(total != 0, total, 1), 0)
    if edges:
        return weights
    return jnp.where((centres >= -0.5) & (centres <= size - 0.5), weights, 0)


def _resampled(x, shape, axes, scale, translation, method, antialias, precision) -> Array:
    """`x` with one product along each of the axes."""
    if not axes:
        return x
    # Axes that shrink come first. The order of axes stays, so that no product needs a transposition.
    growth = [shape[axis] / max(x.shape[axis], 1) for axis in axes]
    for number in sorted(range(len(axes)), key=growth.__getitem__):
        axis = axes[number]
        weights = _weights(
            x.shape[axis], shape[axis], scale[number], translation[number], method, antialias
        ).astype(x.dtype)
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        if after:
            lines = x.reshape(math.prod(before), x.shape[axis], math.prod(after))
            x = jnp.matmul(weights.T, lines, precision=precision)
        else:
            x = jnp.matmul(x, weights, precision=precision)
        x = x.reshape(*before, shape[axis], *after)
    return x


def _method(name, method, antialias) -> ResizeMethod:
    """The method, with PyTorch's replaced by Keys's where that is what it does."""
    if isinstance(method, str):
        method = ResizeMethod.from_string(method)
    if not isinstance(method, ResizeMethod):
        raise TypeError(f"{name}: method must be a ResizeMethod or its name, got {method!r}")
    if method is ResizeMethod.CUBIC_PYTORCH and antialias:
        return ResizeMethod.CUBIC
    return method


def _checked_shape(name, shape, image) -> tuple[int, ...]:
    shape = canonical_shape(shape)
    if len(shape) != image.ndim:
        raise ValueError(
            f"{name}: shape must have one size for each axis of the image, got the shape {shape} for "
            f"an image of shape {tuple(image.shape)}"
        )
    return shape


def scale_and_translate(
    image: ArrayLike, shape: Shape, spatial_dims: Sequence[int], scale: ArrayLike,
    translation: ArrayLike, method: str | ResizeMethod, antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Array:  # fmt: skip
    """An image scaled and moved along some axes: what is at `x` goes to `x * scale + translation`.

    Args:
        image: array; integers become floats.
        shape: the output's sizes, of all axes; those beside `spatial_dims` are the image's.
        spatial_dims: the K axes that are scaled.
        scale, translation: arrays of shape `(K,)`. The pixel i is at `i + 1/2`.
        method: as for `resize`, without "nearest".
        antialias: whether kernels are wider where the image gets smaller.
        precision: of the products, as for `lax.dot_general`.

    Returns: a floating or complex array of the given shape. Pixels that come from outside of the image
    are 0.

    Errors: ValueError for a shape of another length, unknown methods and "nearest".

    `scale = (n - 1) / (m - 1)` and `translation = (1 - scale) / 2` for sizes m and n keep the corners
    where they are.

    Example:
        >>> image = jnp.array([1.0, 2.0, 3.0])
        >>> ferrax.image.scale_and_translate(image, (3,), (0,), jnp.ones(1), jnp.ones(1), "linear")
        Array([0., 1., 2.], dtype=float32)
    """
    image = ensure_array(image, "scale_and_translate")
    shape = _checked_shape("scale_and_translate", shape, image)
    method = _method("scale_and_translate", method, antialias)
    if method is ResizeMethod.NEAREST:
        raise ValueError(
            'scale_and_translate: the method "nearest" is not supported; use "linear", or resize'
        )
    scale, translation = promote_args_inexact("scale_and_translate", scale, translation)
    axes = [normalize_axis(axis, image.ndim) for axis in spatial_dims]
    if scale.shape != (len(axes),) or translation.shape != (len(axes),):
        raise ValueError(
            f"scale_and_translate: scale and translation must have the shape ({len(axes)},), one "
            f"number for each of spatial_dims, got {scale.shape} and {translation.shape}"
        )
    image = as_inexact("scale_and_translate", image)
    return _resampled(image, shape, axes, scale, translation, method, bool(antialias), precision)


def resize(
    image: ArrayLike, shape: Shape, method: str | ResizeMethod, antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Array:  # fmt: skip
    """An image of another size.

    Args:
        image: array; integers become floats, save for "nearest".
        shape: the output's sizes, of all axes. Those that do not change are not touched: axes of a
            batch or of channels are such.
        method: a `ResizeMethod` or a name: "nearest"; "linear" ("bilinear", "trilinear", "triangle");
            "cubic" ("bicubic", "tricubic"), Keys's; "cubic-pytorch" ("bicubic-pytorch"), which differs
            without antialiasing, has another parameter and repeats the edges; "lanczos3", "lanczos5";
            "area", the mean of the pixels under an output pixel.
        antialias: whether kernels are wider where the image gets smaller, so that each pixel counts.
        precision: of the products, as for `lax.dot_general`.

    Returns: an array of the given shape.

    Errors: ValueError for a shape of another length and unknown methods.

    Keys (1981) for cubic kernels, Turkowski (1990) for Lanczos's.

    Example:
        >>> ferrax.image.resize(jnp.array([[0.0, 2.0], [4.0, 6.0]]), (1, 2), "linear")
        Array([[2., 4.]], dtype=float32)
    """
    image = ensure_array(image, "resize")
    shape = _checked_shape("resize", shape, image)
    return _resize(image, shape, _method("resize", method, antialias), bool(antialias), precision)


@jit(static_argnums=(1, 2, 3, 4), inline=True)
def _resize(image, shape, method, antialias, precision):
    axes = [axis for axis in range(image.ndim) if image.shape[axis] != shape[axis]]
    if method is ResizeMethod.NEAREST:
        return _nearest(image, shape, axes)
    image = as_inexact("resize", image)
    scale = [shape[axis] / image.shape[axis] if shape[axis] else 1.0 for axis in axes]
    zeros = [0.0] * len(axes)
    return _resampled(image, shape, axes, scale, zeros, method, antialias, precision)


def _nearest(image, shape, axes):
    for axis in axes:
        size, wanted = image.shape[axis], shape[axis]
        centres = (jnp.arange(wanted, dtype=np.float32) + 0.5) * size / wanted
        image = jnp.take(image, jnp.floor(centres).astype(np.int32), axis=axis, mode="clip")
    return image
