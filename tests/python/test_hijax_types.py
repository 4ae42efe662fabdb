"""Values that are no arrays through transformations, and primitives over them."""

import dataclasses

import numpy as np
import oracle
import pytest
from hijax_cases import values
from oracle import same

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.experimental import hijax

F = values(oracle.FERRAX)
X = np.linspace(-1.0, 2.0, 4).astype(np.float32)
BATCH = np.stack([X, 3 * X, -X])


def there_and_back(v, x):
    return v.dequantize(v.quantize(x))


ROUND = {
    "eager": lambda s, v: there_and_back(v, s.jnp.asarray(X)),
    "argument": lambda s, v: s.jax.jit(v.dequantize)(s.jax.jit(v.quantize)(s.jnp.asarray(X))),
    "identity": lambda s, v: v.dequantize(s.jax.jit(lambda q: q)(v.quantize(s.jnp.asarray(X)))),
    "lowered": lambda s, v: s.jax.jit(v.dequantize).lower(q := v.quantize(X)).compile()(q),
    "scan": lambda s, v: v.dequantize(
        s.lax.scan(lambda q, _: (v.quantize(2 * v.dequantize(q)), None), v.quantize(s.jnp.asarray(X)), None, 3)[0]
    ),
    "while": lambda s, v: v.dequantize(
        s.lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, v.quantize(-v.dequantize(c[1]))), (0, v.quantize(s.jnp.asarray(X)))
        )[1]
    ),
    "grad": lambda s, v: s.jax.grad(lambda x: (there_and_back(v, x) ** 2).sum())(s.jnp.asarray(X)),
    "jitted grad": lambda s, v: s.jax.jit(s.jax.grad(lambda x: (there_and_back(v, x) ** 2).sum()))(s.jnp.asarray(X)),
    "grad of a value": lambda s, v: s.jax.grad(lambda q: (v.dequantize(q) ** 2).sum())(v.quantize(s.jnp.asarray(X))),
    "vjp to a value": lambda s, v: s.jax.vjp(v.quantize, s.jnp.asarray(X))[1](s.jnp.ones(4)),
    "leaves": lambda s, v: [type(x).__name__ for x in s.jax.tree.leaves([v.quantize(s.jnp.asarray(X)), 1])],
    "map": lambda s, v: s.jax.tree.map(lambda q: q.scale, {"a": v.quantize(s.jnp.asarray(X))}),
    "map of tree_util": lambda s, v: s.jax.tree_util.tree_map(
        lambda q, y: q.scale + y[0], [v.quantize(s.jnp.asarray(X))], [(1.0, 2)]
    ),
    "paths": lambda s, v: [s.jax.tree_util.keystr(p) for p, _ in s.jax.tree.leaves_with_path([v.quantize(X)])],
    "is no node": lambda s, v: s.jax.tree_util.all_leaves([v.quantize(s.jnp.asarray(X))]),
    "type": lambda s, v: (str(s.jax.typeof(v.quantize(X)).str_short()), s.jax.eval_shape(s.jax.jit(v.quantize), X).size),
    "ref": lambda s, v: s.jax.jit(lambda x: _ref(s, v, x))(X) if s.name == "ferrax" else v.quantize(-X).scale,
}


def _ref(s, v, x):
    ref = s.jax.new_ref(v.quantize(x))
    ref[...] = v.quantize(-x)
    return ref[...].scale


@pytest.mark.parametrize("name", ROUND)
def test_values_go_through(name):
    same(lambda s: ROUND[name](s, values(s)))()


