"""Functions with rules of their own in programs as users write them, against JAX: residuals that
are no arrays, rules that close over traced values, arguments by name."""

import collections
import functools

import numpy as np
import pytest
from oracle import FERRAX, same
from test_callbacks import printed
from test_custom_jvp import arrays, ramp

import ferrax

TRANSFORMS = {
    "plain": lambda S, f: f,
    "jit": lambda S, f: S.jax.jit(f),
    "vmap": lambda S, f: lambda x: S.jax.vmap(f)(S.jnp.stack([x, 2 * x])),
    "jit_vmap": lambda S, f: S.jax.jit(lambda x: S.jax.vmap(f)(S.jnp.stack([x, 2 * x]))),
}
each_transform = pytest.mark.parametrize("transform", TRANSFORMS)


def spread(S):
    """The sum, whose residuals are of all sorts: sizes, flags, NumPy's arrays."""

    @S.jax.custom_vjp
    def f(x):
        return x.sum()

    def fwd(x):
        return f(x), (x.shape, x.ndim == 1, np.arange(3), None, 2.5, S.jnp.ones(3), x)

    def bwd(residuals, g):
        shape, flat, steps, nothing, factor, ones, x = residuals
        assert nothing is None
        return (S.jnp.full(shape, g) * steps * factor * ones * x if flat else None,)

    f.defvjp(fwd, bwd)
    return f


@each_transform
@same(weak=False)
def test_residuals_that_are_known_stay_known(S, transform):
    return TRANSFORMS[transform](S, S.jax.grad(spread(S)))(ramp(S, 3))


@same
def test_residuals_that_are_known_under_a_derivative_of_a_batch(S):
    return S.jax.grad(lambda x: S.jax.vmap(spread(S))(x).sum())(S.jnp.ones((2, 3)))


def test_residuals_that_are_known_in_loops():
    # JAX has traced values there.
    f = spread(FERRAX)
    jnp, lax = ferrax.numpy, ferrax.lax

    def loop(x):
        return lax.scan(lambda c, _: (f(c) * x, None), x, None, length=2)[0].sum()

    expected = ferrax.grad(lambda x: (f(f(x) * x) * x).sum())(ramp(FERRAX, 3))
    np.testing.assert_allclose(ferrax.grad(loop)(ramp(FERRAX, 3)), expected, rtol=1e-6)
    remade = ferrax.grad(ferrax.checkpoint(f))(jnp.ones(3))
    np.testing.assert_allclose(remade, ferrax.grad(f)(jnp.ones(3)))


def closing_over(S, a):
    f = S.jax.custom_jvp(lambda x: x * a)
    f.defjvp(lambda p, t: (p[0] * a, t[0] * a * 2))
    return f


@each_transform
@same(weak=False)
def test_a_rule_in_a_loop_closes_over_what_is_traced_outside(S, transform):
    def loop(a, x):
        f = closing_over(S, a)
        last, all_of_them = S.lax.scan(lambda c, _: (f(c), f(c)), x, None, length=3)
        return last + all_of_them.sum()

    f = S.jax.grad(loop, argnums=1)
    return TRANSFORMS[transform](S, lambda a: f(a, 2 * a))(S.jnp.float32(2))


@same(weak=False)
def test_second_derivatives_of_a_rule_in_a_loop_that_closes_over(S):
    def loop(a, x):
        f = closing_over(S, a)
        return S.lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0] ** 2

    return S.jax.jit(S.jax.grad(S.jax.grad(loop, argnums=1), argnums=1))(2.0, 1.0)


def test_reverse_rules_in_loops_close_over_what_is_traced_outside():
    # JAX has an error for these.
    def loop(a, x):
        f = ferrax.custom_vjp(lambda x: x * a)
        f.defvjp(lambda x: (x * a, None), lambda _, g: (g * a * 2,))
        return ferrax.lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0]

    gradient = ferrax.grad(loop, argnums=1)
    assert ferrax.jit(gradient)(2.0, 1.0) == 64
    assert gradient(2.0, 1.0) == 64
    a = ferrax.numpy.arange(3.0)
    np.testing.assert_array_equal(ferrax.vmap(gradient, (0, None))(a, 1.0), 8 * a**3)
    assert ferrax.grad(ferrax.grad(lambda a, x: loop(a, x) ** 2, 1), 1)(2.0, 1.0) == 1024
    with pytest.raises(ferrax.errors.UnexpectedTracerError, match="closes over"):
        ferrax.grad(ferrax.jit(loop))(2.0, 1.0)


@pytest.mark.raises("UnexpectedTracerError")
@pytest.mark.parametrize("transform", ["grad", "jvp"])
@same
def test_a_function_of_constants_that_closes_over_what_is_differentiated(S, transform):
    if transform == "jvp":
        return S.jax.jvp(lambda a: closing_over(S, a)(3.0), (2.0,), (1.0,))
    return S.jax.grad(lambda a: closing_over(S, a)(3.0))(2.0)


Pair = collections.namedtuple("Pair", "a b")


