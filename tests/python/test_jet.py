"""`jet` against JAX's and against nested `jvp`, to order 4: every operation, programs with control
flow, transformations of and around it, rules of one's own, errors."""

import functools
import importlib
import math

import jax
import numpy as np
import pytest
from oracle import FERRAX, JAX, compare, same

import ferrax
import ferrax.extend.core
import ferrax.interpreters.ad
import ferrax.interpreters.mlir
import ferrax.numpy as jnp
from ferrax.experimental import jet as ours

ORDER = 4
# Coefficients of this order are sums of many products.
ULPS = 256




def lib(S):
    return importlib.import_module(f"{S.name}.experimental.jet")


def point(S, dtype="float32"):
    """A vector and four derivatives of a curve through it."""
    x = S.jnp.asarray([0.3, 0.6, 0.8], dtype)
    terms = [[1.0, 0.5, -0.7], [0.3, -0.4, 0.2], [-0.2, 0.1, 0.6], [0.5, 0.3, -0.1]]
    return x, [S.jnp.asarray(term, dtype) for term in terms]


def nested(S, f, x, terms):
    """`f` and its derivatives along a curve, by `jvp` of `jvp`s."""

    def curve(t):
        out = f(sum((a * t**k / math.factorial(k) for k, a in enumerate(terms, 1)), start=x))
        return S.jax.tree_util.tree_map(lambda leaf: leaf * S.jnp.float32(1), out)

    def derivatives(order, t):
        if order == 0:
            return [curve(t)]
        values, tangents = S.jax.jvp(functools.partial(derivatives, order - 1), (t,), (1.0,))
        return [*values, tangents[-1]]

    _, *rest = derivatives(len(terms), 0.0)
    return f(x), S.jax.tree_util.tree_map(lambda *parts: list(parts), *rest)


def elementwise(S):
    jnp, lax = S.jnp, S.lax
    return {
        **{
            name: getattr(lax, name)
            for name in (
                "exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos",
                "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "atanh", "logistic",
                "erf", "erfc", "erf_inv", "lgamma", "digamma", "neg", "abs", "square", "floor",
                "sign", "round", "is_finite", "stop_gradient", "reciprocal",
            )
        },
        "acosh": lambda x: lax.acosh(x + 1),
        "div": lambda x: lax.div(jnp.sin(x), 2 + x),
        "div_constant": lambda x: x / 3,
        "constant_div": lambda x: 3 / (1 + x),
        "mul": lambda x: x * jnp.cos(x) * x,
        "sub": lambda x: 1 - x * x - x,
        "atan2": lambda x: lax.atan2(jnp.sin(x), x - 0.5),
        "atan2_constant": lambda x: lax.atan2(jnp.ones(3), x) + lax.atan2(x, jnp.ones(3)),
        "pow": lambda x: lax.pow(1 + x, jnp.sin(x)),
        "pow_constant": lambda x: x**2.5 + jnp.float32(2) ** x,
        "pow_integers": lambda x: lax.pow(x, jnp.array([1, 2, 3])),
        "integer_pow": lambda x: x**5 + x**-3 + x**0 + x**1,
        "rem": lambda x: lax.rem(5 * x, 1 + x) + lax.rem(-7 * x, 0.4 + 0 * x),
        "max": lambda x: lax.max(jnp.sin(x), 0.5 + 0 * x) + jnp.maximum(0.1, x),
        "min": lambda x: lax.min(jnp.sin(x), x * x) - jnp.minimum(x, 0.1),
        "clamp": lambda x: lax.clamp(0.35, x * x, 0.5) + lax.clamp(x, 0.5 * jnp.ones(3), 2 * x),
        "where": lambda x: jnp.where(x > 0.5, jnp.exp(x), x * x) + jnp.where(x > 0, x, 1.0),
        "complex": lambda x: jnp.abs(lax.complex(jnp.sin(x), x * x)) * 2,
        "complex_exp": lambda x: jnp.real(jnp.exp(1j * x) * jnp.conj(x + 2j)) + jnp.imag(1j * x * x),
        "cast": lambda x: x.astype("float16").astype("float32") * 0 + x,
        "integers": lambda x: (jnp.round(3 * x).astype(int), x > 0.5),
        "softplus": lambda x: S.jax.nn.softplus(x) + S.jax.nn.gelu(x),
    }  # fmt: skip


