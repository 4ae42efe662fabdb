"""Tangents of integers (float0) against JAX: under `vmap`, `jit`, loops and branches, as inputs and
as outputs. What is compared are shapes and dtypes: they have no values."""

import numpy as np
import pytest
from oracle import FERRAX, JAX, attempt, compare, same

import ferrax
import ferrax.numpy as jnp

FLOAT0 = ferrax.float0


def none(shape):
    return np.zeros(shape, FLOAT0)


def both(x, n):
    return x * n, n


def total(x, n):
    return (x * n).sum()


def point(S, *shape):
    return S.jnp.ones(shape), S.jnp.ones(shape, "int32")


def gradient(S, fun=total):
    return S.jax.grad(fun, argnums=(0, 1), allow_int=True)


def pushed(S):
    return lambda x, n: S.jax.jvp(both, (x, n), (x, none(n.shape)))


def pulled(S, x, n):
    out, pull = S.jax.vjp(both, x, n)
    return out, pull((x, none(n.shape)))


def with_jvp(S):
    f = S.jax.custom_jvp(both)
    f.defjvp(lambda p, t: (f(*p), (t[0] * p[1], t[1])))
    return f


def with_vjp(S, cotangent):
    f = S.jax.custom_vjp(lambda x, n: x * n)
    f.defvjp(lambda x, n: (x * n, n), lambda n, g: (g * n, cotangent(n)))
    return lambda x, n: f(x, n).sum()


def looped(S):
    def f(x, n):
        def body(c, y):
            return (c[0] * y, c[1] + 1), (c[1], y)

        return S.lax.scan(body, (x, n), S.jnp.ones(4))

    return lambda x, n: S.jax.jvp(f, (x, n), (x, none(())))


