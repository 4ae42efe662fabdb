"""Reductions of many short rows: several rows go side by side, and come to the same as each alone."""

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp

WIDTHS = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33]
ROWS = [1, 7, 8, 9, 61]


def numbers(rows, width, dtype):
    rng = np.random.default_rng(rows * 100 + width)
    if np.dtype(dtype).kind == "f":
        return (rng.standard_normal((rows, width)) * 10.0 ** rng.integers(-3, 4, (rows, width))).astype(dtype)
    return rng.integers(0, 100, (rows, width)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int32", "uint16"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema(name, dtype):
    for rows in ROWS:
        for width in WIDTHS:
            x = numbers(rows, width, dtype)
            np.testing.assert_array_equal(getattr(jnp, name)(x, axis=-1), getattr(np, name)(x, axis=-1))


@pytest.mark.parametrize("name, sign", [("max", 1.0), ("min", -1.0)])
def test_extrema_of_nan_and_zeros(name, sign):
    for width in WIDTHS[1:]:
        x = np.full((61, width), -sign, np.float32)
        places = np.arange(61) % width
        x[np.arange(61), places] = np.nan
        x[::3] = -0.0
        x[::3, -1] = 0.0
        found = np.asarray(getattr(jnp, name)(x, axis=-1))
        nans = np.arange(61) % 3 != 0
        assert np.isnan(found[nans]).all() and not np.isnan(found[~nans]).any()
        assert (found[~nans] == 0).all() and (np.signbit(found[~nans]) == (sign < 0)).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_sums_have_the_bits_of_sums_over_columns(name, dtype):
    for rows in ROWS:
        for width in WIDTHS:
            x = jnp.asarray(numbers(rows, width, "float32")).astype(dtype)
            across = getattr(jnp, name)(x, axis=-1)
            down = getattr(jnp, name)(jnp.asarray(np.ascontiguousarray(np.asarray(x).T)), axis=0)
            assert across.tobytes() == down.tobytes(), (rows, width)
            spread = jnp.asarray(np.concatenate([np.asarray(x)] * 2, axis=1))
            alone = ferrax.jit(lambda x, width=width: getattr(jnp, name)(x[:, :width] * 1, axis=-1))(spread)
            assert across.tobytes() == alone.tobytes(), (rows, width)


def test_values_of_rows_that_are_repeated_along_them():
    for rows in ROWS:
        for width in WIDTHS:
            x, y = numbers(rows, width, "float32"), numbers(rows, 1, "float32")
            np.testing.assert_array_equal(jnp.add(x, y), x + y)
            np.testing.assert_array_equal(jnp.add(x, y.astype("int8")), x + y.astype("int8"))
