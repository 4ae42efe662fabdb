"""`custom_vmap` and `sequential_vmap` against JAX: which rule runs with what, under every
transformation, and errors."""

import numpy as np
import pytest
from oracle import same
from test_custom_jvp import arrays, ramp

import ferrax
import ferrax.numpy as jnp


def plain(S, fun, rule):
    f = S.jax.custom_batching.custom_vmap(fun)
    f.def_vmap(rule)
    return f


def swapped(S):
    """x + y, whose batching rule multiplies."""
    return plain(S, lambda x, y: x + y, lambda size, batched, x, y: (x * y, any(batched)))


def told(S, seen):
    def rule(size, batched, x, y):
        seen.append((size, batched, x.shape, y.shape))
        return x + y, any(batched)

    return plain(S, lambda x, y: x + y, rule)


def tree(S):
    def fun(p, x):
        return {"a": p["w"] * x, "b": (p["v"][0] + 1,)}

    def rule(size, batched, p, x):
        flags, of_x = batched
        out = {"a": 10 * p["w"] * x, "b": (p["v"][0] + 7,)}
        return out, {"a": flags["w"] or of_x, "b": (flags["v"][0],)}

    return plain(S, fun, rule)


def tree_point(S, n=3):
    return {"w": ramp(S, n), "v": [ramp(S, n)]}, ramp(S, n) * 2


def sine(S):
    """sin, whose batching rule is the cosine: derivatives show which of the two they are of."""
    return plain(S, S.jnp.sin, lambda size, batched, x: (S.jnp.cos(x), batched[0]))


def with_vjp(S):
    """A function with both kinds of rules."""

    @S.jax.custom_vjp
    @S.jax.custom_batching.custom_vmap
    def f(x, y):
        return S.jnp.sin(x) * y

    f.def_vmap(lambda size, batched, x, y: (S.jnp.cos(x) * y, True))
    f.defvjp(
        lambda x, y: (f(x, y), (S.jnp.cos(x), S.jnp.sin(x), y)),
        lambda res, g: (res[0] * g * res[2], res[1] * g * 10),
    )
    return f


def with_jvp(S):
    @S.jax.custom_jvp
    @S.jax.custom_batching.custom_vmap
    def f(x):
        return x * 2

    f.def_vmap(lambda size, batched, x: (x * 3, True))
    f.defjvp(lambda p, t: (f(*p), t[0] * 5))
    return f


def sequential(S):
    return S.jax.custom_batching.sequential_vmap(lambda x, y: x * y["a"] + y["b"])


