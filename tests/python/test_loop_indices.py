"""The index of `fori_loop`: its dtype and weak type for bounds of all kinds, against JAX."""

import itertools

import numpy as np
import pytest
from oracle import same

BOUNDS = {
    **{d: lambda S, n, d=d: S.jnp.asarray(n, d) for d in ("int8", "uint8", "int16", "int32", "uint32", "int64", "int4")},
    "number": lambda S, n: n,
    "weak": lambda S, n: S.jnp.asarray(n),
    "numpy int64": lambda S, n: np.int64(n),
    "numpy int8": lambda S, n: np.int8(n),
    "bool": lambda S, n: bool(n),
    "float": lambda S, n: float(n),
}  # fmt: skip
MODES = ("eager", "jit", "lower", "upper")


@pytest.mark.parametrize("lower, upper", list(itertools.product(BOUNDS, BOUNDS)))
@same
def test_dtype(S, lower, upper):
    lower, upper = BOUNDS[lower](S, 0), BOUNDS[upper](S, 3)
    results = {}
    for mode in MODES:
        seen = []

        def loop(lower, upper, seen=seen):
            return S.lax.fori_loop(lower, upper, lambda i, c: seen.append(i) or c + 1, 0)

        if mode == "eager":
            count = loop(lower, upper)
        elif mode == "jit":
            count = S.jax.jit(loop)(lower, upper)
        elif mode == "lower":
            count = S.jax.jit(lambda a, loop=loop: loop(a, upper))(lower)
        else:
            count = S.jax.jit(lambda b, loop=loop: loop(lower, b))(upper)
        results[mode] = count, str(seen[-1].dtype), bool(seen[-1].weak_type)
    return results