RULES = {
    "grad": lambda s, f: s.jax.grad(f)(s.jnp.float32(3.0)),
    "jvp": lambda s, f: s.jax.jvp(f, (s.jnp.float32(3.0),), (s.jnp.float32(1.0),)),
    "vmap": lambda s, f: s.jax.vmap(f)(s.jnp.asarray(X)),
    "grad of vmap": lambda s, f: s.jax.grad(lambda x: s.jax.vmap(f)(x).sum())(s.jnp.asarray(X)),
    "vmap of grad": lambda s, f: s.jax.vmap(s.jax.grad(f))(s.jnp.asarray(X)),
    "jacfwd": lambda s, f: s.jax.jacfwd(f)(s.jnp.asarray(X)),
    "jacrev": lambda s, f: s.jax.jacrev(f)(s.jnp.asarray(X)),
    "checkpoint": lambda s, f: s.jax.jit(s.jax.grad(s.jax.checkpoint(f)))(s.jnp.float32(3.0)),
    "scan": lambda s, f: s.jax.jit(s.jax.grad(lambda x: s.lax.scan(lambda c, _: (f(c), None), x, None, 2)[0]))(2.0),
    "cond": lambda s, f: s.jax.jit(s.jax.grad(lambda x: s.lax.cond(x > 0, f, lambda x: x, x)))(2.0),
    "grad, then jvp": lambda s, f: [
        RULES["grad"](s, f), RULES["jvp"](s, f), RULES["grad"](s, f)
    ],
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_rules_of_a_primitive(name, jitted):
    def case(s):
        return RULES[name](s, s.jax.jit(values(s).ruled) if jitted else values(s).ruled)

    same(case, weak=False)()


def test_carriers_in_batches_and_checkpoints():
    """JAX has no rule for these: each row of a batch has the derivative of its own."""
    loss = lambda x: (there_and_back(F, x) ** 2).sum()  # noqa: E731
    rows = jnp.stack([ferrax.grad(loss)(x) for x in jnp.asarray(BATCH)])
    for found in (
        ferrax.vmap(ferrax.grad(loss))(BATCH),
        ferrax.grad(lambda x: ferrax.vmap(loss)(x).sum())(BATCH),
        ferrax.jit(ferrax.grad(lambda x: ferrax.vmap(loss)(x).sum()))(BATCH),
        ferrax.grad(lambda x: lax.map(loss, x).sum())(jnp.asarray(BATCH)),
        ferrax.vmap(ferrax.grad(ferrax.checkpoint(loss)), 1)(BATCH.T),
    ):
        np.testing.assert_allclose(found, rows, rtol=1e-6)
    chosen = ferrax.grad(lambda x: lax.cond(x[0] < 0, lambda: F.quantize(x), lambda: F.quantize(-x)).scale)(X)
    assert not chosen.any()  # nothing but the primitives moves tangents
    shared = ferrax.grad(lambda x: ferrax.vmap(lambda y: (F.dequantize(F.quantize(x)) * y).sum())(BATCH).sum())(X)
    np.testing.assert_allclose(shared, 3 * BATCH.sum(0), rtol=1e-6)


def test_pairs_have_tangents_of_their_arrays():
    pair = F.Pair(jnp.float32(2.0), jnp.ones(3))
    loss = lambda p: p.first**2 * p.second.sum()  # noqa: E731
    found = ferrax.grad(loss)(pair)
    assert type(found) is F.Pair and found.first == 12.0 and found.second.tolist() == [4.0] * 3
    out, moved = ferrax.jvp(lambda p: F.Pair(p.second, p.first), (pair,), (F.Pair(jnp.float32(5.0), jnp.zeros(3)),))
    assert type(out) is type(moved) is F.Pair and moved.second == 5.0
    out, pull = ferrax.vjp(lambda p: F.Pair(p.first * 2, p.second), pair)
    (found,) = pull(F.Pair(jnp.float32(1.0), jnp.ones(3)))
    assert found.first == 2.0 and "PairType" in str(pull)
    out, push = ferrax.linearize(lambda p: F.Pair(p.first * p.first, p.second), pair)
    assert push(pair).first == 8.0
    assert ferrax.jit(ferrax.grad(lambda x: loss(F.Pair(x, 2 * x))))(3.0) == 54.0
    with pytest.raises(TypeError, match="the tangent of a value of type"):
        ferrax.jvp(loss, (pair,), (F.quantize(X),))


def test_specs_of_vmap():
    class Axes(hijax.MappingSpec):
        def __init__(self, *axes):
            self.val = axes

    pairs = F.Pair(jnp.arange(6.0).reshape(2, 3), jnp.arange(4.0))
    swap = lambda p: F.Pair(p.second, p.first.sum())  # noqa: E731
    found = ferrax.vmap(swap, in_axes=(Axes(1, None),), out_axes=Axes(None, 0))(pairs)
    assert found.first.tolist() == [0.0, 1.0, 2.0, 3.0] and found.second.tolist() == [3.0, 5.0, 7.0]
    with pytest.raises(ValueError, match="has 3 axes, for a value of type .* of 2 arrays"):
        ferrax.vmap(swap, in_axes=(Axes(0, 0, 0),))(pairs)
    with pytest.raises(TypeError, match="is a spec of values that are no arrays"):
        ferrax.vmap(jnp.sin, in_axes=(Axes(0),))(jnp.ones(3))

    class Silent(hijax.MappingSpec):
        pass

    with pytest.raises(NotImplementedError, match="Silent does not say along which axis"):
        ferrax.vmap(swap, in_axes=(Silent(),))(pairs)


def test_specs_of_shard_map():
    class Parts(hijax.HiPspec):
        def to_lo(self):
            return ferrax.P("x"), ferrax.P()

    mesh = ferrax.make_mesh((1,), ("x",))
    double = ferrax.shard_map(
        lambda p: F.Pair(2 * p.first, p.second), mesh=mesh, in_specs=(Parts(),), out_specs=Parts()
    )
    found = double(F.Pair(jnp.arange(4.0), jnp.float32(1.0)))
    assert found.first.tolist() == [0.0, 2.0, 4.0, 6.0] and found.second == 1.0


def test_equations_and_programs_of_arrays():
    jaxpr = ferrax.make_jaxpr(lambda x: there_and_back(F, x))(X)
    assert [eqn.primitive.name for eqn in jaxpr.eqns] == ["call_hi_primitive"] * 2 and jaxpr.jaxpr.is_high
    traced = ferrax.jit(lambda x: lax.cond(x[0] > 0, lambda: F.ruled(x), lambda: ferrax.jit(F.ruled)(x))).trace(X)
    assert traced.jaxpr.jaxpr.is_high and not traced.lojax.jaxpr.jaxpr.is_high
    np.testing.assert_allclose(traced.lojax.lower().compile()(X), X * X)


def test_values_of_types_that_do_not_say_how():
    """A type without `lo_ty` is enough where values stay within derivatives: their attributes are the arrays."""

    class Held:
        def __init__(self, x, name):
            self.x, self.name = x, name

    @dataclasses.dataclass(frozen=True)
    class HeldType(hijax.HiType):
        def to_tangent_aval(self):
            return hijax.ShapedArray((), jnp.float32)

    hijax.register_hitype(Held, lambda held: HeldType())

    class Hold(F.Primitive):
        def result(self, x):
            return HeldType()

        def expand(self, x):
            return Held(x, "name")

        def vjp_fwd(self, nonzero, x):
            return self(x), None

        def vjp_bwd_retval(self, res, ct):
            return (5 * ct,)

    class Give(Hold):
        def result(self, held):
            return hijax.ShapedArray((), jnp.float32)

        def expand(self, held):
            return held.x * len(held.name)

    def fun(x):
        held = Hold(ferrax.typeof(x))(x)
        return Give(ferrax.typeof(held))(held)

    assert fun(2.0) == 8.0 and ferrax.grad(fun)(jnp.float32(2.0)) == 25.0


def test_symbolic_zeros_and_accumulators():
    seen = []

    class Mul(F.Primitive):
        def result(self, x, y):
            return x

        def expand(self, x, y):
            return x * y

        def vjp_fwd(self, nonzero, x, y):
            seen.append(nonzero)
            return self(x, y), (x, y)

        def vjp_bwd(self, res, ct, x_accum, y_accum):
            seen.append((type(x_accum), type(y_accum)))
            x_accum.accum(ct * res[1])
            y_accum.accum(ct * res[0])
            y_accum.accum(None)

    mul = lambda x, y: Mul(ferrax.typeof(x), ferrax.typeof(y))(x, y)  # noqa: E731
    assert ferrax.grad(mul)(2.0, 3.0) == 3.0
    assert seen == [(True, False), (hijax.ValAccum, hijax.NullAccum)]
    total = hijax.ValAccum(ferrax.typeof(jnp.ones(2)))
    assert type(total.freeze()) is hijax.Zero
    with pytest.raises(ValueError, match=r"a cotangent of type float32\[3\] was given"):
        total.accum(jnp.ones(3))
    refs = hijax.RefAccum(ferrax.typeof(jnp.ones(2))).inst()
    refs.accum(jnp.ones(2))
    assert refs.freeze().tolist() == [1.0, 1.0]


def test_what_a_primitive_must_define():
    class Bare(F.Primitive):
        def result(self, x):
            return x

        def expand(self, x):
            return x * x

    # Beyond JAX: a primitive over arrays without rules is what it does.
    bare = lambda x: Bare(ferrax.typeof(x))(x)  # noqa: E731
    assert ferrax.grad(bare)(3.0) == 6.0 and ferrax.vmap(bare)(jnp.arange(3)).tolist() == [0, 1, 4]
    with pytest.raises(NotImplementedError, match="for jvp support, Quantize must implement `jvp`"):
        ferrax.jvp(F.quantize, (jnp.asarray(X),), (jnp.asarray(X),))

    class Unset(hijax.HiPrim):
        def __init__(self):
            super().__init__()

    with pytest.raises(AttributeError, match="has to set self.in_avals"):
        Unset()

    class Twice(Bare):
        def vjp_bwd(self, res, ct, accum):
            pass

        def vjp_bwd_retval(self, res, ct):
            pass

    with pytest.raises(AttributeError, match="both vjp_bwd and vjp_bwd_retval"):
        Twice(ferrax.typeof(1.0))
    with pytest.raises(TypeError, match="was made for arguments"):
        Bare(ferrax.typeof(1.0))(1.0, 2.0)
    with pytest.raises(TypeError, match="expected a value of type"):
        ferrax.jit(lambda q: F.Primitive.__call__(_dequantize(5), q))(F.quantize(X))


def _dequantize(size):
    class Sized(F.Primitive):
        def result(self, rows):
            return hijax.ShapedArray((size,), jnp.float32)

        def expand(self, rows):
            return rows.q

    return Sized(F.RowsType(size))


def _typed(**methods):
    """A value of a class of its own whose type has these methods in place of good ones."""
    value = type("Value", (), {"x": jnp.ones(2)})
    own = {
        "lo_ty": lambda self: [hijax.ShapedArray((2,), jnp.float32)],
        "lower_val": lambda self, value: [value.x],
        "raise_val": lambda self, x: made(),
        "to_tangent_aval": lambda self: self,
        "__eq__": lambda self, other: type(self) is type(other),
        "__hash__": lambda self: 1,
    }

    def made():
        return value()

    kind = type("ValueType", (hijax.HiType,), own | methods)
    hijax.register_hitype(value, lambda value: kind())
    return value()


@pytest.mark.parametrize(
    "methods, message",
    [
        ({"lower_val": lambda self, value: []}, "lower_val must give a list of 1 arrays, as lo_ty does, got 0 arrays"),
        ({"lower_val": lambda self, value: value.x}, "lower_val must give a list of 1 arrays"),
        ({"lower_val": lambda self, value: [jnp.ones(3)]}, r"of type float32\[3\] at place 0, where lo_ty says float32\[2\]"),
        ({"lower_val": lambda self, value: [jnp.ones(2, int)]}, r"of type int32\[2\] at place 0"),
        ({"raise_val": lambda self, x: F.Pair(x, x)}, "raise_val gave a value of type"),
        ({"__hash__": None}, "must be hashable"),
        ({"__hash__": hijax.HiType.__hash__}, "must be hashable"),
    ],
)
def test_bad_types(methods, message):
    with pytest.raises(TypeError, match=message):
        ferrax.jit(lambda x: x)(_typed(**methods))


def test_good_types_and_slots():
    assert ferrax.jit(lambda x: x)(_typed()).x.shape == (2,)

    class Slotted:
        __slots__ = ("x",)

    class SlottedType(F.RowsType):
        def lo_ty(self):
            return [hijax.ShapedArray((), jnp.int32)]

        def lower_val(self, value):
            return [value.x]

        def raise_val(self, x):
            value = Slotted()
            value.x = x
            return value

    hijax.register_hitype(Slotted, lambda value: SlottedType(3))
    value = Slotted()
    value.x = jnp.int32(1)
    with pytest.raises(TypeError, match="take no attributes"):
        ferrax.jit(lambda x: x)(value)


def test_values_that_hold_mutable_arrays():
    @dataclasses.dataclass(frozen=True)
    class CounterType(hijax.HiType):
        ref: object

        def lo_ty(self):
            return self.ref.lo_ty()

        def lower_val(self, counter):
            return self.ref.lower_val(counter.ref)

        def raise_val(self, *refs):
            return Counter(self.ref.raise_val(*refs))

        def to_tangent_aval(self):
            return CounterType(self.ref.to_tangent_aval())

    @dataclasses.dataclass
    class Counter:
        ref: object

    hijax.register_hitype(Counter, lambda counter: CounterType(ferrax.typeof(counter.ref)))
    counter = Counter(ferrax.new_ref(jnp.asarray(X)))

    @ferrax.jit
    def add(counter, x):
        counter.ref[...] += x
        return counter.ref[...].sum()

    assert add(counter, 1.0) == X.sum() + 4 and add(counter, 1.0) == X.sum() + 8
    np.testing.assert_array_equal(counter.ref[...], X + 2)
    lax.fori_loop(0, 3, lambda i, c: add(counter, c) * 0, 1.0)
    np.testing.assert_array_equal(counter.ref[...], X + 3)
    with pytest.raises(ValueError, match="mutable array"):
        ferrax.jit(lambda counter: counter)(counter)
    ty = ferrax.typeof(counter.ref)
    assert ty.to_ct_aval() == ty and ty.raise_val(*ty.lower_val(counter.ref)) is counter.ref
