"""Primitives that a library defines in Python, with JAX's rule protocols; run beside JAX."""

import functools
import importlib
import types
import warnings

import numpy as np
import pytest
from oracle import FERRAX, JAX, same

import ferrax
import ferrax.numpy as jnp

SIDES = pytest.mark.parametrize("S", [FERRAX, JAX], ids=["ferrax", "jax"])


@functools.cache
def modules(S):
    """The modules with which primitives are defined."""
    found = types.SimpleNamespace()
    for name in ("ad", "batching", "mlir"):
        setattr(found, name, importlib.import_module(f"{S.name}.interpreters.{name}"))
    found.core = importlib.import_module(f"{S.name}.extend.core")
    found.ShapedArray = importlib.import_module(f"{S.name}.core").ShapedArray
    return found


def unary(S, name, function, types=None):
    """A primitive of one array, with a lowering."""
    M = modules(S)
    p = M.core.Primitive(name)
    p.def_impl(function)
    p.def_abstract_eval(types or (lambda x, **_: M.ShapedArray(x.shape, x.dtype)))
    M.mlir.register_lowering(p, M.mlir.lower_fun(function, multiple_results=False))
    return p


@functools.cache
def sine(S):
    M = modules(S)
    p = unary(S, "my_sin", lambda x, *, scale: S.jnp.sin(x) * scale)
    M.ad.defjvp(p, lambda t, x, *, scale: t * S.jnp.cos(x) * scale)
    M.batching.defvectorized(p)
    return p


@functools.cache
def exponential(S):
    M = modules(S)
    p = unary(S, "my_exp", lambda x: S.jnp.exp(x))
    M.ad.defjvp2(p, lambda t, y, x: t * y)
    M.batching.defvectorized(p)
    return p


@functools.cache
def double(S):
    M = modules(S)
    p = unary(S, "my_double", lambda x: x + x)
    M.ad.deflinear(p, lambda ct: [p.bind(ct)])
    M.batching.defvectorized(p)
    return p


@functools.cache
def total(S):
    """A linear reduction over `axis`."""
    M = modules(S)

    def shape(x, *, axis):
        return M.ShapedArray(tuple(np.delete(x.shape, axis)), x.dtype)

    p = unary(S, "my_total", lambda x, *, axis: S.jnp.sum(x, axis), shape)

    def transpose(ct, x, *, axis):
        assert M.ad.is_undefined_primal(x)
        return [S.jnp.broadcast_to(S.jnp.expand_dims(ct, axis), x.aval.shape)]

    def batch(args, dims, *, axis):
        (x,), (d,) = args, dims
        x = M.batching.moveaxis(x, d, 0) if hasattr(M.batching, "moveaxis") else S.jnp.moveaxis(x, d, 0)
        return p.bind(x, axis=axis + 1), 0

    M.ad.deflinear2(p, transpose)
    M.batching.primitive_batchers[p] = batch
    return p


@functools.cache
def product(S):
    M = modules(S)
    p = M.core.Primitive("my_mul")
    p.def_impl(lambda x, y: x * y)
    p.def_abstract_eval(lambda x, y: M.ShapedArray(np.broadcast_shapes(x.shape, y.shape), x.dtype))
    M.mlir.register_lowering(p, M.mlir.lower_fun(lambda x, y: x * y, multiple_results=False))
    M.ad.defbilinear(p, lambda ct, x, y: p.bind(ct, y), lambda ct, x, y: p.bind(x, ct))
    M.batching.defbroadcasting(p)
    return p


