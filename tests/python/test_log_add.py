"""`logaddexp`, `logaddexp2` and `log1mexp` with their derivatives at finite and infinite points,
against JAX."""

import itertools

import numpy as np
import pytest
from oracle import same

POINTS = (np.inf, -np.inf, np.nan, 1000.0, -1000.0, 0.0, 1.0, -2.0)
# Of a number beside infinity JAX's slope is its exponential, where it is 0; those of large equal numbers are inexact.
PAIRS = [
    (a, b) for a, b in itertools.product(POINTS, POINTS)
    if (np.inf not in (a, b) or a == b) and not (a == b and abs(a) == 1000)
]  # fmt: skip


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16", "complex64"])
@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
@same
def test_derivatives(S, name, dtype):
    f = getattr(S.jnp, name)
    results = []
    for a, b in PAIRS:
        x, y = (a, b) if dtype is None else (S.jnp.asarray(a, dtype), S.jnp.asarray(b, dtype))
        results.append(f(x, y))
        if dtype != "complex64":
            results.append(S.jax.grad(f, (0, 1))(x, y))
        elif abs(a) < 10 and abs(b) < 10:
            results.append(S.jax.grad(f, (0, 1), holomorphic=True)(x, y))
    return results


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
@same
def test_second_derivatives(S, name):
    x, y = (S.jnp.asarray(p, "float32") for p in zip(*PAIRS))
    hessian = S.jax.hessian(getattr(S.jnp, name), (0, 1))
    return S.jax.vmap(hessian)(x, y), S.jax.jit(S.jax.vmap(hessian))(x, y)


@pytest.mark.parametrize("name,power", [("logaddexp", np.exp), ("logaddexp2", np.exp2)])
@pytest.mark.parametrize("size", [1.0, 600.0, 4e5, np.inf])
def test_shares_are_those_of_the_difference(name, power, size):
    """`x - out` has lost the digits of a large `x`, the difference of two has not."""
    import ferrax

    f = getattr(ferrax.numpy, name)
    for below in (0.0, 0.5, 20.0):
        x, y = np.float32(size), np.float32(size - below)
        share = 1.0 if np.isinf(x) else 1 / (1 + power(float(y) - float(x)))
        rest = 1.0 if np.isinf(x) else 1 / (1 + power(float(x) - float(y)))
        np.testing.assert_allclose(ferrax.grad(f, (0, 1))(x, y), [share, rest], rtol=3e-7)
        np.testing.assert_allclose(ferrax.grad(f, (0, 1))(y, x), [rest, share], rtol=3e-7)
    for other in (-3.0, 1000.0, -np.inf):
        for order, expected in (((np.inf, other), [1.0, 0.0]), ((other, np.inf), [0.0, 1.0])):
            assert np.array_equal(ferrax.grad(f, (0, 1))(*order), expected)
            assert not np.any(ferrax.hessian(f, (0, 1))(*order))


@pytest.mark.parametrize("name,power,factor", [("logaddexp", np.exp, 1.0), ("logaddexp2", np.exp2, np.log(2))])
def test_second_derivatives_are_products_of_shares(name, power, factor):
    import ferrax

    for x, y in itertools.product((0.5, 1.0, -2.0, 30.0, -90.0), repeat=2):
        expected = factor / (1 + power(y - x)) / (1 + power(x - y))
        hessian = np.asarray(ferrax.hessian(getattr(ferrax.numpy, name), (0, 1))(np.float32(x), np.float32(y)))
        np.testing.assert_allclose(hessian, [[expected, -expected], [-expected, expected]], rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("reverse", [False, True])
@same(ulps=84, cancels=0.1)
def test_cumlogsumexp_between_equal_elements(S, reverse):
    """Its derivatives go through sums of two, which are smooth where these are equal."""
    x = S.jnp.array([0.1, 0.1, -1.0, -1.0, 0.1])

    def f(x):
        return S.lax.cumlogsumexp(x, reverse=reverse)

    third = S.jax.jacfwd(S.jax.hessian(lambda x: f(x)[2]))
    derivatives = S.jax.jacrev(f), S.jax.jacrev(S.jax.jacfwd(f)), S.jax.hessian(f), third
    return [S.jax.jit(derivative)(x) for derivative in derivatives]


@same
def test_log1mexp(S):
    f = S.jax.nn.log1mexp
    x = S.jnp.array([0.0, 1e-10, -1.0, 0.69, 0.7, 100.0, np.inf, np.nan])
    some = S.jnp.array([0.1, -1.0, 0.0, 3.0])
    return f(0.5), f(x), S.jax.vmap(S.jax.grad(f))(x), S.jax.vmap(S.jax.grad(S.jax.grad(f)))(some)


def test_log1mexp_of_large_numbers_is_flat():
    import ferrax

    assert abs(ferrax.grad(ferrax.grad(ferrax.nn.log1mexp))(100.0)) < 1e-40
