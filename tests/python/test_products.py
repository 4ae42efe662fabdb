"""Products whose terms have no order, to the bit: of integers, and of whole numbers over axes that lie anywhere."""

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import lax

rng = np.random.default_rng(4)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32])
@pytest.mark.parametrize("sizes", [(3, 5, 1100), (40, 7, 513), (2, 300, 512), (40, 600, 530)], ids=str)
def test_integers_of_many_columns(sizes, dtype):
    """As NumPy multiplies them, which wrap."""
    rows, terms, columns = sizes
    a, b = (rng.integers(0, 120, shape).astype(dtype) for shape in ((rows, terms), (terms, columns)))
    got = np.asarray(jnp.matmul(a, b))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.matmul(a, b))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
@pytest.mark.parametrize("sizes", [(900, 300, 70), (47, 515, 600), (130, 257, 1100), (23, 700, 530), (800, 600, 33)], ids=str)
def test_register_blocks(sizes, dtype):
    """More rows, terms and columns than are packed at once, edges of all kinds, turned operands: small whole numbers are exact."""
    rows, terms, columns = sizes
    a, b = (rng.integers(0, 9, shape).astype(dtype) for shape in ((rows, terms), (terms, columns)))
    expected = (a.astype(np.int64) @ b.astype(np.int64)).astype(dtype)
    turned = {
        "as they are": (jnp.matmul, a, b), "left": (lambda x, y: x.T @ y, a.T.copy(), b),
        "right": (lambda x, y: x @ y.T, a, b.T.copy()), "both": (lambda x, y: x.T @ y.T, a.T.copy(), b.T.copy()),
    }  # fmt: skip
    with ferrax.enable_x64(dtype == np.float64):
        for name, (function, left, right) in turned.items():
            got = np.asarray(ferrax.jit(function)(left, right))
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, expected, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layers_by_rows(dtype):
    """Their right operands are packed once for all rows: those of a batch apart, of more terms than a block has."""
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((3, 700, 300), (3, 300, 601)))
    layer = ferrax.jit(lambda a, b, c: jnp.maximum(a @ b + c, 0) * 2)
    with ferrax.enable_x64(dtype == np.float64):
        for count in (1, 3):
            expected = np.maximum(a[:count] @ b[:count] + 1.5, 0) * 2
            got = np.asarray(layer(a[:count], b[:count], dtype(1.5)))
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, expected)


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