CASES = {
    "call": lambda S: swapped(S)(2.0, 3.0),
    "jit": lambda S: S.jax.jit(swapped(S))(2.0, 3.0),
    "vmap": lambda S: S.jax.vmap(swapped(S))(ramp(S, 3), ramp(S, 3)),
    "vmap_first": lambda S: S.jax.vmap(swapped(S), (0, None))(ramp(S, 3), 3.0),
    "vmap_second": lambda S: S.jax.vmap(swapped(S), (None, 0))(3.0, ramp(S, 3)),
    "vmap_axis": lambda S: S.jax.vmap(swapped(S), (1, None), 1)(ramp(S, 2, 3), ramp(S, 2)),
    "vmap_not_batched": lambda S: S.jax.vmap(lambda x: swapped(S)(2.0, 3.0) * x)(ramp(S, 3)),
    "vmap_vmap": lambda S: S.jax.vmap(S.jax.vmap(swapped(S)))(ramp(S, 2, 3), ramp(S, 2, 3)),
    "vmap_vmap_mixed": lambda S: S.jax.vmap(S.jax.vmap(swapped(S), (0, None)), (None, 0))(ramp(S, 2), ramp(S, 3)),
    "jit_vmap": lambda S: S.jax.jit(S.jax.vmap(swapped(S)))(ramp(S, 3), ramp(S, 3)),
    "vmap_jit": lambda S: S.jax.vmap(S.jax.jit(swapped(S)))(ramp(S, 3), ramp(S, 3)),
    "vmap_scan": lambda S: S.jax.vmap(
        lambda x: S.lax.scan(lambda c, y: (swapped(S)(c, y), c), x, ramp(S, 3)))(ramp(S, 2)),
    "scan_vmap": lambda S: S.lax.scan(lambda c, y: (S.jax.vmap(swapped(S))(c, y), None),
                                      ramp(S, 3), ramp(S, 2, 3))[0],
    "vmap_cond": lambda S: S.jax.vmap(
        lambda x: S.lax.cond(x > 1, lambda x: swapped(S)(x, 3.0), lambda x: x, x))(ramp(S, 6)),
    "vmap_checkpoint": lambda S: S.jax.vmap(S.jax.checkpoint(swapped(S)))(ramp(S, 3), ramp(S, 3)),
    "seen": lambda S: (lambda seen: (
        S.jax.vmap(told(S, seen), (0, None))(ramp(S, 3), S.jnp.float32(1)), seen))([]),
    "seen_not_called": lambda S: (lambda seen: (S.jax.jit(told(S, seen))(1.0, 1.0), seen))([]),
    "tree_call": lambda S: tree(S)(*tree_point(S)),
    "tree": lambda S: S.jax.vmap(tree(S))(*tree_point(S)),
    "tree_some": lambda S: S.jax.vmap(tree(S), in_axes=({"w": None, "v": 0}, None))(*tree_point(S)),
    "tree_kwargs": lambda S: S.jax.vmap(lambda x: tree(S)(x=x, p=tree_point(S)[0])["a"])(ramp(S, 2)),
    "closure": lambda S: S.jax.jit(lambda y: S.jax.vmap(
        plain(S, lambda x: x * y, lambda size, b, x: (x * 5, True)))(ramp(S, 3)))(2.0),
    "closure_call": lambda S: S.jax.jit(lambda y: plain(
        S, lambda x: x * y, lambda size, b, x: (x * 5, True))(2.0))(3.0),
    "list_flags": lambda S: S.jax.vmap(plain(
        S, lambda x, y: x + y, lambda size, b, x, y: (x + y, type(b) is list)))(ramp(S, 2), ramp(S, 2)),
    # derivatives
    "jvp": lambda S: S.jax.jvp(sine(S), (S.jnp.float32(0.3),), (S.jnp.float32(2),)),
    "jvp_jit": lambda S: S.jax.jit(lambda x: S.jax.jvp(sine(S), (x,), (x,)))(S.jnp.float32(0.3)),
    "jvp_jvp": lambda S: S.jax.jvp(
        lambda x: S.jax.jvp(sine(S), (x,), (x,))[1], (S.jnp.float32(0.3),), (S.jnp.float32(2),)),
    "vmap_jvp": lambda S: S.jax.vmap(lambda x, t: S.jax.jvp(sine(S), (x,), (t,)))(ramp(S, 3), ramp(S, 3) * 2),
    "vmap_jvp_tangents": lambda S: S.jax.vmap(
        lambda t: S.jax.jvp(sine(S), (S.jnp.float32(0.3),), (t,)))(ramp(S, 3)),
    "vmap_jvp_primals": lambda S: S.jax.vmap(
        lambda x: S.jax.jvp(sine(S), (x,), (S.jnp.float32(2),)))(ramp(S, 3)),
    "jvp_vmap": lambda S: S.jax.jvp(S.jax.vmap(sine(S)), (ramp(S, 3),), (ramp(S, 3) * 2,)),
    "jacfwd": lambda S: S.jax.jacfwd(sine(S))(S.jnp.float32(0.3)),
    "jvp_integer": lambda S: S.jax.jvp(
        lambda x: plain(S, lambda x, n: (x * n, n), lambda size, b, x, n: ((x, n), (True, True)))(x, 3)[0],
        (S.jnp.float32(2),), (S.jnp.float32(1),)),
    "grad": lambda S: S.jax.grad(sine(S))(0.3),
    "grad_vmap": lambda S: S.jax.grad(lambda x: S.jax.vmap(sine(S))(x).sum())(ramp(S, 3)),
    "with_vjp": lambda S: with_vjp(S)(0.3, 2.0),
    "with_vjp_grad": lambda S: S.jax.grad(with_vjp(S), (0, 1))(0.3, 2.0),
    "with_vjp_vmap": lambda S: S.jax.vmap(with_vjp(S))(ramp(S, 3), ramp(S, 3)),
    "with_vjp_vmap_grad": lambda S: S.jax.vmap(S.jax.grad(with_vjp(S), (0, 1)))(ramp(S, 3), ramp(S, 3)),
    "with_jvp": lambda S: S.jax.jvp(with_jvp(S), (S.jnp.float32(2),), (S.jnp.float32(1),)),
    "with_jvp_vmap": lambda S: S.jax.vmap(S.jax.value_and_grad(with_jvp(S)))(ramp(S, 3)),
    # one element after the other
    "sequential": lambda S: S.jax.vmap(sequential(S))(ramp(S, 3), {"a": ramp(S, 3), "b": ramp(S, 3)}),
    "sequential_call": lambda S: sequential(S)(2.0, {"a": 3.0, "b": 4.0}),
    "sequential_some": lambda S: S.jax.vmap(
        sequential(S), (None, {"a": 0, "b": None}))(2.0, {"a": ramp(S, 3), "b": 4.0}),
    "sequential_vmap_vmap": lambda S: S.jax.vmap(S.jax.vmap(
        S.jax.custom_batching.sequential_vmap(lambda x: x * x)))(ramp(S, 2, 3)),
    "sequential_jit": lambda S: S.jax.jit(S.jax.vmap(
        S.jax.custom_batching.sequential_vmap(lambda x: (x * x, x))))(ramp(S, 3)),
    "sequential_jvp": lambda S: S.jax.jvp(S.jax.vmap(
        S.jax.custom_batching.sequential_vmap(lambda x: x * x)), (ramp(S, 3),), (ramp(S, 3),)),
    "sequential_matrix": lambda S: S.jax.vmap(
        S.jax.custom_batching.sequential_vmap(lambda m, v: m @ v), (0, None))(ramp(S, 3, 2, 2), ramp(S, 2)),
    # errors
    "no_rule": lambda S: S.jax.custom_batching.custom_vmap(lambda x: x)(1.0),
    "no_rule_vmap": lambda S: S.jax.vmap(S.jax.custom_batching.custom_vmap(lambda x: x))(ramp(S, 3)),
    "rule_tree": lambda S: S.jax.vmap(plain(S, lambda x: x, lambda size, b, x: ((x,), (True,))))(ramp(S, 3)),
    "rule_flags_tree": lambda S: S.jax.vmap(plain(S, lambda x: (x, x), lambda size, b, x: ((x, x), True)))(ramp(S, 3)),
    "rule_takes_one": lambda S: S.jax.vmap(plain(S, lambda x: x, lambda x: x))(ramp(S, 3)),
    "rule_raises": lambda S: S.jax.vmap(plain(S, lambda x: x, lambda size, b, x: {}["missing"]))(ramp(S, 3)),
    "branch": lambda S: plain(S, lambda x: x if x > 0 else -x, lambda size, b, x: (x, True))(1.0),
    "string_argument": lambda S: swapped(S)("a", 1.0),
    "unknown_keyword": lambda S: swapped(S)(1.0, z=1.0),
}  # fmt: skip


