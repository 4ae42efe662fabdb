"""Numbers of places, in time that grows with how many places and numbers there are and not with their product."""

from __future__ import annotations

import numpy as np

from ferrax._src.core import Array, as_array
from ferrax._src.lax import api as lax


def counted_up_to(places: Array, length: int) -> Array:
    """int32 vector: for each number below ``length``, how many elements of an integer vector are not above it.

    Each place is counted once, at its number, those beyond all together, and the counts are summed from the front.
    """
    first, beyond = as_array(np.int32(0)), as_array(np.int32(length))
    places = lax.clamp(first, lax.convert_element_type(places, np.int32), beyond)
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    none, ones = lax.full((length + 1,), 0, np.int32), lax.full(places.shape, 1, np.int32)
    counts = lax.scatter_add(none, lax.expand_dims(places, (1,)), ones, numbers, mode="promise_in_bounds")
    return lax.slice_in_dim(lax.cumsum(counts), 0, length)
