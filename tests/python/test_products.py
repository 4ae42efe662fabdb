"""Products whose terms have no order, to the bit: of integers, and of whole numbers over axes that lie anywhere."""

import numpy as np
import pytest

import ferrax.numpy as jnp
from ferrax import lax

rng = np.random.default_rng(4)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32])
@pytest.mark.parametrize("sizes", [(3, 5, 1100), (40, 7, 513), (2, 300, 512)], ids=str)
def test_integers_of_many_columns(sizes, dtype):
    """As NumPy multiplies them, which wrap."""
    rows, terms, columns = sizes
    a, b = (rng.integers(0, 120, shape).astype(dtype) for shape in ((rows, terms), (terms, columns)))
    got = np.asarray(jnp.matmul(a, b))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.matmul(a, b))


# Of each operand: where the axes of the sum are.
SUMMED = [
    ("afb,abg->fg", (0, 2), (0, 1)), ("afb,gab->fg", (0, 2), (1, 2)), ("afb,agb->fg", (0, 2), (0, 2)),
    ("abf,abg->fg", (0, 1), (0, 1)), ("fab,bag->fg", (1, 2), (1, 0)), ("afbh,ab->fh", (0, 2), (0, 1)),
    ("fah,ga->fhg", (1,), (1,)), ("fah,gai->fhgi", (1,), (1,)), ("afbc,gacb->fg", (0, 2, 3), (1, 3, 2)),
]  # fmt: skip


@pytest.mark.parametrize("row", SUMMED, ids=lambda row: row[0])
@pytest.mark.parametrize("size", [1, 7])
def test_axes_of_a_sum_lie_anywhere(row, size):
    """Beside each other or with others between them; whole numbers, so that the order of terms is no matter."""
    subscripts, left, right = row
    sizes = {"a": 4, "b": 3, "c": 2, "f": 5 * size, "g": 6, "h": 3, "i": 2}
    x, y = (
        rng.integers(-9, 9, [sizes[name] for name in names]).astype(np.float32)
        for names in subscripts.split("->")[0].split(",")
    )
    expected = np.einsum(subscripts, x, y)
    np.testing.assert_array_equal(np.asarray(lax.dot_general(x, y, ((left, right), ((), ())))), expected)
    np.testing.assert_array_equal(np.asarray(jnp.einsum(subscripts, x, y)), expected)
