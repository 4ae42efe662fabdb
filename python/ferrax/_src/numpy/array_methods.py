"""Methods, properties and operators of `Array` that are written in Python.

`METHODS`, `PROPERTIES` and `operators.OPERATORS` map names to functions of the array; `install`
sets them on the class. Their annotations are those of the class's stub (`tools/stubs.py`).
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterator
from types import MethodType, ModuleType
from typing import Any, NoReturn

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.base.traceback_util import boundary, bounded, leave
from ferrax._src.core import Array, as_array
from ferrax._src.core.placement import device_put
from ferrax._src.core.typing import ArrayLike, Axis, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import (
    array_creation,
    cumulative,
    matrices,
    products,
    rearrangement,
    reductions,
    rounding,
    shape,
)
from ferrax._src.numpy.nonzero import compress, nonzero
from ferrax._src.numpy.operators import OPERATORS
from ferrax._src.numpy.selection import choose
from ferrax._src.numpy.sorting import argpartition, argsort, searchsorted, sort
from ferrax._src.numpy.take import take
from ferrax._src.numpy.util import convert, reject_out, user_dtype


@bounded
def _reshape(self: Array, *args: Any, order: str = "C", out_sharding: Any = None) -> Array:
    """See `ferrax.numpy.reshape`; sizes may be given one by one."""
    try:
        sizes = args[0] if len(args) == 1 else args
        return shape.reshape(self, sizes, order, out_sharding=out_sharding)
    except Exception:
        leave()
        raise


@bounded
def _transpose(self: Array, *args: Any) -> Array:
    """See `ferrax.numpy.transpose`; axes may be given one by one."""
    try:
        axes: Any
        if not args:
            axes = None
        elif len(args) == 1:
            (axes,) = args
            axes = axes if axes is None or np.iterable(axes) else args
        else:
            axes = args
        return shape.transpose(self, axes)
    except Exception:
        leave()
        raise


def _flatten(self: Array, order: str = "C", *, out_sharding: Any = None) -> Array:
    """See `ferrax.numpy.ravel`."""
    return shape.ravel(self, order, out_sharding=out_sharding)


@bounded
def _astype(self: Array, dtype: DTypeLike, copy: bool = False, device: Any = None) -> Array:
    """See `ferrax.numpy.astype`."""
    try:
        return array_creation.astype(self, dtype, copy=copy, device=device)
    except Exception:
        leave()
        raise


def _copy(self: Array) -> Array:
    """A copy of the array."""
    return array_creation.array(self, copy=True)


def _deepcopy(self: Array, memo: Any) -> Array:
    return array_creation.array(self, copy=True)


def _clip(self: Array, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """See `ferrax.numpy.clip`."""
    return rounding.clip(self, min=min, max=max)


def _var(
    self: Array, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """See `ferrax.numpy.var`."""
    return reductions.var(self, axis, dtype, out, ddof, keepdims, where=where,
                          correction=correction)


def _std(
    self: Array, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """See `ferrax.numpy.std`."""
    return reductions.std(self, axis, dtype, out, ddof, keepdims, where=where,
                          correction=correction)


def _bits(dtype) -> int:
    for kind, info in ((np.integer, dtypes.iinfo), (np.floating, dtypes.finfo)):
        if dtypes.issubdtype(dtype, kind):
            return info(dtype).bits
    return np.dtype(dtype).itemsize * 8


def _view(self: Array, dtype: DTypeLike | None = None, type: None = None) -> Array:  # noqa: A002
    """The same bytes as another dtype; sizes of the last axis change with the width.

    Raises ValueError if the last axis cannot be divided, TypeError for a scalar of other width.
    """
    if type is not None:
        raise NotImplementedError(
            "Array.view: there are no subclasses to view as; leave out the argument type"
        )
    if dtype is None:
        return self
    dtype = user_dtype(dtype, "view")
    if dtype == self.dtype:
        return self
    if dtype == np.bool_:
        return lax.ne(_view(self, np.uint8), as_array(np.uint8(0)))
    if self.dtype == np.bool_:
        return _view(convert(self, np.dtype(np.uint8)), dtype)
    if dtypes.issubdtype(dtype, np.complexfloating):
        part = np.zeros((), dtype).real.dtype
        parts = _view(self, part)
        if parts.shape[-1] % 2:
            raise ValueError(_view_error(self, dtype))
        pairs = lax.reshape(parts, (*parts.shape[:-1], parts.shape[-1] // 2, 2))
        return lax.complex(*(lax.index_in_dim(pairs, i, -1, keepdims=False) for i in (0, 1)))
    if dtypes.issubdtype(self.dtype, np.complexfloating):
        if self.ndim == 0:
            raise ValueError(_view_error(self, dtype))
        pairs = lax.concatenate(
            [lax.expand_dims(part, (self.ndim,)) for part in (lax.real(self), lax.imag(self))],
            dimension=self.ndim)
        flat = lax.reshape(pairs, (*self.shape[:-1], 2 * self.shape[-1]))
        return _view(flat, dtype)
    old, new = _bits(self.dtype), _bits(dtype)
    if old == new:
        return lax.bitcast_convert_type(self, dtype)
    if self.ndim == 0:
        raise ValueError(_view_error(self, dtype))
    if old > new:
        out = lax.bitcast_convert_type(self, dtype)
        return lax.reshape(out, (*self.shape[:-1], self.shape[-1] * (old // new)))
    ratio = new // old
    if self.shape[-1] % ratio:
        raise ValueError(_view_error(self, dtype))
    grouped = lax.reshape(self, (*self.shape[:-1], self.shape[-1] // ratio, ratio))
    return lax.bitcast_convert_type(grouped, dtype)


def _view_error(x, dtype):
    return (
        f"view: an array of dtype {x.dtype} and shape {tuple(x.shape)} has no view as {dtype}:"
        " its last axis must hold a whole number of elements"
    )


def _byteswap(self: Array, inplace: bool = False) -> Array:
    """The array with the bytes of each element reversed."""
    if inplace:
        raise NotImplementedError("byteswap: arrays are immutable, inplace=True is not supported")
    if _bits(self.dtype) <= 8:
        return self
    if dtypes.issubdtype(self.dtype, np.complexfloating):
        return lax.complex(_byteswap(lax.real(self)), _byteswap(lax.imag(self)))
    octets = lax.bitcast_convert_type(self, np.uint8)
    return lax.bitcast_convert_type(lax.rev(octets, (octets.ndim - 1,)), self.dtype)


def _to_device(self: Array, device: Any, *, stream: None = None) -> Array:
    """The array on another device or sharding."""
    if stream is not None:
        raise NotImplementedError("stream argument of array.to_device()")

    return device_put(self, device)


def _contains(self: Array, element: Any) -> bool:
    if isinstance(element, str) or not (np.isscalar(element) or hasattr(element, "shape")):
        raise TypeError(
            "Array.__contains__ requires a scalar array or number, got"
            f" {type(element).__name__}.")
    if self.ndim != 1:
        raise ValueError(
            "element in array: expected an array with one axis, got"
            f" shape {tuple(self.shape)}; use jnp.any(array == element).")
    if np.ndim(element):
        raise ValueError(
            f"element in array: expected a scalar element, got shape {np.shape(element)}.")
    return bool(reductions.any(self == element))


def _reversed(self: Array) -> Iterator[Array]:
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d array; iterate over x.ravel()")
    return iter(list(self)[::-1])


def _array_namespace(
    self: Array, *, api_version: str | None = None, device: Any = None
) -> ModuleType:
    """The module of the array API."""
    if api_version not in (None, "2024.12"):
        raise ValueError(f"unsupported array API version {api_version!r}; expected '2024.12'")
    return importlib.import_module("ferrax.numpy")


def _array_module(self: Array, types: Any) -> ModuleType:
    return importlib.import_module("ferrax.numpy")


def _hex(self: Array) -> str:
    return hex(operator.index(self))


def _oct(self: Array) -> str:
    return oct(operator.index(self))


def _real(self: Array) -> Array:
    """Real part."""
    return lax.real(self) if dtypes.issubdtype(self.dtype, np.complexfloating) else self


def _imag(self: Array) -> Array:
    """Imaginary part; zeros for real arrays."""
    if dtypes.issubdtype(self.dtype, np.complexfloating):
        return lax.imag(self)
    return lax.full_like(self, 0)


def _conj(self: Array) -> Array:
    """Complex conjugate."""
    return lax.conj(self) if dtypes.issubdtype(self.dtype, np.complexfloating) else self


def _flat(self: Array) -> NoReturn:
    raise NotImplementedError("Arrays do not implement .flat: consider arr.flatten() instead.")


def _compress(
    self: Array, condition: ArrayLike, axis: int | None = None, *, out: None = None,
    size: int | None = None, fill_value: ArrayLike = 0,
) -> Array:
    """See `ferrax.numpy.compress`."""
    reject_out("compress", out)

    return compress(condition, self, axis=axis, size=size, fill_value=fill_value)


def _argsort(
    self: Array, axis: int | None = -1, *, kind: None = None, order: None = None,
    stable: bool = True, descending: bool = False,
) -> Array:
    """See `ferrax.numpy.argsort`."""
    return argsort(self, axis, kind=kind, order=order, stable=stable, descending=descending)


def _T(self: Array) -> Array:  # noqa: N802  NumPy's name
    return shape.transpose(self)


def _mT(self: Array) -> Array:  # noqa: N802
    return shape.matrix_transpose(self)


METHODS: dict[str, Callable[..., Any]] = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "argpartition": argpartition,
    "argsort": _argsort,
    "astype": _astype,
    "byteswap": _byteswap,
    "choose": choose,
    "clip": _clip,
    "compress": _compress,
    "conj": _conj,
    "conjugate": _conj,
    "cumprod": cumulative.cumprod,
    "cumsum": cumulative.cumsum,
    "diagonal": matrices.diagonal,
    "dot": products.dot,
    "flatten": _flatten,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "nonzero": nonzero,
    "prod": reductions.prod,
    "ptp": reductions.ptp,
    "ravel": shape.ravel,
    "repeat": rearrangement.repeat,
    "reshape": _reshape,
    "round": rounding.round,
    "searchsorted": searchsorted,
    "sort": sort,
    "squeeze": shape.squeeze,
    "std": _std,
    "sum": reductions.sum,
    "swapaxes": shape.swapaxes,
    "take": take,
    "to_device": _to_device,
    "trace": matrices.trace,
    "transpose": _transpose,
    "var": _var,
    "view": _view,
    "__array_module__": _array_module,
    "__array_namespace__": _array_namespace,
    "__contains__": _contains,
    "__copy__": _copy,
    "__deepcopy__": _deepcopy,
    "__hex__": _hex,
    "__oct__": _oct,
    "__reversed__": _reversed,
}


PROPERTIES = {
    "T": _T,
    "mT": _mT,
    "flat": _flat,
    "imag": _imag,
    "real": _real,
}


class _Method:
    """Binds a callable that is no Python function (a jitted one) as a method."""

    def __init__(self, name, function):
        self.function, self.__name__, self.__doc__ = function, name, function.__doc__

    def __get__(self, instance, owner=None):
        return self if instance is None else MethodType(self.function, instance)

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def install(array_class: Any) -> None:
    """Sets the methods, properties and operators on the array class; called once at import."""
    function_type = type(install)
    for name, function in METHODS.items():
        plain = isinstance(function, function_type)
        setattr(array_class, name, boundary(function) if plain else _Method(name, function))
    for name, function in PROPERTIES.items():
        setattr(array_class, name, property(boundary(function)))
    for name, function in OPERATORS.items():
        setattr(array_class, name, boundary(function))
    # Set from Python, it is the length of a sequence as well, which NumPy asks for (`np.lexsort`).
    array_class.__len__ = array_class.__len__
    array_class.__array_priority__ = 100
