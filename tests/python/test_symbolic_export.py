"""Functions exported over symbolic shapes: the program of each size is that of the function traced at it."""

import jax
import jax.export
import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import export, lax
from ferrax.extend.core import InconclusiveDimensionOperation

SIZES = (1, 2, 3, 7)


def arrays(shapes, sizes, dtype=np.float32):
    rng = np.random.default_rng(sum(sizes.values()))
    names = dict(sizes)
    known = [tuple(eval(str(size), {}, names) if isinstance(size, str) else size for size in shape) for shape in shapes]
    return [rng.normal(size=shape).astype(dtype) for shape in known]


def attention(x):
    scores = jnp.einsum("bid,bjd->bij", x, x) / x.shape[-1] ** 0.5
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    return ferrax.nn.softmax(jnp.where(mask, scores, -jnp.inf)) @ x


FUNCTIONS = {
    "elementwise": (lambda x: jnp.sin(x) * 2 + x**2, [("a", 3)]),
    "broadcast": (lambda x, y: x + y[:, None], [("a", "b"), ("a",)]),
    "scaled": (lambda x: x * x.shape[0] - x.shape[1], [("a", "b")]),
    "mean": (lambda x: (x.mean(0), x.mean(), x.var(1)), [("a", "b")]),
    "reshape": (lambda x: (x.reshape(-1), x.reshape(x.shape[1], -1), x.ravel()), [("a", "b")]),
    "transpose": (lambda x: x.T @ x, [("a", "b")]),
    "slices": (lambda x: (x[1:], x[::2], x[:-1], x[::-1], x[-1], x[:5]), [("a", 3)]),
    "concatenate": (lambda x, y: jnp.concatenate([x, y, x]), [("a", 2), ("b", 2)]),
    "pad": (lambda x: jnp.pad(x, ((1, 2), (0, x.shape[0]))), [("a", 2)]),
    "arange": (lambda x: x + jnp.arange(x.shape[0]), [("a",)]),
    "tile": (lambda x: jnp.tile(x, (x.shape[0], 2)), [("a", 2)]),
    "softmax": (lambda x: ferrax.nn.softmax(x, axis=0), [("a", 3)]),
    "sort": (lambda x: (jnp.sort(x, 0), jnp.argsort(x, 0), jnp.argmax(x, 0), jnp.cumsum(x, 0)), [("a", 3)]),
    "gather": (lambda x: x[jnp.array([0, -1])], [("a", 3)]),
    "scatter": (lambda x: x.at[0].set(5.0).at[jnp.array([0, -1])].add(1.0), [("a", 3)]),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(3), x), [("a", 3)]),
    "loop": (lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], jnp.zeros(3)), [("a", 3)]),
    "map": (lambda x: lax.map(lambda r: r.sum() * r, x), [("a", 3)]),
    "vmap": (lambda x: ferrax.vmap(lambda r: r / r.sum())(x), [("a", 3)]),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, x), [("a",)]),
    "dynamic": (lambda x: lax.dynamic_slice_in_dim(x, x.shape[0] - 1, 1), [("a", 3)]),
    "jit": (lambda x: ferrax.jit(lambda y: ferrax.jit(jnp.cos)(y) + y)(x), [("a",)]),
    "grad": (lambda x: ferrax.grad(lambda x: (jnp.sin(x[1:]) * x[:-1]).sum())(x), [("a+1",)]),
    "grad of mean": (lambda x: ferrax.grad(lambda x: (x[::2].mean() ** 2) + jnp.max(x))(x), [("a",)]),
    "hessian": (lambda x: ferrax.grad(lambda x: ferrax.grad(lambda y: (y**3).mean())(x).sum())(x), [("a",)]),
    "attention": (attention, [("a", "b", 4)]),
    "convolution": (
        lambda x: lax.conv_general_dilated(x, jnp.ones((2, 3, 3, 3)), (2, 2), "VALID"),
        [("a", 3, "2*b+3", "c+4")],
    ),
    "checkpoint": (lambda x: ferrax.grad(lambda x: ferrax.checkpoint(jnp.sin)(x).sum())(x), [("a",)]),
    "where": (lambda x: jnp.where(x > 0, x, 0).sum(0), [("a", 2)]),
    "stack": (lambda x: jnp.stack([x, x]).swapaxes(0, 1), [("a", 2)]),
    "repeat": (lambda x: jnp.repeat(x, 3, axis=0), [("a", 2)]),
    "roll": (lambda x: jnp.roll(x, 1, axis=0), [("a", 2)]),
    "random": (lambda x: ferrax.random.normal(ferrax.random.key(0), x.shape) + x, [("a", "b")]),
    "product": (lambda x: jnp.prod(jnp.array(x.shape)), [("a", "b")]),
}


