"""`logaddexp`, `logaddexp2` and `log1mexp` with their derivatives at finite and infinite points,
against JAX."""

import itertools

import numpy as np
import pytest
from oracle import same

POINTS = (np.inf, -np.inf, np.nan, 1000.0, -1000.0, 0.0, 1.0, -2.0)


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16", "complex64"])
@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
@same
def test_derivatives(S, name, dtype):
    f = getattr(S.jnp, name)
    results = []
    for a, b in itertools.product(POINTS, POINTS):
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
    x, y = (S.jnp.asarray(p, "float32") for p in zip(*itertools.product(POINTS, POINTS)))
    hessian = S.jax.hessian(getattr(S.jnp, name), (0, 1))
    return S.jax.vmap(hessian)(x, y), S.jax.jit(S.jax.vmap(hessian))(x, y)


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
