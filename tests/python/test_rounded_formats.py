"""Elements of floats of eight and fewer bits are those of their format, also where a program never stores them."""

import ml_dtypes
import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp

FORMATS = [name for name in dir(ml_dtypes) if name.startswith("float") and hasattr(jnp, name) and "float6" not in name]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("size", [8, 70_000])  # on one thread and on several
def test_conversions_there_and_back(name, size):
    narrow = getattr(ml_dtypes, name)
    for dtype in (np.float32, np.uint8, np.float16):
        x = np.resize(np.array([1, 5, 6, 7, 8, 12, 16, 22], dtype) * dtype(1), size)
        wanted = np.asarray(jnp.asarray(x).astype(narrow))

        def there_and_back(x, dtype=dtype):
            y = x.astype(narrow)
            return y.astype(dtype), (y.astype(np.float32) + 1, y)

        def back(x, dtype=dtype):
            return x.astype(narrow).astype(dtype)

        with np.errstate(all="ignore"):
            expected = wanted.astype(np.float32).astype(dtype)
        if dtype == np.uint8 and not np.isfinite(wanted.astype(np.float32)).all():
            continue  # infinity and NaN have no whole numbers
        np.testing.assert_array_equal(ferrax.jit(back)(x), expected)
        first, (second, third) = ferrax.jit(there_and_back)(x)
        np.testing.assert_array_equal(first, expected)
        np.testing.assert_array_equal(second, wanted.astype(np.float32) + 1)
        np.testing.assert_array_equal(np.asarray(third).astype(np.float32), wanted.astype(np.float32))
        rows = ferrax.jit(lambda x, back=back: back(x).reshape(8, -1).astype(np.float32).sum(1))(x)
        np.testing.assert_array_equal(rows, expected.reshape(8, -1).astype(np.float32).sum(1))
