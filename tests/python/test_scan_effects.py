"""How often effects in the bodies of scans happen, against JAX: those of constants of the loop
happen once where the loop is linearised, and at each step elsewhere."""

import collections
import contextlib
import io
import re

import numpy as np
import pytest
from oracle import module, same


def own_jvp(S):
    f = S.jax.custom_jvp(lambda x: S.jnp.sin(x))

    def rule(primals, tangents):
        S.jax.debug.print("rule {}", primals[0])
        S.jax.debug.print("in a rule")
        return S.jnp.sin(primals[0]), S.jnp.cos(primals[0]) * tangents[0]

    f.defjvp(rule)
    return f


def own_vjp(S):
    f = S.jax.custom_vjp(lambda x: S.jnp.sin(x))

    def fwd(x):
        S.jax.debug.print("forward {}", x)
        return S.jnp.sin(x), x

    def bwd(x, ct):
        S.jax.debug.print("residual {}", x)
        S.jax.debug.print("cotangent {}", ct)
        return (S.jnp.cos(x) * ct,)

    f.defvjp(fwd, bwd)
    return f


def printing(S, x, *shown):
    S.jax.debug.print("value {}" if shown else "value", *shown)
    return x


def scan(S, step, x, length=3):
    return S.lax.scan(lambda c, _: (step(c), None), x, None, length=length)[0]


BODIES = {
    "invariant": lambda S, x: scan(S, lambda c: printing(S, c * x, x), x),
    "nothing": lambda S, x: scan(S, lambda c: printing(S, c * x), x),
    "computed": lambda S, x: scan(S, lambda c: printing(S, c * x, S.jnp.sin(x)), x),
    "carry": lambda S, x: scan(S, lambda c: printing(S, c * x, c), x),
    "fori": lambda S, x: S.lax.fori_loop(0, 3, lambda i, c: printing(S, c * x, x), x),
    "handed on": lambda S, x: scan(S, lambda c: (printing(S, c[0] * x, c[1]), c[1]), (x, x))[0],
    "nested": lambda S, x: scan(S, lambda c: scan(S, lambda d: printing(S, d * x, x), c, 2), x, 2),
    "in jit": lambda S, x: scan(S, lambda c: c * S.jax.jit(lambda y: printing(S, y, y))(x), x),
    "no step": lambda S, x: scan(S, lambda c: printing(S, c * x, x), x, 0),
    "own jvp": lambda S, x: scan(S, own_jvp(S), x),
    "own jvp of a constant": lambda S, x: scan(S, lambda c: c * own_jvp(S)(x), x),
    "own vjp": lambda S, x: scan(S, own_vjp(S), x),
    "own vjp of a constant": lambda S, x: scan(S, lambda c: c * own_vjp(S)(x), x),
}
TRANSFORMATIONS = {
    "value": lambda S, f: f,
    "jit": lambda S, f: S.jax.jit(f),
    "grad": lambda S, f: S.jax.grad(f),
    "jit grad": lambda S, f: S.jax.jit(S.jax.grad(f)),
    "jvp": lambda S, f: lambda x: S.jax.jvp(f, (x,), (x,)),
    "grad grad": lambda S, f: S.jax.grad(S.jax.grad(f)),
}


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("body", BODIES)
@same
def test_prints(S, body, transformation):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if transformation == "jvp" and "own vjp" in body:
            return None
        TRANSFORMATIONS[transformation](S, lambda x: BODIES[body](S, x))(S.jnp.float32(0.5))
        S.jax.effects_barrier()
    lines = collections.Counter(re.sub(r"-?\d+\.\d+", "#", out.getvalue()).splitlines())
    return dict(sorted(lines.items()))


@same
def test_callbacks(S):
    calls = []

    def call(x):
        calls.append(0)
        return np.float32(x)

    def f(x):
        def step(c, _):
            shape = S.jax.ShapeDtypeStruct((), np.float32)
            y = module(S, "experimental").io_callback(call, shape, S.lax.stop_gradient(x))
            return c * y, None

        return S.lax.scan(step, x, None, length=3)[0]

    result = S.jax.grad(f)(S.jnp.float32(0.5))
    S.jax.effects_barrier()
    once = len(calls)
    S.jax.jit(f)(S.jnp.float32(0.5))
    S.jax.effects_barrier()
    return result, once, len(calls)
