"""`convolve` and `correlate` beside the reference, in all branches: few and many products, few and many sums."""

import numpy as np
import pytest
from conformance_numpy import ALL, Row, row, row_tests
from numpy_oracle import check, expressions

import ferrax.numpy as jnp

SOME = (np.float32, np.float64, np.complex64, np.int32)


def sums(name, n, m, mode, dtypes=SOME, **options):
    return row(f"{name} {n} {m} {mode}", lambda S, x, y: getattr(S.jnp, name)(x, y, mode), (n,), (m,),
               dtypes=dtypes, special=False, **options)


# JAX multiplies complex numbers of single precision in that, whatever the sums are; ferrax in double.
IN_SINGLE = 16 * 2.0**29

ROWS = [
    *[sums(name, n, m, mode, ALL if n == 7 else SOME, points=n in (3, 7)) for name in ("convolve", "correlate")
      for n, m in ((7, 3), (3, 7), (5, 4), (4, 4), (1, 1), (6, 1)) for mode in ("full", "same", "valid")],
    # More elements than are written out, with and without a rest; few and many sums.
    *[sums("convolve", n, m, mode) for n, m in ((40, 32), (37, 35), (60, 23)) for mode in ("full", "same", "valid")],
    *[sums("correlate", n, m, mode) for n, m in ((20, 55), (33, 33)) for mode in ("full", "valid")],
    *[row(f"{name} of {dtype} in {preferred}", lambda S, x, y, name=name, preferred=preferred: getattr(S.jnp, name)(
          x, y, "full", preferred_element_type=preferred), (7,), (3,), dtypes=(dtype,), points=False,
          ulps=IN_SINGLE if preferred == "complex128" else None)
      for name in ("convolve", "correlate")
      for dtype, preferred in (("int8", "int8"), ("int8", "int32"), ("int8", "float32"), ("uint8", "int32"), ("bool", "bool"),
                               ("bool", "int32"), ("float16", "float32"), ("float32", "float64"), ("complex64", "complex128"))],
    Row("convolve of several dtypes", lambda S, x, y: S.jnp.convolve(x, y), [
        (np.arange(4).astype(a), np.arange(3).astype(b)) for a, b in (
            ("int8", "float16"), ("int32", "float32"), ("float32", "complex64"), ("bool", "int8"), ("float16", "float32"))]),
]


test_values, test_batches, test_derivatives = row_tests(ROWS)


EXPRESSIONS = """
convolve(v, [1.0]); convolve(v, 1.0); convolve(v[None], v); convolve(v, v[:0]); convolve(v[:0], v); convolve(v, v, 'most')
convolve(v, v, precision='bad'); convolve(v, v, preferred_element_type='int32'); convolve(v, v, precision=('high', 'high'))
convolve(v, v, preferred_element_type='float16'); convolve(v, v, preferred_element_type='complex64')
convolve(i, i, preferred_element_type='int16'); convolve(i, i, preferred_element_type='uint32')
convolve(v * 1j, v, preferred_element_type='float32'); convolve(v, v, preferred_element_type='nothing'); correlate(v, v[:0])
correlate(v[None], v); correlate(v, v, 'most'); correlate([1.0], v); correlate(2, 3); convolve(v, v, mode=None)
convolve(v, i); convolve(i, i > 1); correlate(i, i, 'same'); convolve(v, special); convolve(special, v, 'same')
correlate(special, v, 'full'); correlate(v[:2], special, 'full')
"""


@pytest.mark.parametrize("text", expressions(EXPRESSIONS))
def test_errors_and_special_values(text):
    code = compile(f"n.{text}", "<case>", "eval")
    special = np.array([1.0, np.inf, 2.0, -np.inf, np.nan, 0.0, 3.0, 4.0], np.float32)
    check(lambda n: eval(code, {"n": n, "v": n.arange(3.0), "i": n.arange(3), "special": n.asarray(special)}))


@pytest.mark.parametrize("m", [3, 20, 40])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_special_values_stay_where_they_are(m, mode):
    """As NumPy's sums, of which only those with the element are affected; loops do not spread it."""
    x, y = np.ones(50, np.float32), np.full(m, 2, np.float32)
    x[25] = np.inf
    np.testing.assert_array_equal(np.asarray(jnp.convolve(jnp.asarray(x), jnp.asarray(y), mode)), np.convolve(x, y, mode))


def test_half_precision_accumulates_wider():
    ones = jnp.ones(4096, jnp.bfloat16)
    out = jnp.convolve(ones, ones, "valid")
    assert float(out[0]) == 4096.0 and out.dtype == jnp.bfloat16
