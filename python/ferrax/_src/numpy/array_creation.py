"""Array creation: conversion of nested Python data, constant arrays, ranges and grids.

Invariants: lists of numbers become strong arrays by one NumPy conversion; a nested sequence that
holds arrays or tracers is stacked by `concatenate`. Python scalars alone stay weakly typed.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np

from ferrax._core import bind, ufuncs
from ferrax._src.base import config, dtypes
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.base.jax_version import follows
from ferrax._src.base.traceback_util import bounded, leave
from ferrax._src.core import Array, Tracer, as_array, concrete_or_error, transfers
from ferrax._src.core.dlpack import from_dlpack as import_dlpack
from ferrax._src.core.explicit_types import laid_out
from ferrax._src.core.placement import check_moves, device_put
from ferrax._src.core.placements import UNPLACED, placement
from ferrax._src.core.typing import ArrayLike, DTypeLike, Shape
from ferrax._src.lax import api as lax
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.numpy.util import (
    PYTHON_SCALARS,
    broadcast_to,
    canonical_shape,
    check_array_like,
    convert,
    ensure_array,
    ensure_arrays,
    normalize_axis,
    user_dtype,
)
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.jit import jit


def _place(x, device, out_sharding=None):
    """Moves a finished array to a device or sharding. Errors: of `device_put`, `with_out_sharding`."""
    if device is not None:
        return x if isinstance(x, Tracer) else device_put(x, device)
    return x if out_sharding is None else with_out_sharding("array creation", out_sharding, lambda: x)


# ---------------------------------------------------------------------------- array, asarray


def _has_arrays(x) -> bool:
    if isinstance(x, (list, tuple)):
        return any(_has_arrays(item) for item in x)
    return isinstance(x, Array) or hasattr(x, "__jax_array__")


def _reject_none(x) -> None:
    if x is None:
        raise ValueError("jnp.array: got None among the elements; NaN may stand for what is missing")
    if isinstance(x, (list, tuple)):
        for item in x:
            _reject_none(item)


def _leaves(x):
    if isinstance(x, (list, tuple)):
        for item in x:
            yield from _leaves(item)
    else:
        yield x


def _stack_nested(x, dtype):
    if not isinstance(x, (list, tuple)):
        return convert(as_array(x), dtype)
    if not x:
        return as_array(np.zeros((0,), dtype))
    if not _has_arrays(x):
        return as_array(np.asarray(x, dtype))
    items = [_stack_nested(item, dtype) for item in x]
    shapes = {tuple(item.shape) for item in items}
    if len(shapes) != 1:
        raise TypeError(f"jnp.array got nested sequences of different shapes: {sorted(shapes)}")
    return lax.concatenate([lax.expand_dims(item, (0,)) for item in items], dimension=0)


def _plain_dtype(x):
    """The dtype for rows of nothing but floats or nothing but ints, else None."""
    kinds = set(map(type, x))
    if kinds == {list}:
        kinds = set().union(*[map(type, row) for row in x])
    if kinds == {float}:
        return dtypes.default_float_dtype()
    return dtypes.default_int_dtype() if kinds == {int} else None


def _from_sequence(x, dtype):
    plain = _plain_dtype(x)
    if plain is not None:
        return as_array(np.asarray(x, plain if dtype is None else dtype))
    _reject_none(x)
    leaves = list(_leaves(x))
    if dtype is None:
        # Lists decide the category by their leaves, and the result is strong.
        dtype = (
            dtypes.result_type(*[_dtype_source(leaf) for leaf in leaves])
            if leaves
            else dtypes.default_float_dtype()
        )
    if _has_arrays(x):
        return _stack_nested(x, dtype)
    return as_array(np.asarray(x, dtype))


def _dtype_source(leaf):
    if isinstance(leaf, (Array, np.ndarray, np.generic, *PYTHON_SCALARS)):
        return leaf
    if hasattr(leaf, "__jax_array__"):
        return leaf.__jax_array__()
    converted = np.asarray(leaf)
    _check_numeric(leaf, converted.dtype)
    return converted


def _check_numeric(x, dtype) -> None:
    if dtype.kind not in "biufcV" or (dtype.kind == "V" and dtype.names is not None):
        raise TypeError(
            f"{x!r} has dtype {dtype}, which is not a valid JAX array type: arrays hold booleans,"
            " numbers or PRNG keys."
        )


@bounded
def array(  # noqa: A002
    object: Any, dtype: DTypeLike | None = None, *args: Any, copy: bool = True, order: str = "K",
    ndmin: int = 0, device: Any = None, out_sharding: Any = None,
) -> Array:
    """Makes an array of numbers, nested sequences, NumPy arrays, buffers or arrays.

    Args: object: the data; dtype: its dtype, inferred if None; copy: never share memory with
    the input; ndmin: least rank, reached by leading 1s; device: where to put it.
    Raises: TypeError for data that is not numeric, ValueError for ragged sequences, OverflowError
    for Python integers out of range.

    args: copy, order and ndmin by position: deprecated, a TypeError in JAX 0.12; order: "K" or None;
    out_sharding: as `device`.

    >>> jnp.array([1, 2.5])
    Array([1. , 2.5], dtype=float32)
    >>> jnp.array(1)
    Array(1, dtype=int32, weak_type=True)
    """
    try:
        if args:
            if len(args) > 3 or follows(0, 12):
                raise TypeError(f"jnp.array: got {2 + len(args)} positional arguments; name copy, order and ndmin")
            text = "jnp.array: copy, order and ndmin by position are deprecated; name them"
            warnings.warn(text, DeprecationWarning, stacklevel=user_stacklevel())
            settings: tuple[Any, ...] = (copy, order, ndmin)
            copy, order, ndmin = (*args, *settings[len(args):])
        if order is not None and order != "K":
            raise NotImplementedError("Only implemented for order='K'")
        dtype = user_dtype(dtype, "array")
        out = _to_array(object, dtype, copy)
        if ndmin > out.ndim:
            out = lax.expand_dims(out, tuple(range(ndmin - out.ndim)))
        check_moves(object, device)
        if device is not None and isinstance(out, Tracer):
            return laid_out(out, device)
        return _place(out, device, out_sharding)
    except Exception:
        leave()
        raise


def _to_array(x, dtype, copy):
    if hasattr(x, "__jax_array__") and not isinstance(x, Array):
        x = x.__jax_array__()
    if isinstance(x, Array):
        same = dtype is None or x.dtype == dtype
        out = x if dtype is None else convert(x, dtype)
        return _copy(out) if copy and same and out is x else out
    if isinstance(x, PYTHON_SCALARS):
        if dtype is None:
            return as_array(x)
        return convert(as_array(x) if isinstance(x, complex) else x, dtype) if not _lossy(
            x, dtype) else as_array(np.asarray(x).astype(dtype))
    if isinstance(x, (np.ndarray, np.generic)):
        if isinstance(x, np.ma.MaskedArray):
            if not copy:
                raise ValueError(
                    "asarray: masks of NumPy's masked arrays are not kept; give x.filled(value), or "
                    "array(x), which drops the mask as np.array does"
                )
            x = x.data
        _check_numeric(x, x.dtype)
        if dtype is None or x.dtype == dtype:
            return as_array(np.array(x) if copy and isinstance(x, np.ndarray) else x)
        return convert(as_array(x), dtype)
    if isinstance(x, (list, tuple)):
        return _from_sequence(x, dtype)
    _reject_none(x)
    if hasattr(x, "__array__") or hasattr(x, "__array_interface__"):
        return _to_array(np.asarray(x), dtype, copy)
    try:
        view = memoryview(x)
    except TypeError:
        view = None
    if view is not None and not isinstance(x, (bytes, bytearray, str)):
        return _to_array(np.asarray(view), dtype, copy)
    if hasattr(x, "__len__") and hasattr(x, "__getitem__") and not isinstance(
            x, (str, bytes, bytearray, dict)):
        return _from_sequence(list(x), dtype)
    if isinstance(x, str) and dtype is not None:
        return as_array(np.asarray(x).astype(dtype))
    converted = np.asarray(x)
    _check_numeric(x, converted.dtype)
    return _to_array(converted, dtype, copy)


def _lossy(x, dtype) -> bool:
    """True for a float cast to an integer or a complex cast to a real dtype."""
    if isinstance(x, complex):
        return not dtypes.issubdtype(dtype, np.complexfloating)
    return isinstance(x, float) and dtypes.issubdtype(dtype, np.integer)


def _copy(x):
    return bind("copy", (x,), {})


@bounded
def asarray(
    a: Any, dtype: DTypeLike | None = None, order: str | None = None, *,
    copy: bool | None = None, device: Any = None, out_sharding: Any = None,
) -> Array:
    """As `array`, but returns an array of the right dtype as it is unless `copy=True`.

    Args: a: the data, as for `array`, with its errors; dtype, order, copy, device, out_sharding:
    likewise.

    >>> jnp.asarray([1, 2], dtype=float)
    Array([1., 2.], dtype=float32)
    """
    try:
        return array(a, dtype=dtype, copy=bool(copy), order=order or "K", device=device,
                     out_sharding=out_sharding)
    except Exception:
        leave()
        raise


def copy(a: ArrayLike, order: str | None = None) -> Array:
    """A copy of an array.

    Args: a: array, scalar or nested sequence; order: "K" or None.

    >>> jnp.copy(jnp.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    if order not in (None, "K"):
        raise NotImplementedError("Only implemented for order='K'")
    check_array_like("copy", a)
    return array(a, copy=True)


def astype(x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = False, device: Any = None) -> Array:
    """Converts to a dtype: floats truncate and saturate to integers, complex drops its
    imaginary part, everything non-zero is True. None means the default float dtype.

    Args: x: array or scalar; dtype: the result's; copy: whether to copy what has that dtype;
    device: where to put the result.

    >>> jnp.astype(jnp.array([1.7, -300.0]), jnp.int8)
    Array([   1, -128], dtype=int8)
    """
    x = ensure_array(x, "astype")
    dtype = dtypes.default_float_dtype() if dtype is None else user_dtype(dtype, "astype")
    if dtype == np.bool_ and x.dtype != np.bool_:
        out = lax.ne(x, as_array(np.zeros((), x.dtype)))
    else:
        if dtypes.issubdtype(x.dtype, np.complexfloating) and not dtypes.issubdtype(
            dtype, np.complexfloating
        ):
            warnings.warn(
                f"astype drops the imaginary part of {x.dtype}, which will become an error: take "
                "jnp.real or jnp.imag first.",
                DeprecationWarning,
                stacklevel=user_stacklevel(),
            )
            x = lax.real(x)
        out = convert(x, dtype)
    return _place(_copy(out) if copy and out is x else out, device)


def frombuffer(buffer: Any, dtype: DTypeLike = float, count: Any = -1, offset: Any = 0) -> Array:
    """A 1-d array of the bytes of a buffer.

    Args: buffer: an object with the buffer protocol; dtype: of its elements; count: how many, -1
    for all; offset: the first byte. Raises: ValueError for counts and offsets that the buffer does
    not have.

    >>> jnp.frombuffer(b"abc", dtype="uint8", offset=1)
    Array([98, 99], dtype=uint8)
    """
    return asarray(np.frombuffer(buffer=buffer, dtype=dtype, count=count, offset=offset))


def fromstring(string: str, dtype: DTypeLike = float, count: Any = -1, *, sep: str) -> Array:
    """A 1-d array parsed from text with separator `sep`.

    Args: string: the text; dtype: of the result; count: how many numbers, -1 for all.

    >>> jnp.fromstring("1 2 3", sep=" ")
    Array([1., 2., 3.], dtype=float32)
    """
    return asarray(np.fromstring(string=string, dtype=dtype, count=count, sep=sep))


def fromfile(*args: Any, **kwargs: Any) -> Array:
    """Not implemented: reading a file is not pure. Use `jnp.asarray(np.fromfile(...))`.

    Args: args, kwargs: any. Raises: NotImplementedError always.

    >>> try:
    ...     jnp.fromfile("numbers.bin")
    ... except NotImplementedError as error:
    ...     print(type(error).__name__)
    NotImplementedError
    """
    raise NotImplementedError(
        "jnp.fromfile: a traced function would read the file once, not in each call; read it outside,"
        " with jnp.asarray(np.fromfile(...)), and pass the array."
    )


def fromiter(*args: Any, **kwargs: Any) -> Array:
    """Not implemented: an iterator is not pure. Use `jnp.asarray(np.fromiter(...))`.

    Args: args, kwargs: any. Raises: NotImplementedError always.

    >>> try:
    ...     jnp.fromiter(range(3), int)
    ... except NotImplementedError as error:
    ...     print(type(error).__name__)
    NotImplementedError
    """
    raise NotImplementedError(
        "jnp.fromiter: a traced function would use up the iterator once, not in each call; read it"
        " outside, with jnp.asarray(np.fromiter(...)), and pass the array."
    )


def fromfunction(
    function: Callable[..., Any], shape: Shape, *, dtype: DTypeLike = float, **kwargs: Any,
) -> Array:
    """Calls `function` on index vectors, mapped over every index of `shape`.

    Args: function: of as many 0-d arrays as `shape` has axes; dtype: of the indices; kwargs:
    further arguments of `function`.

    >>> jnp.fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int)
    Array([[ 0,  1,  2],
           [10, 11, 12]], dtype=int32)
    """
    shape = canonical_shape(shape)
    rank = len(shape)
    for axis in reversed(range(rank)):  # the innermost map gives the last axis
        function = vmap(function, in_axes=(None,) * axis + (0,) + (None,) * (rank - 1 - axis))
    return function(*(arange(size, dtype=dtype) for size in shape), **kwargs)


def from_dlpack(x: ArrayLike, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array of an object with `__dlpack__`.

    Args: x: the object, on the CPU; device: where to put the array; copy: True always copies, False
    never, None where needed. Raises: TypeError for an object without the protocol, ValueError where
    `copy=False` and a copy is needed.

    >>> jnp.from_dlpack(np.arange(3, dtype="int32"))
    Array([0, 1, 2], dtype=int32)
    """
    return import_dlpack(x, device=device, copy=copy)


# ---------------------------------------------------------------------------- filled arrays


@bounded
def zeros(
    shape: Shape, dtype: DTypeLike | None = None, *, device: Any = None, out_sharding: Any = None,
) -> Array:
    """An array of zeros; float32 by default. Raises TypeError for a shape that is not static.

    Args: shape: ints, or one int; dtype: the result's; device, out_sharding: where to put it.

    >>> jnp.zeros((2, 2), dtype=int)
    Array([[0, 0],
           [0, 0]], dtype=int32)
    """
    try:
        return _filled("zeros", 0, shape, dtype, device, out_sharding)
    except Exception:
        leave()
        raise


@bounded
def ones(
    shape: Shape, dtype: DTypeLike | None = None, *, device: Any = None, out_sharding: Any = None,
) -> Array:
    """An array of ones; float32 by default.

    Args: shape, dtype, device, out_sharding: as for `zeros`, with its errors.

    >>> jnp.ones(3)
    Array([1., 1., 1.], dtype=float32)
    """
    try:
        return _filled("ones", 1, shape, dtype, device, out_sharding)
    except Exception:
        leave()
        raise


def empty(
    shape: Shape, dtype: DTypeLike | None = None, *, device: Any = None, out_sharding: Any = None,
) -> Array:
    """An array of zeros: there is no uninitialised memory.

    Args: shape, dtype, device, out_sharding: as for `zeros`, with its errors.

    >>> jnp.empty(2)
    Array([0., 0.], dtype=float32)
    """
    return _filled("empty", 0, shape, dtype, device, out_sharding)


def _filled(name, value, shape, dtype, device, out_sharding):
    if dtype == dtypes.float0:
        return np.zeros(canonical_shape(shape), dtypes.float0)
    dtype = dtypes.default_float_dtype() if dtype is None else user_dtype(dtype, name)
    shape = canonical_shape(shape)
    scalar = _SCALARS.get((value, dtype)) if shape else None
    if scalar is None:
        scalar = lax.full((), value, dtype)
        if not shape:
            return _place(scalar, device, out_sharding)
        if not isinstance(scalar, Tracer) and placement(scalar) is UNPLACED:
            _SCALARS[value, dtype] = scalar
    result = lax.broadcast_in_dim(scalar, shape, ())
    transfers.filled(result)
    return _place(result, device, out_sharding)


# The 0-d zeros and ones by dtype that are nowhere; users never hold them, so nobody deletes them.
_SCALARS: dict = {}


def full(
    shape: Shape, fill_value: Any, dtype: DTypeLike | None = None, *, device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """An array of `fill_value`, broadcast to `shape`; a Python scalar gives a weak array.

    Args: shape: ints, or one int; fill_value: scalar or array; dtype: the result's, default that of
    the value; device, out_sharding: where to put it. Raises: TypeError for a shape that is not
    static, ValueError for a value that does not broadcast.

    >>> jnp.full((2, 2), jnp.array([1, 2]))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    check_array_like("full", fill_value)
    dtype = user_dtype(dtype, "full")
    shape = canonical_shape(shape)
    if _is_scalar(fill_value):
        return _place(lax.full(shape, fill_value, dtype), device, out_sharding)
    return _place(broadcast_to(asarray(fill_value, dtype=dtype), shape), device, out_sharding)


def _is_scalar(x) -> bool:
    return type(x) in PYTHON_SCALARS or np.ndim(x) == 0


def _like(name, a, fill, dtype, shape, device, out_sharding=None):
    if not (hasattr(a, "shape") and hasattr(a, "dtype")):
        check_array_like(name, a)
    dtype = user_dtype(dtype, name)
    if shape is not None:
        shape = canonical_shape(shape)
    if _is_scalar(fill):
        return _place(lax.full_like(a, fill, dtype, shape), device, out_sharding)
    shape = np.shape(a) if shape is None else shape
    target = dtypes.result_type(a) if dtype is None else dtype
    return _place(broadcast_to(asarray(fill, dtype=target), tuple(shape)), device, out_sharding)


def zeros_like(
    a: ArrayLike, dtype: DTypeLike | None = None, shape: Shape | None = None, *,
    device: Any = None, out_sharding: Any = None,
) -> Array:
    """Zeros with the shape and dtype of `a`, unless they are given.

    Args: a: array or scalar; dtype, shape: of the result; device, out_sharding: where to put it.

    >>> jnp.zeros_like(jnp.arange(3))
    Array([0, 0, 0], dtype=int32)
    """
    return _like("zeros_like", a, 0, dtype, shape, device, out_sharding)


def ones_like(
    a: ArrayLike, dtype: DTypeLike | None = None, shape: Shape | None = None, *,
    device: Any = None, out_sharding: Any = None,
) -> Array:
    """Ones with the shape and dtype of `a`, unless they are given.

    Args: a, dtype, shape, device, out_sharding: as for `zeros_like`.

    >>> jnp.ones_like(jnp.arange(3), dtype=float)
    Array([1., 1., 1.], dtype=float32)
    """
    return _like("ones_like", a, 1, dtype, shape, device, out_sharding)


def empty_like(
    prototype: ArrayLike, dtype: DTypeLike | None = None, shape: Shape | None = None, *,
    device: Any = None,
) -> Array:
    """Zeros with the shape and dtype of `prototype`, unless they are given.

    Args: prototype: array or scalar; dtype, shape, device: as for `zeros_like`.

    >>> jnp.empty_like(jnp.arange(3))
    Array([0, 0, 0], dtype=int32)
    """
    return _like("empty_like", prototype, 0, dtype, shape, device)


def full_like(
    a: ArrayLike, fill_value: Any, dtype: DTypeLike | None = None, shape: Shape | None = None, *,
    device: Any = None, out_sharding: Any = None,
) -> Array:
    """An array of `fill_value` with the shape and dtype of `a`, unless they are given.

    Args: a: array or scalar; fill_value: what broadcasts to the shape; dtype, shape, device,
    out_sharding: as for `zeros_like`.

    >>> jnp.full_like(jnp.arange(3), 7)
    Array([7, 7, 7], dtype=int32)
    """
    check_array_like("full_like", fill_value)
    return _like("full_like", a, fill_value, dtype, shape, device, out_sharding)


# ---------------------------------------------------------------------------- ranges


_INT32_MAX = 2**31 - 1


def arange(
    start: ArrayLike, stop: ArrayLike | None = None, step: ArrayLike | None = None,
    dtype: DTypeLike | None = None, *, device: Any = None, out_sharding: Any = None,
) -> Array:
    """Evenly spaced values in [start, stop), or [0, start) if `stop` is None.

    Args: start, stop, step: concrete real scalars; dtype: inferred from them if None.
    Raises: ConcretizationTypeError for tracers, ValueError for complex, ZeroDivisionError for a
    step of 0.

    device, out_sharding: where to put the result.

    >>> jnp.arange(1, 7, 2)
    Array([1, 3, 5], dtype=int32)
    """
    if type(start) is int and dtype is stop is step is None and start <= _INT32_MAX:
        return _place(lax.iota(dtypes.default_int_dtype(), max(0, start)), device, out_sharding)
    dtype = user_dtype(dtype, "arange")
    check_array_like("arange", start, *(x for x in (stop, step) if x is not None))
    given = [x for x in (start, stop, step) if x is not None]
    if dtype is None:
        result = dtypes.result_type(*given)
    else:
        result = dtype
    if any(dtypes.issubdtype(dtypes.dtype(x), np.complexfloating) for x in given):
        raise ValueError(
            "jnp.arange: start, stop and step have to be real, got dtypes"
            f" {[str(dtypes.dtype(x)) for x in given]}."
        )
    if any(np.ndim(x) for x in given):
        raise ValueError("jnp.arange: start, stop and step must be scalars")
    start = _concrete_scalar(start, "stop" if stop is None else "start")
    stop = None if stop is None else _concrete_scalar(stop, "stop")
    step = None if step is None else _concrete_scalar(step, "step")
    if stop is None:
        start, stop = 0, start
        first = True
    else:
        first = False
    if first and step is None:
        return _place(lax.iota(result, _length(0, stop, 1)), device, out_sharding)
    length = _length(start, stop, 1 if step is None else step)
    out = lax.iota(result, length)
    if dtypes.issubdtype(result, np.bool_) or length == 0:
        return _place(out, device, out_sharding)
    if step is not None:
        out = lax.mul(as_array(np.asarray(step).astype(result)), out)
    if step is not None or start != 0:
        out = lax.add(as_array(np.asarray(start).astype(result)), out)
    return _place(out, device, out_sharding)


def _concrete_scalar(x, name):
    value = concrete_or_error(None, x, f"The shape of jnp.arange's result depends on its argument '{name}'.")
    return value.item() if isinstance(value, (Array, np.ndarray, np.generic)) else value


def _length(start, stop, step) -> int:
    if all(isinstance(x, int) for x in (start, stop, step)):
        return max(0, -((start - stop) // step))
    return max(0, math.ceil((stop - start) / step))


@overload
def linspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True,
    retstep: Literal[False] = False, dtype: DTypeLike | None = None, axis: int = 0, *,
    device: Any = None,
) -> Array: ...
@overload
def linspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, *,
    retstep: Literal[True], dtype: DTypeLike | None = None, axis: int = 0, device: Any = None,
) -> tuple[Array, Array]: ...
@overload
def linspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: DTypeLike | None = None, axis: int = 0, *, device: Any = None,
) -> Any: ...
def linspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: DTypeLike | None = None, axis: int = 0, *, device: Any = None,
) -> Array | tuple[Array, Array]:
    """`num` evenly spaced values from `start` to `stop`, which may be arrays.

    Args: endpoint: include `stop`; retstep: also return the step; axis: where to put the new
    axis. Integer dtypes round down. Raises ValueError for a negative `num`.

    num: a static int; dtype: the result's, default a float dtype; device: where to put it.

    >>> jnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    num = operator.index(concrete_or_error(operator.index, num, "'num' argument of jnp.linspace"))
    axis = concrete_or_error(operator.index, axis, "'axis' argument of jnp.linspace")
    check_array_like("linspace", start, stop)
    dtype = user_dtype(dtype, "linspace")
    out = _linspace(start, stop, num, bool(endpoint), bool(retstep), dtype, axis)
    return (_place(out[0], device), out[1]) if retstep else _place(out, device)


_SPACE_STATIC = ("num", "endpoint", "retstep", "dtype", "axis")


@jit(static_argnames=_SPACE_STATIC)
def _linspace(start, stop, num, endpoint, retstep, dtype, axis):
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    if dtype is None:
        dtype = dtypes.to_inexact_dtype(dtypes.result_type(start, stop))
    given = dtypes.result_type(start, stop)
    # Which dtype is computed in is no promotion of the user's.
    with config.numpy_dtype_promotion("standard"):
        compute = dtypes.to_inexact_dtype(dtypes.promote_types(given, dtype))
        # Numbers of 16 bits are the ones next to the true ones.
        compute = dtypes.promote_types(compute, np.float32)
    start, stop = (convert(ensure_array(x, "linspace"), compute) for x in (start, stop))
    shape = lax.broadcast_shapes(start.shape, stop.shape)
    start, stop = broadcast_to(start, shape), broadcast_to(stop, shape)
    intervals = num - 1 if endpoint else num
    delta = _nan_like(start)
    if num > 1 or (num == 1 and not endpoint):
        delta = lax.div(lax.sub(stop, start), as_array(np.asarray(intervals, compute)))
    if num == 0:
        out = lax.full((0, *shape), 0, compute)
    elif num == 1:
        out = lax.reshape(start, (1, *shape))
    else:
        real = np.zeros((), compute).real.dtype
        steps = lax.div(
            lax.iota(real, intervals), as_array(np.asarray(intervals, real))
        )
        ratio = lax.reshape(steps, (intervals,) + (1,) * len(shape)) if shape else steps
        ratio = convert(ratio, compute)
        one = as_array(np.asarray(1, compute))
        out = ufuncs.add(
            ufuncs.multiply(lax.reshape(start, (1, *shape)), lax.sub(one, ratio)),
            ufuncs.multiply(lax.reshape(stop, (1, *shape)), ratio),
        )
        if endpoint:
            out = lax.concatenate([out, lax.expand_dims(stop, (0,))], dimension=0)
    axis = normalize_axis(axis, out.ndim)
    if axis:
        out = lax.transpose(out, (*range(1, axis + 1), 0, *range(axis + 1, out.ndim)))
    if dtypes.issubdtype(dtype, np.integer) and not dtypes.issubdtype(out.dtype, np.integer):
        out = lax.floor(out)
    out = convert(out, dtype)
    return (out, convert(delta, dtypes.to_inexact_dtype(dtype))) if retstep else out


def _nan_like(x):
    return lax.full(x.shape, math.nan, x.dtype)


@jit(static_argnames=("num", "endpoint", "dtype", "axis"))
def _logspace(start, stop, num, endpoint, base, dtype, axis):
    if dtype is None:
        dtype = dtypes.to_inexact_dtype(dtypes.result_type(start, stop))
    compute = dtypes.to_inexact_dtype(dtypes.promote_types(
        dtypes.result_type(start, stop), dtype))
    exponent = _linspace(convert(ensure_array(start, "logspace"), compute),
                         convert(ensure_array(stop, "logspace"), compute),
                         num, endpoint, False, None, axis)
    base = convert(ensure_array(base, "logspace"), compute)
    if base.ndim:
        base = lax.expand_dims(base, (axis,))
    exponent, base = _broadcast_pair(exponent, base)
    return convert(lax.pow(base, exponent), dtype)


def _broadcast_pair(x, y):
    shape = lax.broadcast_shapes(x.shape, y.shape)
    return broadcast_to(x, shape), broadcast_to(y, shape)


def logspace(
    start: ArrayLike, stop: ArrayLike, num: Any = 50, endpoint: bool = True,
    base: ArrayLike = 10.0, dtype: DTypeLike | None = None, axis: int = 0,
) -> Array:
    """`base` to the power of evenly spaced exponents; arguments as for `linspace`.

    Args: start, stop: the first and the last exponent; num, endpoint, dtype, axis: as for
    `linspace`.

    >>> jnp.logspace(0, 2, 3)
    Array([  1.,  10., 100.], dtype=float32)
    """
    num = concrete_or_error(operator.index, num, "'num' argument of jnp.logspace")
    axis = concrete_or_error(operator.index, axis, "'axis' argument of jnp.logspace")
    check_array_like("logspace", start, stop)
    return _logspace(start, stop, num, bool(endpoint), base, user_dtype(dtype, "logspace"), axis)


@jit(static_argnames=("num", "endpoint", "dtype", "axis"))
def _geomspace(start, stop, num, endpoint, dtype, axis):
    if dtype is None:
        dtype = dtypes.to_inexact_dtype(dtypes.result_type(start, stop))
    compute = dtypes.to_inexact_dtype(dtypes.promote_types(
        dtypes.result_type(start, stop), dtype))
    start, stop = ensure_arrays("geomspace", start, stop)
    start, stop = convert(start, compute), convert(stop, compute)
    sign = lax.sign(start)
    shape = lax.broadcast_shapes(start.shape, stop.shape)
    unit = lax.div(start, sign), ufuncs.true_divide(stop, sign)
    powers = _logspace(ufuncs.log10(unit[0]), ufuncs.log10(unit[1]), num, endpoint, 10.0, compute,
                       0)
    out = ufuncs.multiply(broadcast_to(sign, shape), powers)
    if endpoint and num > 1:
        out = lax.concatenate(
            [lax.expand_dims(broadcast_to(start, shape), (0,)), lax.slice_in_dim(out, 1, num - 1),
             lax.expand_dims(broadcast_to(stop, shape), (0,))], dimension=0)
    axis = normalize_axis(axis, out.ndim)
    if axis:
        out = lax.transpose(out, (*range(1, axis + 1), 0, *range(axis + 1, out.ndim)))
    return convert(out, dtype)


def geomspace(
    start: ArrayLike, stop: ArrayLike, num: Any = 50, endpoint: bool = True,
    dtype: DTypeLike | None = None, axis: int = 0,
) -> Array:
    """`num` values in geometric progression from `start` to `stop`.

    Args: start, stop: scalars or arrays of one sign, not zero; num, endpoint, dtype, axis: as for
    `linspace`.

    >>> jnp.geomspace(1, 4, 3)
    Array([1.       , 1.9999999, 4.       ], dtype=float32)
    """
    num = concrete_or_error(operator.index, num, "'num' argument of jnp.geomspace")
    axis = concrete_or_error(operator.index, axis, "'axis' argument of jnp.geomspace")
    check_array_like("geomspace", start, stop)
    return _geomspace(start, stop, num, bool(endpoint), user_dtype(dtype, "geomspace"), axis)
