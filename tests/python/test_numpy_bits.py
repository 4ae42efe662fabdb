"""`packbits` and `unpackbits` beside the reference."""

import numpy as np
import pytest
from conformance_numpy import INTS, Row, check_batches, check_values, parametrise
from numpy_oracle import check, expressions

import ferrax.numpy as jnp

BITS = np.random.default_rng(0).integers(-1, 2, (3, 19, 2))
BYTES = np.random.default_rng(1).integers(0, 256, (2, 3), np.uint8)

ROWS = [
    *[Row(f"packbits {axis} {order}", lambda S, x, axis=axis, order=order: S.jnp.packbits(x, axis, order),
          [(BITS.astype(d),) for d in (*INTS, np.bool_)])
      for axis in (None, 0, 1, -1) for order in ("big", "little")],
    Row("packbits of few", lambda S, x: S.jnp.packbits(x, 0), [(np.ones(n, bool),) for n in (1, 8, 9)]),
    Row("packbits of nothing", lambda S, x: S.jnp.packbits(x, 0), [(np.zeros((0, 2), bool),), (np.zeros((3, 0), bool),)], batch=False),
    *[Row(f"unpackbits {axis} {order} {count}", lambda S, x, axis=axis, order=order, count=count: S.jnp.unpackbits(
          x, axis, count, order), [(BYTES,)])
      for axis, order, count in ((None, "big", None), (0, "big", None), (1, "little", None), (-1, "little", 5), (0, "big", 40),
                                 (None, "big", -3), (1, "big", 0), (1, "big", -50))],
    Row("unpackbits of nothing", lambda S, x: S.jnp.unpackbits(x), [(np.zeros(0, np.uint8),)], batch=False),
]


@parametrise(ROWS)
def test_values(row):
    check_values(row)


@parametrise([r for r in ROWS if r.batch])
def test_batches(row):
    check_batches(row)


EXPRESSIONS = """
packbits(n.ones(3)); packbits([1, 0]); packbits(i, bitorder='middle'); packbits(i, axis=1); packbits(1); packbits(True)
packbits(n.ones(3, complex)); unpackbits(i); unpackbits([1]); unpackbits(u, bitorder='middle'); unpackbits(u, axis=2)
unpackbits(n.uint8(3)); unpackbits(u, count=1.5); unpackbits(u > 0)
"""


@pytest.mark.parametrize("text", expressions(EXPRESSIONS))
def test_errors(text):
    code = compile(f"n.{text}", "<case>", "eval")
    check(lambda n: eval(code, {"n": n, "i": n.arange(9), "u": n.arange(3).astype("uint8")}))


@pytest.mark.parametrize("order", ["big", "little"])
def test_unpacking_undoes_packing(order):
    bits = jnp.asarray(BITS != 0)
    again = jnp.unpackbits(jnp.packbits(bits, 1, order), 1, BITS.shape[1], order)
    np.testing.assert_array_equal(np.asarray(again), np.asarray(bits))
    np.testing.assert_array_equal(np.asarray(jnp.packbits(bits, 1, order)), np.packbits(BITS != 0, 1, order))