@functools.cache
def sincos(S):
    """Two results, with rules that see symbolic zeros."""
    M = modules(S)

    def impl(x, y):
        return [S.jnp.sin(x) * y, S.jnp.cos(x)]

    p = M.core.Primitive("my_sincos")
    p.multiple_results = True
    p.def_impl(impl)
    p.def_abstract_eval(lambda x, y: [M.ShapedArray(x.shape, x.dtype)] * 2)
    M.mlir.register_lowering(p, M.mlir.lower_fun(impl, multiple_results=True))
    p.zeros = []

    def jvp(primals, tangents):
        x, y = primals
        tx, ty = tangents
        p.zeros.append([type(t) is M.ad.Zero for t in tangents])
        out = p.bind(x, y)
        if type(tx) is M.ad.Zero:
            zero = M.ad.Zero(tx.aval)
            return out, [S.jnp.sin(x) * M.ad.instantiate_zeros(ty), zero]
        t0 = S.jnp.cos(x) * y * tx
        if type(ty) is not M.ad.Zero:
            t0 = M.ad.add_tangents(t0, S.jnp.sin(x) * ty)
        return out, [t0, -S.jnp.sin(x) * tx]

    def batch(args, dims):
        size = next(x.shape[d] for x, d in zip(args, dims) if d is not None)
        x, y = (M.batching.bdim_at_front(x, d, size) for x, d in zip(args, dims))
        return p.bind(x, y), [0, 0]

    M.ad.primitive_jvps[p] = jvp
    M.batching.primitive_batchers[p] = batch
    return p


FUNCTIONS = {
    "sine": lambda S: lambda x: sine(S).bind(x, scale=2.0),
    "sine_of_exp": lambda S: lambda x: sine(S).bind(exponential(S).bind(x * 0.3), scale=1.5) * x,
    "double": lambda S: lambda x: double(S).bind(S.jnp.sin(x)),
    "total": lambda S: lambda x: S.jnp.sin(total(S).bind(x * x, axis=0)) * x,
    "product": lambda S: lambda x: product(S).bind(S.jnp.sin(x), S.jnp.cos(x)),
    "product_with_constant": lambda S: lambda x: product(S).bind(x, S.jnp.arange(3.0)),
    "sincos": lambda S: lambda x: S.jnp.prod(S.jnp.stack(sincos(S).bind(x, x * x)), 0),
    "sincos_of_constant": lambda S: lambda x: sum(sincos(S).bind(S.jnp.ones(3), x)),
}

