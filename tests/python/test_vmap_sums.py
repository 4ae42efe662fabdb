"""`vmap(sum_match=True)`: outputs with no axis are sums over the batch where they differ in it; beside JAX."""

import dataclasses

import numpy as np
import pytest
from oracle import FERRAX, same
from test_vmappables import Named, Spec, batching, register

import ferrax
import ferrax.numpy as jnp

X = np.random.RandomState(0).randn(3, 4).astype("float32")


def summed(S, fun, in_axes=0, out_axes=None, **options):
    return S.jax.vmap(fun, in_axes, out_axes, sum_match=True, **options)


CASES = {
    "varies": lambda S, x: summed(S, S.jnp.sin)(x),
    "another axis": lambda S, x: summed(S, S.jnp.sin, 1)(x),
    "the same for all": lambda S, x: summed(S, lambda a, b: (b, S.jnp.ones(2), S.jnp.ones_like(a)), (0, None))(x, x[0]),
    "some": lambda S, x: summed(S, lambda a, b: {"a": a * b, "b": [a, b]}, (1, None), {"a": None, "b": 1})(x, x[:, 0]),
    "product of known": lambda S, x: summed(S, lambda a: a * 0 + 1)(x),
    "size 0": lambda S, x: summed(S, S.jnp.sin)(x[:0]),
    "nested": lambda S, x: summed(S, summed(S, S.jnp.sin), 1)(x),
    "inside of a batch": lambda S, x: S.jax.vmap(summed(S, S.jnp.sin))(S.jnp.stack([x, x + 1])),
    "named": lambda S, x: summed(
        S, lambda a: (a, S.lax.psum(a, "i"), S.lax.axis_index("i")), axis_name="i"
    )(x),
    "by size alone": lambda S, x: summed(
        S, lambda a: (a, a * S.lax.axis_index("i")), None, axis_name="i", axis_size=3
    )(x),
    "transpose of a broadcast": lambda S, x: S.jax.linear_transpose(
        S.jax.vmap(lambda a: a * x, None, axis_size=3), x[0]
    )(S.jnp.stack([x, x, x])),
    "grad": lambda S, x: S.jax.grad(lambda v: (summed(S, S.jnp.sin)(v) ** 2).sum())(x),
    "jvp": lambda S, x: S.jax.jvp(summed(S, S.jnp.sin), (x,), (x + 1,)),
    "scan": lambda S, x: summed(S, lambda a: S.lax.scan(lambda c, v: (c + v, c * v), 0.0, a))(x),
}  # fmt: skip


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", CASES)
@same
def test_sums(S, name, jitted):
    def run(x):
        return CASES[name](S, x)

    return (S.jax.jit(run) if jitted else run)(S.jnp.asarray(X))


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int32", "uint32", "float16", "bfloat16", "complex64", "float8_e4m3fn"]
)
@same
def test_dtypes_are_those_of_sums(S, dtype):
    return summed(S, lambda x: x)(S.jnp.asarray([[1, 0], [3, 1], [100, 1]]).astype(dtype))


def test_what_is_summed_is_summed_in_floats_as_sum_does():
    x = jnp.full(4096, 1.0, "float16")
    assert ferrax.vmap(lambda v: v, out_axes=None, sum_match=True)(x) == x.sum() == 4096


def test_types_of_ones_own():
    register(FERRAX)
    try:
        named = Named(["i", "j"], jnp.asarray(X))
        out = summed(FERRAX, lambda v: (v, v.data), Spec("i", 0), (Spec("i", None), None))(named)
        with pytest.raises(ValueError, match="out_axes is None"):
            ferrax.vmap(lambda v: v.data, Spec("i", 0), None)(named)
    finally:
        batching(FERRAX).unregister_vmappable(Named)
    assert out[0].names == ["j"]
    for found in (out[0].data, out[1]):
        np.testing.assert_allclose(found, X.sum(0), rtol=1e-6)


def test_refs_of_lanes_are_written_as_ever():
    ref = ferrax.new_ref(jnp.asarray(X))

    def double(r):
        r[...] *= 2
        return r[...]

    total = summed(FERRAX, double)(ref)
    np.testing.assert_array_equal(ref[...], 2 * X)
    np.testing.assert_allclose(total, 2 * X.sum(0), rtol=1e-6)


def test_what_has_no_sum():
    keys = ferrax.random.split(ferrax.random.key(0), 3)
    with pytest.raises(TypeError, match="sum"):
        summed(FERRAX, lambda k: k)(keys)
    with pytest.raises(ValueError, match="out_axes is None"):
        ferrax.vmap(lambda x: x, out_axes=None)(jnp.arange(3))


def test_values_that_are_no_arrays_are_not_summed():
    from ferrax.experimental import hijax

    @dataclasses.dataclass
    class Pair:
        a: object
        b: object

    @dataclasses.dataclass(frozen=True)
    class PairType(hijax.HiType):
        own: object

        def lo_ty(self):
            return [self.own, self.own]

        def lower_val(self, pair):
            return [pair.a, pair.b]

        def raise_val(self, a, b):
            return Pair(a, b)

        def to_tangent_aval(self):
            return self

    hijax.register_hitype(Pair, lambda pair: PairType(ferrax.typeof(pair.a)))
    x = jnp.asarray(X)
    same_for_all = summed(FERRAX, lambda a, p: (a, p), (0, None))(x, Pair(x[0], x[1]))[1]
    np.testing.assert_array_equal(same_for_all.b, X[1])
    with pytest.raises(NotImplementedError, match="sum_match.*PairType"):
        summed(FERRAX, lambda a: Pair(a, a))(x)
