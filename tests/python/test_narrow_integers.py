"""Arithmetic of int2, int4, uint2 and uint4 against JAX and against integers that wrap around: all
pairs of values, eagerly and compiled."""

import ml_dtypes
import numpy as np
import pytest
from oracle import FERRAX, JAX, compare

import ferrax
import ferrax.lax
import ferrax.numpy as jnp

DTYPES = {"int2": (-2, 2), "uint2": (0, 4), "int4": (-8, 8), "uint4": (0, 16)}

BINARY = (
    "add", "sub", "mul", "div", "rem", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor",
    "shift_left", "shift_right_logical", "shift_right_arithmetic", "eq", "ne", "lt", "le", "gt",
    "ge",
)  # fmt: skip
UNARY = ("neg", "sign", "bitwise_not", "clz")


def pairs(name):
    values = np.arange(*DTYPES[name])
    return [grid.ravel().astype(getattr(ml_dtypes, name)) for grid in np.meshgrid(values, values)]


def wrapped(name, values):
    low, high = DTYPES[name]
    return (np.asarray(values) - low) % (high - low) + low


def integers(x):
    return np.asarray(x).astype(np.int64)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", DTYPES)
def test_elementwise(name, compiled):
    def everything(S, x, y):
        lax, jnp = S.lax, S.jnp
        out = {op: getattr(lax, op)(x, y) for op in BINARY}
        out |= {op: getattr(lax, op)(x) for op in UNARY}
        out |= {f"to {to}": x.astype(to) for to in ("int8", "uint32", "float32", "bool", "uint2")}
        out |= {f"from {to}": x.astype(to).astype(name) for to in ("int32", "bfloat16", "int4")}
        return out | {
            "square": lax.integer_pow(x, 2),
            "clamp": lax.clamp(x[3], x, x[-2]),
            "where": jnp.where(x > y, x, y + 1),
            "floor": (x // y, x % y),
            "sums": (lax.cumsum(x), lax.reduce_sum(x, (0,)), lax.reduce_max(x, (0,))),
            "several": (x * y + x - y) * (x & y),
            "with others": (x + 1, jnp.arange(16)[abs(x.astype("int8"))]),
            "updates": (x.at[1].set(1), x.at[::2].add(y[0]), x[::-1]),
        }

    results = []
    for S in (FERRAX, JAX):
        x, y = map(S.jnp.asarray, pairs(name))
        # JAX is compiled in any case: that takes less time than each operation alone.
        run = S.jax.jit(everything, static_argnums=0) if compiled or S is JAX else everything
        results.append(run(S, x, y))
    ours, theirs = (
        [(key, leaf.dtype.name, integers(leaf)) for key, value in sorted(out.items())
         for leaf in (value if isinstance(value, tuple) else (value,))]
        for out in results
    )  # fmt: skip
    for (key, dtype, a), (_, expected_dtype, b) in zip(ours, theirs, strict=True):
        assert dtype == expected_dtype, key
        compare(a, b, key)


@pytest.mark.parametrize("name", DTYPES)
def test_against_integers(name):
    x, y = pairs(name)
    a, b = integers(x), integers(y)
    bits = 2 if name.endswith("2") else 4
    for op, expected in {
        "add": a + b,
        "sub": a - b,
        "mul": a * b,
        "bitwise_xor": a ^ b,
        "max": np.maximum(a, b),
    }.items():
        got = ferrax.jit(getattr(ferrax.lax, op))(jnp.asarray(x), jnp.asarray(y))
        np.testing.assert_array_equal(integers(got), wrapped(name, expected), op)
    # JAX counts the bits of the byte that the value is in.
    counts = [bin(value % 2**bits).count("1") for value in a.tolist()]
    got = ferrax.lax.population_count(jnp.asarray(x))
    np.testing.assert_array_equal(integers(got), wrapped(name, counts))