def specs_of(module, shapes):
    texts = [f"({', '.join(map(str, shape))},)" for shape in shapes]
    scope = module.export.SymbolicScope()
    return [
        module.ShapeDtypeStruct(module.export.symbolic_shape(text, scope=scope), np.float32) for text in texts
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_size_is_that_of_the_function(name):
    function, shapes = FUNCTIONS[name]
    exported = export.export(ferrax.jit(function))(*specs_of(ferrax, shapes))
    loaded = export.deserialize(exported.serialize())
    for a in SIZES:
        for b in (1, 4):
            values = arrays(shapes, {"a": a, "b": b, "c": 2})
            expected = ferrax.jit(function)(*values)
            for program in (exported, loaded):
                got = program.call(*values)
                assert ferrax.tree.structure(got) == ferrax.tree.structure(expected)
                for x, y in zip(ferrax.tree.leaves(got), ferrax.tree.leaves(expected)):
                    assert (x.shape, x.dtype) == (y.shape, y.dtype)
                    np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)


def test_types_are_those_of_jax():
    for name in ("elementwise", "broadcast", "reshape", "slices", "concatenate", "tile", "grad"):
        function, shapes = FUNCTIONS[name]
        ours = export.export(ferrax.jit(function))(*specs_of(ferrax, shapes))
        theirs = {
            "elementwise": lambda x: jax.numpy.sin(x) * 2 + x**2,
            "broadcast": lambda x, y: x + y[:, None],
            "reshape": lambda x: (x.reshape(-1), x.reshape(x.shape[1], -1), x.ravel()),
            "slices": lambda x: (x[1:], x[::2], x[:-1], x[::-1], x[-1], x[:5]),
            "concatenate": lambda x, y: jax.numpy.concatenate([x, y, x]),
            "tile": lambda x: jax.numpy.tile(x, (x.shape[0], 2)),
            "grad": lambda x: jax.grad(lambda x: (jax.numpy.sin(x[1:]) * x[:-1]).sum())(x),
        }[name]
        # Without lowering, which needs packages that may be missing.
        expected = jax.jit(theirs).trace(*specs_of(jax, shapes)).jaxpr.out_avals
        assert [str(aval) for aval in ours.out_avals] == [str(aval) for aval in expected], name


def test_derivatives_of_what_is_exported():
    (a,) = export.symbolic_shape("a")
    exported = export.export(ferrax.jit(lambda x: (x * x.shape[0]) ** 2))(ferrax.ShapeDtypeStruct((a,), np.float32))
    for size in SIZES:
        x = jnp.arange(1.0, size + 1)
        found = ferrax.grad(lambda x: exported.call(x).sum())(x)
        np.testing.assert_allclose(found, 2 * x * size**2, rtol=1e-6)
        np.testing.assert_allclose(exported.vjp().call(x, jnp.ones(size))[0], found, rtol=1e-6)
        batched = ferrax.vmap(exported.call)(jnp.stack([x, x]))
        np.testing.assert_allclose(batched, jnp.stack([exported.call(x)] * 2))