def structured(S):
    jnp, lax, tree = S.jnp, S.lax, S.jax.tree_util
    matrix = jnp.asarray(np.arange(9).reshape(3, 3) / 7 - 0.3, "float32")
    index = jnp.array([2, 0, 2])

    def mlp(x):
        for _ in range(2):
            x = jnp.tanh(matrix @ x + 0.1)
        return x

    def scan(x):
        def body(carry, y):
            count, a, b = carry
            return (count + 1, jnp.sin(a * y), b), (a + b, y * y, count)

        return lax.scan(body, (0, x, jnp.ones(3)), jnp.stack([x, x * x]))

    def scan_of_constants(x):
        # The second part of the carry varies from the second turn on.
        return lax.scan(lambda c, y: ((c[0] * y, c[1] + c[0]), None), (x, jnp.zeros(3)), jnp.arange(3.0))

    def while_(x):
        def body(c):
            return c[0] + 1, c[1] * x + matrix[0], c[2] / 2

        return lax.while_loop(lambda c: (c[0] < 3) & (c[2] > 0), body, (0, x, 1.0))

    def cond(x):
        return lax.cond(x[0] > 0.2, lambda x: (jnp.exp(x), 1.0), lambda x: (x, 2.0), x)

    def switch(x):
        return lax.switch(index[0], [jnp.sin, jnp.cos, lambda x: x * x[0]], x)

    @S.jax.jit
    def inner(x, y):
        return x * y, y, {"z": x[0]}

    @S.jax.custom_jvp
    def safe(x):
        return jnp.sqrt(x) * x

    safe.defjvp(lambda p, t: (safe(*p), 1.5 * jnp.sqrt(p[0]) * t[0]))

    @S.jax.custom_vjp
    def reverse(x):
        return jnp.sin(x)

    reverse.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.cos(x) * ct,))

    return {
        "mlp": mlp,
        "dot": lambda x: (jnp.outer(x, jnp.sin(x)) @ matrix * x).sum(0),
        "shapes": lambda x: jnp.concatenate([x[None], jnp.ones((2, 3)) * x[:, None].T], 0)
        .T.reshape(9)[::-1][1:8:2],
        "pad": lambda x: lax.pad(x, x[0], ((1, 2, 1),)),
        "sums": lambda x: (jnp.sum(x * x), jnp.cumsum(jnp.exp(x)), jnp.mean(x)),
        "products": lambda x: (jnp.prod(jnp.sin(x)), jnp.cumprod(x), lax.cumprod(x, reverse=True)),
        "product_of_axes": lambda x: jnp.prod(x[:, None, None] * matrix[None] + 1, axis=(0, 2)),
        "extremes": lambda x: (x.max(), (x[None] * matrix).min(0), lax.cummax(x), lax.cummin(-x)),
        "argmax": lambda x: jnp.argmax(x) * x,
        "gather": lambda x: x[index] + x[1] + x[:, None][index, 0],
        "dynamic": lambda x: lax.dynamic_update_slice(
            x, lax.dynamic_slice(x * x, (index[1],), (2,)), (index[1] + 1,)
        ),
        "scatter": lambda x: x.at[index[:2]].set(jnp.sin(x[:2])).at[index].add(x).at[1].multiply(x[0]),
        "softmax": lambda x: (S.jax.nn.softmax(x), S.jax.nn.logsumexp(x)),
        "scan": scan,
        "scan_of_constants": scan_of_constants,
        "while": while_,
        "fori": lambda x: lax.fori_loop(0, 3, lambda i, c: c * x + i, x),
        "cond": cond,
        "switch": switch,
        "jit": lambda x: inner(x, inner(x * x, matrix[0])[0]),
        "checkpoint": S.jax.checkpoint(mlp),
        "custom_jvp": lambda x: safe(jnp.sin(x)),
        "custom_vjp": reverse,
        "grad": S.jax.grad(lambda x: jnp.sum(jnp.tanh(x) * x)),
        "vmap": S.jax.vmap(lambda x: jnp.sin(x) * matrix[0]),
        "jvp": lambda x: S.jax.jvp(jnp.tanh, (x,), (x,))[1],
        "unused": lambda x: (jnp.ones(3), x[0], None),
        "random": lambda x: x * S.random.uniform(S.random.key(0), (3,)),
        "tree": lambda x: tree.tree_map(jnp.sin, {"a": [x, x * 2], "b": (x[0],)}),
    }


def functions(S):
    return elementwise(S) | structured(S)


