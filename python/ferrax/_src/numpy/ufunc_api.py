"""The `ufunc` class: an elementwise function with `reduce`, `accumulate`, `at`, `outer`.

Invariant: calling a ufunc calls its function directly; `functools.partial` does that in C, so the
class adds no Python frame to `jnp.add(x, y)`.
"""

from __future__ import annotations

import functools
import operator

from ferrax._core import ufuncs

import numpy as np
from ferrax import lax
from ferrax._src import dtypes
from ferrax._src.core import concrete_or_error
from ferrax._src.numpy import reductions, ufuncs as composed
from ferrax._src.numpy.array_creation import asarray
from ferrax._src.numpy.shape import moveaxis, ravel, reshape
from ferrax._src.numpy.util import (
    convert,
    ensure_array,
    ensure_arrays,
    normalize_axes,
    normalize_axis,
    reject_out,
    user_dtype,
    where as select_where,
)
from ferrax._src.numpy.vectorization import vectorize


class ufunc(functools.partial):
    """An elementwise function of `nin` arrays that gives `nout` arrays.

    Args: func: the function of arrays; nin, nout: numbers of inputs and outputs; identity: the
    value of an empty reduction, or None; reduce, accumulate, at: faster versions of the methods.
    """

    def __new__(cls, func, /, nin, nout, *, name=None, nargs=None, identity=None, call=None,
                reduce=None, accumulate=None, at=None, reduceat=None):
        self = super().__new__(cls, call or func)
        self.__name__ = name or getattr(func, "__name__", "ufunc")
        self.__doc__ = func.__doc__
        self.nin, self.nout, self.nargs, self.identity = nin, nout, nargs or nin, identity
        self._reduce, self._accumulate, self._at, self._reduceat = reduce, accumulate, at, reduceat
        return self

    def __repr__(self):
        return f"<jnp.ufunc '{self.__name__}'>"

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other

    def _require_binary(self, method):
        if (self.nin, self.nout) != (2, 1):
            raise ValueError(
                f"{method} only supported for binary ufuncs with single output, got"
                f" {self.__name__} with nin={self.nin}, nout={self.nout}"
            )

    def reduce(self, a, axis=0, dtype=None, out=None, keepdims=False, initial=None, where=None):
        """Combines elements along axes (None: all) with the function, from the left."""
        self._require_binary("reduce")
        reject_out(f"{self.__name__}.reduce", out)
        if where is not None and self.identity is None and initial is None:
            raise ValueError(
                f"reduction operation {self.__name__} does not have an identity, so to use a where"
                " mask one has to specify 'initial'.")
        if self._reduce is not None:
            return self._reduce(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial,
                                where=where)
        a = ensure_array(f"{self.__name__}.reduce", a)
        axes = normalize_axes(axis, a.ndim)
        shape = tuple(1 if d in axes else n for d, n in enumerate(a.shape))
        flat = moveaxis(a, axes, range(len(axes)))
        rest = tuple(flat.shape[len(axes):])
        flat = reshape(flat, (-1 if a.size else _product(flat.shape[:len(axes)]), *rest))
        start = initial if initial is not None else self.identity
        dtype = user_dtype(dtype, "reduce") or dtypes.dtype(self(flat[:0], flat[:0]))
        flat = convert(flat, dtype)
        if where is not None:
            mask = moveaxis(_broadcast(where, a.shape), axes, range(len(axes)))
            mask = reshape(mask, flat.shape)
        if start is None:
            if flat.shape[0] == 0:
                raise ValueError(
                    f"zero-size array to reduction operation {self.__name__} which has no identity")
            carry = lax.index_in_dim(flat, 0, keepdims=False)
            flat = lax.slice_in_dim(flat, 1, flat.shape[0])
        else:
            carry = lax.full(rest, start, dtype)

        def step(acc, item):
            value, keep = item if where is not None else (item, None)
            new = convert(self(acc, value), dtype)
            return (new if keep is None else select_where(keep, new, acc)), None

        result = lax.scan(step, carry, (flat, mask) if where is not None else flat)[0]
        return reshape(result, shape) if keepdims else result

    def accumulate(self, a, axis=0, dtype=None, out=None):
        """Partial reductions along an axis."""
        self._require_binary("accumulate")
        reject_out(f"{self.__name__}.accumulate", out)
        if self._accumulate is not None:
            return self._accumulate(a, axis=axis, dtype=dtype)
        a = ensure_array(f"{self.__name__}.accumulate", a)
        axis = normalize_axis(axis, a.ndim)
        rows = moveaxis(a, axis, 0)
        dtype = user_dtype(dtype, "accumulate") or dtypes.dtype(self(rows[:0], rows[:0]))
        rows = convert(rows, dtype)
        if rows.shape[0] == 0:
            return moveaxis(rows, 0, axis)

        def step(acc, value):
            new = convert(self(acc, value), dtype)
            return new, new

        first = lax.index_in_dim(rows, 0, keepdims=False)
        _, rest = lax.scan(step, first, lax.slice_in_dim(rows, 1, rows.shape[0]))
        out = lax.concatenate([lax.expand_dims(first, (0,)), rest], dimension=0)
        return moveaxis(out, 0, axis)

    def outer(self, A, B, /):
        """The function of all pairs of elements of two arrays."""
        self._require_binary("outer")
        A, B = ensure_arrays(f"{self.__name__}.outer", A, B)
        shape = tuple(A.shape) + tuple(B.shape)
        return reshape(self(reshape(A, (A.size, 1)), reshape(B, (1, B.size))), shape)

    def at(self, a, indices, b=None, /, *, inplace=True):
        """A copy of `a` with the function applied at indices, once per occurrence."""
        if inplace:
            raise NotImplementedError(
                "arrays are immutable: pass inplace=False and use the array that is returned")
        a = asarray(a)
        if self._at is not None:
            return self._at(a, indices, b)
        if self.nin == 1:
            return a.at[indices].apply(self)
        self._require_binary("at")
        places = reshape(lax.iota(np.int32, a.size), a.shape)[indices]
        values = ravel(_broadcast(convert(asarray(b), a.dtype), places.shape))

        def step(flat, item):
            place, value = item
            return flat.at[place].set(convert(self(flat[place], value), a.dtype)), None

        flat, _ = lax.scan(step, ravel(a), (ravel(places), values))
        return reshape(flat, a.shape)

    def reduceat(self, a, indices, axis=0, dtype=None, out=None):
        """Reductions of slices between consecutive concrete indices along an axis."""
        self._require_binary("reduceat")
        reject_out(f"{self.__name__}.reduceat", out)
        a = ensure_array(f"{self.__name__}.reduceat", a)
        axis = normalize_axis(axis, a.ndim)
        starts = np.asarray(concrete_or_error(None, indices, "indices of reduceat"))
        if starts.ndim != 1:
            raise ValueError(f"reduceat: indices must be one-dimensional, got {starts.shape}")
        n, parts = a.shape[axis], []
        for start, stop in zip(starts, [*starts[1:], n]):
            stop = stop if stop > start else start + 1
            piece = lax.slice_in_dim(a, int(start), int(stop), axis=axis)
            parts.append(self.reduce(piece, axis=axis, dtype=dtype, keepdims=True))
        return lax.concatenate(parts, dimension=axis)


