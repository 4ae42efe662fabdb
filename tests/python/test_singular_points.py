"""Derivatives to the second order where functions have poles, kinks and infinite slopes."""

import math

import pytest
from oracle import same

POINTS = [0.0, -0.0, 1.0, -1.0, 2.0]
# Elsewhere, -1 and 1 are outside of a domain or on its edge, where JAX gives 0/0 or what depends on
# the order of its operations.
EDGES = {"acosh": [1.0, 2.0], "atanh": [0.0, -0.0, 2.0]}
NAMES = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "digamma", "erf",
    "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "lgamma", "log", "log1p", "logistic", "round", "rsqrt",
    "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@same(ulps=64, cancels=1.0)
def test_unary_ops(s, name):
    def derivatives(x):
        f, slope = getattr(s.lax, name), s.jax.grad(getattr(s.lax, name))
        x = s.jnp.float32(x)
        return f(x), slope(x), s.jax.grad(slope)(x), s.jax.jvp(slope, (x,), (x + 1,))[1]

    return [derivatives(x) for x in EDGES.get(name, POINTS)]


@same
def test_third_derivative_of_the_cube_root(s):
    third = s.jax.grad(s.jax.grad(s.jax.grad(s.jnp.cbrt)))
    return [third(s.jnp.float32(x)) for x in (0.0, 1.0, -8.0, math.inf)]


@same
def test_vmap_and_jit_of_the_cube_root(s):
    second = s.jax.grad(s.jax.grad(s.jnp.cbrt))
    x = s.jnp.array([0.0, -0.0, 8.0])
    return s.jax.vmap(second)(x), s.jax.jit(s.jax.vmap(second))(x)