NAMES = list(functions(FERRAX))
# What JAX's jet has no rules for, or fails with.
NOT_IN_JAX = {
    "custom_jvp", "custom_vjp",
    "lgamma", "digamma", "tan", "asin", "acos", "atan", "cbrt", "exp2", "products", "scatter",
    "product_of_axes", "extremes", "argmax", "dynamic", "scan", "scan_of_constants", "while", "fori",
    "cond", "switch", "checkpoint", "random", "complex", "pow_integers", "round", "atan2_constant",
    "clamp", "integers", "unused", "rem", "vmap", "softplus", "min", "max",
}  # fmt: skip


def in_64_bits(values):
    """`values(x, terms)` by JAX in 64 bits, compiled, of the same point; rounded to 32 bits."""
    arguments = point(JAX)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda a: a.astype("float64"), arguments)
        found = jax.tree.map(np.asarray, jax.jit(values)(*wide))
    narrow = {"float64": "float32", "complex128": "complex64", "int64": "int32"}
    return jax.tree.map(lambda a: a.astype(narrow.get(a.dtype.name, a.dtype)), found)


@functools.cache
def oracle_values():
    """What JAX gives for every function, compiled at once; in 32 bits some fourth derivatives have four digits."""
    return in_64_bits(lambda x, terms: {
        name: lib(JAX).jet(f, (x,), (terms,)) for name, f in functions(JAX).items() if name not in NOT_IN_JAX
    })


@functools.cache
def own_values(name):
    x, terms = point(FERRAX)
    return ours.jet(functions(FERRAX)[name], (x,), (terms,))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_IN_JAX])
def test_against_jax(name):
    compare(own_values(name), oracle_values()[name], weak=False, ulps=ULPS)


# custom_vjp has no jvp; the oracle of the complex absolute value is JAX's, below.
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("custom_vjp", "complex")])
def test_against_nested_jvp(name):
    x, terms = point(FERRAX)
    f = functions(FERRAX)[name]
    expected = ferrax.jit(lambda x, terms: nested(FERRAX, f, x, terms))(x, terms)
    compare(own_values(name), expected, weak=False, ulps=ULPS)


def test_nested_jvp_of_jax():
    # The other oracle's oracle, for operations whose rules JAX lacks.
    def values(x, terms):
        fs = functions(JAX)
        names = ("complex", "lgamma", "asin", "tan", "scan", "products")
        return {name: nested(JAX, fs[name], x, terms) for name in names}

    for name, expected in in_64_bits(values).items():
        compare(own_values(name), expected, weak=False, ulps=ULPS)


def test_custom_vjp_is_what_it_computes():
    x, terms = point(FERRAX)
    compare(own_values("custom_vjp"), ours.jet(jnp.sin, (x,), (terms,)))


@pytest.mark.parametrize("name", NAMES)
def test_under_jit(name):
    x, terms = point(FERRAX)
    f = functions(FERRAX)[name]
    outs = ferrax.jit(lambda x, terms: ours.jet(f, (x,), (terms,)))(x, terms)
    compare(outs, own_values(name), ulps=64)


SOME = ["tanh", "div", "pow", "mlp", "scan", "cond", "jit", "custom_jvp", "integers"]


@pytest.mark.parametrize("name", SOME)
def test_under_vmap(name):
    x, terms = point(FERRAX)
    f = functions(FERRAX)[name]

    def call(x, terms):
        return ours.jet(f, (x,), (terms,))

    rows = [(x * k, [term * k for term in terms]) for k in (1.0, 0.5)]
    stacked = ferrax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *rows)
    batched = ferrax.vmap(call)(*stacked)
    for i, row in enumerate(rows):
        lane = ferrax.tree_util.tree_map(lambda leaf, i=i: leaf[i], batched)
        compare(lane, call(*row), weak=False, ulps=64)


@pytest.mark.parametrize("name", ["tanh", "div", "mlp", "scan", "cond", "jit", "custom_jvp"])
def test_derivatives_of_derivatives(name):
    # The derivative along the curve of the second derivative is the third.
    x, terms = point(FERRAX)
    f = functions(FERRAX)[name]

    def derivative(x, terms):
        value, series = ours.jet(f, (x,), (terms,))
        tree = ferrax.tree_util.tree_structure(value)
        pairs = zip(ferrax.tree_util.tree_leaves(value), tree.flatten_up_to(series))
        return [u[-1] for v, u in pairs if jnp.issubdtype(v.dtype, jnp.inexact)]

    _, third = ferrax.jvp(derivative, (x, terms[:2]), (terms[0], terms[1:3]))
    compare(third, derivative(x, terms[:3]), weak=False, ulps=ULPS)


