"""Numbers of places, in time that grows with how many places and numbers there are and not with their product."""

from __future__ import annotations

import numpy as np

from ferrax._src.core import Array, as_array
from ferrax._src.lax import api as lax


def counted_up_to(places: Array, length: int) -> Array:
    """int32 vector: for each number below ``length``, how many elements of an integer vector are not above it.

    Each place is counted once, at its number, and the counts are summed from the front.
    """
    zero = as_array(np.int32(0))
    first = lax.max(lax.convert_element_type(places, np.int32), zero)
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    counts = lax.scatter_add(
        lax.full((length,), 0, np.int32), lax.expand_dims(first, (1,)), lax.full(first.shape, 1, np.int32), numbers,
        mode="drop",
    )
    return lax.cumsum(counts)
