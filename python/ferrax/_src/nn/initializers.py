"""Initial values of the weights of neural networks, `ferrax.nn.initializers`.

An initializer is a function `(key, shape, dtype=None) -> array`. Numbers are those that JAX gives
for the same key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import Array
from ferrax._src.core.typing import DTypeLike, Shape
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.numpy import api as jnp
from ferrax._src.random import matrices, samplers as random
from ferrax._src.random.prng import canonicalize_shape, split


@runtime_checkable
class Initializer(Protocol):
    """What the functions of this module return: `init(key, shape, dtype=None)`.

    >>> isinstance(ferrax.nn.initializers.zeros, ferrax.nn.initializers.Initializer)
    True
    """

    def __call__(
        self, key: Array, shape: Shape, dtype: DTypeLike | None = None, out_sharding: Any = None
    ) -> Array:
        raise NotImplementedError("Initializer is a protocol: call one of its implementations.")


def _dtype(dtype):
    if dtype is None:
        return dtypes.default_float_dtype()
    return dtypes.check_and_canonicalize_user_dtype(dtype, "nn.initializers")


def zeros(
    key: Array, shape: Shape, dtype: DTypeLike | None = None, out_sharding: Any = None
) -> Array:
    """An initializer that gives zeros. The key is not used.

    Args: key: any; shape: ints; dtype: default float32; out_sharding: where to put the array.

    >>> ferrax.nn.initializers.zeros(ferrax.random.key(0), (2,))
    Array([0., 0.], dtype=float32)
    """
    if out_sharding is not None:
        return with_out_sharding("zeros", out_sharding, zeros, key, shape, dtype)
    return jnp.zeros(shape, _dtype(dtype))


def ones(
    key: Array, shape: Shape, dtype: DTypeLike | None = None, out_sharding: Any = None
) -> Array:
    """An initializer that gives ones. The key is not used.

    Args: key: any; shape: ints; dtype: default float32; out_sharding: where to put the array.

    >>> ferrax.nn.initializers.ones(ferrax.random.key(0), (2,))
    Array([1., 1.], dtype=float32)
    """
    if out_sharding is not None:
        return with_out_sharding("ones", out_sharding, ones, key, shape, dtype)
    return jnp.ones(shape, _dtype(dtype))


def constant(value: Any, dtype: DTypeLike | None = None) -> Initializer:
    """An initializer that gives `value`, a scalar or an array that broadcasts to the shape.

    Example:
        >>> ferrax.nn.initializers.constant(-7)(ferrax.random.key(42), (2,), jnp.float32)
        Array([-7., -7.], dtype=float32)
    """
    default = dtype

    @api_boundary
    def init(key, shape, dtype=default, out_sharding=None):
        if out_sharding is not None:
            return with_out_sharding("constant", out_sharding, init, key, shape, dtype)
        return jnp.full(shape, value, dtype=_dtype(dtype))

    return init


def uniform(scale: Any = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """An initializer that gives uniform numbers in [0, scale).

    Args: scale: a number; dtype: default dtype of the result.

    >>> init = ferrax.nn.initializers.uniform(0.1)
    >>> values = init(ferrax.random.key(0), (100,))
    >>> values.min() >= 0, values.max() < 0.1
    (Array(True, dtype=bool), Array(True, dtype=bool))
    """
    default = dtype

    @api_boundary
    def init(key, shape, dtype=default, out_sharding=None):
        dtype = _dtype(dtype)
        samples = random.uniform(key, shape, dtype, out_sharding=out_sharding)
        return samples * jnp.array(scale, dtype)

    return init


def normal(stddev: float = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """An initializer that gives normal numbers of the given standard deviation.

    Args: stddev: the standard deviation; dtype: default dtype of the result.

    >>> ferrax.nn.initializers.normal(0.1)(ferrax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    default = dtype

    @api_boundary
    def init(key, shape, dtype=default, out_sharding=None):
        dtype = _dtype(dtype)
        samples = random.normal(key, shape, dtype, out_sharding=out_sharding)
        return samples * jnp.array(stddev, dtype)

    return init


def truncated_normal(
    stddev: float = 1e-2,
    dtype: DTypeLike | None = None,
    lower: Any = -2.0,
    upper: Any = 2.0,
) -> Initializer:
    """An initializer that gives normal numbers, cut off at `lower` and `upper` times `stddev`.

    `stddev` is the standard deviation before the cut; that of the result is smaller.

    Args: stddev, lower, upper: numbers; dtype: default dtype of the result.

    >>> values = ferrax.nn.initializers.truncated_normal(1.0)(ferrax.random.key(0), (100,))
    >>> jnp.abs(values).max() <= 2
    Array(True, dtype=bool)
    """
    default = dtype

    @api_boundary
    def init(key, shape, dtype=default, out_sharding=None):
        dtype = _dtype(dtype)
        standard = random.truncated_normal(
            key, lower, upper, shape, dtype, out_sharding=out_sharding
        )
        return jnp.array(stddev, dtype) * standard

    return init


def _compute_fans(shape, in_axis=-2, out_axis=-1, batch_axis=()):
    """How many inputs and outputs a unit of a layer with weights of this shape has."""
    if isinstance(in_axis, int) and in_axis == -2 and len(shape) <= 1:
        raise ValueError(
            f"variance_scaling: weights of {len(shape)} axes have no axis of inputs beside that of "
            "outputs; give a shape of two axes or more, or in_axis."
        )

    def size(axis):
        return shape[axis] if isinstance(axis, int) else math.prod(shape[i] for i in axis)

    in_size, out_size, batch_size = size(in_axis), size(out_axis), size(batch_axis)
    receptive_field = math.prod(shape) / in_size / out_size / batch_size
    return in_size * receptive_field, out_size * receptive_field


def _phases(key, shape, real_dtype, dtype):
    angle = 2 * np.pi * random.uniform(key, shape, real_dtype).astype(dtype)
    return jnp.exp(1j * angle)


def _complex_parts(key, dtype):
    real_dtype = dtypes.finfo(dtype).dtype
    return (*split(key), real_dtype, dtypes.to_complex_dtype(real_dtype))


def _complex_uniform(key, shape, dtype):
    """Numbers uniform in a disk, of variance one."""
    radius_key, phase_key, real_dtype, dtype = _complex_parts(key, dtype)
    radius = jnp.sqrt(2 * random.uniform(radius_key, shape, real_dtype)).astype(dtype)
    return radius * _phases(phase_key, shape, real_dtype, dtype)


def _complex_truncated_normal(key, upper, shape, dtype):
    """Complex normal numbers, conditioned to lie in a disk of radius `upper`."""
    radius_key, phase_key, real_dtype, dtype = _complex_parts(key, dtype)
    u = random.uniform(radius_key, shape, real_dtype).astype(dtype)
    level = (1 - jnp.exp(jnp.array(-(upper**2), dtype))) * u
    return jnp.sqrt(-jnp.log(1 - level)) * _phases(phase_key, shape, real_dtype, dtype)


def variance_scaling(
    scale: Any,
    mode: Any,
    distribution: str,
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> Initializer:
    """An initializer whose numbers have variance `scale / n`, with n a layer's inputs or outputs.

    Args:
        scale: a positive number.
        mode: what n is: 'fan_in': inputs, 'fan_out': outputs, 'fan_avg', 'fan_geo_avg': their
            arithmetic or geometric mean.
        distribution: 'normal', 'truncated_normal' (cut off at two standard deviations) or
            'uniform' (around zero).
        in_axis, out_axis: axis or axes of the weights that run over inputs and outputs; the other
            axes are spatial.
        batch_axis: axis or axes that run over separate layers.
        dtype: default dtype of the result.
    Returns:
        An initializer. It raises ValueError for an unknown mode or distribution, and for shapes of
        fewer than two axes unless `in_axis` is given.

    >>> init = ferrax.nn.initializers.variance_scaling(2.0, "fan_in", "uniform")
    >>> init(ferrax.random.key(0), (6, 2)).shape
    (6, 2)
    """
    default = dtype

    @api_boundary
    def init(key, shape, dtype=default, out_sharding=None):
        shape = canonicalize_shape(shape, "nn.initializers")
        dtype = _dtype(dtype)
        fan_in, fan_out = _compute_fans(shape, in_axis, out_axis, batch_axis)
        sizes = {
            "fan_in": fan_in,
            "fan_out": fan_out,
            "fan_avg": (fan_in + fan_out) / 2,
            "fan_geo_avg": (fan_in * fan_out) ** 0.5,
        }
        if mode not in sizes:
            raise ValueError(
                "variance_scaling: mode has to be 'fan_in', 'fan_out', 'fan_avg' or "
                f"'fan_geo_avg', got {mode!r}"
            )
        variance = jnp.array(scale / sizes[mode], dtype=dtype)
        is_real = dtypes.issubdtype(dtype, np.floating)

        if distribution == "normal":
            samples = random.normal(key, shape, dtype, out_sharding=out_sharding)
            return samples * jnp.sqrt(variance)
        if distribution == "uniform":
            if is_real:
                samples = random.uniform(key, shape, dtype, -1, out_sharding=out_sharding)
                return samples * jnp.sqrt(3 * variance)
            if out_sharding is not None:
                return with_out_sharding(
                    "variance_scaling of a complex dtype", out_sharding, init, key, shape, dtype,
                )  # fmt: skip
            return _complex_uniform(key, shape, dtype) * jnp.sqrt(variance)
        if distribution == "truncated_normal":
            if is_real:
                # The standard deviation of a standard normal number that is cut off at two.
                stddev = jnp.sqrt(variance) / jnp.array(0.87962566103423978, dtype)
                samples = random.truncated_normal(
                    key, -2, 2, shape, dtype, out_sharding=out_sharding
                )
                return samples * stddev
            if out_sharding is not None:
                return with_out_sharding(
                    "variance_scaling of a complex dtype", out_sharding, init, key, shape, dtype,
                )  # fmt: skip
            # The same for a complex one, cut off at modulus two.
            stddev = jnp.sqrt(variance) / jnp.array(0.95311164380491208, dtype)
            return _complex_truncated_normal(key, 2, shape, dtype) * stddev
        raise ValueError(
            f"variance_scaling: unknown distribution {distribution!r}; there are 'normal', "
            "'truncated_normal' and 'uniform'"
        )

    return init


class _MakeScaled(Protocol):
    def __call__(
        self,
        in_axis: int | Sequence[int] = -2,
        out_axis: int | Sequence[int] = -1,
        batch_axis: int | Sequence[int] = (),
        dtype: DTypeLike | None = None,
    ) -> Initializer: ...


def _scaled(name, scale, mode, distribution, summary) -> _MakeScaled:
    def make(
        in_axis: int | Sequence[int] = -2,
        out_axis: int | Sequence[int] = -1,
        batch_axis: int | Sequence[int] = (),
        dtype: DTypeLike | None = None,
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""{summary}

    It is `variance_scaling({scale}, '{mode}', '{distribution}')`.

    Args: in_axis, out_axis, batch_axis, dtype: as for `variance_scaling`.

    Example:
        >>> init = ferrax.nn.initializers.{name}()
        >>> weights = init(ferrax.random.key(42), (2, 3), jnp.float32)
    """
    return make


glorot_uniform = _scaled(
    "glorot_uniform", 1.0, "fan_avg", "uniform",
    "An initializer of uniform numbers by Glorot and Bengio (2010), also known as Xavier's.",
)  # fmt: skip
glorot_normal = _scaled(
    "glorot_normal", 1.0, "fan_avg", "truncated_normal",
    "An initializer of normal numbers by Glorot and Bengio (2010), also known as Xavier's.",
)  # fmt: skip
lecun_uniform = _scaled(
    "lecun_uniform", 1.0, "fan_in", "uniform",
    "An initializer of uniform numbers by LeCun et al. (1998).",
)  # fmt: skip
lecun_normal = _scaled(
    "lecun_normal", 1.0, "fan_in", "truncated_normal",
    "An initializer of normal numbers by LeCun et al. (1998).",
)  # fmt: skip
he_uniform = _scaled(
    "he_uniform", 2.0, "fan_in", "uniform",
    "An initializer of uniform numbers by He et al. (2015), also known as Kaiming's.",
)  # fmt: skip
he_normal = _scaled(
    "he_normal", 2.0, "fan_in", "truncated_normal",
    "An initializer of normal numbers by He et al. (2015), also known as Kaiming's.",
)  # fmt: skip
xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


def orthogonal(
    scale: Any = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> Initializer:
    """An initializer that gives uniformly distributed orthogonal matrices, times `scale`.

    Args:
        scale: a factor.
        column_axis: the axis that runs over columns; the others together run over rows. If there
            are fewer rows than columns, the rows are orthonormal, else the columns.
        dtype: default dtype of the result.
    Returns:
        An initializer. It raises ValueError for shapes of fewer than two axes, and
        NotImplementedError for 16-bit floats.

    The matrix is `Q` of the QR factors of normal numbers, with the signs by which `R` has a positive
    diagonal (Mezzadri, How to generate random matrices from the classical compact groups, 2007).

    >>> ferrax.nn.initializers.orthogonal()(ferrax.random.key(0), (0, 3)).shape
    (0, 3)
    """
    default = dtype

    @api_boundary
    def init(key, shape, dtype=default, out_sharding=None):
        if out_sharding is not None:
            return with_out_sharding("orthogonal", out_sharding, init, key, shape, dtype)
        dtype = _dtype(dtype)
        shape = canonicalize_shape(shape, "nn.initializers.orthogonal")
        if len(shape) < 2:
            raise ValueError(f"orthogonal: a matrix needs two axes or more, got shape {shape}")
        if 0 in shape:
            return jnp.zeros(shape, dtype=dtype)
        rest = tuple(np.delete(shape, column_axis))
        columns = shape[column_axis]
        matrix = matrices.orthogonal(key, math.prod(rest), dtype=dtype, m=columns)
        matrix = matrix.reshape(*rest, columns)
        return jnp.array(scale, dtype) * jnp.moveaxis(matrix, -1, column_axis)

    return init


def delta_orthogonal(
    scale: Any = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> Initializer:
    """An initializer of convolution kernels: orthogonal at the centre, zero elsewhere.

    The last two axes run over inputs and outputs, the one to three before them over space (Xiao et
    al., 2018).

    Args: scale, column_axis, dtype: as in `orthogonal`.
    Returns: An initializer. It raises ValueError for shapes of fewer than 3 or more than 5 axes, or
    with more inputs than outputs, and NotImplementedError for 16-bit floats.

    >>> ferrax.nn.initializers.delta_orthogonal()(ferrax.random.key(0), (3, 0, 2)).shape
    (3, 0, 2)
    """
    default = dtype

    @api_boundary
    def init(key, shape, dtype=default, out_sharding=None):
        if out_sharding is not None:
            return with_out_sharding("delta_orthogonal", out_sharding, init, key, shape, dtype)
        dtype = _dtype(dtype)
        shape = canonicalize_shape(shape, "nn.initializers.delta_orthogonal")
        if len(shape) not in (3, 4, 5):
            raise ValueError(f"delta_orthogonal: needs 3 to 5 axes, got shape {shape}")
        if shape[-1] < shape[-2]:
            raise ValueError(
                f"delta_orthogonal: inputs ({shape[-2]}) cannot outnumber outputs ({shape[-1]})"
            )
        matrix = orthogonal(scale, column_axis, dtype)(key, shape[-2:])
        centre = tuple((size - 1) // 2 for size in shape[:-2])
        return jnp.zeros(shape, dtype=dtype).at[centre].set(matrix)

    return init
