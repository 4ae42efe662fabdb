"""Rules of primitives that are made of their other rules, and what rules for batches are written with."""

import dataclasses

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax._src.transforms.primitive_rules import AxisData
from ferrax.experimental import hijax
from ferrax.interpreters import ad

X, Y = np.float32([0.5, -1.0, 2.0]), np.float32([2.0, 3.0, -1.0])


class Scaled(hijax.HiPrim):
    """x * x * y[0] and y, whose rules count their uses."""

    def __init__(self, x, y):
        self.in_avals, self.out_aval, self.params = (x, (y,)), {"a": x, "b": y}, {"_used": (), "power": 2}
        super().__init__()

    def expand(self, x, ys):
        return {"a": x * x * ys[0], "b": ys[0]}


class ByJvp(Scaled):
    def jvp(self, primals, tangents):
        (x, ys), (tx, (ty,)) = primals, tangents
        moved = [] if type(tx) is ad.Zero else [2 * x * ys[0] * tx]
        moved += [] if type(ty) is ad.Zero else [x * x * ty]
        return self(x, ys), {"a": sum(moved) if moved else tx, "b": ty}

    lin, linearized = hijax.linearize_from_jvp
    vjp_fwd, vjp_bwd_retval = hijax.vjp_from_jvp


class ByLin(Scaled):
    structured = False

    def lin(self, nonzero, x, ys):
        kept = 2 * x * ys[0], x * x
        flags = {"a": True, "b": nonzero[1][0]}
        return (self(x, ys), kept[0], flags, kept[1]) if self.structured else (self(x, ys), kept)

    def linearized(self, kept, *args):
        *more, tx, (ty,) = args
        kept = (kept, *more) if self.structured else kept
        a = sum(k * t for k, t in zip(kept, (tx, ty)) if type(t) is not ad.Zero)
        return {"a": a, "b": ty}

    jvp = hijax.jvp_from_lin
    vjp_fwd, vjp_bwd_retval = hijax.vjp_from_lin


class Structured(ByLin):
    structured = True


class Reverse(Scaled):
    """Its reverse rule gets what it needs in two parts."""

    def vjp_fwd(self, nonzero, x, ys):
        return self(x, ys), {"slope": 2 * x * ys[0]}, {"a": True, "b": True}, [x * x]

    def vjp_bwd(self, residuals, structured, ct, x, ys):
        x.accum(residuals["slope"] * ct["a"])
        ys[0].accum(structured[0] * ct["a"])
        ys[0].accum(ct["b"])
        return {"seen": ct["a"]}


def applied(kind):
    return lambda x, y: kind(*map(ferrax.typeof, (x, y)))(x, (y,))


def plain(x, y):
    return {"a": x * x * y, "b": y}


TRANSFORMS = {
    "jvp": lambda f: ferrax.jvp(f, (X, Y), (Y, X)),
    "jvp of one": lambda f: ferrax.jvp(lambda y: f(X, y), (Y,), (X,)),
    "linearize": lambda f: ferrax.linearize(f, X, Y)[1](Y, X),
    "vjp": lambda f: ferrax.vjp(f, X, Y)[1]({"a": X, "b": Y}),
    "grad": lambda f: ferrax.grad(lambda x: f(x, Y)["a"].sum())(X),
    "hessian": lambda f: ferrax.hessian(lambda x: f(x, Y)["a"].sum())(X),
    "vmap": lambda f: ferrax.vmap(ferrax.grad(lambda x, y: sum(f(x, y).values()), (0, 1)))(X, Y),
    "checkpoint": lambda f: ferrax.grad(lambda x: ferrax.checkpoint(f)(x, Y)["a"].sum())(X),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("kind", [ByJvp, ByLin, Structured])
def test_derivatives(kind, name, jitted):
    run = (lambda fun: ferrax.jit(lambda: TRANSFORMS[name](fun))()) if jitted else TRANSFORMS[name]
    found, wanted = (ferrax.tree.leaves(run(fun)) for fun in (applied(kind), plain))
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted):
        np.testing.assert_allclose(x, y, rtol=1e-6)


