"""``Array.at``: updated copies of arrays. How they are computed is in ``update.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrax import _core
from ferrax._core import Array
from ferrax._src.base.public import bound_methods
from ferrax._src.base.traceback_util import bounded, leave
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax.creation import full_like
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.numpy.index_parse import parse, reject_large_integers
from ferrax._src.numpy.indexing import static_getitem
from ferrax._src.numpy.ufuncs import power
from ferrax._src.numpy.update import apply_at, update


class IndexUpdateHelper:
    """``x.at[index]`` names elements of ``x``; methods return an updated copy.

    ``.set(v)  .add(v)  .subtract(v)  .multiply(v)  .divide(v)  .power(v)  .min(v)  .max(v)
    .apply(f)  .get()`` — with ``mode`` ("drop", "fill", "clip", "promise_in_bounds"),
    ``indices_are_sorted``, ``unique_indices`` and ``wrap_negative_indices`` as options.

    >>> jnp.zeros(3).at[1].set(5.0)
    Array([0., 5., 0.], dtype=float32)
    """

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> IndexUpdateRef:
        return IndexUpdateRef(self.array, index)

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self.array!r})"


class IndexUpdateRef:
    """Elements of an array that an update names; see ``Array.at``."""

    __slots__ = ("array", "index")

    def __init__(self, array: Array, index: Any) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    @bounded
    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        fill_value: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index]``; mode "fill" yields ``fill_value`` (default NaN, or the integer type's
        extreme) out of bounds.

        >>> jnp.arange(3.0).at[5].get(mode="fill", fill_value=-1)
        Array(-1., dtype=float32)
        """
        try:
            if out_sharding is not None:
                return with_out_sharding(
                    "at[].get", out_sharding, self.get, indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices, mode=mode, fill_value=fill_value,
                    wrap_negative_indices=wrap_negative_indices,
                )  # fmt: skip
            reject_large_integers(self.index)
            x = self.array
            return static_getitem(
                x,
                parse(x.shape, self.index),
                mode=mode,
                fill_value=fill_value,
                unique_indices=unique_indices,
                indices_are_sorted=indices_are_sorted,
                wrap=wrap_negative_indices,
            )
        except Exception:
            leave()
            raise

    @bounded
    def set(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index] = values``. Where indices repeat, which value stays is unspecified."""
        try:
            if out_sharding is not None:
                return with_out_sharding(
                    "at[].set", out_sharding, self.set, values, indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices,
                )  # fmt: skip
            return update(
                "scatter", self.array, self.index, values, indices_are_sorted, unique_indices, mode,
                wrap_negative_indices,
            )  # fmt: skip
        except Exception:
            leave()
            raise

    @bounded
    def add(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index] += values``, once for each time that an index occurs."""
        try:
            if out_sharding is not None:
                return with_out_sharding(
                    "at[].add", out_sharding, self.add, values, indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices,
                )  # fmt: skip
            return update(
                "scatter_add", self.array, self.index, values, indices_are_sorted, unique_indices,
                mode, wrap_negative_indices,
            )  # fmt: skip
        except Exception:
            leave()
            raise

    @bounded
    def subtract(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index] -= values``, once for each time that an index occurs."""
        try:
            if out_sharding is not None:
                return with_out_sharding(
                    "at[].subtract", out_sharding, self.subtract, values, indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices,
                )  # fmt: skip
            return update(
                "scatter_sub", self.array, self.index, values, indices_are_sorted, unique_indices,
                mode, wrap_negative_indices,
            )  # fmt: skip
        except Exception:
            leave()
            raise

    @bounded
    def multiply(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index] *= values``, once for each time that an index occurs.

        Its derivative needs ``unique_indices=True`` (or an index without arrays).
        """
        try:
            if out_sharding is not None:
                return with_out_sharding(
                    "at[].multiply", out_sharding, self.multiply, values, indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices,
                )  # fmt: skip
            return update(
                "scatter_mul", self.array, self.index, values, indices_are_sorted, unique_indices,
                mode, wrap_negative_indices,
            )  # fmt: skip
        except Exception:
            leave()
            raise

    mul = multiply

    @bounded
    def divide(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index] /= values``, once for each time that an index occurs; integers become
        floating."""
        try:
            if out_sharding is not None:
                return with_out_sharding(
                    "at[].divide", out_sharding, self.divide, values, indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices,
                )  # fmt: skip
            divisor = update(
                "scatter_mul", full_like(self.array, 1), self.index, values, indices_are_sorted,
                unique_indices, mode, wrap_negative_indices,
            )  # fmt: skip
            return _core.ufuncs.true_divide(self.array, divisor)
        except Exception:
            leave()
            raise

    @bounded
    def power(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index] **= values``, once for each time that an index occurs."""
        try:
            if out_sharding is not None:
                return with_out_sharding(
                    "at[].power", out_sharding, self.power, values, indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices,
                )  # fmt: skip
            exponent = update(
                "scatter_mul", full_like(self.array, 1), self.index, values, indices_are_sorted,
                unique_indices, mode, wrap_negative_indices,
            )  # fmt: skip
            return power(self.array, exponent)
        except Exception:
            leave()
            raise

    @bounded
    def min(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index] = minimum(x[index], values)``."""
        try:
            if out_sharding is not None:
                return with_out_sharding(
                    "at[].min", out_sharding, self.min, values, indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices,
                )  # fmt: skip
            return update(
                "scatter_min", self.array, self.index, values, indices_are_sorted, unique_indices,
                mode, wrap_negative_indices,
            )  # fmt: skip
        except Exception:
            leave()
            raise

    @bounded
    def max(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index] = maximum(x[index], values)``."""
        try:
            if out_sharding is not None:
                return with_out_sharding(
                    "at[].max", out_sharding, self.max, values, indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices,
                )  # fmt: skip
            return update(
                "scatter_max", self.array, self.index, values, indices_are_sorted, unique_indices,
                mode, wrap_negative_indices,
            )  # fmt: skip
        except Exception:
            leave()
            raise

    def apply(
        self,
        func: Callable[[Array], Array],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index] = func(x[index])`` for an elementwise function, applied once for each time
        that an index occurs."""
        return apply_at(
            self.array, self.index, func, indices_are_sorted, unique_indices, mode,
            wrap_negative_indices,
        )  # fmt: skip


def install(array_class: Any) -> None:
    """Gives the array class ``.at``."""
    array_class.at = property(IndexUpdateHelper, doc=IndexUpdateHelper.__doc__)
    bound_methods(IndexUpdateRef)