VMAPPED = {
    "grad": lambda S: S.jax.vmap(gradient(S))(*point(S, 3, 2)),
    "of integers alone": lambda S: S.jax.vmap(
        S.jax.grad(lambda n: n * 2.5, allow_int=True), axis_name="i"
    )(S.jnp.arange(3)),
    "of booleans": lambda S: S.jax.vmap(gradient(S))(S.jnp.ones((3, 2)), S.jnp.ones((3, 2), bool)),
    "of keys": lambda S: S.jax.vmap(gradient(S, lambda x, k: (x * S.random.uniform(k)).sum()))(
        S.jnp.ones((3, 2)), S.random.split(S.random.key(0), 3)
    ),
    "not mapped": lambda S: S.jax.vmap(gradient(S), in_axes=(0, None))(
        S.jnp.ones((3, 2)), S.jnp.ones(2, "int32")
    ),
    "nothing mapped": lambda S: S.jax.vmap(
        lambda: S.jax.grad(lambda n: n * 2.0, allow_int=True)(S.jnp.int32(2)), axis_size=3
    )(),
    "in a tree": lambda S: S.jax.vmap(
        S.jax.value_and_grad(lambda d: total(*d["a"]), allow_int=True)
    )({"a": point(S, 3, 2)}),
    "out_axes": lambda S: [
        S.jax.vmap(gradient(S), out_axes=axes)(*point(S, 3, 2))
        for axes in (1, -1, (1, 0), (0, None))
    ],
    "out_axes before others": lambda S: S.jax.vmap(
        lambda x, n: gradient(S)(x, n)[::-1], out_axes=(0, 1)
    )(*point(S, 3, 2)),
    "nested": lambda S: S.jax.vmap(S.jax.vmap(gradient(S), out_axes=-1), out_axes=1)(
        *point(S, 4, 3, 2)
    ),
    "in jit": lambda S: S.jax.jit(S.jax.vmap(gradient(S)))(*point(S, 3, 2)),
    "of jit": lambda S: S.jax.vmap(S.jax.jit(gradient(S)))(*point(S, 3, 2)),
    "of checkpoint": lambda S: S.jax.vmap(gradient(S, S.jax.checkpoint(total)))(*point(S, 3, 2)),
    "jvp": lambda S: S.jax.vmap(pushed(S))(*point(S, 3, 2)),
    "jvp not mapped": lambda S: S.jax.vmap(pushed(S), in_axes=(0, None))(
        S.jnp.ones((3, 2)), S.jnp.ones(2, "int32")
    ),
    "jvp of vmap": lambda S: S.jax.jvp(
        S.jax.vmap(both), point(S, 3, 2), (S.jnp.ones((3, 2)), none((3, 2)))
    ),
    "jvp of a loop": lambda S: S.jax.vmap(looped(S))(S.jnp.ones(3), S.jnp.arange(3)),
    "vjp": lambda S: S.jax.vmap(lambda x, n: pulled(S, x, n))(*point(S, 3, 2)),
    "pullback": lambda S: S.jax.vmap(S.jax.vjp(both, *point(S, 3))[1])(
        (S.jnp.ones((4, 3)), none((4, 3)))
    ),
    "linearized": lambda S: S.jax.vmap(S.jax.linearize(both, *point(S, 3))[1])(
        S.jnp.ones((4, 3)), none((4, 3))
    ),
    "custom_jvp": lambda S: [
        S.jax.jvp(S.jax.vmap(with_jvp(S)), point(S, 3, 2), (S.jnp.ones((3, 2)), none((3, 2)))),
        S.jax.vmap(
            lambda x, n: S.jax.jvp(with_jvp(S), (x, n), (x, none(n.shape)))
        )(*point(S, 3, 2)),
    ],
    "custom_vjp": lambda S: [
        S.jax.vmap(gradient(S, with_vjp(S, cotangent)))(*point(S, 3, 2))
        for cotangent in (lambda n: None, lambda n: none(n.shape))
    ],
    "given": lambda S: S.jax.vmap(lambda x, t: (x, t))(S.jnp.ones((3, 2)), none((3, 2))),
    "given alone": lambda S: S.jax.vmap(lambda t: t, in_axes=1, out_axes=1)(none((3, 2))),
    "given in a tree": lambda S: S.jax.vmap(lambda d: d, in_axes=({"a": 0, "b": -1},))(
        {"a": S.jnp.ones((3, 2)), "b": none((2, 3))}
    ),
    "given, not mapped": lambda S: S.jax.vmap(lambda x, t: (x, t), in_axes=(0, None))(
        S.jnp.ones((3, 2)), none((3, 2))
    ),
    "made": lambda S: S.jax.vmap(lambda x: (none((2,)), x))(S.jnp.ones((3, 2))),
    "wrong size": lambda S: S.jax.vmap(lambda x, t: (x, t))(S.jnp.ones((3, 2)), none((4, 2))),
    "wrong axis": lambda S: S.jax.vmap(lambda t: t, in_axes=2)(none((4, 2))),
    "wrong out axis": lambda S: S.jax.vmap(gradient(S), out_axes=(0, 5))(*point(S, 3, 2)),
    "jacrev": lambda S: S.jax.jacrev(lambda n: n * 2.0, allow_int=True)(S.jnp.arange(3)),
    "jacfwd": lambda S: S.jax.jacfwd(lambda x: (x, x.astype("int32")))(S.jnp.ones(3)),
}  # fmt: skip

ELSEWHERE = {
    "given to jit": lambda S: S.jax.jit(lambda t, x: (x, t))(none((3, 2)), S.jnp.ones(2)),
    "keyword of jit": lambda S: S.jax.jit(lambda x, *, t: {"t": t, "x": x})(
        S.jnp.ones(2), t=none((3, 2))
    ),
    "beside static": lambda S: S.jax.jit(lambda n, t, x: (x * n, t), static_argnums=0)(
        3, none((3, 2)), S.jnp.ones(2)
    ),
    "pullback in jit": lambda S: S.jax.jit(S.jax.vjp(both, *point(S, 3))[1])(
        (S.jnp.ones(3), none((3,)))
    ),
    "jvp in jit": lambda S: S.jax.jit(
        lambda x, n, t: S.jax.jvp(S.jax.jit(both), (x, n), (x, t))
    )(*point(S, 3), none((3,))),
    "vjp in jit": lambda S: S.jax.jit(lambda x, n: pulled(S, x, n))(*point(S, 3)),
    "eval_shape": lambda S: [
        (S.jax.eval_shape(f, *point(S, 3))[1].shape, str(S.jax.eval_shape(f, *point(S, 3))[1].dtype))
        for f in (gradient(S), S.jax.jit(gradient(S)))
    ],
    "stacked": lambda S: S.lax.scan(
        lambda c, n: (c, gradient(S, lambda x, n: x * n)(c, n)), S.jnp.float32(1), S.jnp.arange(3)
    ),
    "stacked in jit": lambda S: S.jax.jit(
        lambda ns: S.lax.map(S.jax.grad(lambda n: n * 2.0, allow_int=True), ns)
    )(S.jnp.arange(3)),
    "carried": lambda S: S.lax.scan(
        lambda c, y: (c, y), (S.jnp.float32(1), none((2,))), S.jnp.ones(3)
    ),
    "carried by a while loop": lambda S: S.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1]), (0, none((2,)))
    ),
    "changed in a carry": lambda S: S.lax.scan(
        lambda c, y: (none((3,)), y), none((2,)), S.jnp.ones(3)
    ),
    "branches": lambda S: S.jax.jit(
        lambda p, n: S.lax.cond(
            p, S.jax.grad(lambda n: n * 2.0, allow_int=True), lambda n: none(()), n
        )
    )(True, S.jnp.int32(2)),
    "checkpoint": lambda S: S.jax.checkpoint(lambda x, t: (x, t))(S.jnp.ones(3), none((2,))),
    "changed by a branch": lambda S: S.lax.cond(
        True, lambda x: (x, none((3,))), lambda x: (x, none((2,))), 1.0
    ),
    "carried as something else": lambda S: S.lax.while_loop(
        lambda c: False, lambda c: S.jnp.ones(2), none((2,))
    ),
    "wrong tangent shape": lambda S: S.jax.jvp(lambda n: n, (S.jnp.arange(3),), (none((2,)),)),
}  # fmt: skip