@pytest.mark.parametrize("name", ["vjp", "grad", "vmap", "checkpoint"])
def test_reverse_rules_with_structured_residuals(name):
    found, wanted = (TRANSFORMS[name](fun) for fun in (applied(Reverse), plain))
    ferrax.tree.map(np.testing.assert_allclose, found, wanted)


@pytest.mark.parametrize("kind", [ByJvp, ByLin, Structured])
@pytest.mark.parametrize("nonzero", [(True, True), (True, False), (False, True)])
def test_rules_by_themselves(kind, nonzero):
    prim, primals = kind(ferrax.typeof(X), ferrax.typeof(Y)), (jnp.asarray(X), (jnp.asarray(Y),))
    zero = ad.Zero(ferrax.typeof(X))
    tx, ty = (t if flag else zero for t, flag in zip((jnp.asarray(Y), jnp.asarray(X)), nonzero))
    flags = (nonzero[0], (nonzero[1],))
    wanted = ferrax.jvp(plain, (X, Y), tuple(np.asarray(ad.instantiate_zeros(t)) for t in (tx, ty)))
    rest = prim.lin(flags, *primals)
    results = [(rest[0], prim.linearized(rest[1], *rest[3:], tx, (ty,))), prim.jvp(primals, (tx, (ty,)))]
    for out, tangents in results:
        assert type(tangents["b"]) is (type(ty) if nonzero[1] else ad.Zero)
        got = out, {name: ad.instantiate_zeros(t) for name, t in tangents.items()}
        ferrax.tree.map(np.testing.assert_allclose, got, wanted)
    out, residuals, *_ = prim.vjp_fwd(flags, *primals)
    found = prim.vjp_bwd_retval(residuals, {"a": jnp.asarray(X), "b": zero})
    wanted = ferrax.vjp(plain, X, Y)[1]({"a": jnp.asarray(X), "b": jnp.zeros(3)})
    for ct, flag, want in zip((found[0], found[1][0]), nonzero, wanted):
        assert flag or type(ct) is ad.Zero
        np.testing.assert_allclose(ct, want) if flag else None


def test_values_that_are_no_arrays():
    @dataclasses.dataclass
    class Pair:
        a: object
        b: object

    @dataclasses.dataclass(frozen=True)
    class PairType(hijax.HiType):
        a: object

        def lo_ty(self):
            return [self.a, self.a]

        def lower_val(self, pair):
            return [pair.a, pair.b]

        def raise_val(self, a, b):
            return Pair(a, b)

        def to_tangent_aval(self):
            return PairType(self.a.to_tangent_aval())

        def vspace_zero(self):
            return Pair(self.a.vspace_zero(), self.a.vspace_zero())

        def vspace_add(self, x, y):
            return Pair(x.a + y.a, x.b + y.b)

    hijax.register_hitype(Pair, lambda pair: PairType(ferrax.typeof(pair.a)))

    class Product(hijax.HiPrim):
        def __init__(self, ty):
            self.in_avals, self.out_aval, self.params = (ty,), ty.a, {}
            super().__init__()

        def expand(self, pair):
            return pair.a * pair.b

        def jvp(self, primals, tangents):
            (pair,), (t,) = primals, tangents
            return self(pair), t.a * pair.b + pair.a * t.b

        lin, linearized = hijax.linearize_from_jvp
        vjp_fwd, vjp_bwd_retval = hijax.vjp_from_jvp

    pair = Pair(jnp.asarray(X), jnp.asarray(Y))
    prim = Product(ferrax.typeof(pair))
    ct = ferrax.grad(lambda pair: prim(pair).sum())(pair)
    np.testing.assert_array_equal((ct.a, ct.b), (Y, X))
    _, residuals = prim.vjp_fwd((True,), pair)
    (ct,) = prim.vjp_bwd_retval(residuals, jnp.ones(3))
    np.testing.assert_array_equal((ct.a, ct.b), (Y, X))
    _, residuals, _ = prim.lin((True,), pair)
    assert prim.linearized(residuals, Pair(jnp.ones(3), jnp.zeros(3))).tolist() == Y.tolist()