def test_grad_of_jet():
    def energy(x):
        _, (first, second) = ours.jet(jnp.sin, (x,), ((1.0, 0.0),))
        return first**2 + second

    np.testing.assert_allclose(
        ferrax.grad(energy)(0.4), -2 * math.cos(0.4) * math.sin(0.4) - math.cos(0.4), rtol=1e-5
    )


def test_jet_of_jet():
    def inner(x):
        return ours.jet(jnp.exp, (2 * x,), ((1.0, 0.0),))[1][1]

    value, (first, second) = ours.jet(inner, (0.5,), ((1.0, 0.0),))
    np.testing.assert_allclose([value, first, second], np.exp(1) * np.array([1, 2, 4]), rtol=1e-5)


CASES = {
    "two_arguments": lambda S, jet: jet(
        lambda x, y: x * S.jnp.sin(y), (0.5, 2.0), ((1.0, 0.0, 0.5), (0.0, 1.0, 0.0))
    ),
    "numbers": lambda S, jet: jet(lambda x: x**3 + 2, (0.5,), ((1.0, 0.0),)),
    "strong": lambda S, jet: jet(
        lambda x: x**3 + 2, (S.jnp.float32(0.5),), ((S.jnp.float32(1), S.jnp.float32(0)),)
    ),
    "lists": lambda S, jet: jet(lambda x: [x * 2, (x + 1,)], [0.5], [[1.0, 0.0]]),
    "order_0": lambda S, jet: jet(S.jnp.sin, (0.5,), ((),)),
    "order_1": lambda S, jet: jet(S.jnp.sin, (0.5,), ((2.0,),)),
    "unscaled": lambda S, jet: jet(
        lambda x: S.jnp.exp(x) * x, (0.5,), ((1.0, 0.5, 0.25),), factorial_scaled=False
    ),
    "half": lambda S, jet: jet(
        lambda x: S.jnp.exp(x) / (1 + x), (S.jnp.float16(0.5),), ((S.jnp.float16(1), S.jnp.float16(0)),)
    ),
    "ties": lambda S, jet: jet(
        lambda x: (x.max(), S.lax.max(x, S.jnp.ones(3)), S.lax.abs(x - 1)),
        (S.jnp.ones(3),),
        ((S.jnp.array([1.0, 2.0, 4.0]), S.jnp.ones(3)),),
    ),
    "zero_base": lambda S, jet: jet(lambda x: x**3 + x**2, (0.0,), ((1.0, 0.0, 0.0, 0.0),)),
    "unequal_lengths": lambda S, jet: jet(lambda x, y: x, (1.0, 1.0), ((1.0, 0.0), (1.0,))),
    "no_arguments": lambda S, jet: jet(lambda: 1.0, (), ()),
    "tree_argument": lambda S, jet: jet(lambda x: x[0], ([1.0],), ((1.0,),)),
    "tree_term": lambda S, jet: jet(lambda x: x, (1.0,), (([1.0],),)),
    "integer": lambda S, jet: jet(lambda x: x * x, (3,), ((1.0, 0.0),)),
    "too_few_series": lambda S, jet: jet(lambda x, y: x, (1.0, 2.0), ((1.0,),)),
}


@pytest.mark.parametrize("name", CASES)
@same(weak=False)
def test_signature(S, name):
    return CASES[name](S, lib(S).jet)


def test_errors_say_what_is_expected():
    with pytest.raises(ValueError, match=r"got \[2, 1\], expected one number"):
        ours.jet(lambda x, y: x, (1.0, 1.0), ((1.0, 0.0), (1.0,)))
    with pytest.raises(ValueError, match=r"term 1 for argument 0 has shape \(2,\), expected .* \(3,\)"):
        ours.jet(lambda x: x, (jnp.ones(3),), ((jnp.ones(3), jnp.ones(2)),))
    with pytest.raises(TypeError, match=r"argument 1 has dtype int32"):
        ours.jet(lambda x, i: x * i, (1.0, 2), ((1.0, 0.0), (0.0, 1.0)))
    value, series = ours.jet(lambda x, i: x[i] ** 2, (jnp.ones(3), 2), ([jnp.ones(3)] * 2, (0, 0)))
    assert (float(value), [float(term) for term in series]) == (1.0, [2.0, 4.0])


