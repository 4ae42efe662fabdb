"""Values that are no arrays for tests: classes made for each library, as its own base classes ask for."""

import dataclasses
import functools
import types

import jax._src.hijax as jax_hijax
import numpy as np

from ferrax.experimental import hijax


@functools.cache
def values(s):
    """Types, values and primitives of one library: pairs, whose tangents are pairs, and quantized rows, whose tangents
    are arrays of floats."""
    h = hijax if s.name == "ferrax" else jax_hijax
    aval = lambda shape, dtype: h.ShapedArray(shape, np.dtype(dtype))  # noqa: E731

    @dataclasses.dataclass
    class Pair:
        first: object
        second: object

    @dataclasses.dataclass(frozen=True)
    class PairType(h.HiType):
        first: object
        second: object

        def lo_ty(self):
            return [self.first, self.second]

        def lower_val(self, pair):
            return [pair.first, pair.second]

        def raise_val(self, first, second):
            return Pair(first, second)

        def to_tangent_aval(self):
            return PairType(self.first.to_tangent_aval(), self.second.to_tangent_aval())

        def vspace_zero(self):
            return Pair(self.first.vspace_zero(), self.second.vspace_zero())

        def vspace_add(self, x, y):
            return Pair(x.first + y.first, x.second + y.second)

        def str_short(self, short_dtypes=False, **_):
            return "Pair"

    class Rows:
        def __init__(self, q, scale):
            self.q, self.scale = q, scale

    @dataclasses.dataclass(frozen=True)
    class RowsType(h.HiType):
        size: int

        def lo_ty(self):
            return [aval((self.size,), "int8"), aval((), "float32")]

        def lower_val(self, rows):
            return [rows.q, rows.scale]

        def raise_val(self, q, scale):
            return Rows(q, scale)

        def to_tangent_aval(self):
            return aval((self.size,), "float32")

        def str_short(self, short_dtypes=False, **_):
            return f"Rows{self.size}"

    h.register_hitype(Pair, lambda x: PairType(s.jax.typeof(x.first), s.jax.typeof(x.second)))
    h.register_hitype(Rows, lambda x: RowsType(x.q.shape[0]))

    class Primitive(h.VJPHiPrimitive):
        def __init__(self, *avals):
            self.in_avals, self.out_aval, self.params = avals, self.result(*avals), {}
            super().__init__()

    class Quantize(Primitive):
        def result(self, x):
            return RowsType(x.shape[0])

        def expand(self, x):
            scale = s.jnp.max(s.jnp.abs(x)) / 8
            return Rows(s.jnp.round(x / scale).astype("int8"), scale)

        def vjp_fwd(self, nonzero, x):
            return self(x), None

        def vjp_bwd_retval(self, res, ct):
            return (ct,)

    class Dequantize(Primitive):
        def result(self, rows):
            return aval((rows.size,), "float32")

        def expand(self, rows):
            return rows.q.astype("float32") * rows.scale

        def vjp_fwd(self, nonzero, rows):
            return self(rows), 3.0

        def vjp_bwd(self, res, ct, rows):
            rows.accum(res * ct)

    class Ruled(Primitive):
        """Its rules differ, so that results tell which was used."""

        def result(self, x):
            return x

        def expand(self, x):
            return x * x

        def jvp(self, primals, tangents):
            return self(*primals), tangents[0] * 10.0

        def vjp_fwd(self, nonzero, x):
            return self(x), x

        def vjp_bwd_retval(self, x, ct):
            return (ct * 7.0 * x,)

        def batch(self, data, args, dims):
            (x,), (dim,) = args, dims
            return Ruled(s.jax.typeof(x))(x), dim

    def applied(kind):
        return lambda *args: kind(*map(s.jax.typeof, args))(*args)

    return types.SimpleNamespace(
        h=h, Pair=Pair, PairType=PairType, Rows=Rows, RowsType=RowsType, Primitive=Primitive, Ruled=Ruled,
        quantize=applied(Quantize), dequantize=applied(Dequantize), ruled=applied(Ruled),
    )  # fmt: skip