COTANGENTS = {
    "keys": ({"a": 2.0, "b": 3.0}, lambda g: {"a": g, "c": g}),
    "a_key_less": ({"a": 2.0, "b": 3.0}, lambda g: {"a": g}),
    "list_for_tuple": ((2.0, 3.0), lambda g: [g, g]),
    "tuple_for_namedtuple": (Pair(2.0, 3.0), lambda g: (g, g)),
    "none": ({"a": (1.0, 2.0), "b": 3.0}, lambda g: {"a": None, "b": g}),
    "none_of_a_leaf": ({"a": (1.0, 2.0), "b": 3.0}, lambda g: {"a": (g, None), "b": g}),
    "a_leaf_for_a_tree": ({"a": (1.0, 2.0), "b": 3.0}, lambda g: {"a": g, "b": g}),
}


@pytest.mark.parametrize("name", COTANGENTS)
@same
def test_structures_of_cotangents(S, name):
    point, cotangent = COTANGENTS[name]
    f = S.jax.custom_vjp(lambda p: sum(S.jax.tree_util.tree_leaves(p)) * 1.0)
    f.defvjp(lambda p: (f(p), None), lambda _, g: (cotangent(g),))
    return S.jax.grad(f)(point)


@same
def test_nondiff_arguments_come_in_the_order_of_their_positions(S):
    vjp = functools.partial(S.jax.custom_vjp, nondiff_argnums=(2, 0))(lambda g, x, h: g(h(x)))
    vjp.defvjp(lambda g, x, h: (vjp(g, x, h), x), lambda g, h, x, ct: (ct * g(h(x)),))
    jvp = functools.partial(S.jax.custom_jvp, nondiff_argnums=(2, 0))(lambda g, x, h: g(h(x)))
    jvp.defjvp(lambda g, h, p, t: (g(h(p[0])), t[0] * g(h(p[0]))))
    double = lambda x: 2 * x  # noqa: E731
    x = S.jnp.float32(1)
    return S.jax.grad(vjp, 1)(S.jnp.sin, x, double), S.jax.grad(jvp, 1)(S.jnp.sin, x, double)


def keyword_only(S, kind):
    f = getattr(S.jax, kind)(lambda x, *, k=2.0: x * k)
    if kind == "custom_jvp":
        f.defjvp(lambda p, t: (f(*p), t[0] * 9))
    else:
        f.defvjp(lambda x: (f(x), None), lambda _, g: (g * 9,))
    return f


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@same
def test_keyword_only_arguments_keep_their_defaults(S, kind):
    f = keyword_only(S, kind)
    return arrays(S, (f(1.0), S.jax.value_and_grad(f)(1.0), S.jax.jit(S.jax.grad(f))(1.0)))


@pytest.mark.raises("TypeError")
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@same
def test_keyword_only_arguments_cannot_be_given(S, kind):
    return keyword_only(S, kind)(1.0, k=3.0)


def branching(S):
    """A function of a number whose rule looks at the tangent."""
    f = functools.partial(S.jax.custom_jvp)(lambda x, n=2: (x * n, n))

    @f.defjvp
    def rule(primals, tangents):
        (x, n), (t, _) = primals, tangents
        factor = 10.0 if t.sum() > 0 else np.float32(20) * np.abs(np.asarray(t))
        return f(x, n), (t * factor, np.zeros((), S.jax.dtypes.float0))

    return lambda x: f(x)[0]


TANGENTS = {
    "positive": lambda S, f, x: S.jax.jvp(f, (x,), (x,)),
    "negative": lambda S, f, x: S.jax.jvp(f, (x,), (-x,)),
    "of_a_step_before": lambda S, f, x: S.jax.jvp(lambda x: f(f(-x) + x), (x,), (x,)),
    "vector": lambda S, f, x: S.jax.jvp(f, (x * S.jnp.ones(3),), (-x * S.jnp.ones(3),)),
    "rank": lambda S, f, x: S.jax.jvp(lambda x: S.jnp.sin(f(x)), (x,), (x,)),
    "grad": lambda S, f, x: S.jax.grad(f)(x),
    "linearize": lambda S, f, x: S.jax.linearize(f, x)[1](x),
    "jacfwd": lambda S, f, x: S.jax.jacfwd(f)(x * S.jnp.ones(3)),
    "jit": lambda S, f, x: S.jax.jit(lambda x: S.jax.jvp(f, (x,), (x,)))(x),
    "vmap": lambda S, f, x: S.jax.vmap(lambda t: S.jax.jvp(f, (x,), (t,)))(S.jnp.ones(3)),
    "jvp_of_grad": lambda S, f, x: S.jax.jvp(S.jax.grad(f), (x,), (x,)),
    "grad_of_jvp": lambda S, f, x: S.jax.grad(lambda x: S.jax.jvp(f, (x,), (x,))[1])(x),
}


@pytest.mark.parametrize("name", TANGENTS)
@same
def test_rules_that_look_at_tangents(S, name):
    return arrays(S, TANGENTS[name](S, branching(S), S.jnp.float32(2)))