def test_derivative_where_only_some_tangents_are_batched():
    """JAX gives the result a second batch axis here."""
    f = ferrax.custom_batching.custom_vmap(lambda x, n: (x * n, n))
    f.def_vmap(lambda size, batched, x, n: ((x * n * 3, n), tuple(batched)))
    xs, ns = jnp.arange(3.0), jnp.arange(1, 4)
    out, tangent = ferrax.vmap(
        lambda x, n: ferrax.jvp(lambda x: f(x, n)[0], (x,), (jnp.float32(1),))
    )(xs, ns)
    np.testing.assert_array_equal(out, 3 * xs * ns)
    np.testing.assert_array_equal(tangent, 3 * ns)


@pytest.mark.parametrize("name", CASES)
@same
def test_case(S, name):
    return arrays(S, CASES[name](S))


@pytest.mark.parametrize("in_axes", [(0, None), (None, 0)])
@pytest.mark.parametrize("linear", [True, False])
@same
def test_tangents_that_the_batch_does_not_reach(S, linear, in_axes):
    """A derivative that does not depend on the point has one tangent for a batch of points."""
    function = S.jax.custom_batching.custom_vmap(lambda x: 7.0 * x if linear else S.jnp.sin(x))
    function.def_vmap(lambda size, batched, x: (11.0 * x if linear else S.jnp.cos(x), batched[0]))
    lanes, one = S.jnp.arange(3.0), S.jnp.float32(4.0)
    args = [one if axis is None else lanes for axis in in_axes]

    def tangents(out_axes):
        derivative = lambda x, t: S.jax.jvp(function, [x], [t])  # noqa: E731
        return S.jax.vmap(derivative, in_axes=in_axes, out_axes=out_axes)(*args)

    lone = (0, None) if in_axes[0] == 0 else (None, 0)
    return tangents(0), tangents(lone) if linear or in_axes[0] is None else ()
