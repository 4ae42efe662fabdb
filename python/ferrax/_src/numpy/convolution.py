"""Convolution and correlation of vectors.

Invariant: only products of elements are added that both exist. A zero of padding is never
multiplied, so that infinities and NaN stay in the sums that they belong to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.core import Array, as_array
from ferrax._src.core.op_types import precision_name
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy.util import (
    convert,
    ensure_arrays,
    is_subdtype,
    promote_dtypes,
    promote_dtypes_inexact,
    strong_constant,
    user_dtype,
)
from ferrax._src.transforms.jit import jit

# So many shifted products are written out in one kernel; longer vectors go through a loop of such.
_UNROLLED = 16
_STATIC = ("mode", "precision", "preferred_element_type")


@jit(static_argnames=_STATIC)
def convolve(
    a: ArrayLike, v: ArrayLike, mode: Any = "full", *, precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Sums of the products `a[i] * v[k - i]`.

    Args: a, v: vectors of sizes n and m, in either order. mode: "full" (all n + m - 1 sums), "same"
    (the middle ones, as many as the longer vector has) or "valid" (those in which no product is
    missing). precision: of lax. preferred_element_type: dtype of the sums, at least as wide as the
    vectors'; without it integers become floats.
    Raises: ValueError for other ranks, an empty vector and another mode; TypeError for a dtype of
    sums that does not fit.

    >>> jnp.convolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0]))
    Array([1., 3., 2.], dtype=float32)
    """
    a, v, dtype = _operands("convolve", a, v, precision, preferred_element_type)
    if a.shape[0] < v.shape[0]:
        a, v = v, a
    return _sums("convolve", a, v, mode, dtype)