def test_fact():
    assert [float(ours.fact(n)) for n in range(6)] == [1, 1, 2, 6, 24, 120]
    np.testing.assert_allclose(ours.fact(jnp.arange(5.0)), [1, 1, 2, 6, 24], rtol=1e-5)


def test_public_names():
    import jax.experimental.jet as theirs

    names = {name for name in dir(theirs) if name.startswith(("def", "jet", "zero", "fact", "Zero"))}
    names -= {"jet_fun", "jet_subtrace", "zero_prop"}
    assert names <= set(dir(ours)), names - set(dir(ours))


# Operations of one's own


def own_primitive(name, function):
    primitive = ferrax.extend.core.Primitive(name)
    primitive.def_impl(function)
    primitive.def_abstract_eval(lambda x: ferrax.core.ShapedArray(x.shape, x.dtype))
    ferrax.interpreters.mlir.register_lowering(
        primitive, ferrax.interpreters.mlir.lower_fun(function, multiple_results=False)
    )
    return primitive


def sine_by_rule(primitive):
    def rule(primals, series):
        (x,), (terms,) = primals, series
        assert isinstance(terms, list) and len(terms) == 3
        return ours.jet(jnp.sin, (x,), (terms,), factorial_scaled=False)

    ours.jet_rules[primitive] = rule


DEFINITIONS = {
    "def_comp": lambda p: ours.def_comp(p, lambda x: jnp.sin(x)),
    "def_deriv": lambda p: ours.def_deriv(p, jnp.cos),
    "jet_rules": sine_by_rule,
    "jvp": lambda p: ferrax.interpreters.ad.defjvp(p, lambda t, x: t * jnp.cos(x)),
}


@pytest.mark.parametrize("how", DEFINITIONS)
def test_primitives_of_ones_own(how):
    sine_p = own_primitive(f"sine_{how}", jnp.sin)
    DEFINITIONS[how](sine_p)
    arguments = (jnp.float32(0.3),), ((1.0, 0.5, 0.0),)
    for wrap in (lambda f: f, ferrax.jit):
        got = ours.jet(wrap(lambda x: 2 * sine_p.bind(x) + sine_p.bind(1.0)), *arguments)
        expected = ours.jet(lambda x: 2 * jnp.sin(x) + jnp.sin(1.0), *arguments)
        compare(got, expected)


def test_linear_and_constant_primitives():
    double_p = own_primitive("double_of_jet", lambda x: 2 * x)
    ours.deflinear(double_p)
    step_p = own_primitive("step_of_jet", jnp.floor)
    ours.defzero(step_p)
    f = lambda x: double_p.bind(x) ** 2 + step_p.bind(x) * x  # noqa: E731
    value, series = ours.jet(f, (1.5,), ((1.0, 0.0),))
    np.testing.assert_allclose([value, *series], [10.5, 13.0, 8.0])


def test_primitive_without_any_rule():
    lone_p = own_primitive("lone_of_jet", lambda x: x)
    with pytest.raises(NotImplementedError, match="lone_of_jet"):
        ours.jet(lone_p.bind, (1.0,), ((1.0, 0.0),))


def test_custom_jvp_rules_count():
    # Nested jvps see the rule; so does jet, where it disagrees with the function too.
    @ferrax.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvp(lambda p, t: (f(*p), 3 * p[0] * t[0]))
    x, terms = jnp.float32(0.5), [jnp.float32(a) for a in (1.0, 0.5, 0.25)]
    compare(ours.jet(f, (x,), (terms,)), nested(FERRAX, f, x, terms), weak=False, ulps=64)


def test_values_of_primal_only():
    # Constants and integers do not get series of zeros to compute with.
    def f(x):
        return jnp.sin(jnp.arange(3.0)) * x

    text = str(ferrax.make_jaxpr(lambda x: ours.jet(f, (x,), ((1.0, 0.0),)))(2.0))
    assert text.count(" sin ") == 1 and text.count(" cos ") == 0


def test_high_order():
    # tanh at 0 to order 9, from the numbers of tangents.
    _, series = ours.jet(jnp.tanh, (0.0,), ((1.0, *[0.0] * 8),))
    np.testing.assert_allclose(series, [1, 0, -2, 0, 16, 0, -272, 0, 7936], rtol=1e-4)