def _product(sizes):
    return functools.reduce(operator.mul, sizes, 1)


def _broadcast(x, shape):
    from ferrax._src.numpy.util import broadcast_to

    return broadcast_to(ensure_array("where", x), tuple(shape))


def frompyfunc(func, /, nin, nout, *, identity=None):
    """A ufunc from a function of scalars, which is mapped by `vectorize`.

    Args: func: function of `nin` scalars with `nout` scalar results; identity: of reductions.
    """
    return ufunc(vectorize(func), nin, nout, name=getattr(func, "__name__", "func"),
                 identity=identity)


def _extremum(function):
    def reduce(a, axis=0, dtype=None, keepdims=False, initial=None, where=None):
        out = function(a, axis=axis, keepdims=keepdims, initial=initial, where=where)
        return out if dtype is None else convert(out, user_dtype(dtype, "reduce"))

    return reduce


def _summation(function, promote):
    def reduce(a, axis=0, dtype=None, keepdims=False, initial=None, where=None):
        return function(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where,
                        promote_integers=promote)

    return reduce


def _at(method):
    def at(a, indices, b):
        return getattr(a.at[indices], method)(b)

    return at


add = ufunc(ufuncs.add, 2, 1, name="add", identity=0, reduce=_summation(reductions.sum, True),
            accumulate=reductions.cumsum, at=_at("add"))
subtract = ufunc(ufuncs.subtract, 2, 1, name="subtract", at=_at("subtract"))
multiply = ufunc(ufuncs.multiply, 2, 1, name="multiply", identity=1,
                 reduce=_summation(reductions.prod, True), accumulate=reductions.cumprod,
                 at=_at("multiply"))
maximum = ufunc(ufuncs.maximum, 2, 1, name="maximum", reduce=_extremum(reductions.max),
                at=_at("max"))
minimum = ufunc(ufuncs.minimum, 2, 1, name="minimum", reduce=_extremum(reductions.min),
                at=_at("min"))
negative = ufunc(ufuncs.negative, 1, 1, name="negative")
logical_and = ufunc(ufuncs.logical_and, 2, 1, name="logical_and", identity=True)
logical_or = ufunc(ufuncs.logical_or, 2, 1, name="logical_or", identity=False)
logical_xor = ufunc(ufuncs.logical_xor, 2, 1, name="logical_xor", identity=False)
bitwise_and = ufunc(ufuncs.bitwise_and, 2, 1, name="bitwise_and", identity=-1)
bitwise_or = ufunc(ufuncs.bitwise_or, 2, 1, name="bitwise_or", identity=0)
bitwise_xor = ufunc(ufuncs.bitwise_xor, 2, 1, name="bitwise_xor", identity=0)
logaddexp = ufunc(composed.logaddexp, 2, 1, name="logaddexp", identity=-np.inf)
logaddexp2 = ufunc(composed.logaddexp2, 2, 1, name="logaddexp2", identity=-np.inf)
