"""The `ufunc` class: an elementwise function with `reduce`, `accumulate`, `at`, `outer`.

Invariant: calling a ufunc calls its function directly; `functools.partial` does that in C, so the
class adds no Python frame to `jnp.add(x, y)`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.core import Array, concrete_or_error, is_concrete
from ferrax._src.core.typing import ArrayLike, Axis, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import cumulative, reductions, ufunc_folds as folds, ufuncs as composed
from ferrax._src.numpy.array_creation import asarray
from ferrax._src.numpy.logsumexp import logsumexp
from ferrax._src.numpy.shape import reshape
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

T = TypeVar("T")


class ufunc(functools.partial[T]):
    """An elementwise function of `nin` arrays that gives `nout` arrays.

    Args: func: the function of arrays; nin, nout: numbers of inputs and outputs; identity: the
    value of an empty reduction, or None; reduce, accumulate, at: faster versions of the methods.

    name, nargs, call, reduceat: the name, the number of inputs that functions see, and faster
    versions of the call and of that method.

    >>> jnp.add.reduce(jnp.arange(4)), jnp.add.nin, jnp.add.identity
    (Array(6, dtype=int32), 2, 0)
    """

    __name__: str
    _call: Callable[..., Any]
    _nin: int
    _nout: int
    _nargs: int
    _identity: Any
    _reduce: Callable[..., Array] | None
    _accumulate: Callable[..., Array] | None
    _at: Callable[..., Array] | None
    _reduceat: Callable[..., Array] | None

    def __new__(
        cls, func: Callable[..., T], /, nin: int, nout: int, *, name: str | None = None,
        nargs: int | None = None, identity: Any = None, call: Callable[..., T] | None = None,
        reduce: Callable[..., Array] | None = None,
        accumulate: Callable[..., Array] | None = None, at: Callable[..., Array] | None = None,
        reduceat: Callable[..., Array] | None = None,
    ) -> ufunc[T]:
        self = super().__new__(cls, call or func)
        self._call = func
        self.__name__ = getattr(func, "__name__", "ufunc") if name is None else name
        self.__doc__ = func.__doc__
        self._nin, self._nout, self._nargs, self._identity = nin, nout, nargs or nin, identity
        self._reduce, self._accumulate, self._at, self._reduceat = reduce, accumulate, at, reduceat
        return self

    @property
    def _func(self) -> Callable[..., Any]:
        return self._call

    @property
    def nin(self) -> int:
        """The number of inputs."""
        return self._nin

    @property
    def nout(self) -> int:
        """The number of outputs."""
        return self._nout

    @property
    def nargs(self) -> int:
        """The number of inputs that functions see."""
        return self._nargs

    @property
    def identity(self) -> Any:
        """What an empty reduction gives; None if there is nothing."""
        return self._identity

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def _key(self):
        return self._call, self.nin, self.nout, self.identity

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return type(other) is ufunc and self._key() == other._key()

    def _require_binary(self, method):
        if (self.nin, self.nout) != (2, 1):
            raise ValueError(
                f"{method} only supported for binary ufuncs with single output, got"
                f" {self.__name__} with nin={self.nin}, nout={self.nout}"
            )

    def reduce(
        self, a: ArrayLike, axis: Axis | None = 0, dtype: DTypeLike | None = None,
        out: None = None, keepdims: bool = False, initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        """Combines elements along axes (None: all) with the function, from the left."""
        self._require_binary("reduce")
        reject_out(f"{self.__name__}.reduce", out)
        if where is not None and self.identity is None and initial is None:
            raise ValueError(
                f"reduction operation {self.__name__} does not have an identity, which where= "
                "needs for"
                " elements that are left out: pass initial=.")
        if self._reduce is not None:
            return self._reduce(
                a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where
            )
        return folds.reduced(
            self, ensure_array(a, f"{self.__name__}.reduce"), axis, dtype, keepdims, initial, where
        )

    def accumulate(self, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Array:
        """Partial reductions along an axis."""
        self._require_binary("accumulate")
        reject_out(f"{self.__name__}.accumulate", out)
        if self._accumulate is not None:
            return self._accumulate(a, axis=axis, dtype=dtype)
        return folds.accumulated(self, ensure_array(a, f"{self.__name__}.accumulate"), axis, dtype)

    def outer(self, A: Any, B: Any, /) -> Array:
        """The function of all pairs of elements of two arrays."""
        self._require_binary("outer")
        A, B = ensure_arrays(f"{self.__name__}.outer", A, B)
        shape = tuple(A.shape) + tuple(B.shape)
        out: Any = self(reshape(A, (A.size, 1)), reshape(B, (1, B.size)))
        return reshape(out, shape)

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: Any = True) -> Array:
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
        return folds.applied_at(self, a, indices, b)

    def reduceat(
        self, a: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None
    ) -> Array:
        """Reductions of slices between consecutive indices along an axis."""
        self._require_binary("reduceat")
        reject_out(f"{self.__name__}.reduceat", out)
        a = ensure_array(a, f"{self.__name__}.reduceat")
        axis = normalize_axis(axis, a.ndim)
        if dtype is not None:
            a = convert(a, user_dtype(dtype, "reduceat"))
        if not is_concrete(indices):
            return folds.reduced_between(self, a, indices, axis)
        starts = np.asarray(concrete_or_error(None, indices, "indices of reduceat"))
        if starts.ndim != 1:
            raise ValueError(f"reduceat: indices is a vector, got shape {starts.shape}")
        if not starts.size:
            return lax.slice_in_dim(a, 0, 0, axis=axis)
        n, parts = a.shape[axis], []
        for start, stop in zip(starts, [*starts[1:], n]):
            stop = stop if stop > start else start + 1
            piece = lax.slice_in_dim(a, int(start), int(stop), axis=axis)
            parts.append(self.reduce(piece, axis=axis, dtype=dtype, keepdims=True))
        return lax.concatenate(parts, dimension=axis)


def frompyfunc(
    func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None
) -> ufunc[Any]:
    """A ufunc from a function of scalars, which is mapped by `vectorize`.

    Args: func: function of `nin` scalars with `nout` scalar results; identity: of reductions.
    nin, nout: numbers of inputs and outputs. Its reductions go from left to right, in a loop.

    >>> hypotenuse = jnp.frompyfunc(lambda x, y: jnp.sqrt(x * x + y * y), 2, 1, identity=0)
    >>> hypotenuse(jnp.array([3.0, 5.0]), jnp.array([4.0, 12.0]))
    Array([ 5., 13.], dtype=float32)
    """
    return ufunc(func, nin, nout, call=vectorize(func), identity=identity)


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


def _monoid(name, function, fold, identity, logical=False):
    """The reduction by a native fold: bits, or truth values if `logical`."""

    def reduce(a, axis=0, dtype=None, keepdims=False, initial=None, where=None):
        a = ensure_array(a, f"{name}.reduce")
        if logical and a.dtype != np.bool_:
            a = ufuncs.not_equal(a, 0)
        if dtype is not None:
            a = convert(a, user_dtype(dtype, "reduce"))
        if where is not None:
            a = select_where(where, a, convert(identity, a.dtype))
        axes = normalize_axes(axis, a.ndim)
        out = fold(a, axes)
        if keepdims:
            out = lax.expand_dims(out, axes)
        return out if initial is None else function(out, convert(initial, out.dtype))

    return reduce


def _minus(a, axis=0, dtype=None, keepdims=False, initial=None, where=None):
    """First element (or the initial one) minus the sum of the others."""
    a = ensure_array(a, "subtract.reduce")
    if dtype is not None:
        a = convert(a, user_dtype(dtype, "reduce"))
    axes = normalize_axes(axis, a.ndim)
    if len(axes) != 1:
        raise ValueError(
            "reduction operation 'subtract' is not reorderable, so only one axis may be specified")
    (axis,) = axes
    if initial is not None:
        rest = reductions.sum(a, axis, keepdims=keepdims, where=where, promote_integers=False)
        return ufuncs.subtract(convert(initial, a.dtype), rest)
    if not a.shape[axis]:
        raise ValueError("zero-size array to reduction operation subtract which has no identity")
    first = lax.index_in_dim(a, 0, axis, keepdims=keepdims)
    rest = lax.slice_in_dim(a, 1, a.shape[axis], axis=axis)
    return lax.sub(first, reductions.sum(rest, axis, keepdims=keepdims, promote_integers=False))


def _log_sum(name, combine, base):
    def reduce(a, axis=0, dtype=None, keepdims=False, initial=None, where=None):
        a = ensure_array(a, f"{name}.reduce")
        a = convert(a, user_dtype(dtype, "reduce") or dtypes.to_inexact_dtype(a.dtype))
        if base is not None:
            a = lax.mul(a, convert(base, a.dtype))
        out = logsumexp(a, axis=axis, keepdims=keepdims, where=where)
        if base is not None:
            out = lax.div(out, convert(base, out.dtype))
        return out if initial is None else combine(out, convert(initial, out.dtype))

    return reduce


def _cumulative(name, function, prepare=None):
    def accumulate(a, axis=0, dtype=None):
        a = ensure_array(a, f"{name}.accumulate")
        if dtype is not None:
            a = convert(a, user_dtype(dtype, "accumulate"))
        axis = normalize_axis(axis, a.ndim)
        return function(a if prepare is None else prepare(a), axis)

    return accumulate


def _cumulative_truth(function):
    def accumulate(a, axis):
        truth = convert(ufuncs.not_equal(a, 0), np.dtype(np.int8))
        return convert(function(truth, axis), np.dtype(bool))

    return accumulate


def _inexact(a):
    return convert(a, dtypes.to_inexact_dtype(a.dtype))


add = ufunc(ufuncs.add, 2, 1, name="add", identity=0, reduce=_summation(reductions.sum, True),
            accumulate=cumulative.cumsum, at=_at("add"))
subtract = ufunc(ufuncs.subtract, 2, 1, name="subtract", reduce=_minus, at=_at("subtract"))
multiply = ufunc(ufuncs.multiply, 2, 1, name="multiply", identity=1,
                 reduce=_summation(reductions.prod, True), accumulate=cumulative.cumprod,
                 at=_at("multiply"))
maximum = ufunc(ufuncs.maximum, 2, 1, name="maximum", reduce=_extremum(reductions.max),
                accumulate=_cumulative("maximum", lax.cummax), at=_at("max"))
minimum = ufunc(ufuncs.minimum, 2, 1, name="minimum", reduce=_extremum(reductions.min),
                accumulate=_cumulative("minimum", lax.cummin), at=_at("min"))
negative = ufunc(ufuncs.negative, 1, 1, name="negative")


def _logical(name, fold, identity, cumulative=None) -> ufunc[Array]:
    function = getattr(ufuncs, name)
    accumulate = cumulative and _cumulative(name, _cumulative_truth(cumulative))
    return ufunc(function, 2, 1, name=name, identity=identity, accumulate=accumulate,
                 reduce=_monoid(name, function, fold, identity, logical=True))


def _bitwise(name, fold, identity) -> ufunc[Array]:
    function = getattr(ufuncs, name)
    return ufunc(function, 2, 1, name=name, identity=identity,
                 reduce=_monoid(name, function, fold, identity))


logical_and = _logical("logical_and", lax.reduce_and, True, lax.cummin)
logical_or = _logical("logical_or", lax.reduce_or, False, lax.cummax)
logical_xor = _logical("logical_xor", lax.reduce_xor, False)
bitwise_and = _bitwise("bitwise_and", lax.reduce_and, -1)
bitwise_or = _bitwise("bitwise_or", lax.reduce_or, 0)
bitwise_xor = _bitwise("bitwise_xor", lax.reduce_xor, 0)
logaddexp = ufunc(
    composed.logaddexp, 2, 1, name="logaddexp", identity=-np.inf,
    reduce=_log_sum("logaddexp", composed.logaddexp, None),
    accumulate=_cumulative("logaddexp", lax.cumlogsumexp, _inexact))
logaddexp2 = ufunc(
    composed.logaddexp2, 2, 1, name="logaddexp2", identity=-np.inf,
    reduce=_log_sum("logaddexp2", composed.logaddexp2, math.log(2)))