def test_rules_of_users_are_exported_for_all_sizes():
    @ferrax.custom_vjp
    def scaled(x):
        return x * 2.0

    scaled.defvjp(lambda x: (x * 2.0, x), lambda x, ct: (ct * x * 10.0,))
    (a,) = export.symbolic_shape("a")
    exported = export.export(ferrax.jit(scaled))(ferrax.ShapeDtypeStruct((a, 2), np.float32))
    for size in SIZES:
        x = jnp.ones((size, 2)) * 3
        np.testing.assert_allclose(ferrax.grad(lambda x: exported.call(x).sum())(x), jnp.full((size, 2), 30.0))


def test_calls_within_symbolic_functions():
    m, n = export.symbolic_shape("m, n")
    inner = export.export(ferrax.jit(lambda x: x.reshape(-1) * x.shape[0]))(
        ferrax.ShapeDtypeStruct((m, 2 * n), np.float32)
    )
    (k,) = export.symbolic_shape("k")
    outer = export.export(ferrax.jit(lambda x: inner.call(x)[:-1]))(ferrax.ShapeDtypeStruct((3, 4 * k), np.float32))
    assert [str(aval) for aval in outer.out_avals] == ["float32[12*k - 1]"]
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.testing.assert_allclose(outer.call(x), x.reshape(-1)[:-1] * 3)


def test_errors():
    a, b = export.symbolic_shape("a, b")
    exported = export.export(ferrax.jit(lambda x: x))(ferrax.ShapeDtypeStruct((a, 2 * a), np.float32))
    with pytest.raises(ValueError, match=r"args\[0\].shape\[1\]"):
        exported.call(np.zeros((2, 5), np.float32))
    with pytest.raises(ValueError, match="Rank mismatch"):
        exported.call(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="Cannot solve for values of dimension variables"):
        export.export(ferrax.jit(lambda x: x))(ferrax.ShapeDtypeStruct((a * b,), np.float32))
    with pytest.raises(ValueError, match="value >= 1"):
        exported.call(np.zeros((0, 0), np.float32))
    with pytest.raises(TypeError, match="len"):
        export.export(ferrax.jit(lambda x: len(x) * x))(ferrax.ShapeDtypeStruct((a,), np.float32))
    with pytest.raises(InconclusiveDimensionOperation):
        export.export(ferrax.jit(lambda x: x[3:4]if x.shape[0] > 3 else x))(ferrax.ShapeDtypeStruct((a,), np.float32))


def test_traced_once():
    traces = []

    def function(x):
        traces.append(x.shape)
        return x + 1

    (a,) = export.symbolic_shape("a")
    exported = export.export(ferrax.jit(function))(ferrax.ShapeDtypeStruct((a,), np.float32))
    for size in SIZES:
        exported.call(np.zeros(size, np.float32))
    assert len(traces) == 1 and str(traces[0]) == "(a,)"


def test_constraints_are_kept_in_files():
    (a,) = export.symbolic_shape("a", constraints=["a >= 4"])
    exported = export.export(ferrax.jit(lambda x: x[:4]))(ferrax.ShapeDtypeStruct((a,), np.float32))
    assert exported.out_avals[0].shape == (4,)
    loaded = export.deserialize(exported.serialize())
    np.testing.assert_array_equal(loaded.call(np.arange(5, dtype=np.float32)), np.arange(4))
    with pytest.raises(ValueError, match="a >= 4"):
        loaded.call(np.zeros(3, np.float32))


def test_shapes_are_evaluated_without_export():
    a, b = export.symbolic_shape("a, b")
    x = ferrax.ShapeDtypeStruct((a, b), np.float32)
    assert str(ferrax.eval_shape(lambda x: x.T @ x, x).shape) == "(b, b)"
    jaxpr = ferrax.make_jaxpr(lambda x: x.sum(0) * 2)(x)
    assert "f32[a,b]" in str(jaxpr) and "f32[b]" in str(jaxpr)
    with pytest.raises(NotImplementedError):
        jnp.asarray(a)