TRANSFORMS = {
    "eager": lambda S, f, x: f(x),
    "jit": lambda S, f, x: S.jax.jit(f)(x),
    "jvp": lambda S, f, x: S.jax.jvp(f, (x,), (x + 1,)),
    "jvp_jit": lambda S, f, x: S.jax.jvp(S.jax.jit(f), (x,), (x + 1,)),
    "grad": lambda S, f, x: S.jax.grad(lambda x: f(x).sum())(x),
    "jit_grad": lambda S, f, x: S.jax.jit(S.jax.grad(lambda x: f(x).sum()))(x),
    "linearize": lambda S, f, x: S.jax.linearize(f, x)[1](x),
    "hessian": lambda S, f, x: S.jax.hessian(lambda x: f(x).sum())(x),
    "vmap": lambda S, f, x: S.jax.vmap(f)(S.jnp.stack([x, 2 * x])),
    "vmap_last": lambda S, f, x: S.jax.vmap(f, 1, 1)(S.jnp.stack([x, 2 * x], 1)),
    "jit_vmap_grad": lambda S, f, x: S.jax.jit(S.jax.vmap(S.jax.grad(lambda x: f(x).sum())))(
        S.jnp.stack([x, 2 * x])
    ),
    "jacfwd": lambda S, f, x: S.jax.jacfwd(f)(x),
    "jacrev_jit": lambda S, f, x: S.jax.jacrev(S.jax.jit(f))(x),
    "eval_shape": lambda S, f, x: S.jax.eval_shape(f, x).shape,
    "scan": lambda S, f, x: S.lax.scan(lambda c, _: (f(c) * 0.5, f(c)), x, None, length=3),
    "grad_scan": lambda S, f, x: S.jax.grad(
        lambda x: S.lax.scan(lambda c, _: (f(c) * 0.5 + c, None), x, None, length=3)[0].sum()
    )(x),
    "cond": lambda S, f, x: S.jax.jit(lambda x: S.lax.cond(x[0] > 0, f, lambda x: f(-x), x))(x),
    "grad_cond": lambda S, f, x: S.jax.grad(
        lambda x: S.lax.cond(x[0] > 0, f, lambda x: f(-x), x).sum()
    )(x),
    "grad_checkpoint": lambda S, f, x: S.jax.grad(lambda x: S.jax.checkpoint(f)(x).sum())(x),
    "vmap_scan": lambda S, f, x: S.jax.vmap(
        lambda x: S.lax.scan(lambda c, _: (f(c) * 0.5, None), x, None, length=2)[0]
    )(S.jnp.stack([x, 2 * x])),
    "while": lambda S, f, x: S.lax.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1]) * 0.5), (0, x)
    ),
    "fwd_over_rev": lambda S, f, x: S.jax.jvp(S.jax.grad(lambda x: f(x).sum()), (x,), (x + 1,)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
@same(weak=False)
def test_rules(S, name, transform):
    x = S.jnp.array([0.3, -1.2, 0.7])
    return TRANSFORMS[transform](S, FUNCTIONS[name](S), x)


@SIDES
def test_jvp_rules_see_symbolic_zeros(S):
    p = sincos(S)
    p.zeros.clear()
    S.jax.jvp(lambda x: p.bind(x, S.jnp.ones(2)), (S.jnp.ones(2),), (S.jnp.ones(2),))
    assert p.zeros == [[False, True]]


@SIDES
def test_parameters_keep_their_identity(S):
    M = modules(S)
    marker = {"a": [1, object()]}

    class Holder:
        """Hashable by identity."""

    holder = Holder()
    holder.value = marker
    seen = []

    def impl(x, *, holder, function):
        seen.append((holder, function))
        return function(x)

    p = M.core.Primitive("keeps")
    p.def_impl(impl)
    p.def_abstract_eval(lambda x, **params: M.ShapedArray(x.shape, x.dtype))
    M.mlir.register_lowering(p, M.mlir.lower_fun(impl, multiple_results=False))
    M.ad.defjvp(p, lambda t, x, **params: seen.append((params["holder"], params["function"])) or t)
    M.batching.primitive_batchers[p] = lambda args, dims, **params: (
        seen.append((params["holder"], params["function"])) or p.bind(*args, **params),
        dims[0],
    )
    function = S.jnp.sin
    f = lambda x: p.bind(x, holder=holder, function=function)  # noqa: E731
    f(1.0)
    S.jax.jit(f)(1.0)
    S.jax.grad(f)(1.0)
    S.jax.jit(S.jax.vmap(S.jax.grad(f)))(S.jnp.ones(2))
    assert len(seen) >= 5
    assert all(h is holder and g is function for h, g in seen)
    eqn = S.jax.make_jaxpr(f)(1.0).eqns[0]
    assert eqn.primitive is p and eqn.params["holder"] is holder


@SIDES
def test_eager_calls_use_impl(S):
    M = modules(S)
    p = M.core.Primitive("impl_only")
    p.def_impl(lambda x, *, n: (x, n))
    assert p.bind(3, n="text") == (3, "text")


MISSING = {
    "impl": lambda S, p: p.bind(1.0),
    "abstract_eval": lambda S, p: S.jax.jit(p.bind)(1.0),
}


@pytest.mark.raises("NotImplementedError")
@pytest.mark.parametrize("name", MISSING)
@same
def test_nothing_defined(S, name):
    return MISSING[name](S, modules(S).core.Primitive("bare"))


WITHOUT = {
    "lowering": lambda S, f: S.jax.jit(f)(1.0),
    "jvp": lambda S, f: S.jax.grad(f)(1.0),
    "jit_jvp": lambda S, f: S.jax.jit(S.jax.grad(f))(1.0),
    "batch": lambda S, f: S.jax.vmap(f)(S.jnp.ones(2)),
    "transpose": lambda S, f: S.jax.linear_transpose(f, 1.0)(1.0),
}


@pytest.mark.raises("NotImplementedError")
@pytest.mark.parametrize("name", WITHOUT)
@same
def test_missing_rules(S, name):
    M = modules(S)
    p = M.core.Primitive("lonely")
    p.def_impl(lambda x: x)
    p.def_abstract_eval(lambda x: x)
    return WITHOUT[name](S, p.bind)


@pytest.mark.parametrize(
    "name,text",
    [
        ("lowering", "Lowering rule for 'lonely'"),
        ("jvp", "Differentiation rule for 'lonely'"),
        ("batch", "Batching rule for 'lonely'"),
        ("transpose", r"Transpose rule .* for 'lonely'"),
    ],
)
def test_missing_rules_are_named(name, text):
    M = modules(FERRAX)
    p = M.core.Primitive("lonely")
    p.def_impl(lambda x: x)
    p.def_abstract_eval(lambda x: x)
    with pytest.raises(NotImplementedError, match=text):
        WITHOUT[name](FERRAX, p.bind)


@functools.cache
def without_lowering(S):
    """Twice the sine, the doubling by a primitive that has all rules but a lowering."""
    M = modules(S)
    p = M.core.Primitive("uncompiled")
    p.def_impl(lambda x: 2 * x)
    p.def_abstract_eval(lambda x: x)
    M.ad.deflinear(p, lambda ct: [p.bind(ct)])
    M.batching.defvectorized(p)
    return lambda x: p.bind(S.jnp.sin(x))


@SIDES
def test_rules_get_tuples(S):
    M = modules(S)
    p = unary(S, "asks_for_tuples", lambda x: x)
    seen = []

    def jvp(primals, tangents):
        seen.extend(map(type, (primals, tangents)))
        return p.bind(*primals), p.bind(*tangents)

    def batch(args, dims):
        seen.extend(map(type, (args, dims)))
        return p.bind(*args), dims[0]

    M.ad.primitive_jvps[p], M.batching.primitive_batchers[p] = jvp, batch
    S.jax.vmap(lambda x: S.jax.jvp(p.bind, (x,), (x,)))(S.jnp.ones(2))
    assert len(seen) >= 4 and set(seen) == {tuple}


def _by_value(f):
    return lambda x: f(x) * 2 if f(x) > 0 else x


X = np.float32(0.5)
EAGER = {
    "grad": lambda S, f: S.jax.grad(f)(0.5),
    "hessian": lambda S, f: S.jax.hessian(f)(0.5),
    "jvp": lambda S, f: S.jax.jvp(f, (0.5,), (2.0,)),
    "linearize": lambda S, f: S.jax.linearize(f, 0.5)[1](2.0),
    "vmap": lambda S, f: S.jax.vmap(S.jax.grad(f))(S.jnp.arange(3.0)),
    "checkpoint": lambda S, f: S.jax.checkpoint(f)(X),
    "grad of checkpoint": lambda S, f: S.jax.value_and_grad(S.jax.checkpoint(f))(0.5),
    "a value that is asked for": lambda S, f: S.jax.grad(_by_value(f))(0.5),
    "a jaxpr": lambda S, f: S.jax.core.eval_jaxpr(S.jax.make_jaxpr(f)(X).jaxpr, (), X),
}


@pytest.mark.parametrize("name", EAGER)
@same
def test_what_is_not_compiled_needs_no_lowering(S, name):
    return EAGER[name](S, without_lowering(S))


def test_what_was_not_compiled_still_needs_a_lowering_where_it_is():
    f = without_lowering(FERRAX)
    assert ferrax.grad(f)(0.5) == ferrax.grad(f)(0.5)
    for compiled in (ferrax.jit(f), ferrax.jit(ferrax.grad(f)), lambda x: ferrax.lax.cond(x > 0, f, f, x)):
        with pytest.raises(NotImplementedError, match="Lowering rule for 'uncompiled'"):
            compiled(0.5)


def test_wrong_rules_are_named():
    M = modules(FERRAX)

    def primitive(name):
        return unary(FERRAX, name, lambda x: x)

    p = primitive("wide")
    M.ad.primitive_jvps[p] = lambda primals, tangents: (p.bind(*primals), jnp.ones(3))
    with pytest.raises(TypeError, match=r"jvp rule of 'wide'.*float32\[\], got float32\[3\]"):
        ferrax.jvp(p.bind, (1.0,), (1.0,))
    M.batching.primitive_batchers[p] = lambda args, dims: (args[0].sum(), None)
    out = ferrax.vmap(p.bind, out_axes=None)(jnp.ones(2))
    assert float(out) == 2.0
    M.batching.primitive_batchers[p] = lambda args, dims: (args[0].sum(), 0)
    with pytest.raises(TypeError, match="batching rule of 'wide'"):
        ferrax.vmap(p.bind)(jnp.ones(2))
    M.ad.deflinear(p, lambda ct: [ct, ct])
    with pytest.raises(TypeError, match="transpose rule of 'wide' gave 2 cotangents for 1"):
        ferrax.grad(p.bind)(1.0)
    q = ferrax.extend.core.Primitive("typeless")
    q.def_abstract_eval(lambda x: 5)
    with pytest.raises(TypeError, match="abstract evaluation of 'typeless'"):
        ferrax.jit(q.bind)(1.0)
    q.def_abstract_eval(lambda x: [x])
    with pytest.raises(ValueError, match="must return one type.*typeless_p.multiple_results"):
        ferrax.jit(q.bind)(1.0)
    q.multiple_results = True
    q.def_abstract_eval(lambda x: x)
    with pytest.raises(ValueError, match="must return a sequence of types"):
        ferrax.jit(q.bind)(1.0)


def test_mlir_lowerings_are_refused():
    M = modules(FERRAX)
    p = M.core.Primitive("low")
    p.def_abstract_eval(lambda x: x)
    M.mlir.register_lowering(p, lambda ctx, x: [M.mlir.ir_constant(1.0)])
    with pytest.raises(NotImplementedError, match="'low'.*MLIR"):
        ferrax.jit(p.bind)(1.0)
    with pytest.raises(NotImplementedError, match="'abacus', which is no platform"):
        M.mlir.register_lowering(p, lambda ctx, x: [x], platform="abacus")
    with pytest.raises(NotImplementedError, match="'abacus', which is no platform"):
        M.mlir.register_lowering(p, platform="abacus")


def test_what_is_lowered_to_mlir_is_called_where_it_is_known():
    M = modules(FERRAX)
    p = M.core.Primitive("called")
    calls = []
    p.def_abstract_eval(lambda x, *, scale: x)
    M.mlir.register_lowering(p, lambda ctx, x, scale: [x])

    @p.def_impl
    def impl(x, *, scale):
        calls.append(scale)
        return np.float32(scale) * np.asarray(x)

    M.ad.deflinear(p, lambda ct, scale: [p.bind(ct, scale=scale)])
    M.batching.defvectorized(p)
    f = ferrax.jit(lambda x: jnp.sum(p.bind(jnp.sin(x), scale=3.0)))
    x = jnp.array([0.5, 2.0])
    np.testing.assert_allclose(f(x), 3 * np.sum(np.sin(x)), rtol=1e-6)
    np.testing.assert_allclose(f(x), 3 * np.sum(np.sin(x)), rtol=1e-6)
    assert calls == [3.0, 3.0]
    np.testing.assert_allclose(ferrax.jit(ferrax.grad(f))(x), 3 * np.cos(x), rtol=1e-6)
    np.testing.assert_allclose(ferrax.vmap(f)(x[:, None]), 3 * np.sin(x), rtol=1e-6)
    p.def_impl(lambda x, *, scale: np.zeros(3, np.int32))
    with pytest.raises(TypeError, match=r"implementation of 'called': an output must be float32\[2\]"):
        f(x)


@same
def test_a_transpose_rule_may_return_the_class_of_zeros(S):
    M = modules(S)
    p = unary(S, "drops", lambda x: x)
    M.ad.primitive_jvps[p] = lambda primals, tangents: (p.bind(*primals), p.bind(*tangents))
    M.ad.primitive_transposes[p] = lambda ct, x: [M.ad.Zero(x.aval)]
    return S.jax.grad(lambda x: p.bind(x) + x)(1.0)


@SIDES
def test_effectful_primitives(S):
    M = modules(S)
    path = "jax._src.effects" if S.name == "jax" else "ferrax._src.base.effects"
    effects = importlib.import_module(path)

    class Counted(effects.Effect):
        __str__ = lambda self: "Counted"  # noqa: E731

    effects.lowerable_effects.add_type(Counted)
    p = M.core.Primitive("counted")
    p.def_impl(lambda x: x)
    p.def_effectful_abstract_eval(lambda x: (x, {Counted()}))
    M.mlir.register_lowering(p, M.mlir.lower_fun(lambda x: x, multiple_results=False))
    jaxpr = S.jax.make_jaxpr(lambda x: (p.bind(x), x)[1])(1.0)
    assert [eqn.primitive for eqn in jaxpr.eqns] == [p]
    assert [str(effect) for effect in jaxpr.effects] == ["Counted"]


@SIDES
def test_host_primitive_inside_control_flow(S):
    p = sine(S)

    @S.jax.jit
    def f(x):
        return S.lax.fori_loop(0, 3, lambda i, y: p.bind(y, scale=0.5) + i, x)

    want = 1.0
    for i in range(3):
        want = np.sin(want) * 0.5 + i
    np.testing.assert_allclose(f(1.0), want, rtol=1e-5)


# The native core's primitives


@pytest.mark.parametrize(
    "name,call",
    [
        ("exp_p", lambda S, x: S.jnp.exp(x)),
        ("add_p", lambda S, x: x + x),
        ("mul_p", lambda S, x: x * x),
        ("neg_p", lambda S, x: -x),
        ("integer_pow_p", lambda S, x: x**3),
        ("reduce_sum_p", lambda S, x: x.sum()),
        ("dot_general_p", lambda S, x: S.lax.dot(x, x)),
        ("convert_element_type_p", lambda S, x: x.astype("int32")),
        ("transpose_p", lambda S, x: S.lax.transpose(S.lax.expand_dims(x, (0,)), (1, 0))),
        ("select_n_p", lambda S, x: S.lax.select_n(x > 0, x, x)),
        ("gather_p", lambda S, x: x[S.jnp.array([1, 0])]),
        ("scatter_add_p", lambda S, x: x.at[S.jnp.array([1, 0])].add(1.0)),
        ("while_p", lambda S, x: S.lax.while_loop(lambda y: y[0] < 3, lambda y: y + 1, x)),
        ("scan_p", lambda S, x: S.lax.scan(lambda c, y: (c + y, c), 0.0, x)),
        ("cond_p", lambda S, x: S.lax.cond(x[0] > 0, lambda y: y, lambda y: -y, x)),
    ],
)
@SIDES
def test_builtin_primitives_are_the_equations_own(S, name, call):
    def walk(jaxpr):
        for eqn in jaxpr.eqns:
            yield eqn.primitive
            for sub in modules(S).core.jaxprs_in_params(eqn.params):
                yield from walk(sub)

    found = list(walk(S.jax.make_jaxpr(lambda x: call(S, x))(S.jnp.arange(3.0)).jaxpr))
    primitive = getattr(S.lax, name)
    assert any(p is primitive for p in found), found
    assert primitive.name == str(primitive)


def test_every_op_has_a_primitive():
    from ferrax import _core
    from ferrax._src.core.primitives import IN_FILES, LINALG
    from ferrax.extend.core import primitives

    for name, _ in _core.documented_ops():
        if name in IN_FILES:
            continue
        primitive = getattr(primitives, f"{name}_p")
        assert primitive.op == name
        # Where JAX has those of decompositions.
        if name in ("geqp3", "geqrf"):
            continue
        module = ferrax.lax.linalg if name in LINALG else ferrax.lax
        assert getattr(module, f"{name}_p") is primitive


@same
def test_binding_builtin_primitives(S):
    x = S.jnp.arange(1.0, 4.0)
    return (
        S.lax.exp_p.bind(x, accuracy=None),
        S.lax.add_p.bind(x, x),
        S.lax.integer_pow_p.bind(x, y=2),
        S.jax.jit(lambda y: S.lax.log_p.bind(y, accuracy=None))(x),
    )


def test_rules_of_builtin_primitives_cannot_be_replaced():
    M = modules(FERRAX)
    with pytest.raises(NotImplementedError, match="'exp'"):
        ferrax.lax.exp_p.def_impl(lambda x: x)
    with pytest.warns(UserWarning, match="transpose rule of 'neg'"):
        M.ad.primitive_transposes[ferrax.lax.neg_p] = lambda ct, x: [ct]
    del M.ad.primitive_transposes[ferrax.lax.neg_p]
    # It is linear in nothing, so that no rule is asked for.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        M.ad.primitive_transposes[ferrax.lax.stop_gradient_p] = lambda ct, x: [None]
    del M.ad.primitive_transposes[ferrax.lax.stop_gradient_p]


def test_rules_must_not_use_traced_values():
    M = modules(FERRAX)
    p = unary(FERRAX, "closes", lambda x, *, other: x + other[0])

    @ferrax.jit
    def f(x):
        return p.bind(x, other=[x * 2])

    with pytest.raises(ferrax.errors.UnexpectedTracerError, match="closes|trac"):
        f(1.0)
    assert M is modules(FERRAX)
