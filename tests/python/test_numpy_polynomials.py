"""Sums, products, quotients, derivatives and integrals of polynomials beside the reference."""

import numpy as np
import pytest
from conformance_numpy import ALL, COMPLEX, FLOATS, Row, row, row_tests
from numpy_oracle import check, expressions

import ferrax
import ferrax.numpy as jnp

INEXACT = (*FLOATS, *COMPLEX)
NUMBERS = ALL[:-1]


def function(name, *shapes, dtypes=ALL, label="", **keywords):
    return row(f"{name} {shapes}{keywords or ''}{label}", lambda S, *xs: getattr(S.jnp, name)(*xs, **keywords), *shapes,
               dtypes=dtypes, special=False)


def division(n, m):
    """The first coefficient of the divisor is not small."""
    rng = np.random.default_rng(n + m)
    u, v = rng.uniform(-3, 3, n), np.append(rng.uniform(1, 2, 1), rng.uniform(-1, 1, m - 1))
    cases = [(u.astype(d), v.astype(d)) for d in (np.float32, np.float64, np.float16, np.complex64)]
    return Row(f"polydiv {n} {m}", lambda S, u, v: S.jnp.polydiv(u, v), [*cases, (np.arange(n), np.arange(m) + 1)],
               [(u, v), (u * 1j, v + 0.5j)])


ROWS = [
    *[function(name, *shapes, dtypes=NUMBERS) for name in ("polyadd", "polysub")
      for shapes in (((4,), (2,)), ((2,), (4,)), ((3, 2), (2, 2)), ((2, 3), (1, 1)), ((0,), (0,)))],
    *[function("polyder", (5,), m=m) for m in (0, 1, 2, 5, 7)], function("polyder", (0,)), function("polyder", (1,)),
    *[function("polyint", (4,), m=m) for m in (0, 1, 3)], function("polyint", (0,)), function("polyint", (0,), m=2),
    row("polyint of a constant", lambda S, p, k: S.jnp.polyint(p, 2, k), (3,), (), special=False, dtypes=INEXACT),
    row("polyint of constants", lambda S, p, k: S.jnp.polyint(p, 2, k), (3,), (2,), special=False),
    row("polyint of one constant", lambda S, p, k: S.jnp.polyint(p, 3, k), (3,), (1,), special=False),
    function("polymul", (4,), (2,)), function("polymul", (2,), (4,)), function("polymul", (0,), (3,)), function("polymul", (0,), (0,)),
    *[division(*sizes) for sizes in ((5, 3), (3, 3), (2, 4), (6, 1), (9, 4))],
    function("poly", (4,)), function("poly", (1,)), function("poly", ()), function("poly", (0,)),
]


test_values, test_batches, test_derivatives = row_tests(ROWS)


EXPRESSIONS = """
polyadd(m, v); polyadd(v, m); polyadd(1, v); polyadd([1], v); polyadd(b, b); polyadd(m[:, :1], m); polyadd(i, v); polyadd(i, s)
polysub(m, v); polysub(1, v); polysub(v, [1]); polysub(b, b); polysub(b[:2], b); polysub(i, s); polysub(u, u[:1] + 1)
polyder(v, -1); polyder(v, 1.5); polyder(2.0); polyder([1]); polyder(b); polyder(s, 2); polyder(i * 1j, 2)
polyint(v, -1); polyint(v, 1.5); polyint(2.0); polyint([1]); polyint(b); polyint(v, 2, i); polyint(v, 2, [1, 2]); polyint(v, 1, m)
polyint(v, 1, 2j); polyint(i, 2, 3); polyint(v, 0, 1); polyint(v, 2, k=n.array([3])); polymul(m, v); polymul(2, v); polymul([2], v)
polymul(b, b); polymul(i, s); polymul(v, v, trim_leading_zeros=True); polymul(v * 0, v, trim_leading_zeros=True)
polymul(v[:1], v[:1], trim_leading_zeros=True); polydiv(2, v); polydiv([2], v); polydiv(i, v[:0]); polydiv(v[:0], i)
polydiv(i, i[:2] + 1, trim_leading_zeros=True); polydiv(i, i + 1, trim_leading_zeros=True); polydiv(b, b[1:]); polydiv(i * 1j, i[:2] + 1)
polydiv(i, v); polydiv(v, s + 1); poly([1]); poly(m); poly(m[:0, :0]); poly(b); poly(2j); poly(m[None]); poly(3)
poly(n.array([n.inf, 1.0, n.nan])); polyder(n.array([n.inf, 1.0])); polymul(v, n.array([n.inf, 1.0]))
"""


@pytest.mark.parametrize("text", expressions(EXPRESSIONS))
def test_keywords_and_errors(text):
    code = compile(f"n.{text}", "<case>", "eval")

    def evaluate(n):
        v = n.array([0.0, 1.0, 0.5])
        scope = {"v": v, "m": n.ones((2, 3)), "i": n.arange(3), "b": v > 0, "s": v.astype("float16"), "u": n.ones(2, "uint8")}
        return eval(code, {"n": n, **scope})

    check(evaluate)


def test_vectors_are_asked_for():
    for call in (lambda m: jnp.polyder(m), lambda m: jnp.polyint(m), lambda m: jnp.polydiv(m, m[0]), lambda m: jnp.polymul(m, m)):
        with pytest.raises(ValueError, match=r"expected a vector of coefficients, got shape \(2, 3\)"):
            call(jnp.ones((2, 3)))


def test_an_empty_summand_is_zero():
    """The reference refuses it, by accident."""
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(np.asarray(jnp.polyadd(x, x[:0])), np.asarray(x))
    np.testing.assert_array_equal(np.asarray(jnp.polysub(x[:0], x)), -np.asarray(x))


def test_traced_values_are_not_trimmed():
    x = jnp.arange(3.0)
    for name in ("polymul", "polydiv"):
        with pytest.raises(ferrax.errors.ConcretizationTypeError):
            ferrax.jit(lambda x, name=name: getattr(jnp, name)(x, x[1:], trim_leading_zeros=True))(x)


def test_division_undoes_multiplication():
    rng = np.random.default_rng(0)
    q, v = (jnp.asarray(rng.uniform(1, 2, n), jnp.float32) for n in (40, 3))
    quotient, remainder = jnp.polydiv(jnp.polymul(q, v), v * jnp.array([4.0, 1.0, 1.0]))
    again = jnp.polyadd(jnp.polymul(quotient, v * jnp.array([4.0, 1.0, 1.0])), remainder)
    np.testing.assert_allclose(np.asarray(again), np.asarray(jnp.polymul(q, v)), rtol=1e-5)
