"""Weak types of derivatives with respect to Python numbers and weak arrays, against JAX."""

import numpy as np
import pytest
from oracle import same

FUNCTIONS = {
    "strong elements": lambda S, x: S.lax.scan(lambda c, a: (c + a * 2, a), x, S.jnp.arange(3.0))[0],
    "weak body": lambda S, x: S.lax.scan(lambda c, _: (c * 2, None), x, None, length=3)[0],
    "strong factors": lambda S, x: S.lax.scan(lambda c, a: (c * a, None), x, S.jnp.arange(1.0, 4.0))[0],
    "captured": lambda S, x: S.lax.scan(lambda c, a: (c + a * x, None), 0.0, S.jnp.arange(3.0))[0],
    "map": lambda S, x: S.lax.map(lambda a: a * x, S.jnp.arange(3.0)).sum(),
    "index": lambda S, x: S.lax.fori_loop(0, 3, lambda i, c: c * x + i, x),
    "cond": lambda S, x: S.lax.cond(x > 0, lambda y: y * 2, lambda y: y * S.jnp.float32(3), x),
    "in jit": lambda S, x: S.jax.jit(lambda x: S.lax.scan(lambda c, a: (c + a, None), x, S.jnp.arange(3.0))[0])(x),
    "mixed sums": lambda S, x: x * 2 + S.lax.scan(lambda c, a: (c + a, None), x, S.jnp.arange(3.0))[0],
    "converted": lambda S, x: S.lax.scan(lambda c, a: (c + a, None), x * S.jnp.float32(2), S.jnp.arange(3.0))[0],
}  # fmt: skip
POINTS = {
    "number": lambda S: 0.5,
    "weak": lambda S: S.jnp.asarray(0.5),
    "strong": lambda S: S.jnp.float32(0.5),
    "vector": lambda S: S.jnp.full((2,), 0.5),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", FUNCTIONS)
@same
def test_reverse(S, name, point):
    def f(x):
        return FUNCTIONS[name](S, x).sum()

    if name == "cond" and point == "vector":
        return None
    x = POINTS[point](S)
    return S.jax.grad(f)(x), S.jax.jit(S.jax.grad(f))(x), S.jax.jacrev(f)(x), S.jax.jacfwd(f)(x)


@pytest.mark.parametrize("name", ["strong elements", "strong factors", "captured"])
@same
def test_pullbacks(S, name):
    y, pull = S.jax.vjp(lambda x: FUNCTIONS[name](S, x), 0.5)
    return y, pull(S.jnp.ones_like(y))


@pytest.mark.parametrize("function", ["real", "imag"])
@same
def test_parts_of_complex_numbers(S, function):
    f = lambda z: getattr(S.jnp, function)(z * z)  # noqa: E731
    return S.jax.grad(f)(0.5 + 1j), S.jax.grad(f)(S.jnp.complex64(0.5 + 1j)), S.jax.jit(S.jax.grad(f))(0.5 + 1j)


@same
def test_jacobians_of_integer_outputs(S):
    def f(x):
        return S.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, x))

    return S.jax.jacfwd(f)(0.5), S.jax.jacfwd(f)(np.float32(0.5)), S.jax.jacfwd(f)(S.jnp.ones(2))