@jit(static_argnames=_STATIC)
def correlate(
    a: ArrayLike, v: ArrayLike, mode: Any = "valid", *, precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Sums of the products `a[i + k] * conj(v[i])`.

    Args: a, v, mode, precision, preferred_element_type: as for `convolve`, with its errors.

    >>> jnp.correlate(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0]))
    Array([2., 3.], dtype=float32)
    """
    a, v, dtype = _operands("correlate", a, v, precision, preferred_element_type)
    v = lax.rev(ufuncs.conj(v), (0,))
    if a.shape[0] >= v.shape[0]:
        return _sums("correlate", a, v, mode, dtype)
    # As the shorter vector slides over the longer one: "same" sums are centred for the reverse.
    a, v = lax.rev(v, (0,)), lax.rev(a, (0,))
    return lax.rev(_sums("correlate", a, v, mode, dtype), (0,))


def _operands(name, a, v, precision, preferred) -> tuple[Array, Array, Any]:
    """Both vectors in the dtype of the sums while they are taken, and that of the result."""
    a, v = ensure_arrays(name, a, v)
    precision_name(precision)
    if a.ndim != 1 or v.ndim != 1:
        raise ValueError(
            f"{name}() only supports 1-dimensional inputs, got shapes {tuple(a.shape)} and"
            f" {tuple(v.shape)}"
        )
    if preferred is None:
        a, v = promote_dtypes_inexact(a, v)
        dtype = a.dtype
    else:
        a, v = promote_dtypes(a, v)
        dtype = user_dtype(preferred, name)
        _check_fits(name, a.dtype, dtype)
    if a.shape[0] == 0 or v.shape[0] == 0:
        raise ValueError(
            f"{name}: both inputs need an element, got shapes {tuple(a.shape)} and {tuple(v.shape)}"
        )
    narrow = dtypes.issubdtype(dtype, np.floating) and dtype.itemsize < 4
    wide = np.dtype(np.float32) if narrow else dtype
    return convert(a, wide), convert(v, wide), dtype


def _check_fits(name, dtype, preferred):
    if dtype == np.bool_:
        return
    kind = next(
        k
        for k in (np.signedinteger, np.unsignedinteger, np.floating, np.complexfloating)
        if dtypes.issubdtype(dtype, k)
    )
    wider: dict[type, tuple[type, ...]] = {
        np.signedinteger: (np.signedinteger, np.floating),
        np.unsignedinteger: (np.integer, np.floating),
    }
    allowed = wider.get(kind, (kind,))
    parts = 2 if kind is np.complexfloating else 1
    if (
        not any(dtypes.issubdtype(preferred, k) for k in allowed)
        or preferred.itemsize < dtype.itemsize
        or _bits(preferred) < _bits(dtype)
    ):
        names = " or ".join(k.__name__ for k in allowed)
        raise TypeError(
            f"{name}: preferred_element_type {preferred} does not hold sums of products of"
            f" {dtype}: expected a {names} dtype of {_bits(dtype) * parts} bits or more"
        )


def _bits(dtype) -> int:
    info = dtypes.iinfo if dtypes.issubdtype(dtype, np.integer) else dtypes.finfo
    return info(dtype).bits


def _sums(name, x, y, mode, dtype):
    """The convolution of `x` and `y`, which is not longer, in one of the modes."""
    n, m = x.shape[0], y.shape[0]
    if mode == "valid":
        out = _valid(x, lax.rev(y, (0,)))
    elif mode in ("full", "same"):
        out = _full(x, y)
        if mode == "same":
            start = m - 1 - m // 2
            out = lax.slice_in_dim(out, start, start + n)
    else:
        raise ValueError(f"{name}: mode is 'full', 'same' or 'valid', got {mode!r}")
    return convert(out, dtype)


def _element(x, i):
    return lax.index_in_dim(x, i, keepdims=False)


def _shifted(x, y):
    """The sum of `x * y[k]`, moved by k, for the few elements of `y`."""
    m = y.shape[0]
    zero = strong_constant(0, x)
    out = None
    for k in range(m):
        term = lax.pad(ufuncs.multiply(x, _element(y, k)), zero, [(k, m - 1 - k, 0)])
        out = term if out is None else ufuncs.add(out, term)
    return out


def _full(x, y):
    n, m = x.shape[0], y.shape[0]
    if m <= _UNROLLED:
        return _shifted(x, y)
    steps, rest = divmod(m, _UNROLLED)
    size = n + _UNROLLED - 1

    def step(sums, chunk):
        start, elements = chunk
        part = lax.dynamic_slice(sums, (start,), (size,))
        part = ufuncs.add(part, _shifted(x, elements))
        return lax.dynamic_update_slice(sums, part, (start,)), None

    sums, _ = lax.scan(step, lax.full((n + m - 1,), 0, x.dtype), _chunks(y, steps))
    if rest:
        last = _shifted(x, lax.slice_in_dim(y, m - rest, m))
        sums = ufuncs.add(sums, lax.pad(last, strong_constant(0, x), [(m - rest, 0, 0)]))
    return sums


def _chunks(y, steps):
    """Where each chunk of `y` starts, and its elements."""
    elements = lax.reshape(lax.slice_in_dim(y, 0, steps * _UNROLLED), (steps, _UNROLLED))
    return lax.mul(lax.iota(np.int32, steps), as_array(np.int32(_UNROLLED))), elements


def _windows(x, y, size):
    """The sum of `x[k : k + size] * y[k]` for the few elements of `y`."""
    out = None
    for k in range(y.shape[0]):
        term = ufuncs.multiply(lax.slice_in_dim(x, k, k + size), _element(y, k))
        out = term if out is None else ufuncs.add(out, term)
    return out


def _valid(x, y):
    """Sums of `x[i + k] * y[k]` over all of `y`."""
    n, m = x.shape[0], y.shape[0]
    size = n - m + 1
    if m <= _UNROLLED:
        return _windows(x, y, size)
    if size <= _UNROLLED and not is_subdtype(x, np.bool_):
        rows = [lax.slice_in_dim(x, i, i + m) for i in range(size)]
        return lax.concatenate([lax.reshape(_dot(row, y), (1,)) for row in rows], 0)
    steps, rest = divmod(m, _UNROLLED)

    def step(sums, chunk):
        start, elements = chunk
        part = lax.dynamic_slice(x, (start,), (size + _UNROLLED - 1,))
        return ufuncs.add(sums, _windows(part, elements, size)), None

    sums, _ = lax.scan(step, lax.full((size,), 0, x.dtype), _chunks(y, steps))
    if rest:
        last = lax.slice_in_dim(x, m - rest, n)
        sums = ufuncs.add(sums, _windows(last, lax.slice_in_dim(y, m - rest, m), size))
    return sums


def _dot(x, y):
    return lax.reduce_sum(ufuncs.multiply(x, y), axes=(0,))