@pytest.mark.parametrize("name", VMAPPED)
@same
def test_under_vmap(S, name):
    return VMAPPED[name](S)


@pytest.mark.parametrize("name", ELSEWHERE)
@same
def test_elsewhere(S, name):
    return ELSEWHERE[name](S)


# Functions of arrays of dtype float0, which the pullback of a function of integers is.
AT_NONE = {
    "vjp": lambda S, f, x: (lambda out, pull: (out, pull(out)))(*S.jax.vjp(f, x, none((3,)))),
    "vjp, a tree": lambda S, f, x: S.jax.vjp(lambda d: f(d["x"], d["n"]), {"n": none((3,)), "x": x})[1](f(x, none((3,)))),
    "jvp": lambda S, f, x: S.jax.jvp(f, (x, none((3,))), (x, none((3,)))),
    "linearize": lambda S, f, x: S.jax.linearize(f, x, none((3,)))[1](x, none((3,))),
    "twice": lambda S, f, x: S.jax.vjp(S.jax.vjp(total, x, S.jnp.arange(3))[1], S.jnp.float32(2))[1]((x, none((3,)))),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", AT_NONE)
@same
def test_at_arrays_without_values(S, name, jitted):
    def f(x, n):
        assert n.dtype == FLOAT0
        return S.jnp.sin(x), n

    call = lambda x: AT_NONE[name](S, f, x)  # noqa: E731
    return (S.jax.jit(call) if jitted else call)(S.jnp.arange(3.0))


def test_tangents_of_arrays_without_values():
    with pytest.raises(TypeError):
        ferrax.jvp(lambda n: n, (none((3,)),), (jnp.ones(3),))
    with pytest.raises((TypeError, ValueError)):
        ferrax.jvp(lambda n: n, (none((3,)),), (none((4,)),))


def test_elements_of_a_scan():
    # JAX does not compile this.
    _, (ys, n) = ferrax.lax.scan(lambda c, x: (c, x), 0.0, (jnp.ones(3), none((3, 2))))
    assert ys.shape == (3,) and n.shape == (3, 2) and n.dtype == FLOAT0
    with pytest.raises(ValueError, match=r"float0\[4,2\]"):
        ferrax.lax.scan(lambda c, x: (c, x), 0.0, (jnp.ones(3), none((4, 2))))


def test_without_jit():
    def run(S):
        return S.lax.scan(
            lambda c, n: (c, gradient(S, lambda x, n: x * n)(c, n)), 1.0, S.jnp.arange(3)
        )

    with ferrax.disable_jit():
        ours = run(FERRAX)
    compare(ours, attempt(run, JAX), weak=False)


def test_one_trace_for_each_shape():
    traces = []

    @ferrax.jit
    def f(x, t):
        traces.append(t.shape)
        return x

    for shape in ((3,), (3,), (2,), (3,)):
        f(jnp.ones(2), none(shape))
    assert traces == [(3,), (2,)]


def test_sizes_in_messages():
    with pytest.raises(ValueError, match=r"float0\[4,2\] has size 4 along axis 0"):
        ferrax.vmap(lambda x, t: x)(jnp.ones((3, 2)), none((4, 2)))