def printing(S, kind):
    """A function and rules that print, both what they get and what depends on nothing."""
    say = S.jax.debug.print

    def f(x):
        say("function")
        say("function of {}", x)
        return x * x

    if kind == "custom_jvp":
        f = S.jax.custom_jvp(f)

        @f.defjvp
        def rule(primals, tangents):
            (x,), (t,) = primals, tangents
            say("rule")
            say("rule of {}", x)
            return x * x, 2 * x * t

        return f
    f = S.jax.custom_vjp(f)

    def fwd(x):
        say("forward")
        say("forward of {}", x)
        return x * x, x

    def bwd(x, g):
        say("reverse")
        say("reverse of {}", g)
        return (2 * x * g,)

    f.defvjp(fwd, bwd)
    return f


PRINTS = {
    "call": lambda S, f, x: f(x),
    "jit": lambda S, f, x: S.jax.jit(f)(x),
    "grad": lambda S, f, x: S.jax.grad(f)(x),
    "jit_grad": lambda S, f, x: S.jax.jit(S.jax.grad(f))(x),
    "vjp_alone": lambda S, f, x: S.jax.vjp(f, x)[0],
    "vmap": lambda S, f, x: S.jax.vmap(f)(x * S.jnp.ones(2)),
    "vmap_grad": lambda S, f, x: S.jax.vmap(S.jax.grad(f))(x * S.jnp.ones(2)),
    "grad_grad": lambda S, f, x: S.jax.grad(S.jax.grad(f))(x),
    "of_a_constant": lambda S, f, x: S.jax.grad(lambda x: x * f(S.jnp.float32(3)))(x),
}


@pytest.mark.parametrize("name", PRINTS)
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@same(weak=False)
def test_effects_are_those_of_what_runs(S, kind, name):
    lines, result = printed(S, PRINTS[name], S, printing(S, kind), S.jnp.float32(2))
    return sorted(lines.splitlines()), result


def with_another_forward_pass(S, kind):
    """A function whose rule gives another value than the function itself."""
    f = getattr(S.jax, kind)(lambda x: x * 2)
    if kind == "custom_jvp":
        f.defjvp(lambda p, t: (p[0] * 3, t[0] * p[0] * 5))
    else:
        f.defvjp(lambda x: (x * 3, x), lambda x, g: (g * x * 5,))
    return f


PLACES = {
    "plain": lambda S, f: f,
    "jit": lambda S, f: S.jax.jit(f),
    "scan": lambda S, f: lambda x: S.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0],
    "checkpoint": lambda S, f: S.jax.checkpoint(f),
    "checkpoint_jit": lambda S, f: S.jax.checkpoint(lambda x: S.jnp.sin(S.jax.jit(f)(x))),
    "checkpoint_scan": lambda S, f: S.jax.checkpoint(
        lambda x: S.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]),
    "checkpoint_saving": lambda S, f: S.jax.checkpoint(
        lambda x: S.jnp.sin(f(x)), policy=S.jax.checkpoint_policies.everything_saveable),
    "scan_checkpoint": lambda S, f: lambda x: S.lax.scan(
        S.jax.checkpoint(lambda c, _: (f(c), None)), x, None, length=2)[0],
    "cond": lambda S, f: lambda x: S.lax.cond(x > 0, f, lambda x: x, x),
    "vmap": lambda S, f: lambda x: S.jax.vmap(f)(S.jnp.stack([x, x])).sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@same(weak=False)
def test_values_beside_derivatives_are_those_of_the_forward_rule(S, kind, name):
    f = PLACES[name](S, with_another_forward_pass(S, kind))
    x = S.jnp.float32(1.5)
    return f(x), S.jax.value_and_grad(f)(x), S.jax.jit(S.jax.value_and_grad(f))(x)


def refusing(S, kind):
    """The cube, with rules that are not to be called."""

    def rule(*_):
        raise ArithmeticError("the rule was called")

    f = getattr(S.jax, kind)(lambda x: x**3)
    f.defjvp(rule) if kind == "custom_jvp" else f.defvjp(rule, rule)
    return f


UNASKED = {
    "grad": lambda S, f: S.jax.value_and_grad(f),
    "jvp": lambda S, f: lambda x: S.jax.jvp(f, (x,), (x,)),
    "linearize": lambda S, f: lambda x: S.jax.linearize(f, x)[0],
    "hessian": lambda S, f: S.jax.hessian(f),
    "vmap": lambda S, f: S.jax.vmap(S.jax.grad(f), axis_size=2, in_axes=None),
    "jit": lambda S, f: S.jax.jit(S.jax.grad(f)),
}


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("name", UNASKED)
@same
def test_rules_are_not_asked_where_nothing_has_a_tangent(S, kind, name):
    f = refusing(S, kind)
    return UNASKED[name](S, lambda x: x * f(S.lax.stop_gradient(x)))(2.0)


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("name", UNASKED)
def test_what_rules_raise_is_raised_where_they_are_asked(kind, name):
    f = refusing(FERRAX, kind)
    with pytest.raises((ArithmeticError, TypeError)) as raised:
        UNASKED[name](FERRAX, lambda x: x * f(x))(2.0)
    refused = kind == "custom_vjp" and name == "jvp"
    assert refused or [entry.name for entry in raised.traceback][-1] == "rule"
