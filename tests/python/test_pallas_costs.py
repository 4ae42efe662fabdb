"""`estimate_cost` counts what JAX's does, and loops, branches and kernels besides."""

import jax
import numpy as np
import pytest
from jax.experimental import pallas as jax_pallas

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.experimental import pallas as pl


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda J: lambda q, k, v: J.nn.softmax(q @ k.T) @ v, [(6, 16), (12, 16), (12, 4)]),
        (lambda J: lambda x: J.lax.integer_pow(x, 9) - J.lax.integer_pow(x, 1), [(4,)]),
        (lambda J: lambda x: J.jit(J.numpy.sin)(x) * x.sum() + J.numpy.std(x), [(4, 5)]),
        (lambda J: lambda a, b: J.numpy.einsum("abc,dabc->d", a, b), [(3, 4, 5), (2, 3, 4, 5)]),
        (lambda J: lambda x: J.nn.silu(x) * J.nn.gelu(x) // 2, [(4,)]),
        (lambda J: lambda x: {"a": -J.numpy.floor(x), "b": x > 1}, [(0, 3)]),
    ],
)
def test_as_jax(function, shapes):
    ours, theirs = (
        module.estimate_cost(function(J), *(J.ShapeDtypeStruct(shape, np.float32) for shape in shapes))
        for J, module in ((ferrax, pl), (jax, jax_pallas))
    )
    for name in ("flops", "transcendentals", "bytes_accessed"):
        assert getattr(ours, name) == getattr(theirs, name), name


def sines(x_ref, o_ref):
    o_ref[...] = jnp.sin(x_ref[...]) * 2


@pytest.mark.parametrize(
    ("function", "flops", "transcendentals"),
    [
        (lambda x: lax.scan(lambda c, x: (c + x, jnp.sin(x)), 0.0, x), 8, 8),
        (lambda x: lax.cond(x[0] > 0, jnp.sin, lambda x: x * 2 + 1, x), 16, 8),
        (lambda x: lax.while_loop(lambda x: x[0] > 0, lambda x: x - 1, x), 8, 0),
        (lambda x: lax.integer_pow(x, -3), 32, 0),
        (pl.pallas_call(sines, jnp.ones(8), grid=4, in_specs=[pl.BlockSpec((2,), lambda i: i)],
                        out_specs=pl.BlockSpec((2,), lambda i: i)), 8, 8),
        (pl.pallas_call(sines, jnp.ones(8), cost_estimate=pl.CostEstimate(5, 6, 7)), 5, 6),
    ],
)  # fmt: skip
def test_what_runs_other_programs(function, flops, transcendentals):
    cost = pl.estimate_cost(function, jnp.ones(8))
    assert (cost.flops, cost.transcendentals) == (flops, transcendentals)
