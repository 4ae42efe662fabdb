"""Objects that are used with brackets: ``index_exp``, ``s_``, ``r_``, ``c_``."""

from __future__ import annotations

from ferrax._src.lax.shape import expand_dims
from ferrax._src.numpy.array_creation import arange, asarray, linspace
from ferrax._src.numpy.joining import atleast_1d, concatenate

__all__ = ["c_", "index_exp", "r_", "s_"]


class _IndexExpression:
    """``index_exp[...]`` is the index itself, as a tuple; ``s_[...]`` as it is.

    >>> jnp.index_exp[1:3], jnp.s_[1:3]
    ((slice(1, 3, None),), slice(1, 3, None))
    """

    __slots__ = ("_always_tuple",)

    def __init__(self, always_tuple: bool):
        self._always_tuple = always_tuple

    def __getitem__(self, item):
        if self._always_tuple and not isinstance(item, tuple):
            return (item,)
        return item


class _Concatenator:
    """``r_[a, 1:5, 0:1:3j]`` joins arrays, ranges and, with an imaginary step, even spacings.

    A first entry ``"axis,ndmin,position"`` chooses the axis to join along, the least number of
    axes, and where the original axes go when axes are added; ``"r"`` and ``"c"`` make the result a
    row or column of two axes.

    >>> jnp.r_[0, 1:3, 0:1:3j]
    Array([0. , 1. , 2. , 0. , 0.5, 1. ], dtype=float32)
    >>> jnp.c_[jnp.array([1, 2]), jnp.array([3, 4])]
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """

    __slots__ = ("_axis", "_ndmin", "_name", "_position")

    def __init__(self, name: str, axis: int, ndmin: int, position: int):
        self._name = name
        self._axis = axis
        self._ndmin = ndmin
        self._position = position

    def __getitem__(self, key):
        items = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, position = self._axis, self._ndmin, self._position
        orientation = ""
        if items and isinstance(items[0], str):
            directive = items.pop(0)
            if directive in ("r", "c"):
                orientation = directive
            else:
                axis, ndmin, position = self._parse(directive)
        arrays = []
        for item in items:
            if isinstance(item, str):
                raise ValueError(f"the directive {item!r} has to come first")
            array = self._range(item) if isinstance(item, slice) else asarray(item)
            arrays.append(_raise_rank(array, ndmin, position))
        result = concatenate([atleast_1d(array) for array in arrays], axis=axis)
        if orientation and result.ndim == 1:
            result = result[None, :] if orientation == "r" else result[:, None]
        return result

    def _parse(self, directive: str) -> tuple[int, int, int]:
        parts = directive.split(",")
        try:
            numbers = [int(part) for part in parts]
        except ValueError:
            numbers = []
        if not 1 <= len(numbers) <= 3:
            raise ValueError(f"could not understand directive {directive!r}")
        defaults = [self._axis, self._ndmin, self._position]
        axis, ndmin, position = [*numbers, *defaults[len(numbers) :]]
        return axis, ndmin, position

    @staticmethod
    def _range(item: slice):
        start = 0 if item.start is None else item.start
        if isinstance(item.step, complex):
            return linspace(start, item.stop, int(abs(item.step)))
        return arange(start, item.stop, 1 if item.step is None else item.step)

    def __len__(self) -> int:
        return 0


def _raise_rank(array, ndmin: int, position: int):
    """Adds axes up to ``ndmin``; the array's own begin at ``position`` (-1: they come last)."""
    missing = ndmin - array.ndim
    if missing <= 0:
        return array
    first = position + missing + 1 if position < 0 else position
    first = max(0, min(first, missing))
    new = [*range(first), *range(first + array.ndim, ndmin)]
    return expand_dims(array, tuple(new))


index_exp = _IndexExpression(True)
s_ = _IndexExpression(False)
r_ = _Concatenator("r_", 0, 1, -1)
c_ = _Concatenator("c_", -1, 2, 0)
