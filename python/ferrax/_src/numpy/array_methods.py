"""Methods, properties and operators of `Array` that are written in Python.

`METHODS`, `PROPERTIES` and `operators.OPERATORS` map names to functions of the array; `install`
sets them on the class. Functions of other modules are looked up when first called, so that
importing this file loads none of them.
"""

from __future__ import annotations

import importlib
import operator
from types import MethodType

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import as_array
from ferrax._src.core.placement import device_put
from ferrax._src.lax import api as lax
from ferrax._src.numpy import array_creation, matrices, products, reductions, shape, ufuncs
from ferrax._src.numpy.nonzero import compress
from ferrax._src.numpy.operators import OPERATORS
from ferrax._src.numpy.sorting import argsort
from ferrax._src.numpy.util import convert, reject_out, user_dtype


def _lazy(module: str, name: str):
    """A method that is the function `name` of a module of this package, imported when called."""
    target = None

    def method(self, *args, **kwargs):
        nonlocal target
        if target is None:
            target = getattr(importlib.import_module(f"ferrax._src.numpy.{module}"), name)
        return target(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"See `ferrax.numpy.{name}`."
    return method


def _reshape(self, *args, order="C", out_sharding=None):
    """See `ferrax.numpy.reshape`; sizes may be given one by one."""
    sizes = args[0] if len(args) == 1 else args
    return shape.reshape(self, sizes, order, out_sharding=out_sharding)


def _transpose(self, *args):
    """See `ferrax.numpy.transpose`; axes may be given one by one."""
    if not args:
        axes = None
    elif len(args) == 1:
        axes = args[0] if args[0] is None or np.iterable(args[0]) else args
    else:
        axes = args
    return shape.transpose(self, axes)


def _flatten(self, order="C", *, out_sharding=None):
    """See `ferrax.numpy.ravel`."""
    return shape.ravel(self, order, out_sharding=out_sharding)


def _astype(self, dtype, copy=False, device=None):
    """See `ferrax.numpy.astype`."""
    return array_creation.astype(self, dtype, copy=copy, device=device)


def _copy(self):
    """A copy of the array."""
    return array_creation.array(self, copy=True)


def _deepcopy(self, memo):
    return array_creation.array(self, copy=True)


def _clip(self, min=None, max=None):
    """See `ferrax.numpy.clip`."""
    return ufuncs.clip(self, min=min, max=max)


def _var(self, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None,
         correction=None):
    """See `ferrax.numpy.var`."""
    return reductions.var(self, axis, dtype, out, ddof, keepdims, where=where,
                          correction=correction)


def _std(self, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None,
         correction=None):
    """See `ferrax.numpy.std`."""
    return reductions.std(self, axis, dtype, out, ddof, keepdims, where=where,
                          correction=correction)


def _bits(dtype) -> int:
    if dtypes.issubdtype(dtype, np.integer):
        return dtypes.iinfo(dtype).bits
    if dtypes.issubdtype(dtype, np.floating):
        return dtypes.finfo(dtype).bits
    return 8 * np.dtype(dtype).itemsize


def _view(self, dtype=None, type=None):  # noqa: A002
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


def _byteswap(self, inplace=False):
    """The array with the bytes of each element reversed."""
    if inplace:
        raise NotImplementedError("byteswap: arrays are immutable, inplace=True is not supported")
    if _bits(self.dtype) <= 8:
        return self
    if dtypes.issubdtype(self.dtype, np.complexfloating):
        return lax.complex(_byteswap(lax.real(self)), _byteswap(lax.imag(self)))
    octets = lax.bitcast_convert_type(self, np.uint8)
    return lax.bitcast_convert_type(lax.rev(octets, (octets.ndim - 1,)), self.dtype)


def _to_device(self, device, *, stream=None):
    """The array on another device or sharding."""
    if stream is not None:
        raise NotImplementedError("stream argument of array.to_device()")

    return device_put(self, device)


def _iter(self):
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d array; iterate over x.ravel()")
    return iter([lax.index_in_dim(self, i, keepdims=False) for i in range(self.shape[0])])


def _contains(self, element):
    if not np.isscalar(element) and not hasattr(element, "shape"):
        raise TypeError(
            "Array.__contains__ requires a scalar array or number, got"
            f" {type(element).__name__}.")
    if self.ndim != 1:
        raise ValueError(
            "Array.__contains__: search array must be one-dimensional, got"
            f" shape {tuple(self.shape)}; use jnp.any(arr == element).")
    if np.ndim(element):
        raise ValueError(
            f"Array.__contains__: element must be a scalar, got shape {np.shape(element)}.")
    return bool(reductions.any(self == element))


def _reversed(self):
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d array; iterate over x.ravel()")
    return iter(list(self)[::-1])


def _setitem(self, key, value):
    raise TypeError(
        "ferrax arrays are immutable and do not support in-place item assignment. Instead of"
        " x[idx] = y, use x = x.at[idx].set(y) or another method of x.at."
    )


def _array_namespace(self, *, api_version=None, device=None):
    """The module of the array API."""
    if api_version not in (None, "2024.12"):
        raise ValueError(f"unsupported array API version {api_version!r}; expected '2024.12'")
    return importlib.import_module("ferrax.numpy")


def _array_module(self, types):
    return importlib.import_module("ferrax.numpy")


def _format(self, spec):
    return format(self.item() if self.ndim == 0 else str(self), spec)


def _hex(self):
    return hex(operator.index(self))


def _oct(self):
    return oct(operator.index(self))


def _real(self):
    """Real part."""
    return lax.real(self) if dtypes.issubdtype(self.dtype, np.complexfloating) else self


def _imag(self):
    """Imaginary part; zeros for real arrays."""
    if dtypes.issubdtype(self.dtype, np.complexfloating):
        return lax.imag(self)
    return lax.full_like(self, 0)


def _conj(self):
    """Complex conjugate."""
    return lax.conj(self) if dtypes.issubdtype(self.dtype, np.complexfloating) else self


def _flat(self):
    raise NotImplementedError("Arrays do not implement .flat: consider arr.flatten() instead.")


def _compress(self, condition, axis=None, *, out=None, size=None, fill_value=0):
    """See `ferrax.numpy.compress`."""
    reject_out("compress", out)

    return compress(condition, self, axis=axis, size=size, fill_value=fill_value)


def _argsort(self, axis=-1, *, kind=None, order=None, stable=True, descending=False):
    """See `ferrax.numpy.argsort`."""
    return argsort(self, axis, kind=kind, order=order, stable=stable, descending=descending)


METHODS = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "argpartition": _lazy("sorting", "argpartition"),
    "argsort": _argsort,
    "astype": _astype,
    "byteswap": _byteswap,
    "choose": _lazy("selection", "choose"),
    "clip": _clip,
    "compress": _compress,
    "conj": _conj,
    "conjugate": _conj,
    "cumprod": reductions.cumprod,
    "cumsum": reductions.cumsum,
    "diagonal": matrices.diagonal,
    "dot": products.dot,
    "flatten": _flatten,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "nonzero": _lazy("nonzero", "nonzero"),
    "prod": reductions.prod,
    "ptp": reductions.ptp,
    "ravel": shape.ravel,
    "repeat": shape.repeat,
    "reshape": _reshape,
    "round": ufuncs.round,
    "searchsorted": _lazy("sorting", "searchsorted"),
    "sort": _lazy("sorting", "sort"),
    "squeeze": shape.squeeze,
    "std": _std,
    "sum": reductions.sum,
    "swapaxes": shape.swapaxes,
    "take": _lazy("take", "take"),
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
    "__format__": _format,
    "__hex__": _hex,
    "__iter__": _iter,
    "__oct__": _oct,
    "__reversed__": _reversed,
    "__setitem__": _setitem,
}


PROPERTIES = {
    "T": lambda self: shape.transpose(self),
    "mT": lambda self: shape.matrix_transpose(self),
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


def install(Array) -> None:
    """Sets the methods, properties and operators on the array class; called once at import."""
    function_type = type(install)
    for name, function in METHODS.items():
        plain = isinstance(function, function_type)
        setattr(Array, name, function if plain else _Method(name, function))
    for name, function in PROPERTIES.items():
        setattr(Array, name, property(function))
    for name, function in OPERATORS.items():
        setattr(Array, name, function)
    Array.__array_priority__ = 100
