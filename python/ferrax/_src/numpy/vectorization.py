"""`vectorize`, `apply_along_axis` and `apply_over_axes`: functions mapped by `vmap`.

Invariant: an operand is mapped over a broadcast axis only where its size is not 1.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy.shape import expand_dims, squeeze
from ferrax._src.numpy.util import (
    check_rank_promotion,
    ensure_array,
    ensure_arrays,
    normalize_axis,
)
from ferrax._src.transforms.batching import vmap

_NAME = r"\w+"
_TERM = rf"\((?:{_NAME}(?:,{_NAME})*)?\)"
_SIDE = rf"(?:{_TERM}(?:,{_TERM})*)?"
_SIGNATURE = re.compile(rf"^{_SIDE}->{_SIDE}$")


def _parse_signature(signature):
    text = re.sub(r"\s+", "", signature)
    if not _SIGNATURE.match(text):
        raise ValueError(f"not a valid gufunc signature: {signature}")
    return tuple(
        [tuple(re.findall(_NAME, term)) for term in re.findall(_TERM, side)]
        for side in text.split("->")
    )


def _core_sizes(shape, core, sizes, what):
    if len(shape) < len(core):
        raise ValueError(
            f"{what} of shape {tuple(shape)} has fewer axes than the signature asks for, {core}"
        )
    for name, n in zip(core, shape[len(shape) - len(core):]):
        if name.isdigit():
            if int(name) != n:
                raise ValueError(f"{what}: core dimension {name} has size {n}")
        elif sizes.setdefault(name, n) != n:
            raise ValueError(
                f"inconsistent size for core dimension {name!r}: {n} vs {sizes[name]}")


def _apply_excluded(func, excluded, args, kwargs):
    """Moves excluded arguments into the function; returns it with the arguments that remain."""
    if not excluded:
        return func, args, kwargs
    held, mapped = _parted(dict(enumerate(args)), excluded)
    held_by_name, mapped_by_name = _parted(kwargs, excluded)

    def of_mapped(*values, **named):
        by_place = held | dict(zip(mapped, values))
        return func(*(by_place[place] for place in sorted(by_place)), **held_by_name, **named)

    return of_mapped, list(mapped.values()), mapped_by_name


def _parted(arguments, excluded):
    """The arguments whose place or name is excluded, and the others."""
    held = {key: arguments[key] for key in arguments if key in excluded}
    return held, {key: value for key, value in arguments.items() if key not in held}


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Any = frozenset(), signature: str | None = None,
) -> Callable[..., Any]:
    """A function that broadcasts `pyfunc` over the leading axes of its arguments.

    Args: excluded: positions and names passed through unmapped; signature: core axes, such as
    "(n),(n)->()"; without it the core is scalar. Raises ValueError for malformed signatures and
    sizes that do not match, TypeError for bad `excluded`.

    pyfunc: the function of arrays with core axes.

    >>> dots = jnp.vectorize(jnp.dot, signature="(n),(n)->()")
    >>> dots(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    excluded = frozenset(excluded)
    if any(not isinstance(e, (str, int)) for e in excluded):
        raise TypeError(
            "vectorize: excluded holds positions and names of arguments, got"
            f" {set(excluded)!r}")
    if any(isinstance(e, int) and e < 0 for e in excluded):
        raise ValueError(f"vectorize: excluded={set(excluded)!r} has negative positions; count from the front")
    parsed = None if signature is None else _parse_signature(signature)

    @api_boundary
    @functools.wraps(pyfunc)
    def wrapped(*args, **kwargs):
        message = f"on vectorized function with excluded={set(excluded)!r} and signature={signature!r}"
        # None goes as it is: there is nothing to map.
        nones = {key for key, arg in (*enumerate(args), *kwargs.items()) if arg is None}
        func, mapped, mapped_kw = _apply_excluded(pyfunc, excluded | nones, args, kwargs)
        if signature is not None and mapped_kw:
            raise ValueError(f"vectorize: keyword arguments {sorted(mapped_kw)} {message}")
        names = list(mapped_kw)
        values = ensure_arrays("vectorize", *mapped, *mapped_kw.values())
        count = len(mapped)

        def call(*xs):
            return func(*xs[:count], **dict(zip(names, xs[count:])))

        if parsed is None:
            cores, outputs = [()] * len(values), None
        else:
            cores, outputs = parsed
            given = [i for i in range(len(args)) if i not in excluded]
            if len(cores) != len(given):
                raise TypeError(
                    f"wrong number of arguments: expected {len(cores)} by position, got"
                    f" {len(given)} {message}")
            if refused := [i for i, core in zip(given, cores) if i in nones and core]:
                raise ValueError(f"vectorize: None has no core axes, got it at positions {refused} {message}")
            cores = [core for i, core in zip(given, cores) if i not in nones]
        sizes: dict[str, int] = {}
        for i, (x, core) in enumerate(zip(values, cores)):
            _core_sizes(x.shape, core, sizes, f"input {i}")
        batches = [tuple(x.shape[:x.ndim - len(core)]) for x, core in zip(values, cores)]
        if len({len(own) for own in batches if own}) > 1:
            check_rank_promotion("vectorize", values)
        batch = lax.broadcast_shapes(*batches) if batches else ()
        rank = len(batch)
        squeezed, axes_of = [], []
        for x, own in zip(values, batches):
            lead = rank - len(own)
            unit = tuple(d for d, n in enumerate(own) if n == 1)
            squeezed.append(squeeze(x, unit) if unit else x)
            axes_of.append([d + lead for d, n in enumerate(own) if n != 1])
        checked = _checked(call, outputs, sizes) if outputs is not None else call
        mapped_dims = [d for d in range(rank) if any(d in axes for axes in axes_of)]
        for d in reversed(mapped_dims):
            in_axes = tuple(0 if d in axes else None for axes in axes_of)
            checked = vmap(checked, in_axes=in_axes)
        out = checked(*squeezed)
        missing = tuple(d for d in range(rank) if d not in mapped_dims)
        if not missing:
            return out
        if isinstance(out, tuple):
            return tuple(expand_dims(x, missing) for x in out)
        return expand_dims(out, missing)

    return wrapped


def _checked(function, outputs, sizes):
    def inner(*args):
        out = function(*args)
        results = out if isinstance(out, tuple) else (out,)
        if len(outputs) > 1 and not isinstance(out, tuple):
            raise TypeError(
                f"output must be a tuple of {len(outputs)} arrays, got {type(out).__name__}")
        if len(results) != len(outputs):
            raise TypeError(f"wrong number of output arguments: expected {len(outputs)}, got"
                            f" {len(results)}")
        known = dict(sizes)
        for i, (x, core) in enumerate(zip(results, outputs)):
            shape = tuple(np.shape(x))
            if len(shape) != len(core):
                raise ValueError(
                    f"output {i} has shape {shape}, which does not fit core dimensions {core}")
            _core_sizes(shape, core, known, f"output {i}")
        return out

    return inner


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any,
) -> Array:
    """Maps a function of 1-d arrays over the slices along an axis, whose place results take.

    Args: func1d: the function; axis: the axis; arr: array of rank 1 or more; args, kwargs: further
    arguments of the function. Raises: ValueError for an axis out of bounds.

    >>> jnp.apply_along_axis(jnp.sum, 1, jnp.array([[1, 2], [3, 4]]))
    Array([3, 7], dtype=int32)
    """
    arr = ensure_array(arr, "apply_along_axis")
    axis = normalize_axis(axis, arr.ndim)

    def function(row):
        return func1d(row, *args, **kwargs)

    # Axes after `axis` are mapped at the end of input and output, the last of them outermost; those
    # before at 0.
    for _ in range(arr.ndim - axis - 1):
        function = vmap(function, in_axes=-1, out_axes=-1)
    for _ in range(axis):
        function = vmap(function, in_axes=0, out_axes=0)
    return function(arr)


def apply_over_axes(func: Callable[..., Any], a: ArrayLike, axes: Sequence[int]) -> Array:
    """Calls `func(a, axis)` for each axis in turn, keeping reduced axes with size 1.

    Args: func: of an array and an axis; a: array; axes: the axes. Raises: ValueError where the
    function does not keep the rank or lower it by one.

    >>> jnp.apply_over_axes(jnp.sum, jnp.ones((2, 3, 4)), [0, 2])
    Array([[[8.],
            [8.],
            [8.]]], dtype=float32)
    """

    def over(x, axis):
        result = func(x, axis)
        lost = x.ndim - result.ndim
        if lost not in (0, 1):
            raise ValueError(
                f"apply_over_axes: expected a result of rank {x.ndim} or {x.ndim - 1} for axis {axis}, got"
                f" shape {tuple(result.shape)}")
        return expand_dims(result, axis) if lost else result

    return functools.reduce(over, axes, ensure_array(a, "apply_over_axes"))