def test_rules_that_need_each_other():
    class Circle(Scaled):
        jvp = hijax.jvp_from_lin
        lin, linearized = hijax.linearize_from_jvp

    with pytest.raises(TypeError, match="Circle has both"):
        ferrax.grad(lambda x: applied(Circle)(x, Y)["a"].sum())(X)
    with pytest.raises(TypeError, match="Circle has both"):
        Circle(*map(ferrax.typeof, (X, Y))).jvp((X, (Y,)), (X, (Y,)))
    for pair in (hijax.linearize_from_jvp, hijax.vjp_from_jvp, hijax.vjp_from_lin):
        with pytest.raises(TypeError):
            pair(1, 2)
    assert repr(Scaled(*map(ferrax.typeof, (X, Y)))) == "Scaled[{'power': 2}]"


def test_what_replaces_an_equation():
    class Fixed(Scaled):
        def staging(self, trace, source, *args):
            raise ValueError("not in traced functions")

    class Twice(Scaled):
        def staging(self, trace, source, x, ys):
            return ferrax.tree.map(lambda x: 2 * x, super().staging(trace, source, x, ys))

    assert applied(Fixed)(X, Y)["b"].tolist() == Y.tolist()
    with pytest.raises(ValueError, match="not in traced"):
        ferrax.jit(applied(Fixed))(X, Y)
    assert ferrax.jit(applied(Twice))(X, Y)["b"].tolist() == (2 * Y).tolist()
    assert "Twice" in str(ferrax.make_jaxpr(applied(Twice))(X, Y))


# Batches.


AXIS = AxisData("i", 3)


def test_types_and_axes_of_batches():
    scalar, row = ferrax.typeof(np.float32(1)), ferrax.typeof(np.ones(2, np.float32))
    found = hijax.unmap_avals(AXIS, {"a": scalar, "b": (row, row)}, {"a": None, "b": (0, 1)})
    assert [x.shape for x in ferrax.tree.leaves(found)] == [(), (3, 2), (2, 3)]
    x = np.arange(6.0).reshape(2, 3)
    front = hijax.bdims_at_front(AXIS, (x, [x[0]]), (1, [None]))
    np.testing.assert_array_equal(front[0], x.T)
    np.testing.assert_array_equal(front[1][0], np.stack([x[0]] * 3))


@pytest.mark.parametrize("jitted", [False, True])
def test_rules_of_batches(jitted):
    class Product(hijax.HiPrim):
        """Of a matrix and a vector, by the row; a batch is another primitive of its kind."""

        def __init__(self, a, b, rule=jnp.dot):
            self.in_avals, self.params = (a, b), {"rule": rule}
            self.out_aval = ferrax.eval_shape(rule, a, b)
            self.out_aval = ferrax.core.ShapedArray(self.out_aval.shape, self.out_aval.dtype)
            super().__init__()

        def expand(self, a, b):
            return self.rule(a, b)

        def batch(self, data, args, dims):
            avals = hijax.unmap_avals(data, self.in_avals, dims)
            rule = hijax.vmap_rule(data, self.rule, dims, 0)
            return Product(*avals, rule)(*args), 0

    a, b = np.arange(6, dtype=np.float32).reshape(3, 2), np.float32([1, -1])

    def fun(a, b):
        return ferrax.vmap(lambda a, b: Product(ferrax.typeof(a), ferrax.typeof(b))(a, b), (0, None))(a, b)

    rows = np.stack([a, 2 * a])
    run = ferrax.vmap(fun, (0, None))
    np.testing.assert_allclose((ferrax.jit(run) if jitted else run)(rows, b), rows @ b)


def test_zeros_in_rules_of_batches():
    seen = []

    def rule(x, ts):
        seen.append(ts[0].aval)
        return [x + ferrax.lax.axis_index("i"), ad.Zero(ts[0].aval), ts[1]]

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    zeros = [ad.Zero(ferrax.typeof(x)), ad.Zero(ferrax.typeof(x[0]))]
    out = hijax.vmap_rule(AXIS, rule, (1, [1, None]), [0, 0, None])(x, zeros)
    assert seen == [ferrax.typeof(x[:, 0])] and out[0].tolist() == (x.T + np.arange(3)[:, None]).tolist()
    assert out[1].aval == ferrax.core.ShapedArray((3, 2), np.float32) and out[2].aval == ferrax.typeof(x[0])
    with pytest.raises(ValueError):
        hijax.vmap_rule(AXIS, lambda x: x, 0, 0)(np.ones(2))
