"""`i0` and `kaiser` beside the reference and SciPy."""

import numpy as np
import pytest
import scipy.special
from conformance_numpy import ALL, Row, row, row_tests
from numpy_oracle import check, expressions

import ferrax
import ferrax.numpy as jnp

REAL = tuple(d for d in ALL if np.dtype(d).kind != "c")
BETAS = [(np.asarray(b),) for b in (0.0, 5.3, np.float16(2), -2.0)]

ROWS = [
    row("i0", lambda S, x: S.jnp.i0(x), (9,), dtypes=REAL, points=[(np.array([-20.0, -7.9, -0.4, 0.01, 3.0, 8.1, 60.0]),)]),
    row("i0 of large values", lambda S, x: S.jnp.i0(x), (2, 3), dtypes=REAL[:3], points=False, low=-80, high=80),
    row("i0 of a number", lambda S, x: S.jnp.i0(x), (), dtypes=REAL, points=False),
    Row("i0 where it overflows", lambda S, x: S.jnp.i0(x), [(np.array([89.0, 700, 710, 1e30], d),) for d in (np.float32, float)]),
    *[Row(f"kaiser {M}", lambda S, beta, M=M: S.jnp.kaiser(M, beta), BETAS, [(np.array(4.5),)] if M > 1 else [], batch=False)
      for M in (0, 1, 2, 7, 12)],
    Row("kaiser of many", lambda S, beta: S.jnp.kaiser(4, beta), [(np.array([0.5, 1, 2, 3]),)], [(np.array([0.5, 1, 2, 3]),)]),
]


test_values, test_batches, test_derivatives = row_tests(ROWS)


EXPRESSIONS = """
i0(1j); i0([1.0]); i0(3); i0(True); i0(n.zeros(0)); kaiser(-1, 2.0); kaiser(3, 1j); kaiser(1, 1j); kaiser(3, [1.0])
kaiser('a', 1.0); kaiser(3.5, 2); kaiser(4, n.arange(3.0)); kaiser(n.array(4), 2)
"""


@pytest.mark.parametrize("text", expressions(EXPRESSIONS))
def test_errors(text):
    code = compile(f"n.{text}", "<case>", "eval")
    check(lambda n: eval(code, {"n": n}))


def test_precision():
    with ferrax.enable_x64(True):
        x = np.concatenate([np.linspace(-60, 60, 1001), [7.9999999, 8, 8.0000001, 1e-8, 600]])
        np.testing.assert_allclose(np.asarray(jnp.i0(x)), scipy.special.i0(x), rtol=4e-15)
        first = ferrax.vmap(ferrax.grad(jnp.i0))
        np.testing.assert_allclose(np.asarray(first(jnp.asarray(x))), scipy.special.i1(x), rtol=1e-14)
        second = ferrax.vmap(ferrax.grad(ferrax.grad(jnp.i0)))(jnp.asarray(x))
        wanted = (scipy.special.i0(x) + scipy.special.iv(2, x)) / 2
        np.testing.assert_allclose(np.asarray(second), wanted, rtol=1e-14)


def test_derivatives_at_zero():
    """The second one is 1/2; the reference has 0 there, as it multiplies with a sign."""
    with ferrax.enable_x64(True):
        first = ferrax.grad(jnp.i0)
        assert float(first(0.0)) == 0.0
        np.testing.assert_allclose(float(ferrax.grad(first)(0.0)), 0.5, rtol=1e-14)
        np.testing.assert_allclose(float(ferrax.grad(ferrax.grad(first))(0.0)), 0.0, atol=1e-14)


def test_beta_of_less_precision():
    """It is as precise as the window; the reference divides by a value in float32."""
    with ferrax.enable_x64(True):
        for M in (2, 7, 12):
            for beta in (np.float32(14), np.int32(3)):
                np.testing.assert_allclose(jnp.kaiser(M, beta), np.kaiser(M, float(beta)), rtol=1e-13)


def test_traced_sizes_are_refused():
    with pytest.raises(ferrax.errors.ConcretizationTypeError, match="M argument of jnp.kaiser"):
        ferrax.jit(jnp.kaiser)(3, 1.0)
